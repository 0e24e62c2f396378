/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types that a judge has ruled out for a node (struct tune_judge). Some backends offer only slow
 * tactics without them, or none, where they may offer shorter ones: of heavy work they are asked
 * again, for what they have in fp32 alone. If the device has no tactic for the node even then, the
 * host runs it; if there is none either, the node keeps its types, since a plan that is less exact
 * is worth more than none. The judge will see that and say so.
 */
#include "base/compiler.h"
#include "engine/tune/internal.h"

uint64_t tune_held_least(const struct tune_entry *entry, uint32_t held)
{
    uint64_t least = TUNE_NEVER;
    for (uint32_t i = 0; entry && i < entry->n; i++)
        if (!(held & tune_types(entry->sample, entry->options[i].tactic)))
            least = MIN(least, entry->options[i].ns);
    return least;
}

struct tune_layer tune_held_layer(const struct tune_pick *pick, const struct tune_site *site)
{
    if (!pick->entry)
        return (struct tune_layer){0};
    const struct tune_option *option = &pick->entry->options[pick->option];
    uint64_t wide =
        MIN(tune_held_least(site->entry, UINT32_MAX), tune_held_least(site->twin, UINT32_MAX));
    return (struct tune_layer){
        .device = pick->entry->device,
        .tactic = option->tactic,
        .types = tune_types(pick->entry->sample, option->tactic),
        .ns = option->ns,
        .wide_ns = wide < TUNE_NEVER ? wide : 0,
    };
}

static bool is_possible(const struct tune_site *site, uint32_t held)
{
    return (!site->exiled && tune_held_least(site->entry, held) < TUNE_NEVER) ||
           tune_held_least(site->twin, held) < TUNE_NEVER;
}

enum status tune_held_ensure(struct tune_table *table, const struct ir_graph *graph, uint32_t node,
                             struct tune_site *site, uint32_t *held, struct error *err)
{
    bool heavy = ir_op_has(ir_node(graph, node)->op, IR_TRAIT_HEAVY), possible;
    possible = is_possible(site, *held);
    if (!possible) {
        TRY(tune_fill_without(table, site->entry, *held, err));
        possible = is_possible(site, *held);
    }
    if (heavy || !possible)
        TRY(tune_fill_wide(table, site->entry, err));
    if (is_possible(site, *held))
        return STATUS_OK;
    TRY(tune_sites_host(table, graph, ir_node(graph, node), site, err));
    if (!is_possible(site, *held))
        *held = 0;
    return STATUS_OK;
}
