/* What the library did when, by thread, in the form of Chrome's trace viewer ("Trace Event Format"): complete events, microseconds. */
#include "dlc-run.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct trace {
    pthread_mutex_t mutex;
    report events;
};

trace *trace_new(void) {
    trace *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    pthread_mutex_init(&t->mutex, NULL);
    if (!report_begin(&t->events, true)) return pthread_mutex_destroy(&t->mutex), free(t), NULL;
    json_open(&t->events, "traceEvents", "[");
    return t;
}

void trace_event(void *user, const char *what, const char *name, const char *values, uint64_t begin_ns,
                 uint64_t end_ns) {
    trace *t = user;
    char text[512];
    snprintf(text, sizeof text, "%s%s", name, values);
    pthread_mutex_lock(&t->mutex);
    json_open(&t->events, NULL, "{");
    json_string(&t->events, "name", text), json_string(&t->events, "cat", what), json_string(&t->events, "ph", "X");
    json_time(&t->events, "ts", begin_ns), json_time(&t->events, "dur", end_ns - begin_ns);
    json_whole(&t->events, "pid", getpid()), json_whole(&t->events, "tid", (int64_t)syscall(SYS_gettid));
    json_close(&t->events, "}");
    pthread_mutex_unlock(&t->mutex);
}

bool trace_write(const session *s, trace *t, const char *path) {
    char *bytes = NULL;
    size_t size = 0;
    json_close(&t->events, "]");
    const bool whole = report_take(&t->events, &bytes, &size);
    FILE *file = whole ? fopen(path, "w") : NULL;
    const bool written = file && fwrite(bytes, 1, size, file) == size;
    const bool good = file && fclose(file) == 0 && written;
    free(bytes);
    return good || fail(s, "--trace: %s: %s", path, strerror(errno));
}

void trace_free(trace *t) {
    if (!t) return;
    pthread_mutex_destroy(&t->mutex);
    free(t);
}
