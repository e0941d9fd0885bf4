/* The C interface of ONNX Runtime. The library comes without headers; its interface is a table of functions to which later versions only
 * append, so what is used of it is declared here by position. */
#ifndef BENCH_ONNXRUNTIME_H
#define BENCH_ONNXRUNTIME_H

#include <stddef.h>
#include <stdint.h>

typedef struct ort_status ort_status; /* NULL: success */
typedef struct ort_env ort_env;
typedef struct ort_options ort_options;
typedef struct ort_session ort_session;
typedef struct ort_run_options ort_run_options;
typedef struct ort_memory_info ort_memory_info;
typedef struct ort_value ort_value;
typedef struct ort_binding ort_binding;
typedef struct ort_allocator ort_allocator;
typedef struct ort_type_info ort_type_info;
/* element type and shape */
typedef struct ort_tensor_info ort_tensor_info;

enum {
    ORT_LOG_FATAL = 4,
    ORT_OPTIMISE_NOTHING = 0,
    ORT_OPTIMISE_ALL = 99,
    ORT_ARENA_ALLOCATOR = 1,
    ORT_MEMORY_DEFAULT = 0
};

/* name, position in the table, result, parameters */
#define ORT_TABLE(X)                                                                                                 \
    X(error_message, 2, const char *, (const ort_status *))                                                          \
    X(create_env, 3, ort_status *, (int level, const char *name, ort_env **))                                        \
    X(create_session_of_file, 7, ort_status *,                                                                       \
      (const ort_env *, const char *path, const ort_options *, ort_session **))                                      \
    X(create_session, 8, ort_status *, (const ort_env *, const void *, size_t, const ort_options *, ort_session **)) \
    X(run, 9, ort_status *,                                                                                          \
      (ort_session *, const ort_run_options *, const char *const *inputs, const ort_value *const *, size_t,          \
       const char *const *outputs, size_t, ort_value **))                                                            \
    X(create_options, 10, ort_status *, (ort_options **))                                                            \
    X(set_optimisation, 23, ort_status *, (ort_options *, int level))                                                \
    X(set_threads, 24, ort_status *, (ort_options *, int count))                                                     \
    X(input_count, 30, ort_status *, (const ort_session *, size_t *))                                                \
    X(output_count, 31, ort_status *, (const ort_session *, size_t *))                                               \
    X(input_type, 33, ort_status *, (const ort_session *, size_t index, ort_type_info **))                           \
    X(input_name, 36, ort_status *, (const ort_session *, size_t index, ort_allocator *, char **))                   \
    X(output_name, 37, ort_status *, (const ort_session *, size_t index, ort_allocator *, char **))                  \
    X(create_tensor, 49, ort_status *,                                                                               \
      (const ort_memory_info *, void *, size_t, const int64_t *, size_t, int type, ort_value **))                    \
    X(tensor_data, 51, ort_status *, (ort_value *, void **))                                                         \
    X(tensor_info_of_type, 55, ort_status *, (const ort_type_info *, const ort_tensor_info **))                      \
    X(element_type, 60, ort_status *, (const ort_tensor_info *, int *))                                              \
    X(rank, 61, ort_status *, (const ort_tensor_info *, size_t *))                                                   \
    X(dimensions, 62, ort_status *, (const ort_tensor_info *, int64_t *, size_t))                                    \
    X(symbols, 63, ort_status *, (const ort_tensor_info *, const char **, size_t))                                   \
    X(tensor_info_of_value, 65, ort_status *, (const ort_value *, ort_tensor_info **))                               \
    X(create_memory_info, 69, ort_status *, (int allocator, int memory, ort_memory_info **))                         \
    X(release_text, 76, ort_status *, (ort_allocator *, void *))                                                     \
    X(default_allocator, 78, ort_status *, (ort_allocator **))                                                       \
    X(release_env, 92, void, (ort_env *))                                                                            \
    X(release_status, 93, void, (ort_status *))                                                                      \
    X(release_memory_info, 94, void, (ort_memory_info *))                                                            \
    X(release_session, 95, void, (ort_session *))                                                                    \
    X(release_value, 96, void, (ort_value *))                                                                        \
    X(release_type_info, 98, void, (ort_type_info *))                                                                \
    X(release_tensor_info, 99, void, (ort_tensor_info *))                                                            \
    X(release_options, 100, void, (ort_options *))                                                                   \
    X(set_symbol, 124, ort_status *, (ort_options *, const char *name, int64_t size))                                \
    X(set_option, 130, ort_status *, (ort_options *, const char *key, const char *value))                            \
    X(run_bound, 133, ort_status *, (ort_session *, const ort_run_options *, const ort_binding *))                   \
    X(create_binding, 134, ort_status *, (ort_session *, ort_binding **))                                            \
    X(release_binding, 135, void, (ort_binding *))                                                                   \
    X(bind_input, 136, ort_status *, (ort_binding *, const char *name, const ort_value *))                           \
    X(bind_output, 137, ort_status *, (ort_binding *, const char *name, const ort_value *))                          \
    X(bind_output_in, 138, ort_status *, (ort_binding *, const char *name, const ort_memory_info *))                 \
    X(bound_results, 140, ort_status *, (const ort_binding *, ort_allocator *, ort_value ***, size_t *count))

typedef struct ort_api {
#define X(name, position, result, parameters) result(*name) parameters;
    ORT_TABLE(X)
#undef X
} ort_api;

/* NULL: the library does not have this interface. */
const ort_api *onnxruntime(void);
const char *onnxruntime_version(void);
/* Options of a session at its best: all optimisations; f32 is not rounded to bytes beside quantised weights. Threads may spin within a
 * sample, like everybody's, but not into the next contestant's. The caller releases *options, also after an error. */
ort_status *onnxruntime_options(int threads, ort_options **options);

#endif
