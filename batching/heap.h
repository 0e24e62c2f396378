/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An intrusive pairing heap: the least (key, tie) at the root, no memory of its own. Insert is
 * O(1), remove O(log n) amortised. A binary heap would need an array that grows when a queue is
 * filled; here the nodes lie in what they order.
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

/* `node` is in no heap; `*root` NULL is an empty heap. The least node is `*root` itself. */
void heap_insert(struct heap_node **root, struct heap_node *node, uint64_t key, uint64_t tie);

/* `node` is in this heap. */
void heap_remove(struct heap_node **root, struct heap_node *node);

#endif
