/* Regions' own schedules, as the host gives them with a program: a text of sections, each after a line
 *   region NAME:          for regions of that name, whatever they compute
 *   region #HASH:         for the region with this computation, whatever its name; 16 hexadecimal digits
 *   region NAME #HASH:    the same; of several such regions, preferably the one with the name
 * The form is that of the dump "schedule". The set of regions depends on shapes, so an unused section is not an error: it is logged
 * once. For regions without a section, the functions that the host registered (<dlc/extend.h>) are queried. */
#include "jit/internal.h"

#include "graph/registry.h"

typedef struct jit_section {
    /* as in the host's text, for messages */
    const char *header;
    /* "": any */
    const char *name;
    const char *body;
    size_t length;
    /* line number of the header */
    int line;
    bool by_hash;
    uint64_t hash;
    atomic_bool used, reported;
} jit_section;

static const char *next_line(const char *line) {
    const char *end = strchr(line, '\n');
    return end ? end + 1 : line + strlen(line);
}

static bool is_header(const char *line) {
    line += strspn(line, " \t");
    return strncmp(line, "region", 6) == 0 && strchr(" \t:#\n", line[6]);
}

static bool is_blank(const char *line) {
    return strchr("\n", line[strspn(line, " \t\r")]) != NULL; /* also true at the end of the text */
}

static bool says_nothing(const char *line) {
    return strchr("#\n", line[strspn(line, " \t\r")]) != NULL; /* a comment, or the end */
}

static _Noreturn void refuse(lib_arena *arena, int line, const char *what, const char *text) {
    lib_text shown;
    lib_text_init(&shown, arena);
    lib_text_quoted(&shown, lib_arena_format(arena, "%.*s", (int)strcspn(text, "\n"), text));
    lib_raise(
        arena->scope, DLC_INVALID_ARGUMENT,
        "dlc_compile: schedule, line %d: %s: %s; expected `region NAME:`, `region #HASH:` or `region NAME #HASH:`",
        line, what, shown.data);
}

static void parse_hash(lib_arena *arena, jit_section *section, const char *word, size_t length, const char *line) {
    enum { DIGITS = 16 };
    section->by_hash = true;
    for (size_t i = 0; i < length; i++) {
        const char *digits = "0123456789abcdef", *digit = strchr(digits, word[i]);
        if (!digit) refuse(arena, section->line, "a hash has lower-case hexadecimal digits only", line);
        section->hash = section->hash << 4 | (uint64_t)(digit - digits);
    }
    if (length != DIGITS) refuse(arena, section->line, "a hash has 16 digits", line);
}

static void parse_header(lib_arena *arena, jit_section *section, const char *line) {
    const char *at = line + strspn(line, " \t") + 6, *start = at += strspn(at, " \t");
    size_t length = strcspn(at, "#: \t\n");
    section->name = lib_arena_format(arena, "%.*s", (int)length, at);
    at += length;
    at += strspn(at, " \t");
    if (*at == '#') {
        size_t digits = strcspn(at + 1, ": \t\n");
        parse_hash(arena, section, at + 1, digits, line);
        at += 1 + digits;
        at += strspn(at, " \t");
    } else if (!length) {
        refuse(arena, section->line, "no region is named", line);
    }
    if (*at != ':' || !says_nothing(at + 1)) refuse(arena, section->line, "this is no header of a section", line);
    while (at > start && strchr(" \t", at[-1])) at--;
    section->header = lib_arena_format(arena, "%.*s", (int)(at - start), start);
}

/* Is the section an exact repetition? A dump repeats the section of regions with equal computations. A different section with the
 * same header would never apply. */
static bool is_repeated(lib_arena *arena, const jit_section *section, const jit_section *before) {
    if (section->by_hash != before->by_hash || section->hash != before->hash) return false;
    if (strcmp(section->name, before->name) != 0) return false;
    if (section->length != before->length || memcmp(section->body, before->body, section->length) != 0)
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT,
                  "dlc_compile: schedule, line %d: region %s has another section, in line %d", section->line,
                  section->header, before->line);
    return true;
}

static void parse_sections(dlc_program *program, const char *text) {
    lib_arena *arena = &program->arena;
    lib_arena_ask(arena);
    lib_vec(jit_section *) sections = {0};
    jit_section *open = NULL;
    int number = 1;
    for (const char *line = lib_arena_string(arena, text); *line; line = next_line(line), number++) {
        if (is_header(line)) {
            open = LIB_NEW(arena, jit_section);
            open->line = number;
            parse_header(arena, open, line);
            open->body = next_line(line);
            lib_vec_push(arena, &sections, open);
        } else if (open && !is_blank(line)) { /* the section ends after its last line that is not blank */
            open->length = (size_t)(line - open->body) + strcspn(line, "\n");
        } else if (open) {
            continue;
        } else if (!says_nothing(line)) {
            refuse(arena, number, "a directive before any section", line);
        }
    }
    lib_map kept = {0};
    for (uint32_t i = 0; i < sections.count; i++) {
        jit_section *section = sections.data[i];
        const uint64_t key = lib_hash_mix(lib_hash_string(section->name), section->hash);
        uint32_t at = lib_map_first(&kept, key);
        while (at != LIB_MAP_END && !is_repeated(arena, section, sections.data[kept.slots[at].value]))
            at = lib_map_next(&kept, key, at);
        if (at != LIB_MAP_END) continue;
        lib_map_insert(arena, &kept, key, program->section_count);
        sections.data[program->section_count++] = section;
    }
    program->sections = sections.data;
}

void jit_parse_schedules(dlc_program *program, const char *text) {
    lib_arena *arena = &program->arena;
    lib_scope scope, *outer = arena->scope;
    lib_allowance allowance;
    lib_allowance_begin_within(&allowance, arena, &program->context->limits, strlen(text));
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) parse_sections(program, text);
    arena->scope = outer;
    lib_allowance_end(&allowance, arena);
    if (scope.error.status != DLC_OK) lib_raise_error(outer, &scope.error);
}

/* How specifically the section matches: regions with equal computations are distinguished by name. */
static int how_well(const jit_section *section, const char *name, uint64_t hash) {
    bool named = strcmp(section->name, name) == 0;
    if (section->by_hash) return section->hash != hash ? 0 : named ? 3 : 2;
    return named;
}

/* Queries the host's registered functions; the first result is used. */
static jit_own ask_host(const dlc_context *context, lib_arena *arena, const tir_region *region) {
    const graph_definition *const *asked = graph_registry_list(arena, &context->handles.registry, GRAPH_SCHEDULE);
    if (!*asked) return (jit_own){0};
    const tir_machine *machine = &context->machine;
    lib_text stages;
    lib_text_init(&stages, arena);
    tir_region_print(&stages, region);
    const dlc_region described = {.name = region->name,
                                  .hash = tir_region_hash(region).low,
                                  .stages = stages.data,
                                  .target = context->target->name,
                                  .cores = machine->cores,
                                  .vector_bytes = machine->vector_bytes,
                                  .l1 = machine->l1,
                                  .l2 = machine->l2,
                                  .l3 = machine->l3};
    for (; *asked; asked++) {
        const char *text = graph_ask_schedule(*asked, arena, &described);
        if (text) return (jit_own){text, strlen(text), 1};
    }
    return (jit_own){0};
}

jit_own jit_own_schedule(dlc_program *program, lib_arena *arena, const tir_region *region) {
    uint64_t hash = program->section_count ? tir_region_hash(region).low : 0;
    jit_section *best = NULL;
    int best_fit = 0;
    for (uint32_t s = 0; s < program->section_count; s++) {
        jit_section *section = program->sections[s];
        int fit = how_well(section, region->name, hash);
        if (section->by_hash && fit) atomic_store_explicit(&section->used, true, memory_order_relaxed);
        if (fit <= best_fit) continue;
        best = section;
        best_fit = fit;
    }
    if (!best) return ask_host(program->context, arena, region);
    atomic_store_explicit(&best->used, true, memory_order_relaxed);
    return (jit_own){best->body, best->length, best->line + 1};
}

void jit_report_schedules(dlc_program *program) {
    for (uint32_t s = 0; s < program->section_count; s++) {
        jit_section *section = program->sections[s];
        if (atomic_load(&section->used) || atomic_exchange(&section->reported, true)) continue;
        lib_log_write(
            &program->context->log,
            "dlc: schedule, line %d: no region of this plan is %s; the dump \"schedule\" shows names and hashes",
            section->line, section->header);
    }
}
