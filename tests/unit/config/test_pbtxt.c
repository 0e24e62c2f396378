/* SPDX-License-Identifier: Apache-2.0 */
/* Protobuf's text format: what is read, and what is refused, with its line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/pbtxt.h"
#include "tests/test.h"

static struct arena *arena;

static int setup(void **state)
{
    (void)state;
    arena = arena_new(8 << 20);
    return arena ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

static const struct pbtxt_field *parse(const char *text)
{
    struct pbtxt_field *root = NULL;
    struct error err = {0};
    must(pbtxt_parse("t", text, strlen(text), arena, &root, &err), &err);
    return root->first;
}

static void refuse_bytes(const char *text, size_t size, const char *expected)
{
    struct pbtxt_field *root = NULL;
    struct error err = {0};
    if (pbtxt_parse("t", text, size, arena, &root, &err) != STATUS_INVALID_ARGUMENT)
        fail_msg("taken: %s", text);
    assert_null(root);
    if (!strstr(err.text, expected))
        fail_msg("\"%s\" is not in \"%s\"", expected, err.text);
}

static void refuse(const char *text, const char *expected)
{
    refuse_bytes(text, strlen(text), expected);
}

static void assert_scalar(const struct pbtxt_field *f, const char *name, enum pbtxt_kind kind,
                          const char *text)
{
    assert_non_null(f);
    assert_string_equal(f->name, name);
    assert_int_equal(f->kind, kind);
    assert_string_equal(f->spelling, text);
}

static void scalars_and_separators(void **state)
{
    (void)state;
    const struct pbtxt_field *f = parse("a: 1, b: -2; c:0x1F d : .5e-3f\n# note\ne: KIND_GPU "
                                        "f: - 7 g: true");
    static const struct {
        const char *name, *text;
        enum pbtxt_kind kind;
    } want[] = {{"a", "1", PBTXT_NUMBER},      {"b", "-2", PBTXT_NUMBER},
                {"c", "0x1F", PBTXT_NUMBER},   {"d", ".5e-3f", PBTXT_NUMBER},
                {"e", "KIND_GPU", PBTXT_WORD}, {"f", "-7", PBTXT_NUMBER},
                {"g", "true", PBTXT_WORD}};
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++, f = f->next)
        assert_scalar(f, want[i].name, want[i].kind, want[i].text);
    assert_null(f);
    assert_null(parse(""));
    assert_null(parse(" # only a comment"));
}

static void messages_and_lists(void **state)
{
    (void)state;
    const struct pbtxt_field *f =
        parse("a { x: 1 } a: < x: 2 >\nb: [ 3, 4 ] c [ { y: 5 }, { } ] d: [] e: 6");
    assert_int_equal(f->kind, PBTXT_MESSAGE);
    assert_scalar(f->first, "x", PBTXT_NUMBER, "1");
    f = f->next;
    assert_scalar(f->first, "x", PBTXT_NUMBER, "2");
    f = f->next;
    assert_int_equal(f->line, 2);
    assert_scalar(f, "b", PBTXT_NUMBER, "3");
    assert_scalar(f->next, "b", PBTXT_NUMBER, "4");
    f = f->next->next;
    assert_scalar(f->first, "y", PBTXT_NUMBER, "5");
    assert_null(f->next->first);
    assert_scalar(f->next->next, "e", PBTXT_NUMBER, "6");
}

static void strings(void **state)
{
    (void)state;
    const struct pbtxt_field *f = parse("a: \"x\" 'y'\n  \"z\" b: 'it\\'s \\x41\\101\\u00e4\\n' "
                                        "c: \"\" d: '\\U0001F600'");
    assert_scalar(f, "a", PBTXT_STRING, "xyz");
    assert_scalar(f->next, "b", PBTXT_STRING, "it's AA\xc3\xa4\n");
    assert_scalar(f->next->next, "c", PBTXT_STRING, "");
    assert_scalar(f->next->next->next, "d", PBTXT_STRING, "\xf0\x9f\x98\x80");
}

static void mistakes_have_their_line(void **state)
{
    (void)state;
    refuse("a: 1\nb 2", "t:2: expected ':' or '{', got \"2\"");
    refuse("a: \n\n", "t:3: expected a value, got the end");
    refuse("a {\n x: 1", "t:2: expected a field's name, got the end");
    refuse("a { x: 1 >", "expected a field's name, got \">\"");
    refuse("a: [1 2]", "expected ',' or ']'");
    refuse("a: [1,]", "expected a value");
    refuse("1: 2", "a field's name");
    refuse("[ext.field]: 2", "a field's name");
    refuse("a: \"open\nb: 1", "t:1: expected the end of a string");
    refuse("a: \"\\q\"", "an escape sequence");
    refuse("a: \"\\0\"", "an escape sequence");
    refuse("a: \"\\x00\"", "an escape sequence");
    refuse("a: \"\\u12\"", "an escape sequence");
    refuse("a: \"\\U00110000\"", "an escape sequence");
    refuse("a: \"\\ud800\"", "UTF-8");
    refuse("a: \"\xff\"", "UTF-8");
    refuse("a: \"\\", "an escape sequence");
    refuse_bytes("a: \"x\0y\"", 8, "the end of a string");
    refuse_bytes("a\0: 1", 5, "expected ':' or '{'");
    refuse("a: $", "a value");
}

static void growth_is_bounded(void **state)
{
    (void)state;
    char deep[400] = "";
    for (int i = 0; i < PBTXT_DEPTH_MAX; i++)
        strcat(deep, "a{");
    char closed[600];
    snprintf(closed, sizeof(closed), "%s", deep);
    for (int i = 0; i < PBTXT_DEPTH_MAX; i++)
        strcat(closed, "}");
    assert_non_null(parse(closed));
    strcat(deep, "a{");
    refuse(deep, "messages within each other");
    size_t n = (size_t)PBTXT_FIELDS_MAX + 1;
    char *many = malloc(n * 4 + 1);
    assert_non_null(many);
    for (size_t i = 0; i < n; i++)
        memcpy(many + i * 4, "a:1 ", 5);
    refuse(many, "fields");
    free(many);
    char name[80] = "";
    memset(name, 'n', PBTXT_NAME_MAX + 1);
    strcat(name, ": 1");
    refuse(name, "a field's name");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(scalars_and_separators, setup, teardown),
        cmocka_unit_test_setup_teardown(messages_and_lists, setup, teardown),
        cmocka_unit_test_setup_teardown(strings, setup, teardown),
        cmocka_unit_test_setup_teardown(mistakes_have_their_line, setup, teardown),
        cmocka_unit_test_setup_teardown(growth_is_bounded, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
