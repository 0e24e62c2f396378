/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/admission.h"
#include "tests/test.h"

static const struct engine_binding inputs[] = {
    {"a", DTYPE_F32, {3, {-1, 2, 3}}, 24},
    {"b", DTYPE_U8, {1, {-1}}, 1},
};
static const struct engine_binding outputs[] = {
    {"x", DTYPE_F32, {1, {-1}}, 4}, {"y", DTYPE_F32, {1, {-1}}, 4}, {"z", DTYPE_F32, {1, {-1}}, 4}};
static const struct engine_info model = {.batched = true,
                                         .max_batch = 8,
                                         .n_inputs = 2,
                                         .n_outputs = 3,
                                         .inputs = inputs,
                                         .outputs = outputs};
static const struct engine_binding fixed_inputs[] = {{"a", DTYPE_I64, {2, {4, 5}}, 160},
                                                     {"s", DTYPE_F32, {0, {0}}, 4}};
static const struct engine_info fixed = {
    .max_batch = 1, .n_inputs = 2, .n_outputs = 1, .inputs = fixed_inputs, .outputs = outputs};

static struct request request;
static struct admission got;
static struct error err;

static void input(const char *name, enum dtype dtype, struct shape shape)
{
    request.inputs[request.n_inputs++] =
        (struct message_tensor){.name = message_text_of(name), .dtype = dtype, .shape = shape};
}

static void begin(void)
{
    request.n_inputs = request.n_outputs = 0;
}

static void refused(const struct engine_info *info, const char *reason)
{
    got.instances = 12345;
    assert_int_equal(admission_check(info, info->max_batch, &request, &got, &err),
                     STATUS_INVALID_ARGUMENT);
    if (!strstr(err.text, reason))
        fail_msg("'%s' does not say '%s'", err.text, reason);
    assert_int_equal(got.instances, 12345);
}

static void taken(const struct engine_info *info)
{
    if (admission_check(info, info->max_batch, &request, &got, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void what_fits_is_taken(void **state)
{
    (void)state;
    begin();
    input("b", DTYPE_U8, (struct shape){1, {5}});
    input("a", DTYPE_F32, (struct shape){3, {5, 2, 3}});
    taken(&model);
    assert_int_equal(got.instances, 5);
    assert_int_equal(got.input[0], 1);
    assert_int_equal(got.input[1], 0);
    assert_int_equal(got.n_outputs, 3);
    assert_int_equal(got.output[2], 2);
    assert_int_equal(got.payload_bytes, 128 + 64); /* 120 and 5 bytes, each rounded up */

    request.n_outputs = 2;
    request.outputs[0] = message_text_of("z");
    request.outputs[1] = message_text_of("x");
    taken(&model);
    assert_int_equal(got.n_outputs, 2);
    assert_int_equal(got.output[0], 2);
    assert_int_equal(got.output[1], 0);

    begin();
    input("a", DTYPE_I64, (struct shape){2, {4, 5}});
    input("s", DTYPE_F32, (struct shape){0, {0}});
    taken(&fixed);
    assert_int_equal(got.instances, 1);
}

static void the_number_of_instances(void **state)
{
    (void)state;
    const int64_t wrong[] = {0, 9, INT64_MAX};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        begin();
        input("a", DTYPE_F32, (struct shape){3, {wrong[i], 2, 3}});
        input("b", DTYPE_U8, (struct shape){1, {wrong[i]}});
        refused(&model, "this model takes 1 to 8");
    }
    begin();
    input("a", DTYPE_F32, (struct shape){3, {4, 2, 3}});
    input("b", DTYPE_U8, (struct shape){1, {3}});
    refused(&model, "'b': 3 instances, but 4");
    begin();
    input("a", DTYPE_F32, (struct shape){3, {4, 2, 3}});
    input("b", DTYPE_U8, (struct shape){1, {4}});
    assert_int_equal(admission_check(&model, 3, &request, &got, &err), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "1 to 3")); /* as configured */
}

static void every_mismatch_says_what_was_expected(void **state)
{
    (void)state;
    begin();
    refused(&model, "input 'a' is missing");
    input("a", DTYPE_F32, (struct shape){3, {1, 2, 3}});
    refused(&model, "input 'b' is missing");
    input("b", DTYPE_I8, (struct shape){1, {1}});
    refused(&model, "'b': expected UINT8, got INT8");
    request.inputs[1].dtype = DTYPE_U8;
    taken(&model);
    input("c", DTYPE_U8, (struct shape){1, {1}});
    refused(&model, "no input 'c'");
    request.n_inputs = 2;
    request.inputs[0].shape = (struct shape){2, {1, 6}};
    refused(&model, "'a': expected shape [?,2,3], got [1,6]");
    request.inputs[0].shape = (struct shape){3, {1, 3, 2}};
    refused(&model, "got [1,3,2]");
    request.inputs[0].shape = (struct shape){3, {1, 2, 3}};
    request.n_outputs = 1;
    request.outputs[0] = message_text_of("w");
    refused(&model, "no output 'w'");
    begin();
    input("a", DTYPE_I64, (struct shape){2, {5, 4}});
    refused(&fixed, "expected shape [4,5], got [5,4]");
}

static void models_beyond_the_caps_are_refused(void **state)
{
    (void)state;
    static struct engine_binding many[65];
    static const struct engine_binding spaced[] = {{"a b", DTYPE_F32, {1, {-1}}, 4}};
    static const struct engine_binding uncounted[] = {{"a", DTYPE_F32, {1, {3}}, 4}};
    for (int i = 0; i < 65; i++)
        many[i] = (struct engine_binding){"n", DTYPE_F32, {1, {-1}}, 4};
    struct engine_info info = model;
    assert_int_equal(admission_model_check(&info, &err), STATUS_OK);
    assert_int_equal(admission_model_check(&fixed, &err), STATUS_OK);
    info.outputs = many;
    info.n_outputs = 65;
    assert_int_equal(admission_model_check(&info, &err), STATUS_UNIMPLEMENTED);
    info.n_outputs = 64;
    assert_int_equal(admission_model_check(&info, &err), STATUS_OK);
    info.inputs = spaced;
    info.n_inputs = 1;
    assert_int_equal(admission_model_check(&info, &err), STATUS_UNIMPLEMENTED);
    info.inputs = uncounted;
    assert_int_equal(admission_model_check(&info, &err), STATUS_FAILED_PRECONDITION);
}

/* One free dimension, padded or not, and points at 4 and 8. */
static void fits(bool pads, int64_t size, enum engine_fit fit, uint32_t point)
{
    static const struct engine_binding in[] = {
        {.name = "x", .dtype = DTYPE_U8, .shape = {2, {-1, -1}}, .instance_bytes = 8}};
    static const struct engine_axes axes[] = {{.free = {0, 1}}};
    static const struct engine_point points[] = {{.values = {4}}, {.values = {8}}};
    const struct engine_free free[] = {{.name = "seq", .low = 2, .high = 9, .pads = pads}};
    const struct engine_info info = {.batched = true,
                                     .max_batch = 2,
                                     .n_inputs = 1,
                                     .inputs = in,
                                     .input_axes = axes,
                                     .n_free = 1,
                                     .free = free,
                                     .n_points = 2,
                                     .points = points};
    begin();
    input("x", DTYPE_U8, (struct shape){2, {1, size}});
    taken(&info);
    assert_int_equal(got.fit, fit);
    assert_int_equal(got.values[0], size);
    if (fit != ENGINE_FIT_NEW)
        assert_int_equal(got.point, point);
    assert_int_equal(admission_no_point(&info, got.values, &err), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "there are seq=4; seq=8"));
    input("y", DTYPE_U8, (struct shape){1, {1}});
    refused(&info, "no input 'y'");
}

static void sizes_are_met_by_a_point_or_are_new(void **state)
{
    (void)state;
    fits(false, 4, ENGINE_FIT_EXACT, 0);
    fits(false, 8, ENGINE_FIT_EXACT, 1);
    fits(false, 5, ENGINE_FIT_NEW, 0);
    fits(true, 4, ENGINE_FIT_EXACT, 0);
    fits(true, 3, ENGINE_FIT_PADDED, 0);
    fits(true, 5, ENGINE_FIT_PADDED, 1);
    fits(true, 9, ENGINE_FIT_NEW, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits_is_taken),
        cmocka_unit_test(the_number_of_instances),
        cmocka_unit_test(every_mismatch_says_what_was_expected),
        cmocka_unit_test(models_beyond_the_caps_are_refused),
        cmocka_unit_test(sizes_are_met_by_a_point_or_are_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
