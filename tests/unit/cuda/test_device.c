/* SPDX-License-Identifier: Apache-2.0 */
/* Devices that are not there, a device that exists only as a description, and CUDA's codes as
 * ours. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/cuda/device.h"
#include "engine/cuda/dry.h"
#include "tests/test.h"

static const char *properties; /* a file with an H200's properties */

static void codes(void **state)
{
    static const struct {
        cudaError_t code;
        enum status status;
        enum error_scope scope;
    } rows[] = {
        {cudaErrorMemoryAllocation, STATUS_RESOURCE_EXHAUSTED, ERROR_REQUEST},
        {cudaErrorInvalidValue, STATUS_INTERNAL, ERROR_REQUEST},
        {cudaErrorNotSupported, STATUS_INTERNAL, ERROR_REQUEST},
        {cudaErrorIllegalAddress, STATUS_INTERNAL, ERROR_DEVICE},
        {cudaErrorMisalignedAddress, STATUS_INTERNAL, ERROR_DEVICE},
        {cudaErrorLaunchFailure, STATUS_INTERNAL, ERROR_DEVICE},
        {cudaErrorLaunchTimeout, STATUS_INTERNAL, ERROR_DEVICE},
        {cudaErrorECCUncorrectable, STATUS_INTERNAL, ERROR_DEVICE},
        {cudaErrorAssert, STATUS_INTERNAL, ERROR_DEVICE},
        {cudaErrorUnknown, STATUS_INTERNAL, ERROR_DEVICE},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct error err = {0};
        assert_int_equal(cuda_error(&err, rows[i].code, "cudaSomething"), rows[i].status);
        assert_int_equal(err.status, rows[i].status);
        if (err.scope != rows[i].scope || !strstr(err.text, "cudaSomething: ") ||
            !strstr(err.text, cudaGetErrorName(rows[i].code)))
            fail_msg("'%s', scope %d, expected %d", err.text, err.scope, rows[i].scope);
    }
    assert_int_equal(cuda_error(NULL, cudaErrorLaunchFailure, "nobody reads"), STATUS_INTERNAL);
}

static void capabilities(void **state)
{
    static const struct {
        const char *archs;
        int major, minor;
        bool fits;
    } rows[] = {
        {"90a", 9, 0, true},    {"90a", 9, 1, false},     {"90a", 8, 9, false},
        {"80", 8, 6, true},     {"86", 8, 0, false},      {"80 90a", 9, 0, true},
        {"80 90a", 8, 9, true}, {"80 90a", 10, 0, false}, {"100a 90a", 10, 0, true},
        {"", 9, 0, false},      {"  90a", 9, 0, true},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (cuda_archs_fit(rows[i].archs, rows[i].major, rows[i].minor) != rows[i].fits)
            fail_msg("'%s' for %d.%d: expected %d", rows[i].archs, rows[i].major, rows[i].minor,
                     rows[i].fits);
}

static void no_device(void **state)
{
    const struct device_options options = {.index = 4000};
    struct device *device = NULL;
    struct error err = {0};
    uint32_t n = 77;
    (void)state;
    enum status counted = backend_cuda.device_count(&n, &err);
    if (counted)
        assert_int_equal(n, 77);
    assert_int_equal(backend_cuda.device_open(&options, &device, &err), STATUS_NOT_FOUND);
    assert_null(device);
    if (!strstr(err.text, counted ? "no CUDA device: " : "no cuda:4000"))
        fail_msg("'%s' does not say what is missing", err.text);
}

static struct device *open_dry(void)
{
    struct device *device = NULL;
    struct error err = {0};
    if (cuda_device_open_dry(properties, NULL, &device, &err))
        fail_msg("%s", err.text);
    return device;
}

static void a_description(void **state)
{
    struct device *device = open_dry();
    struct cuda_device *cuda = cuda_device_of(device);
    char line[FINGERPRINT_MAX];
    (void)state;
    assert_ptr_equal(device->backend, &backend_cuda);
    assert_int_equal(cuda->ordinal, -1);
    assert_string_equal(cuda->properties.name, "NVIDIA H200");
    assert_int_equal(cuda->properties.major, 9);
    assert_int_equal(cuda->properties.minor, 0);
    assert_int_equal(cuda->properties.multiProcessorCount, 132);
    assert_int_equal(cuda->properties.l2CacheSize, 62914560);
    assert_int_equal(cuda->properties.sharedMemPerBlockOptin, 232448);
    assert_true(cuda->properties.totalGlobalMem == 150109880320U);
    device->backend->device_fingerprint(device, line);
    static const char *const parts[] = {"cuda; NVIDIA H200; 132 multiprocessors; driver 13000; ",
                                        "; cudnn 9", "; cublasLt 1"};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (!strstr(line, parts[i]))
            fail_msg("'%s' lacks '%s'", line, parts[i]);
    device->backend->device_close(device);
}

/* Every call that needs hardware says that there is none. */
static void nothing_runs_on_a_description(void **state)
{
    const struct backend *b = &backend_cuda;
    struct device *device = open_dry();
    struct backend_stream *stream = NULL;
    struct backend_event *event = NULL;
    struct backend_arena *arena = NULL;
    struct error err = {0};
    void *memory = NULL;
    (void)state;
    const enum status want = STATUS_FAILED_PRECONDITION;
    assert_int_equal(b->memory_alloc(device, MEMORY_DEVICE, 1, "test", &memory, &err), want);
    assert_int_equal(b->memory_alloc(device, MEMORY_PINNED, 1, "test", &memory, &err), want);
    assert_int_equal(b->arena_new(device, 1, &arena, &err), want);
    assert_int_equal(b->stream_new(device, &stream, &err), want);
    assert_int_equal(b->event_new(device, true, &event, &err), want);
    assert_true(!memory && !arena && !stream && !event);
    assert_non_null(strstr(err.text, "NVIDIA H200"));
    assert_int_equal(cuda_stream_new_dry(device, &stream, &err), STATUS_OK);
    assert_int_equal(b->copy(stream, COPY_ON_DEVICE, NULL, 0, &err), want);
    assert_int_equal(b->capture_begin(stream, &err), want);
    assert_false(stream->capturing);
    cuda_stream_free_dry(stream);
    b->memory_free(device, MEMORY_DEVICE, NULL);
    b->arena_free(NULL);
    b->stream_free(NULL);
    b->event_free(NULL);
    b->graph_free(NULL);
    b->op_free(NULL);
    b->device_close(NULL);
    b->device_close(device);
}

static void descriptions_that_are_none(void **state)
{
    static const char *const texts[] = {
        "",
        "{}",
        "no JSON",
        "{\"deviceName\":\"\"}",
        "{\"deviceName\":\"X\",\"deviceVer\":900}",
        "{\"deviceName\":\"X\",\"deviceVer\":-900,\"driverVer\":1,\"multiProcessorCount\":1}"};
    char path[] = "/tmp/inferd-json-XXXXXX";
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct device *device = NULL;
        struct error err = {0};
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_true(fputs(texts[i], file) >= 0);
        assert_int_equal(fclose(file), 0);
        if (!cuda_device_open_dry(path, NULL, &device, &err) || device)
            fail_msg("'%s' was taken for a device", texts[i]);
        assert_non_null(strstr(err.text, path));
    }
    unlink(path);
    struct device *device = NULL;
    assert_int_equal(cuda_device_open_dry(path, NULL, &device, NULL), STATUS_NOT_FOUND);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes),
        cmocka_unit_test(capabilities),
        cmocka_unit_test(no_device),
        cmocka_unit_test(a_description),
        cmocka_unit_test(nothing_runs_on_a_description),
        cmocka_unit_test(descriptions_that_are_none),
    };
    properties = argc > 1 ? argv[1] : "";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
