/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tests/test.h"

static void r10_control_bytes_are_escaped(void **state)
{
    (void)state;
    struct error err;
    assert_int_equal(error_set(&err, STATUS_NOT_FOUND, "model \"a\nb\x1b\" (%d)", 3),
                     STATUS_NOT_FOUND);
    assert_string_equal(err.text, "model \"a\\x0ab\\x1b\" (3)");
    assert_int_equal(err.status, STATUS_NOT_FOUND);
    error_prefix(&err, "node %s", "x");
    assert_string_equal(err.text, "node x: model \"a\\x0ab\\x1b\" (3)");
}

/* Whatever a peer sends is quoted in replies, whose texts must be UTF-8 for any protobuf library.
 */
static void r10_texts_are_utf8(void **state)
{
    (void)state;
    struct error err;
    error_set(&err, STATUS_NOT_FOUND, "model '%s'",
              "\xc3\xa9\xff\xc3(\xe2\x82\xac\xed\xa0\x80\xc2\x9b");
    assert_string_equal(err.text,
                        "model '\xc3\xa9\\xff\\xc3(\xe2\x82\xac\\xed\\xa0\\x80\\xc2\\x9b'");
    uint64_t seed = 1;
    for (int round = 0; round < 20000; round++) {
        char text[700];
        for (size_t i = 0; i < sizeof(text) - 1; i++) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            text[i] = (char)((seed >> 40) | (seed >> 62 ? 0x80 : 1));
        }
        text[seed % sizeof(text)] = 0;
        text[sizeof(text) - 1] = 0;
        error_set(&err, STATUS_INTERNAL, "%s", text);
        assert_true(utf8_ok(err.text, strlen(err.text)));
        error_prefix(&err, "%.*s", (int)(seed >> 55), text);
        assert_true(utf8_ok(err.text, strlen(err.text)));
    }
}

/* Characters of two, three and four bytes, cut at each length: a character stays whole or goes. */
static void a_cut_is_not_within_a_character(void **state)
{
    (void)state;
    static const char *const characters[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (size_t i = 0; i < 3; i++)
        for (size_t before = ERROR_TEXT_MAX - 8; before < ERROR_TEXT_MAX + 2; before++) {
            char text[ERROR_TEXT_MAX + 32];
            struct error err, other;
            size_t len = strlen(characters[i]);
            memset(text, 'a', before);
            strcpy(text + before, characters[i]);
            error_set(&err, STATUS_INTERNAL, "%s", text);
            size_t fits = before + len < ERROR_TEXT_MAX ? before + len : before;
            assert_int_equal(strlen(err.text), fits < ERROR_TEXT_MAX ? fits : ERROR_TEXT_MAX - 1);
            assert_memory_equal(err.text, text, strlen(err.text));
            error_errno(&err, ENOENT, "%s", text);
            assert_true(utf8_ok(err.text, strlen(err.text)));
            assert_null(strchr(err.text, '\\'));
            error_set(&other, STATUS_INTERNAL, "x");
            error_prefix(&other, "%s", text);
            assert_true(utf8_ok(other.text, strlen(other.text)));
            assert_null(strchr(other.text, '\\'));
        }
}

static void long_texts_are_cut(void **state)
{
    (void)state;
    struct error err;
    char text[2000];
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    error_set(&err, STATUS_INTERNAL, "%s", text);
    assert_int_equal(strlen(err.text), ERROR_TEXT_MAX - 1);
    error_prefix(&err, "%s", text);
    assert_int_equal(strlen(err.text), ERROR_TEXT_MAX - 1);
}

static void errno_gives_the_code(void **state)
{
    (void)state;
    struct error err;
    assert_int_equal(error_errno(&err, ENOENT, "open \"%s\"", "x"), STATUS_NOT_FOUND);
    assert_string_equal(err.text, "open \"x\": No such file or directory");
    assert_int_equal(error_errno(NULL, ENOSPC, "write"), STATUS_RESOURCE_EXHAUSTED);
    assert_string_equal(status_name(STATUS_UNAUTHENTICATED), "UNAUTHENTICATED");
    assert_string_equal(status_name((enum status)99), "UNKNOWN");
}

/* A program may decide by the cause: the same errno gives the same cause, whatever the text
 * says. */
static void errno_gives_the_cause(void **state)
{
    (void)state;
    static const struct {
        int errnum;
        enum cause cause;
    } rows[] = {
        {ENOMEM, CAUSE_OUT_OF_MEMORY},      {ENOSPC, CAUSE_DISK_FULL},
        {EDQUOT, CAUSE_DISK_FULL},          {EFBIG, CAUSE_DISK_FULL},
        {EMFILE, CAUSE_RESOURCE_EXHAUSTED}, {EBADF, CAUSE_INTERNAL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err;
        assert_int_equal(error_errno(&err, rows[i].errnum, "x"), cause_row(rows[i].cause)->status);
        assert_int_equal(err.cause, rows[i].cause);
        assert_int_equal(err.status, cause_row(rows[i].cause)->status);
    }
}

static void a_cause_brings_its_status_and_sentence(void **state)
{
    (void)state;
    struct error err, other;
    assert_int_equal(error_cause(&err, CAUSE_QUEUE_FULL, "model '%s'", "x"),
                     STATUS_RESOURCE_EXHAUSTED);
    assert_string_equal(err.text, "model 'x'");
    assert_int_equal(err.cause, CAUSE_QUEUE_FULL);
    assert_int_equal(error_plain(&err, CAUSE_DEVICE_LOST), STATUS_UNAVAILABLE);
    assert_string_equal(err.text, "the device was lost");
    assert_int_equal(error_no_memory(&err, "%d doves", 3), STATUS_RESOURCE_EXHAUSTED);
    assert_string_equal(err.text, "no memory for 3 doves");
    assert_int_equal(err.cause, CAUSE_OUT_OF_MEMORY);
    assert_int_equal(error_no_memory(NULL, "doves"), STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(error_set(&err, STATUS_NOT_FOUND, "x"), STATUS_NOT_FOUND);
    assert_int_equal(err.cause, CAUSE_NOT_FOUND);
    err.scope = ERROR_MODEL;
    assert_int_equal(error_copy(&other, &err), STATUS_NOT_FOUND);
    assert_memory_equal(&other, &err, sizeof(err));
    assert_int_equal(error_copy(NULL, &err), STATUS_NOT_FOUND);
    assert_int_equal(error_recast(&err, CAUSE_DISK_FULL), STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(err.status, STATUS_RESOURCE_EXHAUSTED);
    assert_string_equal(err.text, "x");
}

/* The statuses come first in the table, with their own numbers, and no two specific causes are the
 * same. */
static void the_table_of_causes_is_whole(void **state)
{
    (void)state;
    assert_int_equal(CAUSE_OK, STATUS_OK);
    assert_int_equal(CAUSE_MODEL_MISSING, STATUS_COUNT_);
    for (int i = 0; i < CAUSE_COUNT_; i++) {
        const struct cause_row *row = cause_row((enum cause)i);
        assert_int_equal(row->status, i < STATUS_COUNT_ ? i : (int)row->status);
        assert_in_range(row->status, i ? 1 : 0, STATUS_COUNT_ - 1);
        if (i < STATUS_COUNT_)
            assert_string_equal(row->name, status_name((enum status)i));
        assert_true(i == CAUSE_OK || *row->sentence);
        /* A hint says that trying again may help, so no hint is given if the request itself is
         * wrong. */
        assert_true(row->retry_us == 0 || row->status == STATUS_RESOURCE_EXHAUSTED ||
                    row->status == STATUS_UNAVAILABLE);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(row->name, cause_row((enum cause)k)->name);
    }
    assert_ptr_equal(cause_row(CAUSE_COUNT_), cause_row(CAUSE_UNKNOWN));
    assert_ptr_equal(cause_row((enum cause) - 1), cause_row(CAUSE_UNKNOWN));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(r10_control_bytes_are_escaped),
        cmocka_unit_test(r10_texts_are_utf8),
        cmocka_unit_test(a_cut_is_not_within_a_character),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(errno_gives_the_code),
        cmocka_unit_test(errno_gives_the_cause),
        cmocka_unit_test(a_cause_brings_its_status_and_sentence),
        cmocka_unit_test(the_table_of_causes_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
