/* Units: what machines have to sum products of many elements at once, and to load their operands; one row each. The rows belong to targets
 * (targets/<name>/units.h), and a tir_machine names its target's rows. A row says what the unit computes and which thread holds which
 * element, bit by bit, since every such map is a permutation of bits. The interpreter executes all units by their rows. */
#ifndef TIR_UNIT_H
#define TIR_UNIT_H

#include "tir/expr.h"
#include "tir/machine.h"

/* A unit's variables i, j, k (or q, r, c), and its places: result and operands. At most: bits of a variable, elements of a place. */
enum { TIR_UNIT_VARS = 3, TIR_UNIT_PLACES = 3, TIR_UNIT_BITS = 6, TIR_UNIT_ELEMENTS = 1024 };

/* TIR_MULTIPLY       for all i, j: C(i, j) += sum over k of A(i, k) * B(k, j). By a thread: as its operator defines. By a collective
 *                    statement: C(i, j) = f32(C(i, j) + sum over k, ascending), the sum in f64, rounded once; hardware sums in its own order
 *                    and width, which a schedule must name as a deviation.
 * TIR_LOAD_MATRICES  for all q, r, c: F(q, r, c) = S(q, r, c): moves matrices q with rows r out of shared memory. */
typedef enum tir_unit_kind { TIR_MULTIPLY, TIR_LOAD_MATRICES } tir_unit_kind;

/* Who executes a unit. */
typedef enum tir_executor {
    TIR_BY_THREAD, /* a thread, or each lane of a vector: an operator of loop IR */
    TIR_BY_WARP,   /* several threads that run in lockstep: a collective statement */
    TIR_BY_CORE    /* one thread, with all elements in registers of its core: a collective statement */
} tir_executor;

/* Where the elements (v0, v1, v2) of a place are. Bit b of variable v is bit `bit[v][b]` of the number of the lane that holds the element,
 * or, from TIR_REGISTER_BIT up, of the element's number within its lane. A unit by a thread has nothing but dtypes here. */
enum { TIR_REGISTER_BIT = 8 };
typedef struct tir_fragment {
    /* TIR_INDEX: any dtype of two bytes, the same in all places */
    tir_dtype dtype;
    /* in shared memory: rows along the last variable, contiguous and aligned to their size; `bit` is not read */
    bool memory;
    /* bit v: the element depends on variable v */
    uint8_t uses;
    uint8_t bit[TIR_UNIT_VARS][TIR_UNIT_BITS];
} tir_fragment;

typedef struct tir_unit {
    const char *name;
    tir_unit_kind kind;
    tir_executor executor;
    /* threads that execute it together */
    int lanes;
    /* bits of tir_machine.unit_bits: machines with any of them have the unit */
    int32_t machines;
    /* TIR_BY_THREAD: of acc, a0, b0, a1, b1, ..; else TIR_CONST */
    tir_op op;
    /* TIR_MULTIPLY: deviations from the sum of products that a schedule must name. "assoc": order and rounding of the sums; "ftz": denormals
     * are flushed to 0 */
    const char *deviations;
    /* number of places; place 0 is written, and by TIR_MULTIPLY also read; then A and B, or S */
    int places;
    /* of each variable: it runs over 0 .. 2^bits - 1 */
    int8_t bits[TIR_UNIT_VARS];
    /* usual names of the variables */
    const char *var[TIR_UNIT_VARS];
    tir_fragment place[TIR_UNIT_PLACES];
} tir_unit;

/* units: a target's rows, up to one without a name; NULL: no rows. NULL: there is no such row. */
const tir_unit *tir_unit_find(const tir_unit *units, const char *name);

static inline bool tir_machine_has(const tir_machine *machine, const tir_unit *unit) {
    return machine->unit_bits & unit->machines;
}
/* Has the machine a unit that sums products of these dtypes? */
bool tir_machine_multiplies(const tir_machine *machine, tir_dtype left, tir_dtype right, tir_dtype sum);

/* The machine's first unit of this executor that implements the stage's update; NULL: none. */
struct tir_stage;
const tir_unit *tir_unit_for(const tir_machine *machine, tir_executor executor, const tir_pool *pool,
                             const struct tir_stage *stage);
/* Whether the stage's update is  acc + cast(left)*cast(right)  with operands of the unit's dtypes, or with bytes, for an operator of 16 bits. */
bool tir_unit_match(const tir_unit *unit, const tir_pool *pool, const struct tir_stage *stage, tir_expr *left,
                    tir_expr *right);

/* Is the unit a collective statement? */
static inline bool tir_unit_is_collective(const tir_unit *unit) {
    return unit->executor != TIR_BY_THREAD;
}
/* Products that the unit adds to each sum at once. */
static inline int tir_unit_width(const tir_unit *unit) {
    return 1 << unit->bits[TIR_UNIT_VARS - 1];
}

/* _lane: the lane that holds an element; _register: the element's number within that lane. `point`: values of the variables. */
int tir_fragment_lane(const tir_unit *unit, int place, const int *point);
int tir_fragment_register(const tir_unit *unit, int place, const int *point);
/* The same as expressions of the variables. */
tir_expr tir_fragment_lane_of(tir_pool *pool, const tir_unit *unit, int place, const tir_expr *var);
tir_expr tir_fragment_register_of(tir_pool *pool, const tir_unit *unit, int place, const tir_expr *var);
/* The point of element `number` of a lane; the inverse of both. */
void tir_fragment_point(const tir_unit *unit, int place, int lane, int number, int *point);
int tir_fragment_registers(const tir_unit *unit, int place); /* elements that a lane holds */

#endif
