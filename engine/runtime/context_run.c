/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launches of a batch. A part on the device is one graph where the backend captures. A part on
 * the CPU runs on the caller's thread, after all work that was put onto the device's stream before
 * it has ended: so the CPU reads no tensor too early, and overwrites none that a copy to the device
 * still reads.
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

/* Launches step `at` of part `index`, and what belongs right behind it. */
static enum status launch(struct context *ctx, struct profile *p, uint32_t index, uint32_t at,
                          bool stamped, struct error *err)
{
    const struct part *part = &p->parts[index];
    struct backend_stream *stream =
        part->side == SIDE_DEVICE ? ctx->lane->stream : ctx->host_stream;
    TRY(launch_step(&p->steps[at], stream, stamped, err));
    if (ctx->values)
        TRY(context_show_values(ctx, p, part, &p->steps[at], err));
    if (at == ctx->half_step)
        TRY(ctx->backend->capture_half(stream, err));
    return stamped ? stamp(ctx, part, at + index + 1, err) : STATUS_OK;
}

enum status context_launch(struct context *ctx, struct profile *p, uint32_t index, bool stamped,
                           struct error *err)
{
    const struct part *part = &p->parts[index];
    if (stamped)
        TRY(stamp(ctx, part, part->first + index, err));
    for (uint32_t i = part->first; i < part->first + part->count; i++) {
        enum status status = launch(ctx, p, index, i, stamped, err);
        if (status) {
            error_prefix(err, "layer '%s'", p->steps[i].node->name);
            return status;
        }
    }
    return STATUS_OK;
}

/* Copies the tensors that the part reads and the other side made. Before a CPU part, waits for
 * everything on the device's stream. */
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
        char *base = patch->output ? p->outputs[patch->index].now : p->inputs[patch->index].now;
        *patch->slot = base + patch->at;
    }
}

enum status context_run(struct context *ctx, struct profile *p, bool plain, struct error *err)
{
    patch(p);
    for (uint32_t i = 0; i < p->n_parts; i++) {
        const struct part *part = &p->parts[i];
        struct backend_graph *graph = p->layers ? part->timed_graph : part->graph;
        TRY(cross(ctx, part, i == 0, err));
        if (graph && !plain)
            TRY(ctx->backend->graph_launch(graph, ctx->lane->stream, err));
        else
            TRY(context_launch(ctx, p, i, p->layers && !plain, err));
    }
    return STATUS_OK;
}
