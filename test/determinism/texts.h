/* Graphs as text for the programs of this folder: samples of the operator table, some of sizes that rules split, files. */
#ifndef TEST_DETERMINISM_TEXTS_H
#define TEST_DETERMINISM_TEXTS_H

#include "conformance/sample.h"
#include "graph/build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* after the above */
#include <cmocka.h>

/* Gets the text, which it frees, and the parsed sample. */
typedef void (*text_visit)(void *user, char *text, const sample *s);

/* n, if only every n-th text is to be tested: DLC_TEST_SHARE, else 3, with DLC_TEST_LONG 1. */
static inline int test_share(void) {
    const char *share = getenv("DLC_TEST_SHARE");
    const int every = share ? atoi(share) : getenv("DLC_TEST_LONG") ? 1 : 3;
    return every > 0 ? every : 1;
}

static inline char *read_text(const char *path) {
    enum { LONGEST = 1 << 20 };
    char *text = calloc(1, LONGEST);
    FILE *file = fopen(path, "r");
    if (file && text && fread(text, 1, LONGEST - 1, file) == 0) text[0] = 0;
    if (file) fclose(file);
    return text;
}

/* A graph with one operator, whose results are the outputs. */
static inline char *text_of_sample(const graph_op *op, const char *line, size_t length, dlc_dtype dtype, sample *s,
                                   bool *varies) {
    lib_scope scope;
    lib_arena arena;
    char *volatile copy = NULL;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        graph *g = graph_new(&arena, NULL);
        graph_id input[SAMPLE_OPERANDS];
        sample_parse(s, g, op, sample_line(&arena, line, length, dtype, varies));
        for (int i = 0; i < s->operands; i++) {
            const sample_operand *operand = &s->operand[i];
            graph_shape shape = {.dtype = operand->dtype, .rank = operand->rank};
            for (int d = 0; d < operand->rank; d++) shape.dim[d] = tir_index(g->pool, operand->dim[d]);
            input[i] = operand->left_out ? 0 : graph_new_input(g, lib_arena_format(&arena, "x%d", i), &shape);
        }
        graph_id first = graph_emit(g, op, s->operands, input, s->attribute);
        int results = op->results >= 0 ? op->results : graph_node_of(g, first)->results;
        for (int i = 0; i < results; i++) graph_new_output(g, lib_arena_format(&arena, "y%d", i), first + (graph_id)i);
        lib_text text;
        lib_text_init(&text, &arena);
        graph_print(&text, g);
        copy = strdup(text.data);
    }
    lib_arena_free(&arena);
    if (!copy) fail_msg("%.*s: %s", (int)length, line, scope.error.message);
    return copy;
}

static inline bool is_usable(const graph_op *op, dlc_dtype dtype) {
    return !lib_dtype_is_stored_otherwise(dtype) && graph_op_accepts(op, dtype);
}

/* Visits the row's first line with f32, and another line with another dtype; DLC_TEST_LONG: all lines with all dtypes. */
static inline void for_row(const graph_op *op, uint64_t hash, text_visit visit, void *user) {
    const bool all = getenv("DLC_TEST_LONG") != NULL;
    int lines = 1, number = 0;
    for (const char *at = op->samples; *at; at++) lines += *at == '\n';
    const int other = (int)(hash % (uint64_t)lines);
    for (const char *line = op->samples; line; number++) {
        size_t length = strcspn(line, "\n");
        bool varies = true;
        dlc_dtype first = DLC_DTYPE_COUNT;
        for (int t = DLC_DTYPE_COUNT; t-- > 0;)
            if (is_usable(op, (dlc_dtype)t) && first != DLC_F32) first = (dlc_dtype)t;
        if (!all && number == other && number) /* the one that the hash says */
            for (int t = 0, skip = (int)(hash >> 8) % 6; t < DLC_DTYPE_COUNT; t++)
                if (is_usable(op, (dlc_dtype)t) && skip-- >= 0) first = (dlc_dtype)t;
        for (int t = 0; t < DLC_DTYPE_COUNT && varies; t++)
            if (all ? is_usable(op, (dlc_dtype)t) : (dlc_dtype)t == first && (number == 0 || number == other)) {
                sample s;
                char *text = text_of_sample(op, line, length, (dlc_dtype)t, &s, &varies);
                visit(user, text, &s);
            }
        line = line[length] ? line + length + 1 : NULL;
    }
}

/* Visits samples of all rows that have a numerical reference. */
static inline void for_samples(text_visit visit, void *user) {
    uint64_t number = 0;
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row; row++)
            if ((*row)->samples && (*row)->reference && number++ % (uint64_t)test_share() == 0)
                for_row(*row, lib_hash64((*row)->name, strlen((*row)->name), 0), visit, user);
}

static const char *const large_samples[] = {
    "matmul(f32[3, 20000], f32[20000, 8])",
    "matmul(f32[130, 300], f32[300, 170])",
    "matmul(bf16[64, 4000], bf16[4000, 40])",
    "matmul(f64[17, 9000], f64[9000, 5])",
    "dot_general(i8[40, 2000], i8[30, 2000], contract_x=[1], contract_w=[1], result=i32)",
    "convolution(f32[2, 24, 30, 30], f32[40, 24, 3, 3], low=[1, 1], high=[1, 1])",
    "convolution(f32[1, 64, 40, 40], f32[64, 1, 3, 3], groups=64)",
    "convolution_transposed(f32[1, 8, 20, 20], f32[8, 12, 4, 4], stride=[2, 2])",
    "reduce_sum(f32[700001], axes=[0])",
    "reduce_sum(f32[9001, 37], axes=[0])",
    "reduce_sum(f32[37, 9001], axes=[1])",
    "reduce_sum(f16[5, 301, 203], axes=[0, 2])",
    "reduce_prod(f64[5000, 3] in 0.99..1.01, axes=[0])",
    "reduce_max(f32[400003], axes=[0])",
    "arg_max(f32[400003], axis=0)",
    "mean(f32[64, 5003], axes=[1])",
    "variance(f32[64, 5003], axes=[1])",
    "logsumexp(f32[7, 50021], axes=[1])",
    "softmax(f32[40, 5003], axis=1)",
    "softmax(f32[5003, 40], axis=0)",
    "log_softmax(bf16[40, 5003], axis=1)",
    "layer_norm(f32[65, 1021], f32[1021], f32[1021], axis=1)",
    "rms_norm(f32[65, 4099], f32[4099])",
    "group_norm(f32[3, 12, 50, 50], f32[12], f32[12], groups=4)",
    "attention(f32[2, 3, 130, 64], f32[2, 3, 170, 64], f32[2, 3, 170, 64])",
    "attention(f32[1, 2, 1, 64], f32[1, 2, 3000, 64], f32[1, 2, 3000, 64])",
    "attention(bf16[1, 2, 200, 32], bf16[1, 2, 200, 32], bf16[1, 2, 200, 32], causal=true)",
    "gelu(f32[300007])",
    "gather(f32[500, 200], i32[3000] in 0..500, axis=0)",
    "scatter(f32[100, 40], i32[5000] in 0..100, f32[5000, 40], axis=0, combine=add)",
    "scatter(f32[1000], i32[70000] in 0..1000, f32[70000], axis=0, combine=add)",
    "cumulative_sum(f32[3, 100003], axis=1)",
    "cumulative_sum(f32[100003, 3], axis=0, reverse=true)",
    "cumulative_max(f32[200003], axis=0)",
    "sort(f32[20, 5003])",
    "sort(f32[70001])",
    "top_k(f32[20, 5003], k=40, axis=1)",
    "dft(f32[8, 1024, 2])",
    "dft(f32[3, 1155, 2], inverse=true)",
    "stft(f32[2, 20000, 1], f32[512], frame_step=128)",
    "resize(f32[2, 3, 50, 60], shape=[113, 127], axes=[2, 3], mode=cubic)",
    "average_pool(f32[1, 16, 60, 60], window=[3, 3], stride=[2, 2])",
    "transpose(f32[101, 203, 31], permutation=[2, 0, 1])",
    "concat(f32[500, 300], f32[500, 41], axis=1)",
    "lstm(f32[20, 2, 30], f32[1, 160, 30], f32[1, 160, 40], f32[1, 320])",
    "gru(f32[20, 2, 30], f32[2, 120, 30], f32[2, 120, 40], f32[2, 240], direction=bidirectional)",
    "triangular_solve(f32[4, 60, 60] in 1..2, f32[4, 60, 50])",
    "qr(f32[3, 40, 30])",
    "eigh(f32[3, 20, 20])",
    "eigh(f32[2, 50, 50])",
    "svd(f64[2, 40, 35])",
    "lu(f32[3, 70, 66])",
    "solve(f64[2, 80, 80], f64[2, 80, 9])",
    "quantile(f32[40, 300], f32[4] in 0..1)",
    "histogram(f32[5000], bins=20)",
    "cross_entropy(f32[300, 1000], i32[300] in 0..1000)",
    "batch_norm_training(f32[16, 12, 30, 30], f32[12], f32[12], f32[12], f32[12] in 0.5..1)",
    "grid_sample(f32[2, 3, 40, 50], f32[2, 60, 70, 2] in -1..1)",
    "quantize_linear(f32[100, 3000], f32[] in 0.01..0.02, u8[])",
};

static inline void for_large_samples(text_visit visit, void *user) {
    for (size_t i = 0; i < sizeof large_samples / sizeof *large_samples; i += (size_t)test_share()) {
        const char *line = large_samples[i];
        char name[64] = "";
        bool varies;
        sample s;
        memcpy(name, line, strcspn(line, "("));
        const graph_op *op = graph_op_find(name);
        if (!op) fail_msg("no operator %s", name);
        char *text = text_of_sample(op, line, strlen(line), DLC_F32, &s, &varies);
        visit(user, text, &s);
    }
}

#endif
