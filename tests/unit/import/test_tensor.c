/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/import/tensor.h"
#include "tests/test.h"
#include "tests/unit/import/wire.h"

/* Reads through a file, as every reader of test data does. */
static enum status read_back(const struct wire *w, struct tensor_view *view, char **name,
                             struct error *err)
{
    char path[] = "/tmp/inferd_test_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, w->data, w->n), w->n);
    close(fd);
    enum status status = onnx_tensor_read(path, view, name, err);
    assert_int_equal(unlink(path), 0);
    return status;
}

static void assert_reads(const struct wire *w, enum dtype dtype, const void *want, size_t n)
{
    struct tensor_view view;
    struct error err;
    char *name;
    if (read_back(w, &view, &name, &err))
        fail_msg("%s", err.text);
    assert_string_equal(name, "t");
    assert_int_equal(view.dtype, dtype);
    assert_memory_equal(view.data, want, n);
    free(view.data);
    free(name);
}

static void assert_refused(const struct wire *w, enum status want, const char *part)
{
    struct tensor_view view = {.data = NULL};
    struct error err = {.status = STATUS_OK};
    assert_int_equal(read_back(w, &view, NULL, &err), want);
    assert_null(view.data);
    if (!strstr(err.text, part))
        fail_msg("'%s' does not say '%s'", err.text, part);
}

static const int64_t three[] = {3};

static void raw_data(void **state)
{
    (void)state;
    const float values[] = {1.5f, -2, 3};
    struct wire w = {.n = 0};
    wire_tensor(&w, "t", 1, 1, three, values, sizeof(values));
    assert_reads(&w, DTYPE_F32, values, sizeof(values));
}

static void floats_packed_in_pieces_and_one_by_one(void **state)
{
    (void)state;
    const float values[] = {1.5f, -2, 3};
    struct wire packed = {.n = 0}, pieces = {.n = 0}, single = {.n = 0};
    wire_tensor(&packed, "t", 1, 1, three, NULL, 0);
    wire_bytes(&packed, 4, values, sizeof(values));
    assert_reads(&packed, DTYPE_F32, values, sizeof(values));
    wire_bytes(&pieces, 4, values, 4);
    wire_tensor(&pieces, "t", 1, 1, three, NULL, 0);
    wire_bytes(&pieces, 4, values + 1, 8);
    assert_reads(&pieces, DTYPE_F32, values, sizeof(values));
    wire_tensor(&single, "t", 1, 1, three, NULL, 0);
    for (int i = 0; i < 3; i++)
        wire_float(&single, 4, values[i]);
    assert_reads(&single, DTYPE_F32, values, sizeof(values));
}

static void whole_numbers_of_every_width(void **state)
{
    (void)state;
    static const int64_t given[] = {1, -2, 3};
    static const struct {
        int type;
        uint32_t field;
        enum dtype dtype;
        size_t size;
    } rows[] = {
        {2, 5, DTYPE_U8, 1},    {3, 5, DTYPE_I8, 1},    {4, 5, DTYPE_U16, 2},
        {5, 5, DTYPE_I16, 2},   {6, 5, DTYPE_I32, 4},   {7, 7, DTYPE_I64, 8},
        {12, 11, DTYPE_U32, 4}, {13, 11, DTYPE_U64, 8}, {10, 5, DTYPE_F16, 2},
        {16, 5, DTYPE_BF16, 2},
    };
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        struct wire w = {.n = 0};
        uint8_t want[24];
        wire_tensor(&w, "t", rows[r].type, 1, three, NULL, 0);
        for (int i = 0; i < 3; i++) {
            wire_int(&w, rows[r].field, given[i]);
            memcpy(want + (size_t)i * rows[r].size, &given[i], rows[r].size);
        }
        assert_reads(&w, rows[r].dtype, want, 3 * rows[r].size);
    }
}

static void booleans_are_0_or_1(void **state)
{
    (void)state;
    const uint8_t raw[] = {0, 2, 255}, want[] = {0, 1, 1};
    struct wire w = {.n = 0}, typed = {.n = 0};
    wire_tensor(&w, "t", 9, 1, three, raw, sizeof(raw));
    assert_reads(&w, DTYPE_BOOL, want, sizeof(want));
    wire_tensor(&typed, "t", 9, 1, three, NULL, 0);
    for (int i = 0; i < 3; i++)
        wire_int(&typed, 5, i * 256);
    assert_reads(&typed, DTYPE_BOOL, want, sizeof(want));
}

static void tensors_without_elements(void **state)
{
    (void)state;
    const int64_t dims[] = {3, 0};
    struct wire w = {.n = 0};
    wire_tensor(&w, "t", 7, 2, dims, NULL, 0);
    assert_reads(&w, DTYPE_I64, "", 0);
}

static void r14_sizes_must_be_those_of_the_shape(void **state)
{
    (void)state;
    const float values[4] = {1, 2, 3, 4};
    for (size_t n = 0; n <= sizeof(values); n++) {
        struct wire raw = {.n = 0};
        if (n == 12)
            continue;
        wire_tensor(&raw, "t", 1, 1, three, values, n);
        assert_refused(&raw, STATUS_INVALID_ARGUMENT, "12 bytes");
    }
    for (size_t n = 0; n <= 4; n++) {
        struct wire typed = {.n = 0};
        if (n == 3)
            continue;
        wire_tensor(&typed, "t", 1, 1, three, NULL, 0);
        wire_bytes(&typed, 4, values, 4 * n);
        assert_refused(&typed, STATUS_INVALID_ARGUMENT, n < 3 ? "3 elements" : "shape");
    }
}

static void r3_shapes_that_overflow(void **state)
{
    (void)state;
    const int64_t wide[] = {INT64_MAX, INT64_MAX, 2}, negative[] = {-1}, large[] = {1LL << 40};
    const int64_t deep[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    struct wire w = {.n = 0}, n = {.n = 0}, l = {.n = 0}, d = {.n = 0};
    wire_tensor(&w, "t", 1, 3, wide, NULL, 0);
    assert_refused(&w, STATUS_INVALID_ARGUMENT, "overflows");
    wire_tensor(&n, "t", 1, 1, negative, NULL, 0);
    assert_refused(&n, STATUS_INVALID_ARGUMENT, "-1");
    wire_tensor(&l, "t", 7, 1, large, NULL, 0); /* claims 8 TiB in 20 bytes */
    assert_refused(&l, STATUS_INVALID_ARGUMENT, "1099511627776");
    wire_tensor(&d, "t", 1, 9, deep, "0123", 4);
    assert_refused(&d, STATUS_UNIMPLEMENTED, "tensor 't': rank 9");
}

static void types_without_a_counterpart(void **state)
{
    (void)state;
    struct wire text = {.n = 0}, strange = {.n = 0};
    wire_tensor(&text, "t", 8, 1, three, NULL, 0);
    assert_refused(&text, STATUS_UNIMPLEMENTED, "STRING");
    wire_tensor(&strange, "t", 99, 1, three, NULL, 0);
    assert_refused(&strange, STATUS_UNIMPLEMENTED, "99");
}

static void external_data_needs_a_model(void **state)
{
    (void)state;
    struct wire w = {.n = 0};
    wire_tensor(&w, "t", 1, 1, three, NULL, 0);
    wire_int(&w, 14, 1);
    assert_refused(&w, STATUS_INVALID_ARGUMENT, "external");
}

/* Zeros, ones, the ends of each format, and NaN and infinities. */
static void floats_of_eight_bits(void **state)
{
    (void)state;
    static const struct {
        int type;
        uint8_t bits;
        float value;
    } cases[] = {
        {ONNX_FLOAT8E4M3FNUZ, 0, 0},         {ONNX_FLOAT8E4M3FNUZ, 0x40, 1},
        {ONNX_FLOAT8E4M3FNUZ, 0x80, NAN},    {ONNX_FLOAT8E4M3FNUZ, 0x7f, 240},
        {ONNX_FLOAT8E4M3FNUZ, 1, 0x1p-10f},  {ONNX_FLOAT8E5M2, 0x3c, 1},
        {ONNX_FLOAT8E5M2, 0x7b, 57344},      {ONNX_FLOAT8E5M2, 0x7c, INFINITY},
        {ONNX_FLOAT8E5M2, 0xfc, -INFINITY},  {ONNX_FLOAT8E5M2, 0x7d, NAN},
        {ONNX_FLOAT8E5M2, 1, 0x1p-16f},      {ONNX_FLOAT8E5M2FNUZ, 0x40, 1},
        {ONNX_FLOAT8E5M2FNUZ, 0x7f, 57344},  {ONNX_FLOAT8E5M2FNUZ, 0x80, NAN},
        {ONNX_FLOAT8E5M2FNUZ, 0xff, -57344}, {ONNX_FLOAT8E5M2FNUZ, 1, 0x1p-17f},
    };
    struct arena *arena = arena_new(1 << 16);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct onnx_tensor t = {
            .name = "t", .type = cases[i].type, .raw = {&cases[i].bits, 1}};
        enum dtype dtype;
        const void *data;
        struct error err;
        assert_int_equal(tensor_unpack(NULL, arena, &t, &dtype, &data, &err), STATUS_OK);
        assert_int_equal(dtype, DTYPE_F32);
        float got = *(const float *)data, want = cases[i].value;
        if (isnan(want) ? !isnan(got) : got != want || signbit(got) != signbit(want))
            fail_msg("type %d, 0x%02x: %g, not %g", cases[i].type, cases[i].bits, (double)got,
                     (double)want);
    }
    arena_free(arena);
}

static void integers_of_four_bits(void **state)
{
    (void)state;
    static const uint8_t bits[] = {0x12, 0x8f, 0x07};
    static const int8_t with_sign[] = {2, 1, -1, -8, 7}, without[] = {2, 1, 15, 8, 7};
    struct onnx_tensor t = {.name = "t", .shape = {.rank = 1, .dim = {5}}, .raw = {bits, 3}};
    struct arena *arena = arena_new(1 << 16);
    enum dtype dtype;
    const void *data;
    struct error err;
    t.type = ONNX_INT4;
    assert_int_equal(tensor_unpack(NULL, arena, &t, &dtype, &data, &err), STATUS_OK);
    assert_int_equal(dtype, DTYPE_I8);
    assert_memory_equal(data, with_sign, sizeof(with_sign));
    t.type = ONNX_UINT4;
    assert_int_equal(tensor_unpack(NULL, arena, &t, &dtype, &data, &err), STATUS_OK);
    assert_int_equal(dtype, DTYPE_U8);
    assert_memory_equal(data, without, sizeof(without));
    t.shape.dim[0] = 7;
    assert_int_equal(tensor_unpack(NULL, arena, &t, &dtype, &data, &err), STATUS_INVALID_ARGUMENT);
    t.shape = (struct shape){.rank = 2, .dim = {INT64_MAX, 4}};
    assert_int_equal(tensor_unpack(NULL, arena, &t, &dtype, &data, &err), STATUS_INVALID_ARGUMENT);
    t.shape = (struct shape){.rank = 1, .dim = {INT64_MAX}};
    assert_int_equal(tensor_unpack(NULL, arena, &t, &dtype, &data, &err), STATUS_INVALID_ARGUMENT);
    arena_free(arena);
}

static void a_name_need_not_be_asked_for(void **state)
{
    (void)state;
    const float values[] = {1.5f, -2, 3};
    struct wire w = {.n = 0};
    struct tensor_view view;
    struct error err;
    wire_tensor(&w, "t", 1, 1, three, values, sizeof(values));
    if (read_back(&w, &view, NULL, &err))
        fail_msg("%s", err.text);
    assert_memory_equal(view.data, values, sizeof(values));
    free(view.data);
    assert_int_equal(onnx_tensor_read("/no/such/file.pb", &view, NULL, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "/no/such/file.pb"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raw_data),
        cmocka_unit_test(floats_packed_in_pieces_and_one_by_one),
        cmocka_unit_test(whole_numbers_of_every_width),
        cmocka_unit_test(booleans_are_0_or_1),
        cmocka_unit_test(tensors_without_elements),
        cmocka_unit_test(r14_sizes_must_be_those_of_the_shape),
        cmocka_unit_test(r3_shapes_that_overflow),
        cmocka_unit_test(types_without_a_counterpart),
        cmocka_unit_test(external_data_needs_a_model),
        cmocka_unit_test(floats_of_eight_bits),
        cmocka_unit_test(integers_of_four_bits),
        cmocka_unit_test(a_name_need_not_be_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
