/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/error.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(r10_control_bytes_are_escaped),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(errno_gives_the_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
