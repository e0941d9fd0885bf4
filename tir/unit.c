/* The table of units, and the stages that they implement. */
#include "tir/unit.h"
#include "tir/access.h"

static const tir_unit units[] = {
#define X(name, op, width, left, right, sum, machine, deviations) \
    {name, op, width, left, right, sum, machine, deviations},
    TIR_UNIT_TABLE(X)
#undef X
};

const tir_unit *tir_unit_find(const char *name) {
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(units[i].name, name) == 0) return &units[i];
    return NULL;
}

static tir_expr widened(const tir_unit *unit, const tir_pool *pool, tir_expr e, tir_dtype from) {
    if (tir_op_of(pool, e) != TIR_CAST || tir_dtype_of(pool, e) != unit->sum) return 0;
    tir_expr narrow = tir_operand(pool, e, 0);
    return tir_dtype_of(pool, narrow) == from ? narrow : 0;
}

bool tir_unit_match(const tir_unit *unit, const tir_pool *pool, const tir_stage *stage, tir_expr *left,
                    tir_expr *right) {
    tir_expr factor[2];
    if (!tir_sum_of_products(pool, stage, &factor[0], &factor[1])) return false;
    for (int swap = 0; swap < 2; swap++) {
        *left = widened(unit, pool, factor[swap], unit->left);
        *right = widened(unit, pool, factor[1 - swap], unit->right);
        if (*left && *right) return true;
    }
    return false;
}

static const tir_unit *find(int32_t machine, const tir_pool *pool, const tir_stage *stage, bool warp) {
    tir_expr left, right;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if ((units[i].machine & machine) && (units[i].width == 0) == warp &&
            tir_unit_match(&units[i], pool, stage, &left, &right))
            return &units[i];
    return NULL;
}

const tir_unit *tir_unit_for(int32_t machine, const tir_pool *pool, const tir_stage *stage) {
    return find(machine, pool, stage, false);
}

const tir_unit *tir_unit_of_warp(int32_t machine, const tir_pool *pool, const tir_stage *stage) {
    return find(machine, pool, stage, true);
}
