/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Large messages come in pieces, and each piece that wakes the loop costs both sides more than its
 * bytes do. A loop into which one connection pours looks for more before it sleeps, because
 * sleeping and waking up take longer than the next piece. Where several pour, looking would take
 * time from those who send: there the kernel wakes the loop when much of a message is there
 * (SO_RCVLOWAT), though never for more than the peer has announced, so that nobody waits at the end
 * of a message. What a peer holds back in the middle of one is waited for LOOP_MOMENT_MS or two:
 * before it may lie other messages of the connection.
 */
#include <sys/socket.h>
#include <utlist.h>

#include "daemon/connection.h"
#include "daemon/loop.h"

static void mark_set(struct connection *c, size_t bytes)
{
    const int value = (int)bytes;
    bool listed = c->mark > 1;
    if (c->mark == bytes || setsockopt(c->fd, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof(value)) != 0)
        return;
    c->mark = bytes;
    if (!listed && bytes > 1)
        DL_APPEND2(c->loop->marked, c, prev_marked, next_marked);
    if (listed && bytes <= 1)
        DL_DELETE2(c->loop->marked, c, prev_marked, next_marked);
}

/* Sees each connection twice before its mark goes: what comes meanwhile may only have waited for
 * the loop. A mark that goes wakes the loop if anything is there. */
static void on_moment(uv_timer_t *timer)
{
    struct loop *loop = timer->data;
    for (struct connection *c = loop->marked, *next; c; c = next) {
        next = c->next_marked;
        if (c->mark_seen)
            mark_set(c, 1);
        c->mark_seen = true;
    }
    if (!loop->marked)
        uv_timer_stop(timer);
}

void connection_poured(struct connection *c)
{
    struct loop *loop = c->loop;
    uint64_t now_ns = loop->now_ns;
    bool soon = now_ns - loop->poured_ns < LOOP_POUR_NS;
    if (loop->pourer != c->id && now_ns - loop->poured_ns < LOOP_SEVERAL_NS)
        loop->several_ns = now_ns;
    loop->pourer = c->id;
    loop->poured_ns = now_ns;
    c->pours = now_ns - loop->several_ns < LOOP_SEVERAL_NS;
    if (soon && !c->pours)
        loop->look_ns = now_ns + LOOP_LOOK_NS;
}

void connection_mark(struct connection *c)
{
    struct loop *loop = c->loop;
    size_t due = c->pours && c->phase == CONNECTION_OPEN && !c->tls ? c->ops->due(c->session) : 0;
    c->pours = c->mark_seen = false;
    mark_set(c, MAX(MIN(due, (size_t)LOOP_MARK), (size_t)1));
    if (loop->marked && !uv_is_active((uv_handle_t *)&loop->moment))
        uv_timer_start(&loop->moment, on_moment, LOOP_MOMENT_MS, LOOP_MOMENT_MS);
}

void connection_mark_drop(struct connection *c)
{
    if (c->mark > 1)
        DL_DELETE2(c->loop->marked, c, prev_marked, next_marked);
    c->mark = 1;
}
