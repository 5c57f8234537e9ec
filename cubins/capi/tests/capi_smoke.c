/* What works on every machine: contracts, archives and images, and the failures of a machine without a driver.
 *
 * It is compiled as C and as C++. Argument: a scratch folder. */
#include "check.h"

#ifdef __cplusplus
#define ZEROED {}
#else
#define ZEROED {0}
#endif

static void versions(void) {
    CHECK(zcu_interface() == ZCU_INTERFACE);
    CHECK(zcu_version()[0] != 0);
}

static size_t implemented;

static void contracts(void) {
    CHECK(zcu_last_error() == NULL);
    CHECK(zcu_kernel_count() == ZINC_KERNEL_COUNT);
    size_t extended = 0;
    for (size_t i = 0; i < zcu_kernel_count(); i++) {
        const zcu_kernel *kernel, *found;
        zcu_kernel_info info;
        OK(zcu_kernel_at(i, &kernel));
        OK(zcu_kernel_describe(kernel, &info));
        OK(zcu_kernel_find(info.name, &found));
        CHECK(found == kernel);
        CHECK(info.family[0] && info.summary[0]);
        CHECK(info.push_bytes_least <= info.push_bytes && info.push_bytes <= info.push_bytes_most);
        CHECK(info.push_bytes == 4 * info.push_count);
        extended += info.extended;
        implemented += info.implemented;
        for (size_t b = 0; b < info.buffer_count; b++) {
            zcu_buffer_info buffer;
            OK(zcu_kernel_buffer(kernel, b, &buffer));
            CHECK(buffer.name[0] && buffer.dtype[0] && buffer.shape[0] && buffer.bytes[0]);
            CHECK(buffer.access >= ZCU_ACCESS_READ && buffer.access <= ZCU_ACCESS_READ_WRITE);
            CHECK(buffer.alignment && (buffer.alignment & (buffer.alignment - 1)) == 0);
        }
        size_t fields = info.push_count + info.launch_count + info.spec_count;
        for (size_t f = 0; f < fields; f++) {
            zcu_field_info field;
            OK(zcu_kernel_field(kernel, f, &field));
            zcu_field_kind kind = f < info.push_count                       ? ZCU_FIELD_KIND_PUSH
                                  : f < info.push_count + info.launch_count ? ZCU_FIELD_KIND_LAUNCH
                                                                            : ZCU_FIELD_KIND_SPEC;
            CHECK(field.kind == kind && field.name[0]);
        }
        zcu_field_info none;
        FAILS(zcu_kernel_field(kernel, fields, &none), ZCU_STATUS_RANGE);
        SAME(zcu_last_error()->kernel, info.name);
    }
    CHECK(extended == ZINC_EXTENDED_KERNEL_COUNT);

    const zcu_kernel *argmax;
    zcu_kernel_info info;
    OK(zcu_kernel_find(ZINC_ARGMAX_NAME, &argmax));
    OK(zcu_kernel_describe(argmax, &info));
    CHECK(info.push_bytes == sizeof(zinc_argmax_push));
    CHECK(info.buffer_count == ZINC_ARGMAX_BUFFERS && info.launch_count == ZINC_ARGMAX_LAUNCH_VALUES);
    CHECK(info.spec_count == ZINC_ARGMAX_SPEC_VALUES && info.implemented && !info.extended);
    SAME(info.name, "argmax");
    zcu_buffer_info buffer;
    OK(zcu_kernel_buffer(argmax, ZINC_ARGMAX_BUFFER_RESULT, &buffer));
    SAME(buffer.name, "result");
    CHECK(buffer.access == ZCU_ACCESS_WRITE);
    zcu_field_info field;
    OK(zcu_kernel_field(argmax, info.push_count + ZINC_ARGMAX_LAUNCH_WORKGROUPS, &field));
    SAME(field.name, "workgroups");
    CHECK(field.scalar == ZCU_SCALAR_U32);

    const zcu_kernel *none = argmax;
    FAILS(zcu_kernel_find("argmix", &none), ZCU_STATUS_UNKNOWN_KERNEL);
    CHECK(none == argmax);
    SAME(zcu_last_error()->kernel, "argmix");
    SAME(zcu_last_error()->hint, "argmax");
    CONTAINS(zcu_last_error()->text, "did you mean `argmax`");
    FAILS(zcu_kernel_find("\xff\xfe", &none), ZCU_STATUS_INVALID_ARGUMENT);
    FAILS(zcu_kernel_at(zcu_kernel_count(), &none), ZCU_STATUS_RANGE);
    FAILS(zcu_kernel_buffer(argmax, 3, &buffer), ZCU_STATUS_RANGE);
}

static void values_and_checks(void) {
    const zcu_kernel *argmax, *vadd;
    OK(zcu_kernel_find("argmax", &argmax));
    OK(zcu_kernel_find("vadd", &vadd));

    zinc_argmax_push push = {1000, 0};
    const uint32_t launch[ZINC_ARGMAX_LAUNCH_VALUES] = {16};
    zcu_values values = {&push, sizeof push, launch, ZINC_ARGMAX_LAUNCH_VALUES, NULL, 0};

    uint32_t words[8] = {0, 0, 0, 77, 77, 77, 77, 77};
    size_t count = 0;
    OK(zcu_kernel_words(argmax, &values, words, 8, &count));
    CHECK(count == 3 && words[0] == 1000 && words[1] == 0 && words[2] == 16 && words[3] == 77);
    count = 55;
    FAILS(zcu_kernel_words(argmax, &values, words, 2, &count), ZCU_STATUS_LENGTH);
    CHECK(count == 55);
    SAME(zcu_last_error()->wanted, "3");
    SAME(zcu_last_error()->found, "2");

    uint64_t start = 9, end = 9;
    OK(zcu_kernel_buffer_range(argmax, &values, ZINC_ARGMAX_BUFFER_LOGITS, &start, &end));
    CHECK(start == 0 && end == 4000);
    OK(zcu_kernel_buffer_range(argmax, &values, ZINC_ARGMAX_BUFFER_PARTIALS, &start, &end));
    CHECK(start == 0 && end == 128);
    OK(zcu_kernel_buffer_range(argmax, &values, ZINC_ARGMAX_BUFFER_RESULT, &start, &end));
    CHECK(start == 0 && end == 0);
    FAILS(zcu_kernel_buffer_range(argmax, &values, 3, &start, &end), ZCU_STATUS_RANGE);

    zinc_vadd_push n = {1000};
    zcu_values add = {&n, sizeof n, NULL, 0, NULL, 0};
    zcu_geometry geometry;
    OK(zcu_kernel_geometry(vadd, &add, "sm_90", 132, &geometry));
    CHECK(geometry.grid[0] > 0 && geometry.grid[1] == 1 && geometry.grid[2] == 1);
    CHECK(geometry.block[0] > 0 && geometry.block[0] * geometry.block[1] * geometry.block[2] <= 1024);
    n.n = 0;
    OK(zcu_kernel_geometry(vadd, &add, "sm_90", 132, &geometry));
    CHECK(geometry.grid[0] == 0 && geometry.grid[1] == 0 && geometry.grid[2] == 0);
    n.n = 1000;
    OK(zcu_kernel_geometry(vadd, &add, "sm_90a", 132, &geometry));
    FAILS(zcu_kernel_geometry(vadd, &add, "sm_90x", 132, &geometry), ZCU_STATUS_INVALID_ARGUMENT);

    zcu_binding bound[3] = {{0x10000, 4000}, {0x20000, 4000}, {0x30000, 4000}};
    OK(zcu_kernel_check(vadd, &add, bound, 3));

    add.push_bytes = 8;
    FAILS(zcu_kernel_check(vadd, &add, bound, 3), ZCU_STATUS_PUSH_BYTES);
    SAME(zcu_last_error()->kernel, "vadd");
    SAME(zcu_last_error()->wanted, "4");
    SAME(zcu_last_error()->found, "8");
    add.push_bytes = sizeof n;

    bound[1].bytes = 3999;
    FAILS(zcu_kernel_check(vadd, &add, bound, 3), ZCU_STATUS_BUFFER_TOO_SMALL);
    SAME(zcu_last_error()->kernel, "vadd");
    SAME(zcu_last_error()->buffer, "b");
    SAME(zcu_last_error()->wanted, "4000");
    SAME(zcu_last_error()->found, "3999");
    CONTAINS(zcu_last_error()->text, "buffer b has 3999 bytes, wanted 4000");
    bound[1].bytes = 4000;

    bound[2].address = 0x30002;
    FAILS(zcu_kernel_check(vadd, &add, bound, 3), ZCU_STATUS_MISALIGNED);
    bound[2].address = 0x10010;
    FAILS(zcu_kernel_check(vadd, &add, bound, 3), ZCU_STATUS_OVERLAP);
    CONTAINS(zcu_last_error()->text, "buffers a and c overlap");
    FAILS(zcu_kernel_check(vadd, &add, bound, 2), ZCU_STATUS_BUFFER_COUNT);
    zcu_binding many[17];
    memset(many, 0, sizeof many);
    FAILS(zcu_kernel_check(vadd, &add, many, 17), ZCU_STATUS_BUFFER_COUNT);

    values.launch_count = 0;
    FAILS(zcu_kernel_check(argmax, &values, bound, 3), ZCU_STATUS_VALUE_COUNT);
    values.launch_count = 1;
    push.phase = 2;
    FAILS(zcu_kernel_check(argmax, &values, bound, 3), ZCU_STATUS_PRECONDITION);
    SAME(zcu_last_error()->wanted, "phase <= 1");
    SAME(zcu_last_error()->found, "phase = 2");

    /* The failure stays until the next one. */
    OK(zcu_kernel_find("vadd", &vadd));
    CHECK(zcu_last_error()->status == ZCU_STATUS_PRECONDITION);

    values.launch = (const uint32_t *)((const char *)launch + 1);
    FAILS(zcu_kernel_check(argmax, &values, bound, 3), ZCU_STATUS_INVALID_ARGUMENT);
    CONTAINS(zcu_last_error()->text, "aligned");
    values.launch = launch;
    values.launch_count = (size_t)-1;
    FAILS(zcu_kernel_check(argmax, &values, bound, 3), ZCU_STATUS_INVALID_ARGUMENT);
}

static void archives(const char *scratch) {
    zcu_archive *archive = NULL;
    OK(zcu_archive_open_embedded(&archive));
    zcu_archive_info info;
    OK(zcu_archive_describe(archive, &info));
    CHECK(info.kernel_count == implemented && info.image_count >= info.kernel_count);
    CHECK(info.compiler[0] && info.bytes > 0);

    size_t images = 0;
    for (size_t i = 0; i < info.kernel_count; i++) {
        zcu_archive_kernel_info kernel;
        OK(zcu_archive_kernel(archive, i, &kernel));
        CHECK(kernel.name[0] && kernel.family[0] && kernel.summary[0] && kernel.image_count);
        SAME(kernel.entry, kernel.name);
        size_t at = 0;
        OK(zcu_archive_find(archive, kernel.name, &at));
        CHECK(at == i);
        for (size_t j = 0; j < kernel.image_count; j++) {
            zcu_image_info image;
            OK(zcu_archive_image(archive, i, j, &image));
            CHECK(image.bytes > 0 && image.stored_bytes > 0 && image.arch >= 75);
            CHECK(strncmp(image.target, image.ptx ? "compute_" : "sm_", image.ptx ? 8 : 3) == 0);
            CHECK(image.ptx || image.registers > 0);
            images++;
        }
    }
    CHECK(images == info.image_count);
    size_t checked = 0;
    OK(zcu_archive_verify(archive, &checked));
    OK(zcu_archive_verify(archive, NULL));
    CHECK(checked == images);

    /* The first machine code of vadd, and every device of its major revision gets it. */
    size_t vadd = 0;
    OK(zcu_archive_find(archive, ZINC_VADD_NAME, &vadd));
    zcu_image_info wanted, got;
    OK(zcu_archive_image(archive, vadd, 0, &wanted));
    CHECK(!wanted.ptx);
    zcu_image *image = NULL, *same = NULL;
    OK(zcu_image_extract(archive, "vadd", wanted.target, &image));
    OK(zcu_image_describe(image, &got));
    SAME(got.target, wanted.target);
    CHECK(memcmp(got.sha256, wanted.sha256, sizeof got.sha256) == 0);
    CHECK(zcu_image_bytes(image) == wanted.bytes);
    const char *bytes = (const char *)zcu_image_data(image);
    CHECK(memcmp(bytes, "\x7f" "ELF", 4) == 0 && bytes[zcu_image_bytes(image)] == 0);
    SAME(zcu_image_entry(image), "vadd");
    OK(zcu_image_extract_for(archive, "vadd", wanted.arch / 10, wanted.arch % 10, &same));
    CHECK(zcu_image_bytes(same) == wanted.bytes);
    CHECK(memcmp(zcu_image_data(same), bytes, wanted.bytes) == 0);
    zcu_image_free(same);

    same = image;
    FAILS(zcu_image_extract(archive, "vadd", "sm_20", &same), ZCU_STATUS_UNKNOWN_TARGET);
    CHECK(same == NULL);
    SAME(zcu_last_error()->arch, "sm_20");
    CONTAINS(zcu_last_error()->found, wanted.target);
    FAILS(zcu_image_extract(archive, "vadd", "turing", &same), ZCU_STATUS_INVALID_ARGUMENT);
    FAILS(zcu_image_extract(archive, "vad", wanted.target, &same), ZCU_STATUS_UNKNOWN_KERNEL);
    SAME(zcu_last_error()->hint, "vadd");
    FAILS(zcu_image_extract_for(archive, "vadd", 3, 5, &same), ZCU_STATUS_UNSUPPORTED_DEVICE);
    SAME(zcu_last_error()->arch, "3.5");
    FAILS(zcu_archive_kernel(archive, info.kernel_count, NULL), ZCU_STATUS_NULL_POINTER);
    zcu_archive_kernel_info kernel;
    FAILS(zcu_archive_kernel(archive, info.kernel_count, &kernel), ZCU_STATUS_RANGE);
    FAILS(zcu_archive_image(archive, vadd, 1000, &got), ZCU_STATUS_RANGE);

    /* Images stay when their archive goes. */
    zcu_archive_free(archive);
    CHECK(memcmp(zcu_image_data(image), "\x7f" "ELF", 4) == 0);
    zcu_image_free(image);

    FAILS(zcu_archive_open_memory("no archive", 10, &archive), ZCU_STATUS_ARCHIVE_DAMAGED);
    CHECK(archive == NULL);
    FAILS(zcu_archive_open_memory(NULL, 0, &archive), ZCU_STATUS_ARCHIVE_DAMAGED);
    char path[4096];
    snprintf(path, sizeof path, "%s/absent.zca", scratch);
    FAILS(zcu_archive_open_file(path, &archive), ZCU_STATUS_IO);
    CONTAINS(zcu_last_error()->text, "absent.zca");

    /* One changed byte in a payload is found by verify, and by nothing before. */
    snprintf(path, sizeof path, "%s/whole.zca", scratch);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    CHECK(fseek(file, 0, SEEK_END) == 0);
    size_t size = (size_t)ftell(file);
    rewind(file);
    char *data = (char *)malloc(size);
    CHECK(data && fread(data, 1, size, file) == size);
    fclose(file);
    OK(zcu_archive_open_file(path, &archive));
    OK(zcu_archive_verify(archive, NULL));
    zcu_archive_free(archive);
    data[size - 1] ^= 1;
    OK(zcu_archive_open_memory(data, size, &archive));
    free(data);
    FAILS(zcu_archive_verify(archive, &checked), ZCU_STATUS_ARCHIVE_DAMAGED);
    CHECK(checked > 0 && zcu_last_error()->kernel[0] && zcu_last_error()->wanted[0]);
    CONTAINS(zcu_last_error()->text, "1 of ");
    zcu_archive_free(archive);
}

/* ZINC_LIBCUDA names a library that does not exist. */
static void without_a_driver(void) {
    zcu_device *device = (zcu_device *)&device;
    FAILS(zcu_device_open(NULL, &device), ZCU_STATUS_NO_DEVICE);
    CHECK(device == NULL);
    CONTAINS(zcu_last_error()->text, getenv("ZINC_LIBCUDA"));
    CONTAINS(zcu_last_error()->text, "no such file");
    CHECK(zcu_last_error()->hint[0] != 0);
    CHECK(zcu_last_error()->driver_code == 0);
    FAILS(zcu_device_open("0", &device), ZCU_STATUS_NO_DEVICE);
    FAILS(zcu_device_open("gpu", &device), ZCU_STATUS_INVALID_ARGUMENT);
    uint32_t number;
    FAILS(zcu_device_count(&number), ZCU_STATUS_NO_DEVICE);
    FAILS(zcu_driver_version(&number), ZCU_STATUS_NO_DEVICE);
    zcu_device_info info;
    FAILS(zcu_device_at(0, &info), ZCU_STATUS_NO_DEVICE);
    FAILS(zcu_device_from_context((void *)&info, &device), ZCU_STATUS_NO_DEVICE);
}

#define NULL_POINTER(call) FAILS(call, ZCU_STATUS_NULL_POINTER)

/* Every function takes NULL for every pointer without harm. */
static void null_pointers(void) {
    const zcu_slice slice = ZEROED;
    const zcu_token token = ZEROED;

    NULL_POINTER(zcu_kernel_at(0, NULL));
    NULL_POINTER(zcu_kernel_find(NULL, NULL));
    NULL_POINTER(zcu_kernel_find("vadd", NULL));
    NULL_POINTER(zcu_kernel_describe(NULL, NULL));
    NULL_POINTER(zcu_kernel_buffer(NULL, 0, NULL));
    NULL_POINTER(zcu_kernel_field(NULL, 0, NULL));
    NULL_POINTER(zcu_kernel_words(NULL, NULL, NULL, 0, NULL));
    NULL_POINTER(zcu_kernel_buffer_range(NULL, NULL, 0, NULL, NULL));
    NULL_POINTER(zcu_kernel_geometry(NULL, NULL, NULL, 0, NULL));
    NULL_POINTER(zcu_kernel_check(NULL, NULL, NULL, 0));
    const zcu_kernel *vadd;
    OK(zcu_kernel_find("vadd", &vadd));
    zcu_values values = ZEROED;
    NULL_POINTER(zcu_kernel_check(vadd, NULL, NULL, 0));
    NULL_POINTER(zcu_kernel_check(vadd, &values, NULL, 3));
    values.push_bytes = 4;
    NULL_POINTER(zcu_kernel_check(vadd, &values, NULL, 0));
    CONTAINS(zcu_last_error()->text, "values.push");

    NULL_POINTER(zcu_archive_open_embedded(NULL));
    NULL_POINTER(zcu_archive_open_memory(NULL, 1, NULL));
    NULL_POINTER(zcu_archive_open_file(NULL, NULL));
    NULL_POINTER(zcu_archive_describe(NULL, NULL));
    NULL_POINTER(zcu_archive_kernel(NULL, 0, NULL));
    NULL_POINTER(zcu_archive_find(NULL, NULL, NULL));
    NULL_POINTER(zcu_archive_image(NULL, 0, 0, NULL));
    NULL_POINTER(zcu_archive_verify(NULL, NULL));
    NULL_POINTER(zcu_image_extract(NULL, NULL, NULL, NULL));
    NULL_POINTER(zcu_image_extract_for(NULL, NULL, 9, 0, NULL));
    NULL_POINTER(zcu_image_describe(NULL, NULL));
    CHECK(zcu_image_data(NULL) == NULL && zcu_image_bytes(NULL) == 0 && zcu_image_entry(NULL) == NULL);

    NULL_POINTER(zcu_driver_version(NULL));
    NULL_POINTER(zcu_device_count(NULL));
    NULL_POINTER(zcu_device_at(0, NULL));
    NULL_POINTER(zcu_device_open("best", NULL));
    NULL_POINTER(zcu_device_from_context(NULL, NULL));
    NULL_POINTER(zcu_device_describe(NULL, NULL));
    NULL_POINTER(zcu_device_memory(NULL, NULL, NULL));
    NULL_POINTER(zcu_device_synchronize(NULL));
    CHECK(zcu_device_context(NULL) == NULL);
    NULL_POINTER(zcu_library_create(NULL, NULL, NULL));
    NULL_POINTER(zcu_library_load(NULL, NULL, NULL));
    NULL_POINTER(zcu_library_load_all(NULL, NULL));
    NULL_POINTER(zcu_buffer_create(NULL, 1, NULL));
    NULL_POINTER(zcu_buffer_from_address(NULL, 1, 1, NULL));
    NULL_POINTER(zcu_buffer_make_constant(NULL));
    CHECK(zcu_buffer_address(NULL) == 0 && zcu_buffer_bytes(NULL) == 0);

    NULL_POINTER(zcu_queue_create(NULL, NULL, NULL));
    NULL_POINTER(zcu_queue_from_stream(NULL, NULL, NULL, NULL));
    NULL_POINTER(zcu_queue_stream(NULL, NULL));
    NULL_POINTER(zcu_queue_begin(NULL));
    NULL_POINTER(zcu_queue_dispatch(NULL, NULL, NULL, NULL, 0));
    NULL_POINTER(zcu_queue_dispatch_unchecked(NULL, NULL, NULL, NULL, 0, NULL, 0));
    NULL_POINTER(zcu_queue_commit(NULL));
    NULL_POINTER(zcu_queue_commit_async(NULL, NULL));
    NULL_POINTER(zcu_queue_try_commit_async(NULL, NULL));
    NULL_POINTER(zcu_queue_wait(NULL, token));
    NULL_POINTER(zcu_queue_is_done(NULL, token, NULL));
    NULL_POINTER(zcu_queue_release_completed(NULL, NULL));
    NULL_POINTER(zcu_queue_pending(NULL, NULL));
    NULL_POINTER(zcu_queue_synchronize(NULL));
    NULL_POINTER(zcu_queue_fill(NULL, slice, 0));
    NULL_POINTER(zcu_queue_copy(NULL, slice, slice));
    NULL_POINTER(zcu_queue_write(NULL, slice, NULL, 1));
    NULL_POINTER(zcu_queue_read(NULL, slice, NULL, 1));
    NULL_POINTER(zcu_queue_begin_capture(NULL));
    NULL_POINTER(zcu_queue_last_captured(NULL, NULL));
    NULL_POINTER(zcu_queue_end_capture(NULL, NULL));
    NULL_POINTER(zcu_queue_launch(NULL, NULL));
    NULL_POINTER(zcu_queue_prepare(NULL, NULL));
    NULL_POINTER(zcu_graph_dispatch_count(NULL, NULL));
    NULL_POINTER(zcu_graph_set(NULL, 0, NULL));
    NULL_POINTER(zcu_graph_set_push(NULL, 0, NULL, 0));
    NULL_POINTER(zcu_list_create(NULL, NULL));
    NULL_POINTER(zcu_list_dispatch(NULL, NULL, NULL, NULL, 0));
    NULL_POINTER(zcu_queue_submit(NULL, NULL));
    NULL_POINTER(zcu_list_graph(NULL, NULL));
    NULL_POINTER(zcu_uploader_create(NULL, 0, 0, NULL));
    NULL_POINTER(zcu_uploader_upload(NULL, slice, NULL, 1));
    NULL_POINTER(zcu_uploader_upload_file(NULL, slice, NULL, 0));
    NULL_POINTER(zcu_uploader_upload_fd(NULL, slice, 0, 0));
    NULL_POINTER(zcu_uploader_download(NULL, slice, NULL, 1));
    NULL_POINTER(zcu_queue_wait_uploads(NULL, NULL));
    NULL_POINTER(zcu_uploader_finish(NULL));

    zcu_archive_free(NULL);
    zcu_image_free(NULL);
    zcu_device_free(NULL);
    zcu_library_free(NULL);
    zcu_buffer_free(NULL);
    zcu_queue_free(NULL);
    zcu_graph_free(NULL);
    zcu_list_free(NULL);
    zcu_uploader_free(NULL);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    versions();
    contracts();
    values_and_checks();
    archives(arguments[1]);
    without_a_driver();
    null_pointers();
    return 0;
}
