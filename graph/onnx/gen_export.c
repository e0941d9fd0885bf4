/* The operator reference's text on export: a sentence for each row of the operator table. */
#include "graph/onnx/export.h"
#include "graph/onnx/gen_reference.h"

#include <stdio.h>

void onnx_reference_export(const graph_op *op) {
    const char *why;
    const onnx_export_class class_ = onnx_export_class_of(op, &why);
    const onnx_export_row *row = onnx_export_row_of(op);
    if (class_ == ONNX_EXPORT_NONE)
        printf("not exported: %s", why);
    else if (class_ == ONNX_EXPORT_EXPANSION)
        printf("exported by its %s", op->expand ? "expansion" : "expression");
    else if (row->op)
        printf("exported as `%s`%s", row->op, row->fits ? " where that has this form" : "");
    else
        printf("exported");
}
