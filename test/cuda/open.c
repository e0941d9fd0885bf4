/* Finding driver, NVRTC and device: what is missing or wrong is a status that says so, and nothing is left behind. */
#include "targets/cuda/cuda.h"
#include "test/cuda/fakes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static fakes *f;

static dlc_status open_close(int ordinal, tir_machine *machine, lib_error *error) {
    const lib_log log = {0};
    const target_options options = {.allocator = &lib_libc_allocator, .log = &log, .ordinal = ordinal};
    target_device *device;
    tir_machine facts;
    error->message[0] = 0;
    dlc_status status = target_cuda.open(&options, &device, machine ? machine : &facts, error);
    if (status == DLC_OK) target_cuda.close(device);
    assert_true(fakes_are_empty(f));
    return status;
}

static void expect_refusal(const char *part) {
    lib_error error;
    assert_int_equal(open_close(0, NULL, &error), DLC_UNSUPPORTED);
    if (!strstr(error.message, part)) fail_msg("\"%s\" is not in: %s", part, error.message);
    fakes_reset(f);
}

static void test_facts(void **state) {
    (void)state;
    lib_error error;
    tir_machine machine, named;
    assert_int_equal(open_close(1, &machine, &error), DLC_OK);
    assert_string_equal(machine.target, "cuda");
    assert_string_equal(machine.name, "Fake 1");
    assert_int_equal(machine.architecture, 90);
    assert_int_equal(machine.warp, 32);
    assert_int_equal(machine.shared_memory, 227 << 10);
    assert_int_equal(machine.multiprocessors, 4);
    assert_true(cuda_machine_of_name("sm_80", &named));
    assert_int_equal(named.architecture, 80);
    assert_false(cuda_machine_of_name("sm_1", &named));
    assert_null(f->driver->message[0] ? f->driver->message : NULL);
}

static void test_driver(void **state) {
    (void)state;
    setenv("DLC_CUDA", "/nowhere/libcuda.so.1", 1);
    expect_refusal("/nowhere/libcuda.so.1");
    setenv("DLC_CUDA", f->nvrtc_path, 1); /* a library without the symbols */
    expect_refusal("has no function cuInit");
    f->driver->version = 11010;
    expect_refusal("for CUDA 11.1, expected 11.2");
    f->driver->fail = "cuInit", f->driver->fail_at = 1, f->driver->fail_with = CUDA_ERROR_STUB_LIBRARY;
    expect_refusal("stub");
    f->driver->fail = "cuInit", f->driver->fail_at = 1, f->driver->fail_with = CUDA_ERROR_NO_DEVICE;
    expect_refusal("no CUDA device is visible");
    f->driver->fail = "cuInit", f->driver->fail_at = 1, f->driver->fail_with = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    expect_refusal("different versions");
    f->driver->fail = "cuInit", f->driver->fail_at = 1, f->driver->fail_with = CUDA_ERROR_UNKNOWN;
    expect_refusal("CUDA_ERROR_UNKNOWN (999)");
    f->driver->devices = -1;
    expect_refusal("no device");
    lib_error error;
    assert_int_equal(open_close(2, NULL, &error), DLC_UNSUPPORTED);
    assert_non_null(strstr(error.message, "no device 2, expected 0 to 1"));
}

/* The toolkit's own, where it is installed. */
static void test_stub(void **state) {
    (void)state;
    const char *path = "/usr/local/cuda/lib64/stubs/libcuda.so";
    if (access(path, R_OK) != 0) skip();
    setenv("DLC_CUDA", path, 1);
    expect_refusal("stub");
}

static void test_nvrtc(void **state) {
    (void)state;
    setenv("DLC_NVRTC", "/nowhere/libnvrtc.so", 1);
    expect_refusal("/nowhere/libnvrtc.so");
    setenv("DLC_NVRTC", f->driver_path, 1);
    expect_refusal("has no function nvrtcGetErrorString");
    f->driver->capability = 60;
    expect_refusal("compute capability 7.5 and newer, the device has 6.0");
    f->driver->version = 12040, f->driver->refuses_code = f->driver->refuses_ptx = true;
    expect_refusal("libnvrtc.so.12");
    lib_error error;
    f->driver->version = 12040, f->driver->refuses_code = true; /* PTX will do */
    assert_int_equal(open_close(0, NULL, &error), DLC_OK);
    fakes_reset(f);
    f->driver->version = 12040; /* its code will do */
    assert_int_equal(open_close(0, NULL, &error), DLC_OK);
    fakes_reset(f);
    f->driver->capability = 121; /* newer than NVRTC: PTX of what it knows */
    assert_int_equal(open_close(0, NULL, &error), DLC_OK);
    fakes_reset(f);
    f->driver->no_pools = true;
    assert_int_equal(open_close(0, NULL, &error), DLC_OK);
    fakes_reset(f);
}

/* Each call in turn fails, at its first use and later. */
static void test_failures(void **state) {
    (void)state;
    static const char *const names[] = {
#define X(need, type, name, parameters) #name,
        CUDA_DRIVER_TABLE(X) CUDA_NVRTC_TABLE(X)
#undef X
    };
    int failures = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (long nth = 1;; nth++) {
            fakes_reset(f);
            f->driver->version = 12040; /* so that open compiles and loads something */
            fake_control *c = strncmp(names[i], "nvrtc", 5) == 0 ? f->nvrtc : f->driver;
            c->fail = names[i], c->fail_at = nth, c->fail_with = 5;
            lib_error error;
            dlc_status status = open_close(0, NULL, &error);
            if (c->seen < nth) break;
            /* what gives back, and what there is another way for */
            bool harmless = strstr(names[i], "Unload") || strstr(names[i], "Release") || strstr(names[i], "Destroy") ||
                            strstr(names[i], "PopCurrent") || strstr(names[i], "cuModuleLoad") || c == f->nvrtc;
            if (!harmless) assert_int_not_equal(status, DLC_OK);
            if (status != DLC_OK) assert_true(error.message[0]);
            failures++;
        }
    fakes_reset(f);
    assert_true(failures > 20);
}

static void test_fork(void **state) {
    (void)state;
    const lib_log log = {0};
    const target_options options = {.allocator = &lib_libc_allocator, .log = &log};
    target_device *device;
    tir_machine machine;
    lib_error error;
    assert_int_equal(target_cuda.open(&options, &device, &machine, &error), DLC_OK);
    pid_t child = fork();
    if (child == 0) {
        bool told = target_cuda.runtime->enter(device, &error) == DLC_DEVICE_ERROR && strstr(error.message, "forked");
        target_cuda.close(device);
        _exit(told ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    target_cuda.close(device);
    assert_true(fakes_are_empty(f));
}

int main(void) {
    f = fakes_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts), cmocka_unit_test(test_driver),   cmocka_unit_test(test_stub),
        cmocka_unit_test(test_nvrtc), cmocka_unit_test(test_failures), cmocka_unit_test(test_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
