/* SPDX-License-Identifier: Apache-2.0 */
/* Which requests of a mask run padded, by what is asked of it. */
#include <string.h>

#include "base/compiler.h"
#include "engine/engine.h"
#include "tests/test.h"

enum { MOST = 8 };

/* Checks a request of two rows at a point of eight; `rows` has a digit an element. */
static enum status check(enum engine_mask mask, enum dtype dtype, const char *rows,
                         struct error *err)
{
    int64_t length = (int64_t)strlen(rows) / 2;
    char data[2 * MOST * sizeof(int64_t)] = {0};
    const struct engine_free seq = {.name = "seq", .low = 1, .high = MOST, .pads = true};
    const struct engine_axes axes = {.free = {0, 1}, .mask = mask};
    const struct engine_binding binding = {
        .name = "mask", .dtype = dtype, .shape = {.rank = 2, .dim = {-1, MOST}}};
    const struct engine_point point = {.values = {MOST}, .inputs = &binding};
    const struct engine_info info = {.batched = true,
                                     .n_inputs = 1,
                                     .inputs = &binding,
                                     .input_axes = &axes,
                                     .n_free = 1,
                                     .free = &seq,
                                     .n_points = 1,
                                     .points = &point};
    size_t size = dtype_size(dtype);
    for (size_t i = 0; rows[i]; i++)
        data[i * size + size - 1] = (char)(rows[i] - '0');
    const struct engine_span span = {data, strlen(rows) * size};
    return engine_masks_check(&info, 0, &length, 2, &span, err);
}

static void rows_hide_what_is_behind(void **state UNUSED)
{
    static const struct {
        const char *rows; /* both */
        bool by_rows, by_first, by_whole;
    } cases[] = {
        {"111111", true, true, true},           {"110100", true, true, false},
        {"111011", true, false, false},         {"001010", true, false, false},
        {"000111", false, false, false},        {"111000", false, false, false},
        {"0000000000000000", true, true, true}, /* as long as the point: it is not padded */
    };
    static const enum dtype types[] = {DTYPE_I64, DTYPE_F32, DTYPE_BOOL};
    struct error err;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (size_t k = 0; k < ARRAY_LEN(types); k++) {
            bool got[ENGINE_MASKS];
            for (int mask = 0; mask < ENGINE_MASKS; mask++)
                got[mask] = !check((enum engine_mask)mask, types[k], cases[i].rows, &err);
            if (!got[ENGINE_MASK_NONE] || got[ENGINE_MASK_ROWS] != cases[i].by_rows ||
                got[ENGINE_MASK_FIRST] != cases[i].by_first ||
                got[ENGINE_MASK_WHOLE] != cases[i].by_whole)
                fail_msg("%s: %d %d %d", cases[i].rows, got[ENGINE_MASK_ROWS],
                         got[ENGINE_MASK_FIRST], got[ENGINE_MASK_WHOLE]);
        }
}

static void it_is_said_which_and_why(void **state UNUSED)
{
    struct error err;
    assert_int_equal(check(ENGINE_MASK_ROWS, DTYPE_I64, "111000", &err),
                     STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "input 'mask' has a row of zeros alone"));
    assert_int_equal(check(ENGINE_MASK_FIRST, DTYPE_I64, "111011", &err),
                     STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "begins with a zero"));
    assert_int_equal(check(ENGINE_MASK_WHOLE, DTYPE_I64, "111110", &err),
                     STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "has a zero:"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_hide_what_is_behind),
        cmocka_unit_test(it_is_said_which_and_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
