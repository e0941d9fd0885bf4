/* Epilogues across the lanes of a register tile. The sums of a tile have vectors along one axis (v), but what the maps around the
 * contraction load and store may be contiguous along the other one (u): channels in lanes, images row-major. A single result is transposed
 * as it is stored. With several results, or a residual, each would be transposed, and loads across lanes are gathers. Then a copy of the
 * sums, transposed, is kept in a few lines of L1, and the maps run in vectors along u: one transposition serves them all. */
#include "targets/cpu/rules_tile.h"

/* What the maps around a contraction access in memory. */
typedef struct epilogue {
    /* results, and operands, that are contiguous along u, across the lanes */
    int results, operands;
    /* an access is better in vectors along v */
    bool along_v;
} epilogue;

static void count_operands(rules *r, int s, int v, int u, epilogue *found) {
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    found->along_v |= count == RULES_ACCESSES;
    for (int i = 0; i < count; i++) {
        const tir_tensor *tensor = &r->region->tensors.data[access[i].tensor];
        const int64_t across = access[i].stride[v], along = access[i].stride[u];
        if (tensor->stage >= 0 && r->group[tensor->stage].root == r->group[s].root) continue; /* within the tile */
        if (across == 0 || along == 0) continue; /* a broadcast, whichever axis vectors run along */
        const bool moved = along == 1 && tir_layout_is_identity(&tensor->layout);
        found->operands += moved;
        found->along_v |= !moved;
    }
}

static void count_results(rules *r, int s, int v, int u, epilogue *found) {
    const tir_stage *stage = &r->region->stages.data[s];
    if (!tir_has_output(r->region, s) && r->group[s].root != s) return;
    found->along_v |= rules_stores_vectors(r, s, v) || !rules_stores_vectors(r, s, u);
    found->results += stage->count;
}

/* Axes of the tile that both the contraction and the stage have. */
static void count_stage(rules *r, int s, int v_label, int u_label, epilogue *found) {
    const bool root = r->group[s].root == s;
    const int v = root ? v_label : rules_axis_labelled(r, s, v_label);
    const int u = root ? u_label : rules_axis_labelled(r, s, u_label);
    found->along_v |= v < 0 || u < 0;
    if (v < 0 || u < 0) return;
    count_operands(r, s, v, u, found);
    count_results(r, s, v, u, found);
}

int rules_crossings(rules *r, int s, const rules_tile_shape *t) {
    if (!rules_is_contraction(r, s) || rules_role_of(r, s) != RULES_NO_PART || t->u < 0) return 0;
    const int root = r->group[s].root, v = r->group[s].label[t->v], u = r->group[s].label[t->u];
    if (root == s || !rules_simple_group(r, s)) return 0;
    epilogue found = {0};
    for (int q = 0; q <= root; q++)
        if (q != s && !r->region->stages.data[q].removed && r->group[q].root == root) count_stage(r, q, v, u, &found);
    return found.along_v || found.results + found.operands < 2 ? 0 : found.results + found.operands;
}

int rules_transposed_copy(const rules *r, int owner) {
    for (int s = 0; s < owner; s++)
        if (!r->region->stages.data[s].removed && r->group[s].owner == owner && rules_role_of(r, s) == RULES_TRANSPOSED)
            return s;
    return -1;
}

void rules_prepare_transposed(rules *r, int s, const rules_tile_shape *t) {
    if (rules_transposed_copy(r, r->group[s].root) >= 0)
        return; /* rewrites renumbered the stages, and this one comes again */
    const char *name = r->region->stages.data[s].name, *copy = rules_fresh_name(r, name, "_t");
    rules_set_role(r, copy, RULES_TRANSPOSED);
    rules_rewrite(r, "copy %s -> %s", name, copy);
    const tir_stage *stage = &r->region->stages.data[rules_stage_named(r, copy)];
    const char *others = tir_dimensions_but(r->arena, stage, tir_axis_bit(t->u) | tir_axis_bit(t->v));
    rules_rewrite(r, "layout %s (%s%s, %s)", copy, others, stage->axis[t->v].name, stage->axis[t->u].name);
}

/* The loops of a stage in the tile: one-iteration axes first. */
static void order_loops(rules *r, const tir_stage *stage, int slow, int fast) {
    const char *others = tir_loops_but(r->arena, stage, tir_axis_bit(slow) | tir_axis_bit(fast));
    tir_schedule_add(r->schedule, "order %s:%s %s %s", stage->name, others, stage->axis[slow].name,
                     stage->axis[fast].name);
    tir_schedule_add(r->schedule, "vec %s.%s", stage->name, stage->axis[fast].name);
}

void rules_attach_transposed(rules *r, int s, const char *owner, const char *tile_loop, const char *row_loop,
                             int v_label, int u_label) {
    const tir_stage *stage = &r->region->stages.data[s];
    const int v = rules_axis_labelled(r, s, v_label), u = rules_axis_labelled(r, s, u_label);
    const bool copy = rules_role_of(r, s) == RULES_TRANSPOSED;
    tir_schedule_add(r->schedule, "at %s %s.%s", stage->name, owner, copy ? tile_loop : row_loop);
    tir_schedule_add(r->schedule, "store %s %s", stage->name, copy ? "stack" : "reg");
    order_loops(r, stage, copy ? u : v, copy ? v : u);
    if (copy) tir_schedule_add(r->schedule, "unroll %s.%s", stage->name, stage->axis[u].name);
}
