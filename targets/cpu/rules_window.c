/* Windows in register tiles: neighbouring points read windows that overlap in memory. A window without products (a maximum, a sum) is
 * latency-bound, since each step depends on the one before, so several rows are computed side by side. */
#include "targets/cpu/rules_tile.h"

/* Does one index of the load use both `axis` and `reduction`? */
static bool shares_dimension(const rules *r, const tir_stage *stage, const rules_access *access, int axis,
                             int reduction) {
    const tir_tensor *t = &r->region->tensors.data[access->tensor];
    for (int d = 0; d < t->rank; d++) {
        tir_expr subscript = tir_operand(r->region->pool, access->load, d);
        if (tir_uses(r->region->pool, subscript, stage->axis[axis].var) &&
            tir_uses(r->region->pool, subscript, stage->axis[reduction].var))
            return true;
    }
    return false;
}

bool rules_is_window(const rules *r, const tir_stage *stage, const rules_access *access, int axis, int reduction) {
    bool close = access->stride[axis] >= 1 && access->stride[axis] <= RULES_CLOSE;
    return close && shares_dimension(r, stage, access, axis, reduction);
}

static tir_expr meet_function(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    if (tir_ops[tir_op_of(pool, e)].flags & TIR_MATH) *(bool *)user = true;
    return rebuilt;
}

/* Do the readers of the windows call math functions? Those have enough independent work on several vectors of one row. */
static bool is_read_by_functions(const rules *r, int s) {
    const tir_stage *owner = &r->region->stages.data[r->group[s].owner];
    bool found = false;
    for (int c = 0; c < owner->count; c++) tir_rewrite(r->region->pool, owner->value[c], meet_function, &found);
    return found;
}

bool rules_has_window(const rules *r, int s, const rules_access *access, int count) {
    const tir_stage *stage = &r->region->stages.data[s];
    bool found = false;
    for (int i = 0; i < count; i++)
        for (int a = 0; a < stage->space; a++)
            for (int k = stage->space; k < stage->space + stage->reduce; k++)
                found = found || (access[i].stride[a] != 0 && access[i].stride[a] != RULES_IRREGULAR &&
                                  shares_dimension(r, stage, &access[i], a, k));
    return found && !is_read_by_functions(r, s);
}

bool rules_meets(const rules *r, const tir_stage *stage, int axis, tir_expr var) {
    tir_expr terms[16];
    int count = stage->predicate ? tir_conjuncts(r->region->pool, stage->predicate, terms, 16) : 0;
    for (int i = 0; i < count; i++)
        if (tir_uses(r->region->pool, terms[i], stage->axis[axis].var) && tir_uses(r->region->pool, terms[i], var))
            return true;
    return false;
}

bool rules_unrolls_step(const rules *r, const tir_stage *stage, int axis, const rules_tile_shape *t) {
    enum { LONGEST = 8 };
    const int64_t extent = rules_extent(r, &stage->axis[axis]);
    return t->u >= 0 && extent > 0 && extent <= LONGEST && rules_meets(r, stage, axis, stage->axis[t->u].var);
}

int64_t rules_window_span(const rules *r, const tir_stage *stage, int reduction, const rules_access *access, int count,
                          const rules_tile_shape *t) {
    const int64_t steps = rules_known_extent(r, &stage->axis[reduction]) - 1;
    int64_t span = 1;
    for (int i = 0; i < count; i++) {
        const int64_t step = access[i].stride[reduction], row = access[i].stride[t->u];
        if (access[i].stride[t->v] != 0 || row == 0 || row == RULES_IRREGULAR || step == RULES_IRREGULAR) continue;
        const int64_t points = steps * step / row;
        if (points >= span) span = points + 1;
    }
    return span;
}

bool rules_unroll_window(const rules *r, const tir_stage *stage, const rules_tile_shape *t) {
    enum { STEPS = 56 };
    int64_t steps = t->mr * ((t->nr + t->lanes - 1) / t->lanes);
    for (int a = stage->space; a < stage->space + stage->reduce; a++) {
        int64_t extent = rules_extent(r, &stage->axis[a]);
        if (!t->light || extent < 1 || extent > STEPS || (steps *= extent) > STEPS) return false;
    }
    for (int a = stage->space; a < stage->space + stage->reduce; a++)
        if (a != t->shared) tir_schedule_add(r->schedule, "unroll %s.%s", stage->name, stage->axis[a].name);
    return true;
}
