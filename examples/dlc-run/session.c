/* A model on a target: context, model and runner; messages; conversions of elements. */
#include "dlc-run.h"

#include <dlc/eager.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Messages of several lines become one. Some begin with the model's path. */
static void print_message(const char *model, char *message) {
    const size_t length = strlen(model);
    if (strncmp(message, model, length) == 0 && strncmp(message + length, ": ", 2) == 0) message += length + 2;
    for (char *end = message + strlen(message); end > message && end[-1] == '\n';) *--end = 0;
    for (char *c = message; *c; c++)
        if (*c == '\n') *c = ';';
    fprintf(stderr, "dlc-run: %s: %s\n", model, message);
}

bool fail(const session *s, const char *format, ...) {
    char message[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    print_message(s->o->model, message);
    return false;
}

/* Messages about files begin with their paths. */
bool fail_by_context(const session *s, const char *what) {
    const char *message = dlc_error_message(s->context);
    const size_t length = strlen(what);
    const bool said = strncmp(message, what, length) == 0 && message[length] == ':';
    return *what && !said ? fail(s, "%s: %s", what, message) : fail(s, "%s", message);
}

static void print_log(void *user, const char *line) {
    (void)user;
    fprintf(stderr, "%s\n", line);
}

static bool open_context(session *s, const char *target) {
    dlc_context_options how = DLC_CONTEXT_OPTIONS_INIT;
    how.target = target;
    how.threads = s->o->threads, how.compile_threads = s->o->compile_threads;
    how.cache_directory = s->o->cache;
    how.log = print_log;
    if (s->trace) how.trace = trace_event, how.trace_user = s->trace;
    return dlc_context_create(&how, &s->context) == DLC_OK || fail_by_context(s, target ? target : "");
}

int given_dims(const session *s, dlc_dim *dims) {
    for (int i = 0; i < s->o->dims.count; i++) {
        dims[i].name = s->o->dims.name[i];
        parse_size(s->o->dims.value[i], &dims[i].value);
    }
    return s->o->dims.count;
}

static bool make_runner(session *s) {
    dlc_onnx_runner_options how = DLC_ONNX_RUNNER_OPTIONS_INIT;
    dlc_onnx_state states[PORTS_MAX];
    dlc_dim dims[PORTS_MAX];
    for (int i = 0; i < s->o->states.count; i++)
        states[i] = (dlc_onnx_state){s->o->states.name[i], s->o->states.value[i]};
    how.states = states, how.state_count = s->o->states.count;
    how.dims = dims, how.dim_count = given_dims(s, dims);
    return dlc_onnx_runner_create(s->model, &how, &s->runner) == DLC_OK || fail_by_context(s, "");
}

bool session_open(session *s, const options *o, const char *target) {
    *s = (session){.o = o};
    if (o->traced && target == o->target && !(s->trace = trace_new())) return fail(s, "--trace: no memory");
    if (!open_context(s, target)) return false;
    if (dlc_onnx_open(s->context, o->model, NULL, &s->model) != DLC_OK) return fail_by_context(s, "");
    s->input_count = dlc_onnx_port_count(s->model, DLC_ONNX_INPUT);
    s->output_count = dlc_onnx_port_count(s->model, DLC_ONNX_OUTPUT);
    return o->list || o->check || make_runner(s);
}

void session_close(session *s) {
    dlc_onnx_runner_destroy(s->runner);
    dlc_onnx_destroy(s->model);
    dlc_context_destroy(s->context);
    trace_free(s->trace);
}

dlc_onnx_port port_of(const session *s, dlc_onnx_side side, int index) {
    dlc_onnx_port port = {.name = "", .dtype = -1, .rank = -1};
    (void)dlc_onnx_port_at(s->model, side, index, &port);
    for (int d = 0; d < port.rank; d++)
        if (port.dims[d].name && strcmp(port.dims[d].name, "?") == 0) port.dims[d] = (dlc_dim){-1, NULL};
    return port;
}

const char *state_of(const session *s, dlc_onnx_side side, const char *name) {
    const pairs *states = &s->o->states;
    if (side == DLC_ONNX_INPUT) return pair_value(states, name);
    for (int i = 0; i < states->count; i++)
        if (strcmp(states->value[i], name) == 0) return states->name[i];
    return NULL;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------------- */

DLManagedTensorVersioned *convert(const session *s, const DLTensor *tensor, dlc_dtype dtype) {
    DLManagedTensorVersioned *made = NULL;
    dlc_graph *graph = NULL;
    dlc_status status = dlc_eager_create(s->context, NULL, &graph);
    if (status == DLC_OK) status = dlc_eager_get(graph, dlc_cast(dlc_eager_tensor(graph, tensor), dtype), &made);
    if (status != DLC_OK) fail_by_context(s, "conversion of elements");
    dlc_graph_destroy(graph);
    return made;
}

dlc_dtype dtype_of(const DLTensor *tensor) {
    static const struct {
        int code, bits;
    } row[] = {
#define X(code, text, bits, dlpack, class_, usable) {dlpack, bits},
        DLC_DTYPE_TABLE(X)
#undef X
    };
    for (int i = 0; i < DLC_DTYPE_COUNT; i++)
        if (row[i].code == tensor->dtype.code && row[i].bits == tensor->dtype.bits) return (dlc_dtype)i;
    return DLC_DTYPE_COUNT;
}

int64_t element_count(const DLTensor *tensor) {
    int64_t count = 1;
    for (int d = 0; d < tensor->ndim; d++) count *= tensor->shape[d];
    return count;
}

const char *type_text(const DLTensor *tensor, char *text, size_t room) {
    const dlc_dtype dtype = dtype_of(tensor);
    int length = snprintf(text, room, "%s[", dtype == DLC_DTYPE_COUNT ? "?" : dlc_dtype_name(dtype));
    for (int d = 0; d < tensor->ndim; d++)
        length += snprintf(text + length, room - (size_t)length, "%s%" PRId64, d ? ", " : "", tensor->shape[d]);
    snprintf(text + length, room - (size_t)length, "]");
    return text;
}
