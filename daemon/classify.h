/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol's classification extension: in place of an output, its best classes as texts
 * "value:index", best first, of equal ones the first. They are BYTES: each element is its length as
 * four bytes, lowest first, and its text. Pure functions of their arguments.
 *
 * Millions of elements, in an order that its peer chose, would keep a loop from all other peers, so
 * the classes are found in steps.
 */
#ifndef INFERD_DAEMON_CLASSIFY_H
#define INFERD_DAEMON_CLASSIFY_H

#include "proto/message.h"

enum { CLASSIFY_MOST = 1024 /* classes of an instance that may be asked for */ };

/* The most bytes that the classes of this output take; 0: it has no elements. */
size_t classify_room(const struct message_tensor *output, bool batched, uint32_t classes);
struct classify_candidate {
    double value;
    size_t index;
};

/* Finding the classes of one output, which takes time in proportion to its elements. */
struct classify {
    struct message_tensor *output;       /* its data may move between two steps */
    size_t instances, elements, classes; /* elements and classes are those of an instance */
    bool batched;
    size_t instance, next; /* where it is: an instance, and its next element; */
    size_t written;        /* then so many of its classes, best first, have been written */
    char *begin, *at;      /* of the texts */
    struct classify_candidate best[CLASSIFY_MOST]; /* a heap whose root is the worst */
};

/* Begins to write at most `classes` of each instance to `to`, where classify_room bytes are. */
void classify_begin(struct classify *s, struct message_tensor *output, bool batched,
                    uint32_t classes, char *to);
/* Goes on for about as long as *work elements take, and takes from *work what was done. True: it is
 * over, and the output is what is sent instead: [instances, classes], or [classes] of a model that
 * is not batched. */
bool classify_step(struct classify *s, size_t *work);

#endif
