/* libdlc as a contestant: a case as one program, or as several of which each takes the result of the one before. */
#include "bench/ours.h"

#include <stdlib.h>
#include <string.h>

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
                                bench_build_function *build, const bench_shape *shape, int part) {
    dlc_graph *graph = NULL;
    dlc_status status = dlc_graph_create(context, &graph);
    if (status) return status;
    bench_case_build(&s->builder, build, shape, graph, part);
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

/* Peers have their arguments bound beforehand; so have we. */
static dlc_status bind_stage(bench_stage *s) {
    DLTensor *outputs[BENCH_MAX_RESULTS];
    int count = s->builder.problem.result_count;
    for (int i = 0; i < count; i++) outputs[i] = &s->tensors[s->builder.problem.operand_count + i];
    return dlc_call_create(s->program, s->inputs, s->input_count, outputs, count, &s->call);
}

void bench_programs_run(void *state) {
    bench_programs *p = state;
    for (int i = 0; i < p->count; i++) {
        dlc_status status = dlc_call_run(p->stages[i].call, NULL);
        if (status) p->status = status;
    }
}

/* The numbers behind "predicted" in the profile, which are microseconds. */
static double sum_predicted(const char *text) {
    static const char word[] = "predicted ";
    double sum = 0;
    while ((text = strstr(text, word)) != NULL) sum += strtod(text += sizeof word - 1, NULL);
    return sum * 1e-6;
}

double bench_programs_predict(dlc_context *context, const bench_programs *p) {
    double sum = 0;
    for (int i = 0; i < p->count; i++) {
        const bench_stage *s = &p->stages[i];
        const int64_t *shapes[BENCH_MAX_OPERANDS];
        int ranks[BENCH_MAX_OPERANDS];
        for (int k = 0; k < s->input_count; k++) shapes[k] = s->inputs[k]->shape, ranks[k] = s->inputs[k]->ndim;
        char *text = NULL;
        if (dlc_program_dump(s->program, "profile", shapes, ranks, s->input_count, &text)) continue;
        sum += sum_predicted(text);
        dlc_text_free(context, text);
    }
    return sum;
}

void bench_programs_release(bench_programs *p) {
    for (int i = 0; i < p->count; i++) {
        dlc_call_destroy(p->stages[i].call);
        dlc_program_destroy(p->stages[i].program);
        bench_case_release(&p->stages[i].builder);
    }
    free(p);
}

/* Binds and runs what was compiled. NULL with the reason where something failed. */
static bench_programs *start(dlc_context *context, bench_programs *p, char *reason, size_t size) {
    dlc_statistics before = DLC_STATISTICS_INIT, after = DLC_STATISTICS_INIT;
    dlc_context_statistics(context, &before);
    double start = bench_now();
    for (int i = 0; i < p->count && !p->status; i++) p->status = bind_stage(&p->stages[i]);
    dlc_context_statistics(context, &after);
    const bool plain = after.interpreted_regions + after.host_regions >
                       before.interpreted_regions + before.host_regions; /* no figure of libdlc's worth a wait */
    if (!p->status && !plain) bench_programs_run(p);
    p->stages[0].first_seconds += bench_now() - start;
    if (!p->status && !plain) return p;
    if (plain && !p->status)
        snprintf(reason, size, "a region runs by plain loops: its schedule was refused");
    else
        snprintf(reason, size, "%s: %s", dlc_status_text(p->status), dlc_error_message(context));
    bench_programs_release(p);
    return NULL;
}

bench_programs *bench_programs_prepare(dlc_context *context, const dlc_compile_options *options,
                                       bench_build_function *const *builds, int count, const bench_shape *shape,
                                       char *reason, size_t size) {
    bench_programs *p = calloc(1, sizeof *p);
    if (!p) abort();
    for (; p->count < count && !p->status; p->count++)
        p->status = prepare_stage(context, options, &p->stages[p->count], builds[p->count], shape, 0);
    for (int i = 1; i < p->count && !p->status; i++)
        p->stages[i].tensors[0].data = p->stages[i - 1].builder.problem.results[0].data;
    return start(context, p, reason, size);
}

/* Operands of a part that an earlier one makes. */
static void take_operands(bench_programs *p, int part) {
    const bench_builder *b = &p->stages[part].builder;
    for (int i = 0; i < b->problem.operand_count; i++)
        for (int from = 0; from < part; from++) {
            const bench_builder *maker = &p->stages[from].builder;
            for (int r = 0; r < maker->problem.result_count; r++)
                if (maker->result_values[r] == b->operand_values[i])
                    p->stages[part].tensors[i].data = maker->problem.results[r].data;
        }
}

bench_programs *bench_parts_prepare(dlc_context *context, int parts, const bench_shape *shape, char *reason,
                                    size_t size) {
    bench_programs *p = calloc(1, sizeof *p);
    if (!p) abort();
    for (; p->count < parts && !p->status; p->count++) {
        p->status = prepare_stage(context, NULL, &p->stages[p->count], bench_build_block, shape, p->count + 1);
        take_operands(p, p->count);
    }
    return start(context, p, reason, size);
}
