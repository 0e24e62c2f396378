/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/build/fuse.h"

#include <string.h>

#include "base/compiler.h"
#include "engine/build/ragged.h"
#include "engine/build/tiny.h"
#include "engine/build/widen.h"
#include "engine/passes/pass.h"
#include "engine/tune/pin.h"

/* With 8 bits a chain would lose the ranges of what lies between its layers. */
static void find_chains(const struct build_options *options, struct pass_context *context)
{
    const struct device *device = options->device;
    if (!device || !(device->backend->features & BACKEND_CHAINS) || options->layers_apart ||
        precision_is_8bit(options->precision))
        return;
    context->chain_room = device->block_bytes;
    context->chain_short =
        options->precision == PRECISION_F16 || options->precision == PRECISION_BF16;
}

struct taking {
    const struct tune_pins *pins;
    uint64_t set; /* of pins, for the node */
    bool taken;
};

static enum status note_taken(void *user, const struct tactic *tactic, struct error *err UNUSED)
{
    struct taking *t = user;
    t->taken = t->taken || tune_pins_may(t->pins, t->set, tactic);
    return STATUS_OK;
}

bool build_device_takes(const struct build_options *options, const struct ir_graph *graph,
                        const struct ir_node *node)
{
    const struct backend *backend = options->device->backend;
    uint64_t pins = tune_pins_of(options->pins, node->name);
    enum precision precision =
        precision_floats(tune_pins_precision(options->pins, pins, options->precision), backend);
    struct error unread = {0};
    struct taking t = {options->pins, pins, false};
    return tune_pins_backend(options->pins, pins, backend->name) &&
           backend->candidates(options->device, graph, node, precision, note_taken, &t, &unread) ==
               STATUS_OK &&
           t.taken;
}

static bool device_takes(void *user, const struct ir_graph *graph, const struct ir_node *node)
{
    return build_device_takes(user, graph, node);
}

enum status build_fuse(struct ir_graph *graph, const struct build_options *options,
                       struct build_report *report, struct error *err)
{
    struct pass_context context = {.evaluator = options->evaluator, .log = options->log};
    if (options->ragged) /* what depends on sizes is constant here, and becomes small or vanishes */
        context.fold_bytes = RAGGED_FOLD_BYTES;
    if (options->device) {
        context.attention = options->device->backend->features & BACKEND_ATTENTION;
        context.merge = options->device->backend->features & BACKEND_MERGE;
        context.tables = options->device->backend->features & BACKEND_TABLES;
        context.picks = options->device->backend->features & BACKEND_PICKS;
        context.joins = options->device->backend->features & BACKEND_JOINS;
        context.patches = options->device->backend->features & BACKEND_PATCHES;
        context.lays = options->device->backend->features & BACKEND_LAYS;
        context.boxes = options->device->backend->features & BACKEND_BOXES;
        context.stems = options->device->backend->features & BACKEND_STEMS && !options->stems_apart;
        context.takes = device_takes;
        context.takes_user = (void *)(uintptr_t)options;
    }
    find_chains(options, &context);
    report->imported = graph->n_nodes;
    if (options->device && options->device->backend->features & BACKEND_WIDENS)
        TRY(build_widen(graph, &report->widened, err));
    TRY(passes_run(graph, &context, err));
    if (options->device && options->device->backend->host_memory)
        TRY(build_drop_tiny(graph, &report->dropped, err));
    report->fused = graph->n_nodes;
    memcpy(report->passes, context.tally, sizeof(report->passes));
    return STATUS_OK;
}
