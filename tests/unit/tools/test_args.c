/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/compiler.h"
#include "tests/test.h"
#include "tools/args.h"

struct mine {
    bool flag;
    const char *text;
    uint32_t number, level;
    double real;
    uint64_t bytes;
    struct arg_texts texts;
    struct arg_u32s list;
};

static const struct arg options[] = {
    {"flag", 'f', ARG_FLAG, offsetof(struct mine, flag), NULL, "a flag"},
    {"text", 't', ARG_TEXT, offsetof(struct mine, text), "T", "a text"},
    {"number", 0, ARG_U32, offsetof(struct mine, number), "N", "a number"},
    {"level", 'v', ARG_COUNT, offsetof(struct mine, level), NULL, "counts"},
    {"real", 0, ARG_F64, offsetof(struct mine, real), "R", "a real number"},
    {"bytes", 0, ARG_BYTES, offsetof(struct mine, bytes), "N", "a size"},
    {"texts", 0, ARG_TEXTS, offsetof(struct mine, texts), "T", "texts"},
    {"list", 0, ARG_U32S, offsetof(struct mine, list), "1,2", "numbers"},
    {NULL, 0, ARG_FLAG, 0, NULL, NULL},
};

static const struct args spec = {"test", "a test", options, 1, 2};

/* Words separated by blanks, after the command's name. */
static int parse(const char *line, struct mine *mine, struct arg_texts *positional)
{
    static char text[512];
    char *argv[32] = {(char[]){"test"}};
    int argc = 1;
    *mine = (struct mine){0};
    strcpy(text, line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    return args_parse(&spec, argc, argv, mine, positional);
}

static void every_kind_is_read(void **state)
{
    struct mine m;
    struct arg_texts p;
    (void)state;
    assert_int_equal(parse("a -f --text x=y --number=7 -v b -v --real 1e-3 --texts p --texts=q "
                           "--list 3,1,2",
                           &m, &p),
                     -1);
    assert_true(m.flag);
    assert_string_equal(m.text, "x=y");
    assert_int_equal(m.number, 7);
    assert_int_equal(m.level, 2);
    assert_true(m.real == 1e-3);
    assert_int_equal(m.texts.n, 2);
    assert_string_equal(m.texts.list[1], "q");
    assert_int_equal(m.list.n, 3);
    assert_int_equal(m.list.list[2], 2);
    assert_int_equal(p.n, 2);
    assert_string_equal(p.list[1], "b");
    assert_int_equal(parse("-- -f", &m, &p), -1);
    assert_false(m.flag);
    assert_string_equal(p.list[0], "-f");
    assert_int_equal(parse("-t - -", &m, &p), -1); /* a lone dash is no option */
    assert_string_equal(m.text, "-");
}

static void mistakes_are_usage_errors(void **state)
{
    static const char *const lines[] = {
        "",           "a b c",       "a --none",       "a -x",          "a --flag=1",
        "a --text",   "a --number",  "a --number x",   "a --number -1", "a --number 4294967296",
        "a --real x", "a --real -1", "a --real nan",   "a --list 1,",   "a --list 1,,2",
        "a --list x", "a --list ,1", "a --number 1.5", "a --tex y",     "a -fv",
        "a --bytes",  "a --bytes x", "a --bytes MiB",  "a --bytes 1MB", "a --bytes 18446744073GiB",
    };
    struct mine m;
    struct arg_texts p;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        if (parse(lines[i], &m, &p) != EXIT_USAGE)
            fail_msg("'%s' was accepted", lines[i]);
    assert_int_equal(parse("a --help", &m, &p), EXIT_OK);
}

static void sizes_have_units(void **state)
{
    struct mine m;
    struct arg_texts p;
    (void)state;
    assert_int_equal(parse("a --bytes 100", &m, &p), -1);
    assert_int_equal(m.bytes, 100);
    assert_int_equal(parse("a --bytes 3KiB", &m, &p), -1);
    assert_int_equal(m.bytes, 3 << 10);
    assert_int_equal(parse("a --bytes 64MiB", &m, &p), -1);
    assert_int_equal(m.bytes, 64 << 20);
    assert_int_equal(parse("a --bytes 17179869183GiB", &m, &p), -1);
    assert_true(m.bytes == UINT64_C(17179869183) << 30);
}

static void lists_are_bounded(void **state)
{
    struct mine m;
    struct arg_texts p;
    char line[512] = "a --list ";
    (void)state;
    for (int i = 0; i < ARG_LIST_MAX; i++)
        strcat(line, i ? ",1" : "1");
    assert_int_equal(parse(line, &m, &p), -1);
    strcat(line, ",1");
    assert_int_equal(parse(line, &m, &p), EXIT_USAGE);
}

static void names_and_values_are_split(void **state)
{
    char name[8];
    const char *value;
    (void)state;
    assert_true(args_split("a=b=c", name, sizeof(name), &value));
    assert_string_equal(name, "a");
    assert_string_equal(value, "b=c");
    assert_true(args_split("1234567=", name, sizeof(name), &value));
    assert_string_equal(value, "");
    assert_false(args_split("12345678=", name, sizeof(name), &value));
    assert_false(args_split("=b", name, sizeof(name), &value));
    assert_false(args_split("ab", name, sizeof(name), &value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_is_read),         cmocka_unit_test(mistakes_are_usage_errors),
        cmocka_unit_test(sizes_have_units),           cmocka_unit_test(lists_are_bounded),
        cmocka_unit_test(names_and_values_are_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
