/* SPDX-License-Identifier: Apache-2.0 */
/* Listening sockets, see listener.h. */
#include "daemon/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/address.h"
#include "base/clock.h"
#include "daemon/loop.h"
#include "daemon/notify.h"
#include "daemon/peer.h"

enum {
    ACCEPT_AT_ONCE = 64, /* then the control thread does its other work first */
    BACKLOG = 4096,
    PAUSE_MS = 100,     /* for want of descriptors or memory */
    FULL_PAUSE_MS = 10, /* until there may be a place for one more connection */
    SAY_AGAIN_S = 60,   /* between two lines in the log about descriptors */
    FIRST_FD = 3,
};

struct listener {
    struct listeners *all;
    uv_poll_t poll;
    int fd;
    bool tcp, polling;
    bool made;        /* the unix socket's file was made here, and is ours to remove */
    struct stat file; /* which file that was */
    enum config_door door;
    struct address address;
};

/* The protocol of each door; NULL: somebody else listens there (daemon/monitor/monitor.h). */
static const struct session_ops *const protocols[CONFIG_DOOR_COUNT_] = {
    [DOOR_framed] = &session_framed,
    [DOOR_http] = &session_http,
    [DOOR_grpc] = &session_h2,
};

struct listeners {
    struct shared *shared;
    uv_loop_t *uv;
    uv_timer_t pause; /* runs while accepting pauses */
    struct peers *peers;
    uint64_t starved_ns; /* when the log was last told that there are no descriptors; 0: never */
    int spare;           /* a descriptor to give up when there are no more; -1: it was given up */
    bool started, stopped;
    uint32_t n;
    struct listener items[];
};

/* --- accepting --- */

static struct loop *emptiest(const struct shared *shared)
{
    struct loop *best = shared->loops[0];
    for (uint32_t i = 1; i < shared->n_loops; i++)
        if (atomic_load_explicit(&shared->loops[i]->load, memory_order_relaxed) <
            atomic_load_explicit(&best->load, memory_order_relaxed))
            best = shared->loops[i];
    return best;
}

static bool at_limit(const struct shared *shared)
{
    return atomic_load_explicit(&shared->connections, memory_order_relaxed) >=
           atomic_load_explicit(&shared->max_connections, memory_order_relaxed);
}

static bool watch(struct listeners *all, bool on);

/* Asks the fullest loop to close its idlest connection. */
static void evict(struct shared *shared)
{
    struct loop *fullest = shared->loops[0];
    for (uint32_t i = 1; i < shared->n_loops; i++)
        if (atomic_load_explicit(&shared->loops[i]->load, memory_order_relaxed) >
            atomic_load_explicit(&fullest->load, memory_order_relaxed))
            fullest = shared->loops[i];
    loop_order_try(fullest, LOOP_EVICT);
}

static void spare_open(struct listeners *all)
{
    if (all->spare < 0)
        all->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Whether a connection waits to be accepted. */
static bool someone_waits(const struct listener *l)
{
    struct pollfd waits = {.fd = l->fd, .events = POLLIN};
    return poll(&waits, 1, 0) > 0;
}

static bool anyone_waits(const struct listeners *all)
{
    for (uint32_t i = 0; i < all->n; i++)
        if (someone_waits(&all->items[i]))
            return true;
    return false;
}

/* At the limit a connection is closed for one that waits, and for no other reason. */
static void pause_over(uv_timer_t *timer)
{
    struct listeners *all = timer->data;
    spare_open(all);
    if (at_limit(all->shared) && anyone_waits(all)) {
        evict(all->shared);
        uv_timer_start(timer, pause_over, FULL_PAUSE_MS, 0);
    } else if (!watch(all, true)) {
        uv_timer_start(timer, pause_over, PAUSE_MS, 0);
    }
}

static void accept_pause(struct listeners *all, uint64_t ms)
{
    watch(all, false);
    uv_timer_start(&all->pause, pause_over, ms, 0);
}

/* Pauses come ten times a second, for as long as somebody holds all descriptors. */
static void starved_say(struct listeners *all)
{
    uint64_t now_ns = clock_now_ns();
    if (all->starved_ns && now_ns - all->starved_ns < SAY_AGAIN_S * NS_PER_S)
        return;
    all->starved_ns = now_ns;
    log_write(&all->shared->log, LOG_WARNING,
              "no descriptors left: accepting pauses; the counter accept_no_descriptor tells how "
              "often");
}

/* No descriptor is left: the peer learns of it by a closed connection. */
static void accept_starved(struct listeners *all, struct listener *l)
{
    counter_add(&all->shared->counters, COUNTER_ACCEPT_NO_DESCRIPTOR, 1);
    if (all->spare >= 0) {
        close(all->spare);
        int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            close(fd);
        all->spare = -1;
        spare_open(all);
    }
    starved_say(all);
    accept_pause(all, PAUSE_MS);
}

/* Deals a connection to a loop, if its address may have one more. */
static void deal(struct listener *l, int fd)
{
    struct shared *shared = l->all->shared;
    struct peer *peer = peers_meet(l->all->peers, fd);
    uint64_t most = atomic_load_explicit(&shared->address_connections, memory_order_relaxed);
    uint32_t all = atomic_load_explicit(&shared->max_connections, memory_order_relaxed);
    if (peer && peer_connections(peer) > peer_most(peer, most, all)) {
        counter_add(&shared->counters, COUNTER_REFUSED_ADDRESS, 1);
        peer_leave(peer);
        close(fd);
        return;
    }
    struct loop *loop = emptiest(shared);
    atomic_fetch_add_explicit(&shared->connections, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&loop->load, 1, memory_order_relaxed);
    const struct arrival arrival = {fd, l->tcp, l->door, protocols[l->door], peer};
    loop_adopt(loop, &arrival);
}

/* False: nothing more is accepted for now. */
static bool accept_one(struct listeners *all, struct listener *l)
{
    struct shared *shared = all->shared;
    if (at_limit(shared)) {
        if (!someone_waits(l))
            return false;
        counter_add(&shared->counters, COUNTER_ACCEPT_PAUSED, 1);
        evict(shared);
        accept_pause(all, FULL_PAUSE_MS);
        return false;
    }
    int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        deal(l, fd);
        return true;
    }
    int why = errno;
    if (why == EMFILE || why == ENFILE || why == ENOBUFS || why == ENOMEM)
        accept_starved(all, l);
    /* The next errors are the peer's trouble: the peer or its network has gone. */
    return why == ECONNABORTED || why == EINTR || why == EPROTO || why == EPERM;
}

static void on_readable(uv_poll_t *poll, int status UNUSED, int events UNUSED)
{
    struct listener *l = poll->data;
    for (int i = 0; i < ACCEPT_AT_ONCE && l->polling; i++)
        if (!accept_one(l->all, l))
            break;
}

static bool poll_start(struct listener *l)
{
    if (uv_poll_start(&l->poll, UV_READABLE, on_readable) == 0 && loop_watch(l->all->uv, l->fd))
        return true;
    uv_poll_stop(&l->poll);
    return false;
}

/* Starts or ends polling of all listeners. False: some are not polled, for want of kernel
 * memory. */
static bool watch(struct listeners *all, bool on)
{
    bool done = true;
    for (uint32_t i = 0; i < all->n; i++) {
        struct listener *l = &all->items[i];
        if (on && !l->polling && !all->stopped)
            done &= l->polling = poll_start(l);
        else if (!on && l->polling)
            l->polling = uv_poll_stop(&l->poll) != 0;
    }
    return done;
}

/* --- sockets --- */

/* Removes a unix socket's file that nobody listens on any more. */
static void stale_remove(const struct sockaddr_un *address, socklen_t length)
{
    struct stat st;
    if (lstat(address->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode))
        return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    if (connect(fd, (const struct sockaddr *)address, length) != 0 && errno == ECONNREFUSED)
        unlink(address->sun_path);
    close(fd);
}

static const char *unix_path(const struct listener *l)
{
    return ((const struct sockaddr_un *)(const void *)&l->address.storage)->sun_path;
}

static enum status socket_bind(struct listener *l, const char *text, struct error *err)
{
    TRY(address_parse(text, &l->address, err));
    const struct sockaddr *address = address_sockaddr(&l->address);
    l->tcp = !address_is_unix(&l->address);
    l->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0)
        return error_errno(err, errno, "socket for %s", text);
    int on = 1;
    if (l->tcp)
        setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    else
        stale_remove((const struct sockaddr_un *)(const void *)&l->address.storage,
                     l->address.length);
    if (address->sa_family == AF_INET6)
        setsockopt(l->fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    if (bind(l->fd, address, l->address.length) != 0)
        return error_errno(err, errno, "bind to %s", text);
    l->made = !l->tcp && lstat(unix_path(l), &l->file) == 0;
    if (listen(l->fd, BACKLOG) != 0)
        return error_errno(err, errno, "listen on %s", text);
    return STATUS_OK;
}

static enum status socket_take(struct listener *l, int fd, struct error *err)
{
    int type = 0, listening = 0;
    socklen_t size = sizeof(type);
    l->fd = fd;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0)
        return error_errno(err, errno, "descriptor %d of the service manager", fd);
    size = sizeof(listening);
    if (type != SOCK_STREAM || getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 ||
        !listening)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "descriptor %d of the service manager is no listening stream socket", fd);
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return error_errno(err, errno, "descriptor %d of the service manager", fd);
    return STATUS_OK;
}

static enum status watch_init(struct listener *l, struct error *err)
{
    l->address.length = sizeof(l->address.storage);
    if (getsockname(l->fd, (struct sockaddr *)&l->address.storage, &l->address.length) != 0)
        return error_errno(err, errno, "getsockname");
    l->tcp = !address_is_unix(&l->address);
    int r = uv_poll_init(l->all->uv, &l->poll, l->fd);
    if (r != 0)
        return error_set(err, STATUS_INTERNAL, "uv_poll_init: %s", uv_strerror(r));
    l->poll.data = l;
    return STATUS_OK;
}

/* --- life --- */

static void listener_close(struct listener *l)
{
    if (l->poll.data)
        uv_close((uv_handle_t *)&l->poll, NULL);
    l->poll.data = NULL;
    /* Another process may have put a newer socket in its place. */
    struct stat now;
    if (l->made && lstat(unix_path(l), &now) == 0 && now.st_ino == l->file.st_ino &&
        now.st_dev == l->file.st_dev)
        unlink(unix_path(l));
    l->made = false;
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}

enum status listeners_check(const struct listeners *all, const struct config *config,
                            struct error *err)
{
    for (uint32_t i = 0; i < all->n; i++)
        TRY(config_listen_check(config, all->items[i].door, &all->items[i].address, err));
    return STATUS_OK;
}

/* Returns the next listener, with nothing open yet. */
static struct listener *listener_add(struct listeners *all, enum config_door door)
{
    struct listener *l = &all->items[all->n++]; /* listeners_stop closes it, whatever fails */
    l->all = all;
    l->fd = -1;
    l->door = door;
    return l;
}

static enum status sockets_bind(struct listeners *all, const struct config_listen *listen,
                                struct error *err)
{
    for (uint32_t door = 0; door < CONFIG_DOOR_COUNT_; door++)
        for (uint32_t i = 0; protocols[door] && i < listen->doors[door].count; i++) {
            struct listener *l = listener_add(all, door);
            TRY(socket_bind(l, listen->doors[door].items[i], err));
            TRY(watch_init(l, err));
        }
    return STATUS_OK;
}

/* A service manager's socket is for the door whose name it has, and without one for the first. */
static enum config_door door_named(const char *name)
{
    for (uint32_t door = 0; door < CONFIG_DOOR_COUNT_; door++)
        if (protocols[door] && strcmp(config_door_names[door], name) == 0)
            return door;
    return DOOR_framed;
}

static enum status sockets_take(struct listeners *all, uint32_t n_fds, struct error *err)
{
    for (uint32_t i = 0; i < n_fds; i++) {
        struct listener *l = listener_add(all, door_named(notify_listen_name(i)));
        TRY(socket_take(l, FIRST_FD + (int)i, err));
        TRY(watch_init(l, err));
    }
    return STATUS_OK;
}

static uint32_t addresses_count(const struct config_listen *listen)
{
    uint32_t n = 0;
    for (uint32_t door = 0; door < CONFIG_DOOR_COUNT_; door++)
        n += listen->doors[door].count;
    return n;
}

enum status listeners_new(struct shared *shared, uv_loop_t *uv, const struct config_listen *listen,
                          uint32_t n_fds, struct listeners **out, struct error *err)
{
    uint32_t n = n_fds ? n_fds : addresses_count(listen);
    struct listeners *all = calloc(1, sizeof(*all) + n * sizeof(all->items[0]));
    if (!all)
        return error_no_memory(err, "listeners");
    all->shared = shared;
    all->uv = uv;
    all->spare = -1;
    all->peers = peers_new();
    uv_timer_init(uv, &all->pause);
    all->pause.data = all;
    enum status status = !all->peers ? error_no_memory(err, "listeners")
                         : n_fds     ? sockets_take(all, n_fds, err)
                                     : sockets_bind(all, listen, err);
    if (!status) {
        *out = all;
        return STATUS_OK;
    }
    listeners_stop(all);
    uv_run(uv, UV_RUN_NOWAIT);
    listeners_free(all);
    return status;
}

/* Says where each listener is, in one write if all lines have room in it: who has read one line
 * finds all the others. */
static void announce(const struct listeners *all)
{
    enum { LINE_ROOM = ADDRESS_TEXT_MAX + 64 };
    char address[ADDRESS_TEXT_MAX], text[64 * LINE_ROOM];
    size_t used = 0;
    for (uint32_t i = 0; i < all->n; i++) {
        const struct listener *l = &all->items[i];
        const char *name = config_door_names[l->door];
        bool named = l->door != DOOR_framed;
        used += (size_t)snprintf(text + used, LINE_ROOM, "ready %s%s%s%s\n",
                                 address_format(&l->address, address), named ? " (" : "",
                                 named ? name : "", named ? ")" : "");
        if (sizeof(text) - used < LINE_ROOM || i + 1 == all->n) {
            fwrite(text, 1, used, stderr);
            used = 0;
        }
    }
}

void listeners_start(struct listeners *all)
{
    all->started = true;
    spare_open(all);
    if (!watch(all, true))
        uv_timer_start(&all->pause, pause_over, PAUSE_MS, 0);
    announce(all);
}

void listeners_stop(struct listeners *all)
{
    if (!all || all->stopped)
        return;
    all->stopped = true;
    watch(all, false);
    uv_close((uv_handle_t *)&all->pause, NULL);
    for (uint32_t i = 0; i < all->n; i++)
        listener_close(&all->items[i]);
    if (all->spare >= 0)
        close(all->spare);
}

void listeners_free(struct listeners *all)
{
    if (all)
        peers_free(all->peers);
    free(all);
}
