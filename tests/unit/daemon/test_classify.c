/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>

#include "daemon/classify.h"
#include "tests/test.h"

static char room[1 << 16];

/* The texts of the classes, with a space between them. */
static const char *texts(struct message_tensor *t, bool batched, uint32_t classes)
{
    static char out[4096];
    size_t most = classify_room(t, batched, classes), n = 0;
    assert_in_range(most, 1, sizeof(room));
    struct classify state;
    size_t work = SIZE_MAX;
    classify_begin(&state, t, batched, classes, room);
    assert_true(classify_step(&state, &work));
    assert_in_range(t->size, 1, most);
    assert_int_equal(t->dtype, DTYPE_NONE);
    assert_true(message_text_equal(t->datatype, message_text_of("BYTES")));
    for (const char *at = room; at < room + t->size;) {
        size_t len = (unsigned char)at[0] | (size_t)(unsigned char)at[1] << 8;
        assert_true(!at[2] && !at[3]);
        memcpy(out + n, at + 4, len);
        n += len;
        out[n++] = ' ';
        at += 4 + len;
    }
    out[n ? n - 1 : 0] = '\0';
    return out;
}

static struct message_tensor tensor(enum dtype dtype, const void *data, int64_t rows,
                                    int64_t columns)
{
    return (struct message_tensor){.dtype = dtype,
                                   .shape = {.rank = 2, .dim = {rows, columns}},
                                   .data = data,
                                   .size = (size_t)(rows * columns) * dtype_size(dtype)};
}

static void the_best_classes_come_first(void **state)
{
    (void)state;
    const float values[] = {0.1f, 0.7f, 0.2f, -5, 3, 3};
    struct message_tensor t = tensor(DTYPE_F32, values, 2, 3);
    assert_string_equal(texts(&t, true, 2), "0.700000:1 0.200000:2 3.000000:1 3.000000:2");
    assert_int_equal(t.shape.rank, 2);
    assert_int_equal(t.shape.dim[0], 2);
    assert_int_equal(t.shape.dim[1], 2);
}

static void a_model_without_batches_has_one_row(void **state)
{
    (void)state;
    const float values[] = {0.1f, 0.7f, 0.2f, -5};
    struct message_tensor t = tensor(DTYPE_F32, values, 2, 2);
    assert_string_equal(texts(&t, false, 9), "0.700000:1 0.200000:2 0.100000:0 -5.000000:3");
    assert_int_equal(t.shape.rank, 1);
    assert_int_equal(t.shape.dim[0], 4);
}

static void every_type_is_read(void **state)
{
    (void)state;
    const int64_t wide[] = {INT64_MIN, INT64_MAX, 0};
    struct message_tensor t = tensor(DTYPE_I64, wide, 1, 3);
    assert_string_equal(texts(&t, true, 3), "9223372036854775807:1 0:2 -9223372036854775808:0");
    const uint64_t large[] = {UINT64_MAX, 1};
    t = tensor(DTYPE_U64, large, 1, 2);
    assert_string_equal(texts(&t, true, 2), "18446744073709551615:0 1:1");
    const int8_t small[] = {-3, 4};
    t = tensor(DTYPE_I8, small, 1, 2);
    assert_string_equal(texts(&t, true, 2), "4:1 -3:0");
    const uint16_t halves[] = {0x3c00, 0x4000};
    t = tensor(DTYPE_F16, halves, 1, 2);
    assert_string_equal(texts(&t, true, 1), "2.000000:1");
    const double doubles[] = {-1.7976931348623157e308, NAN};
    t = tensor(DTYPE_F64, doubles, 1, 2);
    const char *text = texts(&t, true, 2);
    assert_memory_equal(text, "-179769313486231570", 19);
    assert_non_null(strstr(text, ":0 nan:1"));
}

/* Beside a plain search. */
static void the_heap_finds_what_sorting_finds(void **state)
{
    (void)state;
    int32_t values[300];
    uint32_t seed = 1;
    for (int round = 0; round < 50; round++) {
        for (size_t i = 0; i < 300; i++) {
            seed = seed * 1664525u + 1013904223u;
            values[i] = (int32_t)(seed >> 24);
        }
        struct message_tensor t = tensor(DTYPE_I32, values, 1, 300);
        char expected[512];
        size_t n = 0;
        bool used[300] = {false};
        for (int k = 0; k < 20; k++) {
            size_t top = 300;
            for (size_t i = 0; i < 300; i++)
                if (!used[i] && (top == 300 || values[i] > values[top]))
                    top = i;
            used[top] = true;
            n += (size_t)snprintf(expected + n, sizeof(expected) - n, "%s%d:%zu", k ? " " : "",
                                  values[top], top);
        }
        assert_string_equal(texts(&t, true, 20), expected);
    }
}

/* Each step does what it was given, whatever the values are, and the data may move in between. */
static void steps_find_what_one_piece_finds(void **state)
{
    (void)state;
    static int32_t values[2][2 * 5000];
    static char whole[1 << 16];
    struct classify steps;
    size_t n = 1, work = SIZE_MAX;
    for (int32_t i = 0; i < 2 * 5000; i++)
        values[0][i] = values[1][i] = i; /* rising: each one takes a place */
    struct message_tensor t = tensor(DTYPE_I32, values[0], 2, 5000);
    assert_in_range(classify_room(&t, true, 300), 1, sizeof(whole));
    classify_begin(&steps, &t, true, 300, whole);
    assert_true(classify_step(&steps, &work));
    struct message_tensor u = tensor(DTYPE_I32, values[0], 2, 5000);
    classify_begin(&steps, &u, true, 300, room);
    for (work = 100; !classify_step(&steps, &work); work = 100, n++) {
        assert_int_equal(work, 0);
        u.data = values[n % 2];
    }
    assert_in_range(n, 2 * 5000 / 100, SIZE_MAX);
    assert_int_equal(u.size, t.size);
    assert_memory_equal(u.data, t.data, t.size);
}

static void nothing_takes_no_room(void **state)
{
    (void)state;
    struct message_tensor t = tensor(DTYPE_F32, NULL, 0, 5);
    assert_int_equal(classify_room(&t, true, 3), 0);
    t = tensor(DTYPE_F32, NULL, 5, 0);
    assert_int_equal(classify_room(&t, true, 3), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_classes_come_first),
        cmocka_unit_test(a_model_without_batches_has_one_row),
        cmocka_unit_test(every_type_is_read),
        cmocka_unit_test(the_heap_finds_what_sorting_finds),
        cmocka_unit_test(steps_find_what_one_piece_finds),
        cmocka_unit_test(nothing_takes_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
