/* A minimal host, and the four things to know: how long constants live, who allocates outputs, that numbers in a
 * graph have a dtype, and the axis order of weights.
 *
 * The model: y = 0.5 * relu(x w1 + b1) w2', a layer with weights stored [in, out] and one with weights stored [out, in]. */
#include <dlc/dlc.h>

#include <stdio.h>

enum { IN = 3, HIDDEN = 4, OUT = 2 };

/* [in][out] */
static const float w1[IN][HIDDEN] = {{1, 0, 2, -1}, {0, 1, -1, 1}, {1, 1, 0, 3}};
static const float b1[HIDDEN] = {0, -1, 0.5f, 0};
/* [out][in], the order of many frameworks */
static const float w2[OUT][HIDDEN] = {{1, 2, 0, -1}, {0, 0, 4, 1}};

static dlc_program *build(dlc_context *context) {
    dlc_graph *graph;
    dlc_program *program = NULL;
    if (dlc_graph_create(context, &graph) != DLC_OK) return NULL;

    /* A named dimension is bound at each run: here, any number of rows. */
    dlc_value x = dlc_input(graph, "x", DLC_F32, 2, (dlc_dim[]){{0, "rows"}, {IN, NULL}});

    /* Constant lifetime. dlc_constant copies: b1 could be freed after this line. dlc_constant_borrow does not: w1 and w2 must stay
     * unchanged until the last program that uses them is destroyed. */
    dlc_value first = dlc_constant_borrow(graph, DLC_F32, 2, (int64_t[]){IN, HIDDEN}, w1);
    dlc_value bias = dlc_constant(graph, DLC_F32, 1, (int64_t[]){HIDDEN}, b1);
    dlc_value second = dlc_constant_borrow(graph, DLC_F32, 2, (int64_t[]){OUT, HIDDEN}, w2);

    /* Weight axis order. dlc_linear takes [in, out]; `transposed` means [out, in]. (Convolutions take [out, in, window].) An optional
     * operand is left out with DLC_NONE. */
    dlc_value hidden = dlc_relu(dlc_linear(x, first, bias));
    dlc_value y = dlc_linear_with(hidden, second, DLC_NONE,
                                  &(dlc_linear_options){sizeof(dlc_linear_options), .transposed = true});

    /* Scalar dtypes. There is no implicit conversion: the number gets the dtype of the other operand. */
    y = dlc_mul(y, dlc_scalar(graph, dlc_value_dtype(y), 0.5));
    dlc_output(graph, "y", y);

    /* None of the calls above was checked: the first mistake is kept in the graph and reported here. */
    if (dlc_compile(context, graph, NULL, &program) != DLC_OK) fprintf(stderr, "%s\n", dlc_error_message(context));
    dlc_graph_destroy(graph); /* the program is independent of the graph */
    return program;
}

/* An error message: operator, operands and expected shapes; the graph stays usable. */
static void show_a_mistake(dlc_context *context) {
    dlc_graph *graph;
    if (dlc_graph_create(context, &graph) != DLC_OK) return;
    dlc_value a = dlc_input(graph, "a", DLC_F32, 2, (dlc_dim[]){{4, NULL}, {3, NULL}});
    dlc_value b = dlc_input(graph, "b", DLC_F32, 2, (dlc_dim[]){{4, NULL}, {2, NULL}});
    dlc_relu(dlc_add(a, b)); /* relu gets an invalid value and passes it on */
    printf("a mistake reads: %s\n", dlc_graph_message(graph));
    dlc_graph_destroy(graph);
}

static void print(const DLTensor *y) {
    const float *data = y->data;
    printf("y is %lld x %lld:", (long long)y->shape[0], (long long)y->shape[1]);
    for (int64_t i = 0; i < y->shape[0] * y->shape[1]; i++) printf(" %g", (double)data[i]);
    printf("\n");
}

int main(void) {
    dlc_context *context;
    if (dlc_context_create(NULL, &context) != DLC_OK) {
        fprintf(stderr, "%s\n", dlc_error_message(NULL));
        return 1;
    }
    dlc_program *program = build(context);
    if (!program) return 1;

    float rows[2][IN] = {{1, 2, 3}, {-1, 0, 1}};
    const DLDevice cpu = {kDLCPU, 0};
    const DLDataType f32 = {kDLFloat, 32, 1};
    DLTensor x = {.data = rows, .device = cpu, .dtype = f32, .ndim = 2, .shape = (int64_t[]){2, IN}};

    /* Output allocated by the library: an empty slot receives a tensor that we own. */
    dlc_output_slot slot = {NULL, NULL};
    dlc_status status = dlc_run(program, NULL, (const DLTensor *const[]){&x}, 1, &slot, 1);
    if (status == DLC_OK) {
        print(&slot.managed->dl_tensor);
        slot.managed->deleter(slot.managed);
    }

    /* Output allocated by the host: a buffer of the right shape. Another number of rows: compiled now, kept for the next time. */
    float result[1][OUT];
    DLTensor y = {.data = result, .device = cpu, .dtype = f32, .ndim = 2, .shape = (int64_t[]){1, OUT}};
    x.shape = (int64_t[]){1, IN};
    slot = (dlc_output_slot){.tensor = &y};
    if (status == DLC_OK) status = dlc_run(program, NULL, (const DLTensor *const[]){&x}, 1, &slot, 1);
    if (status == DLC_OK)
        print(&y);
    else
        fprintf(stderr, "%s\n", dlc_error_message(context));

    show_a_mistake(context);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    return status != DLC_OK;
}
