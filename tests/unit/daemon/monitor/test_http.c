/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "daemon/monitor/http.h"
#include "tests/test.h"

static struct http_request request;
static size_t size;

/* The status that a head gets; 0: it is not whole. */
static int parse(const char *text)
{
    int status = 0;
    enum http_result result = http_parse(text, strlen(text), &request, &size, &status);
    assert_true(result != HTTP_DONE || size <= strlen(text));
    return result == HTTP_MORE ? 0 : result == HTTP_DONE ? 200 : status;
}

static void a_request_is_read(void **state)
{
    (void)state;
    assert_int_equal(parse("GET /a%20b/c?d=%20&e HTTP/1.1\r\nHost: x\r\n\r\nGET"), 200);
    assert_string_equal(request.target, "/a b/c");
    assert_string_equal(request.query, "d=%20&e");
    assert_true(request.keep);
    assert_false(request.head);
    assert_int_equal(size, strlen("GET /a%20b/c?d=%20&e HTTP/1.1\r\nHost: x\r\n\r\n"));
    assert_int_equal(parse("HEAD / HTTP/1.0\r\n\r\n"), 200);
    assert_string_equal(request.query, "");
    assert_true(request.head);
    assert_false(request.keep);
    assert_int_equal(parse("GET / HTTP/1.1\r\nHost: x\r\nconnection: Close\r\n\r\n"), 200);
    assert_false(request.keep);
}

static void each_beginning_is_not_yet_a_request(void **state)
{
    (void)state;
    const char whole[] = "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer abc\r\n\r\n";
    int status;
    for (size_t n = 0; n < sizeof(whole) - 1; n++)
        assert_int_equal(http_parse(whole, n, &request, &size, &status), HTTP_MORE);
    assert_int_equal(http_parse(whole, sizeof(whole) - 1, &request, &size, &status), HTTP_DONE);
    assert_string_equal(request.token, "abc");
}

static void tokens(void **state)
{
    (void)state;
    static const struct {
        const char *header, *token;
    } rows[] = {
        {"Bearer abc", "abc"},
        {"bEARER   abc ", "abc"},
        {"Basic bWU6c2VjcmV0", "secret"},      /* me:secret */
        {"Basic bWU6c2VjOnJldA==", "sec:ret"}, /* me:sec:ret */
        {"Basic bWU=", ""},                    /* no colon */
        {"Basic !!!", ""},
        {"Digest abc", ""},
        {"Bearer", ""},
    };
    char text[256];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\n\r\n",
                 rows[i].header);
        assert_int_equal(parse(text), 200);
        assert_string_equal(request.token, rows[i].token);
    }
    /* One that is too long is cut, and still too long to be one of ours. */
    char line[512], longer[300];
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    snprintf(line, sizeof(line), "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n",
             longer);
    assert_int_equal(parse(line), 200);
    assert_int_equal(strlen(request.token), TOKEN_MOST);
    assert_int_equal(parse("GET / HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\nAuthorization: b\r\n"
                           "\r\n"),
                     400);
}

/* As many as are allowed, and one more. */
static void r8_headers_are_counted(void **state)
{
    (void)state;
    for (int n = HTTP_HEADERS_MOST - 1; n <= HTTP_HEADERS_MOST; n++) {
        char text[1024] = "GET / HTTP/1.1\r\nHost: x\r\n";
        for (int i = 0; i < n; i++)
            strcat(text, "A: b\r\n");
        strcat(text, "\r\n");
        assert_int_equal(parse(text), n < HTTP_HEADERS_MOST ? 200 : 431);
    }
    char endless[HTTP_HEAD_MOST + 1];
    int status;
    memset(endless, 'a', sizeof(endless));
    assert_int_equal(http_parse(endless, HTTP_HEAD_MOST - 1, &request, &size, &status), HTTP_MORE);
    assert_int_equal(http_parse(endless, HTTP_HEAD_MOST, &request, &size, &status), HTTP_BAD);
    assert_int_equal(status, 431);
}

/* Every byte in every place: either refused or read, and never more than there is. */
static void every_byte_everywhere(void **state)
{
    (void)state;
    static const char whole[] = "GET /m?a=b HTTP/1.1\r\nHost: x\r\nB: c\r\n\r\n";
    int status;
    for (size_t at = 0; at < sizeof(whole) - 1; at++)
        for (int byte = 0; byte < 256; byte++) {
            char text[sizeof(whole)];
            memcpy(text, whole, sizeof(whole));
            text[at] = (char)byte;
            enum http_result result = http_parse(text, sizeof(whole) - 1, &request, &size, &status);
            if (result == HTTP_DONE && size > sizeof(whole) - 1)
                fail_msg("byte %d at %zu", byte, at);
            if (result == HTTP_DONE && (byte < 0x20 || byte == 0x7f) && byte != '\t' &&
                byte != whole[at])
                fail_msg("byte %d at %zu passed", byte, at);
        }
}

static void queries(void **state)
{
    (void)state;
    char value[8];
    size_t at = 0;
    const char *query = "a=1&bc=2&a=3&a=toolong123&a";
    assert_true(http_query(query, "a", &at, value, sizeof(value)));
    assert_string_equal(value, "1");
    assert_true(http_query(query, "a", &at, value, sizeof(value)));
    assert_string_equal(value, "3");
    assert_false(http_query(query, "a", &at, value, sizeof(value)));
    at = 0;
    assert_false(http_query("", "a", &at, value, sizeof(value)));
    assert_false(http_query(query, "b", &at, value, sizeof(value)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_read),
        cmocka_unit_test(each_beginning_is_not_yet_a_request),
        cmocka_unit_test(tokens),
        cmocka_unit_test(r8_headers_are_counted),
        cmocka_unit_test(every_byte_everywhere),
        cmocka_unit_test(queries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
