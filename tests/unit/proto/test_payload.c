/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "proto/request.h"
#include "tests/test.h"

enum { LARGE = 1000 };

/* model_name, two payloads, of which only the heads and one byte are there. */
static const uint8_t infer[] = {
    0x0a, 3,    'a',  'b', 'c', /* 1: model_name */
    0x3a, 2,    7,    7,        /* 7: a small payload */
    0x3a, 0xf4, 0x03, 1,        /* 7: one of 500 bytes, of which one has come */
};

static void the_first_large_payload_is_found(void **state)
{
    (void)state;
    assert_int_equal(request_payload_find(infer, sizeof(infer), 500, false), 12);
    assert_int_equal(request_payload_find(infer, sizeof(infer), 2, false), 7);
    assert_int_equal(request_payload_find(infer, sizeof(infer), 501, false), 0);
    for (size_t have = 0; have < 12; have++)
        assert_int_equal(request_payload_find(infer, have, 500, false), 0);
    assert_int_equal(request_payload_find(NULL, 0, 0, false), 0);
}

static void in_a_frame_it_lies_in_the_body(void **state)
{
    (void)state;
    uint8_t frame[4 + sizeof(infer)] = {0x08, 5, 0x52, 0xff}; /* 1: id, 10: infer */
    frame[3] = 0x7f;
    memcpy(frame + 4, infer, sizeof(infer));
    assert_int_equal(request_payload_find(frame, sizeof(frame), 100, true), 16);
    assert_int_equal(request_payload_find(frame, sizeof(frame), LARGE, true), 0);
    assert_int_equal(request_payload_find(frame, 3, 100, true), 0);
}

static void malformed_messages_have_none(void **state)
{
    (void)state;
    static const uint8_t group[] = {0x0b, 0x3a, 0x7f, 1};
    static const uint8_t endless[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                      0xff, 0xff, 0xff, 0xff, 1};
    static uint8_t many[4096];
    assert_int_equal(request_payload_find(group, sizeof(group), 1, false), 0);
    assert_int_equal(request_payload_find(endless, sizeof(endless), 1, false), 0);
    for (size_t i = 0; i + 1 < sizeof(many); i += 2)
        many[i] = 0x0a; /* empty names */
    many[4000] = 0x3a;
    many[4001] = 0x7f;
    assert_int_equal(request_payload_find(many, sizeof(many), 1, false), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_large_payload_is_found),
        cmocka_unit_test(in_a_frame_it_lies_in_the_body),
        cmocka_unit_test(malformed_messages_have_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
