/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the table of passes. */
#include "engine/passes/pass.h"

#include <string.h>

/* Each round that changes something makes the graph smaller or more canonical, so a model needs few
 * rounds. The bound is for a mistake in a pass. */
enum { ROUNDS_MAX = 16 };

#define PASS_ROW(name, what) {#name, what, pass_##name},
const struct pass passes[] = {PASSES(PASS_ROW){NULL, NULL, NULL}};

const struct pass *pass_find(const char *name)
{
    for (const struct pass *pass = passes; pass->name; pass++)
        if (strcmp(pass->name, name) == 0)
            return pass;
    return NULL;
}

static enum status run(const struct pass *pass, struct ir_graph *graph, struct pass_context *ctx,
                       struct error *err)
{
    TRY(pass->run(graph, ctx, err));
    TRY(ir_graph_compact(graph, err));
    return ir_verify(graph, err);
}

enum status pass_run(const struct pass *pass, struct ir_graph *graph, struct pass_context *ctx,
                     struct error *err)
{
    struct pass_tally *tally = &ctx->tally[pass - passes];
    uint32_t rewrites = ctx->rewrites, nodes = graph->n_nodes;
    ctx->pass = pass;
    enum status status = run(pass, graph, ctx, err);
    if (status)
        error_prefix(err, "after pass %s", pass->name);
    tally->rewrites += ctx->rewrites - rewrites;
    tally->removed += (int32_t)(nodes - graph->n_nodes);
    return status;
}

enum status passes_run(struct ir_graph *graph, struct pass_context *ctx, struct error *err)
{
    for (uint32_t round = 0; round < ROUNDS_MAX; round++) {
        uint32_t before = ctx->rewrites;
        for (const struct pass *pass = passes; pass->name; pass++) {
            ctx->unsettled = ctx->rewrites != before;
            TRY(pass_run(pass, graph, ctx, err));
        }
        if (ctx->rewrites == before)
            break;
    }
    ctx->unsettled = false;
    return passes_ranges(graph, err);
}
