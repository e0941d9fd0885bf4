/* One case: prepares the contestants, holds the contest, compares results, prints a row and writes JSON lines. */
#include "bench/contest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OURS, PEAK, FIRST_OPPONENT, MAX_CONTESTANTS = FIRST_OPPONENT + BENCH_OPPONENTS };
/* Least arithmetic of cases that are also measured on one thread. */
#define ALONE_FLOPS 50e6

/* ---- contestants -------------------------------------------------------------------------------------------------------------- */

typedef struct peer_side {
    const bench_peer *peer;
    void *state;
    /* our operands, and results of the peer's own */
    bench_problem problem;
    char note[96];
} peer_side;

static peer_side prepare_peer(const bench_peer *peer, const bench_problem *ours, int threads) {
    peer_side side = {.peer = peer, .problem = *ours};
    for (int i = 0; i < ours->result_count; i++)
        bench_operand_create(&side.problem.results[i], ours->results[i].dtype, ours->results[i].rank,
                             ours->results[i].dims, 0, 0);
    peer->set_threads(threads);
    side.state = peer->prepare(&side.problem, side.note, sizeof side.note);
    return side;
}

static void release_peer(peer_side *side) {
    if (side->state) side->peer->release(side->state);
    for (int i = 0; side->peer && i < side->problem.result_count; i++) free(side->problem.results[i].data);
}

/* memcpy of half of the bytes that a case must move, which moves the same number in total. */
typedef struct copy {
    bench_operand from, to;
} copy;

static void run_copy(void *state) {
    copy *c = state;
    memcpy(c->to.data, c->from.data, c->from.bytes);
}

/* The least that a gather of rows does: one memcpy for each row that the ids select. */
typedef struct row_copies {
    const char *table;
    const int64_t *ids;
    /* number of rows; bytes of a row */
    size_t count, bytes;
    bench_operand to;
} row_copies;

static void run_row_copies(void *state) {
    row_copies *c = state;
    for (size_t i = 0; i < c->count; i++)
        memcpy((char *)c->to.data + i * c->bytes, c->table + (size_t)c->ids[i] * c->bytes, c->bytes);
}

static double data_bytes(const bench_problem *p) {
    double sum = 0;
    for (int i = 0; i < p->operand_count; i++) sum += (double)p->operands[i].bytes;
    for (int i = 0; i < p->result_count; i++) sum += (double)p->results[i].bytes;
    return p->bytes > 0 ? p->bytes : sum;
}

/* The contestants of one contest. */
typedef struct field {
    bench_arena *arena;
    bench_contestant contestants[MAX_CONTESTANTS];
    /* by contestant: number of the opponent; -1: libdlc, or the peak */
    int opponents[MAX_CONTESTANTS];
    const char *notes[MAX_CONTESTANTS];
    int count;
    bench_programs *ours, *separate, *alone, *direct, *forward, *wide, *kept_less, *unlimited;
    /* lines of kind `second`: a buffer as large as the second result, which memset fills after each run of the forward program */
    bench_operand written;
    bench_shape wide_shape;
    peer_side sides[BENCH_MAX_PEERS];
    copy copied;
    row_copies rows;
} field;

static void enter(field *f, int opponent, void (*run)(void *), void *state, const char *note) {
    f->contestants[f->count] = (bench_contestant){.name = bench_opponent_name(f->arena, opponent),
                                                  .run = run,
                                                  .state = state,
                                                  .may_leave = opponent >= 0 && opponent < BENCH_MAX_PEERS};
    f->opponents[f->count] = opponent;
    f->notes[f->count++] = note;
}

static bool wanted(bench_rivals rivals, int opponent) {
    return rivals.opponents >> opponent & 1;
}

static void enter_peers(field *f, bench_rivals rivals) {
    const bench_problem *problem = &f->ours->stages[0].builder.problem;
    for (int i = 0; i < f->arena->peer_count; i++) {
        if (!wanted(rivals, i)) continue;
        f->sides[i] = prepare_peer(f->arena->peers[i], problem, f->arena->threads);
        if (!f->sides[i].state) continue;
        enter(f, i, f->sides[i].peer->run, f->sides[i].state, f->sides[i].note);
        f->contestants[f->count - 1].time = f->sides[i].peer->time;
    }
}

static void enter_copy(field *f, const bench_problem *problem) {
    int64_t half = (int64_t)(data_bytes(problem) / 2);
    bench_operand_create(&f->copied.from, DLC_U8, 1, &half, 0, 255);
    bench_operand_create(&f->copied.to, DLC_U8, 1, &half, 0, 0);
    enter(f, BENCH_COPY, run_copy, &f->copied, "");
}

static void enter_row_copies(field *f, const bench_problem *p) {
    const bench_operand *table = &p->operands[0], *ids = &p->operands[1], *y = &p->results[0];
    size_t count = (size_t)ids->dims[0];
    f->rows = (row_copies){table->data, ids->data, count, count ? y->bytes / count : 0, {0}};
    bench_operand_create(&f->rows.to, y->dtype, y->rank, y->dims, 0, 0);
    enter(f, BENCH_ROWS, run_row_copies, &f->rows, "");
}

/* Adds the case as separate programs, if its kind has builders for them; masks and shared heads are supported by attention as a whole
 * only. */
static void enter_separate(field *f, const bench_case_kind *kind, const bench_shape *shape) {
    char reason[512] = "";
    int count = 0;
    int parts = bench_block_parts(shape);
    while (count < BENCH_MAX_STAGES && kind->stages[count]) count++;
    bool whole = bench_flag(shape, "causal") || bench_flag(shape, "masked") || bench_flag(shape, "kv_heads");
    if (parts ? parts == 1 : !count || whole) return;
    f->separate =
        parts ? bench_parts_prepare(f->arena->context, parts, shape, reason, sizeof reason)
              : bench_programs_prepare(f->arena->context, NULL, kind->stages, count, shape, reason, sizeof reason);
    if (f->separate)
        enter(f, BENCH_SEPARATE, bench_programs_run, f->separate, "");
    else
        printf("    separate programs FAILED: %s\n", reason);
}

static void enter_alone(field *f, const bench_case_kind *kind, const bench_shape *shape) {
    char reason[512] = "";
    f->alone = bench_programs_prepare(f->arena->alone, NULL, &kind->build, 1, shape, reason, sizeof reason);
    if (f->alone) enter(f, BENCH_ALONE, bench_programs_run, f->alone, "");
}

static void enter_direct(field *f, const bench_case_kind *kind, const bench_shape *shape) {
    char reason[512] = "";
    f->direct = bench_programs_prepare(f->arena->context, NULL, &kind->build, 1, shape, reason, sizeof reason);
    if (f->direct) enter(f, BENCH_DIRECT, bench_programs_run, f->direct, "");
}

static void run_and_write(void *state) {
    field *f = state;
    bench_programs_run(f->forward);
    memset(f->written.data, 0, f->written.bytes);
}

static void enter_forward(field *f, const bench_shape *shape) {
    bench_build_function *const build = bench_forward_of(shape);
    char reason[512] = "";
    if (!build) return;
    f->forward = bench_programs_prepare(f->arena->context, NULL, &build, 1, shape, reason, sizeof reason);
    if (!f->forward) return;
    const bench_operand *second = &f->ours->stages[0].builder.problem.results[1];
    const bool writes = strcmp(shape->kind, "second") == 0;
    if (writes) bench_operand_create(&f->written, second->dtype, second->rank, second->dims, 0, 0);
    enter(f, BENCH_FORWARD, writes ? run_and_write : bench_programs_run, writes ? (void *)f : f->forward, "");
}

/* Is the line's last parameter that products are narrow? */
static bool narrows(const bench_shape *shape) {
    return strcmp(shape->kind, "train") == 0 && strcmp(shape->parameters[shape->count - 1].key, "products") == 0;
}

/* A step with narrow products also without that parameter. */
static void enter_wide(field *f, const bench_case_kind *kind, const bench_shape *shape) {
    char reason[512] = "";
    f->wide_shape = *shape;
    f->wide_shape.count--;
    f->wide = bench_programs_prepare(f->arena->context, NULL, &kind->build, 1, &f->wide_shape, reason, sizeof reason);
    if (f->wide) enter(f, BENCH_WIDE, bench_programs_run, f->wide, "");
}

static void enter_kept_less(field *f, const bench_case_kind *kind, const bench_shape *shape) {
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    char reason[512] = "";
    options.recompute = true;
    f->kept_less = bench_programs_prepare(f->arena->context, &options, &kind->build, 1, shape, reason, sizeof reason);
    if (f->kept_less) enter(f, BENCH_KEPT_LESS, bench_programs_run, f->kept_less, "");
}

/* A step within arena= percent of the arena that it has without a limit: against itself without the limit, and no peer. */
static void enter_unlimited(field *f, const bench_case_kind *kind, const bench_shape *shape,
                            dlc_compile_options *options) {
    const double percent = (double)bench_number(shape, "arena", 0);
    char reason[512] = "";
    f->unlimited = bench_programs_prepare(f->arena->context, NULL, &kind->build, 1, shape, reason, sizeof reason);
    if (f->unlimited)
        options->memory_bytes = (size_t)(percent / 100 * bench_programs_arena(f->arena->context, f->unlimited));
}

/* Prepares all contestants. False: libdlc cannot run the case, and the reason was printed. */
static bool assemble(field *f, bench_arena *arena, const bench_shape *shape, bench_rivals rivals) {
    *f = (field){.arena = arena};
    const bench_case_kind *kind = bench_case_find(shape);
    char reason[512] = "";
    if (!kind) {
        printf("%-96s %3d not covered: no operator for it yet\n", shape->label, arena->threads);
        return false;
    }
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    options.winograd = bench_flag(shape, "winograd");
    const bool limited = bench_number(shape, "arena", 0) > 0;
    if (limited) enter_unlimited(f, kind, shape, &options);
    f->ours = bench_programs_prepare(arena->context, &options, &kind->build, 1, shape, reason, sizeof reason);
    if (!f->ours) {
        printf("%-96s %3d FAILED: %s\n", shape->label, arena->threads, reason);
        arena->failures++;
        return false;
    }
    const bench_problem *problem = &f->ours->stages[0].builder.problem;
    enter(f, -1, bench_programs_run, f->ours, "");
    enter(f, -1, bench_fma_burst, NULL, "");
    if (limited) {
        if (f->unlimited) enter(f, BENCH_UNLIMITED, bench_programs_run, f->unlimited, "");
        return true;
    }
    enter_peers(f, rivals);
    bool moves = strcmp(shape->kind, "move") == 0 || strcmp(shape->kind, "map") == 0;
    if (moves && wanted(rivals, BENCH_COPY)) enter_copy(f, problem);
    if (moves && strcmp(shape->name, "gather") == 0 && wanted(rivals, BENCH_ROWS)) enter_row_copies(f, problem);
    if (options.winograd && wanted(rivals, BENCH_DIRECT)) enter_direct(f, kind, shape);
    if (wanted(rivals, BENCH_FORWARD)) enter_forward(f, shape);
    if (narrows(shape) && wanted(rivals, BENCH_WIDE)) enter_wide(f, kind, shape);
    if (strcmp(shape->kind, "train") == 0 && wanted(rivals, BENCH_KEPT_LESS)) enter_kept_less(f, kind, shape);
    if (wanted(rivals, BENCH_SEPARATE)) enter_separate(f, kind, shape);
    if (arena->threads > 1 && problem->flops >= ALONE_FLOPS && wanted(rivals, BENCH_ALONE)) enter_alone(f, kind, shape);
    return true;
}

static void dismiss(field *f) {
    for (int i = 0; i < f->arena->peer_count; i++) release_peer(&f->sides[i]);
    if (f->contestants[0].samples) bench_contest_release(f->contestants);
    bench_programs_release(f->ours);
    if (f->separate) bench_programs_release(f->separate);
    if (f->alone) bench_programs_release(f->alone);
    if (f->direct) bench_programs_release(f->direct);
    if (f->forward) bench_programs_release(f->forward);
    if (f->wide) bench_programs_release(f->wide);
    if (f->kept_less) bench_programs_release(f->kept_less);
    if (f->unlimited) bench_programs_release(f->unlimited);
    free(f->written.data);
    free(f->copied.from.data);
    free(f->copied.to.data);
    free(f->rows.to.data);
}

/* ---- results ------------------------------------------------------------------------------------------------------------------- */

/* Greatest difference over greatest magnitude. */
static double difference(const bench_operand *a, const bench_operand *b) {
    size_t count = a->bytes / bench_dtype_bytes(a->dtype);
    double most = 0, scale = 0;
    for (size_t i = 0; i < count; i++) {
        double x = bench_element(a, i), y = bench_element(b, i), d = fabs(x - y);
        if (isnan(d) || d > most) most = isnan(d) ? INFINITY : d;
        if (fabs(y) > scale) scale = fabs(y);
    }
    return scale > 0 ? most / scale : most;
}

/* The tolerance for two correct results: half a unit in the last place of each for the short types, and f32 sums in any order. */
static double allowed(dlc_dtype dtype) {
    return dtype == DLC_BF16 || dtype == DLC_U8 || dtype == DLC_I8 ? 1e-2 : 1e-3;
}

/* Compares a block's parts with the whole, by the values that are results of both. */
static void check_parts(field *f) {
    const bench_builder *ours = &f->ours->stages[0].builder;
    for (int i = 0; f->separate && bench_block_parts(ours->problem.shape) && i < f->separate->count; i++) {
        const bench_builder *part = &f->separate->stages[i].builder;
        for (int r = 0; r < part->problem.result_count; r++)
            for (int o = 0; o < ours->problem.result_count; o++) {
                if (part->result_values[r] != ours->result_values[o]) continue;
                double d = difference(&ours->problem.results[o], &part->problem.results[r]);
                if (d <= allowed(ours->problem.results[o].dtype)) continue;
                printf("    WRONG: result %d differs from part %d's by %.3g of its greatest magnitude\n", o, i + 1, d);
                f->arena->failures++;
            }
    }
}

/* Compares our results with each peer's; a difference is reported as WRONG. Where roundings change results by more than the tolerance, the
 * distance may be the peer's error, and twice as much of ours. */
static void check_results(field *f) {
    const bench_problem *ours = &f->ours->stages[0].builder.problem;
    for (int i = 0; i < f->arena->peer_count; i++) {
        const peer_side *s = &f->sides[i];
        const double error = s->state && s->peer->error ? s->peer->error(s->state) : 0;
        for (int r = 0; s->state && r < ours->result_count; r++) {
            const double d = difference(&ours->results[r], &s->problem.results[r]);
            const double most = ours->tolerance > 0 ? ours->tolerance : allowed(ours->results[r].dtype);
            if (d <= fmax(most, 3 * error)) continue;
            printf("    WRONG: result %d differs from %s's by %.3g of its greatest magnitude\n", r, s->peer->name, d);
            f->arena->failures++;
        }
    }
    check_parts(f);
    if (!f->ours->status) return;
    printf("    FAILED while timed: %s\n", dlc_status_text(f->ours->status));
    f->arena->failures++;
}

static bool same_kernels(const field *f) {
    return f->separate && bench_programs_same_kernels(f->arena->context, f->ours, f->separate);
}

/* Adds the ratios of one contest to the outcome. */
static void take_ratios(const field *f, bench_outcome *o) {
    const double *ours = f->contestants[OURS].samples;
    for (int c = 0; c < f->count; c++) {
        if (f->opponents[c] < 0) continue;
        bench_opponent *opponent = &o->others[f->opponents[c]];
        const bench_contestant *theirs = &f->contestants[c];
        double *ratios = calloc((size_t)theirs->times.samples, sizeof *ratios);
        if (!ratios) abort();
        for (int s = 0; s < theirs->times.samples; s++) ratios[s] = theirs->samples[s] / ours[s];
        bench_pairs_add(&opponent->pairs, ratios, theirs->times.samples);
        free(ratios);
        if (opponent->seconds == 0) opponent->seconds = theirs->times.median;
        opponent->ratio = bench_pairs_median(&opponent->pairs);
    }
}

/* The first step of a peer that compiles, over ours. */
static void take_first(const field *f, bench_outcome *o) {
    for (int i = 0; i < f->arena->peer_count; i++) {
        if (!f->sides[i].state || !f->sides[i].peer->first) continue;
        const double seconds = f->sides[i].peer->first(f->sides[i].state), ratio = seconds / o->first;
        if (seconds == 0) continue;
        bench_opponent *opponent = &o->others[BENCH_FIRST];
        bench_pairs_add(&opponent->pairs, &ratio, 1);
        opponent->seconds = seconds, opponent->ratio = ratio;
    }
}

/* The ratio of memory: the peak of a peer's tensors during a step of training, over the arena of our program with `recompute`. */
static void take_memory(const field *f, bench_outcome *o) {
    const double arena = f->kept_less ? bench_programs_arena(f->arena->context, f->kept_less) : 0;
    for (int i = 0; i < f->arena->peer_count; i++) {
        const peer_side *side = &f->sides[i];
        if (arena == 0 || !side->state || !side->peer->peak) continue;
        const double peak = side->peer->peak(side->state);
        bench_opponent *opponent = &o->others[BENCH_MEMORY];
        if (peak == 0 || opponent->seconds > 0) continue;
        const double ratio = peak / arena;
        bench_pairs_add(&opponent->pairs, &ratio, 1);
        opponent->seconds = peak, opponent->ratio = ratio;
    }
}

/* ---- telling -------------------------------------------------------------------------------------------------------------------- */

const char *bench_opponent_name(const bench_arena *arena, int opponent) {
    static const char *const names[] = {[BENCH_COPY] = "memcpy",           [BENCH_SEPARATE] = "separate programs",
                                        [BENCH_DIRECT] = "direct",         [BENCH_ALONE] = "one thread",
                                        [BENCH_FORWARD] = "forward",       [BENCH_WIDE] = "f32",
                                        [BENCH_FIRST] = "first step",      [BENCH_MEMORY] = "bytes at once",
                                        [BENCH_KEPT_LESS] = "recomputing", [BENCH_UNLIMITED] = "without a limit",
                                        [BENCH_ROWS] = "memcpy by rows"};
    if (opponent < 0) return "dlc";
    return opponent < BENCH_MAX_PEERS ? arena->peers[opponent]->name : names[opponent];
}

int bench_best_peer(const bench_outcome *o) {
    int best = -1;
    for (int i = 0; i < BENCH_MAX_PEERS; i++)
        if (o->others[i].seconds > 0 && (best < 0 || o->others[i].ratio < o->others[best].ratio)) best = i;
    return best;
}

static int peer_width(const bench_peer *peer) {
    int length = (int)strlen(peer->name);
    return length > 6 ? length : 6;
}

void bench_print_header(const bench_arena *a) {
    printf("\n%-96s thr %10s %6s %8s %8s %6s %8s %8s", "case", "dlc us", "spread", "GFLOP/s", "GB/s", "roof", "predict",
           "first ms");
    if (a->peer_count) printf(" %10s %6s", "best us", "ratio");
    for (int i = 0; i < a->peer_count; i++) printf(" %*s", peer_width(a->peers[i]), a->peers[i]->name);
    printf("\n");
}

static void print_row(const field *f, const bench_outcome *o) {
    const bench_arena *a = f->arena;
    char predicted[16] = "-";
    if (o->predicted > 0) snprintf(predicted, sizeof predicted, "%.2f", o->predicted / o->seconds);
    printf("%-96s %3d %10.2f %5.1f%% %8.1f %8.1f %5.1f%% %8s %8.2f", o->shape->label, o->threads, o->seconds * 1e6,
           (o->high - o->low) / o->seconds * 100, o->flops / o->seconds * 1e-9, o->bytes / o->seconds * 1e-9,
           o->roof / o->seconds * 100, predicted, o->first * 1e3);
    int which = bench_best_peer(o);
    if (which >= 0)
        printf(" %10.2f %5.2fx", o->others[which].seconds * 1e6, o->others[which].ratio);
    else if (a->peer_count)
        printf(" %10s %6s", "-", "-");
    for (int i = 0; i < a->peer_count; i++) {
        int width = peer_width(a->peers[i]);
        if (o->others[i].seconds > 0)
            printf(" %*.2f%s", width - 1, o->others[i].ratio,
                   o->others[i].pairs.counts[0] < a->settings->samples ? "~" : "x");
        else
            printf(" %*s", width, "-");
    }
    for (int i = BENCH_MAX_PEERS; i < BENCH_OPPONENTS; i++)
        if (o->others[i].seconds > 0)
            printf("  %s %.2f %s %.2fx", bench_opponent_name(a, i),
                   o->others[i].seconds * (i == BENCH_MEMORY ? 1e-6 : 1e6), i == BENCH_MEMORY ? "MB" : "us",
                   o->others[i].ratio);
    if (o->same_kernels) printf("  (same kernels)");
    for (int c = FIRST_OPPONENT; c < f->count; c++)
        if (strstr(f->notes[c], "wino")) printf("  (Winograd)");
    printf("\n");
    fflush(stdout);
}

static void write_json(const field *f, const bench_outcome *o) {
    for (int c = 0; c < f->count; c++) {
        if (c == PEAK) continue;
        const bench_times *t = &f->contestants[c].times;
        fprintf(
            f->arena->json,
            "{\"case\":\"%s\",\"kind\":\"%s\",\"threads\":%d,\"contestant\":\"%s\",\"note\":\"%s\",\"seconds\":%.9g,"
            "\"low\":%.9g,\"high\":%.9g,\"samples\":%d,\"calls\":%lld,\"gflops\":%.4g,\"gbps\":%.4g,"
            "\"roof_share\":%.4g",
            o->shape->text, o->shape->kind, o->threads, f->contestants[c].name, f->notes[c], t->median, t->low, t->high,
            t->samples, (long long)t->calls, o->flops / t->median * 1e-9, o->bytes / t->median * 1e-9,
            o->roof / t->median);
        if (c == OURS)
            fprintf(f->arena->json,
                    ",\"first_seconds\":%.6g,\"predicted\":%.6g,\"flops\":%.9g,\"bytes\":%.9g,\"peak_gflops\":%.5g",
                    o->first, o->predicted, o->flops, o->bytes, o->fma * o->gain * 1e-9);
        else
            fprintf(f->arena->json, ",\"ratio\":%.5g", o->others[f->opponents[c]].ratio);
        fprintf(f->arena->json, "}\n");
    }
    fflush(f->arena->json);
}

/* The least time of all samples: a roof is undisturbed. */
static double best_sample(const bench_contestant *c) {
    double best = c->samples[0];
    for (int i = 1; i < c->times.samples; i++) best = c->samples[i] < best ? c->samples[i] : best;
    return best;
}

/* ---- a case ---------------------------------------------------------------------------------------------------------------------- */

/* The kernels of a recurrent network run once for each step, those of a decoder are predicted for a cache that is half full. */
static bool is_predicted(const bench_shape *shape) {
    return strcmp(shape->kind, "recurrent") != 0 && strcmp(shape->kind, "decode") != 0;
}

bool bench_case_run(bench_arena *arena, const bench_shape *shape, bench_rivals rivals, bench_outcome *o) {
    field *f = malloc(sizeof *f);
    if (!f) abort();
    if (!assemble(f, arena, shape, rivals)) return free(f), false;
    bench_contest(f->contestants, f->count, arena->threads, arena->settings);
    const bench_problem *problem = &f->ours->stages[0].builder.problem;
    const bench_times *ours = &f->contestants[OURS].times;
    *o = (bench_outcome){.shape = shape,
                         .threads = arena->threads,
                         .seconds = ours->median,
                         .low = ours->low,
                         .high = ours->high,
                         .first = f->ours->stages[0].first_seconds,
                         .predicted = is_predicted(shape) ? bench_programs_predict(arena->context, f->ours) : 0,
                         .flops = problem->flops,
                         .bytes = data_bytes(problem),
                         .fma = bench_fma_flops(arena->threads) / best_sample(&f->contestants[PEAK]),
                         .gain = bench_unit_gain(&arena->roofs, problem)};
    o->roof = bench_roof_seconds(&arena->roofs, o->fma, problem);
    o->same_kernels = same_kernels(f);
    take_ratios(f, o);
    take_first(f, o);
    take_memory(f, o);
    print_row(f, o);
    write_json(f, o);
    check_results(f);
    dismiss(f);
    free(f);
    return true;
}

void bench_case_repeat(bench_arena *arena, bench_rivals rivals, bench_outcome *o) {
    field *f = malloc(sizeof *f);
    if (!f) abort();
    if (assemble(f, arena, o->shape, rivals)) {
        bench_contest(f->contestants, f->count, arena->threads, arena->settings);
        if (wanted(rivals, BENCH_SEPARATE)) o->same_kernels = o->same_kernels && same_kernels(f);
        take_ratios(f, o);
        dismiss(f);
    }
    free(f);
}

void bench_outcome_release(bench_outcome *o) {
    for (int i = 0; i < BENCH_OPPONENTS; i++) bench_pairs_release(&o->others[i].pairs);
}
