/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other threads ask of a loop: connections to take, tables to change to, orders. The sender
 * allocates a message and pushes it onto the loop's stack, and the loop frees it; requests need
 * none.
 */
#include <stdlib.h>
#include <unistd.h>

#include "daemon/answer.h"
#include "daemon/exchange.h"
#include "daemon/loop.h"
#include "daemon/loop_internal.h"

enum { EVICT_FROM_MS = 1000 };

enum message_kind {
    MESSAGE_ADOPT,
    MESSAGE_TABLE,
    MESSAGE_ORDER,
    MESSAGE_ABANDON,
    MESSAGE_ANSWERED,
};

struct loop_message {
    struct loop_message *next;
    enum message_kind kind;
    struct arrival arrival;
    struct table *table;
    uv_sem_t *done;
    enum loop_order order;
    struct answer_order *answered;
    size_t n;
    uint64_t serials[];
};

/* --- from other threads --- */

static bool message_send(struct loop *loop, const struct loop_message *what,
                         const uint64_t *serials)
{
    struct loop_message *m = malloc(sizeof(*m) + what->n * sizeof(m->serials[0]));
    if (!m)
        return false;
    *m = *what;
    for (size_t i = 0; i < m->n; i++)
        m->serials[i] = serials[i];
    m->next = atomic_load_explicit(&loop->messages, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&loop->messages, &m->next, m,
                                                  memory_order_release, memory_order_relaxed))
        ;
    uv_async_send(&loop->wake);
    return true;
}

static void arrival_drop(struct loop *loop, const struct arrival *arrival)
{
    close(arrival->fd);
    peer_leave(arrival->peer);
    loop_connection_uncount(loop);
}

void loop_adopt(struct loop *loop, const struct arrival *arrival)
{
    const struct loop_message m = {.kind = MESSAGE_ADOPT, .arrival = *arrival};
    if (!message_send(loop, &m, NULL))
        arrival_drop(loop, arrival);
}

enum status loop_set_table(struct loop *loop, struct table *table, uv_sem_t *done)
{
    const struct loop_message m = {.kind = MESSAGE_TABLE, .table = table_ref(table), .done = done};
    if (message_send(loop, &m, NULL))
        return STATUS_OK;
    table_unref(table);
    return STATUS_RESOURCE_EXHAUSTED;
}

bool loop_order_try(struct loop *loop, enum loop_order order)
{
    const struct loop_message m = {.kind = MESSAGE_ORDER, .order = order};
    return message_send(loop, &m, NULL);
}

void loop_order(struct loop *loop, enum loop_order order)
{
    while (!loop_order_try(loop, order))
        usleep(1000); /* an order must arrive; memory comes back as the loop works on */
}

void loop_abandon(struct loop *loop, const uint64_t *serials, size_t n)
{
    const struct loop_message m = {.kind = MESSAGE_ABANDON, .n = n};
    message_send(loop, &m, serials); /* if that fails, these requests wait for the worker */
}

void loop_answered(struct loop *loop, struct answer_order *order)
{
    const struct loop_message m = {.kind = MESSAGE_ANSWERED, .answered = order};
    while (!message_send(loop, &m, NULL))
        usleep(1000); /* as above: somebody waits for this answer */
}

/* --- on the loop's thread --- */

static void adopt(struct loop *loop, const struct arrival *arrival)
{
    counter_add(&loop->counters, COUNTER_CONNECTIONS_ACCEPTED, 1);
    if (!loop->stopping)
        connection_open(loop, arrival);
    else
        arrival_drop(loop, arrival);
}

/* The next live connection; NULL after the last. */
static struct connection *next_of(const struct loop *loop, uint32_t *slot)
{
    for (; *slot < loop->n_slots; ++*slot) {
        struct connection *c = loop->slots[*slot].connection;
        if (c && c->phase < CONNECTION_DYING) {
            ++*slot;
            return c;
        }
    }
    return NULL;
}

/* Closes the connection whose last reply is the oldest. It spares a connection that is being served
 * or has only just come. */
static void evict(struct loop *loop)
{
    uint64_t now_ms = uv_now(&loop->uv);
    struct connection *idlest = NULL, *c;
    for (uint32_t slot = 0; (c = next_of(loop, &slot));)
        if (!connection_is_served(c) && now_ms - c->served_ms >= EVICT_FROM_MS &&
            (!idlest || c->served_ms < idlest->served_ms))
            idlest = c;
    if (!idlest)
        return;
    counter_add(&loop->counters, COUNTER_EVICTED, 1);
    connection_die(idlest);
}

static void drain(struct loop *loop)
{
    struct connection *c;
    for (uint32_t slot = 0; (c = next_of(loop, &slot));)
        if (c->ops->drain)
            c->ops->drain(c->session);
    loop->drain_ms = uv_now(&loop->uv);
    atomic_store_explicit(&loop->pending, 1, memory_order_relaxed); /* until the turn ends */
    atomic_store_explicit(&loop->drain_noted, true, memory_order_release);
    loop_tick_soon(loop);
}

static void fail(struct loop *loop, bool all)
{
    struct connection *c;
    for (uint32_t slot = 0; (c = next_of(loop, &slot));)
        exchange_fail(c, all);
}

static void abandon(struct loop *loop, const struct loop_message *m)
{
    struct connection *c;
    for (uint32_t slot = 0; (c = next_of(loop, &slot));)
        exchange_abandon(c, m->serials, m->n);
}

static void obey(struct loop *loop, enum loop_order order)
{
    switch (order) {
    case LOOP_DRAIN:
        drain(loop);
        break;
    case LOOP_FAIL_QUEUED:
    case LOOP_FAIL_ALL:
        fail(loop, order == LOOP_FAIL_ALL);
        break;
    case LOOP_EVICT:
        evict(loop);
        break;
    case LOOP_STOP:
        loop_stop(loop);
        break;
    }
}

static void message_handle(struct loop *loop, struct loop_message *m)
{
    switch (m->kind) {
    case MESSAGE_ADOPT:
        adopt(loop, &m->arrival);
        break;
    case MESSAGE_TABLE:
        table_unref(loop->table);
        loop->table = m->table;
        uv_sem_post(m->done);
        break;
    case MESSAGE_ORDER:
        obey(loop, m->order);
        break;
    case MESSAGE_ABANDON:
        abandon(loop, m);
        break;
    case MESSAGE_ANSWERED:
        answer_order_end(m->answered);
        break;
    }
    free(m);
}

/* Handles messages in the order they were sent; the stack has the latest first. */
void loop_messages_take(struct loop *loop)
{
    struct loop_message *m = atomic_exchange_explicit(&loop->messages, NULL, memory_order_acquire);
    struct loop_message *in_order = NULL;
    while (m) {
        struct loop_message *next = m->next;
        m->next = in_order;
        in_order = m;
        m = next;
    }
    while (in_order) {
        m = in_order;
        in_order = m->next;
        message_handle(loop, m);
    }
}
