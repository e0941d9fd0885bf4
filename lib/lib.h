/* lib: the base of every layer. Errors and scopes, memory, containers, text, hashing, element types, environment,
 * threads. Depends on libc and the public base types only. One header, in reading order; one .c file per section. */
#ifndef LIB_LIB_H
#define LIB_LIB_H

#include <dlc/types.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

/* ---- errors (error.c) --------------------------------------------------------------------------------------------
 * A status and the message for a person: what, where, what was expected. */

#define LIB_MESSAGE_MAX 1024

typedef struct lib_error {
    dlc_status status;
    /* Always terminated; cut with "..." when longer */
    char message[LIB_MESSAGE_MAX];
} lib_error;

const char *lib_status_text(dlc_status status);

/* Fills *error (may be NULL) and returns `status`, for `return lib_fail(...)`. */
dlc_status lib_fail(lib_error *error, dlc_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
dlc_status lib_fail_v(lib_error *error, dlc_status status, const char *format, va_list arguments);

/* Whether the error depends on the caller's circumstances (limits, cancellation, memory): another caller's same work may succeed. */
static inline bool lib_is_circumstance(dlc_status status) {
    return status == DLC_CANCELLED || status == DLC_BUDGET_EXCEEDED || status == DLC_OUT_OF_MEMORY;
}

#define LIB_TRY(expression)                                    \
    do {                                                       \
        dlc_status lib_try_status_ = (expression);             \
        if (lib_try_status_ != DLC_OK) return lib_try_status_; \
    } while (0)

/* ---- scopes (error.c) --------------------------------------------------------------------------------------------
 * Compiler code (IR building, passes, lowering, printing, parsing) runs inside a scope: a mistake or a refused allocation
 * leaves it by lib_raise, a longjmp to the function that opened it. So inner code has no error plumbing, and no error can
 * be forgotten. The rules that make it safe:
 *   1. all memory taken inside a scope belongs to an arena, which the opener frees or keeps;
 *   2. no lock is held and no foreign frame (LLVM, host callback) lies between lib_raise and the opener;
 *   3. objects that outlive the scope are changed only after everything that can raise has happened;
 *   4. the opener is a function that takes no decisions of its own:
 *          lib_scope scope;
 *          if (LIB_ENTER(&scope)) { work(arena); } else { clean up; report scope.error }
 *      locals changed between ENTER and a raise are volatile or not read afterwards. */

typedef struct lib_scope {
    jmp_buf target;
    lib_error error;
} lib_scope;

#define LIB_ENTER(scope) ((scope)->error.status = DLC_OK, (scope)->error.message[0] = 0, setjmp((scope)->target) == 0)

_Noreturn void lib_raise(lib_scope *scope, dlc_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void lib_raise_v(lib_scope *scope, dlc_status status, const char *format, va_list arguments);
_Noreturn void lib_raise_error(lib_scope *scope, const lib_error *error); /* passes an error on to an outer scope */

extern const char
    lib_build_id[]; /* made by the Makefile: a hash over the library's sources and the way they were compiled */

/* ---- memory (memory.c) -------------------------------------------------------------------------------------------- */

extern const dlc_allocator lib_libc_allocator; /* aligned_alloc / free */

/* May return NULL. Zero size gives a unique pointer or NULL as the allocator likes; release accepts NULL. */
void *lib_allocate(const dlc_allocator *allocator, size_t size, size_t alignment);
void *lib_allocate_zeroed(const dlc_allocator *allocator, size_t size, size_t alignment);
void lib_release(const dlc_allocator *allocator, void *pointer, size_t size, size_t alignment);
/* The same for the bytes of tensors: large ones use huge pages if the system has them. */
void *lib_allocate_bytes(const dlc_allocator *allocator, size_t size, size_t alignment);
void lib_release_bytes(const dlc_allocator *allocator, void *pointer, size_t size, size_t alignment);

/* true and *out = a*b (a+b), or false on overflow. */
bool lib_size_multiply(size_t a, size_t b, size_t *out);
bool lib_size_add(size_t a, size_t b, size_t *out);

/* Cancellation check: called periodically by arenas that have one; when it returns true, the arena raises *error. */
typedef struct lib_watch {
    bool (*is_over)(void *user, lib_error *error);
    void *user;
} lib_watch;

/* Bump allocator; memory is freed all at once. Every allocation succeeds or raises DLC_OUT_OF_MEMORY in `scope`, which
 * must be open (entered) whenever the arena is used. Not thread-safe. */
typedef struct lib_arena {
    const dlc_allocator *allocator;
    lib_scope *scope;
    /* newest first */
    struct lib_arena_chunk *chunks;
    /* kept by a reset, for reuse */
    struct lib_arena_chunk *spare;
    char *next, *end;
    /* bytes allocated from the allocator */
    size_t total;
    /* on `total`; beyond it DLC_BUDGET_EXCEEDED is raised. 0: none */
    size_t limit;
    /* the option that sets the limit, for the message; NULL: budget_bytes */
    const char *limit_name;
    /* NULL: work in this arena cannot be cancelled */
    const lib_watch *watch;
    /* allocations since the last check of `watch` */
    uint32_t taken;
    /* objects released with the arena's memory, newest first */
    struct lib_arena_owned *owned;
} lib_arena;

/* Calls the arena's watch; leaves the scope if it returns an error. */
void lib_arena_ask(lib_arena *arena);
void lib_arena_init(lib_arena *arena, const dlc_allocator *allocator, lib_scope *scope);
void lib_arena_free(lib_arena *arena);               /* frees all chunks; the arena is empty and usable again */
void lib_arena_reset(lib_arena *arena);              /* empty; keeps some MiB of its chunks for reuse */
void *lib_arena_take(lib_arena *arena, size_t size); /* zeroed, 16-byte aligned, never NULL */
void *lib_arena_take_aligned(lib_arena *arena, size_t size, size_t alignment);
void *lib_arena_array(lib_arena *arena, size_t count, size_t element_size); /* overflow raises */
void *lib_arena_copy(lib_arena *arena, const void *bytes, size_t size);
char *lib_arena_string(lib_arena *arena, const char *string); /* copy, NULL gives NULL */
/* The arena takes ownership: it calls release(object) when it is freed or reset, or at once if recording the object runs out of memory,
 * which raises. */
void lib_arena_own(lib_arena *arena, void (*release)(void *object), void *object);
/* Grows `old` to `size` bytes: in place if it is the last allocation and there is room, else as a copy of its `used` bytes. Bytes
 * beyond these are not zeroed. */
void *lib_arena_extend(lib_arena *arena, void *old, size_t used, size_t old_size, size_t size);
char *lib_arena_format(lib_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define LIB_NEW(arena, type) ((type *)lib_arena_take((arena), sizeof(type)))
#define LIB_NEW_ARRAY(arena, type, count) ((type *)lib_arena_array((arena), (count), sizeof(type)))

/* ---- limits (limits.c) ----------------------------------------------------------------------------------------------
 * Limits of one call on an arena that parses or builds; see dlc_limits. */

/* X(member, default) */
#define LIB_LIMITS_TABLE(X)      \
    X(nesting, 64)               \
    X(memory, (size_t)256 << 20) \
    X(time_ms, (int64_t)20 * 1000)
/* Replaces zeros by defaults; false and *error if a limit is negative. */
bool lib_limits_complete(dlc_limits *limits, lib_error *error);

typedef struct lib_allowance {
    lib_watch watch;
    /* with defaults filled in */
    const dlc_limits *limits;
    /* bytes that the call was given */
    size_t input;
    /* 0: not checked yet */
    uint64_t deadline_ns;
    /* the arena's previous limit; below its name and watch */
    size_t outer_limit;
    const char *outer_name;
    const lib_watch *outer_watch;
} lib_allowance;
enum { LIB_LIMIT_MEMORY_PER_BYTE = 64 /* of input, in addition to limits.memory */ };
/* _begin before and _end after the scope of the call; a lib_arena_ask after LIB_ENTER detects a flag that is already raised. An arena that
 * already has a limit or a watch keeps its own (a pass is running, and a function of the host builds in its arena). */
void lib_allowance_begin(lib_allowance *allowance, lib_arena *arena, const dlc_limits *limits, size_t input);
/* The same in addition to the arena's own limits; whichever is reached first applies. */
void lib_allowance_begin_within(lib_allowance *allowance, lib_arena *arena, const dlc_limits *limits, size_t input);
size_t lib_allowed_memory(const dlc_limits *limits, size_t input); /* bytes in all */
void lib_allowance_end(const lib_allowance *allowance, lib_arena *arena);

/* ---- containers (container.c) --------------------------------------------------------------------------------------
 * lib_vec(T): growable array in an arena. Zero-initialised is empty. Growth copies and does not free the old storage, unless the array
 * is the last allocation. Reserved elements are not zeroed. Evaluating the pushed value must not itself push to the same array. */

#define lib_vec(type)             \
    struct {                      \
        type *data;               \
        uint32_t count, capacity; \
    }
#define lib_vec_push(arena, vec, value)        \
    do {                                       \
        lib_vec_reserve((arena), (vec), 1);    \
        (vec)->data[(vec)->count++] = (value); \
    } while (0)
/* room for `extra` more elements */
#define lib_vec_reserve(arena, vec, extra)                                                                            \
    ((uint32_t)(extra) > (vec)->capacity - (vec)->count                                                               \
         ? (void)((vec)->data = lib_vec_grow((arena), (vec)->data, (vec)->count, &(vec)->capacity, (uint32_t)(extra), \
                                             sizeof *(vec)->data))                                                    \
         : (void)0)
void *lib_vec_grow(lib_arena *arena, void *data, uint32_t count, uint32_t *capacity, uint32_t extra, size_t size);

/* Hash map from a 64-bit hash to 32-bit values, open addressing, in an arena; several entries may share a hash: the caller
 * compares. Zero-initialised is empty. Typical use (hash-consing):
 *     for (uint32_t at = lib_map_first(&map, h); at != LIB_MAP_END; at = lib_map_next(&map, h, at))
 *         if (equal(map.slots[at].value, key)) return map.slots[at].value;
 *     lib_map_insert(arena, &map, h, new_value); */
typedef struct lib_map_slot {
    /* never 0 in a used slot (0 is stored as 1) */
    uint64_t hash;
    uint32_t value;
} lib_map_slot;
typedef struct lib_map {
    lib_map_slot *slots;
    /* 0 or a power of two */
    uint32_t capacity;
    uint32_t count;
} lib_map;
#define LIB_MAP_END UINT32_MAX
uint32_t lib_map_first(const lib_map *map, uint64_t hash);
uint32_t lib_map_next(const lib_map *map, uint64_t hash, uint32_t at);
void lib_map_insert(lib_arena *arena, lib_map *map, uint64_t hash, uint32_t value);

/* ---- hashing (hash.c) ----------------------------------------------------------------------------------------------
 * Stable across runs and machines of one byte order, but for lib_hash_name and lib_hash_string. */

typedef struct lib_hash128 {
    uint64_t low, high;
} lib_hash128;

uint64_t lib_hash64(const void *bytes, size_t size, uint64_t seed);
/* For maps by names, which files and hosts choose: differs from process to process, so that nobody can choose names of equal hash. */
uint64_t lib_hash_name(const void *bytes, size_t size);
/* lib_hash_name of a string: not for what is stored, printed, or a seed. */
static inline uint64_t lib_hash_string(const char *string) {
    return lib_hash_name(string, strlen(string));
}
/* Fast, not cryptographic: different bytes with the same hash are easily made. */
lib_hash128 lib_hash_bytes(const void *bytes, size_t size, lib_hash128 seed);
/* For what comes from graphs and files and is taken to be equal if its hash is: nobody knows other bytes of the same hash. */
lib_hash128 lib_digest(const void *bytes, size_t size, lib_hash128 seed);
static inline uint64_t lib_hash_mix(uint64_t a, uint64_t b) {
    uint64_t x = (a ^ 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u ^ (b + 0x94d049bb133111ebu + (a << 6) + (a >> 2));
    x ^= x >> 29;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 32;
}

/* ---- text (text.c) --------------------------------------------------------------------------------------------------
 * Growing string in an arena; `data` is always terminated after the first write. */

typedef struct lib_text {
    lib_arena *arena;
    char *data;
    size_t length, capacity;
} lib_text;

void lib_text_init(lib_text *text, lib_arena *arena);
void lib_text_add(lib_text *text, const char *string);
void lib_text_add_bytes(lib_text *text, const char *bytes, size_t size);
void lib_text_format(lib_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void lib_text_format_v(lib_text *text, const char *format, va_list arguments);
/* Length of the UTF-8 sequence that begins here; 0: invalid. */
size_t lib_utf8_length(const unsigned char *at, size_t size);
bool lib_is_utf8(const char *text);
void lib_text_float(lib_text *text, double value, dlc_dtype dtype); /* shortest that parses back; nan, inf, -inf */
/* Reads decimal digits with '.' whatever the locale. false: no memory for the locale object. */
bool lib_parse_double(const char *digits, double *out);
/* "..." with \" \\ \n, and \xNN for other control characters and for invalid UTF-8. */
void lib_text_quoted(lib_text *text, const char *string);

/* The same into `to`, terminated, for at most `shown` bytes of the string, then "...". size: 4 * shown + 8 is always enough. */
void lib_quote(char *to, size_t size, const char *string, size_t shown);

/* The nearest known word to an unknown one, for messages. Distance: edits (a character inserted, left out, exchanged, two
 * neighbours swapped; case is ignored), at most one for every three characters.
 *     lib_nearest nearest = lib_nearest_to(name);
 *     for (...) lib_nearest_try(&nearest, row[i].name, strlen(row[i].name));
 *     lib_raise(scope, status, "there is no operator %s%s", name, lib_nearest_hint(&nearest)); */
enum { LIB_WORD_MAX = 200 }; /* longer words have no nearest one */
typedef struct lib_nearest {
    const char *wanted;
    size_t length;
    /* of the nearest word so far; without one, more than allowed */
    int edits;
    /* that word; "": none */
    char word[LIB_WORD_MAX + 1];
    /* the result of lib_nearest_hint */
    char hint[4 * LIB_WORD_MAX + 32];
} lib_nearest;
lib_nearest lib_nearest_to(const char *wanted);
void lib_nearest_try(lib_nearest *nearest, const char *word, size_t length);
void lib_nearest_try_list(lib_nearest *nearest,
                          const char *words);       /* all words of a list, separated by blanks or commas */
const char *lib_nearest_hint(lib_nearest *nearest); /* "; did you mean \"relu\"?", or "" */

/* Tokens of all our text forms: identifiers [A-Za-z_][A-Za-z0-9_.]* (see lexer flag), integers, floats, quoted strings,
 * and single or double punctuation (-> == != <= >= && || <<, >>). '#' starts a comment to the end of the line. */
typedef enum lib_token_kind { LIB_END, LIB_NAME, LIB_INTEGER, LIB_FLOAT, LIB_STRING, LIB_PUNCTUATION } lib_token_kind;

typedef struct lib_lexer {
    lib_arena *arena;
    /* name for messages: "<text>" or a file */
    const char *source;
    const char *start, *at, *end;
    /* names may contain '.': a.b is one token */
    bool dotted_names;
    /* current token */
    lib_token_kind kind;
    /* name, punctuation or unescaped string; in the arena */
    const char *text;
    size_t text_length;
    /* LIB_INTEGER; hex 0x may use all 64 bits; overflow raises */
    int64_t integer;
    /* LIB_FLOAT (and LIB_INTEGER converted) */
    double number;
    /* of the token, 1-based */
    int line, column;
    bool first_on_line;
    /* where scanning continues */
    int next_line;
    const char *line_start;
} lib_lexer;

void lib_lexer_init(lib_lexer *lexer, lib_arena *arena, const char *source, const char *text, size_t size);
void lib_lexer_next(lib_lexer *lexer);
bool lib_lexer_is(const lib_lexer *lexer, const char *text); /* name or punctuation equal to text */
bool lib_lexer_accept(lib_lexer *lexer, const char *text);   /* if it is: next, true */
void lib_lexer_expect(lib_lexer *lexer, const char *text);   /* else raises with line and column */
char *lib_lexer_name(lib_lexer *lexer);                      /* expects a name; copy in arena */
int64_t lib_lexer_integer(lib_lexer *lexer);                 /* expects an integer, an optional '-' before it */
double lib_lexer_number(lib_lexer *lexer);                   /* expects integer, float, nan, inf, optional '-' */
_Noreturn void lib_lexer_raise(const lib_lexer *lexer, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Host files. NUL-terminated contents in the arena; raises DLC_NOT_FOUND with path and reason. */
char *lib_file_read(lib_arena *arena, const char *path, size_t *size);
/* The same of a descriptor, which it closes; `path` is for messages. */
char *lib_file_read_open(lib_arena *arena, int file, const char *path, size_t *size);
/* The start of a small file as a string, size - 1 bytes at most; false: missing or empty. Allocates nothing. */
bool lib_file_read_start(const char *path, char *buffer, size_t size);

/* If *descriptor is 0, 1 or 2, which a new file gets when the host has closed standard streams: replaces it by a higher one, so that what the
 * host prints does not go into the file. On failure closes it, sets it to -1 and sets errno. Returns whether *descriptor is valid. */
bool lib_file_leave_standard(int *descriptor);
/* Creates a file that does not exist yet, for writing. Its descriptor is no standard stream; -1: refused, with errno. */
int lib_file_create(const char *path, unsigned mode);
/* All bytes at the descriptor's position, or false with errno: EFBIG if a limit of the process forbids it (no signal). */
bool lib_file_write(int file, const void *bytes, size_t size);

/* ---- element types (dtype.c) -------------------------------------------------------------------------------------- */

typedef struct lib_dtype_info {
    const char *name;
    uint8_t bits, bytes, dlpack_code;
    /* 'b' 'i' 'u' 'f' 'c' */
    char class_;
    bool usable;
} lib_dtype_info;

extern const lib_dtype_info lib_dtypes[DLC_DTYPE_COUNT];
static inline size_t lib_dtype_size(dlc_dtype dtype) {
    return lib_dtypes[dtype].bytes;
}
static inline bool lib_dtype_is_float(dlc_dtype dtype) {
    return lib_dtypes[dtype].class_ == 'f';
}
static inline bool lib_dtype_is_integer(dlc_dtype d) {
    return lib_dtypes[d].class_ == 'i' || lib_dtypes[d].class_ == 'u';
}
/* Whether a byte holds several elements. */
static inline bool lib_dtype_is_packed(dlc_dtype dtype) {
    return lib_dtypes[dtype].bits < 8;
}
/* Stored as codes: packed elements and f8e8m0. Kernels load bytes and compute the numbers from them. */
static inline bool lib_dtype_is_encoded(dlc_dtype dtype) {
    return lib_dtypes[dtype].bits < 8 || dtype == DLC_F8E8M0;
}
/* Stored elements differ from the scalars that kernels compute with: encoded ones, and complex numbers. */
static inline bool lib_dtype_is_stored_otherwise(dlc_dtype dtype) {
    return lib_dtype_is_encoded(dtype) || lib_dtypes[dtype].class_ == 'c';
}
/* Element `index` of packed ones by itself, in the low bits of a byte: what lib_element_get_f64 and its like read. */
static inline uint8_t lib_packed_get(dlc_dtype dtype, const void *bytes, size_t index) {
    const unsigned bits = lib_dtypes[dtype].bits, each = 8 / bits, at = (unsigned)(index % each) * bits;
    return (uint8_t)((unsigned)((const uint8_t *)bytes)[index / each] >> at & ((1u << bits) - 1));
}
static inline void lib_packed_set(dlc_dtype dtype, void *bytes, size_t index, uint8_t code) {
    const unsigned bits = lib_dtypes[dtype].bits, each = 8 / bits, at = (unsigned)(index % each) * bits;
    const unsigned mask = ((1u << bits) - 1) << at;
    uint8_t *byte = (uint8_t *)bytes + index / each;
    *byte = (uint8_t)((*byte & ~mask) | ((unsigned)code << at & mask));
}
/* Bytes of `count` elements; count * lib_dtype_size must not overflow. */
static inline size_t lib_dtype_bytes(dlc_dtype dtype, size_t count) {
    const size_t bits = lib_dtypes[dtype].bits; /* no product overflows unless the result does */
    return lib_dtype_is_packed(dtype) ? count / 8 * bits + (count % 8 * bits + 7) / 8 : count * lib_dtypes[dtype].bytes;
}
bool lib_dtype_parse(const char *name, dlc_dtype *out);
lib_nearest lib_dtype_nearest(const char *name); /* also finds names of other libraries: float32, half, uint8 */
bool lib_dtype_from_dlpack(DLDataType from, dlc_dtype *out); /* lanes must be 1; bool also accepted as u8 of kDLBool */
DLDataType lib_dtype_to_dlpack(dlc_dtype dtype);

/* IEEE 754 binary16 and bfloat16, round to nearest even; NaN stays NaN (quiet), overflow to infinity. */
uint16_t lib_f16_from_f64(double value); /* one rounding */
uint16_t lib_f16_from_f32(float value);
float lib_f32_from_f16(uint16_t bits);
uint16_t lib_bf16_from_f32(float value);
uint16_t lib_bf16_from_f64(double value); /* one rounding */
float lib_f32_from_bf16(uint16_t bits);

/* A float dtype: digits of the significand, exponents of the least and the greatest normal number, the greatest
 * number; `infinite`: has infinities, `signed_zero`: has -0. */
typedef struct lib_float_info {
    int digits, lowest, highest;
    double greatest;
    bool infinite, signed_zero;
} lib_float_info;
lib_float_info lib_float_of(dlc_dtype dtype);
/* f16, bf16 and the floats of 8 and 4 bits: kernels compute them in f32. */
static inline bool lib_dtype_is_narrow_float(dlc_dtype dtype) {
    return lib_dtype_is_float(dtype) && lib_dtypes[dtype].bits < 32;
}
/* Floats of 8 bits that kernels load and store. */
static inline bool lib_dtype_is_f8(dlc_dtype dtype) {
    return lib_dtype_is_float(dtype) && lib_dtypes[dtype].bits == 8 && !lib_dtype_is_encoded(dtype);
}
/* Floats of 8 and 4 bits: one rounding, to nearest even; values beyond the greatest number become infinity, or NaN if the type has no
 * infinity. f4e2m1 has neither: such values become the greatest number, and NaN becomes 0. f8e8m0: ties away from zero; values that are not
 * positive, or below its least power of two after rounding, become NaN. */
uint8_t lib_f8_from_f64(dlc_dtype dtype, double value);
float lib_f32_from_f8(dlc_dtype dtype, uint8_t bits);

/* Element access as a number. Integers beyond 2^53 lose bits in the f64 forms: use the i64 forms for those. */
double lib_element_get_f64(dlc_dtype dtype, const void *element);
int64_t lib_element_get_i64(dlc_dtype dtype, const void *element); /* float: saturates, NaN gives 0 */
void lib_element_set_f64(dlc_dtype dtype, void *element,
                         double value); /* float to int saturates, NaN gives 0; to bool: value != 0 */
void lib_element_set_i64(dlc_dtype dtype, void *element, int64_t value); /* int wraps */

/* ---- tensors (tensor.c) ---------------------------------------------------------------------------------------------
 * DLPack at the boundary. */

/* The first element; NULL where a tensor without elements has no data. */
static inline char *lib_tensor_data(const DLTensor *t) {
    return t->data ? (char *)t->data + t->byte_offset : NULL;
}
/* Compact row-major strides in elements. */
void lib_strides_compact(int rank, const int64_t *shape, int64_t *strides);
/* Whether two elements may share an address. Exact for up to some 65,000 steps of search, which strides interleaved many times in many
 * dimensions can exceed; then true. */
bool lib_strides_overlap(const DLTensor *tensor);
bool lib_tensor_is_compact(
    const DLTensor *tensor); /* strides of size-1 dimensions are ignored; empty tensors are compact */
/* Do its strides lead to whole bytes? Elements of less than a byte have none: such a tensor must be compact. */
bool lib_tensor_is_addressable(const DLTensor *tensor);
/* Number of elements; false if a dimension is negative or the byte size overflows. */
bool lib_tensor_count(const DLTensor *tensor, int64_t *count);
size_t lib_tensor_bytes(const DLTensor *tensor); /* of its elements; the count must not overflow */
/* First byte and one past the last byte that the tensor touches (strides may be negative); empty tensor: low == high. False if
 * strides leave the address space: then the whole space, so that overlap checks refuse. */
bool lib_tensor_extent(const DLTensor *tensor, const char **low, const char **high);
bool lib_tensors_overlap(const DLTensor *a, const DLTensor *b); /* do these ranges of bytes? */
/* Owned compact tensor from the allocator, data aligned to `alignment`; its deleter frees everything. NULL when refused. */
DLManagedTensorVersioned *lib_tensor_new(const dlc_allocator *allocator, dlc_dtype dtype, int rank,
                                         const int64_t *shape, size_t alignment);
/* Copies between addressable tensors of one dtype and shape, whatever their strides. They must not overlap. */
void lib_tensor_copy(const DLTensor *to, const DLTensor *from);
/* "f32[2,3]" */
void lib_tensor_describe(lib_text *text, const DLTensor *tensor);

/* ---- environment (environment.c) -------------------------------------------------------------------------------------
 * Every variable the library reads: identifier, name, default, doc. `DLC_DEBUG=help` lists them through the log. */

/* X(enumerator, name, default, values, doc); values: one or more of these words, "N" a number, "" anything. */
#define LIB_ENVIRONMENT_TABLE(X)                                                                                     \
    X(LIB_ENV_DEBUG, "DLC_DEBUG", "",                                                                                \
      "help graph bound regions stages schedule choices steps loops llvm asm source plan cache fuse",                \
      "help, or stages to dump to the log")                                                                          \
    X(LIB_ENV_CPU, "DLC_CPU", "", "", "CPU name given to LLVM instead of the host's")                                \
    X(LIB_ENV_FEATURES, "DLC_CPU_FEATURES", "", "sse2 avx2 avx512", "force a level")                                 \
    X(LIB_ENV_CACHES, "DLC_CPU_CACHES", "", "N,N,N",                                                                 \
      "KiB of first, second, third level that kernels are made for, where a virtual machine shows others")           \
    X(LIB_ENV_THREADS, "DLC_THREADS", "", "N", "overrides the threads option of contexts that own a pool")           \
    X(LIB_ENV_VERIFY, "DLC_VERIFY", "", "0 1 2",                                                                     \
      "0 nothing, 1 graphs, regions and loop IR when finished, 2 also after each pass over a graph, each rewriting " \
      "directive, and LLVM IR (default: 1, debug builds 2)")                                                         \
    X(LIB_ENV_DISABLE, "DLC_DISABLE", "", "simplify fuse layout rules alias order host batch polls",                 \
      "passes to switch off; host: the CPU in place of a device; batch: CUDA graphs; polls: kernels of the cpu "     \
      "target do not ask whether the run shall go on")                                                               \
    X(LIB_ENV_LAYOUT, "DLC_LAYOUT", "", "all", "every value that may be blocked is, whatever it costs (for tests)")  \
    X(LIB_ENV_CHOICES, "DLC_CHOICES", "0", "N",                                                                      \
      "not 0: a seed by which a quarter of the choices of schedule rules is random (for tests)")                     \
    X(LIB_ENV_STATS, "DLC_STATS", "0", "N", "1: statistics to the log when a context is destroyed")                  \
    X(LIB_ENV_SEED, "DLC_SEED", "1", "N", "seed of tests, fuzzing and random inputs")                                \
    X(LIB_ENV_SPIN, "DLC_SPIN_US", "100", "N", "how long a waiting worker spins before it sleeps, microseconds")     \
    X(LIB_ENV_PERF, "DLC_PERF_MAP", "0", "N", "1: write /tmp/perf-PID.map lines for generated kernels")              \
    X(LIB_ENV_GDB, "DLC_GDB", "0", "N", "1: register generated kernels with the debugger")                           \
    X(LIB_ENV_CUDA, "DLC_CUDA", "", "", "path of the CUDA driver library, instead of libcuda.so.1")                  \
    X(LIB_ENV_NVRTC, "DLC_NVRTC", "", "", "path of the NVRTC library, instead of the newest that the driver suits")

typedef enum lib_environment {
#define X(id, name, default_, words, doc) id,
    LIB_ENVIRONMENT_TABLE(X)
#undef X
        LIB_ENV_COUNT
} lib_environment;

const char *lib_environment_get(lib_environment variable);                   /* never NULL */
int64_t lib_environment_integer(lib_environment variable, int64_t fallback); /* fallback when empty or malformed */
bool lib_environment_lists(lib_environment variable, const char *word);      /* word is in its comma list */
bool lib_environment_three(lib_environment variable, int64_t numbers[3]);    /* "N,N,N", positive; else false */
int64_t lib_environment_verify(void);                                        /* DLC_VERIFY, or this build's default */
void lib_environment_help(lib_text *text);

/* ---- log (log.c) ---------------------------------------------------------------------------------------------------- */

typedef struct lib_log {
    /* NULL: dropped */
    void (*write)(void *user, const char *line);
    void *user;
} lib_log;
void lib_log_write(const lib_log *log, const char *format, ...) __attribute__((format(printf, 2, 3))); /* one line */
void lib_environment_check(const lib_log *log);           /* reports variables with unknown values */
void lib_log_lines(const lib_log *log, const char *text); /* a dump: one call of write per line (long lines in parts) */

/* ---- time, threads (thread.c), runs (pool.c) ------------------------------------------------------------------------ */

uint64_t lib_time_ns(void); /* monotonic */
/* Storage of a thread that exists from its start. Without the attribute, a library that is loaded while the process runs gets it
 * at a thread's first use, and the C library ends the process if memory is short then. All such libraries share some 1.5 KiB:
 * keep it small. */
#define LIB_THREAD_LOCAL _Thread_local __attribute__((tls_model("initial-exec")))
/* LIB_MESSAGE_MAX bytes of the calling thread, kept until it ends. NULL: none yet and `wanted` is false, or memory is refused. */
char *lib_thread_message(bool wanted);
/* Bytes left of the calling thread's stack. On a stack that the host switched to (a coroutine's), of the bytes passed to
 * lib_stack_enter; 0 without such a call. */
size_t lib_stack_left(void);
/* At the entry of a public call: `unknown` bytes are left on a stack that is not the thread's own. Returns the state for
 * lib_stack_leave; calls nest, on different stacks, too. */
typedef struct lib_stack {
    uintptr_t low, high;
} lib_stack;
lib_stack lib_stack_enter(size_t unknown);
void lib_stack_leave(lib_stack before);
enum {
    LIB_STACK_CALL = 32 << 10,   /* for a call that neither compiles nor nests, with the host functions that it calls */
    LIB_STACK_NESTED = 6 << 10,  /* for passes, for each level of nested sub-graphs */
    LIB_STACK_UNKNOWN = 64 << 10 /* of a stack whose size the host does not state */
};
/* If fewer than `need` bytes are left: DLC_OUT_OF_MEMORY, raised or returned. */
void lib_stack_require(lib_scope *scope, size_t need);
dlc_status lib_stack_check(size_t need, lib_error *error);
/* The same for a run, quickly: a stack that is not the thread's own counts as `unknown` bytes. */
bool lib_stack_has(size_t need, size_t unknown);
/* `limit`, or less if the process's control groups (the file `groups`, mounted at `root`) grant less. */
int lib_cpu_quota(int limit, const char *groups, const char *root);
int lib_cpu_limit(void); /* usable CPUs: affinity mask, cgroup v1/v2 quota (rounded up), at least 1 */

/* Round-to-nearest, no flush-to-zero, no denormals-are-zero, exceptions masked; leave restores the caller's state.
 * Host threads enter generated code only between the two. */
typedef struct lib_fp_state {
    /* MXCSR and the x87 control word on x86-64, FPCR on AArch64 */
    uint64_t control;
} lib_fp_state;
lib_fp_state lib_fp_enter(void);
void lib_fp_restore(lib_fp_state state);
/* The same for generated code alone, which does not use the x87 unit: reading its control word takes longer than everything else. */
lib_fp_state lib_fp_enter_vectors(void);
void lib_fp_restore_vectors(lib_fp_state state);

/* A run: consecutive phases of independent tasks. Phase p+1 starts when all tasks of phase p are done. Tasks never block.
 * `body(user, phase, begin, end, slot)` runs tasks begin..end-1; slot < participants is not shared by concurrent calls.
 * A call may cover more than `grain` tasks: a single participant gets a whole phase at once, and very long phases use a larger grain. */
typedef struct lib_phase {
    int64_t tasks;
    /* tasks taken at a time, at least 1 */
    int64_t grain;
    /* each participant processes the units of its share in reverse */
    bool backwards;
} lib_phase;
typedef void (*lib_task_body)(void *user, int64_t phase, int64_t begin, int64_t end, int slot);

/* The host's way to run work in parallel: calls body(argument, i) for i in 0..count-1, in any order, sequentially or
 * on any threads, and returns when all have returned. */
typedef void (*lib_parallel_for)(void *user, int64_t count, void (*body)(void *argument, int64_t index),
                                 void *argument);

typedef struct lib_pool
    lib_pool; /* threads - 1 workers, all signals blocked, asleep between runs; serves any active run */

/* `threads` includes the caller; clamped to lib_cpu_limit(). NULL and *error on refusal. threads <= 1: a pool with no threads. */
lib_pool *lib_pool_new(const dlc_allocator *allocator, int threads, int64_t spin_us, lib_error *error);
void lib_pool_free(lib_pool *pool);
int lib_pool_threads(const lib_pool *pool);

/* Runs all phases on the caller plus, if given, the pool's workers or the host's parallel_for (pool NULL). The caller alone
 * can finish; no thread waits for a participant to arrive. `participants` bounds slots (>= 1). Allocates nothing, takes no lock
 * when participants == 1. A nested run, or a run in a forked child, uses its caller only. *cancel (may be NULL): when it
 * becomes non-zero remaining tasks are skipped. Returns false if cancelled. */
bool lib_run_phases(lib_pool *pool, lib_parallel_for parallel_for, void *parallel_user, int participants,
                    int64_t phases, const lib_phase *phase, lib_task_body body, void *user, const volatile int *cancel);

/* false: every phase is a single unit, so other threads would have nothing to do. */
bool lib_is_worth_sharing(int64_t phases, const lib_phase *phase);

/* The host's cancel flag, which any thread may raise. NULL: never raised. */
static inline bool lib_is_raised(const volatile int *flag) {
    return flag && __atomic_load_n(flag, __ATOMIC_RELAXED) != 0;
}

/* ---- public calls (calls.c) ----------------------------------------------------------------------------------------- */

/* The calls in progress on a context, so that a forked child can tell whether other threads of its parent were inside one. All zeros is
 * a valid initial state, for process-wide state: then without a page of its own, at the cost of a getpid. */
typedef struct lib_callers {
    _Atomic int inside;
    /* This process's verdict on inherited objects; in a page that the kernel zeroes in a forked child, or in this struct. */
    _Atomic uint64_t *page;
    _Atomic uint64_t verdict;
} lib_callers;
void lib_callers_init(lib_callers *callers);
void lib_callers_free(lib_callers *callers);

typedef struct lib_call {
    lib_callers *callers;
    /* the enclosing call of the same thread */
    struct lib_call *outer;
    lib_stack stack;
    int cancelability;
    bool entered;
} lib_call;
/* First in a public call. Disables thread cancellation until lib_call_leave; checks that `need` bytes of stack are left (a stack that is
 * not the thread's own counts as `unknown_stack`; DLC_OUT_OF_MEMORY), and that the process was not forked while other threads were in calls
 * of these callers (DLC_UNSUPPORTED). callers NULL: of no context. After an error nothing needs to be left, and leaving does nothing. */
dlc_status lib_call_enter(lib_call *call, lib_callers *callers, size_t unknown_stack, size_t need, lib_error *error);
void lib_call_leave(lib_call *call);
/* Disables cancellation alone, while a run waits or calls the host. */
int lib_cancel_off(void);
void lib_cancel_restore(int before);

/* A page of zeros that the kernel zeroes again in a forked child; NULL if it cannot. */
void *lib_page_until_fork(void);
void lib_page_free(void *page); /* NULL is accepted */

/* A process, for objects that a forked child does not share. Its number alone does not tell: a child in a new PID namespace may have that of
 * its parent. */
typedef struct lib_process {
    /* in a page that is zeroed in a forked child; NULL: the kernel has no such pages, and the number decides */
    const volatile bool *mark;
    int64_t number;
} lib_process;
lib_process lib_process_here(void);
bool lib_process_is_here(const lib_process *process); /* false in a forked child */
void lib_process_forget(lib_process *process);

/* A plain mutex and condition (pthread), so that only these files use pthreads. */
typedef struct lib_mutex {
    _Alignas(16) unsigned char storage[64];
} lib_mutex;
typedef struct lib_condition {
    _Alignas(16) unsigned char storage[64];
} lib_condition;
/* A thread with all signals blocked. NULL and *error on refusal. */
typedef struct lib_thread lib_thread;
lib_thread *lib_thread_start(const dlc_allocator *allocator, void (*function)(void *user), void *user,
                             lib_error *error);
/* Joins the thread. `forked`: in a forked child, where it does not exist. NULL is accepted. */
void lib_thread_end(lib_thread *thread, bool forked);

void lib_mutex_init(lib_mutex *mutex);
void lib_mutex_destroy(lib_mutex *mutex);
void lib_mutex_lock(lib_mutex *mutex);
void lib_mutex_unlock(lib_mutex *mutex);
void lib_condition_init(lib_condition *condition);
void lib_condition_destroy(lib_condition *condition);
void lib_condition_wait(lib_condition *condition, lib_mutex *mutex);
void lib_condition_wait_ms(lib_condition *condition, lib_mutex *mutex, int milliseconds); /* at most this long */
void lib_condition_broadcast(lib_condition *condition);

#endif
