/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/message.h"
#include "tests/test.h"

static void r13_names(void **state)
{
    (void)state;
    const char *const good[] = {"a", "resnet-50_v1.5", "A.b", "1"};
    const char *const bad[] = {"", ".", "..", ".hidden", "a/b", "a b", "a\n", "\xc3\xa9", "a:0"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_true(message_name_ok(message_text_of(good[i])));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (message_name_ok(message_text_of(bad[i])))
            fail_msg("'%s' was taken for a name", bad[i]);
    char longest[66];
    memset(longest, 'x', sizeof(longest));
    assert_true(message_name_ok((struct message_text){longest, 64}));
    assert_false(message_name_ok((struct message_text){longest, 65}));
    assert_false(message_name_ok((struct message_text){"a\0b", 3}));
}

static void r4_tensor_names(void **state)
{
    (void)state;
    assert_true(message_tensor_name_ok(message_text_of("encoder/layer_0:0")));
    assert_false(message_tensor_name_ok(message_text_of("")));
    assert_false(message_tensor_name_ok(message_text_of("a b")));
    assert_false(message_tensor_name_ok(message_text_of("a\x7f")));
    assert_false(message_tensor_name_ok(message_text_of("\xc3\xa9")));
    char longest[66];
    memset(longest, '/', sizeof(longest));
    assert_true(message_tensor_name_ok((struct message_text){longest, 64}));
    assert_false(message_tensor_name_ok((struct message_text){longest, 65}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(r13_names),
        cmocka_unit_test(r4_tensor_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
