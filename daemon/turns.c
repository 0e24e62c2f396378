/* SPDX-License-Identifier: Apache-2.0 */
/* Large messages take turns, see turns.h. */
#include "daemon/turns.h"

#include <utlist.h>

#include "base/account.h"

/* Books the message in if there is room, or if nothing else is on its way. */
static bool book(struct turns *turns, struct slab *slab, uint64_t bytes,
                 const struct turns_now *now)
{
    _Atomic uint64_t *sum = &turns->budget->large;
    bool alone = !now->backlog && !atomic_load_explicit(sum, memory_order_relaxed);
    uint64_t most = now->most - MIN(now->most, now->backlog);
    if (now->most && !alone) {
        if (!account_add(sum, bytes, most))
            return false;
        slab->large = bytes;
        return true;
    }
    slab_large(turns->budget, slab, bytes);
    return true;
}

static void state_set(struct turns *turns, struct turn *turn, enum turn_state state, uint64_t ms)
{
    if (turn->state == TURN_WAITS)
        DL_DELETE(turns->waiting, turn);
    if (turn->state == TURN_COMES)
        DL_DELETE(turns->coming, turn);
    turn->state = state;
    turn->since_ms = ms;
    if (state == TURN_WAITS)
        DL_APPEND(turns->waiting, turn);
    if (state == TURN_COMES)
        DL_APPEND(turns->coming, turn);
}

/* Takes messages out of the sum that are not whole in time. */
static void slow_drop(struct turns *turns, const struct turns_now *now)
{
    while (turns->coming && now->ms - turns->coming->since_ms >= TURNS_STILL_MS) {
        struct turn *turn = turns->coming;
        if (*turn->slab)
            slab_large_drop(turns->budget, *turn->slab);
        state_set(turns, turn, TURN_NONE, now->ms);
    }
}

bool turns_join(struct turns *turns, struct turn *turn, struct slab **slab, uint64_t bytes,
                const struct turns_now *now)
{
    if (turn->state == TURN_WAITS)
        return false;
    if ((*slab)->large || (*slab)->slow)
        return true;
    turn->slab = slab;
    turn->bytes = bytes;
    slow_drop(turns, now);
    bool booked = !turns->waiting && book(turns, *slab, bytes, now);
    if (!booked && !turns->waiting)
        turns->gone_ms = now->ms;
    state_set(turns, turn, booked ? TURN_COMES : TURN_WAITS, now->ms);
    return booked;
}

void turns_leave(struct turns *turns, struct turn *turn)
{
    state_set(turns, turn, TURN_NONE, 0);
}

/* Whether the first one has waited long enough. */
static bool tired(struct turns *turns, const struct turns_now *now)
{
    bool still = now->ms - turns->gone_ms >= TURNS_STILL_MS;
    if (still)
        turns->gone_ms = now->ms; /* one at a time */
    return still || now->ms - turns->waiting->since_ms >= TURNS_WAIT_MS;
}

bool turns_look(struct turns *turns, const struct turns_now *now)
{
    bool any = false;
    uint32_t gone = atomic_load_explicit(&turns->budget->large_gone, memory_order_relaxed);
    if (gone != turns->gone)
        turns->gone_ms = now->ms;
    turns->gone = gone;
    slow_drop(turns, now);
    while (turns->waiting) {
        struct turn *turn = turns->waiting;
        struct slab *slab = *turn->slab; /* NULL: its message has gone */
        if (slab && !book(turns, slab, turn->bytes, now)) {
            if (!tired(turns, now))
                break;
            slab_large(turns->budget, slab, turn->bytes);
        }
        state_set(turns, turn, slab ? TURN_COMES : TURN_NONE, now->ms);
        turn->go(turn);
        any = true;
    }
    return any;
}
