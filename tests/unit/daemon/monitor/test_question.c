/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "daemon/monitor/question.h"
#include "tests/test.h"

static struct http_reader *reader;
static struct question question;
static size_t used;

/* The status that bytes get; 0: they are no whole head. */
static unsigned parse_bytes(const char *text, size_t size)
{
    struct error err;
    unsigned status = 0;
    http_reader_next(reader);
    enum http_step step = http_reader_head(reader, text, size, &used, &status, &err);
    assert_true(used <= size);
    if (step != HTTP_DONE)
        return step == HTTP_MORE ? 0 : step == HTTP_TWO ? 505 : status;
    return question_read(http_reader_request(reader), &question);
}

static unsigned parse(const char *text)
{
    return parse_bytes(text, strlen(text));
}

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

static void a_request_is_read(void **state)
{
    (void)state;
    assert_int_equal(parse("GET /a%20b/c?d=%20&e HTTP/1.1\r\nHost: x\r\n\r\nGET"), 200);
    assert_string_equal(question.path, "/a b/c");
    assert_true(message_text_equal(question.query, message_text_of("d=%20&e")));
    assert_true(question.keep);
    assert_false(question.head);
    assert_int_equal(used, strlen("GET /a%20b/c?d=%20&e HTTP/1.1\r\nHost: x\r\n\r\n"));
    assert_int_equal(parse("HEAD / HTTP/1.0\r\n\r\n"), 200);
    assert_int_equal(question.query.len, 0);
    assert_true(question.head);
    assert_false(question.keep);
    assert_int_equal(parse("GET / HTTP/1.1\r\nHost: x\r\nconnection: Close\r\n\r\n"), 200);
    assert_false(question.keep);
}

static void each_beginning_is_not_yet_a_request(void **state)
{
    (void)state;
    const char whole[] = "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer abc\r\n\r\n";
    for (size_t n = 0; n < sizeof(whole) - 1; n++)
        assert_int_equal(parse_bytes(whole, n), 0);
    assert_int_equal(parse(whole), 200);
    assert_string_equal(question.token, "abc");
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
        assert_string_equal(question.token, rows[i].token);
    }
    /* One that is too long is cut, and still too long to be one of ours. */
    char line[512], longer[300];
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    snprintf(line, sizeof(line), "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n",
             longer);
    assert_int_equal(parse(line), 200);
    assert_int_equal(strlen(question.token), TOKEN_MOST);
    assert_int_equal(parse("GET / HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\nAuthorization: b\r\n"
                           "\r\n"),
                     400);
}

/* What the reader lets pass, and nobody here can use. */
static void what_is_no_question_is_refused(void **state)
{
    (void)state;
    static const struct {
        unsigned status;
        const char *text;
    } rows[] = {
        {405, "POST / HTTP/1.1\r\nHost: x\r\n\r\n"},
        {405, "DELETE / HTTP/1.1\r\nHost: x\r\n\r\n"},
        {413, "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n"},
        {413, "GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {200, "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"},
        {200, "GET http://x/metrics HTTP/1.1\r\nHost: x\r\n\r\n"},
        {400, "GET /%0a HTTP/1.1\r\nHost: x\r\n\r\n"},
        {400, "GET /%2 HTTP/1.1\r\nHost: x\r\n\r\n"},
        {505, "PRI * HTTP/2.0\r\n\r\n"},
    };
    char text[2048];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(parse(rows[i].text), rows[i].status);
    /* The longest path, and one byte more. */
    for (int n = QUESTION_PATH_MOST - 2; n < QUESTION_PATH_MOST; n++) {
        snprintf(text, sizeof(text), "GET /%0*d HTTP/1.1\r\nHost: x\r\n\r\n", n, 0);
        assert_int_equal(parse(text), n < QUESTION_PATH_MOST - 1 ? 200 : 414);
    }
}

/* Every byte in every place: either refused or read, and never more than there is. */
static void every_byte_everywhere(void **state)
{
    (void)state;
    static const char whole[] = "GET /m?a=b HTTP/1.1\r\nHost: x\r\nB: c\r\n\r\n";
    for (size_t at = 0; at < sizeof(whole) - 1; at++)
        for (int byte = 0; byte < 256; byte++) {
            char text[sizeof(whole)];
            memcpy(text, whole, sizeof(whole));
            text[at] = (char)byte;
            unsigned status = parse_bytes(text, sizeof(whole) - 1);
            if (status == 200 && (byte < 0x20 || byte == 0x7f) && byte != '\t' && byte != whole[at])
                fail_msg("byte %d at %zu passed", byte, at);
        }
}

static void queries(void **state)
{
    (void)state;
    char value[8];
    size_t at = 0;
    struct message_text query = message_text_of("a=1&bc=2&a=3&a=toolong123&a");
    assert_true(question_value(query, "a", &at, value, sizeof(value)));
    assert_string_equal(value, "1");
    assert_true(question_value(query, "a", &at, value, sizeof(value)));
    assert_string_equal(value, "3");
    assert_false(question_value(query, "a", &at, value, sizeof(value)));
    at = 0;
    assert_false(question_value((struct message_text){0}, "a", &at, value, sizeof(value)));
    assert_false(question_value(query, "b", &at, value, sizeof(value)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_read),
        cmocka_unit_test(each_beginning_is_not_yet_a_request),
        cmocka_unit_test(tokens),
        cmocka_unit_test(what_is_no_question_is_refused),
        cmocka_unit_test(every_byte_everywhere),
        cmocka_unit_test(queries),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
