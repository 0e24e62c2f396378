/* SPDX-License-Identifier: Apache-2.0 */
/* The token at the beginning of a request whose rest has not come yet. */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "proto/frame.h"
#include "proto/request.h"
#include "tests/test.h"

static const char token[] = "0123456789abcdef0123456789abcdef0123456789";

/* Looks in a copy of exactly these bytes, so that a read beyond them is seen. */
static enum request_token find(const void *bytes, size_t size, size_t *at, size_t *len)
{
    uint8_t *copy = malloc(size ? size : 1);
    struct message_text text = {0};
    memcpy(copy, bytes, size);
    enum request_token state = request_token_find(copy, size, &text);
    *at = text.data ? (size_t)((const uint8_t *)text.data - copy) : 0;
    *len = text.len;
    assert_int_equal(text.len != 0, state == REQUEST_TOKEN_FOUND);
    assert_true(*at + *len <= size);
    free(copy);
    return state;
}

static void what_the_encoder_writes(void **state)
{
    (void)state;
    static uint8_t head[MESSAGE_HEAD_MAX];
    static struct request request;
    static const float values[4];
    struct iovec iov[MESSAGE_MAX_IOV];
    uint32_t n_iov;
    size_t at, len;
    request = (struct request){
        .id = UINT64_MAX,
        .timeout_us = UINT64_MAX,
        .priority = 3,
        .kind = REQUEST_INFER,
        .token = message_text_of(token),
        .traceparent = message_text_of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        .model = message_text_of("m"),
        .n_inputs = 1,
        .inputs = {{.name = message_text_of("x"),
                    .dtype = DTYPE_F32,
                    .shape = {1, {4}},
                    .data = values,
                    .size = sizeof(values)}}};
    assert_int_equal(request_encode(&request, head, iov, &n_iov, NULL), STATUS_OK);
    const uint8_t *message = (uint8_t *)iov[0].iov_base + FRAME_HEAD_BYTES;
    size_t size = iov[0].iov_len - FRAME_HEAD_BYTES, whole = 0;
    for (size_t n = 0; n <= size; n++) {
        enum request_token got = find(message, n, &at, &len);
        if (!whole && got == REQUEST_TOKEN_FOUND)
            whole = n;
        assert_int_equal(got, whole ? REQUEST_TOKEN_FOUND : REQUEST_TOKEN_MORE);
        if (whole) {
            assert_int_equal(len, strlen(token));
            assert_memory_equal(message + at, token, len);
        }
    }
    assert_true(whole > 0 && whole < 80);

    request.token = (struct message_text){0};
    assert_int_equal(request_encode(&request, head, iov, &n_iov, NULL), STATUS_OK);
    assert_int_equal(find(message, size - strlen(token) - 2, &at, &len), REQUEST_TOKEN_NONE);
}

static void what_is_no_token(void **state)
{
    (void)state;
    static const struct {
        uint8_t bytes[16];
        size_t size;
        enum request_token state;
    } cases[] = {
        {{0}, 0, REQUEST_TOKEN_MORE},
        {{0x22}, 1, REQUEST_TOKEN_MORE},
        {{0x22, 3, 'a', 'b'}, 4, REQUEST_TOKEN_MORE},
        {{0x22, 3, 'a', 'b', 'c'}, 5, REQUEST_TOKEN_FOUND},
        {{0x22, 0}, 2, REQUEST_TOKEN_MORE},          /* an empty token is no token */
        {{0x22, 0x81, 0x08}, 3, REQUEST_TOKEN_NONE}, /* 1,025 bytes */
        {{0x22, 0x80, 0x08}, 3, REQUEST_TOKEN_MORE}, /* 1,024 bytes */
        {{0x52, 1}, 2, REQUEST_TOKEN_NONE},          /* the body */
        {{0x20, 5, 0x52}, 3, REQUEST_TOKEN_NONE},    /* a number where the token belongs */
        {{0x0d, 1, 2, 3, 4}, 5, REQUEST_TOKEN_NONE}, /* fixed32 */
        {{0x0b}, 1, REQUEST_TOKEN_NONE},             /* a group */
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
         11,
         REQUEST_TOKEN_NONE}, /* no varint */
        {{0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
         12,
         REQUEST_TOKEN_NONE},
        {{0x08, 0xff, 0xff}, 3, REQUEST_TOKEN_MORE},
    };
    size_t at, len;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        enum request_token got = find(cases[i].bytes, cases[i].size, &at, &len);
        if (got != cases[i].state)
            fail_msg("case %zu: %d", i, got);
    }
}

static void the_search_is_bounded(void **state)
{
    (void)state;
    static uint8_t many[4096];
    size_t at, len;
    for (size_t i = 0; i < sizeof(many); i += 2)
        many[i] = 0x08; /* the id 0, again and again */
    assert_int_equal(find(many, 8, &at, &len), REQUEST_TOKEN_MORE);
    assert_int_equal(find(many, sizeof(many), &at, &len), REQUEST_TOKEN_NONE);
    memset(many, 'a', sizeof(many));
    for (size_t i = 0; i < sizeof(many); i += 1027) { /* unknown texts of 1,024 bytes */
        many[i] = 0x3a;
        many[i + 1] = 0x80;
        many[i + 2] = 0x08;
    }
    assert_int_equal(find(many, 2047, &at, &len), REQUEST_TOKEN_MORE);
    assert_int_equal(find(many, 2048, &at, &len), REQUEST_TOKEN_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_encoder_writes),
        cmocka_unit_test(what_is_no_token),
        cmocka_unit_test(the_search_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
