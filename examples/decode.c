/* Decoding with a cache: attention is computed step by step, and keys and values of earlier steps stay in the host's buffers, which the
 * program updates in place (dlc_program_alias). First several steps at once (the prompt), then one by one, by one program; the results
 * equal those of attention over the whole sequence. */
#include <dlc/dlc.h>

#include <math.h>
#include <stdio.h>

enum { HEADS = 2, WIDTH = 8, ROOM = 16, PROMPT = 5, STEPS = 12, ELEMENT = 4 };

static float sequence[3][HEADS][STEPS][WIDTH]; /* q, k, v */
static float cache[2][HEADS][ROOM][WIDTH];     /* keys, values */

static const dlc_dim steps_dims[4] = {{1, NULL}, {HEADS, NULL}, {0, "steps"}, {WIDTH, NULL}};
static const dlc_dim cache_dims[4] = {{1, NULL}, {HEADS, NULL}, {ROOM, NULL}, {WIDTH, NULL}};

static dlc_status build_step(dlc_context *context, dlc_program **program) {
    dlc_graph *graph;
    dlc_status status = dlc_graph_create(context, &graph);
    if (status != DLC_OK) return status;
    dlc_value q = dlc_input(graph, "q", DLC_F32, 4, steps_dims), k = dlc_input(graph, "k", DLC_F32, 4, steps_dims);
    dlc_value v = dlc_input(graph, "v", DLC_F32, 4, steps_dims);
    dlc_value keys = dlc_input(graph, "keys", DLC_F32, 4, cache_dims);
    dlc_value values = dlc_input(graph, "values", DLC_F32, 4, cache_dims);
    dlc_value position = dlc_input(graph, "position", DLC_I64, 0, NULL), results[3];
    dlc_cached_attention(q, k, v, keys, values, position, 3, results);
    dlc_output(graph, "y", results[0]);
    dlc_output(graph, "keys", results[1]);
    dlc_output(graph, "values", results[2]);
    status = dlc_compile(context, graph, NULL, program);
    dlc_graph_destroy(graph);
    if (status == DLC_OK) status = dlc_program_alias(*program, 1, 3); /* output 1 over input 3 */
    if (status == DLC_OK) status = dlc_program_alias(*program, 2, 4);
    return status;
}

static dlc_status build_whole(dlc_context *context, dlc_program **program) {
    dlc_graph *graph;
    dlc_status status = dlc_graph_create(context, &graph);
    if (status != DLC_OK) return status;
    dlc_attention_options options = DLC_ATTENTION_OPTIONS_INIT;
    options.causal = true;
    dlc_value q = dlc_input(graph, "q", DLC_F32, 4, steps_dims), k = dlc_input(graph, "k", DLC_F32, 4, steps_dims);
    dlc_value v = dlc_input(graph, "v", DLC_F32, 4, steps_dims);
    dlc_output(graph, "y", dlc_attention_with(q, k, v, DLC_NONE, &options));
    status = dlc_compile(context, graph, NULL, program);
    dlc_graph_destroy(graph);
    return status;
}

static DLTensor tensor_of(void *data, int64_t *shape, int64_t *strides) {
    return (DLTensor){
        .data = data, .device = {kDLCPU, 0}, .ndim = 4, .dtype = {kDLFloat, 32, 1}, .shape = shape, .strides = strides};
}

/* Runs steps position..position+count-1, which are strided views of `sequence`; writes the same steps of y. */
static dlc_status run_steps(dlc_program *program, int64_t position, int64_t count, float y[HEADS][STEPS][WIDTH]) {
    int64_t shape[4] = {1, HEADS, count, WIDTH}, cached[4] = {1, HEADS, ROOM, WIDTH};
    int64_t strides[4] = {HEADS * STEPS * WIDTH, STEPS * WIDTH, WIDTH, 1};
    DLTensor tensors[6], result = tensor_of(&y[0][position], shape, strides);
    for (int i = 0; i < 3; i++) tensors[i] = tensor_of(&sequence[i][0][position], shape, strides);
    for (int i = 0; i < 2; i++) tensors[3 + i] = tensor_of(cache[i], cached, NULL);
    tensors[5] = (DLTensor){.data = &position, .device = {kDLCPU, 0}, .dtype = {kDLInt, 64, 1}};
    const DLTensor *inputs[6];
    for (int i = 0; i < 6; i++) inputs[i] = &tensors[i];
    dlc_output_slot outputs[3] = {{&result, NULL}, {&tensors[3], NULL}, {&tensors[4], NULL}};
    return dlc_run(program, NULL, inputs, 6, outputs, 3);
}

int main(void) {
    static float stepwise[HEADS][STEPS][WIDTH], whole[HEADS][STEPS][WIDTH];
    dlc_context *context = NULL;
    dlc_program *step = NULL, *all = NULL;
    float *numbers = &sequence[0][0][0][0];
    for (int i = 0; i < 3 * HEADS * STEPS * WIDTH; i++) numbers[i] = (float)sin(0.7 * i);
    if (dlc_context_create(NULL, &context) || build_step(context, &step) || build_whole(context, &all))
        return fprintf(stderr, "%s\n", dlc_error_message(context)), 1;

    dlc_status status = run_steps(step, 0, PROMPT, stepwise);
    for (int64_t at = PROMPT; at < STEPS && status == DLC_OK; at++) status = run_steps(step, at, 1, stepwise);

    int64_t shape[4] = {1, HEADS, STEPS, WIDTH};
    DLTensor q = tensor_of(sequence[0], shape, NULL), k = tensor_of(sequence[1], shape, NULL);
    DLTensor v = tensor_of(sequence[2], shape, NULL), y = tensor_of(whole, shape, NULL);
    if (status == DLC_OK)
        status = dlc_run(all, NULL, (const DLTensor *[]){&q, &k, &v}, 3, &(dlc_output_slot){&y, NULL}, 1);
    if (status != DLC_OK) return fprintf(stderr, "%s\n", dlc_error_message(context)), 1;

    double most = 0;
    for (int i = 0; i < HEADS * STEPS * WIDTH; i++)
        most = fmax(most, fabs((double)(&stepwise[0][0][0])[i] - (double)(&whole[0][0][0])[i]));
    dlc_statistics now = DLC_STATISTICS_INIT;
    dlc_context_statistics(context, &now);
    printf("%d steps at once, then %d one by one: %s attention over all of them\n", PROMPT, STEPS - PROMPT,
           most < 1e-5 ? "as" : "NOT as");
    printf("each single step writes %d bytes into the caches\n", 2 * HEADS * WIDTH * ELEMENT);
    dlc_program_destroy(step), dlc_program_destroy(all), dlc_context_destroy(context);
    return most >= 1e-5;
}
