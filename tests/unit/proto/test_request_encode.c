/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "proto/request.h"
#include "tests/test.h"

/* A test's stack is larger than the server's. */
#pragma GCC diagnostic ignored "-Wframe-larger-than="

static void the_encoder_refuses_what_does_not_fit(void **state)
{
    (void)state;
    static struct request sent;
    static uint8_t head[MESSAGE_HEAD_MAX];
    static char text[MESSAGE_HEAD_MAX];
    struct iovec iov[MESSAGE_MAX_IOV];
    uint32_t n_iov;
    struct error err = {0};
    memset(text, 'a', sizeof(text));
    sent = (struct request){.kind = REQUEST_INFER, .model = {text, sizeof(text)}};
    assert_int_equal(request_encode(&sent, head, iov, &n_iov, &err), STATUS_INVALID_ARGUMENT);
    sent.kind = REQUEST_MODEL_READY;
    assert_int_equal(request_encode(&sent, head, iov, &n_iov, &err), STATUS_INVALID_ARGUMENT);
    sent = (struct request){.kind = REQUEST_INFER, .n_inputs = 65};
    assert_int_equal(request_encode(&sent, head, iov, &n_iov, &err), STATUS_INVALID_ARGUMENT);
    sent = (struct request){.kind = REQUEST_INFER, .n_inputs = 1};
    sent.inputs[0] = (struct message_tensor){.data = text, .size = (size_t)UINT32_MAX + 1};
    assert_int_equal(request_encode(&sent, head, iov, &n_iov, &err), STATUS_INTERNAL);

    /* The largest request that the caps allow does fit. */
    sent = (struct request){.id = UINT64_MAX,
                            .timeout_us = UINT64_MAX,
                            .kind = REQUEST_INFER,
                            .token = {text, MESSAGE_MAX_TOKEN},
                            .infer_id = {text, MESSAGE_MAX_ID},
                            .model = {text, 64},
                            .version = {text, 64},
                            .n_inputs = 64,
                            .n_outputs = 64};
    for (uint32_t i = 0; i < 64; i++) {
        sent.outputs[i] = (struct message_text){text, 64};
        sent.inputs[i] = (struct message_tensor){
            .name = {text, 64}, .dtype = DTYPE_U64, .data = text, .size = 16};
        sent.inputs[i].shape.rank = 8;
        for (int k = 0; k < 8; k++)
            sent.inputs[i].shape.dim[k] = INT64_MIN;
    }
    if (request_encode(&sent, head, iov, &n_iov, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(n_iov, 128);
}

/* Whichever piece finds no room, the encoder says so; and a request that fits can be decoded. */
static void the_encoder_keeps_to_its_room(void **state)
{
    (void)state;
    static struct request sent, came;
    static char text[MESSAGE_HEAD_MAX];
    /* of exactly this size, so that a step beyond it is seen */
    uint8_t *head = malloc(MESSAGE_HEAD_MAX);
    struct iovec iov[MESSAGE_MAX_IOV];
    bool fitted = true;
    memset(text, 'a', sizeof(text));
    sent = (struct request){.id = 1, .kind = REQUEST_INFER, .n_inputs = 2, .n_outputs = 2};
    sent.model = message_text_of("m");
    sent.outputs[0] = message_text_of("y");
    sent.outputs[1] = message_text_of("z");
    for (uint32_t i = 0; i < 2; i++)
        sent.inputs[i] = (struct message_tensor){
            .name = sent.outputs[i], .dtype = DTYPE_U8, .shape = {i, {1}}, .data = text, .size = 1};
    for (size_t len = MESSAGE_HEAD_MAX - 400; len <= MESSAGE_HEAD_MAX; len++) {
        struct error err = {0};
        uint32_t n_iov = 0;
        sent.token = (struct message_text){text, len};
        enum status s = request_encode(&sent, head, iov, &n_iov, &err);
        if (s != STATUS_OK && !strstr(err.text, "texts take more"))
            fail_msg("%zu: %s", len, err.text);
        if (s == STATUS_OK && !fitted)
            fail_msg("%zu fits, and one less did not", len);
        fitted = s == STATUS_OK;
    }
    assert_false(fitted);
    sent.token = message_text_of("");
    sent.infer_id = (struct message_text){text, MESSAGE_MAX_ID + 1};
    static uint8_t frame[MESSAGE_HEAD_MAX];
    size_t at = 0;
    struct error err;
    uint32_t n_iov;
    assert_int_equal(request_encode(&sent, head, iov, &n_iov, &err), STATUS_OK);
    for (uint32_t i = 0; i < n_iov; at += iov[i++].iov_len)
        memcpy(frame + at, iov[i].iov_base, iov[i].iov_len);
    assert_int_equal(request_decode(frame + 4, at - 4, &came, &err), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "the id is longer"));
    sent.n_outputs = MESSAGE_MAX_TENSORS + 1;
    assert_int_equal(request_encode(&sent, head, iov, &n_iov, &err), STATUS_INVALID_ARGUMENT);
    free(head);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_encoder_refuses_what_does_not_fit),
        cmocka_unit_test(the_encoder_keeps_to_its_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
