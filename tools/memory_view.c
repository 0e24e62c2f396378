/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/memory_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/plan/plan.h"
#include "tools/show.h"

enum { EVENTS_SHOWN = 64, TAGS_MAX = 32 };

const char *memory_side_name(enum memory_side side)
{
    return side == MEMORY_ON_DEVICE ? "device" : "host";
}

/* --- events --- */

static int by_time(const void *a, const void *b)
{
    const struct memory_event *x = a, *y = b;
    return x->at_ns == y->at_ns ? (x->bytes > y->bytes) - (x->bytes < y->bytes)
                                : (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

static void add_record(struct memory_view *view, const struct memory_record *r, bool apart)
{
    enum memory_side side = apart && r->kind == MEMORY_DEVICE ? MEMORY_ON_DEVICE : MEMORY_ON_HOST;
    int64_t bytes = (int64_t)r->size;
    view->events[view->n_events++] = (struct memory_event){r->taken_ns, r->tag, side, bytes, {0}};
    if (r->released_ns)
        view->events[view->n_events++] =
            (struct memory_event){r->released_ns, r->tag, side, -bytes, {0}};
}

static enum status read_events(struct memory_view *view, struct device *device, struct error *err)
{
    size_t n = memory_track_records(device, NULL, 0);
    view->records = calloc(n + 1, sizeof(*view->records));
    view->events = calloc(2 * n + 1, sizeof(*view->events));
    if (!view->records || !view->events)
        return error_no_memory(err, "the account of memory");
    n = MIN(n, memory_track_records(device, view->records, n));
    for (size_t i = 0; i < n; i++)
        add_record(view, &view->records[i], engine_device_apart(device));
    if (view->n_events)
        qsort(view->events, view->n_events, sizeof(*view->events), by_time);
    int64_t held[MEMORY_SIDES] = {0};
    for (uint32_t i = 0; i < view->n_events; i++) {
        struct memory_event *e = &view->events[i];
        held[e->side] += e->bytes;
        for (int s = 0; s < MEMORY_SIDES; s++) {
            e->held[s] = (uint64_t)MAX(held[s], 0);
            view->peak[s] = MAX(view->peak[s], e->held[s]);
        }
    }
    return STATUS_OK;
}

/* --- layers --- */

/* first[i], last[i]: the first node that writes into tensor i's bytes and the last one that reads
 * them, by any of their names. */
static void find_uses(const struct ir_graph *g, uint32_t *first, uint32_t *last)
{
    for (uint32_t i = 0; i < g->n_tensors; i++)
        first[i] = last[i] = ir_tensor(g, i)->producer;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        uint32_t root = plan_tensor_root(g, i);
        first[root] = MIN(first[root], ir_tensor(g, i)->producer);
    }
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; k < ir_node(g, i)->n_inputs; k++)
            if (ir_node(g, i)->inputs[k] != IR_NONE)
                last[plan_tensor_root(g, ir_node(g, i)->inputs[k])] = i;
}

static uint64_t alive_at(const struct ir_graph *g, const uint32_t *first, const uint32_t *last,
                         uint32_t node)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct ir_tensor *t = ir_tensor(g, i);
        if (t->place == IR_PLACE_ARENA && t->alias_of == IR_NONE && t->producer != IR_NONE &&
            first[i] <= node && last[i] >= node)
            bytes += t->bytes;
    }
    return bytes;
}

static enum status read_layers(struct memory_view *view, const struct ir_graph *g,
                               struct error *err)
{
    uint32_t *first = calloc(2 * ((size_t)g->n_tensors + 1), sizeof(*first));
    view->layers = calloc((size_t)g->n_nodes + 1, sizeof(*view->layers));
    if (!first || !view->layers) {
        free(first);
        return error_no_memory(err, "the account of memory");
    }
    uint32_t *last = first + g->n_tensors + 1;
    find_uses(g, first, last);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct ir_node *node = ir_node(g, i);
        if (plan_node_is_alias(g, node))
            continue;
        struct memory_layer *l = &view->layers[view->n_layers];
        *l = (struct memory_layer){node, alive_at(g, first, last, i), node->workspace_bytes};
        const struct memory_layer *most = &view->layers[view->most];
        if (l->tensors + l->workspace > most->tensors + most->workspace)
            view->most = view->n_layers;
        if (l->workspace > view->layers[view->largest].workspace)
            view->largest = view->n_layers;
        view->n_layers++;
    }
    free(first);
    return STATUS_OK;
}

enum status memory_view_init(struct memory_view *view, struct device *device,
                             const struct ir_graph *graph, struct error *err)
{
    TRY(read_events(view, device, err));
    return graph ? read_layers(view, graph, err) : STATUS_OK;
}

void memory_view_deinit(struct memory_view *view)
{
    free(view->records);
    free(view->events);
    free(view->layers);
    *view = (struct memory_view){0};
}

/* --- text --- */

static double kib(uint64_t bytes)
{
    return (double)bytes / 1024;
}

static void print_layers(const struct memory_view *view, bool all)
{
    const struct memory_layer *most = &view->layers[view->most];
    const struct memory_layer *largest = &view->layers[view->largest];
    show_printf(
        "\nof the arena most is in use at layer '%s' (%s): tensors %.1f KiB, workspace %.1f "
        "KiB\n",
        most->node->name, ir_op_name(most->node->op), kib(most->tensors), kib(most->workspace));
    if (largest->workspace)
        show_printf("the largest workspace, %.1f KiB, is that of layer '%s' (%s)\n",
                    kib(largest->workspace), largest->node->name, largest->node->tactic->name);
    if (all)
        printf("\n%12s %13s  %-10s %s\n", "tensors KiB", "workspace KiB", "op", "layer");
    for (uint32_t i = 0; all && i < view->n_layers; i++) {
        const struct memory_layer *l = &view->layers[i];
        show_printf("%12.1f %13.1f  %-10s %s\n", kib(l->tensors), kib(l->workspace),
                    ir_op_name(l->node->op), l->node->name);
    }
}

void memory_view_print(const struct memory_view *view, bool all)
{
    uint32_t n = view->n_events < EVENTS_SHOWN ? view->n_events : EVENTS_SHOWN;
    printf("\n%10s %13s  %-6s  %-12s %12s %12s\n", "ms", "KiB", "where", "memory", "device KiB",
           "host KiB");
    for (uint32_t i = 0; i < n; i++) {
        const struct memory_event *e = &view->events[i];
        show_printf("%10.1f %+13.1f  %-6s  %-12s %12.1f %12.1f\n",
                    (double)(e->at_ns - view->events[0].at_ns) / NS_PER_MS, (double)e->bytes / 1024,
                    memory_side_name(e->side), e->tag, kib(e->held[MEMORY_ON_DEVICE]),
                    kib(e->held[MEMORY_ON_HOST]));
    }
    if (n < view->n_events)
        printf("%10s and %" PRIu32 " more\n", "", view->n_events - n);
    printf("peak: device %.1f KiB, host %.1f KiB\n", kib(view->peak[MEMORY_ON_DEVICE]),
           kib(view->peak[MEMORY_ON_HOST]));
    if (view->n_layers)
        print_layers(view, all);
}

/* --- JSON --- */

void memory_view_json(const struct memory_view *view, struct json *j)
{
    json_list(j, "memory_events");
    for (uint32_t i = 0; i < view->n_events; i++) {
        const struct memory_event *e = &view->events[i];
        json_object(j, NULL);
        json_real(j, "ms", (double)(e->at_ns - view->events[0].at_ns) / NS_PER_MS);
        json_text(j, "tag", e->tag);
        json_text(j, "where", memory_side_name(e->side));
        json_int(j, "bytes", e->bytes);
        json_uint(j, "device_bytes", e->held[MEMORY_ON_DEVICE]);
        json_uint(j, "host_bytes", e->held[MEMORY_ON_HOST]);
        json_end(j);
    }
    json_end(j);
    json_object(j, "memory_peak");
    json_uint(j, "device_bytes", view->peak[MEMORY_ON_DEVICE]);
    json_uint(j, "host_bytes", view->peak[MEMORY_ON_HOST]);
    json_end(j);
    json_list(j, "memory_layers");
    for (uint32_t i = 0; i < view->n_layers; i++) {
        json_object(j, NULL);
        json_text(j, "name", view->layers[i].node->name);
        json_uint(j, "tensor_bytes", view->layers[i].tensors);
        json_uint(j, "workspace_bytes", view->layers[i].workspace);
        json_end(j);
    }
    json_end(j);
}

/* --- Chrome's counters --- */

static void begin_counter(struct json *j, const char *name, double us)
{
    json_object(j, NULL);
    json_text(j, "name", name);
    json_text(j, "ph", "C");
    json_uint(j, "pid", 1);
    json_real(j, "ts", us);
    json_object(j, "args");
}

static void end_counter(struct json *j)
{
    json_end(j);
    json_end(j);
}

struct tag_sum {
    const char *tag;
    int64_t bytes;
};

static void add_tag(struct tag_sum sums[TAGS_MAX], uint32_t *n, const struct memory_event *e)
{
    uint32_t i = 0;
    while (i < *n && strcmp(sums[i].tag, e->tag) != 0)
        i++;
    if (i == TAGS_MAX)
        return;
    if (i == *n)
        sums[(*n)++] = (struct tag_sum){e->tag, 0};
    sums[i].bytes += e->bytes;
}

/* A counter has all its parts each time, or the picture has gaps. */
void memory_view_trace(const struct memory_view *view, uint64_t zero_ns, struct json *j)
{
    static const char *const names[MEMORY_SIDES] = {"device memory", "host memory"};
    struct tag_sum sums[MEMORY_SIDES][TAGS_MAX];
    uint32_t n[MEMORY_SIDES] = {0};
    for (uint32_t i = 0; i < view->n_events; i++) {
        const struct memory_event *e = &view->events[i];
        add_tag(sums[e->side], &n[e->side], e);
        begin_counter(j, names[e->side], ((double)e->at_ns - (double)zero_ns) / NS_PER_US);
        for (uint32_t k = 0; k < n[e->side]; k++)
            json_int(j, sums[e->side][k].tag, sums[e->side][k].bytes);
        end_counter(j);
    }
}

void memory_layer_trace(const struct memory_view *view, uint32_t context,
                        const struct ir_node *node, double us, struct json *j)
{
    char name[48];
    uint32_t i = 0;
    while (i < view->n_layers && view->layers[i].node != node)
        i++;
    bool known = i < view->n_layers;
    snprintf(name, sizeof(name), "context %" PRIu32 ": arena in use", context);
    begin_counter(j, name, us);
    json_uint(j, "tensors", known ? view->layers[i].tensors : 0);
    json_uint(j, "workspace", known ? view->layers[i].workspace : 0);
    end_counter(j);
}
