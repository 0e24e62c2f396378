/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launches of a batch. A part on the device is one graph where the backend captures; a part on
 * the CPU runs on the caller's thread, after all that was put onto the device's stream before it:
 * so nothing is read too early, and no copy to the device still reads what the CPU overwrites.
 */
#include "base/clock.h"
#include "engine/runtime/context.h"

static enum status stamp(struct context *ctx, const struct part *part, uint32_t at,
                         struct error *err)
{
    if (part->side == SIDE_DEVICE)
        return ctx->backend->event_record(ctx->layer_events[at], ctx->lane->stream, err);
    ctx->layer_clock[at] = clock_now_ns();
    return STATUS_OK;
}

static enum status launch_step(const struct step *s, struct backend_stream *stream, bool named,
                               struct error *err)
{
    named = named && s->backend->range_begin;
    if (named)
        s->backend->range_begin(s->node->name);
    enum status status =
        s->backend->op_launch(s->op, stream, s->inputs, s->outputs, s->workspace, err);
    if (named)
        s->backend->range_end();
    return status;
}

enum status context_launch(struct context *ctx, struct profile *p, uint32_t index, bool stamped,
                           struct error *err)
{
    const struct part *part = &p->parts[index];
    struct backend_stream *stream =
        part->side == SIDE_DEVICE ? ctx->lane->stream : ctx->host_stream;
    enum status status = stamped ? stamp(ctx, part, part->first + index, err) : STATUS_OK;
    for (uint32_t i = part->first; i < part->first + part->count && !status; i++) {
        status = launch_step(&p->steps[i], stream, stamped, err);
        if (!status && i == ctx->half_step)
            status = ctx->backend->capture_half(stream, err);
        if (!status && stamped)
            status = stamp(ctx, part, i + index + 1, err);
        if (status)
            error_prefix(err, "layer '%s'", p->steps[i].node->name);
    }
    return status;
}

/* What the part reads of the other side's; and before a CPU part, the end of all that is underway.
 */
static enum status cross(struct context *ctx, const struct part *part, bool first,
                         struct error *err)
{
    const struct backend *backend = ctx->backend;
    if (part->n_copies)
        TRY(backend->copy(ctx->lane->stream,
                          part->side == SIDE_DEVICE ? COPY_TO_DEVICE : COPY_TO_HOST, part->copies,
                          part->n_copies, err));
    if (part->side == SIDE_DEVICE || (first && !part->n_copies))
        return STATUS_OK;
    TRY(context_record(ctx, EVENT_BORDER, err));
    return backend->event_wait(ctx->events[EVENT_BORDER], err);
}

static void patch(struct profile *p)
{
    for (uint32_t i = 0; i < p->n_patches; i++) {
        const struct patch *patch = &p->patches[i];
        *patch->slot = patch->output ? p->out_now[patch->index] : p->in_now[patch->index];
    }
}

enum status context_run(struct context *ctx, struct profile *p, bool plain, struct error *err)
{
    enum status status = STATUS_OK;
    patch(p);
    for (uint32_t i = 0; i < p->n_parts && !status; i++) {
        const struct part *part = &p->parts[i];
        struct backend_graph *graph = p->layers ? part->timed_graph : part->graph;
        status = cross(ctx, part, i == 0, err);
        if (!status && graph && !plain)
            status = ctx->backend->graph_launch(graph, ctx->lane->stream, err);
        else if (!status)
            status = context_launch(ctx, p, i, p->layers && !plain, err);
    }
    return status;
}
