/* What the examples on real data share, and nothing of the library: where `make examples-data` puts their files, and the time. */
#ifndef EXAMPLES_DATA_H
#define EXAMPLES_DATA_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { DATA_PATH = 1024, DATA_MISSING = 77 /* exit status: nothing was tried, a file is missing */ };

static inline double milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

/* The path of a file or folder of `make examples-data`, whether it is there or not. */
static inline void data_path(char path[DATA_PATH], const char *name) {
    const char *folder = getenv("EXAMPLES_DATA"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (folder)
        snprintf(path, DATA_PATH, "%s/%s", folder, name);
    else if (cache && *cache)
        snprintf(path, DATA_PATH, "%s/libdlc/examples/%s", cache, name);
    else
        snprintf(path, DATA_PATH, "%s/.cache/libdlc/examples/%s", home ? home : "", name);
}

/* False, and what to do on stderr, if the file is not there. */
static inline bool data_find(char path[DATA_PATH], const char *name) {
    data_path(path, name);
    if (access(path, R_OK) == 0) return true;
    fprintf(
        stderr,
        "%s is not there: `make examples-data` fetches it (models, a page, a recording and pictures: 94 MB to download, 53 MB "
        "on disk; EXAMPLES_DATA=FOLDER names another place)\n",
        path);
    return false;
}

#endif
