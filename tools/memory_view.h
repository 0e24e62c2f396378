/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `inferctl bench --memory` shows: when memory was taken and given back, on the device and on
 * the host, and which part of the arena each layer of a batch has in use. With --trace the same as
 * counters in Chrome's format.
 */
#ifndef INFERD_TOOLS_MEMORY_VIEW_H
#define INFERD_TOOLS_MEMORY_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/ir/ir.h"
#include "engine/runtime/memory.h"
#include "tools/json.h"

enum memory_side { MEMORY_ON_DEVICE, MEMORY_ON_HOST, MEMORY_SIDES };

struct memory_event {
    uint64_t at_ns; /* as clock_now_ns */
    const char *tag;
    enum memory_side side;
    int64_t bytes;               /* taken, or given back: below 0 */
    uint64_t held[MEMORY_SIDES]; /* afterwards */
};

/* What a layer has in use while it runs: tensors that it reads or writes, or that layers after it
 * read; and its workspace. Both lie in the arena. */
struct memory_layer {
    const struct ir_node *node;
    uint64_t tensors, workspace;
};

struct memory_view {
    struct memory_record *records;
    struct memory_event *events; /* by time */
    uint32_t n_events;
    uint64_t peak[MEMORY_SIDES];
    struct memory_layer *layers; /* of one profile, in the order in which they run */
    uint32_t n_layers;
    uint32_t most, largest; /* the layers with most in use, and with the largest workspace */
};

/* Reads the device's account, which may be off, and the graph of a profile. */
enum status memory_view_init(struct memory_view *view, struct device *device,
                             const struct ir_graph *graph, struct error *err);
void memory_view_deinit(struct memory_view *view); /* {0} is fine */

const char *memory_side_name(enum memory_side side);

/* `all`: a line for each layer, too. */
void memory_view_print(const struct memory_view *view, bool all);
void memory_view_json(const struct memory_view *view, struct json *json);
/* Counters of what is held; event times have `zero_ns` taken off. */
void memory_view_trace(const struct memory_view *view, uint64_t zero_ns, struct json *json);
/* A counter of what a context's layer has in use, from `us` on. NULL: nothing. */
void memory_layer_trace(const struct memory_view *view, uint32_t context,
                        const struct ir_node *node, double us, struct json *json);

#endif
