/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of the Open Inference Protocol, and what asks for the schema, from every side. */
#include <string.h>

#include "proto/request.h"
#include "proto/schema.h"
#include "tests/test.h"

static struct request request;
static struct error err;

static struct message_text text_of(const char *text)
{
    return (struct message_text){text, strlen(text)};
}

static enum status number(enum request_place place, const char *key, int64_t value)
{
    const struct request_parameter p = {
        .key = text_of(key), .kind = REQUEST_VALUE_INT, .number = value};
    return request_parameter(&request, place, &p, true, &err);
}

static enum status words(enum request_place place, const char *key, const char *value, bool open)
{
    const struct request_parameter p = {
        .key = text_of(key), .kind = REQUEST_VALUE_TEXT, .text = text_of(value)};
    return request_parameter(&request, place, &p, open, &err);
}

static void priorities_begin_with_one(void **state UNUSED)
{
    static const struct {
        int64_t asked;
        uint32_t priority;
    } rows[] = {{0, 0}, {1, 0}, {2, 1}, {INT64_MAX, REQUEST_PRIORITY_LAST}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(number(REQUEST_PLACE_REQUEST, "priority", rows[i].asked), STATUS_OK);
        assert_int_equal(request.priority, rows[i].priority);
        assert_int_equal(request.level, rows[i].asked);
    }
    assert_int_equal(number(REQUEST_PLACE_REQUEST, "priority", -1), STATUS_INVALID_ARGUMENT);
    assert_int_equal(words(REQUEST_PLACE_REQUEST, "priority", "1", true), STATUS_INVALID_ARGUMENT);
    assert_string_equal(err.text, "parameter 'priority': expected a whole number");
    assert_int_equal(number(REQUEST_PLACE_REQUEST, "timeout", 7), STATUS_OK);
    assert_int_equal(request.timeout_us, 7);
}

static void sequences_are_refused_unless_there_is_none(void **state UNUSED)
{
    const struct request_parameter real = {
        .key = text_of("sequence_id"), .kind = REQUEST_VALUE_DOUBLE, .real = 0};
    assert_int_equal(number(REQUEST_PLACE_REQUEST, "sequence_id", 0), STATUS_OK);
    assert_int_equal(words(REQUEST_PLACE_REQUEST, "sequence_id", "", true), STATUS_OK);
    assert_int_equal(number(REQUEST_PLACE_REQUEST, "sequence_id", 5), STATUS_INVALID_ARGUMENT);
    assert_int_equal(words(REQUEST_PLACE_REQUEST, "sequence_id", "a", true),
                     STATUS_INVALID_ARGUMENT);
    assert_int_equal(request_parameter(&request, REQUEST_PLACE_REQUEST, &real, true, &err),
                     STATUS_INVALID_ARGUMENT);
    assert_int_equal(words(REQUEST_PLACE_REQUEST, "sequence_id", "a", false), STATUS_OK);
    assert_int_equal(words(REQUEST_PLACE_REQUEST, "colour", "red", true), STATUS_OK);
}

static void classes_belong_to_the_last_output(void **state UNUSED)
{
    request.n_outputs = 2;
    assert_int_equal(number(REQUEST_PLACE_OUTPUT, "classification", 3), STATUS_OK);
    assert_int_equal(request.classes[1], 3);
    assert_int_equal(number(REQUEST_PLACE_OUTPUT, "classification", INT64_MAX), STATUS_OK);
    assert_int_equal(request.classes[1], UINT32_MAX);
    assert_int_equal(number(REQUEST_PLACE_OUTPUT, "classification", -3), STATUS_INVALID_ARGUMENT);
    assert_int_equal(number(REQUEST_PLACE_OUTPUT, "binary_data", 1), STATUS_OK);
    assert_int_equal(number(REQUEST_PLACE_INPUT, "classification", -3), STATUS_OK);
}

static void regions_belong_to_the_last_tensor(void **state UNUSED)
{
    static char name[REQUEST_MAX_REGION + 2];
    memset(name, 'x', REQUEST_MAX_REGION + 1);
    request.n_inputs = request.n_outputs = 2;
    struct message_region *regions[] = {&request.inputs[1].region, &request.regions[1]};
    for (int k = 0; k < 2; k++) {
        enum request_place place = k ? REQUEST_PLACE_OUTPUT : REQUEST_PLACE_INPUT;
        *regions[k] = (struct message_region){0};
        assert_int_equal(words(place, "shared_memory_region", "r", true), STATUS_OK);
        assert_int_equal(number(place, "shared_memory_offset", INT64_MAX), STATUS_OK);
        assert_false(regions[k]->sized);
        assert_int_equal(number(place, "shared_memory_byte_size", 7), STATUS_OK);
        assert_true(regions[k]->sized);
        assert_int_equal(regions[k]->size, 7);
        assert_int_equal(regions[k]->offset, INT64_MAX);
        assert_int_equal(regions[k]->name.len, 1);
        assert_int_equal(number(place, "shared_memory_region", 7), STATUS_INVALID_ARGUMENT);
        assert_int_equal(number(place, "shared_memory_offset", -1), STATUS_INVALID_ARGUMENT);
        assert_int_equal(words(place, "shared_memory_byte_size", "7", true),
                         STATUS_INVALID_ARGUMENT);
        assert_int_equal(words(place, "shared_memory_region", name, true), STATUS_INVALID_ARGUMENT);
        assert_int_equal(words(place, "shared_memory_colour", "red", true), STATUS_OK);
    }
}

/* At the framed door, and where no tensor is meant. */
static void r11_regions_are_refused_elsewhere(void **state UNUSED)
{
    for (int place = REQUEST_PLACE_REQUEST; place <= REQUEST_PLACE_OUTPUT; place++)
        assert_int_equal(words((enum request_place)place, "shared_memory_region", "r", false),
                         STATUS_INVALID_ARGUMENT);
    assert_int_equal(words(REQUEST_PLACE_REQUEST, "shared_memory_region", "r", true),
                     STATUS_INVALID_ARGUMENT);
}

/* Names of things that are there, of things within them, and of none. */
static void names_are_found_in_the_schema(void **state UNUSED)
{
    static const char *const there[] = {
        "inference.GRPCInferenceService", "inference.GRPCInferenceService.ModelInfer",
        "inference.ModelInferRequest", "inference.ModelInferRequest.InferInputTensor",
        "grpc.health.v1.Health"};
    static const char *const none[] = {"",
                                       ".",
                                       "inference",
                                       "inference.",
                                       "inference.None",
                                       "inferenceModelInferRequest",
                                       "inference.ModelInferRequest.None",
                                       "inference.ModelInferRequest.InferInputTensor.None.x.y.z",
                                       "grpc"};
    for (size_t i = 0; i < ARRAY_LEN(there); i++)
        assert_true(schema_file_of(text_of(there[i])).len > 0);
    for (size_t i = 0; i < ARRAY_LEN(none); i++)
        assert_int_equal(schema_file_of(text_of(none[i])).len, 0);
    assert_int_equal(schema_file_named(text_of("none.proto")).len, 0);
}

static void requests_for_the_schema_are_checked(void **state UNUSED)
{
    static uint8_t large[SCHEMA_REQUEST_MAX + 1], answer[SCHEMA_ANSWER_MAX];
    static const uint8_t nothing[] = {0x0a, 1, 'h'}, later[] = {0x7a, 1, 'x'}, cut[] = {0x22, 9},
                         whole[] = {0x22, 3, 'a', '.', 'b'};
    size_t used;
    const enum status invalid = STATUS_INVALID_ARGUMENT;
    assert_int_equal(schema_reflect(large, sizeof(large), answer, &used, &err), invalid);
    assert_int_equal(schema_reflect(nothing, sizeof(nothing), answer, &used, &err), invalid);
    assert_int_equal(schema_reflect(later, sizeof(later), answer, &used, &err), invalid);
    assert_int_equal(schema_reflect(cut, sizeof(cut), answer, &used, &err), invalid);
    assert_int_equal(schema_reflect(whole, sizeof(whole), answer, &used, &err), STATUS_OK);
    assert_in_range(used, sizeof(whole), SCHEMA_ANSWER_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(priorities_begin_with_one),
        cmocka_unit_test(sequences_are_refused_unless_there_is_none),
        cmocka_unit_test(classes_belong_to_the_last_output),
        cmocka_unit_test(regions_belong_to_the_last_tensor),
        cmocka_unit_test(r11_regions_are_refused_elsewhere),
        cmocka_unit_test(names_are_found_in_the_schema),
        cmocka_unit_test(requests_for_the_schema_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
