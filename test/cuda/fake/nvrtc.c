/* A fake NVRTC: its code is the source text behind a line that says for what it is. */
#include "targets/cuda/api.h"
#include "test/cuda/fake/fake.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT fake_control fake_nvrtc_control;
#define control fake_nvrtc_control
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

struct _nvrtcProgram {
    char *source, *image;
    char log[256];
    bool ptx;
};

static unsigned fails(const char *name) {
    pthread_mutex_lock(&mutex);
    bool now = control.fail && strcmp(control.fail, name) == 0 && ++control.seen == control.fail_at;
    unsigned result = now ? control.fail_with : 0;
    pthread_mutex_unlock(&mutex);
    return result;
}
#define ENTER(name)                \
    do {                           \
        unsigned r_ = fails(name); \
        if (r_) return r_;         \
    } while (0)

static int version(void) {
    return control.version ? control.version : 13000;
}

EXPORT const char *nvrtcGetErrorString(nvrtcResult result) {
    return result == NVRTC_ERROR_COMPILATION ? "fake: compilation" : "fake: some error";
}

EXPORT nvrtcResult nvrtcVersion(int *major, int *minor) {
    ENTER("nvrtcVersion");
    *major = version() / 1000;
    *minor = version() % 1000 / 10;
    return NVRTC_SUCCESS;
}

static const int known[8] = {75, 80, 86, 90, 100};
static const int *architectures(void) {
    return control.architectures[0] ? control.architectures : known;
}

EXPORT nvrtcResult nvrtcGetNumSupportedArchs(int *count) {
    ENTER("nvrtcGetNumSupportedArchs");
    for (*count = 0; *count < 8 && architectures()[*count]; ++*count) {
    }
    return NVRTC_SUCCESS;
}
EXPORT nvrtcResult nvrtcGetSupportedArchs(int *all) {
    ENTER("nvrtcGetSupportedArchs");
    for (int i = 0; i < 8 && architectures()[i]; i++) all[i] = architectures()[i];
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram *out, const char *source, const char *name, int headers,
                                      const char *const *header_sources, const char *const *header_names) {
    (void)name, (void)headers, (void)header_sources, (void)header_names;
    ENTER("nvrtcCreateProgram");
    nvrtcProgram program = calloc(1, sizeof *program);
    program->source = strdup(source);
    *out = program;
    pthread_mutex_lock(&mutex);
    control.programs++;
    pthread_mutex_unlock(&mutex);
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) {
    unsigned result = fails("nvrtcDestroyProgram"); /* gone all the same */
    free((*program)->source);
    free((*program)->image);
    free(*program);
    *program = NULL;
    pthread_mutex_lock(&mutex);
    control.programs--;
    pthread_mutex_unlock(&mutex);
    return result;
}

static int inside;

static void meet_others(void) {
    pthread_mutex_lock(&mutex);
    inside++;
    for (int i = 0; control.at_once < control.together && i < 3000; i++) {
        if (inside > control.at_once) control.at_once = inside;
        pthread_mutex_unlock(&mutex);
        usleep(1000);
        pthread_mutex_lock(&mutex);
    }
    inside--;
    pthread_mutex_unlock(&mutex);
}

EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char *const *options) {
    unsigned result = fails("nvrtcCompileProgram");
    meet_others();
    char kind[32] = "none";
    int architecture = 0;
    bool exact = false;
    for (int i = 0; i < count; i++) {
        sscanf(options[i], "--gpu-architecture=%31[a-z]_%d", kind, &architecture);
        exact = exact || strcmp(options[i], "--fmad=false") == 0;
    }
    if (!result && (!architecture || !exact || strstr(program->source, "#include") ||
                    (control.refuses && strstr(program->source, control.refuses))))
        result = NVRTC_ERROR_COMPILATION;
    pthread_mutex_lock(&mutex);
    control.compilations++;
    pthread_mutex_unlock(&mutex);
    if (result) {
        snprintf(program->log, sizeof program->log, "libdlc.cu(1): error: the fake compiler was told to refuse this");
        return result;
    }
    program->ptx = strcmp(kind, "compute") == 0;
    size_t size = strlen(program->source) + 128;
    program->image = malloc(size);
    snprintf(program->image, size, "fake %s for %d by %d\n%s", program->ptx ? "ptx" : "code", architecture, version(),
             program->source);
    return NVRTC_SUCCESS;
}

static nvrtcResult give_size(nvrtcProgram program, bool ptx, size_t *size) {
    if (!program->image || program->ptx != ptx) return 4;
    *size = strlen(program->image) + 1;
    return NVRTC_SUCCESS;
}
static nvrtcResult give(nvrtcProgram program, bool ptx, char *bytes) {
    if (!program->image || program->ptx != ptx) return 4;
    strcpy(bytes, program->image);
    return NVRTC_SUCCESS;
}
EXPORT nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t *size) {
    ENTER("nvrtcGetPTXSize");
    return give_size(program, true, size);
}
EXPORT nvrtcResult nvrtcGetPTX(nvrtcProgram program, char *text) {
    ENTER("nvrtcGetPTX");
    return give(program, true, text);
}
EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *size) {
    ENTER("nvrtcGetCUBINSize");
    return give_size(program, false, size);
}
EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *bytes) {
    ENTER("nvrtcGetCUBIN");
    return give(program, false, bytes);
}
EXPORT nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *size) {
    ENTER("nvrtcGetProgramLogSize");
    *size = strlen(program->log) + 1;
    return NVRTC_SUCCESS;
}
EXPORT nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log) {
    ENTER("nvrtcGetProgramLog");
    strcpy(log, program->log);
    return NVRTC_SUCCESS;
}
