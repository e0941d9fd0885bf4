/* Windows in register tiles: neighbouring points read windows that overlap in memory. A window without products (a maximum, a sum) is
 * latency-bound, since each step depends on the one before, so several rows are computed side by side; so are rows of contractions that
 * share no vectors. Where the number of columns varies, the last tile needs masks for each step of the window. */
#include "targets/cpu/rules_tile.h"

bool rules_is_window(const rules *r, const tir_stage *stage, const rules_access *access, int axis, int reduction) {
    bool close = access->stride[axis] >= 1 && access->stride[axis] <= RULES_CLOSE;
    return close && tir_shares_dimension(r->region, stage, access, axis, reduction);
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
                found = found || (access[i].stride[a] != 0 && rules_is_linear(r, stage, &access[i], a) &&
                                  tir_shares_dimension(r->region, stage, &access[i], a, k));
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

/* ---- separate rows */

int rules_separate_axis(const rules *r, const tir_stage *stage, int v, bool heavy, const rules_access *access,
                        int count) {
    for (int a = stage->space - 1; a >= 0; a--) {
        bool regular = a != v && rules_known_extent(r, &stage->axis[a]) > 1, shares = !heavy;
        for (int i = 0; i < count; i++) {
            regular = regular && rules_is_linear(r, stage, &access[i], a);
            shares = shares || access[i].stride[a] == 0;
        }
        if (regular && shares) return a;
    }
    return -1;
}

static bool is_multiple(int64_t stride, int64_t lanes) {
    return stride != RULES_IRREGULAR && stride % lanes == 0;
}

/* Distances of neighbouring rows and of neighbouring steps of a window along axis `a`, of rows whose distance varies as multiples of it.
 * False: unknown. */
static bool window_distances(const rules *r, const tir_stage *stage, const rules_access *access, int u, int a,
                             int64_t *rows, int64_t *step) {
    *rows = access->stride[u];
    *step = access->stride[a];
    if (*rows == RULES_IRREGULAR && *step == RULES_IRREGULAR && rules_is_linear(r, stage, access, u)) {
        const int dimension = rules_dimension_of(r, access, stage->axis[u].var, rows);
        if (dimension != rules_dimension_of(r, access, stage->axis[a].var, step)) return false;
    }
    return *rows > 0 && *rows != RULES_IRREGULAR && *step > 0 && *step != RULES_IRREGULAR;
}

int rules_shared_axis(const rules *r, const tir_stage *stage, const rules_tile_shape *t, const rules_access *access,
                      int count, rules_tile_problem *p) {
    enum { LONGEST = 8, SOME = 4 };
    int best = -1;
    int64_t line = r->machine->line;
    for (int i = 0; i < count; i++) {
        int64_t rows, step, lanes = t->lanes;
        if (access[i].stride[t->v] == 0 || access[i].stride[t->u] == 0) continue;
        bool straight = is_multiple(access[i].stride[t->u], lanes);
        for (int a = stage->space; a < stage->space + stage->reduce; a++) {
            const int64_t extent = rules_known_extent(r, &stage->axis[a]);
            straight = straight && is_multiple(access[i].stride[a], lanes);
            if (extent < 2 || extent > LONGEST) continue;
            if (!window_distances(r, stage, &access[i], t->u, a, &rows, &step)) continue;
            if (rows % step && step % rows) continue;
            rules_tile_problem window = {.window = extent, .row_step = rows, .window_step = step};
            double read = rules_window_rows(&window, SOME) / (double)extent;
            if (read >= (double)SOME || (best >= 0 && read >= rules_window_rows(p, SOME) / (double)p->window)) continue;
            p->window = extent, p->row_step = rows, p->window_step = step;
            best = a;
        }
        if (!straight) p->lines_per_load = 1 + (double)r->machine->vector_bytes / (double)line;
    }
    return best;
}

/* ---- masks */

/* Is `a` a reduction axis of a window that slides along v? Sets *stride to the distance of neighbouring windows. */
static bool slides_along(const rules *r, const tir_stage *stage, int v, int a, const rules_access *access, int count,
                         int64_t *stride) {
    for (int i = 0; i < count; i++) {
        if (!rules_is_window(r, stage, &access[i], v, a)) continue;
        *stride = access[i].stride[v];
        return true;
    }
    return false;
}

double rules_mask_cycles(const rules *r, const tir_stage *stage, int v, const rules_access *access, int count) {
    double cycles = 1.5, others = 1;
    int64_t stride = 0;
    for (int a = stage->space; a < stage->space + stage->reduce; a++)
        if (!slides_along(r, stage, v, a, access, count, &stride) && rules_extent(r, &stage->axis[v]) < 0)
            others *= (double)rules_known_extent(r, &stage->axis[a]);
    return cycles * (double)stride / others;
}

/* Are there so few rows that masks of a step cost more than its products? */
static bool has_few_rows(const rules_tile_shape *t) {
    enum { FEW = 4 };
    return t->u < 0 || t->separate || t->mr <= FEW;
}

bool rules_edges_cost(const rules *r, const tir_stage *stage, const rules_tile_shape *t) {
    const int64_t n = rules_extent(r, &stage->axis[t->v]), least = has_few_rows(t) || !r->machine->masked ? 2 : 3;
    if (t->separate && !r->machine->masked) return false; /* its steps are unrolled: more versions of them cost more */
    return n >= least * t->nr && n % t->nr == 0;
}

uint32_t rules_masking_axes(rules *r, int s, const rules_tile_shape *t) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    uint32_t axes = 0;
    double bytes = (double)lib_dtype_size(r->region->tensors.data[stage->tensor[0]].dtype) * (double)t->nr;
    if (rules_extent(r, &stage->axis[t->v]) >= 0 || !has_few_rows(t)) return 0;
    for (int a = stage->space; a < stage->space + stage->reduce; a++) {
        int64_t stride = 1;
        if (slides_along(r, stage, t->v, a, access, count, &stride))
            axes |= 1u << a;
        else
            bytes *= (double)rules_known_extent(r, &stage->axis[a]);
        bytes *= (double)stride;
    }
    return bytes <= (double)r->machine->l1 / 2 ? axes : 0;
}
