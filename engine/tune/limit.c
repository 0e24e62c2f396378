/* SPDX-License-Identifier: Apache-2.0 */
/* The limit of workspaces: what is beyond it is no candidate. */
#include "base/compiler.h"
#include "engine/tune/internal.h"

enum status tune_limit_check(struct tune_table *t, struct tune_entry *e, struct tune_option *o,
                             bool *fits, struct error *err)
{
    uint64_t limit = tune_table_options(t)->workspace, bytes = 0;
    struct tune_bench *bench;
    struct ir_graph *shaped;
    *fits = true;
    if (!limit)
        return STATUS_OK;
    TRY(tune_table_bench(t, e->device, &bench, err));
    TRY(tune_sample_shaped(e->sample, o->tactic, &shaped, err));
    struct ir_node *node = ir_node(shaped, 0);
    node->tactic = o->tactic;
    /* what does not work is found, and said, when it is timed or compiled */
    if (tune_bench_workspace(bench, shaped, node, &bytes, NULL))
        bytes = 0;
    ir_graph_free(shaped);
    *fits = bytes <= limit;
    if (*fits)
        return STATUS_OK;
    e->least_beyond = e->least_beyond ? MIN(e->least_beyond, bytes) : bytes;
    o->ns = TUNE_NEVER;
    o->beyond = true;
    log_write(tune_table_options(t)->log, LOG_VERBOSE,
              "'%s' with '%s': not used: its workspace of %.2f MiB is beyond %.2f MiB",
              ir_node(e->sample, 0)->name, o->tactic->name, (double)bytes / (1 << 20),
              (double)limit / (1 << 20));
    return STATUS_OK;
}
