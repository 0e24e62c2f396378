/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the server's files share:
 *
 *   server.c        starts and stops everything
 *   server_drain.c  how it comes to an end: signals, the loss of the device, deadlines
 *   server_news.c   what the loader and the workers tell the main thread, and what it tells them
 *   server_orders.c what clients order to load and unload
 *   server_watch.c  hangs, signs of life, the watchdog
 */
#ifndef INFERD_DAEMON_SERVER_INTERNAL_H
#define INFERD_DAEMON_SERVER_INTERNAL_H

#include <pthread.h>

#include "daemon/answer.h"
#include "daemon/listener.h"
#include "daemon/loop.h"
#include "daemon/models.h"
#include "daemon/monitor/monitor.h"
#include "daemon/notify.h"
#include "daemon/options.h"
#include "daemon/readiness.h"

enum {
    SERVER_LOST_MS = 800, /* from a loss or a failed start to the end (R29 of docs/operations.md) */
};

/* Leaving: unready, and serving as before until balancers have noticed. */
enum phase { PHASE_STARTING, PHASE_SERVING, PHASE_LEAVING, PHASE_DRAINING, PHASE_LAST_WORDS };

struct server {
    struct shared shared;
    const struct options *options;
    struct config *config; /* the first one, until the loader has it */
    struct notify notify;
    struct listeners *listeners;
    struct models *models;
    struct answer_orders orders;
    struct monitor *monitor; /* NULL: nobody is told */
    /* That there are descriptors for; set before all else. */
    uint32_t most_connections, most_regions;

    /* The main thread's. */
    uv_loop_t control;
    bool has_control;
    enum phase phase;
    bool handles, hung, drain_sent;
    int exit_code;
    uint64_t phase_end_ms; /* of draining and last words */
    uint64_t hang_exit_ns;
    uint64_t stop_ns; /* when the signal to stop came */
    uint64_t loop_beats[DISPATCH_MAX_LOOPS], loop_beat_ms[DISPATCH_MAX_LOOPS];
    uv_signal_t term, interrupt, hangup;
    uv_async_t news;
    uv_timer_t beat, step;
    uv_poll_t batch_timer;

    /* Relaxed: plain numbers that a reload may change. */
    _Atomic uint64_t hang_ns, drain_ms, drain_delay_ms;
    _Atomic uint32_t versions; /* of models in the present table */

    pthread_mutex_t lock; /* guards what other threads have to tell */
    struct {
        bool first, reload, ended, lost;
        uint32_t loaded;
        bool failed;
        struct error err;               /* of first or reload, if failed; of lost */
        struct readiness_models models; /* of the table that is in use */
    } told;
};

/* The main thread's loop, which no peer's bytes reach. */
static inline uv_loop_t *server_loop(struct server *s)
{
    return &s->control;
}

/* --- server_drain.c --- */

/* Admits nothing new from now on. The server ends when all is answered, or after `within_ms`. */
void server_drain(struct server *s, int exit_code, uint64_t within_ms);
void server_device_lost(struct server *s, const char *why);
void server_handles_close(struct server *s);
void server_on_stop_signal(uv_signal_t *signal, int number);
void server_on_reload_signal(uv_signal_t *signal, int number);

/* --- server_news.c --- */

extern const struct models_ops server_models_ops; /* all but `user`, which is the server */
void server_on_news(uv_async_t *async);
void server_worker_lost(void *user, const struct error *err);
void server_retire(void *user, struct model *model);
void server_deliver(void *user, uint32_t loop, struct inflight *first, struct inflight *last);
void server_spent(void *user, uint32_t loop, struct inflight *first, struct inflight *last);
/* Sets shared.ready and .healthy by all reasons together; called after each change of a reason. The
 * main thread. */
void server_ready_update(struct server *s);
/* Applies what a configuration can change while the server serves, beside the table. */
void server_settings_apply(struct server *s, const struct config *config);

/* --- server_orders.c --- */

void server_orders_init(struct server *s);

/* --- server_watch.c --- */

void server_on_batch_timer(uv_poll_t *poll, int status, int events);
void server_on_beat(uv_timer_t *timer);

#endif
