/* ONNX Runtime as a peer, for all kinds of cases: each becomes a model written in memory (onnx_cases.c), opened with all its
 * optimisations. Sessions are warm and bound to the contest's tensors. The library comes without headers; its interface is a table of
 * functions to which later versions only append, so what is used of it is declared here by position. */
#include "bench/onnx_model.h"
#include "bench/peer.h"

#include <stdlib.h>
#include <string.h>

/* ---- the interface of ONNX Runtime --------------------------------------------------------------------------------------------------- */

typedef struct ort_status ort_status; /* NULL: success */
typedef struct ort_env ort_env;
typedef struct ort_options ort_options;
typedef struct ort_session ort_session;
typedef struct ort_run_options ort_run_options;
typedef struct ort_memory_info ort_memory_info;
typedef struct ort_value ort_value;
typedef struct ort_binding ort_binding;

enum { LOG_FATAL = 4, OPTIMISE_ALL = 99, ARENA_ALLOCATOR = 1, MEMORY_DEFAULT = 0, INTERFACE_VERSION = 5 };

/* name, position in the table, result, parameters */
#define ORT_TABLE(X)                                                                                                 \
    X(error_message, 2, const char *, (const ort_status *))                                                          \
    X(create_env, 3, ort_status *, (int level, const char *name, ort_env **))                                        \
    X(create_session, 8, ort_status *, (const ort_env *, const void *, size_t, const ort_options *, ort_session **)) \
    X(create_options, 10, ort_status *, (ort_options **))                                                            \
    X(set_optimisation, 23, ort_status *, (ort_options *, int level))                                                \
    X(set_threads, 24, ort_status *, (ort_options *, int count))                                                     \
    X(create_tensor, 49, ort_status *,                                                                               \
      (const ort_memory_info *, void *, size_t, const int64_t *, size_t, int type, ort_value **))                    \
    X(create_memory_info, 69, ort_status *, (int allocator, int memory, ort_memory_info **))                         \
    X(release_env, 92, void, (ort_env *))                                                                            \
    X(release_status, 93, void, (ort_status *))                                                                      \
    X(release_memory_info, 94, void, (ort_memory_info *))                                                            \
    X(release_session, 95, void, (ort_session *))                                                                    \
    X(release_value, 96, void, (ort_value *))                                                                        \
    X(release_options, 100, void, (ort_options *))                                                                   \
    X(set_option, 130, ort_status *, (ort_options *, const char *key, const char *value))                            \
    X(run_bound, 133, ort_status *, (ort_session *, const ort_run_options *, const ort_binding *))                   \
    X(create_binding, 134, ort_status *, (ort_session *, ort_binding **))                                            \
    X(release_binding, 135, void, (ort_binding *))                                                                   \
    X(bind_input, 136, ort_status *, (ort_binding *, const char *name, const ort_value *))                           \
    X(bind_output, 137, ort_status *, (ort_binding *, const char *name, const ort_value *))

typedef void ort_function(void);
typedef struct ort_base {
    ort_function *const *(*table)(uint32_t version);
    const char *(*version)(void);
} ort_base;
const ort_base *OrtGetApiBase(void);

typedef struct ort_api {
#define X(name, position, result, parameters) result(*name) parameters;
    ORT_TABLE(X)
#undef X
} ort_api;

static const ort_api *api(void) {
    static ort_api functions;
    if (functions.create_env) return &functions;
    ort_function *const *table = OrtGetApiBase()->table(INTERFACE_VERSION);
    if (!table) return NULL;
#define X(name, position, result, parameters) memcpy(&functions.name, &table[position], sizeof functions.name);
    ORT_TABLE(X)
#undef X
    return &functions;
}

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
    if (getenv("BENCH_PEER_ERRORS")) fprintf(stderr, "onnxruntime: %s: %s\n", p->note, api()->error_message(status));
    api()->release_status(status);
    p->failed = true;
    return false;
}

/* One for the process: it only logs. */
static ort_env *environment(plan *p) {
    static ort_env *env;
    if (!env) ok(p, api()->create_env(LOG_FATAL, "bench", &env));
    return env;
}

static void open_session(plan *p, const onnx_model *model) {
    /* Threads may spin within a sample, like everybody's, but not into the next contestant's. f32 is not rounded to bytes beside
     * quantised weights. */
    static const char *const entries[][2] = {{"session.intra_op.allow_spinning", "1"},
                                             {"session.intra_op.spin_duration_us", "1000"},
                                             {"session.qdq_matmulnbits_accuracy_level", "1"}};
    ort_env *env = environment(p);
    ort_options *options = NULL;
    if (!env || !ok(p, api()->create_options(&options))) return;
    ok(p, api()->set_optimisation(options, OPTIMISE_ALL));
    if (!p->failed) ok(p, api()->set_threads(options, thread_count));
    for (size_t i = 0; i < sizeof entries / sizeof *entries && !p->failed; i++)
        ok(p, api()->set_option(options, entries[i][0], entries[i][1]));
    if (!p->failed) ok(p, api()->create_session(env, model->bytes.data, model->bytes.size, options, &p->session));
    api()->release_options(options);
}

/* Binds input x<index> or output y<index>. */
static void bind(plan *p, char side, int index, const bench_operand *o, const onnx_dims *dims) {
    if (dims->rank < 0 || p->failed) return;
    ort_value **value = &p->values[p->value_count];
    char name[16];
    snprintf(name, sizeof name, "%c%d", side, index);
    if (!ok(p, api()->create_tensor(p->memory, o->data, o->bytes, dims->dims, (size_t)dims->rank,
                                    onnx_element_type(o->dtype), value)))
        return;
    p->value_count++;
    ok(p, side == 'x' ? api()->bind_input(p->binding, name, *value) : api()->bind_output(p->binding, name, *value));
}

static void run(void *state) {
    plan *p = state;
    ok(p, api()->run_bound(p->session, NULL, p->binding));
}

static void release(void *state) {
    plan *p = state;
    if (p->binding) api()->release_binding(p->binding);
    for (int i = 0; i < p->value_count; i++) api()->release_value(p->values[i]);
    if (p->memory) api()->release_memory_info(p->memory);
    if (p->session) api()->release_session(p->session);
    free(p);
}

static void *attempt(int way, const bench_problem *problem) {
    onnx_model model;
    plan *p = calloc(1, sizeof *p);
    if (!p || !onnx_write_case(&model, problem, way, p->note, sizeof p->note)) return free(p), NULL;
    open_session(p, &model);
    if (!p->failed) ok(p, api()->create_memory_info(ARENA_ALLOCATOR, MEMORY_DEFAULT, &p->memory));
    if (!p->failed) ok(p, api()->create_binding(p->session, &p->binding));
    for (int i = 0; i < problem->operand_count; i++) bind(p, 'x', i, &problem->operands[i], &model.inputs[i]);
    for (int i = 0; i < problem->result_count; i++) bind(p, 'y', i, &problem->results[i], &model.outputs[i]);
    onnx_release(&model);
    if (!p->failed) run(p);
    if (!p->failed) return p;
    release(p);
    return NULL;
}

static void *prepare(const bench_problem *problem, char *note, size_t note_size) {
    if (!api()) return NULL;
    plan *best = bench_fastest(ONNX_WAYS, attempt, run, release, problem);
    if (best) snprintf(note, note_size, "%s", best->note);
    return best;
}

static void describe(char *text, size_t size) {
    snprintf(text, size, "%s; all optimisations", OrtGetApiBase()->version());
}

static void set_threads(int count) {
    thread_count = count;
}

const bench_peer *bench_peer_get(void) {
    static const bench_peer peer = {"onnxruntime", describe, set_threads, prepare, run, release};
    return &peer;
}
