/* SPDX-License-Identifier: Apache-2.0 */
/* What the status page makes of numbers, and of a history with holes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "daemon/monitor/page.h"
#include "tests/test.h"

static void numbers_for_people(void **state)
{
    (void)state;
    char out[PAGE_NUMBER];
    assert_string_equal(page_amount(0, out), "0");
    assert_string_equal(page_amount(7, out), "7");
    assert_string_equal(page_amount(1.2345, out), "1.23");
    assert_string_equal(page_amount(999, out), "999");
    assert_string_equal(page_amount(999.6, out), "1.00 k");
    assert_string_equal(page_amount(12345, out), "12.3 k");
    assert_string_equal(page_amount((double)NAN, out), "-");
    assert_string_equal(page_amount(1e300, out), page_amount(1e300, out)); /* does not overrun */
    assert_string_equal(page_time(1500, out), "1.50 \xc2\xb5s");
    assert_string_equal(page_time(2e9, out), "2 s");
    assert_string_equal(page_bytes(1536, out), "1.50 KiB");
    assert_string_equal(page_percent(0.5, out), "50 %");
    assert_string_equal(page_span(59, out), "59 s");
    assert_string_equal(page_span(3661, out), "1 h 1 min");
    assert_string_equal(page_span(200000, out), "2 d 7 h");
}

static void points_are_there_for_a_while(void **state)
{
    (void)state;
    struct history *h = history_new();
    assert_non_null(h);
    assert_true(isnan(history_point(h, &h->server, HISTORY_REQUESTS, 0)));
    for (uint64_t k = 1; k <= 1000; k++) {
        h->next = h->server.last = k;
        h->server.points[HISTORY_REQUESTS][k % HISTORY_POINTS] = (float)k;
    }
    assert_true(history_point(h, &h->server, HISTORY_REQUESTS, 1000) == 1000.0f);
    assert_true(history_point(h, &h->server, HISTORY_REQUESTS, 1001 - HISTORY_POINTS) ==
                (float)(1001 - HISTORY_POINTS));
    assert_true(isnan(history_point(h, &h->server, HISTORY_REQUESTS, 1000 - HISTORY_POINTS)));
    assert_true(isnan(history_point(h, &h->server, HISTORY_REQUESTS, 1001)));
    assert_null(history_find(h, "a", "1"));
    history_free(h);
    history_free(NULL);
}

static void a_page_of_nothing(void **state)
{
    (void)state;
    static const struct config_limits limits;
    static struct snapshot snapshot = {.device = "<cpu>", .limits = &limits};
    struct history *h = history_new();
    for (size_t i = 0; i < ARRAY_LEN(snapshot.memory); i++)
        snapshot.memory[i].name = "m";
    for (int part = 0; part < 2; part++) {
        struct text text;
        text_init(&text, 1 << 20);
        const struct page page = {
            .snapshot = &snapshot, .history = h, .part = part, .since = UINT64_MAX};
        page_write(&page, &text);
        text_bytes(&text, "", 1);
        assert_false(text.failed);
        assert_null(strstr(text.data, "<cpu>"));
        assert_non_null(strstr(text.data, "&lt;cpu&gt;"));
        assert_non_null(strstr(text.data, "\"requests\":[]"));
        text_deinit(&text);
    }
    history_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_for_people),
        cmocka_unit_test(points_are_there_for_a_while),
        cmocka_unit_test(a_page_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
