/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdlib.h>

#include "tests/test.h"
#include "tests/unit/import/wire.h"

static const int64_t pair[] = {2, 3};

static struct wire small_model(void)
{
    struct wire graph = {.n = 0}, model, attrs = {.n = 0};
    const float w[6] = {1, 2, 3, 4, 5, 6};
    wire_attr_int(&attrs, "transB", 1);
    wire_input(&graph, "x", 1, 2, pair);
    wire_constant(&graph, "w", 1, 2, pair, w, sizeof(w));
    wire_node(&graph, "Gemm", "x w", "t", &attrs);
    wire_node(&graph, "Relu", "t", "y", NULL);
    wire_output(&graph, "y");
    wire_text(&graph, 10, "a comment that nobody reads");
    wire_model(&model, &graph, 13);
    return model;
}

static enum status open_bytes(const struct wire *model, struct error *err)
{
    struct onnx_model *opened = NULL;
    /* A copy of exactly this size, so that a read beyond it is seen by a sanitizer. */
    uint8_t *copy = malloc(model->n ? model->n : 1);
    assert_non_null(copy);
    memcpy(copy, model->data, model->n);
    enum status status = onnx_open_memory(copy, model->n, &opened, err);
    assert_int_equal(status == STATUS_OK, opened != NULL);
    onnx_close(opened);
    free(copy);
    return status;
}

static void assert_refused(const struct wire *model, const char *part)
{
    struct error err = {.status = STATUS_OK};
    assert_int_equal(open_bytes(model, &err), STATUS_INVALID_ARGUMENT);
    if (!strstr(err.text, part))
        fail_msg("'%s' does not say '%s'", err.text, part);
}

static void a_model_is_read(void **state)
{
    (void)state;
    struct wire model = small_model();
    struct error err;
    assert_int_equal(open_bytes(&model, &err), STATUS_OK);
}

/* A model that is cut anywhere is refused or is a shorter model; the decoder never crashes. */
static void truncations_are_harmless(void **state)
{
    (void)state;
    struct wire model = small_model();
    size_t refused = 0, n = model.n;
    for (model.n = 0; model.n < n; model.n++) {
        struct error err;
        refused += open_bytes(&model, &err) != STATUS_OK;
    }
    assert_true(refused > n / 2);
}

static void flipped_bits_are_harmless(void **state)
{
    (void)state;
    struct wire model = small_model();
    for (size_t bit = 0; bit < model.n * 8; bit++) {
        struct error err;
        model.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        open_bytes(&model, &err);
        model.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

static void r6_groups_are_refused(void **state)
{
    (void)state;
    struct wire model = small_model(), graph = {.n = 0}, inside;
    wire_varint(&model, 30 << 3 | 3); /* a group begins, and ends */
    wire_varint(&model, 30 << 3 | 4);
    assert_refused(&model, "wire_type");
    wire_varint(&graph, 30 << 3 | 3);
    wire_varint(&graph, 30 << 3 | 4);
    wire_model(&inside, &graph, 13);
    assert_refused(&inside, "wire_type");
}

static void a_single_field_given_twice_is_refused(void **state)
{
    (void)state;
    struct wire model = small_model(), graph = {.n = 0};
    wire_message(&model, 7, &graph);
    assert_refused(&model, "too many");
}

static void a_string_of_another_wire_type_is_refused(void **state)
{
    (void)state;
    struct wire graph = {.n = 0}, node = {.n = 0}, model;
    wire_int(&node, 4, 5); /* op_type as a number */
    wire_message(&graph, 1, &node);
    wire_model(&model, &graph, 13);
    assert_refused(&model, "node");
}

static void names_are_bounded_text(void **state)
{
    (void)state;
    struct wire graph = {.n = 0}, node = {.n = 0}, model;
    static const char long_name[5000];
    wire_bytes(&node, 4, long_name, sizeof(long_name));
    wire_message(&graph, 1, &node);
    wire_model(&model, &graph, 13);
    assert_refused(&model, "5000 bytes");
    graph.n = node.n = 0;
    wire_bytes(&node, 4, "a\0b", 3);
    wire_message(&graph, 1, &node);
    wire_model(&model, &graph, 13);
    assert_refused(&model, "zero byte");
}

static void assert_too_many_dimensions(const struct wire *graph, const char *text)
{
    struct wire model;
    struct error err = {.text = ""};
    wire_model(&model, graph, 13);
    assert_int_equal(open_bytes(&model, &err), STATUS_UNIMPLEMENTED);
    if (!strstr(err.text, text))
        fail_msg("'%s' does not say '%s'", err.text, text);
}

static void more_dimensions_than_eight_are_no_damage(void **state)
{
    (void)state;
    static const int64_t ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    struct wire input = {.n = 0}, constant = {.n = 0};
    wire_input(&input, "x", 1, 9, ones);
    assert_too_many_dimensions(&input, "'x': rank 9, the limit is 8");
    wire_constant(&constant, "w", 1, 9, ones, ones, sizeof(float));
    assert_too_many_dimensions(&constant, "'w': rank 9, the limit is 8");
}

static void what_is_no_model_is_refused(void **state)
{
    (void)state;
    struct wire nothing = {.n = 0}, text = {.n = 0}, other = {.n = 0};
    assert_refused(&nothing, "a model of 0 bytes");
    wire_raw(&text, "#!/bin/sh\n", 10);
    assert_refused(&text, "not an ONNX file");
    text.n = 0;
    wire_raw(&text, "INFERDPL....", 12);
    assert_refused(&text, "it is a plan already");
    wire_int(&other, 1, 8);
    assert_refused(&other, "no graph");
}

static void *open_on_small_stack(void *arg)
{
    struct error err;
    static enum status status;
    status = open_bytes(arg, &err);
    return &status;
}

/* The published schema recurses through an attribute's graph; our decoder does not follow it. */
static void r5_nesting_needs_no_stack(void **state)
{
    (void)state;
    static struct wire graph, model;
    for (int depth = 0; depth < 300; depth++) {
        struct wire attr = {.n = 0}, node = {.n = 0};
        wire_text(&attr, 1, "body");
        wire_message(&attr, 6, &graph);
        wire_int(&attr, 20, 5);
        wire_message(&node, 5, &attr);
        graph.n = 0;
        wire_message(&graph, 1, &node);
    }
    wire_model(&model, &graph, 13);

    pthread_attr_t attr;
    pthread_t thread;
    void *status;
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, 64 * 1024), 0);
    assert_int_equal(pthread_create(&thread, &attr, open_on_small_stack, &model), 0);
    assert_int_equal(pthread_join(thread, &status), 0);
    assert_int_equal(pthread_attr_destroy(&attr), 0);
    assert_int_equal(*(enum status *)status, STATUS_OK);
}

/* Each callback that records a place in the file, by the messages on the way to it. nanopb hands a
 * field of another wire type to the same callback, from a buffer on its own stack. */
static void r14_each_place_lies_in_the_file(void **state)
{
    (void)state;
    static const uint8_t ways[][8] = {
        {7},
        {8},
        {8, 1},
        {7, 1},
        {7, 2},
        {7, 5},
        {7, 11},
        {7, 12},
        {7, 15},
        {7, 1, 1},
        {7, 1, 2},
        {7, 1, 3},
        {7, 1, 4},
        {7, 1, 5},
        {7, 1, 7},
        {7, 1, 5, 1},
        {7, 1, 5, 4},
        {7, 1, 5, 5},
        {7, 1, 5, 6},
        {7, 1, 5, 11},
        {7, 5, 8},
        {7, 5, 9},
        {7, 5, 13},
        {7, 5, 13, 1},
        {7, 5, 13, 2},
        {7, 11, 1},
        {7, 11, 2},
        {7, 12, 2},
        {7, 11, 2, 1},
        {7, 11, 2, 1, 2},
        {7, 11, 2, 1, 2, 1},
        {7, 11, 2, 1, 2, 1, 2},
    };
    static const struct {
        uint32_t type;
        size_t n; /* bytes of a value */
    } wrong[] = {{0, 1}, {5, 4}, {1, 8}};
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        for (size_t k = 0; k < ARRAY_LEN(wrong); k++) {
            struct wire inner = {.n = 0}, outer;
            size_t depth = strlen((const char *)ways[i]);
            wire_varint(&inner, (uint64_t)ways[i][depth - 1] << 3 | wrong[k].type);
            wire_raw(&inner, "\1\1\1\1\1\1\1\1", wrong[k].n);
            for (size_t d = depth - 1; d-- > 0;) {
                outer.n = 0;
                wire_message(&outer, ways[i][d], &inner);
                inner = outer;
            }
            if (ways[i][0] == 8) { /* opsets are read in a model that has a graph */
                outer.n = 0;
                wire_message(&inner, 7, &outer);
            }
            /* A field of the file itself: the file has no model. */
            bool below = strlen((const char *)ways[i]) > 1;
            assert_refused(&inner, below ? "damaged ONNX file" : "not an ONNX file");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_read),
        cmocka_unit_test(truncations_are_harmless),
        cmocka_unit_test(flipped_bits_are_harmless),
        cmocka_unit_test(r6_groups_are_refused),
        cmocka_unit_test(a_single_field_given_twice_is_refused),
        cmocka_unit_test(a_string_of_another_wire_type_is_refused),
        cmocka_unit_test(names_are_bounded_text),
        cmocka_unit_test(more_dimensions_than_eight_are_no_damage),
        cmocka_unit_test(what_is_no_model_is_refused),
        cmocka_unit_test(r5_nesting_needs_no_stack),
        cmocka_unit_test(r14_each_place_lies_in_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
