/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Large messages take turns. A message lies in memory as a whole before it can run, and workers
 * run few at a time: large ones that come side by side only hold memory for longer, and none of
 * them is whole sooner than if they had come one after the other. So those that are on their way
 * join a sum, each with its whole length; what would bring the sum beyond
 * `limits.large_inflight_bytes` waits until others are done with, in the order in which it came. A
 * message that is alone never waits.
 *
 * The sum saves memory; it is no limit, which is the budget's (slab.h). So it may not make anybody
 * wait for long, whatever others do. A message that is not whole after TURNS_STILL_MS leaves the
 * sum for good: who sends slowly, or announces and does not send, holds up nobody. The next one
 * goes on all the same when for TURNS_STILL_MS nobody was done with, since workers may be slow and
 * peers may not read; and each one after TURNS_WAIT_MS.
 *
 * A message joins once a part of it has come for which its slab is one of SLAB_GROWN bytes: what is
 * merely announced is in nobody's way, and what comes without a length takes no part. It leaves
 * when its slab is given back, that is when a worker has read it or it was answered. Replies that
 * peers have not taken count as well, for TURNS_STILL_MS, and never wait.
 *
 * The sum is that of all loops; each loop has its own queue, used on its thread only.
 */
#ifndef INFERD_DAEMON_TURNS_H
#define INFERD_DAEMON_TURNS_H

#include "daemon/slab.h"

enum { TURNS_STILL_MS = 1000, TURNS_WAIT_MS = 3000 };

enum turn_state { TURN_NONE, TURN_WAITS, TURN_COMES /* its message is in the sum */ };

/* Whose message it is; zeroed before its first use. */
struct turn {
    struct turn *prev, *next; /* utlist DL, of the list of its state */
    enum turn_state state;
    struct slab **slab; /* where its owner keeps the message's slab, which may move */
    uint64_t bytes, since_ms; /* in this state */
    /* It waits no longer. Called from turns_look; may join others. */
    void (*go)(struct turn *turn);
};

/* One loop's queue. */
struct turns {
    struct budget *budget;
    struct turn *waiting; /* the first one to go */
    struct turn *coming;  /* the one that has come for longest */
    uint32_t gone;        /* how many had left the sum at the last look, */
    uint64_t gone_ms;     /* and when one had last; or when the first one began to wait */
};

/* What is on its way now, as a loop sees it. */
struct turns_now {
    uint64_t most;    /* large_inflight_bytes; 0: nobody waits */
    uint64_t backlog; /* bytes of replies that wait for their peers */
    uint64_t ms;      /* the clock */
};

/* Lets the message in *slab join, unless it has joined; false: it has to wait, and `go` tells its
 * end. `bytes`: its length. */
bool turns_join(struct turns *turns, struct turn *turn, struct slab **slab, uint64_t bytes,
                const struct turns_now *now) MUST_USE;
/* Its message is whole or given up; `go` is not called. Fine if it is in neither state. What is in
 * the sum stays there until its slab is given back. */
void turns_leave(struct turns *turns, struct turn *turn);
/* Lets those go on that may. True: somebody did. */
bool turns_look(struct turns *turns, const struct turns_now *now);

#endif
