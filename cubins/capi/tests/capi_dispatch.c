/* Dispatches, commands, graphs, lists and uploads of vadd on a device.
 *
 * Arguments: a scratch folder, and an archive to use instead of the embedded one. Exit code 3: there is no device.
 * With FAKE_CUDA in the environment the driver is the fake one, which counts what is alive. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include "check.h"

enum { N = 1024, BYTES = 4 * N };

static zcu_device *device;
static zcu_library *library;
static const zcu_kernel *vadd;

static zcu_slice whole(const zcu_buffer *buffer) {
    zcu_slice slice = {buffer, 0, ZCU_TO_END};
    return slice;
}

static zcu_buffer *filled(zcu_queue *queue, float value) {
    float numbers[N];
    for (int i = 0; i < N; i++) numbers[i] = value;
    zcu_buffer *buffer;
    OK(zcu_buffer_create(device, BYTES, &buffer));
    OK(zcu_queue_write(queue, whole(buffer), numbers, BYTES));
    return buffer;
}

/* The buffer's first `count` numbers are `value`, the rest are `rest`. */
static void expect(zcu_queue *queue, const zcu_buffer *buffer, int count, float value, float rest) {
    float numbers[N];
    OK(zcu_queue_read(queue, whole(buffer), numbers, BYTES));
    for (int i = 0; i < N; i++) CHECK(numbers[i] == (i < count ? value : rest));
}

static zcu_status add(zcu_queue *queue, uint32_t n, zcu_slice a, zcu_slice b, zcu_slice c) {
    zinc_vadd_push push = {n};
    zcu_values values = {&push, sizeof push, NULL, 0, NULL, 0};
    zcu_slice buffers[ZINC_VADD_BUFFERS] = {a, b, c};
    return zcu_queue_dispatch(queue, vadd, &values, buffers, ZINC_VADD_BUFFERS);
}

/* Live device memory by the fake driver's count, 0 on a real one. */
static long live(void) {
    if (!getenv("FAKE_CUDA")) return 0;
    void *fake = dlopen(getenv("ZINC_LIBCUDA"), RTLD_NOW | RTLD_NOLOAD);
    CHECK(fake != NULL);
    long (*count)(int);
    *(void **)&count = dlsym(fake, "fake_live");
    CHECK(count != NULL);
    return count(0);
}

static void devices(void) {
    uint32_t count = 0, version = 0;
    OK(zcu_device_count(&count));
    OK(zcu_driver_version(&version));
    CHECK(count > 0 && version >= 13000);
    zcu_device_info info, same;
    OK(zcu_device_describe(device, &info));
    OK(zcu_device_at(info.ordinal, &same));
    SAME(info.uuid, same.uuid);
    CHECK(info.name[0] && info.sm_count && info.warp_size == 32 && info.memory_bytes);
    CHECK(info.capability_major >= 7 && strncmp(info.uuid, "GPU-", 4) == 0);
    uint64_t free_bytes, total;
    OK(zcu_device_memory(device, &free_bytes, &total));
    CHECK(free_bytes <= total && total > 0);
    OK(zcu_device_synchronize(device));

    FAILS(zcu_device_at(count, &info), ZCU_STATUS_DEVICE_NOT_FOUND);
    CONTAINS(zcu_last_error()->found, same.name);
    zcu_device *other;
    FAILS(zcu_device_open("99", &other), ZCU_STATUS_DEVICE_NOT_FOUND);
    OK(zcu_device_open(same.uuid, &other));
    CHECK(zcu_device_context(other) == zcu_device_context(device));
    zcu_device_free(other);
    OK(zcu_device_from_context(zcu_device_context(device), &other));
    CHECK(zcu_device_context(other) == zcu_device_context(device));
    zcu_device_free(other);

    zcu_entry_info entry;
    OK(zcu_library_load(library, vadd, &entry));
    CHECK(entry.target[0] && entry.max_threads_per_block >= 32);
    size_t loaded = 0;
    OK(zcu_library_load_all(library, &loaded));
    CHECK(loaded > 0);
    OK(zcu_library_load_all(library, NULL));
}

static void dispatches(void) {
    zcu_queue *queue;
    OK(zcu_queue_create(library, NULL, &queue));
    zcu_buffer *a = filled(queue, 1), *b = filled(queue, 2), *c = filled(queue, 0);
    CHECK(zcu_buffer_bytes(a) == BYTES && zcu_buffer_address(a) % 256 == 0);

    /* The writes above opened a command. */
    FAILS(zcu_queue_begin(queue), ZCU_STATUS_ALREADY_BEGUN);
    OK(zcu_queue_commit(queue));
    OK(zcu_queue_begin(queue));
    FAILS(zcu_queue_begin(queue), ZCU_STATUS_ALREADY_BEGUN);
    OK(add(queue, N, whole(a), whole(b), whole(c)));
    OK(zcu_queue_commit(queue));
    expect(queue, c, N, 3, 3);

    /* Refused, and nothing is written. */
    OK(zcu_queue_fill(queue, whole(c), 0));
    FAILS(add(queue, N + 1, whole(a), whole(b), whole(c)), ZCU_STATUS_BUFFER_TOO_SMALL);
    SAME(zcu_last_error()->kernel, "vadd");
    SAME(zcu_last_error()->buffer, "a");
    SAME(zcu_last_error()->wanted, "4100");
    SAME(zcu_last_error()->found, "4096");
    zcu_slice short_c = {c, 0, BYTES - 4}, past = {c, 4, BYTES}, wraps = {c, 8, (uint64_t)-8}, behind = {c, BYTES + 4, ZCU_TO_END};
    FAILS(add(queue, N, whole(a), whole(b), short_c), ZCU_STATUS_BUFFER_TOO_SMALL);
    SAME(zcu_last_error()->buffer, "c");
    FAILS(add(queue, N, whole(a), whole(b), past), ZCU_STATUS_RANGE);
    SAME(zcu_last_error()->buffer, "c");
    FAILS(add(queue, N, whole(a), whole(b), wraps), ZCU_STATUS_RANGE);
    FAILS(add(queue, N, whole(a), whole(b), behind), ZCU_STATUS_RANGE);
    FAILS(add(queue, N, whole(a), whole(b), whole(NULL)), ZCU_STATUS_BUFFER_TOO_SMALL);
    zinc_vadd_push push = {N};
    zcu_values values = {&push, 8, NULL, 0, NULL, 0};
    zcu_slice buffers[17] = {whole(a), whole(b), whole(c)};
    FAILS(zcu_queue_dispatch(queue, vadd, &values, buffers, 3), ZCU_STATUS_PUSH_BYTES);
    values.push_bytes = 4;
    FAILS(zcu_queue_dispatch(queue, vadd, &values, buffers, 2), ZCU_STATUS_BUFFER_COUNT);
    FAILS(zcu_queue_dispatch(queue, vadd, &values, buffers, 17), ZCU_STATUS_BUFFER_COUNT);
    expect(queue, c, N, 0, 0);

    /* Slices bind at their offset. */
    zcu_slice second = {c, 1024, 1024};
    OK(add(queue, 256, whole(a), whole(b), second));
    float numbers[N];
    OK(zcu_queue_read(queue, whole(c), numbers, BYTES));
    for (int i = 0; i < N; i++) CHECK(numbers[i] == (i >= 256 && i < 512 ? 3.0f : 0.0f));

    /* The unchecked call with what the contract says. */
    zcu_device_info info;
    zcu_entry_info entry;
    zcu_geometry geometry;
    uint32_t words[ZINC_VADD_BUFFERS];
    size_t word_count;
    OK(zcu_device_describe(device, &info));
    OK(zcu_library_load(library, vadd, &entry));
    OK(zcu_kernel_words(vadd, &values, words, 3, &word_count));
    OK(zcu_kernel_geometry(vadd, &values, entry.target, info.sm_count, &geometry));
    OK(zcu_queue_dispatch_unchecked(queue, vadd, &geometry, words, word_count, buffers, 3));
    expect(queue, c, N, 3, 3);
    memset(geometry.grid, 0, sizeof geometry.grid);
    OK(zcu_queue_dispatch_unchecked(queue, vadd, &geometry, words, word_count, buffers, 3));

    /* Copies. */
    OK(zcu_queue_copy(queue, whole(a), whole(c)));
    expect(queue, a, N, 3, 3);
    zcu_slice half = {a, 0, BYTES / 2};
    FAILS(zcu_queue_copy(queue, half, whole(c)), ZCU_STATUS_LENGTH);
    FAILS(zcu_queue_write(queue, half, numbers, 4), ZCU_STATUS_LENGTH);
    FAILS(zcu_queue_read(queue, half, numbers, 4), ZCU_STATUS_LENGTH);
    FAILS(zcu_queue_fill(queue, whole(NULL), 0), ZCU_STATUS_UNBOUND);

    /* A buffer of the caller's memory. */
    zcu_buffer *view;
    OK(zcu_buffer_from_address(device, zcu_buffer_address(c) + 256, 256, &view));
    OK(zcu_queue_fill(queue, whole(view), 0));
    OK(zcu_queue_read(queue, whole(c), numbers, BYTES));
    for (int i = 0; i < N; i++) CHECK(numbers[i] == (i >= 64 && i < 128 ? 0.0f : 3.0f));
    zcu_buffer_free(view);
    FAILS(zcu_buffer_from_address(device, 0, 256, &view), ZCU_STATUS_INVALID_ARGUMENT);
    FAILS(zcu_buffer_create(device, (uint64_t)1 << 50, &view), ZCU_STATUS_OUT_OF_MEMORY);
    CHECK(view == NULL);

    /* What is constant is read and not written. */
    OK(zcu_buffer_make_constant(a));
    FAILS(add(queue, N, whole(c), whole(b), whole(a)), ZCU_STATUS_CONSTANT);
    SAME(zcu_last_error()->kernel, "vadd");
    SAME(zcu_last_error()->buffer, "c");
    FAILS(zcu_queue_fill(queue, half, 0), ZCU_STATUS_CONSTANT);
    FAILS(zcu_queue_write(queue, whole(a), numbers, BYTES), ZCU_STATUS_CONSTANT);
    FAILS(zcu_queue_copy(queue, whole(a), whole(b)), ZCU_STATUS_CONSTANT);
    OK(add(queue, N, whole(a), whole(b), whole(c)));
    expect(queue, c, N, 5, 5);

    zcu_buffer_free(a);
    zcu_buffer_free(b);
    zcu_buffer_free(c);
    zcu_queue_free(queue);
}

static void commands(void) {
    zcu_queue_options options = {2, 0, 0};
    zcu_queue *queue, *other;
    OK(zcu_queue_create(library, &options, &queue));
    zcu_buffer *a = filled(queue, 1), *b = filled(queue, 2), *c = filled(queue, 0);
    OK(zcu_queue_commit(queue));
    void *stream;
    OK(zcu_queue_stream(queue, &stream));
    OK(zcu_queue_from_stream(library, stream, &options, &other));

    zcu_token first, second, third;
    OK(add(queue, N, whole(a), whole(b), whole(c)));
    OK(zcu_queue_commit_async(queue, &first));
    OK(add(queue, N, whole(a), whole(b), whole(c)));
    OK(zcu_queue_commit_async(queue, &second));
    size_t pending = 0;
    OK(zcu_queue_pending(queue, &pending));
    CHECK(pending == 2);
    FAILS(zcu_queue_wait(other, first), ZCU_STATUS_WRONG_QUEUE);
    bool done = false;
    FAILS(zcu_queue_is_done(other, first, &done), ZCU_STATUS_WRONG_QUEUE);
    zcu_token made_up = second;
    made_up.command += 1000;
    FAILS(zcu_queue_wait(queue, made_up), ZCU_STATUS_WRONG_QUEUE);

    OK(zcu_queue_wait(queue, first));
    OK(zcu_queue_is_done(queue, first, &done));
    CHECK(done);
    OK(zcu_queue_wait(queue, second));
    OK(zcu_queue_wait(queue, second));
    OK(zcu_queue_pending(queue, &pending));
    CHECK(pending == 0);

    /* Pending work keeps the buffers that are freed. */
    OK(add(queue, N, whole(a), whole(b), whole(c)));
    OK(zcu_queue_try_commit_async(queue, &third));
    long before = live();
    zcu_buffer_free(a);
    zcu_buffer_free(b);
    CHECK(live() == before);
    OK(zcu_queue_synchronize(queue));
    CHECK(live() == (before ? before - 2 : 0));
    size_t released = 9;
    OK(zcu_queue_release_completed(queue, &released));
    CHECK(released == 0);
    OK(zcu_queue_release_completed(queue, NULL));
    expect(queue, c, N, 3, 3);

    /* The ring is full where the device has not begun. */
    const char *fake = getenv("FAKE_CUDA");
    if (fake && strstr(fake, "lazy=1")) {
        for (int i = 0; i < 2; i++) {
            OK(zcu_queue_fill(queue, whole(c), 0));
            OK(zcu_queue_try_commit_async(queue, &third));
        }
        OK(zcu_queue_is_done(queue, third, &done));
        CHECK(!done);
        OK(zcu_queue_fill(queue, whole(c), 0));
        FAILS(zcu_queue_try_commit_async(queue, &third), ZCU_STATUS_RING_FULL);
        OK(zcu_queue_commit_async(queue, &third));
    }
    zcu_buffer_free(c);
    zcu_queue_free(other);
    zcu_queue_free(queue);
}

static void graphs(void) {
    zcu_queue *queue;
    OK(zcu_queue_create(library, NULL, &queue));
    zcu_buffer *a = filled(queue, 1), *b = filled(queue, 2), *c = filled(queue, 0), *d = filled(queue, 0);
    zcu_graph *graph;
    FAILS(zcu_queue_begin_capture(queue), ZCU_STATUS_ALREADY_BEGUN);
    OK(zcu_queue_commit(queue));
    FAILS(zcu_queue_end_capture(queue, &graph), ZCU_STATUS_NOT_CAPTURING);
    CHECK(graph == NULL);

    uint32_t sum = 9, next = 9;
    OK(zcu_queue_begin_capture(queue));
    FAILS(zcu_queue_last_captured(queue, &sum), ZCU_STATUS_UNKNOWN_DISPATCH);
    FAILS(zcu_queue_commit(queue), ZCU_STATUS_CAPTURING);
    OK(add(queue, 8, whole(a), whole(b), whole(c)));
    OK(zcu_queue_last_captured(queue, &sum));
    OK(add(queue, N, whole(c), whole(b), whole(d)));
    OK(zcu_queue_last_captured(queue, &next));
    OK(zcu_queue_end_capture(queue, &graph));
    CHECK(sum == 0 && next == 1);
    size_t dispatches = 0;
    OK(zcu_graph_dispatch_count(graph, &dispatches));
    CHECK(dispatches == 2);
    expect(queue, d, N, 0, 0);

    OK(zcu_queue_prepare(queue, graph));
    OK(zcu_queue_launch(queue, graph));
    OK(zcu_queue_commit(queue));
    expect(queue, c, 8, 3, 0);
    expect(queue, d, 8, 5, 2);

    /* New push values: the block alone, then all values. */
    zinc_vadd_push push = {500};
    OK(zcu_graph_set_push(graph, sum, &push, sizeof push));
    OK(zcu_queue_launch(queue, graph));
    expect(queue, c, 500, 3, 0);
    expect(queue, d, 500, 5, 2);
    push.n = N;
    zcu_values values = {&push, sizeof push, NULL, 0, NULL, 0};
    OK(zcu_graph_set(graph, sum, &values));
    OK(zcu_queue_launch(queue, graph));
    expect(queue, d, N, 5, 5);

    /* What the contract refuses changes nothing. */
    push.n = N + 1;
    FAILS(zcu_graph_set(graph, sum, &values), ZCU_STATUS_BUFFER_TOO_SMALL);
    FAILS(zcu_graph_set_push(graph, sum, &push, 2), ZCU_STATUS_PUSH_BYTES);
    FAILS(zcu_graph_set(graph, 2, &values), ZCU_STATUS_UNKNOWN_DISPATCH);
    OK(zcu_queue_fill(queue, whole(d), 0));
    OK(zcu_queue_launch(queue, graph));
    expect(queue, d, N, 5, 5);

    /* Nothing to do is no launch, and can be undone. */
    push.n = 0;
    OK(zcu_graph_set(graph, next, &values));
    OK(zcu_queue_fill(queue, whole(d), 0));
    OK(zcu_queue_launch(queue, graph));
    expect(queue, d, N, 0, 0);
    push.n = 4;
    OK(zcu_graph_set(graph, next, &values));

    /* A list is a graph without a capture. The graph keeps what its owner frees. */
    zcu_list *list;
    zcu_graph *built;
    OK(zcu_list_create(library, &list));
    zcu_slice buffers[3] = {whole(a), whole(b), whole(c)};
    push.n = N;
    OK(zcu_list_dispatch(list, vadd, &values, buffers, 3));
    push.n = N + 1;
    FAILS(zcu_list_dispatch(list, vadd, &values, buffers, 3), ZCU_STATUS_BUFFER_TOO_SMALL);
    OK(zcu_queue_fill(queue, whole(c), 0));
    OK(zcu_queue_submit(queue, list));
    expect(queue, c, N, 3, 3);
    OK(zcu_list_graph(list, &built));
    zcu_list_free(list);
    zcu_buffer_free(a);
    zcu_buffer_free(b);
    OK(zcu_queue_fill(queue, whole(c), 0));
    OK(zcu_queue_launch(queue, built));
    zcu_graph_free(built);
    zcu_graph_free(graph);
    expect(queue, c, N, 3, 3);

    zcu_buffer_free(c);
    zcu_buffer_free(d);
    zcu_queue_free(queue);
}

static void uploads(const char *scratch) {
    /* More than all pinned memory, from an odd place in a file. */
    enum { OFFSET = 13, SIZE = 70000 };
    char path[4096];
    snprintf(path, sizeof path, "%s/weights.bin", scratch);
    unsigned char *data = (unsigned char *)malloc(OFFSET + SIZE), *back = (unsigned char *)malloc(SIZE);
    CHECK(data && back);
    for (int i = 0; i < OFFSET + SIZE; i++) data[i] = (unsigned char)(i * 31 + i / 251);
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(data, 1, OFFSET + SIZE, file) == OFFSET + SIZE && fclose(file) == 0);

    zcu_queue *queue;
    zcu_uploader *uploader;
    zcu_buffer *buffer;
    OK(zcu_queue_create(library, NULL, &queue));
    FAILS(zcu_uploader_create(device, 5000, 1, &uploader), ZCU_STATUS_INVALID_ARGUMENT);
    OK(zcu_uploader_create(device, 2, 4096, &uploader));
    OK(zcu_buffer_create(device, SIZE, &buffer));

    OK(zcu_uploader_upload_file(uploader, whole(buffer), path, OFFSET));
    OK(zcu_uploader_finish(uploader));
    OK(zcu_queue_read(queue, whole(buffer), back, SIZE));
    CHECK(memcmp(back, data + OFFSET, SIZE) == 0);

    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    OK(zcu_uploader_upload_fd(uploader, whole(buffer), fd, 0));
    OK(zcu_queue_wait_uploads(queue, uploader));
    OK(zcu_queue_read(queue, whole(buffer), back, SIZE));
    CHECK(memcmp(back, data, SIZE) == 0);
    FAILS(zcu_uploader_upload_fd(uploader, whole(buffer), fd, OFFSET + 1), ZCU_STATUS_IO);
    CHECK(close(fd) == 0);
    FAILS(zcu_uploader_upload_fd(uploader, whole(buffer), -1, 0), ZCU_STATUS_INVALID_ARGUMENT);

    OK(zcu_uploader_upload(uploader, whole(buffer), data + 5, SIZE));
    memset(back, 0, SIZE);
    OK(zcu_uploader_download(uploader, whole(buffer), back, SIZE));
    CHECK(memcmp(back, data + 5, SIZE) == 0);
    FAILS(zcu_uploader_upload(uploader, whole(buffer), data, SIZE - 1), ZCU_STATUS_LENGTH);
    FAILS(zcu_uploader_upload_file(uploader, whole(buffer), "/nonexistent/file", 0), ZCU_STATUS_IO);
    CONTAINS(zcu_last_error()->text, "/nonexistent/file");

    zcu_buffer_free(buffer);
    zcu_uploader_free(uploader);
    zcu_queue_free(queue);
    free(data);
    free(back);
}

int main(int count, char **arguments) {
    CHECK(count == 2 || count == 3);
    zcu_status opened = zcu_device_open("auto", &device);
    if (opened == ZCU_STATUS_NO_DEVICE) return 3;
    OK(opened);
    zcu_archive *archive = NULL;
    if (count == 3) OK(zcu_archive_open_file(arguments[2], &archive));
    OK(zcu_library_create(device, archive, &library));
    zcu_archive_free(archive);
    OK(zcu_kernel_find(ZINC_VADD_NAME, &vadd));

    devices();
    dispatches();
    commands();
    graphs();
    uploads(arguments[1]);

    zcu_library_free(library);
    zcu_device_free(device);
    CHECK(live() == 0);
    return 0;
}
