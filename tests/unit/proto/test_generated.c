/* SPDX-License-Identifier: Apache-2.0 */
/* What nanopb was told to make of the messages that come from the network. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pb_common.h>

#include "inferd.pb.h"

static bool has_callbacks(const pb_msgdesc_t *message)
{
    static uint64_t place[4096];
    pb_field_iter_t at;
    if (!message || !pb_field_iter_begin(&at, message, place))
        return false;
    do {
        if (PB_ATYPE(at.type) == PB_ATYPE_CALLBACK ||
            (PB_LTYPE_IS_SUBMSG(at.type) && has_callbacks(at.submsg_desc)))
            return true;
    } while (pb_field_iter_next(&at));
    return false;
}

/* A pointer field is memory that nanopb allocates as the sender wishes. */
static unsigned fields_check(const pb_msgdesc_t *message, int depth)
{
    unsigned n = 0;
    assert_in_range(depth, 0, 8);
    for (pb_size_t i = 0; i < message->field_count; i++) {
        /* the iterator only looks at places when it moves: any memory of some size will do */
        static uint64_t place[4096];
        pb_field_iter_t at;
        assert_true(pb_field_iter_begin(&at, message, place));
        for (pb_size_t k = 0; k < i; k++)
            assert_true(pb_field_iter_next(&at));
        if (PB_ATYPE(at.type) == PB_ATYPE_POINTER)
            fail_msg("field %u is a pointer", (unsigned)at.tag);
        /* As a member of a union its function is whatever bytes another member left there. */
        if (PB_HTYPE(at.type) == PB_HTYPE_ONEOF && PB_ATYPE(at.type) == PB_ATYPE_CALLBACK)
            fail_msg("field %u is a callback in a oneof", (unsigned)at.tag);
        if (PB_HTYPE(at.type) == PB_HTYPE_ONEOF && has_callbacks(at.submsg_desc) &&
            PB_LTYPE(at.type) != PB_LTYPE_SUBMSG_W_CB)
            fail_msg("field %u has callbacks, and nobody is told when it begins", (unsigned)at.tag);
        n++;
        if (PB_LTYPE_IS_SUBMSG(at.type))
            n += fields_check(at.submsg_desc, depth + 1);
    }
    return n;
}

static void r7_no_pointers_and_no_callbacks_in_unions(void **state)
{
    (void)state;
    assert_in_range(fields_check(inferd_Request_fields, 0), 50, 10000);
    assert_in_range(fields_check(inferd_Response_fields, 0), 50, 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(r7_no_pointers_and_no_callbacks_in_unions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
