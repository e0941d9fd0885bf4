/* Sizes of the networks, their weights, and what all have in common. */
#include "bench/models/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMAGE(n, side) \
    .input = "image", .dtype = DLC_F32, .rank = 4, .dims = {{n, "n"}, {3, NULL}, {side, NULL}, {side, NULL}}
#define ANY_IMAGE(channels, height, width)         \
    .input = "image", .dtype = DLC_F32, .rank = 4, \
    .dims = {{1, "n"}, {channels, NULL}, {height, "height"}, {width, "width"}}
#define WORDS(count) .input = "ids", .dtype = DLC_I64, .rank = 2, .dims = {{1, "n"}, {count, "tokens"}}
#define SOUND(channels, count) \
    .input = "sound", .dtype = DLC_F32, .rank = 3, .dims = {{1, "n"}, {channels, NULL}, {count, "frames"}}

static const model_sizes table[] = {
    {"resnet50", model_resnet, IMAGE(1, 224), .width = 64, .classes = 1000, .blocks = {3, 4, 6, 3}},
    {"resnet-small", model_resnet, IMAGE(1, 32), .width = 8, .classes = 10, .blocks = {1, 2, 1, 1}},
    {"bert-base", model_bert, WORDS(128), .masked = true, .vocabulary = 30522, .positions = 512, .hidden = 768,
     .heads = 12, .inner = 3072, .layers = 12},
    {"bert-small", model_bert, WORDS(17), .masked = true, .vocabulary = 97, .positions = 24, .hidden = 32, .heads = 2,
     .inner = 64, .layers = 2},
    {"resnet50-qdq", model_resnet, IMAGE(1, 224), .width = 64, .classes = 1000, .blocks = {3, 4, 6, 3},
     .quantised = true},
    {"resnet-small-qdq", model_resnet, IMAGE(1, 32), .width = 8, .classes = 10, .blocks = {1, 2, 1, 1},
     .quantised = true},
    {"bert-base-qdq", model_bert, WORDS(128), .masked = true, .vocabulary = 30522, .positions = 512, .hidden = 768,
     .heads = 12, .inner = 3072, .layers = 12, .quantised = true},
    {"bert-small-qdq", model_bert, WORDS(17), .masked = true, .vocabulary = 97, .positions = 24, .hidden = 32,
     .heads = 2, .inner = 64, .layers = 2, .quantised = true},
    {"mobilenet-v3", model_mobilenet, IMAGE(1, 224), .width = 16, .classes = 1000, .layers = 15},
    {"mobilenet-small", model_mobilenet, IMAGE(1, 32), .width = 8, .classes = 10, .layers = 5},
    {"unet", model_unet, ANY_IMAGE(3, 256, 256), .width = 32, .classes = 2, .layers = 4},
    {"unet-small", model_unet, ANY_IMAGE(3, 32, 48), .width = 4, .classes = 2, .layers = 2},
    {"yolo", model_yolo, ANY_IMAGE(3, 320, 320), .width = 32, .classes = 80, .blocks = {1, 2, 3, 1}},
    {"yolo-small", model_yolo, ANY_IMAGE(3, 64, 96), .width = 8, .classes = 3, .blocks = {1, 1, 1, 1}},
    {"vit-b16", model_vit, IMAGE(1, 224), .width = 16, .classes = 1000, .hidden = 768, .heads = 12, .inner = 3072,
     .layers = 12},
    {"vit-small", model_vit, IMAGE(1, 32), .width = 8, .classes = 10, .hidden = 32, .heads = 2, .inner = 64,
     .layers = 2},
    {"gpt2-prefill", model_gpt, WORDS(128), .vocabulary = 50257, .positions = 1024, .hidden = 768, .heads = 12,
     .inner = 3072, .layers = 12},
    {"gpt2-small", model_gpt, WORDS(13), .vocabulary = 97, .positions = 24, .hidden = 32, .heads = 2, .inner = 64,
     .layers = 2},
    {"gpt2-decoder", model_gpt, WORDS(1), .vocabulary = 50257, .positions = 1024, .hidden = 768, .heads = 12,
     .inner = 3072, .layers = 12, .cached = true},
    {"gpt2-decoder-small", model_gpt, WORDS(1), .vocabulary = 97, .positions = 64, .hidden = 32, .heads = 2,
     .inner = 64, .layers = 2, .cached = true},
    {"whisper-encoder", model_whisper, SOUND(80, 3000), .positions = 1500, .hidden = 384, .heads = 6, .inner = 1536,
     .layers = 4},
    {"whisper-small", model_whisper, SOUND(8, 40), .positions = 24, .hidden = 32, .heads = 2, .inner = 64, .layers = 2},
    {"octave", model_octave, IMAGE(1, 224), .width = 64, .classes = 1000, .blocks = {2, 2, 2, 2}},
    {"octave-small", model_octave, IMAGE(1, 64), .width = 8, .classes = 10, .blocks = {1, 1, 1, 1}},
    {"odd", model_odd, ANY_IMAGE(3, 215, 173), .width = 37, .classes = 101, .layers = 4},
    {"odd-small", model_odd, ANY_IMAGE(3, 43, 29), .width = 7, .classes = 11, .layers = 2},
    {"wavenet", model_wavenet, SOUND(1, 16000), .width = 64, .classes = 64, .layers = 20},
    {"wavenet-small", model_wavenet, SOUND(1, 100), .width = 8, .classes = 5, .layers = 4},
    {"deformable", model_deformable, ANY_IMAGE(3, 224, 224), .width = 32, .classes = 100, .layers = 4},
    {"deformable-small", model_deformable, ANY_IMAGE(3, 24, 20), .width = 4, .classes = 10, .layers = 2},
};

model *model_open(const char *name) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].name, name) != 0) continue;
        model *m = calloc(1, sizeof *m);
        if (m) m->sizes = &table[i], m->spells = table[i].quantised;
        return m;
    }
    return NULL;
}

const char *model_name(int number) {
    return number < (int)(sizeof table / sizeof *table) ? table[number].name : NULL;
}

void model_close(model *m) {
    for (int i = 0; m && i < m->count; i++) free(m->weights[i].data);
    for (int i = 0; m && i < m->kept_count; i++) free(m->kept[i]);
    if (m) free(m->weights), free(m->kept), free(m->ranges);
    free(m);
}

void model_spell_attention(model *m) {
    m->spells = true;
}

bool model_spells_attention(const model *m) {
    return m->spells;
}

const model_sizes *model_sizes_of(const model *m) {
    return m->sizes;
}

int model_weight_count(const model *m) {
    return m->count;
}

const model_tensor *model_weight(const model *m, int number) {
    return &m->weights[number];
}

dlc_graph *model_target(const model *m) {
    return m->graph;
}

dlc_dtype model_dtype(const model *m) {
    return m->dtype;
}

/* ---- weights ------------------------------------------------------------------------------------------------------- */

/* Fills a weight with numbers that depend on its name alone. */
static bool fill(model_tensor *t, double low, double high) {
    uint64_t state = 14695981039346656037u; /* FNV-1a */
    size_t count = 1;
    for (const char *c = t->name; *c; c++) state = (state ^ (unsigned char)*c) * 1099511628211u;
    for (int d = 0; d < t->rank; d++) count *= (size_t)t->shape[d];
    t->data = malloc(count * sizeof *t->data);
    for (size_t i = 0; t->data && i < count; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17; /* xorshift64, Marsaglia 2003 */
        t->data[i] = (float)(low + (high - low) * (double)(state >> 11) * 0x1p-53);
    }
    return t->data != NULL;
}

static model_tensor *find(const model *m, const char *name) {
    for (int i = 0; i < m->count; i++)
        if (strcmp(m->weights[i].name, name) == 0) return &m->weights[i];
    return NULL;
}

static model_tensor *add(model *m, const char *name, int rank, const int64_t *shape, double low, double high) {
    if (m->count == m->room) {
        int room = 2 * m->room + 64;
        model_tensor *more = realloc(m->weights, (size_t)room * sizeof *more);
        if (!more) return NULL;
        m->weights = more, m->room = room;
    }
    model_tensor *t = &m->weights[m->count];
    *t = (model_tensor){.rank = rank};
    snprintf(t->name, sizeof t->name, "%s", name);
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    if (!fill(t, low, high)) return NULL;
    m->count++;
    return t;
}

void *model_keep(model *m, size_t bytes) {
    void **more = realloc(m->kept, (size_t)(m->kept_count + 1) * sizeof *more);
    if (!more) return NULL;
    m->kept = more;
    m->kept[m->kept_count] = malloc(bytes);
    return m->kept[m->kept_count] ? m->kept[m->kept_count++] : NULL;
}

/* NULL: no memory. */
static model_tensor *find_or_add(model *m, int rank, const int64_t *shape, double low, double high, const char *format,
                                 va_list arguments) {
    char name[sizeof((model_tensor *)0)->name];
    vsnprintf(name, sizeof name, format, arguments);
    model_tensor *t = find(m, name);
    return t ? t : add(m, name, rank, shape, low, high);
}

const float *model_numbers(model *m, int rank, const int64_t *shape, double low, double high, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const model_tensor *t = find_or_add(m, rank, shape, low, high, format, arguments);
    va_end(arguments);
    return t ? t->data : NULL;
}

dlc_value model_constant(model *m, int rank, const int64_t *shape, double low, double high, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const model_tensor *t = find_or_add(m, rank, shape, low, high, format, arguments);
    va_end(arguments);
    if (!t) return DLC_NONE; /* an operand that is missing: the graph's status tells */
    dlc_value value = dlc_constant_borrow(m->graph, DLC_F32, rank, shape, t->data);
    return m->dtype == DLC_F32 ? value : dlc_cast(value, m->dtype); /* converted once, when the program is bound */
}

dlc_value model_weights_next(model *m, int rank, const int64_t *shape, double low, double high) {
    return model_constant(m, rank, shape, low, high, "%d", m->numbered++);
}

/* ---- graphs -------------------------------------------------------------------------------------------------------- */

static dlc_value add_input(model *m, const char *name, dlc_dtype dtype, int rank, const dlc_dim *dims) {
    if (m->input_count == MODEL_MOST_INPUTS) return DLC_NONE;
    model_input *in = &m->inputs[m->input_count++];
    *in = (model_input){.dtype = dtype, .rank = rank};
    snprintf(in->name, sizeof in->name, "%s", name);
    memcpy(in->dims, dims, (size_t)rank * sizeof *dims);
    return dlc_input(m->graph, name, dtype, rank, dims);
}

int model_input_count(const model *m) {
    return m->input_count;
}

const model_input *model_input_at(const model *m, int number) {
    return &m->inputs[number];
}

dlc_dim model_past(const model *m) {
    return m->sizes->cached ? (dlc_dim){4, "past"} : (dlc_dim){0, NULL};
}

dlc_value model_cache(model *m, int layer, const char *what, dlc_value added) {
    const model_sizes *s = m->sizes;
    const dlc_dim dims[] = {s->dims[0], {s->heads, NULL}, model_past(m), {s->hidden / s->heads, NULL}};
    char name[sizeof((model_input *)0)->name];
    if (!s->cached) return added;
    snprintf(name, sizeof name, "past.%d.%s", layer, what);
    dlc_value past = add_input(m, name, m->dtype, 4, dims);
    dlc_value all = dlc_concat(2, (dlc_value[]){past, added}, 2);
    snprintf(name, sizeof name, "present.%d.%s", layer, what);
    dlc_output(m->graph, name, all);
    return all;
}

dlc_graph *model_graph(model *m, dlc_context *context, dlc_dtype dtype) {
    const model_sizes *s = m->sizes;
    if (dlc_graph_create(context, &m->graph) != DLC_OK) return NULL;
    m->dtype = dtype, m->numbered = m->input_count = m->activation_count = 0;
    dlc_value x = add_input(m, s->input, s->dtype, s->rank, s->dims), mask = DLC_NONE;
    if (s->masked) mask = add_input(m, "mask", DLC_BOOL, s->rank, s->dims);
    if (s->dtype == DLC_F32 && dtype != DLC_F32) x = dlc_cast(x, dtype);
    dlc_value y = model_result(m, s->build(m, x, mask));
    dlc_output(m->graph, s->cached ? "logits" : "result", dtype == DLC_F32 ? y : dlc_cast(y, DLC_F32));
    if (m->form == MODEL_OBSERVED) model_output_ranges(m);
    return m->graph;
}
