/* Measurements in processes of their own: this program, started again with --child. */
#include "bench/models/suite.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_WORDS = 12 };

static bool become_child(int to, char *const *words) {
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0 || dup2(to, STDOUT_FILENO) < 0) return false;
    program[length] = 0;
    return execv(program, words) == 0;
}

bool suite_child_run(const char *const *words, char *text, size_t size) {
    char *all[MOST_WORDS + 3] = {(char *)"suite", (char *)"--child"};
    int pipes[2], status;
    for (int i = 0; i < MOST_WORDS && words[i]; i++) all[i + 2] = (char *)words[i];
    if (pipe(pipes) != 0) return false;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(!become_child(pipes[1], all));
    close(pipes[1]);
    FILE *from = fdopen(pipes[0], "r");
    const size_t length = from ? fread(text, 1, size - 1, from) : 0;
    text[length] = 0;
    if (from) fclose(from);
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int suite_child(int argc, char **argv) {
    if (argc > 0 && strcmp(argv[0], "first") == 0) return suite_first_child(argc - 1, argv + 1);
    return suite_measure_child(argc, argv);
}
