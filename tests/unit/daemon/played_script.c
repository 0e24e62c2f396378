/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scripts, see played.h, are any bytes. The first four choose the world and how it ends; then each
 * event is a byte and its arguments. An event that is not possible (for a peer that has gone, with
 * a frame too large) is passed over.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/connection.h"
#include "tests/unit/daemon/played.h"
#include "tests/unit/daemon/toy_engine.h"

enum {
    EVENTS = 400,
    SLACK_MS = 2500,  /* for lingering, the loop's ticks and waits for memory */
    QUIET_MS = 300,   /* within this time some request is taken, if any is left */
    FRAME_ROOM = 200, /* bytes of a frame besides its numbers */
    RETRIES = 4000,   /* short waits until the kernel reports what peers did */
};

enum { KIB = 1024, MIB = 1024 * 1024 };

static const struct config_limits limits[] = {
    {.frame_bytes = MIB,
     .inflight_bytes = 6 * MIB,
     .connection_inflight_bytes = 2 * MIB,
     .output_bytes = 1 * MIB,
     .queue_requests = 32,
     .header_timeout_ms = 200,
     .frame_timeout_ms = 400,
     .idle_timeout_ms = 1000,
     .connection_requests = 16,
     .receive_rate = 65536},
    {.frame_bytes = 64 * KIB,
     .inflight_bytes = 640 * KIB,
     .connection_inflight_bytes = 64 * KIB,
     .output_bytes = 128 * KIB,
     .queue_requests = 256,
     .header_timeout_ms = 1000,
     .frame_timeout_ms = 2000,
     .idle_timeout_ms = 3000,
     .connection_requests = 4,
     .receive_rate = 65536},
    {.frame_bytes = 300 * KIB,
     .inflight_bytes = 2 * MIB,
     .connection_inflight_bytes = 512 * KIB,
     .output_bytes = 64 * MIB,
     .queue_requests = 8,
     .header_timeout_ms = 3000,
     .frame_timeout_ms = 1000,
     .idle_timeout_ms = 5000,
     .connection_requests = 64,
     .receive_rate = 0},
    {.frame_bytes = MIB,
     .inflight_bytes = 4 * MIB,
     .connection_inflight_bytes = MIB,
     .output_bytes = 4 * MIB,
     .queue_requests = 1024,
     .header_timeout_ms = 500,
     .frame_timeout_ms = 3000,
     .idle_timeout_ms = 2000,
     .connection_requests = 8,
     .receive_rate = 65536,
     .address_requests = 12,
     .address_inflight_bytes = 1536 * KIB},
    {.frame_bytes = 600 * KIB,
     .inflight_bytes = 1 * MIB, /* so the limit is what one frame needs */
     .connection_inflight_bytes = 600 * KIB,
     .output_bytes = MIB,
     .queue_requests = 64,
     .header_timeout_ms = 10000,
     .frame_timeout_ms = 30000,
     .idle_timeout_ms = 60000,
     .connection_requests = 1024,
     .receive_rate = 65536},
};

struct script {
    const uint8_t *at, *end;
};

static uint32_t byte(struct script *s)
{
    return s->at < s->end ? *s->at++ : 0;
}

/* One of the peers that are there; NULL: there is none. */
static struct played_peer *some_peer(struct played *p, struct script *s)
{
    uint32_t from = byte(s);
    for (uint32_t i = 0; i < PLAYED_PEERS; i++) {
        struct played_peer *peer = &p->peers[(from + i) % PLAYED_PEERS];
        if (peer->fd >= 0)
            return peer;
    }
    return NULL;
}

/* How many of its waiting bytes a peer sends now. */
static void allow_part(struct played_peer *peer, uint32_t how)
{
    static const uint32_t first[] = {1, 3, 4, 5, 9, 60, 4 * KIB, 40 * KIB, 68 * KIB, 200 * KIB};
    uint64_t left = played_end(peer) - peer->out_allowed;
    if (how % 3 == 0)
        played_allow(peer, peer->out_allowed + first[how / 3 % ARRAY_LEN(first)]);
    else if (how % 16 == 1)
        played_allow(peer, peer->out_allowed + left / 2);
    else if (how % 16 == 2)
        played_allow(peer, peer->out_allowed + left - (left > 0));
    else
        played_allow(peer, played_end(peer));
}

/* --- events --- */

static void connect_some(struct played *p, struct script *s)
{
    uint32_t b = byte(s);
    for (uint32_t n = 1 + (b >> 6); n; n--)
        played_connect(p, b % 8);
}

static void crowd(struct played *p, struct script *s)
{
    uint32_t b = byte(s);
    for (uint32_t n = 4 + b % 16; n; n--) {
        struct played_peer *peer = played_connect(p, PLAYED_ADDRESSES);
        for (uint32_t k = 0; peer && k < 40 + 4 * b; k++)
            played_ask_infer(p, peer, PLAYED_SMALL, 1 + k % 16, false, 0);
        if (peer)
            played_allow(peer, played_end(peer));
    }
}

static void ask_small(struct played *p, struct script *s)
{
    struct played_peer *peer = some_peer(p, s);
    uint32_t b = byte(s);
    if (!peer)
        return;
    played_ask_infer(p, peer, PLAYED_SMALL, 1 + b % PLAYED_BATCH, b & 64, b & 128 ? 5000 : 0);
    played_allow(peer, played_end(peer));
}

static void ask_many(struct played *p, struct script *s)
{
    struct played_peer *peer = some_peer(p, s);
    uint32_t b = byte(s), how = byte(s);
    for (uint32_t k = 0; peer && k < 2 + 4 * b; k++) {
        played_ask_infer(p, peer, PLAYED_SMALL, 1 + k % 3, false, k % 7 == 6 ? 3000 : 0);
        if (how & 1 && k % 5 == 4)
            played_ask_describe(p, peer, k);
        if (how & 2 && k % 9 == 8)
            played_ask_cancel(p, peer, k);
    }
    if (peer)
        allow_part(peer, how);
}

static void ask_wide(struct played *p, struct script *s)
{
    struct played_peer *peer = some_peer(p, s);
    uint32_t b = byte(s), how = byte(s);
    if (!peer)
        return;
    for (uint32_t n = 1 + (b >> 6); n; n--)
        played_ask_infer(p, peer, PLAYED_WIDE, 1 + b % PLAYED_BATCH, b & 16, 0);
    allow_part(peer, how);
}

static void ask_tall(struct played *p, struct script *s)
{
    struct played_peer *peer = some_peer(p, s);
    uint32_t b = byte(s);
    for (uint32_t n = 1 + (b >> 4); peer && n; n--)
        played_ask_infer(p, peer, PLAYED_TALL, 1 + b % PLAYED_BATCH, false, 0);
    if (peer)
        played_allow(peer, played_end(peer));
}

static void ask_other(struct played *p, struct script *s)
{
    struct played_peer *peer = some_peer(p, s);
    uint32_t b = byte(s);
    for (uint32_t n = 1 + (b >> 5) * (b >> 5); peer && n; n--) {
        if (b % 4 == 0)
            played_ask_wrong(p, peer, b >> 2);
        else if (b % 4 == 1)
            played_ask_cancel(p, peer, b >> 2);
        else
            played_ask_describe(p, peer, (b >> 2) + n);
    }
    if (peer)
        played_allow(peer, played_end(peer));
}

/* Bytes that are no request; after most of them the stream cannot be followed. */
static void send_odd(struct played *p, struct script *s)
{
    static const uint8_t huge[] = {0xff, 0xff, 0xff, 0xff, 1, 2, 3}, tls[] = {22, 3, 1, 2, 0, 1};
    static const uint8_t empty[12] = {0}, announced[] = {0, 0, 0xf0, 0, 8, 1};
    static const char http[] = "GET / HTTP/1.1\r\nHost: inferd\r\n\r\n";
    const struct {
        const void *data;
        size_t size;
    } odd[] = {{huge, sizeof(huge)}, {huge, 3},      {tls, sizeof(tls)},
               {http, sizeof(http)}, {empty, 4},     {empty, sizeof(empty)},
               {announced, 2},       {announced, 4}, {announced, sizeof(announced)}};
    struct played_peer *peer = some_peer(p, s);
    uint32_t b = byte(s);
    uint8_t any[256];
    if (!peer)
        return;
    peer->broken = true;
    if (b % 16 < ARRAY_LEN(odd)) {
        played_raw(p, peer, odd[b % 16].data, odd[b % 16].size);
    } else {
        for (uint32_t i = 0; i < sizeof(any); i++)
            any[i] = i % 4 < 2 ? 0 : (uint8_t)byte(s);
        played_raw(p, peer, any, 1 + b);
    }
    played_allow(peer, played_end(peer));
}

static void send_more(struct played *p, struct script *s)
{
    struct played_peer *peer = some_peer(p, s);
    uint32_t b = byte(s);
    if (peer)
        allow_part(peer, b);
}

static void read_some(struct played *p, struct script *s)
{
    struct played_peer *peer = some_peer(p, s);
    uint32_t b = byte(s);
    if (peer)
        played_read(p, peer, b < 128 ? SIZE_MAX : b << (b % 8));
}

static void read_all(struct played *p, struct script *s)
{
    (void)s;
    for (uint32_t i = 0; i < PLAYED_PEERS; i++) {
        played_read(p, &p->peers[i], SIZE_MAX);
        played_send(&p->peers[i]);
    }
}

static void leave(struct played *p, struct script *s)
{
    struct played_peer *peer = some_peer(p, s);
    uint32_t b = byte(s);
    if (!peer)
        return;
    if (b % 3 == 0)
        played_half_close(peer);
    else
        played_leave(peer, b % 3 == 1);
}

static void leave_many(struct played *p, struct script *s)
{
    uint32_t b = byte(s);
    for (uint32_t i = 0; i < PLAYED_PEERS; i++)
        if (i % 4 != b % 4)
            played_leave(&p->peers[i], b & 4);
}

static void time_passes(struct played *p, struct script *s)
{
    static const uint32_t ms[] = {1, 2, 5, 20, 50, 100, 150, 300, 500, 1000, 2000, 3500, 12000};
    uint32_t b = byte(s);
    played_pass_ms(p, b < 250 ? ms[b % 11] : ms[11 + b % 2]);
}

static void batches(struct played *p, struct script *s)
{
    uint32_t b = byte(s);
    if (b % 8 == 0)
        toy_gate_open();
    else if (b % 8 <= 2)
        toy_gate_close();
    for (uint32_t n = b >> 3; n && toy_gate_pass(); n--)
        played_settle(p);
    played_settle(p);
}

static void order_all(struct played *p, enum loop_order what)
{
    for (uint32_t i = 0; i < p->shared.n_loops; i++)
        loop_order(p->shared.loops[i], what);
}

static void order(struct played *p, struct script *s)
{
    uint32_t b = byte(s);
    struct loop *loop = p->shared.loops[b % p->shared.n_loops];
    uint64_t serials[4];
    if (b < 100) {
        loop_order(loop, LOOP_EVICT);
        p->evicted = true;
    } else if (b < 120) {
        atomic_store(&p->shared.draining, true);
        p->draining = true;
        dispatch_drain(p->shared.dispatch);
        order_all(p, LOOP_DRAIN);
    } else if (b < 150) {
        order_all(p, LOOP_FAIL_QUEUED);
        p->failed_queued = true;
    } else if (b < 170) {
        order_all(p, LOOP_FAIL_ALL);
        p->failed_all = true;
    } else {
        for (uint32_t i = 0; i < ARRAY_LEN(serials); i++)
            serials[i] = loop->next_serial - byte(s) % 16;
        loop_abandon(loop, serials, ARRAY_LEN(serials));
        p->failed_all = true;
    }
}

static void other_limits(struct played *p, struct script *s)
{
    uint32_t b = byte(s);
    if (b < 200) /* reloads are rare */
        return;
    played_limits(p, &limits[b % ARRAY_LEN(limits)]);
}

/* Events come in proportion to the number of their rows. */
static const struct {
    const char *name;
    void (*play)(struct played *p, struct script *s);
} events[] = {
    {"connect", connect_some}, {"connect", connect_some},  {"connect", connect_some},
    {"crowd", crowd},          {"small", ask_small},       {"small", ask_small},
    {"many", ask_many},        {"many", ask_many},         {"many", ask_many},
    {"wide", ask_wide},        {"wide", ask_wide},         {"wide", ask_wide},
    {"tall", ask_tall},        {"tall", ask_tall},         {"other", ask_other},
    {"other", ask_other},      {"odd", send_odd},          {"more", send_more},
    {"more", send_more},       {"more", send_more},        {"read", read_some},
    {"read", read_some},       {"read all", read_all},     {"leave", leave},
    {"leave", leave},          {"leave many", leave_many}, {"time", time_passes},
    {"time", time_passes},     {"batches", batches},       {"batches", batches},
    {"order", order},          {"limits", other_limits},
};

static void event_play(struct played *p, struct script *s)
{
    uint32_t b = byte(s);
    p->event = events[b % ARRAY_LEN(events)].name;
    p->n_events++;
    if (played_loud)
        fprintf(stderr, "%u: %s\n", p->n_events, p->event);
    events[b % ARRAY_LEN(events)].play(p, s);
    played_turns(p, b / ARRAY_LEN(events) % 4);
}

/* --- the end --- */

static uint64_t longest_ms(const struct played *p)
{
    const struct config_limits *l = &p->config->limits;
    return MAX(MAX(l->header_timeout_ms, l->frame_timeout_ms), l->idle_timeout_ms);
}

static uint32_t connections(const struct played *p)
{
    return atomic_load(&p->shared.connections);
}

static bool busy(const struct played *p)
{
    bool requests = false;
    for (uint32_t i = 0; i < p->shared.n_loops; i++)
        requests |= p->shared.loops[i]->n_inflight > 0;
    return requests || connections(p);
}

/* Virtual time does not move the kernel, which may take a moment to report what peers did. */
static void moment(void)
{
    const struct timespec real = {.tv_nsec = 50000};
    nanosleep(&real, NULL);
}

static void await_empty(struct played *p)
{
    for (int i = 0; i < RETRIES && busy(p); i++) {
        moment();
        played_turn(p);
    }
    played_check_empty(p);
}

/* Sends a request of a peer that has just come. Returns whether it was served. */
static bool serve_one(struct played *p, struct played_peer *peer, enum played_model model,
                      uint32_t instances)
{
    uint64_t ok = played_count(p, COUNTER_REQUESTS_OK);
    uint64_t refused = played_count(p, COUNTER_REJECTED_UNAVAILABLE);
    if (!played_ask_infer(p, peer, model, instances, false, 0))
        return true; /* the frame would be larger than allowed */
    for (int i = 0; i < RETRIES && !peer->closed; i++) {
        played_allow(peer, played_end(peer));
        played_pass_ms(p, i < 40 ? 5 : 0);
        played_read(p, peer, SIZE_MAX);
        if (peer->out_sent == played_end(peer) && !played_owed(peer))
            break;
        moment();
    }
    PLAYED_HOLDS(p, peer->out_sent == played_end(peer) && !played_owed(peer) && !peer->closed,
                 "a new request is not answered");
    bool served = played_count(p, COUNTER_REQUESTS_OK) == ok + 1;
    bool draining = played_count(p, COUNTER_REJECTED_UNAVAILABLE) == refused + 1;
    return p->draining ? draining : served;
}

/* Each loop serves a peer that comes now. */
static void end_served(struct played *p)
{
    const struct config_limits *l = &p->config->limits;
    uint32_t most = (uint32_t)(l->frame_bytes - FRAME_ROOM) / (8 * played_shapes[PLAYED_WIDE].in);
    most = MIN(most, (uint32_t)PLAYED_BATCH);
    for (uint32_t i = 0; i < p->shared.n_loops; i++) {
        struct played_peer *peer = played_connect(p, (p->n_events + i) % 5);
        PLAYED_HOLDS(p, peer, "no place for a new peer");
        PLAYED_HOLDS(p, serve_one(p, peer, PLAYED_SMALL, 1), "a new request is refused");
        /* the largest frame that is allowed, if an address may use that much memory */
        bool served = l->address_inflight_bytes || serve_one(p, peer, PLAYED_WIDE, most);
        /* the other loop has been asked for the memory that it keeps */
        if (!served && p->shared.n_loops > 1)
            served = serve_one(p, peer, PLAYED_WIDE, most);
        PLAYED_HOLDS(p, served, "a new request of %u instances is refused", most);
        played_leave(peer, false);
        played_turns(p, 2);
    }
    await_empty(p);
}

static void end_all_leave(struct played *p)
{
    for (uint32_t i = 0; i < PLAYED_PEERS; i++)
        played_leave(&p->peers[i], (i + p->n_events) % 3 == 0);
    played_turns(p, 3);
    played_pass_ms(p, longest_ms(p));
    await_empty(p);
}

/* One peer goes on asking now and then. It is served, and nothing else is left. */
static void end_one_stays(struct played *p)
{
    struct played_peer *peer = played_connect(p, PLAYED_ADDRESSES);
    for (uint32_t i = 0; i < PLAYED_PEERS; i++)
        if (peer != &p->peers[i])
            played_leave(&p->peers[i], i % 2);
    if (!(peer = peer ? peer : played_connect(p, PLAYED_ADDRESSES)))
        played_fail(p, "no place for a peer");
    uint64_t step_ms = longest_ms(p) / 8;
    for (int i = 0; i < 8; i++) {
        if (p->config->limits.idle_timeout_ms > 2 * step_ms) {
            played_ask_infer(p, peer, PLAYED_SMALL, 1, false, 0);
            played_allow(peer, played_end(peer));
        }
        played_pass_ms(p, step_ms);
        played_read(p, peer, SIZE_MAX);
    }
    played_turns(p, 3);
    PLAYED_HOLDS(p, connections(p) <= 1 && !budget_used(&p->shared.budget),
                 "%u connections and %llu bytes are left beside one peer that idles",
                 connections(p), (unsigned long long)budget_used(&p->shared.budget));
    played_leave(peer, false);
    played_turns(p, 3);
    await_empty(p);
}

/* What was sent already is worked off first. Once the peers that hold all the memory have been
 * disconnected, each peer gets one request done in ten milliseconds. */
static void work_off(struct played *p)
{
    uint64_t frames, before, owed = 0, passed_ms = 0;
    for (uint32_t i = 0; i < PLAYED_PEERS; i++)
        owed = MAX(owed, played_owed(&p->peers[i]));
    do {
        before = played_count(p, COUNTER_FRAMES);
        moment();
        played_pass_ms(p, QUIET_MS);
        frames = played_count(p, COUNTER_FRAMES);
        passed_ms += QUIET_MS;
        PLAYED_HOLDS(p, passed_ms <= 10 * owed + longest_ms(p) + SLACK_MS,
                     "%llu requests are not worked off in %llu ms", (unsigned long long)owed,
                     (unsigned long long)passed_ms);
    } while (frames != before);
}

static void end_all_idle(struct played *p)
{
    work_off(p);
    played_pass_ms(p, longest_ms(p) + SLACK_MS);
    PLAYED_HOLDS(p, !connections(p),
                 "%u peers that do nothing are left after the longest time limit", connections(p));
    for (uint32_t i = 0; i < PLAYED_PEERS; i++)
        played_leave(&p->peers[i], false);
    await_empty(p);
}

static uint64_t reasons_to_close(const struct played *p)
{
    static const enum counter reasons[] = {
        COUNTER_TIMEOUT_HEADER, COUNTER_TIMEOUT_FRAME,    COUNTER_TIMEOUT_IDLE,
        COUNTER_TIMEOUT_WRITE,  COUNTER_SLOW_SENDERS,     COUNTER_OUTPUT_LIMIT,
        COUNTER_EVICTED,        COUNTER_FRAMES_TOO_LARGE, COUNTER_FOREIGN};
    uint64_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
        n += played_count(p, reasons[i]);
    return n;
}

/* The peers that stay send all and read, and each request is answered. */
static void end_all_read(struct played *p)
{
    for (uint64_t passed_ms = 0; passed_ms < longest_ms(p) + SLACK_MS;) {
        bool moved = false;
        for (uint32_t i = 0; i < PLAYED_PEERS; i++) {
            struct played_peer *peer = &p->peers[i];
            uint64_t sent = peer->out_sent;
            played_allow(peer, played_end(peer));
            moved |= played_read(p, peer, SIZE_MAX) || peer->out_sent != sent;
        }
        played_turn(p);
        if (!moved) {
            moment();
            played_pass_ms(p, 50);
        }
        passed_ms = moved ? 0 : passed_ms + 50;
    }
    for (uint32_t i = 0; i < PLAYED_PEERS; i++) {
        struct played_peer *peer = &p->peers[i];
        if (peer->fd < 0 || peer->closed || peer->broken)
            continue;
        PLAYED_HOLDS(p, played_owed(peer) <= peer->nameless, "peer %u waits for %u answers", i,
                     played_owed(peer));
    }
    PLAYED_HOLDS(p, p->cut_off <= reasons_to_close(p),
                 "%u peers were cut off, and only %llu for a reason", p->cut_off,
                 (unsigned long long)reasons_to_close(p));
    end_all_leave(p);
}

void played_run(const uint8_t *data, size_t size)
{
    static void (*const ends[])(struct played *) = {end_all_leave, end_one_stays, end_all_idle,
                                                    end_all_read};
    struct script s = {data, data + size};
    uint32_t which = byte(&s), how = byte(&s);
    struct played *p = played_new(&limits[which % ARRAY_LEN(limits)], 1 + (how >> 5) % 2, how & 1,
                                  how & 2 ? 2000 : 0);
    if (how & 4)
        toy_gate_close();
    while (s.at < s.end && p->n_events < EVENTS)
        event_play(p, &s);
    p->event = "the end";
    toy_gate_open();
    played_settle(p);
    ends[(how >> 3) % ARRAY_LEN(ends)](p);
    end_served(p);
    played_free(p);
}
