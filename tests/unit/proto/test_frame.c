/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/frame.h"
#include "tests/test.h"

static void heads_are_big_endian(void **state)
{
    (void)state;
    const uint32_t sizes[] = {0, 1, 255, 256, 65536, 0x01020304, 0x7fffffff, 0xffffffff};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint8_t head[4];
        frame_head_write(head, sizes[i]);
        assert_int_equal(frame_head_read(head), sizes[i]);
    }
    const uint8_t bytes[] = {1, 2, 3, 4};
    assert_int_equal(frame_head_read(bytes), 0x01020304);
}

static void partial_until_the_last_byte(void **state)
{
    (void)state;
    const uint8_t frame[9] = {0, 0, 0, 5, 1, 2, 3, 4, 5};
    for (size_t have = 0; have < sizeof(frame); have++) {
        size_t size = 99;
        assert_int_equal(frame_peek(frame, have, 100, &size), FRAME_PARTIAL);
        assert_int_equal(size, have < 4 ? 0 : 5);
    }
    size_t size;
    assert_int_equal(frame_peek(frame, sizeof(frame), 100, &size), FRAME_COMPLETE);
    assert_int_equal(size, 5);
    const uint8_t empty[4] = {0};
    assert_int_equal(frame_peek(empty, 4, 100, &size), FRAME_COMPLETE);
    assert_int_equal(size, 0);
}

static void r1_the_limit_is_checked_on_the_head_alone(void **state)
{
    (void)state;
    size_t size;
    const uint8_t at[4] = {0, 0, 4, 0}, over[4] = {0, 0, 4, 1}, most[4] = {255, 255, 255, 255};
    assert_int_equal(frame_peek(at, 4, 1024, &size), FRAME_PARTIAL);
    assert_int_equal(frame_peek(over, 4, 1024, &size), FRAME_TOO_LARGE);
    assert_int_equal(size, 1025);
    assert_int_equal(frame_peek(most, 4, 64u << 20, &size), FRAME_TOO_LARGE);
    assert_int_equal(size, UINT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_big_endian),
        cmocka_unit_test(partial_until_the_last_byte),
        cmocka_unit_test(r1_the_limit_is_checked_on_the_head_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
