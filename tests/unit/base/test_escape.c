/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/escape.h"
#include "tests/test.h"

static void becomes(const char *in, size_t size, const char *want)
{
    char out[64];
    memset(out, '!', sizeof(out));
    escape_text(out, size, in);
    assert_string_equal(out, want);
    assert_int_equal(out[size], '!');
}

static void what_terminals_obey_is_escaped(void **state UNUSED)
{
    becomes("plain", 63, "plain");
    becomes("gr\xc3\xb6\xc3\x9f"
            "er \xe2\x82\xac",
            63,
            "gr\xc3\xb6\xc3\x9f"
            "er \xe2\x82\xac");
    becomes("a\x1b[2J\n\t\x7f", 63, "a\\x1b[2J\\x0a\\x09\\x7f");
    becomes("\xc2\x9b"
            "1m",
            63, "\\xc2\\x9b1m"); /* C1 */
    becomes("\xff\xe2\x82", 63, "\\xff\\xe2\\x82");
}

static void nothing_is_cut_in_two(void **state UNUSED)
{
    becomes("ab\x1b", 6, "ab");
    becomes("ab\x1b", 7, "ab\\x1b");
    becomes("ab\xc3\xb6", 4, "ab");
    becomes("ab", 1, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_terminals_obey_is_escaped),
        cmocka_unit_test(nothing_is_cut_in_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
