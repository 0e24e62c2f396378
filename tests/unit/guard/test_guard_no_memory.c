/* SPDX-License-Identifier: Apache-2.0 */
/* A comparison with fp32 with one failing allocation: each fails in turn, and the comparison says
 * that there is no memory; nothing leaks. */
#include <stdlib.h>

#include "engine/engine.h"
#include "engine/guard/internal.h"
#include "tests/inject/alloc.h"
#include "tests/test.h"
#include "tests/unit/tune/net.h"

enum { NODES_MAX = 16 };

static struct device *device;
static struct tactic tactics[NODES_MAX];
static struct tune_layer layers[NODES_MAX];

static enum status keep(void *user, const struct tactic *tactic, struct error *err UNUSED)
{
    *(struct tactic *)user = *tactic;
    return STATUS_OK;
}

/* Gives each node a tactic, and every other one a type that it does not have, so that some run
 * twice. */
static void choose(const struct ir_graph *g)
{
    assert_true(g->n_nodes <= NODES_MAX);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        assert_int_equal(device->backend->candidates(device, g, ir_node(g, i), PRECISION_F32, keep,
                                                     &tactics[i], NULL),
                         STATUS_OK);
        layers[i] = (struct tune_layer){
            .device = device, .tactic = &tactics[i], .types = i % 2 ? 0 : 1U << DTYPE_F16};
    }
}

static enum status walk(const struct ir_graph *g, struct error *err)
{
    struct walk_row rows[NODES_MAX];
    struct guard_output outputs[IR_MAX_IO];
    struct value_memory memory;
    struct walk w = {.graph = g,
                     .layers = layers,
                     .batch = 2,
                     .seed = 1,
                     .memory = &memory,
                     .rows = rows,
                     .outputs = outputs};
    enum status status = value_memory_init(&memory, g->n_tensors)
                             ? walk_graph(&w, err)
                             : error_no_memory(err, "the comparison");
    if (!status)
        status = walk_graph(&w, err); /* with what the first has kept */
    value_memory_deinit(&memory);
    return status;
}

static void each_allocation_of_a_comparison(void **state UNUSED)
{
    const struct device_options options = {.threads = 1, .reference_only = true};
    struct ir_graph *g = net_network(1);
    uint64_t n = 1;
    struct error err;
    assert_int_equal(engine_device_open("cpu", &options, &device, &err), STATUS_OK);
    choose(g);
    if (walk(g, &err))
        fail_msg("%s", err.text);
    for (bool failed = true; failed; n++) {
        inject_arm(n);
        enum status status = walk(g, &err);
        failed = inject_disarm();
        if (status && (!failed || status != STATUS_RESOURCE_EXHAUSTED || !err.text[0]))
            fail_msg("allocation %llu: %s", (unsigned long long)n, err.text);
    }
    assert_true(n > 100);
    ir_graph_free(g);
    engine_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_allocation_of_a_comparison)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
