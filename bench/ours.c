/* libdlc as a contestant: a case as one program, or as several of which each takes the result of the one before. */
#include "bench/ours.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KERNELS = 256 };

static DLTensor tensor_of(bench_operand *o) {
    static const DLDataType types[] = {
#define X(code, text, bits, dlpack, class_, usable) [code] = {(uint8_t)dlpack, bits, 1},
        DLC_DTYPE_TABLE(X)
#undef X
    };
    return (DLTensor){
        .data = o->data, .device = {kDLCPU, 0}, .ndim = o->rank, .dtype = types[o->dtype], .shape = o->dims};
}

static dlc_status prepare_stage(dlc_context *context, const dlc_compile_options *options, bench_stage *s,
                                bench_build_function *build, const bench_shape *shape, const bench_steps *steps) {
    dlc_graph *graph = NULL;
    dlc_status status = dlc_graph_create(context, &graph);
    if (status) return status;
    bench_case_build(&s->builder, build, shape, graph, steps);
    double start = bench_now();
    status = dlc_compile(context, graph, options, &s->program);
    s->first_seconds = bench_now() - start;
    dlc_graph_destroy(graph);
    bench_problem *p = &s->builder.problem;
    for (int i = 0; i < p->operand_count; i++) {
        s->tensors[i] = tensor_of(&p->operands[i]);
        if (!p->operands[i].constant) s->inputs[s->input_count++] = &s->tensors[i];
    }
    for (int i = 0; i < p->result_count; i++) s->tensors[p->operand_count + i] = tensor_of(&p->results[i]);
    return status;
}

/* Binds a stage's tensors beforehand, as the peers' arguments are. */
static dlc_status bind_stage(bench_stage *s) {
    DLTensor *outputs[BENCH_MAX_RESULTS];
    const bench_builder *b = &s->builder;
    int count = b->problem.result_count;
    for (int i = 0; i < count; i++) {
        outputs[i] = &s->tensors[b->replaced[i] ? b->replaced[i] : b->problem.operand_count + i];
        dlc_status status = b->replaced[i] ? dlc_program_alias(s->program, i, b->replaced[i]) : DLC_OK;
        if (status) return status;
    }
    return dlc_call_create(s->program, s->inputs, s->input_count, outputs, count, &s->call);
}

/* Sum of the predictions in the text of a profile, in seconds. */
static double sum_predicted(const char *text) {
    static const char word[] = "predicted ";
    double sum = 0;
    while ((text = strstr(text, word)) != NULL) sum += strtod(text += sizeof word - 1, NULL);
    return sum * 1e-6;
}

/* A dump of a stage's program; NULL: failed. To be freed with dlc_text_free. */
static char *dump_stage(const bench_stage *s, const char *what) {
    const int64_t *shapes[BENCH_MAX_OPERANDS];
    int ranks[BENCH_MAX_OPERANDS];
    for (int k = 0; k < s->input_count; k++) shapes[k] = s->inputs[k]->shape, ranks[k] = s->inputs[k]->ndim;
    char *text = NULL;
    return dlc_program_dump(s->program, what, shapes, ranks, s->input_count, &text) ? NULL : text;
}

char *bench_programs_dump(const bench_programs *p, const char *what) {
    return dump_stage(&p->stages[0], what);
}

double bench_programs_arena(dlc_context *context, const bench_programs *p) {
    static const char word[] = "arena of ";
    char *text = dump_stage(&p->stages[0], "plan");
    const char *at = text ? strstr(text, word) : NULL;
    const double bytes = at ? strtod(at + sizeof word - 1, NULL) : 0;
    dlc_text_free(context, text);
    return bytes;
}

double bench_programs_predict(dlc_context *context, const bench_programs *p) {
    double sum = 0;
    for (int i = 0; i < p->count; i++) {
        char *text = dump_stage(&p->stages[i], "profile");
        if (text) sum += sum_predicted(text);
        dlc_text_free(context, text);
    }
    return sum;
}

typedef struct hashes {
    uint64_t values[MAX_KERNELS];
    int count;
} hashes;

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Collects the hashes of the regions of all stages, sorted: the numbers in the lines "region NAME #HASH:" of their schedules. False: too
 * many, or no text. */
static bool region_hashes(dlc_context *context, const bench_programs *p, hashes *h) {
    h->count = 0;
    bool good = true;
    for (int i = 0; i < p->count && good; i++) {
        char *text = dump_stage(&p->stages[i], "schedule");
        good = text != NULL;
        for (const char *at = text; good && (at = strstr(at, "region ")) != NULL; at += strlen("region ")) {
            if (at > text && at[-1] != '\n') continue;
            const char *hash = strchr(at, '#');
            if (!hash) break;
            good = h->count < MAX_KERNELS;
            if (good) h->values[h->count++] = strtoull(hash + 1, NULL, 16);
        }
        dlc_text_free(context, text);
    }
    qsort(h->values, (size_t)h->count, sizeof *h->values, by_value);
    return good && h->count > 0;
}

bool bench_programs_same_kernels(dlc_context *context, const bench_programs *a, const bench_programs *b) {
    hashes x, y;
    return region_hashes(context, a, &x) && region_hashes(context, b, &y) && x.count == y.count &&
           memcmp(x.values, y.values, (size_t)x.count * sizeof *x.values) == 0;
}

static void release_stage(bench_stage *s) {
    dlc_call_destroy(s->call);
    dlc_program_destroy(s->program);
    bench_case_release(&s->builder);
}

void bench_programs_release(bench_programs *p) {
    for (int i = 0; i < p->count; i++) release_stage(&p->stages[i]);
    free(p);
}

static void run_stages(bench_programs *p, int from) {
    for (int i = from; i < p->count; i++) {
        dlc_status status = dlc_call_run(p->stages[i].call, NULL);
        if (status) p->status = status;
    }
}

void bench_programs_run(void *state) {
    run_stages(state, 0);
}

/* After the first step of training, whose results are kept for comparison: the weights as they were, and a rate of 0, so that all further
 * steps do the same. */
static void begin_again(bench_builder *b) {
    if (!b->rate) return;
    for (int i = 0; i < b->problem.result_count; i++) {
        bench_operand *operand = &b->problem.operands[b->replaced[i]], *result = &b->problem.results[i];
        if (!b->replaced[i]) continue;
        memcpy(result->data, operand->data, result->bytes);
        bench_operand_fill(operand);
    }
    bench_set_element(&b->problem.operands[b->rate], 0, 0);
}

/* Binds and runs the stages from `from` on. False: failed, `reason` tells why. */
static bool start(dlc_context *context, bench_programs *p, int from, char *reason, size_t size) {
    dlc_statistics before = DLC_STATISTICS_INIT, after = DLC_STATISTICS_INIT;
    dlc_context_statistics(context, &before);
    double start = bench_now();
    for (int i = from; i < p->count && !p->status; i++) p->status = bind_stage(&p->stages[i]);
    dlc_context_statistics(context, &after);
    const bool plain = after.interpreted_regions + after.host_regions >
                       before.interpreted_regions + before.host_regions; /* no figure of libdlc's worth a wait */
    if (!p->status && !plain) run_stages(p, from);
    p->stages[0].first_seconds += bench_now() - start;
    for (int i = from; i < p->count && !p->status; i++) begin_again(&p->stages[i].builder);
    if (plain && !p->status)
        snprintf(reason, size, "a region runs by plain loops: its schedule was refused");
    else if (p->status)
        snprintf(reason, size, "%s: %s", dlc_status_text(p->status), dlc_error_message(context));
    return !p->status && !plain;
}

bench_programs *bench_programs_prepare(dlc_context *context, const dlc_compile_options *options,
                                       bench_build_function *const *builds, int count, const bench_shape *shape,
                                       char *reason, size_t size) {
    bench_programs *p = calloc(1, sizeof *p);
    if (!p) abort();
    for (; p->count < count && !p->status; p->count++)
        p->status = prepare_stage(context, options, &p->stages[p->count], builds[p->count], shape, NULL);
    for (int i = 1; i < p->count && !p->status; i++)
        p->stages[i].tensors[0].data = p->stages[i - 1].builder.problem.results[0].data;
    if (start(context, p, 0, reason, size)) return p;
    bench_programs_release(p);
    return NULL;
}

/* Connects operands of a stage to results of earlier stages. */
static void take_operands(bench_programs *p, int stage) {
    const bench_builder *b = &p->stages[stage].builder;
    for (int i = 0; i < b->problem.operand_count; i++)
        for (int from = 0; from < stage; from++) {
            const bench_builder *maker = &p->stages[from].builder;
            for (int r = 0; r < maker->problem.result_count; r++)
                if (maker->result_values[r] == b->operand_values[i])
                    p->stages[stage].tensors[i].data = maker->problem.results[r].data;
        }
}

static void add_stage(dlc_context *context, bench_programs *p, const bench_shape *shape, const bench_steps *steps) {
    if (p->count == BENCH_MAX_PARTS) abort();
    p->stages[p->count] = (bench_stage){.input_count = 0};
    p->status = prepare_stage(context, NULL, &p->stages[p->count], bench_build_block, shape, steps);
    take_operands(p, p->count++);
}

/* The best time, in seconds, of a few runs of the stages from `from` on. */
static double quick_seconds(bench_programs *p, int from) {
    double best = HUGE_VAL, begin = bench_now();
    for (int i = 0; i < 100 && (i < 3 || bench_now() - begin < 0.03); i++) {
        double start = bench_now();
        run_stages(p, from);
        double seconds = bench_now() - start;
        if (seconds < best) best = seconds;
    }
    return best;
}

/* One program for the part, then one for each step; the faster of these stays. */
static bool add_part(dlc_context *context, bench_programs *p, const bench_shape *shape, int part, char *reason,
                     size_t size) {
    const bench_steps steps = bench_block_steps(shape, part);
    const int from = p->count;
    add_stage(context, p, shape, &steps);
    if (!start(context, p, from, reason, size)) return false;
    if (steps.count == 1) return true;
    bench_stage whole = p->stages[from];
    const double seconds = quick_seconds(p, from);
    p->count = from;
    for (int i = 0; i < steps.count && !p->status; i++)
        add_stage(context, p, shape, &(bench_steps){1, {steps.values[i]}});
    const bool good = start(context, p, from, reason, size);
    if (good && quick_seconds(p, from) < seconds) {
        release_stage(&whole);
        return true;
    }
    while (p->count > from) release_stage(&p->stages[--p->count]);
    p->stages[p->count++] = whole;
    return good;
}

bench_programs *bench_parts_prepare(dlc_context *context, int parts, const bench_shape *shape, char *reason,
                                    size_t size) {
    bench_programs *p = calloc(1, sizeof *p);
    bool good = true;
    if (!p) abort();
    for (int part = 0; part < parts && good; part++) good = add_part(context, p, shape, part, reason, size);
    if (good) return p;
    bench_programs_release(p);
    return NULL;
}
