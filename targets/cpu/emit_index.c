/* Index expressions. Under the current bindings each is a linear form (emit_form in emit.h): constants of unrolled loops fold, the lane of
 * a vec loop has a coefficient, all else are terms with known range and divisor. An access gets its constant displacement, its lane stride
 * and partial pointers, each computed once per loop level, from the form. */
#include "targets/cpu/emit.h"

/* ---- scalar and vector i64 arithmetic, value-numbered */

enum index_op { INDEX_ADD, INDEX_SUB, INDEX_MUL, INDEX_DIV, INDEX_MIN, INDEX_MAX };

static LLVMValueRef build_floor_div(emitter *e, LLVMValueRef a, LLVMValueRef b, bool non_negative) {
    if (non_negative) return LLVMBuildUDiv(e->builder, a, b, "");
    LLVMValueRef quotient = LLVMBuildSDiv(e->builder, a, b, "");
    LLVMValueRef rest = LLVMBuildSub(e->builder, a, LLVMBuildMul(e->builder, quotient, b, ""), "");
    LLVMValueRef zero = LLVMConstNull(LLVMTypeOf(a));
    LLVMValueRef below = LLVMBuildICmp(e->builder, LLVMIntSLT, rest, zero, "");
    return LLVMBuildAdd(e->builder, quotient, LLVMBuildSExt(e->builder, below, LLVMTypeOf(a), ""), "");
}

static LLVMValueRef build_index_op(emitter *e, enum index_op op, LLVMValueRef a, LLVMValueRef b) {
    switch (op) {
    case INDEX_ADD: return LLVMBuildAdd(e->builder, a, b, "");
    case INDEX_SUB: return LLVMBuildSub(e->builder, a, b, "");
    case INDEX_MUL: return LLVMBuildMul(e->builder, a, b, "");
    case INDEX_DIV: return build_floor_div(e, a, b, false);
    case INDEX_MIN: return LLVMBuildSelect(e->builder, LLVMBuildICmp(e->builder, LLVMIntSLT, a, b, ""), a, b, "");
    case INDEX_MAX: return LLVMBuildSelect(e->builder, LLVMBuildICmp(e->builder, LLVMIntSGT, a, b, ""), a, b, "");
    }
    return NULL;
}

static emit_value index_binary(emitter *e, enum index_op op, emit_value a, emit_value b) {
    int lanes = a.lanes ? a.lanes : b.lanes;
    a = emit_splat(e, a, lanes);
    b = emit_splat(e, b, lanes);
    uint64_t key[] = {EMIT_FORM, (uint64_t)op, (uint64_t)(uintptr_t)a.llvm, (uint64_t)(uintptr_t)b.llvm};
    emit_value result;
    if (emit_find(e, 4, key, &result)) return result;
    result = (emit_value){.lanes = (int16_t)lanes, .level = (int16_t)emit_level_of(2, (emit_value[]){a, b})};
    emit_at(e, result.level);
    result.llvm = build_index_op(e, op, a.llvm, b.llvm);
    return emit_remember(e, 4, key, result);
}

emit_value emit_index_times(emitter *e, emit_value value, int64_t factor) {
    return factor == 1 ? value : index_binary(e, INDEX_MUL, value, emit_constant(emit_i64(e, factor)));
}

/* ---- forms */

emit_form emit_form_constant(int64_t constant) {
    return (emit_form){.constant = constant};
}

emit_form emit_form_of(emitter *e, emit_value value, int64_t low, int64_t high, int64_t multiple) {
    emit_form form = {0};
    (void)e;
    if (value.lanes)
        form.vector = value;
    else if (!emit_is_constant(value, &form.constant)) {
        form.count = 1;
        form.term[0] = (emit_term){.coefficient = 1,
                                   .value = value.llvm,
                                   .low = low,
                                   .high = high,
                                   .multiple = multiple < 1 ? 1 : multiple,
                                   .level = value.level};
    }
    return form;
}

emit_form emit_unknown(emitter *e) {
    return emit_form_of(e, (emit_value){.llvm = e->unknown}, TIR_UNBOUNDED_LOW, TIR_UNBOUNDED_HIGH, 1);
}

static emit_value term_value(const emit_term *term) {
    return (emit_value){.llvm = term->value, .lanes = 0, .level = (int16_t)term->level};
}

/* Replaces all terms of a form by one, because the array of terms is full. */
static void collapse(emitter *e, emit_form *form) {
    emit_form terms = *form;
    int64_t multiple = 0;
    terms.constant = terms.lane = 0;
    terms.vector.llvm = NULL;
    tir_interval range = emit_form_range(e, &terms);
    for (int i = 0; i < terms.count; i++)
        multiple = tir_gcd(multiple, terms.term[i].coefficient * terms.term[i].multiple);
    emit_form single = emit_form_of(e, emit_form_value(e, &terms), range.low, range.high, multiple);
    form->count = single.count;
    form->term[0] = single.term[0];
    form->constant += single.constant;
}

static void add_term(emitter *e, emit_form *form, emit_term term) {
    for (int i = 0; i < form->count; i++) {
        if (form->term[i].value != term.value) continue;
        form->term[i].coefficient += term.coefficient;
        if (form->term[i].coefficient == 0) {
            form->count--;
            memmove(&form->term[i], &form->term[i + 1], (size_t)(form->count - i) * sizeof *form->term);
        }
        return;
    }
    if (term.coefficient == 0) return;
    if (form->count == EMIT_MAX_TERMS) collapse(e, form);
    int at = form->count;
    while (at > 0 && form->term[at - 1].level > term.level) at--;
    memmove(&form->term[at + 1], &form->term[at], (size_t)(form->count - at) * sizeof *form->term);
    form->term[at] = term;
    form->count++;
}

void emit_form_add(emitter *e, emit_form *sum, const emit_form *other, int64_t scale) {
    sum->constant += other->constant * scale;
    sum->lane += other->lane * scale;
    for (int i = 0; i < other->count; i++) {
        emit_term term = other->term[i];
        term.coefficient *= scale;
        add_term(e, sum, term);
    }
    if (!other->vector.llvm) return;
    emit_value scaled = emit_index_times(e, other->vector, scale), step = other->step;
    if (step.llvm) step = emit_index_times(e, step, scale);
    if (sum->vector.llvm) {
        scaled = index_binary(e, INDEX_ADD, sum->vector, scaled);
        step = step.llvm && sum->step.llvm ? index_binary(e, INDEX_ADD, sum->step, step) : (emit_value){0};
    }
    sum->vector = scaled;
    sum->step = step;
}

bool emit_form_is_constant(const emit_form *form, int64_t *constant) {
    *constant = form->constant;
    return form->count == 0 && form->lane == 0 && !form->vector.llvm;
}

static bool is_uniform(const emit_form *form) {
    return form->lane == 0 && !form->vector.llvm;
}

static bool add_interval(tir_interval *sum, int64_t coefficient, int64_t low, int64_t high) {
    int64_t a, b;
    if (__builtin_mul_overflow(coefficient, coefficient < 0 ? high : low, &a) ||
        __builtin_mul_overflow(coefficient, coefficient < 0 ? low : high, &b) ||
        __builtin_add_overflow(sum->low, a, &sum->low) || __builtin_add_overflow(sum->high, b, &sum->high))
        return false;
    return sum->low >= TIR_UNBOUNDED_LOW && sum->high <= TIR_UNBOUNDED_HIGH;
}

tir_interval emit_form_range(const emitter *e, const emit_form *form) {
    const tir_interval unknown = {TIR_UNBOUNDED_LOW, TIR_UNBOUNDED_HIGH};
    tir_interval range = {form->constant, form->constant};
    if (form->vector.llvm) return unknown;
    if (form->lane && !add_interval(&range, form->lane, 0, e->active - 1)) return unknown;
    for (int i = 0; i < form->count; i++)
        if (!add_interval(&range, form->term[i].coefficient, form->term[i].low, form->term[i].high)) return unknown;
    return range;
}

static emit_value uniform_value(emitter *e, const emit_form *form) {
    emit_value sum = emit_constant(emit_i64(e, form->constant));
    for (int i = 0; i < form->count; i++) {
        emit_value product = emit_index_times(e, term_value(&form->term[i]), form->term[i].coefficient);
        sum = i == 0 ? product : index_binary(e, INDEX_ADD, sum, product);
    }
    if (form->count && form->constant)
        sum = index_binary(e, INDEX_ADD, sum, emit_constant(emit_i64(e, form->constant)));
    return sum;
}

emit_value emit_form_value(emitter *e, const emit_form *form) {
    emit_value sum = uniform_value(e, form);
    if (form->lane)
        sum = index_binary(e, INDEX_ADD, sum,
                           (emit_value){emit_iota(e, e->i64, e->lanes, 0, form->lane), (int16_t)e->lanes, 0});
    if (form->vector.llvm) sum = index_binary(e, INDEX_ADD, sum, form->vector);
    return sum;
}

/* Truncation commutes with sums, so the whole sum may be computed in 32-bit lanes. */
emit_value emit_form_narrow(emitter *e, const emit_form *form, int bits) {
    if (bits == 64) return emit_form_value(e, form);
    emit_value wide = uniform_value(e, form);
    uint64_t key[] = {EMIT_WIDE, (uint64_t)(uintptr_t)wide.llvm, (uint64_t)form->lane,
                      (uint64_t)(uintptr_t)form->vector.llvm, (uint64_t)(is_uniform(form) ? 0 : e->lanes)};
    emit_value result;
    if (emit_find(e, 5, key, &result)) return result;
    result = (emit_value){.lanes = is_uniform(form) ? 0 : (int16_t)e->lanes,
                          .level = (int16_t)emit_level_of(2, (emit_value[]){wide, form->vector})};
    emit_at(e, result.level);
    result.llvm = emit_splat_of(e, LLVMBuildTrunc(e->builder, wide.llvm, e->i32, ""), result.lanes);
    if (form->lane)
        result.llvm = LLVMBuildAdd(e->builder, result.llvm, emit_iota(e, e->i32, e->lanes, 0, form->lane), "");
    if (form->vector.llvm) {
        LLVMTypeRef narrow = emit_vector_type(e->i32, e->lanes);
        LLVMValueRef vector = LLVMBuildTrunc(e->builder, form->vector.llvm, narrow, "");
        result.llvm = LLVMBuildAdd(e->builder, result.llvm, vector, "");
    }
    return emit_remember(e, 5, key, result);
}

/* ---- products, quotients, minima of forms */

static emit_form form_multiply(emitter *e, const emit_form *a, const emit_form *b);

/* a*b, where a is the same for all lanes except for a->lane*l, and b is the same for all lanes. */
static emit_form multiply_lanes(emitter *e, const emit_form *a, const emit_form *b) {
    emit_form uniform = *a;
    uniform.lane = 0;
    emit_form product = form_multiply(e, &uniform, b);
    product.step = emit_index_times(e, emit_form_value(e, b), a->lane);
    const emit_value lanes = {emit_iota(e, e->i64, e->lanes, 0, 1), (int16_t)e->lanes, 0};
    product.vector = index_binary(e, INDEX_MUL, lanes, product.step);
    return product;
}

static emit_form form_multiply(emitter *e, const emit_form *a, const emit_form *b) {
    emit_form product = {0};
    int64_t constant;
    if (emit_form_is_constant(b, &constant)) {
        emit_form_add(e, &product, a, constant);
        return product;
    }
    if (emit_form_is_constant(a, &constant)) {
        emit_form_add(e, &product, b, constant);
        return product;
    }
    if (is_uniform(b) && a->lane && !a->vector.llvm) return multiply_lanes(e, a, b);
    if (is_uniform(a) && b->lane && !b->vector.llvm) return multiply_lanes(e, b, a);
    emit_value right = emit_form_value(e, b);
    if (!is_uniform(a) || !is_uniform(b))
        return emit_form_of(e, index_binary(e, INDEX_MUL, emit_form_value(e, a), right), TIR_UNBOUNDED_LOW,
                            TIR_UNBOUNDED_HIGH, 1);
    emit_form_add(e, &product, b, a->constant);
    for (int i = 0; i < a->count; i++) {
        emit_value value = index_binary(e, INDEX_MUL, term_value(&a->term[i]), right);
        add_term(e, &product,
                 (emit_term){.coefficient = a->term[i].coefficient,
                             .value = value.llvm,
                             .low = TIR_UNBOUNDED_LOW,
                             .high = TIR_UNBOUNDED_HIGH,
                             .multiple = 1,
                             .level = value.level});
    }
    return product;
}

/* floor(form/divisor) of a form that is the same for all lanes. */
static emit_form divide_uniform(emitter *e, emit_form form, int64_t divisor) {
    int64_t common = tir_gcd(divisor, 0);
    tir_interval range = emit_form_range(e, &form);
    if (tir_floor_div(range.low, divisor) == tir_floor_div(range.high, divisor))
        return emit_form_constant(tir_floor_div(range.low, divisor));
    for (int i = 0; i < form.count; i++) common = tir_gcd(common, form.term[i].coefficient);
    for (int i = 0; i < form.count; i++) form.term[i].coefficient /= common;
    form.constant = tir_floor_div(form.constant, common);
    divisor /= common;
    range = emit_form_range(e, &form);
    emit_value value = emit_form_value(e, &form);
    if (divisor != 1) {
        uint64_t key[] = {EMIT_INDEX_DIV, (uint64_t)(uintptr_t)value.llvm, (uint64_t)divisor, range.low >= 0};
        emit_value quotient;
        if (!emit_find(e, 4, key, &quotient)) {
            quotient = (emit_value){.lanes = 0, .level = value.level};
            emit_at(e, value.level);
            quotient.llvm = build_floor_div(e, value.llvm, emit_i64(e, divisor), range.low >= 0);
            emit_remember(e, 4, key, quotient);
        }
        value = quotient;
    }
    return emit_form_of(e, value, tir_floor_div(range.low, divisor), tir_floor_div(range.high, divisor), 1);
}

static emit_form divide_lanes(emitter *e, const emit_form *form, int64_t divisor) {
    tir_interval range = emit_form_range(e, form);
    bool narrow = range.low > INT32_MIN && range.high < INT32_MAX && divisor < INT32_MAX && !form->vector.llvm;
    emit_value value = emit_form_narrow(e, form, narrow ? 32 : 64);
    emit_value quotient = {.lanes = value.lanes, .level = value.level};
    emit_at(e, value.level);
    LLVMTypeRef element = narrow ? e->i32 : e->i64;
    quotient.llvm = build_floor_div(e, value.llvm, emit_fill(e, element, value.lanes, divisor), range.low >= 0);
    if (narrow) quotient.llvm = LLVMBuildSExt(e->builder, quotient.llvm, emit_vector_type(e->i64, value.lanes), "");
    return emit_form_of(e, quotient, 0, 0, 1);
}

/* floor(form/divisor), divisor > 0. Multiples of the divisor are factored out; the rest is the same for all lanes if the lanes do not
 * cross a multiple of the terms' common divisor: (16*t + lane)/48 is t/3 for 16 lanes. Layouts rely on it. */
static emit_form form_divide(emitter *e, const emit_form *form, int64_t divisor) {
    emit_form quotient = {0}, rest = {.vector = form->vector};
    int64_t common = divisor;
    for (int i = 0; i < form->count; i++) {
        emit_term term = form->term[i];
        if (term.coefficient % divisor == 0) {
            term.coefficient /= divisor;
            add_term(e, &quotient, term);
        } else {
            add_term(e, &rest, term);
            common = tir_gcd(common, term.coefficient * term.multiple);
        }
    }
    quotient.constant = tir_floor_div(form->constant, divisor);
    rest.constant = form->constant - quotient.constant * divisor;
    if (form->lane % divisor == 0)
        quotient.lane = form->lane / divisor;
    else
        rest.lane = form->lane;
    if (!rest.vector.llvm && rest.lane) {
        int64_t first = tir_floor_div(rest.constant, common),
                last = tir_floor_div(rest.constant + rest.lane * (e->active - 1), common);
        if (first == last) {
            rest.constant = first * common;
            rest.lane = 0;
        }
    }
    emit_form other = is_uniform(&rest) ? divide_uniform(e, rest, divisor) : divide_lanes(e, &rest, divisor);
    emit_form_add(e, &quotient, &other, 1);
    return quotient;
}

static emit_form general_divide(emitter *e, const emit_form *a, const emit_form *b, bool remainder) {
    int64_t divisor;
    emit_form quotient;
    if (emit_form_is_constant(b, &divisor) && divisor > 0)
        quotient = form_divide(e, a, divisor);
    else {
        emit_value value = index_binary(e, INDEX_DIV, emit_form_value(e, a), emit_form_value(e, b));
        quotient = emit_form_of(e, value, TIR_UNBOUNDED_LOW, TIR_UNBOUNDED_HIGH, 1);
    }
    if (!remainder) return quotient;
    emit_form rest = *a, whole = form_multiply(e, &quotient, b);
    emit_form_add(e, &rest, &whole, -1);
    return rest;
}

static emit_form form_min_max(emitter *e, bool max, const emit_form *a, const emit_form *b) {
    emit_form difference = *a;
    emit_form_add(e, &difference, b, -1);
    tir_interval range = emit_form_range(e, &difference);
    if (range.high <= 0) return max ? *b : *a;
    if (range.low >= 0) return max ? *a : *b;
    tir_interval ra = emit_form_range(e, a), rb = emit_form_range(e, b);
    int64_t low = (ra.low < rb.low) == max ? rb.low : ra.low, high = (ra.high < rb.high) == max ? rb.high : ra.high;
    emit_value value = index_binary(e, max ? INDEX_MAX : INDEX_MIN, emit_form_value(e, a), emit_form_value(e, b));
    return emit_form_of(e, value, low, high, 1);
}

/* ---- from expressions */

static emit_form atom_form(emitter *e, tir_expr atom) {
    const tir_node *node = tir_get(e->pool, atom);
    emit_form a, b;
    switch (node->op) {
    case TIR_CONST: return emit_form_constant((int64_t)node->bits);
    case TIR_VAR: {
        const emit_binding *binding = &e->binding[node->bits];
        if (!binding->bound || !binding->form)
            emit_raise(e, "variable %s is not bound", e->pool->variables.data[node->bits].name);
        return *binding->form;
    }
    case TIR_MUL:
    case TIR_DIV:
    case TIR_REM:
    case TIR_MIN:
    case TIR_MAX:
        a = emit_index(e, tir_operand(e->pool, atom, 0));
        b = emit_index(e, tir_operand(e->pool, atom, 1));
        if (node->op == TIR_MUL) return form_multiply(e, &a, &b);
        if (node->op == TIR_DIV || node->op == TIR_REM) return general_divide(e, &a, &b, node->op == TIR_REM);
        return form_min_max(e, node->op == TIR_MAX, &a, &b);
    default: return emit_form_of(e, emit_expr(e, atom), TIR_UNBOUNDED_LOW, TIR_UNBOUNDED_HIGH, 1);
    }
}

emit_form emit_index(emitter *e, tir_expr index) {
    enum { TERMS = 256 };
    tir_term terms[TERMS];
    int64_t constant;
    const int count = tir_terms(e->pool, index, terms, TERMS, &constant);
    if (count < 0) emit_raise(e, "index expression of more than %d terms", TERMS);
    emit_form sum = emit_form_constant(constant);
    for (int i = 0; i < count; i++) {
        emit_form atom = atom_form(e, terms[i].atom);
        emit_form_add(e, &sum, &atom, terms[i].coefficient);
    }
    return sum;
}

/* Replaces *constant + *lane*l, l an active lane, by its quotient or remainder (op). EMIT_KNOWN_LANES: the result has no stride. */
static emit_known divide_known(const emitter *e, tir_op op, int64_t divisor, int64_t *constant, int64_t *lane) {
    int64_t quotient = tir_floor_div(*constant, divisor), step = 0;
    if (*lane % divisor == 0)
        step = *lane / divisor;
    else if (quotient != tir_floor_div(*constant + *lane * (e->active - 1), divisor))
        return EMIT_KNOWN_LANES;
    *constant = op == TIR_DIV ? quotient : *constant - quotient * divisor;
    *lane = op == TIR_DIV ? step : *lane - step * divisor;
    return EMIT_KNOWN;
}

/* Replaces *constant + *lane*l, l an active lane, by its sum, product, quotient or remainder (op) with right + step*l.
 * EMIT_KNOWN_LANES: the result has no stride. */
static emit_known combine_known(const emitter *e, tir_op op, int64_t right, int64_t step, int64_t *constant,
                                int64_t *lane) {
    if (op == TIR_ADD) {
        *constant += right;
        *lane += step;
        return EMIT_KNOWN;
    }
    if (op == TIR_MUL) {
        if (*lane && step) return EMIT_KNOWN_LANES;
        *lane = *lane * right + step * *constant;
        *constant *= right;
        return EMIT_KNOWN;
    }
    return step || right <= 0 ? EMIT_UNKNOWN : divide_known(e, op, right, constant, lane);
}

static emit_known index_known(emitter *e, tir_expr index, int64_t *constant, int64_t *lane) {
    const tir_node *node = tir_get(e->pool, index);
    int64_t right, step;
    *constant = *lane = 0;
    if (node->op == TIR_CONST) {
        *constant = (int64_t)node->bits;
        return EMIT_KNOWN;
    }
    if (node->op == TIR_VAR) {
        const emit_form *form = e->binding[node->bits].bound ? e->binding[node->bits].form : NULL;
        if (!form || form->count || form->vector.llvm) return EMIT_UNKNOWN;
        *constant = form->constant;
        *lane = form->lane;
        return EMIT_KNOWN;
    }
    if (node->op != TIR_ADD && node->op != TIR_MUL && node->op != TIR_DIV && node->op != TIR_REM) return EMIT_UNKNOWN;
    emit_known b = index_known(e, tir_operand(e->pool, index, 1), &right, &step);
    emit_known a = index_known(e, tir_operand(e->pool, index, 0), constant, lane);
    if (a != EMIT_KNOWN || b != EMIT_KNOWN)
        return a == EMIT_UNKNOWN || b == EMIT_UNKNOWN ? EMIT_UNKNOWN : EMIT_KNOWN_LANES;
    return combine_known(e, (tir_op)node->op, right, step, constant, lane);
}

/* Does the expression vary between lanes of the current vec loop? */
bool emit_varies(emitter *e, tir_expr expr) {
    const tir_node *node = tir_get(e->pool, expr);
    if (!e->lanes || node->op == TIR_CONST) return false;
    if (node->op == TIR_VAR) {
        const emit_binding *binding = &e->binding[node->bits];
        return binding->form ? !is_uniform(binding->form) : binding->value.lanes != 0;
    }
    if (e->varies_epoch[expr] == e->epoch) return e->varies[expr];
    bool varies = false;
    for (int i = 0; i < (int)node->count && !varies; i++) varies = emit_varies(e, tir_operand(e->pool, expr, i));
    e->varies_epoch[expr] = e->epoch;
    e->varies[expr] = varies;
    return varies;
}

/* ---- conditions */

enum { LANE_STARTS = 1024 }; /* lane_compare: the lanes that neighbouring vectors count from are within +-this */

/* For lane_compare: the bound that lane*(start + l) is compared with, clamped, in all lanes. Vectors of one loop, which start at different
 * lanes, share it. */
static emit_value lane_bound(emitter *e, tir_op op, int64_t lane, emit_value value, LLVMTypeRef element, int64_t low,
                             int64_t high) {
    uint64_t key[] = {EMIT_BOUND,         (uint64_t)op,  (uint64_t)lane, (uint64_t)(uintptr_t)value.llvm,
                      (uint64_t)e->lanes, (uint64_t)high};
    emit_value result;
    if (emit_find(e, 6, key, &result)) return result;
    emit_at(e, value.level);
    /* lane 1: l < -value; lane -1: l > value, the negation of l < value + 1; equality: l == -value or l == value */
    LLVMValueRef bound = lane == 1 ? LLVMBuildNeg(e->builder, value.llvm, "") : value.llvm;
    if (lane == -1 && op == TIR_LT) bound = LLVMBuildAdd(e->builder, bound, emit_i64(e, 1), "");
    bound = build_index_op(e, INDEX_MIN, bound, emit_i64(e, high));
    bound = build_index_op(e, INDEX_MAX, bound, emit_i64(e, op == TIR_EQ ? low - 1 : low));
    if (LLVMTypeOf(bound) != element) bound = LLVMBuildTrunc(e->builder, bound, element, "");
    result = (emit_value){emit_splat_of(e, bound, e->lanes), (int16_t)e->lanes, value.level};
    return emit_remember(e, 6, key, result);
}

/* The mask of lanes l with lane*l + terms < 0 (LT) or == 0 (EQ), where lane is 1 or -1: compares the constant start, start + 1, ..., in
 * lanes as wide as the data's, with one clamped scalar, so that a mask costs a compare, and a broadcast that vectors of one loop share:
 * their terms differ in the constant, which becomes `start`. */
static emit_value lane_compare(emitter *e, tir_op op, int64_t lane, emit_form *terms) {
    const int bits = e->device->machine.vector_bytes * 8 / e->lanes;
    LLVMTypeRef element = LLVMIntTypeInContext(e->context, (unsigned)(bits < 8 ? 8 : bits > 64 ? 64 : bits));
    const int64_t most = LANE_STARTS - e->lanes;
    const bool shared = bits >= 16 && terms->constant >= -most && terms->constant <= most;
    const int64_t start = shared ? lane * terms->constant : 0;
    if (shared) terms->constant = 0;
    const emit_value value = emit_form_value(e, terms);
    uint64_t key[] = {EMIT_COMPARE,       (uint64_t)op,   (uint64_t)lane, (uint64_t)(uintptr_t)value.llvm,
                      (uint64_t)e->lanes, (uint64_t)start};
    emit_value mask;
    if (emit_find(e, 6, key, &mask)) return mask;
    const emit_value bound =
        lane_bound(e, op, lane, value, element, shared ? -LANE_STARTS : 0, shared ? LANE_STARTS : e->lanes);
    const LLVMIntPredicate predicate = op == TIR_EQ ? LLVMIntEQ : lane == 1 ? LLVMIntSLT : LLVMIntSGE;
    emit_at(e, value.level);
    mask = (emit_value){.lanes = (int16_t)e->lanes, .level = value.level};
    mask.llvm = LLVMBuildICmp(e->builder, predicate, emit_iota(e, element, e->lanes, start, 1), bound.llvm, "");
    return emit_remember(e, 6, key, mask);
}

static emit_value compare_zero(emitter *e, tir_op op, const emit_form *difference) {
    LLVMIntPredicate predicate = op == TIR_LT ? LLVMIntSLT : LLVMIntEQ;
    tir_interval range = emit_form_range(e, difference);
    bool narrow = range.low > INT32_MIN && range.high < INT32_MAX;
    emit_form terms = *difference;
    terms.constant = 0;
    bool uniform = is_uniform(difference);
    emit_value left = emit_form_narrow(e, &terms, narrow && !uniform ? 32 : 64);
    LLVMTypeRef element = narrow && !uniform ? e->i32 : e->i64;
    uint64_t key[] = {EMIT_COMPARE, (uint64_t)op, (uint64_t)(uintptr_t)left.llvm, (uint64_t)difference->constant, 0};
    emit_value result;
    if (emit_find(e, 5, key, &result)) return result;
    result = (emit_value){.lanes = left.lanes, .level = left.level};
    emit_at(e, left.level);
    LLVMValueRef right = emit_fill(e, element, left.lanes, -difference->constant);
    result.llvm = LLVMBuildICmp(e->builder, predicate, left.llvm, right, "");
    return emit_remember(e, 5, key, result);
}

static emit_value invert(emitter *e, emit_value condition) {
    uint64_t key[] = {TIR_NOT, DLC_BOOL, (uint64_t)(uintptr_t)condition.llvm};
    emit_value result;
    if (emit_find(e, 3, key, &result)) return result;
    emit_at(e, condition.level);
    result = condition;
    result.llvm = LLVMBuildNot(e->builder, condition.llvm, "");
    return emit_remember(e, 3, key, result);
}

/* Is a value within `range`, compared with zero by `op`, true (1), false (0), or not known (-1)? */
static int decide(tir_op op, tir_interval range) {
    bool equal = op == TIR_EQ || op == TIR_NE;
    int64_t limit = op == TIR_LE ? 1 : 0;
    bool yes = equal ? range.low == 0 && range.high == 0 : range.high < limit;
    bool no = equal ? range.low > 0 || range.high < 0 : range.low >= limit;
    return !yes && !no ? -1 : yes != (op == TIR_NE);
}

static int decide_known(emitter *e, tir_op op, tir_expr a, tir_expr b) {
    int64_t left, right, step, other;
    if (index_known(e, a, &left, &step) != EMIT_KNOWN || index_known(e, b, &right, &other) != EMIT_KNOWN) return -1;
    int64_t first = left - right, last = first + (step - other) * (e->active - 1);
    if (step == other) last = first;
    return decide(op, first < last ? (tir_interval){first, last} : (tir_interval){last, first});
}

emit_value emit_index_compare(emitter *e, tir_op op, tir_expr a, tir_expr b) {
    int decided = decide_known(e, op, a, b);
    if (decided >= 0) return emit_constant(LLVMConstInt(e->i1, (unsigned)decided, false));
    emit_form difference = emit_index(e, a), right = emit_index(e, b);
    emit_form_add(e, &difference, &right, -1);
    decided = decide(op, emit_form_range(e, &difference));
    if (decided >= 0) return emit_constant(LLVMConstInt(e->i1, (unsigned)decided, false));
    bool negate = op == TIR_NE;
    if (negate) op = TIR_EQ;
    if (op == TIR_LE) difference.constant -= 1;
    if (op == TIR_LE) op = TIR_LT;
    emit_value result;
    if ((difference.lane == 1 || difference.lane == -1) && !difference.vector.llvm) {
        emit_form terms = difference;
        terms.lane = 0;
        result = lane_compare(e, op, difference.lane, &terms);
    } else {
        result = compare_zero(e, op, &difference);
    }
    return negate ? invert(e, result) : result;
}

/* ---- addresses */

emit_known emit_offset_known(emitter *e, uint32_t buffer, int rank, const tir_expr *index, int64_t *constant,
                             int64_t *lane) {
    const tir_buffer *b = &e->kernel->buffers.data[buffer];
    int64_t size = (int64_t)lib_dtype_size(b->dtype), stride, at, step;
    emit_known known = EMIT_KNOWN;
    *constant = *lane = 0;
    for (int i = 0; i < rank; i++) {
        emit_known one = index_known(e, index[i], &at, &step);
        if (one == EMIT_UNKNOWN || !tir_is_const(e->pool, b->stride[i], &stride)) return EMIT_UNKNOWN;
        if (one == EMIT_KNOWN_LANES) known = one;
        *constant += at * stride * size;
        *lane += step * stride * size;
    }
    return known;
}

/* The sum of the indices times the strides that are constant. Indices of axes that were fused into one loop are quotients and remainders of
 * one number: together they are that number, of which each lane is the next one. */
static tir_expr fixed_offset(emitter *e, const tir_buffer *b, int rank, const tir_expr *index) {
    tir_expr sum = tir_index(e->pool, 0);
    int64_t stride;
    for (int i = 0; i < rank; i++)
        if (tir_is_const(e->pool, b->stride[i], &stride))
            sum = tir_add(e->pool, sum, tir_mul(e->pool, index[i], b->stride[i]));
    return sum;
}

emit_form emit_offset(emitter *e, uint32_t buffer, int rank, const tir_expr *index) {
    const tir_buffer *b = &e->kernel->buffers.data[buffer];
    const int64_t size = (int64_t)lib_dtype_size(b->dtype);
    const emit_form fixed = emit_index(e, fixed_offset(e, b, rank, index));
    emit_form offset = {0};
    int64_t constant;
    emit_form_add(e, &offset, &fixed, size);
    for (int i = 0; i < rank; i++) {
        if (tir_is_const(e->pool, b->stride[i], &constant)) continue;
        emit_form at = emit_index(e, index[i]), stride = emit_index(e, b->stride[i]);
        emit_form product = form_multiply(e, &at, &stride);
        emit_form_add(e, &offset, &product, size);
    }
    return offset;
}

emit_value emit_pointer(emitter *e, uint32_t buffer, const emit_form *offset, int64_t *displacement) {
    emit_value pointer = e->buffer[buffer].base;
    *displacement = offset->constant;
    for (int i = 0; i < offset->count;) {
        emit_form group = {0};
        int level = offset->term[i].level;
        for (; i < offset->count && offset->term[i].level == level; i++) group.term[group.count++] = offset->term[i];
        emit_value bytes = emit_form_value(e, &group);
        uint64_t key[] = {EMIT_POINTER, (uint64_t)(uintptr_t)pointer.llvm, (uint64_t)(uintptr_t)bytes.llvm};
        emit_value next;
        if (!emit_find(e, 3, key, &next)) {
            next = (emit_value){.lanes = 0, .level = (int16_t)emit_level_of(2, (emit_value[]){pointer, bytes})};
            emit_at(e, next.level);
            next.llvm = LLVMBuildGEP2(e->builder, e->i8, pointer.llvm, &bytes.llvm, 1, "");
            emit_remember(e, 3, key, next);
        }
        pointer = next;
    }
    return pointer;
}

/* Alignment of the first lane's address. */
uint32_t emit_alignment(const emitter *e, uint32_t buffer, const emit_form *offset) {
    const tir_buffer *b = &e->kernel->buffers.data[buffer];
    int64_t size = (int64_t)lib_dtype_size(b->dtype), alignment = TIR_BUFFER_ALIGNMENT;
    if (b->scope == TIR_SCOPE_ARG && !e->buffer[buffer].aligned) alignment = b->alignment > 0 ? b->alignment : size;
    if (b->scope == TIR_SCOPE_LOCAL) alignment = size; /* the distance of slots is the plan's choice */
    int64_t start;
    if (b->scope == TIR_SCOPE_WORKSPACE && b->offset && tir_is_const(e->pool, b->offset, &start))
        alignment = tir_gcd(alignment, start);
    alignment = tir_gcd(alignment, offset->constant);
    for (int i = 0; i < offset->count; i++)
        alignment = tir_gcd(alignment, offset->term[i].coefficient * offset->term[i].multiple);
    alignment &= -alignment;
    return (uint32_t)(alignment > TIR_BUFFER_ALIGNMENT ? TIR_BUFFER_ALIGNMENT : alignment);
}
