/* Sums along columns beside rows: a root goes through rows (the derivative of a norm by its input), and reductions of the same region sum, along
 * the columns, what these rows are computed from or what the root makes of them (the derivatives by scale and bias). The root's rows are cut into
 * chunks, its tasks; in a chunk the sums run beside the root's loop (`beside`), row by row, into one row of results per chunk that stays in L1.
 * So each row is read from memory once. The number of chunks depends on sizes alone, so that results do not depend on threads.
 *
 * rules_prepare_beside makes the partial sums; the family that schedules the root cuts its rows (rules_cut_rows) and writes the sums' loops
 * (rules_write_beside). If it does not, the sums have loops of their own. */
#include "targets/cpu/rules.h"

enum { VECTORS = 4 /* of columns, together */ };

/* By stage: does stage `last` depend on it? */
static bool *needed_by(rules *r, int last) {
    bool *needed = LIB_NEW_ARRAY(r->arena, bool, r->region->stages.count + 1);
    needed[last] = true;
    for (bool more = true; more;) {
        more = false;
        for (int s = 0; s < (int)r->region->stages.count; s++)
            for (int q = 0; q < (int)r->region->stages.count && !needed[s]; q++)
                if (needed[q] && !r->region->stages.data[q].removed && tir_reads(r->region, q, s))
                    needed[s] = more = true;
    }
    return needed;
}

/* Does the root make the tensor, its axis of rows being dimension `dim`, or a stage in its loops read it there row by row? */
static bool passes_through(rules *r, int root, int axis, uint32_t tensor, int dim) {
    rules_access access[RULES_ACCESSES];
    if (r->region->tensors.data[tensor].stage == root) return dim == axis;
    for (int s = 0; s < (int)r->region->stages.count; s++) {
        if (r->region->stages.data[s].removed || r->group[s].root != root) continue;
        const int count = rules_accesses(r, s, access, RULES_ACCESSES), row = rules_axis_labelled(r, s, axis);
        for (int i = 0; i < count && row >= 0; i++)
            if (access[i].tensor == tensor &&
                tir_operand(r->region->pool, access[i].load, dim) == r->region->stages.data[s].axis[row].var)
                return true;
    }
    return false;
}

/* The first axis of several points of a root that goes through rows; -1: the stage is no such root. */
static int axis_of_rows(const rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    if (stage->removed || stage->kind != TIR_MAP || stage->fold >= 0 || r->group[s].root != s) return -1;
    if (rules_role_of(r, s) != RULES_NO_PART) return -1;
    for (int a = 0; a + 1 < stage->space; a++)
        if (rules_extent(r, &stage->axis[a]) != 1) return a;
    return -1;
}

/* The dimension that the sum's rows alone index; -1: none. */
static int dimension_of_rows(const rules *r, const tir_stage *sum, const rules_access *access) {
    const tir_tensor *tensor = &r->region->tensors.data[access->tensor];
    for (int d = 0; d < tensor->rank; d++)
        if (tir_operand(r->region->pool, access->load, d) == sum->axis[sum->space].var) return d;
    return -1;
}

/* Can the sum, in the root's loops, read the values of stage `maker`? Those of the root itself, which the iteration has just computed; and those
 * of a stage that is computed before these loops, as it depends neither on the root nor on a sum beside the root. */
static bool comes_in_time(rules *r, int maker, int root) {
    const bool *needed = needed_by(r, maker);
    const rules_beside *beside = rules_sums_beside(r, root);
    bool late = needed[root];
    for (uint32_t i = 0; beside && i < beside->sums.count; i++)
        late = late || needed[rules_stage_named(r, beside->sums.data[i].stage)];
    return maker == root || !late;
}

/* Does the sum read, of a value with as many elements as it has points, one that passes through the root's loops row by row, and nothing that other
 * stages compute there, or later? */
static bool shares_rows(rules *r, int s, int root, int axis) {
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    const tir_stage *stage = &r->region->stages.data[s];
    bool shares = false;
    for (int i = 0; i < count; i++) {
        const int maker = r->region->tensors.data[access[i].tensor].stage,
                  dim = dimension_of_rows(r, stage, &access[i]);
        bool whole = true;
        for (int a = 0; a < stage->space + stage->reduce; a++)
            whole = whole && (access[i].stride[a] != 0 || rules_extent(r, &stage->axis[a]) == 1);
        const bool passes = dim >= 0 && passes_through(r, root, axis, access[i].tensor, dim);
        if (maker >= 0 && maker != root && r->group[maker].root == root) return false;
        if (maker >= 0 && ((maker == root && !passes) || !comes_in_time(r, maker, root))) return false;
        shares = shares || (whole && passes);
    }
    return shares;
}

/* The root through whose rows the sum s may go; -1: none. */
static int root_beside(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    const int64_t rows = rules_extent(r, &stage->axis[stage->space]);
    for (int root = 0; root < (int)r->region->stages.count; root++) {
        const int axis = axis_of_rows(r, root);
        if (axis < 0 || rules_extent(r, &r->region->stages.data[root].axis[axis]) != rows) continue;
        if (!needed_by(r, root)[s] && shares_rows(r, s, root, axis)) return root;
    }
    return -1;
}

rules_beside *rules_sums_beside(rules *r, int root) {
    for (uint32_t i = 0; i < r->beside.count; i++)
        if (rules_stage_named(r, r->beside.data[i].root) == root) return &r->beside.data[i];
    return NULL;
}

bool rules_prepare_beside(rules *r, int s, int v, int64_t groups) {
    const tir_stage *stage = &r->region->stages.data[s];
    if (stage->reduce != 1 || stage->space + 1 > DLC_MAX_RANK || groups < 1) return false;
    const int root = root_beside(r, s);
    if (root < 0) return false;
    const tir_stage *top = &r->region->stages.data[root];
    const int64_t rows = rules_extent(r, &stage->axis[stage->space]);
    rules_beside *beside = rules_sums_beside(r, root);
    if (!tir_choose_yes(r->schedule, stage->name, "beside", true)) return false;
    if (!beside) {
        rules_beside new = {.root = top->name, .axis = axis_of_rows(r, root)};
        new.rows = (rows + groups - 1) / groups;
        groups = (rows + new.rows - 1) / new.rows;
        new.rows =
            (rows + groups - 1) / groups; /* so that these groups have one number of rows, but for the last one */
        lib_vec_push(r->arena, &r->beside, new);
        beside = &r->beside.data[r->beside.count - 1];
    }
    const int64_t chunks = (rows + beside->rows - 1) / beside->rows;
    const char *name = stage->name, *part = rules_fresh_name(r, name, "_c");
    lib_text layout;
    lib_text_init(&layout, r->arena);
    for (int a = 0; a < stage->space; a++)
        if (a != v) lib_text_format(&layout, "%s, ", stage->axis[a].name);
    lib_text_format(&layout, "chunk, %s", stage->axis[v].name);
    lib_vec_push(r->arena, &beside->sums, ((rules_prepared){part, v}));
    rules_set_role(r, name, RULES_WHOLE);
    rules_set_role(r, part, RULES_BESIDE);
    rules_rewrite(r, "rfactor %s.%s %lld chunks -> %s chunk line", name, stage->axis[stage->space].name,
                  (long long)chunks, part);
    const tir_stage *partial = &r->region->stages.data[rules_stage_named(r, part)];
    rules_rewrite(r, "layout %s (%s)", r->region->tensors.data[partial->tensor[0]].name, layout.data);
    return true;
}

void rules_cut_rows(rules *r, const rules_beside *beside) {
    const tir_stage *top = &r->region->stages.data[rules_stage_named(r, beside->root)];
    const int64_t rows = rules_extent(r, &top->axis[beside->axis]);
    tir_schedule_add(r->schedule, "split %s.%s %lld -> chunk line %s", top->name, top->axis[beside->axis].name,
                     (long long)beside->rows, rows % beside->rows ? "peel" : "mask");
}

/* Cuts the columns v of stage s into vectors. */
static void split_columns(rules *r, int s, int v) {
    const tir_stage *stage = &r->region->stages.data[s];
    const int64_t columns = rules_extent(r, &stage->axis[v]), width = rules_lanes(r, s) * VECTORS;
    tir_schedule_add(r->schedule, "split %s.%s %lld -> v_o v_i %s", stage->name, stage->axis[v].name, (long long)width,
                     columns < 0 || columns % width ? "peel" : "mask");
    tir_schedule_add(r->schedule, "vec %s.v_i", stage->name);
}

/* Writes the loops of partial sums s along the columns v, the order of the inner ones as `inner` says; `block` rows are unrolled. */
static void write_loops(rules *r, int s, int v, int64_t block, const char *inner) {
    const tir_stage *stage = &r->region->stages.data[s];
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int a = 0; a < stage->space; a++)
        if (a != v) lib_text_format(&order, " %s", stage->axis[a].name);
    split_columns(r, s, v);
    tir_schedule_add(r->schedule, "order %s:%s %s", stage->name, order.data, inner);
    if (block > 1) tir_schedule_add(r->schedule, "unroll %s.line", stage->name);
}

void rules_write_beside(rules *r, rules_beside *beside, const char *loop, int64_t block) {
    for (uint32_t i = 0; i < beside->sums.count; i++) {
        const rules_prepared *sum = &beside->sums.data[i];
        tir_schedule_add(r->schedule, "beside %s %s.%s by chunk=chunk line=line", sum->stage, beside->root, loop);
        write_loops(r, rules_stage_named(r, sum->stage), sum->axis, block, "v_o line v_i");
    }
    beside->written = true;
}

bool rules_map_beside(rules *r, int root) {
    const tir_stage *top = &r->region->stages.data[root];
    rules_beside *beside = rules_sums_beside(r, root);
    rules_access access[RULES_ACCESSES];
    const int v = top->space - 1, count = beside ? rules_accesses(r, root, access, RULES_ACCESSES) : 0;
    if (!beside || beside->axis >= v || rules_store_stride(r, root, v) != 1) return false;
    for (int i = 0; i < count; i++)
        if (access[i].stride[v] != 0 && access[i].stride[v] != 1) return false;
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int a = 0; a < v; a++) lib_text_format(&order, " %s", a == beside->axis ? "line" : top->axis[a].name);
    rules_cut_rows(r, beside);
    split_columns(r, root, v);
    tir_schedule_add(r->schedule, "order %s: chunk%s v_o v_i", top->name, order.data);
    tir_schedule_add(r->schedule, "par %s.chunk", top->name);
    rules_write_beside(r, beside, "line", 1);
    return true;
}

/* Partial sums that no family has taken beside its root are roots themselves. */
void rules_sum_alone(rules *r) {
    for (uint32_t i = 0; i < r->beside.count; i++)
        for (uint32_t k = 0; k < r->beside.data[i].sums.count && !r->beside.data[i].written; k++) {
            const rules_prepared *sum = &r->beside.data[i].sums.data[k];
            write_loops(r, rules_stage_named(r, sum->stage), sum->axis, 1, "line v_o v_i");
            tir_schedule_add(r->schedule, "par %s.chunk", sum->stage);
        }
}
