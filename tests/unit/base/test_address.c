/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/address.h"
#include "base/compiler.h"
#include "tests/test.h"

static void good_ones_come_back_as_they_were(void **state)
{
    (void)state;
    static const char *const good[] = {"127.0.0.1:8003", "0.0.0.0:0",     "10.1.2.3:65535",
                                       "[::1]:8003",     "[fe80::1:2]:0", "unix:/run/x.sock"};
    char text[ADDRESS_TEXT_MAX];
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct address a;
        struct error err = {0};
        if (address_parse(good[i], &a, &err))
            fail_msg("%s", err.text);
        assert_string_equal(address_format(&a, text), good[i]);
        assert_int_equal(address_is_unix(&a), strncmp(good[i], "unix:", 5) == 0);
    }
}

static void r16_what_others_reach(void **state)
{
    (void)state;
    static const char *const local[] = {"127.0.0.1:1", "127.255.3.4:0", "[::1]:8003",
                                        "[::ffff:127.0.0.1]:1", "unix:/run/x.sock"};
    static const char *const open[] = {
        "0.0.0.0:1",         "[::]:1",      "10.1.2.3:1",          "128.0.0.1:1",
        "126.255.255.255:1", "[fe80::1]:1", "[::ffff:10.0.0.1]:1", "[::127.0.0.1]:1",
        "[::ffff:0.0.0.0]:1"};
    struct address a;
    for (size_t i = 0; i < ARRAY_LEN(local); i++) {
        assert_int_equal(address_parse(local[i], &a, NULL), STATUS_OK);
        if (!address_is_local(&a))
            fail_msg("%s is local", local[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(open); i++) {
        assert_int_equal(address_parse(open[i], &a, NULL), STATUS_OK);
        if (address_is_local(&a))
            fail_msg("%s is not local", open[i]);
    }
    a = (struct address){.storage.ss_family = AF_UNSPEC};
    assert_false(address_is_local(&a));
}

static void names_and_nonsense_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        ":",
        "8003",
        "localhost:8003",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "127.0.0.1:80a",
        "::1:8003",
        "[::1]",
        "[]:1",
        "[::1:8003",
        "1.2.3:80",
        "unix:",
        "unix:x.sock",
        "127.0.0.1:000080",
        "[127.0.0.1]:80",
        "0123456789012345678901234567890123456789012345678901234567890:1"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct address a = {.length = 77};
        struct error err = {0};
        if (address_parse(bad[i], &a, &err) != STATUS_INVALID_ARGUMENT)
            fail_msg("\"%s\" was taken", bad[i]);
        assert_int_equal(a.length, 77);
        assert_non_null(strstr(err.text, "expected"));
    }
}

static void a_path_has_a_limit(void **state)
{
    (void)state;
    struct address a;
    char text[ADDRESS_TEXT_MAX + 1] = "unix:/";
    size_t longest = sizeof(((struct sockaddr_un *)0)->sun_path) - 1;
    memset(text + 6, 'a', longest - 1);
    assert_int_equal(address_parse(text, &a, NULL), STATUS_OK);
    char back[ADDRESS_TEXT_MAX];
    assert_string_equal(address_format(&a, back), text);
    text[5 + longest] = 'a';
    assert_int_equal(address_parse(text, &a, NULL), STATUS_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_ones_come_back_as_they_were),
        cmocka_unit_test(names_and_nonsense_are_refused),
        cmocka_unit_test(r16_what_others_reach),
        cmocka_unit_test(a_path_has_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
