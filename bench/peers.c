/* Finds the peers: plug-ins beside this program, each in the environment where it is fastest. */
#include "bench/bench.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const bench_peer *load(const char *path) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol = handle ? dlsym(handle, "bench_peer_get") : NULL;
    if (!symbol) return NULL;
    bench_peer_get_function *get;
    memcpy(&get, &symbol, sizeof get);
    return get();
}

/* An OpenBLAS older than the processor takes its oldest kernels, unless told what the processor resembles. It decides when it is
 * loaded, so a child process is asked. */
static void choose_openblas_core(const char *path) {
    unsetenv("OPENBLAS_CORETYPE");
    unsetenv("OPENBLAS_L2_SIZE");
    pid_t child = fork();
    if (child == 0) {
        char text[160] = "";
        const bench_peer *peer = load(path);
        if (peer) peer->describe(text, sizeof text);
        _exit(strstr(text, "core Prescott") || strstr(text, "core Core2") || strstr(text, "core Unknown"));
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) == 0) return;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bf16"))
        setenv("OPENBLAS_CORETYPE", "Cooperlake", 1);
    else if (__builtin_cpu_supports("avx512dq"))
        setenv("OPENBLAS_CORETYPE", "SkylakeX", 1);
    else if (__builtin_cpu_supports("avx2"))
        setenv("OPENBLAS_CORETYPE", "Haswell", 1);
#endif
}

int bench_peers_load(const bench_peer *peers[BENCH_MAX_PEERS], FILE *json) {
    const char *wanted = getenv("PEERS") ? getenv("PEERS") : "openblas,onednn";
    char program[4096], names[256], *rest = names;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0 || strcmp(wanted, "none") == 0) return 0;
    program[length] = 0;
    *strrchr(program, '/') = 0;
    snprintf(names, sizeof names, "%s", wanted);
    /* An OpenMP worker that spins for long after its last task would take the processor from whoever runs next. */
    setenv("GOMP_SPINCOUNT", "100000", 0);
    int count = 0;
    for (char *name; (name = strtok_r(rest, ", ", &rest)) != NULL && count < BENCH_MAX_PEERS;) {
        char path[4400], description[160];
        snprintf(path, sizeof path, "%s/peer_%s.so", program, name);
        if (strcmp(name, "openblas") == 0 && access(path, R_OK) == 0) choose_openblas_core(path);
        const bench_peer *peer = load(path);
        if (!peer) {
            printf("peer %s: not measured (%s)\n", name,
                   access(path, R_OK) ? "not there when this was built" : dlerror());
            continue;
        }
        peer->describe(description, sizeof description);
        printf("peer %s: %s\n", peer->name, description);
        fprintf(json, "{\"peer\":\"%s\",\"version\":\"%s\"}\n", peer->name, description);
        peers[count++] = peer;
    }
    return count;
}
