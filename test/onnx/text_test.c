/* Strings and maps in models and as their inputs and outputs, by dlc_onnx_run_values; results by hand, or by the standard's description. */
#include "onnx/values.h"

/* ---- strings --------------------------------------------------------------------------------------------------------------- */

static void test_strings(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "StringConcat joined x suffix");
    add_node(&g, "StringSplit parts,counts joined | delimiter=s:.");
    add_node(&g, "StringNormalizer upper x | case_change_action=s:UPPER stopwords=ss:B");
    add_node(&g, "Equal same x b");
    add_strings(&g, "suffix", 1, (const char *const[]){".z"});
    add_strings(&g, "b", 1, (const char *const[]){"b"});
    add_port(&g, 11, "x", "T8 n");
    add_port(&g, 12, "joined", "T8 n"), add_port(&g, 12, "parts", "T8 n m"), add_port(&g, 12, "upper", "T8 n");
    add_port(&g, 12, "same", "T9 n"), add_port(&g, 12, "counts", "T7 n");
    fixture f = made_of(g);
    words w = words_of(3, (const char *const[]){"a.c", "b", "a.c"});
    dlc_onnx_value in = value_of_words(&w), *y[5];
    run_values(&f, &in, 1, y, 5);
    expect_words(y[0], "a.c.z,b.z,a.c.z");
    expect_words(y[1], "a,c,z,b,z,,a,c,z");
    assert_int_equal(y[1]->dims[1], 3);
    expect_words(y[2], "A.C,A.C");
    assert_memory_equal(y[3]->tensor->data, ((bool[]){false, true, false}), 3);
    assert_memory_equal(y[4]->tensor->data, ((int64_t[]){3, 2, 3}), 24);
    release(y, 5);
    expect_imports(&f, 1, "without kernels");
    w.string[1] = (dlc_onnx_string){"b\0c", 3}; /* a zero does not cut */
    run_values(&f, &in, 1, y, 5);
    assert_int_equal(y[0]->strings[1].size, 5);
    assert_memory_equal(y[0]->strings[1].data, "b\0c.z", 5);
    release(y, 5);
    w.string[1] = (dlc_onnx_string){"\xc3\xa9", 2};
    expect_failure(&f, &in, 1, 5, DLC_UNSUPPORTED, "case of letters outside of ASCII");
    w.count = 0;
    run_values(&f, &in, 1, y, 5);
    assert_int_equal(y[1]->dims[1], 0);
    expect_words(y[2], "");
    release(y, 5);
    in.rank = 2, in.dims = (int64_t[]){1, 0};
    expect_failure(&f, &in, 1, 5, DLC_INVALID_ARGUMENT, "input x has rank 2, expected 1");
    finish(&f);
}

static void test_hostile_strings(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "Identity y x");
    add_port(&g, 11, "x", "T8 -");
    add_port(&g, 12, "y", "T8 -");
    fixture f = made_of(g);
    words w = words_of(2, (const char *const[]){"a", "b"});
    const int64_t overflows[] = {INT64_MAX, INT64_MAX}, negative[] = {2, -1}, empty[] = {0, INT64_MAX};
    dlc_onnx_value in = value_of_words(&w), *y;
    in.dims = overflows, in.rank = 2;
    expect_failure(&f, &in, 1, 1, DLC_BUDGET_EXCEEDED, "more than");
    in.dims = negative;
    expect_failure(&f, &in, 1, 1, DLC_INVALID_ARGUMENT, "below 0");
    in.rank = 1000;
    expect_failure(&f, &in, 1, 1, DLC_INVALID_ARGUMENT, "rank");
    in.rank = -1;
    expect_failure(&f, &in, 1, 1, DLC_INVALID_ARGUMENT, "rank");
    in.rank = 2, in.dims = NULL;
    expect_failure(&f, &in, 1, 1, DLC_INVALID_ARGUMENT, "rank");
    in = value_of_words(&w), in.strings = NULL;
    expect_failure(&f, &in, 1, 1, DLC_INVALID_ARGUMENT, "no strings");
    in = value_of_words(&w), w.string[1] = (dlc_onnx_string){NULL, 5};
    expect_failure(&f, &in, 1, 1, DLC_INVALID_ARGUMENT, "string 1 of input x is NULL");
    w.string[1] = (dlc_onnx_string){"b", SIZE_MAX};
    expect_failure(&f, &in, 1, 1, DLC_BUDGET_EXCEEDED, "bytes of strings");
    w.string[0].size = SIZE_MAX - 1, w.string[1].size = 2;
    expect_failure(&f, &in, 1, 1, DLC_BUDGET_EXCEEDED, "bytes of strings");
    in.dims = (int64_t[]){INT64_MAX, INT64_MAX, 0}, in.rank = 3;
    expect_failure(&f, &in, 1, 1, DLC_BUDGET_EXCEEDED, "more than");
    in.dims = empty, in.rank = 2;
    run_values(&f, &in, 1, &y, 1);
    assert_int_equal(y->dims[1], INT64_MAX);
    release(&y, 1);
    finish(&f);
}

/* Strings in a model, none, of dimensions whose product overflows before it is 0. */
static void test_hostile_constant(void **state) {
    const int64_t dims[] = {INT64_MAX, INT64_MAX, 0};
    message g = started(), w = tensor_of("w", 8, 3, dims);
    (void)state;
    add_node(&g, "Identity y w");
    add_message(&g, 5, w);
    add_port(&g, 12, "y", "T8 -");
    fixture f = made_of(g);
    expect_failure(&f, NULL, 0, 1, DLC_BUDGET_EXCEEDED, "strings");
    finish(&f);
}

/* Operators that move elements, of strings that are known and of strings by a computed index. */
static void test_moves(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "ArgMax best x | axis=i:1 keepdims=i:0");
    add_node(&g, "Gather label labels best");
    add_node(&g, "Concat both label w | axis=i:0");
    add_node(&g, "Slice back both minus low zero minus");
    add_node(&g, "Unique sorted,place both");
    add_node(&g, "Equal same label w");
    add_node(&g, "Where chosen same label other");
    add_node(&g, "Reshape table both shape");
    add_node(&g, "Transpose turned table");
    add_node(&g, ".ArrayFeatureExtractor picked both best");
    add_strings(&g, "labels", 3, (const char *const[]){"red", "green", "blue"});
    add_strings(&g, "w", 2, (const char *const[]){"blue", "ash"});
    add_strings(&g, "other", 1, (const char *const[]){"none"});
    add_integers(&g, "minus", 1, 1, (int64_t[]){-1}), add_integers(&g, "low", 1, 1, (int64_t[]){-100});
    add_integers(&g, "zero", 1, 1, (int64_t[]){0}), add_integers(&g, "shape", 1, 2, (int64_t[]){2, 2});
    add_port(&g, 11, "x", "T1 n 2");
    add_port(&g, 12, "back", "T8 n"), add_port(&g, 12, "sorted", "T8 n"), add_port(&g, 12, "chosen", "T8 n");
    add_port(&g, 12, "turned", "T8 a b"), add_port(&g, 12, "picked", "T8 1 n");
    fixture f = made_of(g);
    float data[4] = {1, 2, 4, 3};
    held x = numbers(data, kDLFloat, 32, 2, 4);
    dlc_onnx_value in = value_of_tensor(&x), *y[5];
    for (int turn = 0; turn < 2; turn++) {
        data[3] = turn ? 5 : 3;
        run_values(&f, &in, 1, y, 5);
        expect_words(y[0], turn ? "ash,blue,green,green" : "ash,blue,red,green");
        expect_words(y[1], turn ? "ash,blue,green" : "ash,blue,green,red");
        expect_words(y[2], "none,none");
        expect_words(y[3], turn ? "green,blue,green,ash" : "green,blue,red,ash");
        expect_words(y[4], turn ? "green,green" : "red,green");
        release(y, 5);
    }
    expect_imports(&f, 1, "2 runs,"); /* what the strings are is no guard here */
    finish(&f);
}

static void test_casts(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "Cast written x | to=i:8");
    add_node(&g, "Cast read words | to=i:1");
    add_node(&g, "CastLike whole words like");
    add_integers(&g, "like", 0, 1, (int64_t[]){0});
    add_port(&g, 11, "x", "T1 n"), add_port(&g, 11, "words", "T8 n");
    add_port(&g, 12, "written", "T8 n"), add_port(&g, 12, "read", "T1 n"), add_port(&g, 12, "whole", "T7 n");
    fixture f = made_of(g);
    float data[5] = {0.1f, -3, 1e20f, INFINITY, NAN};
    held x = numbers(data, kDLFloat, 32, 1, 5);
    words w = words_of(4, (const char *const[]){"1.5", "-2e3", "-inf", "9007199254740993"});
    const dlc_onnx_value in[] = {value_of_tensor(&x), value_of_words(&w)};
    dlc_onnx_value *y[3];
    run_values(&f, in, 2, y, 3);
    expect_words(y[0], "0.1,-3,1e+20,INF,NaN");
    assert_memory_equal(y[1]->tensor->data, ((float[]){1.5f, -2000, -INFINITY, 9007199254740993.0f}), 16);
    assert_memory_equal(y[2]->tensor->data, ((int64_t[]){1, -2000, INT64_MIN, 9007199254740993}), 32);
    release(y, 3);
    for (size_t i = 0; i < 5; i++) {
        static const char *const wrong[] = {"", "1x", "e", "1 2", "0x10"};
        w.string[1] = (dlc_onnx_string){wrong[i], strlen(wrong[i])};
        expect_failure(&f, in, 2, 3, DLC_INVALID_ARGUMENT, "is no number");
    }
    finish(&f);
}

/* ---- ai.onnx.ml ---------------------------------------------------------------------------------------------------------------- */

static void test_classifier(void **state) {
    message g = started();
    (void)state;
    add_node(&g, ".LinearClassifier label,scores x | classlabels_strings=ss:cat,dog coefficients=fs:1,0,0,1 "
                 "intercepts=fs:0,0");
    add_node(&g, ".ZipMap named scores | classlabels_strings=ss:cat,dog");
    add_node(&g, ".LabelEncoder short label | keys_strings=ss:dog,cow values_strings=ss:d,c default_string=s:?");
    add_node(&g, ".LabelEncoder number label | keys_strings=ss:dog,cat values_int64s=is:7,8");
    add_port(&g, 11, "x", "T1 n 2");
    add_port(&g, 12, "label", "T8 n"), add_port(&g, 12, "named", "sm8T1 ");
    add_port(&g, 12, "short", "T8 n"), add_port(&g, 12, "number", "T7 n");
    fixture f = made_of(g);
    float data[6] = {3, 1, 1, 2, 5, 4};
    held x = numbers(data, kDLFloat, 32, 2, 6);
    dlc_onnx_value in = value_of_tensor(&x), *y[4];
    for (int turn = 0; turn < 2; turn++) {
        run_values(&f, &in, 1, y, 4);
        expect_words(y[0], "cat,dog,cat");
        assert_int_equal(y[1]->count, 3);
        for (int i = 0; i < 3; i++) {
            const dlc_onnx_value *map = &y[1]->elements[i];
            assert_int_equal(map->kind, DLC_ONNX_MAP);
            assert_int_equal(map->count, 2);
            expect_words(&map->elements[0], "cat,dog");
            expect_floats(&map->elements[1], 2, data + 2 * i);
        }
        expect_words(y[2], "?,d,?");
        assert_memory_equal(y[3]->tensor->data, ((int64_t[]){8, 7, 8}), 24);
        release(y, 4);
    }
    expect_imports(&f, 1, "2 runs,");
    finish(&f);
}

static void test_maps(void **state) {
    message g = started();
    (void)state;
    add_node(&g, ".DictVectorizer vector words | string_vocabulary=ss:a,c,b,z");
    add_node(&g, ".CastMap dense numbers");
    add_node(&g, ".CastMap sparse numbers | map_form=s:SPARSE max_map=i:5 cast_to=s:TO_INT64");
    add_node(&g, ".CastMap text numbers | cast_to=s:TO_STRING");
    add_node(&g, ".CategoryMapper category w | cats_strings=ss:x,y cats_int64s=is:5,6");
    add_port(&g, 11, "words", "m8T1 "), add_port(&g, 11, "numbers", "m7T1 "), add_port(&g, 11, "w", "T8 n");
    add_port(&g, 12, "vector", "T1 n"), add_port(&g, 12, "dense", "T1 1 n"), add_port(&g, 12, "sparse", "T7 1 n");
    add_port(&g, 12, "text", "T8 1 n"), add_port(&g, 12, "category", "T7 n");
    fixture f = made_of(g);
    float data[2][2] = {{4, 8}, {1.5f, 2.5f}};
    int64_t key[2] = {3, 1};
    held a = numbers(data[0], kDLFloat, 32, 1, 2), b = numbers(data[1], kDLFloat, 32, 1, 2),
         k = numbers(key, kDLInt, 64, 1, 2);
    words names = words_of(2, (const char *const[]){"a", "c"}), w = words_of(3, (const char *const[]){"y", "q", "x"});
    dlc_onnx_value words_map[] = {value_of_words(&names), value_of_tensor(&a)},
                   numbers_map[] = {value_of_tensor(&k), value_of_tensor(&b)}, *y[5];
    const dlc_onnx_value in[] = {{.kind = DLC_ONNX_MAP, .count = 2, .elements = words_map},
                                 {.kind = DLC_ONNX_MAP, .count = 2, .elements = numbers_map},
                                 value_of_words(&w)};
    run_values(&f, in, 3, y, 5);
    expect_floats(y[0], 4, (float[]){4, 8, 0, 0});
    expect_floats(y[1], 2, (float[]){2.5f, 1.5f});
    assert_memory_equal(y[2]->tensor->data, ((int64_t[]){0, 2, 0, 1, 0}), 40);
    expect_words(y[3], "2.5,1.5");
    assert_memory_equal(y[4]->tensor->data, ((int64_t[]){6, -1, 5}), 24);
    release(y, 5);
    key[0] = 0; /* other keys: another import */
    run_values(&f, in, 3, y, 5);
    expect_floats(y[1], 2, (float[]){1.5f, 2.5f});
    release(y, 5);
    expect_imports(&f, 2, "values by their structure");
    key[0] = 5;
    expect_failure(&f, in, 3, 5, DLC_INVALID_ARGUMENT, "key 5; max_map is 5");
    names.count = 1;
    expect_failure(&f, in, 3, 5, DLC_INVALID_ARGUMENT, "no lists of one length");
    names.count = 2, words_map[0] = value_of_tensor(&k);
    expect_failure(&f, in, 3, 5, DLC_INVALID_ARGUMENT, "words.keys is a tensor");
    words_map[0] = value_of_words(&names), words_map[1] = value_of_words(&names);
    expect_failure(&f, in, 3, 5, DLC_INVALID_ARGUMENT, "words.values is strings");
    finish(&f);
}

/* ---- n-grams ---------------------------------------------------------------------------------------------------------------------- */

/* Counts as the standard describes them: the pool has three items, three pairs and one of three. */
static void count_grams(const int64_t *row, int64_t size, float *sum) {
    static const int64_t one[] = {2, 3, 5}, two[] = {2, 3, 5, 4, 3, 3}, three[] = {2, 3, 2};
    static const int column[] = {2, 0, 4, 1, 3, 5, 0};
    memset(sum, 0, 6 * sizeof *sum);
    for (int64_t i = 0; i < size; i++) {
        for (int k = 0; k < 3; k++) sum[column[k]] += row[i] == one[k];
        for (int64_t step = 1; step <= 3; step++) {
            for (int k = 0; k < 3 && i + step < size; k++)
                sum[column[3 + k]] += row[i] == two[2 * k] && row[i + step] == two[2 * k + 1];
            if (i + 2 * step < size)
                sum[column[6]] += row[i] == three[0] && row[i + step] == three[1] && row[i + 2 * step] == three[2];
        }
    }
}

#define GRAMS                                                                                      \
    " mode=s:TF min_gram_length=i:1 max_gram_length=i:3 max_skip_count=i:2 ngram_counts=is:0,3,9 " \
    "ngram_indexes=is:2,0,4,1,3,5,0"

static void test_ngrams(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "TfIdfVectorizer y x | pool_int64s=is:2,3,5,2,3,5,4,3,3,2,3,2" GRAMS);
    add_node(&g, "TfIdfVectorizer z w | pool_strings=ss:b,c,e,b,c,e,d,c,c,b,c,b" GRAMS);
    add_port(&g, 11, "x", "T7 rows n"), add_port(&g, 11, "w", "T8 n");
    add_port(&g, 12, "y", "T1 rows m"), add_port(&g, 12, "z", "T1 m");
    fixture f = made_of(g);
    static const char *const letters[] = {"", "a", "b", "c", "d", "e"};
    uint64_t seed = 1;
    for (int size = 1; size <= 9; size++) {
        int64_t data[18];
        words w = {.count = size};
        float expected[12];
        for (int i = 0; i < 2 * size; i++) data[i] = 1 + (int64_t)((seed = seed * 6364136223846793005u + 1) >> 33) % 5;
        for (int i = 0; i < size; i++) w.string[i] = (dlc_onnx_string){letters[data[i]], 1};
        held x = numbers(data, kDLInt, 64, 2, 2 * size);
        x.shape[0] = 2, x.shape[1] = size;
        const dlc_onnx_value in[] = {value_of_tensor(&x), value_of_words(&w)};
        dlc_onnx_value *y[2];
        count_grams(data, size, expected), count_grams(data + size, size, expected + 6);
        run_values(&f, in, 2, y, 2);
        expect_floats(y[0], 12, expected);
        expect_floats(y[1], 6, expected);
        release(y, 2);
    }
    finish(&f);
}

/* Strings by computed indices, and numbers as strings, in nodes that read strings: walked. */
static void test_chosen(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "ArgMax index x | axis=i:1 keepdims=i:0");
    add_node(&g, ".LabelEncoder label index | keys_int64s=is:0,1 values_strings=ss:cat,dog");
    add_node(&g, "StringConcat joined label suffix");
    add_node(&g, "Cast text index | to=i:8");
    add_node(&g, "StringConcat named text joined");
    add_node(&g, "SequenceConstruct list text joined"), add_node(&g, "ConcatFromSequence all list | axis=i:0");
    add_node(&g, "StringConcat digits text text"), add_node(&g, "Cast number digits | to=i:7");
    add_strings(&g, "suffix", 1, (const char *const[]){"!"});
    add_port(&g, 11, "x", "T1 n 2");
    add_port(&g, 12, "named", "T8 n"), add_port(&g, 12, "all", "T8 m"), add_port(&g, 12, "number", "T7 n");
    fixture f = made_of(g);
    for (int turn = 0; turn < 4; turn++) {
        float data[20] = {0};
        dlc_onnx_value *y[3];
        const int64_t count = turn < 2 ? 2 : 10;
        data[turn % 2] = 1, data[2] = 1;
        held x = numbers(data, kDLFloat, 32, 2, 2 * count);
        const dlc_onnx_value in = value_of_tensor(&x);
        run_values(&f, &in, 1, y, 3);
        assert_int_equal(y[0]->dims[0], count);
        assert_int_equal(y[1]->dims[0], 2 * count);
        if (turn < 2) expect_words(y[0], turn ? "1dog!,0cat!" : "0cat!,0cat!");
        if (turn < 2) expect_words(y[1], turn ? "1,0,dog!,cat!" : "0,0,cat!,cat!");
        expect_integer(y[2], turn % 2 ? 11 : 0);
        release(y, 3);
    }
    expect_imports(&f, 1, "4 runs: walked");
    finish(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings), cmocka_unit_test(test_hostile_strings), cmocka_unit_test(test_hostile_constant),
        cmocka_unit_test(test_moves),   cmocka_unit_test(test_casts),           cmocka_unit_test(test_classifier),
        cmocka_unit_test(test_maps),    cmocka_unit_test(test_ngrams),          cmocka_unit_test(test_chosen),
    };
    return cmocka_run_group_tests_name("onnx text", tests, open_all, close_all);
}
