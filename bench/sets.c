/* A table of sets. A case's ratio is its opponent's time over ours, the median of pairs; a case fails when it is surely below the bar: when
 * the upper 90 % bound of its ratio is. */
#include "bench/sets.h"

#include <stdlib.h>
#include <string.h>

enum { WORST = 15, BEST_PEER = -1, NAMED_PEER = -2, MULTIPLY_ADDS_OF_TINY = 16 * 16 * 16 };
#define LEAST_COPY_SHARE 0.85 /* required of maps that exceed the second cache */

/* ---- which cases ------------------------------------------------------------------------------------------------------------- */

typedef struct line {
    const bench_shape *shape;
    const bench_outcome *outcome;
    const bench_arena *arena;
} line;

static bool kind(line l, const char *name) {
    return strcmp(l.shape->kind, name) == 0;
}
static bool named(line l, const char *name) {
    return strcmp(l.shape->name, name) == 0;
}
static bool typed(line l, const char *dtype) {
    const char *text = bench_text(l.shape, "dtype");
    return strcmp(text ? text : "f32", dtype) == 0;
}
static bool at_run_time(line l) {
    return bench_number(l.shape, "const", 1) == 0;
}
static bool placed(line l) { /* images in a layout of their own */
    return bench_flag(l.shape, "blocked") || bench_flag(l.shape, "last");
}
static bool filtered_alone(line l) { /* each channel by itself */
    int64_t groups = bench_number(l.shape, "groups", 1);
    return groups > 1 && groups == bench_number(l.shape, "ci", 1);
}

static bool weights_known(line l) {
    return kind(l, "contraction") && typed(l, "f32") && !at_run_time(l) && !named(l, "odd");
}
static bool both_at_run_time(line l) {
    return kind(l, "contraction") && typed(l, "f32") && at_run_time(l);
}
static bool odd(line l) {
    return kind(l, "contraction") && typed(l, "f32") && !at_run_time(l) && named(l, "odd");
}
static bool contraction_f32(line l) {
    return kind(l, "contraction") && typed(l, "f32");
}
static bool contraction_bf16(line l) {
    return kind(l, "contraction") && typed(l, "bf16");
}
static bool contraction_u8(line l) {
    return kind(l, "contraction") && typed(l, "u8");
}
static bool contraction_f64(line l) {
    return kind(l, "contraction") && typed(l, "f64");
}
static bool contraction_f16(line l) {
    return kind(l, "contraction") && typed(l, "f16");
}
static bool convolution_f32(line l) {
    return kind(l, "convolution") && typed(l, "f32") && !bench_flag(l.shape, "winograd");
}
static bool convolution_blocked(line l) {
    return convolution_f32(l) && placed(l) && !filtered_alone(l);
}
static bool convolution_plain(line l) {
    return convolution_f32(l) && !placed(l);
}
static bool convolution_bf16(line l) {
    return kind(l, "convolution") && typed(l, "bf16");
}
static bool convolution_u8(line l) {
    return kind(l, "convolution") && typed(l, "u8");
}
static bool depthwise(line l) {
    return convolution_plain(l) && filtered_alone(l);
}
static bool depthwise_blocked(line l) {
    return convolution_f32(l) && placed(l) && filtered_alone(l);
}
static bool winograd(line l) {
    return kind(l, "convolution") && bench_flag(l.shape, "winograd");
}
static bool fused_map(line l) {
    return kind(l, "map") && !named(l, "add") && !named(l, "cast f32->bf16");
}
/* Maps that exceed the second cache and are not bound by arithmetic, neither by the roofs nor by what the library's cost model expects. */
static bool map_in_memory(line l) {
    const bench_roofs *r = &l.arena->roofs;
    const bench_outcome *o = l.outcome;
    double cache = r->level_count > 2 ? r->levels[1].size * l.arena->threads : 1 << 20;
    double arithmetic = o->fma > 0 ? o->flops / o->fma : 0;
    bool computes = arithmetic >= o->roof || o->predicted * LEAST_COPY_SHARE > o->others[BENCH_COPY].seconds;
    return fused_map(l) && o->bytes > cache && !computes;
}
static bool softmax(line l) {
    return kind(l, "row") && named(l, "softmax");
}
static bool layer_norm(line l) {
    return kind(l, "row") && named(l, "layer_norm");
}
static bool attention(line l) {
    return kind(l, "attention");
}
static bool transform(line l) {
    return kind(l, "transform") && named(l, "complex") && bench_number(l.shape, "points", 0) == 1024;
}
static bool moves(line l) {
    return kind(l, "move") && (named(l, "transpose") || named(l, "concat") || named(l, "pad") || named(l, "gather"));
}
static bool embedding(line l) {
    return kind(l, "move") && named(l, "gather");
}
static bool resized(line l) {
    return kind(l, "move") && named(l, "resize");
}
static bool recurrent_one(line l) { /* one sequence: vectors times matrices */
    return kind(l, "recurrent") && bench_number(l.shape, "b", 1) == 1;
}
static bool recurrent_batch(line l) { /* near the peak: nobody can be half as fast again */
    return kind(l, "recurrent") && !recurrent_one(l);
}
static bool top_k(line l) { /* sorts among them: k is all */
    return kind(l, "row") && named(l, "topk");
}
static bool block(line l) {
    return kind(l, "block");
}
static bool single(line l) { /* blocks have sets of their own */
    return !block(l);
}
static bool step(line l) {
    return kind(l, "train") && !bench_text(l.shape, "arena");
}
static bool step_limited(line l) {
    return kind(l, "train") && bench_text(l.shape, "arena");
}
static bool step_of(line l, const char *network) {
    return step(l) && strcmp(bench_text(l.shape, "network"), network) == 0;
}
static bool step_small(line l) {
    return step(l) && l.outcome->seconds <= 1e-3;
}
static bool step_lstm(line l) {
    return step_of(l, "lstm");
}
static bool step_narrow(line l) {
    return step(l) && bench_text(l.shape, "products");
}
static bool step_of_products(line l) { /* not of depthwise convolutions or of a table's rows */
    return step(l) && !step_of(l, "mobilenet2") && !step_of(l, "embedding") && !step_small(l);
}
static bool backward(line l, const char *name) { /* name: the first word */
    return kind(l, "backward") && strncmp(l.shape->name, name, strlen(name)) == 0;
}
static bool backward_product(line l) {
    return backward(l, "product");
}
static bool backward_convolution(line l) {
    return backward(l, "convolution");
}
static bool backward_product_or_convolution(line l) {
    return backward_product(l) || backward_convolution(l);
}
static bool backward_attention(line l) {
    return backward(l, "attention");
}
static bool backward_row(line l) { /* softmax and norms */
    return kind(l, "backward") && !backward_product_or_convolution(l) && !backward_attention(l);
}
static bool update(line l) {
    return kind(l, "update");
}
static bool second(line l) {
    return kind(l, "second");
}
static bool adam(line l) {
    return kind(l, "map") && named(l, "adam");
}

/* ---- the table ----------------------------------------------------------------------------------------------------------------- */

typedef struct bar {
    /* 0: no requirement, the ratio is only told */
    double mean, least;
} bar;

typedef struct set {
    const char *name;
    bool (*has)(line l);
    /* BEST_PEER, NAMED_PEER or one of bench.h */
    int opponent;
    const char *peer;
    bar required, stretch;
    /* the least ratio required of cases with at most 16^3 multiply-adds; 0: the same as of others */
    double tiny;
} set;

static const set sets[] = {
    {"contraction, constant weights", weights_known, BEST_PEER, NULL, {1.02, 0.92}, {1.10, 1.0}, 0.85},
    {"contraction, operands at run time", both_at_run_time, BEST_PEER, NULL, {1.0, 0.9}, {1.05, 0.95}, 0},
    {"contraction, odd shapes", odd, BEST_PEER, NULL, {1.2, 1.0}, {1.5, 1.1}, 0},
    {"contraction, all", contraction_f32, NAMED_PEER, "onnxruntime", {1.15, 0.97}, {1.3, 1.0}, 0},
    {"contraction bf16", contraction_bf16, NAMED_PEER, "onednn", {1.0, 0.92}, {1.1, 1.0}, 0},
    {"contraction u8 x i8", contraction_u8, NAMED_PEER, "onednn", {1.0, 0.92}, {1.1, 1.0}, 0},
    {"contraction f64", contraction_f64, BEST_PEER, NULL, {0, 0}, {0, 0}, 0},
    {"contraction f16", contraction_f16, BEST_PEER, NULL, {0, 0}, {0, 0}, 0},
    {"convolution, blocked in and out", convolution_blocked, NAMED_PEER, "onednn", {1.02, 0.92}, {1.1, 1.0}, 0},
    {"convolution bf16", convolution_bf16, NAMED_PEER, "onednn", {1.0, 0.9}, {1.1, 1.0}, 0},
    {"convolution u8 x i8", convolution_u8, NAMED_PEER, "onednn", {1.0, 0.9}, {1.1, 1.0}, 0},
    {"depthwise", depthwise, NAMED_PEER, "onednn", {1.5, 1.1}, {2, 1.5}, 0},
    {"depthwise, blocked in and out", depthwise_blocked, NAMED_PEER, "onednn", {1.5, 1.1}, {2, 1.5}, 0},
    {"convolution", convolution_plain, NAMED_PEER, "onnxruntime", {1.3, 1.0}, {1.6, 1.1}, 0},
    {"Winograd", winograd, BENCH_DIRECT, NULL, {1.4, 1.0}, {2, 1.2}, 0},
    {"fused maps", fused_map, NAMED_PEER, "onnxruntime", {3, 1.5}, {4, 2}, 0},
    {"fused maps beyond L2", map_in_memory, BENCH_COPY, NULL, {LEAST_COPY_SHARE, LEAST_COPY_SHARE}, {0.95, 0.95}, 0},
    {"softmax", softmax, NAMED_PEER, "onnxruntime", {1.05, 0.95}, {1.4, 1.1}, 0},
    {"layer norm", layer_norm, NAMED_PEER, "onnxruntime", {3, 2}, {5, 3}, 0},
    {"attention", attention, BEST_PEER, NULL, {1.2, 0.95}, {1.5, 1.1}, 0},
    {"transforms of 1,024 points", transform, NAMED_PEER, "fftw", {0.5, 0.5}, {1.0, 0.9}, 0},
    {"transpose, concat, pad, gather", moves, BENCH_COPY, NULL, {0.8, 0.5}, {0.95, 0.7}, 0},
    {"embedding gather", embedding, BENCH_COPY, NULL, {0.8, 0.8}, {0.95, 0.9}, 0},
    {"embedding gather, row by row", embedding, BENCH_ROWS, NULL, {0.8, 0.8}, {0.95, 0.9}, 0},
    {"resize", resized, NAMED_PEER, "onnxruntime", {2, 1.5}, {4, 2}, 0},
    {"LSTM, GRU, one sequence", recurrent_one, NAMED_PEER, "onnxruntime", {1.5, 1.5}, {2, 2}, 0},
    {"LSTM, GRU, batches", recurrent_batch, NAMED_PEER, "onnxruntime", {0, 0}, {0, 0}, 0},
    {"sort, top-k", top_k, NAMED_PEER, "onnxruntime", {1.0, 1.0}, {2, 1.2}, 0},
    {"blocks vs sum of parts", block, BENCH_SEPARATE, NULL, {1.0, 1.0}, {1.1, 1.05}, 0},
    {"blocks vs ONNX Runtime", block, NAMED_PEER, "onnxruntime", {1.15, 0.97}, {1.3, 1.0}, 0},
    {"training steps", step, NAMED_PEER, "torch", {1.3, 0.95}, {1.8, 1.1}, 0},
    {"training steps, compiled", step, NAMED_PEER, "torch_compile", {1.1, 0.9}, {1.3, 1.0}, 0},
    {"training steps, jit", step, NAMED_PEER, "jax", {1.4, 1.0}, {2, 1.2}, 0},
    {"training steps up to 1 ms", step_small, BEST_PEER, NULL, {4, 2}, {8, 4}, 0},
    {"training steps, LSTM", step_lstm, NAMED_PEER, "torch", {1.3, 1.1}, {1.8, 1.4}, 0},
    {"training steps, the first", step, BENCH_FIRST, NULL, {10, 0}, {30, 0}, 0},
    {"training steps, recomputing", step, BENCH_KEPT_LESS, NULL, {0, 0}, {0, 0}, 0},
    {"training steps in less memory, without a limit over them",
     step_limited,
     BENCH_UNLIMITED,
     NULL,
     {1 / 1.3, 1 / 1.3},
     {1 / 1.15, 1 / 1.15},
     0},
    {"training steps, PyTorch's bytes at once", step, BENCH_MEMORY, NULL, {1, 1}, {1 / 0.7, 1 / 0.7}, 0},
    {"training steps over forward parts", step_of_products, BENCH_FORWARD, NULL, {1 / 3.3, 0}, {1 / 3.05, 0}, 0},
    {"training steps, bf16 over f32", step_narrow, BENCH_WIDE, NULL, {1.5, 1.5}, {1.9, 1.9}, 0},
    {"x^T dy, dy w^T", backward_product, BEST_PEER, NULL, {1.0, 0.9}, {1.05, 0.95}, 0},
    {"convolution backward", backward_convolution, NAMED_PEER, "onednn", {1.0, 0.85}, {1.1, 0.95}, 0},
    {"products backward over forward",
     backward_product_or_convolution,
     BENCH_FORWARD,
     NULL,
     {1 / 1.25, 1 / 1.5},
     {1 / 1.1, 1 / 1.25},
     0},
    {"attention backward", backward_attention, NAMED_PEER, "torch", {1.1, 0.95}, {1.4, 1.1}, 0},
    {"attention backward over forward", backward_attention, BENCH_FORWARD, NULL, {1 / 3.2, 0}, {1 / 2.7, 0}, 0},
    {"softmax, norms backward", backward_row, NAMED_PEER, "torch", {1.5, 1.1}, {2.5, 1.5}, 0},
    {"dW and update over dW", update, BENCH_FORWARD, NULL, {1 / 1.1, 0}, {1 / 1.03, 0}, 0},
    {"kernel and its second result written, over both", second, BENCH_FORWARD, NULL, {1 / 1.1, 0}, {1 / 1.02, 0}, 0},
    {"Adam's update", adam, BENCH_COPY, NULL, {LEAST_COPY_SHARE, LEAST_COPY_SHARE}, {0.95, 0.95}, 0},
    {"two threads, above 50 MFLOP", single, BENCH_ALONE, NULL, {1.85, 1.85}, {1.95, 1.9}, 0},
};
enum { SETS = sizeof sets / sizeof *sets };

/* ---- ratios ---------------------------------------------------------------------------------------------------------------------- */

/* The opponent that counts for a case; -1: it was not measured. */
static int opponent_of(const set *s, const bench_arena *a, const bench_outcome *o) {
    if (s->opponent == BEST_PEER) return bench_best_peer(o);
    int found = s->opponent;
    for (int i = 0; s->opponent == NAMED_PEER && i < a->peer_count; i++)
        if (strcmp(a->peers[i]->name, s->peer) == 0) found = i;
    return found >= 0 && o->others[found].seconds > 0 ? found : -1;
}

static double least_of(const set *s, const bench_shape *shape) {
    int64_t volume = bench_number(shape, "m", 1) * bench_number(shape, "n", 1) * bench_number(shape, "k", 1);
    return s->tiny > 0 && volume <= MULTIPLY_ADDS_OF_TINY ? s->tiny : s->required.least;
}

static bool belongs(const set *s, const bench_arena *a, const bench_outcome *o) {
    return o->threads == a->threads && s->has((line){o->shape, o, a});
}

/* Is the case one that cannot fail? Separate programs of the same kernels differ only in where their memory lies. */
static bool excused(const set *s, const bench_outcome *o) {
    return s->opponent == BENCH_SEPARATE && o->same_kernels;
}

/* Is the ratio surely below the bar? In sets against the best peer: is the ratio to any one peer? */
static bool fails(const set *s, const bench_arena *a, const bench_outcome *o) {
    double least = least_of(s, o->shape);
    int one = opponent_of(s, a, o);
    if (one < 0 || least == 0 || o->others[one].ratio >= least || excused(s, o)) return false;
    if (s->opponent != BEST_PEER) return bench_pairs_upper(&o->others[one].pairs) < least;
    for (int i = 0; i < a->peer_count; i++)
        if (o->others[i].seconds > 0 && o->others[i].ratio < least && bench_pairs_upper(&o->others[i].pairs) < least)
            return true;
    return false;
}

/* ---- the worst, again ------------------------------------------------------------------------------------------------------------ */

typedef struct suspect {
    bench_outcome *outcome;
    /* the least of the ratios over their bars */
    double margin;
    bench_rivals rivals;
} suspect;

static void consider(suspect *x, const set *s, const bench_arena *a) {
    double least = least_of(s, x->outcome->shape);
    int one = belongs(s, a, x->outcome) ? opponent_of(s, a, x->outcome) : -1;
    if (one < 0 || least == 0 || excused(s, x->outcome) || one == BENCH_FIRST || one == BENCH_MEMORY)
        return; /* the last two are measured once */
    double margin = x->outcome->others[one].ratio / least;
    if (x->margin == 0 || margin < x->margin) x->margin = margin;
    if (margin > 1.3) return;
    for (int i = 0; s->opponent == BEST_PEER && i < a->peer_count; i++)
        if (x->outcome->others[i].seconds > 0 && x->outcome->others[i].ratio < 1.3 * least)
            x->rivals.opponents |= 1u << i;
    x->rivals.opponents |= 1u << one;
}

static int by_margin(const void *a, const void *b) {
    double x = ((const suspect *)a)->margin, y = ((const suspect *)b)->margin;
    return (x > y) - (x < y);
}

void bench_sets_repeat_worst(bench_arena *arena, bench_outcome *outcomes, int count) {
    suspect *suspects = calloc((size_t)count + 1, sizeof *suspects);
    if (!suspects) abort();
    int found = 0;
    for (int i = 0; i < count; i++) {
        suspects[found] = (suspect){.outcome = &outcomes[i]};
        for (int s = 0; s < SETS; s++) consider(&suspects[found], &sets[s], arena);
        found += suspects[found].rivals.opponents != 0;
    }
    qsort(suspects, (size_t)found, sizeof *suspects, by_margin);
    const bench_settings *settings = arena->settings;
    for (int i = 0; i < found && i < WORST; i++) {
        bench_outcome *o = suspects[i].outcome;
        bench_settings fewer = *settings;
        if (o->seconds > 0.1 && fewer.samples > 5) fewer.samples = 5;
        arena->settings = &fewer;
        for (int k = 0; k < BENCH_OPPONENTS; k++)
            if (suspects[i].rivals.opponents >> k & 1) bench_pairs_release(&o->others[k].pairs);
        for (int run = 0; run < BENCH_MAX_RUNS; run++) bench_case_repeat(arena, suspects[i].rivals, o);
    }
    arena->settings = settings;
    printf("the %d cases nearest to or below their bars were measured five times more, and count by that\n",
           found < WORST ? found : WORST);
    free(suspects);
}

/* ---- tables ---------------------------------------------------------------------------------------------------------------------- */

typedef struct verdict {
    int cases, measured, failing, below_stretch, excused;
    double mean, least;
} verdict;

static verdict judge(const set *s, const bench_arena *a, const bench_outcome *outcomes, int count) {
    verdict v = {0};
    double *ratios = calloc((size_t)count + 1, sizeof *ratios);
    if (!ratios) abort();
    for (int i = 0; i < count; i++) {
        if (!belongs(s, a, &outcomes[i])) continue;
        v.cases++;
        int one = opponent_of(s, a, &outcomes[i]);
        if (one < 0) continue;
        double ratio = ratios[v.measured++] = outcomes[i].others[one].ratio;
        if (v.least == 0 || ratio < v.least) v.least = ratio;
        v.failing += fails(s, a, &outcomes[i]);
        v.excused += excused(s, &outcomes[i]);
        v.below_stretch += ratio < s->stretch.least && !excused(s, &outcomes[i]);
    }
    v.mean = bench_geometric_mean(ratios, v.measured);
    free(ratios);
    if (s->opponent == BENCH_ALONE) v.cases = v.measured; /* the others are too small to be divided */
    return v;
}

static const char *word_for(const set *s, const verdict *v) {
    if (v->measured == 0) return "not measured";
    if (s->required.mean == 0) return "";
    if (v->mean < s->required.mean || v->failing) return "MISSED";
    return v->mean >= s->stretch.mean && !v->below_stretch ? "stretch" : "ok";
}

static void print_set(const set *s, const bench_arena *a, const verdict *v) {
    const char *against = s->opponent == BEST_PEER    ? "best peer"
                          : s->opponent == NAMED_PEER ? s->peer
                                                      : bench_opponent_name(a, s->opponent);
    const char *word = word_for(s, v);
    printf("%-36s %-12s %4d of %4d", s->name, against, v->measured, v->cases);
    if (v->measured)
        printf("  %5.2f %5.2f", v->mean, v->least);
    else
        printf("  %5s %5s", "-", "-");
    if (s->required.mean > 0)
        printf("   %5.2f %5.2f   %5.2f %5.2f  %s", s->required.mean, s->required.least, s->stretch.mean,
               s->stretch.least, word);
    else
        printf("   %5s %5s   %5s %5s  %s", "-", "-", "-", "-", word);
    if (v->failing) printf(", %d below", v->failing);
    if (v->excused) printf(", %d of the same kernels", v->excused);
    printf("\n");
    fprintf(a->json,
            "{\"set\":\"%s\",\"against\":\"%s\",\"threads\":%d,\"cases\":%d,\"measured\":%d,\"mean\":%.4g,"
            "\"least\":%.4g,\"required_mean\":%g,\"required_least\":%g,\"stretch_mean\":%g,\"stretch_least\":%g,"
            "\"below\":%d,\"verdict\":\"%s\"}\n",
            s->name, against, a->threads, v->cases, v->measured, v->mean, v->least, s->required.mean, s->required.least,
            s->stretch.mean, s->stretch.least, v->failing, word);
}

static void print_failing(const set *s, const bench_arena *a, const bench_outcome *o) {
    int one = opponent_of(s, a, o);
    printf("  %5.2fx, at most %5.2f, of %4.2f  %-96s %s\n", o->others[one].ratio,
           bench_pairs_upper(&o->others[one].pairs), least_of(s, o->shape), o->shape->label,
           bench_opponent_name(a, one));
}

/* Writes the cases of a set and their ratios as JSON lines, for plots. */
static void write_members(const set *s, const bench_arena *a, const bench_outcome *outcomes, int count) {
    for (int i = 0; i < count; i++) {
        int one = belongs(s, a, &outcomes[i]) ? opponent_of(s, a, &outcomes[i]) : -1;
        if (one >= 0)
            fprintf(a->json, "{\"member\":\"%s\",\"of\":\"%s\",\"threads\":%d,\"ratio\":%.5g,\"bar\":%g}\n",
                    outcomes[i].shape->text, s->name, a->threads, outcomes[i].others[one].ratio,
                    least_of(s, outcomes[i].shape));
    }
}

bool bench_sets_print(const bench_arena *a, const bench_outcome *outcomes, int count) {
    bool kept = true, any = false;
    printf("\n%-36s %-12s %12s  %11s   %11s   %11s\n", "set: their time over ours, mean and least", "against",
           "measured", "", "required", "stretch");
    for (int s = 0; s < SETS; s++) {
        verdict v = judge(&sets[s], a, outcomes, count);
        if (v.cases == 0) continue;
        print_set(&sets[s], a, &v);
        write_members(&sets[s], a, outcomes, count);
        any |= v.failing > 0;
        kept &= strcmp(word_for(&sets[s], &v), "MISSED") != 0;
    }
    if (any) printf("\ncases below the bar of their set (ratio; upper 90 %% bound; bar):\n");
    for (int s = 0; s < SETS; s++)
        for (int i = 0; i < count; i++)
            if (belongs(&sets[s], a, &outcomes[i]) && fails(&sets[s], a, &outcomes[i]))
                print_failing(&sets[s], a, &outcomes[i]);
    return kept;
}
