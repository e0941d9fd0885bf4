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
    /* The session is for tensors of these sizes alone. Otherwise it is opened as by a host that knows nothing but the file. */
    bool exact;
    /* Of reading the file, up to where sizes matter; NULL: not asked. */
    double *import_seconds;
} engine_task;

typedef struct engine {
    const char *name;
    /* version, settings */
    void (*describe)(char *text, size_t size);
    /* From the file to the first results. Inputs stay bound. NULL: `message` tells why. */
    void *(*open)(const engine_task *task, char *message, size_t size);
    /* Again, with the same inputs, into the same results. */
    void (*run)(void *state);
    /* Those of the last run, in the file's order, valid until the next one; their count, or -1 if a run has failed. */
    int (*results)(void *state, const DLTensor *results[ENGINE_MOST_RESULTS]);
    void (*close)(void *state);
} engine;

/* The function that a plug-in exports. */
typedef const engine *engine_get_function(void);
DLC_API const engine *engine_get(void);

#endif
