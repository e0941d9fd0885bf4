/* What generated operator functions (ops_api.c) hand to the builder. Apart from api.h so that they see public types
 * only. */
#ifndef GRAPH_API_CALL_H
#define GRAPH_API_CALL_H

#include <dlc/dlc.h>

/* One per attribute spec, zero: not given. Which members count is told by the spec's kind. */
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
    /* of the row */
    const char *name;
    /* rows that can have no operand; else NULL */
    dlc_graph *graph;
    /* fixed operands; a zeroed dlc_value is an operand left out */
    int inputs;
    const dlc_value *input;
    /* further operands of variadic rows */
    int more;
    const dlc_value *more_input;
    /* one per spec */
    const graph_api_attribute *attributes;
    /* what graph_api_options said */
    bool bad_options;
    /* room for results */
    int count;
    /* filled with poison after an error or when an operand is poison */
    dlc_value *results;
} graph_api_call;
void graph_api_emit(const graph_api_call *call);

/* Members of an options struct that an older caller does not know keep their defaults: copies struct_size bytes of
 * `from` over `to`, at most `size`. from NULL: nothing. False when struct_size was not set. */
bool graph_api_options(void *to, const void *from, size_t size);

#endif
