/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which nodes the CPU runs beside a device with memory of its own. Some the device has no kernel
 * for. What lies between those is often light work on small tensors, such as the arithmetic of
 * shapes and indices, which is done on the CPU sooner than its operands are on the device: such
 * nodes get a second entry, their twin, and the solver weighs both against the crossings. So do
 * nodes of plugins that have kernels for the device.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "engine/ir/runs.h"
#include "engine/tune/internal.h"

enum {
    CROSSING_NS = 10000,     /* to wait for one side and begin work on the other */
    CROSSING_PER_NS = 20,    /* bytes in a nanosecond, by PCIe 5 with 16 lanes */
    TWIN_BYTES_MAX = 1 << 18 /* more bytes are not worth carrying over */
};

uint64_t tune_crossing_ns(const struct ir_tensor *tensor)
{
    return CROSSING_NS + tensor->bytes / CROSSING_PER_NS;
}

/* --- twins --- */

/* A plugin's kernels, which are all of one author, may be the faster ones on either side. */
static bool is_ones_own(const struct ir_node *node)
{
    return ir_op_row(node->op)->group == IR_GROUP_PLUGIN;
}

static bool is_light(const struct ir_graph *graph, const struct ir_node *node)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        bytes += ir_tensor(graph, node->outputs[i])->bytes;
    return !ir_op_has(node->op, IR_TRAIT_HEAVY) && bytes <= TWIN_BYTES_MAX;
}

enum status tune_sites_twin(struct tune_table *table, const struct ir_graph *graph,
                            struct tune_site *sites, struct error *err)
{
    const struct tune_options *options = tune_table_options(table);
    bool some = false;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        some = some || tune_on_host(options, sites[i].entry);
    /* guesses for two machines cannot be compared */
    for (uint32_t i = 0; i < graph->n_nodes && options->host && !options->no_timing; i++) {
        const struct ir_node *node = ir_node(graph, i);
        if (sites[i].entry && !tune_on_host(options, sites[i].entry) &&
            (is_ones_own(node) || (some && is_light(graph, node))))
            TRY(tune_table_twin(table, graph, node, &sites[i].twin, err));
    }
    return STATUS_OK;
}

enum status tune_sites_host(struct tune_table *table, const struct ir_graph *graph,
                            const struct ir_node *node, struct tune_site *site, struct error *err)
{
    const struct tune_options *options = tune_table_options(table);
    if (!options->host || site->twin || tune_on_host(options, site->entry))
        return STATUS_OK;
    TRY(tune_table_twin(table, graph, node, &site->twin, err));
    return tune_fill_entry(table, site->twin, err);
}

/* --- runs that are too short --- */

/* The order in which the nodes will run; see ir_runs. */
struct order {
    uint8_t *side;
    uint32_t *order, *run, *length; /* length: layers, by run */
    uint32_t n_runs;
};

static void order_deinit(struct order *o)
{
    free(o->side);
    free(o->order);
    free(o->run);
    free(o->length);
}

static enum status find_order(const struct tune_options *options, const struct ir_graph *graph,
                              const struct tune_pick *picks, struct order *o, struct error *err)
{
    size_t n = (size_t)graph->n_nodes + 1;
    o->side = calloc(n, sizeof(*o->side));
    o->order = calloc(n, sizeof(*o->order));
    o->run = calloc(n, sizeof(*o->run));
    o->length = calloc(n, sizeof(*o->length));
    if (!o->side || !o->order || !o->run || !o->length)
        return error_no_memory(err, "the tuner");
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        o->side[i] = !picks[i].entry                         ? IR_SIDE_ANY
                     : tune_on_host(options, picks[i].entry) ? IR_SIDE_HOST
                                                             : IR_SIDE_DEVICE;
    o->n_runs = ir_runs(graph, o->side, o->order, o->run);
    if (o->n_runs == UINT32_MAX)
        return error_no_memory(err, "the tuner");
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        o->length[o->run[i]] += o->side[i] != IR_SIDE_ANY;
    return STATUS_OK;
}

/* A node that is pinned to the device stays there. */
static enum status exile(struct tune_table *table, const struct ir_graph *graph, uint32_t node,
                         struct tune_site *site, bool *some, struct error *err)
{
    if (!site->twin)
        TRY(tune_table_twin(table, graph, ir_node(graph, node), &site->twin, err));
    TRY(tune_fill_entry(table, site->twin, err));
    site->exiled = site->twin->n > 0 || !site->entry->pins;
    *some = *some || site->exiled;
    return STATUS_OK;
}

enum status tune_sites_exile(struct tune_table *table, const struct ir_graph *graph,
                             struct tune_site *sites, const struct tune_pick *picks, bool *some,
                             struct error *err)
{
    const struct tune_options *options = tune_table_options(table);
    CLEANUP(order_deinit) struct order o = {0};
    *some = false;
    if (options->min_segment < 2 || !options->host)
        return STATUS_OK;
    TRY(find_order(options, graph, picks, &o, err));
    for (uint32_t i = 0; i < graph->n_nodes && o.n_runs > 1; i++) {
        if (o.side[i] != IR_SIDE_DEVICE || o.length[o.run[i]] >= options->min_segment)
            continue;
        TRY(exile(table, graph, i, &sites[i], some, err));
    }
    return STATUS_OK;
}

/* --- for people --- */

enum reason { NO_KERNEL, TOO_SHORT, CHEAPER, NOT_HOST };
static_assert((int)NOT_HOST == (int)TUNE_REASONS, "a line for each reason");

static enum reason reason_of(const struct tune_options *options, const struct tune_site *site,
                             const struct tune_pick *pick)
{
    return !tune_on_host(options, pick->entry) ? NOT_HOST
           : pick->entry != site->twin         ? NO_KERNEL
           : site->exiled                      ? TOO_SHORT
                                               : CHEAPER;
}

/* Lists the layers with this reason: "resize1 (resize), topk (top_k), ..." */
static uint32_t list(const struct tune_options *options, const struct ir_graph *graph,
                     const struct tune_site *sites, const struct tune_pick *picks,
                     enum reason reason, char *out, size_t size)
{
    uint32_t n = 0;
    size_t len = 0;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(graph, i);
        if (!picks[i].entry || reason_of(options, &sites[i], &picks[i]) != reason)
            continue;
        int wrote = len < size ? snprintf(out + len, size - len, "%s%s (%s)", n ? ", " : "",
                                          node->name, ir_op_name(node->op))
                               : 0;
        len += wrote > 0 ? (size_t)wrote : 0;
        n++;
    }
    if (len >= size)
        snprintf(out + size - 4, 4, "...");
    return n;
}

void tune_sites_tell(struct tune_table *table, const struct ir_graph *graph,
                     const struct tune_site *sites, const struct tune_pick *picks)
{
    static const struct {
        const char *before, *behind; /* the device's name */
    } because[TUNE_REASONS] = {
        [NO_KERNEL] = {"which", "has no kernel for"},
        [TOO_SHORT] = {"of which", "would run too few in a row"},
        [CHEAPER] = {"which", "would run no sooner with the way there and back"},
    };
    const struct tune_options *options = tune_table_options(table);
    struct tune_report *report = tune_table_report(table);
    for (enum reason reason = NO_KERNEL; reason < NOT_HOST; reason++) {
        char names[320] = "";
        uint32_t n = list(options, graph, sites, picks, reason, names, sizeof(names));
        report->host[reason][0] = '\0';
        report->on_host += n;
        if (!n)
            continue;
        snprintf(report->host[reason], TUNE_LINE_MAX, "%u layer%s on the CPU, %s %.16s %s: %s", n,
                 n == 1 ? "" : "s", because[reason].before, options->device->backend->name,
                 because[reason].behind, names);
        log_write(options->log, LOG_INFO, "%s", report->host[reason]);
    }
}
