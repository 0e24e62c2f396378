/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"

#include <string.h>

#include "tests/test.h"

/* RFC 4648, section 10, and the last two letters. */
static void texts_become_bytes(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"", ""},
                                          {"Zg==", "f"},
                                          {"Zm8=", "fo"},
                                          {"Zm9v", "foo"},
                                          {"Zg", "f"},
                                          {"Zm8", "fo"},
                                          {"Zm9vYg==", "foob"},
                                          {"Zm9vYmE=", "fooba"},
                                          {"+/+/", "\xfb\xff\xbf"},
                                          {"Zm9vYmFy", "foobar"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char out[16];
        size_t size = 99;
        memcpy(out, rows[i][0], strlen(rows[i][0]));
        assert_true(base64_decode(out, strlen(rows[i][0]), out, &size));
        assert_int_equal(size, strlen(rows[i][1]));
        assert_memory_equal(out, rows[i][1], size);
    }
}

static void other_texts_are_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {"Z",     "Zg=",  "=",    "====",  "Zg===",    "Z===",
                                       "Zm9v=", "Zm 9", "Zm9-", "Zm9_z", "Zg==Zg==", "\xc3\xa4zz"};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char out[16];
        size_t size;
        if (base64_decode(rows[i], strlen(rows[i]), out, &size))
            fail_msg("taken: %s", rows[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_become_bytes),
        cmocka_unit_test(other_texts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
