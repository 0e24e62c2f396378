/* SPDX-License-Identifier: Apache-2.0 */
/* The table of requests in flight; see flight.h. */
#include "client/flight.h"

#include <stdlib.h>

enum { INDEX_BITS = 16 };

enum status flight_init(struct flight *flight, uint32_t cap, struct error *err)
{
    struct flight_slot *slots = calloc(cap, sizeof(*slots));
    if (!slots)
        return error_no_memory(err, "%u requests in flight", cap);
    for (uint32_t i = 0; i < cap; i++)
        slots[i].next_free = i + 1;
    *flight = (struct flight){.slots = slots, .cap = cap};
    return STATUS_OK;
}

void flight_deinit(struct flight *flight)
{
    free(flight->slots);
    *flight = (struct flight){0};
}

struct flight_slot *flight_take(struct flight *flight, enum inferd_kind kind)
{
    uint32_t index = flight->free;
    if (index == flight->cap)
        return NULL;
    struct flight_slot *slot = &flight->slots[index];
    flight->free = slot->next_free;
    flight->n++;
    slot->uses = slot->uses == UINT32_MAX ? 1 : slot->uses + 1; /* so that no id is 0 */
    slot->id = (uint64_t)slot->uses << INDEX_BITS | index;
    slot->deadline_ns = FLIGHT_NEVER;
    slot->kind = kind;
    return slot;
}

struct flight_slot *flight_find(struct flight *flight, uint64_t id)
{
    uint64_t index = id & ((UINT64_C(1) << INDEX_BITS) - 1);
    if (id == 0 || index >= flight->cap || flight->slots[index].id != id)
        return NULL;
    return &flight->slots[index];
}

void flight_give_back(struct flight *flight, struct flight_slot *slot)
{
    slot->id = 0;
    slot->next_free = flight->free;
    flight->free = (uint32_t)(slot - flight->slots);
    flight->n--;
}

struct flight_slot *flight_any(struct flight *flight)
{
    for (uint32_t i = 0; i < flight->cap && flight->n > 0; i++) {
        if (flight->slots[i].id)
            return &flight->slots[i];
    }
    return NULL;
}

struct flight_slot *flight_earliest(struct flight *flight)
{
    struct flight_slot *earliest = NULL;
    for (uint32_t i = 0; i < flight->cap && flight->n > 0; i++) {
        struct flight_slot *slot = &flight->slots[i];
        if (slot->id && slot->deadline_ns != FLIGHT_NEVER &&
            (!earliest || slot->deadline_ns < earliest->deadline_ns))
            earliest = slot;
    }
    return earliest;
}
