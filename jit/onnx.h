/* Internal to the files onnx*.c. */
#ifndef JIT_ONNX_H
#define JIT_ONNX_H

#include <dlc/onnx.h>

#include "graph/api.h"
#include "graph/onnx/import.h"
#include "jit/jit.h"
#include "jit/mapped.h"

#include <stdatomic.h>

/* A file with external data. */
typedef struct external_file {
    onnx_bytes location;
    jit_mapped file;
} external_file;

/* An input that is no initializer, or an output. */
typedef struct jit_onnx_port {
    const char *name;
    /* The type as the file has it, and its text in ONNX's notation. */
    const onnx_type *type;
    const char *type_text;
    /* Name of each dimension; NULL: it has none. */
    const char *parameter[DLC_MAX_RANK];
    /* Its index in the main graph's list of inputs or outputs. */
    size_t place;
    /* Names and types suggest that this output comes back as that input: the other port's number; -1: no such pair. */
    int state;
} jit_onnx_port;

enum { JIT_ONNX_HOSTED_LISTS = 64 };

struct dlc_onnx_model {
    /* Owner of constants that are used in place. */
    graph_holder holder;
    /* Retained. */
    dlc_context *context;
    /* Of the host, and of each graph and program with constants in place. */
    atomic_int references;
    lib_scope scope;
    /* Owns the parsed model. */
    lib_arena arena;
    jit_mapped file;
    const onnx_model *model;
    /* By dlc_onnx_side. */
    jit_onnx_port *ports[2];
    int port_count[2];
    /* metadata_props: key and string in turn. */
    const char **notes;
    size_t note_count;
    /* Files with external data, by location: beneath `folder` (`read`: read into memory, else mapped), or from the host's `external_data`.
     * Owned by file_arena, which has no limits: they are input, like the model's own file. */
    const char *folder;
    bool read;
    dlc_status (*external_data)(void *user, const char *location, const void **bytes, size_t *size);
    void *external_user;
    lib_arena file_arena;
    lib_vec(external_file) external;
    lib_map external_by_location;
    /* Bytes of all files. */
    size_t size;
    /* Nodes of the host's operators that have been imported (onnx_host.c), by hash. */
    lib_mutex hosted_mutex;
    struct hosted_node *hosted[JIT_ONNX_HOSTED_LISTS];
    /* How many hosted nodes were made: their numbers are part of their rows' names. */
    _Atomic(size_t) hosted_count;
};

/* Records the error "call: what" for dlc_error_message; returns `status`. */
dlc_status jit_onnx_fail(dlc_context *context, dlc_status status, const char *call, const char *what);
/* Why the host's tensor cannot be read or written, as a predicate for a message ("input x " precedes it), which may be stored in text[JIT_ONNX_FAULT];
 * NULL: it can. */
enum { JIT_ONNX_FAULT = 96 };
const char *jit_onnx_tensor_fault(const DLTensor *tensor, char *text);
/* The first input or output whose type is not a tensor of numbers; NULL: there is none. */
const jit_onnx_port *jit_onnx_structured_port(const dlc_onnx_model *model);
void jit_onnx_free_hosted(dlc_onnx_model *model);
void jit_onnx_keep(dlc_onnx_model *model);
void jit_onnx_release(dlc_onnx_model *model);
/* Walks (onnx_walk.c): each run imports the model anew, and the importer asks for elements of values, which are computed at once. A walk
 * does one run at a time. */
typedef struct jit_onnx_walk jit_onnx_walk;
dlc_status jit_onnx_walk_new(dlc_onnx_model *model, const dlc_compile_options *compile, int64_t seed,
                             jit_onnx_walk **walk);
void jit_onnx_walk_free(jit_onnx_walk *walk);
/* Arguments of a run: input tensors in the order of onnx_options.arrived, output slots as for dlc_onnx_run. */
typedef struct jit_onnx_walk_call {
    const onnx_options *import;
    const dlc_run_options *run;
    /* None of them NULL. */
    const DLTensor *const *inputs;
    int input_count;
    /* Slots for the outputs of the graph that is imported; at most output_count. */
    dlc_output_slot *outputs;
    int output_count;
} jit_onnx_walk_call;
dlc_status jit_onnx_walk_run(jit_onnx_walk *walk, const jit_onnx_walk_call *call);
dlc_status jit_onnx_import(dlc_onnx_model *model, const onnx_options *options, dlc_graph **made);

#endif
