/* Large reductions in two steps, for shapes that the rules for rows and tiles do not cover well:
 *   chunks    few results of many elements each (a sum over everything): the elements are cut into up to 256 chunks, the tasks of a
 *             separate phase, with lanes inside; the chunks' results are combined in order
 *   parts     few results of long sums of products: the same for contractions that have a tile; each part is a contraction
 *   columns   sums along a slow axis with contiguous results: blocks of eight rows are summed in registers over all columns,
 *             one after the other, into one row of results that stays in L1. So memory is read row by row; walking down a column would
 *             touch a page per element. Groups of blocks are tasks
 * The numbers of chunks, parts and blocks depend on sizes alone, never on threads, so that results do not depend on threads. */
#include "targets/cpu/rules_tile.h"

#include <math.h>

enum {
    CHUNK_POINTS = 32768, /* least points of a task */
    CHUNKS_MOST = 256,
    VARYING_MOST = 1 << 20,
    /* least points of a group of blocks; of one with GROUP_ROWS rows, whose result is small relative to its operand */
    GROUP_POINTS = 65536,
    TALL_GROUP_POINTS = 16384,
    GROUP_ROWS = 64,
    GROUPS_MOST = 64,
    BLOCK_ROWS = 8,
    ROWS_LEAST = 64,     /* least number of rows for which a second step is worth it */
    COLUMNS_MOST = 4096, /* most results of a task, which fit in L1 together with the rows' lines */
    COLUMN_VECTORS = 4
};

rules_role rules_role_of(const rules *r, int s) {
    for (uint32_t i = 0; i < r->parts.count; i++)
        if (rules_stage_named(r, r->parts.data[i].stage) == s) return r->parts.data[i].role;
    return RULES_NO_PART;
}

void rules_set_role(rules *r, const char *stage, rules_role role) {
    lib_vec_push(r->arena, &r->parts, ((rules_part){stage, role}));
}

/* The divisor of n in low .. high that is closest to `wanted`; `wanted` if there is none. */
static int64_t divisor_near(int64_t n, int64_t wanted, int64_t low, int64_t high) {
    for (int64_t d = 0; wanted - d >= low || wanted + d <= high; d++) {
        if (wanted - d >= low && wanted - d >= 1 && n % (wanted - d) == 0) return wanted - d;
        if (wanted + d <= high && n % (wanted + d) == 0) return wanted + d;
    }
    return wanted;
}

/* ---- columns */

/* The last axis of several points along which the access is contiguous; -1: none. */
static int contiguous_axis(const rules *r, const tir_stage *stage, const rules_access *access) {
    int contiguous = -1;
    for (int a = 0; a < stage->space + stage->reduce; a++)
        if (access->stride[a] == 1 && rules_extent(r, &stage->axis[a]) != 1) contiguous = a;
    return contiguous;
}

/* Is the access the same at all points of the result (one value for each row)? */
static bool is_of_rows(const rules *r, const tir_stage *stage, const rules_access *access) {
    for (int a = 0; a < stage->space; a++)
        if (access->stride[a] != 0 && rules_extent(r, &stage->axis[a]) != 1) return false;
    return true;
}

/* The axis along which results and loads are contiguous; -1: none. *rows: the reduction axis to be cut into blocks, the longest. */
static int column_axis(rules *r, int s, int *rows) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES), v = -1;
    if (count == RULES_ACCESSES) return -1;
    for (int i = 0; i < count; i++) {
        const int contiguous = contiguous_axis(r, stage, &access[i]);
        if (is_of_rows(r, stage, &access[i])) continue;
        if (contiguous >= stage->space || (contiguous >= 0 && v >= 0 && contiguous != v)) return -1;
        if (contiguous >= 0) v = contiguous;
    }
    for (int i = 0; i < count && v >= 0; i++)
        if (access[i].stride[v] != 0 && access[i].stride[v] != 1) return -1;
    *rows = stage->space;
    for (int a = stage->space; a < stage->space + stage->reduce; a++)
        if (rules_extent(r, &stage->axis[a]) > rules_extent(r, &stage->axis[*rows])) *rows = a;
    return v;
}

/* How many groups of blocks of `rows` rows are tasks: so many that a group has points for a task, but few relative to the rows. */
static int64_t count_groups(const rules *r, const tir_stage *stage, int64_t rows, int64_t columns) {
    const int64_t points = tir_points(r->region, stage, 0, stage->space),
                  each = tir_points(r->region, stage, stage->space, stage->space + stage->reduce);
    const int64_t blocks = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    const int64_t tasks = points / columns * ((columns + COLUMNS_MOST - 1) / COLUMNS_MOST);
    int64_t groups = points * each / GROUP_POINTS / tasks, tall = points * each / TALL_GROUP_POINTS / tasks;
    if (tall > rows / GROUP_ROWS) tall = rows / GROUP_ROWS;
    if (groups < tall) groups = tall;
    if (groups > GROUPS_MOST / tasks) groups = GROUPS_MOST / tasks;
    if (groups > blocks / 4) groups = blocks / 4;
    if (groups < 1) groups = 1;
    return divisor_near(blocks, groups, (groups + 1) / 2, groups + groups / 2);
}

/* Sums along columns: beside the rows of a root, or in blocks of rows. Sums of products have tiles instead of blocks. */
static bool prepare_columns(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    int axis, v = column_axis(r, s, &axis);
    if (v < 0 || stage->space + 2 > DLC_MAX_RANK || stage->predicate) return false;
    int64_t rows = rules_extent(r, &stage->axis[axis]), columns = rules_extent(r, &stage->axis[v]);
    int64_t points = tir_points(r->region, stage, 0, stage->space),
            each = tir_points(r->region, stage, stage->space, stage->space + stage->reduce);
    if (rows < ROWS_LEAST || points <= 0 || each <= 0 || columns < rules_lanes(r, s)) return false;
    int64_t blocks = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS, groups = count_groups(r, stage, rows, columns);
    if (rules_prepare_beside(r, s, v, groups)) return true;
    if (rules_is_contraction(r, s) || !tir_choose_yes(r->schedule, stage->name, "blocks", true)) return false;
    groups = tir_choose_number(r->schedule, stage->name, "groups", (tir_numbers){1, blocks, 1}, groups);
    const char *name = stage->name, *block = rules_fresh_name(r, name, "_r"), *group = rules_fresh_name(r, name, "_c");
    lib_text layout;
    lib_text_init(&layout, r->arena);
    for (int a = 0; a < stage->space; a++)
        if (a != v) lib_text_format(&layout, "%s, ", stage->axis[a].name);
    lib_text_format(&layout, "group, %s", stage->axis[v].name);
    rules_set_role(r, name, RULES_WHOLE);
    rules_set_role(r, group, RULES_COLUMNS);
    rules_set_role(r, block, RULES_ROWS);
    rules_rewrite(r, "rfactor %s.%s %lld chunks -> %s block row", name, stage->axis[axis].name, (long long)blocks,
                  block);
    rules_rewrite(r, "rfactor %s.block %lld chunks -> %s group next", name, (long long)groups, group);
    int phase = rules_stage_named(r, group);
    rules_rewrite(r, "layout %s (%s)", r->region->tensors.data[r->region->stages.data[phase].tensor[0]].name,
                  layout.data);
    return true;
}

/* The RULES_ROWS stage whose values a RULES_COLUMNS stage sums; -1: none. */
static int rows_of(rules *r, int phase) {
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, phase, access, RULES_ACCESSES);
    for (int i = 0; i < count; i++) {
        const int s = r->region->tensors.data[access[i].tensor].stage;
        if (s >= 0 && rules_role_of(r, s) == RULES_ROWS) return s;
    }
    return -1;
}

/* Schedules the sums of a block's rows: rows unrolled, columns in vectors, results in registers. */
static void rows_in_registers(rules *r, int s, int v) {
    const tir_stage *stage = &r->region->stages.data[s];
    lib_text order;
    lib_text_init(&order, r->arena);
    tir_schedule_add(r->schedule, "store %s reg", stage->name);
    for (int a = 0; a < stage->space + stage->reduce; a++)
        if (a != v && stage->axis[a].role != TIR_AXIS_WITHIN) lib_text_format(&order, " %s", stage->axis[a].name);
    tir_schedule_add(r->schedule, "order %s:%s row %s", stage->name, order.data, stage->axis[v].name);
    if (stage->predicate) tir_schedule_add(r->schedule, "clip %s.row", stage->name);
    tir_schedule_add(r->schedule, "unroll %s.row", stage->name);
    tir_schedule_add(r->schedule, "vec %s.%s", stage->name, stage->axis[v].name);
}

bool rules_columns(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    int inner = rules_role_of(r, s) == RULES_COLUMNS ? rows_of(r, s) : -1;
    if (inner < 0) return false;
    const tir_layout *layout = &r->region->tensors.data[stage->tensor[0]].layout;
    int v = layout->part[layout->count - 1].dim;
    const char *name = stage->name, *column = stage->axis[v].name;
    int64_t columns = rules_extent(r, &stage->axis[v]), width = rules_lanes(r, s) * COLUMN_VECTORS;
    lib_text order, parallel;
    lib_text_init(&order, r->arena);
    lib_text_init(&parallel, r->arena);
    for (int a = 0; a < stage->space; a++) {
        if (a == v) continue;
        lib_text_format(&order, " %s", stage->axis[a].name);
        lib_text_format(&parallel, " %s.%s", name, stage->axis[a].name);
    }
    if (columns > COLUMNS_MOST) {
        tir_schedule_add(r->schedule, "split %s.%s %d -> v_p v_t peel", name, column, COLUMNS_MOST);
        lib_text_add(&order, " v_p");
        lib_text_format(&parallel, " %s.v_p", name);
        column = "v_t";
    }
    tir_schedule_add(r->schedule, "split %s.%s %lld -> v_o v_i %s", name, column, (long long)width,
                     columns % width ? "peel" : "mask");
    tir_schedule_add(r->schedule, "order %s:%s next v_o v_i", name, order.data);
    tir_schedule_add(r->schedule, "par%s", parallel.data);
    if (stage->predicate) tir_schedule_add(r->schedule, "clip %s.next", name);
    tir_schedule_add(r->schedule, "vec %s.v_i", name);
    tir_schedule_add(r->schedule, "at %s %s.v_o", r->region->stages.data[inner].name, name);
    rows_in_registers(r, inner, v);
    return true;
}

/* ---- chunks */

/* The axis' extent, or an upper bound if it varies, at most VARYING_MOST. */
static int64_t most_of(const rules *r, const tir_axis *axis) {
    const int64_t high = tir_range(r->region->pool, axis->extent).high;
    return high < VARYING_MOST || rules_extent(r, axis) >= 0 ? high : VARYING_MOST;
}

/* Is a load contiguous along the axis, so that lanes run along it? */
static bool is_loaded_along(rules *r, int s, int axis) {
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    for (int i = 0; i < count; i++)
        if (access[i].stride[axis] == 1) return true;
    return false;
}

static void prepare_chunks(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    int64_t points = tir_points(r->region, stage, 0, stage->space), each = 1;
    int axis = stage->space;
    for (int a = stage->space; a < stage->space + stage->reduce; a++) {
        if (most_of(r, &stage->axis[a]) > most_of(r, &stage->axis[axis])) axis = a;
        if (__builtin_mul_overflow(each, most_of(r, &stage->axis[a]), &each)) each = INT64_MAX;
    }
    int64_t extent = most_of(r, &stage->axis[axis]), chunks = each / CHUNK_POINTS, lanes = 4 * rules_lanes(r, s);
    if (points <= 0 || points > CHUNKS_MOST / 16 || stage->space + 2 > DLC_MAX_RANK) return;
    if (chunks > CHUNKS_MOST / points) chunks = CHUNKS_MOST / points;
    if (chunks > extent / lanes) chunks = extent / lanes;
    if (chunks < 2 && points > 1) return;
    if (chunks < 1) chunks = 1; /* a loop of one iteration, at which the lanes are attached */
    if (chunks > 1 && extent % lanes == 0)
        chunks = divisor_near(extent / lanes, chunks, (chunks + 1) / 2, chunks + chunks / 2);
    const int64_t most = extent / lanes < CHUNKS_MOST / points ? extent / lanes : CHUNKS_MOST / points;
    chunks = tir_choose_number(r->schedule, stage->name, "chunks", (tir_numbers){1, most, 1}, chunks);
    const char *name = stage->name, *part = rules_fresh_name(r, name, "_c");
    rules_set_role(r, name, RULES_WHOLE);
    rules_set_role(r, part, RULES_CHUNK);
    /* of whole vectors, so that only the last chunk needs masks: with masks, and elements that straddle lines, sums take twice as long */
    const bool even =
        chunks == 1 || rules_extent(r, &stage->axis[axis]) % (chunks * lanes) == 0 || !is_loaded_along(r, s, axis);
    rules_rewrite(r, "rfactor %s.%s %lld chunks%s -> %s chunk in", name, stage->axis[axis].name, (long long)chunks,
                  even ? "" : lib_arena_format(r->arena, " of %lld", (long long)lanes), part);
}

/* ---- parts */

/* The first reduction axis of at least `points` points, on which no predicate depends; the longest such one if there is none; -1. */
static int long_axis(const rules *r, const tir_stage *stage, int64_t points) {
    int axis = -1;
    for (int a = stage->space; a < stage->space + stage->reduce; a++) {
        if (stage->predicate && tir_uses(r->region->pool, stage->predicate, stage->axis[a].var)) continue;
        if (axis >= 0 && rules_extent(r, &stage->axis[axis]) >= points) break;
        if (axis < 0 || rules_extent(r, &stage->axis[a]) > rules_extent(r, &stage->axis[axis])) axis = a;
    }
    return axis;
}

/* Numbers of parts that the sums of s in such tiles may be worth, so few that the results of all parts stay in L2. */
typedef struct part_counts {
    /* that there are tasks for many threads */
    double tasks;
    /* that the operands of a part stay in L2, if tiles read operands again that exceed L3; else 0 */
    double cache;
} part_counts;

static part_counts count_parts(rules *r, int s, const rules_tile_shape *t) {
    const double TASKS = 16, TASK_CYCLES = 50000, BYTES = 8; /* read per cycle */
    const tir_stage *stage = &r->region->stages.data[s];
    const double points = (double)tir_points(r->region, stage, 0, stage->space),
                 each = (double)tir_points(r->region, stage, stage->space, stage->space + stage->reduce);
    const double columns = ceil((double)rules_extent(r, &stage->axis[t->v]) / (double)t->nr),
                 rows = t->u < 0 ? 1 : ceil((double)rules_extent(r, &stage->axis[t->u]) / (double)t->mr);
    /* only tiles with panels are summed block by block */
    const rules_taps taps = t->pack == UINT32_MAX ? (rules_taps){.count = 1} : rules_count_taps(r, s, t);
    const double tiles =
        ceil(points / ((double)t->nr * (double)(t->u < 0 ? 1 : t->mr)) / (taps.blocks ? taps.count : 1));
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    double bytes = 0, traffic = 0, cycles = points * each / (double)(2 * rules_lanes(r, s));
    for (int i = 0; i < count; i++) {
        const tir_tensor *tensor = &r->region->tensors.data[access[i].tensor];
        const bool panels = rules_depends(&access[i], t->v);
        const double operand = rules_tensor_bytes(r, tensor),
                     panel = each * (double)t->nr * (double)lib_dtype_size(tensor->dtype);
        const bool stays = (panels ? panel : operand) <= (double)r->machine->l2; /* until tiles read it again */
        bytes += operand;
        traffic += operand * (stays ? 1 : panels ? rows : columns);
    }
    if (cycles < bytes / BYTES) cycles = bytes / BYTES;
    const bool again = 2 * bytes > (double)r->machine->l3 && 2 * traffic > 3 * bytes;
    const double result = points * (double)lib_dtype_size(r->region->tensors.data[stage->tensor[0]].dtype);
    const double l2 = (double)r->machine->l2 / 2, most = l2 / result;
    double tasks = fmin(TASKS, cycles / TASK_CYCLES) / tiles;
    if (taps.blocks && tasks >= 2) /* parts take the place of blocks, if they are as small */
        tasks = (double)taps.blocks > most ? 0 : fmax(tasks, (double)taps.blocks);
    return (part_counts){.tasks = fmin(tasks, most), .cache = again ? fmin(bytes / l2, most) : 0};
}

/* About so many parts, at most `most`, of an axis of `groups` groups of steps that are kept together; 1: no parts. */
static int64_t round_parts(double wanted, int64_t groups, int64_t most) {
    const int64_t parts = wanted < (double)most ? (int64_t)wanted : most, high = parts + parts / 2;
    return parts < 2 ? 1 : divisor_near(groups, parts, (parts + 1) / 2, high < most ? high : most);
}

/* Are all operands given at run time, and is each step of the sum in another line of one of them (x^T dy)? Tiles then read one line of each row,
 * and the rows again for other tiles: from L3, if they are still there, or else from memory. */
static bool reads_across(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    bool across = false;
    for (int i = 0; i < count; i++) {
        const tir_tensor *tensor = &r->region->tensors.data[access[i].tensor];
        const int64_t line = r->machine->line / (int64_t)lib_dtype_size(tensor->dtype);
        bool distant = tensor->stage < 0; /* no copy in panels */
        for (int a = stage->space; a < stage->space + stage->reduce; a++)
            distant = distant && access[i].stride[a] != RULES_IRREGULAR &&
                      (access[i].stride[a] >= line || rules_extent(r, &stage->axis[a]) == 1);
        if (tensor->constant) return false;
        across = across || distant;
    }
    return across;
}

bool rules_prepare_parts(rules *r, int s, const rules_tile_shape *t, int64_t width) {
    enum { STEPS = 512 /* of a part, at least */ };
    const tir_stage *stage = &r->region->stages.data[s];
    const int64_t points = tir_points(r->region, stage, 0, stage->space),
                  each = tir_points(r->region, stage, stage->space, stage->space + stage->reduce);
    const bool made = rules_axis_of(stage, TIR_AXIS_CHUNK) >= 0;
    if (!stage->merge[0] || !rules_is_contraction(r, s) || rules_role_of(r, s) != RULES_NO_PART || made) return false;
    if (points <= 0 || each < 2 * STEPS || stage->space + 2 > DLC_MAX_RANK) return false;
    const part_counts counts = count_parts(r, s, t);
    const int axis = long_axis(r, stage, (int64_t)counts.tasks);
    if (axis < 0) return false;
    const int64_t extent = rules_extent(r, &stage->axis[axis]);
    const int64_t most = each / STEPS < extent / width ? each / STEPS : extent / width;
    const int64_t by_cache = round_parts(counts.cache, extent / width, most);
    int64_t parts = round_parts(counts.tasks, extent / width, most);
    if ((parts > 1 || reads_across(r, s)) && by_cache > parts) parts = by_cache;
    if (width > 1 && extent % (parts * width)) parts = 1;
    if (by_cache > parts && (width == 1 || extent % (by_cache * width) == 0))
        tir_doubt(r->schedule, stage->name, "parts", lib_arena_format(r->arena, "%lld", (long long)by_cache));
    if (parts < 2 && by_cache < 2) return false;
    parts = tir_choose_number(r->schedule, stage->name, "parts", (tir_numbers){1, most, 1}, parts);
    if (parts < 2) return false;
    const char *name = stage->name, *part = rules_fresh_name(r, name, "_c"), *out, *v = stage->axis[t->v].name;
    lib_text layout;
    lib_text_init(&layout, r->arena);
    for (int a = 0; a < stage->space; a++)
        if (a != t->v) lib_text_format(&layout, "%s, ", stage->axis[a].name);
    rules_set_role(r, name, RULES_WHOLE);
    rules_rewrite(r, "rfactor %s.%s %lld chunks -> %s chunk in", name, stage->axis[axis].name, (long long)parts, part);
    out = rules_fresh_name(r, part, "_out");
    rules_rewrite(r, "copy %s -> %s", part, out);
    rules_set_role(r, out, RULES_PARTS);
    const tir_stage *copy = &r->region->stages.data[rules_stage_named(r, out)];
    rules_rewrite(r, "layout %s (chunk, %s%s)", r->region->tensors.data[copy->tensor[0]].name,
                  layout.length ? layout.data : "", v);
    return true;
}

void rules_prepare_reduce(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    if (stage->kind != TIR_REDUCE || !stage->merge[0] || !stage->reduce || stage->fold >= 0) return;
    if (rules_role_of(r, s) != RULES_NO_PART) return;
    /* The reduction of a row, which stays on chip (rules_rows.c) */
    if (r->group[s].root != s && !rules_pointwise(r, s)) return;
    if (prepare_columns(r, s)) return;
    if (!rules_tileable(r, s)) prepare_chunks(r, s);
}
