/* Text of a graph: parsed, printed, compiled for the interpreter and bound, all within a small budget; a graph that is small
 * is run, too, on inputs of all kinds of bytes. A line `# n=5` ahead gives sizes of symbols; others are 3. Behind a line
 * `==== schedule` stand regions' own schedules, as hosts give them. */
#include "graph/build.h"

#include <dlc/dlc.h>

#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUTS = 16, ELEMENTS = 2048, SYMBOL = 3, RUN_MS = 500 };

static volatile int cancel;

/* A loop that never ends is cancelled. Processor time, so that a busy machine changes nothing. */
static void ring(int number) {
    (void)number;
    cancel = 1;
}

static void set_timer(int milliseconds) {
    const struct itimerval timer = {.it_value = {milliseconds / 1000, milliseconds % 1000 * 1000}};
    setitimer(ITIMER_PROF, &timer, NULL);
}

/* ---- inputs: their shapes as the graph says them */

typedef struct operand {
    DLTensor tensor;
    int64_t shape[DLC_MAX_RANK];
    int rank;
} operand;

typedef struct operands {
    operand list[INPUTS];
    int count;
    /* every value of the graph, and there are as many inputs as there is room for */
    bool small;
} operands;

static bool describe(const graph *g, graph_id value, operand *o) {
    const graph_shape *shape = graph_shape_of(g, value);
    int64_t elements = 1;
    o->rank = shape->rank;
    for (int d = 0; d < shape->rank; d++) {
        if (!tir_is_const(g->pool, shape->dim[d], &o->shape[d])) o->shape[d] = SYMBOL; /* of a size that a run counts */
        if (o->shape[d] > ELEMENTS || (elements *= o->shape[d]) > ELEMENTS) return false;
    }
    o->tensor = (DLTensor){
        .device = {kDLCPU, 0}, .ndim = shape->rank, .dtype = lib_dtype_to_dlpack(shape->dtype), .shape = o->shape};
    return true;
}

/* The value behind `NAME=` in a first line that is a comment. */
static int64_t size_of(const char *text, const char *end, const char *name) {
    size_t length = strlen(name);
    for (const char *at = text; at + length + 1 < end && *at != '\n'; at++)
        if (*text == '#' && memcmp(at, name, length) == 0 && at[length] == '=') return atoi(at + length + 1) & 63;
    return SYMBOL;
}

static void read_operands(const char *text, size_t size, operands *all) {
    lib_arena arena;
    lib_scope scope;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    memset(all, 0, sizeof *all);
    if (LIB_ENTER(&scope)) {
        lib_lexer lexer;
        lib_lexer_init(&lexer, &arena, "graph", text, size);
        graph *g = graph_parse(&arena, &lexer);
        int64_t *sizes = LIB_NEW_ARRAY(&arena, int64_t, g->symbols.count + 1);
        for (uint32_t i = 0; i < g->symbols.count; i++)
            sizes[i] = graph_is_input_size(g, g->symbols.data[i].var)
                           ? size_of(text, text + size, g->symbols.data[i].name)
                           : INT64_MIN;
        g = graph_bind(&arena, g, sizes);
        operand ignored;
        bool small = g->inputs.count <= INPUTS && g->outputs.count <= INPUTS;
        for (uint32_t v = 1; v < g->values.count && small; v++) small = describe(g, (graph_id)v, &ignored);
        for (uint32_t i = 0; i < g->inputs.count && small; i++) describe(g, g->inputs.data[i], &all->list[i]);
        all->count = (int)g->inputs.count;
        all->small = small;
    }
    lib_arena_free(&arena);
}

/* Small numbers of every type, and bytes of the text; from BYTES on bytes that are 0 or 1, for bools. */
enum { BYTES = ELEMENTS * 8 };
static char *fill(const char *text, size_t size) {
    char *bytes = malloc(BYTES + ELEMENTS);
    if (!bytes) return NULL;
    for (size_t i = 0; i < BYTES; i++) bytes[i] = i % 16 >= 8 ? text[i % size] : i % 8 ? 0 : (char)(i / 16 % 4);
    for (size_t i = 0; i < ELEMENTS; i++) bytes[BYTES + i] = text[i % size] & 1;
    return bytes;
}

static void run(dlc_program *program, operands *all, const char *text, size_t size) {
    const DLTensor *inputs[INPUTS];
    dlc_output_slot slots[INPUTS];
    int outputs = dlc_program_output_count(program);
    dlc_run_options options = DLC_RUN_OPTIONS_INIT;
    char *bytes = fill(text, size);
    if (!bytes || outputs > INPUTS || all->count != dlc_program_input_count(program)) {
        free(bytes);
        return;
    }
    memset(slots, 0, sizeof slots);
    for (int i = 0; i < all->count; i++) {
        all->list[i].tensor.data = all->list[i].tensor.dtype.code == kDLBool ? bytes + BYTES : bytes;
        all->list[i].tensor.shape = all->list[i].shape;
        inputs[i] = &all->list[i].tensor;
    }
    options.cancel = &cancel;
    cancel = 0;
    set_timer(RUN_MS);
    if (dlc_run(program, &options, inputs, all->count, slots, outputs) == DLC_OK)
        for (int i = 0; i < outputs; i++) slots[i].managed->deleter(slots[i].managed);
    set_timer(0);
    free(bytes);
}

typedef void use(dlc_program *program, operands *all, const int64_t *const *shapes, const int *ranks, const char *text,
                 size_t size);

static void prepare(dlc_program *program, operands *all, const int64_t *const *shapes, const int *ranks,
                    const char *text, size_t size) {
    if (dlc_prepare(program, shapes, ranks, all->count) == DLC_OK) run(program, all, text, size);
}

/* The graph of a text, compiled with a schedule or NULL; `then` gets the program if the graph is small. */
static void compile(dlc_context *context, const char *text, size_t size, const char *schedule, use *then) {
    operands all;
    const int64_t *shapes[INPUTS];
    int ranks[INPUTS];
    dlc_graph *graph;
    dlc_program *program;
    char *printed;
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    options.budget_ms = 200;
    options.budget_bytes = 64 << 20;
    options.schedule = schedule;
    if (dlc_graph_parse(context, text, size, &graph) != DLC_OK) return;
    if (dlc_graph_print(graph, &printed) == DLC_OK) dlc_text_free(context, printed);
    if (dlc_compile(context, graph, &options, &program) == DLC_OK) {
        read_operands(text, size, &all);
        for (int i = 0; i < all.count && i < INPUTS; i++) shapes[i] = all.list[i].shape, ranks[i] = all.list[i].rank;
        if (all.small) then(program, &all, shapes, ranks, text, size);
        dlc_program_destroy(program);
    }
    dlc_graph_destroy(graph);
}

static dlc_context *open(const char *target) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.target = target;
    dlc_context *context;
    return dlc_context_create(&options, &context) == DLC_OK ? context : NULL;
}

/* ---- seeds: DLC_SEEDS names a folder of graphs, which get company: small ones with the schedules that the cpu target's rules make */

static const char mark[] = "\n==== schedule\n";
static const char *seed_path;
static dlc_context *seed_context;

static void write_seed(dlc_program *program, operands *all, const int64_t *const *shapes, const int *ranks,
                       const char *text, size_t size) {
    char path[4096], *schedule;
    if (dlc_program_dump(program, "schedule", shapes, ranks, all->count, &schedule) != DLC_OK) return;
    snprintf(path, sizeof path, "%s.schedule", seed_path);
    FILE *file = fopen(path, "w");
    if (file) {
        fprintf(file, "%.*s%s%s", (int)size, text, mark, schedule);
        fclose(file);
    }
    dlc_text_free(seed_context, schedule);
}

static void write_seeds(const char *folder) {
    DIR *stream = opendir(folder);
    struct dirent *entry;
    seed_context = open("cpu");
    while (seed_context && stream && (entry = readdir(stream)) != NULL) {
        char path[2048], text[400];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = entry->d_name[0] == '.' || strstr(path, ".schedule") ? NULL : fopen(path, "r");
        if (!file) continue;
        size_t size = fread(text, 1, sizeof text, file);
        fclose(file);
        seed_path = path;
        if (size < sizeof text) compile(seed_context, text, size, NULL, write_seed);
    }
    if (stream) closedir(stream);
    dlc_context_destroy(seed_context);
}

/* ---- inputs */

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    struct sigaction action = {.sa_handler = ring, .sa_flags = SA_RESTART};
    if (getenv("DLC_SEEDS")) write_seeds(getenv("DLC_SEEDS"));
    return sigaction(SIGPROF, &action, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data, *end = memmem(text, size, mark, sizeof mark - 1);
    const char *begin = end ? end + sizeof mark - 1 : NULL;
    char *schedule = begin ? strndup(begin, (size_t)(text + size - begin)) : NULL;
    dlc_context *context = open("interp");
    if (context) compile(context, text, end ? (size_t)(end - text) : size, schedule, prepare);
    dlc_context_destroy(context);
    free(schedule);
    return 0;
}
