/* Runs a program on given or random inputs, compares with another target, measures the time. */
#include "dlc-opt.h"

#include "lib/lib.h"

#include <dlc/extend.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct tensors {
    DLTensor input[OPTIONS_MAX];
    const DLTensor *pointer[OPTIONS_MAX];
    int count;
} tensors;

/* ---- inputs -------------------------------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Fills with random numbers: floats in -1..1 (f8e8m0, which has no sign: 0..1), integers 0..9, modulo the type's range. */
static void fill_random(dlc_dtype dtype, char *data, int64_t count, uint64_t *state) {
    for (int64_t i = 0; i < count; i++) {
        char alone, *at = lib_dtype_is_packed(dtype) ? &alone : data + (size_t)i * lib_dtype_size(dtype);
        uint64_t random = next_random(state);
        double number = (double)(random >> 11) / (double)(UINT64_C(1) << 52) - 1;
        if (lib_dtype_is_float(dtype))
            lib_element_set_f64(dtype, at, dtype == DLC_F8E8M0 ? fabs(number) : number);
        else
            lib_element_set_i64(dtype, at, dtype == DLC_BOOL ? (int64_t)(random & 1) : (int64_t)(random % 10));
        if (at == &alone) lib_packed_set(dtype, data, (size_t)i, (uint8_t)alone);
    }
}

/* A file for an input that the program does not have is an error. */
static bool inputs_exist(const options *o, const dlc_program *program) {
    for (int i = 0; i < o->input_count; i++) {
        bool found = false;
        for (int k = 0; k < dlc_program_input_count(program) && !found; k++)
            found = part_value(&o->inputs[i], 1, dlc_program_input_name(program, k)) != NULL;
        if (found) continue;
        fprintf(stderr, "dlc-opt: --input %s: the graph has no input of that name\n", o->inputs[i]);
        return false;
    }
    return true;
}

static bool make_input(const options *o, const dlc_program *program, const shapes *s, int i, tensors *t,
                       uint64_t *random) {
    enum { ALIGNMENT = 64 /* bytes */ };
    const char *name = dlc_program_input_name(program, i), *path = part_value(o->inputs, o->input_count, name);
    DLTensor *tensor = &t->input[i];
    int64_t count = 0;
    *tensor = (DLTensor){.device = {kDLCPU, 0},
                         .ndim = s->rank[i],
                         .dtype = lib_dtype_to_dlpack(s->dtype[i]),
                         .shape = (int64_t *)(uintptr_t)s->dim[i]};
    if (!lib_tensor_count(tensor, &count)) {
        fprintf(stderr, "dlc-opt: input %s: impossible size\n", name);
        return false;
    }
    size_t size = lib_dtype_bytes(s->dtype[i], (size_t)count), found = 0;
    if (path) {
        tensor->data = read_file(path, &found);
        if (tensor->data && found != size)
            fprintf(stderr, "dlc-opt: %s holds %zu bytes, input %s takes %zu\n", path, found, name, size);
        return tensor->data && found == size;
    }
    /* whole lines, as hosts align tensors: times depend on it; packed elements share bytes, so these begin as 0 */
    const size_t room = size / ALIGNMENT * ALIGNMENT + ALIGNMENT;
    tensor->data = aligned_alloc(ALIGNMENT, room);
    if (tensor->data) {
        memset(tensor->data, 0, room);
        fill_random(s->dtype[i], tensor->data, count, random);
    } else {
        fprintf(stderr, "dlc-opt: input %s: no memory for %zu bytes\n", name, size);
    }
    return tensor->data != NULL;
}

/* ---- outputs ------------------------------------------------------------------------------------------------------- */

/* Bytes of element i; of an element that shares its byte, extracted to `alone`. */
static const char *element(dlc_dtype dtype, const void *data, int64_t i, char *alone) {
    const char *bytes = data;
    if (!lib_dtype_is_packed(dtype)) return bytes + (size_t)i * lib_dtype_size(dtype);
    *alone = (char)lib_packed_get(dtype, bytes, (size_t)i);
    return alone;
}

/* Compares one output with the interpreter's; prints and returns whether it is within tolerance. */
static bool compare(const options *o, const char *name, const DLTensor *got, const DLTensor *expected) {
    dlc_dtype dtype;
    int64_t count = 0, differ = 0, worst_at = 0;
    double worst = 0, greatest = 0;
    if (!lib_dtype_from_dlpack(got->dtype, &dtype) || !lib_tensor_count(got, &count)) return false;
    size_t size = lib_dtype_size(dtype);
    for (int64_t i = 0; i < count; i++) {
        char alone[2];
        const char *a = element(dtype, got->data, i, &alone[0]), *b = element(dtype, expected->data, i, &alone[1]);
        double x = lib_element_get_f64(dtype, a), y = lib_element_get_f64(dtype, b), error = fabs(x - y);
        if (isfinite(y)) greatest = fmax(greatest, fabs(y));
        if (memcmp(a, b, size) == 0 || (isnan(x) && isnan(y))) continue;
        differ++;
        if (x == y) continue;
        if (isnan(error)) error = INFINITY;
        if (error > worst) worst = error, worst_at = i;
    }
    bool good = worst <= o->tolerance * greatest, narrow = lib_dtype_is_float(dtype) && size < sizeof(float);
    printf("check %s: %lld of %lld elements differ in bits", name, (long long)differ, (long long)count);
    if (worst > 0) printf(", most at %lld: by %.3g where the greatest is %.3g", (long long)worst_at, worst, greatest);
    printf(": %s\n", good ? "good" : narrow && !o->strict ? "BAD (but see --strict)" : "BAD");
    return good;
}

static void print_values(const char *name, const DLTensor *tensor) {
    enum { SHOWN = 16 };
    dlc_dtype dtype;
    int64_t count = 0;
    if (!lib_dtype_from_dlpack(tensor->dtype, &dtype) || !lib_tensor_count(tensor, &count)) return;
    printf("%s: %s[", name, dlc_dtype_name(dtype));
    for (int d = 0; d < tensor->ndim; d++) printf("%s%lld", d ? ", " : "", (long long)tensor->shape[d]);
    printf("] =");
    for (int64_t i = 0; i < count && i < SHOWN; i++) {
        char alone;
        printf(" %.6g", lib_element_get_f64(dtype, element(dtype, tensor->data, i, &alone)));
    }
    printf("%s\n", count > SHOWN ? " ..." : "");
}

static void release(dlc_output_slot *slots, int count) {
    for (int i = 0; i < count; i++)
        if (slots[i].managed) slots[i].managed->deleter(slots[i].managed);
}

static bool run_once(dlc_context *context, dlc_program *program, const tensors *t, dlc_output_slot *slots) {
    int outputs = dlc_program_output_count(program);
    for (int i = 0; i < outputs; i++) slots[i] = (dlc_output_slot){0};
    if (dlc_run(program, NULL, t->pointer, t->count, slots, outputs) == DLC_OK) return true;
    fprintf(stderr, "dlc-opt: %s\n", dlc_error_message(context));
    return false;
}

static bool check(const options *o, dlc_program *program, const char *text, const tensors *t,
                  const dlc_output_slot *got) {
    dlc_context_options wanted = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context = NULL;
    dlc_graph *graph = NULL;
    dlc_program *reference = NULL;
    dlc_output_slot slots[OPTIONS_MAX] = {0};
    wanted.target = "interp";
    bool good = dlc_context_create(&wanted, &context) == DLC_OK &&
                dlc_graph_parse(context, text, strlen(text), &graph) == DLC_OK &&
                dlc_compile(context, graph, NULL, &reference) == DLC_OK;
    if (!good) fprintf(stderr, "dlc-opt: interp: %s\n", dlc_error_message(context));
    good = good && run_once(context, reference, t, slots);
    for (int i = 0; good && i < dlc_program_output_count(program); i++)
        good =
            compare(o, dlc_program_output_name(program, i), &got[i].managed->dl_tensor, &slots[i].managed->dl_tensor);
    release(slots, OPTIONS_MAX);
    dlc_program_destroy(reference);
    dlc_graph_destroy(graph);
    dlc_context_destroy(context);
    return good;
}

/* Taps all values that the outermost graph computes. */
static bool tap_all(dlc_context *context, dlc_graph *graph, dlc_program *program) {
    const int nodes = dlc_graph_node_count(graph);
    int count = 0;
    for (int n = 0; n < nodes; n++) count += dlc_node_result_count(dlc_graph_node(graph, n));
    dlc_value *values = calloc((size_t)count + 1, sizeof *values);
    count = 0;
    for (int n = 0; values && n < nodes; n++) {
        const dlc_node node = dlc_graph_node(graph, n);
        if (strcmp(dlc_node_operator(node), "input") == 0 || strcmp(dlc_node_operator(node), "constant") == 0) continue;
        for (int i = 0; i < dlc_node_result_count(node); i++) values[count++] = dlc_node_result(node, i);
    }
    const bool good = values && dlc_program_tap(program, count, values, NULL, NULL) == DLC_OK;
    if (!good) fprintf(stderr, "dlc-opt: --compare: %s\n", values ? dlc_error_message(context) : "no memory");
    free(values);
    return good;
}

static void tell_difference(const options *o, const dlc_difference *d) {
    if (!d->found) {
        printf("compare with %s: all values agree\n", o->compared);
        return;
    }
    printf(
        "compare with %s: %s %s differs first, at element %lld: %.9g, there %.9g; %lld of %lld elements, by %.3g at most\n",
        o->compared, d->tapped ? "value" : "output", d->name, (long long)d->index, d->first, d->second,
        (long long)d->count, (long long)d->total, d->greatest);
}

static bool compare_targets(const options *o, dlc_context *context, dlc_graph *graph, dlc_program *program,
                            const char *text, const tensors *t) {
    dlc_context_options wanted = DLC_CONTEXT_OPTIONS_INIT;
    dlc_compile_options compiled = DLC_COMPILE_OPTIONS_INIT;
    dlc_compare_options how = DLC_COMPARE_OPTIONS_INIT;
    dlc_difference difference = DLC_DIFFERENCE_INIT;
    dlc_context *there = NULL;
    dlc_graph *again = NULL;
    dlc_program *other = NULL;
    wanted.target = o->compared;
    compiled.no_excess_precision = o->strict;
    how.absolute = how.relative = o->tolerance;
    how.save = o->save_path;
    bool good = dlc_context_create(&wanted, &there) == DLC_OK &&
                dlc_graph_parse(there, text, strlen(text), &again) == DLC_OK &&
                dlc_compile(there, again, &compiled, &other) == DLC_OK;
    if (!good) fprintf(stderr, "dlc-opt: --compare %s: %s\n", o->compared, dlc_error_message(there));
    good = good && tap_all(context, graph, program) && tap_all(there, again, other);
    if (good) {
        good = dlc_program_compare(program, other, &how, t->pointer, t->count, &difference) == DLC_OK;
        if (!good) fprintf(stderr, "dlc-opt: %s\n", dlc_error_message(context));
        if (good || difference.found) tell_difference(o, &difference);
        if (good && difference.found && o->save_path) printf("inputs are in %s\n", o->save_path);
    }
    dlc_program_tap(program, 0, NULL, NULL, NULL);
    dlc_program_destroy(other);
    dlc_graph_destroy(again);
    dlc_context_destroy(there);
    return good && !difference.found;
}

/* ---- time ---------------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Runs into the buffers of the first run. */
static bool measure(const options *o, dlc_context *context, dlc_program *program, const tensors *t,
                    dlc_output_slot *first) {
    enum { SAMPLES = 10000 };
    static double sample[SAMPLES];
    dlc_output_slot slots[OPTIONS_MAX];
    int outputs = dlc_program_output_count(program), count = 0;
    for (int i = 0; i < outputs; i++) slots[i] = (dlc_output_slot){.tensor = &first[i].managed->dl_tensor};
    uint64_t begin = lib_time_ns();
    while (count < SAMPLES && (count < 3 || (double)(lib_time_ns() - begin) < 1e9 * o->seconds)) {
        uint64_t start = lib_time_ns();
        if (dlc_run(program, NULL, t->pointer, t->count, slots, outputs) != DLC_OK) {
            fprintf(stderr, "dlc-opt: %s\n", dlc_error_message(context));
            return false;
        }
        sample[count++] = (double)(lib_time_ns() - start);
    }
    qsort(sample, (size_t)count, sizeof *sample, by_value);
    printf("time: median %.3f us, best %.3f us, of %d runs\n", 1e-3 * sample[count / 2], 1e-3 * sample[0], count);
    return true;
}

/* ---- choices ------------------------------------------------------------------------------------------------------- */

void set_compile_options(const options *o, dlc_compile_options *compile) {
    compile->recompute = o->recompute;
    compile->winograd = o->winograd;
    compile->no_excess_precision = o->strict;
}

/* A program, buffers of its results, and the nanoseconds of its fastest run so far. */
typedef struct variant {
    dlc_program *program;
    dlc_output_slot slot[OPTIONS_MAX];
    double best;
} variant;

static bool time_variant(dlc_context *context, variant *v, const tensors *t, double seconds) {
    dlc_output_slot slots[OPTIONS_MAX];
    const int outputs = dlc_program_output_count(v->program);
    for (int i = 0; i < outputs; i++) slots[i] = (dlc_output_slot){.tensor = &v->slot[i].managed->dl_tensor};
    const uint64_t begin = lib_time_ns();
    for (int run = 0; run < 2 || (double)(lib_time_ns() - begin) < 1e9 * seconds; run++) {
        const uint64_t start = lib_time_ns();
        if (dlc_run(v->program, NULL, t->pointer, t->count, slots, outputs) != DLC_OK) {
            fprintf(stderr, "dlc-opt: %s\n", dlc_error_message(context));
            return false;
        }
        const double ns = (double)(lib_time_ns() - start);
        if (ns < v->best) v->best = ns;
    }
    return true;
}

/* Measures the program with one choice for the region of this header, in turn with the rules' program. False: a run has failed. */
static bool measure_candidate(const options *o, dlc_context *context, dlc_graph *graph, const tensors *t,
                              variant *rules, const char *header, const char *choice, const char *value) {
    enum { TURNS = 4 };
    char schedule[1024];
    variant v = {.best = 1e300};
    dlc_compile_options compile = DLC_COMPILE_OPTIONS_INIT;
    snprintf(schedule, sizeof schedule, "%s\nchoose %s %s\n", header, choice, value);
    set_compile_options(o, &compile);
    compile.schedule = schedule;
    bool good = true, opened = dlc_compile(context, graph, &compile, &v.program) == DLC_OK;
    opened =
        opened && dlc_run(v.program, NULL, t->pointer, t->count, v.slot, dlc_program_output_count(v.program)) == DLC_OK;
    if (!opened) printf("  %s: %s\n", value, dlc_error_message(context));
    const double seconds = o->measured / (double)TURNS;
    rules->best = 1e300;
    for (int turn = 0; good && opened && turn < TURNS; turn++)
        good = time_variant(context, rules, t, seconds) && time_variant(context, &v, t, seconds);
    if (good && opened) printf("  %s: %.3f us, %.2f of the rules' time\n", value, 1e-3 * v.best, v.best / rules->best);
    release(v.slot, OPTIONS_MAX);
    dlc_program_destroy(v.program);
    return good;
}

/* Lines of the dump "choices": headers of regions, choices, and below each its other candidates, `#  A 1.02, B refused`. */
static bool measure_choices(const options *o, dlc_context *context, dlc_graph *graph, const tensors *t, variant *rules,
                            char *choices) {
    char header[256] = "", choice[256] = "", value[64];
    bool good = true;
    for (char *line = strtok(choices, "\n"); line && good; line = strtok(NULL, "\n")) {
        if (strncmp(line, "region ", 7) == 0) snprintf(header, sizeof header, "%s", line);
        if (sscanf(line, "choose %255s", choice) == 1 || strncmp(line, "#  ", 3) != 0) {
            printf("%s\n", line);
            continue;
        }
        for (const char *at = line + 2; *at && good; at += strcspn(at, ","), at += *at == ',')
            if (sscanf(at, " %63[^ ,]", value) == 1)
                good = measure_candidate(o, context, graph, t, rules, header, choice, value);
    }
    return good;
}

bool run_program(const options *o, dlc_context *context, dlc_graph *graph, dlc_program *program, const char *text,
                 const shapes *s) {
    tensors t = {.count = s->count};
    dlc_output_slot slots[OPTIONS_MAX] = {0};
    uint64_t random = o->seed;
    bool good = dlc_program_output_count(program) <= OPTIONS_MAX;
    if (!good) fprintf(stderr, "dlc-opt: more than %d outputs\n", OPTIONS_MAX);
    good = good && inputs_exist(o, program);
    for (int i = 0; i < t.count; i++) {
        good = good && make_input(o, program, s, i, &t, &random);
        t.pointer[i] = &t.input[i];
    }
    uint64_t begin = lib_time_ns();
    good = good && run_once(context, program, &t, slots);
    if (good) printf("first run: %.2f ms\n", 1e-6 * (double)(lib_time_ns() - begin));
    for (int i = 0; good && o->values && i < dlc_program_output_count(program); i++)
        print_values(dlc_program_output_name(program, i), &slots[i].managed->dl_tensor);
    if (good && o->check) good = check(o, program, text, &t, slots);
    if (good && o->compared) good = compare_targets(o, context, graph, program, text, &t);
    if (good && o->seconds > 0) good = measure(o, context, program, &t, slots);
    if (good && o->measured > 0) {
        variant rules = {.program = program};
        char *choices = NULL;
        memcpy(rules.slot, slots, sizeof slots);
        good = dlc_program_dump(program, "choices", s->pointer, s->rank, s->count, &choices) == DLC_OK;
        if (good) good = measure_choices(o, context, graph, &t, &rules, choices);
        if (choices) dlc_text_free(context, choices);
    }
    release(slots, OPTIONS_MAX);
    for (int i = 0; i < t.count; i++) free(t.input[i].data);
    return good;
}
