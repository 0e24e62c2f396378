/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/compiler.h"
#include "base/utf8.h"
#include "tests/test.h"

/* The bytes of a code point, from the definition: the opposite direction of the function under
 * test. */
static size_t put(char *to, uint32_t c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)(lead[n] | c);
    return n;
}

static void every_code_point_is_one_character(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x110000; c++) {
        char text[5] = {0};
        size_t n = put(text, c);
        bool good = c <= 0x10ffff && (c < 0xd800 || c > 0xdfff);
        if (utf8_char(text, 4) != (good ? n : 0) || utf8_ok(text, n) != good)
            fail_msg("U+%04X: %zu", c, utf8_char(text, 4));
        for (size_t cut = 1; good && cut < n; cut++)
            assert_int_equal(utf8_char(text, cut), 0);
    }
}

/* Tries every first byte with everything that may follow. As many texts are valid as there are code
 * points, so only the code points above are. */
static void nothing_else_is_one(void **state)
{
    (void)state;
    uint32_t n[5] = {0};
    for (uint32_t bytes = 0; bytes < 1u << 24; bytes++) {
        const char text[3] = {(char)(bytes >> 16), (char)(bytes >> 8), (char)bytes};
        size_t len = utf8_char(text, 3);
        n[len] += len == 3 || (len == 2 && !text[2]) || (len == 1 && !text[1] && !text[2]);
    }
    assert_int_equal(n[1], 0x80);
    assert_int_equal(n[2], 0x800 - 0x80);
    assert_int_equal(n[3], 0x10000 - 0x800 - 0x800);
    static const char *const bad[] = {"\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80", "\xf0\x90\x80\x41", "\xf0\x90\x41\x80",
                                      "\xff\xbf\xbf\xbf"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (utf8_ok(bad[i], 4) || utf8_char(bad[i], 4))
            fail_msg("case %zu", i);
}

static void a_text_is_cut_between_characters(void **state)
{
    (void)state;
    static const char text[] =
        "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z"; /* 1, 2, 3, 4 and 1 bytes */
    static const size_t cuts[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11};
    for (size_t max = 0; max < ARRAY_LEN(cuts); max++)
        if (utf8_cut(text, sizeof(text) - 1, max) != cuts[max])
            fail_msg("%zu: %zu", max, utf8_cut(text, sizeof(text) - 1, max));
    for (size_t max = 0; max < ARRAY_LEN(cuts); max++)
        assert_int_equal(utf8_prefix(text, sizeof(text) - 1, max), cuts[max]);
    assert_int_equal(utf8_prefix("ab\xff"
                                 "cd",
                                 5, 5),
                     2);
    assert_true(utf8_ok("", 0));
    assert_true(utf8_ok(text, sizeof(text) - 1));
    assert_false(utf8_ok(text, 2));
    assert_int_equal(utf8_cut("\x80\x80\x80\x80\x80", 5, 4), 4);
    assert_int_equal(utf8_cut("\xff\xff\xff\xff\xff", 5, 2), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_is_one_character),
        cmocka_unit_test(nothing_else_is_one),
        cmocka_unit_test(a_text_is_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
