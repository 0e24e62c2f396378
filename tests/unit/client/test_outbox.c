/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "client/outbox.h"
#include "tests/test.h"

enum { BIG = OUTBOX_COPY_MAX + 1, ROUNDS = 3000, SENT_MAX = 64 * 1024 * 1024 };

static void small_pieces_run_together_and_large_ones_stay(void **state)
{
    (void)state;
    struct outbox out = {0};
    static uint8_t head[BIG], big[BIG], small[100];
    struct iovec pieces[8];
    uint8_t *start;
    size_t size;
    const struct iovec one[2] = {{head, 10}, {small, 100}}, two[2] = {{head, 10}, {big, BIG}},
                       three[1] = {{head, BIG}};
    const struct outbox_frame a = {one, 2, head, sizeof(head)}, b = {two, 2, head, sizeof(head)},
                              c = {three, 1, head, sizeof(head)};
    assert_int_equal(outbox_add(&out, &a, &start, &size, NULL), STATUS_OK);
    assert_int_equal(size, 110);
    assert_int_equal(outbox_add(&out, &a, &start, &size, NULL), STATUS_OK);
    assert_int_equal(outbox_add(&out, &b, &start, &size, NULL), STATUS_OK);
    assert_int_equal(size, 10 + BIG);
    /* A head is copied however large it is, because its memory is used again. */
    assert_int_equal(outbox_add(&out, &c, &start, &size, NULL), STATUS_OK);
    assert_int_equal(outbox_pieces(&out, pieces, 8), 3);
    assert_int_equal(pieces[0].iov_len, 230);
    assert_ptr_equal(pieces[1].iov_base, big);
    assert_int_equal(pieces[2].iov_len, BIG);
    assert_ptr_not_equal(pieces[2].iov_base, head);
    outbox_sent(&out, 230 + 5);
    assert_int_equal(outbox_pieces(&out, pieces, 8), 2);
    assert_ptr_equal(pieces[0].iov_base, big + 5);
    assert_int_equal(pieces[0].iov_len, BIG - 5);
    outbox_sent(&out, 2 * BIG - 5);
    assert_true(outbox_empty(&out));
    outbox_deinit(&out);
}

/* Random frames in, random amounts out: the bytes are those that went in. */
static void no_byte_is_lost_or_moved(void **state)
{
    (void)state;
    struct outbox out = {0};
    static uint8_t head[2 * BIG], payload[3 * BIG];
    uint8_t *want = malloc(SENT_MAX);
    size_t wanted = 0, got = 0;
    assert_non_null(want);
    for (size_t i = 0; i < sizeof(payload); i++)
        payload[i] = (uint8_t)(i * 31);
    srand(9);
    for (int round = 0; round < ROUNDS; round++) {
        uint8_t *start;
        size_t size, h = 1 + (size_t)rand() % (rand() % 20 ? 50 : BIG);
        size_t p = (size_t)rand() % (rand() % 4 ? 500 : sizeof(payload));
        memset(head, round, h);
        const struct iovec iov[2] = {{head, h}, {payload, p}};
        const struct outbox_frame frame = {iov, 2, head, sizeof(head)};
        assert_int_equal(outbox_add(&out, &frame, &start, &size, NULL), STATUS_OK);
        start[0] = 77; /* the id is written this way for a prepared request */
        memcpy(want + wanted, head, h);
        want[wanted] = 77;
        memcpy(want + wanted + h, payload, p);
        wanted += h + p;
        assert_int_equal(size, h + p);
        while (rand() % 3 && !outbox_empty(&out)) {
            struct iovec pieces[3];
            uint32_t n = outbox_pieces(&out, pieces, 3);
            size_t take = 0, all = 0;
            for (uint32_t i = 0; i < n; i++)
                all += pieces[i].iov_len;
            take = 1 + (size_t)rand() % all;
            for (uint32_t i = 0, left = (uint32_t)take; left > 0; i++) {
                size_t some = pieces[i].iov_len < left ? pieces[i].iov_len : left;
                assert_memory_equal(pieces[i].iov_base, want + got, some);
                got += some;
                left -= (uint32_t)some;
            }
            outbox_sent(&out, take);
        }
    }
    assert_true(got > 0 && got <= wanted);
    outbox_deinit(&out);
    free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_pieces_run_together_and_large_ones_stay),
        cmocka_unit_test(no_byte_is_lost_or_moved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
