/* The C shim under zinc-runtime: every call into the NVIDIA driver is made behind this interface.
 *
 * The library is opened at run time from a path that the caller chose; nothing links CUDA, and no CUDA header is needed to
 * compile the shim. The shim checks little: the layer above owns lifetimes and validates arguments.
 *
 * Conventions
 * - A function that can fail returns 0 or the failing code (CUresult when positive, ZINC_E_* when negative) and then fills
 *   *error, which may be NULL. Nothing is written through error on success.
 * - Handles are opaque. zinc_driver, zinc_context and zinc_graph belong to the shim; zinc_stream, zinc_event, zinc_image,
 *   zinc_entry and zinc_node are the driver's own handles (CUstream, CUevent, CUmodule, CUfunction, CUgraphNode) under a
 *   type of their own, so that handles of other CUDA clients pass through by a cast.
 * - Functions that take a zinc_context make it current for the call. A thread that had another context current gets it back;
 *   a thread that had none keeps ours.
 * - Device addresses are uint64_t. Copies and fills are asynchronous on their stream.
 */
#ifndef ZINC_SHIM_H
#define ZINC_SHIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Codes of the shim itself. */
#define ZINC_E_OPEN (-1)        /* the library cannot be opened */
#define ZINC_E_SYMBOL (-2)      /* the library lacks a required function */
#define ZINC_E_MEMORY (-3)      /* out of host memory */
#define ZINC_E_UNSUPPORTED (-4) /* the driver lacks an optional function */
#define ZINC_E_ARGUMENT (-5)    /* there is no such node, or the stream is in another state */

typedef struct zinc_driver zinc_driver;
typedef struct zinc_context zinc_context;
typedef struct zinc_stream zinc_stream;
typedef struct zinc_event zinc_event;
typedef struct zinc_image zinc_image;
typedef struct zinc_entry zinc_entry;
typedef struct zinc_graph zinc_graph;
typedef struct zinc_node zinc_node;

typedef struct zinc_error {
    int32_t code;
    uint32_t index;   /* the launch that failed, for calls that take a list */
    const char *call; /* driver function that failed; static */
    const char *name; /* the driver's name of the code, or the missing symbol; static or NULL */
    const char *text; /* the driver's text for the code; static or NULL */
} zinc_error;

/* ---- driver ---- */

/* Opens the library and resolves what identifies it. message receives the loader's text on ZINC_E_OPEN. */
int32_t zinc_driver_open(const char *path, char *message, size_t message_bytes, zinc_driver **out, zinc_error *error);
/* The path the loader resolved to, for libraries given by bare name; empty when unknown. */
void zinc_driver_path(const zinc_driver *driver, char *path, size_t path_bytes);
/* Initializes the driver (cuInit). */
int32_t zinc_driver_start(zinc_driver *driver, zinc_error *error);
/* The CUDA version that the driver supports, as 1000 * major + 10 * minor. Valid before zinc_driver_start. */
int32_t zinc_driver_version(const zinc_driver *driver, int32_t *version, zinc_error *error);
/* Resolves everything else; ZINC_E_SYMBOL names the first missing function. */
int32_t zinc_driver_resolve(zinc_driver *driver, zinc_error *error);
/* Closes the library again. Only for a library that was rejected: nothing may be using it. */
void zinc_driver_close(zinc_driver *driver);

/* ---- devices and contexts ---- */

typedef struct zinc_device_info {
    char name[256];
    char pci_bus_id[32]; /* domain:bus:device.function */
    uint8_t uuid[16];
    uint64_t memory_bytes;
    uint32_t capability_major;
    uint32_t capability_minor;
    uint32_t sm_count;
    uint32_t warp_size;
    uint32_t threads_per_sm;
    uint32_t l2_bytes;
    uint32_t shared_bytes_per_sm;
    uint32_t shared_bytes_per_block_optin;
    uint32_t memory_clock_khz;
    uint32_t memory_bus_bits;
    uint32_t integrated;
    uint32_t sm_clock_khz; /* the highest */
} zinc_device_info;

int32_t zinc_device_count(const zinc_driver *driver, uint32_t *count, zinc_error *error);
int32_t zinc_device_describe(const zinc_driver *driver, uint32_t ordinal, zinc_device_info *info, zinc_error *error);

/* Retains the primary context of a device. */
int32_t zinc_context_retain(const zinc_driver *driver, uint32_t ordinal, zinc_context **out, zinc_error *error);
/* Wraps a context of another CUDA client; *ordinal receives its device. Releasing the wrapper leaves the context alone. */
int32_t zinc_context_wrap(const zinc_driver *driver, void *raw, zinc_context **out, uint32_t *ordinal, zinc_error *error);
/* The driver's handle (CUcontext). */
void *zinc_context_raw(const zinc_context *context);
int32_t zinc_context_synchronize(const zinc_context *context, zinc_error *error);
int32_t zinc_context_release(zinc_context *context, zinc_error *error);

/* ---- memory ---- */

int32_t zinc_memory_info(const zinc_context *context, uint64_t *free_bytes, uint64_t *total_bytes, zinc_error *error);
int32_t zinc_memory_alloc(const zinc_context *context, uint64_t bytes, uint64_t *address, zinc_error *error);
int32_t zinc_memory_free(const zinc_context *context, uint64_t address, zinc_error *error);
/* Page-locked host memory, usable from every context. */
int32_t zinc_pinned_alloc(const zinc_context *context, uint64_t bytes, void **address, zinc_error *error);
int32_t zinc_pinned_free(const zinc_context *context, void *address, zinc_error *error);

int32_t zinc_copy_to_device(const zinc_context *context, zinc_stream *stream, uint64_t to, const void *from, uint64_t bytes,
                            zinc_error *error);
int32_t zinc_copy_to_host(const zinc_context *context, zinc_stream *stream, void *to, uint64_t from, uint64_t bytes,
                          zinc_error *error);
int32_t zinc_copy_on_device(const zinc_context *context, zinc_stream *stream, uint64_t to, uint64_t from, uint64_t bytes,
                            zinc_error *error);
int32_t zinc_fill(const zinc_context *context, zinc_stream *stream, uint64_t to, uint8_t value, uint64_t bytes,
                  zinc_error *error);

/* ---- streams and events ---- */

/* A stream that does not synchronize with the null stream. */
int32_t zinc_stream_create(const zinc_context *context, zinc_stream **out, zinc_error *error);
int32_t zinc_stream_destroy(const zinc_context *context, zinc_stream *stream, zinc_error *error);
int32_t zinc_stream_synchronize(const zinc_context *context, zinc_stream *stream, zinc_error *error);
int32_t zinc_stream_wait(const zinc_context *context, zinc_stream *stream, zinc_event *event, zinc_error *error);

int32_t zinc_event_create(const zinc_context *context, int32_t timing, zinc_event **out, zinc_error *error);
int32_t zinc_event_destroy(const zinc_context *context, zinc_event *event, zinc_error *error);
int32_t zinc_event_record(const zinc_context *context, zinc_event *event, zinc_stream *stream, zinc_error *error);
/* *done is 0 while work before the event is unfinished. */
int32_t zinc_event_query(const zinc_context *context, zinc_event *event, int32_t *done, zinc_error *error);
int32_t zinc_event_synchronize(const zinc_context *context, zinc_event *event, zinc_error *error);
int32_t zinc_event_elapsed(const zinc_context *context, zinc_event *start, zinc_event *end, float *milliseconds,
                           zinc_error *error);

/* ---- images and entries ---- */

/* Loads a cubin, a fatbin or NUL-terminated PTX. log receives the driver's JIT log, NUL-terminated, also on failure. */
int32_t zinc_image_load(const zinc_context *context, const void *image, char *log, size_t log_bytes, zinc_image **out,
                        zinc_error *error);
int32_t zinc_image_unload(const zinc_context *context, zinc_image *image, zinc_error *error);
int32_t zinc_image_entry(const zinc_context *context, zinc_image *image, const char *name, zinc_entry **out,
                         zinc_error *error);

typedef struct zinc_entry_info {
    uint32_t registers;
    uint32_t static_shared_bytes;
    uint32_t local_bytes;
    uint32_t max_threads_per_block;
    uint32_t binary_version; /* 10 * major + minor of the code that was chosen */
} zinc_entry_info;

int32_t zinc_entry_describe(const zinc_context *context, zinc_entry *entry, zinc_entry_info *info, zinc_error *error);
int32_t zinc_entry_set_dynamic_shared(const zinc_context *context, zinc_entry *entry, uint32_t bytes, zinc_error *error);
/* Allows clusters of more blocks than every GPU takes (8). */
int32_t zinc_entry_allow_large_clusters(const zinc_context *context, zinc_entry *entry, zinc_error *error);
/* Offset and size of one parameter; *exists is 0 past the last. ZINC_E_UNSUPPORTED on drivers older than 12.4. */
int32_t zinc_entry_parameter(const zinc_context *context, zinc_entry *entry, uint32_t index, int32_t *exists, uint64_t *offset,
                             uint64_t *bytes, zinc_error *error);
/* Blocks of this shape that one SM holds at once. */
int32_t zinc_entry_blocks_per_sm(const zinc_context *context, zinc_entry *entry, uint32_t block_threads, uint32_t dynamic_shared,
                                 uint32_t *blocks, zinc_error *error);

/* ---- launches ---- */

/* One launch. arguments holds argument_bytes bytes: all parameters where the kernel has them, device addresses of 8 bytes and
 * then the push struct. */
typedef struct zinc_launch {
    zinc_entry *entry;
    const void *arguments;
    uint32_t argument_bytes;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
    uint32_t overlap; /* 1: the kernel waits by itself for the one before it, and may be started while that one still runs */
    uint32_t cluster; /* blocks along x that form a cluster; 1: none */
} zinc_launch;

/* Submits a command list in order. On failure error->index is the launch that failed; those before it were submitted. */
int32_t zinc_submit(const zinc_context *context, zinc_stream *stream, const zinc_launch *launches, uint32_t count,
                    zinc_error *error);

/* ---- graphs ---- */

/* Builds a graph of the launches, each depending on the one before, and instantiates it. Node i is launch i. */
int32_t zinc_graph_build(const zinc_context *context, const zinc_launch *launches, uint32_t count, zinc_graph **out,
                         zinc_error *error);
/* Puts a stream into capture: work given to it from now on becomes a graph instead of running. */
int32_t zinc_capture_begin(const zinc_context *context, zinc_stream *stream, zinc_error *error);
/* The kernel node that the last launch on a capturing stream made. */
int32_t zinc_capture_node(const zinc_context *context, zinc_stream *stream, zinc_node **out, zinc_error *error);
/* Ends the capture and instantiates it. Node i of the graph is nodes[i]; the list is copied. */
int32_t zinc_capture_end(const zinc_context *context, zinc_stream *stream, zinc_node *const *nodes, uint32_t count,
                         zinc_graph **out, zinc_error *error);
/* Ends a capture and drops what it recorded. */
void zinc_capture_abandon(const zinc_context *context, zinc_stream *stream);
/* 1 while the stream is capturing. */
int32_t zinc_stream_capturing(const zinc_context *context, zinc_stream *stream, int32_t *capturing, zinc_error *error);

/* Replaces entry, geometry and arguments of one node for later launches; its cluster stays what it was built with. */
int32_t zinc_graph_set(zinc_graph *graph, uint32_t node, const zinc_launch *launch, zinc_error *error);
/* A disabled node does nothing when the graph is launched. */
int32_t zinc_graph_enable(zinc_graph *graph, uint32_t node, int32_t enabled, zinc_error *error);
/* Moves the graph's device-side state to the device ahead of the first launch. */
int32_t zinc_graph_upload(zinc_graph *graph, zinc_stream *stream, zinc_error *error);
int32_t zinc_graph_launch(zinc_graph *graph, zinc_stream *stream, zinc_error *error);
void zinc_graph_destroy(zinc_graph *graph);

#ifdef __cplusplus
}
#endif

#endif
