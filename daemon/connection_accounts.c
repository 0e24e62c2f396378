/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The accounts of a connection, see connection.h: bytes and requests in flight, which are charged
 * to it and to its peer (R20 of docs/operations.md).
 */
#include "daemon/connection.h"
#include "daemon/loop.h"

static bool above(const struct connection *c, uint64_t share)
{
    const struct config_limits *limits = &c->loop->table->limits;
    uint64_t requests = (uint64_t)c->n_inflight + c->n_told;
    return c->charged >= limits->connection_inflight_bytes / share ||
           requests >= MAX(limits->connection_requests / share, UINT64_C(1));
}

/* Only while something is in flight whose end will resume it: a single frame may be as large as the
 * cap. */
void connection_cap_check(struct connection *c)
{
    if (!(c->stops & STOP_CAP) && c->n_inflight + c->n_told && above(c, 1))
        connection_stop(c, STOP_CAP);
}

void connection_cap_ease(struct connection *c)
{
    if (c->stops & STOP_CAP && (!(c->n_inflight + c->n_told) || !above(c, 2)))
        connection_resume(c, STOP_CAP);
}

static void charge_sub(struct connection *c, size_t charge)
{
    c->charged -= charge;
    peer_bytes_out(c->peer, charge);
}

static void charge_drop(struct connection *c, const struct slab *slab)
{
    if (slab)
        charge_sub(c, slab->charge);
}

static bool charge_add(struct connection *c, size_t charge)
{
    const struct config_limits *limits = &c->loop->table->limits;
    if (c->peer &&
        !peer_bytes_in(c->peer, charge,
                       peer_most(c->peer, limits->address_inflight_bytes, limits->inflight_bytes)))
        return false;
    c->charged += charge;
    connection_cap_check(c);
    return true;
}

struct slab *connection_slab_take(struct connection *c, size_t size)
{
    struct slab *slab = slabs_take(c->loop->slabs, size, SLAB_REQUEST);
    if (slab && charge_add(c, slab->charge))
        return slab;
    slabs_give(c->loop->slabs, slab);
    /* If the address has used up its share, memory that others give back would be of no use. */
    if (!slab && !c->in_vain) {
        connection_stop(c, STOP_MEMORY);
        loop_wait_memory(c->loop, c, size);
    }
    return NULL;
}

struct slab *connection_slab_grow(struct connection *c, struct slab *slab, size_t size)
{
    size_t before = slab->charge;
    struct slab *grown = slabs_grow(c->loop->slabs, slab, size, SLAB_REQUEST);
    if (!grown)
        return NULL;
    c->charged += grown->charge - before;
    peer_bytes_force(c->peer, grown->charge - before);
    connection_cap_check(c);
    return grown;
}

void connection_slab_give(struct connection *c, struct slab *slab)
{
    charge_drop(c, slab);
    slabs_give(c->loop->slabs, slab);
}

bool connection_book(struct connection *c, size_t bytes)
{
    bool booked = slabs_book(c->loop->slabs, bytes);
    if (booked && charge_add(c, bytes))
        return true;
    if (booked)
        slabs_unbook(c->loop->slabs, bytes);
    counter_add(&c->loop->counters, COUNTER_REJECTED_MEMORY, 1);
    return false;
}

void connection_unbook(struct connection *c, size_t bytes)
{
    charge_sub(c, bytes);
    slabs_unbook(c->loop->slabs, bytes);
}

void connection_inflight_in(struct connection *c, struct inflight *inflight)
{
    struct inflight **bucket = loop_bucket(c->loop, c->id, inflight->id);
    inflight->connection = c->id;
    inflight->prev_of_connection = NULL;
    inflight->next_of_connection = c->inflight;
    if (c->inflight)
        c->inflight->prev_of_connection = inflight;
    c->inflight = inflight;
    inflight->at_of_id = bucket;
    inflight->next_of_id = *bucket;
    if (*bucket)
        (*bucket)->at_of_id = &inflight->next_of_id;
    *bucket = inflight;
    c->n_inflight++;
    connection_cap_check(c);
}

struct inflight *connection_inflight_find(const struct connection *c, uint64_t id)
{
    struct inflight *inflight = *loop_bucket(c->loop, c->id, id);
    while (inflight && (inflight->id != id || inflight->connection != c->id))
        inflight = inflight->next_of_id;
    return inflight;
}

void connection_inflight_orphan(struct connection *c, struct inflight *inflight)
{
    if (inflight->prev_of_connection)
        inflight->prev_of_connection->next_of_connection = inflight->next_of_connection;
    else
        c->inflight = inflight->next_of_connection;
    if (inflight->next_of_connection)
        inflight->next_of_connection->prev_of_connection = inflight->prev_of_connection;
    *inflight->at_of_id = inflight->next_of_id;
    if (inflight->next_of_id)
        inflight->next_of_id->at_of_id = inflight->at_of_id;
    inflight->connection = 0;
    c->n_inflight--;
    charge_drop(c, inflight->slab);
    charge_drop(c, inflight->run);
    for (const struct slab *slab = inflight->rooms; slab; slab = slab->next)
        charge_drop(c, slab);
    peer_requests_out(c->peer);
}

void connection_inflight_out(struct connection *c, struct inflight *inflight)
{
    connection_inflight_orphan(c, inflight);
    slabs_give(c->loop->slabs, STEAL(inflight->slab));
    c->served_ms = uv_now(&c->loop->uv);
    connection_cap_ease(c);
    connection_dirty(c);
}

void connection_payload_spent(struct connection *c, struct inflight *inflight)
{
    connection_slab_give(c, STEAL(inflight->slab));
    connection_cap_ease(c);
}
