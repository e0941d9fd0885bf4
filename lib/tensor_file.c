/* Detects the format of a file of tensors; writes new files atomically. */
#include "lib/tensor_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int by_name(const void *a, const void *b) {
    return strcmp(((const lib_indexed_name *)a)->name, ((const lib_indexed_name *)b)->name);
}

static uint32_t find(const lib_indexed_name *sorted, uint32_t count, const char *name) {
    const lib_indexed_name wanted = {.name = name};
    const lib_indexed_name *found = count ? bsearch(&wanted, sorted, count, sizeof *sorted, by_name) : NULL;
    return found ? found->index : UINT32_MAX;
}

uint32_t lib_tensor_file_find(const lib_tensor_file *file, const char *name) {
    return find(file->tensors_by_name, file->tensors.count, name);
}

uint32_t lib_tensor_file_find_note(const lib_tensor_file *file, const char *key) {
    return find(file->notes_by_key, file->notes.count, key);
}

static void sort_names(lib_arena *arena, lib_indexed_name *names, uint32_t count, const char *what) {
    if (count) qsort(names, count, sizeof *names, by_name);
    for (uint32_t i = 1; i < count; i++)
        if (strcmp(names[i - 1].name, names[i].name) == 0)
            lib_raise(arena->scope, DLC_PARSE_ERROR, "two %ss of the file are called \"%.200s\"", what, names[i].name);
}

static void list_names(lib_arena *arena, lib_tensor_file *file) {
    file->tensors_by_name = LIB_NEW_ARRAY(arena, lib_indexed_name, file->tensors.count);
    file->notes_by_key = LIB_NEW_ARRAY(arena, lib_indexed_name, file->notes.count);
    for (uint32_t i = 0; i < file->tensors.count; i++)
        file->tensors_by_name[i] = (lib_indexed_name){file->tensors.data[i].name, i};
    for (uint32_t i = 0; i < file->notes.count; i++)
        file->notes_by_key[i] = (lib_indexed_name){file->notes.data[i].key, i};
    sort_names(arena, file->tensors_by_name, file->tensors.count, "tensor");
    sort_names(arena, file->notes_by_key, file->notes.count, "note");
}

void lib_tensor_file_parse(lib_arena *arena, lib_tensor_file *file) {
    const unsigned char *start = file->image;
    if (file->size >= 6 && memcmp(start, "\x93NUMPY", 6) == 0)
        lib_npy_parse(arena, file);
    else if (file->size >= 4 && (memcmp(start, "PK\3\4", 4) == 0 || memcmp(start, "PK\5\6", 4) == 0))
        lib_npz_parse(arena, file);
    else if (file->size >= 10 && start[8] == '{')
        lib_safetensors_parse(arena, file);
    else
        lib_raise(arena->scope, DLC_PARSE_ERROR,
                  "no .safetensors, .npy or .npz file: its %zu bytes begin like none of them", file->size);
    list_names(arena, file);
}

/* ---- new files ------------------------------------------------------------------------------------------------------- */

void lib_file_append(lib_arena *arena, lib_new_file *file, const void *bytes, size_t size) {
    if (!lib_file_write(file->descriptor, bytes, size))
        lib_raise(arena->scope, DLC_NOT_FOUND, "cannot write %s: %s", file->temporary, strerror(errno));
    file->position += size;
}

bool lib_file_seek(lib_new_file *file, uint64_t position) {
    if (position > INT64_MAX || lseek(file->descriptor, (off_t)position, SEEK_SET) < 0) return false;
    file->position = position;
    return true;
}

/* Follows the path's symbolic links: file->path is then none, and need not exist. */
static void follow(lib_arena *arena, lib_new_file *file) {
    enum { LINKS = 40 };
    char target[PATH_MAX];
    ssize_t length;
    for (int links = 0; (length = readlink(file->path, target, sizeof target - 1)) >= 0; links++) {
        if (links == LINKS)
            lib_raise(arena->scope, DLC_NOT_FOUND, "cannot replace %s: %s", file->path, strerror(ELOOP));
        target[length] = 0;
        const char *end = *target == '/' ? NULL : strrchr(file->path, '/');
        file->path = lib_arena_format(arena, "%.*s%s", end ? (int)(end + 1 - file->path) : 0, file->path, target);
    }
}

/* Inspects the path: a file that is not regular is refused. Returns the mode of the new file; 0: that of new files. */
static mode_t look(lib_arena *arena, lib_new_file *file) {
    struct stat about;
    const bool exists = stat(file->path, &about) == 0;
    if (exists && !S_ISREG(about.st_mode))
        lib_raise(arena->scope, DLC_NOT_FOUND, "cannot replace %s: it is no regular file", file->path);
    follow(arena, file);
    return exists ? about.st_mode & 07777 : 0;
}

static void create(lib_arena *arena, lib_new_file *file) {
    for (int attempt = 0; attempt < 100; attempt++) {
        file->temporary = lib_arena_format(arena, "%s.%ld-%d.part", file->path, (long)getpid(), attempt);
        file->descriptor = lib_file_create(file->temporary, 0666);
        if (file->descriptor >= 0) return;
        if (errno != EEXIST) break;
    }
    lib_raise(arena->scope, DLC_NOT_FOUND, "cannot create %s: %s", file->temporary, strerror(errno));
}

void lib_file_write_whole(lib_arena *arena, const char *path,
                          void (*write_contents)(lib_arena *, lib_new_file *, void *), void *argument) {
    lib_new_file file = {.path = path};
    const mode_t mode = look(arena, &file);
    create(arena, &file);
    lib_scope *outer = arena->scope;
    lib_scope scope; /* the file must be closed before the caller's scope is left */
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) write_contents(arena, &file, argument);
    arena->scope = outer;
    if (scope.error.status == DLC_OK && mode && fchmod(file.descriptor, mode) != 0)
        lib_fail(&scope.error, DLC_NOT_FOUND, "cannot give %s the permissions of %s: %s", file.temporary, file.path,
                 strerror(errno));
    /* Synchronise to disk before it replaces the old file. */
    if (scope.error.status == DLC_OK && fsync(file.descriptor) != 0 && errno != EINVAL)
        lib_fail(&scope.error, DLC_NOT_FOUND, "cannot write %s: %s", file.temporary, strerror(errno));
    if (close(file.descriptor) != 0 && scope.error.status == DLC_OK)
        lib_fail(&scope.error, DLC_NOT_FOUND, "cannot write %s: %s", file.temporary, strerror(errno));
    if (scope.error.status == DLC_OK && rename(file.temporary, file.path) != 0)
        lib_fail(&scope.error, DLC_NOT_FOUND, "cannot replace %s: %s", file.path, strerror(errno));
    if (scope.error.status == DLC_OK) return;
    unlink(file.temporary);
    lib_raise_error(outer, &scope.error);
}
