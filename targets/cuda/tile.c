/* Collective statements in CUDA C: a call of a helper of the prelude, which is one instruction, with the registers of this lane. Their
 * indices are the same for all lanes (tir/registers.h), so lane 0's elements determine them. Pairs of two-byte elements share a 32-bit
 * register: they are adjacent if the layout makes them so, otherwise they are combined. */
#include "targets/cuda/emit.h"

static const char prelude[] = "/* instructions of a warp; two elements of two bytes in each u32, the first one low */\n"
                              "HELPER u32 pair_of(u16 low, u16 high) { return u32(low) | u32(high) << 16; }\n"
#define MMA(name, type)                                                                                                             \
    "HELPER void mma_m16n8k16_" name                                                                                                \
    "(float &c0, float &c1, float &c2, float &c3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {\n"                              \
    "  asm(\"mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                                                  \
    ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\"\n"                                                                \
    "      : \"+f\"(c0), \"+f\"(c1), \"+f\"(c2), \"+f\"(c3) : \"r\"(a0), \"r\"(a1), \"r\"(a2), \"r\"(a3), \"r\"(b0), \"r\"(b1));\n" \
    "}\n"
    MMA("bf16", "bf16") MMA("f16", "f16")
#undef MMA
        "HELPER u32 shared_address(const void *p) { return u32(__cvta_generic_to_shared(p)); }\n"
#define LDMATRIX(suffix, qualifier)                                                                    \
    "HELPER void ldmatrix_x1" suffix "(u32 &r0, const void *row) {\n"                                  \
    "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x1" qualifier                                         \
    ".shared.b16 {%0}, [%1];\" : \"=r\"(r0) : \"r\"(shared_address(row)));\n"                          \
    "}\n"                                                                                              \
    "HELPER void ldmatrix_x2" suffix "(u32 &r0, u32 &r1, const void *row) {\n"                         \
    "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x2" qualifier ".shared.b16 {%0,%1}, [%2];\"\n"        \
    "               : \"=r\"(r0), \"=r\"(r1) : \"r\"(shared_address(row)));\n"                         \
    "}\n"                                                                                              \
    "HELPER void ldmatrix_x4" suffix "(u32 &r0, u32 &r1, u32 &r2, u32 &r3, const void *row) {\n"       \
    "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4" qualifier ".shared.b16 {%0,%1,%2,%3}, [%4];\"\n"  \
    "               : \"=r\"(r0), \"=r\"(r1), \"=r\"(r2), \"=r\"(r3) : \"r\"(shared_address(row)));\n" \
    "}\n"
    LDMATRIX("", "") LDMATRIX("_trans", ".trans")
#undef LDMATRIX
    ;

void print_tile_prelude(lib_text *text) {
    lib_text_add(text, prelude);
}

static void element_index(emitter *e, const tir_stmt *stmt, int place, int number, tir_expr *index) {
    const tir_place *at = &stmt->collective.place[place];
    int point[TIR_UNIT_VARS];
    tir_expr value[TIR_UNIT_VARS];
    tir_fragment_point(stmt->collective.unit, place, 0, number, point);
    for (int v = 0; v < TIR_UNIT_VARS; v++) value[v] = tir_index(e->pool, point[v]);
    for (int d = 0; d < at->rank; d++)
        index[d] = tir_substitute(e->pool, at->index[d], TIR_UNIT_VARS, stmt->collective.var, value);
}

/* Index, in a lane's own array, of element `number` of operand `place`. */
static tir_expr element_place(emitter *e, const tir_stmt *stmt, int place, int number) {
    tir_expr index[16];
    element_index(e, stmt, place, number, index);
    return print_register_place(e, stmt->collective.place[place].buffer, index);
}

/* Text of elements 2n and 2n + 1 of operand `place` as one 32-bit register. */
static const char *pair_text(emitter *e, const tir_stmt *stmt, int place, int n, bool written) {
    tir_expr low = element_place(e, stmt, place, 2 * n), high = element_place(e, stmt, place, 2 * n + 1);
    const char *array = e->buffer[stmt->collective.place[place].buffer];
    int64_t number;
    bool even = tir_is_const(e->pool, low, &number) ? number % 2 == 0 : tir_multiple_of(e->pool, low) % 2 == 0;
    if (tir_sub(e->pool, high, low) == tir_index(e->pool, 1) && even)
        return lib_arena_format(e->arena, "*(u32 *)&%s[%s]", array, print_value(e, low));
    if (written) print_unsupported(e, "%s: pairs of %s do not lie side by side", stmt->collective.unit->name, array);
    const char *first = print_value(e, low);
    return lib_arena_format(e->arena, "pair_of(%s[%s], %s[%s])", array, first, array, print_value(e, high));
}

static void add_registers(emitter *e, lib_text *call, const tir_stmt *stmt, int place) {
    const tir_dtype dtype = (tir_dtype)e->kernel->buffers.data[stmt->collective.place[place].buffer].dtype;
    const int count = tir_fragment_registers(stmt->collective.unit, place);
    const bool pairs = lib_dtype_size((dlc_dtype)dtype) == 2;
    const char *array = e->buffer[stmt->collective.place[place].buffer];
    for (int n = 0; n < (pairs ? count / 2 : count); n++) {
        lib_text_add(call, call->data[call->length - 1] == '(' ? "" : ", ");
        lib_text_add(call, pairs ? pair_text(e, stmt, place, n, place == 0)
                                 : lib_arena_format(e->arena, "%s[%s]", array,
                                                    print_value(e, element_place(e, stmt, place, n))));
    }
}

/* The row address that each lane gives to ldmatrix: row lane % 8 of matrix lane / 8; lanes beyond the last matrix repeat some. */
static const char *row_address(emitter *e, const tir_stmt *stmt) {
    const tir_place *at = &stmt->collective.place[1];
    const int matrices = 1 << stmt->collective.unit->bits[0];
    const tir_expr zero = tir_index(e->pool, 0);
    tir_expr index[16];
    const char *lanes[] = {lib_arena_format(e->arena, "tid / 8 %% %d", matrices), "tid % 8"};
    for (int v = 0; v < 2; v++) {
        const tir_expr var = stmt->collective.var[v];
        const char *name = print_name(e, tir_variable_of(e->pool, var)->name);
        e->variable[tir_var_id(e->pool, var)] = name;
        print_line(e, "const int %s = %s;", name, lanes[v]);
    }
    for (int d = 0; d < at->rank; d++)
        index[d] = tir_substitute(e->pool, at->index[d], 1, &stmt->collective.var[2], &zero);
    const char *offset = print_value(e, print_offset(e, at->buffer, at->rank, index));
    return lib_arena_format(e->arena, "&%s", print_element(e, at->buffer, offset));
}

void print_collective(emitter *e, const tir_stmt *stmt) {
    const tir_unit *unit = stmt->collective.unit;
    lib_text call;
    lib_text_init(&call, e->arena);
    for (const char *c = unit->name; *c; c++) lib_text_format(&call, "%c", *c == '.' ? '_' : *c);
    lib_text_add(&call, "(");
    print_line(e, "{");
    e->indent++;
    for (int place = 0; place < unit->places; place++) {
        if (unit->place[place].memory)
            lib_text_format(&call, ", %s", row_address(e, stmt));
        else
            add_registers(e, &call, stmt, place);
    }
    print_line(e, "%s);", call.data);
    print_forget(e);
    e->indent--;
    print_line(e, "}");
}
