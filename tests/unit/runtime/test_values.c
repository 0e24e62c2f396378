/* SPDX-License-Identifier: Apache-2.0 */
/* The values of layers, from a device whose memory nobody can read and from the CPU beside it. */
#include <stdlib.h>
#include <string.h>

#include "engine/runtime/layer_values.h"
#include "tests/test.h"
#include "tests/unit/runtime/rig.h"

enum { TENSORS_MAX = 64 };

/* The bytes of each tensor that was shown. */
struct seen {
    void *data[TENSORS_MAX];
    size_t bytes[TENSORS_MAX];
    uint32_t layers;
};

static enum status note(void *user, const struct layer_value *value, struct error *err UNUSED)
{
    struct seen *s = user;
    size_t bytes = ir_tensor(value->graph, value->tensor)->bytes;
    assert_in_range(value->tensor, 0, TENSORS_MAX - 1);
    assert_null(s->data[value->tensor]);
    assert_int_equal(ir_tensor(value->graph, value->tensor)->producer,
                     value->node - value->graph->nodes);
    s->data[value->tensor] = malloc(bytes + 1);
    s->bytes[value->tensor] = bytes;
    memcpy(s->data[value->tensor], value->data, bytes);
    s->layers++;
    return STATUS_OK;
}

static void look(struct world *world, unsigned host, struct seen *s)
{
    struct rig r;
    struct error err;
    struct engine_span span = {world->in, RIG_INSTANCE};
    rig_make(&r, world, host, &(struct context_options){.no_capture = true, .batch = 1});
    must(context_values_start(r.ctx, note, s, &err), &err);
    rig_must(rig_run(&r, &span, 1, 0, 1, &err), &err);
    assert_int_equal(s->layers, RIG_NODES);
    rig_deinit(&r);
}

static void values_are_the_same_on_every_side(void **state)
{
    struct seen first = {.layers = 0};
    look(*state, 0, &first);
    for (unsigned host = 1; host < 1U << RIG_NODES; host++) {
        struct seen other = {.layers = 0};
        look(*state, host, &other);
        for (int i = 0; i < TENSORS_MAX; i++) {
            assert_int_equal(first.bytes[i], other.bytes[i]);
            assert_memory_equal(first.data[i] ? first.data[i] : "",
                                other.data[i] ? other.data[i] : "", first.bytes[i]);
            free(other.data[i]);
        }
    }
    for (int i = 0; i < TENSORS_MAX; i++)
        free(first.data[i]);
}

static void captured_graphs_show_nothing(void **state)
{
    struct rig r;
    struct error err;
    struct seen s = {.layers = 0};
    rig_make(&r, *state, 0, &(struct context_options){.batch = 1});
    assert_int_equal(context_values_start(r.ctx, note, &s, &err), STATUS_FAILED_PRECONDITION);
    rig_deinit(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_the_same_on_every_side),
        cmocka_unit_test(captured_graphs_show_nothing),
    };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
