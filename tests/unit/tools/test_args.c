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

/* Options that other commands would have too. */
struct others {
    uint32_t before, extra;
    const char *name;
};

struct whole {
    struct mine mine;
    struct others others;
};

static const struct arg shared[] = {
    {"extra", 'e', ARG_U32, offsetof(struct others, extra), "N", "shared"},
    {"name", 0, ARG_TEXT, offsetof(struct others, name), "T", "shared"},
    {NULL, 0, ARG_FLAG, 0, NULL, NULL},
};

static const struct args spec = {
    .usage = "test",
    .what = "a test",
    .options = options,
    .min_positional = 1,
    .max_positional = 2,
    .shared = {{shared, offsetof(struct whole, others), "Others:"}},
};

/* Words separated by blanks, after the command's name. */
static int parse_whole(const char *line, struct whole *whole, struct arg_texts *positional)
{
    static char text[512];
    char *argv[32] = {(char[]){"test"}};
    int argc = 1;
    *whole = (struct whole){0};
    strcpy(text, line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    return args_parse(&spec, argc, argv, whole, positional);
}

static int parse(const char *line, struct mine *mine, struct arg_texts *positional)
{
    struct whole whole;
    int rc = parse_whole(line, &whole, positional);
    *mine = whole.mine;
    return rc;
}

static void shared_options_fill_their_own_struct(void **state)
{
    struct whole w;
    struct arg_texts p;
    (void)state;
    assert_int_equal(parse_whole("a --extra 3 -f", &w, &p), -1);
    assert_int_equal(w.others.extra, 3);
    assert_int_equal(w.others.before, 0);
    assert_true(w.mine.flag);
    assert_string_equal(args_given(shared, &w.others), "extra");
    assert_int_equal(parse_whole("a --name= -e 0", &w, &p), -1);
    assert_string_equal(args_given(shared, &w.others), "name");
    assert_int_equal(parse_whole("a", &w, &p), -1);
    assert_null(args_given(shared, &w.others));
    assert_null(args_given(options, &w.mine));
    assert_int_equal(parse_whole("a --texts x --texts y", &w, &p), -1);
    assert_string_equal(args_given(options, &w.mine), "texts");
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
    assert_int_equal(parse("-t - -", &m, &p), -1); /* a lone dash is a value, no option */
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
        cmocka_unit_test(every_kind_is_read),
        cmocka_unit_test(mistakes_are_usage_errors),
        cmocka_unit_test(sizes_have_units),
        cmocka_unit_test(lists_are_bounded),
        cmocka_unit_test(names_and_values_are_split),
        cmocka_unit_test(shared_options_fill_their_own_struct),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
