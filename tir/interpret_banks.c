/* Counts the cost of warps' memory accesses. Device memory is transferred in sectors of 32 bytes: the number of sectors of an access, and
 * the number beyond those that its bytes would fill. Shared memory, as hardware serves a warp: 32 banks of 4 bytes; accesses of up to 4
 * bytes by all lanes at once, of 8 by half warps, of 16 by quarters. Each takes as many cycles as the maximum number of different words in
 * one bank; those beyond the first are conflicts. */
#include "tir/interpret_banks.h"

#include <stdlib.h>

enum { BANKS = 32, WORD = 4, CHUNK = 16, SECTOR = 32 };

/* An access of one thread: neighbouring elements as a vector. `turn`: its ordinal among the thread's accesses of this key. */
typedef struct access {
    const tir_bank_note *note;
    int64_t address;
    int32_t bytes, turn;
} access;

static int compare(int64_t a, int64_t b) {
    return a < b ? -1 : a > b;
}

static int by_time(const void *x, const void *y) {
    const tir_bank_note *a = x, *b = y;
    if (a->key != b->key) return compare((intptr_t)a->key, (intptr_t)b->key);
    if (a->thread != b->thread) return compare(a->thread, b->thread);
    if (a->run != b->run) return compare((int64_t)a->run, (int64_t)b->run);
    return compare(a->address, b->address);
}

static int by_turn(const void *x, const void *y) {
    const access *a = x, *b = y;
    if (a->note->key != b->note->key) return compare((intptr_t)a->note->key, (intptr_t)b->note->key);
    const int warps = compare(a->note->thread / TIR_WARP, b->note->thread / TIR_WARP);
    if (warps) return warps;
    if (a->turn != b->turn) return compare(a->turn, b->turn);
    return compare(a->note->thread, b->note->thread);
}

static int by_address(const void *x, const void *y) {
    return compare(((const access *)x)->address, ((const access *)y)->address);
}

/* Fills `out` with the noted accesses; those of one thread at one time step that are adjacent within an aligned block of 2, 4, 8 or 16 bytes
 * become one. Returns their number. */
static uint32_t merge(const tir_banks *banks, access *out) {
    uint32_t count = 0;
    int32_t turn = 0;
    const tir_bank_note *notes = banks->notes.data;
    for (uint32_t i = 0, next; i < banks->notes.count; i = next) {
        const bool fresh = i == 0 || notes[i].key != notes[i - 1].key || notes[i].thread != notes[i - 1].thread;
        int64_t end = notes[i].address + notes[i].bytes;
        if (fresh) turn = 0;
        for (next = i + 1; next < banks->notes.count; next++) {
            const tir_bank_note *n = &notes[next];
            if (n->key != notes[i].key || n->thread != notes[i].thread || n->run != notes[i].run || n->address > end)
                break;
            const int64_t bytes = n->address + n->bytes - notes[i].address;
            const int64_t size = bytes <= 2 ? 2 : bytes <= WORD ? WORD : bytes <= 2 * WORD ? 2 * WORD : CHUNK;
            if (bytes > CHUNK || notes[i].address / size != (n->address + n->bytes - 1) / size) break;
            if (n->address + n->bytes > end) end = n->address + n->bytes;
        }
        out[count++] = (access){&notes[i], notes[i].address, (int32_t)(end - notes[i].address), turn++};
    }
    return count;
}

/* Cycles beyond the first for the lanes of one part of a warp. */
static int64_t conflicts_of(const access *lanes, uint32_t count) {
    int64_t words[BANKS][BANKS], most = 0;
    int used[BANKS] = {0};
    for (uint32_t i = 0; i < count; i++)
        for (int64_t word = lanes[i].address / WORD; word * WORD < lanes[i].address + lanes[i].bytes; word++) {
            const int bank = (int)(word % BANKS);
            int k = 0;
            while (k < used[bank] && words[bank][k] != word) k++;
            if (k == used[bank] && k < BANKS) words[bank][used[bank]++] = word;
            if (used[bank] > most) most = used[bank];
        }
    return most > 1 ? most - 1 : 0;
}

static void total(tir_banks *banks, const tir_bank_note *note, int64_t conflicts) {
    banks->conflicts += conflicts;
    for (uint32_t i = 0; i < banks->totals.count; i++)
        if (banks->totals.data[i].key == note->key) {
            banks->totals.data[i].conflicts += conflicts;
            return;
        }
    if (conflicts) lib_vec_push(banks->arena, &banks->totals, ((tir_bank_total){note->key, note->stmt, conflicts}));
}

/* Adds one access of device memory by a warp to the totals. Bytes and sectors that several lanes access count once. */
static void count_sectors(tir_banks *banks, access *lanes, uint32_t count) {
    int64_t sectors = 0, bytes = 0, end = INT64_MIN, last = INT64_MIN;
    qsort(lanes, count, sizeof *lanes, by_address);
    for (uint32_t i = 0; i < count; i++) {
        const int64_t from = lanes[i].address > end ? lanes[i].address : end, to = lanes[i].address + lanes[i].bytes;
        if (to <= from) continue;
        const int64_t first = from / SECTOR > last ? from / SECTOR : last + 1;
        sectors += (to - 1) / SECTOR - first + 1;
        bytes += to - from;
        last = (to - 1) / SECTOR;
        end = to;
    }
    banks->requests++;
    banks->sectors += sectors;
    banks->excess += sectors - (bytes + SECTOR - 1) / SECTOR;
}

/* Adds one access of a warp, by the given lanes in ascending order, to the totals. */
static void count_warp(tir_banks *banks, access *lanes, uint32_t count) {
    int32_t widest = 0;
    if (lanes->note->memory) {
        count_sectors(banks, lanes, count);
        return;
    }
    banks->accesses++;
    for (uint32_t i = 0; i < count; i++)
        if (lanes[i].bytes > widest) widest = lanes[i].bytes;
    const int32_t part = widest <= WORD ? TIR_WARP : widest <= 2 * WORD ? TIR_WARP / 2 : TIR_WARP / 4;
    for (uint32_t i = 0, next; i < count; i = next) {
        for (next = i + 1; next < count && lanes[next].note->thread / part == lanes[i].note->thread / part;) next++;
        total(banks, lanes[i].note, conflicts_of(lanes + i, next - i));
    }
}

void tir_banks_end(tir_banks *banks) {
    if (!banks->notes.count) return;
    qsort(banks->notes.data, banks->notes.count, sizeof *banks->notes.data, by_time);
    if (banks->scratch_count < banks->notes.count) {
        banks->scratch_count = banks->notes.capacity;
        banks->scratch = LIB_NEW_ARRAY(banks->arena, access, banks->scratch_count);
    }
    access *all = banks->scratch;
    const uint32_t count = merge(banks, all);
    qsort(all, count, sizeof *all, by_turn);
    for (uint32_t i = 0, next; i < count; i = next) {
        for (next = i + 1; next < count && all[next].note->key == all[i].note->key && all[next].turn == all[i].turn &&
                           all[next].note->thread / TIR_WARP == all[i].note->thread / TIR_WARP;)
            next++;
        count_warp(banks, all + i, next - i);
    }
    banks->notes.count = 0;
}

/* ---- data-dependent addresses */

typedef struct chosen_walk {
    const tir_pool *pool;
    /* [nodes] whether the node depends on a loaded value */
    bool *loaded;
    /* [nodes] whether the node contains a load whose address depends on a loaded value */
    bool *chosen;
    bool changed, found;
} chosen_walk;

/* Operands have smaller ids than their users. */
static void mark_nodes(chosen_walk *w) {
    for (tir_expr n = 1; n < w->pool->nodes.count; n++) {
        const tir_node *node = tir_get(w->pool, n);
        const int places = node->op == TIR_LOAD ? node->count - (node->guarded ? 2 : 0) : 0;
        w->loaded[n] = w->loaded[n] || node->op == TIR_LOAD;
        for (int i = 0; i < node->count; i++) {
            const tir_expr operand = tir_operand(w->pool, n, i);
            w->loaded[n] = w->loaded[n] || w->loaded[operand];
            w->chosen[n] = w->chosen[n] || w->chosen[operand] || (i < places && w->loaded[operand]);
        }
    }
}

static void mark_let(void *user, const tir_stmt *stmt) {
    chosen_walk *w = user;
    if (stmt->kind != TIR_LET || !w->loaded[stmt->let.value] || w->loaded[stmt->let.var]) return;
    w->loaded[stmt->let.var] = w->changed = true;
}

static void look_at(void *user, tir_expr e) {
    chosen_walk *w = user;
    w->found = w->found || w->chosen[e];
}

static void begin_walk(chosen_walk *w, lib_arena *arena, const tir_kernel *kernel) {
    *w = (chosen_walk){.pool = kernel->pool, .changed = true};
    w->loaded = LIB_NEW_ARRAY(arena, bool, w->pool->nodes.count);
    w->chosen = LIB_NEW_ARRAY(arena, bool, w->pool->nodes.count);
    while (w->changed) {
        w->changed = false;
        mark_nodes(w);
        for (uint32_t p = 0; p < kernel->phases.count; p++) tir_stmt_walk(kernel->phases.data[p].body, mark_let, w);
    }
}

static bool is_chosen(chosen_walk *w, const tir_stmt *stmt) {
    w->found = false;
    tir_stmt_exprs(stmt, look_at, w);
    for (int d = 0; stmt->kind == TIR_STORE && d < stmt->store.rank; d++)
        w->found = w->found || w->loaded[stmt->store.index[d]];
    return w->found;
}

void tir_banks_report(const tir_banks *banks, const tir_kernel *kernel, tir_bank_report *report) {
    const tir_bank_total *worst = NULL;
    bool worst_chosen = false;
    chosen_walk walk;
    *report = (tir_bank_report){.accesses = banks->accesses,
                                .conflicts = banks->conflicts,
                                .requests = banks->requests,
                                .sectors = banks->sectors,
                                .excess = banks->excess};
    if (banks->totals.count) begin_walk(&walk, banks->arena, kernel);
    for (uint32_t i = 0; i < banks->totals.count; i++) {
        const tir_bank_total *of = &banks->totals.data[i];
        const bool chosen = is_chosen(&walk, of->stmt);
        if (chosen) report->chosen += of->conflicts;
        if (worst && chosen > worst_chosen) continue;
        if (!worst || chosen < worst_chosen || of->conflicts > worst->conflicts) worst = of, worst_chosen = chosen;
    }
    if (!worst) return;
    lib_text text;
    lib_text_init(&text, banks->arena);
    tir_stmt_print(&text, kernel, worst->stmt, 0);
    const size_t line = strcspn(text.data, "\n"), limit = sizeof report->worst - 1;
    memcpy(report->worst, text.data, line < limit ? line : limit);
}
