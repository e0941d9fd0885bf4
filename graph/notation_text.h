/* The texts of a notation, taken apart; what is left are expressions, whose text is read again where there are operands. Internal to
 * notation.c and notation_text.c. */
#ifndef GRAPH_NOTATION_TEXT_H
#define GRAPH_NOTATION_TEXT_H

#include "graph/notation.h"

typedef struct notation_dim { /* of a shape rule */
    const char *text;
    bool is_name;
} notation_dim;

typedef struct notation_tensor { /* T[..., n, k] */
    const char *dtype;
    bool leading;
    int rank; /* behind `...` */
    notation_dim dim[DLC_MAX_RANK];
} notation_tensor;

typedef struct notation_access { /* x[..., i, k]: found before anything is known of x */
    const char *tensor;
    bool leading;
    int count;                       /* of indices behind `...` */
    const char *index[DLC_MAX_RANK]; /* one name alone; else NULL */
} notation_access;

typedef struct notation_statement { /* out[..., i, j] = ... */
    const char *name;
    bool leading;
    int axes;
    const char *axis[DLC_MAX_RANK];
    const char *text; /* behind `=` */
    size_t length;
    const char *line_start; /* of the line that `text` begins on, and which that is: for messages */
    int line;
    lib_vec(notation_access) accesses;
} notation_statement;

struct graph_notation {
    bool has_shape;
    int operands, results;
    notation_tensor operand[DLC_MAX_RANK], result[DLC_MAX_RANK];
    int statements;
    notation_statement *statement;
};

/* Both raise DLC_PARSE_ERROR with line and column. Dimensions are of the operands' sizes before them and the op's attributes. */
void graph_notation_read_shape(lib_arena *arena, graph_notation *notation, const graph_op *op, const char *text);
void graph_notation_read_expression(lib_arena *arena, graph_notation *notation, const char *text);
bool graph_notation_accept_leading(lib_lexer *lexer); /* `...` */

#endif
