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
    /* path of the model's file */
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
    /* Seconds for reading and importing the file, up to where sizes matter; NULL: not wanted. */
    double *import_seconds;
} engine_task;

/* What libdlc tells of a session that has run; 0: unknown. */
typedef struct engine_facts {
    /* Arithmetic of a run, as the profile counts it. */
    double operations;
    /* Bytes of the plan's arena; the largest number of bytes in it that are live at once. */
    double arena, live;
    /* Time of the profile's lines over that of the runs. */
    double profiled;
} engine_facts;

/* Decoding: a model whose first input is tokens i64[1, n]; all other inputs are states `past*`, f32[1, heads, tokens, width], that grow to
 * the outputs `present*`; the output `logits` is f32[1, n, words]. */
typedef struct engine_decoder {
    void *(*open)(const engine_task *task, char *message, size_t size);
    /* Adds a token. Returns the logits of the next token, [*count], valid until the next step; NULL: it failed. */
    const float *(*step)(void *state, int64_t token, int64_t *count);
    /* Forgets all tokens. */
    void (*reset)(void *state);
    void (*close)(void *state);
    /* Numbers of kernels that were built and of bytes that were copied so far. NULL: unknown. */
    void (*count)(void *state, uint64_t *builds, uint64_t *copied);
} engine_decoder;

enum { ENGINE_MOST_NUMBERS = 6 };

typedef struct engine {
    const char *name;
    /* version, settings */
    void (*describe)(char *text, size_t size);
    /* Opens the file and computes the first results. Inputs stay bound; the task must outlive the session. NULL: failed, `message` tells
     * why. */
    void *(*open)(const engine_task *task, char *message, size_t size);
    /* Runs again with the same inputs, into the same results. */
    void (*run)(void *state);
    /* results[]: those of the last run, in the file's order, valid until the next run; returns their count, -1: a run has failed. */
    int (*results)(void *state, const DLTensor *results[ENGINE_MOST_RESULTS]);
    void (*close)(void *state);
    /* The following four members may be NULL: the engine does not have them. */
    /* Another state of the same session, for another thread, with the same inputs and results of its own; it is closed before the first
     * one. NULL: failed, `message` tells why. */
    void *(*share)(void *state, char *message, size_t size);
    const engine_decoder *decoder;
    void (*look)(void *state, engine_facts *facts);
    /* Measures a cost by its name (costs_dlc.c) of the tasks' model; the tasks differ in sizes of inputs only. Returns the count of
     * numbers; -1: failed, `message` tells why. */
    int (*cost)(const char *name, const engine_task *tasks, int count, double numbers[ENGINE_MOST_NUMBERS],
                char *message, size_t size);
} engine;

/* The function that a plug-in exports. */
typedef const engine *engine_get_function(void);
DLC_API const engine *engine_get(void);

#endif
