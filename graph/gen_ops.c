/* The generator: prints, from the operator table, the public headers of the operators (`header`, `cxx`), the functions behind
 * them (`source`) and the operator reference (`reference`). Built and run by make. print_header documents the functions of a row
 * and their parameters. */
#include "graph/op.h"
#ifdef DLC_ONNX
#include "graph/onnx/gen_reference.h"
#endif

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_public(const graph_op *op) {
    return op->structure != GRAPH_ARRIVES && op->structure != GRAPH_STORED;
}
static bool is_automatic(const graph_attribute_spec *spec) {
    return spec->initial && strcmp(spec->initial, "auto") == 0;
}
static bool is_list(const graph_attribute_spec *spec) {
    return spec->kind == GRAPH_ATTR_INTEGERS || spec->kind == GRAPH_ATTR_DIMS;
}

/* Is the attribute a parameter of the functions? Others are members of the options struct. */
static bool is_parameter(const graph_attribute_spec *spec) {
    return !spec->initial || strcmp(spec->name, "axis") == 0 || strcmp(spec->name, "axes") == 0;
}
static bool is_option(const graph_attribute_spec *spec) {
    return !is_parameter(spec) && !is_automatic(spec);
}

static bool has_options(const graph_op *op) {
    for (const graph_attribute_spec *spec = op->attribute; spec->name; spec++)
        if (is_option(spec)) return true;
    return false;
}

/* ---- names ----------------------------------------------------------------------------------------------------- */

/* Makes a parameter's name different from keywords of C and C++ and from the generated parameters. */
static const char *safe(const char *name, char buffer[64]) {
    static const char *const words[] = {"and",   "bool",     "case",   "class",    "default", "delete",  "do",
                                        "else",  "false",    "float",  "for",      "graph",   "if",      "int",
                                        "long",  "new",      "not",    "operator", "or",      "return",  "options",
                                        "short", "signed",   "static", "struct",   "this",    "true",    "union",
                                        "while", "unsigned", "void",   "template", "xor",     "results", "const"};
    snprintf(buffer, 64, "%s", name);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(name, words[i]) == 0) snprintf(buffer, 64, "%.62s_", name);
    return buffer;
}

static const char *upper(const char *name, char buffer[64]) {
    size_t i = 0;
    for (; name[i] && i < 63; i++) buffer[i] = (char)toupper((unsigned char)name[i]);
    buffer[i] = 0;
    return buffer;
}

/* Word i of the operand names without brackets and dots; false past the end. */
static bool operand_word(const graph_op *op, int i, char name[64]) {
    const char *word = op->operands ? op->operands : "";
    while (i-- > 0 && *word) {
        word += strcspn(word, " ");
        word += strspn(word, " ");
    }
    size_t length = 0;
    for (; *word && *word != ' '; word++)
        if (!strchr("[].", *word) && length < 63) name[length++] = *word;
    name[length] = 0;
    return length > 0;
}

static int operand_words(const graph_op *op) {
    char name[64];
    int count = 0;
    while (operand_word(op, count, name)) count++;
    return count;
}

static int fixed_operands(const graph_op *op) {
    return op->max_inputs < 0 ? operand_words(op) - 1 : op->max_inputs;
}

/* ---- parameters ------------------------------------------------------------------------------------------------ */

static void print_type(FILE *out, const graph_op *op, const graph_attribute_spec *spec) {
    switch (spec->kind) {
    case GRAPH_ATTR_INTEGER: fprintf(out, "int64_t "); break;
    case GRAPH_ATTR_FLOAT: fprintf(out, "double "); break;
    case GRAPH_ATTR_BOOL: fprintf(out, "bool "); break;
    case GRAPH_ATTR_DTYPE: fprintf(out, "dlc_dtype "); break;
    case GRAPH_ATTR_ENUM: fprintf(out, "dlc_%s_%s ", op->name, spec->name); break;
    case GRAPH_ATTR_STRING: fprintf(out, "const char *"); break;
    case GRAPH_ATTR_INTEGERS: fprintf(out, "const int64_t *"); break;
    case GRAPH_ATTR_DIMS: fprintf(out, "const dlc_dim *"); break;
    case GRAPH_ATTR_SUBGRAPH: fprintf(out, "dlc_graph *"); break;
    case GRAPH_ATTR_CONSTANT: break; /* only of `constant` */
    }
}

static void print_attribute_parameter(FILE *out, const graph_op *op, const graph_attribute_spec *spec,
                                      const char *separator) {
    char name[64];
    fprintf(out, "%s", separator);
    if (is_list(spec)) fprintf(out, "int %s_count, ", spec->name);
    print_type(out, op, spec);
    fprintf(out, "%s", safe(spec->name, name));
}

/* Prints the prototype of the function with options, or without. */
static void print_prototype(FILE *out, const graph_op *op, bool with) {
    char word[64], name[64];
    const char *separator = "";
    fprintf(out, "%s dlc_%s%s(", op->results == 1 ? "dlc_value" : "void", op->name, with ? "_with" : "");
    if (op->min_inputs == 0) fprintf(out, "dlc_graph *graph"), separator = ", ";
    for (int i = 0; i < fixed_operands(op); i++, separator = ", ")
        fprintf(out, "%sdlc_value %s", separator, operand_word(op, i, word) ? safe(word, name) : "x");
    if (op->max_inputs < 0) {
        operand_word(op, fixed_operands(op), word);
        fprintf(out, "%sint %s_count, const dlc_value *%s", separator, word, safe(word, name));
        separator = ", ";
    }
    for (const graph_attribute_spec *spec = op->attribute; spec->name; spec++)
        if (is_parameter(spec)) print_attribute_parameter(out, op, spec, separator), separator = ", ";
    if (with) fprintf(out, "%sconst dlc_%s_options *options", separator, op->name), separator = ", ";
    if (op->results != 1) fprintf(out, "%sint result_count, dlc_value *results", separator);
    fprintf(out, ")");
}

static void print_enumeration(FILE *out, const graph_op *op, const graph_attribute_spec *spec) {
    char row[64], attribute[64], word[64];
    fprintf(out, "typedef enum dlc_%s_%s {", op->name, spec->name);
    const char *choice = spec->choices, *separator = "";
    while (*choice) {
        size_t length = strcspn(choice, " ");
        char text[64];
        snprintf(text, sizeof text, "%.*s", (int)length, choice);
        fprintf(out, "%s DLC_%s_%s_%s", separator, upper(op->name, row), upper(spec->name, attribute),
                upper(text, word));
        separator = ",";
        choice += length;
        choice += strspn(choice, " ");
    }
    fprintf(out, " } dlc_%s_%s;\n", op->name, spec->name);
}

/* Prints a declaration with line breaks after commas. */
static void print_broken(const char *text) {
    size_t column = 0;
    while (*text) {
        size_t length = strcspn(text, ",");
        if (text[length]) length++;
        if (column && column + length > 108) {
            printf("\n   ");
            column = 3;
        }
        printf("%.*s", (int)length, text);
        column += length;
        text += length;
    }
}

/* Prints a prototype or an enumeration in lines of readable length. */
static void print_declaration(const graph_op *op, const graph_attribute_spec *enumeration, bool with) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out) return;
    if (enumeration)
        print_enumeration(out, op, enumeration);
    else
        print_prototype(out, op, with);
    fclose(out);
    print_broken(text);
    free(text);
}

static void print_rows(void (*print)(const graph_op *op)) {
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *op = *family; *op; op++)
            if (is_public(*op)) print(*op);
}

/* ---- header ---------------------------------------------------------------------------------------------------- */

/* Prints text as a comment wrapped at 110 columns. */
static void print_wrapped(const char *text, const char *indent, int column) {
    while (*text) {
        size_t length = strcspn(text, " \n");
        if (column + 1 + (int)length > 110 || *text == '\n') {
            printf("\n%s", indent);
            column = (int)strlen(indent);
        } else if (column > (int)strlen(indent)) {
            printf(" ");
            column++;
        }
        printf("%.*s", (int)length, text);
        column += (int)length;
        text += length;
        if (*text) text++;
    }
}

static const char *initial_text(const graph_attribute_spec *spec) {
    return *spec->initial ? spec->initial : "[]";
}

static void print_comment(const graph_op *op) {
    char name[64];
    printf("\n/* %s(%s):", op->name, op->operands ? op->operands : "");
    print_wrapped(op->doc ? op->doc : "", " * ", 30);
    for (const graph_attribute_spec *spec = op->attribute; spec->name; spec++) {
        if (!is_parameter(spec)) continue;
        printf("\n *   %s: %s", safe(spec->name, name), spec->doc ? spec->doc : "");
        if (spec->initial) printf(" (in texts %s by default)", initial_text(spec));
    }
    if (op->results > 1) printf("\n *   results: %d values", op->results);
    if (op->dtypes) printf("\n *   Element types: %s", op->dtypes);
    printf(" */\n");
}

static void print_initial(const graph_op *op, const graph_attribute_spec *spec) {
    char row[64], attribute[64], word[64];
    if (spec->kind == GRAPH_ATTR_DTYPE)
        printf("DLC_%s", upper(spec->initial, word));
    else if (spec->kind == GRAPH_ATTR_ENUM)
        printf("DLC_%s_%s_%s", upper(op->name, row), upper(spec->name, attribute), upper(spec->initial, word));
    else if (spec->kind == GRAPH_ATTR_STRING)
        printf("\"%s\"", spec->initial);
    else
        printf("%s", is_list(spec) ? "0, NULL" : spec->initial);
}

static void print_options(const graph_op *op) {
    char name[64], row[64];
    printf("typedef struct dlc_%s_options {\n    size_t struct_size;\n", op->name);
    for (const graph_attribute_spec *spec = op->attribute; spec->name; spec++) {
        if (!is_option(spec)) continue;
        printf("    /* ");
        print_wrapped(spec->doc ? spec->doc : "", "     * ", 7);
        printf(" (default %s) */\n    ", initial_text(spec));
        if (is_list(spec)) printf("int %s_count;\n    ", spec->name);
        print_type(stdout, op, spec);
        printf("%s;\n", safe(spec->name, name));
    }
    printf("} dlc_%s_options;\n#define DLC_%s_OPTIONS_INIT {sizeof(dlc_%s_options)", op->name, upper(op->name, row),
           op->name);
    for (const graph_attribute_spec *spec = op->attribute; spec->name; spec++)
        if (is_option(spec)) printf(", "), print_initial(op, spec);
    printf("}\n");
}

static void print_header_row(const graph_op *op) {
    print_comment(op);
    for (const graph_attribute_spec *spec = op->attribute; spec->name; spec++)
        if (spec->kind == GRAPH_ATTR_ENUM) print_declaration(op, spec, false);
    if (has_options(op)) print_options(op);
    for (int with = 0; with <= has_options(op); with++) {
        printf("DLC_API ");
        print_declaration(op, NULL, with);
        printf(";\n");
    }
}

static void print_header(void) {
    printf(
        "/* The operators of libdlc; generated from the operator table. Included by <dlc/dlc.h>.\n"
        " *\n"
        " * One rule for all of them. An operator has a function dlc_<name>, whose parameters are, in this order:\n"
        " *   - the graph, if the operator can be called without operands;\n"
        " *   - its operands; a variable number of them as (count, pointer). One in [brackets] may be left out: DLC_NONE;\n"
        " *   - its attributes that have no default, and `axis` or `axes`; lists as (count, pointer);\n"
        " *   - if it has not just one result: result_count, which is the number of its results, and `results`, which they\n"
        " *     are written to. One result is returned.\n"
        " * All other attributes are options. An operator that has any has a second function, dlc_<name>_with, which takes\n"
        " * a pointer to dlc_<name>_options behind the attributes. DLC_<NAME>_OPTIONS_INIT is such a struct with all\n"
        " * defaults, which dlc_<name> takes, and NULL stands for:\n"
        " *     dlc_reduce_sum_options keep = DLC_REDUCE_SUM_OPTIONS_INIT;\n"
        " *     keep.keep = true;\n"
        " *     dlc_value sums = dlc_reduce_sum_with(x, 1, (int64_t[]){-1}, &keep);\n"
        " * Attributes are copied. Operands of elementwise operators broadcast like NumPy's; dtypes are never converted.\n"
        " * dlc_dim in an attribute may hold an expression of symbols as its name, as dlc_value_dim gives it. */\n"
        "#ifndef DLC_OPS_H\n#define DLC_OPS_H\n\n"
        "#ifdef __cplusplus\n#define DLC_NONE (dlc_value{})\n#else\n#define DLC_NONE ((dlc_value){0})\n#endif\n");
}

/* ---- C++ ------------------------------------------------------------------------------------------------------- */

static void print_cxx_type(const graph_op *op, const graph_attribute_spec *spec, bool member) {
    switch (spec->kind) {
    case GRAPH_ATTR_INTEGER: printf("std::int64_t "); break;
    case GRAPH_ATTR_INTEGERS: printf(member ? "std::vector<std::int64_t> " : "list<std::int64_t> "); break;
    case GRAPH_ATTR_DIMS: printf(member ? "std::vector<dim> " : "list<dim> "); break;
    case GRAPH_ATTR_SUBGRAPH: printf("const graph_ref &"); break;
    default: print_type(stdout, op, spec);
    }
}

static void print_cxx_initial(const graph_op *op, const graph_attribute_spec *spec) {
    if (is_list(spec))
        printf("{}");
    else
        print_initial(op, spec);
}

static bool is_left_out(const graph_op *op, int operand) {
    const char *word = op->operands ? op->operands : "";
    for (; operand > 0 && *word; operand--) {
        word += strcspn(word, " ");
        word += strspn(word, " ");
    }
    return *word == '[';
}

static void print_cxx_options(const graph_op *op) {
    char name[64];
    printf("struct %s_options {\n", op->name);
    for (const graph_attribute_spec *spec = op->attribute; spec->name; spec++) {
        if (!is_option(spec)) continue;
        printf("    /* ");
        print_wrapped(spec->doc ? spec->doc : "", "     * ", 7);
        printf(" */\n    ");
        print_cxx_type(op, spec, true);
        printf("%s = ", safe(spec->name, name));
        print_cxx_initial(op, spec);
        printf(";\n");
    }
    printf("};\n");
}

/* NULL: all have one. */
static const graph_attribute_spec *last_without_default(const graph_op *op) {
    const graph_attribute_spec *last = NULL;
    for (const graph_attribute_spec *spec = op->attribute; spec->name; spec++)
        if (!spec->initial) last = spec;
    return last;
}

/* May this operand and all behind it be left out? */
static bool is_rest_left_out(const graph_op *op, int operand) {
    bool rest = true;
    for (int k = operand; k < fixed_operands(op); k++) rest = rest && is_left_out(op, k);
    return rest;
}

/* Does the parameter get a default argument? Not before result_count, or `last`, which has none. */
static bool has_cxx_default(const graph_op *op, const graph_attribute_spec *spec, const graph_attribute_spec *last) {
    return op->results >= 0 && spec->initial && (!last || spec >= last);
}

/* Trailing parameters that have a default in the table, or are optional, get a default argument. */
static void print_cxx_parameters(const graph_op *op) {
    char word[64], name[64];
    const char *separator = "";
    const int fixed = fixed_operands(op);
    const graph_attribute_spec *last = last_without_default(op);
    const bool open = op->results >= 0 && op->max_inputs >= 0;
    if (op->min_inputs == 0) printf("const graph_ref &graph"), separator = ", ";
    for (int i = 0; i < fixed; i++, separator = ", ") {
        const bool rest = open && !last && is_rest_left_out(op, i);
        printf("%sconst value &%s%s", separator, operand_word(op, i, word) ? safe(word, name) : "x",
               rest ? " = {}" : "");
    }
    if (op->max_inputs < 0 && operand_word(op, fixed, word))
        printf("%slist<value> %s", separator, safe(word, name)), separator = ", ";
    for (const graph_attribute_spec *spec = op->attribute; spec->name; spec++) {
        if (!is_parameter(spec)) continue;
        printf("%s", separator), separator = ", ";
        print_cxx_type(op, spec, false);
        printf("%s", safe(spec->name, name));
        if (!has_cxx_default(op, spec, last)) continue;
        printf(" = ");
        print_cxx_initial(op, spec);
    }
    if (op->results < 0) printf("%sint result_count", separator), separator = ", ";
    if (has_options(op)) printf("%sconst %s_options &options = {}", separator, op->name);
}

static void print_cxx_arguments(const graph_op *op) {
    char word[64], name[64];
    const char *separator = "";
    if (op->min_inputs == 0) printf("graph"), separator = ", ";
    for (int i = 0; i < fixed_operands(op); i++, separator = ", ")
        printf("%s%s", separator, operand_word(op, i, word) ? safe(word, name) : "x");
    if (op->max_inputs < 0 && operand_word(op, fixed_operands(op), word))
        printf("%s%s.count(), %s.data()", separator, safe(word, name), name), separator = ", ";
    for (const graph_attribute_spec *spec = op->attribute; spec->name; spec++) {
        if (!is_parameter(spec)) continue;
        printf("%s%s%s", separator, safe(spec->name, name), is_list(spec) ? ".count(), " : ""), separator = ", ";
        if (is_list(spec)) printf("%s.data()", name);
    }
    if (has_options(op)) printf("%s&options_", separator), separator = ", ";
    if (op->results < 0) printf("%sresult_count, results_.data()", separator);
    if (op->results > 1) printf("%s%d, results_.data()", separator, op->results);
}

static void print_cxx_row(const graph_op *op) {
    char name[64], row[64];
    print_comment(op);
    if (has_options(op)) print_cxx_options(op);
    if (op->results > 1)
        printf("inline std::array<value, %d> ", op->results);
    else
        printf("inline %s ", op->results < 0 ? "std::vector<value>" : "value");
    printf("%s(", safe(op->name, name));
    print_cxx_parameters(op);
    printf(") {\n");
    if (has_options(op)) printf("    dlc_%s_options options_ = DLC_%s_OPTIONS_INIT;\n", op->name, upper(op->name, row));
    for (const graph_attribute_spec *spec = op->attribute; spec->name; spec++) {
        if (!is_option(spec)) continue;
        if (is_list(spec))
            printf(
                "    options_.%s_count = static_cast<int>(options.%s.size());\n    options_.%s = options.%s.data();\n",
                spec->name, safe(spec->name, name), name, name);
        else
            printf("    options_.%s = options.%s;\n", safe(spec->name, name), name);
    }
    if (op->results > 1) printf("    std::array<value, %d> results_;\n", op->results);
    if (op->results < 0) printf("    std::vector<value> results_(static_cast<std::size_t>(result_count));\n");
    printf("    %sdlc_%s%s(", op->results == 1 ? "return " : "", op->name, has_options(op) ? "_with" : "");
    print_cxx_arguments(op);
    printf(");\n%s}\n", op->results == 1 ? "" : "    return results_;\n");
}

static void print_cxx(void) {
    printf(
        "/* The operators of libdlc for C++; generated from the operator table. Included by <dlc/dlc.hpp>.\n"
        " *\n"
        " * dlc::<name> takes what dlc_<name> takes, in its order, then a struct of options, whose members have the\n"
        " * defaults; operands that may be left out are dlc::value{}. Names that C++ has otherwise end in _: dlc::not_.\n"
        " * One result is returned as a value, several as an array, a variable number, result_count, as a vector. */\n"
        "#ifndef DLC_OPS_HPP\n#define DLC_OPS_HPP\n\n#include <dlc/dlc.hpp>\n\nnamespace dlc {\n");
    print_rows(print_cxx_row);
    printf("\n} // namespace dlc\n\n#endif\n");
}

/* ---- source ---------------------------------------------------------------------------------------------------- */

static void print_attribute_value(const graph_attribute_spec *spec) {
    char name[64], from[80];
    bool option = is_option(spec);
    snprintf(from, sizeof from, "%s%s", option ? "options_." : "", safe(spec->name, name));
    const char *prefix = option ? "options_." : "";
    printf("        {");
    switch (spec->kind) {
    case GRAPH_ATTR_FLOAT: printf(".given = true, .number = %s", from); break;
    case GRAPH_ATTR_STRING: printf(".given = %s != NULL, .string = %s", from, from); break;
    case GRAPH_ATTR_INTEGERS:
    case GRAPH_ATTR_DIMS:
        if (spec->initial)
            printf(".given = %s != NULL || %s%s_count != 0, ", from, prefix, spec->name);
        else
            printf(".given = true, ");
        printf(".count = %s%s_count, .%s = %s", prefix, spec->name, spec->kind == GRAPH_ATTR_DIMS ? "dims" : "list",
               from);
        break;
    case GRAPH_ATTR_SUBGRAPH: printf(".given = true, .subgraph = %s", from); break;
    default: printf(".given = true, .integer = %s", from); break;
    }
    printf("},\n");
}

static void print_operand_array(const graph_op *op) {
    char word[64], name[64];
    printf("    const dlc_value operands_[] = {");
    for (int i = 0; i < fixed_operands(op); i++)
        printf("%s%s", i ? ", " : "", operand_word(op, i, word) ? safe(word, name) : "x");
    printf("};\n");
}

static void print_attribute_array(const graph_op *op) {
    printf("    const graph_api_attribute attributes_[] = {\n");
    for (const graph_attribute_spec *spec = op->attribute; spec->name; spec++) {
        if (is_automatic(spec))
            printf("        {0},\n");
        else
            print_attribute_value(spec);
    }
    printf("    };\n");
}

/* The row's main function: with options, if there are any. */
static void print_function(const graph_op *op) {
    char word[64], name[64], row[64];
    int fixed = fixed_operands(op);
    printf("\n");
    print_declaration(op, NULL, has_options(op));
    printf(" {\n");
    if (op->results == 1) printf("    dlc_value value_;\n");
    if (has_options(op))
        printf("    dlc_%s_options options_ = DLC_%s_OPTIONS_INIT;\n"
               "    bool ok_ = graph_api_options(&options_, options, sizeof options_);\n",
               op->name, upper(op->name, row));
    if (fixed > 0) print_operand_array(op);
    if (op->attribute[0].name) print_attribute_array(op);
    printf("    graph_api_emit(&(graph_api_call){\n        .name = \"%s\",\n", op->name);
    if (op->min_inputs == 0) printf("        .graph = graph,\n");
    if (fixed > 0) printf("        .inputs = %d,\n        .input = operands_,\n", fixed);
    if (op->max_inputs < 0 && operand_word(op, fixed, word))
        printf("        .more = %s_count,\n        .more_input = %s,\n", word, safe(word, name));
    if (op->attribute[0].name) printf("        .attributes = attributes_,\n");
    if (has_options(op)) printf("        .bad_options = !ok_,\n");
    if (op->results == 1)
        printf("        .count = 1,\n        .results = &value_});\n    return value_;\n}\n");
    else
        printf("        .count = result_count,\n        .results = results});\n}\n");
}

/* The function without options, as a call of the one with them. */
static void print_short_function(const graph_op *op) {
    char word[64], name[64];
    const char *separator = "";
    printf("\n");
    print_declaration(op, NULL, false);
    printf(" {\n    %sdlc_%s_with(", op->results == 1 ? "return " : "", op->name);
    if (op->min_inputs == 0) printf("graph"), separator = ", ";
    for (int i = 0; i < fixed_operands(op); i++, separator = ", ")
        printf("%s%s", separator, operand_word(op, i, word) ? safe(word, name) : "x");
    if (op->max_inputs < 0 && operand_word(op, fixed_operands(op), word))
        printf("%s%s_count, %s", separator, word, safe(word, name)), separator = ", ";
    for (const graph_attribute_spec *spec = op->attribute; spec->name; spec++) {
        if (!is_parameter(spec)) continue;
        printf("%s", separator);
        if (is_list(spec)) printf("%s_count, ", spec->name);
        printf("%s", safe(spec->name, name)), separator = ", ";
    }
    printf("%sNULL%s);\n}\n", separator, op->results == 1 ? "" : ", result_count, results");
}

static void print_source_row(const graph_op *op) {
    print_function(op);
    if (has_options(op)) print_short_function(op);
}

/* ---- reference ------------------------------------------------------------------------------------------------- */

/* In the order of the classes (op.h). */
static const struct {
    const char *title, *doc;
} sections[] = {
    {"Sources", "No tensor operands."},
    {"Maps", "Elementwise. Operands broadcast as NumPy's do; dtypes are never converted."},
    {"Moves", "Each element of the result is an element of an operand, or a fill."},
    {"Reductions", "Also windows, cumulative sums and positions of extremes."},
    {"Contractions", "Sums of products: contraction and convolution."},
    {"Updates", "Elements written where data says."},
    {"Host functions", "Called with compact tensors; a region of its own."},
    {"Control flow",
     "Sub-graphs take operands in order. What the builder makes may use values of enclosing graphs inside, which become operands; in the "
     "text form they are given as operands."},
    {"Composites", "Defined by what they expand to."},
};

static void print_reference_index(void) {
    printf(
        "# Operators\n\nGenerated from the operator table: the definitions that the tests hold every target to. Where a source is "
        "named (StableHLO, CHLO, ONNX, NumPy, PyTorch, JAX, papers), the definition follows it but for what is said.\n\n"
        "- **Element types** are those of the operands written T in the samples: `bool`, `int` (i8 to i64, u8 to u64), `float` (f16, "
        "bf16, f32, f64 and the floats of 8 bits f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz), `number` (int and float), `any` "
        "(number and bool), `all` (any, c64, i4, u4, i2, u2, f4e2m1, f8e8m0), or single ones. Operands written with a type have that one; T is one type "
        "in one call. Nothing is converted implicitly: `cast` does it.\n"
        "- **Operands** in [brackets] may be left out (`DLC_NONE`, in the text form `_`); all others are required.\n"
        "- **Attributes** are copied by the call. Axes count from 0; negative ones count from the end. In C, attributes without a "
        "default, `axis` and `axes` are parameters; all others are members of `dlc_<name>_options`, which `dlc_<name>_with` takes. "
        "Lists that are left out take their default. Dimensions (`dlc_dim`) may hold symbols where it is said that they are dimensions.\n"
        "- **Results** are values of the graph that the operands are of; functions of several results write them to "
        "`results[result_count]`, in the order told; result_count is their number. A mistake gives values that are not ok, and its "
        "message with `dlc_compile`.\n"
        "- **NaN**: arithmetic gives NaN for NaN; what orders or compares says what it does with it. f16, bf16 and floats of 8 bits "
        "compute in f32 within an operator and round once, where nothing else is said.\n"
        "- **Gradient**: `by rule`, `linear` (in some of the operands, the others held) or `by expansion` into other operators; `none`: results are "
        "integers, bools, bits or steps, or depend on no number; or why there is none, and what to use instead.\n"
        "- **Samples** are in the text form of graphs; each runs on every target in the tests. `in a..b` limits the test's numbers, with `special` zeros and others of that range are among them.\n");
    for (size_t class_ = 0; class_ < sizeof sections / sizeof *sections; class_++) {
        printf("\n**%s**", sections[class_].title);
        for (const graph_op *const *const *family = graph_op_families; *family; family++)
            for (const graph_op *const *op = *family; *op; op++)
                if ((*op)->class_ == (graph_class)class_) printf(" [%s](#%s)", (*op)->name, (*op)->name);
        printf("\n");
    }
}

/* In which way the row differentiates (graph/gradient.h); NULL: in none. */
static const char *gradient_text(const graph_op *op) {
    if (op->flat) return "none";
    if (op->refused) return op->refused;
    if ((op->linear || op->jointly) && !op->jvp) return "linear";
    if (op->vjp || op->jvp || op->partial || graph_op_has_scalar(op)) return "by rule";
    return op->expand ? "by expansion" : NULL;
}

/* Prints the row's `accuracy`, as test/conformance/accuracy measures it. Rows without it are exact, or their doc states the error. */
static void print_accuracy(const graph_op *op) {
    const graph_accuracy *a = &op->accuracy;
    if (a->f32 == 0) return;
    printf(" Largest error, in units in the last place of the exact result");
    if (a->least > 0) printf(", or of %g where that is larger", a->least);
    printf(": %g in f32, %g in f64; narrower floats are computed in f32 and rounded.", a->f32, a->f64);
}

static void print_reference_attributes(const graph_op *op) {
    char name[64];
    if (op->attribute[0].name) printf("\n| attribute | default | meaning |\n|---|---|---|\n");
    for (const graph_attribute_spec *spec = op->attribute; spec->name; spec++)
        printf("| %s | %s | %s%s%s |\n", safe(spec->name, name),
               spec->initial ? (*spec->initial ? spec->initial : "[]") : "required", spec->doc ? spec->doc : "",
               spec->choices ? "; one of: " : "", spec->choices ? spec->choices : "");
}

static void print_reference_row(const graph_op *op) {
    printf("\n### %s\n\n", op->name);
    if (is_public(op)) {
        printf("```c\n");
        for (int with = 0; with <= has_options(op); with++) {
            print_declaration(op, NULL, with);
            printf(";\n");
        }
        printf("```\n\n");
    }
    printf("%s\n\n", op->doc ? op->doc : "");
    if (op->aliases) printf("Also found as: %s.\n\n", op->aliases);
    printf("Element types: %s.", op->dtypes ? op->dtypes : "any");
    if (op->operands && *op->operands) printf(" Operands: `%s`.", op->operands);
    printf(" Gradient: %s.", gradient_text(op));
    if (op->precision == GRAPH_NARROW) printf(" Mixed precision: products are narrow.");
    if (op->precision == GRAPH_FOLLOWS) printf(" Mixed precision: narrow where only products read the result.");
    print_accuracy(op);
    printf("\n");
    print_reference_attributes(op);
#ifdef DLC_ONNX
    onnx_reference_row(op);
#endif
    if (op->samples) printf("\n```\n%s%s```\n", op->samples, op->samples[strlen(op->samples) - 1] == '\n' ? "" : "\n");
}

static void print_reference(void) {
    print_reference_index();
    for (size_t class_ = 0; class_ < sizeof sections / sizeof *sections; class_++) {
        printf("\n## %s\n\n%s\n", sections[class_].title, sections[class_].doc);
        for (const graph_op *const *const *family = graph_op_families; *family; family++)
            for (const graph_op *const *op = *family; *op; op++)
                if ((*op)->class_ == (graph_class)class_) print_reference_row(*op);
    }
#ifdef DLC_ONNX
    onnx_reference_operators();
#endif
}

/* ---- name clashes -------------------------------------------------------------------------------------- */

static char *read_text(const char *path) {
    FILE *file = fopen(path, "r");
    size_t length = 0, room = 1 << 20;
    char *text = file ? malloc(room + 1) : NULL;
    if (!text) {
        fprintf(stderr, "gen_ops: %s cannot be read\n", path);
        exit(1);
    }
    for (size_t got; (got = fread(text + length, 1, room - length, file)) > 0;) {
        length += got;
        if (length == room && !(text = realloc(text, (room *= 2) + 1))) exit(1);
    }
    text[length] = 0;
    fclose(file);
    return text;
}

/* Replaces comments by spaces. */
static void blank_comments(char *text) {
    for (char *at = text; *at; at++) {
        const char *end = at[0] == '/' && at[1] == '*' ? "*/" : at[0] == '/' && at[1] == '/' ? "\n" : NULL;
        if (!end) continue;
        const char *stop = strstr(at + 2, end);
        size_t length = stop ? (size_t)(stop - at) + strlen(end) : strlen(at);
        memset(at, ' ', length);
        at += length - 1;
    }
}

static bool has_word(const char *text, const char *word) {
    const size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += length) {
        const bool inside = at > text && (isalnum((unsigned char)at[-1]) || at[-1] == '_');
        if (!inside && !isalnum((unsigned char)at[length]) && at[length] != '_') return true;
    }
    return false;
}

/* Reports the names generated for a row that the header at `path` also declares; returns their number. */
static int check_row(const graph_op *op, const char *path, const char *text) {
    static const char *const endings[] = {"", "_with", "_options"};
    int taken = 0;
    char word[256];
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        snprintf(word, sizeof word, "dlc_%s%s", op->name, endings[i]);
        if (!is_public(op) || (i && !has_options(op)) || !has_word(text, word)) continue;
        fprintf(stderr, "gen_ops: the row `%s` would declare %s, which %s has already: rename the row\n", op->name,
                word, path);
        taken++;
    }
    for (const graph_attribute_spec *spec = op->attribute; spec->name; spec++) {
        snprintf(word, sizeof word, "dlc_%s_%s", op->name, spec->name);
        if (!is_public(op) || spec->kind != GRAPH_ATTR_ENUM || !has_word(text, word)) continue;
        fprintf(stderr, "gen_ops: the row `%s` would declare %s, which %s has already: rename its attribute `%s`\n",
                op->name, word, path, spec->name);
        taken++;
    }
    return taken;
}

/* Checks that a name or alias identifies one row. */
static int check_aliases(const graph_op *op) {
    int wrong = 0;
    const char *word;
    for (int i = 0; graph_op_alias(op, i, &word); i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)graph_op_alias(op, i, &word), word);
        const graph_op *found = graph_op_find(name), *alike = graph_op_find_alias(name);
        if (i == 0 ? found == op && alike == op : !found && alike == op) continue;
        fprintf(stderr, "gen_ops: the row `%s` is called %s, as the row `%s` is\n", op->name, name,
                found && found != op ? found->name : alike->name);
        wrong++;
    }
    return wrong;
}

static int check_gradient(const graph_op *op) {
    if (gradient_text(op)) return 0;
    fprintf(
        stderr,
        "gen_ops: the row `%s` does not differentiate: it needs a rule, GRAPH_NO_GRADIENT or `refused`, with the reason and what to use "
        "instead\n",
        op->name);
    return 1;
}

static int check_names(int count, char **paths) {
    int wrong = 0;
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row; row++) wrong += check_aliases(*row) + check_gradient(*row);
    for (int i = 0; i < count; i++) {
        char *text = read_text(paths[i]);
        blank_comments(text);
        for (const graph_op *const *const *family = graph_op_families; *family; family++)
            for (const graph_op *const *row = *family; *row; row++) wrong += check_row(*row, paths[i], text);
        free(text);
    }
    return wrong ? 1 : 0;
}

int main(int count, char **arguments) {
    const char *wanted = count == 2 ? arguments[1] : "";
    if (count > 2 && strcmp(arguments[1], "names") == 0) return check_names(count - 2, arguments + 2);
    if (strcmp(wanted, "header") == 0) {
        print_header();
        print_rows(print_header_row);
        printf("\n#endif\n");
    } else if (strcmp(wanted, "cxx") == 0) {
        print_cxx();
    } else if (strcmp(wanted, "source") == 0) {
        printf("/* The operators' public functions; generated from the operator table. */\n"
               "#include \"graph/api_call.h\"\n");
        print_rows(print_source_row);
    } else if (strcmp(wanted, "reference") == 0) {
        print_reference();
    } else {
        fprintf(stderr, "usage: gen_ops header|cxx|source|reference, gen_ops names HEADER...\n");
        return 2;
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
