/* SPDX-License-Identifier: Apache-2.0 */
/* Puts items into an order in which each comes behind the items that it needs. */
#ifndef INFERD_ENGINE_IR_SORT_H
#define INFERD_ENGINE_IR_SORT_H

#include <stdint.h>

#include "base/error.h"

#define SORT_NONE UINT32_MAX
#define SORT_END  (UINT32_MAX - 1)

/* The k-th item that `item` needs. SORT_NONE: there is none with this number, ask for the next;
 * SORT_END: there are no more. */
typedef uint32_t (*sort_need)(const void *user, uint32_t item, uint32_t k);

/*
 * Fills order[n] by a depth-first walk that starts from the items as they stand, and emits the
 * items that an item needs before the item itself. Items that were in order keep their order. The
 * time is linear. The walk keeps its own stack, so a chain of 2^18 items costs memory and not the
 * thread's stack. INVALID_ARGUMENT, without a text: there is a cycle, and *through is an item of
 * it.
 */
enum status sort_by_need(uint32_t n, sort_need need, const void *user, uint32_t *order,
                         uint32_t *through, struct error *err);

#endif
