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
    static const char *const rows[] = {
        "Z",     "Zg=",      "=",         "====",     "Zg===",        "Z===",
        "Zm9v=", "Zm 9",     "    ",      "    Zm9v", "Zm9v\n\n\n\n", "Zm9-",
        "Zm9_z", "Zg==Zg==", "\xc3\xa4zz"};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char out[16];
        size_t size;
        if (base64_decode(rows[i], strlen(rows[i]), out, &size))
            fail_msg("taken: %s", rows[i]);
    }
}

static void all_bytes_come_back(void **state)
{
    (void)state;
    static char text[4 << 20];
    static unsigned char bytes[3 << 20], back[3 << 20];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 167 >> 3);
    for (size_t size = 0; size < 50; size++) {
        size_t got;
        base64_url_encode(bytes, size, text);
        assert_int_equal(strlen(text), (size * 4 + 2) / 3);
        assert_null(strpbrk(text, "+/="));
        for (char *c = text; *c; c++)
            *c = (char)(*c == '-' ? '+' : *c == '_' ? '/' : *c);
        assert_true(base64_decode(text, strlen(text), back, &got));
        assert_int_equal(got, size);
        assert_memory_equal(back, bytes, size);
    }
    memset(text, '/', sizeof(text)); /* more than libcrypto gets at once */
    memset(bytes, 0xff, sizeof(bytes));
    size_t got;
    assert_true(base64_decode(text, sizeof(text), text, &got));
    assert_int_equal(got, sizeof(bytes));
    assert_memory_equal(text, bytes, got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_become_bytes),
        cmocka_unit_test(other_texts_are_refused),
        cmocka_unit_test(all_bytes_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
