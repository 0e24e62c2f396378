/* SPDX-License-Identifier: Apache-2.0 */
/* sd_notify and sd_listen_fds without their library; see notify.h. */
#include "daemon/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

enum { FIRST_FD = 3, MOST_FDS = 64, NAME_MOST = 32 };

static char socket_names[MOST_FDS][NAME_MOST]; /* of the sockets that were handed over */

/* The number in an environment variable; 0 if the variable is missing or no number. */
static uint64_t variable(const char *name)
{
    const char *text = getenv(name);
    if (!text || *text < '0' || *text > '9')
        return 0;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    return *end || errno ? 0 : value;
}

static int manager_connect(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = path ? strlen(path) : 0;
    if (len < 2 || len >= sizeof(address.sun_path) || (path[0] != '/' && path[0] != '@'))
        return -1;
    memcpy(address.sun_path, path, len);
    if (path[0] == '@') /* the abstract name space */
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, size) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

void notify_init(struct notify *notify)
{
    notify->fd = manager_connect(getenv("NOTIFY_SOCKET"));
    notify->watchdog_ns = variable("WATCHDOG_USEC") * NS_PER_US;
    uint64_t pid = variable("WATCHDOG_PID");
    if (notify->fd < 0 || (pid && pid != (uint64_t)getpid()))
        notify->watchdog_ns = 0;
}

void notify_deinit(struct notify *notify)
{
    if (notify->fd >= 0)
        close(notify->fd);
    notify->fd = -1;
}

void notify_send(const struct notify *notify, const char *fmt, ...)
{
    if (notify->fd < 0)
        return;
    char text[512];
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (len <= 0)
        return;
    ssize_t sent = send(notify->fd, text, MIN((size_t)len, sizeof(text) - 1), MSG_NOSIGNAL);
    (void)sent;
}

/* Names are divided by colons; what is too long stands for no name. */
static void names_keep(const char *names)
{
    for (uint32_t i = 0; names && i < MOST_FDS; i++) {
        size_t len = strcspn(names, ":");
        if (len < NAME_MOST)
            memcpy(socket_names[i], names, len);
        names = names[len] ? names + len + 1 : NULL;
    }
}

const char *notify_listen_name(uint32_t i)
{
    return i < MOST_FDS ? socket_names[i] : "";
}

uint32_t notify_listen_fds(void)
{
    memset(socket_names, 0, sizeof(socket_names));
    uint64_t n = variable("LISTEN_FDS");
    if (variable("LISTEN_PID") != (uint64_t)getpid() || n > MOST_FDS)
        n = 0;
    if (n)
        names_keep(getenv("LISTEN_FDNAMES"));
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    for (int fd = FIRST_FD; fd < FIRST_FD + (int)n; fd++)
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
            return 0;
    return (uint32_t)n;
}
