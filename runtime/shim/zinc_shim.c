/* See zinc_shim.h. */
#define _GNU_SOURCE
#include "zinc_shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"

struct zinc_driver {
    void *library;
#define DECLARE(name, arguments) CUresult(*name) arguments;
    ZINC_CUDA_BOOTSTRAP(DECLARE)
    ZINC_CUDA_REQUIRED(DECLARE)
    ZINC_CUDA_OPTIONAL(DECLARE)
#undef DECLARE
};

struct zinc_context {
    const zinc_driver *driver;
    CUcontext handle;
    CUdevice device;
    int retained;
};

struct zinc_graph {
    const zinc_context *context;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode *nodes;
    uint32_t count;
};

/* ---- errors ---- */

static int32_t fail_own(zinc_error *error, int32_t code, const char *call, const char *name) {
    if (error) {
        memset(error, 0, sizeof *error);
        error->code = code;
        error->call = call;
        error->name = name;
    }
    return code;
}

static int32_t fail(const zinc_driver *driver, zinc_error *error, CUresult code, const char *call) {
    if (error) {
        memset(error, 0, sizeof *error);
        error->code = code;
        error->call = call;
        if (driver->cuGetErrorName(code, &error->name) != CUDA_SUCCESS) error->name = NULL;
        if (driver->cuGetErrorString(code, &error->text) != CUDA_SUCCESS) error->text = NULL;
    }
    return code;
}

/* Evaluates one driver call and returns from the enclosing function when it fails. */
#define TRY(driver, function, ...)                                                      \
    do {                                                                                \
        CUresult try_code = (driver)->function(__VA_ARGS__);                            \
        if (try_code != CUDA_SUCCESS) return fail((driver), error, try_code, #function); \
    } while (0)

/* ---- driver ---- */

static int resolve(zinc_driver *driver, const char *name, void *slot) {
    void *symbol = dlsym(driver->library, name);
    memcpy(slot, &symbol, sizeof symbol);
    return symbol != NULL;
}

int32_t zinc_driver_open(const char *path, char *message, size_t message_bytes, zinc_driver **out, zinc_error *error) {
    if (message_bytes) message[0] = 0;
    zinc_driver *driver = calloc(1, sizeof *driver);
    if (!driver) return fail_own(error, ZINC_E_MEMORY, "calloc", NULL);
    driver->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!driver->library) {
        const char *text = dlerror();
        if (message_bytes) snprintf(message, message_bytes, "%s", text ? text : "no reason given");
        free(driver);
        return fail_own(error, ZINC_E_OPEN, "dlopen", NULL);
    }
#define RESOLVE(name, arguments)                                  \
    if (!resolve(driver, #name, &driver->name)) {                 \
        zinc_driver_close(driver);                                \
        return fail_own(error, ZINC_E_SYMBOL, "dlsym", #name);    \
    }
    ZINC_CUDA_BOOTSTRAP(RESOLVE)
#undef RESOLVE
    *out = driver;
    return 0;
}

void zinc_driver_path(const zinc_driver *driver, char *path, size_t path_bytes) {
    Dl_info info;
    void *symbol;
    memcpy(&symbol, &driver->cuInit, sizeof symbol);
    if (!path_bytes) return;
    path[0] = 0;
    if (dladdr(symbol, &info) && info.dli_fname) snprintf(path, path_bytes, "%s", info.dli_fname);
}

int32_t zinc_driver_start(zinc_driver *driver, zinc_error *error) {
    TRY(driver, cuInit, 0);
    return 0;
}

int32_t zinc_driver_version(const zinc_driver *driver, int32_t *version, zinc_error *error) {
    TRY(driver, cuDriverGetVersion, version);
    return 0;
}

int32_t zinc_driver_resolve(zinc_driver *driver, zinc_error *error) {
#define RESOLVE(name, arguments) \
    if (!resolve(driver, #name, &driver->name)) return fail_own(error, ZINC_E_SYMBOL, "dlsym", #name);
    ZINC_CUDA_REQUIRED(RESOLVE)
#undef RESOLVE
#define RESOLVE(name, arguments) (void)resolve(driver, #name, &driver->name);
    ZINC_CUDA_OPTIONAL(RESOLVE)
#undef RESOLVE
    return 0;
}

void zinc_driver_close(zinc_driver *driver) {
    if (!driver) return;
    dlclose(driver->library);
    free(driver);
}

/* ---- devices and contexts ---- */

int32_t zinc_device_count(const zinc_driver *driver, uint32_t *count, zinc_error *error) {
    int found = 0;
    TRY(driver, cuDeviceGetCount, &found);
    *count = (uint32_t)found;
    return 0;
}

/* 0 for an attribute that the driver does not know. */
static uint32_t attribute(const zinc_driver *driver, int attribute, CUdevice device) {
    int value = 0;
    if (driver->cuDeviceGetAttribute(&value, attribute, device) != CUDA_SUCCESS) return 0;
    return (uint32_t)value;
}

int32_t zinc_device_describe(const zinc_driver *driver, uint32_t ordinal, zinc_device_info *info, zinc_error *error) {
    CUdevice device = 0;
    CUuuid uuid;
    size_t bytes = 0;
    int major = 0, minor = 0;
    memset(info, 0, sizeof *info);
    memset(&uuid, 0, sizeof uuid);
    TRY(driver, cuDeviceGet, &device, (int)ordinal);
    TRY(driver, cuDeviceGetName, info->name, (int)sizeof info->name, device);
    TRY(driver, cuDeviceGetUuid_v2, &uuid, device);
    memcpy(info->uuid, uuid.bytes, sizeof info->uuid);
    TRY(driver, cuDeviceGetPCIBusId, info->pci_bus_id, (int)sizeof info->pci_bus_id, device);
    TRY(driver, cuDeviceTotalMem_v2, &bytes, device);
    info->memory_bytes = bytes;
    TRY(driver, cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    TRY(driver, cuDeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    info->capability_major = (uint32_t)major;
    info->capability_minor = (uint32_t)minor;
    info->sm_count = attribute(driver, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    info->warp_size = attribute(driver, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device);
    info->threads_per_sm = attribute(driver, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device);
    info->l2_bytes = attribute(driver, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device);
    info->shared_bytes_per_sm = attribute(driver, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device);
    info->shared_bytes_per_block_optin = attribute(driver, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device);
    info->memory_clock_khz = attribute(driver, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, device);
    info->memory_bus_bits = attribute(driver, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, device);
    info->integrated = attribute(driver, CU_DEVICE_ATTRIBUTE_INTEGRATED, device);
    info->sm_clock_khz = attribute(driver, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device);
    return 0;
}

int32_t zinc_context_retain(const zinc_driver *driver, uint32_t ordinal, zinc_context **out, zinc_error *error) {
    CUdevice device = 0;
    CUcontext handle = NULL;
    TRY(driver, cuDeviceGet, &device, (int)ordinal);
    TRY(driver, cuDevicePrimaryCtxRetain, &handle, device);
    zinc_context *context = calloc(1, sizeof *context);
    if (!context) {
        driver->cuDevicePrimaryCtxRelease_v2(device);
        return fail_own(error, ZINC_E_MEMORY, "calloc", NULL);
    }
    context->driver = driver;
    context->handle = handle;
    context->device = device;
    context->retained = 1;
    *out = context;
    return 0;
}

int32_t zinc_context_wrap(const zinc_driver *driver, void *raw, zinc_context **out, uint32_t *ordinal, zinc_error *error) {
    CUdevice device = 0;
    CUcontext popped = NULL;
    int count = 0;
    TRY(driver, cuCtxPushCurrent_v2, (CUcontext)raw);
    CUresult code = driver->cuCtxGetDevice(&device);
    driver->cuCtxPopCurrent_v2(&popped);
    if (code != CUDA_SUCCESS) return fail(driver, error, code, "cuCtxGetDevice");
    TRY(driver, cuDeviceGetCount, &count);
    *ordinal = UINT32_MAX;
    for (int i = 0; i < count; i++) {
        CUdevice candidate = 0;
        if (driver->cuDeviceGet(&candidate, i) == CUDA_SUCCESS && candidate == device) *ordinal = (uint32_t)i;
    }
    zinc_context *context = calloc(1, sizeof *context);
    if (!context) return fail_own(error, ZINC_E_MEMORY, "calloc", NULL);
    context->driver = driver;
    context->handle = (CUcontext)raw;
    context->device = device;
    *out = context;
    return 0;
}

void *zinc_context_raw(const zinc_context *context) { return context->handle; }

/* Makes the context current. *pushed tells leave() whether another one has to come back. */
static inline CUresult enter(const zinc_context *context, int *pushed) {
    CUcontext current = NULL;
    *pushed = 0;
    CUresult code = context->driver->cuCtxGetCurrent(&current);
    if (code != CUDA_SUCCESS || current == context->handle) return code;
    if (!current) return context->driver->cuCtxSetCurrent(context->handle);
    code = context->driver->cuCtxPushCurrent_v2(context->handle);
    *pushed = code == CUDA_SUCCESS;
    return code;
}

static inline void leave(const zinc_context *context, int pushed) {
    CUcontext popped = NULL;
    if (pushed) context->driver->cuCtxPopCurrent_v2(&popped);
}

/* Runs one driver call in the context and returns its result from the enclosing function. */
#define CALL(context, function, ...)                                                 \
    do {                                                                             \
        int call_pushed;                                                             \
        CUresult call_code = enter((context), &call_pushed);                         \
        if (call_code != CUDA_SUCCESS) return fail((context)->driver, error, call_code, "cuCtxSetCurrent"); \
        call_code = (context)->driver->function(__VA_ARGS__);                        \
        leave((context), call_pushed);                                               \
        if (call_code != CUDA_SUCCESS) return fail((context)->driver, error, call_code, #function); \
        return 0;                                                                    \
    } while (0)

int32_t zinc_context_synchronize(const zinc_context *context, zinc_error *error) { CALL(context, cuCtxSynchronize); }

int32_t zinc_context_release(zinc_context *context, zinc_error *error) {
    const zinc_driver *driver = context->driver;
    CUdevice device = context->device;
    int retained = context->retained;
    free(context);
    if (retained) TRY(driver, cuDevicePrimaryCtxRelease_v2, device);
    return 0;
}

/* ---- memory ---- */

int32_t zinc_memory_info(const zinc_context *context, uint64_t *free_bytes, uint64_t *total_bytes, zinc_error *error) {
    size_t free_size = 0, total_size = 0;
    int pushed;
    CUresult code = enter(context, &pushed);
    if (code == CUDA_SUCCESS) {
        code = context->driver->cuMemGetInfo_v2(&free_size, &total_size);
        leave(context, pushed);
    }
    if (code != CUDA_SUCCESS) return fail(context->driver, error, code, "cuMemGetInfo_v2");
    *free_bytes = free_size;
    *total_bytes = total_size;
    return 0;
}

int32_t zinc_memory_alloc(const zinc_context *context, uint64_t bytes, uint64_t *address, zinc_error *error) {
    CALL(context, cuMemAlloc_v2, address, bytes);
}

int32_t zinc_memory_free(const zinc_context *context, uint64_t address, zinc_error *error) {
    CALL(context, cuMemFree_v2, address);
}

int32_t zinc_pinned_alloc(const zinc_context *context, uint64_t bytes, void **address, zinc_error *error) {
    CALL(context, cuMemHostAlloc, address, bytes, CU_MEMHOSTALLOC_PORTABLE);
}

int32_t zinc_pinned_free(const zinc_context *context, void *address, zinc_error *error) {
    CALL(context, cuMemFreeHost, address);
}

int32_t zinc_copy_to_device(const zinc_context *context, zinc_stream *stream, uint64_t to, const void *from, uint64_t bytes,
                            zinc_error *error) {
    CALL(context, cuMemcpyHtoDAsync_v2, to, from, bytes, (CUstream)stream);
}

int32_t zinc_copy_to_host(const zinc_context *context, zinc_stream *stream, void *to, uint64_t from, uint64_t bytes,
                          zinc_error *error) {
    CALL(context, cuMemcpyDtoHAsync_v2, to, from, bytes, (CUstream)stream);
}

int32_t zinc_copy_on_device(const zinc_context *context, zinc_stream *stream, uint64_t to, uint64_t from, uint64_t bytes,
                            zinc_error *error) {
    CALL(context, cuMemcpyDtoDAsync_v2, to, from, bytes, (CUstream)stream);
}

int32_t zinc_fill(const zinc_context *context, zinc_stream *stream, uint64_t to, uint8_t value, uint64_t bytes,
                  zinc_error *error) {
    CALL(context, cuMemsetD8Async, to, value, bytes, (CUstream)stream);
}

/* ---- streams and events ---- */

int32_t zinc_stream_create(const zinc_context *context, zinc_stream **out, zinc_error *error) {
    CALL(context, cuStreamCreate, (CUstream *)out, CU_STREAM_NON_BLOCKING);
}

int32_t zinc_stream_destroy(const zinc_context *context, zinc_stream *stream, zinc_error *error) {
    CALL(context, cuStreamDestroy_v2, (CUstream)stream);
}

int32_t zinc_stream_synchronize(const zinc_context *context, zinc_stream *stream, zinc_error *error) {
    CALL(context, cuStreamSynchronize, (CUstream)stream);
}

int32_t zinc_stream_wait(const zinc_context *context, zinc_stream *stream, zinc_event *event, zinc_error *error) {
    CALL(context, cuStreamWaitEvent, (CUstream)stream, (CUevent)event, 0);
}

int32_t zinc_event_create(const zinc_context *context, int32_t timing, zinc_event **out, zinc_error *error) {
    CALL(context, cuEventCreate, (CUevent *)out, timing ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING);
}

int32_t zinc_event_destroy(const zinc_context *context, zinc_event *event, zinc_error *error) {
    CALL(context, cuEventDestroy_v2, (CUevent)event);
}

int32_t zinc_event_record(const zinc_context *context, zinc_event *event, zinc_stream *stream, zinc_error *error) {
    CALL(context, cuEventRecord, (CUevent)event, (CUstream)stream);
}

int32_t zinc_event_query(const zinc_context *context, zinc_event *event, int32_t *done, zinc_error *error) {
    int pushed;
    CUresult code = enter(context, &pushed);
    if (code != CUDA_SUCCESS) return fail(context->driver, error, code, "cuCtxSetCurrent");
    code = context->driver->cuEventQuery((CUevent)event);
    leave(context, pushed);
    if (code != CUDA_SUCCESS && code != CUDA_ERROR_NOT_READY) return fail(context->driver, error, code, "cuEventQuery");
    *done = code == CUDA_SUCCESS;
    return 0;
}

int32_t zinc_event_synchronize(const zinc_context *context, zinc_event *event, zinc_error *error) {
    CALL(context, cuEventSynchronize, (CUevent)event);
}

int32_t zinc_event_elapsed(const zinc_context *context, zinc_event *start, zinc_event *end, float *milliseconds,
                           zinc_error *error) {
    CALL(context, cuEventElapsedTime, milliseconds, (CUevent)start, (CUevent)end);
}

/* ---- images and entries ---- */

int32_t zinc_image_load(const zinc_context *context, const void *image, char *log, size_t log_bytes, zinc_image **out,
                        zinc_error *error) {
    int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)(log_bytes ? log_bytes - 1 : 0)};
    if (log_bytes) memset(log, 0, log_bytes);
    CALL(context, cuModuleLoadDataEx, (CUmodule *)out, image, log_bytes > 1 ? 2 : 0, options, values);
}

int32_t zinc_image_unload(const zinc_context *context, zinc_image *image, zinc_error *error) {
    CALL(context, cuModuleUnload, (CUmodule)image);
}

int32_t zinc_image_entry(const zinc_context *context, zinc_image *image, const char *name, zinc_entry **out,
                         zinc_error *error) {
    CALL(context, cuModuleGetFunction, (CUfunction *)out, (CUmodule)image, name);
}

int32_t zinc_entry_describe(const zinc_context *context, zinc_entry *entry, zinc_entry_info *info, zinc_error *error) {
    const int attributes[] = {CU_FUNC_ATTRIBUTE_NUM_REGS, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
                              CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_BINARY_VERSION};
    enum { COUNT = sizeof attributes / sizeof attributes[0] };
    int values[COUNT] = {0};
    int pushed;
    CUresult code = enter(context, &pushed);
    if (code != CUDA_SUCCESS) return fail(context->driver, error, code, "cuCtxSetCurrent");
    for (int i = 0; i < COUNT && code == CUDA_SUCCESS; i++)
        code = context->driver->cuFuncGetAttribute(&values[i], attributes[i], (CUfunction)entry);
    leave(context, pushed);
    if (code != CUDA_SUCCESS) return fail(context->driver, error, code, "cuFuncGetAttribute");
    info->registers = (uint32_t)values[0];
    info->static_shared_bytes = (uint32_t)values[1];
    info->local_bytes = (uint32_t)values[2];
    info->max_threads_per_block = (uint32_t)values[3];
    info->binary_version = (uint32_t)values[4];
    return 0;
}

int32_t zinc_entry_set_dynamic_shared(const zinc_context *context, zinc_entry *entry, uint32_t bytes, zinc_error *error) {
    CALL(context, cuFuncSetAttribute, (CUfunction)entry, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes);
}

int32_t zinc_entry_allow_large_clusters(const zinc_context *context, zinc_entry *entry, zinc_error *error) {
    CALL(context, cuFuncSetAttribute, (CUfunction)entry, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
}

int32_t zinc_entry_parameter(const zinc_context *context, zinc_entry *entry, uint32_t index, int32_t *exists, uint64_t *offset,
                             uint64_t *bytes, zinc_error *error) {
    size_t found_offset = 0, found_bytes = 0;
    int pushed;
    if (!context->driver->cuFuncGetParamInfo)
        return fail_own(error, ZINC_E_UNSUPPORTED, "cuFuncGetParamInfo", "cuFuncGetParamInfo");
    CUresult code = enter(context, &pushed);
    if (code != CUDA_SUCCESS) return fail(context->driver, error, code, "cuCtxSetCurrent");
    code = context->driver->cuFuncGetParamInfo((CUfunction)entry, index, &found_offset, &found_bytes);
    leave(context, pushed);
    if (code != CUDA_SUCCESS && code != CUDA_ERROR_INVALID_VALUE)
        return fail(context->driver, error, code, "cuFuncGetParamInfo");
    *exists = code == CUDA_SUCCESS;
    *offset = found_offset;
    *bytes = found_bytes;
    return 0;
}

int32_t zinc_entry_blocks_per_sm(const zinc_context *context, zinc_entry *entry, uint32_t block_threads, uint32_t dynamic_shared,
                                 uint32_t *blocks, zinc_error *error) {
    CALL(context, cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *)blocks, (CUfunction)entry, (int)block_threads,
         dynamic_shared);
}

/* ---- launches ---- */

/* The arguments as the driver takes them in one piece: it need not look up the place and size of each. */
typedef struct packed {
    size_t bytes;
    void *extra[5];
} packed;

static inline void set_arguments(const zinc_launch *launch, packed *out) {
    out->bytes = launch->argument_bytes;
    out->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
    out->extra[1] = (void *)(uintptr_t)launch->arguments;
    out->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
    out->extra[3] = &out->bytes;
    out->extra[4] = CU_LAUNCH_PARAM_END;
}

/* Points into *arguments. */
static CUDA_KERNEL_NODE_PARAMS node_parameters(const zinc_launch *launch, packed *arguments) {
    CUDA_KERNEL_NODE_PARAMS node;
    set_arguments(launch, arguments);
    memset(&node, 0, sizeof node);
    node.func = (CUfunction)launch->entry;
    node.gridDimX = launch->grid[0];
    node.gridDimY = launch->grid[1];
    node.gridDimZ = launch->grid[2];
    node.blockDimX = launch->block[0];
    node.blockDimY = launch->block[1];
    node.blockDimZ = launch->block[2];
    node.sharedMemBytes = launch->shared_bytes;
    node.extra = arguments->extra;
    return node;
}

static CUlaunchAttributeValue cluster_dimension(const zinc_launch *launch) {
    CUlaunchAttributeValue value;
    memset(&value, 0, sizeof value);
    value.clusterDim.x = launch->cluster;
    value.clusterDim.y = 1;
    value.clusterDim.z = 1;
    return value;
}

/* What a launch that may overlap the one before it passes; the driver only reads it. */
static const CUlaunchAttribute overlapping = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                              .value.programmaticStreamSerializationAllowed = 1};

/* *call is the driver function that was used. */
static inline CUresult launch_kernel(const zinc_driver *driver, const zinc_launch *launch, CUstream stream, const char **call) {
    CUlaunchAttribute attributes[2];
    CUlaunchConfig config;
    packed arguments;
    const int overlap = launch->overlap && driver->cuLaunchKernelEx;
    set_arguments(launch, &arguments);
    *call = "cuLaunchKernel";
    if (!overlap && launch->cluster <= 1)
        return driver->cuLaunchKernel((CUfunction)launch->entry, launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0],
                                      launch->block[1], launch->block[2], launch->shared_bytes, stream, NULL, arguments.extra);
    *call = "cuLaunchKernelEx";
    if (!driver->cuLaunchKernelEx) return CUDA_ERROR_NOT_SUPPORTED;
    config.attrs = (CUlaunchAttribute *)&overlapping;
    config.numAttrs = 1;
    if (launch->cluster > 1) {
        memset(&attributes[0], 0, sizeof attributes[0]);
        attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attributes[0].value = cluster_dimension(launch);
        attributes[1] = overlapping;
        config.attrs = attributes;
        config.numAttrs = overlap ? 2 : 1;
    }
    config.gridDimX = launch->grid[0];
    config.gridDimY = launch->grid[1];
    config.gridDimZ = launch->grid[2];
    config.blockDimX = launch->block[0];
    config.blockDimY = launch->block[1];
    config.blockDimZ = launch->block[2];
    config.sharedMemBytes = launch->shared_bytes;
    config.hStream = stream;
    return driver->cuLaunchKernelEx(&config, (CUfunction)launch->entry, NULL, arguments.extra);
}

int32_t zinc_submit(const zinc_context *context, zinc_stream *stream, const zinc_launch *launches, uint32_t count,
                    zinc_error *error) {
    const zinc_driver *driver = context->driver;
    const char *call;
    int pushed;
    CUresult code = enter(context, &pushed);
    if (code != CUDA_SUCCESS) return fail(driver, error, code, "cuCtxSetCurrent");
    for (uint32_t i = 0; i < count; i++) {
        code = launch_kernel(driver, &launches[i], (CUstream)stream, &call);
        if (code != CUDA_SUCCESS) {
            leave(context, pushed);
            fail(driver, error, code, call);
            if (error) error->index = i;
            return code;
        }
    }
    leave(context, pushed);
    return 0;
}

/* ---- graphs ---- */

void zinc_graph_destroy(zinc_graph *graph) {
    int pushed;
    if (!graph) return;
    const zinc_driver *driver = graph->context->driver;
    if (enter(graph->context, &pushed) == CUDA_SUCCESS) {
        if (graph->exec) driver->cuGraphExecDestroy(graph->exec);
        if (graph->graph) driver->cuGraphDestroy(graph->graph);
        leave(graph->context, pushed);
    }
    free(graph->nodes);
    free(graph);
}

static zinc_graph *graph_new(const zinc_context *context, uint32_t count) {
    zinc_graph *graph = calloc(1, sizeof *graph);
    if (!graph) return NULL;
    graph->context = context;
    graph->count = count;
    graph->nodes = calloc(count ? count : 1, sizeof *graph->nodes);
    if (!graph->nodes) {
        free(graph);
        return NULL;
    }
    return graph;
}

static int32_t build(zinc_graph *graph, const zinc_launch *launches, uint32_t count, zinc_error *error) {
    const zinc_driver *driver = graph->context->driver;
    TRY(driver, cuGraphCreate, &graph->graph, 0);
    for (uint32_t i = 0; i < count; i++) {
        packed arguments;
        CUresult code;
        const int overlap = i && launches[i].overlap && driver->cuGraphAddDependencies_v2;
        const int plain = i && !overlap;
        const char *call = "cuGraphAddKernelNode_v2";
        CUDA_KERNEL_NODE_PARAMS node = node_parameters(&launches[i], &arguments);
        code = driver->cuGraphAddKernelNode_v2(&graph->nodes[i], graph->graph, plain ? &graph->nodes[i - 1] : NULL, plain ? 1 : 0, &node);
        if (code == CUDA_SUCCESS && overlap) {
            const CUgraphEdgeData edge = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                          .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
            call = "cuGraphAddDependencies_v2";
            code = driver->cuGraphAddDependencies_v2(graph->graph, &graph->nodes[i - 1], &graph->nodes[i], &edge, 1);
        }
        if (code == CUDA_SUCCESS && launches[i].cluster > 1) {
            const CUlaunchAttributeValue value = cluster_dimension(&launches[i]);
            call = "cuGraphKernelNodeSetAttribute";
            code = driver->cuGraphKernelNodeSetAttribute
                       ? driver->cuGraphKernelNodeSetAttribute(graph->nodes[i], CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value)
                       : CUDA_ERROR_NOT_SUPPORTED;
        }
        if (code != CUDA_SUCCESS) {
            fail(driver, error, code, call);
            if (error) error->index = i;
            return code;
        }
    }
    TRY(driver, cuGraphInstantiateWithFlags, &graph->exec, graph->graph, 0);
    return 0;
}

int32_t zinc_graph_build(const zinc_context *context, const zinc_launch *launches, uint32_t count, zinc_graph **out,
                         zinc_error *error) {
    int pushed;
    zinc_graph *graph = graph_new(context, count);
    if (!graph) return fail_own(error, ZINC_E_MEMORY, "calloc", NULL);
    int32_t code = enter(context, &pushed);
    if (code != CUDA_SUCCESS) {
        zinc_graph_destroy(graph);
        return fail(context->driver, error, code, "cuCtxSetCurrent");
    }
    code = build(graph, launches, count, error);
    leave(context, pushed);
    if (code) {
        zinc_graph_destroy(graph);
        return code;
    }
    *out = graph;
    return 0;
}

int32_t zinc_capture_begin(const zinc_context *context, zinc_stream *stream, zinc_error *error) {
    CALL(context, cuStreamBeginCapture_v2, (CUstream)stream, CU_STREAM_CAPTURE_MODE_RELAXED);
}

int32_t zinc_stream_capturing(const zinc_context *context, zinc_stream *stream, int32_t *capturing, zinc_error *error) {
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    int pushed;
    CUresult code = enter(context, &pushed);
    if (code == CUDA_SUCCESS) {
        code = context->driver->cuStreamIsCapturing((CUstream)stream, &status);
        leave(context, pushed);
    }
    if (code != CUDA_SUCCESS) return fail(context->driver, error, code, "cuStreamIsCapturing");
    *capturing = status != CU_STREAM_CAPTURE_STATUS_NONE;
    return 0;
}

int32_t zinc_capture_node(const zinc_context *context, zinc_stream *stream, zinc_node **out, zinc_error *error) {
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    uint64_t id = 0;
    CUgraph graph = NULL;
    const CUgraphNode *dependencies = NULL;
    size_t dependency_count = 0;
    int pushed;
    CUresult code = enter(context, &pushed);
    if (code == CUDA_SUCCESS) {
        code = context->driver->cuStreamGetCaptureInfo_v2((CUstream)stream, &status, &id, &graph, &dependencies,
                                                          &dependency_count);
        leave(context, pushed);
    }
    if (code != CUDA_SUCCESS) return fail(context->driver, error, code, "cuStreamGetCaptureInfo_v2");
    /* A launch leaves exactly its own node as what the stream depends on. */
    if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE || dependency_count != 1)
        return fail_own(error, ZINC_E_ARGUMENT, "zinc_capture_node", "stream");
    *out = (zinc_node *)dependencies[0];
    return 0;
}

int32_t zinc_capture_end(const zinc_context *context, zinc_stream *stream, zinc_node *const *nodes, uint32_t count,
                         zinc_graph **out, zinc_error *error) {
    const zinc_driver *driver = context->driver;
    const char *call = "cuCtxSetCurrent";
    int pushed;
    zinc_graph *graph = graph_new(context, count);
    if (!graph) {
        zinc_capture_abandon(context, stream);
        return fail_own(error, ZINC_E_MEMORY, "calloc", NULL);
    }
    for (uint32_t i = 0; i < count; i++) graph->nodes[i] = (CUgraphNode)nodes[i];
    CUresult code = enter(context, &pushed);
    if (code == CUDA_SUCCESS) {
        call = "cuStreamEndCapture";
        code = driver->cuStreamEndCapture((CUstream)stream, &graph->graph);
        if (code == CUDA_SUCCESS) {
            call = "cuGraphInstantiateWithFlags";
            code = driver->cuGraphInstantiateWithFlags(&graph->exec, graph->graph, 0);
        }
        leave(context, pushed);
    }
    if (code != CUDA_SUCCESS) {
        zinc_graph_destroy(graph);
        return fail(driver, error, code, call);
    }
    *out = graph;
    return 0;
}

void zinc_capture_abandon(const zinc_context *context, zinc_stream *stream) {
    CUgraph graph = NULL;
    int pushed;
    if (enter(context, &pushed) != CUDA_SUCCESS) return;
    if (context->driver->cuStreamEndCapture((CUstream)stream, &graph) == CUDA_SUCCESS && graph)
        context->driver->cuGraphDestroy(graph);
    leave(context, pushed);
}

int32_t zinc_graph_set(zinc_graph *graph, uint32_t node, const zinc_launch *launch, zinc_error *error) {
    packed arguments;
    if (node >= graph->count) return fail_own(error, ZINC_E_ARGUMENT, "zinc_graph_set", "node");
    CUDA_KERNEL_NODE_PARAMS parameters = node_parameters(launch, &arguments);
    CALL(graph->context, cuGraphExecKernelNodeSetParams_v2, graph->exec, graph->nodes[node], &parameters);
}

int32_t zinc_graph_enable(zinc_graph *graph, uint32_t node, int32_t enabled, zinc_error *error) {
    if (node >= graph->count) return fail_own(error, ZINC_E_ARGUMENT, "zinc_graph_enable", "node");
    CALL(graph->context, cuGraphNodeSetEnabled, graph->exec, graph->nodes[node], enabled ? 1 : 0);
}

int32_t zinc_graph_upload(zinc_graph *graph, zinc_stream *stream, zinc_error *error) {
    CALL(graph->context, cuGraphUpload, graph->exec, (CUstream)stream);
}

int32_t zinc_graph_launch(zinc_graph *graph, zinc_stream *stream, zinc_error *error) {
    CALL(graph->context, cuGraphLaunch, graph->exec, (CUstream)stream);
}
