/* Sequences of kernels that are launched repeatedly, as one CUDA graph. The launches of a run are compared with the graph: if arguments
 * differ, the graph's node is updated; if kernels differ, the graph is rebuilt; then it is launched as a whole. If graphs cannot be made,
 * kernels are launched one by one. */
#include "targets/cuda/cuda.h"

typedef struct batch_launch {
    CUfunction function;
    unsigned blocks, threads, shared;
    int parameters;
    /* index of the launch's first parameter in `values` */
    size_t first;
    CUgraphNode node;
} batch_launch;

struct target_batch {
    target_device *device;
    CUgraph graph;
    /* the instantiated `graph`, with all launches; NULL: it must be made */
    CUgraphExec exec;
    batch_launch *launches;
    /* parameters of all launches, 8 bytes each */
    uint64_t *values;
    size_t count, capacity, value_count, value_capacity;
    /* number of launches in this run so far */
    size_t at;
    /* no graph could be made, and none will be tried again */
    bool refused;
};

static bool has_graphs(const cuda_driver *driver) {
    return driver->cuGraphCreate && driver->cuGraphDestroy && driver->cuGraphAddKernelNode_v2 &&
           driver->cuGraphInstantiateWithFlags && driver->cuGraphExecDestroy &&
           driver->cuGraphExecKernelNodeSetParams_v2 && driver->cuGraphLaunch;
}

static void drop_graph(target_batch *batch) {
    const cuda_driver *driver = &batch->device->driver;
    if (batch->exec) driver->cuGraphExecDestroy(batch->exec);
    if (batch->graph) driver->cuGraphDestroy(batch->graph);
    batch->exec = NULL;
    batch->graph = NULL;
}

void cuda_batch_release(target_device *device, target_batch *batch) {
    if (!batch) return;
    if (lib_process_is_here(&device->process)) drop_graph(batch);
    lib_release(&device->allocator, batch->launches, batch->capacity * sizeof *batch->launches, 16);
    lib_release(&device->allocator, batch->values, batch->value_capacity * sizeof *batch->values, 16);
    lib_release(&device->allocator, batch, sizeof *batch, _Alignof(target_batch));
}

target_batch *cuda_batch_begin(target_device *device, target_batch *batch) {
    if (!batch && has_graphs(&device->driver)) {
        batch = lib_allocate_zeroed(&device->allocator, sizeof *batch, _Alignof(target_batch));
        if (batch) batch->device = device;
    }
    if (batch) batch->at = 0;
    return batch && !batch->refused ? batch : NULL;
}

/* ---- lists */

static bool grow(const dlc_allocator *allocator, void **list, size_t *capacity, size_t needed, size_t element) {
    if (needed <= *capacity) return true;
    size_t more = *capacity ? 2 * *capacity : 64;
    if (more < needed) more = needed;
    void *larger = lib_allocate(allocator, more * element, 16);
    if (!larger) return false;
    if (*capacity) memcpy(larger, *list, *capacity * element);
    lib_release(allocator, *list, *capacity * element, 16);
    *list = larger;
    *capacity = more;
    return true;
}

static bool add(target_batch *batch, const batch_launch *launch, void *const *parameters) {
    const dlc_allocator *allocator = &batch->device->allocator;
    void *launches = batch->launches, *values = batch->values;
    size_t count = (size_t)launch->parameters;
    bool room = grow(allocator, &launches, &batch->capacity, batch->count + 1, sizeof *batch->launches);
    batch->launches = launches;
    room = room && grow(allocator, &values, &batch->value_capacity, batch->value_count + count, sizeof *batch->values);
    batch->values = values;
    if (!room) return false;
    batch_launch *own = &batch->launches[batch->count++];
    *own = *launch;
    own->first = batch->value_count;
    for (size_t i = 0; i < count; i++) memcpy(&batch->values[own->first + i], parameters[i], sizeof *batch->values);
    batch->value_count += count;
    return true;
}

/* ---- the graph */

static CUDA_KERNEL_NODE_PARAMS describe(const target_batch *batch, const batch_launch *launch, void **parameters) {
    for (int i = 0; i < launch->parameters; i++) parameters[i] = &batch->values[launch->first + (size_t)i];
    return (CUDA_KERNEL_NODE_PARAMS){.func = launch->function,
                                     .gridDimX = launch->blocks,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = launch->threads,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .sharedMemBytes = launch->shared,
                                     .kernelParams = parameters};
}

/* Makes the graph: a node for each launch, in sequence. False: the driver refused. */
static bool make_graph(target_batch *batch) {
    const cuda_driver *driver = &batch->device->driver;
    void *parameters[CUDA_PARAMETER_LIMIT];
    bool good = driver->cuGraphCreate(&batch->graph, 0) == CUDA_SUCCESS;
    if (!good) batch->graph = NULL;
    for (size_t i = 0; i < batch->count && good; i++) {
        const CUDA_KERNEL_NODE_PARAMS node = describe(batch, &batch->launches[i], parameters);
        const CUgraphNode *before = i ? &batch->launches[i - 1].node : NULL;
        good = driver->cuGraphAddKernelNode_v2(&batch->launches[i].node, batch->graph, before, i ? 1 : 0, &node) ==
               CUDA_SUCCESS;
    }
    good = good && driver->cuGraphInstantiateWithFlags(&batch->exec, batch->graph, 0) == CUDA_SUCCESS;
    if (good) return true;
    batch->exec = NULL;
    drop_graph(batch);
    return false;
}

/* Updates a recorded launch, and its node, if `launch` differs in sizes or parameters. Returns whether it differed. */
static bool update_node(target_batch *batch, batch_launch *own, const batch_launch *launch, void *const *parameters) {
    uint64_t *values = batch->values + own->first;
    bool differs = own->blocks != launch->blocks || own->threads != launch->threads || own->shared != launch->shared;
    own->blocks = launch->blocks;
    own->threads = launch->threads;
    own->shared = launch->shared;
    for (int i = 0; i < own->parameters; i++) {
        if (memcmp(&values[i], parameters[i], sizeof *values) == 0) continue;
        memcpy(&values[i], parameters[i], sizeof *values);
        differs = true;
    }
    return differs;
}

bool cuda_batch_add(target_batch *batch, CUfunction function, unsigned blocks, unsigned threads, unsigned shared,
                    void *const *parameters, int count) {
    const batch_launch launch = {
        .function = function, .blocks = blocks, .threads = threads, .shared = shared, .parameters = count};
    batch_launch *own = batch->at < batch->count ? &batch->launches[batch->at] : NULL;
    if (own && own->function == function && own->parameters == count) {
        batch->at++;
        if (!update_node(batch, own, &launch, parameters) || !batch->exec) return true;
        void *pointers[CUDA_PARAMETER_LIMIT];
        const CUDA_KERNEL_NODE_PARAMS node = describe(batch, own, pointers);
        if (batch->device->driver.cuGraphExecKernelNodeSetParams_v2(batch->exec, own->node, &node) != CUDA_SUCCESS)
            drop_graph(batch); /* the graph is made again at the end of the batch */
        return true;
    }
    drop_graph(batch);
    if (own) batch->value_count = own->first;
    batch->count = batch->at;
    if (!add(batch, &launch, parameters)) return false;
    batch->at++;
    return true;
}

/* ---- launching */

static dlc_status launch_all(const target_batch *batch, CUstream stream, lib_error *error) {
    for (size_t i = 0; i < batch->at; i++) {
        void *parameters[CUDA_PARAMETER_LIMIT];
        const batch_launch *l = &batch->launches[i];
        describe(batch, l, parameters);
        CUDA_TRY(batch->device, cuLaunchKernel,
                 (l->function, l->blocks, 1, 1, l->threads, 1, 1, l->shared, stream, parameters, NULL), error);
    }
    return DLC_OK;
}

dlc_status cuda_batch_end(target_batch *batch, CUstream stream, lib_error *error) {
    if (batch->at < batch->count) {
        drop_graph(batch);
        batch->value_count = batch->launches[batch->at].first;
        batch->count = batch->at;
    }
    if (!batch->at) return DLC_OK;
    batch->refused = !batch->exec && !make_graph(batch);
    if (batch->refused) return launch_all(batch, stream, error);
    CUDA_TRY(batch->device, cuGraphLaunch, (batch->exec, stream), error);
    return DLC_OK;
}
