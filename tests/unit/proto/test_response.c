/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdlib.h>

#include "proto/frame.h"
#include "proto/response.h"
#include "tests/test.h"

static struct response sent, got; /* large, so static: one test runs at a time */
static uint8_t head[MESSAGE_HEAD_MAX];

/* Encodes `sent`, joins the pieces and decodes them; the frame must be freed. */
static uint8_t *round_trip(void)
{
    struct iovec iov[MESSAGE_MAX_IOV];
    uint32_t n_iov;
    struct error err = {0};
    if (response_encode(&sent, head, iov, &n_iov, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    size_t len = 0;
    for (uint32_t i = 0; i < n_iov; i++)
        len += iov[i].iov_len;
    uint8_t *frame = malloc(len);
    len = 0;
    for (uint32_t i = 0; i < n_iov; i++) {
        memcpy(frame + len, iov[i].iov_base, iov[i].iov_len);
        len += iov[i].iov_len;
    }
    assert_int_equal(frame_head_read(frame), len - 4);
    if (response_decode(frame + 4, len - 4, &got, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return frame;
}

static void a_result(void **state)
{
    (void)state;
    const float a[6] = {1, 2, 3, 4, 5, 6};
    sent = (struct response){.id = 12,
                             .timing = {1, 2, 3, 4, 5},
                             .kind = REQUEST_INFER,
                             .model = message_text_of("digits"),
                             .version = message_text_of("1"),
                             .infer_id = message_text_of("abc"),
                             .n_outputs = 2};
    sent.outputs[0] = (struct message_tensor){.name = message_text_of("a"),
                                              .dtype = DTYPE_F32,
                                              .shape = {2, {2, 3}},
                                              .data = a,
                                              .size = sizeof(a)};
    sent.outputs[1] = (struct message_tensor){
        .name = message_text_of("b"), .dtype = DTYPE_I64, .shape = {1, {0}}};
    uint8_t *frame = round_trip();
    assert_int_equal(got.id, 12);
    assert_int_equal(got.status, STATUS_OK);
    assert_int_equal(got.kind, REQUEST_INFER);
    assert_int_equal(got.timing.queue_ns, 1);
    assert_int_equal(got.timing.input_ns, 2);
    assert_int_equal(got.timing.compute_ns, 3);
    assert_int_equal(got.timing.output_ns, 4);
    assert_int_equal(got.timing.batch, 5);
    assert_true(message_text_equal(got.model, sent.model));
    assert_true(message_text_equal(got.version, sent.version));
    assert_true(message_text_equal(got.infer_id, sent.infer_id));
    assert_int_equal(got.n_outputs, 2);
    assert_int_equal(got.outputs[0].dtype, DTYPE_F32);
    assert_true(shape_equal(&got.outputs[0].shape, &sent.outputs[0].shape));
    assert_int_equal(got.outputs[0].size, sizeof(a));
    assert_memory_equal(got.outputs[0].data, a, sizeof(a));
    assert_int_equal(got.outputs[1].size, 0); /* an empty output has its entry too */
    free(frame);
}

static void an_error(void **state)
{
    (void)state;
    sent = (struct response){.id = 7,
                             .status = STATUS_RESOURCE_EXHAUSTED,
                             .message = message_text_of("the queue is full"),
                             .retry_after_us = 1500};
    uint8_t *frame = round_trip();
    assert_int_equal(got.id, 7);
    assert_int_equal(got.status, STATUS_RESOURCE_EXHAUSTED);
    assert_true(message_text_equal(got.message, sent.message));
    assert_int_equal(got.retry_after_us, 1500);
    assert_int_equal(got.kind, REQUEST_NONE);
    assert_int_equal(got.timing.batch, 0);
    free(frame);

    static char text[4 * ERROR_TEXT_MAX];
    memset(text, 'x', sizeof(text));
    sent.message = (struct message_text){text, sizeof(text)};
    frame = round_trip();
    assert_int_equal(got.message.len, ERROR_TEXT_MAX);
    free(frame);

    memcpy(text + ERROR_TEXT_MAX - 1, "\xc3\xa9", 2); /* not within a character */
    frame = round_trip();
    assert_int_equal(got.message.len, ERROR_TEXT_MAX - 1);
    free(frame);
    sent.message = message_text_of("cut within caf\xc3");
    frame = round_trip();
    assert_true(message_text_equal(got.message, message_text_of("cut within caf")));
    free(frame);
}

static void yes_and_no(void **state)
{
    (void)state;
    const enum request_kind kinds[] = {REQUEST_SERVER_LIVE, REQUEST_SERVER_READY,
                                       REQUEST_MODEL_READY, REQUEST_CANCEL};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        for (int yes = 0; yes < 2; yes++) {
            sent = (struct response){.id = 1, .kind = kinds[i], .yes = yes};
            uint8_t *frame = round_trip();
            assert_int_equal(got.kind, kinds[i]);
            assert_int_equal(got.yes, yes);
            free(frame);
        }
}

static void an_encoded_body_passes_through(void **state)
{
    (void)state;
    static char body[100000];
    memset(body, 7, sizeof(body));
    sent = (struct response){.id = 3, .kind = REQUEST_SERVER_STATUS, .body = {body, sizeof(body)}};
    uint8_t *frame = round_trip();
    assert_int_equal(got.kind, REQUEST_SERVER_STATUS);
    assert_true(message_text_equal(got.body, sent.body));
    free(frame);
}

static void an_unknown_status_is_unknown(void **state)
{
    (void)state;
    struct error err;
    assert_int_equal(response_decode("\x10\x63", 2, &got, &err), STATUS_OK);
    assert_int_equal(got.status, STATUS_UNKNOWN);
}

static void damage_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *wire;
        size_t len;
        const char *reason;
    } cases[] = {
        {"\x08", 1, "malformed response"},
        {"\x0b\x0c", 2, "malformed response"},
        {"\x52\x04\x2a\x02\x0a\x00", 6, "1 outputs but 0 entries"},
        {"\x52\x02\x32\x00", 4, "0 outputs but 1 entries"},
        {"\x52\x00\x5a\x00", 4, "one body"},
        {"\x18\x05", 2, "wrong wire type"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err = {0};
        assert_int_equal(response_decode(cases[i].wire, cases[i].len, &got, &err),
                         STATUS_INVALID_ARGUMENT);
        if (!strstr(err.text, cases[i].reason))
            fail_msg("case %zu: '%s' does not say '%s'", i, err.text, cases[i].reason);
    }
}

/* Of the parts of an answer only the outputs' names could fill the room for heads. */
static void the_encoder_keeps_to_its_room(void **state)
{
    (void)state;
    static char text[MESSAGE_HEAD_MAX];
    uint8_t *exact = malloc(MESSAGE_HEAD_MAX);
    struct iovec iov[MESSAGE_MAX_IOV];
    uint32_t n_iov;
    struct error err = {0};
    bool fitted = true;
    memset(text, 'a', sizeof(text));
    sent = (struct response){.id = 1, .kind = REQUEST_INFER, .n_outputs = 2};
    for (uint32_t i = 0; i < 2; i++)
        sent.outputs[i] = (struct message_tensor){
            .name = {text, 1}, .dtype = DTYPE_U8, .shape = {i, {1}}, .data = text, .size = 1};
    for (size_t len = MESSAGE_HEAD_MAX - 400; len <= MESSAGE_HEAD_MAX; len++) {
        sent.outputs[0].name = (struct message_text){text, len};
        enum status s = response_encode(&sent, exact, iov, &n_iov, &err);
        if (s != STATUS_OK && !strstr(err.text, "texts take more"))
            fail_msg("%zu: %s", len, err.text);
        if (s == STATUS_OK && !fitted)
            fail_msg("%zu fits, and one less did not", len);
        fitted = s == STATUS_OK;
    }
    assert_false(fitted);
    sent.n_outputs = MESSAGE_MAX_TENSORS + 1;
    assert_int_equal(response_encode(&sent, exact, iov, &n_iov, &err), STATUS_INTERNAL);
    sent = (struct response){.kind = REQUEST_STATISTICS, .body = {NULL, 0}};
    assert_int_equal(response_encode(&sent, exact, iov, &n_iov, &err), STATUS_OK);
    assert_int_equal(n_iov, 1);
    free(exact);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result),
        cmocka_unit_test(an_error),
        cmocka_unit_test(yes_and_no),
        cmocka_unit_test(an_encoded_body_passes_through),
        cmocka_unit_test(an_unknown_status_is_unknown),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(the_encoder_keeps_to_its_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
