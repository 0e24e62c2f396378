/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Concatenations and slices that need not run (engine/build/parts.h), from the graph to the bytes:
 * each graph is placed, checked, written, read back and run, on the CPU and on a device with a
 * memory of its own, some of its nodes on the CPU beside that. Its outputs must be those
 * of the reference, bit for bit. Plans whose parts lie elsewhere are refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "engine/build/build.h"
#include "engine/cpu/eval.h"
#include "engine/engine.h"
#include "tests/test.h"
#include "tests/unit/mock/mock.h"
#include "tests/unit/passes/parse.h"
#include "tests/unit/runtime/rig.h"

enum { OUTPUTS_MAX = 3 };

struct part_case {
    const char *name;
    uint32_t aliases; /* nodes that do not run */
    const char *text;
};

#define X "input x FP32[1,16,4,4]\n"
#define SLICE(name, from, a, b)                                                                    \
    name " = slice \"" name "\" (" from ") starts=0," #a ",0,0 ends=1," #b ",4,4 steps=1,1,1,1\n"
#define UNARY(name, from, func) name " = unary \"" name "\" (" from ") func=" func "\n"

static const struct part_case cases[] = {
    {"two producers", 1,
     X UNARY("a", "x", "relu") UNARY("b", "x", "tanh") "y = concat \"y\" (a, b) axis=1\n" UNARY(
         "z", "y", "abs") "output z\n"},
    {"straight into the output", 1,
     X UNARY("a", "x", "relu")
         UNARY("b", "a", "tanh") "y = concat \"y\" (a, b) axis=1\noutput y\n"},
    {"a part that others read, too", 1,
     X UNARY("a", "x", "relu") UNARY("b", "a", "tanh") "y = concat \"y\" (a, b) axis=1\n" UNARY(
         "z", "a", "abs") UNARY("w", "y", "abs") "output z\noutput w\n"},
    {"rows that grow", 3,
     X UNARY("a", "x", "relu") UNARY("b", "a", "tanh") "ab = concat \"ab\" (a, b) axis=1\n" UNARY(
         "c", "ab",
         "abs") "abc = concat \"abc\" (a, b, c) axis=1\n" UNARY("d", "abc",
                                                                "neg") "abcd = concat \"abcd\" "
                                                                       "(a, b, c, d) "
                                                                       "axis=1\n" UNARY(
                                                                           "z", "abcd",
                                                                           "abs") "output z\n"},
    {"rows of rows", 2,
     X UNARY("a", "x", "relu") UNARY("b", "a", "tanh") "ab = concat \"ab\" (a, b) axis=1\n" UNARY(
         "c", "ab", "abs") "abc = concat \"abc\" (c, ab) axis=1\n" UNARY("z", "abc", "neg")
         UNARY("w", "ab", "neg") "output z\noutput w\n"},
    {"a name of a part", 1,
     X UNARY("a", "x", "relu") UNARY(
         "b", "x",
         "tanh") "t = reshape \"t\" (b) shape=1,32,4,2\nr = reshape \"r\" (a) shape=1,32,4,2\n"
                 "y = concat \"y\" (t, r) axis=1\n" UNARY("z", "y", "abs")
                     UNARY("w", "b", "abs") "output z\noutput w\n"},
    {"slices of an input", 2,
     X SLICE("a", "x", 0, 4) SLICE("b", "x", 4, 16) UNARY("c", "a", "neg")
         UNARY("d", "b", "abs") "output c\noutput d\n"},
    {"a slice of a slice", 2,
     X UNARY("h", "x", "tanh") SLICE("a", "h", 4, 16) SLICE("b", "a", 4, 8) UNARY("c", "b", "neg")
         UNARY("d", "h", "abs") "output c\noutput d\n"},
    {"split, changed, joined", 2,
     X UNARY("h", "x", "tanh") SLICE("a", "h", 0, 8) SLICE("b", "h", 8, 16) UNARY(
         "c", "b", "neg") "y = concat \"y\" (a, c) axis=1\n" UNARY("z", "y", "abs") "output z\n"},
    {"neighbours put together again", 3,
     X UNARY("h", "x", "tanh") SLICE("a", "h", 0, 8) SLICE("b", "h", 8, 12)
         UNARY("c", "a", "neg") "y = concat \"y\" (a, b) axis=1\n" UNARY(
             "z", "y", "abs") "output c\noutput z\n"},
    {"the same tensor twice", 0,
     X UNARY("a", "x", "relu") "y = concat \"y\" (a, a) axis=1\n" UNARY("z", "y",
                                                                        "abs") "output z\n"},
    {"a constant", 0,
     X UNARY("a", "x", "relu") "y = concat \"y\" (a, k FP32[1,16,4,4]) axis=1\n" UNARY(
         "z", "y", "abs") "output z\n"},
    {"an input of the graph", 0,
     X UNARY("a", "x", "relu") "y = concat \"y\" (a, x) axis=1\n" UNARY("z", "y",
                                                                        "abs") "output z\n"},
    {"a part that is an output", 0,
     X UNARY("a", "x", "relu") UNARY("b", "x", "tanh") "y = concat \"y\" (a, b) axis=1\n" UNARY(
         "z", "y", "abs") "output z\noutput a\n"},
    {"a slice that is an output", 0, X UNARY("h", "x", "tanh") SLICE("a", "h", 0, 8) "output a\n"},
    {"another axis", 0,
     X UNARY("a", "x", "relu") UNARY("b", "x", "tanh") "y = concat \"y\" (a, b) axis=2\n" UNARY(
         "z", "y", "abs") "output z\n"},
    {"parts that are not aligned", 0,
     "input x FP32[1,3,1,5]\n" UNARY("a", "x", "relu") UNARY(
         "b", "x", "tanh") "y = concat \"y\" (a, b) axis=1\n" UNARY("z", "y", "abs") "output z\n"},
    {"several instances", 0,
     "input x FP32[2,16,4,4]\n" UNARY("a", "x", "relu") UNARY(
         "b", "x", "tanh") "y = concat \"y\" (a, b) axis=1\n" UNARY("z", "y", "abs") "output z\n"},
    {"several instances, one behind the other", 1,
     "input x FP32[2,16,4,4]\n" UNARY("a", "x", "relu") UNARY(
         "b", "x", "tanh") "y = concat \"y\" (a, b) axis=0\n" UNARY("z", "y", "abs") "output z\n"},
};

/* --- plans --- */

static void name_bindings(struct plan *plan, const uint32_t *ids, uint32_t n,
                          struct plan_binding *list, uint32_t *n_list)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct ir_tensor *t = ir_tensor(plan->profiles[0].graph, ids[i]);
        list[i] = (struct plan_binding){t->name, t->dtype, t->shape};
    }
    *n_list = n;
}

static struct device *open_cpu(void)
{
    static const struct device_options options = {.threads = 1, .reference_only = true};
    struct error err;
    struct device *cpu = NULL;
    rig_must(engine_device_open("cpu", &options, &cpu, &err), &err);
    return cpu;
}

/* Describes the CPU that stands beside a device. */
static void ask_host(char line[FINGERPRINT_MAX])
{
    struct error err;
    struct device *mock = mock_open(), *host;
    rig_must(backend_host_open(mock, &host, &err), &err);
    host->backend->device_fingerprint(host, line);
    engine_device_close(host);
    engine_device_close(mock);
}

/* Nodes whose bits are set in `host` run on the CPU, the others on the mock. */
static void share_out(struct ir_graph *g, unsigned host)
{
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        struct tactic *tactic = arena_alloc(g->arena, sizeof(*tactic));
        assert_non_null(tactic);
        *tactic = *ir_node(g, i)->tactic;
        tactic->backend = host >> i & 1 ? "cpu" : "mock";
        ir_node(g, i)->tactic = tactic;
    }
}

static struct plan *make_plan(const struct part_case *c, bool mock, unsigned host)
{
    struct error err;
    struct device *cpu = open_cpu();
    struct tune_options options = {.device = cpu, .no_timing = true};
    struct plan *plan = plan_new();
    assert_non_null(plan);
    struct ir_graph *g = plan->profiles[0].graph = graph_parse(c->text);
    g->name = "parts";
    plan->name = "parts";
    plan->n_profiles = plan->profiles[0].batch = 1;
    strcpy(plan->digest, "00112233445566778899aabbccddeeff");
    rig_must(tune_graph(g, &options, NULL, &err), &err);
    if (mock)
        share_out(g, host);
    rig_must(build_place(g, &plan->profiles[0].tensor_bytes, &err), &err);
    name_bindings(plan, g->inputs, g->n_inputs, plan->inputs, &plan->n_inputs);
    name_bindings(plan, g->outputs, g->n_outputs, plan->outputs, &plan->n_outputs);
    if (plan_check(plan, &err))
        fail_msg("%s: %s", c->name, err.text);
    char line[FINGERPRINT_MAX], beside[FINGERPRINT_MAX];
    cpu->backend->device_fingerprint(cpu, line);
    ask_host(beside);
    plan_device_line(plan->device, mock ? "mock" : line,
                     mock && plan_needs_host(plan, "mock") ? beside : NULL);
    engine_device_close(cpu);
    return plan;
}

static uint32_t count_aliases(const struct ir_graph *g)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct ir_node *node = ir_node(g, i);
        n += node->op != IR_OP_RESHAPE && plan_node_is_alias(g, node);
    }
    return n;
}

/* --- running them --- */

static void ask_reference(const struct part_case *c, const float *x,
                          struct tensor_view out[OUTPUTS_MAX])
{
    struct error err;
    struct ir_graph *g = graph_parse(c->text);
    const struct ir_tensor *in = ir_tensor(g, g->inputs[0]);
    const struct tensor_view view = {in->dtype, in->shape, (void *)(uintptr_t)x};
    assert_true(g->n_outputs <= OUTPUTS_MAX);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const struct ir_tensor *t = ir_tensor(g, g->outputs[i]);
        out[i] = (struct tensor_view){t->dtype, t->shape, calloc(1, t->bytes)};
        assert_non_null(out[i].data);
    }
    rig_must(cpu_eval_graph(g, &view, out, &err), &err);
    ir_graph_free(g);
}

static void compare(const struct part_case *c, struct engine *engine, const char *buffer,
                    const struct tensor_view *want)
{
    const struct engine_info *info = engine_describe(engine);
    const struct engine_profile *p = engine_profile_for(engine, 0, 1);
    for (uint32_t i = 0; i < info->n_outputs; i++) {
        size_t bytes;
        assert_true(shape_bytes(&want[i].shape, want[i].dtype, &bytes));
        if (memcmp(buffer + p->out_offset[i], want[i].data, bytes) != 0)
            fail_msg("%s: output %u is wrong", c->name, i);
    }
}

static void run_plan(const struct part_case *c, const struct plan *plan, struct device *device)
{
    struct error err;
    struct engine *engine;
    struct lane *lane;
    struct context *ctx;
    void *x, *buffer;
    struct tensor_view want[OUTPUTS_MAX];
    char path[] = "/tmp/inferd-parts-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    rig_must(plan_write(path, plan, &err), &err);
    rig_must(engine_load(device, path, &engine, &err), &err);
    unlink(path);
    rig_must(lane_new(device, &lane, &err), &err);
    rig_must(context_new(engine, lane, &ctx, &err), &err);
    const struct engine_info *info = engine_describe(engine);
    size_t bytes = info->inputs[0].instance_bytes;
    rig_must(engine_buffer_alloc(device, bytes, "input", &x, &err), &err);
    rig_must(engine_buffer_alloc(device, info->out_bytes_max, "output", &buffer, &err), &err);
    fill_random(DTYPE_F32, x, bytes / sizeof(float), 7);
    ask_reference(c, x, want);
    for (int again = 0; again < 2; again++) {
        const struct engine_span span = {x, bytes};
        const struct engine_input input = {&span, 1};
        memset(buffer, 0xee, info->out_bytes_max);
        rig_must(context_enqueue(ctx, 1, &input, buffer, &err), &err);
        rig_must(context_wait(ctx, NULL, &err), &err);
        compare(c, engine, buffer, want);
    }
    for (uint32_t i = 0; i < info->n_outputs; i++)
        free(want[i].data);
    engine_buffer_free(device, x);
    engine_buffer_free(device, buffer);
    context_free(ctx);
    lane_free(lane);
    engine_unref(engine);
}

static void parts_run_on_the_cpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct plan *plan = make_plan(&cases[i], false, 0);
        struct device *cpu = open_cpu();
        uint32_t aliases = count_aliases(plan->profiles[0].graph);
        if (aliases != cases[i].aliases)
            fail_msg("%s: %u nodes do not run, not %u", cases[i].name, aliases, cases[i].aliases);
        run_plan(&cases[i], plan, cpu);
        engine_device_close(cpu);
        plan_free(plan);
    }
}

static void parts_run_on_two_sides(void **state)
{
    static const unsigned hosts[] = {0, 1, 2, 5, 10, 28};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (size_t k = 0; k < ARRAY_LEN(hosts); k++) {
            struct plan *plan = make_plan(&cases[i], true, hosts[k]);
            struct device *mock = mock_open();
            run_plan(&cases[i], plan, mock);
            engine_device_close(mock);
            plan_free(plan);
        }
}

/* --- damaged plans --- */

static void refused(const struct part_case *c, const struct plan *plan, const char *what)
{
    struct error err = {0};
    if (!plan_check(plan, &err))
        fail_msg("%s: accepted, with %s", c->name, what);
}

/* Moves one tensor of a plan in every way that could make it overlap another. */
static void bend(const struct part_case *c, struct plan *plan, struct ir_tensor *t)
{
    const struct ir_graph *g = plan->profiles[0].graph;
    const struct ir_tensor was = *t;
    static const int64_t steps[] = {-1024, -64, -4, 4, 64, 1024, INT64_MAX};
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        t->part = was.part + (uint64_t)steps[i];
        refused(c, plan, "a part that is elsewhere");
        t->offset = was.offset + (uint64_t)steps[i];
        refused(c, plan, "a part and its offset elsewhere");
        *t = was;
    }
    uint64_t at, before;
    uint32_t id = (uint32_t)(t - g->tensors), root = plan_tensor_at(g, id, &before);
    for (uint32_t of = 0; of <= g->n_tensors; of++) {
        t->alias_of = of;
        /* a row of the same bytes will do */
        if (plan_check(plan, NULL) == STATUS_OK)
            assert_true(plan_tensor_at(g, id, &at) == root && at == before);
    }
    *t = was;
}

static void parts_elsewhere_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct plan *plan = make_plan(&cases[i], false, 0);
        struct ir_graph *g = plan->profiles[0].graph;
        struct error err;
        for (uint32_t k = 0; k < g->n_tensors; k++)
            if (ir_tensor(g, k)->alias_of != IR_NONE)
                bend(&cases[i], plan, ir_tensor(g, k));
        rig_must(plan_check(plan, &err), &err);
        plan_free(plan);
    }
}

/* Gives a second tensor the place of the first: both would be written there. */
static void two_writers_of_one_place_are_refused(void **state)
{
    (void)state;
    struct plan *plan = make_plan(&cases[2], false, 0); /* z reads a, w reads y */
    struct ir_graph *g = plan->profiles[0].graph;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        struct ir_tensor *t = ir_tensor(g, i);
        const struct ir_tensor was = *t;
        if (t->alias_of != IR_NONE || t->producer == IR_NONE)
            continue;
        for (uint32_t k = 0; k < g->n_tensors; k++) {
            const struct ir_tensor *of = ir_tensor(g, k);
            if (of->alias_of == IR_NONE)
                continue;
            t->alias_of = of->alias_of;
            t->part = of->part;
            t->place = of->place;
            t->offset = of->offset;
            refused(&cases[2], plan, "two tensors in one place");
            *t = was;
        }
    }
    plan_free(plan);
}

/* Chains of aliases have a limit (plan.h): beyond it, concatenations run. */
static void long_rows_of_rows_run(void **state)
{
    (void)state;
    enum { LINKS = 1100 };
    struct error err;
    struct tactic tactic = {.backend = "cpu"};
    struct ir_graph *g = ir_graph_new();
    const struct shape shape = {.rank = 2, .dim = {1, 16}};
    uint64_t bytes;
    assert_non_null(g);
    uint32_t x = ir_tensor_add(g, "x", DTYPE_F32, &shape), row = x;
    g->inputs[g->n_inputs++] = x;
    for (uint32_t i = 0; i < LINKS; i++) {
        const char *name = "n";
        uint32_t node = ir_node_add(g, IR_OP_UNARY, name, 1, &x);
        assert_true(ir_attr_set_int(g, node, IR_ATTR_FUNC, IR_UNARY_ABS));
        rig_must(ir_infer_apply(g, node, &name, 1, &err), &err);
        uint32_t two[2] = {i ? row : x, ir_node(g, node)->outputs[0]};
        node = ir_node_add(g, IR_OP_CONCAT, name, 2, two);
        assert_true(ir_attr_set_int(g, node, IR_ATTR_AXIS, 1));
        rig_must(ir_infer_apply(g, node, &name, 1, &err), &err);
        row = ir_node(g, node)->outputs[0];
    }
    g->outputs[g->n_outputs++] = row;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        ir_node(g, i)->tactic = &tactic;
    rig_must(build_place(g, &bytes, &err), &err);
    assert_int_equal(plan_check_chains(g, &err), STATUS_OK);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        assert_non_null(ir_node(g, i)->tactic);
    ir_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_run_on_the_cpu),
        cmocka_unit_test(parts_run_on_two_sides),
        cmocka_unit_test(parts_elsewhere_are_refused),
        cmocka_unit_test(two_writers_of_one_place_are_refused),
        cmocka_unit_test(long_rows_of_rows_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
