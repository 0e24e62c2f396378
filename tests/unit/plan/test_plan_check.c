/* SPDX-License-Identifier: Apache-2.0 */
/* plan_check on a plan that is right except for one thing, and files that plan_read refuses. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/build/build.h"
#include "engine/plan/format.h"
#include "tests/test.h"
#include "tests/unit/plan/sample.h"

static const uint64_t numbers[] = {0,          1,          2,  3,    4,         5,
                                   7,          63,         64, 576,  (1u << 4), (1u << 8),
                                   UINT32_MAX, 1ull << 40, 64, 2304, 18432,     UINT64_MAX};

/* How many changes were tried, and how many of them were refused. */
static uint32_t n_tried, n_refused;

static void look(const struct plan *plan)
{
    struct error err = {0};
    n_tried++;
    enum status status = plan_check(plan, &err);
    if (status == STATUS_OK)
        return;
    n_refused++;
    if (!err.text[0] || (status != STATUS_DATA_LOSS && status != STATUS_INTERNAL &&
                         status != STATUS_INVALID_ARGUMENT))
        fail_msg("%s: '%s'", status_name(status), err.text);
}

/* Gives a field each of the numbers, cut to its size. */
#define TRY_NUMBERS(field)                                                                         \
    do {                                                                                           \
        __typeof__(field) was_ = (field);                                                          \
        for (size_t i_ = 0; i_ < ARRAY_LEN(numbers); i_++) {                                       \
            (field) = (__typeof__(field))numbers[i_];                                              \
            look(plan);                                                                            \
        }                                                                                          \
        (field) = was_;                                                                            \
    } while (0)

static void bend_tensor(struct plan *plan, struct ir_tensor *t)
{
    TRY_NUMBERS(t->offset);
    TRY_NUMBERS(t->bytes);
    TRY_NUMBERS(t->alias_of);
    for (int place = 0; place <= IR_PLACE_ARENA + 1; place++) {
        enum ir_place was = t->place;
        t->place = (enum ir_place)place;
        TRY_NUMBERS(t->offset);
        t->place = was;
    }
    for (int layout = 0; layout < IR_LAYOUT_COUNT_; layout++) {
        enum ir_layout was = t->layout;
        t->layout = (enum ir_layout)layout;
        TRY_NUMBERS(t->bytes);
        t->layout = was;
    }
    for (int dtype = 0; dtype < DTYPE_COUNT_; dtype++) {
        enum dtype was = t->dtype;
        t->dtype = (enum dtype)dtype;
        TRY_NUMBERS(t->bytes);
        t->dtype = was;
    }
}

static void bend_node(struct plan *plan, struct ir_node *node)
{
    struct tactic *tactic = (struct tactic *)(uintptr_t)node->tactic;
    TRY_NUMBERS(node->workspace_offset);
    TRY_NUMBERS(node->workspace_bytes);
    node->tactic = NULL;
    look(plan);
    node->tactic = tactic;
    if (!tactic)
        return;
    TRY_NUMBERS(tactic->in[0].format.dtype);
    TRY_NUMBERS(tactic->in[0].format.layout);
    TRY_NUMBERS(tactic->out[0].format.scale);
    TRY_NUMBERS(tactic->blob_size);
    TRY_NUMBERS(tactic->n_in);
    TRY_NUMBERS(tactic->n_out);
    const char *backend = tactic->backend;
    tactic->backend = NULL;
    look(plan);
    tactic->backend = "another";
    look(plan);
    tactic->backend = backend;
    const void *code = tactic->code;
    tactic->code = NULL;
    look(plan);
    TRY_NUMBERS(tactic->code_size);
    tactic->code = code;
}

static void bend_graph(struct plan *plan, struct ir_graph *g)
{
    for (uint32_t i = 0; i < g->n_tensors; i++)
        bend_tensor(plan, ir_tensor(g, i));
    for (uint32_t i = 0; i < g->n_nodes; i++)
        bend_node(plan, ir_node(g, i));
    for (uint32_t i = 0; i < g->n_segments; i++) {
        struct ir_segment *s = &g->segments[i];
        TRY_NUMBERS(s->first);
        TRY_NUMBERS(s->count);
        TRY_NUMBERS(s->arena_bytes);
    }
    for (uint32_t i = 0; i < g->n_inputs; i++)
        TRY_NUMBERS(g->inputs[i]);
    for (uint32_t i = 0; i < g->n_outputs; i++)
        TRY_NUMBERS(g->outputs[i]);
    uint32_t was = g->n_segments;
    for (g->n_segments = 0; g->n_segments < was; g->n_segments++)
        look(plan);
    g->n_segments = PLAN_MAX_SEGMENTS + 1;
    look(plan);
    g->n_segments = was;
}

static void bend_binding(struct plan *plan, struct plan_binding *b)
{
    const char *was = b->name;
    static const char *const names[] = {"", "a b", "\x80",
                                        ("12345678901234567890123456789012345678901234567890"
                                         "123456789012345")};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        b->name = names[i];
        look(plan);
    }
    b->name = was;
    TRY_NUMBERS(b->dtype);
    TRY_NUMBERS(b->shape.rank);
    for (uint32_t d = 0; d < b->shape.rank; d++)
        TRY_NUMBERS(b->shape.dim[d]);
}

/* Roles and masks of a plan of tokens. */
static void r34_what_a_ragged_plan_says_is_checked(void **state)
{
    (void)state;
    struct plan *plan = sample_plan();
    const struct plan_ragged good = {
        .max_length = 8, .mask = "mask", .mask_type = DTYPE_I64, .mask_at = 1};
    const struct plan_ragged bad[] = {
        {.max_length = PLAN_MAX_BATCH + 1},
        {.max_length = 8, .mask = "m m", .mask_type = DTYPE_I64},
        {.max_length = 8, .mask = plan->inputs[0].name, .mask_type = DTYPE_I64},
        {.max_length = 8, .mask = "mask", .mask_type = DTYPE_NONE},
        {.max_length = 8, .mask = "mask", .mask_type = DTYPE_F8},
        {.max_length = 8, .mask = "mask", .mask_type = DTYPE_I64, .mask_at = 2},
        {.max_length = 8, .mask_at = 1},
    };
    struct error err;
    plan->ragged = good;
    assert_int_equal(plan_check(plan, &err), STATUS_OK);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        plan->ragged = bad[i];
        assert_int_equal(plan_check(plan, &err), STATUS_DATA_LOSS);
    }
    plan->ragged = good;
    plan->output_axes[0].role = PLAN_ROLE_SEQUENCES;
    assert_int_equal(plan_check(plan, &err), STATUS_OK);
    plan->ragged.max_length = 0; /* only a ragged plan has roles */
    assert_int_equal(plan_check(plan, &err), STATUS_DATA_LOSS);
    plan->ragged = good;
    for (uint8_t role = PLAN_ROLE_SPANS; role < PLAN_ROLE_COUNT_; role++) {
        plan->output_axes[0].role = role; /* which is an input's */
        assert_int_equal(plan_check(plan, &err), STATUS_DATA_LOSS);
        plan->output_axes[0].role = PLAN_ROLE_TOKENS;
        plan->input_axes[0].role = role; /* of another type and shape */
        assert_int_equal(plan_check(plan, &err), STATUS_DATA_LOSS);
        plan->input_axes[0].role = PLAN_ROLE_TOKENS;
    }
    plan->input_axes[0].role = PLAN_ROLE_SEQUENCES;
    assert_int_equal(plan_check(plan, &err), STATUS_DATA_LOSS);
    plan_free(plan);
}

/* R34 of docs/operations.md for what was measured: neither errors that are none nor those of other
 * outputs. */
static void r34_errors_are_checked(void **state)
{
    (void)state;
    static const float wrong[] = {-1, -0.5F, NAN, -INFINITY};
    struct plan *plan = sample_plan();
    struct error err;
    assert_non_null(plan);
    struct plan_exactness *e = &plan->exactness, was = *e;
    struct plan_held held = e->held[0];
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        e->outputs[2].error = wrong[i];
        assert_int_equal(plan_check(plan, &err), STATUS_DATA_LOSS);
        *e = was;
        e->outputs[2].agreement = wrong[i];
        assert_int_equal(plan_check(plan, &err), wrong[i] == -1 ? STATUS_OK : STATUS_DATA_LOSS);
        *e = was;
        e->bound = wrong[i];
        assert_int_equal(plan_check(plan, &err), STATUS_DATA_LOSS);
        *e = was;
        e->held = &held;
        e->n_held = 1;
        held.error = wrong[i];
        assert_int_equal(plan_check(plan, &err), STATUS_DATA_LOSS);
        held.error = 0;
        held.type = DTYPE_NONE;
        assert_int_equal(plan_check(plan, &err), STATUS_DATA_LOSS);
        held.type = DTYPE_F16;
        assert_int_equal(plan_check(plan, &err), STATUS_OK);
        *e = was;
    }
    e->outputs[0].agreement = 1.5F;
    assert_int_equal(plan_check(plan, &err), STATUS_DATA_LOSS);
    *e = was;
    e->n_outputs--;
    assert_int_equal(plan_check(plan, &err), STATUS_DATA_LOSS);
    *e = was;
    e->samples = 0;
    assert_int_equal(plan_check(plan, &err), STATUS_DATA_LOSS);
    *e = (struct plan_exactness){.measured = false};
    assert_int_equal(plan_check(plan, &err), STATUS_OK);
    plan_free(plan);
}

/* R34 of docs/operations.md for the fields: no field of a file is believed, whatever its bytes
 * are. */
static void r34_no_field_is_believed(void **state)
{
    (void)state;
    struct plan *plan = sample_plan();
    struct error err;
    assert_non_null(plan);
    if (plan_check(plan, &err))
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < plan->n_profiles; i++)
        bend_graph(plan, plan->profiles[i].graph);
    for (uint32_t i = 0; i < plan->n_inputs; i++)
        bend_binding(plan, &plan->inputs[i]);
    for (uint32_t i = 0; i < plan->n_outputs; i++)
        bend_binding(plan, &plan->outputs[i]);
    TRY_NUMBERS(plan->profiles[0].batch);
    TRY_NUMBERS(plan->profiles[1].batch);
    for (int i = 0; i < 2; i++) {
        plan->batched = i;
        uint32_t n = plan->n_profiles;
        for (plan->n_profiles = 0; plan->n_profiles < n; plan->n_profiles++)
            look(plan);
    }
    const char *was = plan->outputs[0].name;
    plan->outputs[0].name = plan->outputs[1].name;
    look(plan);
    plan->outputs[0].name = was;
    uint32_t n_outputs = plan->n_outputs;
    for (plan->n_outputs = 0; plan->n_outputs < n_outputs; plan->n_outputs++)
        look(plan);
    if (plan_check(plan, &err)) /* every field is back to its value */
        fail_msg("%s", err.text);
    if (n_refused < n_tried * 6 / 10)
        fail_msg("%u of %u were refused", n_refused, n_tried);
    plan_free(plan);
}

/* Constants must lie in the file's section of weights, which plan_check cannot check for a plan in
 * memory. */
static void r34_constants_stay_in_their_section(void **state)
{
    (void)state;
    struct plan *plan = sample_plan();
    struct error err;
    assert_non_null(plan);
    struct ir_graph *g = plan->profiles[0].graph;
    uint64_t end = 0;
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (ir_tensor(g, i)->place == IR_PLACE_CONSTANT)
            end = MAX(end, ir_tensor(g, i)->offset + ir_tensor(g, i)->bytes);
    plan->weights = "";
    plan->weight_bytes = end;
    if (plan_check(plan, &err))
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        struct ir_tensor *t = ir_tensor(g, i);
        if (t->place != IR_PLACE_CONSTANT)
            continue;
        const uint64_t wrong[] = {t->offset + 1, end + 64, (end + 64) / 64 * 64, UINT64_MAX - 63};
        uint64_t was = t->offset;
        for (size_t k = 0; k < ARRAY_LEN(wrong); k++) {
            t->offset = wrong[k];
            assert_int_equal(plan_check(plan, &err), STATUS_DATA_LOSS);
        }
        t->offset = was;
        plan->weight_bytes = t->bytes - 1;
        assert_int_equal(plan_check(plan, &err), STATUS_DATA_LOSS);
        plan->weight_bytes = end;
    }
    plan_free(plan);
}

/* x -> abs -> reformat -> abs -> reformat -> y: with one channel the two layouts are the same
 * bytes, so that reformats are aliases. For one batch size. */
static struct plan *reformat_plan(void)
{
    static const struct tactic tactics[] = {
        {.backend = "cpu",
         .n_in = 1,
         .n_out = 1,
         .in[0].format = {IR_LAYOUT_PLAIN, DTYPE_F32, IR_NO_SCALE},
         .out[0].format = {IR_LAYOUT_PLAIN, DTYPE_F32, IR_NO_SCALE}},
        {.backend = "cpu",
         .n_in = 1,
         .n_out = 1,
         .in[0].format = {IR_LAYOUT_CHANNELS_LAST, DTYPE_F32, IR_NO_SCALE},
         .out[0].format = {IR_LAYOUT_CHANNELS_LAST, DTYPE_F32, IR_NO_SCALE}},
    };
    static const char *const names[] = {"a", "b", "c", "y"};
    const struct shape shape = {.rank = 4, .dim = {1, 1, 4, 4}};
    struct plan *plan = plan_new();
    struct error err;
    assert_non_null(plan);
    struct ir_graph *g = plan->profiles[0].graph = ir_graph_new();
    assert_non_null(g);
    plan->n_profiles = plan->n_inputs = plan->n_outputs = 1;
    plan->profiles[0].batch = 1;
    plan->name = g->name = "reformats";
    plan->inputs[0] = (struct plan_binding){"x", DTYPE_F32, shape};
    plan->outputs[0] = (struct plan_binding){"y", DTYPE_F32, shape};
    uint32_t t = ir_tensor_add(g, "x", DTYPE_F32, &shape);
    g->n_inputs = g->n_outputs = 1;
    g->inputs[0] = t;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t node = ir_node_add(g, i % 2 ? IR_OP_REFORMAT : IR_OP_UNARY, names[i], 1, &t);
        assert_int_not_equal(node, IR_NONE);
        assert_true(i % 2 || ir_attr_set_int(g, node, IR_ATTR_FUNC, IR_UNARY_ABS));
        assert_int_equal(ir_infer_apply(g, node, &names[i], 1, &err), STATUS_OK);
        ir_node(g, node)->tactic = &tactics[i == 2];
        ir_node(g, node)->time_ns = UINT64_MAX / 2;
        t = ir_node(g, node)->outputs[0];
        if (i == 1 || i == 2)
            ir_tensor(g, t)->layout = IR_LAYOUT_CHANNELS_LAST;
    }
    g->outputs[0] = t;
    if (build_place(g, &plan->profiles[0].tensor_bytes, &err) || plan_check(plan, &err))
        fail_msg("%s", err.text);
    return plan;
}

static void r34_a_reformat_may_be_an_alias(void **state)
{
    (void)state;
    struct plan *plan = reformat_plan();
    struct ir_graph *g = plan->profiles[0].graph;
    struct ir_tensor *b = ir_tensor(g, ir_node(g, 1)->outputs[0]);
    struct error err;
    assert_true(plan_node_is_alias(g, ir_node(g, 1)));
    assert_true(plan_node_is_alias(g, ir_node(g, 3)));
    b->layout = IR_LAYOUT_BLOCKED_8; /* these layouts are not the same bytes */
    assert_int_not_equal(plan_check(plan, &err), STATUS_OK);
    b->layout = IR_LAYOUT_CHANNELS_LAST;
    n_tried = n_refused = 0;
    bend_tensor(plan, b);
    if (n_refused < n_tried * 9 / 10)
        fail_msg("%u of %u were refused", n_refused, n_tried);
    assert_int_equal(plan_check(plan, &err), STATUS_OK);
    plan_free(plan);
}

/* A plan for one batch size has one profile, for one instance. */
static void r34_a_plan_without_batches_has_one_profile(void **state)
{
    (void)state;
    struct plan *plan = reformat_plan();
    struct error err;
    plan->profiles[0].batch = 2;
    assert_int_equal(plan_check(plan, &err), STATUS_DATA_LOSS);
    assert_non_null(strstr(err.text, "profiles that do not rise in batch"));
    plan->profiles[0].batch = 1;
    plan->inputs[0].shape.dim[0] = 2;
    assert_int_equal(plan_check(plan, &err), STATUS_DATA_LOSS);
    assert_non_null(strstr(err.text, "unlike its binding"));
    plan->inputs[0].shape.dim[0] = 1;
    assert_int_equal(plan_check(plan, &err), STATUS_OK);
    plan_free(plan);
}

/* Times come from the file, so their sum stops at the largest number. */
static void r34_times_may_be_anything(void **state)
{
    (void)state;
    struct plan *plan = reformat_plan();
    struct ir_graph *g = plan->profiles[0].graph;
    ir_node(g, 0)->time_ns = UINT64_MAX;
    ir_node(g, 2)->time_ns = 1;
    assert_true(plan_profile_time(&plan->profiles[0]) == UINT64_MAX);
    ir_node(g, 0)->time_ns = 7;
    assert_true(plan_profile_time(&plan->profiles[0]) == 8);
    plan_free(plan);
}

static void write_file(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static void files_that_are_no_plans(void **state)
{
    (void)state;
    char path[64], device[PLAN_DEVICE_MAX];
    struct plan_header h;
    struct plan *plan = NULL;
    struct error err;
    snprintf(path, sizeof(path), "/tmp/inferd-check-%d.plan", (int)getpid());
    assert_int_equal(plan_read(path, &plan, &err), STATUS_NOT_FOUND);
    assert_int_equal(plan_read_device(path, device, &err), STATUS_NOT_FOUND);

    memset(&h, 'x', sizeof(h));
    write_file(path, &h, sizeof(h));
    assert_int_equal(plan_read_device(path, device, &err), STATUS_DATA_LOSS);
    assert_int_not_equal(plan_read(path, &plan, &err), STATUS_OK);
    assert_non_null(strstr(err.text, path));
    memcpy(h.magic, PLAN_MAGIC, sizeof(h.magic)); /* a device line without an end */
    write_file(path, &h, sizeof(h));
    assert_int_equal(plan_read_device(path, device, &err), STATUS_DATA_LOSS);
    h.device[3] = '\0';
    write_file(path, &h, sizeof(h) - 1);
    assert_int_equal(plan_read_device(path, device, &err), STATUS_DATA_LOSS);
    write_file(path, &h, sizeof(h));
    assert_int_equal(plan_read_device(path, device, &err), STATUS_OK);
    assert_string_equal(device, "xxx");
    assert_null(plan);
    unlink(path);
}

static void a_descriptor_that_is_no_plan(void **state)
{
    (void)state;
    struct plan *plan = NULL;
    struct error err;
    int folder = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(folder >= 0);
    assert_int_not_equal(plan_read_fd(folder, "the folder", NULL, &plan, &err), STATUS_OK);
    assert_non_null(strstr(err.text, "the folder"));
    close(folder);
    int empty = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(empty >= 0);
    assert_int_not_equal(plan_read_fd(empty, "nothing", NULL, &plan, &err), STATUS_OK);
    close(empty);
    assert_null(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(r34_no_field_is_believed),
        cmocka_unit_test(r34_what_a_ragged_plan_says_is_checked),
        cmocka_unit_test(r34_errors_are_checked),
        cmocka_unit_test(r34_constants_stay_in_their_section),
        cmocka_unit_test(r34_a_reformat_may_be_an_alias),
        cmocka_unit_test(r34_a_plan_without_batches_has_one_profile),
        cmocka_unit_test(r34_times_may_be_anything),
        cmocka_unit_test(files_that_are_no_plans),
        cmocka_unit_test(a_descriptor_that_is_no_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
