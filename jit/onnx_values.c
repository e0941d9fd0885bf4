/* Runs of ONNX models with sequences, optionals, strings and maps, <dlc/onnx.h>. The inputs are taken apart into their structure and a
 * list of tensors. For each structure the runner has a lane, a runner whose inputs are these tensors; after the run, outputs are put
 * together from the program's outputs, as the lane's import describes them (onnx_result). */
#include <dlc/onnx.h>

#include "jit/jit.h"

#ifdef DLC_ONNX
#include "jit/onnx_run.h"

enum { LANES_KEPT = 16 };
static const size_t bytes_max = (size_t)1 << 30; /* of all strings in the inputs of a run */

/* The inputs of a run, taken apart. */
typedef struct arrival {
    lib_arena *arena;
    const dlc_onnx_runner *runner;
    /* Strings and keys are copied to the arena; else `given` points to the host's. */
    bool copies;
    /* All tensors in the inputs, in order, and a port for each. */
    lib_vec(jit_onnx_port) port;
    lib_vec(const DLTensor *) tensor;
    /* The input of the main graph that is being taken apart; bytes of strings so far. */
    size_t place;
    size_t bytes;
    /* The structure, by input of the main graph: values without the tensors' elements. */
    const dlc_onnx_value **given;
} arrival;

/* ---- taking apart ------------------------------------------------------------------------------------------------------ */

static const char *kind_text(dlc_onnx_kind kind) {
    static const char *const texts[] = {"nothing", "a tensor", "strings", "a sequence", "a map"};
    return (unsigned)kind <= DLC_ONNX_MAP ? texts[kind] : "of no kind";
}

static _Noreturn void refuse_kind(const arrival *a, const onnx_type *type, const dlc_onnx_value *value,
                                  const char *name) {
    lib_raise(a->arena->scope, DLC_INVALID_ARGUMENT, "dlc_onnx_run_values: input %s is %s; the model takes %s", name,
              kind_text(value->kind), onnx_type_text(a->arena, type));
}

static void require_kind(const arrival *a, const onnx_type *type, const dlc_onnx_value *value, dlc_onnx_kind kind,
                         const char *name) {
    if (value->kind != kind) refuse_kind(a, type, value, name);
}

static void check_tensor(const arrival *a, const DLTensor *tensor, int32_t element, const char *name) {
    const onnx_element *type = onnx_element_of(element);
    char text[JIT_ONNX_FAULT];
    dlc_dtype dtype;
    const char *fault = jit_onnx_tensor_fault(tensor, text);
    if (fault) lib_raise(a->arena->scope, DLC_INVALID_ARGUMENT, "dlc_onnx_run_values: input %s %s", name, fault);
    if (!lib_dtype_from_dlpack(tensor->dtype, &dtype) || !type || type->dtype != (int)dtype)
        lib_raise(a->arena->scope, DLC_INVALID_ARGUMENT,
                  "dlc_onnx_run_values: input %s has elements of another type than the model's, %s", name,
                  type ? type->name : "unknown");
}

static void take_tensor(arrival *a, const onnx_type *type, const DLTensor *tensor, const char *name) {
    check_tensor(a, tensor, type->tensor->element, name);
    if (a->tensor.count == JIT_ONNX_TENSORS)
        lib_raise(a->arena->scope, DLC_BUDGET_EXCEEDED, "dlc_onnx_run_values: more than %d tensors, at input %s",
                  JIT_ONNX_TENSORS, name);
    lib_vec_push(a->arena, &a->tensor, tensor);
    lib_vec_push(a->arena, &a->port, ((jit_onnx_port){.name = name, .type = type, .place = a->place}));
}

/* Number of strings: the product of the dimensions; raises for invalid dimensions and for too many strings. */
static size_t string_count(const arrival *a, const dlc_onnx_value *value, const char *name) {
    int64_t count = 1;
    bool right = value->rank >= 0 && value->rank <= DLC_MAX_RANK && (!value->rank || value->dims), fits = true,
         none = false;
    for (int d = 0; right && d < value->rank; d++) {
        right = value->dims[d] >= 0;
        none |= value->dims[d] == 0;
        fits &= !right || !value->dims[d] || !__builtin_mul_overflow(count, value->dims[d], &count);
    }
    if (!right)
        lib_raise(a->arena->scope, DLC_INVALID_ARGUMENT,
                  "dlc_onnx_run_values: strings %s have no rank up to %d, or a dimension below 0", name, DLC_MAX_RANK);
    if (!fits || (!none && count > ONNX_WORDS_MAX))
        lib_raise(a->arena->scope, DLC_BUDGET_EXCEEDED, "dlc_onnx_run_values: more than %d strings, in input %s",
                  (int)ONNX_WORDS_MAX, name);
    return none ? 0 : (size_t)count;
}

static void take_strings(arrival *a, dlc_onnx_value *to, const dlc_onnx_value *value, const char *name) {
    const size_t count = string_count(a, value, name);
    dlc_onnx_string *string = LIB_NEW_ARRAY(a->arena, dlc_onnx_string, a->copies ? count + 1 : 1);
    if (count && !value->strings)
        lib_raise(a->arena->scope, DLC_INVALID_ARGUMENT, "dlc_onnx_run_values: input %s has no strings", name);
    for (size_t i = 0; i < count; i++) {
        const dlc_onnx_string *from = &value->strings[i];
        if (from->size && !from->data)
            lib_raise(a->arena->scope, DLC_INVALID_ARGUMENT, "dlc_onnx_run_values: string %zu of input %s is NULL", i,
                      name);
        if (from->size > bytes_max - a->bytes)
            lib_raise(a->arena->scope, DLC_BUDGET_EXCEEDED, "dlc_onnx_run_values: more than %zu bytes of strings",
                      bytes_max);
        a->bytes += from->size;
        if (a->copies) string[i] = (dlc_onnx_string){lib_arena_copy(a->arena, from->data, from->size), from->size};
    }
    *to = (dlc_onnx_value){.kind = DLC_ONNX_STRINGS, .rank = value->rank, .dims = value->dims};
    to->strings = a->copies ? string : value->strings;
    if (a->copies) to->dims = lib_arena_copy(a->arena, value->dims, (size_t)value->rank * sizeof *value->dims);
}

static void take_value(arrival *a, dlc_onnx_value *to, const onnx_type *type, const dlc_onnx_value *value,
                       const char *name);

static void take_sequence(arrival *a, dlc_onnx_value *to, const onnx_type *type, const dlc_onnx_value *value,
                          const char *name) {
    if (value->count > JIT_ONNX_TENSORS)
        lib_raise(a->arena->scope, DLC_BUDGET_EXCEEDED, "dlc_onnx_run_values: sequence %s has %zu elements, at most %d",
                  name, value->count, JIT_ONNX_TENSORS);
    if (value->count && !value->elements)
        lib_raise(a->arena->scope, DLC_INVALID_ARGUMENT,
                  "dlc_onnx_run_values: sequence %s has %zu elements, but elements is NULL", name, value->count);
    dlc_onnx_value *element = LIB_NEW_ARRAY(a->arena, dlc_onnx_value, value->count + 1);
    for (size_t i = 0; i < value->count; i++)
        take_value(a, &element[i], type->sequence->element, &value->elements[i],
                   lib_arena_format(a->arena, "%s.%zu", name, i));
    *to = (dlc_onnx_value){.kind = DLC_ONNX_SEQUENCE, .count = value->count, .elements = element};
}

/* Takes the integer keys of a map; raises unless they are a compact list in host memory. */
static void take_integers(arrival *a, dlc_onnx_value *to, const DLTensor *tensor, const char *name) {
    check_tensor(a, tensor, 7, name);
    if (tensor->ndim != 1 || tensor->device.device_type != kDLCPU || !lib_tensor_is_compact(tensor))
        lib_raise(a->arena->scope, DLC_INVALID_ARGUMENT,
                  "dlc_onnx_run_values: input %s is no compact list in host memory", name);
    DLTensor *own = lib_arena_copy(a->arena, tensor, sizeof *tensor);
    own->data = lib_tensor_data(tensor);
    own->byte_offset = 0, own->strides = NULL;
    if (a->copies) {
        own->shape = lib_arena_copy(a->arena, tensor->shape, sizeof *tensor->shape);
        own->data = lib_arena_copy(a->arena, own->data, lib_tensor_bytes(tensor));
    }
    *to = (dlc_onnx_value){.kind = DLC_ONNX_TENSOR, .tensor = own};
}

static int64_t list_length(const dlc_onnx_value *value) {
    if (value->kind == DLC_ONNX_STRINGS) return value->rank == 1 ? value->dims[0] : -1;
    return value->tensor->ndim == 1 ? value->tensor->shape[0] : -1;
}

static void take_map(arrival *a, dlc_onnx_value *to, const onnx_type *type, const dlc_onnx_value *value,
                     const char *name) {
    const onnx_type *element = type->map->value;
    const bool words = type->map->key == ONNX_STRING;
    const char *key_name = lib_arena_format(a->arena, "%s.keys", name),
               *value_name = lib_arena_format(a->arena, "%s.values", name);
    if ((!words && type->map->key != 7) || !element || element->which != ONNX_TYPE_TENSOR)
        lib_raise(a->arena->scope, DLC_UNSUPPORTED, "dlc_onnx_run_values: input %s of type %s", name,
                  onnx_type_text(a->arena, type));
    if (value->count != 2 || !value->elements)
        lib_raise(a->arena->scope, DLC_INVALID_ARGUMENT, "dlc_onnx_run_values: map %s has not two elements", name);
    dlc_onnx_value *part = LIB_NEW_ARRAY(a->arena, dlc_onnx_value, 2);
    const dlc_onnx_value *keys = &value->elements[0], *values = &value->elements[1];
    require_kind(a, type, keys, words ? DLC_ONNX_STRINGS : DLC_ONNX_TENSOR, key_name);
    if (words)
        take_strings(a, &part[0], keys, key_name);
    else
        take_integers(a, &part[0], keys->tensor, key_name);
    require_kind(a, type, values, element->tensor->element == ONNX_STRING ? DLC_ONNX_STRINGS : DLC_ONNX_TENSOR,
                 value_name);
    take_value(a, &part[1], element, values, value_name);
    if (list_length(keys) < 0 || list_length(keys) != list_length(values))
        lib_raise(a->arena->scope, DLC_INVALID_ARGUMENT,
                  "dlc_onnx_run_values: keys and values of map %s are no lists of one length", name);
    *to = (dlc_onnx_value){.kind = DLC_ONNX_MAP, .count = 2, .elements = part};
}

/* Takes a value apart: its structure into *to, its tensors into the list; raises unless it has the type. Recursive: types nest no deeper
 * than the file's messages. */
static void take_value(arrival *a, dlc_onnx_value *to, const onnx_type *type, const dlc_onnx_value *value,
                       const char *name) {
    if (type && type->which == ONNX_TYPE_OPTIONAL && value->kind == DLC_ONNX_NONE) {
        *to = (dlc_onnx_value){.kind = DLC_ONNX_NONE};
        return;
    }
    if (type && type->which == ONNX_TYPE_OPTIONAL) type = type->optional->element;
    switch (type ? type->which : ONNX_TYPE_NONE) {
    case ONNX_TYPE_TENSOR:
        if (type->tensor->element == ONNX_STRING) {
            require_kind(a, type, value, DLC_ONNX_STRINGS, name);
            take_strings(a, to, value, name);
            return;
        }
        require_kind(a, type, value, DLC_ONNX_TENSOR, name);
        take_tensor(a, type, value->tensor, name);
        *to = (dlc_onnx_value){.kind = DLC_ONNX_TENSOR};
        return;
    case ONNX_TYPE_SEQUENCE:
        require_kind(a, type, value, DLC_ONNX_SEQUENCE, name);
        take_sequence(a, to, type, value, name);
        return;
    case ONNX_TYPE_MAP:
        require_kind(a, type, value, DLC_ONNX_MAP, name);
        take_map(a, to, type, value, name);
        return;
    default:
        lib_raise(a->arena->scope, DLC_UNSUPPORTED, "dlc_onnx_run_values: input %s is %s", name,
                  onnx_type_text(a->arena, type));
    }
}

/* Takes all inputs apart. In the arena's scope. */
static void take_inputs(arrival *a, const dlc_onnx_value *const *inputs) {
    const dlc_onnx_model *model = a->runner->model;
    a->given = LIB_NEW_ARRAY(a->arena, const dlc_onnx_value *, model->model->graph->inputs.count + 1);
    for (int i = 0; i < model->port_count[DLC_ONNX_INPUT]; i++) {
        const jit_onnx_port *port = &model->ports[DLC_ONNX_INPUT][i];
        dlc_onnx_value *to = LIB_NEW(a->arena, dlc_onnx_value);
        if (!inputs[i])
            lib_raise(a->arena->scope, DLC_INVALID_ARGUMENT, "dlc_onnx_run_values: input %s is NULL", port->name);
        a->place = port->place;
        take_value(a, to, port->type, inputs[i], port->name);
        a->given[port->place] = to;
    }
}

/* ---- lanes ------------------------------------------------------------------------------------------------------------- */

static bool same_strings(const dlc_onnx_value *a, const dlc_onnx_value *b) {
    int64_t count = 1;
    if (a->rank != b->rank) return false;
    for (int d = 0; d < a->rank; d++) {
        if (a->dims[d] != b->dims[d]) return false;
        count *= a->dims[d];
    }
    for (int64_t i = 0; i < count; i++) {
        const dlc_onnx_string *x = &a->strings[i], *y = &b->strings[i];
        if (x->size != y->size || (x->size && memcmp(x->data, y->data, x->size) != 0)) return false;
    }
    return true;
}

/* Are two structures equal? Of tensors they contain only the keys of maps, which are compared, as strings are. */
static bool same_structure(const dlc_onnx_value *a, const dlc_onnx_value *b) {
    if (a->kind != b->kind || a->count != b->count) return false;
    if (a->kind == DLC_ONNX_STRINGS) return same_strings(a, b);
    if (a->tensor && (a->tensor->shape[0] != b->tensor->shape[0] ||
                      memcmp(a->tensor->data, b->tensor->data, lib_tensor_bytes(a->tensor)) != 0))
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!same_structure(&a->elements[i], &b->elements[i])) return false;
    return true;
}

static bool serves(const dlc_onnx_runner *lane, const arrival *a) {
    const dlc_onnx_model *model = lane->model;
    for (int i = 0; i < model->port_count[DLC_ONNX_INPUT]; i++) {
        const size_t place = model->ports[DLC_ONNX_INPUT][i].place;
        if (!same_structure(lane->given[place], a->given[place])) return false;
    }
    return true;
}

static void drop_oldest(dlc_onnx_runner *runner) {
    dlc_onnx_runner **oldest = NULL;
    int count = 0;
    for (dlc_onnx_runner **at = &runner->lanes; *at; at = &(*at)->next, count++)
        if ((*at)->users == 0 && (!oldest || (*at)->used < (*oldest)->used)) oldest = at;
    if (count <= LANES_KEPT || !oldest) return;
    dlc_onnx_runner *gone = *oldest;
    *oldest = gone->next;
    jit_onnx_runner_free(gone);
}

static void fill_lane(dlc_onnx_runner *lane, const dlc_onnx_runner *runner, const dlc_onnx_value *const *inputs) {
    arrival a = {.arena = &lane->arena, .runner = runner, .copies = true};
    take_inputs(&a, inputs);
    lane->input = a.port.data, lane->input_count = (int)a.port.count;
    lane->given = a.given;
    lane->content = LIB_NEW_ARRAY(&lane->arena, bool, a.port.count + 1);
}

static dlc_status new_lane(dlc_onnx_runner *runner, const dlc_onnx_value *const *inputs, dlc_onnx_runner **made) {
    dlc_context *context = runner->model->context;
    dlc_onnx_runner *lane = lib_allocate_zeroed(&context->allocator, sizeof *lane, _Alignof(dlc_onnx_runner));
    if (!lane) return jit_onnx_fail(context, DLC_OUT_OF_MEMORY, "dlc_onnx_run_values", "memory was refused");
    jit_onnx_runner_init(lane, runner->model, NULL, 0);
    lane->owner = runner, lane->import = runner->import, lane->compile = runner->compile;
    if (LIB_ENTER(&lane->scope)) fill_lane(lane, runner, inputs);
    if (lane->scope.error.status != DLC_OK) {
        const dlc_status status = jit_fail(context, &lane->scope.error);
        jit_onnx_runner_free(lane);
        return status;
    }
    lane->next = runner->lanes;
    runner->lanes = *made = lane;
    return DLC_OK;
}

static dlc_status take_lane(dlc_onnx_runner *runner, const arrival *a, const dlc_onnx_value *const *inputs,
                            dlc_onnx_runner **taken) {
    dlc_status status = DLC_OK;
    lib_mutex_lock(&runner->mutex);
    dlc_onnx_runner *lane = runner->lanes;
    while (lane && !serves(lane, a)) lane = lane->next;
    if (!lane) status = new_lane(runner, inputs, &lane);
    if (status == DLC_OK) {
        lane->users++;
        lane->used = ++runner->clock;
        drop_oldest(runner);
        *taken = lane;
    }
    lib_mutex_unlock(&runner->mutex);
    return status;
}

static void leave_lane(dlc_onnx_runner *runner, dlc_onnx_runner *lane) {
    lib_mutex_lock(&runner->mutex);
    lane->users--;
    lib_mutex_unlock(&runner->mutex);
}

/* ---- putting together --------------------------------------------------------------------------------------------------- */

/* An output that the host owns. The host's pointer is the address of `value`, so `value` must be the first member. */
typedef struct owned_value {
    dlc_onnx_value value;
    /* Owns everything that `value` points to. */
    lib_arena arena;
    lib_scope scope;
    dlc_context *context;
} owned_value;

static void release_managed(void *tensor) {
    DLManagedTensorVersioned *managed = tensor;
    managed->deleter(managed);
}

/* Moves the tensor of a slot into the value's arena, which owns it from now on. */
static const DLTensor *take_slot(owned_value *to, dlc_output_slot *slot) {
    DLManagedTensorVersioned *managed = slot->managed;
    slot->managed = NULL;
    lib_arena_own(&to->arena, release_managed, managed);
    return &managed->dl_tensor;
}

/* The tensor of a result: taken from the program's output slot, or made from the constant in `result`. */
static const DLTensor *numbers_of(owned_value *to, const onnx_result *result, dlc_output_slot *slots) {
    if (result->output >= 0) return take_slot(to, &slots[result->output]);
    DLManagedTensorVersioned *copy =
        lib_tensor_new(&to->context->allocator, result->dtype, result->rank, result->dims, TIR_BUFFER_ALIGNMENT);
    if (!copy) lib_raise(&to->scope, DLC_OUT_OF_MEMORY, "dlc_onnx_run_values: memory for a result was refused");
    lib_arena_own(&to->arena, release_managed, copy);
    memcpy(copy->dl_tensor.data, result->bytes, lib_tensor_bytes(&copy->dl_tensor));
    return &copy->dl_tensor;
}

/* The same, to be read by the CPU; raises if it is on a device. */
static const DLTensor *readable_of(owned_value *to, const onnx_result *result, dlc_output_slot *slots) {
    const DLTensor *tensor = numbers_of(to, result, slots);
    if (tensor->device.device_type != kDLCPU)
        lib_raise(&to->scope, DLC_UNSUPPORTED, "dlc_onnx_run_values: strings and maps of tensors on a device");
    return tensor;
}

static dlc_onnx_string *new_strings(owned_value *to, dlc_onnx_value *value, const DLTensor *shape, int64_t *count) {
    lib_tensor_count(shape, count);
    *value = (dlc_onnx_value){.kind = DLC_ONNX_STRINGS, .rank = shape->ndim, .dims = shape->shape};
    dlc_onnx_string *string = LIB_NEW_ARRAY(&to->arena, dlc_onnx_string, (size_t)*count + 1);
    value->strings = string;
    return string;
}

/* Strings: `result` has a table of words, and a tensor of indices into it. */
static void give_strings(owned_value *to, dlc_onnx_value *value, const onnx_result *result, dlc_output_slot *slots) {
    const DLTensor *places = readable_of(to, &result->part[0], slots);
    const int64_t *place = (const int64_t *)(const void *)lib_tensor_data(places);
    int64_t count;
    dlc_onnx_string *string = new_strings(to, value, places, &count), *table = NULL;
    table = LIB_NEW_ARRAY(&to->arena, dlc_onnx_string, result->words + 1);
    for (size_t w = 0; w < result->words; w++)
        table[w] = (dlc_onnx_string){lib_arena_copy(&to->arena, result->word[w].data, result->word[w].size),
                                     result->word[w].size};
    for (int64_t i = 0; i < count; i++) {
        if (place[i] < 0 || (size_t)place[i] >= result->words)
            lib_raise(&to->scope, DLC_INTERNAL, "dlc_onnx_run_values: string %lld of a table of %zu",
                      (long long)place[i], result->words);
        string[i] = table[place[i]];
    }
}

static void give_written(owned_value *to, dlc_onnx_value *value, const onnx_result *result, dlc_output_slot *slots) {
    const DLTensor *numbers = readable_of(to, &result->part[0], slots);
    const char *data = lib_tensor_data(numbers);
    int64_t count;
    dlc_dtype dtype;
    lib_dtype_from_dlpack(numbers->dtype, &dtype);
    dlc_onnx_string *string = new_strings(to, value, numbers, &count);
    for (int64_t i = 0; i < count; i++) {
        lib_text text;
        lib_text_init(&text, &to->arena);
        onnx_write_number(&text, dtype, data + (size_t)i * lib_dtype_size(dtype));
        string[i] = (dlc_onnx_string){text.data, text.length};
    }
}

static void give(owned_value *to, dlc_onnx_value *value, const onnx_result *result, dlc_output_slot *slots);

static void give_parts(owned_value *to, dlc_onnx_value *value, const onnx_result *result, dlc_output_slot *slots,
                       dlc_onnx_kind kind) {
    dlc_onnx_value *element = LIB_NEW_ARRAY(&to->arena, dlc_onnx_value, result->count + 1);
    for (size_t i = 0; i < result->count; i++) give(to, &element[i], &result->part[i], slots);
    *value = (dlc_onnx_value){.kind = kind, .count = result->count, .elements = element};
}

/* A sequence of maps with common keys: one for each row of the tensor of values, as a view of that row. */
static void give_maps(owned_value *to, dlc_onnx_value *value, const onnx_result *result, dlc_output_slot *slots) {
    const DLTensor *rows = readable_of(to, &result->part[1], slots);
    const size_t count = (size_t)rows->shape[0];
    dlc_onnx_value *map = LIB_NEW_ARRAY(&to->arena, dlc_onnx_value, count + 1), keys;
    give(to, &keys, &result->part[0], slots);
    for (size_t r = 0; r < count; r++) {
        dlc_onnx_value *part = LIB_NEW_ARRAY(&to->arena, dlc_onnx_value, 2);
        DLTensor *row = LIB_NEW(&to->arena, DLTensor);
        *row = *rows;
        row->ndim = 1, row->shape = rows->shape + 1, row->strides = NULL;
        row->byte_offset += r * (size_t)rows->shape[1] * rows->dtype.bits / 8;
        part[0] = keys;
        part[1] = (dlc_onnx_value){.kind = DLC_ONNX_TENSOR, .tensor = row};
        map[r] = (dlc_onnx_value){.kind = DLC_ONNX_MAP, .count = 2, .elements = part};
    }
    *value = (dlc_onnx_value){.kind = DLC_ONNX_SEQUENCE, .count = count, .elements = map};
}

static void give(owned_value *to, dlc_onnx_value *value, const onnx_result *result, dlc_output_slot *slots) {
    switch (result->form) {
    case ONNX_NUMBERS:
        *value = (dlc_onnx_value){.kind = DLC_ONNX_TENSOR, .tensor = numbers_of(to, result, slots)};
        break;
    case ONNX_STRINGS: give_strings(to, value, result, slots); break;
    case ONNX_WRITTEN: give_written(to, value, result, slots); break;
    case ONNX_LIST: give_parts(to, value, result, slots, DLC_ONNX_SEQUENCE); break;
    case ONNX_EMPTY: *value = (dlc_onnx_value){.kind = DLC_ONNX_NONE}; break;
    case ONNX_MAP: give_parts(to, value, result, slots, DLC_ONNX_MAP); break;
    case ONNX_MAPS: give_maps(to, value, result, slots); break;
    }
}

static void destroy(owned_value *value) {
    dlc_context *context = value->context;
    lib_arena_free(&value->arena);
    lib_release(&context->allocator, value, sizeof *value, _Alignof(owned_value));
    jit_context_release(context);
}

void dlc_onnx_value_destroy(dlc_onnx_value *value) {
    owned_value *own = (owned_value *)(void *)value;
    lib_call call;
    if (!value) return;
    dlc_context *context = own->context;
    if (!graph_call_to_destroy(context, &call)) return;
    destroy(own);
    graph_call_destroyed(context, &call);
}

/* Makes an output as `result` describes it; result NULL: of the tensor in slots[0]. */
static dlc_status new_value(dlc_context *context, const onnx_result *result, dlc_output_slot *slots,
                            dlc_onnx_value **made) {
    owned_value *own = lib_allocate_zeroed(&context->allocator, sizeof *own, _Alignof(owned_value));
    if (!own) return jit_onnx_fail(context, DLC_OUT_OF_MEMORY, "dlc_onnx_run_values", "memory was refused");
    jit_context_keep(context);
    own->context = context;
    lib_arena_init(&own->arena, &context->allocator, &own->scope);
    if (LIB_ENTER(&own->scope)) {
        if (result)
            give(own, &own->value, result, slots);
        else if (slots->managed) /* a state stays in the runner: NONE */
            own->value = (dlc_onnx_value){.kind = DLC_ONNX_TENSOR, .tensor = take_slot(own, slots)};
    }
    if (own->scope.error.status == DLC_OK) {
        *made = &own->value;
        return DLC_OK;
    }
    const dlc_status status = jit_fail(context, &own->scope.error);
    destroy(own);
    return status;
}

/* ---- runs ---------------------------------------------------------------------------------------------------------------- */

typedef struct call {
    lib_arena arena;
    lib_scope scope;
    dlc_onnx_runner *runner;
    const dlc_run_options *options;
    const dlc_onnx_value *const *inputs;
    dlc_onnx_value **outputs;
    int output_count;
    arrival arrived;
    /* [JIT_ONNX_TENSORS] */
    dlc_output_slot *slots;
    /* Filled by a walk; an import has its own. */
    onnx_results results;
} call;

static dlc_status run_in_lane(call *c) {
    dlc_onnx_runner *lane;
    imported *import;
    LIB_TRY(take_lane(c->runner, &c->arrived, c->inputs, &lane));
    dlc_status status = jit_onnx_run_taking(lane, c->options, c->arrived.tensor.data, c->slots, &c->results, &import);
    const onnx_result *results = import ? import->results : c->results.result;
    for (int o = 0; o < c->output_count && status == DLC_OK; o++)
        status = new_value(c->runner->model->context, &results[o], c->slots, &c->outputs[o]);
    if (import) jit_onnx_leave_import(lane, import);
    leave_lane(c->runner, lane);
    return status;
}

/* Runs a model whose inputs and outputs are all tensors. */
static dlc_status run_tensors(call *c) {
    const dlc_onnx_model *model = c->runner->model;
    const DLTensor **tensor = (const DLTensor **)c->arrived.tensor.data;
    const int inputs = model->port_count[DLC_ONNX_INPUT];
    LIB_TRY(dlc_onnx_run(c->runner, c->options, tensor, inputs, c->slots, c->output_count));
    for (int o = 0; o < c->output_count; o++) LIB_TRY(new_value(model->context, NULL, &c->slots[o], &c->outputs[o]));
    return DLC_OK;
}

/* Takes the inputs of a model whose inputs and outputs are all tensors; a value NONE stands for a state of the runner. */
static void take_tensors(call *c) {
    const dlc_onnx_model *model = c->runner->model;
    for (int i = 0; i < model->port_count[DLC_ONNX_INPUT]; i++) {
        const jit_onnx_port *port = &model->ports[DLC_ONNX_INPUT][i];
        const dlc_onnx_value *value = c->inputs[i];
        const bool none = value && value->kind == DLC_ONNX_NONE && c->runner->state_in[i];
        if (!value || (!none && value->kind != DLC_ONNX_TENSOR))
            lib_raise(&c->scope, DLC_INVALID_ARGUMENT, "dlc_onnx_run_values: input %s is %s; the model takes %s",
                      port->name, value ? kind_text(value->kind) : "NULL", port->type_text);
        lib_vec_push(&c->arena, &c->arrived.tensor, none ? NULL : value->tensor);
    }
}

/* Takes the call's inputs, in the call's scope. structured: some input or output is not a tensor. */
static dlc_status take_call(call *c, bool structured) {
    if (LIB_ENTER(&c->scope)) {
        c->arrived = (arrival){.arena = &c->arena, .runner = c->runner};
        c->slots = LIB_NEW_ARRAY(&c->arena, dlc_output_slot, JIT_ONNX_TENSORS);
        c->results.arena = &c->arena;
        c->results.result = LIB_NEW_ARRAY(&c->arena, onnx_result, (size_t)c->output_count + 1);
        if (structured)
            take_inputs(&c->arrived, c->inputs);
        else
            take_tensors(c);
    }
    return c->scope.error.status == DLC_OK ? DLC_OK : jit_fail(c->runner->model->context, &c->scope.error);
}

static dlc_status run_call(call *c) {
    const bool structured = jit_onnx_structured_port(c->runner->model) != NULL;
    LIB_TRY(take_call(c, structured));
    const dlc_status status = structured ? run_in_lane(c) : run_tensors(c);
    for (int i = 0; i < JIT_ONNX_TENSORS; i++)
        if (c->slots[i].managed) release_managed(c->slots[i].managed);
    for (int o = 0; o < c->output_count && status != DLC_OK; o++) {
        dlc_onnx_value_destroy(c->outputs[o]);
        c->outputs[o] = NULL;
    }
    return status;
}

dlc_status dlc_onnx_run_values(dlc_onnx_runner *runner, const dlc_run_options *options,
                               const dlc_onnx_value *const *inputs, int input_count, dlc_onnx_value **outputs,
                               int output_count) {
    dlc_context *context = runner ? runner->model->context : NULL;
    for (int o = 0; outputs && o < output_count; o++) outputs[o] = NULL;
    jit_not_begun(options);
    if (!runner) return jit_onnx_fail(NULL, DLC_INVALID_ARGUMENT, "dlc_onnx_run_values", "runner is NULL");
    LIB_TRY(jit_onnx_check_lists(runner, "dlc_onnx_run_values", inputs, input_count, outputs, output_count));
    if (options && options->event)
        return jit_onnx_fail(context, DLC_UNSUPPORTED, "dlc_onnx_run_values", "it waits for its results: no event");
    GRAPH_CALL(context, LIB_STACK_CALL);
    call c = {.runner = runner, .options = options, .inputs = inputs, .outputs = outputs, .output_count = output_count};
    lib_arena_init(&c.arena, &context->allocator, &c.scope);
    const dlc_status status = run_call(&c);
    lib_arena_free(&c.arena);
    return status;
}

#else

dlc_status dlc_onnx_run_values(dlc_onnx_runner *runner, const dlc_run_options *options,
                               const dlc_onnx_value *const *inputs, int input_count, dlc_onnx_value **outputs,
                               int output_count) {
    lib_error error;
    (void)runner, (void)options, (void)inputs, (void)input_count;
    for (int o = 0; outputs && o < output_count; o++) outputs[o] = NULL;
    lib_fail(&error, DLC_UNSUPPORTED, "dlc_onnx_run_values: this build of libdlc has no ONNX");
    return jit_fail(NULL, &error);
}
void dlc_onnx_value_destroy(dlc_onnx_value *value) {
    (void)value;
}
#endif
