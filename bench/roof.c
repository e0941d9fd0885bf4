/* What this machine can do at most, measured in the same run as everything else: f32 multiply-adds with vectors of 512, 256 and
 * 128 bits, multiply-adds of other types with the widest, and bandwidth of each level of memory, reading and copying. Compiled with
 * -ffp-contract=fast, so that a*x + b on vectors is one instruction. Each figure is the best of several tries: a roof that others may not
 * exceed. */
#include "bench/bench.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define TARGET(features) __attribute__((target(features)))
#define HAS(feature) __builtin_cpu_supports(feature)
/* What libdlc may use: DLC_CPU_FEATURES lowers it. */
#define HAS_512 (at_most(512) && HAS("avx512f"))
#define HAS_256 (at_most(256) && HAS("avx2") && HAS("fma"))
#else
#define TARGET(features)
#define HAS_512 0
#define HAS_256 0
#endif

static bool at_most(int bits) {
    const char *level = getenv("DLC_CPU_FEATURES");
    if (level && strcmp(level, "sse2") == 0) return bits <= 128;
    return !level || strcmp(level, "avx2") != 0 || bits <= 256;
}

/* ---- multiply-adds ------------------------------------------------------------------------------------------------------- */

/* Independent accumulators: enough for two units of four or five cycles each, few enough for 16 registers. */
#define ACCUMULATORS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
enum { ACCUMULATOR_COUNT = 12, ROUNDS = 20000 };

#define SET(i) vector a##i = x + (float)i;
#define STEP(i) a##i = a##i * x + y;
#define JOIN(i) sum += a##i;
#define FMA_FUNCTION(name, bytes, features)                                    \
    TARGET(features) __attribute__((noinline)) static float name(float seed) { \
        typedef float vector __attribute__((vector_size(bytes)));              \
        vector x = {0}, y = {0}, sum = {0};                                    \
        x += seed, y += seed;                                                  \
        ACCUMULATORS(SET)                                                      \
        for (int i = 0; i < ROUNDS; i++) {                                     \
            ACCUMULATORS(STEP)                                                 \
            __asm__ volatile("" : "+m"(seed));                                 \
        }                                                                      \
        ACCUMULATORS(JOIN)                                                     \
        return sum[0];                                                         \
    }
FMA_FUNCTION(fma_512, 64, "avx512f")
FMA_FUNCTION(fma_256, 32, "avx2,fma")
FMA_FUNCTION(fma_128, 16, "avx2,fma")

/* Units for other element types, with the widest vectors: doubles, pairs of bf16, quadruples of bytes. */
#if defined(__x86_64__)
/* Hides the first value of each accumulator from the compiler, which would otherwise merge those that hold the same. */
#define CLEAR(i) \
    a##i = x;    \
    __asm__ volatile("" : "+v"(a##i));
#define KEEP(i) __asm__ volatile("" : : "v"(a##i));
#define UNIT_FUNCTION(name, features, type, zero, step)                        \
    TARGET(features) __attribute__((noinline)) static float name(float seed) { \
        type x = zero, y = x, ACCUMULATORS(DECLARE) sum = x;                   \
        __asm__ volatile("" : "+v"(x), "+v"(y));                               \
        ACCUMULATORS(CLEAR)                                                    \
        for (int r = 0; r < ROUNDS; r++) {                                     \
            ACCUMULATORS(step)                                                 \
            __asm__ volatile("" : "+m"(seed));                                 \
        }                                                                      \
        ACCUMULATORS(KEEP)                                                     \
        (void)sum;                                                             \
        return seed;                                                           \
    }
#define DECLARE(i) a##i,
#define STEP_F64_512(i) a##i = _mm512_fmadd_pd(a##i, x, y);
#define STEP_F64_256(i) a##i = _mm256_fmadd_pd(a##i, x, y);
#define STEP_BF16(i) a##i = _mm512_dpbf16_ps(a##i, (__m512bh)x, (__m512bh)y);
#define STEP_U8(i) a##i = _mm512_dpbusd_epi32(a##i, x, y);
UNIT_FUNCTION(f64_512, "avx512f", __m512d, _mm512_setzero_pd(), STEP_F64_512)
UNIT_FUNCTION(f64_256, "avx2,fma", __m256d, _mm256_setzero_pd(), STEP_F64_256)
UNIT_FUNCTION(bf16_512, "avx512f,avx512bf16", __m512, _mm512_setzero_ps(), STEP_BF16)
UNIT_FUNCTION(u8_512, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(), STEP_U8)
#endif

/* For processors without a multiply-add: as many multiplications as additions, in separate accumulators. */
__attribute__((noinline)) static float multiply_add_128(float seed) {
    typedef float vector __attribute__((vector_size(16)));
    vector x = {0}, y = {0}, sum = {0};
    x += seed, y += seed;
    ACCUMULATORS(SET)
    for (int i = 0; i < ROUNDS; i++) {
        a0 = a0 * x, a1 = a1 + y, a2 = a2 * x, a3 = a3 + y, a4 = a4 * x, a5 = a5 + y;
        a6 = a6 * x, a7 = a7 + y, a8 = a8 * x, a9 = a9 + y, a10 = a10 * x, a11 = a11 + y;
        __asm__ volatile("" : "+m"(seed));
    }
    ACCUMULATORS(JOIN)
    return sum[0];
}

typedef struct width {
    float (*function)(float seed);
    int lanes;
    /* a round does one operation for each accumulator and lane, not two */
    bool apart;
} width;

/* The functions for bench_roofs.fma, widest first; function NULL: this processor has none. */
static width width_of(int index) {
#if defined(__x86_64__)
    if (index == 0 && HAS_512) return (width){fma_512, 16, false};
    if (index == 1 && HAS_256) return (width){fma_256, 8, false};
    if (index == 2 && HAS_256) return (width){fma_128, 4, false};
    if (index == 2) return (width){multiply_add_128, 4, true};
#else
    if (index == 2) return (width){fma_128, 4, false};
#endif
    return (width){NULL, 0, false};
}

static width widest(void) {
    for (int i = 0; i < 2; i++)
        if (width_of(i).function) return width_of(i);
    return width_of(2);
}

/* The function for bench_roofs.unit; `lanes` is the number of products that one instruction adds. A type without an instruction of its own
 * uses that of f32. */
static width unit_of(bench_unit unit) {
#if defined(__x86_64__)
    bool wide = HAS_512;
    if (unit == BENCH_UNIT_F64 && wide) return (width){f64_512, 8, false};
    if (unit == BENCH_UNIT_F64 && HAS_256) return (width){f64_256, 4, false};
    if (unit == BENCH_UNIT_BF16 && wide && HAS("avx512bf16")) return (width){bf16_512, 32, false};
    if (unit == BENCH_UNIT_U8 && wide && HAS("avx512vnni")) return (width){u8_512, 64, false};
#endif
    width half = widest();
    half.lanes /= unit == BENCH_UNIT_F64 ? 2 : 1;
    return half;
}

static bench_unit unit_for(dlc_dtype dtype) {
    return dtype == DLC_F64    ? BENCH_UNIT_F64
           : dtype == DLC_BF16 ? BENCH_UNIT_BF16
           : dtype == DLC_U8   ? BENCH_UNIT_U8
                               : BENCH_UNIT_F32;
}

static double flops_of(width w) {
    return (w.apart ? 1.0 : 2.0) * ACCUMULATOR_COUNT * ROUNDS * w.lanes;
}

/* ---- several threads ------------------------------------------------------------------------------------------------------ */

typedef struct worker {
    pthread_t thread;
    pthread_barrier_t *barrier;
    void (*body)(struct worker *worker);
    int repeats;
    width width;
    const char *source;
    /* NULL: the source is only read */
    char *target;
    size_t size;
    double seconds;
    volatile float sink;
} worker;

static void *worker_main(void *argument) {
    worker *w = argument;
    w->body(w); /* faults pages in, fills caches */
    if (w->barrier) pthread_barrier_wait(w->barrier);
    double start = bench_now();
    for (int i = 0; i < w->repeats; i++) w->body(w);
    w->seconds = bench_now() - start;
    return NULL;
}

/* Runs all workers, each in a thread; returns the time of the slowest. */
static double run_workers(worker *workers, int threads) {
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int t = 0; t < threads; t++) workers[t].barrier = threads > 1 ? &barrier : NULL;
    int started = 1;
    for (; started < threads; started++)
        if (pthread_create(&workers[started].thread, NULL, worker_main, &workers[started])) abort();
    worker_main(&workers[0]);
    double seconds = workers[0].seconds;
    for (int t = 1; t < threads; t++) {
        pthread_join(workers[t].thread, NULL);
        if (workers[t].seconds > seconds) seconds = workers[t].seconds;
    }
    pthread_barrier_destroy(&barrier);
    return seconds;
}

static void fma_body(worker *w) {
    w->sink = w->width.function(0.5f);
}

static double measure_fma(width w, int threads) {
    double best = 0;
    for (int attempt = 0; attempt < 15 && w.function; attempt++) {
        worker workers[BENCH_MAX_THREADS] = {0};
        for (int t = 0; t < threads; t++) workers[t] = (worker){.body = fma_body, .repeats = 16, .width = w};
        double rate = 16 * threads * flops_of(w) / run_workers(workers, threads);
        if (rate > best) best = rate;
    }
    return best;
}

/* Keeps the processor busy for about 35 us. With several threads it runs only on the caller's, and counts for all: creating threads would
 * take longer. */
void bench_fma_burst(void *threads) {
    (void)threads;
    volatile float sink = widest().function(0.5f);
    (void)sink;
}

double bench_fma_flops(int threads) {
    return threads * flops_of(widest());
}

/* ---- bandwidth -------------------------------------------------------------------------------------------------------------- */

/* 512 bytes a step in both loops; sizes are multiples of that. */
#define MEMORY_FUNCTIONS(suffix, bytes, features)                                                                   \
    TARGET(features) __attribute__((noinline)) static float read_##suffix(const char *source, size_t size) {        \
        typedef float vector __attribute__((vector_size(bytes)));                                                   \
        vector a = {0}, b = {0}, c = {0}, d = {0}, e = {0}, f = {0}, g = {0}, h = {0};                              \
        for (const char *end = source + size; source < end; source += 8 * bytes) {                                  \
            const vector *v = (const vector *)(const void *)source;                                                 \
            a += v[0], b += v[1], c += v[2], d += v[3];                                                             \
            e += v[4], f += v[5], g += v[6], h += v[7];                                                             \
        }                                                                                                           \
        a += b + c + d + (e + f) + (g + h);                                                                         \
        return a[0];                                                                                                \
    }                                                                                                               \
    TARGET(features) __attribute__((noinline)) static void copy_##suffix(char *to, const char *from, size_t size) { \
        typedef float vector __attribute__((vector_size(bytes)));                                                   \
        for (const char *end = from + size; from < end; from += 8 * bytes, to += 8 * bytes) {                       \
            const vector *s = (const vector *)(const void *)from;                                                   \
            vector *t = (vector *)(void *)to;                                                                       \
            vector v0 = s[0], v1 = s[1], v2 = s[2], v3 = s[3], v4 = s[4], v5 = s[5], v6 = s[6], v7 = s[7];          \
            t[0] = v0, t[1] = v1, t[2] = v2, t[3] = v3, t[4] = v4, t[5] = v5, t[6] = v6, t[7] = v7;                 \
        }                                                                                                           \
    }
MEMORY_FUNCTIONS(512, 64, "avx512f")
MEMORY_FUNCTIONS(256, 32, "avx2")
MEMORY_FUNCTIONS(128, 16, "sse2")

static void read_body(worker *w) {
    if (HAS_512)
        w->sink = read_512(w->source, w->size);
    else if (HAS_256)
        w->sink = read_256(w->source, w->size);
    else
        w->sink = read_128(w->source, w->size);
}

static void copy_body(worker *w) {
    if (HAS_512)
        copy_512(w->target, w->source, w->size);
    else if (HAS_256)
        copy_256(w->target, w->source, w->size);
    else
        copy_128(w->target, w->source, w->size);
}

/* The C library's: past the caches it does not read what it is about to overwrite. */
static void memcpy_body(worker *w) {
    memcpy(w->target, w->source, w->size);
}

enum { HUGE_PAGE = 2 << 20 };

static double bandwidth(void (*body)(worker *), char *memory, size_t size, int threads) {
    bool copies = body != read_body;
    /* The target lies a little off half of the memory: a store and a load 4 KiB apart would wait for each other. */
    size_t part = size / (size_t)threads / 8192 * 8192, half = part / 2 - 4096, skew = 1088;
    double best = 0;
    for (int attempt = 0; attempt < (size > (64 << 20) ? 3 : 9); attempt++) {
        worker workers[BENCH_MAX_THREADS] = {0};
        int repeats = (int)(4e6 / (double)part) + 1;
        for (int t = 0; t < threads; t++) {
            char *mine = memory + (size_t)t * part;
            workers[t] = (worker){.body = body, .repeats = repeats, .source = mine, .size = part};
            if (copies) workers[t].target = mine + half + skew, workers[t].size = half;
        }
        double rate = (double)repeats * threads * (double)(copies ? 2 * half : part) / run_workers(workers, threads);
        if (rate > best) best = rate;
    }
    return best;
}

/* Bytes of the data cache of a level as the system files tell, which virtual machines get right more often than sysconf; 0: unknown. */
static double cache_size(int level, int query) {
    for (int i = 0; i < 8; i++) {
        char path[96], type[16] = "";
        long number = 0, kilobytes = 0;
        static const char base[] = "/sys/devices/system/cpu/cpu0/cache/index";
        static const char *const parts[] = {"level", "type", "size"};
        for (int part = 0; part < 3; part++) {
            snprintf(path, sizeof path, "%s%d/%s", base, i, parts[part]);
            FILE *file = fopen(path, "r");
            if (!file) break;
            int read = part == 1 ? fscanf(file, "%15s", type) : fscanf(file, "%ld", part ? &kilobytes : &number);
            fclose(file);
            if (read != 1) break;
        }
        if (number == level && strcmp(type, "Instruction") != 0 && kilobytes > 0) return 1024.0 * (double)kilobytes;
    }
    long size = sysconf(query);
    return size > 0 ? (double)size : 0;
}

static int find_levels(bench_level levels[BENCH_MAX_LEVELS]) {
    static const struct {
        const char *name;
        int query;
    } caches[] = {{"L1", _SC_LEVEL1_DCACHE_SIZE}, {"L2", _SC_LEVEL2_CACHE_SIZE}, {"L3", _SC_LEVEL3_CACHE_SIZE}};
    int count = 0;
    for (int i = 0; i < (int)(sizeof caches / sizeof *caches); i++) {
        double size = cache_size(i + 1, caches[i].query);
        if (size > 0) levels[count++] = (bench_level){.name = caches[i].name, .size = size};
    }
    levels[count++] = (bench_level){.name = "DRAM", .size = 1e18};
    return count;
}

/* Bytes that surely live in level i: half of a cache, but in a large shared one only a modest part of it is ours. */
static size_t working_set(const bench_level *levels, int i, int count, int threads) {
    bool private_cache = i + 2 < count;
    double size = 0.5 * levels[i].size;
    if (i + 1 == count) size = count > 1 ? 3 * levels[i - 1].size : 1 << 28;
    if (i + 2 == count && size > 8 * levels[i > 0 ? i - 1 : 0].size) size = 8 * levels[i > 0 ? i - 1 : 0].size;
    if (size > (1 << 30)) size = 1 << 30;
    if (private_cache) size *= threads;
    return (size_t)size / 4096 * 4096;
}

void bench_roofs_measure(bench_roofs *roofs, int threads) {
    *roofs = (bench_roofs){.threads = threads};
    for (int i = 0; i < 3; i++) roofs->fma[i] = measure_fma(width_of(i), threads);
    for (int i = 0; i < BENCH_UNITS; i++) roofs->unit[i] = measure_fma(unit_of((bench_unit)i), threads);
    roofs->level_count = find_levels(roofs->levels);
    for (int i = 0; i < roofs->level_count; i++) {
        size_t size = working_set(roofs->levels, i, roofs->level_count, threads);
        char *memory = aligned_alloc(HUGE_PAGE, (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
        if (!memory) continue;
        madvise(memory, size, MADV_HUGEPAGE);
        memset(memory, 0, size);
        roofs->levels[i].read = bandwidth(read_body, memory, size, threads);
        double own = bandwidth(copy_body, memory, size, threads), libc = bandwidth(memcpy_body, memory, size, threads);
        roofs->levels[i].copy = own > libc ? own : libc;
        free(memory);
    }
}

void bench_roofs_print(const bench_roofs *roofs, FILE *json) {
    static const int bits[3] = {512, 256, 128};
    printf("roofs, %d thread%s:", roofs->threads, roofs->threads > 1 ? "s" : "");
    for (int i = 0; i < 3; i++) {
        if (roofs->fma[i] == 0) continue;
        printf("  fma %d-bit %.1f GFLOP/s", bits[i], roofs->fma[i] * 1e-9);
        fprintf(json, "{\"roof\":\"fma%d\",\"threads\":%d,\"gflops\":%.2f}\n", bits[i], roofs->threads,
                roofs->fma[i] * 1e-9);
    }
    static const char *const units[BENCH_UNITS] = {"f32", "f64", "bf16", "u8"};
    for (int i = 1; i < BENCH_UNITS; i++) {
        printf("  %s %.1f", units[i], roofs->unit[i] * 1e-9);
        fprintf(json, "{\"roof\":\"%s\",\"threads\":%d,\"gflops\":%.2f}\n", units[i], roofs->threads,
                roofs->unit[i] * 1e-9);
    }
    printf("\n  ");
    for (int i = 0; i < roofs->level_count; i++) {
        const bench_level *l = &roofs->levels[i];
        printf("  %s", l->name);
        if (l->size < 1e12) printf(" %.0f KiB", l->size / 1024);
        printf(" read %.0f copy %.0f GB/s", l->read * 1e-9, l->copy * 1e-9);
        fprintf(json, "{\"roof\":\"%s\",\"threads\":%d,\"size\":%.0f,\"read_gbps\":%.2f,\"copy_gbps\":%.2f}\n", l->name,
                roofs->threads, l->size < 1e12 ? l->size : 0, l->read * 1e-9, l->copy * 1e-9);
    }
    printf("\n");
}

static double total_bytes(const bench_operand *operands, int count) {
    double sum = 0;
    for (int i = 0; i < count; i++) sum += (double)operands[i].bytes;
    return sum;
}

/* Seconds for `bytes` at one level, of which `written` are written; copying tells what writing adds to reading. */
static double level_seconds(const bench_level *level, double bytes, double written) {
    if (level->read <= 0 || level->copy <= 0) return 0;
    double per_written = 2 / level->copy - 1 / level->read;
    if (per_written < 0) per_written = 0;
    return (bytes - written) / level->read + written * per_written;
}

double bench_unit_gain(const bench_roofs *roofs, const bench_problem *problem) {
    bench_unit unit = unit_for(problem->operands[0].dtype);
    return problem->flops > 0 && roofs->unit[0] > 0 ? roofs->unit[unit] / roofs->unit[0] : 1;
}

/* Of a footprint larger than a cache, the part that fits may come from it. */
double bench_roof_seconds(const bench_roofs *roofs, double fma, const bench_problem *problem) {
    double results = total_bytes(problem->results, problem->result_count);
    double footprint = total_bytes(problem->operands, problem->operand_count) + results;
    double written = footprint > 0 ? results / footprint : 0;
    if (problem->bytes > 0 && problem->bytes < footprint) written = 0.5, footprint = problem->bytes;
    double memory = 0, left = footprint;
    for (int i = 0; i < roofs->level_count && left > 0; i++) {
        double fits = roofs->levels[i].size * (i + 2 < roofs->level_count ? roofs->threads : 1);
        double here = fits < left ? fits : left;
        memory += level_seconds(&roofs->levels[i], here, here * written);
        left -= here;
    }
    double peak = fma * bench_unit_gain(roofs, problem), arithmetic = peak > 0 ? problem->flops / peak : 0;
    return memory > arithmetic ? memory : arithmetic;
}
