/* What compiling takes grows with the graph and no faster: memory is asserted; time, which no test asserts, is told. */
#include "support.h"

#include <time.h>

typedef struct taken {
    /* of all allocations, those given back included */
    size_t bytes;
} taken;

static void *take(void *user, size_t size, size_t alignment) {
    taken *t = user;
    void *pointer = NULL;
    t->bytes += size;
    return posix_memalign(&pointer, alignment < 16 ? 16 : alignment, size) == 0 ? pointer : NULL;
}

static void give(void *user, void *pointer, size_t size, size_t alignment) {
    (void)user, (void)size, (void)alignment;
    free(pointer);
}

static const int64_t shape[2] = {4, 8};

static dlc_value layers(dlc_graph *g, dlc_value x, int count) {
    static const float weights[64] = {1};
    dlc_value w = dlc_constant(g, DLC_F32, 2, (int64_t[]){8, 8}, weights), y = x;
    for (int i = 0; i < count; i++) y = dlc_neg(dlc_add(dlc_relu(dlc_matmul(y, w)), x));
    return y;
}

static dlc_value maps(dlc_graph *g, dlc_value x, int count) {
    (void)g;
    dlc_value y = x;
    for (int i = 0; i < count; i++) y = dlc_tanh(dlc_add(dlc_mul(y, x), dlc_exp(x)));
    return y;
}

/* For each an input with a size of its own, and an output. */
static dlc_value symbols(dlc_graph *g, dlc_value x, int count) {
    dlc_value y = x;
    for (int i = 0; i < count; i++) {
        char name[16], size[16];
        snprintf(name, sizeof name, "in%d", i);
        snprintf(size, sizeof size, "n%d", i);
        y = dlc_add(y, dlc_reduce_max(dlc_input(g, name, DLC_F32, 1, (dlc_dim[]){{0, size}}), 0, NULL));
        snprintf(name, sizeof name, "o%d", i);
        dlc_output(g, name, y);
    }
    return y;
}

/* An input for each, all of them in one concat. */
static dlc_value parts(dlc_graph *g, dlc_value x, int count) {
    dlc_value *values = malloc((size_t)count * sizeof *values);
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "in%d", i);
        values[i] = dlc_input(g, name, DLC_F32, 1, (dlc_dim[]){{3, NULL}});
    }
    dlc_output(g, "parts", dlc_concat(count, values, 0));
    free(values);
    return x;
}

static size_t bytes_for(dlc_value (*build)(dlc_graph *, dlc_value, int), int count) {
    taken t = {0};
    dlc_allocator allocator = {take, give, &t};
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.allocator = &allocator;
    dlc_context *context = open_context("interp", &options);
    dlc_graph *g;
    dlc_program *program;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, (dlc_dim[]){{4, NULL}, {8, NULL}});
    dlc_output(g, "y", build(g, x, count));
    OK(context, dlc_compile(context, g, NULL, &program));
    int inputs = dlc_program_input_count(program);
    const int64_t **shapes = malloc((size_t)inputs * sizeof *shapes);
    int *ranks = malloc((size_t)inputs * sizeof *ranks);
    static const int64_t three = 3;
    for (int i = 0; i < inputs; i++) shapes[i] = i ? &three : shape, ranks[i] = i ? 1 : 2;
    OK(context, dlc_prepare(program, shapes, ranks, inputs));
    free(shapes), free(ranks);
    dlc_program_destroy(program), dlc_graph_destroy(g), dlc_context_destroy(context);
    return t.bytes;
}

static void test_memory(void **state) {
    (void)state;
    static dlc_value (*const graphs[])(dlc_graph *, dlc_value, int) = {layers, maps, symbols, parts};
    for (int i = 0; i < 4; i++) {
        size_t once = bytes_for(graphs[i], 1000), twice = bytes_for(graphs[i], 2000);
        if (twice > once * 22 / 10) fail_msg("graph %d: %zu bytes, twice as many nodes: %zu", i, once, twice);
    }
    size_t node = (bytes_for(layers, 3000) - bytes_for(layers, 1000)) / (2000 * 4);
    if (node > 14000)
        fail_msg("%zu bytes for a node", node); /* its graphs, its region, its share of tables that grow */
}

static double seconds_for(dlc_value (*build)(dlc_graph *, dlc_value, int), int count) {
    clock_t begin = clock();
    bytes_for(build, count);
    return (double)(clock() - begin) / CLOCKS_PER_SEC;
}

/* Looking for each among all would take minutes. */
static void test_many(void **state) {
    static const struct {
        const char *name;
        dlc_value (*build)(dlc_graph *, dlc_value, int);
        /* nodes: of each */
        int count, nodes;
    } graphs[] = {{"maps", maps, 25000, 4}, {"symbols", symbols, 20000, 3}, {"parts", parts, 20000, 1}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        double half = seconds_for(graphs[i].build, graphs[i].count / 2);
        double whole = seconds_for(graphs[i].build, graphs[i].count);
        print_message("%s: %.2f s for %d nodes, %.2f s for %d, %.2f times\n", graphs[i].name, half,
                      graphs[i].count * graphs[i].nodes / 2, whole, graphs[i].count * graphs[i].nodes, whole / half);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory), cmocka_unit_test(test_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
