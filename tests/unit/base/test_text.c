/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/text.h"
#include "tests/test.h"

static void is(struct text *text, const char *expected)
{
    assert_false(text->failed);
    assert_int_equal(text->len, strlen(expected));
    assert_memory_equal(text->data, expected, text->len);
    text->len = 0;
}

static void it_grows(void **state)
{
    (void)state;
    struct text text;
    text_init(&text, 1 << 20);
    for (int i = 0; i < 10000; i++)
        text_printf(&text, "%05d\n", i);
    assert_false(text.failed);
    assert_int_equal(text.len, 60000);
    assert_memory_equal(text.data + 6 * 1234, "01234\n", 6);
    text_deinit(&text);
    assert_true(text.failed); /* nothing is added any more */
}

static void each_place_has_its_own_marks(void **state)
{
    (void)state;
    struct text text;
    text_init(&text, 4096);
    text_html(&text, "<a href=\"x\">'&'</a>");
    is(&text, "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
    text_label(&text, "a\\b\"c\nd");
    is(&text, "a\\\\b\\\"c\\nd");
    text_json(&text, "a\\\"\n\x7f");
    is(&text, "a\\\\\\\"\\u000a\\u007f");
    text_json(&text, "gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80");
    is(&text, "gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80");
    text_json(&text, "\xff\xc3(\xed\xa0\x80\xc3");
    is(&text, "\\ufffd\\ufffd(\\ufffd\\ufffd\\ufffd\\ufffd");
    text_json(&text, "");
    is(&text, "");
    text_deinit(&text);
}

static void it_stops_at_its_limit(void **state)
{
    (void)state;
    struct text text;
    text_init(&text, 10);
    text_put(&text, "12345");
    text_put(&text, "67890");
    assert_false(text.failed);
    text_put(&text, "x");
    assert_true(text.failed);
    assert_int_equal(text.len, 10);
    text_deinit(&text);

    text_init(&text, 1 << 20);
    text_printf(&text, "%2000d", 1); /* longer than a line may be */
    assert_true(text.failed);
    text_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_grows),
        cmocka_unit_test(each_place_has_its_own_marks),
        cmocka_unit_test(it_stops_at_its_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
