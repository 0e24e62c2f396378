/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol's classification extension: in place of an output, its best classes as texts
 * "value:index", best first, of equal ones the first. They are BYTES: each element is its length as
 * four bytes, lowest first, and its text. Pure functions of their arguments.
 */
#ifndef INFERD_DAEMON_CLASSIFY_H
#define INFERD_DAEMON_CLASSIFY_H

#include "proto/message.h"

enum { CLASSIFY_MOST = 1024 /* classes of an instance that may be asked for */ };

/* The most bytes that the classes of this output take; 0: it has no elements. */
size_t classify_room(const struct message_tensor *output, bool batched, uint32_t classes);
/* Writes at most `classes` of each instance to `to`, and makes of the output what is sent instead:
 * [instances, classes], or [classes] of a model that is not batched. */
void classify(struct message_tensor *output, bool batched, uint32_t classes, char *to);

#endif
