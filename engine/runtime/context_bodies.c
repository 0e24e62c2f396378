/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of loops that run as a whole: for each a context, all on one lane of the CPU that runs
 * tails. */
#include <stdlib.h>

#include "engine/import/onnx.h"
#include "engine/runtime/context.h"

struct body {
    struct context *ctx;
    uint32_t n_inputs;
    struct engine_input *inputs;
    struct engine_span *spans; /* one of each input */
};

struct context_bodies {
    struct lane *lane; /* one of them runs at a time */
    uint32_t n;        /* of all profiles */
    uint32_t *first;   /* by profile */
    struct body *list;
    struct onnx_body *shown; /* of each */
};

static enum status run(void *user, const void *const *inputs, void *outputs, struct error *err)
{
    struct body *b = user;
    for (uint32_t i = 0; i < b->n_inputs; i++)
        b->spans[i].data = inputs[i];
    TRY(context_enqueue_at(b->ctx, 0, 1, b->inputs, outputs, err));
    return context_wait(b->ctx, NULL, err);
}

/* As an import sees them. `offsets` NULL: inputs. */
static const struct onnx_port *ports_of(struct context *ctx, const struct engine_binding *from,
                                        uint32_t n, const size_t *offsets)
{
    struct onnx_port *ports = context_take(ctx, n, sizeof(*ports));
    for (uint32_t i = 0; ports && i < n; i++)
        ports[i] = (struct onnx_port){from[i].name, from[i].dtype, from[i].shape,
                                      offsets ? offsets[i] : 0};
    return ports;
}

static enum status body_new(struct context *ctx, struct engine *engine, struct body *b,
                            struct onnx_body *shown, struct error *err)
{
    const struct engine_info *info = engine_describe(engine);
    const struct engine_profile *profile = &info->profiles[0];
    TRY(context_new(engine, ctx->bodies->lane, &b->ctx, err));
    b->n_inputs = info->n_inputs;
    b->inputs = context_take(ctx, info->n_inputs, sizeof(*b->inputs));
    b->spans = context_take(ctx, info->n_inputs, sizeof(*b->spans));
    *shown = (struct onnx_body){
        .name = info->name,
        .inputs = ports_of(ctx, info->inputs, info->n_inputs, NULL),
        .outputs = ports_of(ctx, info->outputs, info->n_outputs, profile->out_offset),
        .n_inputs = info->n_inputs,
        .n_outputs = info->n_outputs,
        .out_bytes = profile->out_bytes,
        .run = run,
        .user = b};
    if (!b->inputs || !b->spans || !shown->inputs || !shown->outputs)
        return error_no_memory(err, "a context");
    for (uint32_t i = 0; i < info->n_inputs; i++) {
        b->spans[i].size = info->inputs[i].instance_bytes;
        b->inputs[i] = (struct engine_input){&b->spans[i], 1};
    }
    return STATUS_OK;
}

/* A lane that is large enough for the largest. */
static enum status lane_for(const struct engine *engine, struct lane **out, struct error *err)
{
    size_t size = 0;
    for (uint32_t i = 0; i < engine->info.n_profiles; i++)
        for (uint32_t k = 0; k < engine->bodies[i].n; k++)
            size = MAX(size, engine->bodies[i].list[k]->layouts[0].total);
    TRY(lane_new(engine->tail_device, out, err));
    return lane_grow(*out, size, err);
}

enum status context_bodies_new(struct context *ctx, struct error *err)
{
    const struct engine *engine = ctx->engine;
    uint32_t n = 0, n_profiles = engine->info.n_profiles;
    for (uint32_t i = 0; i < n_profiles; i++)
        n += engine->bodies[i].n;
    if (!n)
        return STATUS_OK;
    struct context_bodies *bodies = context_take(ctx, 1, sizeof(*bodies));
    uint32_t *first = context_take(ctx, n_profiles, sizeof(*first));
    struct body *list = context_take(ctx, n, sizeof(*list));
    struct onnx_body *shown = context_take(ctx, n, sizeof(*shown));
    if (!bodies || !first || !list || !shown)
        return error_no_memory(err, "a context");
    *bodies = (struct context_bodies){.first = first, .list = list, .shown = shown};
    ctx->bodies = bodies;
    TRY(lane_for(engine, &bodies->lane, err));
    for (uint32_t i = 0; i < n_profiles; i++) {
        first[i] = bodies->n;
        for (uint32_t k = 0; k < engine->bodies[i].n; k++, bodies->n++) {
            list[bodies->n] = (struct body){.ctx = NULL};
            enum status status =
                body_new(ctx, engine->bodies[i].list[k], &list[bodies->n], &shown[bodies->n], err);
            if (status) {
                bodies->n++; /* what there is of it goes with the others */
                return status;
            }
        }
    }
    return STATUS_OK;
}

void context_bodies_free(struct context_bodies *bodies)
{
    for (uint32_t i = 0; bodies && i < bodies->n; i++)
        context_free(bodies->list[i].ctx);
    if (bodies)
        lane_free(bodies->lane);
}

const struct onnx_body *context_bodies_of(const struct context *ctx, uint32_t profile, uint32_t *n)
{
    const struct context_bodies *bodies = ctx->bodies;
    *n = bodies ? ctx->engine->bodies[profile].n : 0;
    return *n ? &bodies->shown[bodies->first[profile]] : NULL;
}

const struct context *context_body(const struct context *ctx, uint32_t profile, uint32_t index)
{
    return ctx->bodies->list[ctx->bodies->first[profile] + index].ctx;
}

enum status context_bodies_time(struct context *ctx, struct error *err)
{
    for (uint32_t i = 0; ctx->bodies && i < ctx->bodies->n; i++)
        TRY(context_layer_times_start(ctx->bodies->list[i].ctx, err));
    return STATUS_OK;
}
