/* SPDX-License-Identifier: Apache-2.0 */
/* What the encoder writes is what the server's decoder reads. */
#include <stdlib.h>
#include <string.h>

#include "client/encoder.h"
#include "proto/frame.h"
#include "tests/test.h"

static uint8_t frame[1 << 20];

/* The pieces in one, and decoded. */
static void decode(const struct iovec *iov, uint32_t n, struct request *out)
{
    size_t size = 0;
    struct error err;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(frame + size, iov[i].iov_base, iov[i].iov_len);
        size += iov[i].iov_len;
    }
    assert_int_equal(frame_head_read(frame), size - FRAME_HEAD_BYTES);
    if (request_decode(frame + FRAME_HEAD_BYTES, size - FRAME_HEAD_BYTES, out, &err))
        fail_msg("%s", err.text);
}

static const float numbers[6] = {1, 2, 3, 4, 5, 6};
static const struct inferd_tensor inputs[2] = {
    {.name = "x",
     .dtype = INFERD_FP32,
     .rank = 3,
     .dim = {1, 2, 3},
     .data = numbers,
     .size = sizeof(numbers)},
    {.name = "none", .dtype = INFERD_INT64, .rank = 1, .dim = {0}},
};
static const char *const outputs[] = {"b", "a"};
static const struct inferd_request full = {.model = "m",
                                           .version = "3",
                                           .n_inputs = 2,
                                           .inputs = inputs,
                                           .n_outputs = 2,
                                           .outputs = outputs,
                                           .timeout_us = 123456,
                                           .priority = 2,
                                           .token = "secret",
                                           .traceparent = "00-aa-bb-01"};

static void check_full(const struct request *q, uint64_t id)
{
    assert_int_equal(q->id, id);
    assert_int_equal(q->kind, REQUEST_INFER);
    assert_int_equal(q->timeout_us, 123456);
    assert_int_equal(q->priority, 2);
    assert_true(message_text_equal(q->token, message_text_of("secret")));
    assert_true(message_text_equal(q->traceparent, message_text_of("00-aa-bb-01")));
    assert_true(message_text_equal(q->model, message_text_of("m")));
    assert_true(message_text_equal(q->version, message_text_of("3")));
    assert_int_equal(q->n_inputs, 2);
    assert_int_equal(q->inputs[0].size, sizeof(numbers));
    assert_memory_equal(q->inputs[0].data, numbers, sizeof(numbers));
    assert_int_equal(q->inputs[0].shape.dim[2], 3);
    assert_int_equal(q->inputs[1].size, 0);
    assert_int_equal(q->n_outputs, 2);
    assert_true(message_text_equal(q->outputs[0], message_text_of("b")));
}

static void every_member_arrives(void **state)
{
    (void)state;
    static struct encoder e;
    static struct request q;
    assert_int_equal(encoder_request(&e, &full, 42, NULL), STATUS_OK);
    decode(e.iov, e.n_iov, &q);
    check_full(&q, 42);
    assert_int_equal(encoder_cancel(&e, CANCEL_ID(42), 42, NULL), STATUS_OK);
    decode(e.iov, e.n_iov, &q);
    assert_int_equal(q.kind, REQUEST_CANCEL);
    assert_int_equal(q.target, 42);
    assert_int_equal(q.id, CANCEL_ID(42));
}

static void a_prepared_request_takes_any_id(void **state)
{
    (void)state;
    static const uint64_t ids[] = {
        1, 127, 128, 0x10001, UINT64_C(0xffffffffffff), UINT64_C(1) << 47};
    static struct request q;
    struct inferd_prepared *prepared;
    assert_int_equal(inferd_prepared_new(&full, &prepared, NULL), INFERD_OK);
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        struct iovec iov[MESSAGE_MAX_IOV];
        uint8_t head[1024];
        assert_true(prepared->iov[0].iov_len < sizeof(head));
        memcpy(iov, prepared->iov, sizeof(iov));
        memcpy(head, iov[0].iov_base, iov[0].iov_len);
        iov[0].iov_base = head;
        prepared_set_id(head, ids[i]);
        decode(iov, prepared->n_iov, &q);
        check_full(&q, ids[i]);
    }
    inferd_prepared_free(prepared);
}

static void too_much_text_is_refused(void **state)
{
    (void)state;
    static struct encoder e;
    char *text = malloc(100000);
    struct error err;
    assert_non_null(text);
    memset(text, 'a', 99999);
    text[99999] = '\0';
    struct inferd_request q = {.kind = INFERD_MODEL_READY, .model = text};
    assert_int_equal(encoder_request(&e, &q, 1, &err), STATUS_INVALID_ARGUMENT);
    q = full;
    q.token = text;
    assert_int_equal(encoder_request(&e, &q, 1, &err), STATUS_INVALID_ARGUMENT);
    struct inferd_prepared *prepared = NULL;
    assert_int_equal(inferd_prepared_new(&q, &prepared, NULL), INFERD_INVALID_ARGUMENT);
    assert_null(prepared);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_member_arrives),
        cmocka_unit_test(a_prepared_request_takes_any_id),
        cmocka_unit_test(too_much_text_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
