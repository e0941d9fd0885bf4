#include "tir/scheduled.h"
#include "tir/arith.h"
#include "tir/interpret.h"
#include "tir/schedule.h"
#include "units.h"

#include <limits.h>
#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
/* after the above */
#include <cmocka.h>

enum { ARGUMENTS = 16 };

/* In (-1, 1); integers get small numbers of both signs. */
static double random_unit(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 33) / (double)(1u << 30) - 1;
}

typedef struct run {
    lib_arena *arena;
    tir_region *region, *rewritten;
    tir_kernel *kernel;
    /* inputs as the region and as the kernel sees them; outputs */
    void *logical[ARGUMENTS], *argument[ARGUMENTS];
    /* varying dimensions in this round */
    int64_t params[TIR_MAX_AXES];
    scheduled_report *report;
} run;

/* Under the round's parameters. */
static int64_t extent_of(const run *r, tir_expr extent) {
    uint64_t *variables = LIB_NEW_ARRAY(r->arena, uint64_t, r->region->pool->variables.count + 1);
    for (uint32_t p = 0; p < r->region->params.count; p++)
        variables[tir_var_id(r->region->pool, r->region->params.data[p])] = (uint64_t)r->params[p];
    return (int64_t)tir_evaluate(r->region->pool, extent, &(tir_evaluator){.variables = variables});
}

static int64_t tensor_count(const run *r, const tir_tensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++) n *= extent_of(r, t->extent[d]);
    return n;
}

static int64_t physical_extents(const run *r, const tir_tensor *t, int64_t *extent) {
    tir_expr physical[TIR_MAX_PHYSICAL];
    tir_layout_extents(r->region->pool, &t->layout, t->extent, physical);
    int64_t size = 1;
    for (int p = 0; p < tir_layout_physical_rank(&t->layout); p++) size *= extent[p] = extent_of(r, physical[p]);
    return size;
}

/* The physical copy of a tensor in a layout; padding holds zeros. */
static void *pack(const run *r, const tir_tensor *t, const void *from) {
    tir_region *region = r->region;
    tir_expr at[TIR_MAX_PHYSICAL], index[DLC_MAX_RANK];
    int rank = tir_layout_physical_rank(&t->layout);
    int64_t extent[TIR_MAX_PHYSICAL], size = physical_extents(r, t, extent);
    size_t bytes = lib_dtype_size(t->dtype);
    char *to = lib_arena_take_aligned(region->arena, (size_t)size * bytes + 1, 64);
    memset(to, 0, (size_t)size * bytes);
    int64_t n = tensor_count(r, t), logical[DLC_MAX_RANK] = {0};
    for (int64_t i = 0; i < n; i++) {
        int64_t offset = 0;
        for (int d = 0; d < t->rank; d++) index[d] = tir_index(region->pool, logical[d]);
        tir_layout_indices(region->pool, &t->layout, index, at);
        for (int p = 0; p < rank; p++) offset = offset * extent[p] + extent_of(r, at[p]);
        memcpy(to + (size_t)offset * bytes, (const char *)from + (size_t)i * bytes, bytes);
        for (int d = t->rank - 1; d >= 0; d--) {
            if (++logical[d] < extent_of(r, t->extent[d])) break;
            logical[d] = 0;
        }
    }
    return to;
}

static void make_arguments(run *r, uint64_t seed) {
    for (uint32_t t = 0; t < r->region->tensors.count; t++) {
        const tir_tensor *tensor = &r->region->tensors.data[t];
        if (tensor->argument < 0) continue;
        int64_t extent[TIR_MAX_PHYSICAL], n = physical_extents(r, tensor, extent);
        size_t size = lib_dtype_size(tensor->dtype);
        char *data = lib_arena_take_aligned(r->arena, (size_t)n * size + 1, 64);
        for (int64_t i = 0; i < n; i++) {
            double value = random_unit(&seed);
            if (!lib_dtype_is_float(tensor->dtype)) value = floor(value * 9);
            lib_element_set_f64(tensor->dtype, data + (size_t)i * size, value);
        }
        r->logical[tensor->argument] = r->argument[tensor->argument] = data;
        if (tensor->argument < r->region->inputs && !tir_layout_is_identity(&tensor->layout))
            r->logical[tensor->argument] = pack(r, tensor, data);
        if (tensor->argument >= r->region->inputs) continue;
        for (uint32_t k = 0; k < r->rewritten->tensors.count; k++)
            if (r->rewritten->tensors.data[k].argument == tensor->argument)
                r->argument[tensor->argument] = pack(r, &r->rewritten->tensors.data[k], data);
    }
}

static bool same_outputs(run *r, double tolerance) {
    for (uint32_t t = 0; t < r->region->tensors.count; t++) {
        const tir_tensor tensor = r->region->tensors.data[t];
        if (tensor.argument < r->region->inputs) continue;
        int64_t n = tensor_count(r, &tensor);
        int64_t *points = LIB_NEW_ARRAY(r->arena, int64_t, (size_t)(n * tensor.rank + 1));
        uint64_t *expected = LIB_NEW_ARRAY(r->arena, uint64_t, (size_t)n + 1);
        for (int64_t i = 0; i < n; i++) {
            int64_t rest = i;
            for (int d = tensor.rank - 1; d >= 0; d--) {
                int64_t extent = extent_of(r, tensor.extent[d]);
                points[i * tensor.rank + d] = rest % extent;
                rest /= extent;
            }
        }
        tir_region_evaluate(r->arena, r->region, r->logical, r->params, t, n, points, (tir_rounding){.has_fma = true},
                            expected);
        size_t size = lib_dtype_size(tensor.dtype);
        char *logical = LIB_NEW_ARRAY(r->arena, char, (size_t)(n + 1) * size);
        for (int64_t i = 0; i < n; i++)
            tir_bits_store((tir_dtype)tensor.dtype, logical + (size_t)i * size, expected[i]);
        const char *packed = pack(r, &tensor, logical); /* as the kernel must leave it, padding included */
        int64_t extent[TIR_MAX_PHYSICAL], stored = physical_extents(r, &tensor, extent);
        for (int64_t i = 0; i < stored; i++) {
            tir_dtype dtype = (tir_dtype)tensor.dtype;
            uint64_t got = tir_bits_load(dtype, (char *)r->argument[tensor.argument] + (size_t)i * size);
            uint64_t wanted = tir_bits_load(dtype, packed + (size_t)i * size);
            double g = tir_bits_to_f64(dtype, got), e = tir_bits_to_f64(dtype, wanted);
            if (got == wanted || (isnan(g) && isnan(e)) || (tolerance > 0 && fabs(g - e) <= tolerance * (1 + fabs(e))))
                continue;
            snprintf(r->report->message, sizeof r->report->message, "%s element %lld is %.9g, expected %.9g",
                     tensor.name, (long long)i, g, e);
            return false;
        }
    }
    return true;
}

static bool interpret(run *r, bool reverse) {
    for (uint32_t t = 0; t < r->region->tensors.count; t++) {
        const tir_tensor *tensor = &r->region->tensors.data[t];
        if (tensor->argument < r->region->inputs) continue;
        int64_t extent[TIR_MAX_PHYSICAL];
        memset(r->argument[tensor->argument], 0xff,
               (size_t)physical_extents(r, tensor, extent) * lib_dtype_size(tensor->dtype));
    }
    lib_error error;
    tir_bank_report banks;
    tir_interpret_options options = {.check = true, .reverse_tasks = reverse, .reverse_lanes = reverse};
    for (uint32_t p = 0; p < r->kernel->phases.count; p++)
        options.stored_once |= tir_threads(r->kernel->pool, r->kernel->phases.data[p].body) > 1;
    if (options.stored_once && !reverse) options.banks = &banks;
    if (tir_interpret(r->kernel, r->argument, r->params, &options, &lib_libc_allocator, &error) == DLC_OK) {
        if (!options.banks) return true;
        r->report->accesses = (long)banks.accesses;
        r->report->conflicts = (long)banks.conflicts;
        r->report->requests = (long)banks.requests;
        r->report->sectors = (long)banks.sectors;
        r->report->excess = (long)banks.excess;
        memcpy(r->report->worst, banks.worst, sizeof r->report->worst);
        return true;
    }
    snprintf(r->report->message, sizeof r->report->message, "%s", error.message);
    return false;
}

static tir_region *parse(lib_arena *arena, tir_pool *pool, const char *text) {
    lib_lexer lexer;
    lib_lexer_init(&lexer, arena, "region", text, strlen(text));
    lib_lexer_next(&lexer);
    tir_region *region = tir_region_parse(arena, pool, &lexer);
    tir_region_verify(arena->scope, region);
    return region;
}

static void lower(run *r, const char *schedule_text) {
    tir_schedule schedule;
    tir_schedule_init(&schedule, r->arena);
    lib_text_add(&schedule.text, schedule_text);
    tir_machine machine = {.fma = 1,
                           .vector_bytes = 64,
                           .vector_registers = 32,
                           .line = 64,
                           .shared_memory = 99 << 10,
                           .unit_bits = -1,
                           .units = test_units};
    tir_lower_options options = {.machine = &machine, .verify = true};
    r->rewritten = tir_region_copy(r->arena, r->region);
    tir_schedule_rewrite(r->rewritten, &schedule, &options);
    tir_region_verify(r->arena->scope, r->rewritten);
    r->kernel = tir_lower(r->arena, r->region, &schedule, &options);
    lib_text text;
    lib_text_init(&text, r->arena);
    tir_kernel_print(&text, r->kernel);
    r->report->kernel = strdup(text.data);
}

/* Several values of each parameter within its range; one round without parameters. False: enough. */
static bool next_params(run *r, int round) {
    static const int64_t values[] = {1, 0, 5, 6, 7, 13, 16, 24};
    for (uint32_t p = 0; p < r->region->params.count; p++) {
        tir_interval range = tir_range(r->region->pool, r->region->params.data[p]);
        int64_t value = values[(round + (int)p) % (int)(sizeof values / sizeof *values)];
        r->params[p] = value < range.low ? range.low : value > range.high ? range.high : value;
    }
    return round < (r->region->params.count ? (int)(sizeof values / sizeof *values) : 1);
}

/* The interpreter's history of accesses takes megabytes for a moment, in each run: the process keeps them. Otherwise clearing pages of the
 * system takes as long as all else. */
__attribute__((constructor)) static void keep_memory(void) {
    mallopt(M_MMAP_THRESHOLD, INT_MAX);
    mallopt(M_TOP_PAD, 64 << 20);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

scheduled_outcome scheduled_run(const char *region, const char *schedule, double tolerance, uint64_t seed, bool check,
                                scheduled_report *report) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    *report = (scheduled_report){.kernel = NULL};
    volatile bool parsed = false;
    if (!LIB_ENTER(&scope)) {
        snprintf(report->message, sizeof report->message, "%s", scope.error.message);
        bool refused = parsed && (scope.error.status == DLC_INVALID_ARGUMENT || scope.error.status == DLC_UNSUPPORTED);
        lib_arena_free(&arena);
        return refused ? SCHEDULED_REFUSED : SCHEDULED_FAILS;
    }
    tir_pool *pool = LIB_NEW(&arena, tir_pool);
    tir_pool_init(pool, &arena);
    run r = {.arena = &arena, .region = parse(&arena, pool, region), .report = report};
    parsed = true;
    lower(&r, schedule);
    bool good = true;
    for (int round = 0; check && good && next_params(&r, round); round++) {
        make_arguments(&r, seed);
        for (int reverse = 0; reverse < 2 && good; reverse++)
            good = interpret(&r, reverse) && same_outputs(&r, tolerance);
    }
    lib_arena_free(&arena);
    return good ? SCHEDULED_AGREES : SCHEDULED_FAILS;
}
