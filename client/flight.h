/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests in flight of one connection. A request's id is made of its place in a table and how
 * often that place was used: so an answer finds its request without a search, and a late answer
 * finds nothing. Ids have 48 bits, so that their varint fits the room that prepared requests leave.
 */
#ifndef INFERD_CLIENT_FLIGHT_H
#define INFERD_CLIENT_FLIGHT_H

#include <stdint.h>

#include "base/error.h"
#include "client/client.h"

enum { FLIGHT_MAX = 65536 };

#define FLIGHT_NEVER UINT64_MAX

struct flight_slot {
    uint64_t id; /* 0: free */
    uint64_t deadline_ns;
    uint64_t sent_at; /* the stream's position behind the request's last byte */
    enum inferd_kind kind;
    uint32_t uses, next_free;
    inferd_answer answer; /* async only, as is `user` */
    void *user;
};

struct flight {
    struct flight_slot *slots;
    uint32_t cap, n;
    uint32_t free; /* the first free slot; cap: none */
};

enum status flight_init(struct flight *flight, uint32_t cap, struct error *err);
void flight_deinit(struct flight *flight);

/* A slot with a new id; NULL if all are taken. */
struct flight_slot *flight_take(struct flight *flight, enum inferd_kind kind);

/* The slot of an id in flight, or NULL. */
struct flight_slot *flight_find(struct flight *flight, uint64_t id);

void flight_give_back(struct flight *flight, struct flight_slot *slot);

/* Any slot in flight; NULL if there is none. */
struct flight_slot *flight_any(struct flight *flight);

/* The slot with the earliest deadline; NULL if none has one. */
struct flight_slot *flight_earliest(struct flight *flight);

#endif
