/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/random/variant.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "engine/cpu/eval.h"
#include "engine/engine.h"
#include "engine/passes/pass.h"
#include "tests/random/engine_run.h"
#include "tests/unit/passes/kept.h"

enum { PASSES_MAX = 64 };

static const struct ir_evaluator evaluator = {.eval = cpu_eval_node};

/* --- node by node --- */

static enum status import(const struct graph_case *c, const struct case_set *set,
                          struct ir_graph **out, struct error *err)
{
    const struct onnx_options options = {.batch = set->batch, .evaluator = evaluator};
    return onnx_import(c->model, &options, out, err);
}

static enum status bind(const struct ir_graph *graph, const struct case_set *set,
                        struct tensor_view *in, struct tensor_view *out, struct error *err)
{
    for (uint32_t i = 0; i < graph->n_inputs; i++) {
        const struct ir_tensor *t = ir_tensor(graph, graph->inputs[i]);
        const void *data = case_set_input(set, t->name, t->dtype, &t->shape);
        if (!data)
            return error_set(err, STATUS_INTERNAL, "no data for input '%s'", t->name);
        in[i] = (struct tensor_view){t->dtype, t->shape, (void *)(uintptr_t)data};
    }
    if (graph->n_outputs != set->n_outputs)
        return error_set(err, STATUS_INTERNAL, "%u outputs, expected %u", graph->n_outputs,
                         set->n_outputs);
    for (uint32_t i = 0; i < graph->n_outputs; i++) {
        const struct ir_tensor *t = ir_tensor(graph, graph->outputs[i]);
        out[i] = (struct tensor_view){t->dtype, t->shape, malloc(t->bytes + 1)};
        if (!out[i].data)
            return error_no_memory(err, "a test");
        memset(out[i].data, 0xff, t->bytes);
    }
    return STATUS_OK;
}

static enum status evaluate(const struct ir_graph *graph, const struct case_set *set,
                            struct error *err)
{
    struct tensor_view in[IR_MAX_IO] = {{0}}, out[IR_MAX_IO] = {{0}};
    enum status status = bind(graph, set, in, out, err);
    if (!status)
        status = cpu_eval_graph(graph, in, out, err);
    for (uint32_t i = 0; i < graph->n_outputs && !status; i++)
        status = case_set_check(set, ir_tensor(graph, graph->outputs[i])->name, out[i].dtype,
                                &out[i].shape, out[i].data, err);
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        free(out[i].data);
    return status;
}

static enum status run_import(const struct graph_case *c, struct error *err)
{
    enum status status = STATUS_OK;
    for (uint32_t k = 0; k < c->n_sets && !status; k++) {
        struct ir_graph *graph = NULL;
        status = import(c, &c->sets[k], &graph, err);
        if (!status)
            status = evaluate(graph, &c->sets[k], err);
        ir_graph_free(graph);
    }
    return status;
}

/* --- passes --- */

/* Which passes of the table are run, and how often each of them changed something. */
struct selection {
    const struct pass *only, *without; /* NULL: no such thing */
    bool features;
    enum plant plant;
    uint32_t *changed; /* by place in the table; may be NULL */
};

static enum status run_table(struct ir_graph *graph, const struct selection *s,
                             struct pass_context *ctx, struct error *err)
{
    enum { ROUNDS = 32 };
    for (uint32_t round = 0, before = 0; round < ROUNDS; round++, before = ctx->rewrites) {
        for (const struct pass *pass = passes; pass->name; pass++) {
            uint32_t then = ctx->rewrites;
            if (pass == s->without || (s->only && pass != s->only))
                continue;
            enum status status = pass_run(pass, graph, ctx, err);
            if (status)
                return status;
            if (s->changed)
                s->changed[pass - passes] += ctx->rewrites - then;
        }
        if (s->only || ctx->rewrites == before)
            return STATUS_OK;
    }
    return error_set(err, STATUS_INTERNAL, "the passes do not come to rest");
}

static void plant_mistake(struct ir_graph *graph, enum plant plant)
{
    for (uint32_t i = 0; i < graph->n_nodes && plant != PLANT_NONE; i++) {
        struct ir_node *node = ir_node(graph, i);
        if (node->op != IR_OP_BINARY || ir_attr_int(node, IR_ATTR_FUNC) != IR_BINARY_SUB)
            continue;
        if (plant == PLANT_CRASH)
            abort();
        while (plant == PLANT_HANG)
            pause();
        uint32_t a = node->inputs[0];
        node->inputs[0] = node->inputs[1];
        node->inputs[1] = a;
    }
}

/* Checks that the whole table has come to rest, and that no fusion has cost a node its fast
 * kernel. */
static enum status check_end(struct ir_graph *graph, struct pass_context *ctx, struct error *err)
{
    enum { REWRITES_MOST = 1000 };
    const struct device_options options = {.threads = 1};
    struct device *device;
    uint32_t rewrites = ctx->rewrites, fused = 0;
    TRY(passes_run(graph, ctx, err));
    if (ctx->rewrites != rewrites || rewrites > REWRITES_MOST)
        return error_set(err, STATUS_INTERNAL, "%u rewrites, and %u of the table once more",
                         rewrites, ctx->rewrites - rewrites);
    TRY(engine_device_open("cpu", &options, &device, err));
    enum status status = kept_check(device, graph, KEPT_BY_ANY, &fused, err);
    engine_device_close(device);
    return status;
}

/* If a pass alone finds nothing in a graph, the graph is tried again with its scalars in one
 * spelling, because some passes look for that spelling only. */
static enum status rewrite(struct ir_graph *graph, const struct graph_case *c,
                           const struct selection *s, struct error *err)
{
    struct pass_context ctx = {.evaluator = evaluator,
                               .attention = s->features,
                               .merge = s->features,
                               .picks = s->features,
                               .patches = s->features,
                               .lays = s->features,
                               .chain_room = s->features ? 227 << 10 : 0};
    TRY(run_table(graph, s, &ctx, err));
    if (s->only && !ctx.rewrites) {
        TRY(pass_run(pass_find("fold_scalars"), graph, &ctx, err));
        TRY(run_table(graph, s, &ctx, err));
    }
    if (!s->only && !s->without)
        TRY(check_end(graph, &ctx, err));
    plant_mistake(graph, s->plant);
    return ctx.rewrites || !s->only ? evaluate(graph, &c->sets[0], err) : STATUS_OK;
}

static enum status run_passes(const struct graph_case *c, const struct selection *s,
                              struct error *err)
{
    struct ir_graph *graph = NULL;
    TRY(import(c, &c->sets[0], &graph, err));
    enum status status = rewrite(graph, c, s, err);
    ir_graph_free(graph);
    return status;
}

/* Runs the passes with more memory each time: at first the memory ends somewhere, and in the end it
 * suffices. */
static enum status run_memory(const struct graph_case *c, struct error *err)
{
    enum status status = STATUS_RESOURCE_EXHAUSTED;
    for (size_t limit = 16; status == STATUS_RESOURCE_EXHAUSTED && limit <= 1 << 28; limit *= 4) {
        struct ir_graph *graph = NULL;
        struct pass_context ctx = {.evaluator = evaluator,
                                   .attention = true,
                                   .merge = true,
                                   .picks = true,
                                   .joins = true,
                                   .patches = true,
                                   .lays = true,
                                   .boxes = true,
                                   .chain_room = 227 << 10};
        TRY(import(c, &c->sets[0], &graph, err));
        struct arena *built = graph->arena;
        graph->arena = arena_new(limit);
        status = graph->arena ? passes_run(graph, &ctx, err) : STATUS_INTERNAL;
        ir_graph_free(graph);
        arena_free(built);
    }
    return status;
}

/* Writes to the file of names how often the pass alone changed something. */
static enum status run_pass(const struct graph_case *c, const struct pass *pass, FILE *names,
                            struct error *err)
{
    uint32_t changed[PASSES_MAX] = {0};
    const struct selection s = {.only = pass, .features = true, .changed = changed};
    TRY(run_passes(c, &s, err));
    if (names)
        fprintf(names, "pass:%s %u\n", pass->name, changed[pass - passes]);
    return STATUS_OK;
}

/* --- by name --- */

static enum status run_engine(const struct graph_case *c, const struct engine_choice *choice,
                              uint32_t *most, struct error *err)
{
    uint32_t unused;
    return engine_run_case(c, choice, most ? most : &unused, err);
}

static bool starts(const char *name, const char *with, const char **rest)
{
    size_t n = strlen(with);
    *rest = name + n;
    return !strncmp(name, with, n);
}

/* `most` gets the largest number of a node's candidates for tactic:N. `changed` is as in a
 * selection. */
static enum status run_named(const struct graph_case *c, const struct variant_options *o,
                             const char *name, uint32_t *changed, uint32_t *most, struct error *err)
{
    const char *rest;
    struct selection s = {.plant = o->plant, .changed = changed};
    struct engine_choice choice = {.turn = ENGINE_ANY, .threads = 1, .names = o->names};
    if (!strcmp(name, "import"))
        return run_import(c, err);
    if (starts(name, "pass:", &rest) || starts(name, "without:", &rest)) {
        const struct pass *pass = pass_find(rest);
        if (!pass)
            return error_set(err, STATUS_INVALID_ARGUMENT, "no pass '%s'", rest);
        if (name[0] == 'p')
            return run_pass(c, pass, o->names, err);
        s.without = pass;
        s.features = true;
        s.plant = PLANT_NONE;
        return run_passes(c, &s, err);
    }
    if (!strcmp(name, "memory"))
        return run_memory(c, err);
    s.features = !strcmp(name, "features");
    if (s.features || !strcmp(name, "passes"))
        return run_passes(c, &s, err);
    if (starts(name, "tactic:", &rest))
        choice.turn = atoi(rest);
    else if (!strcmp(name, "threads"))
        choice.threads = 3;
    else if (!strcmp(name, "timed"))
        choice.timed = true;
    else if (strcmp(name, "engine") != 0)
        return error_set(err, STATUS_INVALID_ARGUMENT, "no variant '%s'", name);
    return run_engine(c, &choice, most, err);
}

/* --- all of them --- */

struct round {
    const struct graph_case *c;
    const struct variant_options *options;
    variant_visit visit;
    void *user;
    uint32_t most;
    uint32_t changed[PASSES_MAX];
    bool over;
};

static void run_variant(struct round *r, const char *name, uint32_t *changed)
{
    struct variant_result result = {.status = STATUS_OK};
    if (r->over || !r->visit(r->user, name, NULL))
        return;
    result.status = run_named(r->c, r->options, name, changed, &r->most, &result.err);
    r->over = !r->visit(r->user, name, &result);
}

/* If a pass does nothing among the others, leaving it out changes nothing, so such a variant is
 * skipped. */
static void run_all_passes(struct round *r)
{
    char name[VARIANT_NAME_MAX];
    for (const struct pass *pass = passes; pass->name; pass++) {
        snprintf(name, sizeof(name), "pass:%s", pass->name);
        run_variant(r, name, NULL);
    }
    run_variant(r, "passes", NULL);
    run_variant(r, "features", r->changed);
    run_variant(r, "memory", NULL);
    for (const struct pass *pass = passes; pass->name; pass++) {
        snprintf(name, sizeof(name), "without:%s", pass->name);
        if (r->changed[pass - passes])
            run_variant(r, name, NULL);
    }
}

void variants_run(const struct graph_case *c, const struct variant_options *options,
                  variant_visit visit, void *user)
{
    char name[VARIANT_NAME_MAX];
    struct round r = {.c = c, .options = options, .visit = visit, .user = user};
    if (options->only) {
        run_variant(&r, options->only, NULL);
        return;
    }
    run_variant(&r, "import", NULL);
    run_all_passes(&r);
    run_variant(&r, "engine", NULL);
    run_variant(&r, "threads", NULL);
    if (options->timed)
        run_variant(&r, "timed", NULL);
    r.most = 1;
    for (uint32_t turn = 0; turn < r.most; turn++) {
        snprintf(name, sizeof(name), "tactic:%u", turn);
        run_variant(&r, name, NULL);
    }
}
