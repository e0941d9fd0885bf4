/* ONNX Runtime as a peer, for all kinds of cases: each becomes a model written in memory (onnx_cases.c), opened with all its
 * optimisations. Sessions are warm and bound to the contest's tensors. */
#include "bench/onnx_model.h"
#include "bench/onnxruntime.h"
#include "bench/peer.h"

#include <stdlib.h>
#include <string.h>

/* ---- a session ------------------------------------------------------------------------------------------------------------------------ */

typedef struct plan {
    ort_session *session;
    ort_binding *binding;
    ort_memory_info *memory;
    ort_value *values[BENCH_MAX_OPERANDS + BENCH_MAX_RESULTS];
    int value_count;
    bool failed;
    char note[96];
} plan;

static int thread_count = 1;

static bool ok(plan *p, ort_status *status) {
    if (!status) return !p->failed;
    if (getenv("BENCH_PEER_ERRORS"))
        fprintf(stderr, "onnxruntime: %s: %s\n", p->note, onnxruntime()->error_message(status));
    onnxruntime()->release_status(status);
    p->failed = true;
    return false;
}

/* One for the process: it only logs. */
static ort_env *environment(plan *p) {
    static ort_env *env;
    if (!env) ok(p, onnxruntime()->create_env(ORT_LOG_FATAL, "bench", &env));
    return env;
}

static void open_session(plan *p, const onnx_model *model) {
    ort_env *env = environment(p);
    ort_options *options = NULL;
    if (!env) return;
    if (ok(p, onnxruntime_options(thread_count, &options)))
        ok(p, onnxruntime()->create_session(env, model->bytes.data, model->bytes.size, options, &p->session));
    if (options) onnxruntime()->release_options(options);
}

/* Binds input x<index> or output y<index>. */
static void bind(plan *p, char side, int index, const bench_operand *o, const onnx_dims *dims) {
    if (dims->rank < 0 || p->failed) return;
    ort_value **value = &p->values[p->value_count];
    char name[16];
    snprintf(name, sizeof name, "%c%d", side, index);
    if (!ok(p, onnxruntime()->create_tensor(p->memory, o->data, o->bytes, dims->dims, (size_t)dims->rank,
                                            onnx_element_type(o->dtype), value)))
        return;
    p->value_count++;
    ok(p, side == 'x' ? onnxruntime()->bind_input(p->binding, name, *value)
                      : onnxruntime()->bind_output(p->binding, name, *value));
}

static void run(void *state) {
    plan *p = state;
    ok(p, onnxruntime()->run_bound(p->session, NULL, p->binding));
}

static void release(void *state) {
    plan *p = state;
    if (p->binding) onnxruntime()->release_binding(p->binding);
    for (int i = 0; i < p->value_count; i++) onnxruntime()->release_value(p->values[i]);
    if (p->memory) onnxruntime()->release_memory_info(p->memory);
    if (p->session) onnxruntime()->release_session(p->session);
    free(p);
}

static void *attempt(int way, const bench_problem *problem) {
    onnx_model model;
    plan *p = calloc(1, sizeof *p);
    if (!p || !onnx_write_case(&model, problem, way, p->note, sizeof p->note)) return free(p), NULL;
    open_session(p, &model);
    if (!p->failed) ok(p, onnxruntime()->create_memory_info(ORT_ARENA_ALLOCATOR, ORT_MEMORY_DEFAULT, &p->memory));
    if (!p->failed) ok(p, onnxruntime()->create_binding(p->session, &p->binding));
    for (int i = 0; i < problem->operand_count; i++) bind(p, 'x', i, &problem->operands[i], &model.inputs[i]);
    for (int i = 0; i < problem->result_count; i++) bind(p, 'y', i, &problem->results[i], &model.outputs[i]);
    onnx_release(&model);
    if (!p->failed) run(p);
    if (!p->failed) return p;
    release(p);
    return NULL;
}

static void *prepare(const bench_problem *problem, char *note, size_t note_size) {
    if (!onnxruntime()) return NULL;
    plan *best = bench_fastest(ONNX_WAYS, attempt, run, release, problem);
    if (best) snprintf(note, note_size, "%s", best->note);
    return best;
}

static void describe(char *text, size_t size) {
    snprintf(text, size, "%s; all optimisations", onnxruntime_version());
}

static void set_threads(int count) {
    thread_count = count;
}

const bench_peer *bench_peer_get(void) {
    static const bench_peer peer = {"onnxruntime", describe, set_threads, prepare, run,
                                    release,       NULL,     NULL,        NULL,    NULL};
    return &peer;
}
