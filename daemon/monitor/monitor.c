/* SPDX-License-Identifier: Apache-2.0 */
/* The monitor's thread, see monitor.h. */
#include "daemon/monitor/monitor.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/loop.h"
#include "daemon/monitor/monitor_internal.h"
#include "daemon/peer.h"

enum { BACKLOG = 64, ACCEPT_AT_ONCE = 16 };

/* --- doors --- */

static enum status door_bind(struct door *door, const char *text, struct error *err)
{
    int on = 1;
    TRY(address_parse(text, &door->address, err));
    if (address_is_unix(&door->address))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "listen.metrics: expected HOST:PORT or [IPV6]:PORT, got \"%s\"", text);
    const struct sockaddr *address = address_sockaddr(&door->address);
    door->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (door->fd < 0)
        return error_errno(err, errno, "socket for %s", text);
    setsockopt(door->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (address->sa_family == AF_INET6)
        setsockopt(door->fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    if (bind(door->fd, address, door->address.length) != 0)
        return error_errno(err, errno, "bind to %s", text);
    if (listen(door->fd, BACKLOG) != 0)
        return error_errno(err, errno, "listen on %s", text);
    door->address.length = sizeof(door->address.storage);
    if (getsockname(door->fd, (struct sockaddr *)&door->address.storage, &door->address.length))
        return error_errno(err, errno, "getsockname");
    return STATUS_OK;
}

static void door_stop(struct door *door)
{
    if (door->polling)
        uv_poll_stop(&door->poll);
    door->polling = false;
}

/* What the peer or its network has done to a connection concerns that one alone; without
 * descriptors or memory the door rests until the next tick. */
static bool is_peers_trouble(int why)
{
    return why == ECONNABORTED || why == EINTR || why == EPROTO || why == EPERM;
}

static void on_arrival(uv_poll_t *poll, int status, int events);

/* A door that cannot be polled, for want of kernel memory, is tried again at the next tick. */
static void door_start(struct monitor *m, struct door *door)
{
    if (door->polling || m->closing)
        return;
    door->polling = uv_poll_start(&door->poll, UV_READABLE, on_arrival) == 0;
    if (door->polling && !loop_watch(&m->uv, door->fd))
        door_stop(door);
}

static bool someone_waits(const struct door *door)
{
    struct pollfd waits = {.fd = door->fd, .events = POLLIN};
    return poll(&waits, 1, 0) > 0;
}

static void on_room(uv_timer_t *timer)
{
    struct monitor *m = timer->data;
    for (uint32_t i = 0; i < m->n_doors; i++)
        door_start(m, &m->doors[i]);
}

/* All places are taken. Whoever waits does so in the kernel's queue, so that there is an order. */
static void doors_pause(struct monitor *m)
{
    for (uint32_t i = 0; i < m->n_doors; i++)
        door_stop(&m->doors[i]);
    uv_timer_start(&m->room, on_room, MONITOR_ROOM_MS, 0);
}

/* Whether a connection can be accepted. Nobody gives way unless somebody is there. */
static bool has_room(struct door *door)
{
    struct monitor *m = door->monitor;
    if (m->n_visitors < MONITOR_VISITORS)
        return true;
    m->crowded = someone_waits(door);
    if (!m->crowded)
        return false;
    if (visitors_yield(m))
        return true;
    doors_pause(m);
    return false;
}

static void on_arrival(uv_poll_t *poll, int status UNUSED, int events UNUSED)
{
    struct door *door = poll->data;
    for (int i = 0; i < ACCEPT_AT_ONCE && door->polling && has_room(door); i++) {
        int fd = accept4(door->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            visitor_open(door->monitor, fd);
        else if (errno == EAGAIN)
            return;
        else if (!is_peers_trouble(errno))
            door_stop(door);
    }
}

/* --- the thread --- */

static void on_tick(uv_timer_t *timer)
{
    struct monitor *m = timer->data;
    for (uint32_t i = 0; i < m->n_doors; i++)
        door_start(m, &m->doors[i]);
    dispatch_look(m->shared->dispatch);
    history_sample(m->history, m->shared, m->table, m->sources.gpus);
    visitors_tick(m);
    trace_out_tick(m->traces);
}

static void handles_close(struct monitor *m)
{
    m->closing = true;
    trace_out_close(m->traces);
    while (m->visitors)
        visitor_close(m->visitors);
    for (uint32_t i = 0; i < m->n_doors; i++) {
        door_stop(&m->doors[i]);
        uv_close((uv_handle_t *)&m->doors[i].poll, NULL);
    }
    uv_close((uv_handle_t *)&m->wake, NULL);
    uv_close((uv_handle_t *)&m->tick, NULL);
    uv_close((uv_handle_t *)&m->rest, NULL);
    uv_close((uv_handle_t *)&m->room, NULL);
}

static void on_wake(uv_async_t *async)
{
    struct monitor *m = async->data;
    pthread_mutex_lock(&m->lock);
    struct table *table = STEAL(m->table_next);
    bool stop = m->stop;
    pthread_mutex_unlock(&m->lock);
    if (table) {
        table_unref(m->table);
        m->table = table;
    }
    if (stop && !m->closing)
        handles_close(m);
}

static void run(void *arg)
{
    struct monitor *m = arg;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    if (m->sources.shared->device && engine_device_apart(m->sources.shared->device))
        m->sources.gpus = gpus_open(NULL);
    uv_timer_start(&m->tick, on_tick, 0, MONITOR_TICK_MS);
    uv_run(&m->uv, UV_RUN_DEFAULT);
    gpus_close(STEAL(m->sources.gpus));
}

/* --- life --- */

static enum status uv_start(struct monitor *m, struct error *err)
{
    int r = uv_loop_init(&m->uv);
    if (r != 0)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "uv_loop_init: %s", uv_strerror(r));
    m->has_uv = true;
    return loop_watchers_grow(&m->uv, err);
}

static enum status handles_init(struct monitor *m, struct error *err)
{
    int r = uv_async_init(&m->uv, &m->wake, on_wake);
    if (r != 0)
        return error_set(err, STATUS_INTERNAL, "libuv: %s", uv_strerror(r));
    uv_timer_init(&m->uv, &m->tick);
    uv_timer_init(&m->uv, &m->rest);
    uv_timer_init(&m->uv, &m->room);
    m->wake.data = m->tick.data = m->rest.data = m->room.data = m;
    trace_out_attach(m->traces, &m->uv);
    uint32_t n = m->n_doors;
    for (m->n_doors = 0; m->n_doors < n; m->n_doors++) {
        struct door *door = &m->doors[m->n_doors];
        r = uv_poll_init(&m->uv, &door->poll, door->fd);
        door->poll.data = door;
        if (r != 0)
            break;
    }
    if (r == 0)
        return STATUS_OK;
    for (uint32_t i = m->n_doors; i < n; i++)
        close(m->doors[i].fd);
    handles_close(m);
    return error_set(err, STATUS_INTERNAL, "libuv: %s", uv_strerror(r));
}

enum status monitor_new(struct shared *shared, const struct config *config,
                        const struct config_listen *listen, struct table *table,
                        struct monitor **out, struct error *err)
{
    uint32_t n = listen->metrics_count;
    struct monitor *m = calloc(1, sizeof(*m) + n * sizeof(m->doors[0]));
    if (!m)
        return error_no_memory(err, "the monitor");
    m->shared = m->sources.shared = shared;
    m->table = table_ref(table);
    m->tls = config_tls_doors(&config->listen) >> DOOR_metrics & 1;
    pthread_mutex_init(&m->lock, NULL);
    m->history = history_new();
    m->peers = peers_new();
    enum status status = m->history && m->peers ? trace_out_new(shared, config, &m->traces, err)
                                                : error_no_memory(err, "the monitor");
    for (uint32_t i = 0; !status && i < n; i++) {
        m->doors[i].monitor = m;
        m->n_doors = i + 1;
        status = door_bind(&m->doors[i], listen->metrics[i], err);
    }
    if (status)
        monitor_free(m);
    else
        *out = m;
    return status;
}

static enum status thread_start(struct monitor *m, struct error *err)
{
    TRY(uv_start(m, err));
    TRY(handles_init(m, err));
    int r = uv_thread_create(&m->thread, run, m);
    m->started = r == 0;
    if (!m->started) {
        handles_close(m);
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "a thread: %s", uv_strerror(r));
    }
    return STATUS_OK;
}

enum status monitor_start(struct monitor *m, struct error *err)
{
    char text[ADDRESS_TEXT_MAX];
    TRY(thread_start(m, err));
    for (uint32_t i = 0; i < m->n_doors; i++)
        fprintf(stderr, "metrics %s\n", address_format(&m->doors[i].address, text));
    return STATUS_OK;
}

void monitor_set_table(struct monitor *m, struct table *table)
{
    pthread_mutex_lock(&m->lock);
    struct table *before = m->table_next;
    m->table_next = table_ref(table);
    if (m->started)
        uv_async_send(&m->wake);
    pthread_mutex_unlock(&m->lock);
    table_unref(before);
}

enum status monitor_check(const struct monitor *m, const struct config *config, struct error *err)
{
    for (uint32_t i = 0; m && i < m->n_doors; i++)
        TRY(config_listen_check(config, DOOR_metrics, &m->doors[i].address, err));
    return STATUS_OK;
}

void monitor_free(struct monitor *m)
{
    if (!m)
        return;
    if (m->started) {
        pthread_mutex_lock(&m->lock);
        m->stop = true;
        uv_async_send(&m->wake);
        pthread_mutex_unlock(&m->lock);
        uv_thread_join(&m->thread);
    }
    if (m->has_uv) {
        uv_run(&m->uv, UV_RUN_DEFAULT); /* lets go of handles that were closed */
        uv_loop_close(&m->uv);
    }
    for (uint32_t i = 0; i < m->n_doors; i++)
        if (m->doors[i].fd > 0)
            close(m->doors[i].fd);
    trace_out_free(m->traces);
    peers_free(m->peers);
    history_free(m->history);
    table_unref(m->table_next);
    table_unref(m->table);
    pthread_mutex_destroy(&m->lock);
    free(m);
}
