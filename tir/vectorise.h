/* A pass over loop IR: replaces each vec loop by lanes loops, one for each vector of its iterations (tir/loop.h). The pass
 * decides
 *   - the vectors' width, from the widest element that depends on the loop's variable; loops that are no vectors run one by one;
 *   - whether the vectors are emitted as copies or as a loop, because the code would be long;
 *   - how many vectors are interleaved, because each is a long chain of instructions;
 *   - which rows of a register tile share their last vectors (rows loops);
 *   - which statements under a condition that differs between lanes are executed under a mask without a branch, or get a copy without masks;
 *   - where masks are expensive, that a loop whose body runs below a constant only ends there;
 *   - how many iterations of a serial loop around a register tile are copies, because the loop's own instructions would be many;
 *   - which unrolled loops become serial ones after all, with the reg buffers that their variable indexes in memory (spill);
 *   - how stores are made whose lanes are a distance apart in memory (strided.h).
 * Code generation prints the result as instructions and decides none of these again. */
#ifndef TIR_VECTORISE_H
#define TIR_VECTORISE_H

#include "tir/loop.h"

/* The kernel without vec loops, in `arena`; it shares expressions and unchanged statements with `kernel`, which stays as it is and must live
 * as long. Its pool is a copy, with the same ids. Raises DLC_INTERNAL for a vec loop whose iterations depend on each other. */
tir_kernel *tir_vectorise(lib_arena *arena, const tir_kernel *kernel, const tir_machine *machine);

/* Is the serial loop one of several iterations of a register tile at a time, and its body the unrolled loop of these? */
bool tir_has_steps(const tir_stmt *loop);

#endif
