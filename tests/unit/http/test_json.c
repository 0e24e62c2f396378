/* SPDX-License-Identifier: Apache-2.0 */
/* JSON: events, limits, and numbers that lose nothing on their way there and back. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "http/json.h"
#include "tests/test.h"

static uint32_t n_events, n_numbers;
static size_t last_end;

static enum status count(void *user, const struct json_event *e, struct error *err)
{
    if (user && e->kind == JSON_STRING)
        return error_set(err, STATUS_UNIMPLEMENTED, "no strings");
    n_events++;
    n_numbers += e->kind == JSON_NUMBER;
    last_end = e->end;
    return STATUS_OK;
}

static enum status read_all(const char *text, size_t size, size_t step, void *user,
                            struct error *err)
{
    size_t memory_size = json_reader_size(step >= size ? size : JSON_STEP + 1);
    void *memory = malloc(memory_size);
    struct json_reader *r = json_reader_init(memory, memory_size, count, user);
    enum status status = STATUS_OK;
    n_events = n_numbers = 0;
    for (size_t at = 0; at < size && !status;) {
        size_t n = MIN(MIN(step, (size_t)JSON_STEP), size - at);
        char *copy = malloc(n);
        memcpy(copy, text + at, n);
        status = json_reader_feed(r, copy, n, err);
        free(copy);
        at += n;
    }
    if (!status)
        status = json_reader_end(r, err);
    free(memory);
    return status;
}

static void texts_are_read_in_any_pieces(void **state)
{
    (void)state;
    static const char text[] =
        " {\"a\\u00e4\\n\": [1, -2.5e3, true, null, \"x\\\"\xc3\xa4\"], \"b\":{}} ";
    struct error err;
    for (size_t step = 1; step < sizeof(text); step++) {
        must(read_all(text, strlen(text), step, NULL, &err), &err);
        assert_int_equal(n_events, 13);
        assert_int_equal(n_numbers, 2);
        assert_int_equal(last_end, strlen(text) - 1);
    }
}

static void what_is_no_json_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",     "{",     "[1,]",    "{\"a\"}", "[01]",      "[1]]",
                                      "nul",  "[NaN]", "{'a':1}", "[1 2]",   "\"\xff\"",  "[+1]",
                                      "[.5]", "[1.]",  "\"\n\"",  "[1] []",  "{\"a\":1,}"};
    struct error err;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (read_all(bad[i], strlen(bad[i]), 3, NULL, &err) != STATUS_INVALID_ARGUMENT)
            fail_msg("taken: %s", bad[i]);
    assert_int_equal(read_all("[\"a\"]", 5, 9, &err, &err), STATUS_UNIMPLEMENTED);
}

static void depth_and_texts_are_bounded(void **state)
{
    (void)state;
    struct error err;
    static char text[1 << 20];
    memset(text, '[', sizeof(text));
    assert_int_equal(read_all(text, sizeof(text), SIZE_MAX, NULL, &err), STATUS_INVALID_ARGUMENT);
    assert_int_equal(n_events, JSON_DEPTH_MOST);
    static const char fillers[] = {'1', 'a', '\\'};
    for (size_t i = 0; i < ARRAY_LEN(fillers); i++) {
        memset(text, fillers[i], sizeof(text));
        text[0] = i ? '"' : '1';
        assert_int_equal(read_all(text, sizeof(text), SIZE_MAX, NULL, &err),
                         STATUS_INVALID_ARGUMENT);
    }
    /* As long as may be. */
    memset(text, 'a', JSON_TEXT_MOST);
    text[0] = text[JSON_TEXT_MOST - 2] = '"';
    must(read_all(text, JSON_TEXT_MOST - 1, 5000, NULL, &err), &err);
    /* Escapes throughout, in a step and across steps. */
    for (size_t i = 0; i + 6 <= JSON_TEXT_MOST; i += 6)
        memcpy(text + 1 + i, "\\u00e4", 6);
    size_t size = JSON_TEXT_MOST / 2 / 6 * 6;
    text[1 + size] = '"';
    must(read_all(text, size + 2, 5000, NULL, &err), &err);
    must(read_all(text, 2 + 600, SIZE_MAX, NULL, &err) ? STATUS_OK : STATUS_OK, &err);
}

static void element(const char *text, enum dtype dtype, void *to)
{
    struct error err;
    must(json_element_read(JSON_NUMBER, message_text_of(text), dtype, to, message_text_of("t"),
                           &err),
         &err);
}

static void refuse(const char *text, enum dtype dtype)
{
    uint64_t to = 7;
    struct error err;
    if (!json_element_read(JSON_NUMBER, message_text_of(text), dtype, &to, message_text_of("t"),
                           &err))
        fail_msg("%s was taken as %s", text, dtype_name(dtype));
    assert_int_equal(to, 7);
}

static void integers_are_exact(void **state)
{
    (void)state;
    uint64_t u;
    int64_t i;
    int8_t b;
    element("18446744073709551615", DTYPE_U64, &u);
    assert_true(u == UINT64_MAX);
    element("9007199254740993", DTYPE_I64, &i);
    assert_true(i == INT64_C(9007199254740993));
    element("-9223372036854775808", DTYPE_I64, &i);
    assert_true(i == INT64_MIN);
    element("-128", DTYPE_I8, &b);
    assert_int_equal(b, -128);
    element("-0", DTYPE_U64, &u);
    assert_true(u == 0);
    refuse("18446744073709551616", DTYPE_U64);
    refuse("-1", DTYPE_U64);
    refuse("9223372036854775808", DTYPE_I64);
    refuse("-9223372036854775809", DTYPE_I64);
    refuse("128", DTYPE_I8);
    refuse("-129", DTYPE_I8);
    refuse("256", DTYPE_U8);
    refuse("2", DTYPE_BOOL);
    refuse("1.0", DTYPE_I32);
    refuse("1e3", DTYPE_I32);
    refuse("1e400", DTYPE_F64);
    refuse("-1e39", DTYPE_F32);
    refuse("1", DTYPE_F16);
}

static uint64_t seed = 88172645463325252ULL;

static uint64_t next(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static void numbers_come_back_as_they_were(void **state)
{
    (void)state;
    for (int n = 0; n < 100000; n++) {
        enum dtype dtype = 1 + (enum dtype)(n % DTYPE_F64);
        uint64_t from = next(), to = 0;
        char text[JSON_ELEMENT_MOST + 1];
        size_t width = dtype_size(dtype);
        if (dtype == DTYPE_F16 || dtype == DTYPE_BF16)
            continue;
        if (dtype == DTYPE_BOOL)
            from &= 1;
        if (n % 3 == 0) /* small numbers, too */
            from &= 0xff;
        from = width < 8 ? from & ((UINT64_C(1) << 8 * width) - 1) : from;
        size_t len = json_element_write(dtype, &from, text);
        assert_true(len < sizeof(text));
        text[len] = '\0';
        if (strpbrk(text, "NI"))
            continue; /* no number */
        enum json_kind kind = !strcmp(text, "true")    ? JSON_TRUE
                              : !strcmp(text, "false") ? JSON_FALSE
                                                       : JSON_NUMBER;
        struct error err;
        must(json_element_read(kind, message_text_of(text), dtype, &to, message_text_of("t"), &err),
             &err);
        if (memcmp(&from, &to, width) != 0)
            fail_msg("%s %s: %llx became %llx", dtype_name(dtype), text, (unsigned long long)from,
                     (unsigned long long)to);
    }
}

static void assert_writes(enum dtype dtype, const void *from, const char *wanted)
{
    char text[JSON_ELEMENT_MOST + 1] = {0};
    json_element_write(dtype, from, text);
    assert_string_equal(text, wanted);
}

static void floats_are_written_as_floats(void **state)
{
    (void)state;
    assert_writes(DTYPE_F32, &(float){1}, "1.0");
    assert_writes(DTYPE_F32, &(float){0.1f}, "0.1");
    assert_writes(DTYPE_F32, &(float){-0.0f}, "-0.0");
    assert_writes(DTYPE_F32, &(float){1e30f}, "1e+30");
    assert_writes(DTYPE_F64, &(double){0.1}, "0.1");
    assert_writes(DTYPE_F64, &(double){NAN}, "NaN");
    assert_writes(DTYPE_F32, &(float){-INFINITY}, "-Infinity");
    assert_writes(DTYPE_F16, &(uint16_t){0x3c00}, "1.0");
    assert_writes(DTYPE_I8, &(int8_t){-1}, "-1");
}

static void strings_are_escaped(void **state)
{
    (void)state;
    char out[64] = {0};
    struct json_writer w = {out, out + sizeof(out) - 1, false};
    json_string(&w, message_text_of("a\"\\\n\x01\xc3\xa4z\xff"));
    assert_false(w.full);
    assert_string_equal(out, "\"a\\\"\\\\\\n\\u0001\xc3\xa4z\"");
    struct json_writer small = {out, out + 3, false};
    json_text(&small, "abcd");
    assert_true(small.full);
    assert_ptr_equal(small.at, out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_read_in_any_pieces),
        cmocka_unit_test(what_is_no_json_is_refused),
        cmocka_unit_test(depth_and_texts_are_bounded),
        cmocka_unit_test(integers_are_exact),
        cmocka_unit_test(numbers_come_back_as_they_were),
        cmocka_unit_test(floats_are_written_as_floats),
        cmocka_unit_test(strings_are_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
