/* Limits of calls that parse texts, open files and build graphs: memory by the arena's limit, time and the host's cancel flag by its
 * watch. */
#include "lib/lib.h"

/* Bytes of input that extend the time limit by one millisecond. */
enum { BYTES_PER_MS = 1024 };

bool lib_limits_complete(dlc_limits *limits, lib_error *error) {
#define X(member, default_)                                                      \
    if ((int64_t)limits->member < 0) {                                           \
        lib_fail(error, DLC_INVALID_ARGUMENT, "limits." #member " is negative"); \
        return false;                                                            \
    }                                                                            \
    if (!limits->member) limits->member = default_;
    LIB_LIMITS_TABLE(X)
#undef X
    return true;
}

size_t lib_allowed_memory(const dlc_limits *limits, size_t input) {
    size_t memory;
    if (!lib_size_multiply(input, LIB_LIMIT_MEMORY_PER_BYTE, &memory) || !lib_size_add(memory, limits->memory, &memory))
        return SIZE_MAX;
    return memory;
}

static bool is_over(void *user, lib_error *error) {
    lib_allowance *a = user;
    if (a->outer_watch && a->outer_watch->is_over(a->outer_watch->user, error)) return true;
    if (lib_is_raised(a->limits->cancel)) {
        lib_fail(error, DLC_CANCELLED, "the call was cancelled");
        return true;
    }
    const uint64_t now = lib_time_ns();
    const uint64_t milliseconds = (uint64_t)a->limits->time_ms + a->input / BYTES_PER_MS;
    if (!a->deadline_ns)
        a->deadline_ns = milliseconds < INT64_MAX / 1000000 ? now + milliseconds * 1000000 : UINT64_MAX;
    if (now < a->deadline_ns) return false;
    lib_fail(error, DLC_BUDGET_EXCEEDED, "the call took longer than limits.time_ms = %lld and what its input adds",
             (long long)a->limits->time_ms);
    return true;
}

void lib_allowance_begin_within(lib_allowance *a, lib_arena *arena, const dlc_limits *limits, size_t input) {
    *a = (lib_allowance){.watch = {is_over, a},
                         .limits = limits,
                         .input = input,
                         .outer_limit = arena->limit,
                         .outer_name = arena->limit_name,
                         .outer_watch = arena->watch};
    arena->watch = &a->watch;
    const size_t more = lib_allowed_memory(limits, input);
    size_t limit;
    if (!lib_size_add(more, arena->total, &limit)) limit = SIZE_MAX;
    if (arena->limit && arena->limit <= limit) return;
    arena->limit = limit;
    arena->limit_name = "limits.memory";
}

void lib_allowance_begin(lib_allowance *a, lib_arena *arena, const dlc_limits *limits, size_t input) {
    *a = (lib_allowance){.limits = limits};
    if (!arena->watch && !arena->limit) lib_allowance_begin_within(a, arena, limits, input);
}

void lib_allowance_end(const lib_allowance *a, lib_arena *arena) {
    if (arena->watch != &a->watch) return;
    arena->limit = a->outer_limit;
    arena->limit_name = a->outer_name;
    arena->watch = a->outer_watch;
}
