/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the loop's files share:
 *
 *   loop.c            life, slots of connections, requests, the tick
 *   loop_turn.c       a turn
 *   loop_messages.c   what other threads ask for
 */
#ifndef INFERD_DAEMON_LOOP_INTERNAL_H
#define INFERD_DAEMON_LOOP_INTERNAL_H

#include "daemon/loop.h"

/* --- loop.c --- */

/* Somebody waits for memory: the tick comes early. */
void loop_tick_soon(struct loop *loop);

/* --- loop_turn.c --- */

void loop_turn(struct loop *loop);
/* Takes the results that came back from other threads; and answers them, until `end_ns`. */
void loop_results_take(struct loop *loop);
void loop_results_answer(struct loop *loop, uint64_t end_ns);
/* Writes what has gathered. */
void loop_flush(struct loop *loop);
/* Gives back batches whose replies have been written. */
void loop_held_release(struct loop *loop);
void loop_aside_drop(struct loop *loop);

#endif
