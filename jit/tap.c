/* Tapped values: a second program computes these values and runs before the program itself. */
#include "graph/backward_slice.h"
#include "jit/internal.h"

typedef struct jit_tap {
    /* its inputs are those of the tapped program, its outputs the tapped values */
    dlc_program *program;
    dlc_tap_function *function;
    void *user;
} jit_tap;

int jit_tap_count(const dlc_program *program) {
    return program->tap ? program->tap->program->output_count : 0;
}

const char *jit_tap_name(const dlc_program *program, int tap) {
    return program->tap->program->outputs[tap].name;
}

void jit_tap_free(dlc_program *program) {
    if (!program->tap) return;
    const dlc_allocator *allocator = &program->context->allocator;
    dlc_program_destroy(program->tap->program);
    lib_release(allocator, program->tap, sizeof *program->tap, 16);
    program->tap = NULL;
}

/* ---- setting up */

static dlc_status check_values(const dlc_program *program, int count, const dlc_value *values, lib_error *error) {
    if (count < 0 || (count && !values))
        return lib_fail(error, DLC_INVALID_ARGUMENT, "dlc_program_tap: %d values at %s", count,
                        values ? "a count below 0" : "NULL");
    for (int i = 0; i < count; i++) {
        if (!dlc_value_ok(values[i]))
            return lib_fail(error, DLC_INVALID_ARGUMENT,
                            "dlc_program_tap: value %d is none, or of a graph that was destroyed", i);
        if (values[i].graph != program->source || values[i].serial != program->source_serial)
            return lib_fail(error, DLC_INVALID_ARGUMENT,
                            "dlc_program_tap: value %d is of another graph than the program was compiled from, or of a "
                            "sub-graph, whose values come and go within a run",
                            i);
    }
    return DLC_OK;
}

/* Names the outputs after the tapped values. */
static void name_outputs(lib_arena *arena, const graph *from, const graph_id *ids, graph *part) {
    for (uint32_t o = 0; o < part->outputs.count; o++) {
        const char *name = graph_shown_name(from, ids[o]);
        part->output_names.data[o] = lib_arena_string(arena, name ? name : graph_node_of(from, ids[o])->op->name);
    }
}

static graph *cut_values(lib_arena *work, const dlc_program *program, int count, const dlc_value *values) {
    const graph *g = graph_of_handle(program->source);
    graph_id *ids = LIB_NEW_ARRAY(work, graph_id, (size_t)count + 1);
    for (int i = 0; i < count; i++) ids[i] = values[i].id;
    graph_part part = {.count = count,
                       .values = ids,
                       .known = LIB_NEW_ARRAY(work, bool, g->values.count),
                       .effects_done = g->nodes.count,
                       .keeps_inputs = true};
    graph_cut_part(work, g, &part);
    name_outputs(work, g, ids, part.graph);
    return part.graph;
}

static dlc_status new_tap(dlc_program *program, int count, const dlc_value *values, jit_tap *tap, lib_error *error) {
    lib_scope scope;
    lib_arena work;
    lib_arena_init(&work, &program->context->allocator, &scope);
    dlc_status status = DLC_OK;
    if (LIB_ENTER(&scope)) {
        const graph *part = cut_values(&work, program, count, values);
        status = jit_program_new(program->context, part, &program->options, &tap->program, error);
    } else {
        *error = scope.error;
        status = error->status;
    }
    lib_arena_free(&work);
    return status;
}

dlc_status dlc_program_tap(dlc_program *program, int count, const dlc_value *values, dlc_tap_function *function,
                           void *user) {
    lib_error error;
    if (!program) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_program_tap: the program is NULL");
        return jit_fail(NULL, &error);
    }
    GRAPH_CALL(program->context, LIB_STACK_CALL);
    const dlc_allocator *allocator = &program->context->allocator;
    jit_tap *tap = NULL;
    dlc_status status = check_values(program, count, values, &error);
    if (status == DLC_OK && count) {
        tap = lib_allocate_zeroed(allocator, sizeof *tap, 16);
        status = tap ? new_tap(program, count, values, tap, &error)
                     : lib_fail(&error, DLC_OUT_OF_MEMORY, "dlc_program_tap: out of memory");
    }
    if (status != DLC_OK) {
        lib_release(allocator, tap, sizeof *tap, 16);
        return jit_fail(program->context, &error);
    }
    jit_tap_free(program);
    if (!tap) return DLC_OK;
    tap->function = function;
    tap->user = user;
    program->tap = tap;
    return DLC_OK;
}

/* ---- running */

dlc_status jit_tap_compute(const dlc_program *program, jit_how *how, const DLTensor *const *inputs, int input_count,
                           dlc_output_slot *slots, lib_error *error) {
    jit_how own = *how;
    own.event = NULL;                  /* taps are read synchronously, before the run */
    own.stop_at = 0, own.begun = NULL; /* these are about the run itself */
    const dlc_status status =
        jit_run_program(program->tap->program, &own, inputs, input_count, slots, jit_tap_count(program), error);
    how->deadline_ns = own.deadline_ns;
    return status;
}

dlc_status jit_tap_run(const dlc_program *program, jit_how *how, const DLTensor *const *inputs, int input_count,
                       lib_error *error) {
    const jit_tap *tap = program->tap;
    const dlc_allocator *allocator = &program->context->allocator;
    const int count = jit_tap_count(program);
    if (!tap->function) return DLC_OK;
    dlc_output_slot *slots = lib_allocate_zeroed(allocator, (size_t)count * sizeof *slots, 16);
    if (!slots) return lib_fail(error, DLC_OUT_OF_MEMORY, "out of memory: %d tapped values", count);
    dlc_status status = jit_tap_compute(program, how, inputs, input_count, slots, error);
    for (int i = 0; i < count && status == DLC_OK; i++) {
        tap->function(tap->user, i, jit_tap_name(program, i), &slots[i].managed->dl_tensor);
        slots[i].managed->deleter(slots[i].managed);
    }
    lib_release(allocator, slots, (size_t)count * sizeof *slots, 16);
    return status;
}
