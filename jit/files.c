/* Files of tensors as hosts see them: <dlc/files.h>. The formats are in lib/. */
#include "graph/api.h"
#include "jit/jit.h"
#include "jit/mapped.h"
#include "lib/tensor_file.h"

#include <dlc/files.h>

#include <stdatomic.h>
#include <stdlib.h>

/* copy of a tensor that cannot be used in place */
typedef struct kept_copy {
    /* The copy, which constants retain independently of the file. NULL: none. */
    graph_bytes *bytes;
    /* its checksum has been verified */
    bool checked;
} kept_copy;

struct dlc_file {
    /* owner of constants that are used in place */
    graph_holder holder;
    /* retained */
    dlc_context *context;
    dlc_allocator allocator;
    /* of the host, of each tensor given out, and of each graph and program with constants in place */
    atomic_int references;
    lib_scope scope;
    /* owns the parsed directory, and the file's bytes if they were read rather than mapped */
    lib_arena arena;
    lib_tensor_file contents;
    jit_mapped mapped;
    lib_mutex mutex;
    /* [tensors], guarded by the mutex */
    kept_copy *copies;
};

static dlc_status fail(dlc_context *context, dlc_status status, const char *call, const char *what) {
    lib_error error;
    lib_fail(&error, status, "%s: %s", call, what);
    return jit_fail(context, &error);
}

/* ---- open and close ------------------------------------------------------------------------------------------------- */

static void release_copy(graph_bytes *bytes) {
    graph_holder *holder = graph_bytes_holder(bytes);
    holder->release(holder);
}

static void release(dlc_file *file) {
    if (atomic_fetch_sub(&file->references, 1) != 1) return;
    for (uint32_t i = 0; file->copies && i < file->contents.tensors.count; i++)
        if (file->copies[i].bytes) release_copy(file->copies[i].bytes);
    jit_mapped_close(&file->mapped);
    lib_mutex_destroy(&file->mutex);
    lib_arena_free(&file->arena);
    dlc_context *context = file->context;
    lib_release(&context->allocator, file, sizeof *file, _Alignof(dlc_file));
    jit_context_release(context);
}

static void keep_holder(graph_holder *holder) {
    atomic_fetch_add(&((dlc_file *)(void *)holder)->references, 1);
}
static void release_holder(graph_holder *holder) {
    release((dlc_file *)(void *)holder);
}

static void let_go_of_pages(graph_holder *holder, const void *bytes, size_t size) {
    jit_mapped_let_go(&((dlc_file *)(void *)holder)->mapped, bytes, size);
}

void dlc_file_destroy(dlc_file *file) {
    lib_call call;
    if (!file) return;
    dlc_context *context = file->context;
    if (!graph_call_to_destroy(context, &call)) return;
    release(file);
    graph_call_destroyed(context, &call);
}

static dlc_status open_file(dlc_context *context, const char *path, bool read_all, const void *bytes, size_t size,
                            const char *call, dlc_file **out) {
    GRAPH_CALL(context, LIB_STACK_CALL);
    dlc_file *file = lib_allocate_zeroed(&context->allocator, sizeof *file, _Alignof(dlc_file));
    if (!file) return fail(context, DLC_OUT_OF_MEMORY, call, "memory was refused");
    file->holder = (graph_holder){.keep = keep_holder, .release = release_holder, .idle = let_go_of_pages};
    file->context = context;
    jit_context_keep(context);
    file->allocator = context->allocator;
    atomic_init(&file->references, 1);
    lib_mutex_init(&file->mutex);
    lib_arena_init(&file->arena, &file->allocator, &file->scope);
    lib_allowance allowance = {.limits = NULL};
    if (LIB_ENTER(&file->scope)) {
        if (path) {
            jit_mapped_open(&file->mapped, &file->arena, path, read_all);
            file->contents.image = file->mapped.bytes;
            file->contents.size = file->mapped.size;
        } else {
            file->contents.image = bytes;
            file->contents.size = size;
        }
        lib_allowance_begin(&allowance, &file->arena, &context->limits, file->contents.size);
        lib_arena_ask(&file->arena);
        lib_tensor_file_parse(&file->arena, &file->contents);
        file->copies = LIB_NEW_ARRAY(&file->arena, kept_copy, file->contents.tensors.count);
    }
    lib_allowance_end(&allowance, &file->arena);
    if (file->scope.error.status == DLC_OK) {
        *out = file;
        return DLC_OK;
    }
    lib_error error;
    lib_fail(&error, file->scope.error.status, "%s%s%s", path ? path : "", path ? ": " : "", file->scope.error.message);
    release(file);
    return jit_fail(context, &error);
}

dlc_status dlc_file_open(dlc_context *context, const char *path, const dlc_file_options *options, dlc_file **file) {
    if (file) *file = NULL;
    if (!context || !path || !file)
        return fail(context, DLC_INVALID_ARGUMENT, "dlc_file_open", "context, path or the place for the file is NULL");
    if (options && options->struct_size != sizeof *options)
        return fail(context, DLC_INVALID_ARGUMENT, "dlc_file_open",
                    "options.struct_size is not that of this version: use DLC_FILE_OPTIONS_INIT");
    return open_file(context, path, options && options->read, NULL, 0, "dlc_file_open", file);
}

dlc_status dlc_file_parse(dlc_context *context, const void *bytes, size_t size, dlc_file **file) {
    if (file) *file = NULL;
    if (!context || (!bytes && size) || !file)
        return fail(context, DLC_INVALID_ARGUMENT, "dlc_file_parse",
                    "context, bytes or the place for the file is NULL");
    return open_file(context, NULL, false, bytes ? bytes : "", size, "dlc_file_parse", file);
}

/* ---- questions ------------------------------------------------------------------------------------------------------ */

int dlc_file_count(const dlc_file *file) {
    return file ? (int)file->contents.tensors.count : 0;
}

const char *dlc_file_name(const dlc_file *file, int index) {
    return index >= 0 && index < dlc_file_count(file) ? file->contents.tensors.data[index].name : NULL;
}

const char *dlc_file_note(const dlc_file *file, const char *key) {
    uint32_t note = file && key ? lib_tensor_file_find_note(&file->contents, key) : UINT32_MAX;
    return note != UINT32_MAX ? file->contents.notes.data[note].value : NULL;
}

/* ---- tensors -------------------------------------------------------------------------------------------------------- */

static void reverse_bytes(unsigned char *data, size_t bytes, size_t element) {
    for (size_t at = 0; at + element <= bytes; at += element)
        for (size_t i = 0; i < element / 2; i++) {
            unsigned char swapped = data[at + i];
            data[at + i] = data[at + element - 1 - i];
            data[at + element - 1 - i] = swapped;
        }
}

static void copy_tensor(dlc_file *file, lib_arena *work, const lib_stored *stored, kept_copy *kept) {
    graph_bytes *copy = graph_bytes_new(&file->allocator, stored->size ? stored->size : 1);
    if (!copy) lib_raise(work->scope, DLC_OUT_OF_MEMORY, "%zu bytes were refused", stored->size);
    lib_scope *outer = work->scope;
    lib_scope scope; /* an inner scope: the copy must be released before the error propagates */
    unsigned char *data = graph_bytes_data(copy);
    work->scope = &scope;
    if (LIB_ENTER(&scope)) {
        if (!stored->bytes)
            lib_npz_unpack(work, stored, data);
        else if (stored->size)
            memcpy(data, stored->bytes, stored->size);
        if (stored->swapped) /* real and imaginary parts are swapped separately */
            reverse_bytes(data, stored->size, stored->dtype == DLC_C64 ? sizeof(float) : lib_dtype_size(stored->dtype));
    }
    work->scope = outer;
    if (scope.error.status != DLC_OK) {
        release_copy(copy);
        lib_raise_error(outer, &scope.error);
    }
    kept->bytes = copy;
}

/* Rejects bytes other than 0 and 1, which are not valid bools. */
static void check_bools(lib_arena *work, const lib_stored *stored, const unsigned char *data) {
    for (size_t i = 0; i < stored->size; i++)
        if (data[i] > 1)
            lib_raise(work->scope, DLC_PARSE_ERROR, "element %zu is %d, expected a bool, 0 or 1", i, data[i]);
}

/* Sets the address of the tensor's elements; the file's mutex is held. */
static void find_data(dlc_file *file, lib_arena *work, uint32_t index, const unsigned char **data) {
    const lib_stored *stored = &file->contents.tensors.data[index];
    kept_copy *kept = &file->copies[index];
    if (stored->fault) lib_raise(work->scope, DLC_UNSUPPORTED, "%s", stored->fault);
    size_t element = lib_dtype_size(stored->dtype);
    bool in_place = stored->bytes && !(stored->swapped && element > 1) && (uintptr_t)stored->bytes % element == 0;
    if (stored->bytes && stored->packed.is_packed && !kept->checked) lib_npz_check(work, stored);
    if (!in_place && !kept->bytes) copy_tensor(file, work, stored, kept);
    *data = in_place ? stored->bytes : graph_bytes_data(kept->bytes);
    if (stored->dtype == DLC_BOOL && !kept->checked) check_bools(work, stored, *data);
    kept->checked = true;
}

static dlc_status find(dlc_file *file, const char *name, uint32_t *index, const unsigned char **data,
                       lib_error *error) {
    *index = lib_tensor_file_find(&file->contents, name);
    if (*index == UINT32_MAX) {
        lib_nearest nearest = lib_nearest_to(name);
        for (uint32_t i = 0; i < file->contents.tensors.count; i++)
            lib_nearest_try(&nearest, file->contents.tensors.data[i].name, strlen(file->contents.tensors.data[i].name));
        return lib_fail(error, DLC_NOT_FOUND, "the file has no tensor \"%.200s\" among its %u%s", name,
                        file->contents.tensors.count, lib_nearest_hint(&nearest));
    }
    lib_scope scope;
    lib_arena work;
    lib_allowance allowance;
    lib_arena_init(&work, &file->allocator, &scope);
    lib_allowance_begin(&allowance, &work, &file->context->limits, file->contents.tensors.data[*index].size);
    lib_mutex_lock(&file->mutex);
    if (LIB_ENTER(&scope)) {
        lib_arena_ask(&work);
        find_data(file, &work, *index, data);
    }
    lib_mutex_unlock(&file->mutex);
    lib_arena_free(&work);
    if (scope.error.status == DLC_OK) return DLC_OK;
    return lib_fail(error, scope.error.status, "tensor \"%.200s\": %s", name, scope.error.message);
}

typedef struct shown_tensor {
    DLManagedTensorVersioned managed;
    dlc_file *file;
    int64_t shape[DLC_MAX_RANK], strides[DLC_MAX_RANK];
} shown_tensor;

static void delete_shown(DLManagedTensorVersioned *self) {
    dlc_file *file = ((shown_tensor *)self->manager_ctx)->file;
    lib_release(&file->allocator, self->manager_ctx, sizeof(shown_tensor), _Alignof(shown_tensor));
    release(file);
}

static void fortran_strides(const lib_stored *stored, int64_t *strides) {
    uint64_t stride = 1; /* unsigned: may wrap for an empty tensor, whose strides are never used */
    for (int i = 0; i < stored->rank; i++) {
        strides[i] = (int64_t)stride;
        stride *= (uint64_t)stored->shape[i];
    }
}

dlc_status dlc_file_tensor(dlc_file *file, const char *name, DLManagedTensorVersioned **tensor) {
    uint32_t index;
    const unsigned char *data = NULL;
    lib_error error;
    if (tensor) *tensor = NULL;
    if (!file || !name || !tensor)
        return fail(file ? file->context : NULL, DLC_INVALID_ARGUMENT, "dlc_file_tensor",
                    "file, name or the place for the tensor is NULL");
    GRAPH_CALL(file->context, LIB_STACK_CALL);
    if (find(file, name, &index, &data, &error) != DLC_OK) return jit_fail(file->context, &error);
    shown_tensor *shown = lib_allocate_zeroed(&file->allocator, sizeof *shown, _Alignof(shown_tensor));
    if (!shown) return fail(file->context, DLC_OUT_OF_MEMORY, "dlc_file_tensor", "memory was refused");
    const lib_stored *stored = &file->contents.tensors.data[index];
    shown->file = file;
    memcpy(shown->shape, stored->shape, sizeof shown->shape);
    if (stored->fortran)
        fortran_strides(stored, shown->strides);
    else
        lib_strides_compact(stored->rank, stored->shape, shown->strides);
    shown->managed = (DLManagedTensorVersioned){
        .version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
        .manager_ctx = shown,
        .deleter = delete_shown,
        .flags = DLPACK_FLAG_BITMASK_READ_ONLY,
        .dl_tensor = {.data = (void *)(uintptr_t)data, /* DLTensor has no const; the read-only flag is set */
                      .device = {kDLCPU, 0},
                      .ndim = stored->rank,
                      .dtype = lib_dtype_to_dlpack(stored->dtype),
                      .shape = shown->shape,
                      .strides = shown->strides}};
    atomic_fetch_add(&file->references, 1);
    *tensor = &shown->managed;
    return DLC_OK;
}

/* The owner of the bytes of a tensor of the file. */
static graph_holder *holder_of(dlc_file *file, const char *name, const void *data) {
    lib_mutex_lock(&file->mutex);
    graph_bytes *copy = file->copies[lib_tensor_file_find(&file->contents, name)].bytes;
    lib_mutex_unlock(&file->mutex);
    return copy && graph_bytes_data(copy) == data ? graph_bytes_holder(copy) : &file->holder;
}

static dlc_value constant_of(dlc_graph *handle, dlc_file *file, const char *name) {
    DLManagedTensorVersioned *tensor;
    dlc_value none = {NULL, UINT32_MAX, 0};
    if (dlc_file_tensor(file, name, &tensor) != DLC_OK) {
        lib_error error;
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_file_constant: %s", dlc_error_message(file->context));
        graph_handle_record(handle, &error);
        return none;
    }
    const DLTensor *shown = &tensor->dl_tensor;
    dlc_dtype dtype;
    dlc_value value = none;
    lib_dtype_from_dlpack(shown->dtype, &dtype);
    DLManagedTensorVersioned *copy = NULL;
    graph_named_constant constant = {
        .call = "dlc_file_constant", .name = name, .dtype = dtype, .rank = shown->ndim, .shape = shown->shape};
    if (lib_tensor_is_compact(shown)) {
        constant.bytes = shown->data;
        constant.holder = holder_of(file, name, shown->data);
        value = graph_handle_constant(handle, &constant);
    } else if ((copy = lib_tensor_new(&file->allocator, dtype, shown->ndim, shown->shape, 64))) {
        lib_tensor_copy(&copy->dl_tensor, shown);
        constant.bytes = copy->dl_tensor.data;
        value = graph_handle_constant(handle, &constant);
        copy->deleter(copy);
    } else {
        lib_error error;
        lib_fail(&error, DLC_OUT_OF_MEMORY, "dlc_file_constant: memory was refused");
        graph_handle_record(handle, &error);
    }
    tensor->deleter(tensor);
    return value;
}

dlc_value dlc_file_constant(dlc_graph *handle, dlc_file *file, const char *name) {
    if (graph_handle_live(handle) && file && name) return constant_of(handle, file, name);
    const char *what = "graph, file or name is NULL, or the graph is destroyed";
    if (graph_handle_live(handle)) {
        lib_error error;
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_file_constant: %s", what);
        if (!file) graph_context_add_cause(&error);
        graph_handle_record(handle, &error);
    } else {
        fail(NULL, DLC_INVALID_ARGUMENT, "dlc_file_constant", what);
    }
    return (dlc_value){NULL, UINT32_MAX, 0};
}

/* ---- writing -------------------------------------------------------------------------------------------------------- */

typedef struct write_arguments {
    void (*format)(lib_arena *, lib_new_file *, const lib_named_tensors *);
    lib_named_tensors all;
    /* [count] compact copies of tensors that are not compact */
    DLManagedTensorVersioned **copies;
} write_arguments;

static void check_tensor(lib_arena *arena, const DLTensor *tensor, const char *name) {
    dlc_dtype dtype;
    int64_t count;
    if (!tensor) lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "tensor \"%.200s\" is NULL", name);
    if (tensor->device.device_type != kDLCPU)
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT,
                  "tensor \"%.200s\" is on device type %d, expected host memory (%d)", name,
                  (int)tensor->device.device_type, (int)kDLCPU);
    if (!lib_dtype_from_dlpack(tensor->dtype, &dtype))
        lib_raise(arena->scope, DLC_UNSUPPORTED,
                  "tensor \"%.200s\": DLPack code %d, %d bits, %d lanes is no element type", name, tensor->dtype.code,
                  tensor->dtype.bits, tensor->dtype.lanes);
    if (tensor->ndim < 0 || tensor->ndim > DLC_MAX_RANK || (tensor->ndim && !tensor->shape) ||
        !lib_tensor_count(tensor, &count))
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "tensor \"%.200s\": rank %d or its shape is not possible", name,
                  tensor->ndim);
    if (count && !tensor->data) lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "tensor \"%.200s\": data is NULL", name);
    if (!lib_tensor_is_addressable(tensor))
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT,
                  "tensor \"%.200s\" has strides, expected a compact tensor: its elements are %d bits", name,
                  tensor->dtype.bits);
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void check_names(lib_arena *arena, int count, const char *const *names, const char *what) {
    for (int i = 0; i < count; i++)
        if (!names[i]) lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "the name of %s %d is NULL", what, i);
    if (count < 2) return;
    const char **sorted = lib_arena_copy(arena, names, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, by_text);
    for (int i = 1; i < count; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "two %ss are called \"%.200s\"", what, sorted[i]);
}

/* Makes all tensors compact. */
static void prepare(lib_arena *arena, write_arguments *a, const dlc_allocator *allocator) {
    int count = a->all.count;
    check_names(arena, count, a->all.names, "tensor");
    check_names(arena, a->all.note_count, a->all.keys, "note");
    for (int i = 0; i < a->all.note_count; i++)
        if (!a->all.notes[i]) lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "note \"%.200s\" is NULL", a->all.keys[i]);
    const DLTensor **compact = LIB_NEW_ARRAY(arena, const DLTensor *, (size_t)count);
    a->copies = LIB_NEW_ARRAY(arena, DLManagedTensorVersioned *, (size_t)count);
    for (int i = 0; i < count; i++) {
        const DLTensor *tensor = a->all.tensors[i];
        check_tensor(arena, tensor, a->all.names[i]);
        compact[i] = tensor;
        if (lib_tensor_is_compact(tensor)) continue;
        dlc_dtype dtype;
        lib_dtype_from_dlpack(tensor->dtype, &dtype);
        a->copies[i] = lib_tensor_new(allocator, dtype, tensor->ndim, tensor->shape, 64);
        if (!a->copies[i])
            lib_raise(arena->scope, DLC_OUT_OF_MEMORY, "tensor \"%.200s\": a compact copy was refused",
                      a->all.names[i]);
        lib_tensor_copy(&a->copies[i]->dl_tensor, tensor);
        compact[i] = &a->copies[i]->dl_tensor;
    }
    a->all.tensors = compact;
}

static void write_contents(lib_arena *arena, lib_new_file *file, void *argument) {
    write_arguments *a = argument;
    a->format(arena, file, &a->all);
}

static dlc_status write_file(dlc_context *context, const char *path, const char *call, write_arguments *a) {
    if (!context || !path) return fail(context, DLC_INVALID_ARGUMENT, call, "context or path is NULL");
    if (a->all.count < 0 || (a->all.count && (!a->all.names || !a->all.tensors)))
        return fail(context, DLC_INVALID_ARGUMENT, call, "count is negative, or names or tensors are NULL");
    GRAPH_CALL(context, LIB_STACK_CALL);
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &context->allocator, &scope);
    if (LIB_ENTER(&scope)) {
        prepare(&arena, a, &context->allocator);
        lib_file_write_whole(&arena, path, write_contents, a);
    }
    for (int i = 0; a->copies && i < a->all.count; i++)
        if (a->copies[i]) a->copies[i]->deleter(a->copies[i]);
    lib_arena_free(&arena);
    if (scope.error.status == DLC_OK) return DLC_OK;
    lib_error error;
    lib_fail(&error, scope.error.status, "%s: %s", call, scope.error.message);
    return jit_fail(context, &error);
}

static void write_npy(lib_arena *arena, lib_new_file *file, const lib_named_tensors *all) {
    lib_npy_write(arena, file, all->tensors[0]);
}

dlc_status dlc_file_write_npy(dlc_context *context, const char *path, const DLTensor *tensor) {
    static const char *const names[] = {""};
    write_arguments a = {write_npy, {.count = 1, .names = names, .tensors = &tensor}, NULL};
    return write_file(context, path, "dlc_file_write_npy", &a);
}

dlc_status dlc_file_write_npz(dlc_context *context, const char *path, int count, const char *const *names,
                              const DLTensor *const *tensors, bool compress) {
    write_arguments a = {
        lib_npz_write, {.count = count, .names = names, .tensors = tensors, .compress = compress}, NULL};
    return write_file(context, path, "dlc_file_write_npz", &a);
}

dlc_status dlc_file_write_safetensors(dlc_context *context, const char *path, int count, const char *const *names,
                                      const DLTensor *const *tensors, int note_count, const char *const *keys,
                                      const char *const *notes) {
    if (note_count < 0 || (note_count && (!keys || !notes)))
        return fail(context, DLC_INVALID_ARGUMENT, "dlc_file_write_safetensors",
                    "note_count is negative, or keys or notes are NULL");
    write_arguments a = {
        lib_safetensors_write,
        {.count = count, .names = names, .tensors = tensors, .note_count = note_count, .keys = keys, .notes = notes},
        NULL};
    return write_file(context, path, "dlc_file_write_safetensors", &a);
}
