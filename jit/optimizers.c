/* Optimisers of trainers: the table of <dlc/train.h>, settings, and updates as values of a graph. */
#include "jit/train.h"

#include <string.h>

static const dlc_optimizer known[] = {
#define X(name_, slots_, settings_, update_, source_) \
    {.name = name_, .slots = slots_, .settings = settings_, .update = update_},
    DLC_OPTIMIZERS(X)
#undef X
};
enum { KNOWN = sizeof known / sizeof *known };

static const dlc_optimizer *optimizer_named(dlc_trainer *trainer, const char *name) {
    lib_nearest nearest = lib_nearest_to(name);
    for (int i = 0; i < KNOWN; i++) {
        if (strcmp(known[i].name, name) == 0) return &known[i];
        lib_nearest_try(&nearest, known[i].name, strlen(known[i].name));
    }
    lib_raise(trainer->arena.scope, DLC_NOT_FOUND, "dlc_trainer_create: there is no optimiser %s%s", name,
              lib_nearest_hint(&nearest));
}

static bool is_reserved(const char *name) {
    static const char *const reserved[] = {"w", "g", "rate", "step", "average", "trainer"};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (strcmp(reserved[i], name) == 0) return true;
    return false;
}

static dlc_optimizer_setting *setting_named(dlc_trainer *trainer, const char *name) {
    for (uint32_t i = 0; i < trainer->settings.count; i++)
        if (strcmp(trainer->settings.data[i].name, name) == 0) return &trainer->settings.data[i];
    return NULL;
}

/* "m v", "beta1=0.9 epsilon=1e-8" */
static void read_names(dlc_trainer *trainer, const char *text, bool numbers) {
    lib_lexer lexer;
    lib_lexer_init(&lexer, &trainer->arena, numbers ? "the optimiser's settings" : "the optimiser's slots", text,
                   strlen(text));
    lib_lexer_next(&lexer);
    while (lexer.kind != LIB_END) {
        const char *name = lib_lexer_name(&lexer);
        bool taken = is_reserved(name) || setting_named(trainer, name) || (!numbers && strcmp(name, "decay") == 0);
        for (uint32_t i = 0; i < trainer->slots.count; i++) taken = taken || strcmp(trainer->slots.data[i], name) == 0;
        if (taken) lib_lexer_raise(&lexer, "the name %s is taken", name);
        if (numbers) {
            lib_lexer_expect(&lexer, "=");
            lib_vec_push(&trainer->arena, &trainer->settings,
                         ((dlc_optimizer_setting){name, lib_lexer_number(&lexer)}));
        } else {
            lib_vec_push(&trainer->arena, &trainer->slots, name);
        }
    }
}

static void read_settings(dlc_trainer *trainer) {
    const dlc_trainer_options *options = &trainer->options;
    for (int i = 0; i < options->setting_count; i++) {
        const char *name = options->settings[i].name;
        if (!name)
            lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT, "dlc_trainer_create: setting %d has no name", i);
        dlc_optimizer_setting *setting = setting_named(trainer, name);
        if (!setting) {
            lib_nearest nearest = lib_nearest_to(name);
            for (uint32_t k = 0; k < trainer->settings.count; k++)
                lib_nearest_try(&nearest, trainer->settings.data[k].name, strlen(trainer->settings.data[k].name));
            lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT,
                      "dlc_trainer_create: optimiser %s has no setting %s%s (it has: %s)", trainer->optimizer.name,
                      name, lib_nearest_hint(&nearest),
                      trainer->optimizer.settings[0] ? trainer->optimizer.settings : "none");
        }
        setting->number = options->settings[i].number;
    }
}

void jit_train_read_optimizer(dlc_trainer *trainer) {
    dlc_trainer_options *options = &trainer->options;
    lib_arena *arena = &trainer->arena;
    if (options->own && options->optimizer)
        lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT,
                  "dlc_trainer_create: options.optimizer and options.own are both given");
    const dlc_optimizer *from =
        options->own ? options->own : optimizer_named(trainer, options->optimizer ? options->optimizer : "adamw");
    if (!from->name || !from->update)
        lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT,
                  "dlc_trainer_create: the optimiser has no name or no update");
    if (!lib_is_utf8(from->name) || !lib_is_utf8(from->update))
        lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT,
                  "dlc_trainer_create: the optimiser's name or update is not UTF-8");
    trainer->optimizer = (dlc_optimizer){.name = lib_arena_string(arena, from->name),
                                         .slots = lib_arena_string(arena, from->slots ? from->slots : ""),
                                         .settings = lib_arena_string(arena, from->settings ? from->settings : ""),
                                         .update = lib_arena_string(arena, from->update)};
    options->rate = lib_arena_string(arena, options->rate ? options->rate : "0.001");
    read_names(trainer, trainer->optimizer.slots, false);
    read_names(trainer, trainer->optimizer.settings, true);
    read_settings(trainer);
    /* The host's; nothing reads them from here on. */
    options->optimizer = NULL, options->own = NULL, options->settings = NULL;
}

dlc_value jit_train_rate(dlc_trainer *trainer, dlc_graph *handle, dlc_value step) {
    jit_formula formula = {.arena = &trainer->arena, .graph = handle, .dtype = DLC_F64};
    jit_formula_set(&formula, "step", step);
    const dlc_value rate = jit_formula_value(&formula, "options.rate", trainer->options.rate);
    jit_train_check_graph(trainer, handle, "options.rate");
    if (dlc_value_dtype(rate) != DLC_F64 || dlc_value_rank(rate) != 0)
        lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT, "dlc_trainer_create: options.rate \"%s\" is not a number",
                  trainer->options.rate);
    return rate;
}

static void check_next(dlc_trainer *trainer, const train_state *parameter, const char *name, dlc_value value) {
    bool same = dlc_value_dtype(value) == parameter->dtype && dlc_value_rank(value) == parameter->rank;
    for (int d = 0; same && d < parameter->rank; d++) same = dlc_value_dim(value, d).value == parameter->shape[d];
    if (!same)
        lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT,
                  "dlc_trainer_create: optimiser %s: what it assigns to %s has not the parameter's type and shape (%s)",
                  trainer->optimizer.name, name, parameter->name);
}

void jit_train_update(dlc_trainer *trainer, dlc_graph *handle, const train_state *parameter, const dlc_value *value,
                      dlc_value gradient, dlc_value rate, dlc_value step, dlc_value *next) {
    jit_formula formula = {.arena = &trainer->arena, .graph = handle, .dtype = parameter->dtype};
    jit_formula_set(&formula, "w", value[0]);
    jit_formula_set(&formula, "g", gradient);
    jit_formula_set(&formula, "rate", dlc_cast(rate, parameter->dtype));
    jit_formula_set(&formula, "step", dlc_cast(step, parameter->dtype));
    for (uint32_t i = 0; i < trainer->slots.count; i++) jit_formula_set(&formula, trainer->slots.data[i], value[1 + i]);
    for (uint32_t i = 0; i < trainer->settings.count; i++) {
        const dlc_optimizer_setting *setting = &trainer->settings.data[i];
        const bool off = strcmp(setting->name, "decay") == 0 && !parameter->decays;
        jit_formula_set_number(&formula, setting->name, off ? 0 : setting->number);
    }
    jit_formula_run(&formula, "the optimiser's update", trainer->optimizer.update);
    jit_train_check_graph(trainer, handle, "the optimiser's update");
    next[0] = jit_formula_get(&formula, "w");
    check_next(trainer, parameter, "w", next[0]);
    for (uint32_t i = 0; i < trainer->slots.count; i++) {
        next[1 + i] = jit_formula_get(&formula, trainer->slots.data[i]);
        check_next(trainer, parameter, trainer->slots.data[i], next[1 + i]);
    }
}
