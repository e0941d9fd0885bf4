/* Look-up of units, the stages that they implement, and arithmetic on the bit maps of their fragments. */
#include "tir/unit.h"
#include "tir/access.h"

const tir_unit *tir_unit_find(const tir_unit *units, const char *name) {
    for (const tir_unit *unit = units; unit && unit->name; unit++)
        if (strcmp(unit->name, name) == 0) return unit;
    return NULL;
}

/* Can the unit's operand be of the dtype? Bytes are widened to 16 bits for a unit that is an operator. */
static bool takes(const tir_unit *unit, int place, tir_dtype dtype) {
    const tir_dtype own = unit->place[place].dtype;
    return dtype == own || (unit->executor == TIR_BY_THREAD && own == (tir_dtype)DLC_I16 &&
                            (dtype == (tir_dtype)DLC_I8 || dtype == (tir_dtype)DLC_U8));
}

bool tir_machine_multiplies(const tir_machine *machine, tir_dtype left, tir_dtype right, tir_dtype sum) {
    for (const tir_unit *unit = machine->units; unit && unit->name; unit++)
        if (tir_machine_has(machine, unit) && unit->kind == TIR_MULTIPLY && unit->place[0].dtype == sum &&
            takes(unit, 1, left) && takes(unit, 2, right))
            return true;
    return false;
}

static tir_expr widened(const tir_unit *unit, const tir_pool *pool, tir_expr e, int place) {
    if (tir_op_of(pool, e) != TIR_CAST || tir_dtype_of(pool, e) != unit->place[0].dtype) return 0;
    tir_expr narrow = tir_operand(pool, e, 0);
    return takes(unit, place, tir_dtype_of(pool, narrow)) ? narrow : 0;
}

bool tir_unit_match(const tir_unit *unit, const tir_pool *pool, const tir_stage *stage, tir_expr *left,
                    tir_expr *right) {
    tir_expr factor[2];
    if (unit->kind != TIR_MULTIPLY || !tir_sum_of_products(pool, stage, &factor[0], &factor[1])) return false;
    for (int swap = 0; swap < 2; swap++) {
        *left = widened(unit, pool, factor[swap], 1);
        *right = widened(unit, pool, factor[1 - swap], 2);
        if (*left && *right) return true;
    }
    return false;
}

const tir_unit *tir_unit_for(const tir_machine *machine, tir_executor executor, const tir_pool *pool,
                             const tir_stage *stage) {
    tir_expr left, right;
    for (const tir_unit *unit = machine->units; unit && unit->name; unit++)
        if (tir_machine_has(machine, unit) && unit->executor == executor &&
            tir_unit_match(unit, pool, stage, &left, &right))
            return unit;
    return NULL;
}

/* ---- fragments */

/* Bits of variable v of a place, none if its elements do not depend on v. */
static int bits_of(const tir_unit *unit, int place, int v) {
    return unit->place[place].uses >> v & 1 ? unit->bits[v] : 0;
}

/* Bits of the point that map to lane bits (first 0) or register bits (first TIR_REGISTER_BIT). */
static int gather(const tir_unit *unit, int place, const int *point, int first) {
    int result = 0;
    for (int v = 0; v < TIR_UNIT_VARS; v++)
        for (int b = 0; b < bits_of(unit, place, v); b++) {
            int to = unit->place[place].bit[v][b];
            if ((to >= TIR_REGISTER_BIT) == (first > 0)) result |= (point[v] >> b & 1) << (to - first);
        }
    return result;
}

int tir_fragment_lane(const tir_unit *unit, int place, const int *point) {
    return gather(unit, place, point, 0);
}

int tir_fragment_register(const tir_unit *unit, int place, const int *point) {
    return gather(unit, place, point, TIR_REGISTER_BIT);
}

/* gather as an expression: neighbouring bits that map to neighbouring bits are one term. */
static tir_expr gather_of(tir_pool *pool, const tir_unit *unit, int place, const tir_expr *var, int first) {
    tir_expr result = tir_index(pool, 0);
    for (int v = 0; v < TIR_UNIT_VARS; v++) {
        const uint8_t *bit = unit->place[place].bit[v];
        const int count = bits_of(unit, place, v);
        for (int b = 0, next; b < count; b = next) {
            for (next = b + 1; next < count && bit[next] == bit[next - 1] + 1 && bit[next] != TIR_REGISTER_BIT;) next++;
            if ((bit[b] >= TIR_REGISTER_BIT) != (first > 0)) continue;
            tir_expr part = tir_div(pool, var[v], tir_index(pool, INT64_C(1) << b));
            if (next < count) part = tir_rem(pool, part, tir_index(pool, INT64_C(1) << (next - b)));
            result = tir_add(pool, result, tir_mul(pool, part, tir_index(pool, INT64_C(1) << (bit[b] - first))));
        }
    }
    return result;
}

tir_expr tir_fragment_lane_of(tir_pool *pool, const tir_unit *unit, int place, const tir_expr *var) {
    return gather_of(pool, unit, place, var, 0);
}

tir_expr tir_fragment_register_of(tir_pool *pool, const tir_unit *unit, int place, const tir_expr *var) {
    return gather_of(pool, unit, place, var, TIR_REGISTER_BIT);
}

void tir_fragment_point(const tir_unit *unit, int place, int lane, int number, int *point) {
    for (int v = 0; v < TIR_UNIT_VARS; v++) {
        point[v] = 0;
        for (int b = 0; b < bits_of(unit, place, v); b++) {
            int from = unit->place[place].bit[v][b];
            int bit = from >= TIR_REGISTER_BIT ? number >> (from - TIR_REGISTER_BIT) : lane >> from;
            point[v] |= (bit & 1) << b;
        }
    }
}

int tir_fragment_registers(const tir_unit *unit, int place) {
    int elements = 1;
    for (int v = 0; v < TIR_UNIT_VARS; v++) elements <<= bits_of(unit, place, v);
    return elements / unit->lanes;
}
