/* dlc_onnx_write of <dlc/onnx.h>: a graph as an ONNX file. The model is made in graph/onnx/, which ONNX=no leaves out of the build; here are the
 * files: written under temporary names, and renamed when all is written, so that an error leaves no file. */
#include <dlc/onnx.h>

#include "jit/jit.h"

#include "graph/api.h"

#ifdef DLC_ONNX
#include "graph/onnx/export.h"
#include "graph/onnx/model.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER = 1 << 16 };

/* A file that is being written. */
typedef struct output {
    const char *path, *temporary;
    /* -1: not open */
    int file;
    /* The temporary file exists. */
    bool made;
    size_t used;
    char *buffer;
} output;

static bool flush(output *o) {
    const bool written = lib_file_write(o->file, o->buffer, o->used);
    o->used = 0;
    return written;
}

/* Writes to the temporary file; called with the bytes of large tensors where they are. */
static bool put(void *user, const void *bytes, size_t size) {
    output *o = user;
    const bool large = size > BUFFER / 2;
    if ((large || o->used + size > BUFFER) && !flush(o)) return false;
    if (large) return lib_file_write(o->file, bytes, size);
    memcpy(o->buffer + o->used, bytes, size);
    o->used += size;
    return true;
}

/* Raises if the path is a device, a pipe or a folder, which a rename would replace or fail at. */
static void check_place(lib_arena *arena, const char *path) {
    struct stat about;
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode))
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "cannot replace %s: it is no regular file", path);
}

static output output_of(lib_arena *arena, const char *path) {
    static atomic_uint number;
    check_place(arena, path);
    return (output){.path = path,
                    .temporary =
                        lib_arena_format(arena, "%s.%ld-%u.tmp", path, (long)getpid(), atomic_fetch_add(&number, 1u)),
                    .file = -1,
                    .buffer = lib_arena_take(arena, BUFFER)};
}

static dlc_status fail_file(const output *o, const char *what, lib_error *error) {
    return lib_fail(error, errno == ENOENT || errno == ENOTDIR ? DLC_NOT_FOUND : DLC_INVALID_ARGUMENT,
                    "dlc_onnx_write: cannot %s %s: %s", what, o->path, strerror(errno));
}

static dlc_status begin(output *o, lib_error *error) {
    o->file = lib_file_create(o->temporary, 0666);
    o->made = o->file >= 0;
    return o->made ? DLC_OK : fail_file(o, "create", error);
}

static dlc_status finish(output *o, bool written, lib_error *error) {
    written = written && flush(o);
    const int reason = errno;
    const bool closed = close(o->file) == 0;
    o->file = -1;
    if (!written) errno = reason;
    return written && closed ? DLC_OK : fail_file(o, "write", error);
}

static dlc_status publish(output *o, lib_error *error) {
    if (rename(o->temporary, o->path) != 0) return fail_file(o, "rename to", error);
    o->made = false;
    return DLC_OK;
}

/* Closes and removes the temporary file, if a failed write left it. */
static void discard(const output *o) {
    if (o->file >= 0) close(o->file);
    if (o->made) unlink(o->temporary);
}

typedef struct writing {
    const graph *g;
    onnx_export_options options;
    size_t external_bytes;
    const onnx_out_model *model;
    output file, data;
    uint64_t external;
} writing;

/* The part of dlc_onnx_write that may raise; runs in a scope. */
static void prepare(lib_arena *arena, const char *path, writing *w) {
    onnx_out_model *model = onnx_export_graph(arena, w->g, &w->options);
    w->model = model;
    w->file = output_of(arena, path);
    w->data = output_of(arena, lib_arena_format(arena, "%s.data", path));
    const char *slash = strrchr(w->data.path, '/');
    model->location = slash ? slash + 1 : w->data.path;
    if (w->external_bytes) w->external = onnx_place_external((onnx_out_graph *)model->graph, w->external_bytes);
    if (w->external && !onnx_is_location((onnx_bytes){model->location, strlen(model->location)}))
        lib_raise(
            arena->scope, DLC_INVALID_ARGUMENT,
            "%s cannot be named in the model: readers take no file of external data whose name has a backslash, or a "
            "colon after one letter",
            model->location);
    const uint64_t size = onnx_model_size(model);
    if (size > INT32_MAX)
        lib_raise(arena->scope, DLC_BUDGET_EXCEEDED,
                  "the model takes %llu bytes, more than the 2 GiB of a message: external_bytes puts weights into a "
                  "file of their own",
                  (unsigned long long)size);
}

static dlc_status write_data(writing *w, lib_error *error) {
    LIB_TRY(begin(&w->data, error));
    return finish(&w->data, onnx_write_external(w->model->graph, &(onnx_sink){put, &w->data}), error);
}

static dlc_status write_files(writing *w, lib_error *error) {
    LIB_TRY(begin(&w->file, error));
    LIB_TRY(finish(&w->file, onnx_write_model(w->model, &(onnx_sink){put, &w->file}), error));
    if (w->external) LIB_TRY(write_data(w, error));
    if (w->external) LIB_TRY(publish(&w->data, error));
    const dlc_status status = publish(&w->file, error);
    if (status != DLC_OK && w->external) unlink(w->data.path);
    return status;
}

static dlc_status write_graph(dlc_context *context, const char *path, writing *w, lib_error *error) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &context->allocator, &scope);
    w->file.file = w->data.file = -1;
    dlc_status status = DLC_OK;
    if (LIB_ENTER(&scope))
        prepare(&arena, path, w);
    else
        status = lib_fail(error, scope.error.status, "dlc_onnx_write: %s", scope.error.message);
    if (status == DLC_OK) {
        status = write_files(w, error);
        discard(&w->file), discard(&w->data);
    }
    lib_arena_free(&arena);
    return status;
}

static dlc_status check(dlc_context *context, const dlc_graph *handle, const dlc_onnx_write_options *options,
                        lib_error *error) {
    if (options->struct_size != sizeof *options)
        return lib_fail(error, DLC_INVALID_ARGUMENT,
                        "dlc_onnx_write: options.struct_size is not that of this version: use "
                        "DLC_ONNX_WRITE_OPTIONS_INIT");
    if (!graph_handle_live(handle))
        return lib_fail(error, DLC_INVALID_ARGUMENT, "dlc_onnx_write: the graph is destroyed");
    if (graph_handle_context(handle) != context)
        return lib_fail(error, DLC_INVALID_ARGUMENT, "dlc_onnx_write: the graph belongs to another context");
    if (graph_handle_status(handle) != DLC_OK)
        return lib_fail(error, graph_handle_status(handle), "%s", dlc_graph_message(handle));
    if (graph_of_handle(handle)->outputs.count == 0)
        return lib_fail(error, DLC_INVALID_ARGUMENT, "dlc_onnx_write: the graph has no outputs");
    return DLC_OK;
}

dlc_status dlc_onnx_write(dlc_context *context, const char *path, const dlc_graph *handle,
                          const dlc_onnx_write_options *options) {
    static const dlc_onnx_write_options defaults = DLC_ONNX_WRITE_OPTIONS_INIT;
    lib_error error;
    if (!options) options = &defaults;
    if (!context || !path || !path[0] || !handle) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_onnx_write: context, path and graph must not be NULL or empty");
        if (!handle) graph_context_add_cause(&error);
        return jit_fail(context, &error);
    }
    dlc_status status = check(context, handle, options, &error);
    if (status == DLC_OK) {
        GRAPH_CALL(context, LIB_STACK_CALL + graph_stack(graph_of_handle(handle)));
        writing w = {.g = graph_of_handle(handle),
                     .options = {.opset = options->opset, .producer = options->producer},
                     .external_bytes = options->external_bytes};
        status = write_graph(context, path, &w, &error);
    }
    return status == DLC_OK ? DLC_OK : jit_fail(context, &error);
}

#else

dlc_status dlc_onnx_write(dlc_context *context, const char *path, const dlc_graph *handle,
                          const dlc_onnx_write_options *options) {
    lib_error error;
    (void)path, (void)handle, (void)options;
    lib_fail(&error, DLC_UNSUPPORTED, "dlc_onnx_write: this build of libdlc has no ONNX");
    return jit_fail(context, &error);
}
#endif
