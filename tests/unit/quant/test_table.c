/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of ranges: what is written is read back, and what is not a table is refused with its
 * line. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/quant/table.h"
#include "tests/test.h"

#define HEAD "inferd ranges 1\nmodel 0123456789abcdef0123456789abcdef\n"

static struct quant_table *parse(const char *text)
{
    struct quant_table *table = NULL;
    struct error err;
    if (quant_table_parse("text", text, strlen(text), &table, &err))
        fail_msg("%s", err.text);
    return table;
}

static void rows_say_what_they_mean(void **state UNUSED)
{
    struct quant_table *t = parse(HEAD "# a comment\n"
                                       "\n"
                                       "x range 0 2.55 entropy 500 # as seen\r\n"
                                       "  y\trange -3 12.7 percentile=99.9\n"
                                       "\"a b\\\"\\\\\\x0a#\" uint8 0.5 128 user -\n"
                                       "z int8 1e-2 -3\n"
                                       "w keep\n"
                                       "v range 3 5.1");
    uint32_t index = 99;
    const struct quant_row *x = quant_table_find(t, "x", &index);
    assert_int_equal(index, 0);
    assert_int_equal(quant_table_size(t), 6);
    assert_string_equal(quant_table_model(t), "0123456789abcdef0123456789abcdef");
    assert_int_equal(x->dtype, DTYPE_U8);
    assert_true(x->step == 2.55F / 255 && x->zero == 0 && x->samples == 500 && x->line == 5);
    assert_string_equal(x->source, "entropy");
    const struct quant_row *y = quant_table_find(t, "y", NULL);
    assert_int_equal(y->dtype, DTYPE_I8);
    assert_true(y->step == 12.7F / 127 && y->zero == 0 && y->samples == 0);
    const struct quant_row *a = quant_table_find(t, "a b\"\\\n#", NULL);
    assert_int_equal(a->dtype, DTYPE_U8);
    assert_true(a->step == 0.5F && a->zero == 128);
    const struct quant_row *z = quant_table_find(t, "z", NULL);
    assert_int_equal(z->dtype, DTYPE_I8);
    assert_true(z->zero == -3);
    assert_int_equal(quant_table_find(t, "w", NULL)->dtype, DTYPE_NONE);
    assert_true(quant_table_find(t, "v", NULL)->step == 5.1F / 255);
    assert_null(quant_table_find(t, "u", NULL));
    quant_table_free(t);
}

static struct quant_table *write_and_read(const struct quant_table *t)
{
    char path[] = "/tmp/inferd-ranges-XXXXXX";
    struct file_writer *writer = NULL;
    struct quant_table *back = NULL;
    struct error err;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    if (file_writer_new(path, true, &writer, &err) ||
        quant_table_write(writer, t, "a remark", &err))
        fail_msg("%s", err.text);
    file_writer_free(writer);
    if (quant_table_read(path, &back, &err))
        fail_msg("%s", err.text);
    unlink(path);
    return back;
}

static void what_is_written_is_read(void **state UNUSED)
{
    static const char *const names[] = {"plain",       "/a/b.c:0", "with space", "\"quoted\"",
                                        "back\\slash", "a#b",      "#",          "line\nfeed",
                                        "tab\there",   "\xc3\xbc", "@conv~2"};
    static const float highs[] = {1, 3.14159265F, 1e-30F, 3e38F, FLT_MIN * 300};
    struct quant_table *t = quant_table_new("any");
    uint32_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct quant_row row = {.name = names[i], .samples = i};
        snprintf(row.source, sizeof(row.source), i % 2 ? "percentile=99.99" : "user");
        if (i % 4 == 2)
            row.dtype = DTYPE_NONE;
        else if (i % 4 == 3) {
            row.dtype = DTYPE_U8;
            row.step = highs[i % ARRAY_LEN(highs)];
            row.zero = (int32_t)i * 20;
        } else
            assert_true(quant_row_set_range(&row, i % 2 ? -highs[i % ARRAY_LEN(highs)] / 3 : 0,
                                            highs[i % ARRAY_LEN(highs)]));
        assert_int_equal(quant_table_add(t, &row, NULL), STATUS_OK);
        n++;
    }
    struct quant_table *back = write_and_read(t);
    assert_int_equal(quant_table_size(back), n);
    for (uint32_t i = 0; i < n; i++) {
        const struct quant_row *a = quant_table_at(t, i), *b = quant_table_at(back, i);
        assert_string_equal(a->name, b->name);
        assert_string_equal(a->source, b->source);
        assert_int_equal(a->dtype, b->dtype);
        assert_int_equal(a->samples, b->samples);
        assert_true(a->step == b->step && a->zero == b->zero && a->low == b->low &&
                    a->high == b->high);
    }
    quant_table_free(t);
    quant_table_free(back);
}

static void what_is_no_table_is_refused(void **state UNUSED)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "begins with 'inferd ranges 1'"},
        {"x range 0 1\n", "line 1: no table of ranges"},
        {"inferd ranges 2\n", "version '2'"},
        {"inferd ranges 1\n", "'model DIGEST' is missing"},
        {"inferd ranges 1\nmodel abc\n", "line 2: 'model' and the digest"},
        {"inferd ranges 1\nx range 0 1\n", "line 2: 'model' and the digest"},
        {HEAD "x\n", "line 3: tensor 'x': a range was expected"},
        {HEAD "x rang 0 1\n", "did you mean 'range'?"},
        {HEAD "x range 1\n", "the form is 'range LOW HIGH'"},
        {HEAD "x range 1 nan\n", "'nan' is not finite"},
        {HEAD "x range -inf 1\n", "'-inf' is not finite"},
        {HEAD "x range 0 1e39\n", "'1e39' is not finite"},
        {HEAD "x range 0 one\n", "a number was expected, not 'one'"},
        {HEAD "x range 0 1x\n", "a number was expected, not '1x'"},
        {HEAD "x range 2 1\n", "begins behind its end"},
        {HEAD "x range 0 0\n", "leaves no step above 0"},
        {HEAD "x range 0 1e-45\n", "leaves no step above 0"},
        {HEAD "x int8 0 0\n", "it must be above 0"},
        {HEAD "x int8 -0.5 0\n", "it must be above 0"},
        {HEAD "x int8 nan 0\n", "not finite"},
        {HEAD "x int8 1 128\n", "whole number within -128..127"},
        {HEAD "x uint8 1 -1\n", "whole number within 0..255"},
        {HEAD "x uint8 1 1.5\n", "whole number within 0..255"},
        {HEAD "x int8 1\n", "the form is 'int8 STEP ZERO'"},
        {HEAD "x int4 1 0\n", "there are"},
        {HEAD "x keep me\n", "a method"},
        {HEAD "x range 0 1 guess\n", "a method"},
        {HEAD "x range 0 1 user many\n", "the number of samples"},
        {HEAD "x range 0 1 user 5 6\n", "nothing was expected behind '5'"},
        {HEAD "x range 0 1 user 99999999999999999999\n", "the number of samples"},
        {HEAD "x range 0 1\ny keep\nx keep\n", "line 5: tensor 'x' has a range already in line 3"},
        {HEAD "\"x range 0 1\n", "no closing quote"},
        {HEAD "\"x\\q\" range 0 1\n", "behind a backslash"},
        {HEAD "\"x\\x00\" range 0 1\n", "behind a backslash"},
        {HEAD "\"\" range 0 1\n", "name is empty"},
        {HEAD "x\"y range 0 1\n", "stands in quotes as a whole"},
        {HEAD "x \"range\" 0 1\n", "only the name"},
        {HEAD "x range 0 1 user 1 2 3 4\n", "more words"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct quant_table *table = NULL;
        struct error err;
        assert_int_not_equal(
            quant_table_parse("text", rows[i].text, strlen(rows[i].text), &table, &err), STATUS_OK);
        assert_null(table);
        if (!strstr(err.text, rows[i].says) || strncmp(err.text, "text: line ", 11) != 0)
            fail_msg("row %zu: '%s' does not say '%s'", i, err.text, rows[i].says);
    }
}

static void zero_bytes_and_long_names_are_refused(void **state UNUSED)
{
    static const char zero[] = HEAD "x\0y range 0 1\n";
    struct quant_table *table = NULL;
    struct error err;
    char *text = calloc(1, 8192);
    assert_int_not_equal(quant_table_parse("t", zero, sizeof(zero) - 1, &table, &err), STATUS_OK);
    assert_non_null(strstr(err.text, "zero byte"));
    strcpy(text, HEAD);
    memset(text + strlen(text), 'x', 5000);
    assert_int_not_equal(quant_table_parse("t", text, strlen(text), &table, &err), STATUS_OK);
    assert_non_null(strstr(err.text, "too long"));
    free(text);
}

static void the_last_table_counts(void **state UNUSED)
{
    struct quant_table *t = parse("inferd ranges 1\nmodel any\nx range 0 1 user\ny keep\n");
    struct quant_table *other = parse(HEAD "y range 0 255 minmax 5\nz keep\n");
    struct quant_table *third = parse("inferd ranges 1\nmodel ffffffffffffffffffffffffffffffff\n");
    struct error err;
    assert_int_equal(quant_table_merge(t, other, &err), STATUS_OK);
    assert_string_equal(quant_table_model(t), "0123456789abcdef0123456789abcdef");
    assert_int_equal(quant_table_size(t), 3);
    assert_true(quant_table_find(t, "y", NULL)->step == 1);
    assert_true(quant_table_find(t, "x", NULL)->high == 1);
    quant_table_free(other); /* nothing of it is used any more */
    assert_string_equal(quant_table_at(t, 1)->name, "y");
    assert_int_equal(quant_table_merge(t, third, &err), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "two models"));
    quant_table_free(third);
    quant_table_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_say_what_they_mean),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(what_is_no_table_is_refused),
        cmocka_unit_test(zero_bytes_and_long_names_are_refused),
        cmocka_unit_test(the_last_table_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
