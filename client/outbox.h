/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What waits to be sent, in order. Heads and small payloads are copied and run together, so that
 * many small requests are one piece; large payloads stay where they are. The memory is kept for
 * reuse.
 */
#ifndef INFERD_CLIENT_OUTBOX_H
#define INFERD_CLIENT_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"

/* A payload above this is sent from where it lies. */
enum { OUTBOX_COPY_MAX = 16 * 1024 };

struct outbox_piece {
    const uint8_t *ref; /* NULL: copied, at `offset` of the bytes */
    size_t offset, len;
};

struct outbox {
    uint8_t *bytes;
    size_t used, cap;
    struct outbox_piece *pieces;
    uint32_t n, n_cap;
    uint32_t first; /* the first piece with unsent bytes */
    size_t sent;    /* of that piece */
};

void outbox_deinit(struct outbox *out);

/* A frame as the encoder gives it. The pieces that lie in `head`, which the first does, are copied
 * whatever their size, because that memory is used again. */
struct outbox_frame {
    const struct iovec *iov;
    uint32_t n;
    const uint8_t *head;
    size_t head_size;
};

/* Adds a frame: all of it or, with RESOURCE_EXHAUSTED, nothing. `*start`: the copy of its first
 * piece, good until the next add. `*size`: its bytes. */
enum status outbox_add(struct outbox *out, const struct outbox_frame *frame, uint8_t **start,
                       size_t *size, struct error *err);

static inline bool outbox_empty(const struct outbox *out)
{
    return out->first == out->n;
}

/* The next unsent pieces, at most `max`; returns how many. */
uint32_t outbox_pieces(const struct outbox *out, struct iovec *iov, uint32_t max);

/* Tells that `size` bytes were sent. */
void outbox_sent(struct outbox *out, size_t size);

#endif
