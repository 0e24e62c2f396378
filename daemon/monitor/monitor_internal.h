/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the monitor's files share:
 *
 *   monitor.c   the thread, its listening sockets, its life
 *   visitor.c   the connections of those who ask
 *   replies.c   what there is to ask for
 *
 * All of it belongs to the monitor's thread, except where `lock` is named.
 */
#ifndef INFERD_DAEMON_MONITOR_MONITOR_INTERNAL_H
#define INFERD_DAEMON_MONITOR_MONITOR_INTERNAL_H

#include <pthread.h>
#include <uv.h>

#include "base/text.h"
#include "daemon/monitor/history.h"
#include "daemon/monitor/monitor.h"
#include "daemon/monitor/question.h"
#include "daemon/monitor/snapshot.h"
#include "daemon/monitor/trace_out.h"

enum {
    MONITOR_TICK_MS = 1000,
    MONITOR_VISITORS = 64,   /* connections; one more waits for an idle one to give way */
    MONITOR_YIELD_MS = 1000, /* of silence, after which a visitor gives way to one that waits */
    MONITOR_ROOM_MS = 100,   /* between two looks whether there is a place again */
    MONITOR_TEXT_MOST = 32 << 20, /* bytes of one answer */
    MONITOR_HELD_MOST = 64 << 20, /* of all answers that wait to be written */
    MONITOR_IDLE_MS = 60000,      /* between two requests of a connection */
    MONITOR_SLOW_MS = 10000,      /* for a request to come, or an answer to be taken */
};

struct peers;
struct visitor;

struct door {
    struct monitor *monitor;
    uv_poll_t poll;
    int fd;
    bool polling;
    struct address address;
};

struct monitor {
    const struct shared *shared;
    uv_loop_t uv;
    uv_async_t wake;
    uv_timer_t tick, rest, room;
    uv_thread_t thread;
    bool has_uv, started, closing;
    bool tls; /* the configuration wants it, once it has been read to the end */

    struct visitor *visitors; /* utlist DL */
    uint32_t n_visitors;
    bool crowded;        /* somebody waited for a place when a door was looked at last */
    struct peers *peers; /* where visitors come from */
    size_t held;         /* bytes of answers that wait to be written */
    uint64_t rest_ns;    /* until when nobody is answered */

    struct table *table; /* a reference */
    struct history *history;
    struct trace_out *traces; /* NULL: nobody wants any */
    struct snapshot_sources sources;

    pthread_mutex_t lock; /* guards what other threads have to tell */
    struct table *table_next;
    bool stop;

    uint32_t n_doors;
    struct door doors[];
};

/* --- visitor.c --- */

/* Somebody waits for a place, and all are taken: the visitor that has been silent for longest loses
 * its own. False: nobody has been silent long enough. */
bool visitors_yield(struct monitor *monitor);
/* Takes over a connected socket. */
void visitor_open(struct monitor *monitor, int fd);
void visitor_close(struct visitor *visitor);
/* Looks after time limits. */
void visitors_tick(struct monitor *monitor);
/* Goes on with those who wait for an answer. */
void visitors_serve(struct monitor *monitor);

/* --- replies.c --- */

struct reply {
    unsigned status;
    const char *type;    /* of the body */
    const char *headers; /* further ones, each with its CR LF; NULL: none */
    struct text text;    /* the body; the caller's to free */
    const void *fixed;   /* or: the body, which stays */
    size_t fixed_size;
};

void reply_make(struct monitor *monitor, const struct question *question, struct reply *out);
/* An answer that is a status and a line. */
void reply_plain(unsigned status, struct reply *out);

#endif
