/* A context for tests of the graph layer alone: what jit provides otherwise. */
#ifndef TEST_GRAPH_CONTEXT_H
#define TEST_GRAPH_CONTEXT_H

#include "graph/api.h"
#include "graph/build.h"
#include "graph/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

struct dlc_context {
    dlc_allocator allocator;
    dlc_limits limits;
    graph_handles handles;
    lib_error last;
    /* of a failing allocator; negative: no limit */
    int64_t allocations_left;
    int64_t live;
    /* graphs */
    int kept;
};

static lib_error error_without_context;

const dlc_allocator *graph_context_allocator(dlc_context *context) {
    return &context->allocator;
}
graph_handles *graph_context_handles(dlc_context *context) {
    return &context->handles;
}
const dlc_limits *graph_context_limits(const dlc_context *context) {
    return &context->limits;
}
const lib_log *graph_context_log(const dlc_context *context) {
    static const lib_log none;
    (void)context;
    return &none;
}
dlc_status graph_context_enter(dlc_context *context, lib_call *call, size_t need, lib_error *error) {
    (void)context;
    return lib_call_enter(call, NULL, LIB_STACK_UNKNOWN, need, error);
}
dlc_status graph_context_fail(dlc_context *context, const lib_error *error) {
    *(context ? &context->last : &error_without_context) = *error;
    return error->status;
}
void graph_context_keep(dlc_context *context) {
    context->kept++;
}
void graph_context_release(dlc_context *context) {
    context->kept--;
}
graph_holder *graph_context_holder_of(dlc_custom_function *function, void *user) {
    (void)function, (void)user;
    return NULL;
}
void graph_context_add_cause(lib_error *error) {
    (void)error;
}

static void *test_allocate(void *user, size_t size, size_t alignment) {
    dlc_context *context = user;
    if (context->allocations_left == 0) return NULL;
    if (context->allocations_left > 0) context->allocations_left--;
    context->live++;
    return lib_allocate(&lib_libc_allocator, size, alignment);
}

static void test_release(void *user, void *pointer, size_t size, size_t alignment) {
    dlc_context *context = user;
    if (pointer) context->live--;
    lib_release(&lib_libc_allocator, pointer, size, alignment);
}

static inline void context_open(dlc_context *context) {
    *context = (dlc_context){.allocations_left = -1};
    context->allocator = (dlc_allocator){test_allocate, test_release, context};
    lib_limits_complete(&context->limits, NULL);
    graph_handles_init(&context->handles);
}

static inline void context_close(dlc_context *context) {
    context->allocations_left = -1;
    graph_handles_free(&context->handles, &context->allocator);
    assert_int_equal(context->live, 0);
}

/* ---- compiler-side code in a scope of its own */

typedef struct workbench {
    lib_scope scope;
    lib_arena arena;
} workbench;

static inline void bench_open(workbench *bench) {
    lib_arena_init(&bench->arena, &lib_libc_allocator, &bench->scope);
}
static inline void bench_close(workbench *bench) {
    lib_arena_free(&bench->arena);
}

/* Runs body; fails the test when it raises. */
static inline void bench_run(workbench *bench, void (*body)(workbench *bench, void *user), void *user) {
    if (LIB_ENTER(&bench->scope)) {
        body(bench, user);
        return;
    }
    fail_msg("%s: %s", lib_status_text(bench->scope.error.status), bench->scope.error.message);
}

static inline graph *parse_graph(workbench *bench, const char *text) {
    lib_lexer lexer;
    lib_lexer_init(&lexer, &bench->arena, "<test>", text, strlen(text));
    return graph_parse(&bench->arena, &lexer);
}

static inline const char *print_graph(workbench *bench, const graph *g) {
    lib_text text;
    lib_text_init(&text, &bench->arena);
    graph_print(&text, g);
    return text.data;
}

#endif
