/* What calls of the host's begin and end with: who is inside, as a forked child finds it; cancellation; stacks. */
#include "lib/lib.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { ANY_STACK = 1 << 20 };

static dlc_status enter(lib_call *call, lib_callers *callers) {
    lib_error error;
    return lib_call_enter(call, callers, ANY_STACK, 0, &error);
}

/* Whether a child, and a child of it, may enter. */
static bool child_may_enter(lib_callers *callers) {
    const pid_t child = fork();
    if (child == 0) {
        lib_call call;
        alarm(60);
        const bool may = enter(&call, callers) == DLC_OK;
        lib_call_leave(&call);
        const pid_t next = fork();
        if (next == 0) _exit(enter(&call, callers) == DLC_OK ? 1 : 0);
        int status;
        _exit(waitpid(next, &status, 0) == next && WEXITSTATUS(status) == may ? may : 2);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status) == 1;
}

typedef struct visitor {
    lib_callers *callers;
    atomic_bool inside, leave;
} visitor;

static void *visit(void *argument) {
    visitor *v = argument;
    lib_call call;
    assert_int_equal(enter(&call, v->callers), DLC_OK);
    atomic_store(&v->inside, true);
    while (!atomic_load(&v->leave)) usleep(100);
    lib_call_leave(&call);
    return NULL;
}

static void check_forks(lib_callers *callers) {
    visitor v = {.callers = callers};
    lib_call outer, inner;
    pthread_t id;
    assert_true(child_may_enter(callers));
    assert_int_equal(enter(&outer, callers), DLC_OK);
    assert_int_equal(enter(&inner, callers), DLC_OK);
    assert_true(child_may_enter(callers)); /* the thread that forks is not lost */
    lib_call_leave(&inner);
    lib_call_leave(&outer);
    assert_int_equal(pthread_create(&id, NULL, visit, &v), 0);
    while (!atomic_load(&v.inside)) usleep(100);
    assert_false(child_may_enter(callers));
    assert_int_equal(enter(&outer, callers), DLC_OK); /* in the parent all is as it was */
    assert_false(child_may_enter(callers));
    lib_call_leave(&outer);
    atomic_store(&v.leave, true);
    assert_int_equal(pthread_join(id, NULL), 0);
    assert_true(child_may_enter(callers));
}

static void test_forks(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__ /* which does not follow threads into a forked child */
    skip();
#endif
    static lib_callers by_number; /* zeros: by the process' number */
    lib_callers by_page;
    lib_callers_init(&by_page);
    check_forks(&by_page);
    lib_callers_free(&by_page);
    check_forks(&by_number);
}

static void test_cancellation(void **state) {
    (void)state;
    lib_call outer, inner;
    int was;
    assert_int_equal(enter(&outer, NULL), DLC_OK);
    assert_int_equal(enter(&inner, NULL), DLC_OK);
    lib_call_leave(&inner);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was);
    assert_int_equal(was, PTHREAD_CANCEL_DISABLE);
    lib_call_leave(&outer);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &was);
    assert_int_equal(was, PTHREAD_CANCEL_ENABLE);
}

/* A call that is refused leaves nothing behind, and may be left. */
static void test_stack(void **state) {
    (void)state;
    lib_callers callers;
    lib_call call;
    lib_error error;
    int was;
    lib_callers_init(&callers);
    assert_int_equal(lib_call_enter(&call, &callers, ANY_STACK, SIZE_MAX / 2, &error), DLC_OUT_OF_MEMORY);
    assert_int_equal(callers.inside, 0);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &was);
    assert_int_equal(was, PTHREAD_CANCEL_ENABLE);
    lib_call_leave(&call);
    assert_int_equal(callers.inside, 0);
    assert_true(lib_stack_has(1024, 0));
    assert_false(lib_stack_has(SIZE_MAX / 2, SIZE_MAX));
    lib_callers_free(&callers);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forks),
        cmocka_unit_test(test_cancellation),
        cmocka_unit_test(test_stack),
    };
    return cmocka_run_group_tests_name("calls", tests, NULL, NULL);
}
