/* A host in C: opens the archive that it is given, dispatches, replays a graph, uploads, and runs into every kind of error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zinc_runtime.h"

#define CHECK(condition)                                                                                \
    do {                                                                                                \
        if (!(condition)) {                                                                             \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, zinc_rt_last_error());           \
            exit(1);                                                                                    \
        }                                                                                               \
    } while (0)
#define OK(call) CHECK((call) == ZINC_RT_OK)

enum { N = 1000 };

int main(int argc, char **argv) {
    zinc_rt_archive *archive = NULL;
    zinc_rt_device *device = NULL;
    zinc_rt_library *library = NULL;
    zinc_rt_queue *queue = NULL;
    zinc_rt_graph *graph = NULL;
    zinc_rt_uploader *uploader = NULL;
    zinc_rt_buffer *buffers[3];
    const zinc_rt_kernel *vadd = NULL;
    zinc_rt_device_info info;
    float a[N], b[N], c[N];
    uint32_t n = N;
    uint64_t token = 0;

    CHECK(argc == 2);
    CHECK(zinc_rt_archive_read("/nowhere", &archive) == ZINC_RT_INVALID && !archive);
    CHECK(strstr(zinc_rt_last_error(), "/nowhere"));
    CHECK(zinc_rt_archive_open("junk", 4, &archive) == ZINC_RT_INVALID);
    OK(zinc_rt_archive_read(argv[1], &archive));
    CHECK(zinc_rt_kernel_find("vad", &vadd) == ZINC_RT_INVALID && strstr(zinc_rt_last_error(), "`vadd`"));
    OK(zinc_rt_kernel_find("vadd", &vadd));

    zinc_rt_status opened = zinc_rt_device_open(NULL, &device);
    if (opened == ZINC_RT_NO_DEVICE) {
        printf("no device\n");
        return 3;
    }
    CHECK(opened == ZINC_RT_OK);
    CHECK(zinc_rt_device_open("fastest", &device) == ZINC_RT_INVALID);
    OK(zinc_rt_device_describe(device, &info));
    printf("%s, %s, %s, %u.%u\n", info.name, info.pci_bus_id, info.uuid, info.capability_major, info.capability_minor);
    CHECK(zinc_rt_device_context(device) && info.sm_count && info.memory_bytes);
    OK(zinc_rt_library_new(device, archive, &library));
    zinc_rt_archive_free(archive);
    OK(zinc_rt_library_load_all(library));
    OK(zinc_rt_queue_new(library, 2, &queue));

    for (int i = 0; i < 3; i++) OK(zinc_rt_buffer_new(device, sizeof a, &buffers[i]));
    for (int i = 0; i < N; i++) {
        a[i] = (float)i;
        b[i] = 1;
    }
    zinc_rt_slice slices[3];
    for (int i = 0; i < 3; i++) slices[i] = (zinc_rt_slice){buffers[i], 0, sizeof a};
    zinc_rt_values values = {.push = &n, .push_bytes = sizeof n};

    OK(zinc_rt_uploader_new(device, 2, 1024, &uploader));
    OK(zinc_rt_uploader_upload(uploader, slices[0], a));
    OK(zinc_rt_uploader_finish(uploader));
    CHECK(zinc_rt_uploader_upload_file(uploader, slices[0], "/nowhere", 0) == ZINC_RT_INVALID);
    zinc_rt_uploader_free(uploader);
    OK(zinc_rt_queue_begin(queue));
    CHECK(zinc_rt_queue_begin(queue) == ZINC_RT_INVALID);
    OK(zinc_rt_queue_write(queue, slices[1], b));
    OK(zinc_rt_queue_dispatch(queue, vadd, &values, slices, 3));
    OK(zinc_rt_queue_commit_and_wait(queue));
    OK(zinc_rt_queue_read(queue, slices[2], c));
    for (int i = 0; i < N; i++) CHECK(c[i] == (float)i + 1);

    n = N + 1;
    CHECK(zinc_rt_queue_dispatch(queue, vadd, &values, slices, 3) == ZINC_RT_INVALID);
    CHECK(strstr(zinc_rt_last_error(), "4004"));
    n = N;
    CHECK(zinc_rt_queue_dispatch(queue, vadd, &values, slices, 2) == ZINC_RT_INVALID);
    CHECK(zinc_rt_queue_dispatch(queue, vadd, &values, NULL, 3) == ZINC_RT_INVALID);
    CHECK(zinc_rt_queue_dispatch(queue, NULL, &values, slices, 3) == ZINC_RT_INVALID);
    values.push_bytes = 3;
    CHECK(zinc_rt_queue_dispatch(queue, vadd, &values, slices, 3) == ZINC_RT_INVALID);
    values.push_bytes = sizeof n;
    zinc_rt_slice beyond = {buffers[0], 8, sizeof a};
    CHECK(zinc_rt_queue_fill(queue, beyond, 0) == ZINC_RT_INVALID);
    CHECK(zinc_rt_queue_fill(queue, (zinc_rt_slice){NULL, 0, 0}, 0) == ZINC_RT_INVALID);

    OK(zinc_rt_queue_commit(queue, &token));
    OK(zinc_rt_queue_wait(queue, token));
    OK(zinc_rt_queue_is_done(queue, token));
    OK(zinc_rt_queue_begin_capture(queue));
    OK(zinc_rt_queue_fill(queue, slices[2], 0));
    OK(zinc_rt_queue_dispatch(queue, vadd, &values, slices, 3));
    CHECK(zinc_rt_queue_commit(queue, &token) == ZINC_RT_INVALID);
    OK(zinc_rt_queue_end_capture(queue, &graph));
    n = 10;
    OK(zinc_rt_graph_set(graph, 0, &values));
    CHECK(zinc_rt_graph_set(graph, 1, &values) == ZINC_RT_INVALID);
    OK(zinc_rt_queue_launch(queue, graph));
    zinc_rt_graph_free(graph);
    OK(zinc_rt_queue_try_commit(queue, &token));
    OK(zinc_rt_queue_release_completed(queue));
    for (int i = 0; i < 3; i++) zinc_rt_buffer_free(i == 2 ? NULL : buffers[i]);
    OK(zinc_rt_queue_read(queue, slices[2], c));
    CHECK(c[9] == 10 && c[10] == 0);

    zinc_rt_buffer *alias = NULL;
    zinc_rt_queue *same = NULL;
    zinc_rt_device *around = NULL;
    OK(zinc_rt_device_from_context(zinc_rt_device_context(device), &around));
    OK(zinc_rt_buffer_from_address(around, zinc_rt_buffer_address(buffers[2]), zinc_rt_buffer_bytes(buffers[2]), &alias));
    OK(zinc_rt_queue_from_stream(library, zinc_rt_queue_stream(queue), 0, &same));
    zinc_rt_slice whole = {alias, 0, sizeof c};
    OK(zinc_rt_queue_copy(same, (zinc_rt_slice){alias, 0, 40}, (zinc_rt_slice){alias, 40, 40}));
    OK(zinc_rt_queue_read(same, whole, c));
    CHECK(c[9] == 0);

    zinc_rt_device_free(device);
    zinc_rt_device_free(around);
    zinc_rt_library_free(library);
    zinc_rt_queue_free(same);
    zinc_rt_buffer_free(alias);
    zinc_rt_buffer_free(buffers[2]);
    zinc_rt_queue_free(queue);
    printf("done\n");
    return 0;
}
