/* What the files of libdlc's plug-in share: engine_dlc.c sessions, decode_dlc.c decoding, costs_dlc.c costs. */
#ifndef BENCH_MODELS_ENGINE_DLC_H
#define BENCH_MODELS_ENGINE_DLC_H

#include "bench/models/engine.h"

#include <dlc/onnx.h>

double engine_dlc_now(void);
/* A context at its best for the task's threads. */
dlc_context_options engine_dlc_options(const engine_task *task);
extern const engine_decoder engine_dlc_decoder;
int engine_dlc_cost(const char *name, const engine_task *tasks, int count, double numbers[ENGINE_MOST_NUMBERS],
                    char *message, size_t size);

#endif
