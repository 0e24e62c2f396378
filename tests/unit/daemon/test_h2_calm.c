/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/h2_calm.h"
#include "tests/test.h"

enum { DATA, HEADERS, PRIORITY, RESET, SETTINGS, PING = 6, CONTINUATION = 9, END_HEADERS = 4 };

static struct h2_calm calm;

static int setup(void **state)
{
    (void)state;
    char preface[H2_PREFACE] = {0};
    h2_calm_init(&calm, 1000);
    assert_int_equal(h2_calm_feed(&calm, preface, sizeof(preface), 1000), H2_CALM_FINE);
    return 0;
}

/* One frame, with a payload of zeros. */
static enum h2_calm_verdict frame(uint8_t type, uint8_t flags, uint32_t length, uint64_t now_ms)
{
    static uint8_t zeros[1 << 16];
    const uint8_t head[H2_FRAME_HEAD] = {
        (uint8_t)(length >> 16), (uint8_t)(length >> 8), (uint8_t)length, type, flags, 0, 0, 0, 1};
    enum h2_calm_verdict verdict = h2_calm_feed(&calm, head, sizeof(head), now_ms);
    while (length && !verdict) {
        uint32_t n = length < sizeof(zeros) ? length : (uint32_t)sizeof(zeros);
        verdict = h2_calm_feed(&calm, zeros, n, now_ms);
        length -= n;
    }
    return verdict;
}

static uint32_t until_flood(uint8_t type, uint32_t length)
{
    uint32_t n = 0;
    while (frame(type, 0, length, 1000) == H2_CALM_FINE)
        n++;
    return n;
}

static void r26_frames_that_only_make_work_use_up_the_credit(void **state)
{
    static const uint8_t types[] = {DATA, PRIORITY, SETTINGS, PING, 8, 200};
    for (size_t i = 0; i < sizeof(types); i++) {
        setup(state);
        assert_int_equal(until_flood(types[i], 0), H2_CALM_MOST);
    }
}

static void r26_resets_cost_more(void **state)
{
    (void)state;
    assert_int_equal(until_flood(RESET, 4), H2_CALM_MOST / H2_CALM_RESET);
}

static void time_earns_credit_up_to_a_limit(void **state)
{
    (void)state;
    until_flood(PING, 0);
    assert_int_equal(frame(PING, 0, 0, 1000 + 1000 / H2_CALM_A_SECOND), H2_CALM_FLOOD);
    setup(state);
    until_flood(PING, 0);
    uint32_t n = 0;
    while (frame(PING, 0, 0, 2000) == H2_CALM_FINE)
        n++;
    assert_int_equal(n, H2_CALM_A_SECOND);
    setup(state);
    n = 0;
    while (frame(PING, 0, 0, 1000000) == H2_CALM_FINE)
        n++;
    assert_int_equal(n, H2_CALM_MOST);
}

static void data_pays_for_itself(void **state)
{
    (void)state;
    for (int i = 0; i < 3 * H2_CALM_MOST; i++)
        assert_int_equal(frame(DATA, 0, H2_CALM_BYTES, 1000), H2_CALM_FINE);
}

static void answers_pay_for_pings_and_windows(void **state)
{
    (void)state;
    for (int i = 0; i < 3 * H2_CALM_MOST; i++) {
        assert_int_equal(frame(PING, 0, 8, 1000), H2_CALM_FINE);
        h2_calm_earn(&calm, H2_CALM_ANSWER);
    }
}

static void r26_a_block_of_headers_ends_after_eight_continuations(void **state)
{
    (void)state;
    assert_int_equal(frame(HEADERS, 0, 10, 1000), H2_CALM_FINE);
    for (int i = 0; i < H2_CONTINUATIONS; i++)
        assert_int_equal(frame(CONTINUATION, 0, 0, 1000), H2_CALM_FINE);
    assert_true(h2_calm_in_head(&calm));
    assert_int_equal(frame(CONTINUATION, END_HEADERS, 0, 1000), H2_CALM_BLOCK);
}

static void r26_a_block_of_headers_has_a_size(void **state)
{
    (void)state;
    assert_int_equal(frame(HEADERS, END_HEADERS, H2_BLOCK_BYTES, 1000), H2_CALM_FINE);
    assert_false(h2_calm_in_head(&calm));
    assert_int_equal(frame(HEADERS, 0, H2_BLOCK_BYTES, 1000), H2_CALM_FINE);
    assert_int_equal(frame(CONTINUATION, END_HEADERS, 1, 1000), H2_CALM_BLOCK);
}

/* Whatever pieces the bytes come in. */
static void pieces_make_no_difference(void **state)
{
    const uint8_t bytes[] = {0, 0, 2, DATA, 0, 0, 0, 0, 1, 7, 7, 0, 0, 0, PING, 0, 0, 0, 0, 0};
    for (size_t cut = 0; cut <= sizeof(bytes); cut++) {
        setup(state);
        h2_calm_feed(&calm, bytes, cut, 1000);
        assert_int_equal(h2_calm_left(&calm), cut < 9    ? (cut ? 9 - cut : 0)
                                              : cut < 11 ? 11 - cut
                                              : cut < 20 ? (cut > 11 ? 20 - cut : 0)
                                                         : 0);
        h2_calm_feed(&calm, bytes + cut, sizeof(bytes) - cut, 1000);
        assert_int_equal(calm.credit, H2_CALM_MOST - 2);
    }
}

/* So that who ends a head and begins the next one between two looks is not taken for slow, and who
 * only goes on with a block of headers is. */
static void heads_are_told_apart(void **state)
{
    (void)state;
    const uint8_t ping[9] = {0, 0, 0, PING}, block[9] = {0, 0, 0, HEADERS},
                  more[9] = {0, 0, 0, CONTINUATION};
    assert_int_equal(calm.heads, 0);
    h2_calm_feed(&calm, ping, 9, 1000);
    h2_calm_feed(&calm, block, 9, 1000);
    assert_int_equal(calm.heads, 2);
    for (int i = 0; i < 3; i++)
        h2_calm_feed(&calm, more, 9, 1000);
    assert_int_equal(calm.heads, 2);
    assert_true(h2_calm_in_head(&calm));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(r26_frames_that_only_make_work_use_up_the_credit, setup),
        cmocka_unit_test_setup(r26_resets_cost_more, setup),
        cmocka_unit_test_setup(time_earns_credit_up_to_a_limit, setup),
        cmocka_unit_test_setup(data_pays_for_itself, setup),
        cmocka_unit_test_setup(answers_pay_for_pings_and_windows, setup),
        cmocka_unit_test_setup(r26_a_block_of_headers_ends_after_eight_continuations, setup),
        cmocka_unit_test_setup(r26_a_block_of_headers_has_a_size, setup),
        cmocka_unit_test_setup(pieces_make_no_difference, setup),
        cmocka_unit_test_setup(heads_are_told_apart, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
