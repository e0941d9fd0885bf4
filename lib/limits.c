/* Limits of calls that parse texts, open files and build graphs: memory by the arena's limit, time and the host's flag by its
 * watch. */
#include "lib/lib.h"

/* What a call may take for each byte that it is given: names, numbers and nodes of a text are larger than their characters. */
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

static bool is_over(void *user, lib_error *error) {
    lib_allowance *a = user;
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

void lib_allowance_begin(lib_allowance *a, lib_arena *arena, const dlc_limits *limits, size_t input) {
    *a = (lib_allowance){.watch = {is_over, a}, .limits = limits, .input = input, .outer_limit = arena->limit};
    if (arena->watch || arena->limit) return;
    size_t more;
    if (!lib_size_multiply(input, LIB_LIMIT_MEMORY_PER_BYTE, &more) || !lib_size_add(more, limits->memory, &more) ||
        !lib_size_add(more, arena->total, &more))
        more = SIZE_MAX;
    arena->limit = more;
    arena->limit_name = "limits.memory";
    arena->watch = &a->watch;
}

void lib_allowance_end(const lib_allowance *a, lib_arena *arena) {
    if (arena->watch != &a->watch) return;
    arena->limit = a->outer_limit;
    arena->limit_name = NULL;
    arena->watch = NULL;
}
