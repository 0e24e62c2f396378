/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows the frames of HTTP/2 by their heads alone, before anybody decodes them, and tells a peer
 * that works from one that only makes work: frames that carry next to nothing (pings, settings,
 * resets, window updates, priorities, empty data, continuations) cost credit, and credit is earned
 * by time and by bytes that count. It is also known here whether a frame is whole.
 *
 * A pure function of bytes and time.
 */
#ifndef INFERD_DAEMON_H2_CALM_H
#define INFERD_DAEMON_H2_CALM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    H2_PREFACE = 24, /* bytes that a client begins with */
    H2_FRAME_HEAD = 9,
    H2_CALM_MOST = 4000,    /* credit that can be saved */
    H2_CALM_A_SECOND = 400, /* earned by time */
    H2_CALM_RESET = 4,      /* what a reset costs; another frame costs 1 */
    H2_CALM_ANSWER = 8,     /* earned by each answer: its headers, its window, its ping */
    H2_CALM_BYTES = 512,    /* of data, either way, earn 1 */
    H2_CONTINUATIONS = 8,   /* of one block of headers */
    H2_BLOCK_BYTES = 32 * 1024,
};

struct h2_calm {
    uint8_t head[H2_FRAME_HEAD];
    uint32_t n_head;
    uint32_t preface; /* bytes of it that have come */
    uint32_t left;    /* of the frame's payload */
    uint64_t heads;   /* of frames that have come; a block of headers counts as one */
    uint8_t type, flags;
    bool block; /* a block of headers has begun and not ended */
    uint32_t continuations, block_bytes;
    int64_t credit;
    uint64_t at_ms; /* when `credit` was right */
};

enum h2_calm_verdict {
    H2_CALM_FINE,
    H2_CALM_FLOOD, /* the credit is used up */
    H2_CALM_BLOCK, /* a block of headers is too long, or in too many pieces */
};

void h2_calm_init(struct h2_calm *calm, uint64_t now_ms);
/* To be called with all bytes, once, in order. */
enum h2_calm_verdict h2_calm_feed(struct h2_calm *calm, const void *data, size_t size,
                                  uint64_t now_ms);
void h2_calm_earn(struct h2_calm *calm, uint64_t credit);
/* False: the credit is used up. */
bool h2_calm_spend(struct h2_calm *calm, uint32_t credit, uint64_t now_ms);

/* Bytes to the end of the frame, or of the head, that has begun; 0: none has. */
static inline size_t h2_calm_left(const struct h2_calm *calm)
{
    if (calm->left)
        return calm->left;
    return calm->n_head ? H2_FRAME_HEAD - calm->n_head : 0;
}
/* Something has begun that is no data: the preface, a frame's head, a block of headers. */
bool h2_calm_in_head(const struct h2_calm *calm);

#endif
