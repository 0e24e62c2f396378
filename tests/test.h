/* SPDX-License-Identifier: Apache-2.0 */
/* cmocka, with what its header needs before it. */
#ifndef INFERD_TESTS_TEST_H
#define INFERD_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/error.h"

/* Fails the test, with the reason, if the call has failed. */
static inline void must(enum status status, const struct error *err)
{
    if (status)
        fail_msg("%s: %s", status_name(status), err->text);
}

#endif
