/* Entry and exit of public calls other than runs of bound shapes: thread cancellation is disabled, the stack is
 * checked, and a forked child does not wait for threads that exist in its parent only.
 *
 * fork copies memory as it is at that moment, and only the thread that calls it. Work of other threads stays half done in the
 * child: mutexes stay locked, claims are never settled. So calls are counted while they are in progress. The first call in a child
 * checks the inherited count: if no thread but the forking one was inside a call (it may be, in a callback), the state is that between two
 * calls; else calls on these objects are refused in the child from then on. Runs of bound shapes take no lock, and need none of this. */
#include "lib/lib.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- a page that the kernel empties in a forked child */

void *lib_page_until_fork(void) {
#ifdef MADV_WIPEONFORK
    const size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return NULL;
    if (madvise(page, size, MADV_WIPEONFORK) == 0) return page;
    munmap(page, size);
#endif
    return NULL;
}

void lib_page_free(void *page) {
    if (page) munmap(page, (size_t)sysconf(_SC_PAGESIZE));
}

lib_process lib_process_here(void) {
    bool *mark = lib_page_until_fork();
    if (mark) *mark = true;
    return (lib_process){mark, getpid()};
}

bool lib_process_is_here(const lib_process *process) {
    return process->mark ? *process->mark : process->number == getpid();
}

void lib_process_forget(lib_process *process) {
    lib_page_free((void *)(uintptr_t)process->mark);
    process->mark = NULL;
}

/* ---- calls in progress */

/* A process's verdict on inherited objects; 0: none yet. Without a wiped page the process id tells whose verdict it is. */
enum { USABLE = 1, LEFT = 2 };

static uint64_t verdict_of_here(const lib_callers *callers, uint64_t verdict) {
    return callers->page ? verdict : (uint64_t)(uint32_t)getpid() << 32 | verdict;
}

void lib_callers_init(lib_callers *callers) {
    atomic_init(&callers->inside, 0);
    callers->page = lib_page_until_fork();
    atomic_store(callers->page ? callers->page : &callers->verdict, verdict_of_here(callers, USABLE));
}

void lib_callers_free(lib_callers *callers) {
    lib_page_free(callers->page);
    callers->page = NULL;
}

/* The calls that this thread is in, innermost first. */
static LIB_THREAD_LOCAL lib_call *calls_of_thread;

static int own_calls(const lib_callers *callers) {
    int count = 0;
    for (const lib_call *call = calls_of_thread; call; call = call->outer) count += call->callers == callers;
    return count;
}

/* May this process use objects of these callers? Gives the verdict if there is none yet, from the inherited count: no call of this
 * process is counted before. */
static bool is_usable(lib_callers *callers) {
    _Atomic uint64_t *place = callers->page ? callers->page : &callers->verdict;
    const uint64_t usable = verdict_of_here(callers, USABLE), left = verdict_of_here(callers, LEFT);
    uint64_t seen = atomic_load_explicit(place, memory_order_acquire);
    while (seen != usable && seen != left) {
        const bool alone = atomic_load(&callers->inside) <= own_calls(callers);
        const bool was_usable = callers->page || !((uint32_t)seen & LEFT);
        if (atomic_compare_exchange_strong(place, &seen, alone && was_usable ? usable : left)) seen = *place;
    }
    return seen == usable;
}

/* ---- calls */

static dlc_status refuse(lib_error *error) {
    return lib_fail(error, DLC_UNSUPPORTED,
                    "this process was forked while another thread was in a call: objects from before are of no use "
                    "here, but to run shapes that are bound; make new ones");
}

dlc_status lib_call_enter(lib_call *call, lib_callers *callers, size_t unknown_stack, size_t need, lib_error *error) {
    *call = (lib_call){.outer = calls_of_thread};
    if (callers && !is_usable(callers)) return refuse(error);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &call->cancelability);
    call->stack = lib_stack_enter(unknown_stack);
    call->callers = callers;
    call->entered = true;
    calls_of_thread = call;
    if (callers) atomic_fetch_add_explicit(&callers->inside, 1, memory_order_relaxed);
    if (lib_stack_check(need, error) == DLC_OK) return DLC_OK;
    lib_call_leave(call);
    call->entered = false;
    return DLC_OUT_OF_MEMORY;
}

void lib_call_leave(lib_call *call) {
    if (!call->entered) return;
    if (call->callers) atomic_fetch_sub_explicit(&call->callers->inside, 1, memory_order_release);
    calls_of_thread = call->outer;
    lib_stack_leave(call->stack);
    pthread_setcancelstate(call->cancelability, NULL);
}

int lib_cancel_off(void) {
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

void lib_cancel_restore(int before) {
    pthread_setcancelstate(before, NULL);
}
