#include "jit/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Maps the file or reads it into the arena, and closes the descriptor. `path`: the file's name in messages. */
static void map_or_read(jit_mapped *file, lib_arena *arena, int descriptor, const char *path, bool read) {
    struct stat about = {0};
    void *mapping = MAP_FAILED;
    const bool is_regular = fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode);
    if (is_regular && !read && about.st_size > 0)
        mapping = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (mapping != MAP_FAILED) {
        close(descriptor);
        *file = (jit_mapped){mapping, (size_t)about.st_size, mapping};
        return;
    }
    if (!is_regular) {
        close(descriptor);
        lib_raise(arena->scope, DLC_NOT_FOUND, "cannot open %s: it is no regular file", path);
    }
    size_t size;
    const char *bytes = lib_file_read_open(arena, descriptor, path, &size);
    *file = (jit_mapped){(const unsigned char *)bytes, size, NULL};
}

void jit_mapped_open(jit_mapped *file, lib_arena *arena, const char *path, bool read) {
    struct stat about;
    /* Only regular files: a pipe may never get a writer, and a device may never end. */
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode))
        lib_raise(arena->scope, DLC_NOT_FOUND, "cannot be opened: it is no regular file");
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) lib_raise(arena->scope, DLC_NOT_FOUND, "cannot be opened: %s", strerror(errno));
    map_or_read(file, arena, descriptor, "the file", read);
}

void jit_mapped_open_beneath(jit_mapped *file, lib_arena *arena, const char *folder, const char *path, bool read) {
    const char *shown = lib_arena_format(arena, "%s/%s", folder, path);
    char *name = lib_arena_string(arena, path); /* nothing that may raise while a folder is open */
    int at = open(folder, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    for (char *end; at >= 0 && *name; name = end) {
        end = name + strcspn(name, "/");
        const bool last = *end == 0;
        if (!last) *end++ = 0;
        if (!*name || strcmp(name, ".") == 0) continue;
        const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
        const bool leaves = strcmp(name, "..") == 0;
        const int next = leaves ? -1 : openat(at, name, last ? flags : flags | O_DIRECTORY);
        const int reason = leaves ? EACCES : errno;
        close(at);
        at = next, errno = reason;
    }
    if (at < 0 && (errno == ELOOP || errno == ENOTDIR))
        lib_raise(arena->scope, DLC_NOT_FOUND, "cannot open %s: a symbolic link, or a file in place of a folder",
                  shown);
    if (at < 0) lib_raise(arena->scope, DLC_NOT_FOUND, "cannot open %s: %s", shown, strerror(errno));
    map_or_read(file, arena, at, shown, read);
}

void jit_mapped_let_go(const jit_mapped *file, const void *bytes, size_t size) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), image = (uintptr_t)file->mapping;
    const uintptr_t first = ((uintptr_t)bytes + page - 1) & ~(page - 1), end = ((uintptr_t)bytes + size) & ~(page - 1);
    if (image && first >= image && end <= image + file->size && first < end)
        madvise((char *)file->mapping + (first - image), end - first, MADV_DONTNEED); /* failure is harmless */
}

void jit_mapped_close(jit_mapped *file) {
    if (file->mapping) munmap(file->mapping, file->size);
    file->mapping = NULL;
}
