/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Framing: each message is preceded by its length, 4 bytes, big-endian. The length does not count
 * itself. A length of 0 is a valid frame: an empty message (which the session then refuses).
 */
#ifndef INFERD_PROTO_FRAME_H
#define INFERD_PROTO_FRAME_H

#include <stddef.h>
#include <stdint.h>

enum { FRAME_HEAD_BYTES = 4 };

static inline uint32_t frame_head_read(const void *head)
{
    const uint8_t *b = head;
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static inline void frame_head_write(void *head, uint32_t size)
{
    uint8_t *b = head;
    b[0] = (uint8_t)(size >> 24);
    b[1] = (uint8_t)(size >> 16);
    b[2] = (uint8_t)(size >> 8);
    b[3] = (uint8_t)size;
}

enum frame_state {
    FRAME_COMPLETE,  /* the whole frame is there */
    FRAME_PARTIAL,   /* more bytes are needed */
    FRAME_TOO_LARGE, /* the length is beyond the limit: the stream cannot be followed any further */
};

/*
 * Looks at the `have` bytes at `data`, which start with a frame's head. COMPLETE: the message is
 * `*size` bytes at data + FRAME_HEAD_BYTES. PARTIAL: `*size` is the message's length, or 0 if the
 * head itself is not complete. TOO_LARGE: `*size` is the announced length. Allocates nothing: a
 * length is only a number (R1 of docs/operations.md).
 */
enum frame_state frame_peek(const void *data, size_t have, size_t limit, size_t *size);

#endif
