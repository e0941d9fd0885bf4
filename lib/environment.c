/* Environment variables: the table in lib.h lists all that the library reads. An empty variable counts
 * as unset. A process with raised privileges ignores them (secure_getenv). */
#include "lib/lib.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *name, *default_, *words, *doc;
} variables[LIB_ENV_COUNT] = {
#define X(id, name, default_, words, doc) {name, default_, words, doc},
    LIB_ENVIRONMENT_TABLE(X)
#undef X
};

const char *lib_environment_get(lib_environment variable) {
    const char *value = secure_getenv(variables[variable].name);
    return value && value[0] ? value : variables[variable].default_;
}

int64_t lib_environment_integer(lib_environment variable, int64_t fallback) {
    const char *value = lib_environment_get(variable);
    char *end;
    int saved = errno;
    errno = 0;
    long long number = strtoll(value, &end, 0);
    bool good = end != value && *end == 0 && errno == 0;
    errno = saved;
    return good ? (int64_t)number : fallback;
}

bool lib_environment_three(lib_environment variable, int64_t numbers[3]) {
    const char *at = lib_environment_get(variable);
    for (int i = 0; i < 3; i++) {
        char *end;
        int saved = errno;
        numbers[i] = strtoll(at, &end, 10);
        errno = saved;
        if (numbers[i] <= 0 || *end != (i < 2 ? ',' : 0)) return false;
        at = end + 1;
    }
    return true;
}

int64_t lib_environment_verify(void) {
#ifdef DLC_DEBUG_BUILD
    const int64_t level = 2;
#else
    const int64_t level = 1;
#endif
    return lib_environment_integer(LIB_ENV_VERIFY, level);
}

static bool lists(const char *list, const char *word, size_t length) {
    for (const char *at = list; *at;) {
        at += strspn(at, ", ");
        size_t item = strcspn(at, ", ");
        if (item && item == length && memcmp(at, word, length) == 0) return true;
        at += item;
    }
    return false;
}

bool lib_environment_lists(lib_environment variable, const char *word) {
    return lists(lib_environment_get(variable), word, strlen(word));
}

static void log_unknown_word(const lib_log *log, lib_environment variable, const char *at, size_t length) {
    char word[100];
    snprintf(word, sizeof word, "%.*s", length < sizeof word ? (int)length : (int)sizeof word - 1, at);
    lib_nearest nearest = lib_nearest_to(word);
    lib_nearest_try_list(&nearest, variables[variable].words);
    lib_log_write(log, "dlc: %s: there is no %s; expected some of: %s%s", variables[variable].name, word,
                  variables[variable].words, lib_nearest_hint(&nearest));
}

void lib_environment_check(const lib_log *log) {
    for (lib_environment v = 0; v < LIB_ENV_COUNT; v++) {
        const char *words = variables[v].words, *value = lib_environment_get(v);
        if (strcmp(words, "N") == 0) {
            if (*value && lib_environment_integer(v, 0) == 0 && lib_environment_integer(v, 1) == 1)
                lib_log_write(log, "dlc: %s=%.100s: expected a number", variables[v].name, value);
            continue;
        }
        if (strcmp(words, "N,N,N") == 0) {
            int64_t numbers[3];
            if (*value && !lib_environment_three(v, numbers))
                lib_log_write(log, "dlc: %s=%.100s: expected three numbers, as in 32,1024,8192", variables[v].name,
                              value);
            continue;
        }
        for (const char *at = value; *words && *at;) {
            at += strspn(at, ", ");
            size_t item = strcspn(at, ", ");
            if (item && !lists(words, at, item)) log_unknown_word(log, v, at, item);
            at += item;
        }
    }
}

void lib_environment_help(lib_text *text) {
    for (int i = 0; i < LIB_ENV_COUNT; i++) {
        bool listed = variables[i].words[0] && variables[i].words[0] != 'N';
        lib_text_format(text, "%-17s default \"%s\": %s%s%s\n", variables[i].name, variables[i].default_,
                        variables[i].doc, listed ? "; some of: " : "", listed ? variables[i].words : "");
    }
}
