/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verifier on graphs as a damaged or malicious plan might give them. First each rule is broken
 * once by hand, then many random fields of a good graph are overwritten.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/ir/ir.h"
#include "tests/test.h"

static const float zeros[256];

static uint32_t tensor(struct ir_graph *g, const char *name, uint32_t rank, int64_t d0, int64_t d1,
                       int64_t d2)
{
    struct shape s = {.rank = rank, .dim = {d0, d1, d2}};
    for (uint32_t i = rank; i < 3; i++)
        s.dim[i] = 0;
    uint32_t id = ir_tensor_add(g, name, DTYPE_F32, &s);
    assert_int_not_equal(id, IR_NONE);
    return id;
}

static void apply(struct ir_graph *g, uint32_t node, const char *name)
{
    struct error err = {0};
    if (ir_infer_apply(g, node, &name, 1, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

enum { X, R, W, B, C, F, Y }; /* tensors */
enum { CONV, FLAT, RELU };    /* nodes */
static const char *const segments[] = {"cpu", "other"};

/* conv(x, w, b) then add(r) -> reshape -> relu, in two segments. */
static struct ir_graph *sample(void)
{
    struct ir_graph *g = ir_graph_new();
    g->inputs[g->n_inputs++] = tensor(g, "x", 3, 1, 2, 5);
    g->inputs[g->n_inputs++] = tensor(g, "r", 3, 1, 3, 5);
    uint32_t in[3] = {X, tensor(g, "w", 3, 3, 2, 1), tensor(g, "b", 1, 3, 0, 0)};
    ir_tensor(g, W)->data = zeros;
    ir_tensor(g, B)->data = zeros;
    assert_int_equal(ir_node_add(g, IR_OP_CONV, "conv", 3, in), CONV);
    assert_true(ir_attr_set_int(g, CONV, IR_ATTR_GROUP, 1));
    apply(g, CONV, "c");
    assert_true(ir_epilogue_add(
        g, CONV, (struct ir_epilogue){.kind = IR_EPILOGUE_BINARY, .func = IR_BINARY_ADD}, R));
    uint32_t c = C, f = F;
    assert_int_equal(ir_node_add(g, IR_OP_RESHAPE, "flat", 1, &c), FLAT);
    assert_true(ir_attr_set_ints(g, FLAT, IR_ATTR_SHAPE, 2, (int64_t[]){1, 15}));
    apply(g, FLAT, "f");
    assert_int_equal(ir_node_add(g, IR_OP_UNARY, "relu", 1, &f), RELU);
    assert_true(ir_attr_set_int(g, RELU, IR_ATTR_FUNC, IR_UNARY_RELU));
    apply(g, RELU, "y");
    g->outputs[g->n_outputs++] = Y;
    ir_tensor(g, F)->alias_of = C;

    g->segments = arena_array(g->arena, 2, sizeof(*g->segments));
    assert_non_null(g->segments);
    g->n_segments = 2;
    g->segments[0] = (struct ir_segment){.backend = segments[0], .first = 0, .count = 2};
    g->segments[1] = (struct ir_segment){.backend = segments[1], .first = 2, .count = 1};
    ir_node(g, RELU)->segment = 1;
    return g;
}

static void sample_is_good(void **state)
{
    (void)state;
    struct ir_graph *g = sample();
    struct error err = {0};
    if (ir_verify(g, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    ir_graph_free(g);
}

static const int64_t nine[9];
static const struct ir_attr bad_attrs[] = {
    {.key = (enum ir_attr_key)64, .count = 1, .i = nine},
    {.key = (enum ir_attr_key) - 1, .count = 1, .i = nine},
};
static struct ir_attr repeated[2];

/* Each function breaks one rule. */
static void b_no_outputs(struct ir_graph *g)
{
    g->n_outputs = 0;
}
static void b_io_count(struct ir_graph *g)
{
    g->n_inputs = IR_MAX_IO + 1;
}
static void b_input_range(struct ir_graph *g)
{
    g->inputs[0] = 7;
}
static void b_input_none(struct ir_graph *g)
{
    g->inputs[0] = IR_NONE;
}
static void b_input_twice(struct ir_graph *g)
{
    g->inputs[1] = X;
}
static void b_input_constant(struct ir_graph *g)
{
    ir_tensor(g, X)->data = zeros;
}
static void b_input_made(struct ir_graph *g)
{
    g->inputs[0] = C;
}
static void b_output_range(struct ir_graph *g)
{
    g->outputs[0] = 99;
}
static void b_output_twice(struct ir_graph *g)
{
    g->outputs[g->n_outputs++] = Y;
}
static void b_output_is_input(struct ir_graph *g)
{
    g->outputs[0] = X;
}
static void b_output_constant(struct ir_graph *g)
{
    g->outputs[0] = W;
}
static void b_tensor_count(struct ir_graph *g)
{
    g->n_tensors = IR_MAX_TENSORS + 1;
}
static void b_node_count(struct ir_graph *g)
{
    g->n_nodes = IR_MAX_NODES + 1;
}
static void b_tensor_name(struct ir_graph *g)
{
    ir_tensor(g, C)->name = NULL;
}
static void b_dtype(struct ir_graph *g)
{
    ir_tensor(g, C)->dtype = (enum dtype)55;
}
static void b_dtype_other(struct ir_graph *g)
{
    ir_tensor(g, C)->dtype = DTYPE_I32;
}
static void b_rank(struct ir_graph *g)
{
    ir_tensor(g, C)->shape.rank = 9;
}
static void b_dim_negative(struct ir_graph *g)
{
    ir_tensor(g, X)->shape.dim[0] = -1;
}
static void b_dim_huge(struct ir_graph *g)
{
    ir_tensor(g, X)->shape.dim[0] = INT64_MAX;
}
static void b_dim_other(struct ir_graph *g)
{
    ir_tensor(g, Y)->shape.dim[1] = 14;
    ir_tensor(g, Y)->bytes = 56;
}
static void b_bytes(struct ir_graph *g)
{
    ir_tensor(g, X)->bytes--;
}
static void b_layout(struct ir_graph *g)
{
    ir_tensor(g, X)->layout = (enum ir_layout)9;
}
static void b_layout_bytes(struct ir_graph *g)
{
    ir_tensor(g, X)->layout = IR_LAYOUT_BLOCKED_8;
}
static void b_opaque(struct ir_graph *g)
{
    ir_tensor(g, C)->layout = IR_LAYOUT_OPAQUE;
}
static void b_opaque_huge(struct ir_graph *g)
{
    ir_tensor(g, W)->layout = IR_LAYOUT_OPAQUE;
    ir_tensor(g, W)->bytes = UINT64_MAX;
}
static void b_producer_range(struct ir_graph *g)
{
    ir_tensor(g, C)->producer = 3;
}
static void b_producer_other(struct ir_graph *g)
{
    ir_tensor(g, C)->producer = RELU;
}
static void b_producer_none(struct ir_graph *g)
{
    ir_tensor(g, C)->producer = IR_NONE;
}
static void b_producer_of_input(struct ir_graph *g)
{
    ir_tensor(g, R)->producer = CONV;
}
static void b_constant_made(struct ir_graph *g)
{
    ir_tensor(g, C)->data = zeros;
}
static void b_alias_range(struct ir_graph *g)
{
    ir_tensor(g, F)->alias_of = 7;
}
static void b_alias_self(struct ir_graph *g)
{
    ir_tensor(g, F)->alias_of = F;
}
static void b_alias_ring(struct ir_graph *g)
{
    ir_tensor(g, C)->alias_of = F;
}
static void b_alias_small(struct ir_graph *g)
{
    ir_tensor(g, F)->alias_of = B;
}
static void b_op(struct ir_graph *g)
{
    ir_node(g, RELU)->op = (enum ir_op)200;
}
static void b_op_removed(struct ir_graph *g)
{
    ir_node(g, FLAT)->op = IR_OP_NONE;
}
static void b_node_name(struct ir_graph *g)
{
    ir_node(g, RELU)->name = NULL;
}
static void b_reads_range(struct ir_graph *g)
{
    ir_node(g, RELU)->inputs[0] = 7;
}
static void b_reads_none(struct ir_graph *g)
{
    ir_node(g, RELU)->inputs[0] = IR_NONE;
}
static void b_reads_own(struct ir_graph *g)
{
    ir_node(g, RELU)->inputs[0] = Y;
}
static void b_reads_later(struct ir_graph *g)
{
    ir_node(g, CONV)->inputs[3] = Y;
}
static void b_reads_unmade(struct ir_graph *g)
{
    g->n_inputs = 1;
}
static void b_inputs_null(struct ir_graph *g)
{
    ir_node(g, RELU)->inputs = NULL;
}
static void b_inputs_count(struct ir_graph *g)
{
    ir_node(g, RELU)->n_inputs = UINT32_MAX;
}
static void b_outputs_count(struct ir_graph *g)
{
    ir_node(g, RELU)->n_outputs = UINT32_MAX;
}
static void b_outputs_none(struct ir_graph *g)
{
    ir_node(g, FLAT)->n_outputs = 0;
}
static void b_output_shared(struct ir_graph *g)
{
    ir_node(g, RELU)->outputs[0] = F;
}
static void b_output_id(struct ir_graph *g)
{
    ir_node(g, RELU)->outputs[0] = IR_NONE;
}
static void b_attrs_count(struct ir_graph *g)
{
    ir_node(g, RELU)->n_attrs = UINT32_MAX;
}
static void b_attrs_null(struct ir_graph *g)
{
    ir_node(g, RELU)->attrs = NULL;
}
static void b_attr_kind(struct ir_graph *g)
{
    ir_node(g, FLAT)->attrs[0].is_float = true;
}
static void b_attr_list(struct ir_graph *g)
{
    ir_node(g, FLAT)->attrs[0].count = UINT32_MAX;
}
static void b_attr_scalar(struct ir_graph *g)
{
    ir_node(g, RELU)->attrs[0].count = 0;
}
static void b_attr_values(struct ir_graph *g)
{
    ir_node(g, RELU)->attrs[0].i = NULL;
}
static void b_attr_key(struct ir_graph *g)
{
    ir_node(g, RELU)->attrs[0] = bad_attrs[0];
}
static void b_attr_key_negative(struct ir_graph *g)
{
    ir_node(g, RELU)->attrs[0] = bad_attrs[1];
}
static void b_attr_foreign(struct ir_graph *g)
{
    ir_node(g, RELU)->attrs[0].key = IR_ATTR_PERM;
}
static void b_attr_repeated(struct ir_graph *g)
{
    repeated[0] = repeated[1] = ir_node(g, RELU)->attrs[0];
    ir_node(g, RELU)->attrs = repeated;
    ir_node(g, RELU)->n_attrs = 2;
}
static void b_epilogue_count(struct ir_graph *g)
{
    ir_node(g, CONV)->n_epilogue = UINT32_MAX;
}
static void b_epilogue_kind(struct ir_graph *g)
{
    ir_node(g, CONV)->epilogue[0].kind = (enum ir_epilogue_kind)2;
}
static void b_epilogue_func(struct ir_graph *g)
{
    ir_node(g, CONV)->epilogue[0].func = IR_BINARY_EQUAL;
}
static void b_epilogue_unary(struct ir_graph *g)
{
    ir_node(g, RELU)->n_epilogue = 1;
    ir_node(g, RELU)->epilogue[0].func = IR_UNARY_IS_NAN;
}
static void b_epilogue_input(struct ir_graph *g)
{
    ir_node(g, CONV)->epilogue[0].input = 4;
}
static void b_epilogue_input_own(struct ir_graph *g)
{
    ir_node(g, CONV)->epilogue[0].input = 0;
}
static void b_epilogue_operand(struct ir_graph *g)
{
    ir_node(g, CONV)->inputs[3] = X;
}
static void b_epilogue_twice(struct ir_graph *g)
{
    ir_node(g, CONV)->epilogue[1] = ir_node(g, CONV)->epilogue[0];
    ir_node(g, CONV)->n_epilogue = 2;
}
static void b_epilogue_op(struct ir_graph *g)
{
    ir_node(g, FLAT)->n_epilogue = 1;
    ir_node(g, FLAT)->epilogue[0].func = IR_UNARY_RELU;
}
static void b_segment_gap(struct ir_graph *g)
{
    g->segments[1].first = 1;
}
static void b_segment_empty(struct ir_graph *g)
{
    g->segments[0].count = 0;
}
static void b_segment_long(struct ir_graph *g)
{
    g->segments[1].count = UINT32_MAX;
}
static void b_segment_short(struct ir_graph *g)
{
    g->n_segments = 1;
}
static void b_segment_node(struct ir_graph *g)
{
    ir_node(g, FLAT)->segment = 1;
}
static void b_segment_backend(struct ir_graph *g)
{
    g->segments[0].backend = NULL;
}
static void b_segment_count(struct ir_graph *g)
{
    g->n_segments = UINT32_MAX;
}

#define BREAK(name)                                                                                \
    {                                                                                              \
#name, name                                                                                \
    }
static const struct {
    const char *name;
    void (*apply)(struct ir_graph *g);
} breaks[] = {
    BREAK(b_no_outputs),
    BREAK(b_io_count),
    BREAK(b_input_range),
    BREAK(b_input_none),
    BREAK(b_input_twice),
    BREAK(b_input_constant),
    BREAK(b_input_made),
    BREAK(b_output_range),
    BREAK(b_output_twice),
    BREAK(b_output_is_input),
    BREAK(b_output_constant),
    BREAK(b_tensor_count),
    BREAK(b_node_count),
    BREAK(b_tensor_name),
    BREAK(b_dtype),
    BREAK(b_dtype_other),
    BREAK(b_rank),
    BREAK(b_dim_negative),
    BREAK(b_dim_huge),
    BREAK(b_dim_other),
    BREAK(b_bytes),
    BREAK(b_layout),
    BREAK(b_layout_bytes),
    BREAK(b_opaque),
    BREAK(b_opaque_huge),
    BREAK(b_producer_range),
    BREAK(b_producer_other),
    BREAK(b_producer_none),
    BREAK(b_producer_of_input),
    BREAK(b_constant_made),
    BREAK(b_alias_range),
    BREAK(b_alias_self),
    BREAK(b_alias_ring),
    BREAK(b_alias_small),
    BREAK(b_op),
    BREAK(b_op_removed),
    BREAK(b_node_name),
    BREAK(b_reads_range),
    BREAK(b_reads_none),
    BREAK(b_reads_own),
    BREAK(b_reads_later),
    BREAK(b_reads_unmade),
    BREAK(b_inputs_null),
    BREAK(b_inputs_count),
    BREAK(b_outputs_count),
    BREAK(b_outputs_none),
    BREAK(b_output_shared),
    BREAK(b_output_id),
    BREAK(b_attrs_count),
    BREAK(b_attrs_null),
    BREAK(b_attr_kind),
    BREAK(b_attr_list),
    BREAK(b_attr_scalar),
    BREAK(b_attr_values),
    BREAK(b_attr_key),
    BREAK(b_attr_key_negative),
    BREAK(b_attr_foreign),
    BREAK(b_attr_repeated),
    BREAK(b_epilogue_count),
    BREAK(b_epilogue_kind),
    BREAK(b_epilogue_func),
    BREAK(b_epilogue_unary),
    BREAK(b_epilogue_input),
    BREAK(b_epilogue_input_own),
    BREAK(b_epilogue_operand),
    BREAK(b_epilogue_twice),
    BREAK(b_epilogue_op),
    BREAK(b_segment_gap),
    BREAK(b_segment_empty),
    BREAK(b_segment_long),
    BREAK(b_segment_short),
    BREAK(b_segment_node),
    BREAK(b_segment_backend),
    BREAK(b_segment_count),
};

static void r14_every_broken_rule_is_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(breaks); i++) {
        struct ir_graph *g = sample();
        struct error err = {0};
        breaks[i].apply(g);
        if (ir_verify(g, &err) != STATUS_INVALID_ARGUMENT || !err.text[0])
            fail_msg("%s was not found: \"%s\"", breaks[i].name, err.text);
        assert_int_not_equal(ir_verify(g, NULL), STATUS_OK);
        ir_graph_free(g);
    }
}

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* A value that is small, at a border, or anything at all. */
static uint64_t spice(uint64_t *seed)
{
    static const uint64_t borders[] = {0,         1,          UINT32_MAX, INT32_MAX,
                                       INT64_MAX, UINT64_MAX, 1u << 31,   1ull << 40};
    switch (next(seed) % 3) {
    case 0:
        return next(seed) % 10;
    case 1:
        return borders[next(seed) % ARRAY_LEN(borders)];
    default:
        return next(seed) << 32 ^ next(seed);
    }
}

static void spoil(struct ir_graph *g, uint64_t *seed)
{
    struct ir_node *n = ir_node(g, (uint32_t)next(seed) % 3);
    struct ir_tensor *t = ir_tensor(g, (uint32_t)next(seed) % 7);
    uint64_t v = spice(seed);
    switch (next(seed) % 16) {
    case 0:
        n->op = (enum ir_op)v;
        break;
    case 1: /* a reader fills as many inputs as the count says */
        n->n_inputs = (uint32_t)(v % (n->n_inputs + 1));
        break;
    case 2:
        n->n_outputs = (uint32_t)v;
        break;
    case 3:
        n->inputs[0] = (uint32_t)v;
        break;
    case 4:
        n->outputs[next(seed) % IR_MAX_OUTPUTS] = (uint32_t)v;
        break;
    case 5:
        n->n_epilogue = (uint32_t)v;
        break;
    case 6:
        n->epilogue[next(seed) % 2].input = (uint32_t)v;
        break;
    case 7:
        n->epilogue[next(seed) % 2].kind = (enum ir_epilogue_kind)v;
        break;
    case 8:
        n->epilogue[0].func = (uint32_t)v;
        break;
    case 9:
        n->attrs[0].key = (enum ir_attr_key)v;
        break;
    case 10: {
        int64_t value = (int64_t)v;
        assert_true(ir_attr_set_ints(g, (uint32_t)(n - g->nodes), n->attrs[0].key, 1, &value));
        break;
    }
    case 11:
        t->dtype = (enum dtype)v;
        break;
    case 12:
        t->shape.rank = (uint32_t)v;
        break;
    case 13:
        t->shape.dim[next(seed) % 3] = (int64_t)v;
        break;
    case 14:
        t->producer = (uint32_t)v;
        break;
    default:
        t->bytes = v;
        break;
    }
}

/* Whatever the fields are, the verifier answers; the sanitizers show every read out of range. */
static void r34_random_fields_never_crash(void **state)
{
    (void)state;
    uint64_t seed = 1;
    uint32_t refused = 0, rounds = 20000;
    for (uint32_t i = 0; i < rounds; i++) {
        struct ir_graph *g = sample();
        for (uint64_t n = next(&seed) % 3 + 1; n; n--)
            spoil(g, &seed);
        struct error err = {0};
        enum status status = ir_verify(g, &err);
        refused += status != STATUS_OK;
        assert_true(status == STATUS_OK || status == STATUS_INVALID_ARGUMENT);
        ir_graph_free(g);
    }
    assert_in_range(refused, rounds / 2, rounds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sample_is_good),
        cmocka_unit_test(r14_every_broken_rule_is_found),
        cmocka_unit_test(r34_random_fields_never_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
