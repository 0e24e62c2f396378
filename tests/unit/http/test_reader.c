/* SPDX-License-Identifier: Apache-2.0 */
/* Heads and bodies in chunks, cut in every way; and what two servers might read in two ways. */
#include <stdio.h>
#include <stdlib.h>

#include "http/reader.h"
#include "tests/test.h"

static struct http_reader *reader;

static int begin(void **state)
{
    (void)state;
    reader = http_reader_new();
    return reader ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    http_reader_free(reader);
    return 0;
}

/* Gives a text in pieces of `step` bytes; *used of it were taken. */
static enum http_step give(const char *text, size_t size, size_t step, size_t *used, unsigned *code,
                           struct error *err)
{
    enum http_step result = HTTP_MORE;
    *used = 0;
    while (result == HTTP_MORE && *used < size) {
        size_t n, piece = MIN(step, size - *used);
        char *copy = malloc(piece); /* exactly as large, so that a read beyond it is seen */
        memcpy(copy, text + *used, piece);
        result = http_reader_head(reader, copy, piece, &n, code, err);
        free(copy);
        *used += n;
        assert_true(result != HTTP_MORE || n == piece);
    }
    return result;
}

static void assert_text(struct message_text text, const char *wanted)
{
    if (!message_text_equal(text, message_text_of(wanted)))
        fail_msg("'%.*s' is not '%s'", (int)text.len, text.data ? text.data : "", wanted);
}

static const struct http_head *accept(const char *text, size_t step, size_t rest)
{
    struct error err;
    unsigned code = 0;
    size_t used;
    http_reader_next(reader);
    if (give(text, strlen(text), step, &used, &code, &err) != HTTP_DONE)
        fail_msg("%u %s for: %s", code, err.text, text);
    assert_int_equal(used, strlen(text) - rest);
    return http_reader_request(reader);
}

static void refuse(const char *text, unsigned wanted)
{
    static const size_t steps[] = {1, 7, 100000};
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        struct error err;
        unsigned code = 0;
        size_t used;
        http_reader_next(reader);
        if (give(text, strlen(text), steps[i], &used, &code, &err) != HTTP_WRONG)
            fail_msg("taken: %s", text);
        if (code != wanted)
            fail_msg("%u (%s), not %u for: %s", code, err.text, wanted, text);
    }
}

static void a_request_is_taken_apart_however_it_is_cut(void **state)
{
    (void)state;
    static const char text[] =
        "POST /v2/models/a%20b/infer?x=1&y HTTP/1.1\r\nHost: a:1\r\nContent-Length:  12 \r\n"
        "Inference-Header-Content-Length: 7\r\nX-Other: \r\nAUTHORIZATION: Bearer t\r\n\r\nbody";
    for (size_t step = 1; step < sizeof(text); step++) {
        const struct http_head *head = accept(text, step, 4);
        assert_int_equal(head->method, HTTP_METHOD_POST);
        assert_text(head->path, "/v2/models/a%20b/infer");
        assert_text(head->query, "x=1&y");
        assert_text(head->fields[HTTP_FIELD_HOST], "a:1");
        assert_text(head->fields[HTTP_FIELD_AUTHORIZATION], "Bearer t");
        assert_text(head->fields[HTTP_FIELD_JSON_LENGTH], "7");
        assert_null(head->fields[HTTP_FIELD_EXPECT].data);
        assert_int_equal(head->body, HTTP_BODY_LENGTH);
        assert_int_equal(head->length, 12);
        assert_true(head->keep_alive);
        assert_false(head->expects);
    }
}

static void versions_and_connections(void **state)
{
    (void)state;
    const struct http_head *head = accept("\r\nGET / HTTP/1.0\r\n\r\n", 3, 0);
    assert_false(head->keep_alive);
    assert_int_equal(head->minor, 0);
    assert_int_equal(head->body, HTTP_BODY_NONE);
    assert_true(accept("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 9, 0)->keep_alive);
    assert_false(
        accept("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 9, 0)->keep_alive);
    assert_text(accept("GET http://a:8000/v2?q HTTP/1.1\r\nHost: a\r\n\r\n", 99, 0)->path, "/v2");
    assert_text(accept("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 99, 0)->path, "*");
    head = accept("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nExpect: 100-Continue\r\n\r\n",
                  99, 0);
    assert_true(head->expects);
    assert_int_equal(head->body, HTTP_BODY_NONE);
    accept("POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
           "HTTP2-Settings: AAMAAABk\r\nContent-Length: 2\r\n\r\n{}",
           99, 2);
}

static void what_is_no_request_is_refused(void **state)
{
    (void)state;
    refuse("GET / HTTP/1.1\nHost: a\n\n", 400);
    refuse("GET / HTTP/1.1\r\nHost: a\n\r\n", 400);
    refuse("GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", 400);
    refuse("GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", 400);
    refuse("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400);
    refuse("GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n", 400);
    refuse("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400);
    refuse("GET / HTTP/1.1\r\n\r\n", 400);
    refuse("GET v2 HTTP/1.1\r\nHost: a\r\n\r\n", 400);
    refuse("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400);
    refuse("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505);
    refuse("GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505);
    refuse("BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 501);
    refuse("POST / HTTP/1.1\r\nHost: a\r\nExpect: more\r\n\r\n", 417);
    refuse("\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 414);
    refuse("\x16\x03\x01\x02\x00\x01", 400);
}

static void two_ways_to_find_the_end_are_refused(void **state)
{
    (void)state;
#define POST "POST / HTTP/1.1\r\nHost: a\r\n"
    refuse(POST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400);
    refuse(POST "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400);
    refuse(POST "Content-Length: 1, 1\r\n\r\n", 400);
    refuse(POST "Content-Length: +1\r\n\r\n", 400);
    refuse(POST "Content-Length: 0x10\r\n\r\n", 400);
    refuse(POST "Content-Length: 1 2\r\n\r\n", 400);
    refuse(POST "Content-Length: \r\n\r\n", 400);
    refuse(POST "Content-Length: 18446744073709551616\r\n\r\n", 400);
    refuse(POST "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
    refuse(POST "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n", 400);
    refuse(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
    refuse(POST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501);
    refuse(POST "Transfer-Encoding: xchunked\r\n\r\n", 501);
    refuse(POST "Transfer-Encoding: \r\n\r\n", 501);
    refuse("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
#undef POST
}

static void r8_heads_are_bounded(void **state)
{
    (void)state;
    static char text[4 * HTTP_HEAD_MOST];
    int n = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a\r\nX: ");
    memset(text + n, 'x', HTTP_HEAD_MOST);
    refuse(text, 431);
    memset(text, 0, sizeof(text));
    text[0] = 'G';
    memset(text + 1, 'E', HTTP_HEAD_MOST + 10);
    refuse(text, 414);
    n = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\n");
    for (int i = 0; i < HTTP_FIELDS_MOST + 2; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "a:b\r\n");
    refuse(text, 431);
    n = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 0; i < HTTP_FIELDS_MOST - 1; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "a:b\r\n");
    snprintf(text + n, sizeof(text) - (size_t)n, "\r\n");
    accept(text, 50, 0);
}

static void the_preface_of_http2_is_told(void **state)
{
    (void)state;
    static const char text[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    struct error err;
    unsigned code;
    size_t used;
    assert_int_equal(give(text, strlen(text), 5, &used, &code, &err), HTTP_TWO);
    assert_int_equal(used, 18);
    assert_text(http_reader_taken(reader), "PRI * HTTP/2.0\r\n\r\n");
}

static void what_it_wants_is_never_too_much(void **state)
{
    (void)state;
    static const char text[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\nnext";
    struct error err;
    unsigned code;
    size_t at = 0, used;
    enum http_step result = HTTP_MORE;
    while (result == HTTP_MORE) {
        size_t n = http_reader_wants(reader);
        assert_true(n >= 1);
        result = http_reader_head(reader, text + at, n, &used, &code, &err);
        assert_int_equal(used, n);
        at += used;
    }
    assert_int_equal(result, HTTP_DONE);
    assert_string_equal(text + at, "next");
}

static char body[256];
static size_t n_body;

static bool take(void *user, const void *data, size_t size)
{
    assert_ptr_equal(user, body);
    if (n_body + size > sizeof(body))
        return false;
    memcpy(body + n_body, data, size);
    n_body += size;
    return true;
}

static enum http_step chunks(const char *text, size_t size, size_t step, size_t *rest)
{
    struct error err;
    unsigned code = 1;
    enum http_step result = HTTP_MORE;
    size_t at = 0, used;
    n_body = 0;
    accept("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 100, 0);
    assert_int_equal(http_reader_request(reader)->body, HTTP_BODY_CHUNKS);
    while (result == HTTP_MORE && at < size) {
        size_t n = step ? step : http_reader_wants(reader);
        result = http_reader_chunks(reader, text + at, MIN(n, size - at), &used, take, body, &code,
                                    &err);
        at += used;
    }
    *rest = size - at;
    return result;
}

static void chunks_are_put_together_however_they_are_cut(void **state)
{
    (void)state;
    static const char text[] =
        "5;a=b\r\nhello\r\n1\r\n \r\nA\r\n0123456789\r\n0\r\nTrail: er\r\n\r\nnext";
    size_t rest;
    for (size_t step = 0; step < sizeof(text); step++) {
        assert_int_equal(chunks(text, strlen(text), step, &rest), HTTP_DONE);
        assert_int_equal(rest, 4);
        assert_int_equal(n_body, 16);
        assert_memory_equal(body, "hello 0123456789", 16);
    }
}

static void bad_chunks_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"x\r\n",        "-1\r\n",
                                      "5\r\nhelloX",  "5 5\r\n",
                                      "0x5\r\nhello", "11111111111111111\r\n",
                                      "\r\n\r\n",     "5\r\nhello\r\n\r\n"};
    size_t rest;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (chunks(bad[i], strlen(bad[i]), 1, &rest) != HTTP_WRONG)
            fail_msg("taken: %s", bad[i]);
    /* The owner of the body can end it. */
    char text[400];
    memset(text, 'x', sizeof(text));
    memcpy(text, "12c\r\n", 5);
    assert_int_equal(chunks(text, sizeof(text), 400, &rest), HTTP_WRONG);
}

static void r8_extensions_of_chunks_are_bounded(void **state)
{
    (void)state;
    static char text[3 * HTTP_CHUNKS_SPARE];
    size_t rest;
    memset(text, 'x', sizeof(text));
    memcpy(text, "5;a=", 4);
    assert_int_equal(chunks(text, sizeof(text), 1000, &rest), HTTP_WRONG);
    assert_true(sizeof(text) - rest < 2 * HTTP_CHUNKS_SPARE);
}

static void lists_of_tokens(void **state)
{
    (void)state;
    assert_true(http_list_has(message_text_of("gzip, deflate;q=0.5"), "deflate"));
    assert_true(http_list_has(message_text_of("GZIP"), "gzip"));
    assert_false(http_list_has(message_text_of("xgzip, gzipx"), "gzip"));
    assert_false(http_list_has((struct message_text){0}, "gzip"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_request_is_taken_apart_however_it_is_cut, begin, end),
        cmocka_unit_test_setup_teardown(versions_and_connections, begin, end),
        cmocka_unit_test_setup_teardown(what_is_no_request_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(two_ways_to_find_the_end_are_refused, begin, end),
        cmocka_unit_test_setup_teardown(r8_heads_are_bounded, begin, end),
        cmocka_unit_test_setup_teardown(the_preface_of_http2_is_told, begin, end),
        cmocka_unit_test_setup_teardown(what_it_wants_is_never_too_much, begin, end),
        cmocka_unit_test_setup_teardown(chunks_are_put_together_however_they_are_cut, begin, end),
        cmocka_unit_test_setup_teardown(bad_chunks_are_refused, begin, end),
        cmocka_unit_test_setup_teardown(r8_extensions_of_chunks_are_bounded, begin, end),
        cmocka_unit_test(lists_of_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
