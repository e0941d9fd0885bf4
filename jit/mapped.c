#include "jit/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void jit_mapped_open(jit_mapped *file, lib_arena *arena, const char *path, bool read) {
    struct stat about;
    /* Only regular files: a pipe may never get a writer, and a device may never end. */
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode))
        lib_raise(arena->scope, DLC_NOT_FOUND, "cannot open %s: it is no regular file", path);
    int descriptor = read ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0 && !read) lib_raise(arena->scope, DLC_NOT_FOUND, "cannot open %s: %s", path, strerror(errno));
    if (descriptor >= 0) {
        bool is_file = fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0;
        void *mapping = MAP_FAILED;
        if (is_file) mapping = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
        close(descriptor);
        if (mapping != MAP_FAILED) {
            *file = (jit_mapped){mapping, (size_t)about.st_size, mapping};
            return;
        }
    }
    size_t size;
    const char *bytes = lib_file_read(arena, path, &size);
    *file = (jit_mapped){(const unsigned char *)bytes, size, NULL};
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
