/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model for spin of the way of requests between event loops, the batcher and workers. There are
 * two loops, the batcher under its lock, two workers, and a stack of completions for each loop.
 * Requests arrive, are refused for want of room or time, are pushed out of a full queue by others,
 * are cancelled, expire, lose their connection, fail with others in a batch that is run again in
 * parts, and are answered by the watchdog while they hang. The device may be lost, and the server
 * drains at any moment. What is checked, over all interleavings:
 *
 *   - each request that was admitted comes back to its loop exactly once, and is answered exactly
 *     once unless its connection has gone: no answer is lost or doubled
 *   - no request runs that was cancelled, refused, pushed out or expired before
 *   - while all is quiet no request waits; the drain ends, and all threads end with it
 *   - the memory of a request is given back once, and not while it still lies on the stack of
 *     payloads that have been read
 *
 * With clients that send for ever (AGAIN), and if each thread that can go on does so at some time
 * (weak fairness), one more property is checked:
 *
 *   - each request is answered at some time, and a drain that has begun ends (`live`)
 *
 * Sets of requests are bit masks. The order of requests plays no part in the first four properties.
 * For the last one, all requests have one flow and priority and go in their order;
 * test_batcher_model tests the turns of flows. The lock is an atomic block: ThreadSanitizer checks
 * that nothing touches the data under the lock without it. Time is a choice: a delay that may have
 * elapsed has or has not. A worker has one output buffer, so that it soon lacks one. The model
 * leaves out the end by _exit after a device's loss, and the results of batches. Each step names
 * the function that it stands for; whoever changes one changes the other.
 *
 * -DBUG_... plants a mistake, which must be found (check_model.py):
 *
 *   BUG_CANCEL      a cancel answers without looking whether the request was still queued
 *   BUG_WAKE        a loop is woken before its completions are there
 *   BUG_DRAIN       the drain does not count requests with workers
 *   BUG_STARVED     a released buffer does not make its worker idle again
 *   BUG_TIMER       nobody comes back to a request that waits for others to join its batch
 *   BUG_REFS        a request that expires between the parts of a split batch still holds the batch
 *   BUG_FREE        loops are freed while a worker may still be about to wake one
 *   BUG_ABANDON     the watchdog answers a hanging request but leaves it with its connection
 *   BUG_REFUSE      a request refused at its submission is queued all the same
 *   BUG_EVICT       a request that is pushed out goes to the loop that pushed it
 *   BUG_STAY        a request that is pushed out is told so, and stays queued
 *   BUG_LOSS        when the device is lost, waiting requests are answered but stay queued
 *   BUG_SIGNAL      a worker is not woken for a batch while another one runs
 *   BUG_YOUNGEST    the request that came last goes first
 *   BUG_STOP        workers are woken for their end before they can see that it has come
 */

#define LOOPS     2
#define WORKERS   2
#define REQUESTS  3
#ifndef MAX_BATCH
#define MAX_BATCH 2
#endif
#ifndef LIMIT
#define LIMIT 3 /* requests in the queue: 3 is no limit */
#endif
#ifndef EVICT
#define EVICT 0 /* 1: a full queue may make room */
#endif
#ifndef IDLE
#define IDLE 3 /* the workers that take part */
#endif
#ifndef SENT
#define SENT 7 /* the requests that there are */
#endif
#ifndef AGAIN
#define AGAIN 0 /* those whose clients send them again, for ever */
#endif
#define OF(l)     ((l) == 0 -> 3 : 4) /* two requests on loop 0, one on loop 1 */
#define BIT(i)    (1 << (i))
#define COUNT(m)  (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1))
#ifndef MORTAL
#define MORTAL 0 /* those that have a deadline */
#endif
#ifndef RESTLESS
#define RESTLESS 0 /* those that are cancelled, if any */
#endif

/* The batcher, under the lock (struct dispatch, struct batcher). */
byte queue;               /* requests that wait */
#if AGAIN
byte before[REQUESTS];    /* the queued requests that came before this one */
#endif
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
bool told_drain[LOOPS], told_stop[LOOPS], told_fail[LOOPS];
byte told_abandon[LOOPS];
bool noted[LOOPS], pending[LOOPS];
byte loops_left = LOOPS;

bool draining, lost; /* struct shared */
bool freed;          /* the loops are freed */
bool ended;          /* everything has ended */

/* What the model knows and the program does not. */
byte fresh = SENT; /* not yet sent by their clients */
byte passed;      /* deadlines that are over */
byte running;     /* requests of batches in workers' hands */
byte admitted, answered, returned; /* by their loops; returned to their loops */
byte barred; /* must not run any more */
byte gone;        /* their connection is closed */
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

/* Which request is left out of a batch: any, because of priorities; where order matters, the last
 * one. */
#if !AGAIN
#define LAST(i) (set & BIT(i))
#elif defined(BUG_YOUNGEST)
#define LAST(i) ((set & BIT(i)) && !(set & before[i]))
#else
#define LAST(i) ((set & BIT(i)) && !(set & ~BIT(i) & ~before[i]))
#endif

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
            set = queue & passed; /* group_expire */
            if
            :: true
            :: COUNT(queue) > MAX_BATCH -> set = set | (queue & MORTAL) /* is_in_vain */
            fi;
            expired = expired | set;
            barred = barred | set;
            queue = queue & ~set;
            if
            :: queue == 0 -> skip
            :: else -> /* group_take */
                set = queue;
                do
                :: COUNT(set) <= MAX_BATCH -> break
                :: COUNT(set) > MAX_BATCH && LAST(0) -> set = set & ~1
                :: COUNT(set) > MAX_BATCH && LAST(1) -> set = set & ~2
                :: COUNT(set) > MAX_BATCH && LAST(2) -> set = set & ~4
                od;
                queue = queue & ~set;
                if
                :: idle & 1 -> job[0] = set; idle = idle & ~1
                :: else -> job[1] = set; idle = idle & ~2
                fi
            fi
        fi
    od;
#if AGAIN
    before[0] = before[0] & (queue & 1 -> queue : 0);
    before[1] = before[1] & (queue & 2 -> queue : 0);
    before[2] = before[2] & (queue & 4 -> queue : 0);
#endif
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
#ifdef BUG_SIGNAL
        if
        :: running
        :: else -> wake[w]++
        fi
#else
        wake[w]++
#endif
    :: else
    fi
}

/* dispatch_carry_out, unrun_deliver */
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

/* Runs one request of a batch again: part_cut, part_expire, part_run */
inline part(one)
{
    if
    :: (one) & passed -> barred = barred | (one); late = late | (one)
    :: !((one) & passed) -> tell(one)
    :: !((one) & passed) /* this request was to blame */
    fi
}

/* payloads_spent, loop_spent: nobody is woken */
inline tell(set)
{
    spent[0] = spent[0] | ((set) & OF(0));
    spent[1] = spent[1] | ((set) & OF(1))
}

/* serve of pool.c; the worker has said before that it is idle */
proctype Worker(byte w)
{
    byte mine, ran, late, set, expired;
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
                running = running | mine
            :: else
            fi
        };
        if
        :: mine ->
            if
            :: ran -> /* dispatch_batch_run */
                atomic { tell(ran); ran = 0 }
#ifdef SPLIT
            :: COUNT(ran) > 1 -> /* split_run, in order; time passes meanwhile */
                atomic {
                    set = ran & -ran;
                    part(set);
                    ran = ran & ~set;
                    set = 0
                };
                atomic {
                    part(ran);
                    ran = 0;
                    in_batch[w] = in_batch[w] & ~late; /* expired_drop */
#ifndef BUG_REFS
                    refs[w] = refs[w] - COUNT(late);
#endif
                    late = 0
                }
#endif
            :: !ran
            fi;
            atomic { /* worker_idle of dispatch_worker.c */
                running = running & ~mine;
                if
                :: refs[w] == 0 -> idle = idle | BIT(w) /* all had expired: its buffer is free */
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

/* intake_result: a request that has lost its connection is dropped; all are held until the flush */
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

/* flow_victim: any queued request makes room; flows and priorities are left out */
inline push_out()
{
    if
    :: queue & 1 -> set = 1
    :: queue & 2 -> set = 2
    :: queue & 4 -> set = 4
    fi;
#ifndef BUG_STAY
    queue = queue & ~set;
#endif
    pushed = pushed | set;
    barred = barred | set;
    set = 0
}

/* batcher_submit, one after the other: the queue is full, or too long for a deadline */
inline admit()
{
    do
    :: submit == 0 -> break
    :: submit ->
        one = submit & -submit;
        submit = submit & ~one;
        if
        :: batcher_draining || COUNT(queue) >= LIMIT -> back = back | one
        :: !batcher_draining && (one & MORTAL) && (queue || idle != IDLE) -> back = back | one
        :: !batcher_draining && (COUNT(queue) < LIMIT || EVICT) ->
#if EVICT
            if
            :: COUNT(queue) >= LIMIT -> push_out()
            :: else
            fi;
#endif
#if AGAIN
            before[one >> 1] = queue; /* 1, 2, 4: at 0, 1, 2 */
#endif
            queue = queue | one
        fi
    od;
    one = 0;
    barred = barred | back;
#ifdef BUG_REFUSE
    queue = queue | back;
#endif
    results(back);
    back = 0
}

/* turn_work of loop.c */
inline turn_work()
{
    atomic {
        spent[l] = 0; /* spent_take */
        if
        :: submit -> /* submit_all, dispatch_submit */
            set = submit & ~waits; /* cancelled meanwhile, or its connection has gone */
            give(l, set);
            submit = submit & waits;
            set = 0;
            admit();
            decide(false)
        :: else
        fi
    };
    carry_out();
#if EVICT
    if
    :: pushed -> /* unrun_deliver */
#ifdef BUG_EVICT
        completions[l] = completions[l] | pushed;
        send(l);
#else
        deliver(0, pushed);
        deliver(1, pushed);
#endif
        pushed = 0
    :: else
    fi;
#endif
    if
    :: held -> release()
    :: else
    fi
}

/* completions_take: takes the stack's completions and answers them */
inline take()
{
    got = completions[l];
    completions[l] = 0;
    spent[l] = 0;
    results(got);
    got = 0
}

/* An endless client sends its next request once the last one is over. */
#if AGAIN
#define READY_AGAIN (AGAIN & answered & returned)
#else
#define READY_AGAIN 0
#endif
#define READY ((fresh | READY_AGAIN) & OF(l))
/* A turn that has another event. With endless clients, events that wake a loop go first. libuv
 * passes over no event, but weak fairness says nothing about the choices within one thread. */
#if AGAIN
#define EVENT (more || (!turn && !async[l]))
#else
#define EVENT (more || !turn)
#endif

proctype Loop(byte l)
{
    byte mine, waits, submit, held; /* in flight; with a connection that waits; loop.h's lists */
    byte got, set, one, expired, back, i;
#if EVICT
    byte pushed; /* out of the queue, and not yet on their way */
#endif
    byte job[WORKERS];
#ifdef BREATHE
    bool breathed;
#endif
    bool turn, more, due, cut, tried; /* `more`: another event in the same turn */
    do
    :: atomic { async[l] && !turn -> async[l] = false; turn = true; more = true }; /* on_wake */
        atomic {
            take();
            /* loop_messages_take */
            if
            :: told_abandon[l] -> /* abandon: answered, and taken from its connection */
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
            :: told_fail[l] -> /* fail, dispatch_cancel_all */
                told_fail[l] = false;
                set = waits & queue;
                answer(set);
                barred = barred | set;
#ifndef BUG_LOSS
                queue = queue & ~set;
#endif
                waits = waits & ~set;
                give(l, set);
                set = 0
            :: else
            fi;
            if
            :: told_drain[l] -> told_drain[l] = false; pending[l] = true; noted[l] = true /* obey */
            :: else
            fi;
            if
            :: told_stop[l] -> break
            :: else
            fi
        }
    :: atomic { READY && EVENT -> /* infer of intake.c: one, or both at once */
            more = false;
            set = READY;
            if
            :: true
            :: COUNT(set) > 1 -> set = 1
            :: COUNT(set) > 1 -> set = 2
            fi;
            fresh = fresh & ~set;
#if AGAIN
            answered = answered & ~set; /* of its last round */
            returned = returned & ~set;
            barred = barred & ~set;
#endif
            admitted = admitted | set;
            if
            :: draining || lost -> answer(set); barred = barred | set; returned = returned | set
            :: else -> mine = mine | set; waits = waits | set; submit = submit | set
            fi;
            set = 0;
            turn = true
        }
    :: atomic { !tried && (waits & RESTLESS) && EVENT -> /* cancel of intake.c, dispatch_cancel */
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
#ifdef CUT
    :: atomic { l == 0 && !cut && mine && EVENT -> /* connection_close, dispatch_cancel_all */
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
    :: atomic { l == 0 && armed && !turn && EVENT -> /* server_on_batch_timer, dispatch_timer */
            armed = false;
            turn = true;
            decide(true)
        };
        carry_out()
#ifdef BREATHE
    :: atomic { turn && submit && !breathed -> breathed = true; take() }; /* loop_breathe */
        turn_work()
#endif
    :: turn -> /* on_turn_end */
        turn = false;
        more = false;
        turn_work();
#ifdef BUG_DRAIN
        pending[l] = (queue & OF(l)) != 0
#else
        pending[l] = mine != 0
#endif
    od;
    assert(mine == 0 && held == 0 && submit == 0); /* loop_stop: nobody is left */
    loops_left--
}

/* ---- the other threads ---- */

/* Deadlines pass at some time, or do not. */
#if MORTAL
proctype Clock()
{
    if
    :: passed = MORTAL
    :: true
    fi
}
#endif

/* stuck_abandon of server_watch.c, dispatch_stuck, loop_abandon: at some time, or never */
#ifdef WATCH
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
#endif

/* server_device_lost, server_drain, on_step, server_stop: the main thread's */
proctype Server()
{
    byte set, expired;
    byte job[WORKERS];
    bool due;
#ifdef QUIET
    timeout; /* nothing else can happen: then no request waits */
    assert(((admitted & ~(answered | gone)) | (admitted & ~returned)) == 0);
#endif
#if AGAIN
    if
#ifndef ENDLESS
    :: true
#endif
    :: goto serves /* for ever */
    fi;
#endif
    watched;
#ifdef LOSS
    if
    :: atomic { running -> lost = true; batcher_draining = true; decide(false) }; /* dispatch_fail */
        carry_out();
        atomic { told_fail[0] = true; send(0) }; /* order_all: LOOP_FAIL_QUEUED */
        atomic { told_fail[1] = true; send(1) }
    :: true
    fi;
#endif
    draining = true;
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
#ifdef BUG_STOP
    wake[0]++;
    wake[1]++;
    pool_stopped = true;
#else
    pool_stopped = true; /* pool_free */
    wake[0]++;
    wake[1]++;
#endif
    workers_left == 0;
    assert(refs[0] == 0 && refs[1] == 0);
    assert(returned == admitted);
    assert((admitted & ~(answered | gone)) == 0);
serves:
    ended = true
}

#define WAITS (admitted & ~(answered | gone))
#ifdef LIVE
ltl live
{
    ([]<> ((WAITS & 1) == 0)) && ([]<> ((WAITS & 2) == 0)) && ([]<> ((WAITS & 4) == 0)) &&
    ([]<> (!draining || ended))
}
#endif

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
#ifdef WATCH
        run Watch();
#else
        watched = true;
#endif
        run Server()
    }
}
