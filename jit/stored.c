/* Serialises what a run needs of a kernel: the description in a file of the disk cache. Numbers have the machine's byte order and
 * the library's memory layout, since only the same build reads them. Reading trusts nothing: lengths, references and kinds are
 * checked, expressions are rebuilt, and invalid input is rejected. */
#include "jit/disk.h"

enum { NODES_MAX = 1 << 16, LIST_MAX = 1 << 16 };

/* ---- writing */

static void put(lib_text *text, int64_t number) {
    lib_text_add_bytes(text, (const char *)&number, sizeof number);
}

static void put_string(lib_text *text, const char *string) {
    size_t length = string ? strlen(string) : 0;
    put(text, (int64_t)length);
    lib_text_add_bytes(text, string ? string : "", length);
}

/* Writes all expressions: the pool contains only the kernel's sizes. */
static void put_pool(lib_text *text, const tir_pool *pool) {
    put(text, pool->nodes.count);
    for (uint32_t e = 1; e < pool->nodes.count; e++) {
        const tir_node *node = tir_get(pool, e);
        put(text, node->op);
        put(text, node->dtype);
        if (node->op == TIR_CONST) put(text, (int64_t)node->bits);
        if (node->op == TIR_VAR) {
            const tir_variable *variable = &pool->variables.data[node->bits];
            put_string(text, variable->name);
            put(text, variable->low);
            put(text, variable->high);
            put(text, variable->multiple);
        }
        put(text, node->count);
        for (int k = 0; k < node->count; k++) put(text, tir_operand(pool, e, k));
    }
}

static void put_layout(lib_text *text, const tir_layout *layout) {
    put(text, layout->rank);
    put(text, layout->count);
    put(text, layout->swizzle);
    for (int i = 0; i < layout->count; i++) {
        put(text, layout->part[i].dim);
        put(text, layout->part[i].divisor);
        put(text, layout->part[i].modulus);
    }
}

void jit_describe_stored(lib_text *text, const jit_kernel *kernel) {
    put_string(text, kernel->name);
    put_pool(text, kernel->pool);
    put(text, kernel->param_count);
    for (int p = 0; p < kernel->param_count; p++) put(text, kernel->params[p]);
    put(text, kernel->phase_count);
    for (int p = 0; p < kernel->phase_count; p++) {
        put(text, kernel->phases[p].tasks);
        put(text, kernel->phases[p].repeat);
        put(text, kernel->phases[p].repeat_phases);
        put(text, kernel->phases[p].fetches);
    }
    put(text, kernel->workspace_size);
    put(text, kernel->local_size);
    put(text, kernel->inputs);
    for (int i = 0; i < kernel->inputs; i++) put_layout(text, &kernel->input_layouts[i]);
    put(text, kernel->outputs);
    for (int o = 0; o < kernel->outputs; o++) put(text, (int64_t)kernel->shares[o]);
}

/* ---- reading */

typedef struct reader {
    lib_arena *arena;
    const char *at, *end;
    /* expressions by their number in the file */
    tir_expr *expr;
    int64_t exprs;
} reader;

static void refuse(const reader *r, const char *what) {
    lib_raise(r->arena->scope, DLC_INVALID_ARGUMENT, "a stored kernel: %s is not as expected", what);
}

static int64_t get(reader *r, int64_t low, int64_t high, const char *what) {
    int64_t number;
    if (r->end - r->at < (ptrdiff_t)sizeof number) refuse(r, what);
    memcpy(&number, r->at, sizeof number);
    r->at += sizeof number;
    if (number < low || number > high) refuse(r, what);
    return number;
}

static const char *get_string(reader *r) {
    int64_t length = get(r, 0, r->end - r->at, "a name");
    if (length > r->end - r->at) refuse(r, "a name");
    char *string = LIB_NEW_ARRAY(r->arena, char, (size_t)length + 1);
    memcpy(string, r->at, (size_t)length);
    r->at += length;
    return string;
}

static tir_expr get_expr(reader *r, bool may_be_none) {
    int64_t number = get(r, may_be_none ? 0 : 1, r->exprs - 1, "an expression");
    return number ? r->expr[number] : 0;
}

static tir_expr get_variable(reader *r, tir_pool *pool) {
    const char *name = get_string(r);
    int64_t low = get(r, INT64_MIN, INT64_MAX, "a range"), high = get(r, low, INT64_MAX, "a range");
    int64_t multiple = get(r, 1, INT64_MAX, "a multiple");
    tir_expr variable = tir_var(pool, name, TIR_VAR_PARAM, TIR_INDEX, low, high);
    pool->variables.data[tir_var_id(pool, variable)].multiple = multiple;
    return variable;
}

/* May sizes use the operator? Index expressions and conditions, with operators that are defined for both. */
static bool is_of_sizes(tir_op op, tir_dtype dtype) {
    if (dtype != TIR_INDEX && dtype != DLC_BOOL) return false;
    return op == TIR_CONST || op == TIR_VAR || (op >= TIR_ADD && op <= TIR_MAX) || (op >= TIR_AND && op <= TIR_XOR) ||
           (op >= TIR_EQ && op <= TIR_LE) || op == TIR_NOT || op == TIR_SELECT || op == TIR_CAST;
}

static void get_pool(reader *r, tir_pool *pool) {
    int64_t count = get(r, 1, NODES_MAX, "the number of expressions");
    r->expr = LIB_NEW_ARRAY(r->arena, tir_expr, (size_t)count);
    for (r->exprs = 1; r->exprs < count; r->exprs++) {
        tir_op op = (tir_op)get(r, 0, TIR_OP_COUNT - 1, "an operator");
        tir_dtype dtype = (tir_dtype)get(r, 0, TIR_INDEX, "an element type");
        tir_expr made = 0, operands[4];
        if (!is_of_sizes(op, dtype)) refuse(r, "an operator of sizes");
        if (op == TIR_CONST) made = tir_bits(pool, dtype, (uint64_t)get(r, INT64_MIN, INT64_MAX, "a number"));
        if (op == TIR_VAR) made = get_variable(r, pool);
        int operand_count = (int)get(r, 0, made ? 0 : 4, "the number of operands");
        for (int k = 0; k < operand_count; k++) operands[k] = get_expr(r, false);
        r->expr[r->exprs] = made ? made : tir_make(pool, op, dtype, operand_count, operands);
    }
}

static void get_layout(reader *r, tir_layout *layout) {
    layout->rank = (int16_t)get(r, 0, DLC_MAX_RANK, "a layout");
    layout->count = (int16_t)get(r, 0, TIR_MAX_PHYSICAL, "a layout");
    layout->swizzle = (int32_t)get(r, 0, 128, "a layout");
    for (int i = 0; i < layout->count; i++) {
        layout->part[i].dim = (int16_t)get(r, 0, DLC_MAX_RANK, "a layout");
        layout->part[i].divisor = (int32_t)get(r, 1, INT32_MAX, "a layout");
        layout->part[i].modulus = (int32_t)get(r, 0, INT32_MAX, "a layout");
    }
    tir_layout_verify(r->arena->scope, layout, "a stored kernel");
}

static void get_phases(reader *r, jit_kernel *kernel) {
    kernel->phase_count = (int)get(r, 1, LIST_MAX, "the number of phases");
    kernel->phases = LIB_NEW_ARRAY(r->arena, jit_kernel_phase, (size_t)kernel->phase_count);
    for (int p = 0; p < kernel->phase_count; p++) {
        kernel->phases[p].tasks = get_expr(r, false);
        kernel->phases[p].repeat = get_expr(r, true);
        kernel->phases[p].repeat_phases =
            (int)get(r, kernel->phases[p].repeat ? 1 : 0, kernel->phase_count - p, "a repeat");
        kernel->phases[p].fetches = get(r, 0, 1, "whether a phase fetches") != 0;
    }
}

void jit_read_description(jit_kernel *kernel, const char *bytes, size_t size) {
    reader r = {.arena = &kernel->arena, .at = bytes, .end = bytes + size};
    kernel->name = get_string(&r);
    kernel->pool = LIB_NEW(r.arena, tir_pool);
    tir_pool_init(kernel->pool, r.arena);
    get_pool(&r, kernel->pool);
    kernel->param_count = (int)get(&r, 0, LIST_MAX, "the number of parameters");
    kernel->params = LIB_NEW_ARRAY(r.arena, tir_expr, (size_t)kernel->param_count + 1);
    for (int p = 0; p < kernel->param_count; p++) {
        kernel->params[p] = get_expr(&r, false);
        if (tir_op_of(kernel->pool, kernel->params[p]) != TIR_VAR) refuse(&r, "a parameter");
    }
    get_phases(&r, kernel);
    kernel->workspace_size = get_expr(&r, true);
    kernel->local_size = get_expr(&r, true);
    kernel->inputs = (int)get(&r, 0, LIST_MAX, "the number of inputs");
    kernel->input_layouts = LIB_NEW_ARRAY(r.arena, tir_layout, (size_t)kernel->inputs + 1);
    for (int i = 0; i < kernel->inputs; i++) get_layout(&r, &kernel->input_layouts[i]);
    kernel->outputs = (int)get(&r, 0, LIST_MAX, "the number of outputs");
    kernel->shares = LIB_NEW_ARRAY(r.arena, uint64_t, (size_t)kernel->outputs + 1);
    for (int o = 0; o < kernel->outputs; o++) kernel->shares[o] = (uint64_t)get(&r, INT64_MIN, INT64_MAX, "a share");
    if (r.at != r.end) refuse(&r, "the length");
}
