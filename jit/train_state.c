/* The state of trainers: how it begins, reading and replacing tensors, checkpoints. */
#include "jit/train.h"
#include "lib/tensor_file.h"

#include <string.h>

enum { ALIGNMENT = 64, MOST_BYTES = 16 /* of an element */ };
static const char format[] = "libdlc trainer 1";

/* ---- the beginning ---------------------------------------------------------------------------------------------------------------- */

static void fill(const train_state *state) {
    const DLTensor *tensor = &state->tensor->dl_tensor;
    int64_t count;
    lib_tensor_count(tensor, &count);
    memset(tensor->data, 0, lib_tensor_bytes(tensor));
    if (state->initial.scale == 0) return;
    const size_t size = lib_dtype_size(state->dtype);
    char element[MOST_BYTES] = {0};
    lib_element_set_f64(state->dtype, element, state->initial.scale);
    for (int64_t i = 0; i < count; i++)
        if (lib_dtype_is_packed(state->dtype))
            lib_packed_set(state->dtype, tensor->data, (size_t)i, (uint8_t)element[0]);
        else
            memcpy((char *)tensor->data + (size_t)i * size, element, size);
}

/* Random values by a program of one output for each such tensor, all at once. */
static void draw(dlc_trainer *trainer, int count, const int *states) {
    dlc_graph *handle;
    dlc_program *program = NULL;
    dlc_output_slot *slots = LIB_NEW_ARRAY(&trainer->arena, dlc_output_slot, (size_t)count);
    dlc_status status = dlc_graph_create(trainer->context, &handle);
    for (int i = 0; status == DLC_OK && i < count; i++) {
        const train_state *state = &trainer->states.data[states[i]];
        const uint64_t seed = lib_hash_mix(trainer->options.seed, lib_hash64(state->name, strlen(state->name), 0));
        const dlc_value key = dlc_scalar_i64(handle, DLC_I64, (int64_t)seed);
        dlc_rng_uniform_options uniform = DLC_RNG_UNIFORM_OPTIONS_INIT;
        dlc_rng_normal_options normal = DLC_RNG_NORMAL_OPTIONS_INIT;
        dlc_dim dim[DLC_MAX_RANK];
        for (int d = 0; d < state->rank; d++) dim[d] = (dlc_dim){state->shape[d], NULL};
        /* f4e2m1 has no products */
        uniform.dtype = normal.dtype = lib_dtype_is_packed(state->dtype) ? DLC_F32 : state->dtype;
        uniform.low = -state->initial.scale, uniform.high = state->initial.scale;
        normal.deviation = state->initial.scale;
        const dlc_value drawn = state->initial.initial == DLC_INITIAL_NORMAL
                                    ? dlc_rng_normal_with(handle, key, state->rank, dim, &normal)
                                    : dlc_rng_uniform_with(handle, key, state->rank, dim, &uniform);
        dlc_output(handle, state->name, dlc_cast(drawn, state->dtype));
        slots[i].tensor = &state->tensor->dl_tensor;
    }
    if (status == DLC_OK) status = dlc_compile(trainer->context, handle, NULL, &program);
    if (status == DLC_OK) status = dlc_run(program, NULL, NULL, 0, slots, count);
    dlc_program_destroy(program);
    dlc_graph_destroy(handle);
    if (status != DLC_OK)
        lib_raise(trainer->arena.scope, status, "dlc_trainer_create: initial values: %s",
                  dlc_error_message(trainer->context));
}

/* Averages begin as their parameters. */
static void begin_averages(dlc_trainer *trainer) {
    for (uint32_t s = 0; s < trainer->states.count; s++) {
        const train_state *state = &trainer->states.data[s];
        if (state->kind == TRAIN_AVERAGE)
            lib_tensor_copy(&state->tensor->dl_tensor, &trainer->states.data[state->parameter].tensor->dl_tensor);
    }
}

/* Copies between compact tensors, of which one may be on the context's device. */
static dlc_status transfer(dlc_trainer *trainer, const DLTensor *to, const DLTensor *from, lib_error *error) {
    if (jit_is_on_device(trainer->context, to) || jit_is_on_device(trainer->context, from))
        return jit_device_transfer(trainer->context, to, from, error);
    lib_tensor_copy(to, from);
    return DLC_OK;
}

/* With a device the state lives there, so that steps and evaluations copy none of it; the trainer's numbers, which every step reports, stay in
 * host memory. */
static void move_to_device(dlc_trainer *trainer) {
    for (uint32_t s = 0; s < trainer->states.count; s++) {
        train_state *state = &trainer->states.data[s];
        DLManagedTensorVersioned *const here = state->tensor, *there = NULL;
        lib_error error;
        if (state->kind == TRAIN_NUMBER) continue;
        dlc_status status =
            jit_device_tensor(trainer->context, state->name, state->dtype, state->rank, state->shape, &there, &error);
        if (status == DLC_OK) {
            state->tensor = there;
            status = transfer(trainer, &there->dl_tensor, &here->dl_tensor, &error);
            here->deleter(here);
        }
        if (status != DLC_OK)
            lib_raise(trainer->arena.scope, status, "dlc_trainer_create: %s: %s", state->name, error.message);
    }
}

void jit_train_new_tensor(dlc_trainer *trainer, train_state *state) {
    state->tensor = lib_tensor_new(&trainer->context->allocator, state->dtype, state->rank, state->shape, ALIGNMENT);
    if (!state->tensor)
        lib_raise(trainer->arena.scope, DLC_OUT_OF_MEMORY, "dlc_trainer_create: memory was refused: %s", state->name);
}

void jit_train_begin_state(dlc_trainer *trainer) {
    const uint32_t count = trainer->states.count;
    int *random = LIB_NEW_ARRAY(&trainer->arena, int, count), randoms = 0;
    for (uint32_t s = 0; s < count; s++) {
        train_state *state = &trainer->states.data[s];
        if (state->tensor) continue; /* given by the host */
        jit_train_new_tensor(trainer, state);
        if (state->initial.initial != DLC_INITIAL_CONSTANT)
            random[randoms++] = (int)s;
        else
            fill(state);
    }
    if (randoms) draw(trainer, randoms, random);
    begin_averages(trainer);
    *(int64_t *)trainer->states.data[trainer->numbers.seed].tensor->dl_tensor.data = (int64_t)trainer->options.seed;
    if (trainer->context->target->runtime) move_to_device(trainer);
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------------------ */

int dlc_trainer_count(const dlc_trainer *trainer) {
    return trainer ? (int)trainer->states.count : 0;
}

const char *dlc_trainer_name(const dlc_trainer *trainer, int index) {
    return index >= 0 && index < dlc_trainer_count(trainer) ? trainer->states.data[index].name : NULL;
}

/* The state of that name; else *status is that of the error, which is recorded. */
static train_state *state_named(dlc_trainer *trainer, const char *call, const char *name, dlc_status *status) {
    lib_error error;
    const int number = name ? jit_train_find_state(trainer, name) : -1;
    *status = DLC_OK;
    if (number >= 0) return &trainer->states.data[number];
    lib_nearest nearest = lib_nearest_to(name ? name : "");
    for (uint32_t s = 0; s < trainer->states.count; s++)
        lib_nearest_try(&nearest, trainer->states.data[s].name, strlen(trainer->states.data[s].name));
    lib_fail(&error, DLC_NOT_FOUND, "%s: the state has no tensor called %s%s", call, name ? name : "NULL",
             lib_nearest_hint(&nearest));
    *status = jit_fail(trainer->context, &error);
    return NULL;
}

static dlc_status refuse(dlc_trainer *trainer, dlc_status status, const char *what) {
    lib_error error;
    lib_fail(&error, status, "%s", what);
    return jit_fail(trainer ? trainer->context : NULL, &error);
}

dlc_status jit_train_read(dlc_trainer *trainer, const char *call, const DLTensor *from,
                          DLManagedTensorVersioned **copy) {
    lib_error error;
    dlc_dtype dtype;
    lib_dtype_from_dlpack(from->dtype, &dtype);
    *copy = jit_result_new(trainer->context, dtype, from->ndim, from->shape);
    const dlc_status status = *copy ? transfer(trainer, &(*copy)->dl_tensor, from, &error)
                                    : lib_fail(&error, DLC_OUT_OF_MEMORY, "%s: memory was refused", call);
    if (status == DLC_OK) return DLC_OK;
    if (*copy) (*copy)->deleter(*copy);
    *copy = NULL;
    return jit_fail(trainer->context, &error);
}

dlc_status dlc_trainer_tensor(dlc_trainer *trainer, const char *name, DLManagedTensorVersioned **tensor) {
    dlc_status status;
    if (tensor) *tensor = NULL;
    if (!trainer || !tensor)
        return refuse(trainer, DLC_INVALID_ARGUMENT,
                      "dlc_trainer_tensor: the trainer or the place for the tensor is NULL");
    LIB_TRY(jit_train_check_idle(trainer, "dlc_trainer_tensor"));
    const train_state *state = state_named(trainer, "dlc_trainer_tensor", name, &status);
    if (!state) return status;
    GRAPH_CALL(trainer->context, LIB_STACK_CALL);
    return jit_train_read(trainer, "dlc_trainer_tensor", &state->tensor->dl_tensor, tensor);
}

/* Replaces a tensor of the state that is on the device; the tensor in host memory may have any strides. */
static dlc_status replace_there(dlc_trainer *trainer, const train_state *state, const DLTensor *tensor) {
    lib_error error;
    GRAPH_CALL(trainer->context, LIB_STACK_CALL);
    DLManagedTensorVersioned *compact = jit_result_new(trainer->context, state->dtype, state->rank, state->shape);
    if (!compact) return refuse(trainer, DLC_OUT_OF_MEMORY, "dlc_trainer_set: memory was refused");
    lib_tensor_copy(&compact->dl_tensor, tensor);
    const dlc_status status = transfer(trainer, &state->tensor->dl_tensor, &compact->dl_tensor, &error);
    compact->deleter(compact);
    trainer->lost = trainer->lost || status != DLC_OK;
    return status == DLC_OK ? DLC_OK : jit_fail(trainer->context, &error);
}

dlc_status dlc_trainer_set(dlc_trainer *trainer, const char *name, const DLTensor *tensor) {
    dlc_status status;
    lib_error error;
    if (!trainer || !tensor)
        return refuse(trainer, DLC_INVALID_ARGUMENT, "dlc_trainer_set: the trainer or the tensor is NULL");
    LIB_TRY(jit_train_check_idle(trainer, "dlc_trainer_set"));
    train_state *state = state_named(trainer, "dlc_trainer_set", name, &status);
    if (!state) return status;
    if (!jit_train_fits(tensor, state->dtype, state->rank, state->shape)) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_trainer_set: %s: the tensor is not %s", name,
                 jit_train_wanted(state->dtype, state->rank, state->shape).text);
        return jit_fail(trainer->context, &error);
    }
    if (jit_is_on_device(trainer->context, &state->tensor->dl_tensor)) return replace_there(trainer, state, tensor);
    lib_tensor_copy(&state->tensor->dl_tensor, tensor);
    return DLC_OK;
}

/* ---- checkpoints -------------------------------------------------------------------------------------------------------------------- */

/* The tensor as files have it: where the format lacks its type, the bytes of its elements. *bytes is the shape of these. */
static DLTensor as_stored(const DLTensor *tensor, int64_t *bytes) {
    DLTensor stored = *tensor;
    if (lib_safetensors_holds(tensor)) return stored;
    *bytes = (int64_t)lib_tensor_bytes(tensor);
    stored.dtype = lib_dtype_to_dlpack(DLC_U8);
    stored.ndim = 1, stored.shape = bytes, stored.strides = NULL;
    return stored;
}

/* Writes a file of tensors, of those that are on the device through copies. */
static dlc_status write_tensors(dlc_trainer *trainer, lib_arena *arena, const char *call, const char *path, int count,
                                const char *const *names, const DLTensor **tensors, int notes, const char *const *keys,
                                const char *const *texts) {
    DLManagedTensorVersioned **copies = LIB_NEW_ARRAY(arena, DLManagedTensorVersioned *, (size_t)count);
    DLTensor *stored = LIB_NEW_ARRAY(arena, DLTensor, (size_t)count);
    int64_t *bytes = LIB_NEW_ARRAY(arena, int64_t, (size_t)count);
    dlc_status status = DLC_OK;
    for (int t = 0; status == DLC_OK && t < count; t++) {
        if (!jit_is_on_device(trainer->context, tensors[t])) continue;
        status = jit_train_read(trainer, call, tensors[t], &copies[t]);
        if (copies[t]) tensors[t] = &copies[t]->dl_tensor;
    }
    for (int t = 0; t < count; t++) {
        stored[t] = as_stored(tensors[t], &bytes[t]);
        tensors[t] = &stored[t];
    }
    if (status == DLC_OK)
        status = dlc_file_write_safetensors(trainer->context, path, count, names, tensors, notes, keys, texts);
    for (int t = 0; t < count; t++)
        if (copies[t]) copies[t]->deleter(copies[t]);
    return status;
}

static dlc_status save(dlc_trainer *trainer, lib_arena *arena, const char *path) {
    const uint32_t count = trainer->states.count;
    const char **names = LIB_NEW_ARRAY(arena, const char *, count);
    const DLTensor **tensors = LIB_NEW_ARRAY(arena, const DLTensor *, count);
    for (uint32_t s = 0; s < count; s++) {
        names[s] = trainer->states.data[s].name;
        tensors[s] = &trainer->states.data[s].tensor->dl_tensor;
    }
    const char *keys[] = {"format", "optimizer", "update"},
               *texts[] = {format, trainer->optimizer.name, trainer->optimizer.update};
    return write_tensors(trainer, arena, "dlc_trainer_save", path, (int)count, names, tensors, 3, keys, texts);
}

static dlc_status save_weights(dlc_trainer *trainer, lib_arena *arena, const char *path) {
    const uint32_t count = trainer->states.count;
    const char **names = LIB_NEW_ARRAY(arena, const char *, count);
    const DLTensor **tensors = LIB_NEW_ARRAY(arena, const DLTensor *, count);
    int *place = LIB_NEW_ARRAY(arena, int, count), used = 0; /* by state: of a parameter in `tensors` */
    for (uint32_t s = 0; s < count; s++) {
        const train_state *state = &trainer->states.data[s];
        if (state->kind == TRAIN_AVERAGE) tensors[place[state->parameter]] = &state->tensor->dl_tensor;
        if (state->kind != TRAIN_PARAMETER && state->kind != TRAIN_CARRIED) continue;
        place[s] = used;
        names[used] = state->name;
        tensors[used++] = &state->tensor->dl_tensor;
    }
    return write_tensors(trainer, arena, "dlc_trainer_save_weights", path, used, names, tensors, 0, NULL, NULL);
}

static const char *noted(dlc_file *file, const char *key) {
    const char *text = dlc_file_note(file, key);
    return text ? text : "";
}

/* Raises if the file is not of such a trainer; tensor[s]: the file's. */
static void read_checkpoint(dlc_trainer *trainer, lib_arena *arena, dlc_file *file, const char *path,
                            DLManagedTensorVersioned **tensor) {
    const int count = (int)trainer->states.count;
    if (strcmp(noted(file, "format"), format) != 0)
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "dlc_trainer_load: %s is not a file of dlc_trainer_save", path);
    if (strcmp(noted(file, "optimizer"), trainer->optimizer.name) != 0 ||
        strcmp(noted(file, "update"), trainer->optimizer.update) != 0)
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "dlc_trainer_load: %s is of optimiser %s (%s), expected %s (%s)",
                  path, noted(file, "optimizer"), noted(file, "update"), trainer->optimizer.name,
                  trainer->optimizer.update);
    for (int s = 0; s < count; s++) {
        const train_state *state = &trainer->states.data[s];
        const dlc_status status = dlc_file_tensor(file, state->name, &tensor[s]);
        if (status != DLC_OK)
            lib_raise(arena->scope, status == DLC_NOT_FOUND ? DLC_INVALID_ARGUMENT : status, "dlc_trainer_load: %s: %s",
                      path, dlc_error_message(trainer->context));
        int64_t bytes;
        dlc_dtype dtype;
        const DLTensor expected = as_stored(&state->tensor->dl_tensor, &bytes);
        lib_dtype_from_dlpack(expected.dtype, &dtype);
        if (!jit_train_fits(&tensor[s]->dl_tensor, dtype, expected.ndim, expected.shape)) {
            lib_text is, wanted;
            lib_text_init(&is, arena);
            lib_text_init(&wanted, arena);
            lib_tensor_describe(&is, &tensor[s]->dl_tensor);
            lib_tensor_describe(&wanted, &expected);
            lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "dlc_trainer_load: %s: %s is %s, expected %s", path,
                      state->name, is.data, wanted.data);
        }
    }
    for (int i = 0; i < dlc_file_count(file); i++)
        if (jit_train_find_state(trainer, dlc_file_name(file, i)) < 0)
            lib_raise(arena->scope, DLC_INVALID_ARGUMENT,
                      "dlc_trainer_load: %s has a tensor %s, which the trainer has not", path, dlc_file_name(file, i));
}

static dlc_status load(dlc_trainer *trainer, lib_arena *arena, const char *path) {
    const uint32_t count = trainer->states.count;
    DLManagedTensorVersioned **tensor = LIB_NEW_ARRAY(arena, DLManagedTensorVersioned *, count);
    dlc_file_options options = DLC_FILE_OPTIONS_INIT;
    dlc_file *file;
    options.read = true;
    LIB_TRY(dlc_file_open(trainer->context, path, &options, &file));
    lib_scope scope, *const outer = arena->scope;
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) {
        read_checkpoint(trainer, arena, file, path, tensor);
        trainer->lost = true; /* until all are copied */
        for (uint32_t s = 0; s < count; s++) {
            lib_error error;
            int64_t bytes;
            const DLTensor to = as_stored(&trainer->states.data[s].tensor->dl_tensor, &bytes);
            if (transfer(trainer, &to, &tensor[s]->dl_tensor, &error) != DLC_OK)
                lib_raise(&scope, error.status, "dlc_trainer_load: %s: %s", trainer->states.data[s].name,
                          error.message);
        }
        trainer->lost = false;
    }
    arena->scope = outer;
    for (uint32_t s = 0; s < count; s++)
        if (tensor[s]) tensor[s]->deleter(tensor[s]);
    dlc_file_destroy(file);
    return scope.error.status == DLC_OK ? DLC_OK : jit_fail(trainer->context, &scope.error);
}

/* Saves or loads, with an arena for the lists. */
static dlc_status use_file(dlc_trainer *trainer, const char *path,
                           dlc_status (*work)(dlc_trainer *trainer, lib_arena *arena, const char *path)) {
    GRAPH_CALL(trainer->context, LIB_STACK_CALL);
    lib_arena arena;
    lib_scope scope;
    dlc_status status = DLC_OUT_OF_MEMORY;
    lib_arena_init(&arena, &trainer->context->allocator, &scope);
    if (LIB_ENTER(&scope))
        status = work(trainer, &arena, path);
    else
        status = jit_fail(trainer->context, &scope.error);
    lib_arena_free(&arena);
    return status;
}

static dlc_status save_with(dlc_trainer *trainer, const char *path, const char *call,
                            dlc_status (*work)(dlc_trainer *trainer, lib_arena *arena, const char *path)) {
    lib_error error;
    if (trainer) LIB_TRY(jit_train_check_idle(trainer, call));
    if (trainer && path && !trainer->lost) return use_file(trainer, path, work);
    lib_fail(&error, DLC_INVALID_ARGUMENT, "%s: %s", call,
             trainer && path ? "the state was lost in a call that failed after it had begun to write it"
                             : "the trainer or the path is NULL");
    return jit_fail(trainer ? trainer->context : NULL, &error);
}

dlc_status dlc_trainer_save(dlc_trainer *trainer, const char *path) {
    return save_with(trainer, path, "dlc_trainer_save", save);
}

dlc_status dlc_trainer_save_weights(dlc_trainer *trainer, const char *path) {
    return save_with(trainer, path, "dlc_trainer_save_weights", save_weights);
}

dlc_status dlc_trainer_load(dlc_trainer *trainer, const char *path) {
    if (!trainer || !path)
        return refuse(trainer, DLC_INVALID_ARGUMENT, "dlc_trainer_load: the trainer or the path is NULL");
    LIB_TRY(jit_train_check_idle(trainer, "dlc_trainer_load"));
    return use_file(trainer, path, load);
}

/* ---- order of data ------------------------------------------------------------------------------------------------------------------ */

/* Fisher and Yates 1938; numbers by hashing (seed, epoch, place). */
void dlc_training_order(uint64_t seed, int64_t epoch, int64_t count, int64_t *order) {
    const uint64_t of_epoch = lib_hash_mix(lib_hash_mix(seed, 0x9E3779B97F4A7C15U), (uint64_t)epoch);
    for (int64_t i = 0; i < count; i++) order[i] = i;
    for (int64_t i = count - 1; i > 0; i--) {
        const int64_t k = (int64_t)(lib_hash_mix(of_epoch, (uint64_t)i) % ((uint64_t)i + 1)), other = order[k];
        order[k] = order[i];
        order[i] = other;
    }
}
