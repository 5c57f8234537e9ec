/* A stand-in for libcuda: enough of the driver to run the runtime's tests on a machine without a GPU.
 *
 * Device memory is host memory, an image is a line of text (see parse_image), and a launch is recorded and, for the kernels
 * that the fake knows, executed. Every copy of this library that is loaded from a path of its own is a driver of its own.
 *
 * In lazy mode work waits in its stream until something synchronizes or the test advances it, and freeing memory does not
 * wait: work that then touches freed memory fails with CUDA_ERROR_ILLEGAL_ADDRESS, and pinned memory that is reused too
 * early shows as wrong bytes. Settings come from fake_set or from FAKE_CUDA="key=value,key=value". */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))

enum {
    OUT_OF_MEMORY = 2,
    STUB_LIBRARY = 34,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    INVALID_PTX = 218,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
    CAPTURE_INVALID = 901,
};

enum { MAX_DEVICES = 8, MAX_SLOTS = 4096, MAX_POINTERS = 16, MAX_PUSH = 128 };

/* ---- settings and state ---- */

static struct {
    long version, devices, capability, stub, lazy, memory, optin;
    char fail_function[64];
    long fail_code, fail_after;
} settings = {.version = 13000, .devices = 1, .capability = 90, .memory = 1L << 32, .optin = 232448};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void set(const char *key, const char *value) {
    long number = strtol(value, NULL, 10);
    if (!strcmp(key, "version")) settings.version = number;
    if (!strcmp(key, "devices")) settings.devices = number;
    if (!strcmp(key, "capability")) settings.capability = number;
    if (!strcmp(key, "stub")) settings.stub = number;
    if (!strcmp(key, "lazy")) settings.lazy = number;
    if (!strcmp(key, "memory")) settings.memory = number;
    if (!strcmp(key, "optin")) settings.optin = number;
}

EXPORT void fake_set(const char *key, long value) {
    char text[32];
    snprintf(text, sizeof text, "%ld", value);
    set(key, text);
}

/* The function fails with the code after so many more calls that succeed. */
EXPORT void fake_fail(const char *function, long code, long after) {
    snprintf(settings.fail_function, sizeof settings.fail_function, "%s", function);
    settings.fail_code = code;
    settings.fail_after = after;
}

__attribute__((constructor)) static void from_environment(void) {
    const char *text = getenv("FAKE_CUDA");
    if (!text) return;
    char *copy = strdup(text), *rest = copy, *item;
    while ((item = strsep(&rest, ","))) {
        char *value = strchr(item, '=');
        if (!value) continue;
        *value++ = 0;
        set(item, value);
    }
    free(copy);
}

static CUresult injected(const char *function) {
    CUresult code = 0;
    pthread_mutex_lock(&lock);
    if (!strcmp(settings.fail_function, function) && settings.fail_after-- <= 0) {
        code = (CUresult)settings.fail_code;
        settings.fail_function[0] = 0;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

struct CUctx_st {
    int device, references;
};
static struct CUctx_st contexts[MAX_DEVICES];
static __thread CUcontext stack[16];
static __thread int depth;
static CUresult sticky;

#define CURRENT (depth ? stack[depth - 1] : NULL)
#define ENTER(function)                                \
    do {                                               \
        CUresult enter_code = injected(#function);     \
        if (enter_code) return enter_code;             \
        if (!CURRENT) return INVALID_CONTEXT;          \
        if (sticky) return sticky;                     \
    } while (0)

typedef struct allocation {
    char *start;
    size_t bytes;
    void *block;
    int pinned;
} allocation;
static allocation allocations[MAX_SLOTS];
static long pinned_bytes, pinned_peak;

static int covers(int pinned, const void *address, size_t bytes) {
    const char *at = address;
    for (int i = 0; i < MAX_SLOTS; i++) {
        allocation *a = &allocations[i];
        if (a->start && a->pinned == pinned && at >= a->start && at + bytes <= a->start + a->bytes) return 1;
    }
    return 0;
}

EXPORT long fake_live(int pinned) {
    long count = 0;
    for (int i = 0; i < MAX_SLOTS; i++) count += allocations[i].start && allocations[i].pinned == pinned;
    return count;
}
EXPORT long fake_pinned_peak(void) { return pinned_peak; }

struct CUmod_st {
    struct CUfunc_st *entry;
};
struct CUfunc_st {
    char name[64];
    int pointers, push, shared, threads, registers, dynamic_limit;
};
static long live_modules, live_streams, live_events, live_graphs;
EXPORT long fake_live_modules(void) { return live_modules; }
EXPORT long fake_live_streams(void) { return live_streams; }
EXPORT long fake_live_events(void) { return live_events; }
EXPORT long fake_live_graphs(void) { return live_graphs; }

/* ---- work ---- */

typedef struct launch {
    char name[64];
    unsigned grid[3], block[3], shared, pointer_count, push_bytes;
    uint64_t pointers[MAX_POINTERS];
    unsigned char push[MAX_PUSH];
    unsigned overlap; /* may start while the launch before it runs */
    unsigned cluster; /* blocks along x, 1 for none */
} launch;
static launch launches[MAX_SLOTS];
static long launch_count;
EXPORT long fake_launches(void) { return launch_count; }
EXPORT const launch *fake_launch(long index) { return index < launch_count ? &launches[index] : NULL; }

typedef enum { KERNEL, COPY_IN, COPY_OUT, COPY_ON, FILL, RECORD, WAIT } kind;

typedef struct work {
    kind kind;
    launch launch;
    void *to;
    const void *from;
    void *staged; /* the driver's own copy of pageable memory */
    size_t bytes;
    unsigned char value;
    CUevent event;
    long sequence;
    struct work *next;
} work;

struct CUevent_st {
    int timing;
    long recorded, done;
    double at;
};

struct CUgraphNode_st {
    work work;
    int enabled;
    CUgraphNode next;
    CUgraphNode original;
};
struct CUgraph_st {
    CUgraphNode first, last;
    CUgraphNode before_loose; /* what the last node must be made to depend on */
};
struct CUgraphExec_st {
    CUgraphNode first, last;
};

struct CUstream_st {
    work *first, *last;
    CUgraph capture;
    struct CUstream_st *next;
};
static struct CUstream_st null_stream;
static CUstream streams = &null_stream;
static long clock_ticks;

static CUresult execute(const work *w) {
    switch (w->kind) {
        case KERNEL:
            for (unsigned i = 0; i < w->launch.pointer_count; i++)
                if (w->launch.pointers[i] && !covers(0, (void *)w->launch.pointers[i], 1)) return ILLEGAL_ADDRESS;
            if (launch_count < MAX_SLOTS) launches[launch_count++] = w->launch;
            if (!strcmp(w->launch.name, "vadd")) {
                uint32_t n;
                memcpy(&n, w->launch.push, sizeof n);
                const float *a = (const float *)w->launch.pointers[0], *b = (const float *)w->launch.pointers[1];
                float *c = (float *)w->launch.pointers[2];
                if (!covers(0, a, 4ul * n) || !covers(0, b, 4ul * n) || !covers(0, c, 4ul * n)) return ILLEGAL_ADDRESS;
                uint64_t threads = (uint64_t)w->launch.grid[0] * w->launch.block[0];
                for (uint32_t i = 0; i < n && i < 16 * threads; i++) c[i] = a[i] + b[i];
            }
            return 0;
        case COPY_IN:
            if (!covers(0, w->to, w->bytes)) return ILLEGAL_ADDRESS;
            memcpy(w->to, w->from, w->bytes);
            return 0;
        case COPY_OUT:
            if (!covers(0, w->from, w->bytes)) return ILLEGAL_ADDRESS;
            memcpy(w->to, w->from, w->bytes);
            return 0;
        case COPY_ON:
            if (!covers(0, w->from, w->bytes) || !covers(0, w->to, w->bytes)) return ILLEGAL_ADDRESS;
            memcpy(w->to, w->from, w->bytes);
            return 0;
        case FILL:
            if (!covers(0, w->to, w->bytes)) return ILLEGAL_ADDRESS;
            memset(w->to, w->value, w->bytes);
            return 0;
        case RECORD:
            w->event->done = w->sequence;
            w->event->at = (double)clock_ticks;
            return 0;
        case WAIT:
            return 0;
    }
    return 0;
}

/* Runs the first piece of work of a stream; 0 when there is none. */
static int advance(CUstream stream) {
    work *w = stream->first;
    if (!w) return 0;
    /* What an event of another stream stands behind runs first. */
    if (w->kind == WAIT)
        while (w->event->done < w->sequence) {
            CUstream other = streams;
            while (other && (other == stream || !advance(other))) other = other->next;
            if (!other) break;
        }
    clock_ticks++;
    CUresult code = execute(w);
    if (code && !sticky) sticky = code;
    stream->first = w->next;
    if (!stream->first) stream->last = NULL;
    free(w->staged);
    free(w);
    return 1;
}

static void drain(CUstream stream) {
    while (advance(stream)) {
    }
}

EXPORT void fake_advance(long steps) {
    for (CUstream s = streams; s && steps > 0; s = s->next)
        while (steps > 0 && advance(s)) steps--;
}
EXPORT long fake_sticky(void) { return sticky; }

static CUgraphNode append_node(CUgraphNode *first, CUgraphNode *last, const work *w, CUgraphNode original, int enabled) {
    CUgraphNode node = calloc(1, sizeof *node);
    node->work = *w;
    node->enabled = enabled;
    node->original = original;
    if (*last)
        (*last)->next = node;
    else
        *first = node;
    *last = node;
    return node;
}

static void free_nodes(CUgraphNode node) {
    while (node) {
        CUgraphNode next = node->next;
        free(node);
        node = next;
    }
}

static CUresult enqueue(CUstream stream, const work *template) {
    if (!stream) stream = &null_stream;
    if (stream->capture) {
        if (template->kind == RECORD || template->kind == WAIT) return CAPTURE_INVALID;
        append_node(&stream->capture->first, &stream->capture->last, template, NULL, 1);
        return 0;
    }
    work *w = malloc(sizeof *w);
    *w = *template;
    w->next = NULL;
    if (stream->last)
        stream->last->next = w;
    else
        stream->first = w;
    stream->last = w;
    if (!settings.lazy) drain(stream);
    return 0;
}

/* Arguments come in one piece, addresses and then the push struct, as many bytes as the function has; or one by one. */
static CUresult fill_arguments(launch *out, CUfunction f, void **parameters, void **extra) {
    const size_t addresses = 8 * (size_t)f->pointers;
    if (!parameters == !extra) return INVALID_HANDLE;
    if (parameters) {
        for (int i = 0; i < f->pointers; i++) memcpy(&out->pointers[i], parameters[i], 8);
        if (f->push) memcpy(out->push, parameters[f->pointers], (size_t)f->push);
        return 0;
    }
    if (extra[0] != CU_LAUNCH_PARAM_BUFFER_POINTER || extra[2] != CU_LAUNCH_PARAM_BUFFER_SIZE || extra[4] != CU_LAUNCH_PARAM_END ||
        *(const size_t *)extra[3] != addresses + (size_t)f->push)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(out->pointers, extra[1], addresses);
    memcpy(out->push, (const char *)extra[1] + addresses, (size_t)f->push);
    return 0;
}

static CUresult fill_launch(launch *out, CUfunction f, const unsigned grid[3], const unsigned block[3], unsigned shared,
                            void **parameters, void **extra) {
    memset(out, 0, sizeof *out);
    if (!f) return INVALID_HANDLE;
    for (int i = 0; i < 3; i++)
        if (!grid[i] || !block[i]) return CUDA_ERROR_INVALID_VALUE;
    if (block[0] * block[1] * block[2] > (unsigned)f->threads) return CUDA_ERROR_INVALID_VALUE;
    if (shared > (unsigned)f->dynamic_limit) return CUDA_ERROR_INVALID_VALUE;
    memcpy(out->name, f->name, sizeof out->name);
    memcpy(out->grid, grid, sizeof out->grid);
    memcpy(out->block, block, sizeof out->block);
    out->shared = shared;
    out->cluster = 1;
    out->pointer_count = (unsigned)f->pointers;
    out->push_bytes = (unsigned)f->push;
    return fill_arguments(out, f, parameters, extra);
}

/* ---- driver ---- */

#define BOOT(function)                              \
    do {                                            \
        CUresult boot_code = injected(#function);   \
        if (boot_code) return boot_code;            \
        if (settings.stub) return STUB_LIBRARY;     \
    } while (0)

EXPORT CUresult cuInit(unsigned flags) {
    (void)flags;
    BOOT(cuInit);
    return settings.devices ? 0 : NO_DEVICE;
}
EXPORT CUresult cuDriverGetVersion(int *version) {
    BOOT(cuDriverGetVersion);
    *version = (int)settings.version;
    return 0;
}
EXPORT CUresult cuGetErrorName(CUresult code, const char **name) {
    switch (code) {
        case CUDA_ERROR_INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; return 0;
        case OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; return 0;
        case STUB_LIBRARY: *name = "CUDA_ERROR_STUB_LIBRARY"; return 0;
        case NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; return 0;
        case INVALID_DEVICE: *name = "CUDA_ERROR_INVALID_DEVICE"; return 0;
        case INVALID_IMAGE: *name = "CUDA_ERROR_INVALID_IMAGE"; return 0;
        case INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; return 0;
        case INVALID_PTX: *name = "CUDA_ERROR_INVALID_PTX"; return 0;
        case INVALID_HANDLE: *name = "CUDA_ERROR_INVALID_HANDLE"; return 0;
        case NOT_FOUND: *name = "CUDA_ERROR_NOT_FOUND"; return 0;
        case ILLEGAL_ADDRESS: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; return 0;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}
EXPORT CUresult cuGetErrorString(CUresult code, const char **text) {
    const char *name;
    if (cuGetErrorName(code, &name)) return CUDA_ERROR_INVALID_VALUE;
    *text = "text of the fake driver";
    return 0;
}

/* ---- devices and contexts ---- */

EXPORT CUresult cuDeviceGetCount(int *count) {
    *count = (int)settings.devices;
    return 0;
}
EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    if (ordinal < 0 || ordinal >= settings.devices) return INVALID_DEVICE;
    *device = ordinal;
    return 0;
}
EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    snprintf(name, (size_t)length, "Fake GPU %d", device);
    return 0;
}
EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    memset(uuid->bytes, 0x10 + device, sizeof uuid->bytes);
    return 0;
}
EXPORT CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device) {
    snprintf(id, (size_t)length, "0000:%02x:00.0", 0x3b + device);
    return 0;
}
EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    (void)device;
    *bytes = (size_t)settings.memory;
    return 0;
}
EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; return 0;
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132 - device; return 0;
        case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 50 << 20; return 0;
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = 2048; return 0;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = (int)settings.capability / 10; return 0;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = (int)settings.capability % 10; return 0;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = 233472; return 0;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = (int)settings.optin; return 0;
        case 115: *value = 0; return 0; /* memory pools */
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    CUresult code = injected("cuDevicePrimaryCtxRetain");
    if (code) return code;
    contexts[device].device = device;
    contexts[device].references++;
    *context = &contexts[device];
    return 0;
}
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    contexts[device].references--;
    return 0;
}
EXPORT long fake_context_references(int device) { return contexts[device].references; }
EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = CURRENT;
    return 0;
}
EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
    if (!depth) depth = 1;
    stack[depth - 1] = context;
    return 0;
}
EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
    if (depth == 16) return CUDA_ERROR_INVALID_VALUE;
    stack[depth++] = context;
    return 0;
}
EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    if (!depth) return INVALID_CONTEXT;
    *context = stack[--depth];
    return 0;
}
EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
    if (!CURRENT) return INVALID_CONTEXT;
    *device = CURRENT->device;
    return 0;
}
EXPORT CUresult cuCtxSynchronize(void) {
    ENTER(cuCtxSynchronize);
    for (CUstream s = streams; s; s = s->next) drain(s);
    return sticky;
}

/* ---- memory ---- */

static size_t used_bytes(void) {
    size_t used = 0;
    for (int i = 0; i < MAX_SLOTS; i++)
        if (!allocations[i].pinned) used += allocations[i].bytes;
    return used;
}

static void *allocate(size_t bytes, int pinned) {
    for (int i = 0; i < MAX_SLOTS; i++) {
        allocation *a = &allocations[i];
        if (a->start) continue;
        a->block = malloc(bytes + 256);
        a->start = (char *)(((uintptr_t)a->block + 255) & ~(uintptr_t)255);
        a->bytes = bytes;
        a->pinned = pinned;
        memset(a->start, 0xa5, bytes);
        return a->start;
    }
    return NULL;
}

static CUresult release(const void *address, int pinned) {
    for (int i = 0; i < MAX_SLOTS; i++) {
        allocation *a = &allocations[i];
        if (!a->start || a->start != address || a->pinned != pinned) continue;
        if (pinned) pinned_bytes -= (long)a->bytes;
        memset(a->start, 0xdd, a->bytes);
        free(a->block);
        memset(a, 0, sizeof *a);
        return 0;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    ENTER(cuMemGetInfo_v2);
    *total = (size_t)settings.memory;
    *free_bytes = *total - used_bytes();
    return 0;
}
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    ENTER(cuMemAlloc_v2);
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    if (used_bytes() + bytes > (size_t)settings.memory) return OUT_OF_MEMORY;
    *address = (CUdeviceptr)allocate(bytes, 0);
    return *address ? 0 : OUT_OF_MEMORY;
}
EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
    ENTER(cuMemFree_v2);
    return release((void *)address, 0);
}
EXPORT CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
    (void)flags;
    ENTER(cuMemHostAlloc);
    *address = allocate(bytes, 1);
    if (!*address) return OUT_OF_MEMORY;
    pinned_bytes += (long)bytes;
    if (pinned_bytes > pinned_peak) pinned_peak = pinned_bytes;
    return 0;
}
EXPORT CUresult cuMemFreeHost(void *address) {
    ENTER(cuMemFreeHost);
    return release(address, 1);
}
EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    ENTER(cuMemcpyHtoDAsync_v2);
    if (!covers(0, (void *)to, bytes)) return CUDA_ERROR_INVALID_VALUE;
    work w = {.kind = COPY_IN, .to = (void *)to, .from = from, .bytes = bytes};
    if (!covers(1, from, bytes)) {
        w.staged = malloc(bytes + 1);
        memcpy(w.staged, from, bytes);
        w.from = w.staged;
    }
    return enqueue(stream, &w);
}
EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER(cuMemcpyDtoHAsync_v2);
    if (!covers(0, (void *)from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    work w = {.kind = COPY_OUT, .to = to, .from = (void *)from, .bytes = bytes};
    CUresult code = enqueue(stream, &w);
    /* A copy to pageable memory is over when the call returns. */
    if (!code && !covers(1, to, bytes)) drain(stream ? stream : &null_stream);
    return code ? code : sticky;
}
EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER(cuMemcpyDtoDAsync_v2);
    work w = {.kind = COPY_ON, .to = (void *)to, .from = (void *)from, .bytes = bytes};
    return enqueue(stream, &w);
}
EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
    ENTER(cuMemsetD8Async);
    work w = {.kind = FILL, .to = (void *)to, .value = value, .bytes = bytes};
    return enqueue(stream, &w);
}

/* ---- streams and events ---- */

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    (void)flags;
    ENTER(cuStreamCreate);
    *stream = calloc(1, sizeof **stream);
    (*stream)->next = null_stream.next;
    null_stream.next = *stream;
    live_streams++;
    return 0;
}
EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
    ENTER(cuStreamDestroy_v2);
    live_streams--;
    /* The call does not wait: what the stream still has to do stays. */
    if (stream->first) return 0;
    for (CUstream s = &null_stream; s->next; s = s->next)
        if (s->next == stream) {
            s->next = stream->next;
            break;
        }
    free(stream);
    return 0;
}
EXPORT CUresult cuStreamSynchronize(CUstream stream) {
    ENTER(cuStreamSynchronize);
    if (stream && stream->capture) return CAPTURE_INVALID;
    drain(stream ? stream : &null_stream);
    return sticky;
}
EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    (void)flags;
    ENTER(cuStreamWaitEvent);
    work w = {.kind = WAIT, .event = event, .sequence = event->recorded};
    return enqueue(stream, &w);
}
EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
    (void)mode;
    ENTER(cuStreamBeginCapture_v2);
    if (!stream || stream->capture) return CAPTURE_INVALID;
    stream->capture = calloc(1, sizeof *stream->capture);
    live_graphs++;
    return 0;
}
EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    ENTER(cuStreamEndCapture);
    if (!stream || !stream->capture) return CAPTURE_INVALID;
    *graph = stream->capture;
    stream->capture = NULL;
    return 0;
}
EXPORT CUresult cuStreamIsCapturing(CUstream stream, int *status) {
    ENTER(cuStreamIsCapturing);
    *status = stream && stream->capture;
    return 0;
}
EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, uint64_t *id, CUgraph *graph,
                                          const CUgraphNode **dependencies, size_t *count) {
    ENTER(cuStreamGetCaptureInfo_v2);
    *status = stream && stream->capture;
    if (!*status) return 0;
    *id = 1;
    *graph = stream->capture;
    *dependencies = &stream->capture->last;
    *count = stream->capture->last != NULL;
    return 0;
}
EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags) {
    ENTER(cuEventCreate);
    *event = calloc(1, sizeof **event);
    (*event)->timing = !(flags & CU_EVENT_DISABLE_TIMING);
    live_events++;
    return 0;
}
EXPORT CUresult cuEventDestroy_v2(CUevent event) {
    ENTER(cuEventDestroy_v2);
    /* The driver keeps what unfinished work needs of an event, so the record stays. */
    (void)event;
    live_events--;
    return 0;
}
EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
    ENTER(cuEventRecord);
    work w = {.kind = RECORD, .event = event, .sequence = ++event->recorded};
    return enqueue(stream, &w);
}
EXPORT CUresult cuEventQuery(CUevent event) {
    ENTER(cuEventQuery);
    return event->done < event->recorded ? CUDA_ERROR_NOT_READY : 0;
}
EXPORT CUresult cuEventSynchronize(CUevent event) {
    ENTER(cuEventSynchronize);
    while (event->done < event->recorded) {
        int moved = 0;
        for (CUstream s = streams; s && event->done < event->recorded; s = s->next) {
            /* Only the stream that holds the event has to move. */
            int holds = 0;
            for (work *w = s->first; w; w = w->next) holds |= w->kind == RECORD && w->event == event;
            if (holds) moved |= advance(s);
        }
        if (!moved) return INVALID_HANDLE;
    }
    return sticky;
}
EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    ENTER(cuEventElapsedTime);
    if (!start->timing || !end->timing || !start->recorded || !end->recorded) return INVALID_HANDLE;
    if (start->done < start->recorded || end->done < end->recorded) return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)(end->at - start->at);
    return 0;
}

/* ---- images ---- */

/* "FAKE <entry> pointers=N push=BYTES [shared=BYTES] [threads=N] [registers=N]"; anything else does not load. */
static struct CUfunc_st *parse_image(const char *text) {
    struct CUfunc_st f = {.threads = 1024, .registers = 32};
    int end = 0;
    if (sscanf(text, "FAKE %63s%n", f.name, &end) != 1) return NULL;
    struct {
        const char *key;
        int *value;
    } keys[] = {{"pointers", &f.pointers}, {"push", &f.push}, {"shared", &f.shared}, {"threads", &f.threads},
                {"registers", &f.registers}};
    char key[32];
    int value, used;
    for (text += end; sscanf(text, " %31[a-z]=%d%n", key, &value, &used) == 2; text += used)
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
            if (!strcmp(keys[i].key, key)) *keys[i].value = value;
    f.dynamic_limit = 48 * 1024 - f.shared;
    struct CUfunc_st *copy = malloc(sizeof *copy);
    *copy = f;
    return copy;
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options, void **values) {
    ENTER(cuModuleLoadDataEx);
    struct CUfunc_st *entry = parse_image(image);
    if (!entry) {
        char *log = NULL;
        size_t bytes = 0;
        for (unsigned i = 0; i < count; i++) {
            if (options[i] == CU_JIT_ERROR_LOG_BUFFER) log = values[i];
            if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) bytes = (size_t)(uintptr_t)values[i];
        }
        if (log) snprintf(log, bytes, "fake assembler: line 1: unknown instruction '%.20s'", (const char *)image);
        return INVALID_PTX;
    }
    *module = malloc(sizeof **module);
    (*module)->entry = entry;
    live_modules++;
    return 0;
}
EXPORT CUresult cuModuleUnload(CUmodule module) {
    ENTER(cuModuleUnload);
    free(module->entry);
    free(module);
    live_modules--;
    return 0;
}
EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    ENTER(cuModuleGetFunction);
    if (strcmp(module->entry->name, name)) return NOT_FOUND;
    *function = module->entry;
    return 0;
}
EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction f) {
    ENTER(cuFuncGetAttribute);
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = f->threads; return 0;
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = f->shared; return 0;
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = 0; return 0;
        case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = f->registers; return 0;
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = (int)settings.capability; return 0;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}
EXPORT CUresult cuFuncSetAttribute(CUfunction f, int attribute, int value) {
    ENTER(cuFuncSetAttribute);
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value + f->shared > settings.optin)
        return CUDA_ERROR_INVALID_VALUE;
    f->dynamic_limit = value;
    return 0;
}
EXPORT CUresult cuFuncGetParamInfo(CUfunction f, size_t index, size_t *offset, size_t *bytes) {
    ENTER(cuFuncGetParamInfo);
    size_t pointers = (size_t)f->pointers;
    if (index > pointers || (index == pointers && !f->push)) return CUDA_ERROR_INVALID_VALUE;
    *offset = 8 * index;
    *bytes = index < pointers ? 8 : (size_t)f->push;
    return 0;
}
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction f, int block, size_t shared) {
    ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    (void)f;
    (void)shared;
    *blocks = 2048 / block;
    return 0;
}

/* ---- launches and graphs ---- */

static CUresult set_cluster(launch *l, int attribute, const CUlaunchAttributeValue *value) {
    if (attribute != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION || value->clusterDim.y != 1 || value->clusterDim.z != 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (!value->clusterDim.x || l->grid[0] % value->clusterDim.x) return CUDA_ERROR_INVALID_VALUE;
    l->cluster = value->clusterDim.x;
    return 0;
}
EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                               unsigned shared, CUstream stream, void **parameters, void **extra) {
    ENTER(cuLaunchKernel);
    work w = {.kind = KERNEL};
    CUresult code =
        fill_launch(&w.launch, f, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, parameters, extra);
    return code ? code : enqueue(stream, &w);
}
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra) {
    ENTER(cuLaunchKernelEx);
    if (!config->numAttrs) return CUDA_ERROR_INVALID_VALUE;
    work w = {.kind = KERNEL};
    CUresult code = fill_launch(&w.launch, f, (unsigned[]){config->gridDimX, config->gridDimY, config->gridDimZ},
                                (unsigned[]){config->blockDimX, config->blockDimY, config->blockDimZ},
                                config->sharedMemBytes, parameters, extra);
    for (unsigned i = 0; !code && i < config->numAttrs; i++) {
        const CUlaunchAttributeValue *value = &config->attrs[i].value;
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            w.launch.overlap = (unsigned)value->programmaticStreamSerializationAllowed;
        else
            code = set_cluster(&w.launch, config->attrs[i].id, value);
    }
    return code ? code : enqueue(config->hStream, &w);
}
EXPORT CUresult cuGraphCreate(CUgraph *graph, unsigned flags) {
    (void)flags;
    ENTER(cuGraphCreate);
    *graph = calloc(1, sizeof **graph);
    live_graphs++;
    return 0;
}
EXPORT CUresult cuGraphDestroy(CUgraph graph) {
    ENTER(cuGraphDestroy);
    free_nodes(graph->first);
    free(graph);
    live_graphs--;
    return 0;
}
static CUresult node_work(work *w, const CUDA_KERNEL_NODE_PARAMS *p) {
    memset(w, 0, sizeof *w);
    w->kind = KERNEL;
    return fill_launch(&w->launch, p->func, (unsigned[]){p->gridDimX, p->gridDimY, p->gridDimZ},
                       (unsigned[]){p->blockDimX, p->blockDimY, p->blockDimZ}, p->sharedMemBytes, p->kernelParams, p->extra);
}
EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                        const CUDA_KERNEL_NODE_PARAMS *parameters) {
    ENTER(cuGraphAddKernelNode_v2);
    /* The fake runs nodes in the order of adding, so it insists on a chain, whose links may be added afterwards. */
    if (graph->before_loose || count > 1 || (count && dependencies[0] != graph->last)) return CUDA_ERROR_INVALID_VALUE;
    if (!count) graph->before_loose = graph->last;
    work w;
    CUresult code = node_work(&w, parameters);
    if (code) return code;
    *node = append_node(&graph->first, &graph->last, &w, NULL, 1);
    return 0;
}
EXPORT CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                          const CUgraphEdgeData *data, size_t count) {
    ENTER(cuGraphAddDependencies_v2);
    if (count != 1 || !graph->before_loose || *from != graph->before_loose || *to != graph->last)
        return CUDA_ERROR_INVALID_VALUE;
    if (data->from_port != CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC || data->type != CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
        return CUDA_ERROR_INVALID_VALUE;
    graph->before_loose = NULL;
    graph->last->work.launch.overlap = 1;
    return 0;
}
EXPORT CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, int attribute, const CUlaunchAttributeValue *value) {
    ENTER(cuGraphKernelNodeSetAttribute);
    return set_cluster(&node->work.launch, attribute, value);
}
EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    (void)flags;
    ENTER(cuGraphInstantiateWithFlags);
    if (graph->before_loose) return CUDA_ERROR_INVALID_VALUE;
    *exec = calloc(1, sizeof **exec);
    for (CUgraphNode n = graph->first; n; n = n->next) append_node(&(*exec)->first, &(*exec)->last, &n->work, n, 1);
    live_graphs++;
    return 0;
}
EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
    ENTER(cuGraphExecDestroy);
    free_nodes(exec->first);
    free(exec);
    live_graphs--;
    return 0;
}
static CUgraphNode find(CUgraphExec exec, CUgraphNode node) {
    for (CUgraphNode n = exec->first; n; n = n->next)
        if (n->original == node) return n;
    return NULL;
}
EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p) {
    ENTER(cuGraphExecKernelNodeSetParams_v2);
    CUgraphNode found = find(exec, node);
    work w;
    if (!found || found->work.kind != KERNEL) return INVALID_HANDLE;
    CUresult code = node_work(&w, p);
    w.launch.overlap = found->work.launch.overlap; /* a property of the edge */
    w.launch.cluster = found->work.launch.cluster; /* an attribute of the node */
    if (!code) found->work = w;
    return code;
}
EXPORT CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled) {
    ENTER(cuGraphNodeSetEnabled);
    CUgraphNode found = find(exec, node);
    if (!found) return INVALID_HANDLE;
    found->enabled = (int)enabled;
    return 0;
}
EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
    ENTER(cuGraphUpload);
    (void)exec;
    (void)stream;
    return 0;
}
EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    ENTER(cuGraphLaunch);
    for (CUgraphNode n = exec->first; n; n = n->next) {
        CUresult code = n->enabled ? enqueue(stream, &n->work) : 0;
        if (code) return code;
    }
    return 0;
}
