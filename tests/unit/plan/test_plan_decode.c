/* SPDX-License-Identifier: Apache-2.0 */
/* Each limit on what a plan's structure may hold is exceeded by one: R34 of docs/operations.md for
 * the counts. */
#include <string.h>

#include "engine/plan/format.h"
#include "tests/test.h"
#include "tests/unit/import/wire.h"

/* fields of plan.proto */
enum { PLAN_INPUTS = 3, PLAN_PROFILES = 5, PLAN_EXACTNESS = 6 };
enum { EXACTNESS_OUTPUTS = 4, EXACTNESS_HELD = 5, HELD_LAYER = 1, HELD_DTYPE = 2 };
enum { PROFILE_TENSORS = 2, PROFILE_NODES = 3, PROFILE_SEGMENTS = 4 };
enum { NODE_OP = 1, NODE_ATTRS = 5, NODE_EPILOGUE = 6, NODE_TACTIC = 7 };
enum { ATTR_KEY = 1, ATTR_INTS = 3, ATTR_FLOATS = 4 };
enum { TACTIC_NAME = 2, TACTIC_BLOB = 4, TACTIC_IN = 5, TACTIC_OUT = 6 };

/* NULL: the structure must be accepted */
static void assert_decodes(const struct wire *structure, const char *refusal)
{
    struct plan *plan = plan_new();
    struct error err = {.text = ""};
    assert_non_null(plan);
    enum status status = plan_decode(plan, structure->data, structure->n, &err);
    if (status != (refusal ? STATUS_DATA_LOSS : STATUS_OK) ||
        (refusal && !strstr(err.text, refusal)))
        fail_msg("status %d '%s', not '%s'", (int)status, err.text, refusal ? refusal : "taken");
    plan_free(plan);
}

static struct wire within(uint32_t field, const struct wire *inner)
{
    struct wire outer = {.n = 0};
    wire_message(&outer, field, inner);
    return outer;
}

/* A plan of one profile with that node. */
static void assert_node(const struct wire *node, const char *refusal)
{
    struct wire profile = within(PROFILE_NODES, node), plan = within(PLAN_PROFILES, &profile);
    assert_decodes(&plan, refusal);
}

static struct wire node_with(uint32_t field, uint32_t n, const struct wire *inner)
{
    struct wire node = {.n = 0};
    wire_int(&node, NODE_OP, IR_OP_UNARY);
    for (uint32_t i = 0; i < n; i++)
        wire_message(&node, field, inner);
    return node;
}

static void r34_attributes_are_counted(void **state)
{
    (void)state;
    struct wire ints = {.n = 0}, floats = {.n = 0}, attr = {.n = 0}, zero = {.n = 0};
    wire_int(&ints, ATTR_KEY, IR_ATTR_AXIS);
    wire_int(&floats, ATTR_KEY, IR_ATTR_ALPHA);
    for (int i = 0; i < 64; i++) {
        wire_int(&ints, ATTR_INTS, 2);
        wire_float(&floats, ATTR_FLOATS, 2);
    }
    struct wire node = node_with(NODE_ATTRS, 1, &ints);
    assert_node(&node, NULL);
    node = node_with(NODE_ATTRS, 1, &floats);
    assert_node(&node, NULL);
    wire_int(&ints, ATTR_INTS, 2);
    wire_float(&floats, ATTR_FLOATS, 2);
    node = node_with(NODE_ATTRS, 1, &ints);
    assert_node(&node, "more than 64 values");
    node = node_with(NODE_ATTRS, 1, &floats);
    assert_node(&node, "more than 64 values");
    wire_int(&attr, ATTR_KEY, IR_ATTR_AXIS);
    node = node_with(NODE_ATTRS, IR_ATTR_COUNT_, &attr);
    assert_node(&node, NULL);
    node = node_with(NODE_ATTRS, IR_ATTR_COUNT_ + 1, &attr);
    assert_node(&node, "too many attributes");
    node = node_with(NODE_ATTRS, 1, &zero);
    assert_node(&node, "an attribute of an unknown kind");
}

static void r34_epilogues_are_counted(void **state)
{
    (void)state;
    struct wire step = {.n = 0}, other = {.n = 0};
    wire_int(&other, 1, IR_EPILOGUE_BINARY + 1);
    struct wire node = node_with(NODE_EPILOGUE, IR_MAX_EPILOGUE, &step);
    assert_node(&node, NULL);
    node = node_with(NODE_EPILOGUE, IR_MAX_EPILOGUE + 1, &step);
    assert_node(&node, "a bad epilogue");
    node = node_with(NODE_EPILOGUE, 1, &other);
    assert_node(&node, "a bad epilogue");
}

/* A tactic that has a field `n` times. */
static struct wire tactic_node(uint32_t field, uint32_t n, const struct wire *inner)
{
    struct wire tactic = {.n = 0};
    for (uint32_t i = 0; i < n; i++)
        wire_message(&tactic, field, inner);
    return node_with(NODE_TACTIC, 1, &tactic);
}

static void r34_tactics_have_a_size(void **state)
{
    (void)state;
    static struct wire long_text;
    struct wire port = {.n = 0}, other = {.n = 0}, format = {.n = 0}, tactic = {.n = 0};
    struct wire node = tactic_node(TACTIC_IN, TACTIC_PORTS_MAX, &port);
    assert_node(&node, NULL);
    node = tactic_node(TACTIC_IN, TACTIC_PORTS_MAX + 1, &port);
    assert_node(&node, "too many ports");
    node = tactic_node(TACTIC_OUT, IR_MAX_OUTPUTS + 1, &port);
    assert_node(&node, "too many ports");
    wire_int(&format, 1, IR_LAYOUT_COUNT_);
    wire_message(&other, 1, &format);
    node = tactic_node(TACTIC_IN, 1, &other);
    assert_node(&node, "a format of an unknown layout or type");
    memset(long_text.data, 'a', sizeof(long_text.data));
    long_text.n = TACTIC_BLOB_MAX;
    node = tactic_node(TACTIC_BLOB, 1, &long_text);
    assert_node(&node, NULL);
    long_text.n++;
    node = tactic_node(TACTIC_BLOB, 1, &long_text);
    assert_node(&node, "data is too long");
    long_text.n = TACTIC_NAME_MAX - 1;
    node = tactic_node(TACTIC_NAME, 1, &long_text);
    assert_node(&node, NULL);
    long_text.n++;
    node = tactic_node(TACTIC_NAME, 1, &long_text);
    assert_node(&node, "name is too long");
    node = node_with(NODE_TACTIC, 2, &tactic);
    assert_node(&node, "a node with two tactics");
}

static struct wire repeated(uint32_t field, uint32_t n, const struct wire *inner)
{
    struct wire outer = {.n = 0};
    for (uint32_t i = 0; i < n; i++)
        wire_message(&outer, field, inner);
    return outer;
}

static void r34_segments_profiles_and_bindings_are_counted(void **state)
{
    (void)state;
    struct wire empty = {.n = 0}, binding = {.n = 0}, other = {.n = 0};
    struct wire profile = repeated(PROFILE_SEGMENTS, PLAN_MAX_SEGMENTS, &empty);
    struct wire plan = within(PLAN_PROFILES, &profile);
    assert_decodes(&plan, NULL);
    profile = repeated(PROFILE_SEGMENTS, PLAN_MAX_SEGMENTS + 1, &empty);
    plan = within(PLAN_PROFILES, &profile);
    assert_decodes(&plan, "too many segments");
    plan = repeated(PLAN_PROFILES, PLAN_MAX_PROFILES, &empty);
    assert_decodes(&plan, NULL);
    plan = repeated(PLAN_PROFILES, PLAN_MAX_PROFILES + 1, &empty);
    assert_decodes(&plan, "too many profiles");
    wire_int(&binding, 2, DTYPE_F32);
    plan = repeated(PLAN_INPUTS, IR_MAX_IO, &binding);
    assert_decodes(&plan, NULL);
    plan = repeated(PLAN_INPUTS, IR_MAX_IO + 1, &binding);
    assert_decodes(&plan, "a bad binding, or too many");
    wire_int(&other, 2, DTYPE_COUNT_);
    plan = within(PLAN_INPUTS, &other);
    assert_decodes(&plan, "a bad binding, or too many");
}

static void r34_errors_are_counted(void **state)
{
    (void)state;
    struct wire empty = {.n = 0}, held = {.n = 0};
    struct wire plan = repeated(PLAN_EXACTNESS, 1, &empty);
    assert_decodes(&plan, NULL);
    plan = repeated(PLAN_EXACTNESS, 2, &empty);
    assert_decodes(&plan, "two measurements");
    struct wire exactness = repeated(EXACTNESS_OUTPUTS, IR_MAX_IO, &empty);
    plan = within(PLAN_EXACTNESS, &exactness);
    assert_decodes(&plan, NULL);
    exactness = repeated(EXACTNESS_OUTPUTS, IR_MAX_IO + 1, &empty);
    plan = within(PLAN_EXACTNESS, &exactness);
    assert_decodes(&plan, "errors of too many outputs");
    exactness = repeated(EXACTNESS_HELD, PLAN_MAX_HELD, &empty);
    plan = within(PLAN_EXACTNESS, &exactness);
    assert_decodes(&plan, NULL);
    exactness = repeated(EXACTNESS_HELD, PLAN_MAX_HELD + 1, &empty);
    plan = within(PLAN_EXACTNESS, &exactness);
    assert_decodes(&plan, "held back, or too many");
    wire_int(&held, HELD_DTYPE, DTYPE_COUNT_);
    exactness = within(EXACTNESS_HELD, &held);
    plan = within(PLAN_EXACTNESS, &exactness);
    assert_decodes(&plan, "a bad layer that is held back");
    held.n = 0;
    wire_bytes(&held, HELD_LAYER, "a\0b", 3);
    exactness = within(EXACTNESS_HELD, &held);
    plan = within(PLAN_EXACTNESS, &exactness);
    assert_decodes(&plan, "a zero byte in a name");
}

/* Fields of a few bytes that take hundreds of bytes in memory. */
static void r34_memory_follows_the_files_size(void **state)
{
    (void)state;
    struct wire tactic = {.n = 0}, tensor = {.n = 0}, format = {.n = 0};
    struct wire node = node_with(NODE_TACTIC, 1, &tactic);
    struct wire profile = repeated(PROFILE_NODES, 1000, &node);
    struct wire plan = within(PLAN_PROFILES, &profile);
    assert_decodes(&plan, "takes more memory than its size allows");
    wire_int(&format, 2, DTYPE_F32);
    wire_message(&tensor, 2, &format);
    wire_int(&tensor, 5, IR_PLACE_ARENA);
    profile = repeated(PROFILE_TENSORS, 1000, &tensor);
    plan = within(PLAN_PROFILES, &profile);
    assert_decodes(&plan, NULL);
}

static void damaged_wire_says_so(void **state)
{
    (void)state;
    struct wire plan = {.n = 0};
    wire_varint(&plan, 1 << 3 | 2); /* a name of ten bytes, stored once */
    wire_varint(&plan, 10);
    wire_varint(&plan, 'n');
    assert_decodes(&plan, "plan: ");
    plan.n = 0;
    wire_bytes(&plan, 1, "a\0b", 3);
    assert_decodes(&plan, "a zero byte in a name");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(r34_attributes_are_counted),
        cmocka_unit_test(r34_epilogues_are_counted),
        cmocka_unit_test(r34_tactics_have_a_size),
        cmocka_unit_test(r34_segments_profiles_and_bindings_are_counted),
        cmocka_unit_test(r34_errors_are_counted),
        cmocka_unit_test(r34_memory_follows_the_files_size),
        cmocka_unit_test(damaged_wire_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
