/* Finds the peers: plug-ins beside this program, each in the environment where it is fastest. */
#include "bench/bench.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const bench_peer *load(const char *path) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol = handle ? dlsym(handle, "bench_peer_get") : NULL;
    if (!symbol) return NULL;
    bench_peer_get_function *get;
    memcpy(&get, &symbol, sizeof get);
    return get();
}

/* Removes what the caller's environment says of the peers' libraries and of their threads: an inherited "Haswell" halves the speed of
 * OpenBLAS, an inherited number of threads binds it. */
static void forget_settings(void) {
    static const char *const prefixes[] = {"OPENBLAS_", "GOTO_",   "BLIS_", "MKL_", "OMP_",     "GOMP_", "KMP_",
                                           "DNNL_",     "ONEDNN_", "ORT_",  "TBB_", "LIBXSMM_", "XSMM_", "OV_"};
    for (char **entry = environ; *entry;) {
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*entry, "="), *entry);
        bool found = false;
        for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
            found |= strncmp(name, prefixes[i], strlen(prefixes[i])) == 0;
        if (found && unsetenv(name) == 0)
            entry = environ; /* the entries have moved */
        else
            entry++;
    }
}

/* A worker that spins for long after its last task would take the processor from whoever runs next: about a millisecond, which is
 * longer than what lies between two calls in a sample, is enough. */
static void limit_spinning(void) {
    setenv("GOMP_SPINCOUNT", "100000", 1);
    setenv("OPENBLAS_THREAD_TIMEOUT", "22", 1); /* 2^22 cycles */
}

/* An OpenBLAS that does not know the processor takes older kernels, unless told what it resembles. It decides when it is loaded, so a
 * child process is asked. Returns what to set OPENBLAS_CORETYPE to, or NULL. */
static const char *openblas_core(const char *path) {
    static const char *const wide[] = {"core SkylakeX", "core Cooperlake", "core Sapphire", "core Zen4", "core Zen5"};
    const char *resembles = NULL;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bf16"))
        resembles = "Cooperlake";
    else if (__builtin_cpu_supports("avx512dq"))
        resembles = "SkylakeX";
    else if (__builtin_cpu_supports("avx2"))
        resembles = "Haswell";
#endif
    if (!resembles) return NULL;
    bool want_wide = strcmp(resembles, "Haswell") != 0;
    pid_t child = fork();
    if (child == 0) {
        char text[160] = "";
        const bench_peer *peer = load(path);
        if (!peer) _exit(0);
        peer->describe(text, sizeof text);
        bool old =
            strcasestr(text, "core Prescott") || strcasestr(text, "core Core2") || strcasestr(text, "core Unknown");
        bool is_wide = false;
        for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) is_wide |= strcasestr(text, wide[i]) != NULL;
        _exit(old || (want_wide && !is_wide));
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return NULL;
    return WEXITSTATUS(status) ? resembles : NULL;
}

void bench_prepare_environment(void) {
    forget_settings();
    limit_spinning();
}

int bench_peers_load(const bench_peer *peers[BENCH_MAX_PEERS], FILE *json) {
    const char *wanted = getenv("PEERS") ? getenv("PEERS")
                                         : "onednn,openblas,onnxruntime,jax,torch,torch_compile,libxsmm,fftw,onednn2,"
                                           "openblas_system,torch_system";
    char program[4096], names[256], *rest = names;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0 || strcmp(wanted, "none") == 0) return 0;
    program[length] = 0;
    *strrchr(program, '/') = 0;
    snprintf(names, sizeof names, "%s", wanted);
    bench_prepare_environment();
    int count = 0;
    for (char *name; (name = strtok_r(rest, ", ", &rest)) != NULL && count < BENCH_MAX_PEERS;) {
        char path[4400], description[160];
        snprintf(path, sizeof path, "%s/peer_%s.so", program, name);
        const char *core = NULL;
        if (strncmp(name, "openblas", 8) == 0 && access(path, R_OK) == 0) core = openblas_core(path);
        if (core) setenv("OPENBLAS_CORETYPE", core, 1);
        const bench_peer *peer = load(path);
        unsetenv("OPENBLAS_CORETYPE");
        if (!peer) {
            printf("peer %s: not measured (%s)\n", name,
                   access(path, R_OK) ? "not there when this was built" : dlerror());
            fprintf(json, "{\"peer\":\"%s\",\"version\":null}\n", name);
            continue;
        }
        peer->describe(description, sizeof description);
        printf("peer %s: %s%s%s\n", peer->name, description, core ? "; told to be " : "", core ? core : "");
        fprintf(json, "{\"peer\":\"%s\",\"version\":\"%s\"}\n", peer->name, description);
        peers[count++] = peer;
    }
    return count;
}
