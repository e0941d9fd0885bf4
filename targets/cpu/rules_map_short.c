/* Maps with rows shorter than a few vectors, which an operand of one value for each row, in reverse or with gaps, keeps apart from each other
 * ([24000, 5] plus [24000, 1]). Vectors along a row would be mostly empty, and their masked stores would overlap the loads of the next row.
 * So lanes run along rows and points at once, over the results' memory, in blocks of rows that end where a vector ends: in each vector of a
 * block, each lane reads at a constant distance from the block's start, by loads of one or two vectors that are permuted. The family is called
 * `fused`: `short_rows` (rules_short_rows.c) is that of roots whose producers need whole rows. */
#include "targets/cpu/rules.h"

enum {
    BLOCK_MOST = 32,      /* vectors of a block, all of which are unrolled */
    OPERATIONS_MOST = 400 /* of a block */
};

/* Do `lanes` neighbouring points of rows of n points read a window of at most two vectors? */
static bool read_window(int64_t lanes, int64_t n, int64_t across, int64_t along) {
    const int64_t rows = n % lanes ? (lanes + n - 2) / n : 0; /* that begin after the first lane */
    const int64_t points = n < lanes || n % lanes ? n : lanes;
    return rows * (across < 0 ? -across : across) + (points - 1) * (along < 0 ? -along : along) < 2 * lanes;
}

/* Are rows along `last`, one for each point of `row`, stored one after the other, and does each operand give vectors of points by windows? */
static bool has_near_rows(rules *r, int s, int row, int last, int64_t lanes) {
    enum { PIECE = 16 /* bytes: so short windows are put together to a vector */ };
    const tir_stage *stage = &r->region->stages.data[s];
    const int64_t n = rules_extent(r, &stage->axis[last]);
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    if (count == RULES_ACCESSES || rules_store_stride(r, s, last) != 1 || rules_store_stride(r, s, row) != n)
        return false;
    for (int i = 0; i < count; i++) {
        const int64_t across = access[i].stride[row], along = access[i].stride[last];
        if (across == RULES_IRREGULAR || along == RULES_IRREGULAR) return false;
        if (across == n * along && along >= -1 && along <= 1) continue; /* without gaps */
        const int64_t piece = PIECE / (int64_t)lib_dtype_size(r->region->tensors.data[access[i].tensor].dtype);
        if (!read_window(lanes, n, across, along) && (piece < 2 || !read_window(piece, n, across, along))) return false;
    }
    return true;
}

/* Points of a block of rows of n points each, which end where a vector ends; rows -1: varying. */
static int64_t block_points(int64_t n, int64_t rows, int64_t lanes) {
    const int64_t block = n / tir_gcd(n, lanes) * lanes;
    return rows >= 0 && block > rows * n ? rows * n : block;
}

bool rules_map_short_rows(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    const int64_t lanes = rules_lanes(r, s);
    int last = stage->space - 1;
    while (last > 0 && rules_extent(r, &stage->axis[last]) == 1) last--;
    const int row = last - 1;
    if (row < 0 || rules_straight(r, s, row, last)) return false;
    const int64_t n = rules_extent(r, &stage->axis[last]), rows = rules_extent(r, &stage->axis[row]);
    if (n < 2 || 3 * n > 2 * ((n + lanes - 1) / lanes * lanes)) return false; /* two thirds of the lanes are in use */
    const int64_t block = block_points(n, rows, lanes);
    const int64_t vectors = (block + lanes - 1) / lanes;
    if (vectors > BLOCK_MOST || 3 * block < 2 * vectors * lanes) return false;
    if (vectors * rules_operations(r, stage) > OPERATIONS_MOST || !has_near_rows(r, s, row, last, lanes)) return false;
    if (rules_selects(r, stage, row, true) || rules_selects(r, stage, last, true)) return false;

    const char *name = stage->name;
    const int64_t task = (RULES_TASK_POINTS + block - 1) / block * block;
    rules_nest nest = {.r = r, .stage = stage};
    for (int a = 0; a < row; a++) rules_add_loop(&nest, stage->axis[a].name, rules_extent(r, &stage->axis[a]), false);
    tir_schedule_add(r->schedule, "fuse %s.%s %s.%s -> points", name, stage->axis[row].name, name,
                     stage->axis[last].name);
    const char *loop = rules_form_long_tasks(&nest, "points", rows < 0 ? -1 : rows * n, task);
    rules_vectorise(r, name, loop, rows < 0 ? -1 : rows * n, block, "b_o", "b_i");
    rules_store_past_caches(r, stage);
    return true;
}
