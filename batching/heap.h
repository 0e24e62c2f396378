/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An intrusive pairing heap with the least (key, tie) at the root, which needs no memory of its
 * own. Insert is O(1), remove O(log n) amortised. A binary heap would need an array that grows
 * while a queue fills; here the nodes are part of what they order.
 */
#ifndef INFERD_BATCHING_HEAP_H
#define INFERD_BATCHING_HEAP_H

#include <stdint.h>

struct heap_node {
    uint64_t key, tie;
    struct heap_node *child; /* the first of its children */
    struct heap_node *next;  /* the next sibling */
    struct heap_node *prev;  /* the sibling before; of a first child its parent; of a root NULL */
};

/* `node` must be in no heap; an empty heap is a NULL `*root`. The least node is `*root` itself. */
void heap_insert(struct heap_node **root, struct heap_node *node, uint64_t key, uint64_t tie);

/* `node` must be in this heap. */
void heap_remove(struct heap_node **root, struct heap_node *node);

#endif
