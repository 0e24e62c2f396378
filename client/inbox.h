/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What has been received of a connection's byte stream: bytes are read into it, and whole frames
 * taken out. There is one buffer, and a frame is handed out where it lies. Memory grows only with
 * bytes that have come, whatever length a frame announces.
 */
#ifndef INFERD_CLIENT_INBOX_H
#define INFERD_CLIENT_INBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct inbox {
    uint8_t *data;
    size_t cap;
    size_t begin, end; /* the bytes not yet consumed */
    size_t taken;      /* of these bytes, the frame that was handed out last, with its head */
    size_t limit;      /* the largest message */
};

void inbox_init(struct inbox *in, size_t limit);
void inbox_deinit(struct inbox *in);

/* Gives room to read into, at least one byte. Frames that were handed out before are gone.
 * RESOURCE_EXHAUSTED: no memory. */
enum status inbox_room(struct inbox *in, void **at, size_t *size, struct error *err);

/* Tells that `size` bytes were put into the room. */
void inbox_filled(struct inbox *in, size_t size);

/* The next whole message, or NULL if none is complete; it is good until the next call here.
 * OUT_OF_RANGE: the next frame is beyond the limit, so the stream cannot be read on. */
enum status inbox_next(struct inbox *in, const void **message, size_t *size, struct error *err);

#endif
