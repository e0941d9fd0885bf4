/* Contractions: a block computes a tile of results. The parts of both factors for a few steps of the sum are copied to shared memory; each
 * thread keeps a small tile of sums in registers, for which it loads 16 bytes at a time from shared memory.
 *
 * Axes of the result that one factor alone uses are its side of the tile, m or n; those that both use are a batch. The last axes of a
 * side get most of the tile. Along each axis a tile is  hi x thread x lo  points: a thread has `lo` neighbours, `hi` times, so
 * that neighbouring threads read neighbouring vectors. */
#include "targets/cuda/rules.h"

typedef cuda_tile_axis tile_axis;

/* ---- factors and sides */

/* Finds both factors, which axes each of them uses, and the side of each axis: n is the side of the result's last axis, unless that is a
 * batch. False: it is no contraction with sides m and n. */
static bool find_sides(cuda_rules *r, const tir_stage *stage, cuda_tile *t) {
    const tir_pool *pool = r->region->pool;
    tir_expr factor[2];
    bool uses[2][TIR_MAX_AXES];
    int right = 1;
    if (!tir_sum_of_products(pool, stage, &factor[0], &factor[1])) return false;
    for (int f = 0; f < 2; f++)
        for (int a = 0; a < stage->space + stage->reduce; a++)
            uses[f][a] = tir_uses(pool, factor[f], stage->axis[a].var);
    for (int a = 0; a < stage->space; a++)
        if (uses[0][a] != uses[1][a]) right = uses[0][a] ? 0 : 1;
    t->m = t->n = -1;
    t->count = stage->space + stage->reduce;
    t->space = stage->space;
    t->points[CUDA_SIDE_M] = t->points[CUDA_SIDE_N] = t->points[CUDA_SIDE_BATCH] = t->points[CUDA_SIDE_SUM] = 1;
    for (int a = 0; a < t->count; a++) {
        tile_axis *x = &t->axis[a];
        *x = (tile_axis){.name = stage->axis[a].name,
                         .id = stage->axis[a].id,
                         .extent = cuda_extent(r, &stage->axis[a]),
                         .hi = 1,
                         .thread = 1,
                         .lo = 1};
        if (x->extent < 1) return false;
        const bool m = t->uses[0][a] = uses[1 - right][a], n = t->uses[1][a] = uses[right][a];
        x->side = a >= stage->space ? CUDA_SIDE_SUM : m == n ? CUDA_SIDE_BATCH : m ? CUDA_SIDE_M : CUDA_SIDE_N;
        if (x->side == CUDA_SIDE_M) t->m = a;
        if (x->side == CUDA_SIDE_N) t->n = a;
        if (__builtin_mul_overflow(t->points[x->side], x->extent, &t->points[x->side])) return false;
    }
    return t->m >= 0 && t->n >= 0;
}

/* Notes for each term of the predicate into which factor it will be moved, one that uses all of its axes; false: there is none for some
 * term. */
static bool find_deviations(cuda_rules *r, const tir_stage *stage, cuda_tile *t) {
    enum { TERMS = 32 };
    const tir_pool *pool = r->region->pool;
    tir_expr terms[TERMS];
    const int count = stage->predicate ? tir_conjuncts(pool, stage->predicate, terms, TERMS) : 0;
    for (int i = 0; i < count; i++) {
        bool inside[2] = {true, true};
        for (int a = 0; a < t->count; a++) {
            if (!tir_uses(pool, terms[i], stage->axis[a].var)) continue;
            for (int f = 0; f < 2; f++) inside[f] = inside[f] && t->uses[f][a];
        }
        if (!inside[0] && !inside[1]) return false;
        t->deviates[inside[0] ? 0 : 1] = true;
    }
    return true;
}

/* Bytes of an element of the copy of the factor that uses axis `a`. */
static int64_t factor_bytes(const cuda_rules *r, const tir_stage *stage, int a) {
    const tir_pool *pool = r->region->pool;
    tir_expr factor[2];
    tir_sum_of_products(pool, stage, &factor[0], &factor[1]);
    const int f = tir_uses(pool, factor[0], stage->axis[a].var) ? 0 : 1;
    return (int64_t)lib_dtype_size((dlc_dtype)tir_dtype_of(pool, tir_unwidened(pool, factor[f])));
}

/* ---- sizes */

/* Distributes `threads` threads and `own` results of each among the axes of a side, the last axes first. The first axis takes the rest: a
 * tile may be larger than the side. */
static void spread(cuda_tile *t, cuda_side side, int64_t threads, int64_t own, int64_t lo) {
    for (int a = t->space - 1; a >= 0; a--) {
        tile_axis *x = &t->axis[a];
        if (x->side != side) continue;
        int64_t room = cuda_power_above(x->extent);
        x->lo = cuda_least(cuda_least(own, lo), room), room /= x->lo, own /= x->lo;
        lo = 1; /* only the last axis has vectors */
        x->hi = x->thread = 1;
        if (room > threads) x->hi = cuda_least(own, room / threads);
        own /= x->hi, room /= x->hi;
        x->thread = cuda_least(threads, room), threads /= x->thread;
    }
    for (int a = 0; a < t->space; a++) { /* the first axis of the side */
        tile_axis *x = &t->axis[a];
        if (x->side != side) continue;
        x->thread *= threads, x->hi *= own;
        break;
    }
}

typedef struct tile_size {
    /* by side, m and n: threads, results of a thread, neighbouring results of a thread */
    int64_t threads[2], own[2], lo[2];
} tile_size;

static void apply_size(cuda_tile *t, const tile_size *size) {
    spread(t, CUDA_SIDE_M, size->threads[0], size->own[0], size->lo[0]);
    spread(t, CUDA_SIDE_N, size->threads[1], size->own[1], size->lo[1]);
    t->threads = size->threads[0] * size->threads[1];
}

/* Cycles of `rounds` steps of `together` blocks on a multiprocessor. Copies for one step are issued together and take `latency` cycles,
 * during which other blocks work; copies for `stages` steps are in flight. */
static double cycles_of_wave(double together, double rounds, double step) {
    const double latency = 900, stages = 4, overlap = 8;
    const double all = together * step, alone = step + latency / stages;
    const double slower = all > alone ? all : alone, quicker = all > alone ? alone : all;
    return together > 0 ? rounds * (slower + quicker / overlap) + latency : 0;
}

double cuda_tile_cycles(const cuda_rules *r, int64_t blocks, int64_t together, double rounds, double step) {
    const int64_t each = cuda_ceil_div(blocks, r->machine->multiprocessors);
    return (double)(each / together) * cycles_of_wave((double)together, rounds, step) +
           cycles_of_wave((double)(each % together), rounds, step);
}

/* The model: cycles until a multiprocessor has done its part of the contraction; -1: the size does not fit. A step of the sum takes a block
 * its arithmetic, plus a part of the time of overlapping work: reads of shared memory (128 bytes a cycle), other instructions (4 a cycle),
 * bytes from L2. */
static double cost_of(const cuda_rules *r, cuda_tile *t, const tile_size *size) {
    enum { LANES = 128, REGISTERS = 65536, L2_BYTES = 20, THREADS = 2048, OVERLAP = 4 };
    const int64_t bm = size->threads[0] * size->own[0], bn = size->threads[1] * size->own[1];
    const int64_t words = t->bytes[2] > 4 ? 2 : 1, warps = cuda_ceil_div(t->threads, TIR_WARP);
    const int64_t across = cuda_least(size->threads[1], TIR_WARP), down = TIR_WARP / across; /* threads of a warp */
    const int64_t registers = 40 + words * (size->own[0] * size->own[1] + 2 * (size->own[0] + size->own[1]));
    const int64_t shared = t->steps * (bm * t->bytes[0] + bn * t->bytes[1]);
    int64_t blocks = t->points[CUDA_SIDE_BATCH];
    for (int a = 0; a < t->space; a++)
        if (t->axis[a].side != CUDA_SIDE_BATCH)
            blocks *= cuda_ceil_div(t->axis[a].extent, cuda_tile_points(&t->axis[a]));
    if (registers > r->machine->thread_registers || shared > r->machine->shared_memory) return -1;
    int64_t together = cuda_least(REGISTERS / (registers * t->threads), THREADS / t->threads);
    together = cuda_least(together, r->machine->shared_memory / shared);
    together = cuda_least(together, cuda_ceil_div(blocks, r->machine->multiprocessors));
    if (together < 1) return -1;
    t->together = together;
    const int64_t vectors_m = size->own[0] / size->lo[0], vectors_n = size->own[1] / size->lo[1];
    const double arithmetic = (double)(warps * TIR_WARP * size->own[0] * size->own[1] * words) / (double)LANES;
    const double reads = (double)(warps * (vectors_m * cuda_ceil_div(down * size->lo[0] * t->bytes[0], 128) +
                                           vectors_n * cuda_ceil_div(across * size->lo[1] * t->bytes[1], 128)));
    const double others =
        ((double)(warps * (vectors_m + vectors_n + 2)) + (double)(bm + bn) / (double)TIR_WARP * 3) / 4;
    const double memory = (double)(bm * t->bytes[0] + bn * t->bytes[1]) / (double)L2_BYTES;
    const double overlapped = reads + others + memory;
    const double step = (double)t->steps * (arithmetic > overlapped ? arithmetic + overlapped / (double)OVERLAP
                                                                    : overlapped + arithmetic / (double)OVERLAP);
    const double rounds = (double)cuda_ceil_div(t->points[CUDA_SIDE_SUM], t->steps);
    return cuda_tile_cycles(r, blocks, together, rounds, step);
}

/* The words of the choices "block" and "thread". */
static cuda_size_words size_words(const cuda_rules *r, const tile_size *size) {
    return (cuda_size_words){{cuda_size_word(r, size->threads[0] * size->own[0], size->threads[1] * size->own[1]),
                              cuda_size_word(r, size->own[0], size->own[1])}};
}

/* Sets *chosen to the size of least cost, of those that the search admits, and returns its cost; -1: none fits. */
static double search_sizes(cuda_rules *r, cuda_tile *t, tir_search *search, tile_size *chosen) {
    double best = -1;
    for (int64_t threads = 64; threads <= 256; threads *= 2)
        for (int64_t down = 2; down <= 32; down *= 2)
            for (int64_t m = 1; m <= 8; m *= 2)
                for (int64_t n = 1; n <= 8; n *= 2) {
                    tile_size size = {{down, threads / down}, {m, n}, {m, n}};
                    for (int side = 0; side < 2; side++)
                        size.lo[side] = cuda_least(cuda_least(size.own[side], 4), 16 / t->bytes[side]);
                    if (m * n * t->bytes[2] > 256) continue;
                    apply_size(t, &size);
                    double cost = cost_of(r, t, &size);
                    if (cost < 0 || (search->asked && !tir_search_admits(search, size_words(r, &size).word))) continue;
                    if (best >= 0 && cost >= best) continue;
                    best = cost, *chosen = size;
                }
    return best;
}

/* Sets the best size and returns its cost; -1: none fits. record: it is a choice, not only a question for its cost. */
static double choose_size(cuda_rules *r, cuda_tile *t, bool record) {
    if (t->unit) return cuda_matrix_size(r, t, record);
    tir_search search = tir_search_for(r->schedule, t->sums, 2, (const char *const[]){"block", "thread"});
    tile_size chosen = {{0}, {0}, {0}};
    double best = search_sizes(r, t, &search, &chosen);
    if (best < 0 && search.asked) {
        search.unpinned = true;
        best = search_sizes(r, t, &search, &chosen);
    }
    if (best < 0) return best;
    apply_size(t, &chosen);
    if (search.asked && record) tir_search_record(&search, size_words(r, &chosen).word);
    return cost_of(r, t, &chosen);
}

/* The smallest distance in memory of neighbours along the axis, over all accesses that depend on it. */
static int64_t nearest(const tir_access *access, int count, int axis) {
    int64_t found = TIR_IRREGULAR;
    for (int i = 0; i < count; i++) {
        const int64_t stride = access[i].stride[axis] < 0 ? -access[i].stride[axis] : access[i].stride[axis];
        if (stride && stride < found) found = stride;
    }
    return found;
}

/* Chooses the steps of the sum that are copied at once: all points of short axes, those nearest in memory first, and a part of the next
 * axis. */
static void choose_steps(cuda_rules *r, int s, cuda_tile *t) {
    enum { STEPS = 16, MORE = 24 /* if short axes do not divide STEPS */ };
    tir_access access[CUDA_ACCESSES];
    const int count = tir_accesses(r->region, s, access, CUDA_ACCESSES);
    bool taken[TIR_MAX_AXES] = {false};
    t->steps = 1;
    for (int a = t->space; a < t->count; a++) t->axis[a].lo = 1;
    for (int left = t->count - t->space; left > 0; left--) {
        int next = -1;
        for (int a = t->count - 1; a >= t->space; a--)
            if (!taken[a] && (next < 0 || nearest(access, count, a) < nearest(access, count, next))) next = a;
        taken[next] = true;
        tile_axis *x = &t->axis[next];
        t->stepped = next;
        x->lo = cuda_least(x->extent, t->steps == 1 ? STEPS : MORE / t->steps);
        t->steps *= x->lo;
        if (x->lo < x->extent) break;
    }
}

/* ---- rewrites */

int cuda_reader_of(cuda_rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    int reader = -1;
    if (r->region->tensors.data[stage->tensor[0]].output) return -1;
    for (int q = s + 1; q < (int)r->region->stages.count; q++) {
        const tir_stage *other = &r->region->stages.data[q];
        if (!tir_reads(r->region, q, s)) continue;
        if (reader >= 0 || other->kind != TIR_MAP || other->count != 1 || other->space != stage->space ||
            other->fold >= 0 || cuda_is_done(r, other->name))
            return -1;
        if (!tir_reads_along(r->region, q, s, stage->space)) return -1;
        for (int a = 0; a < stage->space; a++)
            if (other->axis[a].extent != stage->axis[a].extent) return -1;
        reader = q;
    }
    return reader;
}

/* Lays out the copy for a side (0: m, 1: n), whose axes are last. */
static void lay_out_copy(cuda_rules *r, const cuda_tile *t, int side) {
    const tir_stage *copy = cuda_stage_of(r, t->copy[side]);
    lib_text layout;
    lib_text_init(&layout, r->arena);
    for (int last = 0; last < 2; last++)
        for (int a = 0; a < copy->space; a++) {
            const int b = cuda_tile_axis_of(t, copy->axis[a].id);
            const bool own = b >= 0 && t->axis[b].side == (side ? CUDA_SIDE_N : CUDA_SIDE_M);
            if (own == (last == 1)) lib_text_format(&layout, "%s%s", layout.length ? ", " : "", copy->axis[a].name);
        }
    cuda_rewrite(r, "layout %s (%s)", t->copy[side], layout.data);
}

/* Layouts: sums are in the registers of threads; each copy has the axes of its side last. */
static void lay_out(cuda_rules *r, const cuda_tile *t) {
    const tir_stage *stage = cuda_stage_of(r, t->sums);
    lib_text layout;
    lib_text_init(&layout, r->arena);
    for (int a = 0; a < t->space; a++) {
        const tile_axis *x = &t->axis[a];
        const char *name = stage->axis[a].name, *comma = a ? ", " : "";
        const long long low = x->lo, block = cuda_tile_points(x);
        if (block == 1) {
            lib_text_format(&layout, "%s%s", comma, name);
            continue;
        }
        lib_text_format(&layout, "%s%s/%lld", comma, name, block);
        if (x->hi > 1) lib_text_format(&layout, ", %s/%lld%%%lld", name, block / x->hi, (long long)x->hi);
        if (x->thread > 1 && low > 1) lib_text_format(&layout, ", %s/%lld%%%lld", name, low, (long long)x->thread);
        if (x->thread > 1 && low == 1) lib_text_format(&layout, ", %s%%%lld", name, (long long)x->thread);
        if (x->lo > 1) lib_text_format(&layout, ", %s%%%lld", name, low);
    }
    cuda_rewrite(r, "layout %s (%s)", t->sums, layout.data);
    for (int side = 0; side < 2; side++) lay_out_copy(r, t, side);
}

/* Are neighbours along an axis of the result neighbours in memory? */
static bool lies_along(cuda_rules *r, int s, int axis) {
    tir_access access[CUDA_ACCESSES];
    return nearest(access, tir_accesses(r->region, s, access, CUDA_ACCESSES), axis) == 1;
}

/* Sets *t, all that must be known before rewriting; false: there is no tile. */
static bool measure(cuda_rules *r, int s, cuda_tile *t) {
    enum { LEAST = 2, LEAST_RESULTS = 64, LEAST_SUM = 4 };
    const tir_stage stage = r->region->stages.data[s];
    *t = (cuda_tile){.sums = stage.name, .pieces = 1};
    if (stage.kind != TIR_REDUCE || stage.fold >= 0 || stage.space < 2) return false;
    if (!find_sides(r, &stage, t) || !find_deviations(r, &stage, t)) return false;
    if (t->points[CUDA_SIDE_M] * t->points[CUDA_SIDE_N] < LEAST_RESULTS || t->points[CUDA_SIDE_SUM] < LEAST_SUM)
        return false;
    for (int side = 0; side < 2;
         side++) /* a row times a matrix: if the matrix is contiguous along the sum, rules_rows.c reads it better */
        if (t->points[side ? CUDA_SIDE_N : CUDA_SIDE_M] < LEAST && !lies_along(r, s, side ? t->m : t->n)) return false;
    t->bytes[0] = factor_bytes(r, &stage, t->m);
    t->bytes[1] = factor_bytes(r, &stage, t->n);
    t->bytes[2] = (int64_t)lib_dtype_size(r->region->tensors.data[stage.tensor[0]].dtype);
    if (cuda_matrix_fits(r, s, t))
        cuda_matrix_steps(t);
    else
        choose_steps(r, s, t);
    t->cost = choose_size(r, t, false);
    return t->cost >= 0;
}

/* Cost of the sum cut into so many equal pieces, each a tile of its own; -1: it cannot be cut that way. Adding up the pieces costs a phase
 * that reads all of them. */
static double cost_of_pieces(cuda_rules *r, const cuda_tile *t, int64_t pieces) {
    enum { PHASE = 4000, MEMORY_BYTES = 16 };
    const tile_axis *x = &t->axis[t->stepped];
    cuda_tile part = *t;
    if (pieces == 1) return t->cost;
    if (t->space == DLC_MAX_RANK || x->extent % pieces || x->extent / pieces < x->lo) return -1;
    part.points[CUDA_SIDE_SUM] /= pieces;
    part.points[CUDA_SIDE_BATCH] *= pieces;
    const double results = (double)(t->points[CUDA_SIDE_M] * t->points[CUDA_SIDE_N] * t->points[CUDA_SIDE_BATCH]);
    const double bytes = results * (double)(t->bytes[2] * (2 * pieces + 1)), cost = choose_size(r, &part, false);
    return cost < 0 ? -1 : cost + (double)PHASE + bytes / (double)(MEMORY_BYTES * r->machine->multiprocessors);
}

/* The number of pieces of least cost, of those that the search admits; 0: none. */
static int64_t search_pieces(cuda_rules *r, const cuda_tile *t, tir_search *search) {
    enum { MOST = 16 };
    double best = -1;
    int64_t chosen = 0;
    for (int64_t pieces = 1; pieces <= MOST; pieces++) {
        const double cost = cost_of_pieces(r, t, pieces);
        if (cost < 0) continue;
        if (search->asked && !tir_search_admits(search, (const char *const[]){cuda_number_word(r, pieces)})) continue;
        if (best < 0 || cost < best * 0.95) best = cost, chosen = pieces; /* a smaller gain does not justify a phase */
    }
    return chosen;
}

/* For few tiles and a long sum: the number of pieces into which the sum is cut; 1: it is not cut. */
static int64_t choose_pieces(cuda_rules *r, const cuda_tile *t) {
    tir_search search = tir_search_for(r->schedule, t->sums, 1, (const char *const[]){"pieces"});
    int64_t pieces = search_pieces(r, t, &search);
    if (!pieces) {
        search.unpinned = true;
        pieces = search_pieces(r, t, &search);
    }
    if (search.asked) tir_search_record(&search, (const char *const[]){cuda_number_word(r, pieces)});
    return pieces;
}

/* Cuts the sum into `pieces` sums, which will be computed in tiles; *t is set anew for a piece. False: a piece has no tile. */
static bool cut_sum(cuda_rules *r, cuda_tile *t, int64_t pieces) {
    const char *whole = t->sums, *part = cuda_fresh_name(r, whole, "pieces");
    cuda_rewrite(r, "rfactor %s.%s %lld chunks -> %s piece within", whole, t->axis[t->stepped].name, (long long)pieces,
                 part);
    if (!measure(r, cuda_stage_named(r, part), t)) return false;
    t->pieces = pieces;
    lib_vec_push(r->arena, &r->sums, whole);
    if (cuda_reader_of(r, cuda_stage_named(r, whole)) >= 0) return true;
    const char *out = cuda_fresh_name(r, whole, "out");
    cuda_rewrite(r, "copy %s -> %s", whole, out);
    lib_vec_push(r->arena, &r->roots, out);
    return true;
}

/* Sets the root, which a block stores: the map that reads the sums, or a copy of the sums. Pieces are stored one after the other. */
static void find_root(cuda_rules *r, cuda_tile *t) {
    const int reader = cuda_reader_of(r, cuda_stage_named(r, t->sums));
    if (reader >= 0) {
        t->root = r->region->stages.data[reader].name;
        return;
    }
    t->root = cuda_fresh_name(r, t->sums, "out");
    cuda_rewrite(r, "copy %s -> %s", t->sums, t->root);
    if (t->pieces == 1) return;
    lib_text layout;
    lib_text_init(&layout, r->arena);
    for (int a = 0; a + 1 < t->space; a++) lib_text_format(&layout, ", %s", t->axis[a].name);
    cuda_rewrite(r, "layout %s (%s%s)", t->root, t->axis[t->space - 1].name, layout.data);
}

bool cuda_prepare_tile(cuda_rules *r, int s) {
    cuda_tile t;
    if (!measure(r, s, &t) || !tir_choose_yes(r->schedule, t.sums, "tile", true)) return false;
    const int64_t pieces = r->region->stages.data[s].merge[0] ? choose_pieces(r, &t) : 1;
    if (pieces > 1 && !cut_sum(r, &t, pieces)) return false;
    if (r->schedule->choices) choose_size(r, &t, true);
    t.copy[0] = cuda_fresh_name(r, t.sums, "left");
    t.copy[1] = cuda_fresh_name(r, t.sums, "right");
    for (int side = 0; side < 2; side++)
        cuda_rewrite(r, "operand %s.%s -> %s%s", t.sums, t.axis[side ? t.n : t.m].name, t.copy[side],
                     t.deviates[side] ? " deviates zero*nonfinite" : "");
    find_root(r, &t);
    if (t.unit)
        cuda_matrix_lay_out(r, &t);
    else
        lay_out(r, &t);
    const char *const names[] = {t.sums, t.copy[0], t.copy[1], t.root};
    for (int i = 0; i < 4; i++) cuda_mark_done(r, names[i]);
    lib_vec_push(r->arena, &r->tiles, t);
    return true;
}

/* ---- loops */

/* The loops into which an axis of the result is split: blocks (if all blocks are in the same loop nest), hi, thread and lo; NULL: no such
 * loop. */
typedef struct axis_loops {
    const char *block, *hi, *thread, *lo;
} axis_loops;

static axis_loops split_axis(cuda_rules *r, const char *stage, const char *axis, int number, const tile_axis *x,
                             bool blocks) {
    axis_loops loops = {NULL, NULL, NULL, NULL};
    const char *rest = axis;
    const int64_t tile = cuda_tile_points(x);
    if (blocks) {
        loops.block = rest;
        if (tile > 1) {
            loops.block = cuda_loop_name(r, "block", number);
            const char *inner = cuda_loop_name(r, "rest", number);
            tir_schedule_add(r->schedule, "split %s.%s %lld -> %s %s mask", stage, rest, (long long)tile, loops.block,
                             inner);
            rest = inner;
        } else {
            return loops;
        }
    }
    if (x->hi > 1 && x->thread * x->lo > 1) {
        loops.hi = cuda_loop_name(r, "turn", number);
        const char *inner = cuda_loop_name(r, "part", number);
        tir_schedule_add(r->schedule, "split %s.%s %lld -> %s %s mask", stage, rest, (long long)(x->thread * x->lo),
                         loops.hi, inner);
        rest = inner;
    } else if (x->hi > 1) {
        loops.hi = rest;
        return loops;
    }
    if (x->thread > 1 && x->lo > 1) {
        loops.thread = cuda_loop_name(r, "lane", number);
        loops.lo = cuda_loop_name(r, "run", number);
        tir_schedule_add(r->schedule, "split %s.%s %lld -> %s %s mask", stage, rest, (long long)x->lo, loops.thread,
                         loops.lo);
    } else if (x->thread > 1) {
        loops.thread = rest;
    } else {
        loops.lo = rest;
    }
    return loops;
}

/* Orders the root's loops: blocks, then threads, then each thread's own points. Returns the innermost loop over blocks. */
static const char *schedule_root(cuda_rules *r, const cuda_tile *t) {
    const tir_stage *root = cuda_stage_of(r, t->root);
    axis_loops loops[TIR_MAX_AXES];
    lib_text order;
    const char *last = NULL;
    lib_text_init(&order, r->arena);
    for (int a = 0; a < t->space; a++) loops[a] = split_axis(r, t->root, root->axis[a].name, a, &t->axis[a], true);
    for (int a = 0; a < t->space; a++) cuda_add_loop(&order, last = loops[a].block);
    for (int a = 0; a < t->space; a++) cuda_add_loop(&order, loops[a].thread);
    for (int a = 0; a < t->space; a++) cuda_add_loop(&order, loops[a].hi);
    int vector = -1;
    for (int a = 0; a < t->space; a++) {
        cuda_add_loop(&order, loops[a].lo);
        if (loops[a].lo) vector = a;
    }
    tir_schedule_add(r->schedule, "order %s:%s", t->root, order.data);
    int64_t stride[TIR_MAX_AXES];
    tir_store_strides(r->region, cuda_stage_named(r, t->root), stride);
    for (int a = 0; a < t->space; a++) {
        cuda_mark_loop(r, "par", t->root, loops[a].block);
        cuda_mark_loop(r, "thread", t->root, loops[a].thread);
        cuda_mark_loop(r, "unroll", t->root, loops[a].hi);
        cuda_mark_loop(r, stride[a] == 1 && a == vector ? "vec" : "unroll", t->root, loops[a].lo);
    }
    return last;
}

enum { MOST_PAD = 32 }; /* most bytes of padding of a row in shared memory */

/* Number of stages of the copies' pipeline: as many as do not reduce the number of blocks on a multiprocessor. 1: nothing is copied
 * ahead. */
static int64_t count_stages(cuda_rules *r, const cuda_tile *t) {
    enum { MOST = 4 };
    int64_t points[CUDA_SIDES] = {1, 1, 1, 1}, stages = MOST;
    const int64_t rounds = cuda_ceil_div(t->axis[t->stepped].extent, t->axis[t->stepped].lo);
    for (int a = 0; a < t->space; a++) points[t->axis[a].side] *= cuda_tile_points(&t->axis[a]);
    const int64_t stage =
        t->steps * (points[CUDA_SIDE_M] * t->bytes[0] + points[CUDA_SIDE_N] * t->bytes[1] + 2 * MOST_PAD);
    if (!cuda_is_copy(r, t->copy[0]) || !cuda_is_copy(r, t->copy[1])) return 1;
    while (stages > 1 && (stages > rounds || stages * stage * t->together > r->machine->shared_memory)) stages--;
    int64_t most = MOST;
    while (most > 1 && (most > rounds || most * stage > r->machine->shared_memory)) most--;
    return tir_choose_number(r->schedule, t->sums, "stages", (tir_numbers){1, most, 1}, stages);
}

/* Splits the axes of the sum: outer loops over parts that are copied at once, inner loops over single steps. NULL: no
 * such loop. */
static void split_sum(cuda_rules *r, const cuda_tile *t, bool pipelined, const char **outer, const char **inner) {
    const tir_stage *stage = cuda_stage_of(r, t->sums);
    for (int a = t->space; a < t->count; a++) {
        const tile_axis *x = &t->axis[a];
        if (x->lo == 1 && x->extent > 1) {
            outer[a] = stage->axis[a].name;
        } else if (a == t->stepped) {
            outer[a] = cuda_loop_name(r, "block", a);
            inner[a] = cuda_loop_name(r, "step", a);
            tir_schedule_add(r->schedule, "split %s.%s %lld -> %s %s %s", t->sums, stage->axis[a].name,
                             (long long)x->lo, outer[a], inner[a], pipelined ? "mask" : "peel");
        } else {
            inner[a] = stage->axis[a].name;
        }
    }
}

/* Orders the loops of the sums: parts of the sum that are copied at once, threads, single steps, registers. Returns the loop at which the
 * copies are attached. */
static const char *schedule_sums(cuda_rules *r, const cuda_tile *t, bool pipelined) {
    const tir_stage *stage = cuda_stage_of(r, t->sums);
    axis_loops loops[TIR_MAX_AXES];
    const char *inner[TIR_MAX_AXES] = {NULL}, *outer[TIR_MAX_AXES] = {NULL}, *at = NULL;
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int a = 0; a < t->space; a++) loops[a] = split_axis(r, t->sums, stage->axis[a].name, a, &t->axis[a], false);
    split_sum(r, t, pipelined, outer, inner);
    for (int a = t->space; a < t->count; a++)
        if (outer[a] && !inner[a]) cuda_add_loop(&order, at = outer[a]);
    for (int a = t->space; a < t->count; a++)
        if (outer[a] && inner[a]) cuda_add_loop(&order, at = outer[a]);
    for (int a = 0; a < t->space; a++) cuda_add_loop(&order, loops[a].thread);
    for (int a = t->space; a < t->count; a++) cuda_add_loop(&order, inner[a]);
    for (int a = 0; a < t->space; a++) cuda_add_loop(&order, loops[a].hi);
    for (int a = 0; a < t->space; a++) cuda_add_loop(&order, loops[a].lo);
    tir_schedule_add(r->schedule, "order %s:%s", t->sums, order.data);
    for (int a = 0; a < t->space; a++) {
        cuda_mark_loop(r, "thread", t->sums, loops[a].thread);
        cuda_mark_loop(r, "unroll", t->sums, loops[a].hi);
        cuda_mark_loop(r, "unroll", t->sums, loops[a].lo);
    }
    for (int a = t->space; a < t->count; a++) cuda_mark_loop(r, "unroll", t->sums, inner[a]);
    return at;
}

int64_t cuda_copied_points(const cuda_tile *t, const tir_axis *axis, cuda_side *side) {
    const int a = cuda_tile_axis_of(t, axis->id);
    *side = a < 0 ? CUDA_SIDE_BATCH : t->axis[a].side;
    return *side == CUDA_SIDE_BATCH ? 1 : *side == CUDA_SIDE_SUM ? t->axis[a].lo : cuda_tile_points(&t->axis[a]);
}

/* If the copy reads several tensors, the one indexed by the most axes decides: a loaded value that a guard reads once for a whole row does
 * not count. */
int cuda_contiguous_axis(cuda_rules *r, int s, int64_t *bytes) {
    tir_access access[CUDA_ACCESSES];
    const int count = tir_accesses(r->region, s, access, CUDA_ACCESSES), space = r->region->stages.data[s].space;
    int found = -1, most = 0;
    *bytes = 1;
    for (int i = 0; i < count; i++) {
        const int64_t size = (int64_t)lib_dtype_size(r->region->tensors.data[access[i].tensor].dtype);
        int axes = 0;
        for (int a = 0; a < space; a++) axes += access[i].stride[a] != 0;
        for (int a = 0; a < space; a++) {
            if (access[i].stride[a] != 1 || axes < most || (axes == most && size < *bytes)) continue;
            found = a, most = axes;
            *bytes = size;
        }
    }
    return found;
}

/* Copies a factor's tile to shared memory: neighbouring threads take neighbouring destinations, each a vector along the source's
 * contiguous axis. If that is a reduction axis, the copy transposes: elements of 4 bytes or more then move singly (as cp.async can), by 8
 * neighbouring threads along a source row, or, if that gives fewer bank conflicts than any padding, by neighbouring threads along a
 * destination row. */
enum { ROW_LANES = 8 };

typedef struct copy_plan {
    /* number of axes; the axis along which the source is contiguous; the axis along which the copy is */
    int axes, along, last;
    /* rows of the source become columns of the copy; elements are copied one by one */
    bool turned, elements;
    int64_t size, pad;
    /* neighbouring lanes store contiguously, although the source's rows run the other way */
    bool across;
    bool own[TIR_MAX_AXES];
    int64_t extent[TIR_MAX_AXES], vector[TIR_MAX_AXES], lanes[TIR_MAX_AXES];
} copy_plan;

static bool splits_lanes(const copy_plan *p, int a) {
    const int64_t vectors = cuda_ceil_div(p->extent[a], p->vector[a]);
    return p->lanes[a] > 1 && vectors > p->lanes[a];
}

/* Begins a plan with what the source's place in memory decides. */
static copy_plan plan_for_source(cuda_rules *r, const cuda_tile *t, int which) {
    enum { ASYNC = 4 };
    const int s = cuda_stage_named(r, t->copy[which]);
    const tir_stage *stage = &r->region->stages.data[s];
    copy_plan p = {.axes = stage->space};
    p.along = cuda_contiguous_axis(r, s, &p.size);
    if (p.along < 0) p.size = t->bytes[which];
    p.turned = p.along >= 0 && cuda_tile_axis_of(t, stage->axis[p.along].id) >= t->space;
    p.elements = p.turned && p.size >= ASYNC;
    return p;
}

static void share_lanes(cuda_rules *r, const cuda_tile *t, int which, copy_plan *p) {
    const tir_stage *stage = cuda_stage_of(r, t->copy[which]);
    *p = plan_for_source(r, t, which);
    int64_t left = p->elements ? t->threads / ROW_LANES : t->threads;
    for (int last = 1; last >= 0; last--)
        for (int a = p->axes - 1; a >= 0; a--) {
            cuda_side side;
            const int64_t extent = cuda_copied_points(t, &stage->axis[a], &side), all = cuda_extent(r, &stage->axis[a]);
            const bool row = a == p->along && p->elements;
            p->own[a] = side == (which ? CUDA_SIDE_N : CUDA_SIDE_M);
            if (p->own[a] != (last == 1)) continue;
            p->extent[a] = all >= 1 ? cuda_least(extent, all) : extent;
            p->vector[a] = 1;
            if (a == p->along && !row && p->size < 16 && extent % (16 / p->size) == 0) p->vector[a] = 16 / p->size;
            p->lanes[a] = cuda_least(cuda_power_above(extent / p->vector[a]), row ? ROW_LANES : left);
            if (!row) left /= p->lanes[a];
            if (p->own[a] && a > p->last) p->last = a;
        }
}

/* A loop over threads of a copy, as part of an access by a warp. */
typedef struct lane_loop {
    /* threads of the loop; those that exist; bytes from one to the next */
    int64_t extent, valid, stride;
} lane_loop;

/* Bank conflicts of a store by all threads, counted as by the interpreter: wavefronts beyond the least number. loops[0] is the fastest. */
static int64_t bank_conflicts(const lane_loop *loops, int count, int64_t bytes) {
    enum { BANKS = 32, WORD = 4 };
    const int64_t part = bytes <= WORD ? TIR_WARP : bytes <= 2 * WORD ? TIR_WARP / 2 : TIR_WARP / 4;
    int64_t threads = 1, found = 0;
    for (int i = 0; i < count; i++) threads *= loops[i].extent;
    for (int64_t first = 0; first < threads; first += part) {
        int64_t words[BANKS][BANKS], most = 1;
        int64_t used[BANKS] = {0};
        for (int64_t n = first; n < cuda_least(first + part, threads); n++) {
            int64_t rest = n, address = 0;
            bool valid = true;
            for (int i = 0; i < count; rest /= loops[i++].extent) {
                valid = valid && rest % loops[i].extent < loops[i].valid;
                address += rest % loops[i].extent * loops[i].stride;
            }
            for (int64_t word = address / WORD; valid && word * WORD < address + bytes; word++) {
                const int64_t bank = word % BANKS;
                int64_t k = 0;
                while (k < used[bank] && words[bank][k] != word) k++;
                if (k == used[bank] && k < BANKS) words[bank][used[bank]++] = word;
                if (used[bank] > most) most = used[bank];
            }
        }
        found += most - 1;
    }
    return found;
}

static int64_t store_conflicts(const copy_plan *p) {
    int64_t stride[TIR_MAX_AXES], next = p->size;
    lane_loop loops[TIR_MAX_AXES];
    int count = 0;
    for (int last = 1; last >= 0; last--)
        for (int a = p->axes - 1; a >= 0; a--) {
            if (p->own[a] != (last == 1)) continue;
            stride[a] = next;
            next = a == p->last && last ? p->extent[a] * next + p->pad : p->extent[a] * next;
        }
    for (int part = 2; part >= 0; part--)
        for (int a = p->axes - 1; a >= 0; a--) {
            const bool row = a == p->along && p->elements && !p->across;
            if (p->lanes[a] == 1 || (part == 2 ? !row : row || p->own[a] != (part == 1))) continue;
            const int64_t vectors = cuda_ceil_div(p->extent[a], p->vector[a]);
            loops[count++] = (lane_loop){splits_lanes(p, a) ? p->lanes[a] : cuda_least(vectors, p->lanes[a]), vectors,
                                         stride[a] * p->vector[a]};
        }
    return bank_conflicts(loops, count, p->size * p->vector[p->last]);
}

/* Chooses the pad and the order of lanes whose stores have the fewest bank conflicts, such that vectors that are read stay aligned. */
static void choose_pad(const cuda_tile *t, int which, copy_plan *p) {
    int64_t lo = 1, best = -1;
    for (int a = 0; a < t->space; a++)
        if (t->axis[a].side == (which ? CUDA_SIDE_N : CUDA_SIDE_M) && t->axis[a].lo > lo) lo = t->axis[a].lo;
    const int64_t word = lo * p->size < 4 ? 4 : lo * p->size, unit = p->vector[p->last] > 1 ? 16 : word,
                  usual = p->turned ? 16 : 0;
    copy_plan chosen = *p;
    for (int across = 0; across <= p->elements; across++)
        for (int64_t pad = -unit; pad <= MOST_PAD; pad += unit) {
            if (pad < 0 && usual % unit) continue;
            p->across = across, p->pad = pad < 0 ? usual : pad;
            const int64_t conflicts = store_conflicts(p);
            if (best >= 0 && conflicts >= best) continue;
            best = conflicts, chosen = *p;
        }
    *p = chosen;
}

/* Loops of a copy, by axis: threads, and turns of these; the elements of a vector. NULL: no such loop. */
typedef struct copy_loops {
    const char *lane[TIR_MAX_AXES], *turn[TIR_MAX_AXES], *run;
} copy_loops;

static copy_loops split_copy(cuda_rules *r, const cuda_tile *t, int which, const copy_plan *p) {
    const char *copy = t->copy[which];
    const tir_stage *stage = cuda_stage_of(r, copy);
    copy_loops loops = {.run = NULL};
    for (int last = 1; last >= 0; last--)
        for (int a = p->axes - 1; a >= 0; a--) {
            cuda_side side;
            const char *rest = stage->axis[a].name, *whole = rest;
            const int64_t extent = cuda_copied_points(t, &stage->axis[a], &side);
            if (p->own[a] != (last == 1)) continue;
            if (p->vector[a] > 1 && extent > p->vector[a]) {
                rest = cuda_loop_name(r, "rest", a), loops.run = cuda_loop_name(r, "run", a);
                tir_schedule_add(r->schedule, "split %s.%s %lld -> %s %s mask", copy, whole, (long long)p->vector[a],
                                 rest, loops.run);
            } else if (p->vector[a] > 1) {
                loops.run = rest;
                continue;
            }
            if (p->lanes[a] > 1 && extent / p->vector[a] > p->lanes[a]) {
                loops.turn[a] = cuda_loop_name(r, "turn", a), loops.lane[a] = cuda_loop_name(r, "lane", a);
                tir_schedule_add(r->schedule, "split %s.%s %lld -> %s %s mask", copy, rest, (long long)p->lanes[a],
                                 loops.turn[a], loops.lane[a]);
            } else if (p->lanes[a] > 1) {
                loops.lane[a] = rest;
            } else {
                loops.turn[a] = rest;
            }
        }
    return loops;
}

static void schedule_copy(cuda_rules *r, const cuda_tile *t, int which, const char *at) {
    const char *copy = t->copy[which];
    const tir_stage *stage = cuda_stage_of(r, copy);
    copy_plan p;
    share_lanes(r, t, which, &p);
    choose_pad(t, which, &p);
    const copy_loops loops = split_copy(r, t, which, &p);
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int last = 0; last < 2; last++)
        for (int a = 0; a < p.axes; a++)
            if (p.own[a] == (last == 1) && (a != p.along || !p.elements || p.across))
                cuda_add_loop(&order, loops.lane[a]);
    if (p.elements && !p.across) cuda_add_loop(&order, loops.lane[p.along]);
    for (int a = 0; a < p.axes; a++) cuda_add_loop(&order, loops.turn[a]);
    cuda_add_loop(&order, loops.run);
    tir_schedule_add(r->schedule, "order %s:%s", copy, order.data);
    for (int a = 0; a < p.axes; a++) {
        cuda_side side;
        cuda_mark_loop(r, "thread", copy, loops.lane[a]);
        if (loops.turn[a] && cuda_copied_points(t, &stage->axis[a], &side) > 1)
            cuda_mark_loop(r, "unroll", copy, loops.turn[a]);
    }
    cuda_mark_loop(r, "vec", copy, loops.run);
    tir_schedule_add(r->schedule, "at %s %s.%s", copy, t->sums, at);
    if (p.pad)
        tir_schedule_add(r->schedule, "store %s shared pad %d", copy, (int)p.pad);
    else
        tir_schedule_add(r->schedule, "store %s shared", copy);
}

void cuda_schedule_tile(cuda_rules *r, const cuda_tile *t) {
    if (t->unit) {
        cuda_schedule_matrix(r, t);
        return;
    }
    const int64_t stages = count_stages(r, t);
    const char *block = schedule_root(r, t), *at = schedule_sums(r, t, stages > 1);
    tir_schedule_add(r->schedule, "at %s %s.%s", t->sums, t->root, block);
    tir_schedule_add(r->schedule, "store %s reg", t->sums);
    for (int which = 0; which < 2; which++) schedule_copy(r, t, which, at);
    if (stages > 1) tir_schedule_add(r->schedule, "pipeline %s.%s stages=%d", t->sums, at, (int)stages);
}
