/* Text form of regions: printing and parsing, inverse to each other except for removed stages, which are not printed.
 *
 *   region r excess params(n: 1..64 x4, s: f32)
 *   input  x f32[45, 9]
 *   reduce C f32 exact (i: 45, j: 20 | k: 9) init 0:f32 where k <= i = muladd(x[i, k], w[k, j], acc(0):f32)
 *       merge acc(0):f32 + other(0):f32
 *   reduce am (am: f32, at: i64) (i: 45 | k: 9) init {..} = {.., ..} merge {.., ..}
 *   scatter S f32 (i: 8 | u: 9) init 0:f32 at [cast.index(ix[u])] = acc(0):f32 + x[u, 0]
 *   scatter S f32 inplace (...) ...                 its buffer already holds the initial values
 *   fold   s f32[4] (b: 3 | t: 9) init 0:f32       [4]: extents of the state's own axes, after the free ones
 *   sort   p i32 (b: 3, t: 9 | i: 9) key 32 x[b, i] = cast.i32(i)   by the key's low 32 bits
 *   map    st f32 in s (b: 3, t: 9, j: 4) = s[b, j] + x[t, b]
 *   next   s = st[b, t, 0]                         after the steps; the own axes' indices are 0 and stand for the axes
 *   tensor x stride(16, 1) align 64 constant layout (d0/8, d1, d0%8) nonzero(i, j: j <= i)    input, 0 where j > i
 *   output D
 *
 * A stage with one value whose tensor has the stage's name states only the type. */
#include "tir/names.h"
#include "tir/region.h"

static const char *const kind_names[] = {"map", "reduce", "scatter", "fold", "sort"};
static const char *const dimension_names[DLC_MAX_RANK] = {"d0", "d1", "d2", "d3", "d4",  "d5",
                                                          "d6", "d7", "d8", "d9", "d10", "d11"};

/* ---- printing */

typedef struct printer {
    lib_text *text;
    lib_arena *arena;
    const tir_region *region;
    /* the region's, with a separate variable table: its names are those in scope */
    tir_pool pool;
    /* names taken: tensors, parameters, then the axes of the stage being printed */
    tir_name_list scope;
    /* by id */
    const char **tensors;
} printer;

static void bind(printer *p, tir_expr var, const char *name) {
    tir_variable *variable = &p->pool.variables.data[tir_var_id(&p->pool, var)];
    variable->name = tir_free_name(p->arena, &p->scope, name);
    lib_vec_push(p->arena, &p->scope, variable->name);
}

static const char *name_of(const printer *p, tir_expr var) {
    return tir_variable_of(&p->pool, var)->name;
}
static void print_expr(printer *p, tir_expr e) {
    tir_print_expr(p->text, &p->pool, e, p->tensors);
}

static void print_exprs(printer *p, int count, const tir_expr *e) {
    tir_exprs_print(p->text, &p->pool, count, e, p->tensors);
}

/* One component plainly, several in braces. */
static void print_components(printer *p, int count, const tir_expr *e) {
    if (count != 1) lib_text_add(p->text, "{");
    print_exprs(p, count, e);
    if (count != 1) lib_text_add(p->text, "}");
}

static void print_type(printer *p, const tir_tensor *t, int space) {
    lib_text_add(p->text, lib_dtypes[t->dtype].name);
    if (t->rank == space) return;
    lib_text_add(p->text, "[");
    print_exprs(p, t->rank - space, t->extent + space);
    lib_text_add(p->text, "]");
}

static void print_types(printer *p, const tir_stage *stage, const char *name) {
    bool plain = stage->count == 1 && strcmp(p->tensors[stage->tensor[0]], name) == 0;
    lib_text_add(p->text, plain ? " " : " (");
    for (int c = 0; c < stage->count; c++) {
        if (!plain) lib_text_format(p->text, "%s%s: ", c ? ", " : "", p->tensors[stage->tensor[c]]);
        print_type(p, &p->region->tensors.data[stage->tensor[c]], stage->space);
    }
    if (!plain) lib_text_add(p->text, ")");
}

static void print_axes(printer *p, const tir_stage *stage) {
    lib_text_add(p->text, " (");
    for (int i = 0; i < stage->space + stage->reduce; i++) {
        if (i == stage->space) lib_text_add(p->text, i ? " | " : "| ");
        if (i && i != stage->space) lib_text_add(p->text, ", ");
        lib_text_format(p->text, "%s: ", name_of(p, stage->axis[i].var));
        print_expr(p, stage->axis[i].extent);
    }
    lib_text_add(p->text, ")");
}

/* The tensor of the first value usually has the stage's name; then the printed names must agree too. */
static const char *stage_name(const printer *p, const tir_stage *stage) {
    if (stage->count > 0 && strcmp(p->region->tensors.data[stage->tensor[0]].name, stage->name) == 0)
        return p->tensors[stage->tensor[0]];
    return tir_free_name(p->arena, &(tir_name_list){0}, stage->name);
}

static void print_stage(printer *p, const tir_stage *stage) {
    const char *name = stage_name(p, stage);
    const uint32_t outer = p->scope.count;
    for (int i = 0; i < stage->space + stage->reduce; i++) bind(p, stage->axis[i].var, stage->axis[i].name);
    lib_text_format(p->text, "%s %s", kind_names[stage->kind], name);
    print_types(p, stage, name);
    if (stage->exact) lib_text_add(p->text, " exact");
    if (stage->in_place) lib_text_add(p->text, " inplace");
    if (stage->fold >= 0) lib_text_format(p->text, " in %s", stage_name(p, &p->region->stages.data[stage->fold]));
    print_axes(p, stage);
    if (stage->kind != TIR_MAP) {
        if (stage->kind == TIR_SORT)
            lib_text_format(p->text, " key %d ", stage->bits);
        else
            lib_text_add(p->text, " init ");
        print_components(p, stage->count, stage->initial);
    }
    if (stage->predicate) {
        lib_text_add(p->text, " where ");
        print_expr(p, stage->predicate);
    }
    if (stage->kind == TIR_SCATTER) {
        lib_text_add(p->text, " at [");
        print_exprs(p, stage->space, stage->index);
        lib_text_add(p->text, "]");
    }
    if (stage->kind != TIR_FOLD) {
        lib_text_add(p->text, " = ");
        print_components(p, stage->count, stage->value);
    }
    if (stage->kind == TIR_REDUCE && stage->count > 0 && stage->merge[0]) {
        lib_text_add(p->text, " merge ");
        print_components(p, stage->count, stage->merge);
    }
    lib_text_add(p->text, "\n");
    p->scope.count = outer;
}

static void print_next(printer *p, const tir_stage *stage) {
    lib_text_format(p->text, "next %s = ", stage_name(p, stage));
    print_components(p, stage->count, stage->value);
    lib_text_add(p->text, "\n");
}

static void print_nonzero(printer *p, const tir_tensor *t) {
    const uint32_t outer = p->scope.count;
    lib_text_add(p->text, " nonzero(");
    for (int i = 0; i < t->rank; i++) {
        bind(p, t->position[i], tir_variable_of(&p->pool, t->position[i])->name);
        lib_text_format(p->text, "%s%s", i ? ", " : "", name_of(p, t->position[i]));
    }
    lib_text_add(p->text, ": ");
    print_expr(p, t->nonzero);
    lib_text_add(p->text, ")");
    p->scope.count = outer;
}

static void print_tensor(printer *p, uint32_t id) {
    const tir_tensor *t = &p->region->tensors.data[id];
    bool plain_layout = tir_layout_is_identity(&t->layout), aligned = t->alignment != (int32_t)lib_dtype_size(t->dtype);
    if (plain_layout && !t->has_strides && !t->constant && !aligned && !t->nonzero) return;
    lib_text_format(p->text, "tensor %s", p->tensors[id]);
    if (t->has_strides) {
        lib_text_add(p->text, " stride(");
        for (int i = 0; i < t->rank; i++) lib_text_format(p->text, "%s%lld", i ? ", " : "", (long long)t->stride[i]);
        lib_text_add(p->text, ")");
    }
    if (aligned) lib_text_format(p->text, " align %d", t->alignment);
    if (t->constant) lib_text_add(p->text, " constant");
    if (!plain_layout) {
        lib_text_add(p->text, " layout ");
        tir_layout_print(p->text, &t->layout, dimension_names);
    }
    if (t->nonzero) print_nonzero(p, t);
    lib_text_add(p->text, "\n");
}

static bool is_removed(const tir_region *region, const tir_tensor *t) {
    return t->stage >= 0 && region->stages.data[t->stage].removed;
}

static void print_input(printer *p, uint32_t id) {
    const tir_tensor *t = &p->region->tensors.data[id];
    lib_text_format(p->text, "input %s %s[", p->tensors[id], lib_dtypes[t->dtype].name);
    print_exprs(p, t->rank, t->extent);
    lib_text_add(p->text, "]\n");
}

/* In the order of the arguments. */
static void print_inputs(printer *p) {
    const tir_region *region = p->region;
    for (int argument = 0; argument < region->inputs; argument++)
        for (uint32_t i = 0; i < region->tensors.count; i++)
            if (region->tensors.data[i].argument == argument) print_input(p, i);
}

static void print_outputs(printer *p) {
    const tir_region *region = p->region;
    for (int argument = region->inputs; argument < region->inputs + region->outputs; argument++)
        for (uint32_t i = 0; i < region->tensors.count; i++)
            if (region->tensors.data[i].argument == argument) lib_text_format(p->text, "output %s\n", p->tensors[i]);
}

void tir_region_print(lib_text *text, const tir_region *region) {
    printer p = {.text = text, .arena = text->arena, .region = region, .pool = *region->pool};
    p.pool.variables.data = lib_arena_copy(p.arena, region->pool->variables.data,
                                           region->pool->variables.count * sizeof *region->pool->variables.data);
    p.tensors = LIB_NEW_ARRAY(p.arena, const char *, region->tensors.count);
    for (uint32_t i = 0; i < region->tensors.count; i++) {
        p.tensors[i] = tir_free_name(p.arena, &p.scope, region->tensors.data[i].name);
        if (!is_removed(region, &region->tensors.data[i])) lib_vec_push(p.arena, &p.scope, p.tensors[i]);
    }
    lib_text_format(text, "region %s", tir_free_name(p.arena, &(tir_name_list){0}, region->name));
    if (region->excess_precision) lib_text_add(text, " excess");
    for (uint32_t i = 0; i < region->params.count; i++)
        bind(&p, region->params.data[i], name_of(&p, region->params.data[i]));
    if (region->params.count) tir_params_print(text, &p.pool, region->params.count, region->params.data);
    lib_text_add(text, "\n");
    print_inputs(&p);
    for (uint32_t i = 0; i < region->stages.count; i++)
        if (!region->stages.data[i].removed) print_stage(&p, &region->stages.data[i]);
    for (uint32_t i = 0; i < region->stages.count; i++)
        if (!region->stages.data[i].removed && region->stages.data[i].kind == TIR_FOLD)
            print_next(&p, &region->stages.data[i]);
    for (uint32_t i = 0; i < region->tensors.count; i++)
        if (!is_removed(region, &region->tensors.data[i])) print_tensor(&p, i);
    print_outputs(&p);
}

/* ---- parsing */

typedef struct parser {
    lib_lexer *lexer;
    tir_region *region;
    /* the stage whose axes are in scope; or NULL */
    const tir_stage *stage;
    /* whose `nonzero` is being read; NULL: none */
    const tir_tensor *positions;
    tir_names names;
} parser;

static tir_expr find_variable(void *user, const char *name) {
    parser *p = user;
    for (int i = p->stage ? p->stage->space + p->stage->reduce - 1 : -1; i >= 0; i--)
        if (strcmp(p->stage->axis[i].name, name) == 0) return p->stage->axis[i].var;
    for (int i = 0; p->positions && i < p->positions->rank; i++)
        if (strcmp(tir_variable_of(p->region->pool, p->positions->position[i])->name, name) == 0)
            return p->positions->position[i];
    for (uint32_t i = 0; i < p->region->params.count; i++)
        if (strcmp(tir_variable_of(p->region->pool, p->region->params.data[i])->name, name) == 0)
            return p->region->params.data[i];
    return 0;
}

static bool find_tensor(void *user, const char *name, uint32_t *id, tir_dtype *dtype, int *rank) {
    parser *p = user;
    for (uint32_t i = 0; i < p->region->tensors.count; i++) {
        const tir_tensor *t = &p->region->tensors.data[i];
        if (strcmp(t->name, name) != 0) continue;
        *id = i;
        *dtype = (tir_dtype)t->dtype;
        *rank = t->rank;
        return true;
    }
    return false;
}

static uint32_t parse_tensor_name(parser *p) {
    const char *name = lib_lexer_name(p->lexer);
    uint32_t id;
    tir_dtype dtype;
    int rank;
    if (!find_tensor(p, name, &id, &dtype, &rank)) {
        lib_nearest nearest = lib_nearest_to(name);
        for (uint32_t i = 0; i < p->region->tensors.count; i++)
            lib_nearest_try(&nearest, p->region->tensors.data[i].name, strlen(p->region->tensors.data[i].name));
        lib_lexer_raise(p->lexer, "unknown tensor %s%s", name, lib_nearest_hint(&nearest));
    }
    return id;
}

static uint32_t parse_stage_name(parser *p) {
    const char *name = lib_lexer_name(p->lexer);
    for (uint32_t i = 0; i < p->region->stages.count; i++)
        if (strcmp(p->region->stages.data[i].name, name) == 0) return i;
    lib_nearest nearest = lib_nearest_to(name);
    for (uint32_t i = 0; i < p->region->stages.count; i++)
        lib_nearest_try(&nearest, p->region->stages.data[i].name, strlen(p->region->stages.data[i].name));
    lib_lexer_raise(p->lexer, "unknown stage %s%s", name, lib_nearest_hint(&nearest));
}

static tir_expr parse_expr(parser *p, tir_dtype expected) {
    return tir_parse_expr(p->region->pool, p->lexer, &p->names, expected);
}

static int parse_indices(parser *p, const char *close, int limit, tir_expr *out) {
    return tir_indices_read(p->region->pool, p->lexer, &p->names, close, limit, out);
}

static dlc_dtype parse_dtype(parser *p) {
    return (dlc_dtype)tir_dtype_read(p->lexer, false);
}

static void parse_components(parser *p, int count, const dlc_dtype *dtypes, tir_expr *out) {
    if (count == 1) {
        out[0] = parse_expr(p, (tir_dtype)dtypes[0]);
        return;
    }
    lib_lexer_expect(p->lexer, "{");
    for (int c = 0; c < count; c++) {
        if (c) lib_lexer_expect(p->lexer, ",");
        out[c] = parse_expr(p, (tir_dtype)dtypes[c]);
    }
    lib_lexer_expect(p->lexer, "}");
}

static void check_new_name(parser *p, const char *name) {
    uint32_t id;
    tir_dtype dtype;
    int rank;
    if (find_tensor(p, name, &id, &dtype, &rank)) lib_lexer_raise(p->lexer, "two tensors are called %s", name);
}

static void parse_input(parser *p) {
    tir_expr extent[DLC_MAX_RANK];
    const char *name = lib_lexer_name(p->lexer);
    check_new_name(p, name);
    dlc_dtype dtype = parse_dtype(p);
    lib_lexer_expect(p->lexer, "[");
    int rank = parse_indices(p, "]", DLC_MAX_RANK, extent);
    tir_region_input(p->region, name, dtype, rank, extent);
}

/* The text between a stage's name and its axes. */
typedef struct stage_head {
    const char *name;
    int count;
    const char *tensor[TIR_MAX_STATE];
    dlc_dtype dtype[TIR_MAX_STATE];
    int own_rank[TIR_MAX_STATE];
    tir_expr own_extent[TIR_MAX_STATE][DLC_MAX_RANK];
    bool exact, in_place;
    int32_t fold;
} stage_head;

static void parse_type(parser *p, stage_head *head) {
    int c = head->count++;
    head->dtype[c] = parse_dtype(p);
    if (lib_lexer_accept(p->lexer, "[")) head->own_rank[c] = parse_indices(p, "]", DLC_MAX_RANK, head->own_extent[c]);
}

static void parse_head(parser *p, stage_head *head) {
    head->name = lib_lexer_name(p->lexer);
    head->fold = -1;
    if (lib_lexer_accept(p->lexer, "(")) {
        do {
            if (head->count == TIR_MAX_STATE) lib_lexer_raise(p->lexer, "more than %d values", TIR_MAX_STATE);
            head->tensor[head->count] = lib_lexer_name(p->lexer);
            check_new_name(p, head->tensor[head->count]);
            lib_lexer_expect(p->lexer, ":");
            parse_type(p, head);
        } while (lib_lexer_accept(p->lexer, ","));
        lib_lexer_expect(p->lexer, ")");
    } else {
        head->tensor[0] = head->name;
        check_new_name(p, head->name);
        parse_type(p, head);
    }
    head->exact = lib_lexer_accept(p->lexer, "exact");
    head->in_place = lib_lexer_accept(p->lexer, "inplace");
    if (lib_lexer_accept(p->lexer, "in")) head->fold = (int32_t)parse_stage_name(p);
}

static tir_stage *parse_axes(parser *p, tir_stage_kind kind, const stage_head *head) {
    const char *names[TIR_MAX_AXES];
    tir_expr extents[TIR_MAX_AXES];
    int count = 0, space = -1;
    lib_lexer_expect(p->lexer, "(");
    for (;;) {
        if (space < 0 && lib_lexer_accept(p->lexer, "|")) space = count;
        if (lib_lexer_accept(p->lexer, ")")) break;
        if (count && count != space) lib_lexer_expect(p->lexer, ",");
        if (count == TIR_MAX_AXES) lib_lexer_raise(p->lexer, "more than %d axes", TIR_MAX_AXES);
        names[count] = lib_lexer_name(p->lexer);
        for (int i = 0; i < count; i++)
            if (strcmp(names[i], names[count]) == 0) lib_lexer_raise(p->lexer, "two axes are called %s", names[i]);
        lib_lexer_expect(p->lexer, ":");
        extents[count++] = parse_expr(p, TIR_INDEX);
    }
    if (space < 0) space = count;
    tir_stage *stage = tir_region_stage(p->region, kind, head->name, space, names, extents, count - space,
                                        names + space, extents + space);
    stage->name = head->name;
    stage->exact = head->exact;
    stage->in_place = head->in_place;
    stage->fold = head->fold;
    return stage;
}

/* Adds the values of a stage. A fold's next state is not known yet: its steps follow in the text. */
static void add_values(parser *p, tir_stage *stage, const stage_head *head, const tir_expr *value,
                       const tir_expr *initial, const tir_expr *merge) {
    for (int c = 0; c < head->count; c++) {
        bool is_fold = stage->kind == TIR_FOLD;
        uint32_t id = tir_stage_value(p->region, stage, is_fold ? initial[c] : value[c], initial[c], merge[c]);
        if (is_fold) stage->value[c] = 0;
        tir_tensor *t = &p->region->tensors.data[id];
        t->name = head->tensor[c];
        if (t->rank + head->own_rank[c] > DLC_MAX_RANK)
            lib_lexer_raise(p->lexer, "%s: more than %d dimensions", t->name, DLC_MAX_RANK);
        for (int d = 0; d < head->own_rank[c]; d++) t->extent[t->rank++] = head->own_extent[c][d];
        t->layout = tir_layout_identity(t->rank);
    }
}

static void parse_stage(parser *p, tir_stage_kind kind) {
    stage_head head = {0};
    tir_expr value[TIR_MAX_STATE] = {0}, initial[TIR_MAX_STATE] = {0}, merge[TIR_MAX_STATE] = {0};
    parse_head(p, &head);
    tir_stage *stage = parse_axes(p, kind, &head);
    if (stage->space > DLC_MAX_RANK) lib_lexer_raise(p->lexer, "%s: more than %d dimensions", head.name, DLC_MAX_RANK);
    p->stage = stage;
    if (kind == TIR_SORT) {
        lib_lexer_expect(p->lexer, "key");
        int64_t bits = lib_lexer_integer(p->lexer);
        if (bits < 1 || bits > 64) lib_lexer_raise(p->lexer, "%s: keys of 1 to 64 bits", head.name);
        stage->bits = (int32_t)bits;
        dlc_dtype key = bits > 32 ? DLC_I64 : DLC_I32;
        parse_components(p, 1, &key, initial);
    } else if (kind != TIR_MAP) {
        lib_lexer_expect(p->lexer, "init");
        parse_components(p, head.count, head.dtype, initial);
    }
    if (lib_lexer_accept(p->lexer, "where")) stage->predicate = parse_expr(p, DLC_BOOL);
    if (kind == TIR_SCATTER) {
        lib_lexer_expect(p->lexer, "at");
        lib_lexer_expect(p->lexer, "[");
        if (parse_indices(p, "]", DLC_MAX_RANK, stage->index) != stage->space)
            lib_lexer_raise(p->lexer, "%s needs %d indices", head.name, stage->space);
    }
    if (kind != TIR_FOLD) {
        lib_lexer_expect(p->lexer, "=");
        parse_components(p, head.count, head.dtype, value);
    }
    if (kind == TIR_REDUCE && lib_lexer_accept(p->lexer, "merge")) parse_components(p, head.count, head.dtype, merge);
    add_values(p, stage, &head, value, initial, merge);
    p->stage = NULL;
}

static void parse_next(parser *p) {
    tir_stage *stage = &p->region->stages.data[parse_stage_name(p)];
    dlc_dtype dtypes[TIR_MAX_STATE];
    if (stage->kind != TIR_FOLD) lib_lexer_raise(p->lexer, "%s is no fold", stage->name);
    for (int c = 0; c < stage->count; c++) dtypes[c] = p->region->tensors.data[stage->tensor[c]].dtype;
    p->stage = stage;
    lib_lexer_expect(p->lexer, "=");
    parse_components(p, stage->count, dtypes, stage->value);
    p->stage = NULL;
}

/* (i, j: condition) over positions in the tensor */
static void parse_nonzero(parser *p, tir_tensor *t) {
    const char *names[DLC_MAX_RANK];
    if (t->stage >= 0) lib_lexer_raise(p->lexer, "only inputs have known zeros; %s is computed", t->name);
    for (int i = 0; i < t->rank; i++) {
        lib_lexer_expect(p->lexer, i ? "," : "(");
        names[i] = lib_lexer_name(p->lexer);
        for (int k = 0; k < i; k++)
            if (strcmp(names[k], names[i]) == 0) lib_lexer_raise(p->lexer, "two axes are called %s", names[i]);
    }
    if (t->rank == 0) lib_lexer_expect(p->lexer, "(");
    lib_lexer_expect(p->lexer, ":");
    tir_region_positions(p->region, (uint32_t)(t - p->region->tensors.data), names);
    p->positions = t;
    t->nonzero = parse_expr(p, DLC_BOOL);
    p->positions = NULL;
    lib_lexer_expect(p->lexer, ")");
}

static void parse_tensor(parser *p) {
    tir_tensor *t = &p->region->tensors.data[parse_tensor_name(p)];
    for (;;) {
        if (lib_lexer_accept(p->lexer, "stride")) {
            t->has_strides = true;
            for (int i = 0; i < t->rank; i++) {
                lib_lexer_expect(p->lexer, i ? "," : "(");
                t->stride[i] = lib_lexer_integer(p->lexer);
            }
            if (t->rank == 0) lib_lexer_expect(p->lexer, "(");
            lib_lexer_expect(p->lexer, ")");
        } else if (lib_lexer_accept(p->lexer, "align")) {
            t->alignment = tir_alignment_read(p->lexer);
        } else if (lib_lexer_accept(p->lexer, "constant")) {
            t->constant = true;
        } else if (lib_lexer_accept(p->lexer, "layout")) {
            t->layout = tir_layout_parse(p->lexer, t->rank, dimension_names);
        } else if (lib_lexer_accept(p->lexer, "nonzero")) {
            parse_nonzero(p, t);
        } else {
            return;
        }
    }
}

static void parse_line(parser *p, const char *word) {
    for (int kind = TIR_MAP; kind <= TIR_SORT; kind++)
        if (strcmp(word, kind_names[kind]) == 0) {
            parse_stage(p, (tir_stage_kind)kind);
            return;
        }
    if (strcmp(word, "input") == 0)
        parse_input(p);
    else if (strcmp(word, "next") == 0)
        parse_next(p);
    else if (strcmp(word, "tensor") == 0)
        parse_tensor(p);
    else if (strcmp(word, "output") == 0)
        tir_region_output(p->region, parse_tensor_name(p));
    else
        lib_lexer_raise(p->lexer, "expected input, a kind of stage, next, tensor or output, found %s", word);
}

tir_region *tir_region_parse(lib_arena *arena, tir_pool *pool, lib_lexer *lexer) {
    if (lexer->at == lexer->start) lib_lexer_next(lexer); /* a fresh lexer has no token yet */
    lib_lexer_expect(lexer, "region");
    parser p = {.lexer = lexer, .names = {.variable = find_variable, .tensor = find_tensor, .user = &p}};
    p.region = tir_region_new(arena, pool, lib_lexer_name(lexer));
    p.region->excess_precision = lib_lexer_accept(lexer, "excess");
    if (lib_lexer_accept(lexer, "params")) {
        lib_lexer_expect(lexer, "(");
        for (bool first = true; !lib_lexer_accept(lexer, ")"); first = false) {
            if (!first) lib_lexer_expect(lexer, ",");
            const tir_expr param = tir_param_read(p.region->pool, p.lexer, false);
            lib_vec_push(p.region->arena, &p.region->params, param);
        }
    }
    while (lexer->kind == LIB_NAME && !lib_lexer_is(lexer, "region")) parse_line(&p, lib_lexer_name(lexer));
    for (uint32_t i = 0; i < p.region->stages.count; i++)
        if (p.region->stages.data[i].kind == TIR_FOLD && !p.region->stages.data[i].value[0])
            lib_lexer_raise(lexer, "the fold %s has no next", p.region->stages.data[i].name);
    return p.region;
}
