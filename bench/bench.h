/* Declarations shared by the benchmark. A case is one line of text (shapes.txt, variants.txt, default.txt): a kind, a name and
 * parameters; a builder (cases.c) turns it into a graph and its operands; contestants (libdlc, peers, a roof) run it in turns
 * (measure.c); peers are plug-ins, loaded if they could be built (peer_*.c). Times are seconds, sizes are bytes. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "bench/stats.h"

#include <dlc/types.h>
#include <stdio.h>

/* ---- a case as text: shape.c ---------------------------------------------------------------------------------------- */

enum { BENCH_MAX_PARAMETERS = 16, BENCH_MAX_OPERANDS = 512, BENCH_MAX_RESULTS = 512, BENCH_MAX_PEERS = 12 };

typedef struct bench_shape {
    /* the line, single spaces: the name of the case */
    char text[192];
    /* the case's label in tables, without default parameters */
    char label[100];
    char kind[16];
    /* family or operator: the words between the kind and the first parameter */
    char name[40];
    int count;
    struct {
        char key[16];
        /* "" for a flag such as causal */
        char value[48];
    } parameters[BENCH_MAX_PARAMETERS];
} bench_shape;

/* False for comments, empty lines and lines too long. */
bool bench_shape_parse(bench_shape *shape, const char *line);
/* NULL when absent. */
const char *bench_text(const bench_shape *shape, const char *key);
int64_t bench_number(const bench_shape *shape, const char *key, int64_t otherwise);
bool bench_flag(const bench_shape *shape, const char *key);
/* Reads numbers that are separated by any other characters ("8x64x56", "0,2,3"); returns their count. */
int bench_numbers(const char *text, int64_t numbers[DLC_MAX_RANK]);

/* ---- a case as tensors ------------------------------------------------------------------------------------------------ */

typedef struct bench_operand {
    dlc_dtype dtype;
    int rank;
    int64_t dims[DLC_MAX_RANK];
    /* weights: known before the first run */
    bool constant;
    /* compact row-major */
    void *data;
    size_t bytes;
    /* values are spread over [low, high) */
    double low, high;
} bench_operand;

typedef struct bench_problem {
    const bench_shape *shape;
    int operand_count, result_count;
    /* both in the order in which the builder declares them */
    bench_operand operands[BENCH_MAX_OPERANDS];
    bench_operand results[BENCH_MAX_RESULTS];
    /* arithmetic of a call; 0: the case is bound by memory */
    double flops;
    /* minimum of bytes that a call must move; 0: all operands and results once */
    double bytes;
    /* of results, beside their greatest magnitude; 0: by their type */
    double tolerance;
} bench_problem;

/* ---- element types: elements.c ------------------------------------------------------------------------------------------ */

typedef struct bench_types {
    dlc_dtype x, w, sum, out;
} bench_types;

/* Sets *types by the parameters dtype=f32|f64|f16|bf16|u8 (u8: x is u8, w is i8, sums are i32) and out=TYPE (default: dtype; for u8: i32).
 * False: other types. */
bool bench_types_of(bench_types *types, const bench_shape *shape);
size_t bench_dtype_bytes(dlc_dtype dtype);                /* of one element; not for types smaller than a byte */
size_t bench_bytes_of(dlc_dtype dtype, int64_t elements); /* of `elements` elements; those of 4 bits: two in a byte */
double bench_element(const bench_operand *operand, size_t index);
/* Values for integer types are rounded down. */
void bench_set_element(bench_operand *operand, size_t index, double value);

/* Layout of images: [n, c, h, w], [n, c/16, h, w, 16] (channels that are no multiple of 16 stay plain), [n, h, w, c]. */
typedef enum bench_layout { BENCH_PLAIN, BENCH_BLOCKED, BENCH_LAST } bench_layout;
bench_layout bench_layout_of(const bench_shape *shape, int64_t channels);

/* The scalars a and b of the case gelu(a*x + b), for all contestants. */
#define BENCH_MAP_A 1.5f
#define BENCH_MAP_B (-0.25f)

/* ---- contests: measure.c --------------------------------------------------------------------------------------------- */

typedef struct bench_times {
    /* seconds of one call: median, lower and upper quartile */
    double median, low, high;
    int samples;
    /* calls in each sample */
    int64_t calls;
} bench_times;

typedef struct bench_contestant {
    const char *name;
    void (*run)(void *state);
    /* runs `calls` times and returns the seconds, for what runs in another process; NULL: `run` is called, and the time taken here */
    double (*time)(void *state, int64_t calls);
    void *state;
    /* a peer that is no longer measured once a few samples show that it is much slower */
    bool may_leave;
    bool left;
    bench_times times;
    /* [times.samples]: seconds of each turn, in order; one allocation for all contestants, owned by the first */
    double *samples;
} bench_contestant;

typedef struct bench_settings {
    /* number of samples; figures need at least 15 */
    int samples;
    /* calls are repeated within a sample until it lasts this long */
    double sample_seconds;
} bench_settings;

double bench_now(void);
/* One sample of each in turn, `samples` times, so that disturbances of the machine affect all of them. With several threads a pause
 * before each sample lets the previous contestant's threads, which may spin, go to sleep. A contest in which the first contestant or its
 * fastest rival was disturbed (quartiles more than 15 % apart) is repeated, three times at most and not if it takes long; the last one
 * counts for all contestants. */
void bench_contest(bench_contestant *contestants, int count, int threads, const bench_settings *settings);
void bench_contest_release(bench_contestant *contestants);

/* ---- roofs: roof.c ------------------------------------------------------------------------------------------------------ */

enum { BENCH_MAX_LEVELS = 4, BENCH_MAX_THREADS = 8 };

typedef struct bench_level {
    /* "L1" ... "DRAM" */
    const char *name;
    /* capacity of the cache, of one core's if it is private */
    double size;
    /* bytes per second; copy counts bytes read and bytes written */
    double read, copy;
} bench_level;

/* Multiply-add units: of f32 (to which f16 is widened), f64, bf16, bytes. */
typedef enum bench_unit { BENCH_UNIT_F32, BENCH_UNIT_F64, BENCH_UNIT_BF16, BENCH_UNIT_U8, BENCH_UNITS } bench_unit;

typedef struct bench_roofs {
    int threads;
    /* f32 flops per second with vectors of 512, 256 and 128 bits; 0: not on this machine */
    double fma[3];
    /* operations per second of each unit with the widest vectors */
    double unit[BENCH_UNITS];
    int level_count;
    bench_level levels[BENCH_MAX_LEVELS];
} bench_roofs;

void bench_roofs_measure(bench_roofs *roofs, int threads);
void bench_roofs_print(const bench_roofs *roofs, FILE *json);
/* A contestant that only multiplies and adds with the widest vectors: bench_fma_flops() per call. */
void bench_fma_burst(void *threads);
double bench_fma_flops(int threads);
/* Speed of the unit for the problem's element type, relative to f32's. */
double bench_unit_gain(const bench_roofs *roofs, const bench_problem *problem);
/* Minimum time for the problem on this machine, with `fma` flops per second. */
double bench_roof_seconds(const bench_roofs *roofs, double fma, const bench_problem *problem);

/* ---- results of a contest */

/* Opponents that a case was measured against: the peers, in their order, then others. */
enum {
    BENCH_COPY = BENCH_MAX_PEERS, /* memcpy of the same bytes: maps and moves */
    BENCH_SEPARATE,               /* ours, as separate programs */
    BENCH_DIRECT,                 /* ours, without Winograd: lines with the flag winograd */
    BENCH_ALONE,                  /* ours on one thread, if the case runs on several */
    BENCH_FORWARD,                /* ours, what is derived: the loss alone, the convolution, product or attention */
    BENCH_WIDE,                   /* ours, with products of f32: steps of training with narrow ones */
    BENCH_FIRST,                  /* the first step of a peer that compiles, over ours: no contestant */
    BENCH_KEPT_LESS,              /* ours, with dlc_compile_options.recompute: steps of training */
    BENCH_UNLIMITED,              /* ours, without the line's limit on the arena: steps of training */
    BENCH_MEMORY,                 /* bytes that a peer's step takes at once over that program's arena: no contestant */
    BENCH_ROWS,                   /* memcpy of each row separately: rows gathered from a table */
    BENCH_OPPONENTS
};

typedef struct bench_opponent {
    /* its median, of BENCH_MEMORY the bytes; 0: not measured */
    double seconds;
    /* its time over ours, by pairs of samples */
    bench_pairs pairs;
    /* median of these ratios */
    double ratio;
} bench_opponent;

typedef struct bench_outcome {
    const bench_shape *shape;
    int threads;
    /* ours: median and quartiles */
    double seconds, low, high;
    /* seconds from the built graph to the first result, compilation included */
    double first;
    /* seconds predicted by the library's cost model; 0: no prediction */
    double predicted;
    bench_opponent others[BENCH_OPPONENTS];
    /* the separate programs run the same kernels as the whole, so that a difference in time is not one of decisions */
    bool same_kernels;
    /* flops and bytes of the problem; fma: the machine's f32 flops per second during this contest */
    double flops, bytes, fma;
    /* speed of the unit for the case's element type, relative to f32's */
    double gain;
    /* minimum seconds on this machine */
    double roof;
} bench_outcome;

/* ---- peers: peer_*.c ---------------------------------------------------------------------------------------------------- */

typedef struct bench_peer {
    const char *name;
    /* version, instruction set */
    void (*describe)(char *text, size_t size);
    void (*set_threads)(int count);
    /* Returns a state that is ready to run, weights packed; NULL: the peer has no such operation. Of several implementations the fastest is
     * taken and named in `note`. The problem's operands and results must outlive the state. */
    void *(*prepare)(const bench_problem *problem, char *note, size_t note_size);
    void (*run)(void *state);
    void (*release)(void *state);
    /* NULL, or as bench_contestant's */
    double (*time)(void *state, int64_t calls);
    /* NULL, or seconds of the first call; 0: of a peer that compiles nothing for it */
    double (*first)(const void *state);
    /* NULL, or how far this peer's results are from those of wider types, beside their greatest magnitude, where that is more than the
     * tolerance of the results; else 0 */
    double (*error)(const void *state);
    /* NULL, or the most bytes that a call takes at once, beyond operands; 0: not known */
    double (*peak)(void *state);
} bench_peer;

/* The function that a plug-in exports. */
typedef const bench_peer *bench_peer_get_function(void);
DLC_API const bench_peer *bench_peer_get(void);
/* peers.c: unsets environment variables that configure the peers' libraries, and limits how long their threads spin. */
void bench_prepare_environment(void);
/* peers.c: loads the plug-ins in this program's folder and reports each; their count. */
int bench_peers_load(const bench_peer *peers[BENCH_MAX_PEERS], FILE *json);

#endif
