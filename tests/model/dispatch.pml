/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of requests between event loops, the batcher and workers, as a model for spin: two
 * loops, the batcher under its lock, two workers, a stack of completions for each loop. Requests
 * arrive, are cancelled, expire, lose their connection, are answered for while they hang, and the
 * server drains at any moment. What is checked, over all interleavings:
 *
 *   - each request that was admitted comes back to its loop exactly once, and is answered exactly
 *     once unless its connection has gone: none lost, none double
 *   - nothing runs that was cancelled, refused or expired before
 *   - while all is quiet nobody waits; the drain comes to an end, and all threads with it
 *   - the memory of a request is given back once, and not while it still lies on the stack of
 *     payloads that have been read
 *
 * Sets of requests are bit masks: order among them plays no part in this. The lock is an atomic
 * block: that nothing else touches what it guards is ThreadSanitizer's to say. Time is choice: what
 * may have elapsed may or may not have. A worker has one output buffer, so that it soon lacks one.
 * Each step names the function that it stands for; who changes one changes the other.
 *
 * -DBUG_... plants a mistake, which must be found (check_model.py):
 *
 *   BUG_CANCEL      a cancel answers without looking whether the request was still queued
 *   BUG_WAKE        a loop is woken before its completions are there
 *   BUG_DRAIN       the drain does not count what is with workers
 *   BUG_STARVED     a released buffer does not make its worker idle again
 *   BUG_TIMER       nobody comes back to a request that waits for company
 *   BUG_REFS        what expires between the parts of a split batch still holds the batch
 *   BUG_FREE        loops are freed while a worker may still be about to wake one
 *   BUG_ABANDON     who answers for a hanging request leaves it with its connection
 */

#define LOOPS     2
#define WORKERS   2
#define REQUESTS  3
#define MAX_BATCH 2
#ifndef IDLE
#define IDLE 3 /* the workers that take part */
#endif
#ifndef SENT
#define SENT 7 /* the requests that there are */
#endif
#define OF(l)     ((l) == 0 -> 3 : 4) /* two requests on loop 0, one on loop 1 */
#define BIT(i)    (1 << (i))
#define COUNT(m)  (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1))
#ifndef MORTAL
#define MORTAL 2 /* those that have a deadline */
#endif
#ifndef RESTLESS
#define RESTLESS 5 /* those that are cancelled, if any */
#endif

/* The batcher, under the lock (struct dispatch, struct batcher). */
byte queue;               /* waits */
byte idle = IDLE, starved; /* workers */
bool batcher_draining;
bool armed;               /* the timerfd */

/* Batches: one a worker. `in_batch` holds what was gathered and not yet released. */
byte refs[WORKERS];       /* struct batch.refs */
byte in_batch[WORKERS];

/* The pool. */
byte slot[WORKERS], wake[WORKERS]; /* struct worker.job, .wake */
bool call[WORKERS];                /* struct worker.call */
bool pool_stopped;
byte workers_left = WORKERS;

/* Loops, what other threads see of them. */
byte completions[LOOPS], spent[LOOPS];
bool async[LOOPS]; /* uv_async_t: sent and not yet taken */
bool told_drain[LOOPS], told_stop[LOOPS];
byte told_abandon[LOOPS];
bool noted[LOOPS], pending[LOOPS];
byte loops_left = LOOPS;

bool draining; /* struct shared */
bool freed;    /* the loops are */

/* What the model knows and the program does not. */
byte fresh = SENT; /* not yet sent by its client */
byte passed;      /* deadlines that are over */
byte running;     /* in a worker's hands */
byte admitted, answered, returned; /* by and to their loops */
byte barred; /* must not run any more */
byte gone;        /* its connection is closed */
bool watched;     /* nobody looks for hangs any more */

inline answer(set)
{
    assert((answered & (set)) == 0);
    answered = answered | (set)
}

/* loop_inflight_give */
inline give(l, set)
{
    assert((returned & (set)) == 0);
    assert((spent[l] & (set)) == 0);
    assert(((queue | completions[l]) & (set)) == 0);
    returned = returned | (set);
    mine = mine & ~(set)
}

/* dispatch_decide, batcher_step, batch_form; under the lock. `force`: the oldest is due. */
inline decide(force)
{
    job[0] = 0; job[1] = 0; expired = 0; due = force;
    do
    :: idle == 0 || queue == 0 -> break
    :: else ->
        if
        :: COUNT(queue) >= MAX_BATCH || batcher_draining -> due = true
        :: else ->
            if
            :: due = true /* T has elapsed */
            :: skip
            fi
        fi;
        if
        :: !due ->
#ifndef BUG_TIMER
            armed = true; /* timer_arm */
#endif
            break
        :: else ->
            due = false;
            expired = expired | (queue & passed); /* group_expire */
            barred = barred | (queue & passed);
            queue = queue & ~passed;
            if
            :: queue == 0 -> skip
            :: else -> /* group_take: any MAX_BATCH of them, for priorities */
                set = queue;
                if
                :: COUNT(queue) <= MAX_BATCH -> skip
                :: COUNT(queue) > MAX_BATCH -> set = queue & ~1
                :: COUNT(queue) > MAX_BATCH -> set = queue & ~2
                :: COUNT(queue) > MAX_BATCH -> set = queue & ~4
                fi;
                queue = queue & ~set;
                if
                :: idle & 1 -> job[0] = set; idle = idle & ~1
                :: else -> job[1] = set; idle = idle & ~2
                fi
            fi
        fi
    od;
    set = 0; due = false
}

/* uv_async_send */
inline send(l)
{
    assert(!freed);
    async[l] = true
}

/* dispatch_chains_deliver, loop_complete */
inline deliver(l, what)
{
    if
    :: (what) & OF(l) ->
#ifdef BUG_WAKE
        send(l);
        completions[l] = completions[l] | ((what) & OF(l))
#else
        completions[l] = completions[l] | ((what) & OF(l));
        send(l)
#endif
    :: else
    fi
}

/* pool_give */
inline hand(w)
{
    if
    :: job[w] ->
        atomic { assert(slot[w] == 0); slot[w] = job[w]; job[w] = 0 };
        wake[w]++
    :: else
    fi
}

/* dispatch_carry_out, expired_deliver */
inline carry_out()
{
    if
    :: job[0] || job[1] || expired ->
        hand(0);
        hand(1);
        deliver(0, expired);
        deliver(1, expired);
        expired = 0
    :: else
    fi
}

/* ---- workers ---- */

/* serve of pool.c; it has said before that it is idle */
proctype Worker(byte w)
{
    byte mine, ran, set, expired;
    byte job[WORKERS];
    bool stop, due;
    do
    :: atomic { wake[w] > 0 -> wake[w]--; stop = pool_stopped };
        atomic {
            call[w] = false; /* run_call */
            mine = slot[w];
            slot[w] = 0;
            if
            :: mine -> /* worker_work, batch_gather */
                barred = barred | (mine & passed);
                ran = mine & ~passed;
                assert((ran & barred) == 0);
                assert(refs[w] == 0 && in_batch[w] == 0);
                refs[w] = COUNT(ran);
                in_batch[w] = ran;
                running = running | ran
            :: else
            fi
        };
        if
        :: mine ->
            atomic { /* dispatch_batch_run */
                if
                :: true
                :: COUNT(ran) > 1 && (ran & passed) -> /* split_run, part_expire, expired_drop */
                    set = ran & passed;
                    barred = barred | set;
                    ran = ran & ~set;
                    in_batch[w] = ran;
#ifndef BUG_REFS
                    refs[w] = COUNT(ran);
#endif
                    running = running & ~set;
                    set = 0
                fi;
                /* payloads_spent, loop_spent: nobody is woken */
                spent[0] = spent[0] | (ran & OF(0));
                spent[1] = spent[1] | (ran & OF(1));
                ran = 0
            };
            atomic { /* worker_idle of dispatch_worker.c */
                running = running & ~mine;
                if
                :: refs[w] == 0 -> idle = idle | BIT(w) /* all had expired: its batch is free */
                :: else -> starved = starved | BIT(w)
                fi;
                decide(false)
            };
            deliver(0, mine);
            deliver(1, mine);
            mine = 0;
            carry_out()
        :: !mine && stop -> break
        :: else
        fi;
        if
        :: stop -> wake[w]++
        :: else
        fi
    od;
    workers_left--
}

/* ---- loops ---- */

/* intake_result: what has no connection any more is dropped; both are held until the flush */
inline results(what)
{
    answer((what) & waits);
    waits = waits & ~(what);
    held = held | (what)
}

/* held_release, dispatch_release, dispatch_recycle */
inline release()
{
    atomic {
        i = 0;
        do
        :: i < WORKERS ->
            set = held & in_batch[i];
            if
            :: set ->
                in_batch[i] = in_batch[i] & ~set;
                refs[i] = refs[i] - COUNT(set);
                if
                :: refs[i] == 0 -> back = back | BIT(i)
                :: else
                fi
            :: else
            fi;
            i++
        :: else -> break
        od;
        give(l, held);
        held = 0; set = 0; i = 0;
#ifndef BUG_STARVED
        idle = idle | (starved & back);
        starved = starved & ~back;
#endif
        if
        :: back -> back = 0; decide(false)
        :: else
        fi
    };
    carry_out()
}

/* on_turn_end of loop.c */
inline turn_end()
{
    atomic {
        spent[l] = 0; /* spent_take */
        turn = false;
        more = false;
        if
        :: submit -> /* submit_all, dispatch_submit */
            set = submit & ~waits; /* cancelled meanwhile, or its connection has gone */
            give(l, set);
            submit = submit & waits;
            if
            :: batcher_draining -> barred = barred | submit; results(submit)
            :: else -> queue = queue | submit
            fi;
            submit = 0;
            set = 0;
            decide(false)
        :: else
        fi
    };
    carry_out();
    if
    :: held -> release()
    :: else
    fi;
#ifdef BUG_DRAIN
    pending[l] = (queue & OF(l)) != 0
#else
    pending[l] = mine != 0
#endif
}

proctype Loop(byte l)
{
    byte mine, waits, submit, held; /* in flight; have a connection that waits; loop.h's lists */
    byte got, set, expired, back, i;
    byte job[WORKERS];
    bool turn, more, due, cut, tried; /* `more`: another event in the same turn */
    do
    :: atomic { async[l] && !turn -> async[l] = false; turn = true; more = true }; /* on_wake */
        /* completions_take */
        atomic { got = completions[l]; completions[l] = 0 };
        atomic {
            spent[l] = 0;
            results(got);
            got = 0;
            /* loop_messages_take */
            if
            :: told_abandon[l] -> /* abandon: answered for, and no longer its connection's */
                set = told_abandon[l] & waits;
                told_abandon[l] = 0;
                answer(set);
#ifndef BUG_ABANDON
                waits = waits & ~set;
#endif
                set = 0
            :: else
            fi;
            if
            :: told_drain[l] -> told_drain[l] = false; pending[l] = true; noted[l] = true /* obey */
            :: else
            fi
        };
        if
        :: told_stop[l] -> break
        :: else
        fi
    :: atomic { (fresh & OF(l)) && (more || !turn) -> /* infer of intake.c: one, or both at once */
            more = false;
            set = fresh & OF(l);
            if
            :: true
            :: COUNT(set) > 1 -> set = 1
            :: COUNT(set) > 1 -> set = 2
            fi;
            fresh = fresh & ~set;
            admitted = admitted | set;
            if
            :: draining -> answer(set); barred = barred | set; returned = returned | set
            :: else -> mine = mine | set; waits = waits | set; submit = submit | set
            fi;
            set = 0;
            turn = true
        }
    :: atomic { !tried && (waits & RESTLESS) && (more || !turn) -> /* cancel of intake.c, dispatch_cancel */
            set = waits & RESTLESS;
            tried = true;
            turn = true;
            more = false;
            if
            :: set & submit -> answer(set); barred = barred | set; waits = waits & ~set
#ifdef BUG_CANCEL
            :: else -> queue = queue & ~set;
                answer(set); waits = waits & ~set
#else
            :: set & queue -> queue = queue & ~set;
                answer(set); barred = barred | set; waits = waits & ~set;
                give(l, set)
            :: else /* it will be delivered */
#endif
            fi;
            set = 0
        }
#ifndef NO_CUT
    :: atomic { l == 0 && !cut && mine && (more || !turn) -> /* connection_close, dispatch_cancel_all */
            cut = true;
            turn = true;
            more = false;
            gone = gone | mine;
            fresh = fresh & ~OF(l);
            waits = 0;
            set = mine & queue;
            queue = queue & ~set;
            barred = barred | set;
            give(l, set);
            set = 0
        }
#endif
    :: atomic { l == 0 && armed && !turn -> /* server_on_batch_timer, dispatch_timer */
            armed = false;
            turn = true;
            decide(true)
        };
        carry_out()
    :: turn -> turn_end()
    od;
    assert(mine == 0 && held == 0 && submit == 0); /* loop_stop: nobody is left */
    loops_left--
}

/* ---- beside them ---- */

/* A deadline passes at some time, or does not. */
proctype Clock()
{
    if
    :: passed = MORTAL
    :: true
    fi
}

/* stuck_abandon of server_watch.c, dispatch_stuck, loop_abandon: at some time, or never */
proctype Watch()
{
    byte stuck;
    if
    :: atomic { running && !draining -> stuck = running };
        if
        :: stuck & OF(0) -> atomic { told_abandon[0] = stuck & OF(0); send(0) }
        :: else
        fi;
        if
        :: stuck & OF(1) -> atomic { told_abandon[1] = stuck & OF(1); send(1) }
        :: else
        fi
    :: true
    fi;
    watched = true
}

/* server_drain, on_step, server_stop */
proctype Server()
{
    byte set, expired;
    byte job[WORKERS];
    bool due;
#ifdef QUIET
    timeout; /* nothing else can happen: then nobody waits */
    assert(((admitted & ~(answered | gone)) | (admitted & ~returned)) == 0);
#endif
    atomic { watched -> draining = true }; /* both are the main thread's */
    atomic { told_drain[0] = true; send(0) }; /* order_all: LOOP_DRAIN */
    atomic { told_drain[1] = true; send(1) };
    atomic { noted[0] && noted[1] -> batcher_draining = true; decide(false) }; /* dispatch_drain */
    carry_out();
    !pending[0] && !pending[1];
    atomic { told_stop[0] = true; send(0) }; /* LOOP_STOP */
    atomic { told_stop[1] = true; send(1) };
    loops_left == 0; /* loop_join */
#ifndef BUG_FREE
    atomic { call[0] = true; wake[0]++ }; /* dispatch_settle, pool_call_each */
    atomic { call[1] = true; wake[1]++ };
    !call[0] && !call[1];
#endif
    freed = true;
    pool_stopped = true; /* pool_free */
    wake[0]++;
    wake[1]++;
    workers_left == 0;
    assert(refs[0] == 0 && refs[1] == 0);
    assert(returned == admitted);
    assert((admitted & ~(answered | gone)) == 0)
}

init
{
    atomic {
        run Worker(0);
        run Worker(1);
        run Loop(0);
        run Loop(1);
#if MORTAL
        run Clock();
#endif
#ifndef NO_WATCH
        run Watch();
#else
        watched = true;
#endif
        run Server()
    }
}
