/* SPDX-License-Identifier: Apache-2.0 */
/* The pairing heap of Fredman, Sedgewick, Sleator and Tarjan (1986), two-pass; see heap.h. */
#include "batching/heap.h"

#include <stdbool.h>
#include <stddef.h>

static bool less(const struct heap_node *a, const struct heap_node *b)
{
    return a->key != b->key ? a->key < b->key : a->tie < b->tie;
}

/* Both are roots (without siblings) or NULL. Of equal roots `a` stays above. */
static struct heap_node *meld(struct heap_node *a, struct heap_node *b)
{
    if (!a || !b)
        return a ? a : b;
    if (less(b, a)) {
        struct heap_node *swap = a;
        a = b;
        b = swap;
    }
    b->next = a->child;
    if (a->child)
        a->child->prev = b;
    b->prev = a;
    a->child = b;
    return a;
}

/* Makes one heap of a list of siblings: melds them in pairs, then the pairs from the last to the
 * first. A loop, so that a long list needs no stack. */
static struct heap_node *meld_siblings(struct heap_node *first)
{
    struct heap_node *pairs = NULL; /* linked by ->next, the last pair first */
    while (first) {
        struct heap_node *a = first, *b = first->next;
        first = b ? b->next : NULL;
        a->next = a->prev = NULL;
        if (b)
            b->next = b->prev = NULL;
        a = meld(a, b);
        a->next = pairs;
        pairs = a;
    }
    struct heap_node *root = NULL;
    while (pairs) {
        struct heap_node *pair = pairs;
        pairs = pair->next;
        pair->next = NULL;
        root = meld(root, pair);
    }
    return root;
}

void heap_insert(struct heap_node **root, struct heap_node *node, uint64_t key, uint64_t tie)
{
    *node = (struct heap_node){.key = key, .tie = tie};
    *root = meld(*root, node);
}

void heap_remove(struct heap_node **root, struct heap_node *node)
{
    struct heap_node *rest = meld_siblings(node->child);
    if (node == *root) {
        *root = rest;
        return;
    }
    if (node->prev->child == node)
        node->prev->child = node->next;
    else
        node->prev->next = node->next;
    if (node->next)
        node->next->prev = node->prev;
    *root = meld(*root, rest);
}
