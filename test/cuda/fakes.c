#include "test/cuda/fakes.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *symbol(const char *path, const char *name) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        abort();
    }
    return found;
}

/* Beside the program. */
static void find(char *path, size_t size, const char *name, const char *variable) {
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    path[length > 0 ? length : 0] = 0;
    char *end = strrchr(path, '/');
    if (!end) abort();
    snprintf(end, size - (size_t)(end - path), "/%s", name);
    setenv(variable, path, 1);
}

fakes *fakes_open(void) {
    static fakes f;
    find(f.driver_path, sizeof f.driver_path, "libfake-driver.so", "DLC_CUDA");
    find(f.nvrtc_path, sizeof f.nvrtc_path, "libfake-nvrtc.so", "DLC_NVRTC");
    f.driver = symbol(f.driver_path, FAKE_DRIVER_CONTROL);
    f.nvrtc = symbol(f.nvrtc_path, FAKE_NVRTC_CONTROL);
    void *function = symbol(f.driver_path, "fake_current_context");
    memcpy(&f.current_context, &function, sizeof function);
    fakes_reset(&f);
    return &f;
}

static void reset(fake_control *c) {
    const fake_control kept = *c;
    memset(c, 0, sizeof *c);
    c->contexts = kept.contexts;
    c->streams = kept.streams;
    c->events = kept.events;
    c->graphs = kept.graphs;
    c->modules = kept.modules;
    c->pools = kept.pools;
    c->pinned = kept.pinned;
    c->allocations = kept.allocations;
    c->programs = kept.programs;
    c->bytes = kept.bytes;
}

void fakes_reset(fakes *f) {
    setenv("DLC_CUDA", f->driver_path, 1);
    setenv("DLC_NVRTC", f->nvrtc_path, 1);
    reset(f->driver);
    reset(f->nvrtc);
}

bool fakes_are_empty(const fakes *f) {
    const fake_control *d = f->driver;
    bool empty = !d->contexts && !d->streams && !d->events && !d->graphs && !d->modules && !d->pools && !d->pinned &&
                 !d->allocations && !d->bytes && !f->nvrtc->programs && !f->current_context();
    if (!empty)
        fprintf(
            stderr,
            "left: %ld contexts, %ld streams, %ld events, %ld modules, %ld pools, %ld pinned, %ld allocations, %ld programs%s\n",
            d->contexts, d->streams, d->events, d->modules, d->pools, d->pinned, d->allocations, f->nvrtc->programs,
            f->current_context() ? ", a current context" : "");
    return empty;
}
