/* Loads and dispatches the embedded kernels from C, C++ and Zig.
 *
 * The kernels' push blocks and buffer orders are in zinc_kernels.h, which is generated from the kernel catalog. Link with the
 * static or shared library of zinc-runtime (feature `capi`), and with -ldl -lpthread -lm; CUDA is not linked.
 *
 * Conventions
 * - Functions return a zinc_rt_status; on failure zinc_rt_last_error() has the text, and outputs are untouched.
 * - Every zinc_rt_*_free takes NULL, and may be called in any order: what is still needed stays alive until it is not.
 * - A queue, a graph and an uploader belong to one thread at a time. Everything else may be shared.
 * - A dispatch is checked against the kernel's contract before anything reaches the device. */
#ifndef ZINC_RUNTIME_H
#define ZINC_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum zinc_rt_status {
    ZINC_RT_OK = 0,
    ZINC_RT_NO_DEVICE = 1, /* no driver, or no GPU */
    ZINC_RT_INVALID = 2,   /* an argument, a contract or an archive is broken */
    ZINC_RT_DRIVER = 3,    /* the driver refused something, or earlier work failed */
    ZINC_RT_FULL = 4,      /* the ring of pending commands is full */
    ZINC_RT_NOT_READY = 5, /* zinc_rt_queue_is_done: not yet */
    ZINC_RT_INTERNAL = 6   /* a bug of this library */
} zinc_rt_status;

typedef struct zinc_rt_archive zinc_rt_archive;
typedef struct zinc_rt_kernel zinc_rt_kernel;
typedef struct zinc_rt_device zinc_rt_device;
typedef struct zinc_rt_library zinc_rt_library;
typedef struct zinc_rt_buffer zinc_rt_buffer;
typedef struct zinc_rt_queue zinc_rt_queue;
typedef struct zinc_rt_graph zinc_rt_graph;
typedef struct zinc_rt_uploader zinc_rt_uploader;

/* Text of the last failure on this thread; valid until the next call on it. */
const char *zinc_rt_last_error(void);

/* ---- archive and kernels ---- */

/* Opens an archive in memory, which stays as it is until the archive and every library made from it are freed. */
zinc_rt_status zinc_rt_archive_open(const void *bytes, size_t size, zinc_rt_archive **out);
zinc_rt_status zinc_rt_archive_read(const char *path, zinc_rt_archive **out);
void zinc_rt_archive_free(zinc_rt_archive *archive);

/* The contract of a kernel; valid for ever. */
zinc_rt_status zinc_rt_kernel_find(const char *name, const zinc_rt_kernel **out);

/* ---- device ---- */

typedef struct zinc_rt_device_info {
    char name[256];
    char pci_bus_id[32];
    char uuid[48];
    uint64_t memory_bytes;
    uint32_t ordinal;
    uint32_t capability_major;
    uint32_t capability_minor;
    uint32_t sm_count;
    uint32_t l2_bytes;
    uint32_t shared_bytes_per_block;
} zinc_rt_device_info;

/* selector: NULL or "auto" (ZINC_DEVICE, else the best), "best", an ordinal, a PCI address or a GPU-... UUID. */
zinc_rt_status zinc_rt_device_open(const char *selector, zinc_rt_device **out);
/* Around a CUcontext of the caller, which outlives everything made from the device. */
zinc_rt_status zinc_rt_device_from_context(void *context, zinc_rt_device **out);
zinc_rt_status zinc_rt_device_describe(const zinc_rt_device *device, zinc_rt_device_info *out);
/* The CUcontext. */
void *zinc_rt_device_context(const zinc_rt_device *device);
void zinc_rt_device_free(zinc_rt_device *device);

/* Kernels load on first use. Fails where a kernel has no code for the device. */
zinc_rt_status zinc_rt_library_new(const zinc_rt_device *device, const zinc_rt_archive *archive, zinc_rt_library **out);
zinc_rt_status zinc_rt_library_load_all(const zinc_rt_library *library);
void zinc_rt_library_free(zinc_rt_library *library);

/* ---- buffers ---- */

zinc_rt_status zinc_rt_buffer_new(const zinc_rt_device *device, uint64_t bytes, zinc_rt_buffer **out);
/* Around memory of the caller (a CUdeviceptr), which stays allocated until the work that uses it is done. */
zinc_rt_status zinc_rt_buffer_from_address(const zinc_rt_device *device, uint64_t address, uint64_t bytes,
                                           zinc_rt_buffer **out);
uint64_t zinc_rt_buffer_address(const zinc_rt_buffer *buffer);
uint64_t zinc_rt_buffer_bytes(const zinc_rt_buffer *buffer);
/* Work that was given the buffer keeps it until it is done. */
void zinc_rt_buffer_free(zinc_rt_buffer *buffer);

/* Bytes offset to offset + bytes of a buffer. A NULL buffer binds nothing. */
typedef struct zinc_rt_slice {
    const zinc_rt_buffer *buffer;
    uint64_t offset;
    uint64_t bytes;
} zinc_rt_slice;

/* ---- queue ---- */

/* What a dispatch passes besides buffers: the push block, the launch counts and the specialization values. */
typedef struct zinc_rt_values {
    const void *push;
    size_t push_bytes;
    const uint32_t *launch;
    size_t launch_count;
    const uint32_t *spec;
    size_t spec_count;
} zinc_rt_values;

/* ring: commands that may be pending at once; 0 for the default. */
zinc_rt_status zinc_rt_queue_new(const zinc_rt_library *library, uint32_t ring, zinc_rt_queue **out);
/* On a CUstream of the caller, which outlives the queue. */
zinc_rt_status zinc_rt_queue_from_stream(const zinc_rt_library *library, void *stream, uint32_t ring, zinc_rt_queue **out);
void *zinc_rt_queue_stream(const zinc_rt_queue *queue);
/* Waits for the queue's work. */
void zinc_rt_queue_free(zinc_rt_queue *queue);

zinc_rt_status zinc_rt_queue_begin(zinc_rt_queue *queue);
zinc_rt_status zinc_rt_queue_dispatch(zinc_rt_queue *queue, const zinc_rt_kernel *kernel, const zinc_rt_values *values,
                                      const zinc_rt_slice *buffers, size_t buffer_count);
zinc_rt_status zinc_rt_queue_fill(zinc_rt_queue *queue, zinc_rt_slice to, uint8_t value);
zinc_rt_status zinc_rt_queue_copy(zinc_rt_queue *queue, zinc_rt_slice to, zinc_rt_slice from);
/* In order with dispatches; the bytes are copied before it returns. */
zinc_rt_status zinc_rt_queue_write(zinc_rt_queue *queue, zinc_rt_slice to, const void *data);
/* Waits for the work before it and for the copy. */
zinc_rt_status zinc_rt_queue_read(zinc_rt_queue *queue, zinc_rt_slice from, void *data);
zinc_rt_status zinc_rt_queue_commit_and_wait(zinc_rt_queue *queue);
/* Waits for the oldest command where the ring is full. */
zinc_rt_status zinc_rt_queue_commit(zinc_rt_queue *queue, uint64_t *token);
/* ZINC_RT_FULL where the ring is full: the command stays open. */
zinc_rt_status zinc_rt_queue_try_commit(zinc_rt_queue *queue, uint64_t *token);
zinc_rt_status zinc_rt_queue_wait(zinc_rt_queue *queue, uint64_t token);
/* ZINC_RT_OK or ZINC_RT_NOT_READY. */
zinc_rt_status zinc_rt_queue_is_done(zinc_rt_queue *queue, uint64_t token);
/* Lets go of what finished commands keep alive. */
zinc_rt_status zinc_rt_queue_release_completed(zinc_rt_queue *queue);

/* ---- graphs ---- */

/* Until the capture ends, work of the queue and of its stream is recorded and does not run. */
zinc_rt_status zinc_rt_queue_begin_capture(zinc_rt_queue *queue);
/* Dispatches are numbered from 0 in the order of recording. */
zinc_rt_status zinc_rt_queue_end_capture(zinc_rt_queue *queue, zinc_rt_graph **out);
/* New values of one dispatch for later launches, checked like a dispatch. */
zinc_rt_status zinc_rt_graph_set(zinc_rt_graph *graph, uint32_t dispatch, const zinc_rt_values *values);
zinc_rt_status zinc_rt_queue_launch(zinc_rt_queue *queue, const zinc_rt_graph *graph);
void zinc_rt_graph_free(zinc_rt_graph *graph);

/* ---- uploads ---- */

/* Streams any amount of data through slots * slot_bytes of pinned memory; 0 and 0 for the default. */
zinc_rt_status zinc_rt_uploader_new(const zinc_rt_device *device, uint32_t slots, size_t slot_bytes, zinc_rt_uploader **out);
zinc_rt_status zinc_rt_uploader_upload(zinc_rt_uploader *uploader, zinc_rt_slice to, const void *data);
/* From byte `offset` of a file, without growing host memory. */
zinc_rt_status zinc_rt_uploader_upload_file(zinc_rt_uploader *uploader, zinc_rt_slice to, const char *path, uint64_t offset);
/* Waits until everything has arrived. */
zinc_rt_status zinc_rt_uploader_finish(zinc_rt_uploader *uploader);
void zinc_rt_uploader_free(zinc_rt_uploader *uploader);

#ifdef __cplusplus
}
#endif

#endif
