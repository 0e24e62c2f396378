/* SPDX-License-Identifier: Apache-2.0 */
/* Names by which tables speak of tensors; see ranges.h. */
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#define HASH_FUNCTION(key, len, hash) ((hash) = (unsigned)XXH3_64bits((key), (len)))

#include "base/hash.h"
#include "engine/quant/ranges.h"

enum { PART_MAX = 1024 };

/* A name that occurs, and how often so far. */
struct seen {
    const char *name;
    uint32_t times;
    UT_hash_handle hh;
};

struct naming {
    struct ir_graph *graph;
    struct arena *memory; /* of the table */
    struct seen *seen;
};

static void naming_deinit(struct naming *n)
{
    HASH_CLEAR(hh, n->seen);
    arena_free(n->memory);
}

/* Counts the name; NULL: no memory. */
static struct seen *see(struct naming *n, const char *name)
{
    struct seen *s;
    HASH_FIND(hh, n->seen, name, strlen(name), s);
    if (!s) {
        s = arena_alloc(n->memory, sizeof(*s));
        if (!s)
            return NULL;
        *s = (struct seen){.name = name};
        HASH_ADD_KEYPTR(hh, n->seen, name, strlen(name), s);
        if (!HASH_ADDED(s))
            return NULL;
    }
    s->times++;
    return s;
}

/* The name that the tensor would have if no other had it. Of a fused node the first part counts. */
static const char *wanted(const struct naming *n, const struct ir_tensor *t, uint32_t tensor)
{
    if (t->name[0] || t->producer == IR_NONE)
        return t->name;
    const struct ir_node *node = ir_node(n->graph, t->producer);
    const char *end = strstr(node->name, " + ");
    int len = (int)MIN(end ? (size_t)(end - node->name) : strlen(node->name), (size_t)PART_MAX);
    uint32_t output = 0;
    while (output + 1 < node->n_outputs && node->outputs[output] != tensor)
        output++;
    return output ? arena_printf(n->graph->arena, "@%.*s:%u", len, node->name, output)
                  : arena_printf(n->graph->arena, "@%.*s", len, node->name);
}

static bool name_one(struct naming *n, uint32_t tensor)
{
    struct ir_tensor *t = ir_tensor(n->graph, tensor);
    const char *name = wanted(n, t, tensor);
    struct seen *s = name ? see(n, name) : NULL;
    while (s && s->times > 1) {
        const char *next = arena_printf(n->graph->arena, "%s~%u", name, s->times);
        struct seen *other = next ? see(n, next) : NULL;
        if (!other)
            return false;
        if (other->times == 1) {
            name = next;
            break;
        }
        s->times++;
    }
    if (s)
        t->name = name;
    return s;
}

bool quant_name_tensors(struct ir_graph *graph)
{
    CLEANUP(naming_deinit) struct naming n = {.graph = graph, .memory = arena_new(0)};
    bool ok = n.memory;
    for (uint32_t i = 0; ok && i < graph->n_inputs; i++)
        ok = see(&n, ir_tensor(graph, graph->inputs[i])->name);
    for (uint32_t i = 0; ok && i < graph->n_nodes; i++)
        for (uint32_t k = 0; ok && k < ir_node(graph, i)->n_outputs; k++)
            ok = name_one(&n, ir_node(graph, i)->outputs[k]);
    return ok;
}

void quant_note_known(const struct ir_graph *graph, const struct quant_table *table, bool *known)
{
    uint32_t index;
    for (uint32_t i = 0; i < graph->n_tensors; i++)
        if (quant_table_find(table, ir_tensor(graph, i)->name, &index))
            known[index] = true;
}
