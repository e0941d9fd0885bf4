/* The list of stores that wait for their neighbours in memory; see strided.h. */
#include "tir/strided.h"

enum { LANE_STORES = 24 /* more stores of single lanes than this are made by a loop over the lanes */ };

static bool same_class(const tir_strided *a, const tir_strided *b) {
    return a->buffer == b->buffer && a->base == b->base && a->stride == b->stride && a->step == b->step &&
           a->lanes == b->lanes && a->active == b->active && a->type == b->type;
}

static bool follows(const tir_strided *a, const tir_strided *b) {
    return same_class(a, b) && b->displacement == a->displacement + a->size;
}

/* Puts the members of each class next to each other, in the order of their addresses. */
static void sort_by_class(tir_strided **s, int count) {
    for (int first = 0, end; first < count; first = end) {
        end = first + 1;
        for (int i = end; i < count; i++) {
            if (!same_class(s[first], s[i])) continue;
            tir_strided *one = s[i];
            memmove(&s[end + 1], &s[end], (size_t)(i - end) * sizeof *s);
            int at = end++;
            for (; at > first && s[at - 1]->displacement > one->displacement; at--) s[at] = s[at - 1];
            s[at] = one;
        }
    }
}

/* Makes `count` neighbours in transposed blocks. */
static void make_run(const tir_strided_list *list, tir_strided *const *run, int count) {
    while (count > 0) {
        int rows = count < run[0]->rows ? count : run[0]->rows;
        if (!list->masked)
            while (rows & (rows - 1)) rows &= rows - 1;
        if (rows > 1)
            list->transpose(list->user, run, rows);
        else
            list->separate(list->user, run, 1, false);
        run += rows;
        count -= rows;
    }
}

/* Makes the stores that have no neighbours. */
static void make_separate(const tir_strided_list *list, tir_strided *const *s, int count) {
    for (int first = 0, end; first < count; first = end) {
        end = first + 1;
        while (end < count && s[end]->stride == s[first]->stride && s[end]->step == s[first]->step &&
               s[end]->active == s[first]->active && s[end]->type == s[first]->type)
            end++;
        list->separate(list->user, s + first, end - first, (end - first) * s[first]->active > LANE_STORES);
    }
}

void tir_strided_flush(tir_strided_list *list) {
    tir_strided **s = list->store;
    const int count = list->count;
    int separate = 0;
    list->count = 0;
    sort_by_class(s, count);
    for (int first = 0, end; first < count; first = end) {
        end = first + 1;
        while (end < count && follows(s[end - 1], s[end])) end++;
        if (end - first > 1)
            make_run(list, s + first, end - first);
        else
            s[separate++] = s[first];
    }
    make_separate(list, s, separate);
}

bool tir_strided_waits(const tir_strided_list *list, uint32_t buffer) {
    for (int i = 0; i < list->count; i++)
        if (list->store[i]->buffer == buffer) return true;
    return false;
}

/* Can two stores to one buffer touch the same element? Not if lanes with a step cover separate intervals of one dimension, or if the
 * addresses differ by a constant that is no multiple of the stride within the active lanes. */
static bool overlap(const tir_strided *a, const tir_strided *b) {
    const bool together = a->step && b->step && a->dimension == b->dimension && a->along == b->along;
    if (together && (a->first + a->active <= b->first || b->first + b->active <= a->first)) return false;
    if (a->base != b->base || a->stride != b->stride || a->step != b->step) return true;
    const int64_t distance = a->displacement - b->displacement;
    if (a->step) return distance == 0;
    const int active = a->active > b->active ? a->active : b->active;
    return distance % a->stride == 0 && distance / a->stride < active && distance / a->stride > -active;
}

/* Makes the last stores at once if they are a whole block of neighbours. */
static void make_whole_block(tir_strided_list *list) {
    const tir_strided *last = list->store[list->count - 1];
    const int rows = last->lanes < TIR_STRIDED_ROWS ? last->lanes : TIR_STRIDED_ROWS;
    if (list->count < rows || last->rows < rows) return;
    for (int i = list->count - rows; i + 1 < list->count; i++)
        if (!follows(list->store[i], list->store[i + 1])) return;
    list->count -= rows;
    make_run(list, list->store + list->count, rows);
}

void tir_strided_wait(tir_strided_list *list, tir_strided *store) {
    for (int i = 0; i < list->count; i++) {
        if (list->store[i]->buffer != store->buffer || !overlap(list->store[i], store)) continue;
        tir_strided_flush(list);
        break;
    }
    list->store[list->count++] = store;
    if (list->count == TIR_STRIDED_MAX)
        tir_strided_flush(list);
    else
        make_whole_block(list);
}
