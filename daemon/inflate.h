/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages and bodies that came compressed. A few bytes can stand for many: they are inflated in
 * slices of the loop's time, into a slab of the host that grows with what comes out, up to the
 * largest message and up to so many times what came in.
 */
#ifndef INFERD_DAEMON_INFLATE_H
#define INFERD_DAEMON_INFLATE_H

#include "daemon/session.h"

enum inflate_coding {
    INFLATE_GZIP,
    INFLATE_ZLIB, /* which both HTTP and gRPC call deflate */
};

struct inflate;

/* For `size` bytes of that coding. NULL: no memory. */
struct inflate *inflate_new(struct session_host *host, enum inflate_coding coding, size_t size);
void inflate_free(struct inflate *inflate); /* NULL is fine */

/* Inflates for about a slice of time; *done: all of it is there. Otherwise the call is to be
 * repeated. The bytes lie at `from`, which may be another place each time. */
enum status inflate_go_on(struct inflate *inflate, const uint8_t *from, bool *done,
                          struct error *err);
/* What has been inflated, which is the caller's; frees the rest. */
struct slab *inflate_take(struct inflate *inflate, size_t *size);

#endif
