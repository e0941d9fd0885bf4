/* What is measured, with the sizes of inputs, as text: suite.txt, short.txt. */
#ifndef BENCH_MODELS_CASES_H
#define BENCH_MODELS_CASES_H

#include "bench/models/engine.h"

#include <stdio.h>

/* One model with one set of sizes. */
typedef struct model_case {
    /* of the file, without .onnx */
    char model[40];
    /* "standard", "odd", "quantised", "wheel" or "light": figures are about families */
    char family[16];
    /* "": a contest; otherwise another measurement (measures.c) */
    char measure[16];
    /* the sizes as text */
    char text[160];
    /* The model's first line: its first call is measured with these sizes. */
    bool first;
} model_case;

typedef struct model_cases {
    model_case *list;
    int count;
} model_cases;

/* Lines `MODEL FAMILY INPUT...`, or `- INPUT...` for further sizes of the model in the line before; `@MEASURE MODEL [INPUT...]`, where the model may
 * be -, for none. Empty lines and those that begin with # are skipped. False, with a line on stderr: the file cannot be read, or has a line of
 * another form. */
bool model_cases_read(model_cases *cases, const char *path);
void model_cases_free(model_cases *cases);

/* NAME=SIZES, NAME=TYPE:SIZES or NAME=TYPE:SIZES:CONTENT. TYPE as libdlc names it, f32, i64, i32 or bool; SIZES as 1x3x224, nothing for rank
 * 0; a size 1..200 begins with 1 and is one more for each `step`; CONTENT a number, which all elements have, or <N: whole numbers below N;
 * otherwise numbers in [-1, 1). Makes the tensors; their count, or -1: malformed, or no memory. */
int model_inputs_make(const char *text, int64_t step, engine_input inputs[ENGINE_MOST_INPUTS]);
/* Number of steps until all varying sizes have reached their end, at least 1. */
int64_t model_inputs_steps(const char *text);
void model_inputs_free(engine_input *inputs, int count);

#endif
