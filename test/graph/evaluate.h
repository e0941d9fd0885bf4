/* Runs a bound graph region by region through tir_region_evaluate: what tests of passes and fusion compare with. */
#ifndef TEST_GRAPH_EVALUATE_H
#define TEST_GRAPH_EVALUATE_H

#include "context.h"
#include "graph/fuse.h"
#include "tir/arith.h"

#include <math.h>

static inline int64_t count_of(const graph *g, graph_id value) {
    const graph_shape *shape = graph_shape_of(g, value);
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) {
        int64_t extent = -1;
        assert_true(tir_is_const(g->pool, shape->dim[i], &extent));
        count *= extent;
    }
    return count;
}

static inline size_t bytes_of(const graph *g, graph_id value) {
    return (size_t)count_of(g, value) * lib_dtype_size(graph_shape_of(g, value)->dtype);
}

/* All elements of one tensor of a region. */
static inline void *evaluate_tensor(lib_arena *arena, const graph *g, tir_region *region, void *const *inputs,
                                    uint32_t tensor, graph_id value) {
    const graph_shape *shape = graph_shape_of(g, value);
    int64_t count = count_of(g, value);
    int64_t *point = LIB_NEW_ARRAY(arena, int64_t, (size_t)(count * (shape->rank + 1)));
    for (int64_t p = 0; p < count; p++) {
        int64_t rest = p;
        for (int i = shape->rank; i-- > 0;) {
            int64_t extent = 1;
            tir_is_const(g->pool, shape->dim[i], &extent);
            point[p * shape->rank + i] = rest % extent;
            rest /= extent;
        }
    }
    uint64_t *bits = LIB_NEW_ARRAY(arena, uint64_t, (size_t)count);
    size_t size = lib_dtype_size(shape->dtype);
    char *bytes = LIB_NEW_ARRAY(arena, char, (size_t)count *size);
    if (count) tir_region_evaluate(arena, region, inputs, NULL, tensor, count, point, (tir_rounding){0}, bits);
    for (int64_t p = 0; p < count; p++) tir_bits_store((tir_dtype)shape->dtype, bytes + (size_t)p * size, bits[p]);
    return bytes;
}

/* The bytes of a value as its layout has them, padding zero. */
static inline void *pack_value(lib_arena *arena, const graph *g, graph_id value, const tir_layout *layout,
                               const char *from) {
    const graph_shape *shape = graph_shape_of(g, value);
    int64_t extent[TIR_MAX_PHYSICAL], dim[DLC_MAX_RANK], index[DLC_MAX_RANK] = {0}, total = 1;
    for (int d = 0; d < shape->rank; d++) tir_is_const(g->pool, shape->dim[d], &dim[d]);
    for (int p = 0; p < layout->count; p++) {
        const tir_layout_part *part = &layout->part[p];
        extent[p] = part->modulus ? part->modulus : (dim[part->dim] + part->divisor - 1) / part->divisor;
        total *= extent[p];
    }
    size_t size = lib_dtype_size(shape->dtype);
    char *to = LIB_NEW_ARRAY(arena, char, (size_t)total *size);
    for (int64_t i = 0; i < count_of(g, value); i++) {
        int64_t at = 0;
        for (int p = 0; p < layout->count; p++) {
            const tir_layout_part *part = &layout->part[p];
            int64_t digit = index[part->dim] / part->divisor;
            at = at * extent[p] + (part->modulus ? digit % part->modulus : digit);
        }
        memcpy(to + (size_t)at * size, from + (size_t)i * size, size);
        for (int d = shape->rank - 1; d >= 0 && ++index[d] == dim[d]; d--) index[d] = 0;
    }
    return to;
}

/* Bytes by value; inputs[i] are those of graph input i. Also checks that regions come in an order that can run. */
static inline void **run_regions(lib_arena *arena, const graph *g, const graph_regions *regions, void *const *inputs) {
    void **bytes = LIB_NEW_ARRAY(arena, void *, g->values.count);
    for (uint32_t i = 0; i < g->inputs.count; i++) bytes[g->inputs.data[i]] = inputs[i];
    for (graph_id v = 1; v < g->values.count; v++)
        if (graph_constant_of(g, v)) bytes[v] = (void *)graph_constant_of(g, v)->bytes;
    for (uint32_t r = 0; r < regions->count; r++) {
        const graph_region *region = &regions->data[r];
        void **pointers = LIB_NEW_ARRAY(arena, void *, region->input_count);
        for (uint32_t i = 0; i < region->input_count; i++) {
            pointers[i] = bytes[region->inputs[i]];
            assert_non_null(pointers[i]);
        }
        if (region->kind == GRAPH_REGION_VIEW) {
            assert_int_equal(region->input_count, 1);
            assert_int_equal(region->output_count, 1);
        }
        if (region->kind == GRAPH_REGION_VIEW && /* slices are computed, here */
            bytes_of(g, region->inputs[0]) == bytes_of(g, region->outputs[0])) {
            bytes[region->outputs[0]] = pointers[0];
            continue;
        }
        assert_true(region->kind == GRAPH_REGION_KERNEL || region->kind == GRAPH_REGION_VIEW);
        tir_region *built = graph_region_build(arena, g, region, NULL, NULL);
        tir_region_verify(arena->scope, built);
        for (uint32_t t = 0; t < built->tensors.count; t++) {
            const tir_tensor *tensor = &built->tensors.data[t];
            if (!tensor->output) continue;
            graph_id value = region->outputs[tensor->argument - built->inputs];
            bytes[value] = evaluate_tensor(arena, g, built, pointers, t, value);
            if (!tir_layout_is_identity(&tensor->layout))
                bytes[value] = pack_value(arena, g, value, &tensor->layout, bytes[value]);
        }
    }
    for (uint32_t i = 0; i < g->outputs.count; i++)
        if (!bytes[g->outputs.data[i]]) {
            lib_text text;
            lib_text_init(&text, arena);
            graph_print(&text, g);
            fail_msg("output %u (value %u) was not computed: %s", i, g->outputs.data[i], text.data);
        }
    return bytes;
}

/* Equal bits, NaN as a class. */
static inline bool same_elements(dlc_dtype dtype, const void *a, const void *b, int64_t count) {
    size_t size = lib_dtype_size(dtype);
    for (int64_t i = 0; i < count; i++) {
        const char *x = (const char *)a + (size_t)i * size, *y = (const char *)b + (size_t)i * size;
        if (memcmp(x, y, size) == 0) continue;
        if (lib_dtype_is_float(dtype) && isnan(lib_element_get_f64(dtype, x)) && isnan(lib_element_get_f64(dtype, y)))
            continue;
        return false;
    }
    return true;
}

static inline uint32_t random_next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Small numbers of both signs, zeros, and now and then something special. */
static inline void *random_bytes(lib_arena *arena, const graph *g, graph_id value, uint64_t *state) {
    dlc_dtype dtype = graph_shape_of(g, value)->dtype;
    int64_t count = count_of(g, value);
    size_t size = lib_dtype_size(dtype);
    char *bytes = LIB_NEW_ARRAY(arena, char, (size_t)count *size);
    for (int64_t i = 0; i < count; i++) {
        double number = (double)random_next(state) / 536870912.0 - 2.0;
        uint32_t pick = random_next(state) % 40;
        if (pick == 0) number = -0.0;
        if (pick == 1) number = 0;
        if (pick == 2 && lib_dtype_is_float(dtype)) number = NAN;
        if (pick == 3 && lib_dtype_is_float(dtype)) number = -INFINITY;
        if (!lib_dtype_is_float(dtype)) number = floor(number * 3);
        if (dtype == DLC_BOOL) number = random_next(state) % 2;
        lib_element_set_f64(dtype, bytes + (size_t)i * size, number);
    }
    return bytes;
}

#endif
