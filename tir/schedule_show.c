/* Translates the text of a schedule to other names: rules write for a region with canonical names, people read and write the region's own.
 * Both regions are rewritten line by line, so that names map to each other by stage and axis number. */
#include "tir/choice.h"

typedef struct shown_word {
    const char *from, *to;
} shown_word;

typedef struct showing {
    lib_arena *arena;
    /* with canonical names, with the names to show; both after the lines so far */
    tir_region *from, *to;
    /* names that lines have introduced */
    lib_vec(shown_word) words;
    /* the stage that the line named last; -1: none */
    int stage;
    /* dimension names of the tensor of a `layout` line; NULL: another line */
    const char **from_dim, **to_dim;
    int rank;
} showing;

/* How many words after `->` are names that the directive introduces. */
static int count_new_names(const char *directive) {
    static const struct {
        const char *name;
        int count;
    } rows[] = {{"copy", 1},   {"operand", 1}, {"merge", 1},   {"fuse", 1}, {"rank", 2}, {"split", 2},
                {"online", 2}, {"sweep", 2},   {"rfactor", 3}, {"scan", 3}, {"block", 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, directive) == 0) return rows[i].count;
    return 0;
}

/* The shown name of a stage or tensor of the canonical region; NULL: it has none of that name. */
static const char *shown_value(showing *s, const char *name, int *stage) {
    const int number = tir_region_find_stage(s->from, name);
    const uint32_t tensor = tir_region_find_tensor(s->from, name);
    if (number >= 0) {
        *stage = number;
        return s->to->stages.data[number].name;
    }
    if (tensor == UINT32_MAX) return NULL;
    *stage = s->from->tensors.data[tensor].stage;
    return s->to->tensors.data[tensor].name;
}

/* Whether anything other than the object of `word` has this name. derived: rewrites may derive names from it by appending _ and more. */
static bool is_taken(const showing *s, const char *word, const char *name, bool derived) {
    const tir_region *region = s->to;
    const size_t length = strlen(name);
    for (uint32_t t = 0; t < region->tensors.count; t++) {
        const char *other = region->tensors.data[t].name;
        if (strncmp(other, name, length) == 0 && (!other[length] || (derived && other[length] == '_'))) return true;
    }
    for (uint32_t q = 0; q < region->stages.count; q++) {
        const tir_stage *from = &s->from->stages.data[q], *stage = &region->stages.data[q];
        if (strcmp(stage->name, name) == 0) return true;
        for (int a = 0; a < stage->space + stage->reduce; a++)
            if (strcmp(stage->axis[a].name, name) == 0 && strcmp(from->axis[a].name, word) != 0) return true;
    }
    for (uint32_t w = 0; w < s->words.count; w++)
        if (strcmp(s->words.data[w].to, name) == 0) return true;
    return false;
}

static const char *known_word(const showing *s, const char *word) {
    for (uint32_t w = 0; w < s->words.count; w++)
        if (strcmp(s->words.data[w].from, word) == 0) return s->words.data[w].to;
    return NULL;
}

/* The shown name of an axis of the stage that the line named last; NULL: it has none of that name. */
static const char *shown_own_axis(const showing *s, const char *name) {
    const tir_stage *from = s->stage < 0 ? NULL : &s->from->stages.data[s->stage];
    for (int a = 0; from && a < from->space + from->reduce; a++)
        if (strcmp(from->axis[a].name, name) == 0) return s->to->stages.data[s->stage].axis[a].name;
    return NULL;
}

/* A name that a line introduces. A prefix that is the name of a stage, tensor or axis is translated, too. */
static const char *new_word(showing *s, const char *word) {
    const char *known = known_word(s, word), *base = word;
    int stage;
    if (known) return known;
    for (size_t length = strlen(word); length > 0 && base == word; length--) {
        if (word[length] && word[length] != '_') continue;
        char *start = lib_arena_string(s->arena, word);
        start[length] = 0;
        const char *value = shown_value(s, start, &stage), *shown = value ? value : shown_own_axis(s, start);
        if (shown) base = lib_arena_format(s->arena, "%s%s", shown, word + length);
    }
    const char *name = base;
    for (int n = 1; is_taken(s, word, name, base != word); n++) name = lib_arena_format(s->arena, "%s%d", base, n);
    lib_vec_push(s->arena, &s->words, ((shown_word){word, name}));
    return name;
}

/* The shown name of an axis, a dimension or a loop; any other word is a keyword and stays. */
static const char *shown_axis(const showing *s, const char *word) {
    for (int d = 0; d < s->rank; d++)
        if (strcmp(s->from_dim[d], word) == 0) return s->to_dim[d];
    const char *own = shown_own_axis(s, word), *known = known_word(s, word);
    return own ? own : known ? known : word;
}

static void add_word(showing *s, lib_text *out, char *word, bool layout) {
    char *dot = strrchr(word, '.');
    int stage = -1;
    if (dot) *dot = 0;
    const char *value = shown_value(s, word, &stage);
    if (value) {
        s->stage = stage;
        lib_text_add(out, value);
    }
    if (dot) {
        if (!value) lib_text_add(out, word);
        lib_text_format(out, ".%s", value ? shown_axis(s, dot + 1) : dot + 1);
    } else if (!value) {
        lib_text_add(out, shown_axis(s, word));
    } else if (layout && s->rank == 0) {
        const uint32_t tensor = tir_region_find_tensor(s->from, word);
        if (tensor == UINT32_MAX) return;
        s->rank = s->from->tensors.data[tensor].rank;
        s->from_dim = LIB_NEW_ARRAY(s->arena, const char *, (size_t)s->rank + 1);
        s->to_dim = LIB_NEW_ARRAY(s->arena, const char *, (size_t)s->rank + 1);
        tir_dimension_names(s->arena, s->from, tensor, s->from_dim);
        tir_dimension_names(s->arena, s->to, tensor, s->to_dim);
    }
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static const char *show_line(showing *s, const char *line) {
    lib_text out;
    const char *directive = NULL;
    int fresh = 0; /* words still to be introduced */
    bool arrow = false;
    lib_text_init(&out, s->arena);
    lib_text_add(&out, "");
    s->stage = -1;
    s->rank = 0;
    for (const char *at = line; *at;) {
        size_t length = 0;
        while (is_letter(at[length]) || at[length] == '.' || (at[length] >= '0' && at[length] <= '9')) length++;
        if (length == 0) {
            arrow = arrow || (at[0] == '-' && at[1] == '>');
            lib_text_add_bytes(&out, at++, 1);
            continue;
        }
        char *word = lib_arena_take(s->arena, length + 1);
        memcpy(word, at, length);
        word[length] = 0;
        at += length;
        if (!directive) {
            directive = word;
            fresh = count_new_names(directive);
            lib_text_add(&out, word);
        } else if (arrow && fresh > 0) {
            fresh--;
            lib_text_add(&out, new_word(s, word));
        } else {
            add_word(s, &out, word, strcmp(directive, "layout") == 0);
        }
    }
    return out.data;
}

static void rewrite(lib_arena *arena, tir_region *region, const char *line) {
    tir_schedule one;
    tir_schedule_init(&one, arena);
    tir_schedule_add(&one, "%s", line);
    tir_schedule_rewrite(region, &one, NULL);
}

/* The next line at *at, which becomes the start of the line after it. */
static char *take_line(lib_arena *arena, const char **at) {
    const size_t length = strcspn(*at, "\n");
    char *line = lib_arena_take(arena, length + 1);
    memcpy(line, *at, length);
    line[length] = 0;
    *at += length + ((*at)[length] != 0);
    return line;
}

void tir_schedule_show(tir_schedule *out, const tir_schedule *schedule, const tir_region *region) {
    lib_arena *arena = out->arena;
    showing s = {.arena = arena, .from = tir_region_canonical(arena, region), .to = tir_region_copy(arena, region)};
    for (const char *at = schedule->text.data ? schedule->text.data : ""; *at;) {
        const char *line = take_line(arena, &at), *shown = show_line(&s, line);
        tir_schedule_add(out, "%s", shown);
        rewrite(arena, s.from, line);
        rewrite(arena, s.to, shown);
    }
}

/* A choice is shown as a line of its stage and one of its candidates. */
static void show_choice(showing *s, tir_choice *choice) {
    choice->shown_stage = show_line(s, lib_arena_format(s->arena, "choose %s", choice->stage)) + strlen("choose ");
    choice->shown = LIB_NEW_ARRAY(s->arena, const char *, (size_t)choice->count + 1);
    for (int i = 0; i < choice->count; i++) {
        const char *line = lib_arena_format(s->arena, "choose %s %s", choice->stage, choice->candidate[i]);
        choice->shown[i] = strrchr(show_line(s, line), ' ') + 1;
    }
}

void tir_choices_show(const tir_schedule *schedule, const tir_region *region) {
    tir_choices *choices = schedule->choices;
    lib_arena *arena = choices->arena;
    showing s = {.arena = arena, .from = tir_region_canonical(arena, region), .to = tir_region_copy(arena, region)};
    const char *text = schedule->text.data ? schedule->text.data : "", *at = text;
    for (uint32_t next = 0;;) {
        for (; next < choices->made.count && choices->made.data[next].at <= (size_t)(at - text); next++)
            show_choice(&s, &choices->made.data[next]);
        if (!*at) return;
        const char *line = take_line(arena, &at), *shown = show_line(&s, line);
        rewrite(arena, s.from, line);
        rewrite(arena, s.to, shown);
    }
}
