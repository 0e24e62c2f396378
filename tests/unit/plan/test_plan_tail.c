/* SPDX-License-Identifier: Apache-2.0 */
/* The tail section of a plan: kept byte for byte, and bounded. What lies in it is the engine's. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/plan/format.h"
#include "tests/test.h"
#include "tests/unit/plan/sample.h"

static const char bytes[] = "constants, and behind them the tail's model";

/* The sample for one instance, whose outputs a tail reads. */
static struct plan *late_plan(void)
{
    struct plan *plan = sample_plan();
    assert_non_null(plan);
    ir_graph_free(plan->profiles[1].graph);
    plan->n_profiles = 1;
    plan->batched = false;
    plan->inputs[0].shape.dim[0] = 1;
    for (uint32_t i = 0; i < plan->n_outputs; i++)
        plan->outputs[i].shape.dim[0] = 1;
    plan->n_late = 2;
    plan->late[0] = (struct plan_binding){"boxes", DTYPE_F32, {.rank = 2, .dim = {-1, 4}}};
    plan->late[1] = (struct plan_binding){"count", DTYPE_I64, {.rank = 0}};
    plan->tail = bytes;
    plan->tail_bytes = sizeof(bytes);
    plan->profiles[0].tail_offset = 11;
    plan->profiles[0].tail_size = sizeof(bytes) - 11;
    return plan;
}

static struct plan *rewritten(const struct plan *plan)
{
    char path[] = "/tmp/inferd-tail-XXXXXX";
    struct error err;
    struct plan *read = NULL;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    if (plan_write(path, plan, &err) || plan_read(path, &read, &err))
        fail_msg("%s", err.text);
    unlink(path);
    return read;
}

static void a_tail_comes_back_as_it_was(void **state)
{
    struct plan *plan = late_plan(), *read = rewritten(plan);
    (void)state;
    assert_int_equal(read->tail_bytes, sizeof(bytes));
    assert_memory_equal(read->tail, bytes, sizeof(bytes));
    assert_int_equal(read->profiles[0].tail_offset, 11);
    assert_int_equal(read->profiles[0].tail_size, sizeof(bytes) - 11);
    assert_int_equal(read->n_late, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_string_equal(read->late[i].name, plan->late[i].name);
        assert_int_equal(read->late[i].dtype, plan->late[i].dtype);
        assert_true(shape_equal(&read->late[i].shape, &plan->late[i].shape));
    }
    plan_free(read);
    plan_free(plan);
}

static void a_plan_without_tails_has_no_such_section(void **state)
{
    struct plan *plan = sample_plan(), *read = rewritten(plan);
    (void)state;
    assert_int_equal(read->tail_bytes, 0);
    assert_int_equal(read->n_late, 0);
    plan_free(read);
    plan_free(plan);
}

static void assert_refused(struct plan *plan, const char *part)
{
    struct error err;
    assert_int_equal(plan_check(plan, &err), STATUS_DATA_LOSS);
    if (!strstr(err.text, part))
        fail_msg("'%s' does not say '%s'", err.text, part);
    plan_free(plan);
}

static const struct plan_body bodies[PLAN_MAX_BODIES + 1] = {{0, 5, 0, 20}, {0, 30, 0, 20}};

static struct plan *looping_plan(const struct plan_body *list, uint32_t n)
{
    struct plan *plan = late_plan();
    plan->profiles[0].bodies = list;
    plan->profiles[0].n_bodies = n;
    return plan;
}

static void bodies_of_loops_come_back_as_they_were(void **state)
{
    struct plan *plan = looping_plan(bodies, 2), *read = rewritten(plan);
    (void)state;
    assert_int_equal(read->profiles[0].n_bodies, 2);
    assert_memory_equal(read->profiles[0].bodies, bodies, 2 * sizeof(bodies[0]));
    plan_free(read);
    plan_free(plan);
}

/* Weights may be those of many bodies; heads are read for each. */
static void what_a_body_may_not_be(void **state)
{
    static const struct plan_body wrong[] = {
        {0, sizeof(bytes) + 1, 0, 0},
        {64, UINT64_MAX - 32, 0, 0},
        {8, 1, 0, 0},
        {0, 1, 0, sizeof(bytes) + 1},
        {0, 1, 128, 0},
        {0, 1, 8, 1},
    };
    static const struct plan_body twice[] = {{0, sizeof(bytes), 0, 0}, {0, 1, 0, 0}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_refused(looping_plan(&wrong[i], 1), "a loop's body outside of its section");
    assert_refused(looping_plan(twice, 2), "a loop's body outside of its section");
    assert_refused(looping_plan(bodies, PLAN_MAX_BODIES + 1), "a loop's body");
    struct plan *plan = looping_plan(bodies, 2);
    plan->n_late = 0;
    plan->profiles[0].tail_size = 0;
    assert_refused(plan, "a loop's body");
}

/* A plan in two parts. */
static void a_body_is_read_from_its_parts(void **state)
{
    struct plan *plan = sample_plan(), *read = NULL;
    struct plan_bytes parts;
    struct error err;
    (void)state;
    for (uint32_t p = 0; p < plan->n_profiles; p++) /* compiled tactics do not go into a body */
        for (uint32_t i = 0; i < plan->profiles[p].graph->n_nodes; i++)
            if (ir_node(plan->profiles[p].graph, i)->tactic)
                ((struct tactic *)(uintptr_t)ir_node(plan->profiles[p].graph, i)->tactic)
                    ->code_size = 0;
    if (plan_write_body(plan, &parts, &err) ||
        plan_read_body(parts.head, parts.head_size, parts.weights, parts.weights_size, &read, &err))
        fail_msg("%s", err.text);
    assert_int_equal(read->n_profiles, plan->n_profiles);
    assert_ptr_equal(read->weights, parts.weights);
    plan_free(read);
    for (size_t size = 0; size < parts.head_size; size += 1 + size / 4)
        assert_int_not_equal(
            plan_read_body(parts.head, size, parts.weights, parts.weights_size, &read, &err),
            STATUS_OK);
    assert_int_equal(plan_read_body(parts.head, parts.head_size, parts.weights,
                                    parts.weights_size - 1, &read, &err),
                     STATUS_DATA_LOSS);
    plan_bytes_deinit(&parts);
    plan->tail = bytes;
    plan->tail_bytes = sizeof(bytes);
    assert_int_equal(plan_write_body(plan, &parts, &err), STATUS_UNIMPLEMENTED);
    plan_free(plan);
}

static void what_a_tail_may_not_be(void **state)
{
    struct plan *plan = late_plan();
    (void)state;
    plan->profiles[0].tail_size = 0;
    assert_refused(plan, "outside of its section");
    plan = late_plan();
    plan->profiles[0].tail_offset = sizeof(bytes) + 1;
    assert_refused(plan, "outside of its section");
    plan = late_plan();
    plan->profiles[0].tail_size = UINT64_MAX;
    assert_refused(plan, "outside of its section");
    plan = late_plan();
    plan->n_late = 0;
    assert_refused(plan, "outside of its section");
    plan = sample_plan();
    plan->n_late = 1;
    plan->late[0] = (struct plan_binding){"boxes", DTYPE_F32, {.rank = 0}};
    assert_refused(plan, "batched");
}

static void what_its_outputs_may_not_be(void **state)
{
    struct plan *plan = late_plan();
    (void)state;
    plan->late[1].name = "boxes";
    assert_refused(plan, "an output of a tail");
    plan = late_plan();
    plan->late[0].name = "a name";
    assert_refused(plan, "an output of a tail");
    plan = late_plan();
    plan->late[0].dtype = DTYPE_NONE;
    assert_refused(plan, "an output of a tail");
    plan = late_plan();
    plan->late[0].shape.dim[1] = -2;
    assert_refused(plan, "an output of a tail");
    plan = late_plan();
    plan->late[0].shape.dim[1] = IR_MAX_DIM + 1;
    assert_refused(plan, "an output of a tail");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tail_comes_back_as_it_was),
        cmocka_unit_test(a_plan_without_tails_has_no_such_section),
        cmocka_unit_test(what_a_tail_may_not_be),
        cmocka_unit_test(bodies_of_loops_come_back_as_they_were),
        cmocka_unit_test(what_a_body_may_not_be),
        cmocka_unit_test(a_body_is_read_from_its_parts),
        cmocka_unit_test(what_its_outputs_may_not_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
