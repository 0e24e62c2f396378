/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hosts of fuzzed sessions share: memory of which every byte is counted, and a stream that
 * comes in pieces as a connection hands them over. A target's own host begins with a guest.
 */
#ifndef INFERD_TESTS_FUZZ_GUEST_H
#define INFERD_TESTS_FUZZ_GUEST_H

#include "daemon/session.h"

enum { GUEST_LIMIT = 300 * 1024, GUEST_STAGING = 128 * 1024 };

struct guest {
    struct session_host base;
    const struct session_ops *protocol;
    struct session *session;
    struct slabs *slabs;
    struct budget budget;
    bool ended, starved; /* an attempt to take memory failed */
    size_t queued;       /* bytes that have come and have not been read */
    uint8_t seen;        /* made of the payloads' bytes, so that the reads are not left out */
    struct request scratch;
};

/* Aborts if it does not hold. */
void guest_must(bool holds);

/* Makes the session. `budget`: the most bytes. */
void guest_open(struct guest *guest, const struct session_ops *protocol,
                const struct session_host_ops *host, uint64_t budget);
/* The session is gone: all memory must have been given back. */
void guest_close(struct guest *guest);

/* How a stream of `size` bytes is cut if an input asks for `cut`: long ones not byte by byte, which
 * takes long. */
uint8_t guest_cut(uint8_t cut, size_t size);
/* The size of the next piece; `left` bytes are left. The seed is the cut at first. */
size_t guest_next(uint8_t cut, uint32_t *seed, size_t left);
/* Hands over one piece as a connection does: if the session offers a place, the piece is read into
 * it. Returns how much went. */
size_t guest_feed(struct guest *guest, const uint8_t *data, size_t n);

/* Functions of the host that are the same for all. */
struct slab *guest_slab_take(struct session_host *base, size_t size);
struct slab *guest_slab_left(struct session_host *base, size_t size);
void guest_slab_give(struct session_host *base, struct slab *slab);
size_t guest_queued(struct session_host *base);
struct request *guest_scratch(struct session_host *base);
bool guest_book(struct session_host *base, size_t bytes);
void guest_unbook(struct session_host *base, size_t bytes);
bool guest_needs(struct session_host *base, enum session_need what);
size_t guest_frame_limit(struct session_host *base);
void guest_token(struct session_host *base, struct message_text token);
void guest_end(struct session_host *base, enum session_end why);

#endif
