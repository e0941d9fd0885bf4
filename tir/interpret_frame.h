/* A kernel being interpreted: where its buffers lie, and what is known of who touched them. Inside the interpreter (interpret.c,
 * interpret_place.c); not included elsewhere. */
#ifndef TIR_INTERPRET_FRAME_H
#define TIR_INTERPRET_FRAME_H

#include "tir/interpret_banks.h"
#include "tir/interpret_program.h"

/* Who of a block touched a unit of memory, and when: which barriers of the block and of its warp were behind it, and which thread
 * loops. */
typedef struct tir_thread_tag {
    uint32_t block, warp, nest;
    uint32_t thread; /* thread, several threads of one warp, or several of the block; see the enum */
} tir_thread_tag;

enum { THREAD_LIMIT = 1024, THREAD_WARPS = 2048, THREAD_MANY = 4096, THREAD_ALL = 4097 /* outside of thread loops */ };

/* History of one unit of memory. Tags are time << 32 | who, so that nothing needs to be cleared between phases or
 * loops. */
typedef struct tir_cell {
    uint64_t writer, reader;           /* phase run << 32 | task */
    uint64_t lane_writer, lane_reader; /* run of a vec loop << 32 | LANE_REDUCTION | iteration */
    tir_thread_tag thread_writer, thread_reader;
    uint32_t owner; /* buffer + 1 whose defined value is here; 0: poison */
    uint32_t life;  /* the life of the scope's contents in which it was written */
    uint32_t group; /* of the asynchronous store that wrote it; 0: another store did */
} tir_cell;

#define MANY UINT32_C(0xffffffff)           /* task: several */
#define LANE_REDUCTION UINT64_C(0x80000000) /* touched by exact reductions only */
#define LANE_MANY UINT64_C(0x7fffffff)      /* iteration: several */

/* Memory that several buffers may share: overlapping arguments, the workspace, the local scratch; or one stack or reg
 * buffer. */
typedef struct tir_space {
    char *low;
    int64_t bytes;
    int64_t unit;    /* bytes per cell: divides sizes and addresses of all elements */
    tir_cell *cells; /* NULL: nothing here is ever written, or checks are off */
    bool shared;     /* between tasks: races are possible */
    bool scratch;    /* poison at first */
    bool per_task;   /* contents end with the task */
} tir_space;

enum { WORKSPACE_SPACE, LOCAL_SPACE, SHARED_SPACE, FIRST_ARGUMENT_SPACE };

typedef struct tir_placed {
    const tir_buffer *info;
    char *base;
    int64_t extent[16], stride[16];
    uint32_t space;
    int32_t size; /* of an element */
} tir_placed;

/* Groups of asynchronous stores of the task so far, from 1. All threads commit and wait together. */
typedef struct tir_async_groups {
    uint32_t open, done;      /* the group that stores now belong to; the last one that was waited for */
    lib_vec(uint32_t) blocks; /* by group that is done, from 1: barriers of the block before it was waited for */
} tir_async_groups;

typedef struct tir_frame {
    const tir_program *program;
    const tir_kernel *kernel;
    lib_arena *arena;
    const tir_interpret_options *options;
    uint64_t *values; /* by slot */
    uint8_t *taint;   /* by slot: poison */
    tir_placed *buffers;
    lib_vec(tir_space) spaces;
    const tir_step *step; /* being executed, for messages */
    uint64_t tag;         /* phase run << 32 | task */
    uint32_t phase_run, task_run;
    uint64_t lane, lane_runs;                /* run of the vec loop << 32 | iteration; 0: outside. Runs so far */
    tir_thread_tag thread;                   /* now. block 0: the phase has no thread loops */
    bool one_warp;                           /* the block is */
    uint32_t alike;                          /* threads from that one on that do the same */
    uint32_t blocks;                         /* and barriers of blocks so far: each begins a new one for `thread` */
    uint32_t nests;                          /* thread loops begun so far */
    uint32_t warps[THREAD_LIMIT / TIR_WARP]; /* barriers of each warp so far */
    tir_async_groups async;
    int64_t since_poll; /* instructions and stores; counted where the host wants a report */
    tir_banks *banks;   /* NULL: conflicts are not counted */
    bool partial;       /* other calls ran before: what the workspace holds is not known */
} tir_frame;

/* interpret_place.c, when the frame's values are those of the parameters: where each buffer lies, and cells beside what a phase can be
 * wrong about. */
void tir_place_buffers(tir_frame *f, void *const *arguments, char *workspace, char *local);
void tir_place_cells(tir_frame *f);
int64_t tir_compact_elements(tir_frame *f, const tir_placed *b);
char *tir_scratch_block(tir_frame *f, int64_t bytes);
int64_t tir_slot_bytes(const tir_frame *f, uint32_t slot); /* a size that the kernel computes; 0: none */

#endif
