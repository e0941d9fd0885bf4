/* What runs a model from its file: libdlc, or a peer. Each is a plug-in beside the program `suite`, so that a process which measures the
 * memory of one has nothing of the others in it. */
#ifndef BENCH_MODELS_ENGINE_H
#define BENCH_MODELS_ENGINE_H

#include <dlc/types.h>

enum { ENGINE_MOST_INPUTS = 8, ENGINE_MOST_RESULTS = 16 };

typedef struct engine_input {
    char name[80];
    int64_t shape[DLC_MAX_RANK];
    /* Compact, in host memory; its shape is the one above. */
    DLTensor tensor;
} engine_input;

typedef struct engine_task {
    /* of the model */
    const char *path;
    int threads;
    int input_count;
    const engine_input *inputs;
    /* A folder for what the engine has generated; NULL: none. */
    const char *cache;
    /* exact: the session is for tensors of these sizes alone; otherwise it is opened as by a host that knows nothing but the file. plain: nodes are
     * computed as the file has them, if the engine can do so. */
    bool exact, plain;
    /* Convolutions may take Winograd's algorithm, whose errors are larger, if the engine leaves that to its host (libdlc: for known sizes). */
    bool winograd;
    /* Of reading the file, up to where sizes matter; NULL: not asked. */
    double *import_seconds;
} engine_task;

/* What libdlc tells of a session that has run; 0: unknown. */
typedef struct engine_facts {
    /* Arithmetic of a run, as the profile counts it. */
    double operations;
    /* Bytes of the plan's arena, and of what is in it at once, at most. */
    double arena, live;
    /* Time of the profile's lines over that of the runs. */
    double profiled;
} engine_facts;

/* Decoding: a model whose first input is tokens i64[1, n]; all other inputs are states `past*`, f32[1, heads, tokens, width], that grow to
 * the outputs `present*`; the output `logits` is f32[1, n, words]. */
typedef struct engine_decoder {
    void *(*open)(const engine_task *task, char *message, size_t size);
    /* One more token. Logits of the next one, [*count], valid until the next step; NULL: it failed. */
    const float *(*step)(void *state, int64_t token, int64_t *count);
    /* Forgets all tokens. */
    void (*reset)(void *state);
    void (*close)(void *state);
    /* Kernels that were built and bytes that were copied so far. NULL: it does not tell. */
    void (*count)(void *state, uint64_t *builds, uint64_t *copied);
} engine_decoder;

enum { ENGINE_MOST_NUMBERS = 6 };

typedef struct engine {
    const char *name;
    /* version, settings */
    void (*describe)(char *text, size_t size);
    /* From the file to the first results. Inputs stay bound; the task stays as long as the session. NULL: `message` tells why. */
    void *(*open)(const engine_task *task, char *message, size_t size);
    /* Again, with the same inputs, into the same results. */
    void (*run)(void *state);
    /* Those of the last run, in the file's order, valid until the next one; their count, or -1 if a run has failed. */
    int (*results)(void *state, const DLTensor *results[ENGINE_MOST_RESULTS]);
    void (*close)(void *state);
    /* The next four: NULL: the engine has none. */
    /* Another one of the same session, with the same inputs and results of its own, for another thread; it is closed before the first one.
     * NULL: `message` tells why. */
    void *(*share)(void *state, char *message, size_t size);
    const engine_decoder *decoder;
    void (*look)(void *state, engine_facts *facts);
    /* A cost by its name (costs_dlc.c), of the model of the tasks, which differ in sizes of inputs alone: their count, or -1, and `message` tells
     * why. */
    int (*cost)(const char *name, const engine_task *tasks, int count, double numbers[ENGINE_MOST_NUMBERS],
                char *message, size_t size);
} engine;

/* The function that a plug-in exports. */
typedef const engine *engine_get_function(void);
DLC_API const engine *engine_get(void);

#endif
