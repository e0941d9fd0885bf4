/* Running loops (`while`, `scan`): one implementation for all targets, which provide running a branch and moving bytes
 * (jit_loop_port). Frames are taken once for all iterations, so that an iteration only updates a few pointers: elements of
 * sequences are read, and elements of stacks written, in place; a carry alternates between the result's buffer and a second one,
 * or is updated in place. */
#include "jit/internal.h"

/* ---- binding */

jit_loop jit_loop_of(const graph_node *node) {
    if (node->op->structure == GRAPH_LOOPS) return (jit_loop){.carries = node->results, .length = INT64_MAX};
    jit_loop loop = {.carries = (int)node->attribute[GRAPH_SCAN_CARRIES].integer,
                     .sequences = (int)node->attribute[GRAPH_SCAN_SEQUENCES].integer,
                     .conditional = node->attribute[GRAPH_SCAN_CONDITIONAL].integer != 0};
    loop.stacks = node->results - loop.carries - loop.conditional;
    return loop;
}

int64_t jit_loop_length(jit_build *build, const graph_node *node) {
    if (node->op->structure == GRAPH_LOOPS) return INT64_MAX;
    const graph_attribute *length = &node->attribute[GRAPH_SCAN_LENGTH];
    const int64_t carries = node->attribute[GRAPH_SCAN_CARRIES].integer;
    return jit_dimension(build,
                         length->count ? length->dims[0] : graph_shape_of(build->bound, node->input[carries])->dim[0]);
}

int jit_loop_row_of(const jit_loop *loop, const graph *body, int carry) {
    const graph_id *elements = body->outputs.data + loop->carries + loop->conditional;
    for (int s = 0; s < loop->stacks; s++)
        if (elements[s] == body->outputs.data[carry]) return s;
    return -1;
}

int64_t jit_loop_scratch(jit_build *build, const graph_node *node) {
    const jit_loop loop = jit_loop_of(node);
    int64_t bytes = TIR_BUFFER_ALIGNMENT; /* space for the condition's value */
    for (int o = 0; o < loop.carries; o++) {
        const size_t carry = jit_padded(jit_value_bytes(build, node->first + (graph_id)o));
        if (__builtin_add_overflow(bytes, (int64_t)carry, &bytes)) return -1;
    }
    return bytes;
}

/* Bytes from one iteration's element to the next one's. */
static int64_t step_of(const jit_tensor *tensor, bool reversed) {
    int64_t bytes = tensor->shape[0] ? (int64_t)tensor->bytes / tensor->shape[0] : 0;
    return reversed ? -bytes : bytes;
}

void jit_bind_loop(jit_build *build, jit_step *step, const graph_node *node, const graph *body) {
    lib_arena *arena = &build->plan->arena;
    jit_loop *loop = step->loop = LIB_NEW(arena, jit_loop);
    *loop = jit_loop_of(node);
    loop->row_of = LIB_NEW_ARRAY(arena, int, (size_t)loop->carries + 1);
    loop->in_place = LIB_NEW_ARRAY(arena, bool, (size_t)loop->carries + 1);
    loop->step = LIB_NEW_ARRAY(arena, int64_t, (size_t)(loop->sequences + loop->stacks) + 1);
    for (int o = 0; o < loop->carries; o++) {
        loop->row_of[o] = jit_loop_row_of(loop, body, o);
        loop->in_place[o] = step->branch[1]->donations[o].must;
    }
    if (loop->length == INT64_MAX) return; /* while */
    const graph_attribute *reverse = &node->attribute[GRAPH_SCAN_REVERSE];
    for (int i = 0; i < loop->sequences + loop->stacks; i++) {
        bool reversed = reverse->count && reverse->list[i];
        const jit_tensor *tensor = i < loop->sequences ? &step->inputs[loop->carries + i]
                                                       : &step->outputs[loop->carries + i - loop->sequences];
        loop->step[i] = step_of(tensor, reversed);
    }
    loop->length = jit_loop_length(build, node);
    if (loop->length < 0)
        lib_raise(build->work->scope, DLC_INVALID_ARGUMENT, "scan: length is %lld, expected 0 or more",
                  (long long)loop->length);
}

/* ---- running */

typedef struct running {
    const jit_step *step;
    const jit_loop *loop;
    const jit_loop_port *port;
    /* the body's arguments in the next iteration */
    char **in, **out;
    char *condition, *spare;
    /* number of completed iterations */
    int64_t iterations;
} running;

static char *place_of(const running *r, int result) {
    return r->port->place(r->port->user, &r->step->outputs[result]);
}

static int first_stack(const jit_loop *loop) { /* index among the body's outputs */
    return loop->carries + loop->conditional;
}

/* Sets the first iteration's pointers to sequences and stacks; copies the carries that the body updates in place to their buffers. */
static dlc_status begin(running *r) {
    const jit_loop *loop = r->loop;
    for (int i = 0; i < r->step->input_count; i++) r->in[i] = r->port->place(r->port->user, &r->step->inputs[i]);
    for (int i = 0; i < loop->sequences; i++)
        if (loop->step[i] < 0) r->in[loop->carries + i] += (loop->length - 1) * -loop->step[i];
    for (int i = 0; i < loop->stacks; i++) {
        int64_t step = loop->step[loop->sequences + i];
        char **at = &r->out[first_stack(loop) + i];
        *at = place_of(r, loop->carries + i);
        if (step < 0) *at += (loop->length - 1) * -step;
    }
    for (int o = 0; o < loop->carries; o++) {
        const jit_tensor *result = &r->step->outputs[o];
        if (!loop->in_place[o]) continue;
        char *to = place_of(r, o);
        if (to != r->in[o] && result->bytes) LIB_TRY(r->port->copy(r->port->user, to, r->in[o], result->bytes));
        r->in[o] = to;
    }
    return DLC_OK;
}

/* Sets the carries' pointers; the last iteration, if it is known, writes the results' buffers directly. */
static void aim_carries(const running *r) {
    const jit_loop *loop = r->loop;
    bool known = !r->step->branch[0] && !loop->conditional;
    bool own = ((known ? loop->length - 1 - r->iterations : r->iterations) & 1) == 0;
    char *spare = r->spare;
    for (int o = 0; o < loop->carries; o++) {
        if (loop->row_of[o] >= 0)
            r->out[o] = r->out[first_stack(loop) + loop->row_of[o]];
        else
            r->out[o] = own || loop->in_place[o] ? place_of(r, o) : spare;
        spare += jit_padded(r->step->outputs[o].bytes);
    }
    if (loop->conditional) r->out[loop->carries] = r->condition;
}

static void advance(running *r) {
    const jit_loop *loop = r->loop;
    char **sequence = r->in + loop->carries, **stack = r->out + first_stack(loop);
    for (int o = 0; o < loop->carries; o++) r->in[o] = r->out[o];
    for (int i = 0; i < loop->sequences; i++) sequence[i] += loop->step[i];
    for (int i = 0; i < loop->stacks; i++) stack[i] += loop->step[loop->sequences + i];
    r->iterations++;
}

static dlc_status iterate(running *r) {
    const jit_loop_port *port = r->port;
    bool again = true;
    while (again && r->iterations < r->loop->length) {
        if (r->step->branch[0]) {
            LIB_TRY(port->run(port->user, 0, r->in, &r->condition));
            LIB_TRY(port->read(port->user, r->condition, &again));
            if (!again) break;
        }
        aim_carries(r);
        LIB_TRY(port->run(port->user, 1, r->in, r->out));
        advance(r);
        if (r->loop->conditional) LIB_TRY(port->read(port->user, r->condition, &again));
    }
    return DLC_OK;
}

/* After an early exit, zero-fills the rest of the stacks and stores the number of iterations. */
static dlc_status finish_early(const running *r) {
    const jit_loop *loop = r->loop;
    const jit_loop_port *port = r->port;
    for (int i = 0; i < loop->stacks; i++) {
        int64_t step = loop->step[loop->sequences + i], missing = loop->length - r->iterations;
        char *to = place_of(r, loop->carries + i);
        if (step > 0) to += r->iterations * step;
        if (missing && step) LIB_TRY(port->clear(port->user, to, (size_t)missing * (size_t)(step < 0 ? -step : step)));
    }
    return port->write(port->user, place_of(r, loop->carries + loop->stacks), &r->iterations, sizeof r->iterations);
}

static dlc_status finish(const running *r) {
    for (int o = 0; o < r->loop->carries; o++) {
        const jit_tensor *result = &r->step->outputs[o];
        char *to = place_of(r, o);
        if (to != r->in[o] && result->bytes) LIB_TRY(r->port->copy(r->port->user, to, r->in[o], result->bytes));
    }
    return r->loop->conditional ? finish_early(r) : DLC_OK;
}

dlc_status jit_run_loop(const jit_step *step, char **pointers, char *scratch, const jit_loop_port *port) {
    running r = {.step = step,
                 .loop = step->loop,
                 .port = port,
                 .in = pointers,
                 .out = pointers + step->input_count,
                 .condition = scratch,
                 .spare = scratch + TIR_BUFFER_ALIGNMENT};
    LIB_TRY(begin(&r));
    if (port->enclose) LIB_TRY(port->enclose(port->user, true));
    dlc_status status = iterate(&r);
    if (port->enclose) {
        dlc_status ended = port->enclose(port->user, false);
        if (status == DLC_OK) status = ended;
    }
    return status == DLC_OK ? finish(&r) : status;
}
