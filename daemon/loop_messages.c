/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other threads ask of a loop: connections to take, tables to change to, orders. A message is
 * allocated, pushed onto the loop's stack and freed by the loop; none is on the way of a request.
 */
#include <stdlib.h>
#include <unistd.h>

#include "daemon/intake.h"
#include "daemon/loop.h"

enum message_kind { MESSAGE_ADOPT, MESSAGE_TABLE, MESSAGE_ORDER, MESSAGE_ABANDON };

struct loop_message {
    struct loop_message *next;
    enum message_kind kind;
    int fd;
    bool tcp;
    struct table *table;
    uv_sem_t *done;
    enum loop_order order;
    size_t n;
    uint64_t serials[];
};

/* ---- from other threads ---- */

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

void loop_adopt(struct loop *loop, int fd, bool tcp)
{
    const struct loop_message m = {.kind = MESSAGE_ADOPT, .fd = fd, .tcp = tcp};
    if (!message_send(loop, &m, NULL)) {
        close(fd);
        loop_connection_uncount(loop);
    }
}

enum status loop_set_table(struct loop *loop, struct table *table, uv_sem_t *done)
{
    const struct loop_message m = {.kind = MESSAGE_TABLE, .table = table_ref(table), .done = done};
    if (message_send(loop, &m, NULL))
        return STATUS_OK;
    table_unref(table);
    return STATUS_RESOURCE_EXHAUSTED;
}

void loop_order(struct loop *loop, enum loop_order order)
{
    const struct loop_message m = {.kind = MESSAGE_ORDER, .order = order};
    while (!message_send(loop, &m, NULL))
        usleep(1000); /* an order must arrive; memory comes back as the loop works on */
}

void loop_abandon(struct loop *loop, const uint64_t *serials, size_t n)
{
    const struct loop_message m = {.kind = MESSAGE_ABANDON, .n = n};
    message_send(loop, &m, serials); /* if not, those requests wait for the worker */
}

/* ---- on the loop's thread ---- */

static void adopt(struct loop *loop, int fd, bool tcp)
{
    counter_add(&loop->counters, COUNTER_CONNECTIONS_ACCEPTED, 1);
    if (loop->stopping)
        close(fd);
    else if (connection_open(loop, fd, tcp, &session_framed))
        return;
    loop_connection_uncount(loop);
}

static void fail_one(struct connection *c, struct inflight *i, const char *text)
{
    counter_add(&c->loop->counters, COUNTER_REJECTED_UNAVAILABLE, 1);
    connection_reply_error(c, i->id, STATUS_UNAVAILABLE, text, INTAKE_RETRY_LATER_US);
}

/* Those that wait are taken back; if `all`, those that run are answered and then come back to
 * nobody. */
static void fail(struct connection *c, bool all)
{
    bool lost = atomic_load_explicit(&c->loop->shared->lost, memory_order_relaxed);
    const char *not_executed = lost ? "the device was lost; the request was not executed"
                                    : "the server is shutting down; the request was not executed";
    const char *may_have = lost ? "the device was lost; the request may have been executed"
                                : "the server is shutting down; the request may have been executed";
    dispatch_cancel_all(c->loop->shared->dispatch, c->inflight);
    for (struct inflight *i = c->inflight, *next; i && !c->closing; i = next) {
        next = i->next_of_connection;
        if (i->cancelled) {
            fail_one(c, i, not_executed);
            connection_inflight_out(c, i);
            loop_inflight_give(c->loop, i);
        } else if (all && i->submitted) {
            fail_one(c, i, may_have);
            connection_inflight_orphan(c, i);
        }
    }
}

static void abandon(struct connection *c, const struct loop_message *m)
{
    for (struct inflight *i = c->inflight, *next; i && !c->closing; i = next) {
        next = i->next_of_connection;
        for (size_t k = 0; k < m->n; k++)
            if (m->serials[k] == i->serial) {
                fail_one(c, i, "a worker hangs; the request may have been executed");
                connection_inflight_orphan(c, i);
                break;
            }
    }
}

static void obey(struct loop *loop, enum loop_order order)
{
    if (order == LOOP_STOP) {
        loop_stop(loop);
        return;
    }
    if (order == LOOP_DRAIN) {
        atomic_store_explicit(&loop->pending, 1, memory_order_relaxed); /* until the turn ends */
        atomic_store_explicit(&loop->drain_noted, true, memory_order_release);
        return;
    }
    for (uint32_t i = 0; i < loop->n_slots; i++)
        if (loop->slots[i].connection && !loop->slots[i].connection->closing)
            fail(loop->slots[i].connection, order == LOOP_FAIL_ALL);
}

static void message_handle(struct loop *loop, struct loop_message *m)
{
    switch (m->kind) {
    case MESSAGE_ADOPT:
        adopt(loop, m->fd, m->tcp);
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
        for (uint32_t i = 0; i < loop->n_slots; i++)
            if (loop->slots[i].connection && !loop->slots[i].connection->closing)
                abandon(loop->slots[i].connection, m);
        break;
    }
    free(m);
}

/* In the order they were sent: the stack has the latest first. */
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
