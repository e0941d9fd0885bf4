/* The kernel cache on disk: a folder, named by the host and shared by any number of processes, with one file for each kernel and
 * one small file for each fusion decision.
 *
 * A file is named by the hash of everything that the code depends on: the kernel's key, the target's code generator, this build
 * of the library. It holds that key again, in full, the kernel's description and its object, and a checksum over all of it; a
 * decision's file holds the question in place of the key, and the answer. A file that differs in any way - another key, a wrong
 * length, flipped bits, not a regular file, another owner - is treated as missing.
 *
 * Files are written under a temporary name and renamed, so that no process sees an incomplete one. Nothing is synced to disk: a
 * file torn by a crash of the machine has a wrong checksum, and the kernel is built again. There are no locks. Each writer keeps
 * the folder within its byte limit by deleting the least recently used files; it does not matter if other processes delete the
 * same files, or all of them. Files are read into memory, not mapped, since another process may truncate them at any time. */
#include "jit/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FOLDER_BYTES = 4000, NAME_BYTES = 64, FILE_MAX = 1 << 28, TOUCH_SECONDS = 600, STALE_SECONDS = 600 };
enum { BLOCK_BYTES = 4096 }; /* of usual file systems: disk space of the smallest file */
#define SUFFIX ".dlck"
#define SUFFIX_DECISION ".dlcd"

static size_t object_place(const jit_disk_header *header) {
    return (sizeof *header + (size_t)header->description_size + 63) / 64 * 64;
}

bool jit_disk_is_on(const dlc_context *context) {
    return context->disk.folder != NULL && context->target->code_identity != NULL;
}

/* ---- names and keys */

/* Hash of what a kernel's code depends on in addition to its key. Not cached: environment variables may change between two builds. */
static lib_hash128 code_of(const dlc_context *context) {
    const char *disabled = lib_environment_get(LIB_ENV_DISABLE);
    lib_hash128 hash = context->target->code_identity(context->device);
    hash = lib_hash_bytes(lib_build_id, strlen(lib_build_id), hash);
    return lib_hash_bytes(disabled, strlen(disabled), hash);
}

static void file_name(char *name, lib_hash128 code, const void *key, size_t size, const char *suffix) {
    lib_hash128 hash = lib_hash_bytes(key, size, code);
    snprintf(name, NAME_BYTES, "%016llx%016llx%s", (unsigned long long)hash.high, (unsigned long long)hash.low, suffix);
}

static size_t bytes_on_disk(size_t size) {
    return (size + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

lib_hash128 jit_disk_checksum(const char *bytes, size_t size) {
    jit_disk_header header;
    memcpy(&header, bytes, sizeof header);
    memset(&header.checksum, 0, sizeof header.checksum);
    lib_hash128 hash = lib_hash_bytes(&header, sizeof header, (lib_hash128){(uint64_t)size, JIT_DISK_MAGIC});
    return lib_hash_bytes(bytes + sizeof header, size - sizeof header, hash);
}

/* ---- errors: a problem with the folder is logged once */

static void report(dlc_context *context, const char *what, const char *path) {
    int number = errno;
    atomic_fetch_add_explicit(&context->disk.errors, 1, memory_order_relaxed);
    if (atomic_exchange(&context->disk.reported, true)) return;
    lib_log_write(&context->log, "dlc: kernels are not kept on disk: cannot %s %s: %s", what, path, strerror(number));
}

/* ---- opening: `folder/name` in `path` */

static bool join(const dlc_context *context, char *path, size_t size, const char *name) {
    int length = snprintf(path, size, "%s/%s", context->disk.folder, name);
    return length > 0 && (size_t)length < size;
}

dlc_status jit_disk_open(dlc_context *context, const char *folder, size_t bytes, lib_error *error) {
    char path[4096] = "";
    context->disk.budget = bytes ? bytes : (size_t)256 << 20;
    context->disk.written = SIZE_MAX; /* forces a scan of the folder before the first write */
    lib_mutex_init(&context->disk.mutex);
    if (!folder || !folder[0]) return DLC_OK;
    /* Make the path absolute: the host may change its working directory while the context lives. */
    if (folder[0] != '/' && !getcwd(path, sizeof path - 1)) path[0] = 0;
    const size_t size = strlen(path) + (path[0] != 0) + strlen(folder) + 1;
    if (size > FOLDER_BYTES + 1)
        return lib_fail(error, DLC_INVALID_ARGUMENT, "dlc_context_create: cache_directory is longer than %d bytes",
                        FOLDER_BYTES);
    context->disk.folder = lib_allocate(&context->allocator, size, 1);
    if (!context->disk.folder) return lib_fail(error, DLC_OUT_OF_MEMORY, "dlc_context_create: out of memory: a path");
    context->disk.folder_size = size;
    char *end = context->disk.folder;
    if (path[0]) {
        memcpy(end, path, strlen(path));
        end += strlen(path);
        *end++ = '/';
    }
    memcpy(end, folder, strlen(folder) + 1);
    return DLC_OK;
}

void jit_disk_close(dlc_context *context) {
    if (context->disk.folder) lib_release(&context->allocator, context->disk.folder, context->disk.folder_size, 1);
    context->disk.folder = NULL;
    lib_mutex_destroy(&context->disk.mutex);
}

/* ---- reading */

/* Opens a regular file of at least `least` bytes that only this user or root could have written; sets its size. */
static int open_file(const char *path, size_t least, size_t *size) {
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat status;
    if (file < 0) return -1;
    uid_t user = geteuid();
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || (status.st_uid != user && status.st_uid != 0) ||
        (status.st_mode & (S_IWGRP | S_IWOTH)) || status.st_size < (off_t)least || status.st_size > FILE_MAX) {
        close(file);
        errno = 0;
        return -1;
    }
    if (time(NULL) - status.st_mtime > TOUCH_SECONDS) futimens(file, NULL); /* mark as used, for eviction */
    *size = (size_t)status.st_size;
    return file;
}

static bool read_all(int file, char *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t count = read(file, bytes + done, size - done);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;
        done += (size_t)count;
    }
    return true;
}

bool jit_disk_parse(const char *bytes, size_t size, lib_hash128 code, const jit_key *key, jit_stored *stored) {
    jit_disk_header header;
    memcpy(&header, bytes, sizeof header);
    if (header.magic != JIT_DISK_MAGIC || memcmp(&header.code, &code, sizeof code) != 0 ||
        memcmp(&header.key, key, sizeof *key) != 0 || header.description_size > size || header.object_size > size ||
        object_place(&header) + header.object_size != size)
        return false;
    lib_hash128 sum = jit_disk_checksum(bytes, size);
    if (memcmp(&sum, &header.checksum, sizeof sum) != 0) return false;
    *stored = (jit_stored){.description = bytes + sizeof header,
                           .description_size = (size_t)header.description_size,
                           .object = bytes + object_place(&header),
                           .object_size = (size_t)header.object_size};
    return true;
}

static bool read_kernel(const jit_build *build, const jit_request *request, const jit_stored *stored) {
    jit_kernel *kernel = request->kernel;
    if (LIB_ENTER(&kernel->scope)) jit_read_description(kernel, stored->description, stored->description_size);
    return kernel->scope.error.status == DLC_OK && kernel->inputs == (int)request->region->input_count &&
           kernel->outputs == (int)request->region->output_count &&
           kernel->param_count <= (int)build->bound->symbols.count;
}

static bool load_entry(jit_build *build, jit_request *request, const jit_stored *stored) {
    dlc_context *context = build->program->context;
    const target *to = context->target;
    const target_object object = {.bytes = stored->object, .size = stored->object_size};
    jit_kernel *kernel = request->kernel;
    target_module *module;
    lib_error ignored;
    if (!read_kernel(build, request, stored) ||
        to->load(context->device, &object, 1, &kernel->name, &module, &ignored) != DLC_OK)
        return false;
    bool fits = to->phases(module, 0) == kernel->phase_count;
    for (int p = 0; p < kernel->phase_count && fits; p++) kernel->phases[p].function = to->phase(module, 0, p);
    kernel->host = NULL;
    if (fits && jit_cache_publish(context, &kernel, 1, module, to->module_bytes(module), &ignored) == DLC_OK)
        return true;
    to->unload(context->device, module);
    return false;
}

bool jit_disk_find(jit_build *build, jit_request *request) {
    dlc_context *context = build->program->context;
    const jit_key key = request->kernel->key;
    lib_hash128 code = code_of(context);
    char name[NAME_BYTES], path[4096];
    size_t size;
    jit_stored stored;
    bool found = false;
    uint64_t start = context->clock_ns(context->clock_user);
    file_name(name, code, &key, sizeof key, SUFFIX);
    int file = join(context, path, sizeof path, name) ? open_file(path, sizeof(jit_disk_header), &size) : -1;
    if (file >= 0) {
        char *bytes = lib_allocate(&context->allocator, size, 64);
        found = bytes && read_all(file, bytes, size) && jit_disk_parse(bytes, size, code, &key, &stored) &&
                load_entry(build, request, &stored);
        lib_release(&context->allocator, bytes, size, 64);
        close(file);
    }
    if (found)
        atomic_fetch_add_explicit(&context->disk.read_bytes, size, memory_order_relaxed);
    else
        lib_arena_free(&request->kernel->arena); /* drop the partly read description */
    atomic_fetch_add_explicit(&context->disk.read_ns, context->clock_ns(context->clock_user) - start,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(found ? &context->disk.hits : &context->disk.misses, 1, memory_order_relaxed);
    return found;
}

/* ---- decisions of fusion */

static jit_disk_decision decision_of(const dlc_context *context, const lib_hash128 *question, uint32_t undone) {
    jit_disk_decision decision;
    memset(&decision, 0, sizeof decision);
    decision.magic = JIT_DISK_DECISION;
    decision.code = code_of(context);
    decision.question = *question;
    decision.undone = undone;
    decision.checksum = lib_hash_bytes(&decision, sizeof decision, (lib_hash128){sizeof decision, JIT_DISK_MAGIC});
    return decision;
}

bool jit_disk_recall(dlc_context *context, const lib_hash128 *question, uint32_t *undone) {
    char name[NAME_BYTES], path[4096];
    size_t size = 0;
    jit_disk_decision found;
    bool good = false;
    uint64_t start = context->clock_ns(context->clock_user);
    file_name(name, code_of(context), question, sizeof *question, SUFFIX_DECISION);
    int file = join(context, path, sizeof path, name) ? open_file(path, sizeof found, &size) : -1;
    if (file >= 0) {
        good = size == sizeof found && read_all(file, (char *)&found, size) && found.undone <= UINT32_MAX;
        close(file);
    }
    if (good) { /* valid only if it equals, byte for byte, the file that this process would write */
        const jit_disk_decision same = decision_of(context, question, (uint32_t)found.undone);
        good = memcmp(&same, &found, sizeof same) == 0;
    }
    if (good) {
        *undone = (uint32_t)found.undone;
        atomic_fetch_add_explicit(&context->disk.decisions, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&context->disk.read_bytes, size, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&context->disk.read_ns, context->clock_ns(context->clock_user) - start,
                              memory_order_relaxed);
    return good;
}

/* ---- keeping the folder small */

typedef struct found_file {
    char name[NAME_BYTES];
    /* nanoseconds */
    int64_t used;
    size_t size;
} found_file;

static int by_use(const void *a, const void *b) {
    const found_file *x = a, *y = b;
    return x->used < y->used ? -1 : x->used > y->used;
}

static bool ends_with(const char *name, const char *end) {
    size_t length = strlen(name), tail = strlen(end);
    return length > tail && strcmp(name + length - tail, end) == 0;
}

static bool is_name_of_ours(const char *name) {
    return strlen(name) == 32 + strlen(SUFFIX) && (ends_with(name, SUFFIX) || ends_with(name, SUFFIX_DECISION));
}

/* Lists the cache's files in the folder and returns their disk space. Deletes temporary files that dead processes left. */
static size_t list_files(lib_arena *arena, int folder, DIR *stream, found_file **files, size_t *count) {
    lib_vec(found_file) list = {0};
    size_t total = 0;
    time_t now = time(NULL);
    for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        struct stat status;
        found_file file = {0};
        bool temporary = strncmp(entry->d_name, "new-", 4) == 0 && ends_with(entry->d_name, SUFFIX);
        if ((!temporary && !is_name_of_ours(entry->d_name)) ||
            fstatat(folder, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode))
            continue;
        if (temporary && now - status.st_mtime > STALE_SECONDS) unlinkat(folder, entry->d_name, 0);
        if (temporary) continue;
        memcpy(file.name, entry->d_name, strlen(entry->d_name) + 1); /* length checked above */
        file.used = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec;
        file.size = bytes_on_disk((size_t)status.st_size);
        total += file.size;
        lib_vec_push(arena, &list, file);
    }
    *files = list.data;
    *count = list.count;
    return total;
}

/* If the budget is exceeded, deletes least recently used files until an eighth of it is free. Returns the space still in use. */
static size_t trim(dlc_context *context, lib_arena *arena, int folder, DIR *stream) {
    found_file *files;
    size_t count, total = list_files(arena, folder, stream, &files, &count);
    if (total <= context->disk.budget) return total;
    qsort(files, count, sizeof *files, by_use);
    for (size_t i = 0; i < count && total > context->disk.budget - context->disk.budget / 8; i++) {
        if (unlinkat(folder, files[i].name, 0) == 0 || errno == ENOENT) total -= files[i].size;
    }
    return total;
}

/* Other processes write, too, so this process rescans the folder after each sixteenth of the budget that it writes. The disk's
 * mutex is held. */
static void keep_small(dlc_context *context) {
    lib_scope scope;
    lib_arena arena;
    if (context->disk.written < context->disk.budget / 16) return;
    DIR *stream = opendir(context->disk.folder);
    if (!stream) return;
    lib_arena_init(&arena, &context->allocator, &scope);
    if (LIB_ENTER(&scope)) {
        size_t total = trim(context, &arena, dirfd(stream), stream);
        size_t room = total < context->disk.budget ? context->disk.budget - total : 0, step = context->disk.budget / 16;
        context->disk.written =
            room < step ? step - room : 0; /* so that the next scan happens when the free space is used up */
    }
    lib_arena_free(&arena);
    closedir(stream);
}

/* ---- writing */

lib_text jit_disk_entry(dlc_context *context, lib_arena *arena, const jit_kernel *kernel, const target_object *object) {
    static const char zeros[64];
    lib_text text;
    jit_disk_header header;
    memset(&header, 0, sizeof header);
    lib_text_init(&text, arena);
    lib_text_add_bytes(&text, (const char *)&header, sizeof header);
    jit_describe_stored(&text, kernel);
    header = (jit_disk_header){.magic = JIT_DISK_MAGIC,
                               .code = code_of(context),
                               .key = kernel->key,
                               .description_size = text.length - sizeof header,
                               .object_size = object->size};
    lib_text_add_bytes(&text, zeros, object_place(&header) - text.length);
    lib_text_add_bytes(&text, object->bytes, object->size);
    memcpy(text.data, &header, sizeof header);
    header.checksum = jit_disk_checksum(text.data, text.length);
    memcpy(text.data, &header, sizeof header);
    return text;
}

/* Creates a file and, if it is missing, the folder, whose parent must exist. -1: it could not. */
static int create_file(const dlc_context *context, const char *path) {
    int file = lib_file_create(path, 0600);
    if (file >= 0 || errno != ENOENT) return file;
    if (mkdir(context->disk.folder, 0700) != 0 && errno != EEXIST) return -1;
    return lib_file_create(path, 0600);
}

/* Writes to a temporary name, then renames: readers never see a part of a file. Whether it could. */
static bool write_file(dlc_context *context, const char *name, const void *bytes, size_t size) {
    static _Atomic uint64_t serial;
    char temporary[NAME_BYTES], path[4096], from[4096];
    snprintf(temporary, sizeof temporary, "new-%ld-%llu-%llx" SUFFIX, (long)getpid(),
             (unsigned long long)atomic_fetch_add(&serial, 1), (unsigned long long)lib_time_ns());
    if (!join(context, path, sizeof path, name) || !join(context, from, sizeof from, temporary)) return false;
    int file = create_file(context, from);
    if (file < 0) {
        report(context, "write", from);
        return false;
    }
    bool good = lib_file_write(file, bytes, size);
    if (close(file) != 0) good = false;
    if (!good || rename(from, path) != 0) {
        report(context, good ? "rename" : "write", from);
        unlink(from);
        return false;
    }
    atomic_fetch_add_explicit(&context->disk.written_bytes, size, memory_order_relaxed);
    lib_mutex_lock(&context->disk.mutex);
    if (context->disk.written != SIZE_MAX) context->disk.written += bytes_on_disk(size);
    keep_small(context);
    lib_mutex_unlock(&context->disk.mutex);
    return true;
}

void jit_disk_write(dlc_context *context, const jit_key *key, const lib_text *entry) {
    char name[NAME_BYTES];
    if (entry->length > context->disk.budget / 4 || entry->length > FILE_MAX) return;
    file_name(name, code_of(context), key, sizeof *key, SUFFIX);
    if (write_file(context, name, entry->data, entry->length))
        atomic_fetch_add_explicit(&context->disk.writes, 1, memory_order_relaxed);
}

void jit_disk_record(dlc_context *context, const lib_hash128 *question, uint32_t undone) {
    char name[NAME_BYTES];
    if (BLOCK_BYTES > context->disk.budget / 4) return;
    const jit_disk_decision decision = decision_of(context, question, undone);
    file_name(name, decision.code, question, sizeof *question, SUFFIX_DECISION);
    write_file(context, name, &decision, sizeof decision);
}
