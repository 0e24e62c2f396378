/* SPDX-License-Identifier: Apache-2.0 */
/* The send queue; see outbox.h. */
#include "client/outbox.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

void outbox_deinit(struct outbox *out)
{
    free(out->bytes);
    free(out->pieces);
    *out = (struct outbox){0};
}

static enum status reserve(struct outbox *out, size_t bytes, uint32_t pieces, struct error *err)
{
    if (out->cap - out->used < bytes) {
        size_t cap = MAX(out->cap * 2, out->used + bytes + 4096);
        uint8_t *grown = realloc(out->bytes, cap);
        if (!grown)
            return error_no_memory(err, "a request");
        out->bytes = grown;
        out->cap = cap;
    }
    if (out->n_cap - out->n < pieces) {
        uint32_t cap = MAX(out->n_cap * 2, out->n + pieces + 16);
        struct outbox_piece *grown = reallocarray(out->pieces, cap, sizeof(*grown));
        if (!grown)
            return error_no_memory(err, "a request");
        out->pieces = grown;
        out->n_cap = cap;
    }
    return STATUS_OK;
}

static void copy(struct outbox *out, const struct iovec *piece)
{
    assert(out->pieces); /* reserve() has made room */
    memcpy(out->bytes + out->used, piece->iov_base, piece->iov_len);
    struct outbox_piece *last = out->n ? &out->pieces[out->n - 1] : NULL;
    if (last && !last->ref && out->first < out->n)
        last->len += piece->iov_len;
    else
        out->pieces[out->n++] = (struct outbox_piece){.offset = out->used, .len = piece->iov_len};
    out->used += piece->iov_len;
}

static bool is_copied(const struct outbox_frame *frame, const struct iovec *piece)
{
    const uint8_t *base = piece->iov_base;
    return piece->iov_len <= OUTBOX_COPY_MAX ||
           (base >= frame->head && base < frame->head + frame->head_size);
}

enum status outbox_add(struct outbox *out, const struct outbox_frame *frame, uint8_t **start,
                       size_t *size, struct error *err)
{
    size_t total = 0, copied = 0;
    for (uint32_t i = 0; i < frame->n; i++) {
        total += frame->iov[i].iov_len;
        copied += is_copied(frame, &frame->iov[i]) ? frame->iov[i].iov_len : 0;
    }
    TRY(reserve(out, copied, frame->n, err));
    *start = out->bytes + out->used;
    *size = total;
    for (uint32_t i = 0; i < frame->n; i++) {
        const struct iovec *piece = &frame->iov[i];
        if (is_copied(frame, piece))
            copy(out, piece);
        else
            out->pieces[out->n++] =
                (struct outbox_piece){.ref = piece->iov_base, .len = piece->iov_len};
    }
    return STATUS_OK;
}

uint32_t outbox_pieces(const struct outbox *out, struct iovec *iov, uint32_t max)
{
    uint32_t n = 0;
    size_t skip = out->sent;
    for (uint32_t i = out->first; i < out->n && n < max; i++) {
        const struct outbox_piece *p = &out->pieces[i];
        const uint8_t *data = p->ref ? p->ref : out->bytes + p->offset;
        iov[n++] =
            (struct iovec){.iov_base = (void *)(uintptr_t)(data + skip), .iov_len = p->len - skip};
        skip = 0;
    }
    return n;
}

void outbox_sent(struct outbox *out, size_t size)
{
    while (size > 0) {
        size_t left = out->pieces[out->first].len - out->sent;
        if (size < left) {
            out->sent += size;
            return;
        }
        size -= left;
        out->sent = 0;
        out->first++;
    }
    if (out->first == out->n)
        out->first = out->n = 0, out->used = 0;
}
