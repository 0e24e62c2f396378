/* SPDX-License-Identifier: Apache-2.0 */
/* The table of ops: each row is whole, and is found from its first opset to its last. */
#include <stdlib.h>
#include <string.h>

#include "engine/import/ops.h"
#include "tests/test.h"

/* "axis:i axes:iI": names, and letters that check.c knows. */
static bool attrs_are_well_formed(const char *attrs)
{
    while (*attrs) {
        size_t name = strspn(attrs, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_");
        size_t letters = strspn(attrs + name + (attrs[name] == ':'), "bfistgpFISTG");
        attrs += name + 1 + letters;
        if (!name || !letters || (*attrs && *attrs != ' '))
            return false;
        attrs += *attrs == ' ';
    }
    return true;
}

static void rows_are_whole(void **state UNUSED)
{
    uint32_t n = 0;
    for (const struct map_op *row; (row = map_op_at(n)); n++) {
        if (!row->op[0] || !row->map || row->first < 1 || row->first > row->last ||
            row->last > MAP_OPSET_LAST)
            fail_msg("row %u, %s: opsets %d to %d", n, row->op, row->first, row->last);
        if (row->arity.min_in > row->arity.max_in || !row->arity.max_out)
            fail_msg("%s: %u to %u inputs, %u outputs", row->op, row->arity.min_in,
                     row->arity.max_in, row->arity.max_out);
        if (row->attrs && !attrs_are_well_formed(row->attrs))
            fail_msg("%s: attributes '%s'", row->op, row->attrs);
    }
    assert_true(n > 100);
    assert_null(map_op_at(n));
    assert_null(map_op_at(UINT32_MAX));
}

static void rows_are_found_by_their_opsets(void **state UNUSED)
{
    const struct map_op *row, *other;
    for (uint32_t i = 0; (row = map_op_at(i)); i++) {
        assert_ptr_equal(map_op_find(row->domain, row->op, row->first, &other), row);
        assert_ptr_equal(map_op_find(row->domain, row->op, row->last, &other), row);
        const struct map_op *before = map_op_find(row->domain, row->op, row->first - 1, &other);
        assert_ptr_not_equal(before, row);
        assert_true(before || other); /* refused as "from opset ..", not as unknown */
    }
    assert_null(map_op_find("", "NoSuchOp", 13, &other));
    assert_null(other);
    assert_null(map_op_find("com.example", "Add", 13, &other));
    assert_null(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_whole),
        cmocka_unit_test(rows_are_found_by_their_opsets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
