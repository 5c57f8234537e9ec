/* zinc-cuda for C, C++ and Zig: the compiled kernels, their contracts, and a runtime that needs the NVIDIA driver alone.
 *
 * Link with libzinc_capi.so, or with libzinc_capi.a and -ldl -lpthread -lm. Nothing links CUDA: the driver is looked up when a
 * device is first asked for, and everything about kernels, archives and contracts works without one. The push blocks and the
 * buffer order of each kernel are in zinc_kernels.h, which is generated from the kernel catalog.
 *
 *     #include <stdio.h>
 *     #include "zinc_cuda.h"
 *     #include "zinc_kernels.h"
 *
 *     #define CHECK(call) \
 *         if ((call) != ZCU_STATUS_OK) { fprintf(stderr, "%s\n", zcu_last_error()->text); return 1; }
 *
 *     int main(void) {
 *         zcu_device *device;
 *         zcu_library *library;
 *         zcu_queue *queue;
 *         const zcu_kernel *vadd;
 *         CHECK(zcu_device_open("auto", &device));
 *         CHECK(zcu_library_create(device, NULL, &library)); // NULL: the embedded kernels
 *         CHECK(zcu_queue_create(library, NULL, &queue));
 *         CHECK(zcu_kernel_find(ZINC_VADD_NAME, &vadd));
 *
 *         float numbers[4] = {1, 2, 3, 4};
 *         zcu_buffer *a, *c;
 *         CHECK(zcu_buffer_create(device, sizeof numbers, &a));
 *         CHECK(zcu_buffer_create(device, sizeof numbers, &c));
 *         zcu_slice in = {a, 0, ZCU_TO_END}, out = {c, 0, ZCU_TO_END};
 *         CHECK(zcu_queue_write(queue, in, numbers, sizeof numbers));
 *
 *         zinc_vadd_push push = {4};
 *         zcu_values values = {&push, sizeof push, NULL, 0, NULL, 0};
 *         zcu_slice buffers[ZINC_VADD_BUFFERS] = {in, in, out};
 *         CHECK(zcu_queue_dispatch(queue, vadd, &values, buffers, ZINC_VADD_BUFFERS));
 *         CHECK(zcu_queue_commit(queue));
 *         CHECK(zcu_queue_read(queue, out, numbers, sizeof numbers));
 *         printf("%g %g %g %g\n", numbers[0], numbers[1], numbers[2], numbers[3]); // 2 4 6 8
 *
 *         zcu_buffer_free(a);
 *         zcu_buffer_free(c);
 *         zcu_queue_free(queue);
 *         zcu_library_free(library);
 *         zcu_device_free(device);
 *         return 0;
 *     }
 *
 * Failures. A function returns a status; ZCU_STATUS_OK is 0. zcu_last_error() has the details of the last failure of the
 * calling thread: the message, the kernel, the architecture, what was wanted and what was found. Outputs are written on success
 * only, except that the pointer for a new handle becomes NULL on failure. No panic and no exception leaves the library.
 *
 * Pointers. An input or output must not be NULL unless its function says so; NULL is refused with ZCU_STATUS_NULL_POINTER. An
 * array of no elements may be NULL. Inputs are read during the call only. Outputs do not overlap inputs or each other.
 *
 * Texts are UTF-8 and end in a NUL, in both directions. Those that the library returns belong to it; each struct says how long
 * they live.
 *
 * Handles. What a function creates or opens is the caller's, who frees it with the zcu_..._free of its type, once, while no
 * other call uses it. The order does not matter: what is still needed stays alive until it is not. In particular a buffer may
 * be freed while work that uses it is pending: a command holds its buffers and graphs until it is waited for or released, and
 * a list or a graph holds its own. A zcu_kernel is the library's and never freed.
 *
 * Threads. Devices, libraries, buffers, archives, images and kernels may be shared. A queue, a graph, a list and an uploader
 * may move between threads and belong to one at a time: a second one is refused with ZCU_STATUS_BUSY, also while the first
 * waits. Calls make the device's context current on the calling thread while they run: a thread that had another one gets it
 * back, and one that had none keeps this one. */

#ifndef ZINC_CUDA_H
#define ZINC_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Number of this interface. It changes whenever a function or struct changes in a way that a compiled caller would notice.
#define ZCU_INTERFACE 1

// The length of a slice that reaches to the end of its buffer.
#define ZCU_TO_END 18446744073709551615ull

// What a function returns. The numbers are stable; later versions may add some.
enum zcu_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Done.
    ZCU_STATUS_OK = 0,
    // A pointer that has to refer to something is NULL.
    ZCU_STATUS_NULL_POINTER = 1,
    // An argument is out of range, misaligned or not UTF-8.
    ZCU_STATUS_INVALID_ARGUMENT = 2,
    // Another thread is using the handle.
    ZCU_STATUS_BUSY = 3,
    // A bug of this library. Nothing is known about the handles that were involved: free them.
    ZCU_STATUS_INTERNAL = 4,
    // A failure that this version of the interface has no code for.
    ZCU_STATUS_OTHER = 5,
    // No kernel has this name; the hint is the most similar one.
    ZCU_STATUS_UNKNOWN_KERNEL = 10,
    // The kernel has a contract and no implementation.
    ZCU_STATUS_PENDING = 11,
    // The kernel has no image for this target.
    ZCU_STATUS_UNKNOWN_TARGET = 12,
    // The kernel has no image that runs on this device.
    ZCU_STATUS_UNSUPPORTED_DEVICE = 13,
    // The archive is damaged, or is no archive.
    ZCU_STATUS_ARCHIVE_DAMAGED = 14,
    // A file can't be read, or ends early.
    ZCU_STATUS_IO = 15,
    // The push block has the wrong size.
    ZCU_STATUS_PUSH_BYTES = 20,
    // Too few or too many launch counts or specialization values.
    ZCU_STATUS_VALUE_COUNT = 21,
    // The complete push struct has the wrong number of words.
    ZCU_STATUS_WORD_COUNT = 22,
    // Too few or too many buffers.
    ZCU_STATUS_BUFFER_COUNT = 23,
    // The values break a precondition of the contract.
    ZCU_STATUS_PRECONDITION = 24,
    // A buffer is smaller than what the kernel would touch.
    ZCU_STATUS_BUFFER_TOO_SMALL = 25,
    // A buffer starts at an address that the contract does not allow.
    ZCU_STATUS_MISALIGNED = 26,
    // Two buffers overlap, and one of them is written.
    ZCU_STATUS_OVERLAP = 27,
    // An expression of the contract has no value for these values.
    ZCU_STATUS_NO_VALUE = 28,
    // Grid, block or shared memory are beyond what the device or the compiled code can do.
    ZCU_STATUS_LAUNCH_LIMIT = 29,
    // The compiled parameters are not those of the contract.
    ZCU_STATUS_ABI_MISMATCH = 30,
    // This machine has no usable GPU: no driver, or no device. The text lists every place that was tried.
    ZCU_STATUS_NO_DEVICE = 40,
    // There are devices, and none is the one asked for.
    ZCU_STATUS_DEVICE_NOT_FOUND = 41,
    // There is a driver, and it can't be used: too old, or damaged.
    ZCU_STATUS_DRIVER = 42,
    // A driver call, or work that was queued earlier, failed; driver_code says why.
    ZCU_STATUS_CUDA = 43,
    // Not enough device memory.
    ZCU_STATUS_OUT_OF_MEMORY = 44,
    // A range reaches past the end.
    ZCU_STATUS_RANGE = 50,
    // Source and destination differ in length.
    ZCU_STATUS_LENGTH = 51,
    // A slice that has to bind a buffer binds none.
    ZCU_STATUS_UNBOUND = 52,
    // The handles belong to different devices or contexts.
    ZCU_STATUS_WRONG_DEVICE = 53,
    // The token or list belongs to another queue or library.
    ZCU_STATUS_WRONG_QUEUE = 54,
    // The buffer is constant, and would be written.
    ZCU_STATUS_CONSTANT = 55,
    // As many commands are pending as the ring holds.
    ZCU_STATUS_RING_FULL = 60,
    // A command is open already.
    ZCU_STATUS_ALREADY_BEGUN = 61,
    // Not while the queue is capturing a graph.
    ZCU_STATUS_CAPTURING = 62,
    // The queue is not capturing a graph.
    ZCU_STATUS_NOT_CAPTURING = 63,
    // The graph has no dispatch of this number.
    ZCU_STATUS_UNKNOWN_DISPATCH = 64,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zcu_status zcu_status;
#else
typedef int32_t zcu_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Direction of a buffer.
enum zcu_access
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Only read.
    ZCU_ACCESS_READ = 1,
    // Only written.
    ZCU_ACCESS_WRITE = 2,
    // Read and written.
    ZCU_ACCESS_READ_WRITE = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zcu_access zcu_access;
#else
typedef int32_t zcu_access;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Where a field comes from.
enum zcu_field_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // The push block.
    ZCU_FIELD_KIND_PUSH = 0,
    // A launch count.
    ZCU_FIELD_KIND_LAUNCH = 1,
    // A specialization value.
    ZCU_FIELD_KIND_SPEC = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zcu_field_kind zcu_field_kind;
#else
typedef int32_t zcu_field_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Type of a field.
enum zcu_scalar
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Unsigned 32-bit integer.
    ZCU_SCALAR_U32 = 0,
    // IEEE single.
    ZCU_SCALAR_F32 = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zcu_scalar zcu_scalar;
#else
typedef int32_t zcu_scalar;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// An archive of compiled kernels. It may be shared between threads.
typedef struct zcu_archive zcu_archive;

// Device memory. It may be shared between threads.
typedef struct zcu_buffer zcu_buffer;

// An open device: its primary context, or a context of another CUDA client. It may be shared between threads.
typedef struct zcu_device zcu_device;

// Recorded dispatches, ready to be replayed. One thread at a time uses it. It keeps its buffers and kernels alive.
typedef struct zcu_graph zcu_graph;

// An image with its bytes. It may be shared between threads.
typedef struct zcu_image zcu_image;

// The contract of a kernel. It is part of the library and never freed.
typedef struct zcu_kernel zcu_kernel;

// The kernels of an archive on a device. It may be shared between threads.
typedef struct zcu_library zcu_library;

// Recorded dispatches. One thread at a time uses it. It keeps its buffers and kernels alive.
typedef struct zcu_list zcu_list;

// A queue of work for one device. One thread at a time uses it.
typedef struct zcu_queue zcu_queue;

// Streams large amounts of data to and from a device, on a stream of its own. One thread at a time uses it.
typedef struct zcu_uploader zcu_uploader;

// What is known of a failure. No text is NULL; what does not apply is empty.
typedef struct {
    // What the function returned.
    zcu_status status;
    // The driver's code (CUresult); 0 where no driver call failed, negative where it could not be made.
    int32_t driver_code;
    // The whole message, for people. It may have several lines.
    const char *text;
    // The kernel.
    const char *kernel;
    // The buffer, by its name in the contract.
    const char *buffer;
    // The image ("sm_90", "compute_120") or compute capability ("9.0") that it is about.
    const char *arch;
    // What was wanted.
    const char *wanted;
    // What was found.
    const char *found;
    // What helps: the most similar name, or the usual cause.
    const char *hint;
} zcu_error;

// What a kernel is and what a dispatch passes to it. The texts are never freed.
typedef struct {
    // Name of the kernel and of its entry point.
    const char *name;
    // Family, such as "gemm" or "attention".
    const char *family;
    // One sentence.
    const char *summary;
    // Buffers, in binding order.
    uint32_t buffer_count;
    // 4-byte fields of the push block.
    uint32_t push_count;
    // Launch counts: what the original shader encodes in its grid.
    uint32_t launch_count;
    // Specialization values.
    uint32_t spec_count;
    // Bytes of the push block.
    uint32_t push_bytes;
    // Fewest bytes that are accepted: fields with a default may be missing at the end.
    uint32_t push_bytes_least;
    // Most bytes that are accepted: those behind push_bytes are ignored.
    uint32_t push_bytes_most;
    // Whether it is beyond the 110.
    bool extended;
    // Whether there is an implementation.
    bool implemented;
} zcu_kernel_info;

// One buffer of a contract. The texts are never freed.
typedef struct {
    // Name.
    const char *name;
    // Element type or block format.
    const char *dtype;
    // Layout, in words.
    const char *shape;
    // Least size in bytes, as an expression over the fields; see zcu_kernel_buffer_range for its value.
    const char *bytes;
    // Direction.
    zcu_access access;
    // Required alignment of the address, bytes.
    uint64_t alignment;
} zcu_buffer_info;

// One 4-byte field of a kernel. The texts are never freed.
typedef struct {
    // Name.
    const char *name;
    // Meaning and unit.
    const char *doc;
    // Where it comes from.
    zcu_field_kind kind;
    // Type.
    zcu_scalar scalar;
    // Whether it may be left out.
    bool has_default;
    // The word that then stands for it.
    uint32_t default_word;
} zcu_field_info;

// What a dispatch passes besides its buffers.
typedef struct {
    // The push block, byte for byte that of the Vulkan shader: a zinc_..._push of zinc_kernels.h.
    const void *push;
    // Its bytes.
    size_t push_bytes;
    // The launch counts, in the contract's order. Those with a default may be missing at the end.
    const uint32_t *launch;
    // How many; launch may be NULL if there are none.
    size_t launch_count;
    // The specialization values, in the contract's order. Those with a default may be missing at the end.
    const uint32_t *spec;
    // How many; spec may be NULL if there are none.
    size_t spec_count;
} zcu_values;

// How a kernel is launched.
typedef struct {
    // Blocks along x, y and z; all 0 where there is nothing to do.
    uint32_t grid[3];
    // Threads along x, y and z.
    uint32_t block[3];
    // Blocks of a cluster along x; 1 without clusters.
    uint32_t cluster;
    // Dynamic shared memory of a block, bytes.
    uint32_t shared_bytes;
} zcu_geometry;

// A range of device memory, for a check without a device.
typedef struct {
    // Address of the first byte, in any address space; 0 with 0 bytes binds nothing.
    uint64_t address;
    // Bytes.
    uint64_t bytes;
} zcu_binding;

// What an archive is. The text lives as long as the archive.
typedef struct {
    // The exact build of the compiler.
    const char *compiler;
    // SHA-256 of the sources that it was compiled from.
    uint8_t source_sha256[32];
    // Bytes of the archive.
    uint64_t bytes;
    // Kernels.
    size_t kernel_count;
    // Images of all kernels.
    size_t image_count;
} zcu_archive_info;

// A kernel of an archive. The texts live as long as the archive.
typedef struct {
    // Name.
    const char *name;
    // Family.
    const char *family;
    // One sentence.
    const char *summary;
    // Symbol of the entry in its images.
    const char *entry;
    // Images.
    size_t image_count;
    // Whether it is beyond the 110.
    bool extended;
} zcu_archive_kernel_info;

// An image of a kernel.
typedef struct {
    // What it is compiled for, such as "sm_90" (machine code) or "compute_120" (PTX).
    char target[16];
    // The number in it, such as 90.
    uint32_t arch;
    // Whether it is PTX, which the driver compiles when it is loaded.
    bool ptx;
    // Bytes of the image.
    uint64_t bytes;
    // Bytes in the archive, where it is compressed.
    uint64_t stored_bytes;
    // SHA-256 of the image.
    uint8_t sha256[32];
    // Registers per thread; 0 for PTX, as are the next ones.
    uint32_t registers;
    // Static shared memory of a block, bytes.
    uint32_t shared_bytes;
    // Local memory of a thread, bytes.
    uint32_t local_bytes;
    // Register spills of a thread, bytes stored and loaded.
    uint64_t spill_bytes;
} zcu_image_info;

// What the driver says of a device.
typedef struct {
    // Product name.
    char name[256];
    // Domain, bus, device and function, such as "0000:3b:00.0".
    char pci_bus_id[32];
    // Identity, such as "GPU-1b4a...".
    char uuid[48];
    // Device memory, bytes.
    uint64_t memory_bytes;
    // The driver's number of the device.
    uint32_t ordinal;
    // Compute capability, the 9 of 9.0.
    uint32_t capability_major;
    // Compute capability, the 0 of 9.0.
    uint32_t capability_minor;
    // Streaming multiprocessors.
    uint32_t sm_count;
    // Threads of a warp.
    uint32_t warp_size;
    // Second-level cache, bytes.
    uint32_t l2_bytes;
    // The most shared memory that a block may have, bytes.
    uint32_t shared_bytes_per_block;
    // Memory clock, kHz; 0 where the driver does not say.
    uint32_t memory_clock_khz;
    // Width of the memory bus, bits.
    uint32_t memory_bus_bits;
    // Whether the device shares the host's memory.
    bool integrated;
} zcu_device_info;

// What a loaded kernel uses on its device.
typedef struct {
    // The image that was chosen, such as "sm_90".
    char target[16];
    // Registers per thread.
    uint32_t registers;
    // Static shared memory of a block, bytes.
    uint32_t static_shared_bytes;
    // The most dynamic shared memory of a block, bytes.
    uint32_t max_dynamic_shared_bytes;
    // Local memory of a thread, bytes.
    uint32_t local_bytes;
    // The most threads of a block.
    uint32_t max_threads_per_block;
} zcu_entry_info;

// How a queue is made. What is 0 is the default.
typedef struct {
    // Commands that may be pending at once; 64 by default.
    uint32_t ring;
    // Pinned buffers for zcu_queue_write and zcu_queue_read, which allocate them when first used; 2 by default.
    uint32_t staging_slots;
    // Bytes of each; 2 MiB by default.
    uint64_t staging_slot_bytes;
} zcu_queue_options;

// A part of a buffer.
typedef struct {
    // The buffer; NULL binds nothing, where the contract touches nothing.
    const zcu_buffer *buffer;
    // First byte.
    uint64_t offset;
    // Bytes, or ZCU_TO_END.
    uint64_t bytes;
} zcu_slice;

// A committed command of a queue.
typedef struct {
    // Which queue.
    uint64_t queue;
    // Which of its commands.
    uint64_t command;
} zcu_token;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// ---- version ----

// ZCU_INTERFACE of the library, to be compared with that of the header.
uint32_t zcu_interface(void);

// Version of the library, such as "0.1.0".
const char *zcu_version(void);

// ---- failures ----

// What is known of the last failure on this thread; NULL before the first. It stays until the next failure on this thread: a
// call that succeeds does not change it.
const zcu_error *zcu_last_error(void);

// ---- contracts: no device is needed ----

// Contracts in the library: those of the 110, the extended ones, and those that have no implementation yet.
size_t zcu_kernel_count(void);

// The contract at an index. They are sorted by name.
zcu_status zcu_kernel_at(size_t index, const zcu_kernel **kernel);

// The contract of the kernel with this name. Look it up once: a dispatch takes the pointer.
zcu_status zcu_kernel_find(const char *name, const zcu_kernel **kernel);

// What a kernel is and what a dispatch passes to it.
zcu_status zcu_kernel_describe(const zcu_kernel *kernel, zcu_kernel_info *info);

// One buffer of a kernel, by its place in the binding order.
zcu_status zcu_kernel_buffer(const zcu_kernel *kernel, size_t index, zcu_buffer_info *info);

// One field of a kernel: the push fields, then the launch counts, then the specialization values.
zcu_status zcu_kernel_field(const zcu_kernel *kernel, size_t index, zcu_field_info *info);

// The complete push struct, as the device code takes it behind the buffers' addresses: push fields, launch counts,
// specialization values. capacity is that of words; count becomes the number of words. For engines that launch the images
// with their own driver loader.
zcu_status zcu_kernel_words(const zcu_kernel *kernel,
                            const zcu_values *values,
                            uint32_t *words,
                            size_t capacity,
                            size_t *count);

// The bytes of a buffer that the kernel may touch with these values: from start to before end. The buffer has to have end
// bytes; 0 and 0: it is not touched. Preconditions are not checked here.
zcu_status zcu_kernel_buffer_range(const zcu_kernel *kernel,
                                   const zcu_values *values,
                                   size_t buffer,
                                   uint64_t *start,
                                   uint64_t *end);

// How a kernel is launched with these values, for its image of this target ("sm_90", as zcu_entry_info has it) on a device
// with sm_count multiprocessors. Preconditions are not checked here.
zcu_status zcu_kernel_geometry(const zcu_kernel *kernel,
                               const zcu_values *values,
                               const char *target,
                               uint32_t sm_count,
                               zcu_geometry *geometry);

// Checks a dispatch as zcu_queue_dispatch does, without a device: values, number, size and alignment of the buffers,
// preconditions, overlaps.
zcu_status zcu_kernel_check(const zcu_kernel *kernel,
                            const zcu_values *values,
                            const zcu_binding *buffers,
                            size_t buffer_count);

// ---- archives and images: no device is needed ----

// Opens the archive that is part of the library.
zcu_status zcu_archive_open_embedded(zcu_archive **archive);

// Opens an archive in memory, of which it takes a copy.
zcu_status zcu_archive_open_memory(const void *data, size_t bytes, zcu_archive **archive);

// Opens an archive file.
zcu_status zcu_archive_open_file(const char *path, zcu_archive **archive);

// Frees an archive; NULL is nothing. Libraries and images made from it stay usable.
void zcu_archive_free(zcu_archive *archive);

// What an archive is.
zcu_status zcu_archive_describe(const zcu_archive *archive, zcu_archive_info *info);

// A kernel of an archive, by its index. They are sorted by name.
zcu_status zcu_archive_kernel(const zcu_archive *archive, size_t index, zcu_archive_kernel_info *info);

// Index of the kernel with this name.
zcu_status zcu_archive_find(const zcu_archive *archive, const char *kernel, size_t *index);

// What one image of a kernel is, by the kernel's index and its own, without extracting it.
zcu_status zcu_archive_image(const zcu_archive *archive, size_t kernel, size_t image, zcu_image_info *info);

// Extracts every image and compares its hash. images becomes how many there are; it may be NULL. The failure is that of the
// first damaged one.
zcu_status zcu_archive_verify(const zcu_archive *archive, size_t *images);

// Extracts the image of a kernel for a target, such as "sm_90" or "compute_120".
zcu_status zcu_image_extract(const zcu_archive *archive, const char *kernel, const char *target, zcu_image **image);

// Extracts the image of a kernel to load on a device of this compute capability: exact machine code, else the highest of
// the same major revision that runs there, else the highest PTX.
zcu_status zcu_image_extract_for(const zcu_archive *archive,
                                 const char *kernel,
                                 uint32_t major,
                                 uint32_t minor,
                                 zcu_image **image);

// What an image is.
zcu_status zcu_image_describe(const zcu_image *image, zcu_image_info *info);

// The bytes of an image, with a NUL behind them that they do not count: what cuModuleLoadData and cuLibraryLoadData take.
// They live as long as the image. NULL for NULL.
const void *zcu_image_data(const zcu_image *image);

// How many bytes an image has; 0 for NULL.
size_t zcu_image_bytes(const zcu_image *image);

// The symbol of the entry, for cuModuleGetFunction. It lives as long as the image. NULL for NULL.
const char *zcu_image_entry(const zcu_image *image);

// Frees an image; NULL is nothing.
void zcu_image_free(zcu_image *image);

// ---- devices and their kernels ----

// The CUDA version that this machine's driver supports, such as 13000 for 13.0. ZCU_STATUS_NO_DEVICE where there is no
// driver: the text lists every place that was tried.
zcu_status zcu_driver_version(uint32_t *version);

// How many devices there are. Opens none. ZCU_STATUS_NO_DEVICE where there is no driver or the driver has no device.
zcu_status zcu_device_count(uint32_t *count);

// What the driver says of a device, by its ordinal. Opens none.
zcu_status zcu_device_at(uint32_t ordinal, zcu_device_info *info);

// Opens a device. selector is "best" (the highest compute capability, then the most multiprocessors), an ordinal ("1"), a
// PCI address ("0000:3b:00.0") or a UUID ("GPU-..."); NULL or "auto" is what the environment variable ZINC_DEVICE says, else
// the best. ZCU_STATUS_NO_DEVICE where this machine has no usable GPU: the text lists every place that was tried.
zcu_status zcu_device_open(const char *selector, zcu_device **device);

// A device around a CUcontext of the caller, which has to outlive it and everything made from it.
zcu_status zcu_device_from_context(void *context, zcu_device **device);

// Frees a device; NULL is nothing. The context is released when everything made from the device is freed too.
void zcu_device_free(zcu_device *device);

// What the driver says of an open device.
zcu_status zcu_device_describe(const zcu_device *device, zcu_device_info *info);

// Free and total device memory, bytes.
zcu_status zcu_device_memory(const zcu_device *device, uint64_t *free, uint64_t *total);

// Waits until everything on the device is done.
zcu_status zcu_device_synchronize(const zcu_device *device);

// The CUcontext, for other CUDA clients; NULL for NULL.
void *zcu_device_context(const zcu_device *device);

// Takes the kernels of an archive for a device; NULL is the archive that is part of the library. Each kernel is loaded when
// it is first used. ZCU_STATUS_UNSUPPORTED_DEVICE where a kernel has no image for the device.
zcu_status zcu_library_create(const zcu_device *device, const zcu_archive *archive, zcu_library **library);

// Frees a library; NULL is nothing. Queues, lists and graphs made from it stay usable.
void zcu_library_free(zcu_library *library);

// Loads a kernel if it is not loaded yet, and says what it uses.
zcu_status zcu_library_load(const zcu_library *library, const zcu_kernel *kernel, zcu_entry_info *info);

// Loads every kernel now instead of on first use. count becomes how many are loaded; it may be NULL.
zcu_status zcu_library_load_all(const zcu_library *library, size_t *count);

// ---- device memory ----

// Allocates device memory; its contents are undefined. Its address is a multiple of 256.
zcu_status zcu_buffer_create(const zcu_device *device, uint64_t bytes, zcu_buffer **buffer);

// A buffer around memory of the caller (CUdeviceptr) in the device's context. It has to stay allocated until the buffer is
// freed and the work that uses it is done. Freeing the buffer does not free the memory.
zcu_status zcu_buffer_from_address(const zcu_device *device, uint64_t address, uint64_t bytes, zcu_buffer **buffer);

// Promises that the buffer's contents stay as they are until its memory is freed: for weights, once they are uploaded. Waits
// until everything on the device is done. There is no way back. From then on, what would write the buffer is refused with
// ZCU_STATUS_CONSTANT: dispatches, fills, copies, writes, uploads, and lists and graphs that were recorded before. In return,
// kernels may read it while the kernel before them still runs, whatever that writes; other weights they read so only where
// they follow a dispatch, on the same queue or in the same list or graph, that writes none of them. Fails while a queue
// captures.
//
// The promise is the caller's where the library does not see who writes: no thread may give work that writes the buffer to a
// queue meanwhile, and other CUDA clients, unchecked dispatches, and other buffers around the same memory must not write it
// afterwards.
zcu_status zcu_buffer_make_constant(const zcu_buffer *buffer);

// Frees a buffer; NULL is nothing. Work that was given the buffer keeps its memory until it is done.
void zcu_buffer_free(zcu_buffer *buffer);

// The device address (CUdeviceptr); 0 for NULL.
uint64_t zcu_buffer_address(const zcu_buffer *buffer);

// How many bytes a buffer has; 0 for NULL.
uint64_t zcu_buffer_bytes(const zcu_buffer *buffer);

// ---- queues ----

// A queue on a stream of its own. options may be NULL.
zcu_status zcu_queue_create(const zcu_library *library, const zcu_queue_options *options, zcu_queue **queue);

// A queue on a CUstream of the caller (NULL: the null stream), which has to outlive it. The stream's work runs in the order
// in which it is submitted, whoever submits it. options may be NULL.
zcu_status zcu_queue_from_stream(const zcu_library *library,
                                 void *stream,
                                 const zcu_queue_options *options,
                                 zcu_queue **queue);

// Frees a queue; NULL is nothing. Waits for its work.
void zcu_queue_free(zcu_queue *queue);

// The CUstream, for other CUDA clients.
zcu_status zcu_queue_stream(const zcu_queue *queue, void **stream);

// Opens a command. Work opens one by itself; this says where a command starts, and finds one that was forgotten.
zcu_status zcu_queue_begin(zcu_queue *queue);

// Dispatches a kernel: checks values and buffers against its contract, works out grid, block and shared memory, and
// launches. What is refused never reaches the device. buffers are in binding order.
zcu_status zcu_queue_dispatch(zcu_queue *queue,
                              const zcu_kernel *kernel,
                              const zcu_values *values,
                              const zcu_slice *buffers,
                              size_t buffer_count);

// Launches a kernel without the checks of its contract: words is the complete push struct (zcu_kernel_words), geometry what
// zcu_kernel_geometry gives for it, the loaded image and this device; a grid of zeros launches nothing. A dispatch that
// zcu_kernel_check refuses, or a geometry that is not the kernel's, reads or writes memory that it should not.
// Buffers that the kernel writes must not be constant. Shared memory beyond 48 KiB has to be asked for by a checked dispatch
// before.
zcu_status zcu_queue_dispatch_unchecked(zcu_queue *queue,
                                        const zcu_kernel *kernel,
                                        const zcu_geometry *geometry,
                                        const uint32_t *words,
                                        size_t word_count,
                                        const zcu_slice *buffers,
                                        size_t buffer_count);

// Commits the open command and waits until it, and so everything before it, is done.
zcu_status zcu_queue_commit(zcu_queue *queue);

// Commits the open command. Where the ring is full, waits for the oldest pending one first.
zcu_status zcu_queue_commit_async(zcu_queue *queue, zcu_token *token);

// Commits the open command. Where the ring is full, fails with ZCU_STATUS_RING_FULL: the command stays open.
zcu_status zcu_queue_try_commit_async(zcu_queue *queue, zcu_token *token);

// Waits for a command, and releases it and all before it.
zcu_status zcu_queue_wait(zcu_queue *queue, zcu_token token);

// Whether a command is done.
zcu_status zcu_queue_is_done(zcu_queue *queue, zcu_token token, bool *done);

// Releases what finished commands keep alive, without waiting. count becomes how many commands; it may be NULL.
zcu_status zcu_queue_release_completed(zcu_queue *queue, size_t *count);

// How many commands are committed and not released.
zcu_status zcu_queue_pending(zcu_queue *queue, size_t *count);

// Waits until everything submitted is done, and releases all committed commands. The open command stays open.
zcu_status zcu_queue_synchronize(zcu_queue *queue);

// Fills a slice with a byte, in order with the queue's other work.
zcu_status zcu_queue_fill(zcu_queue *queue, zcu_slice to, uint8_t value);

// Copies a slice to another of the same length, in order with the queue's other work. They must not overlap.
zcu_status zcu_queue_copy(zcu_queue *queue, zcu_slice to, zcu_slice from);

// Uploads host bytes to a slice of the same length, in order with the queue's other work. The bytes are copied before it
// returns. For model weights see zcu_uploader.
zcu_status zcu_queue_write(zcu_queue *queue, zcu_slice to, const void *data, size_t bytes);

// Downloads a slice into host memory of the same length: waits for the queue's work before it, and for the copy.
zcu_status zcu_queue_read(zcu_queue *queue, zcu_slice from, void *data, size_t bytes);

// ---- graphs ----

// Starts to record a graph: until the capture ends, work of the queue and of its stream becomes part of the graph and does
// not run. No command may be open.
zcu_status zcu_queue_begin_capture(zcu_queue *queue);

// The number of the dispatch that was captured last, for zcu_graph_set. Dispatches are numbered from 0 in the order of
// recording.
zcu_status zcu_queue_last_captured(zcu_queue *queue, uint32_t *dispatch);

// Ends the capture and makes the graph. Its dispatches depend on each other in the order of recording. The capture is over
// in any case.
zcu_status zcu_queue_end_capture(zcu_queue *queue, zcu_graph **graph);

// Launches a graph, in order with the queue's other work.
zcu_status zcu_queue_launch(zcu_queue *queue, zcu_graph *graph);

// Moves what the device needs of a graph to the device, so that its first launch costs no more than later ones.
zcu_status zcu_queue_prepare(zcu_queue *queue, zcu_graph *graph);

// How many dispatches a graph has.
zcu_status zcu_graph_dispatch_count(zcu_graph *graph, size_t *count);

// Gives a dispatch of a graph new values for later launches. They are checked like a new dispatch on the same buffers, and
// grid, block and shared memory follow. Launches that are already submitted keep the old ones; after a failure so do later
// ones.
zcu_status zcu_graph_set(zcu_graph *graph, uint32_t dispatch, const zcu_values *values);

// As zcu_graph_set, for the push block alone: launch counts and specialization values stay.
zcu_status zcu_graph_set_push(zcu_graph *graph, uint32_t dispatch, const void *push, size_t push_bytes);

// Frees a graph; NULL is nothing. Launches that are already submitted keep what they need.
void zcu_graph_free(zcu_graph *graph);

// ---- command lists ----

// An empty list. It is submitted to queues of the same library.
zcu_status zcu_list_create(const zcu_library *library, zcu_list **list);

// Checks a dispatch as zcu_queue_dispatch does, and appends it.
zcu_status zcu_list_dispatch(zcu_list *list,
                             const zcu_kernel *kernel,
                             const zcu_values *values,
                             const zcu_slice *buffers,
                             size_t buffer_count);

// Submits a list in one call, as often as wanted. Nothing is checked again.
zcu_status zcu_queue_submit(zcu_queue *queue, zcu_list *list);

// Makes a graph of a list without a capture: each dispatch depends on the one before.
zcu_status zcu_list_graph(zcu_list *list, zcu_graph **graph);

// Frees a list; NULL is nothing. What was submitted keeps what it needs.
void zcu_list_free(zcu_list *list);

// ---- model weights ----

// An uploader with slots pinned buffers of slot_bytes each; 0 is the default of 4 and of 16 MiB.
zcu_status zcu_uploader_create(const zcu_device *device, uint32_t slots, uint64_t slot_bytes, zcu_uploader **uploader);

// Uploads host bytes to a slice of the same length. The bytes are copied before it returns; the upload is done after
// zcu_uploader_finish, or in order before the work of a queue after zcu_queue_wait_uploads.
zcu_status zcu_uploader_upload(zcu_uploader *uploader, zcu_slice to, const void *data, size_t bytes);

// Fills a slice from a file, beginning at byte offset of the file. Host memory does not grow with the file.
zcu_status zcu_uploader_upload_file(zcu_uploader *uploader, zcu_slice to, const char *path, uint64_t offset);

// As zcu_uploader_upload_file, for a file descriptor that is open for reading. Its position does not change.
zcu_status zcu_uploader_upload_fd(zcu_uploader *uploader, zcu_slice to, int fd, uint64_t offset);

// Downloads a slice into host memory of the same length, and waits for it.
zcu_status zcu_uploader_download(zcu_uploader *uploader, zcu_slice from, void *data, size_t bytes);

// Lets later work of a queue wait for everything uploaded so far, without blocking the host.
zcu_status zcu_queue_wait_uploads(zcu_queue *queue, zcu_uploader *uploader);

// Waits until every upload has arrived.
zcu_status zcu_uploader_finish(zcu_uploader *uploader);

// Frees an uploader; NULL is nothing. Waits for its uploads.
void zcu_uploader_free(zcu_uploader *uploader);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ZINC_CUDA_H */
