/* Random kernels: nests of serial, unrolled and vec loops around REG, STACK and argument buffers, with branches that
 * are uniform or differ from lane to lane. What the verifier or the interpreter refuses is skipped; the rest must agree
 * bit for bit. DLC_SEED picks the first kernel, DLC_TEST_KERNELS their number. */
#include "random.h"
#include "test/cpu/kernel_check.h"
#include "test/share.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct writer {
    char text[16384];
    size_t length;
    uint64_t state;
    /* of the loops around: i < rows, j < columns, k < depth */
    int rows, columns, depth;
    bool in_i, in_j, in_k;
    /* the kernel's one reduction over lanes; two into one place would depend on order */
    bool maximum;
    int statements;
} writer;

static int pick(writer *w, int count) {
    return (int)((test_random(&w->state) >> 33) % (uint64_t)count);
}

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(w->text + w->length, sizeof w->text - w->length, format, arguments);
    va_end(arguments);
    assert_true(n >= 0 && (size_t)n < sizeof w->text - w->length);
    w->length += (size_t)n;
}

static const char *row(writer *w) {
    static const char *const rows[] = {"p", "p + i", "p*3 + i", "k", "i", "p + 2", "min(p + k, 15)"};
    int which = pick(w, 7);
    if (!w->in_i && (which == 1 || which == 2 || which == 4)) return "p";
    if (!w->in_k && (which == 3 || which == 6)) return "p";
    return rows[which];
}

static const char *column(writer *w) {
    static const char *const columns[] = {"j",   "j", "j", "j*2",   "47 - j",       "(j + 5)%48",
                                          "j/3", "3", "k", "j + k", "(p*48 + j)%48"};
    int which = pick(w, 11);
    if (!w->in_j) return w->in_k && pick(w, 2) ? "k" : "7";
    if (!w->in_k && (which == 8 || which == 9)) return "j";
    return columns[which];
}

static void value(writer *w, int levels);

static void condition(writer *w) {
    switch (pick(w, w->in_j ? 7 : 3)) {
    case 0: put(w, "p < %d", pick(w, 4)); break;
    case 1: put(w, w->in_k ? "k < %d" : "p == %d", pick(w, 5)); break;
    case 2: put(w, "n[%s, %d] < %d:i32", "p", pick(w, 48), pick(w, 6)); break;
    case 3: put(w, "j < %d", pick(w, 40)); break;
    case 4: put(w, "p*7 + j < %d", pick(w, 60)); break;
    case 5: put(w, "n[p, j] < %d:i32", pick(w, 6)); break;
    case 6:
        value(w, 0);
        put(w, " < ");
        value(w, 0);
        break;
    }
}

static void value(writer *w, int levels) {
    if (levels == 0 || pick(w, 4) == 0) {
        switch (pick(w, 6)) {
        case 0: put(w, "%d.5:f32", pick(w, 5)); break;
        case 1:
        case 2: put(w, "x[%s, %s]", row(w), column(w)); break;
        case 3: put(w, w->in_i && w->in_j ? "r[i, j]" : w->in_j ? "r[0, j]" : w->in_i ? "r[i, 0]" : "r[0, 3]"); break;
        case 4: put(w, "cast.f32(n[%s, %s])", row(w), column(w)); break;
        case 5:
            put(w, "x[%s, %s where ", row(w), column(w));
            condition(w);
            put(w, " else 2:f32]");
            break;
        }
        return;
    }
    static const char *const calls[] = {"max", "min", "fma", "select", "+", "*", "-"};
    const char *call = calls[pick(w, 7)];
    if (strlen(call) == 1) {
        put(w, "(");
        value(w, levels - 1);
        put(w, " %s ", call);
        value(w, levels - 1);
        put(w, ")");
        return;
    }
    put(w, "%s(", call);
    if (strcmp(call, "select") == 0)
        condition(w);
    else
        value(w, levels - 1);
    put(w, ", ");
    value(w, levels - 1);
    if (call[0] == 'f' || call[0] == 's') {
        put(w, ", ");
        value(w, levels - 1);
    }
    put(w, ")");
}

static void statement(writer *w, int levels);

static void list(writer *w, int levels) {
    put(w, "{\n");
    for (int count = 1 + pick(w, 2); count > 0; count--) statement(w, levels);
    put(w, "}\n");
}

static void store(writer *w) {
    switch (pick(w, 6)) {
    case 5: put(w, "t[%s, p*4 + %s] = ", w->in_j ? "j" : "1", w->in_i ? "i" : "0"); break;
    case 0: put(w, "y[p*%d + %s, %s] = ", w->rows, w->in_i ? "i" : "0", w->in_j ? "j" : "1"); break;
    case 1: put(w, "s[%s] = ", w->in_j ? "j" : "2"); break;
    case 2:
        if (w->in_j) {
            put(w, "m[0] = %s(m[0], ", w->maximum ? "max" : "min");
            value(w, 1);
            put(w, ")\n");
            return;
        }
        put(w, "m[0] = ");
        break;
    default: put(w, "r[%s, %s] = ", w->in_i ? "i" : "0", w->in_j ? "j" : "0"); break;
    }
    value(w, 3);
    put(w, "\n");
}

static void loop(writer *w, int levels) {
    int which = pick(w, 3);
    if (which == 0 && !w->in_i) {
        w->in_i = true;
        put(w, "for i in 0..%d unroll ", w->rows);
        list(w, levels);
        w->in_i = false;
    } else if (which == 1 && !w->in_k) {
        static const char *const ends[] = {"3", "p", "min(p, 2)", "1", "0", "9"};
        w->in_k = true;
        put(w, "for k in 0..%s %s", ends[pick(w, 6)], "");
        list(w, levels);
        w->in_k = false;
    } else if (!w->in_j) {
        w->in_j = true;
        put(w, "for j in 0..%d vec ", w->columns);
        list(w, levels);
        w->in_j = false;
    } else {
        store(w);
    }
}

static void statement(writer *w, int levels) {
    if (levels == 0 || ++w->statements > 25) {
        store(w);
        return;
    }
    switch (pick(w, 6)) {
    case 0:
    case 1:
    case 2: loop(w, levels - 1); break;
    case 3:
        put(w, "if (");
        condition(w);
        put(w, ") ");
        list(w, levels - 1);
        if (pick(w, 2)) {
            put(w, " else ");
            list(w, levels - 1);
        }
        break;
    default: store(w); break;
    }
}

static void write_kernel(writer *w, uint64_t seed) {
    static const int columns[] = {1, 3, 8, 13, 16, 20, 32, 37};
    memset(w, 0, sizeof *w);
    w->state = seed;
    w->rows = 1 + pick(w, 4);
    w->columns = columns[pick(w, 8)];
    w->maximum = pick(w, 2);
    put(w,
        "kernel random(x: f32[32, 96] arg, n: i32[32, 96] arg, y: f32[16, 48] arg, t: f32[48, 20] arg, r: f32[%d, %d] reg, s: f32[48] stack, "
        "m: f32[1] reg)\nphase tasks=4 task=p {\n",
        w->rows, w->columns > 3 ? w->columns : 4);
    put(w, "for i in 0..%d unroll { for j in 0..%d vec { r[i, j] = x[p + i, j] } }\n", w->rows,
        w->columns > 3 ? w->columns : 4);
    put(w, "for j in 0..48 vec { s[j] = 1:f32 }\nm[0] = 0:f32\n");
    for (int count = 1 + pick(w, 4); count > 0; count--) statement(w, 4);
    put(w, "for i in 0..%d unroll { for j in 0..%d vec { y[p*%d + i, j] = r[i, j] + s[j]*m[0] } }\n}\n", w->rows,
        w->columns, w->rows);
}

static int64_t variable(const char *name, int64_t fallback) {
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 10) : fallback;
}

static void test_random_kernels(void **state) {
    (void)state;
    static writer w;
    int64_t first = variable("DLC_SEED", 1), count = variable("DLC_TEST_KERNELS", test_is_shortest() ? 30 : 60),
            legal = 0;
    for (int64_t i = 0; i < count; i++) {
        write_kernel(&w, (uint64_t)(first + i));
        FILE *last = getenv("DLC_TEST_LAST") ? fopen(getenv("DLC_TEST_LAST"), "w") : NULL;
        if (last) {
            fputs(w.text, last);
            fclose(last);
        }
        legal += kernel_check_if_legal(w.text, NULL, FILL_SMALL);
    }
    print_message("%lld of %lld kernels were legal\n", (long long)legal, (long long)count);
    assert_true(legal * 4 >= count);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_kernels)};
    return cmocka_run_group_tests_name("cpu random kernels", tests, kernel_check_open, kernel_check_close);
}
