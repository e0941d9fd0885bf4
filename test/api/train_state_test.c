/* <dlc/train.h>: the state of trainers: tensors that it begins with, carried values of all element types in files, functions of the host that a
 * step calls. */
#include "api/trainers.h"

#include <dlc/files.h>

/* The tensor of a parameter's options, and its data, live as long as the call. */
static dlc_value local_parameter(dlc_training *t) {
    float numbers[3] = {7, 8, 9};
    tensor from;
    dlc_parameter_options o = DLC_PARAMETER_OPTIONS_INIT;
    make_tensor(&from, DLC_F32, numbers, 1, SHAPE(3));
    o.tensor = &from.dl;
    const dlc_value w = dlc_training_parameter(t, "w", DLC_F32, 1, SHAPE(3), &o);
    memset(numbers, 0xff, sizeof numbers);
    memset(&from, 0xff, sizeof from);
    return w;
}

static dlc_status build_local(void *user, dlc_training *t, dlc_value *loss) {
    (void)user;
    *loss = dlc_reduce_sum(local_parameter(t), 0, NULL);
    return DLC_OK;
}

static void test_local_tensor(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_trainer *trainer;
    double got[3];
    OK(context, dlc_trainer_create(context, build_local, NULL, NULL, &trainer));
    read_state(context, trainer, "w", got);
    CHECK(got[0] == 7 && got[1] == 8 && got[2] == 9);
    dlc_trainer_destroy(trainer);
    dlc_context_destroy(context);
}

/* A trainer with a carried value is saved and loaded again, for each element type that a carried value may have. */
typedef struct carried_case {
    dlc_dtype dtype;
    dlc_initial initial;
} carried_case;

static dlc_status build_of_type(void *user, dlc_training *t, dlc_value *loss) {
    const carried_case *c = user;
    dlc_parameter_options o = DLC_PARAMETER_OPTIONS_INIT;
    o.initial = c->initial, o.scale = c->initial ? 2 : 0;
    dlc_training_carry(t, "carried", dlc_training_carried(t, "carried", c->dtype, 1, SHAPE(5), &o));
    *loss = dlc_reduce_sum(dlc_training_parameter(t, "w", DLC_F32, 1, SHAPE(3), NULL), 0, NULL);
    return DLC_OK;
}

static void test_saved_types(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_file *file;
    DLManagedTensorVersioned *copy;
    for (carried_case c = {0}; c.dtype < DLC_DTYPE_COUNT; c.dtype++) {
        unsigned char bytes[40];
        tensor given;
        dlc_trainer *a, *b;
        OK(context, dlc_trainer_create(context, build_of_type, &c, NULL, &a));
        OK(context, dlc_trainer_create(context, build_of_type, &c, NULL, &b));
        OK(context, dlc_trainer_tensor(a, "carried", &copy));
        const size_t size = ((size_t)copy->dl_tensor.dtype.bits * 5 + 7) / 8;
        copy->deleter(copy);
        memset(bytes, 1, sizeof bytes);
        make_tensor(&given, c.dtype, bytes, 1, SHAPE(5));
        OK(context, dlc_trainer_set(a, "carried", &given.dl));
        OK(context, dlc_trainer_step(a, NULL, NULL, 0, NULL, NULL, 0));
        OK(context, dlc_trainer_save(a, in_folder("a.safetensors")));
        OK(context, dlc_trainer_save_weights(a, in_folder("w.safetensors")));
        OK(context, dlc_trainer_load(b, in_folder("a.safetensors")));
        OK(context, dlc_trainer_tensor(b, "carried", &copy));
        CHECK(memcmp(copy->dl_tensor.data, bytes, size) == 0);
        copy->deleter(copy);
        OK(context, dlc_file_open(context, in_folder("w.safetensors"), NULL, &file));
        OK(context, dlc_file_tensor(file, "carried", &copy));
        const DLTensor *saved = &copy->dl_tensor;
        if (memcmp(&saved->dtype, &given.dl.dtype, sizeof saved->dtype) != 0)
            CHECK(saved->dtype.code == kDLUInt && saved->dtype.bits == 8 && saved->shape[0] == (int64_t)size);
        CHECK(memcmp(saved->data, bytes, size) == 0);
        copy->deleter(copy);
        dlc_file_destroy(file);
        dlc_trainer_destroy(a);
        dlc_trainer_destroy(b);
    }
    /* random beginnings: of all floats that have both signs */
    static const dlc_dtype floats[] = {DLC_F16, DLC_BF16, DLC_F8E4M3FN, DLC_F8E5M2, DLC_F8E4M3FNUZ, DLC_F4E2M1};
    for (size_t f = 0; f < sizeof floats / sizeof *floats; f++)
        for (int initial = DLC_INITIAL_NORMAL; initial <= DLC_INITIAL_UNIFORM; initial++) {
            dlc_trainer *trainer;
            carried_case c = {floats[f], (dlc_initial)initial};
            OK(context, dlc_trainer_create(context, build_of_type, &c, NULL, &trainer));
            dlc_trainer_destroy(trainer);
        }
    dlc_trainer *none;
    CHECK(dlc_trainer_create(context, build_of_type, &(carried_case){DLC_F8E8M0, DLC_INITIAL_NORMAL}, NULL, &none) ==
          DLC_INVALID_ARGUMENT);
    dlc_context_destroy(context);
}

/* A function of the host that a step or an evaluation calls uses the trainer: all calls are refused, and the step is as without them. */
typedef struct inner_calls {
    dlc_trainer *trainer;
    int refused, calls;
} inner_calls;

static void use_trainer(void *user, int inputs, const DLTensor *const *input, int outputs, DLTensor *const *output) {
    inner_calls *in = user;
    DLManagedTensorVersioned *copy;
    (void)inputs, (void)outputs;
    memcpy(output[0]->data, input[0]->data, sizeof(float));
    const dlc_status all[] = {dlc_trainer_step(in->trainer, NULL, NULL, 0, NULL, NULL, 0),
                              dlc_trainer_evaluate(in->trainer, NULL, NULL, 0, NULL, NULL, 0),
                              dlc_trainer_tensor(in->trainer, "w", &copy),
                              dlc_trainer_set(in->trainer, "w", input[0]),
                              dlc_trainer_save(in->trainer, in_folder("c.safetensors")),
                              dlc_trainer_save_weights(in->trainer, in_folder("c.safetensors")),
                              dlc_trainer_load(in->trainer, in_folder("a.safetensors"))};
    in->calls++;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) in->refused += all[i] == DLC_INVALID_ARGUMENT;
}

static dlc_status build_inner(void *user, dlc_training *t, dlc_value *loss) {
    dlc_graph *g = dlc_training_graph(t);
    dlc_value w = dlc_training_parameter(t, "w", DLC_F32, 0, NULL, NULL), seen, held = dlc_stop_gradient(w);
    dlc_custom_register(g, "use", use_trainer, user);
    dlc_custom_effect(g, 1, &held, "use", 1, (int64_t[]){DLC_F32}, 1, (int64_t[]){0}, 0, NULL, 1, &seen);
    dlc_training_output(t, "seen", seen);
    *loss = dlc_mul(w, dlc_scalar(g, DLC_F32, 2));
    return DLC_OK;
}

static void test_inner_calls(void **state) {
    (void)state;
    for (int k = 0; k < TARGETS; k++) {
        inner_calls in = {0};
        dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
        dlc_context *context = open_context(all_targets[k], NULL);
        if (!context) continue;
        options.optimizer = "sgd", options.rate = "1";
        OK(context, dlc_trainer_create(context, build_inner, &in, &options, &in.trainer));
        OK(context, dlc_trainer_save(in.trainer, in_folder("a.safetensors")));
        for (int i = 0; i < 3; i++) {
            dlc_output_slot seen = {0};
            double w;
            OK(context, i < 2 ? dlc_trainer_step(in.trainer, NULL, NULL, 0, NULL, &seen, 1)
                              : dlc_trainer_evaluate(in.trainer, NULL, NULL, 0, NULL, &seen, 1));
            CHECK(seen.managed && *(const float *)seen.managed->dl_tensor.data == -2.0f * (float)i);
            seen.managed->deleter(seen.managed);
            read_state(context, in.trainer, "w", &w);
            CHECK(w == (i < 2 ? -2 * (i + 1) : -4));
        }
        CHECK(in.calls == 3 && in.refused == 21);
        dlc_trainer_destroy(in.trainer);
        dlc_context_destroy(context);
    }
}

/* Elements of half a byte: all begin as the number, and tensors with strides are refused. */
static dlc_status build_packed(void *given, dlc_training *t, dlc_value *loss) {
    dlc_parameter_options o = DLC_PARAMETER_OPTIONS_INIT;
    o.scale = 1, o.tensor = given;
    dlc_value packed = dlc_training_carried(t, "packed", DLC_F4E2M1, 1, SHAPE(5), &o);
    dlc_training_carry(t, "packed", packed);
    *loss = dlc_reduce_sum(dlc_training_parameter(t, "w", DLC_F32, 1, SHAPE(3), NULL), 0, NULL);
    return DLC_OK;
}

static void test_packed(void **state) {
    (void)state;
    counter c;
    unsigned char codes[3] = {0x21, 0x43, 0x05};
    tensor strided;
    dlc_context *context = open_counted("interp", &c); /* whose memory is not zero */
    dlc_trainer *trainer;
    DLManagedTensorVersioned *copy;
    make_tensor(&strided, DLC_F4E2M1, codes, 1, SHAPE(5));
    for (int given = 0; given < 2; given++) {
        OK(context, dlc_trainer_create(context, build_packed, given ? &strided.dl : NULL, NULL, &trainer));
        OK(context, dlc_trainer_tensor(trainer, "packed", &copy));
        const unsigned char *got = copy->dl_tensor.data;
        CHECK(given ? memcmp(got, codes, 3) == 0 : got[0] == 0x22 && got[1] == 0x22 && got[2] == 0x02);
        copy->deleter(copy);
        strided.strides[0] = -1, strided.dl.strides = strided.strides;
        CHECK(dlc_trainer_set(trainer, "packed", &strided.dl) == DLC_INVALID_ARGUMENT);
        CHECK(strstr(dlc_error_message(context), "packed: the tensor is not f4e2m1[5] in host memory, with data"));
        strided.dl.strides = NULL;
        OK(context, dlc_trainer_set(trainer, "packed", &strided.dl));
        dlc_trainer_destroy(trainer);
    }
    strided.dl.strides = strided.strides;
    CHECK(dlc_trainer_create(context, build_packed, &strided.dl, NULL, &trainer) == DLC_INVALID_ARGUMENT);
    CHECK(strstr(dlc_error_message(context), "options.tensor is not f4e2m1[5] in host memory"));
    strided.dl.strides = NULL, strided.dl.data = NULL;
    CHECK(dlc_trainer_create(context, build_packed, &strided.dl, NULL, &trainer) == DLC_INVALID_ARGUMENT);
    dlc_context_destroy(context);
    CHECK(atomic_load(&c.blocks) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_local_tensor),
        cmocka_unit_test(test_saved_types),
        cmocka_unit_test(test_inner_calls),
        cmocka_unit_test(test_packed),
    };
    return cmocka_run_group_tests_name("state of trainers", tests, make_folder, remove_folder);
}
