/* Interface of generated operator functions (ops_api.c) to the builder. Separate from api.h, so that they see public types only. */
#ifndef GRAPH_API_CALL_H
#define GRAPH_API_CALL_H

#include <dlc/dlc.h>

/* One per attribute spec, zero: not given. The spec's kind selects the members that are used. */
typedef struct graph_api_attribute {
    bool given;
    int64_t integer;
    double number;
    const char *string;
    int count;
    const int64_t *list;
    const dlc_dim *dims;
    dlc_graph *subgraph;
} graph_api_attribute;

/* One call of a generated function. */
typedef struct graph_api_call {
    /* the row's name */
    const char *name;
    /* for rows without operands; else NULL */
    dlc_graph *graph;
    /* fixed operands; a zeroed dlc_value is an omitted operand */
    int inputs;
    const dlc_value *input;
    /* further operands of variadic rows */
    int more;
    const dlc_value *more_input;
    /* one per spec */
    const graph_api_attribute *attributes;
    /* graph_api_options failed */
    bool bad_options;
    /* capacity of `results` */
    int count;
    /* filled with poison after an error or when an operand is poison */
    dlc_value *results;
} graph_api_call;
void graph_api_emit(const graph_api_call *call);

/* Options members that an older caller does not have keep their defaults: copies struct_size bytes of `from`, at most `size`,
 * over `to`. from NULL: copies nothing. False: struct_size was not set. */
bool graph_api_options(void *to, const void *from, size_t size);

#endif
