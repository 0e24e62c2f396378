/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work for a message is bounded in number, whatever its bytes are. No clock measures how many
 * fields are looked at: behind the largest number that is allowed lies memory that cannot be read.
 */
#include <stdio.h>
#include <sys/mman.h>

#include "proto/request.h"
#include "proto/response.h"
#include "proto/walk.h"
#include "tests/test.h"

/* A frame of which only the first pages can be read. */
enum { FRAME = 64 << 20, READABLE = 64 * 1024 };

static uint8_t *frame;
static struct request request;
static struct response response;

static int setup(void **state)
{
    (void)state;
    frame = mmap(NULL, FRAME, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return frame == MAP_FAILED || mprotect(frame, READABLE, PROT_READ | PROT_WRITE) ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    return munmap(frame, FRAME);
}

static size_t number_put(uint8_t *to, size_t v)
{
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        to[n++] = (uint8_t)(v | 0x80);
    to[n++] = (uint8_t)v;
    return n;
}

static size_t head_put(uint8_t *to, uint32_t tag, size_t len)
{
    size_t n = number_put(to, tag << 3 | 2);
    return n + number_put(to + n, len);
}

/* The whole frame consists of messages one within the other, along `path`, and then of `pattern`
 * again and again. */
static void frame_fill(const uint8_t *path, const char *pattern, size_t len)
{
    size_t at = 0;
    for (; *path; path++) /* the length takes 4 bytes */
        at += head_put(frame + at, *path, FRAME - at - (*path < 16 ? 5 : 6));
    for (; at + len <= READABLE; at += len)
        memcpy(frame + at, pattern, len);
}

struct attack {
    const char *name, *pattern;
    size_t len;
    const char *reason; /* why the request is refused; NULL: any reason */
};

#define P(text) text, sizeof(text) - 1

static const struct attack attacks[] = {
    {"unknown numbers", P("\x48\x00"), "more than 1024 fields"},
    {"unknown numbers of two bytes", P("\xf8\x01\x00"), "more than 1024 fields"},
    {"unknown bytes", P("\x4a\x00"), "more than 1024 fields"},
    {"unknown fixed ones", P("\x4d\x00\x00\x00\x00"), "more than 1024 fields"},
    {"field 1 as a text", P("\x0a\x01m"), NULL},
    {"field 1 as a number", P("\x08\x01"), NULL},
    {"field 2, empty", P("\x12\x00"), NULL},
    {"field 3, unpacked", P("\x18\x01"), NULL},
    {"field 3, empty", P("\x1a\x00"), NULL},
    {"field 4, empty", P("\x22\x00"), NULL},
    {"field 5, empty", P("\x2a\x00"), NULL},
    {"field 6, empty", P("\x32\x00"), NULL},
    {"field 7, empty", P("\x3a\x00"), NULL},
    {"field 10, empty", P("\x52\x00"), NULL},
    {"groups", P("\x4b\x4c"), "malformed"},
    {"no tag", P("\x00\x00"), "malformed"},
    {"a number without an end", P("\x80"), NULL},
};

static const uint8_t paths[][6] = {
    {0},           /* Request, Response */
    {10},          /* ModelInferRequest, ModelInferResponse */
    {10, 4},       /* a parameter */
    {10, 4, 2},    /* its value */
    {10, 5},       /* an input, an output */
    {10, 5, 4},    /* its parameter */
    {10, 5, 4, 2}, /* and the value */
    {10, 6},       /* an output wanted */
    {10, 6, 2},    /* its parameter */
    {10, 6, 2, 2}, /* and the value */
    {11},          {12}, {13}, {14}, {15}, {16}, {17}, {18}, {19}, /* the other bodies */
    {5},                                                           /* Timing */
};

static void r4_no_message_has_more_than_1024_fields(void **state)
{
    (void)state;
    for (size_t p = 0; p < ARRAY_LEN(paths); p++)
        for (size_t a = 0; a < ARRAY_LEN(attacks); a++) {
            const struct attack *attack = &attacks[a];
            struct error err = {0};
            frame_fill(paths[p], attack->pattern, attack->len);
            enum status s = request_decode(frame, FRAME, &request, &err);
            bool walked = paths[p][0] != 5;
            if (walked && s != STATUS_INVALID_ARGUMENT)
                fail_msg("%s at %zu: %s", attack->name, p, status_name(s));
            if (walked && attack->reason && !strstr(err.text, attack->reason))
                fail_msg("%s at %zu: '%s'", attack->name, p, err.text);
            response_decode(frame, FRAME, &response, &err);
            request_id_find(frame, FRAME);
        }
}

/* nanopb steps over a number of any length if nobody wants the number. */
static void r4_a_number_has_an_end(void **state)
{
    (void)state;
    for (size_t p = 0; p < ARRAY_LEN(paths); p++) {
        struct error err = {0};
        frame_fill(paths[p], "\x80", 1);
        size_t at = 0;
        while (frame[at] != 0x80 || frame[at + 1] != 0x80 || frame[at + 5] != 0x80)
            at++;
        frame[at] = 0x48;
        if (paths[p][0] != 5)
            assert_int_equal(request_decode(frame, FRAME, &request, &err), STATUS_INVALID_ARGUMENT);
        assert_int_equal(request_id_find(frame, FRAME), 0);
        response_decode(frame, FRAME, &response, &err);
    }
}

/* Exactly the allowed number of fields is taken, in a frame of any size. */
static size_t fields_put(size_t at, size_t n, const char *pattern, size_t len)
{
    for (; n > 0; n--, at += len)
        memcpy(frame + at, pattern, len);
    return at;
}

static void r4_1024_fields_are_taken(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        size_t len;
    } cases[] = {{P("\x48\x01")}, {P("\xf8\x01\x01")}, {P("\x4d\x01\x01\x01\x01")}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *pattern = cases[i].pattern;
        const size_t len = cases[i].len;
        struct error err = {0};
        /* Fields of server_live itself, and fields beside it. */
        for (size_t within = 0; within < MESSAGE_MAX_FIELDS; within += 341) {
            size_t at = head_put(frame, 11, within * len);
            at = fields_put(at, MESSAGE_MAX_FIELDS - 1, pattern, len);
            if (request_decode(frame, at, &request, &err) != STATUS_OK)
                fail_msg("%zu of %zu bytes: %s", within, len, err.text);
            if (response_decode(frame, at, &response, &err) != STATUS_OK)
                fail_msg("%zu of %zu bytes: %s", within, len, err.text);
            at = fields_put(at, 1, pattern, len);
            assert_int_equal(request_decode(frame, at, &request, &err), STATUS_INVALID_ARGUMENT);
            assert_non_null(strstr(err.text, "more than 1024 fields in a request"));
            assert_int_equal(response_decode(frame, at, &response, &err), STATUS_INVALID_ARGUMENT);
            assert_non_null(strstr(err.text, "more than 1024 fields in a response"));
        }
    }
}

/* The id may be the last of the allowed number of fields. An id behind them is not looked for. */
static void r4_the_id_is_among_the_first(void **state)
{
    (void)state;
    size_t at = fields_put(0, MESSAGE_MAX_FIELDS - 1, "\xf8\x01\x00", 3);
    memcpy(frame + at, "\x08\x07", 2);
    assert_int_equal(request_id_find(frame, at + 2), 7);
    assert_int_equal(request_id_find(frame, FRAME), 7); /* a frame whose rest has not come */
    at = fields_put(at, 1, "\xf8\x01\x00", 3);
    memcpy(frame + at, "\x08\x07", 2);
    assert_int_equal(request_id_find(frame, FRAME), 0);
}

static enum status parameters(unsigned in_request, unsigned in_input, unsigned in_output,
                              struct error *err)
{
    static uint8_t input[8192], infer[16384];
    size_t n = 0, at = 0;
    memcpy(input, P("\x0a\x01x\x12\x05UINT8\x1a\x01\x01"));
    n = sizeof("\x0a\x01x\x12\x05UINT8\x1a\x01\x01") - 1;
    for (unsigned i = 0; i < in_input; i++, n += 5)
        memcpy(input + n, P("\x22\x03\x0a\x01k"));
    memcpy(infer, P("\x0a\x01m\x3a\x01v"));
    at = 6;
    at += head_put(infer + at, 5, n);
    memcpy(infer + at, input, n);
    at += n;
    for (unsigned i = 0; i < in_request; i++, at += 12)
        memcpy(infer + at, P("\x22\x0a\x0a\x01k\x12\x05\x1a\x03txt"));
    at += head_put(infer + at, 6, 3 + 2 * (size_t)in_output);
    memcpy(infer + at, P("\x0a\x01y"));
    at += 3;
    for (unsigned i = 0; i < in_output; i++, at += 2)
        memcpy(infer + at, P("\x12\x00"));
    n = head_put(frame, 10, at);
    memcpy(frame + n, infer, at);
    return request_decode(frame, n + at, &request, err);
}

static void r4_a_request_has_64_parameters(void **state)
{
    (void)state;
    static const unsigned most[][3] = {{64, 0, 0}, {0, 64, 0}, {0, 0, 64}, {20, 30, 14}};
    for (size_t i = 0; i < ARRAY_LEN(most); i++)
        for (unsigned where = 0; where < 3; where++) {
            struct error err = {0};
            if (parameters(most[i][0], most[i][1], most[i][2], &err) != STATUS_OK)
                fail_msg("case %zu: %s", i, err.text);
            assert_int_equal(parameters(most[i][0] + (where == 0), most[i][1] + (where == 1),
                                        most[i][2] + (where == 2), &err),
                             STATUS_INVALID_ARGUMENT);
            assert_string_equal(err.text, "more than 64 parameters");
        }
}

/* The largest request that the other caps allow does not come near this limit, as clients write
 * it. */
static void r4_the_largest_request_has_fewer(void **state)
{
    (void)state;
    static struct request sent;
    static uint8_t head[MESSAGE_HEAD_MAX];
    static char names[MESSAGE_MAX_TENSORS][16];
    struct iovec iov[MESSAGE_MAX_IOV];
    uint32_t n_iov;
    struct error err = {0};
    static uint8_t payload[64];
    sent = (struct request){.id = 1,
                            .timeout_us = 1,
                            .priority = 1,
                            .kind = REQUEST_INFER,
                            .token = message_text_of("t"),
                            .traceparent = message_text_of("t"),
                            .model = message_text_of("m"),
                            .version = message_text_of("1"),
                            .infer_id = message_text_of("caf\xc3\xa9"),
                            .n_inputs = MESSAGE_MAX_TENSORS,
                            .n_outputs = MESSAGE_MAX_TENSORS};
    for (int i = 0; i < MESSAGE_MAX_TENSORS; i++) {
        snprintf(names[i], sizeof(names[i]), "t%d", i);
        sent.outputs[i] = message_text_of(names[i]);
        sent.inputs[i] = (struct message_tensor){.name = sent.outputs[i],
                                                 .dtype = DTYPE_U8,
                                                 .shape = {8, {1, 1, 1, 1, 1, 1, 1, 64}},
                                                 .data = payload,
                                                 .size = sizeof(payload)};
    }
    assert_int_equal(request_encode(&sent, head, iov, &n_iov, &err), STATUS_OK);
    size_t at = 0;
    for (uint32_t i = 0; i < n_iov; at += iov[i++].iov_len)
        memcpy(frame + at, iov[i].iov_base, iov[i].iov_len);
    if (request_decode(frame + 4, at - 4, &request, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_true(message_text_equal(request.infer_id, sent.infer_id));
}

/* A message that is large enough to be counted gets the same verdict as one that is too small for
 * it: a request behind padding is the same request, whatever damage it has. */
static void counting_changes_no_verdict(void **state)
{
    (void)state;
    static const char good[] = "\x08\x2a\x10\x05\x22\x01t\x52\x31\x0a\x01m\x12\x01\x31\x1a\x02id"
                               "\x22\x0a\x0a\x01k\x12\x05\x1a\x03txt"
                               "\x2a\x11\x0a\x01x\x12\x05UINT8\x1a\x01\x01\x22\x02\x12\x00"
                               "\x32\x03\x0a\x01y\x3a\x01v";
    const size_t len = sizeof(good) - 1;
    uint8_t message[sizeof(good)];
    uint64_t seed = 1;
    uint32_t taken = 0;
    /* One unknown field makes the message large enough to be counted. */
    const size_t padding =
        fields_put(0, 1, "\x4a\x80\x10", 3) + (size_t)MESSAGE_MAX_FIELDS * PROTO_WALK_BYTES_MIN;
    for (int round = 0; round < 50000; round++) {
        memcpy(message, good, len);
        for (int k = round ? 2 : 0; k > 0; k--) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            message[(seed >> 33) % len] = (uint8_t)(seed >> 25);
        }
        memcpy(frame + padding, message, len);
        struct error err = {0}, other = {0};
        enum status s = request_decode(message, len, &request, &err);
        const uint64_t id = request.id;
        enum status t = request_decode(frame, padding + len, &request, &other);
        if (s != t)
            fail_msg("'%s', but counted '%s'", err.text, other.text);
        assert_int_equal(request.id, id);
        taken += s == STATUS_OK;
    }
    assert_in_range(taken, 1000, 49000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(r4_no_message_has_more_than_1024_fields, setup, teardown),
        cmocka_unit_test_setup_teardown(r4_a_number_has_an_end, setup, teardown),
        cmocka_unit_test_setup_teardown(r4_1024_fields_are_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(r4_the_id_is_among_the_first, setup, teardown),
        cmocka_unit_test_setup_teardown(r4_a_request_has_64_parameters, setup, teardown),
        cmocka_unit_test_setup_teardown(counting_changes_no_verdict, setup, teardown),
        cmocka_unit_test_setup_teardown(r4_the_largest_request_has_fewer, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
