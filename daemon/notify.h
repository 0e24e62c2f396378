/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon shares with a service manager: readiness and watchdog messages (sd_notify(3)) and
 * handed-over sockets (sd_listen_fds(3)). systemd's library is not needed, because these are only
 * datagrams and environment variables (R38 of docs/operations.md).
 */
#ifndef INFERD_DAEMON_NOTIFY_H
#define INFERD_DAEMON_NOTIFY_H

#include <stdint.h>

#include "base/compiler.h"

struct notify {
    int fd;               /* connected to the manager; -1: there is none */
    uint64_t watchdog_ns; /* the longest time between two signs of life; 0: none are expected */
};

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. Without them notify_send is silent. */
void notify_init(struct notify *notify);
void notify_deinit(struct notify *notify);

/* Sends lines such as "READY=1" and "STATUS=...". Never blocks; nobody could be told of a
 * failure. */
void notify_send(const struct notify *notify, const char *fmt, ...) PRINTF(2, 3);

/* How many sockets were handed over, from descriptor 3 on; 0 if none or not to this process. They
 * are made close-on-exec, and the variables are removed for the children's sake. */
uint32_t notify_listen_fds(void);
/* The name of the i-th of these sockets (FileDescriptorName=); "" if it has none. Static storage,
 * written by notify_listen_fds. */
const char *notify_listen_name(uint32_t i);

#endif
