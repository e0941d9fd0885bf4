/* Random graphs, every third with gradients, half of these in mixed precision, interpreter against cpu (or DLC_TEST_TARGET): fuzz SECONDS [FIRST [COUNT]], seed in DLC_SEED. Graphs run in a child, so that a
 * crash or a loop without end costs one graph; a graph that fails is made smaller while it fails in the same way, printed
 * and kept in build/fuzz. With DLC_FUZZ_SHOW the texts are printed before they run. A file's name instead of SECONDS runs
 * that one text; with "shrink" after it, makes it smaller. */
#include "fuzz/generate.h"
#include "fuzz/generate_gradient.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

/* CPU_SECONDS: of a graph, on all its threads. WAIT_SECONDS: for one that waits for itself and uses none, however busy the
 * machine is. */
enum {
    CPU_SECONDS = 30,
    WAIT_SECONDS = 900,
    BATCH = 300,
    FAILURES_MAX = 12,
    SHRINK_RUNS = 400,
    TEXT_MAX = 1 << 20,
    ROWS_MAX = 320,
    REASONS = 64
};

/* Why graphs have no ONNX model. */
typedef struct reason {
    char text[256];
    uint64_t graphs;
} reason;

/* Shared with the child. */
typedef struct shared {
    uint64_t number;
    case_report report;
    char text[TEXT_MAX];
    uint64_t done, compared, skipped;
    /* of graphs through ONNX */
    uint64_t rounded, known, runners, left_out;
    reason reasons[REASONS];
    /* nodes by row, in the table's order, and element type */
    uint32_t made[ROWS_MAX][DLC_DTYPE_COUNT];
} shared;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- what was made: rows of the operator table, and the types that stand for T in them */

static int row_number(const graph_op *op) {
    int number = 0;
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row; row++, number++)
            if (*row == op) return number;
    return -1;
}

/* The type of the first operand that varies in type; without such an operand, of the first result. */
static dlc_dtype row_dtype(const graph *g, const graph_node *node) {
    for (int i = 0; i < node->inputs; i++)
        if (node->input[i] && graph_op_operand_is_typed(node->op, i)) return graph_shape_of(g, node->input[i])->dtype;
    return node->results ? graph_shape_of(g, node->first)->dtype : DLC_F32;
}

static void count_rows(shared *s, const graph *g) {
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        int row = row_number(g->nodes.data[n].op);
        if (row >= 0 && row < ROWS_MAX) s->made[row][row_dtype(g, &g->nodes.data[n])]++;
    }
    for (uint32_t i = 0; i < g->subgraphs.count; i++) count_rows(s, g->subgraphs.data[i]);
}

static void count_text(shared *s) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        lib_lexer lexer;
        lib_lexer_init(&lexer, &arena, "generated", s->text, strlen(s->text));
        count_rows(s, graph_parse(&arena, &lexer));
    }
    lib_arena_free(&arena);
}

/* Rows that were not made, and how many pairs of a row and a type were. */
static void print_rows(const shared *s) {
    int row = 0, rows = 0, missing = 0, pairs = 0, possible = 0;
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *op = *family; *op; op++, row++) {
            uint64_t made = 0;
            for (int d = 0; d < DLC_DTYPE_COUNT && row < ROWS_MAX; d++) {
                made += s->made[row][d];
                pairs += s->made[row][d] > 0;
                possible += s->made[row][d] > 0 || graph_op_accepts(*op, (dlc_dtype)d);
            }
            rows++;
            if (made) continue;
            const char *why = gen_why_not(*op);
            printf("%s %s%s%s%s", missing++ ? "," : "rows not made:", (*op)->name, why ? " (" : "", why ? why : "",
                   why ? ")" : "");
        }
    printf("%s%d of %d rows made, %d of %d pairs of a row and an element type\n", missing ? "\n" : "", rows - missing,
           rows, pairs, possible);
}

/* ---- graphs through ONNX */

static bool is_through_onnx(void) {
    const char *target = getenv("DLC_TEST_TARGET");
    return target && strcmp(target, "onnx") == 0;
}

static void count_left_out(shared *s, const char *why) {
    s->left_out++;
    for (reason *r = s->reasons; r < s->reasons + REASONS; r++) {
        if (!r->graphs) snprintf(r->text, sizeof r->text, "%s", why);
        if (strcmp(r->text, why) != 0) continue;
        r->graphs++;
        return;
    }
}

static void print_onnx(const shared *s) {
    const uint64_t exported = s->done - s->left_out, equal = exported - s->rounded - s->known;
    printf(
        "through ONNX: %llu graphs with equal bits, %llu within the bounds of their outputs, %llu beyond, as <dlc/onnx.h> says; of "
        "these %llu by a runner; %llu cannot be exported\n",
        (unsigned long long)equal, (unsigned long long)s->rounded, (unsigned long long)s->known,
        (unsigned long long)s->runners, (unsigned long long)s->left_out);
    for (const reason *r = s->reasons; r < s->reasons + REASONS && r->graphs; r++)
        printf("  %llu: %s\n", (unsigned long long)r->graphs, r->text);
}

/* ---- in the child */

/* Seconds of this process, on all threads; and, far more, of the clock on the wall. 0: no limit any more. */
static void limit_time(int cpu, unsigned wait) {
    const struct itimerval timer = {.it_value.tv_sec = cpu};
    setitimer(ITIMER_PROF, &timer, NULL);
    alarm(wait);
}

static void run_text(shared *s, case_leg *legs) {
    s->report.stage[0] = s->report.message[0] = 0;
    limit_time(CPU_SECONDS, WAIT_SECONDS);
    bool good = case_check(s->text, legs, &s->report);
    limit_time(0, 0);
    if (!good) _exit(1);
}

static void run_batch(shared *s, uint64_t seed, double deadline, uint64_t end) {
    case_leg legs[] = CASE_LEGS;
    char refused[CASE_MESSAGE];
    if (!case_open(legs, false, &s->report)) _exit(1);
    for (int i = 0; i < BATCH && now() < deadline && s->number < end; i++, s->number++) {
        s->text[0] = 0;
        snprintf(s->report.stage, sizeof s->report.stage, "generate");
        char *text = gen_graph(seed, s->number, refused);
        if (!text || strlen(text) >= TEXT_MAX) _exit(2);
        memcpy(s->text, text, strlen(text) + 1);
        if (s->number % 3 == 1 && !refused[0] && !is_through_onnx()) {
            snprintf(s->report.stage, sizeof s->report.stage, "gradients");
            char *more = gen_with_gradients(text, s->number % 2, s->number % 4 == 0 ? 2 : 1, refused);
            if (more && strlen(more) < TEXT_MAX) memcpy(s->text, more, strlen(more) + 1);
            free(more);
        }
        free(text);
        if (refused[0]) {
            snprintf(s->report.message, sizeof s->report.message, "%s", refused);
            _exit(1);
        }
        if (getenv("DLC_FUZZ_SHOW")) fprintf(stderr, "%llu:\n%s", (unsigned long long)s->number, s->text);
        s->report.compared = s->report.skipped = s->report.rounded = s->report.known = 0;
        count_text(s);
        run_text(s, legs);
        s->done++;
        s->compared += (uint64_t)s->report.compared;
        s->skipped += (uint64_t)s->report.skipped;
        s->rounded += s->report.rounded > 0 && !s->report.known;
        s->known += s->report.known > 0;
        s->runners += s->report.runner;
        if (s->report.left_out[0]) count_left_out(s, s->report.left_out);
    }
    case_close(legs);
    _exit(0);
}

static void run_one(shared *s) {
    case_leg legs[] = CASE_LEGS;
    if (!case_open(legs, false, &s->report)) _exit(1);
    run_text(s, legs);
    case_close(legs);
    _exit(0);
}

/* ---- in the parent */

/* True: all went well. Else the report's message says what did not. */
static bool await(pid_t child, shared *s) {
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return false;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 1) return false;
    int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    snprintf(s->report.message, sizeof s->report.message, "%s at: %s (signal %d, exit %d)",
             signal == SIGPROF || signal == SIGALRM ? "endless" : "crash", s->report.stage, signal,
             WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return false;
}

static bool text_passes(shared *s, const char *text) {
    snprintf(s->text, sizeof s->text, "%s", text);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) run_one(s);
    return child < 0 || await(child, s);
}

/* ---- smaller */

typedef struct shrinker {
    shared *s;
    /* how the message begins */
    char kind[64];
    /* the smallest that fails */
    char *text;
    char message[CASE_MESSAGE];
    int runs;
} shrinker;

/* Up to the first number, name or colon after it: "status cpu compile", "differs plain". */
static void kind_of(const char *message, char kind[64]) {
    snprintf(kind, 64, "%.*s", (int)strcspn(message, ":0123456789"), message);
}

/* Takes the text when it fails in the same way. */
static bool attempt(shrinker *k, const char *text) {
    if (k->runs >= SHRINK_RUNS || strcmp(text, k->text) == 0) return false;
    case_setting setting = case_read_setting(text);
    case_shapes *shapes = calloc(1, sizeof *shapes);
    bool valid = shapes && case_shapes_of(text, &setting, 0, shapes, NULL) && shapes->outputs > 0;
    free(shapes);
    if (!valid) return false;
    k->runs++;
    char kind[64];
    if (text_passes(k->s, text)) return false;
    kind_of(k->s->report.message, kind);
    if (strcmp(kind, k->kind) != 0) return false;
    free(k->text);
    k->text = strdup(text);
    memcpy(k->message, k->s->report.message, sizeof k->message);
    return true;
}

enum { LINES = 1000, LINE_NAMES = 16 };
typedef struct lines {
    char *line[LINES];
    int count;
    char *copy;
} lines;

static lines split(const char *text) {
    lines l = {.copy = strdup(text)};
    for (char *at = l.copy; *at && l.count < LINES;) {
        l.line[l.count++] = at;
        at += strcspn(at, "\n");
        if (*at) *at++ = 0;
    }
    return l;
}

/* The lines less those that are NULL. */
static char *joined(const lines *l) {
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    for (int i = 0; i < l->count; i++)
        if (l->line[i]) fprintf(file, "%s\n", l->line[i]);
    fclose(file);
    return text;
}

static bool attempt_lines(shrinker *k, const lines *l) {
    char *text = joined(l);
    bool taken = attempt(k, text);
    free(text);
    return taken;
}

typedef struct line_names {
    char name[LINE_NAMES][32];
    int count;
} line_names;

/* The names that a line defines, `_` included: those before `=`, or an input's. None: another line, or one with more. */
static line_names defined_names(const char *line) {
    line_names l = {.count = 0}, none = l;
    line += strspn(line, " ");
    bool input = strncmp(line, "input ", 6) == 0;
    if (input) line += 6;
    while (l.count < LINE_NAMES) {
        size_t length = strspn(line, "abcdefghijklmnopqrstuvwxyz0123456789_");
        if (!length || length > 31) return none;
        memcpy(l.name[l.count], line, length);
        l.name[l.count++][length] = 0;
        line += length;
        if (input ? *line == ':' : strncmp(line, " = ", 3) == 0) return l;
        if (strncmp(line, ", ", 2) != 0) return none;
        line += 2;
    }
    return none;
}

/* The line stands in the outermost graph. */
static bool is_outer(const char *line) {
    return strncmp(line, "    ", 4) != 0 && strncmp(line, "  }", 3) != 0;
}

static bool is_input(const char *line) {
    return strncmp(line + strspn(line, " "), "input ", 6) == 0;
}

/* Braces that a line opens, less those it closes. */
static int depth_change(const char *line) {
    int depth = 0;
    for (; *line; line++) depth += (*line == '{') - (*line == '}');
    return depth;
}

/* The line behind a statement, which may hold sub-graphs. */
static int statement_end(const lines *l, int first) {
    int depth = 0, end = first;
    do depth += l->line[end] ? depth_change(l->line[end]) : 0;
    while (++end < l->count && depth > 0);
    return end;
}

static void drop_statement(lines *l, int first) {
    for (int end = statement_end(l, first); first < end; first++) l->line[first] = NULL;
}

static const char *find_word(const char *text, const char *word) {
    size_t length = strlen(word);
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        if ((at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[length])) return at;
    return NULL;
}

/* Statements whose values nothing uses go; not inputs of sub-graphs, which operands belong to. */
static void drop_unused(lines *l) {
    for (int i = l->count - 1; i >= 0; i--) {
        if (!l->line[i] || (is_input(l->line[i]) && !is_outer(l->line[i]))) continue;
        line_names names = defined_names(l->line[i]);
        bool used = false;
        for (int j = statement_end(l, i); j < l->count && !used; j++)
            for (int k = 0; k < names.count && !used; k++) used = l->line[j] && find_word(l->line[j], names.name[k]);
        if (!used && names.count) drop_statement(l, i);
    }
}

static bool is_output(const char *line) {
    return line && strncmp(line, "  output ", 9) == 0;
}

/* One output less. */
static bool shrink_outputs(shrinker *k) {
    lines l = split(k->text);
    bool taken = false;
    for (int i = 0; i < l.count && !taken; i++) {
        if (!is_output(l.line[i])) continue;
        lines one = l;
        for (int j = 0; j < l.count; j++)
            if (j != i && is_output(l.line[j])) one.line[j] = NULL;
        drop_unused(&one);
        taken = attempt_lines(k, &one);
        if (taken) break;
        one = l;
        one.line[i] = NULL;
        drop_unused(&one);
        taken = attempt_lines(k, &one);
    }
    free(l.copy);
    return taken;
}

/* The shape of the value that line i defines, as in f32[3, n]. */
static bool shape_text(const lines *l, const char *name, char out[600]) {
    lines copy = *l;
    char output[64];
    gen_value v = {0};
    case_shapes *shapes = calloc(1, sizeof *shapes);
    for (int i = 0; i < copy.count; i++)
        if (is_output(copy.line[i])) copy.line[i] = NULL;
    snprintf(output, sizeof output, "  output %s\n}", name);
    copy.line[copy.count - 1] = output;
    char *text = joined(&copy);
    case_setting setting = case_read_setting(text);
    bool good = shapes && case_shapes_of(text, &setting, 0, shapes, NULL) && gen_read_symbols(text, &v, 1);
    if (good) {
        v.rank = shapes->output[0].rank;
        snprintf(out, 600, "%s%s", lib_dtypes[shapes->output[0].dtype].name, gen_dims(&v, 0, v.rank).text);
        for (int d = 0; d < v.rank; d++) good &= !strchr(v.text[d], 'c'); /* no input has a size that is counted */
    }
    free(shapes);
    free(text);
    return good;
}

/* A node or constant becomes inputs. */
static bool shrink_to_inputs(shrinker *k) {
    lines l = split(k->text);
    bool taken = false;
    for (int i = l.count - 1; i >= 0 && !taken; i--) {
        char inputs[LINE_NAMES * 700] = "", shape[600];
        line_names names = defined_names(l.line[i]);
        if (!names.count || is_input(l.line[i]) || !is_outer(l.line[i])) continue;
        for (int n = 0; n < names.count; n++) {
            size_t length = strlen(inputs);
            if (strcmp(names.name[n], "_") == 0 || !shape_text(&l, names.name[n], shape)) continue;
            snprintf(inputs + length, sizeof inputs - length, "%s  input %s: %s", length ? "\n" : "", names.name[n],
                     shape);
        }
        if (!inputs[0]) continue;
        lines changed = l;
        drop_statement(&changed, i);
        changed.line[i] = inputs;
        char *text = joined(&changed);
        lines again = split(text); /* each input on a line of its own */
        drop_unused(&again);
        taken = attempt_lines(k, &again);
        free(again.copy);
        free(text);
    }
    free(l.copy);
    return taken;
}

static char *replace_word(const char *text, const char *word, const char *by) {
    char *out = NULL;
    size_t size;
    FILE *file = open_memstream(&out, &size);
    for (const char *at; (at = find_word(text, word)); text = at + strlen(word)) {
        fwrite(text, 1, (size_t)(at - text), file);
        fputs(by, file);
    }
    fputs(text, file);
    fclose(file);
    return out;
}

/* What stands behind line i takes another value for one that it defines; what then is not used any more goes. */
static bool bypass(shrinker *k, const lines *l, int i, const char *name, const char *other) {
    lines ahead = *l, behind = *l;
    int end = statement_end(l, i);
    ahead.count = end;
    for (int j = 0; j < end; j++) behind.line[j] = NULL;
    char *first = joined(&ahead), *rest = joined(&behind), *replaced = replace_word(rest, name, other), *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    fprintf(file, "%s%s", first, replaced);
    fclose(file);
    lines again = split(text);
    drop_unused(&again);
    bool taken = attempt_lines(k, &again);
    free(again.copy);
    free(text);
    free(replaced);
    free(rest);
    free(first);
    return taken;
}

/* A value's users take another one that stands before it. */
static bool shrink_bypass(shrinker *k) {
    lines l = split(k->text);
    bool taken = false;
    for (int i = l.count - 1; i >= 0 && !taken; i--) {
        line_names names = defined_names(l.line[i]);
        for (int n = 0; n < names.count && !taken; n++)
            for (int j = 0; j < i && !taken && strcmp(names.name[n], "_") != 0; j++) {
                line_names others = defined_names(l.line[j]);
                for (int o = 0; o < others.count && !taken; o++)
                    if (strcmp(others.name[o], "_") != 0) taken = bypass(k, &l, i, names.name[n], others.name[o]);
            }
    }
    free(l.copy);
    return taken;
}

/* A number, wherever it stands, becomes smaller. */
static bool shrink_numbers(shrinker *k) {
    int64_t seen[64];
    int count = 0;
    for (const char *at = k->text; *at; at++) {
        if (!isdigit((unsigned char)*at) || (at > k->text && (isalnum((unsigned char)at[-1]) || at[-1] == '"')))
            continue;
        char *end;
        int64_t number = strtoll(at, &end, 10);
        bool known = number < 2 || isalnum((unsigned char)*end);
        for (int i = 0; i < count && !known; i++) known = seen[i] == number;
        if (!known && count < 64) seen[count++] = number;
        at = end - 1;
    }
    for (int i = 0; i < count; i++) {
        int64_t candidates[] = {1, 2, 3, seen[i] / 2, seen[i] - 1};
        for (int c = 0; c < 5; c++) {
            char from[32], to[32];
            if (candidates[c] >= seen[i]) continue;
            snprintf(from, sizeof from, "%lld", (long long)seen[i]);
            snprintf(to, sizeof to, "%lld", (long long)candidates[c]);
            char *text = replace_word(k->text, from, to);
            bool taken = attempt(k, text);
            free(text);
            if (taken) return true;
        }
    }
    return false;
}

/* A simpler setting, no symbols' hints. */
static bool shrink_setting(shrinker *k) {
    case_setting s = case_read_setting(k->text);
    const char *rest = strchr(k->text, '\n');
    char head[256];
    if (!rest) return false;
    for (int change = 0; change < 8; change++) {
        case_setting t = s;
        if (change == 0) t.fill = FILL_TAME;
        if (change == 1) t.strict = true;
        if (change == 2 && s.symbols) t.sizes[0] = 1;
        if (change == 3) t.layout = false;
        if (change == 4) t.plain = false;
        if (change == 5) t.threads = false;
        if (change == 6) t.small = false;
        if (change == 7) t.choices = 0;
        case_print_setting(&t, head, sizeof head);
        char *text = malloc(strlen(rest) + sizeof head);
        sprintf(text, "%s%s", head, rest);
        bool taken = attempt(k, text);
        free(text);
        if (taken) return true;
    }
    lines l = split(k->text);
    bool taken = false;
    for (int i = 0; i < l.count && !taken; i++) {
        if (strncmp(l.line[i], "  symbol ", 9) != 0) continue;
        lines changed = l;
        changed.line[i] = NULL;
        taken = attempt_lines(k, &changed);
    }
    free(l.copy);
    return taken;
}

static void shrink(shrinker *k) {
    kind_of(k->message, k->kind);
    while (k->runs < SHRINK_RUNS &&
           (shrink_outputs(k) || shrink_to_inputs(k) || shrink_bypass(k) || shrink_setting(k) || shrink_numbers(k)))
        continue;
}

/* ---- reporting */

static void keep(const char *text, const char *message, const char *name) {
    char path[256];
    mkdir("build", 0777);
    mkdir("build/fuzz", 0777);
    snprintf(path, sizeof path, "build/fuzz/%s.txt", name);
    FILE *file = fopen(path, "w");
    if (!file) return;
    fprintf(file, "%s# %.*s\n", text, (int)strcspn(message, "\n"), message);
    fclose(file);
    printf("kept as %s\n", path);
}

/* Long constants cut. */
static void print_text(const char *text) {
    for (; *text; text += strcspn(text, "\n") + 1) {
        int length = (int)strcspn(text, "\n");
        printf("%.*s%s\n", length > 200 ? 200 : length, text, length > 200 ? "..." : "");
        if (!text[length]) break;
    }
}

static void report_failure(shared *s, const char *name) {
    shrinker k = {.s = s, .text = strdup(s->text)};
    memcpy(k.message, s->report.message, sizeof k.message);
    printf("---- %s: %s\n", name, k.message);
    fflush(stdout);
    if (strncmp(k.message, "refused", 7) != 0) {
        char *whole = strdup(s->text);
        if (text_passes(s, whole))
            printf("(alone it passes)\n");
        else
            shrink(&k);
        free(whole);
    }
    print_text(k.text);
    printf("%s\n", k.message);
    keep(k.text, k.message, name);
    fflush(stdout);
    free(k.text);
}

static int run_file(shared *s, const char *path, bool smaller) {
    FILE *file = fopen(path, "r");
    if (!file) return 2;
    size_t length = fread(s->text, 1, sizeof s->text - 1, file);
    s->text[length] = 0;
    fclose(file);
    char *text = strdup(s->text);
    bool good = text_passes(s, text);
    printf("%s: %s\n", path, good ? "passes" : s->report.message);
    if (!good && smaller) report_failure(s, "shrunk");
    free(text);
    return !good;
}

int main(int argc, char **argv) {
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED) return 2;
    double seconds = argc > 1 ? atof(argv[1]) : 10, deadline = now() + seconds;
    uint64_t seed = (uint64_t)lib_environment_integer(LIB_ENV_SEED, 1);
    /* Functions that ONNX has not are other ones there: bounds are those of a machine that computes functions in its own way. */
    if (is_through_onnx()) setenv("DLC_CPU_FEATURES", "sse2", 1);
    if (argc > 1 && !isdigit((unsigned char)argv[1][0])) return run_file(s, argv[1], argc > 2);
    s->number = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    uint64_t end = argc > 3 ? s->number + strtoull(argv[3], NULL, 10) : UINT64_MAX;
    int failures = 0;
    while (now() < deadline && s->number < end && failures < FAILURES_MAX) {
        fflush(NULL);
        pid_t child = fork();
        if (child < 0) return 2;
        if (child == 0) run_batch(s, seed, deadline, end);
        if (await(child, s)) continue;
        char name[64];
        snprintf(name, sizeof name, "seed%llu-%llu", (unsigned long long)seed, (unsigned long long)s->number);
        report_failure(s, name);
        failures++;
        s->number++;
    }
    printf("fuzz: seed %llu: %llu graphs, %llu outputs compared, %llu without a bound, %d failures\n",
           (unsigned long long)seed, (unsigned long long)s->done, (unsigned long long)s->compared,
           (unsigned long long)s->skipped, failures);
    if (s->done && is_through_onnx()) print_onnx(s);
    print_rows(s);
    return failures > 0;
}
