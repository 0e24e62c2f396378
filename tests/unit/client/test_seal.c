/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of servers that speak TLS, and what a server may answer that speaks something else. */
#include <string.h>

#include "base/compiler.h"
#include "client/seal.h"
#include "tests/test.h"

static void addresses(void **state)
{
    (void)state;
    struct seal_target t = {0};
    assert_int_equal(seal_target_parse("host:1?ca=x", &t, NULL), STATUS_OK);
    assert_false(t.tls);
    assert_string_equal(t.address, "host:1?ca=x");
    assert_int_equal(seal_target_parse("tls://[::1]:5?name=a.b&ca=/c a&cert=/x=1&key=/k", &t, NULL),
                     STATUS_OK);
    assert_true(t.tls);
    assert_string_equal(t.address, "[::1]:5");
    assert_string_equal(t.name, "a.b");
    assert_string_equal(t.ca, "/c a");
    assert_string_equal(t.certificate, "/x=1");
    assert_string_equal(t.key, "/k");
    seal_target_cleanup(&t);
    assert_int_equal(seal_target_parse("tls://host:1", &t, NULL), STATUS_OK);
    assert_true(t.tls && !t.ca && !t.certificate && !t.key && !t.name);
    seal_target_cleanup(&t);
}

static void addresses_that_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "tls://a:1?",          "tls://a:1?x=y",       "tls://a:1?ca",    "tls://a:1?ca=",
        "tls://a:1?ca=1&ca=2", "tls://a:1?name=x&",   "tls://a:1?cax=1", "tls://a:1?key=/k",
        "tls://unix:/run/x",   "tls://a:1?verify=no", "tls://a:1??ca=x",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct seal_target t = {.address = "as before"};
        struct error err;
        assert_int_equal(seal_target_parse(texts[i], &t, &err), STATUS_INVALID_ARGUMENT);
        assert_null(strchr(err.text, '\n'));
        assert_string_equal(t.address, "as before");
    }
}

/* The first bytes are the client's, whatever is there to answer them is refused with a reason, and
 * what the server is told of that fits. */
static void what_is_no_tls_is_refused(void **state)
{
    (void)state;
    static const char *const answers[] = {"HTTP/1.1 400 Bad Request\r\n\r\n", "\0\0\0\x10",
                                          "\x15\x03\x03", "\x16\x03\x03\xff\xff++++++++++"};
    static const size_t sizes[] = {28, 4, 3, 15};
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        struct seal_target t = {0};
        struct seal *seal = NULL;
        struct error err;
        const void *bytes;
        void *at;
        size_t size;
        assert_int_equal(seal_target_parse("tls://localhost:1", &t, &err), STATUS_OK);
        assert_int_equal(seal_new(&t, &seal, &err), STATUS_OK);
        seal_target_cleanup(&t);
        assert_int_equal(seal_shake(seal, &err), STATUS_OK);
        assert_false(seal_is_open(seal));
        assert_true((size = seal_unsent(seal, &bytes)) > 100);
        assert_int_equal(((const unsigned char *)bytes)[0], 0x16);
        seal_sent(seal, size);
        assert_int_equal(seal_unsent(seal, &bytes), 0);
        seal_room(seal, &at, &size);
        assert_true(size >= sizes[i]);
        memcpy(at, answers[i], sizes[i]);
        assert_int_equal(seal_filled(seal, sizes[i], &err), STATUS_OK);
        enum status status = seal_shake(seal, &err);
        if (sizes[i] >= 5) {
            assert_int_equal(status, STATUS_UNAVAILABLE);
            assert_non_null(strstr(err.text, "TLS: "));
        } else {
            assert_int_equal(status, STATUS_OK); /* too little to tell */
        }
        assert_false(seal_is_open(seal));
        seal_free(seal);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses),
        cmocka_unit_test(addresses_that_are_refused),
        cmocka_unit_test(what_is_no_tls_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
