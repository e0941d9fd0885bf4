#include "onnx/exclusions.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const exclusions_class[EXCLUSIONS_CLASSES] = {"random", "image", "gradient", "data"};

enum { MOST = 4096 };
static struct { char name[128], reason[160]; } listed[MOST];
static int listed_count;

int exclusions_find(const char *name) {
    for (int i = 0; i < listed_count; i++)
        if (strcmp(listed[i].name, name) == 0) return i;
    return -1;
}

void exclusions_read(void) {
    char line[512];
    FILE *file = fopen(EXCLUSIONS_PATH, "r");
    while (file && fgets(line, sizeof line, file) && listed_count < MOST) {
        line[strcspn(line, "\n")] = 0;
        const size_t name = strcspn(line, " ");
        if (!line[0] || line[0] == '#' || name >= sizeof listed[0].name) continue;
        snprintf(listed[listed_count].name, sizeof listed[0].name, "%.*s", (int)name, line);
        snprintf(listed[listed_count++].reason, sizeof listed[0].reason, "%s", line[name] ? line + name + 1 : "");
    }
    if (file) fclose(file);
}

static int by_name(const void *a, const void *b) {
    return strcmp(a, b);
}

void exclusions_write(void) {
    FILE *file = fopen(EXCLUSIONS_PATH, "w");
    if (!file) return;
    qsort(listed, (size_t)listed_count, sizeof listed[0], by_name);
    fprintf(file, "# Cases that do not pass, and why. Written by DLC_BLESS=1 test/onnx/conformance FOLDER...\n");
    for (int i = 0; i < listed_count; i++)
        if (listed[i].name[0]) fprintf(file, "%s %s\n", listed[i].name, listed[i].reason);
    fclose(file);
}

void exclusions_remove(int number) {
    listed[number].name[0] = 0;
}

int exclusions_class_of(int number) {
    for (int c = 0; c < EXCLUSIONS_CLASSES; c++) {
        const size_t length = strlen(exclusions_class[c]);
        const char *reason = listed[number].reason;
        if (strncmp(reason, exclusions_class[c], length) == 0 && strncmp(reason + length, ": ", 2) == 0) return c;
    }
    return EXCLUSIONS_CLASSES;
}

int exclusions_set(const char *name, const char *why) {
    int at = exclusions_find(name);
    const int class = at >= 0 ? exclusions_class_of(at) : EXCLUSIONS_CLASSES;
    if (at < 0 && listed_count == MOST) return class;
    if (at < 0) at = listed_count++;
    const bool none = class == EXCLUSIONS_CLASSES;
    snprintf(listed[at].name, sizeof listed[0].name, "%s", name);
    snprintf(listed[at].reason, sizeof listed[0].reason, "%s%s%.140s", none ? "" : exclusions_class[class],
             none ? "" : ": ", why);
    for (char *c = listed[at].reason; *c; c++)
        if (*c == '\n') *c = ' ';
    return class;
}
