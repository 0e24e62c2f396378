/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/frame.h"
#include "proto/request.h"
#include "tests/test.h"

/* A test's stack is larger than the server's. */
#pragma GCC diagnostic ignored "-Wframe-larger-than="

/* Bytes of a message written by hand; protobuf's wire format in three functions. */
struct wire {
    size_t len;
    uint8_t at[32768];
};

static void put_varint(struct wire *w, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        w->at[w->len++] = (uint8_t)(v | 0x80);
    w->at[w->len++] = (uint8_t)v;
}

static void put_uint(struct wire *w, uint32_t tag, uint64_t v)
{
    put_varint(w, tag << 3);
    put_varint(w, v);
}

static void put_bytes(struct wire *w, uint32_t tag, const void *data, size_t len)
{
    put_varint(w, tag << 3 | 2);
    put_varint(w, len);
    memcpy(w->at + w->len, data, len);
    w->len += len;
}

static void put_text(struct wire *w, uint32_t tag, const char *text)
{
    put_bytes(w, tag, text, strlen(text));
}

static void put_wire(struct wire *w, uint32_t tag, const struct wire *sub)
{
    put_bytes(w, tag, sub->at, sub->len);
}

static struct wire *wire_new(void)
{
    return calloc(1, sizeof(struct wire));
}

static void put_input(struct wire *infer, const char *name, const char *datatype, uint32_t rank,
                      const int64_t *dims)
{
    struct wire *input = wire_new();
    put_text(input, 1, name);
    put_text(input, 2, datatype);
    for (uint32_t i = 0; i < rank; i++)
        put_uint(input, 3, (uint64_t)dims[i]); /* unpacked: the decoder has to read both forms */
    put_wire(infer, 5, input);
    free(input);
}

static struct request request; /* large, so static: one test runs at a time */

static enum status decode(const struct wire *w, struct error *err)
{
    /* A copy of exactly the message's size, and unaligned, so that a sanitizer sees any step beyond
     * it. */
    uint8_t *copy = malloc(w->len + 1);
    memcpy(copy + 1, w->at, w->len);
    *err = (struct error){0};
    enum status s = request_decode(copy + 1, w->len, &request, err);
    free(copy);
    return s;
}

static void refused(const struct wire *w, const char *reason)
{
    struct error err;
    enum status s = decode(w, &err);
    if (s != STATUS_INVALID_ARGUMENT || !strstr(err.text, reason))
        fail_msg("%s '%s' does not say '%s'", status_name(s), err.text, reason);
}

static void a_request_comes_back_as_it_was_sent(void **state)
{
    (void)state;
    static struct request sent;
    static uint8_t head[MESSAGE_HEAD_MAX];
    const float x[4] = {1, 2, 3, 4};
    const uint8_t y[3] = {7, 8, 9};
    sent = (struct request){.id = 1ull << 40,
                            .timeout_us = 5000,
                            .priority = 2,
                            .kind = REQUEST_INFER,
                            .token = message_text_of("secret"),
                            .traceparent = message_text_of("00-ab-cd-01"),
                            .model = message_text_of("digits"),
                            .version = message_text_of("3"),
                            .infer_id = message_text_of("my id"),
                            .n_inputs = 3,
                            .n_outputs = 1};
    sent.outputs[0] = message_text_of("probabilities");
    sent.inputs[0] = (struct message_tensor){.name = message_text_of("x"),
                                             .dtype = DTYPE_F32,
                                             .shape = {2, {2, 2}},
                                             .data = x,
                                             .size = sizeof(x)};
    sent.inputs[1] = (struct message_tensor){
        .name = message_text_of("none"), .dtype = DTYPE_I64, .shape = {2, {2, 0}}};
    sent.inputs[2] = (struct message_tensor){.name = message_text_of("y"),
                                             .dtype = DTYPE_U8,
                                             .shape = {1, {3}},
                                             .data = y,
                                             .size = sizeof(y)};
    struct iovec iov[MESSAGE_MAX_IOV];
    uint32_t n_iov;
    struct error err = {0};
    assert_int_equal(request_encode(&sent, head, iov, &n_iov, &err), STATUS_OK);
    assert_int_equal(n_iov, 4); /* the empty payload has no piece of its own */
    assert_ptr_equal(iov[1].iov_base, x);

    uint8_t frame[1024];
    size_t len = 0;
    for (uint32_t i = 0; i < n_iov; i++) {
        memcpy(frame + len, iov[i].iov_base, iov[i].iov_len);
        len += iov[i].iov_len;
    }
    assert_int_equal(frame_head_read(frame), len - 4);
    if (request_decode(frame + 4, len - 4, &request, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(request.id, sent.id);
    assert_int_equal(request.timeout_us, 5000);
    assert_int_equal(request.priority, 2);
    assert_int_equal(request.kind, REQUEST_INFER);
    assert_true(message_text_equal(request.token, sent.token));
    assert_true(message_text_equal(request.traceparent, sent.traceparent));
    assert_true(message_text_equal(request.model, sent.model));
    assert_true(message_text_equal(request.version, sent.version));
    assert_true(message_text_equal(request.infer_id, sent.infer_id));
    assert_int_equal(request.n_inputs, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(message_text_equal(request.inputs[i].name, sent.inputs[i].name));
        assert_int_equal(request.inputs[i].dtype, sent.inputs[i].dtype);
        assert_true(shape_equal(&request.inputs[i].shape, &sent.inputs[i].shape));
        assert_int_equal(request.inputs[i].size, sent.inputs[i].size);
    }
    assert_memory_equal(request.inputs[0].data, x, sizeof(x));
    assert_memory_equal(request.inputs[2].data, y, sizeof(y));
    assert_int_equal(request.n_outputs, 1);
    assert_true(message_text_equal(request.outputs[0], sent.outputs[0]));
}

static void the_other_kinds_come_back(void **state)
{
    (void)state;
    static uint8_t head[MESSAGE_HEAD_MAX];
    for (int kind = REQUEST_SERVER_LIVE; kind <= REQUEST_SERVER_STATUS; kind++) {
        static struct request sent;
        sent = (struct request){.id = 9,
                                .kind = (enum request_kind)kind,
                                .model = message_text_of("m"),
                                .version = message_text_of("1"),
                                .ready_only = true,
                                .target = 77};
        struct iovec iov[MESSAGE_MAX_IOV];
        uint32_t n_iov;
        struct error err = {0};
        assert_int_equal(request_encode(&sent, head, iov, &n_iov, &err), STATUS_OK);
        assert_int_equal(n_iov, 1);
        assert_int_equal(request_decode(head + 4, iov[0].iov_len - 4, &request, &err), STATUS_OK);
        assert_int_equal(request.kind, kind);
        assert_int_equal(request.id, 9);
        bool named = kind == REQUEST_MODEL_READY || kind == REQUEST_MODEL_METADATA ||
                     kind == REQUEST_STATISTICS;
        assert_int_equal(request.model.len, named ? 1 : 0);
        assert_int_equal(request.version.len, named ? 1 : 0);
        assert_int_equal(request.ready_only, kind == REQUEST_REPOSITORY_INDEX);
        assert_int_equal(request.target, kind == REQUEST_CANCEL ? 77 : 0);
    }
}

static void field_order_does_not_matter(void **state)
{
    (void)state;
    struct wire *infer = wire_new(), *w = wire_new();
    const int64_t dims[] = {1, 2};
    put_bytes(infer, 7, "ab", 2); /* contents before the input they belong to */
    put_uint(infer, 999, 5);      /* unknown: skipped */
    put_input(infer, "x", "UINT8", 2, dims);
    put_text(infer, 1, "m");
    put_wire(w, 10, infer);
    put_uint(w, 1, 42); /* the id last */
    struct error err;
    if (decode(w, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(request.id, 42);
    assert_int_equal(request.inputs[0].size, 2);
    free(infer);
    free(w);
}

static void a_typed_input_is_kept_for_later(void **state)
{
    (void)state;
    struct wire *infer = wire_new(), *w = wire_new(), *input = wire_new();
    put_text(input, 1, "x");
    put_text(input, 2, "FP32");
    put_bytes(input, 3, "\x01\x01", 2);
    put_bytes(input, 5, "\x32\x04\x00\x00\x80\x3f", 6);
    put_text(infer, 1, "m");
    put_wire(infer, 5, input);
    put_wire(w, 10, infer);
    struct error err;
    if (decode(w, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_true(request.inputs[0].typed);
    assert_int_equal(request.inputs[0].contents.len, 6);

    /* A shape that these contents cannot fill is refused before memory is taken for it. */
    const char *const datatypes[] = {"FP32", "FP64", "UINT8", "INT64", "BF16"};
    for (size_t i = 0; i < ARRAY_LEN(datatypes); i++)
        for (uint64_t more = 0; more < 2; more++) {
            input->len = infer->len = w->len = 0;
            put_text(input, 1, "x");
            put_text(input, 2, datatypes[i]);
            put_uint(input, 3, 8 + more);
            put_bytes(input, 5, "abcdefgh", 8);
            put_text(infer, 1, "m");
            put_wire(infer, 5, input);
            put_wire(w, 10, infer);
            if (more)
                refused(w, "input 'x': of its 9 elements at least 1 are missing");
            else if (decode(w, &err) != STATUS_OK)
                fail_msg("%s: %s", datatypes[i], err.text);
        }

    put_bytes(infer, 7, "abcd", 4);
    w->len = 0;
    put_wire(w, 10, infer);
    refused(w, "may not be used together");

    put_bytes(input, 5, "\x32\x04\x00\x00\x80\x3f", 6);
    infer->len = w->len = 0;
    put_wire(infer, 5, input);
    put_wire(w, 10, infer);
    refused(w, "contents twice");
    free(infer);
    free(input);
    free(w);
}

static void r3_shapes_and_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *datatype;
        uint32_t rank;
        int64_t dims[9];
        size_t size;
        const char *reason; /* NULL: accepted */
    } cases[] = {
        {"UINT8", 1, {4}, 4, NULL},
        {"UINT8", 1, {0}, 0, NULL},
        {"UINT8", 0, {0}, 1, NULL},
        {"FP32", 2, {2, 2}, 16, NULL},
        {"FP32", 2, {2, 2}, 15, "FP32 of [2,2] takes 16 bytes, 15 came"},
        {"FP32", 1, {1}, 8, "takes 4 bytes, 8 came"},
        {"FP32", 1, {-1}, 4, "[?] is not a shape"},
        {"FP32", 1, {INT64_MAX}, 4, "is not a shape"},
        {"FP32", 1, {INT64_MIN}, 4, "is not a shape"},
        {"FP32", 2, {INT64_MAX, INT64_MAX}, 4, "is not a shape"},
        {"UINT8", 2, {1ll << 32, 1ll << 32}, 0, "is not a shape"},
        {"UINT8", 9, {1, 1, 1, 1, 1, 1, 1, 1, 1}, 1, "more than 8 dimensions"},
        {"BYTES", 1, {1}, 1, "datatype 'BYTES' is not served"},
        {"fp32", 1, {1}, 4, "datatype 'fp32' is not served"},
        {"", 1, {1}, 4, "datatype '' is not served"},
    };
    struct wire *infer = wire_new(), *w = wire_new();
    const char payload[16] = {0};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        infer->len = w->len = 0;
        put_text(infer, 1, "m");
        put_input(infer, "x", cases[i].datatype, cases[i].rank, cases[i].dims);
        put_bytes(infer, 7, payload, cases[i].size);
        put_wire(w, 10, infer);
        struct error err;
        if (cases[i].reason)
            refused(w, cases[i].reason);
        else if (decode(w, &err) != STATUS_OK)
            fail_msg("case %zu: %s", i, err.text);
    }
    free(infer);
    free(w);
}

/* The parameter in the request, in an input and in a requested output; other parameters change
 * nothing. */
static void r11_shared_memory_is_refused(void **state)
{
    (void)state;
    struct wire *entry = wire_new(), *sub = wire_new(), *infer = wire_new(), *w = wire_new();
    const char *const keys[] = {"shared_memory_region", "shared_memory_byte_size", "sequence_id"};
    for (int where = 0; where < 3; where++) {
        for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
            entry->len = sub->len = infer->len = w->len = 0;
            put_text(infer, 1, "m");
            put_text(entry, 1, keys[k]);
            if (where == 0) {
                put_wire(infer, 4, entry);
            } else {
                put_text(sub, 1, "t");
                put_text(sub, 2, where == 1 ? "UINT8" : "");
                sub->len -= where == 2 ? 2 : 0;
                put_wire(sub, where == 1 ? 4 : 2, entry);
                put_wire(infer, where == 1 ? 5 : 6, sub);
                if (where == 1)
                    put_bytes(infer, 7, "a", 1);
            }
            put_wire(w, 10, infer);
            struct error err;
            if (k < 2)
                refused(w, "no shared memory is offered");
            else if (decode(w, &err) != STATUS_OK)
                fail_msg("place %d: %s", where, err.text);
        }
    }
    free(entry);
    free(sub);
    free(infer);
    free(w);
}

/* The choices of a parameter's value follow each other: the last one counts, and nothing of the
 * first is taken for a callback's address by the second. */
static void r1_a_parameter_of_two_values_is_one_of_the_last(void **state)
{
    (void)state;
    struct wire *value = wire_new(), *entry = wire_new(), *infer = wire_new(), *w = wire_new();
    for (uint32_t first = 1; first <= 5; first++) {
        value->len = entry->len = infer->len = w->len = 0;
        if (first == 3) {
            put_text(value, 3, "text");
        } else if (first == 4) {
            put_varint(value, 4 << 3 | 1); /* a double */
            put_varint(value, 1000);
            memset(value->at + value->len, 0, 6);
            value->len += 6;
        } else {
            put_uint(value, first, first == 1 ? 1 : 1000);
        }
        put_text(value, 3, "of two");
        put_text(entry, 1, "sequence_id");
        put_wire(entry, 2, value);
        put_text(infer, 1, "m");
        put_wire(infer, 4, entry);
        put_wire(w, 10, infer);
        struct error err;
        if (decode(w, &err) != STATUS_OK)
            fail_msg("first choice %u: %s", first, err.text);
        assert_int_equal(request.model.len, 1);
    }
    free(value);
    free(entry);
    free(infer);
    free(w);
}

static void r4_counts_are_capped(void **state)
{
    (void)state;
    struct wire *infer = wire_new(), *w = wire_new(), *output = wire_new();
    const int64_t one[] = {1};
    put_text(infer, 1, "m");
    for (int n = 1; n <= 65; n++) {
        char name[16];
        snprintf(name, sizeof(name), "x%d", n);
        put_input(infer, name, "UINT8", 1, one);
        if (n < 65)
            put_bytes(infer, 7, "a", 1);
        if (n == 64) {
            struct error err;
            put_wire(w, 10, infer);
            if (decode(w, &err) != STATUS_OK)
                fail_msg("%s", err.text);
            assert_int_equal(request.n_inputs, 64);
        }
    }
    w->len = 0;
    put_wire(w, 10, infer);
    refused(w, "more than 64 inputs");

    infer->len = w->len = 0;
    put_text(infer, 1, "m");
    for (int n = 0; n < 65; n++)
        put_bytes(infer, 7, "a", 1);
    put_wire(w, 10, infer);
    refused(w, "more than 64 raw contents");

    infer->len = w->len = 0;
    for (int n = 0; n < 65; n++)
        put_wire(infer, 6, output);
    put_wire(w, 10, infer);
    refused(w, "more than 64 outputs");
    free(infer);
    free(w);
    free(output);
}

static void r4_names_are_checked_and_duplicates_refused(void **state)
{
    (void)state;
    struct wire *infer = wire_new(), *w = wire_new(), *output = wire_new();
    const int64_t one[] = {1};
    char longest[66] = {0};
    memset(longest, 'x', 65);
    static const struct {
        const char *a, *b, *reason;
    } inputs[] = {
        {"a", "a", "input 'a' is there twice"}, {"a", "", "1 to 64"}, {"a", "b c", "1 to"}};
    for (size_t i = 0; i < ARRAY_LEN(inputs); i++) {
        infer->len = w->len = 0;
        put_text(infer, 1, "m");
        put_input(infer, inputs[i].a, "UINT8", 1, one);
        put_input(infer, inputs[i].b, "UINT8", 1, one);
        put_bytes(infer, 7, "a", 1);
        put_bytes(infer, 7, "a", 1);
        put_wire(w, 10, infer);
        refused(w, inputs[i].reason);
    }
    infer->len = w->len = 0;
    put_text(infer, 1, "m");
    put_input(infer, longest, "UINT8", 1, one);
    put_bytes(infer, 7, "a", 1);
    put_wire(w, 10, infer);
    refused(w, "1 to 64");

    infer->len = w->len = 0;
    put_text(infer, 1, "m");
    put_text(output, 1, "o");
    put_wire(infer, 6, output);
    put_wire(infer, 6, output);
    put_wire(w, 10, infer);
    refused(w, "requested output 'o' is there twice");

    const char *const models[] = {"", "../m", ".m", longest};
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        infer->len = w->len = 0;
        put_text(infer, 1, models[i]);
        put_wire(w, 10, infer);
        refused(w, i ? "no model name" : "names no model");
    }
    free(infer);
    free(w);
    free(output);
}

static void contents_and_inputs_must_pair(void **state)
{
    (void)state;
    struct wire *infer = wire_new(), *w = wire_new();
    const int64_t one[] = {1};
    put_text(infer, 1, "m");
    put_input(infer, "x", "UINT8", 1, one);
    put_wire(w, 10, infer);
    refused(w, "1 inputs but 0 entries in raw_input_contents");
    put_bytes(infer, 7, "a", 1);
    put_bytes(infer, 7, "b", 1);
    w->len = 0;
    put_wire(w, 10, infer);
    refused(w, "1 inputs but 2 entries");
    free(infer);
    free(w);
}

static void r6_groups_are_refused(void **state)
{
    (void)state;
    struct wire *w = wire_new();
    put_varint(w, 100 << 3 | 3); /* an unknown group, empty */
    put_varint(w, 100 << 3 | 4);
    put_uint(w, 1, 5);
    refused(w, "malformed");
    w->len = 0;
    put_varint(w, 10 << 3 | 3); /* the body as a group */
    put_varint(w, 10 << 3 | 4);
    refused(w, "malformed");
    free(w);
}

/* nanopb hands such fields over in a buffer on its own stack, so their place must not be kept. */
static void wrong_wire_types_are_refused(void **state)
{
    (void)state;
    struct wire *infer = wire_new(), *w = wire_new();
    const uint32_t tags[] = {1, 2, 3, 7};
    for (size_t i = 0; i < ARRAY_LEN(tags); i++) {
        for (int type = 0; type <= 5; type++) {
            if (type == 2)
                continue;
            infer->len = w->len = 0;
            put_varint(infer, tags[i] << 3 | (uint32_t)type);
            for (int k = 0; k < 8; k++)
                put_varint(infer, 0);
            put_wire(w, 10, infer);
            refused(w, "malformed");
        }
    }
    w->len = 0;
    put_uint(w, 4, 7); /* the token as a number */
    put_uint(w, 1, 3);
    refused(w, "malformed");
    assert_int_equal(request.id, 3);
    free(infer);
    free(w);
}

static void a_broken_request_keeps_its_id(void **state)
{
    (void)state;
    struct wire *w = wire_new();
    put_uint(w, 1, 77);
    put_bytes(w, 10, "\xff\xff\xff", 3);
    refused(w, "malformed");
    assert_int_equal(request.id, 77);

    w->len = 0;
    put_bytes(w, 10, "\xff\xff\xff", 3);
    put_uint(w, 1, 78); /* behind the damage */
    refused(w, "malformed");
    assert_int_equal(request.id, 78);

    w->len = 0;
    put_bytes(w, 10, "", 0);
    w->at[w->len - 1] = 100; /* longer than the frame */
    refused(w, "malformed");
    assert_int_equal(request.id, 0);
    free(w);
}

static void one_body(void **state)
{
    (void)state;
    struct wire *w = wire_new();
    struct error err;
    refused(w, "no body");
    put_uint(w, 1, 1);
    put_bytes(w, 9, "an unknown field, and not among the bodies", 42);
    put_uint(w, 20, 5); /* no message, and so no body */
    refused(w, "no body");
    put_bytes(w, 99, "new kind", 8);
    put_bytes(w, 20, "", 0);
    assert_int_equal(decode(w, &err), STATUS_UNIMPLEMENTED);
    assert_string_equal(err.text, "this server does not know the body of field 99");
    assert_int_equal(request.id, 1);
    /* beside a body that is known, it is an unknown field like any other */
    put_bytes(w, 11, "", 0);
    assert_int_equal(decode(w, &err), STATUS_OK);
    put_bytes(w, 11, "", 0);
    refused(w, "one body");
    w->len = 0;
    put_bytes(w, 11, "", 0);
    put_bytes(w, 12, "", 0);
    refused(w, "one body");
    free(w);
}

/* Text that is quoted in an error or echoed in a reply is UTF-8, whatever came. */
static void r10_what_comes_back_is_utf8(void **state)
{
    (void)state;
    static const char *const texts[] = {"\xff", "caf\xc3", "\xed\xa0\x80", "a\x80z", "\xc0\x80"};
    struct wire *infer = wire_new(), *w = wire_new(), *output = wire_new();
    struct error err;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        for (uint32_t where = 0; where < 6; where++) {
            static const int64_t one[] = {1};
            infer->len = w->len = output->len = 0;
            put_text(infer, 1, where == 0 ? texts[i] : "m");
            put_text(infer, 2, where == 1 ? texts[i] : "1");
            put_text(infer, 3, where == 2 ? texts[i] : "caf\xc3\xa9");
            put_input(infer, where == 3 ? texts[i] : "x", where == 4 ? texts[i] : "UINT8", 1, one);
            put_text(output, 1, where == 5 ? texts[i] : "y");
            put_wire(infer, 6, output);
            put_bytes(infer, 7, "a", 1);
            put_wire(w, 10, infer);
            assert_int_equal(decode(w, &err), STATUS_INVALID_ARGUMENT);
            if (!utf8_ok(err.text, strlen(err.text)) || !strstr(err.text, "\\x"))
                fail_msg("case %zu at %u: '%s'", i, where, err.text);
            if (where == 2)
                assert_non_null(strstr(err.text, "is not UTF-8"));
        }
    /* The text is cut at 80 bytes, or one byte before if a character ends there. */
    char longest[112] = "a";
    for (size_t i = 1; i + 1 < sizeof(longest); i += 2)
        memcpy(longest + i, "\xc3\xa9", 2);
    for (size_t from = 0; from < 2; from++) {
        infer->len = w->len = 0;
        put_bytes(infer, 1, longest + from, 111 - from);
        put_wire(w, 10, infer);
        refused(w, "\xc3\xa9' is no model name");
        assert_int_equal(decode(w, &err), STATUS_INVALID_ARGUMENT);
        assert_null(strchr(err.text, '\\'));
    }
    free(infer);
    free(output);
    free(w);
}

static void every_truncation_is_refused_or_short(void **state)
{
    (void)state;
    struct wire *infer = wire_new(), *w = wire_new();
    const int64_t dims[] = {1, 4};
    put_text(infer, 1, "m");
    put_input(infer, "x", "FP32", 2, dims);
    put_bytes(infer, 7, "0123456789abcdef", 16);
    put_uint(w, 1, 300);
    put_wire(w, 10, infer);
    size_t whole = w->len;
    struct error err;
    for (w->len = 0; w->len < whole; w->len++)
        assert_int_not_equal(decode(w, &err), STATUS_OK);
    assert_int_equal(decode(w, &err), STATUS_OK);
    free(infer);
    free(w);
}

static void random_damage_is_survived(void **state)
{
    (void)state;
    struct wire *infer = wire_new(), *w = wire_new();
    const int64_t dims[] = {1, 4};
    put_text(infer, 1, "m");
    put_input(infer, "x", "FP32", 2, dims);
    put_bytes(infer, 7, "0123456789abcdef", 16);
    put_uint(w, 1, 300);
    put_wire(w, 10, infer);
    uint64_t seed = 1;
    int good = 0;
    for (int round = 0; round < 20000; round++) {
        uint8_t kept[256];
        memcpy(kept, w->at, w->len);
        for (int k = 0; k < 3; k++) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            w->at[(seed >> 33) % w->len] = (uint8_t)(seed >> 25);
        }
        struct error err;
        enum status s = decode(w, &err);
        assert_true(s == STATUS_OK || s == STATUS_INVALID_ARGUMENT || s == STATUS_UNIMPLEMENTED);
        assert_true(s == STATUS_OK || err.text[0]);
        assert_true(utf8_ok(err.text, strlen(err.text)));
        good += s == STATUS_OK;
        memcpy(w->at, kept, w->len);
    }
    assert_true(good < 20000);
    free(infer);
    free(w);
}

/* A message nested as deep as a frame allows, on a 64 KiB stack. */
static void *decode_deep(void *arg)
{
    static uint8_t deep[1 << 20];
    size_t at = sizeof(deep);
    /* Built from the inside out, with fields that exist on that level and unknown ones in turn. */
    for (uint32_t level = 0; at > 16; level++) {
        const uint8_t tags[] = {10 << 3 | 2, 5 << 3 | 2, 7 << 3 | 2, 4 << 3 | 2};
        size_t len = sizeof(deep) - at;
        uint8_t head[6] = {tags[level % 4]};
        size_t n = 1;
        for (size_t v = len;; v >>= 7) {
            head[n++] = (uint8_t)((v & 0x7f) | (v >= 0x80 ? 0x80 : 0));
            if (v < 0x80)
                break;
        }
        at -= n;
        memcpy(deep + at, head, n);
    }
    struct error err;
    for (size_t skip = 0; skip < 64; skip++)
        if (request_decode(deep + at + skip, sizeof(deep) - at - skip, &request, &err) == STATUS_OK)
            *(bool *)arg = true;
    return NULL;
}

static void r5_recursion_fits_a_small_stack(void **state)
{
    (void)state;
    pthread_attr_t attr;
    pthread_t thread;
    bool decoded = false;
    size_t size = 64 * 1024;
    if (size < (size_t)PTHREAD_STACK_MIN)
        size = (size_t)PTHREAD_STACK_MIN;
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, size), 0);
    assert_int_equal(pthread_create(&thread, &attr, decode_deep, &decoded), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
    assert_false(decoded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_comes_back_as_it_was_sent),
        cmocka_unit_test(the_other_kinds_come_back),
        cmocka_unit_test(field_order_does_not_matter),
        cmocka_unit_test(a_typed_input_is_kept_for_later),
        cmocka_unit_test(r3_shapes_and_sizes),
        cmocka_unit_test(r4_counts_are_capped),
        cmocka_unit_test(r4_names_are_checked_and_duplicates_refused),
        cmocka_unit_test(contents_and_inputs_must_pair),
        cmocka_unit_test(r6_groups_are_refused),
        cmocka_unit_test(wrong_wire_types_are_refused),
        cmocka_unit_test(a_broken_request_keeps_its_id),
        cmocka_unit_test(one_body),
        cmocka_unit_test(r10_what_comes_back_is_utf8),
        cmocka_unit_test(every_truncation_is_refused_or_short),
        cmocka_unit_test(random_damage_is_survived),
        cmocka_unit_test(r5_recursion_fits_a_small_stack),
        cmocka_unit_test(r11_shared_memory_is_refused),
        cmocka_unit_test(r1_a_parameter_of_two_values_is_one_of_the_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
