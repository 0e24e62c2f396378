/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens, their hashes, and the names of rights. */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/right.h"
#include "base/token.h"
#include "tests/test.h"

static void tokens_are_new_each_time(void **state)
{
    (void)state;
    char seen[64][TOKEN_TEXT + 1];
    bool varies[TOKEN_TEXT] = {false};
    for (size_t i = 0; i < ARRAY_LEN(seen); i++) {
        assert_int_equal(token_new(seen[i], NULL), STATUS_OK);
        assert_int_equal(strlen(seen[i]), TOKEN_TEXT);
        assert_true(token_ok(seen[i], TOKEN_TEXT));
        assert_int_equal(strspn(seen[i], "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                         "0123456789-_"),
                         TOKEN_TEXT);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(seen[k], seen[i]);
        for (size_t at = 0; at < TOKEN_TEXT; at++)
            varies[at] |= seen[i][at] != seen[0][at];
    }
    for (size_t at = 0; at < TOKEN_TEXT; at++)
        if (!varies[at])
            fail_msg("character %zu is always the same", at);
}

/* The example of FIPS 180-2, and the empty text. */
static void hashes_are_sha256(void **state)
{
    (void)state;
    static const char *const known[][2] = {
        {"abc", "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"", "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    };
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        struct token_hash hash, back;
        char text[TOKEN_HASH_TEXT + 1];
        assert_true(token_hash_of(known[i][0], strlen(known[i][0]), &hash));
        token_hash_format(&hash, text);
        assert_string_equal(text, known[i][1]);
        assert_true(token_hash_parse(text, strlen(text), &back));
        assert_true(token_same(&hash, &back, sizeof(hash)));
        back.bytes[31] ^= 1;
        assert_false(token_same(&hash, &back, sizeof(hash)));
        for (char *c = text + 7; *c; c++)
            *c = *c >= 'a' ? (char)(*c - 'a' + 'A') : *c;
        assert_true(token_hash_parse(text, strlen(text), &back));
        assert_memory_equal(&hash, &back, sizeof(hash));
    }
}

static void what_is_no_hash(void **state)
{
    (void)state;
    static const char right[] =
        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    struct token_hash hash;
    char text[sizeof(right)];
    for (size_t len = 0; len < TOKEN_HASH_TEXT; len++)
        assert_false(token_hash_parse(right, len, &hash));
    for (size_t i = 0; i < TOKEN_HASH_TEXT; i++) {
        memcpy(text, right, sizeof(text));
        text[i] = 'g';
        assert_false(token_hash_parse(text, TOKEN_HASH_TEXT, &hash));
    }
}

static void what_is_no_token(void **state)
{
    (void)state;
    char text[TOKEN_MOST + 1];
    memset(text, 'a', sizeof(text));
    assert_false(token_ok(text, 0));
    assert_false(token_ok(text, TOKEN_LEAST - 1));
    assert_true(token_ok(text, TOKEN_LEAST));
    assert_true(token_ok(text, TOKEN_MOST));
    assert_false(token_ok(text, TOKEN_MOST + 1));
    static const char wrong[] = {' ', '\n', '\t', '\0', '\x7f', '\x80', '\xff'};
    for (size_t i = 0; i < sizeof(wrong); i++) {
        text[TOKEN_LEAST - 1] = wrong[i];
        assert_false(token_ok(text, TOKEN_LEAST));
    }
}

static void rights_have_names(void **state)
{
    (void)state;
    enum right right;
    for (int i = 0; i < RIGHT_COUNT_; i++) {
        const char *name = right_name((enum right)i);
        assert_true(right_parse(name, strlen(name), &right));
        assert_int_equal(right, i);
        assert_non_null(strstr(right_names, name));
        assert_false(right_parse(name, strlen(name) - 1, &right));
    }
    assert_string_equal(right_names, "infer, describe, status, memory, admin");
    assert_false(right_parse("", 0, &right));
    assert_false(right_parse("Infer", 5, &right));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_new_each_time), cmocka_unit_test(hashes_are_sha256),
        cmocka_unit_test(what_is_no_hash),          cmocka_unit_test(what_is_no_token),
        cmocka_unit_test(rights_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
