/* The format .npz: a ZIP archive whose members are .npy files (numpy.savez). ZIP by minizip, over the image in memory. */
#include "lib/tensor_file.h"

#include <minizip/unzip.h>
#include <minizip/zip.h>
#include <stdlib.h>
#include <zlib.h>

/* ---- an image as minizip's stream ------------------------------------------------------------------------------------ */

typedef struct image_stream {
    const unsigned char *image;
    uint64_t size, position;
} image_stream;

static voidpf image_open(voidpf opaque, const void *name, int mode) {
    (void)name, (void)mode;
    return opaque;
}
static uLong image_read(voidpf opaque, voidpf stream, void *to, uLong size) {
    (void)stream;
    image_stream *s = opaque;
    if (size > s->size - s->position) size = (uLong)(s->size - s->position);
    if (size) memcpy(to, s->image + s->position, size);
    s->position += size;
    return size;
}
static uLong no_write(voidpf opaque, voidpf stream, const void *from, uLong size) {
    (void)opaque, (void)stream, (void)from, (void)size;
    return 0;
}
static ZPOS64_T image_tell(voidpf opaque, voidpf stream) {
    (void)stream;
    return ((image_stream *)opaque)->position;
}
static long image_seek(voidpf opaque, voidpf stream, ZPOS64_T offset, int origin) {
    (void)stream;
    image_stream *s = opaque;
    uint64_t base = origin == ZLIB_FILEFUNC_SEEK_CUR ? s->position : origin == ZLIB_FILEFUNC_SEEK_END ? s->size : 0;
    if (offset > s->size - base) return -1;
    s->position = base + offset;
    return 0;
}
static int nothing(voidpf opaque, voidpf stream) {
    (void)opaque, (void)stream;
    return 0;
}

static unzFile open_archive(image_stream *stream, const lib_tensor_file *file) {
    *stream = (image_stream){.image = file->image, .size = file->size};
    zlib_filefunc64_def functions = {image_open, image_read, no_write, image_tell,
                                     image_seek, nothing,    nothing,  stream};
    return unzOpen2_64("", &functions);
}

/* ---- the directory --------------------------------------------------------------------------------------------------- */

enum {
    method_stored = 0,
    method_deflated = 8,
    name_limit = 4096,
    deflate_most = 1032 /* bytes out of one: zlib's documentation */
};

/* How many bytes of the open member could be read into `to`. */
static size_t read_member(unzFile archive, unsigned char *to, size_t size) {
    size_t done = 0;
    while (done < size) {
        unsigned part = size - done > 1u << 30 ? 1u << 30 : (unsigned)(size - done);
        int got = unzReadCurrentFile(archive, to + done, part);
        if (got <= 0) break;
        done += (size_t)got;
    }
    return done;
}

/* What the directory claims is bounded by the bytes that there are, before anything is made of that size. */
static void check_sizes(lib_arena *arena, const lib_tensor_file *file, const unz_file_info64 *info, uint64_t place) {
    if (place > file->size || info->compressed_size > file->size - place ||
        (info->compression_method == method_stored && info->compressed_size != info->uncompressed_size))
        lib_raise(arena->scope, DLC_PARSE_ERROR, "it does not lie within the archive");
    if (info->compression_method == method_deflated && info->uncompressed_size / deflate_most > info->compressed_size)
        lib_raise(arena->scope, DLC_PARSE_ERROR, "%llu bytes cannot have been packed into %llu",
                  (unsigned long long)info->uncompressed_size, (unsigned long long)info->compressed_size);
}

typedef struct extent { /* of a member's bytes in the image */
    uint64_t begin, end, member;
} extent;

typedef struct directory_walk { /* outlives a raise */
    unzFile archive;
    uint64_t member;
    lib_arena scratch;       /* of the member at hand */
    lib_vec(extent) extents; /* in the file's arena */
} directory_walk;

/* Members that share bytes make a small file unpack to as much as one likes (Fifield, "A better zip bomb", 2019): they are found
 * before anything is unpacked, so that all that is unpacked later is in proportion to the file. */
static void note_extent(lib_arena *arena, const lib_tensor_file *file, directory_walk *walk) {
    unz_file_info64 info;
    int method, level;
    if (unzGetCurrentFileInfo64(walk->archive, &info, NULL, 0, NULL, 0, NULL, 0) != UNZ_OK ||
        unzOpenCurrentFile2(walk->archive, &method, &level, 1) != UNZ_OK)
        return; /* read_entry says so */
    const uint64_t place = unzGetCurrentFileZStreamPos64(walk->archive);
    unzCloseCurrentFile(walk->archive);
    if (place > file->size || info.compressed_size > file->size - place) return;
    lib_vec_push(arena, &walk->extents, ((extent){place, place + info.compressed_size, walk->member}));
}

static int by_begin(const void *a, const void *b) {
    const extent *x = a, *y = b;
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin) : (x->end > y->end) - (x->end < y->end);
}

static void check_extents(lib_arena *arena, directory_walk *walk) {
    if (walk->extents.count) qsort(walk->extents.data, walk->extents.count, sizeof(extent), by_begin);
    for (uint32_t i = 1; i < walk->extents.count; i++) {
        const extent *a = &walk->extents.data[i - 1], *b = &walk->extents.data[i];
        if (a->end <= b->begin) continue;
        walk->member = b->member;
        lib_raise(arena->scope, DLC_PARSE_ERROR, "it shares bytes of the archive with member %llu",
                  (unsigned long long)a->member);
    }
}

/* The open member's header; the place of its data if that lies in the image as it is. */
static void read_header(lib_arena *arena, lib_tensor_file *file, directory_walk *walk, const unz_file_info64 *info,
                        lib_stored *stored) {
    unsigned char start[12];
    unzFile archive = walk->archive;
    uint64_t place = unzGetCurrentFileZStreamPos64(archive); /* before anything of it is read */
    check_sizes(arena, file, info, place);
    size_t wanted, got = read_member(archive, start, sizeof start);
    size_t size = lib_npy_header_size(arena, start, got, &wanted);
    if (!size || size > info->uncompressed_size || size < got)
        lib_raise(arena->scope, DLC_PARSE_ERROR, "it ends within its .npy header");
    if (size > LIB_NPY_HEADER_MAX)
        lib_raise(arena->scope, DLC_PARSE_ERROR, "its .npy header has %zu bytes, at most %d are read", size,
                  LIB_NPY_HEADER_MAX);
    lib_arena_reset(&walk->scratch);
    unsigned char *header = lib_arena_take(&walk->scratch, size);
    memcpy(header, start, got);
    if (read_member(archive, header + got, size - got) != size - got)
        lib_raise(arena->scope, DLC_PARSE_ERROR, "its .npy header cannot be unpacked");
    lib_npy_header(&walk->scratch, header, size, stored);
    stored->header = size;
    stored->fault = lib_arena_string(arena, stored->fault);
    if (stored->fault) return;
    if (stored->size != info->uncompressed_size - size)
        lib_raise(arena->scope, DLC_PARSE_ERROR, "its shape needs %zu bytes of data, there are %llu", stored->size,
                  (unsigned long long)(info->uncompressed_size - size));
    if (info->compression_method == method_stored) stored->bytes = file->image + place + size;
}

static void read_entry(lib_arena *arena, lib_tensor_file *file, directory_walk *walk) {
    unzFile archive = walk->archive;
    unz_file_info64 info;
    unz64_file_pos place;
    char name[name_limit];
    if (unzGetCurrentFileInfo64(archive, &info, name, sizeof name, NULL, 0, NULL, 0) != UNZ_OK ||
        unzGetFilePos64(archive, &place) != UNZ_OK || info.size_filename >= name_limit)
        lib_raise(arena->scope, DLC_PARSE_ERROR, "its entry in the directory is malformed");
    size_t length = strlen(name);
    if (length < 4 || strcmp(name + length - 4, ".npy") != 0)
        return; /* NumPy gives the bytes of such members: no tensor */
    lib_stored stored = {
        .name = lib_arena_format(arena, "%.*s", (int)(length - 4), name),
        .packed = {true, place.pos_in_zip_directory, place.num_of_file, info.uncompressed_size, (uint32_t)info.crc}};
    if (info.flag & 1)
        stored.fault = "it is encrypted";
    else if (info.compression_method != method_stored && info.compression_method != method_deflated)
        stored.fault = lib_arena_format(arena, "it is packed by method %lu, expected stored or deflated",
                                        (unsigned long)info.compression_method);
    else if (unzOpenCurrentFile(archive) != UNZ_OK)
        lib_raise(arena->scope, DLC_PARSE_ERROR, "its header and its entry in the directory do not agree");
    else
        read_header(arena, file, walk, &info, &stored);
    lib_vec_push(arena, &file->tensors, stored);
}

static void visit_members(lib_arena *arena, lib_tensor_file *file, directory_walk *walk, bool read) {
    walk->member = 0;
    for (int more = unzGoToFirstFile(walk->archive); more != UNZ_END_OF_LIST_OF_FILE;
         more = unzGoToNextFile(walk->archive), walk->member++) {
        if (more != UNZ_OK) lib_raise(arena->scope, DLC_PARSE_ERROR, "its entry in the directory is malformed");
        lib_arena_ask(arena);
        if (read)
            read_entry(arena, file, walk);
        else
            note_extent(arena, file, walk);
        unzCloseCurrentFile(walk->archive); /* not read to its end: no checksum is compared yet */
    }
}

static void read_directory(lib_arena *arena, lib_tensor_file *file, directory_walk *walk) {
    visit_members(arena, file, walk, false);
    check_extents(arena, walk);
    visit_members(arena, file, walk, true);
}

/* The end of a directory and nothing before it: minizip takes that for no archive. PKWARE APPNOTE 6.3, 4.3.16. */
static bool is_empty_archive(const lib_tensor_file *file) {
    enum { END = 22 };
    static const unsigned char expected[20] = {'P', 'K', 5,
                                               6}; /* no members, no bytes of them; a comment's length is left */
    return file->size >= END && memcmp(file->image, expected, sizeof expected) == 0 &&
           file->size == END + ((size_t)file->image[20] | (size_t)file->image[21] << 8);
}

void lib_npz_parse(lib_arena *arena, lib_tensor_file *file) {
    if (is_empty_archive(file)) return;
    image_stream stream;
    directory_walk walk = {.archive = open_archive(&stream, file)};
    if (!walk.archive) lib_raise(arena->scope, DLC_PARSE_ERROR, ".npz file: its ZIP directory is missing or malformed");
    lib_scope *outer = arena->scope;
    lib_scope scope; /* the archive must be closed before the caller's scope is left */
    arena->scope = &scope;
    lib_arena_init(&walk.scratch, arena->allocator, &scope);
    if (LIB_ENTER(&scope)) read_directory(arena, file, &walk);
    arena->scope = outer;
    lib_arena_free(&walk.scratch);
    unzClose(walk.archive);
    if (scope.error.status != DLC_OK)
        lib_raise(outer, scope.error.status, ".npz file, member %llu: %s", (unsigned long long)walk.member,
                  scope.error.message);
}

/* ---- data ------------------------------------------------------------------------------------------------------------ */

_Noreturn static void damaged(lib_arena *arena, const lib_stored *stored) {
    lib_raise(arena->scope, DLC_PARSE_ERROR, ".npz file: the data of \"%.200s\" is damaged: its checksum differs",
              stored->name);
}

static uint32_t checksum(uint32_t crc, const unsigned char *bytes, size_t size) {
    for (; size;) {
        uInt part = size > 1u << 30 ? 1u << 30 : (uInt)size;
        crc = (uint32_t)crc32(crc, bytes, part);
        bytes += part, size -= part;
    }
    return crc;
}

void lib_npz_check(lib_arena *arena, const lib_tensor_file *file, const lib_stored *stored) {
    (void)file;
    if (checksum(0, stored->bytes - stored->header, stored->header + stored->size) != stored->packed.crc)
        damaged(arena, stored);
}

void lib_npz_unpack(lib_arena *arena, const lib_tensor_file *file, const lib_stored *stored, unsigned char *to) {
    image_stream stream;
    unsigned char *header = lib_arena_take(arena, stored->header);
    unz64_file_pos place = {stored->packed.directory_offset, stored->packed.number};
    unzFile archive = open_archive(&stream, file);
    bool good = archive && unzGoToFilePos64(archive, &place) == UNZ_OK && unzOpenCurrentFile(archive) == UNZ_OK;
    good = good && read_member(archive, header, stored->header) == stored->header;
    good = good && read_member(archive, to, stored->size) == stored->size;
    if (archive) {
        unzCloseCurrentFile(archive);
        unzClose(archive);
    }
    if (!good || checksum(checksum(0, header, stored->header), to, stored->size) != stored->packed.crc)
        damaged(arena, stored);
}

/* ---- writing --------------------------------------------------------------------------------------------------------- */

typedef struct new_archive {
    lib_arena *arena;
    lib_new_file *file;
    lib_error error; /* of the first write that failed: a raise must not cross minizip */
    zipFile zip;
} new_archive;

static voidpf new_open(voidpf opaque, const void *name, int mode) {
    (void)name, (void)mode;
    return opaque;
}
static uLong new_write(voidpf opaque, voidpf stream, const void *from, uLong size) {
    (void)stream;
    new_archive *archive = opaque;
    if (archive->error.status != DLC_OK) return 0;
    lib_scope *outer = archive->arena->scope;
    lib_scope scope;
    archive->arena->scope = &scope;
    if (LIB_ENTER(&scope)) lib_file_append(archive->arena, archive->file, from, size);
    archive->arena->scope = outer;
    archive->error = scope.error;
    return scope.error.status == DLC_OK ? size : 0;
}
static ZPOS64_T new_tell(voidpf opaque, voidpf stream) {
    (void)stream;
    return ((new_archive *)opaque)->file->position;
}
static uLong new_read(voidpf opaque, voidpf stream, void *to, uLong size) {
    (void)opaque, (void)stream, (void)to, (void)size;
    return 0;
}
static long new_seek(voidpf opaque, voidpf stream, ZPOS64_T offset, int origin) {
    (void)stream;
    new_archive *archive = opaque;
    uint64_t base = origin == ZLIB_FILEFUNC_SEEK_SET ? 0 : archive->file->position;
    return lib_file_seek(archive->file, base + offset) ? 0 : -1;
}

static bool write_bytes(zipFile zip, const char *bytes, size_t size) {
    while (size) {
        unsigned part = size > 1u << 30 ? 1u << 30 : (unsigned)size;
        if (zipWriteInFileInZip(zip, bytes, part) != ZIP_OK) return false;
        bytes += part, size -= part;
    }
    return true;
}

/* A field of the local header that does nothing but fill it up, so that the member's data begins at a multiple of 64 bytes and
 * can be used where it lies. Source: Android's zipalign. */
static unsigned fill_up(char extra[128], uint64_t position, size_t name, bool zip64) {
    uint64_t start = position + 30 + name + (zip64 ? 20 : 0) + 4;
    unsigned fill = (unsigned)(-start & 63);
    memset(extra, 0, 128);
    extra[0] = 0x35, extra[1] = (char)0xd9;
    extra[2] = (char)fill;
    return 4 + fill;
}

enum { flag_utf8 = 1 << 11 };

/* ASCII needs no flag, as NumPy has it. */
static uLong name_flag(lib_arena *arena, const char *name) {
    uLong flag = 0;
    for (size_t size = strlen(name), i = 0, length; i < size; i += length) {
        length = lib_utf8_length((const unsigned char *)name + i, size - i);
        if (!length) lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "the name \"%.200s\" is not UTF-8", name);
        if (length > 1) flag = flag_utf8;
    }
    return flag;
}

static bool write_member(new_archive *archive, const char *name, const DLTensor *tensor, bool compress) {
    size_t size, bytes = lib_tensor_bytes(tensor);
    const char *header = lib_npy_header_print(archive->arena, tensor, &size);
    bool zip64 = bytes > 0xf0000000u;
    char extra[128];
    unsigned filled = compress ? 0 : fill_up(extra, archive->file->position, strlen(name), zip64);
    zip_fileinfo info = {.dosDate = 0x00210000}; /* 1980-01-01: equal tensors give equal files */
    int opened = zipOpenNewFileInZip4_64(archive->zip, name, &info, compress ? NULL : extra, filled, NULL, 0, NULL,
                                         compress ? Z_DEFLATED : 0, Z_DEFAULT_COMPRESSION, 0, -MAX_WBITS, DEF_MEM_LEVEL,
                                         Z_DEFAULT_STRATEGY, NULL, 0, 0, name_flag(archive->arena, name), zip64);
    return opened == ZIP_OK && write_bytes(archive->zip, header, size) &&
           write_bytes(archive->zip, (const char *)tensor->data + tensor->byte_offset, bytes) &&
           zipCloseFileInZip(archive->zip) == ZIP_OK;
}

static void write_members(new_archive *archive, const lib_named_tensors *all) {
    lib_arena *arena = archive->arena;
    if (all->count >= 0xffff) /* minizip writes no larger count */
        lib_raise(arena->scope, DLC_UNSUPPORTED, "%d tensors, an .npz file holds at most %d: write .safetensors",
                  all->count, 0xffff - 1);
    for (int i = 0; i < all->count; i++) {
        if (strlen(all->names[i]) + 4 >= name_limit)
            lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "tensor %d: its name has %zu bytes, at most %d are possible",
                      i, strlen(all->names[i]), name_limit - 5);
        const char *name = lib_arena_format(arena, "%s.npy", all->names[i]);
        if (write_member(archive, name, all->tensors[i], all->compress)) continue;
        if (archive->error.status != DLC_OK) lib_raise_error(arena->scope, &archive->error);
        lib_raise(arena->scope, DLC_OUT_OF_MEMORY, "tensor \"%.200s\" could not be packed", all->names[i]);
    }
}

void lib_npz_write(lib_arena *arena, lib_new_file *file, const lib_named_tensors *all) {
    new_archive archive = {.arena = arena, .file = file};
    zlib_filefunc64_def functions = {new_open, new_read, new_write, new_tell, new_seek, nothing, nothing, &archive};
    archive.zip = zipOpen2_64("", APPEND_STATUS_CREATE, NULL, &functions);
    if (!archive.zip) lib_raise(arena->scope, DLC_OUT_OF_MEMORY, "a ZIP archive could not be begun");
    lib_scope *outer = arena->scope;
    lib_scope scope; /* the archive must be closed before the caller's scope is left */
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) write_members(&archive, all);
    arena->scope = outer;
    int closed = zipClose(archive.zip, NULL);
    if (scope.error.status != DLC_OK) lib_raise_error(outer, &scope.error);
    if (archive.error.status != DLC_OK) lib_raise_error(outer, &archive.error);
    if (closed != ZIP_OK) lib_raise(outer, DLC_OUT_OF_MEMORY, "the directory of the ZIP archive could not be written");
}
