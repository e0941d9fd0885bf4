/* A kernel being interpreted: addresses of its buffers, and the access history of their elements. Internal to the interpreter
 * (interpret.c, interpret_place.c); not included elsewhere. */
#ifndef TIR_INTERPRET_FRAME_H
#define TIR_INTERPRET_FRAME_H

#include "tir/interpret_banks.h"
#include "tir/interpret_program.h"

/* Which thread of a block accessed a unit of memory, and when: the number of barriers of the block and of its warp before it, and
 * the thread loop. */
typedef struct tir_thread_tag {
    uint32_t block, warp, nest;
    /* thread, several threads of one warp, or several of the block; see the enum */
    uint32_t thread;
} tir_thread_tag;

enum { THREAD_LIMIT = 1024, THREAD_WARPS = 2048, THREAD_MANY = 4096, THREAD_ALL = 4097 /* outside of thread loops */ };

/* History of one unit of memory. Tags are time << 32 | accessor, so that nothing needs to be cleared between phases or
 * loops. */
typedef struct tir_cell {
    /* phase run << 32 | task */
    uint64_t writer, reader;
    /* run of a vec loop << 32 | LANE_REDUCTION | iteration */
    uint64_t lane_writer, lane_reader;
    tir_thread_tag thread_writer, thread_reader;
    /* 1 + the buffer that stored the defined value that is here; 0: poison */
    uint32_t owner;
    /* the frame's task_run when it was written: contents of per-task scratch end with the task */
    uint32_t life;
    /* number of the group of the asynchronous store that wrote it; 0: an ordinary store, or the group has been waited for */
    uint32_t group;
} tir_cell;

#define MANY UINT32_C(0xffffffff)           /* task: several */
#define LANE_REDUCTION UINT64_C(0x80000000) /* accessed by exact reductions only */
#define LANE_MANY UINT64_C(0x7fffffff)      /* iteration: several */

/* Memory that several buffers may share: overlapping arguments, the workspace, the local scratch; or one stack or reg
 * buffer. */
typedef struct tir_space {
    char *low;
    int64_t bytes;
    /* bytes per cell: divides sizes and addresses of all elements */
    int64_t unit;
    /* NULL: nothing here is ever written, or checks are off */
    tir_cell *cells;
    /* shared between tasks: races are possible */
    bool shared;
    /* initially poison */
    bool scratch;
    /* contents end with the task */
    bool per_task;
} tir_space;

enum { WORKSPACE_SPACE, LOCAL_SPACE, SHARED_SPACE, FIRST_ARGUMENT_SPACE };

typedef struct tir_placed {
    const tir_buffer *info;
    char *base;
    int64_t extent[16], stride[16];
    uint32_t space;
    /* of an element */
    int32_t size;
} tir_placed;

/* Groups of asynchronous stores of the task so far, from 1. All threads commit and wait together. */
typedef struct tir_async_groups {
    /* the group of current stores; the last group that was waited for */
    uint32_t open, done;
    /* by completed group, from 1: barriers of the block before the wait for it */
    lib_vec(uint32_t) blocks;
} tir_async_groups;

typedef struct tir_frame {
    const tir_program *program;
    const tir_kernel *kernel;
    lib_arena *arena;
    const tir_interpret_options *options;
    /* by slot */
    uint64_t *values;
    /* by slot: poison */
    uint8_t *taint;
    tir_placed *buffers;
    lib_vec(tir_space) spaces;
    /* being executed, for messages */
    const tir_step *step;
    /* phase run << 32 | task */
    uint64_t tag;
    uint32_t phase_run, task_run;
    /* run of the vec loop << 32 | iteration; 0: outside. Runs so far */
    uint64_t lane, lane_runs;
    /* in an interleave or a rows loop: that of its first lane, and number of its lanes so far; 0: in none */
    uint64_t group, grouped;
    /* current tag. block 0: the phase has no thread loops */
    tir_thread_tag thread;
    /* of a block of the phase */
    int64_t threads;
    /* values of the collective statement being executed; NULL: none was so far */
    struct tir_collective_values *collective;
    /* number of threads, from `thread` on, that execute the current statement alike */
    uint32_t alike;
    /* blocks and their barriers so far: each starts a new time for `thread` */
    uint32_t blocks;
    /* thread loops begun so far */
    uint32_t nests;
    /* barriers of each warp so far */
    uint32_t warps[THREAD_LIMIT / TIR_WARP];
    tir_async_groups async;
    /* instructions and stores since the last check; counted for tir_poll_report */
    int64_t since_poll;
    /* NULL: conflicts are not counted */
    tir_banks *banks;
    /* other calls ran before: the workspace's contents are unknown */
    bool partial;
} tir_frame;

/* interpret_place.c, after the frame has the parameters' values: sets the addresses of buffers, and allocates cells for the buffers whose
 * accesses are checked. */
void tir_place_buffers(tir_frame *f, void *const *arguments, char *workspace, char *local);
void tir_place_cells(tir_frame *f);
int64_t tir_compact_elements(tir_frame *f, const tir_placed *b);
char *tir_scratch_block(tir_frame *f, int64_t bytes);
int64_t tir_slot_bytes(const tir_frame *f, uint32_t slot); /* a size that the kernel computes; 0: none */

#endif
