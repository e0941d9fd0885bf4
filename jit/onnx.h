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
    /* In the file, and in ONNX's notation. */
    const onnx_type *type;
    const char *type_text;
    /* Names of dimensions; NULL: without one. */
    const char *parameter[DLC_MAX_RANK];
    /* In the main graph's list. */
    size_t place;
    /* The port of the other side that it is a state with, by names and types; -1: none. */
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
    /* The files with external data, by location, beneath the folder or from the host; read: into memory. Owned by file_arena, which has no allowance: like the
     * file they are data, not what is made of them. */
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
    /* How many were made. */
    _Atomic(size_t) hosted_count;
};

/* The error of a call, for dlc_error_message. */
dlc_status jit_onnx_fail(dlc_context *context, dlc_status status, const char *call, const char *what);
/* What is wrong with a host's description of a tensor, as the end of a sentence about it, perhaps made in `text`; NULL: nothing. */
enum { JIT_ONNX_FAULT = 96 };
const char *jit_onnx_tensor_fault(const DLTensor *tensor, char *text);
/* The first input or output that is no tensor of numbers; NULL: there is none. */
const jit_onnx_port *jit_onnx_structured_port(const dlc_onnx_model *model);
void jit_onnx_free_hosted(dlc_onnx_model *model);
void jit_onnx_keep(dlc_onnx_model *model);
void jit_onnx_release(dlc_onnx_model *model);
/* Walks (onnx_walk.c): runs of a model, each an import that asks for values. One run at a time. */
typedef struct jit_onnx_walk jit_onnx_walk;
dlc_status jit_onnx_walk_new(dlc_onnx_model *model, const dlc_compile_options *compile, int64_t seed,
                             jit_onnx_walk **walk);
void jit_onnx_walk_free(jit_onnx_walk *walk);
/* Tensors by onnx_options.arrived, and where results go, as for dlc_onnx_run. */
typedef struct jit_onnx_walk_call {
    const onnx_options *import;
    const dlc_run_options *run;
    /* None of them NULL. */
    const DLTensor *const *inputs;
    int input_count;
    /* The graph's, at most so many. */
    dlc_output_slot *outputs;
    int output_count;
} jit_onnx_walk_call;
dlc_status jit_onnx_walk_run(jit_onnx_walk *walk, const jit_onnx_walk_call *call);
dlc_status jit_onnx_import(dlc_onnx_model *model, const onnx_options *options, dlc_graph **made);

#endif
