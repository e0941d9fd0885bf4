/* Finds the program of isolate_compiler. It runs as the host's user, so nothing that others control may choose it: not the current
 * folder, not argv[0], not PATH, not the path given to dlopen. The kernel reports the absolute path of the file that this code is mapped
 * from: the library, or the program that it is linked into. */
#include "targets/cpu/isolate.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOW "name it by compiler_path"

enum { LINE_MAX_BYTES = 4096 + 128 };

typedef struct line_reader {
    int file;
    /* bytes in the buffer, of which `at` are read */
    size_t size, at;
    char buffer[LINE_MAX_BYTES];
} line_reader;

static ssize_t read_some(int file, char *bytes, size_t size) {
    ssize_t count;
    do count = read(file, bytes, size);
    while (count < 0 && errno == EINTR);
    return count;
}

/* The next line without its end, NULL after the last one. A line longer than the buffer comes in parts. */
static char *next_line(line_reader *r) {
    for (;;) {
        char *start = r->buffer + r->at, *end = memchr(start, '\n', r->size - r->at);
        if (end) {
            *end = 0;
            r->at = (size_t)(end - r->buffer) + 1;
            return start;
        }
        memmove(r->buffer, start, r->size -= r->at);
        r->at = 0;
        if (r->size == sizeof r->buffer) r->size = 0;
        ssize_t count = read_some(r->file, r->buffer + r->size, sizeof r->buffer - r->size);
        if (count <= 0) return NULL;
        r->size += (size_t)count;
    }
}

/* Path and inode of the file that is mapped at `address`. Lines of /proc/self/maps: "from-to rwxp offset device inode   path". */
static bool find_mapping(line_reader *r, uintptr_t address, char *path, size_t size, uint64_t *inode) {
    for (char *line; (line = next_line(r)) != NULL;) {
        uintptr_t from, to;
        int at = 0;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %" SCNu64 " %n", &from, &to, inode, &at) != 3) continue;
        if (address < from || address >= to) continue;
        int length = snprintf(path, size, "%s", line + at);
        return at > 0 && line[at] == '/' && (size_t)length < size;
    }
    return false;
}

static dlc_status find_own_file(char *path, size_t size, lib_error *error) {
    dlc_status (*own)(const char *, char *, size_t, lib_error *) = cpu_find_helper;
    uint64_t inode;
    struct stat file;
    line_reader reader;
    reader.size = reader.at = 0;
    reader.file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (reader.file < 0)
        return lib_fail(
            error, DLC_NOT_FOUND,
            "isolate_compiler: /proc/self/maps, which tells where libdlc-compiler lies, does not open: %s; " HOW,
            strerror(errno));
    bool found = find_mapping(&reader, (uintptr_t)own, path, size, &inode);
    close(reader.file);
    if (!found)
        return lib_fail(error, DLC_NOT_FOUND,
                        "isolate_compiler: the library is of no file, so libdlc-compiler lies nowhere beside it; " HOW);
    /* The file may have been replaced or deleted, or be of another root. Devices are not compared: layered file systems report other ones
     * for mappings. */
    if (stat(path, &file) == 0 && (uint64_t)file.st_ino == inode) return DLC_OK;
    return lib_fail(error, DLC_NOT_FOUND,
                    "isolate_compiler: the library was loaded from %.200s, which is another file by now; " HOW, path);
}

dlc_status cpu_find_helper(const char *given, char *path, size_t size, lib_error *error) {
    static const char name[] = "libdlc-compiler";
    if (given && given[0]) {
        int length = snprintf(path, size, "%s", given);
        if (given[0] != '/')
            return lib_fail(error, DLC_INVALID_ARGUMENT,
                            "isolate_compiler: compiler_path is %.200s, expected an absolute path", given);
        if (length >= 0 && (size_t)length < size) return DLC_OK;
        return lib_fail(error, DLC_INVALID_ARGUMENT, "isolate_compiler: compiler_path has %d bytes, expected up to %zu",
                        length, size - 1);
    }
    LIB_TRY(find_own_file(path, size, error));
    char *folder_end = strrchr(path, '/') + 1;
    if ((size_t)(folder_end - path) + sizeof name > size)
        return lib_fail(error, DLC_NOT_FOUND, "isolate_compiler: the library's path is too long; " HOW);
    memcpy(folder_end, name, sizeof name);
    return DLC_OK;
}
