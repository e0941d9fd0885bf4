/* The format .npz: a ZIP archive whose members are .npy files (numpy.savez). minizip reads the directory of the image in memory, zlib packs
 * and unpacks with the arena's memory: minizip's own packing and writing leaks or crashes when memory is refused. */
#include "lib/tensor_file.h"

#include <minizip/unzip.h>
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
    deflate_most = 1032 /* output bytes for one input byte: zlib's documentation */
};

static void check_memory(lib_arena *arena, bool refused) {
    if (refused) lib_raise(arena->scope, DLC_OUT_OF_MEMORY, "out of memory: unpacking");
}

/* zlib allocates from the arena; a raise must not cross zlib. */
static voidpf take_for_zlib(voidpf opaque, uInt count, uInt size) {
    lib_arena *arena = opaque;
    lib_scope scope, *outer = arena->scope;
    voidpf volatile got = NULL;
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) got = lib_arena_array(arena, count, size);
    arena->scope = outer;
    return got;
}
static void keep_for_zlib(voidpf opaque, voidpf pointer) {
    (void)opaque, (void)pointer;
}

/* in its arena; needs no closing */
typedef struct unpacker {
    lib_arena *arena;
    const unsigned char *from;
    /* input bytes left */
    size_t left;
    bool deflated;
    z_stream z;
} unpacker;

static void begin_unpacking(unpacker *u, lib_arena *arena, const lib_packed *packed) {
    *u = (unpacker){.arena = arena, .from = packed->bytes, .left = packed->size, .deflated = packed->deflated};
    u->z = (z_stream){.zalloc = take_for_zlib, .zfree = keep_for_zlib, .opaque = arena};
    check_memory(arena, u->deflated && inflateInit2(&u->z, -MAX_WBITS) != Z_OK);
}

static uInt part_of(size_t size) {
    return size > 1u << 30 ? 1u << 30 : (uInt)size;
}

/* Unpacks the next bytes of the member; returns how many there were. */
static size_t unpack(unpacker *u, unsigned char *to, size_t size) {
    size_t done = 0;
    if (!u->deflated) {
        done = size < u->left ? size : u->left;
        if (done) memcpy(to, u->from, done);
        u->from += done, u->left -= done;
        return done;
    }
    while (done < size) {
        const uInt in = part_of(u->left), out = part_of(size - done);
        u->z.next_in = (Bytef *)(uintptr_t)u->from, u->z.avail_in = in;
        u->z.next_out = to + done, u->z.avail_out = out;
        const int answer = inflate(&u->z, Z_SYNC_FLUSH);
        check_memory(u->arena, answer == Z_MEM_ERROR);
        u->from += in - u->z.avail_in, u->left -= in - u->z.avail_in;
        done += out - u->z.avail_out;
        if (answer != Z_OK) break; /* end of the member, or damage */
    }
    return done;
}

/* Bounds the sizes that the directory claims by the file's size, before anything of that size is allocated. */
static void check_sizes(lib_arena *arena, const lib_tensor_file *file, const unz_file_info64 *info, uint64_t place) {
    if (place > file->size || info->compressed_size > file->size - place ||
        (info->compression_method == method_stored && info->compressed_size != info->uncompressed_size))
        lib_raise(arena->scope, DLC_PARSE_ERROR, "it does not lie within the archive");
    if (info->compression_method == method_deflated && info->uncompressed_size / deflate_most > info->compressed_size)
        lib_raise(arena->scope, DLC_PARSE_ERROR, "%llu bytes cannot have been packed into %llu",
                  (unsigned long long)info->uncompressed_size, (unsigned long long)info->compressed_size);
}

/* of a member's bytes in the image */
typedef struct extent {
    uint64_t begin, end, member;
} extent;

/* outlives a raise */
typedef struct directory_walk {
    unzFile archive;
    uint64_t member;
    /* of the current member */
    lib_arena scratch;
    /* in the file's arena */
    lib_vec(extent) extents;
} directory_walk;

/* The start of the member's bytes in the image; minizip reads none of them. */
static uint64_t find_bytes(lib_arena *arena, unzFile archive) {
    int method, level;
    const int opened = unzOpenCurrentFile2(archive, &method, &level, 1);
    check_memory(arena, opened == UNZ_INTERNALERROR);
    if (opened != UNZ_OK) return UINT64_MAX;
    const uint64_t place = unzGetCurrentFileZStreamPos64(archive);
    unzCloseCurrentFile(archive);
    return place;
}

/* Records the extent of the current member's bytes in the image. check_extents refuses members that share bytes before anything is
 * unpacked: such a file could unpack to any size (Fifield, "A better zip bomb", 2019). */
static void note_extent(lib_arena *arena, const lib_tensor_file *file, directory_walk *walk) {
    unz_file_info64 info;
    if (unzGetCurrentFileInfo64(walk->archive, &info, NULL, 0, NULL, 0, NULL, 0) != UNZ_OK)
        return; /* read_entry reports it */
    const uint64_t place = find_bytes(arena, walk->archive);
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

/* Reads the member's header; finds the address of its data if these are stored uncompressed in the image. */
static void read_header(lib_arena *arena, directory_walk *walk, const unz_file_info64 *info, lib_stored *stored) {
    unsigned char start[12];
    unpacker member;
    lib_arena_reset(&walk->scratch);
    begin_unpacking(&member, &walk->scratch, &stored->packed);
    size_t wanted, got = unpack(&member, start, sizeof start), size = lib_npy_header_size(arena, start, got, &wanted);
    if (!size || size > info->uncompressed_size || size < got)
        lib_raise(arena->scope, DLC_PARSE_ERROR, "it ends within its .npy header");
    if (size > LIB_NPY_HEADER_MAX)
        lib_raise(arena->scope, DLC_PARSE_ERROR, "its .npy header has %zu bytes, at most %d are read", size,
                  LIB_NPY_HEADER_MAX);
    unsigned char *header = lib_arena_take(&walk->scratch, size);
    memcpy(header, start, got);
    if (unpack(&member, header + got, size - got) != size - got)
        lib_raise(arena->scope, DLC_PARSE_ERROR, "its .npy header cannot be unpacked");
    lib_npy_header(&walk->scratch, header, size, stored);
    stored->header = size;
    stored->fault = lib_arena_string(arena, stored->fault);
    if (stored->fault) return;
    if (stored->size != info->uncompressed_size - size)
        lib_raise(arena->scope, DLC_PARSE_ERROR, "its shape needs %zu bytes of data, there are %llu", stored->size,
                  (unsigned long long)(info->uncompressed_size - size));
    if (!stored->packed.deflated) stored->bytes = stored->packed.bytes + size;
}

static void read_entry(lib_arena *arena, lib_tensor_file *file, directory_walk *walk) {
    unzFile archive = walk->archive;
    unz_file_info64 info;
    char name[name_limit];
    if (unzGetCurrentFileInfo64(archive, &info, name, sizeof name, NULL, 0, NULL, 0) != UNZ_OK ||
        info.size_filename >= name_limit)
        lib_raise(arena->scope, DLC_PARSE_ERROR, "its entry in the directory is malformed");
    size_t length = strlen(name);
    if (length < 4 || strcmp(name + length - 4, ".npy") != 0)
        return; /* NumPy returns the bytes of such members: not a tensor */
    lib_stored stored = {.name = lib_arena_format(arena, "%.*s", (int)(length - 4), name)};
    stored.packed = (lib_packed){true, NULL, (size_t)info.compressed_size, info.compression_method == method_deflated,
                                 (uint32_t)info.crc};
    if (info.flag & 1)
        stored.fault = "it is encrypted";
    else if (info.compression_method != method_stored && info.compression_method != method_deflated)
        stored.fault = lib_arena_format(arena, "it is packed by method %lu, expected stored or deflated",
                                        (unsigned long)info.compression_method);
    else {
        const uint64_t place = find_bytes(arena, archive);
        if (place == UINT64_MAX)
            lib_raise(arena->scope, DLC_PARSE_ERROR, "its header and its entry in the directory do not agree");
        check_sizes(arena, file, &info, place);
        stored.packed.bytes = file->image + place;
        read_header(arena, walk, &info, &stored);
    }
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
    }
}

static void read_directory(lib_arena *arena, lib_tensor_file *file, directory_walk *walk) {
    visit_members(arena, file, walk, false);
    check_extents(arena, walk);
    visit_members(arena, file, walk, true);
}

enum { END_BYTES = 22, COMMENT_MAX = 0xffff };

static uint64_t field_at(const unsigned char *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << 8 * i;
    return value;
}

/* The last end-of-directory record of the image; NULL: none. PKWARE APPNOTE 6.3, 4.3.16. */
static const unsigned char *find_end(const lib_tensor_file *file) {
    static const unsigned char magic[4] = {'P', 'K', 5, 6};
    size_t least = file->size > END_BYTES + COMMENT_MAX ? file->size - END_BYTES - COMMENT_MAX : 0;
    for (size_t at = file->size < END_BYTES ? least : file->size - END_BYTES + 1; at-- > least;)
        if (memcmp(file->image + at, magic, sizeof magic) == 0) return file->image + at;
    return NULL;
}

/* Does the file consist of an end record only? minizip does not accept that as an archive. */
static bool is_empty_archive(const lib_tensor_file *file) {
    static const unsigned char expected[20] = {'P', 'K', 5, 6}; /* no members; the comment's length is not compared */
    return file->size >= END_BYTES && memcmp(file->image, expected, sizeof expected) == 0 &&
           file->size == END_BYTES + field_at(file->image + 20, 2);
}

/* minizip returns the same error for a missing directory and for refused memory. */
static bool has_directory(const lib_tensor_file *file) {
    const unsigned char *end = find_end(file);
    if (!end || end == file->image) return false;
    uint64_t disks = field_at(end + 4, 4), here = field_at(end + 8, 2), all = field_at(end + 10, 2);
    uint64_t size = field_at(end + 12, 4), place = field_at(end + 16, 4);
    return !disks && here == all && place + size <= (uint64_t)(end - file->image);
}

void lib_npz_parse(lib_arena *arena, lib_tensor_file *file) {
    if (is_empty_archive(file)) return;
    image_stream stream;
    directory_walk walk = {.archive = open_archive(&stream, file)};
    if (!walk.archive && has_directory(file))
        lib_raise(arena->scope, DLC_OUT_OF_MEMORY, ".npz file: out of memory: its ZIP directory");
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
        uInt part = part_of(size);
        crc = (uint32_t)crc32(crc, bytes, part);
        bytes += part, size -= part;
    }
    return crc;
}

void lib_npz_check(lib_arena *arena, const lib_stored *stored) {
    if (checksum(0, stored->bytes - stored->header, stored->header + stored->size) != stored->packed.crc)
        damaged(arena, stored);
}

void lib_npz_unpack(lib_arena *arena, const lib_stored *stored, unsigned char *to) {
    unpacker member;
    unsigned char *header = lib_arena_take(arena, stored->header);
    begin_unpacking(&member, arena, &stored->packed);
    bool good =
        unpack(&member, header, stored->header) == stored->header && unpack(&member, to, stored->size) == stored->size;
    if (!good || checksum(checksum(0, header, stored->header), to, stored->size) != stored->packed.crc)
        damaged(arena, stored);
}

/* ---- writing ---------------------------------------------------------------------------------------------------------
 * Without minizip, which assumes that allocations succeed. PKWARE APPNOTE 6.3, 4.3. */

enum {
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    ZIP64_LOCAL_BYTES = 20, /* two sizes after an extra field's head */
    FIELD_MAX = 128,        /* of everything after a name */
    FLAG_UTF8 = 1 << 11,
    DOS_DATE = 0x0021, /* 1980-01-01: equal tensors give equal files */
    PACKED_PART = 64 << 10
};
#define IN_ZIP64 UINT32_C(0xffffffff) /* in place of a size that is stored in an extra field */

typedef struct new_member {
    const char *name;
    /* offset of its local header */
    uint64_t place;
    uint64_t packed, unpacked;
    uint32_t crc;
    unsigned flags, method;
    /* its local header has room for 64-bit sizes */
    bool zip64;
} new_member;

typedef struct new_archive {
    lib_arena *arena;
    lib_new_file *file;
    lib_vec(new_member) members;
    z_stream packer;
    /* [PACKED_PART], packed output */
    unsigned char *part;
} new_archive;

/* little endian */
typedef struct fields {
    unsigned char *at;
} fields;

static void put(fields *f, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) *f->at++ = (unsigned char)(value >> 8 * i);
}

static uint32_t in_32_bits(uint64_t value, bool elsewhere) {
    return elsewhere || value >= IN_ZIP64 ? IN_ZIP64 : (uint32_t)value;
}

/* The fields common to local and central headers, from the version needed to the size of the name. */
static void put_common(fields *f, const new_member *m, bool zip64, bool elsewhere) {
    put(f, zip64 ? 45 : 20, 2);
    put(f, m->flags, 2);
    put(f, m->method, 2);
    put(f, 0, 2);
    put(f, DOS_DATE, 2);
    put(f, m->crc, 4);
    put(f, in_32_bits(m->packed, elsewhere), 4);
    put(f, in_32_bits(m->unpacked, elsewhere), 4);
    put(f, strlen(m->name), 2);
}

/* A member that is not packed gets a padding field in its header, so that its data begin at a multiple of 64
 * bytes and can be used in place. Source: Android's zipalign. */
static void write_local(new_archive *archive, const new_member *m) {
    const size_t name = strlen(m->name), zip64 = m->zip64 ? ZIP64_LOCAL_BYTES : 0;
    size_t fill = 0, filler = 0;
    if (m->method == method_stored) {
        fill = (size_t) - (m->place + LOCAL_BYTES + name + zip64 + 4) & 63;
        filler = 4 + fill;
    }
    unsigned char *bytes = lib_arena_take(archive->arena, LOCAL_BYTES + name + FIELD_MAX);
    fields f = {bytes};
    put(&f, 0x04034b50, 4);
    put_common(&f, m, m->zip64, m->zip64);
    put(&f, zip64 + filler, 2);
    memcpy(f.at, m->name, name);
    f.at += name;
    if (zip64) {
        put(&f, 1, 2);
        put(&f, 16, 2);
        put(&f, m->unpacked, 8);
        put(&f, m->packed, 8);
    }
    if (filler) {
        put(&f, 0xd935, 2);
        put(&f, fill, 2);
        f.at += fill;
    }
    lib_file_append(archive->arena, archive->file, bytes, (size_t)(f.at - bytes));
}

static void write_central(new_archive *archive, const new_member *m) {
    const uint64_t large[] = {m->unpacked, m->packed, m->place};
    const size_t name = strlen(m->name);
    size_t count = 0;
    for (int i = 0; i < 3; i++) count += large[i] >= IN_ZIP64;
    unsigned char *bytes = lib_arena_take(archive->arena, CENTRAL_BYTES + name + FIELD_MAX);
    fields f = {bytes};
    put(&f, 0x02014b50, 4);
    put(&f, 0, 2);
    put_common(&f, m, m->zip64 || count, false);
    put(&f, count ? 4 + 8 * count : 0, 2);
    put(&f, 0, 2 + 2 + 2); /* no comment, the first disk, no attributes */
    put(&f, 0, 4);
    put(&f, in_32_bits(m->place, false), 4);
    memcpy(f.at, m->name, name);
    f.at += name;
    if (count) {
        put(&f, 1, 2);
        put(&f, 8 * count, 2);
    }
    for (int i = 0; i < 3; i++)
        if (large[i] >= IN_ZIP64) put(&f, large[i], 8);
    lib_file_append(archive->arena, archive->file, bytes, (size_t)(f.at - bytes));
}

static void write_end(new_archive *archive, uint64_t place) {
    const uint64_t end = archive->file->position, size = end - place, count = archive->members.count;
    unsigned char bytes[56 + 20 + 22];
    fields f = {bytes};
    if (place >= IN_ZIP64 || size >= IN_ZIP64) {
        put(&f, 0x06064b50, 4);
        put(&f, 44, 8);
        put(&f, 45, 2);
        put(&f, 45, 2);
        put(&f, 0, 8);
        put(&f, count, 8);
        put(&f, count, 8);
        put(&f, size, 8);
        put(&f, place, 8);
        put(&f, 0x07064b50, 4);
        put(&f, 0, 4);
        put(&f, end, 8);
        put(&f, 1, 4);
    }
    put(&f, 0x06054b50, 4);
    put(&f, 0, 4);
    put(&f, count, 2);
    put(&f, count, 2);
    put(&f, in_32_bits(size, false), 4);
    put(&f, in_32_bits(place, false), 4);
    put(&f, 0, 2);
    lib_file_append(archive->arena, archive->file, bytes, (size_t)(f.at - bytes));
}

static void begin_packing(new_archive *archive) {
    z_stream *z = &archive->packer;
    if (archive->part) {
        deflateReset(z);
        return;
    }
    *z = (z_stream){.zalloc = take_for_zlib, .zfree = keep_for_zlib, .opaque = archive->arena};
    if (deflateInit2(z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        lib_raise(archive->arena->scope, DLC_OUT_OF_MEMORY, "out of memory: packing");
    archive->part = lib_arena_take(archive->arena, PACKED_PART);
}

static void pack(new_archive *archive, const void *bytes, size_t size, bool last) {
    z_stream *z = &archive->packer;
    z->next_in = (Bytef *)(uintptr_t)bytes;
    do {
        const uInt some = part_of(size);
        z->avail_in = some;
        size -= some;
        do {
            z->next_out = archive->part;
            z->avail_out = PACKED_PART;
            deflate(z, last && !size ? Z_FINISH : Z_NO_FLUSH);
            lib_file_append(archive->arena, archive->file, archive->part, PACKED_PART - z->avail_out);
        } while (!z->avail_out);
    } while (size);
}

/* ASCII names need no flag; same as NumPy. */
static unsigned name_flag(lib_arena *arena, const char *name) {
    unsigned flag = 0;
    for (size_t size = strlen(name), i = 0, length; i < size; i += length) {
        length = lib_utf8_length((const unsigned char *)name + i, size - i);
        if (!length) lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "the name \"%.200s\" is not UTF-8", name);
        if (length > 1) flag = FLAG_UTF8;
    }
    return flag;
}

static void write_member(new_archive *archive, const char *name, const DLTensor *tensor, bool compress) {
    lib_arena *arena = archive->arena;
    size_t size, bytes = lib_tensor_bytes(tensor);
    const char *header = lib_npy_header_print(arena, tensor, &size);
    const unsigned char *data = (const unsigned char *)lib_tensor_data(tensor);
    new_member m = {.name = name,
                    .place = archive->file->position,
                    .packed = size + bytes,
                    .unpacked = size + bytes,
                    .flags = name_flag(arena, name),
                    .method = compress ? method_deflated : method_stored,
                    .zip64 = bytes > 0xf0000000u /* including what packing may add */};
    m.crc = checksum(checksum(0, (const unsigned char *)header, size), data, bytes);
    write_local(archive, &m);
    if (compress) {
        const uint64_t begin = archive->file->position;
        begin_packing(archive);
        pack(archive, header, size, false);
        pack(archive, data, bytes, true);
        const uint64_t end = archive->file->position;
        m.packed = end - begin;
        if (!lib_file_seek(archive->file, m.place))
            lib_raise(arena->scope, DLC_NOT_FOUND, "cannot write %s: it cannot be gone back in",
                      archive->file->temporary);
        write_local(archive, &m);
        if (!lib_file_seek(archive->file, end))
            lib_raise(arena->scope, DLC_NOT_FOUND, "cannot write %s: it cannot be gone on in",
                      archive->file->temporary);
    } else {
        lib_file_append(arena, archive->file, header, size);
        lib_file_append(arena, archive->file, data, bytes);
    }
    lib_vec_push(arena, &archive->members, m);
}

void lib_npz_write(lib_arena *arena, lib_new_file *file, const lib_named_tensors *all) {
    new_archive archive = {.arena = arena, .file = file};
    if (all->count >= 0xffff) /* a larger count needs a ZIP64 record, which not every reader supports */
        lib_raise(arena->scope, DLC_UNSUPPORTED, "%d tensors, an .npz file holds at most %d: write .safetensors",
                  all->count, 0xffff - 1);
    for (int i = 0; i < all->count; i++) {
        if (strlen(all->names[i]) + 4 >= name_limit)
            lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "tensor %d: its name has %zu bytes, at most %d are possible",
                      i, strlen(all->names[i]), name_limit - 5);
        write_member(&archive, lib_arena_format(arena, "%s.npy", all->names[i]), all->tensors[i], all->compress);
    }
    const uint64_t place = file->position;
    for (uint32_t i = 0; i < archive.members.count; i++) write_central(&archive, &archive.members.data[i]);
    write_end(&archive, place);
}
