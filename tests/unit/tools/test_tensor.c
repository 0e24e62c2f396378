/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing and showing tensors, JSON, and drawings of graphs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tests/test.h"
#include "tools/json.h"
#include "tools/layers.h"
#include "tools/tensor.h"

static struct tensor_view f32(float *data, int64_t n)
{
    return (struct tensor_view){DTYPE_F32, {.rank = 1, .dim = {n}}, data};
}

static void tolerances(void **state)
{
    float a[] = {1.0f, 100.0f, NAN, 0.0f, INFINITY}, b[] = {1.0f, 100.05f, NAN, 1e-6f, INFINITY};
    struct tensor_view x = f32(a, 5), y = f32(b, 5);
    struct tensor_difference d;
    (void)state;
    assert_true(tensor_compare(&x, &y, 1e-3, 1e-5, &d));
    assert_int_equal(d.different, 0);
    assert_true(fabs(d.max_abs - 0.05) < 1e-4);
    assert_true(tensor_compare(&x, &y, 1e-4, 1e-5, &d));
    assert_int_equal(d.different, 1);
    assert_int_equal(d.first, 1);
    assert_true(tensor_compare(&x, &y, 1e-3, 0, &d));
    assert_int_equal(d.different, 1);
    assert_int_equal(d.first, 3);
    a[4] = NAN;
    assert_true(tensor_compare(&x, &y, 1, 1, &d));
    assert_int_equal(d.different, 1);
    assert_true(isinf(d.max_abs));
    b[4] = -1;
    assert_true(tensor_compare(&x, &y, 1e9, 1e9, &d));
    assert_int_equal(d.different, 1);
}

static void whole_numbers_are_compared_exactly(void **state)
{
    int64_t a[] = {INT64_MAX, 5}, b[] = {INT64_MAX - 1, 5};
    struct tensor_view x = {DTYPE_I64, {.rank = 1, .dim = {2}}, a}, y = x;
    struct tensor_difference d;
    (void)state;
    y.data = b;
    assert_true(tensor_compare(&x, &y, 0, 0, &d));
    assert_int_equal(d.different, 1);
    y.shape.dim[0] = 1;
    assert_false(tensor_compare(&x, &y, 0, 0, &d));
    y = x;
    y.dtype = DTYPE_U64;
    assert_false(tensor_compare(&x, &y, 0, 0, &d));
}

static void random_numbers_are_the_same_each_time(void **state)
{
    float a[100], b[100];
    int64_t i[100];
    uint64_t seed = 3;
    (void)state;
    tensor_random(a, 100, DTYPE_F32, &seed);
    seed = 3;
    tensor_random(b, 100, DTYPE_F32, &seed);
    assert_memory_equal(a, b, sizeof(a));
    double sum = 0;
    for (int k = 0; k < 100; k++) {
        assert_true(a[k] >= -1 && a[k] < 1);
        sum += a[k];
    }
    assert_true(fabs(sum) < 20);
    tensor_random(i, 100, DTYPE_I64, &seed);
    int64_t ones = 0;
    for (int k = 0; k < 100; k++) {
        assert_true(i[k] == 0 || i[k] == 1);
        ones += i[k];
    }
    assert_in_range(ones, 20, 80);
    uint8_t bytes[100];
    tensor_random(bytes, 100, DTYPE_U8, &seed);
    int high = 0;
    for (int k = 0; k < 100; k++)
        high += bytes[k] >= 128;
    assert_in_range(high, 20, 80);
}

static void json_is_escaped_and_nested(void **state)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    struct json j;
    struct shape shape = {.rank = 2, .dim = {-1, 3}};
    (void)state;
    assert_non_null(f);
    json_init(&j, f);
    json_object(&j, NULL);
    json_text(&j, "a\"b", "x\\y\n\x7f");
    json_list(&j, "l");
    json_int(&j, NULL, -1);
    json_uint(&j, NULL, UINT64_MAX);
    json_real(&j, NULL, NAN);
    json_end(&j);
    json_object(&j, "empty");
    json_end(&j);
    json_bool(&j, "b", true);
    json_shape(&j, "s", &shape);
    json_end(&j);
    fclose(f);
    assert_string_equal(text, "{\n  \"a\\\"b\": \"x\\\\y\\u000a\\u007f\",\n  \"l\": [\n    -1,\n"
                              "    18446744073709551615,\n    null\n  ],\n  \"empty\": {},\n"
                              "  \"b\": true,\n  \"s\": [-1, 3]\n}\n");
    free(text);
}

/* A diamond with a long edge: every edge goes at least one level down, and boxes of a level do not
 * touch. */
static void drawings_have_levels_without_overlaps(void **state)
{
    static const uint32_t edges[][2] = {{0, 1}, {0, 2}, {1, 3}, {2, 3}, {0, 3}, {3, 4}, {0, 4}};
    struct layers l = {0};
    (void)state;
    for (int i = 0; i < 5; i++)
        assert_true(layers_vertex_add(&l, 100));
    for (uint32_t i = 0; i < ARRAY_LEN(edges); i++)
        assert_true(layers_edge_add(&l, edges[i][0], edges[i][1], i));
    assert_true(layers_arrange(&l, 10));
    assert_int_equal(l.n_levels, 4);
    assert_int_equal(l.vertices[3].level, 2);
    for (uint32_t i = 0; i < l.n_edges; i++)
        assert_int_equal(l.vertices[l.edges[i].from].level + 1, l.vertices[l.edges[i].to].level);
    assert_int_equal(l.n_edges, 7 + 1 + 2);
    for (uint32_t a = 0; a < l.n_vertices; a++) {
        assert_true(l.vertices[a].x - l.vertices[a].width / 2 >= 0);
        assert_true(l.vertices[a].x + l.vertices[a].width / 2 <= l.width);
        for (uint32_t b = 0; b < a; b++) {
            float apart = fabsf(l.vertices[a].x - l.vertices[b].x);
            float needed = (l.vertices[a].width + l.vertices[b].width) / 2;
            if (l.vertices[a].level == l.vertices[b].level && apart < needed)
                fail_msg("vertices %u and %u overlap", a, b);
        }
    }
    layers_deinit(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tolerances),
        cmocka_unit_test(whole_numbers_are_compared_exactly),
        cmocka_unit_test(random_numbers_are_the_same_each_time),
        cmocka_unit_test(json_is_escaped_and_nested),
        cmocka_unit_test(drawings_have_levels_without_overlaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
