/* SPDX-License-Identifier: Apache-2.0 */
/* Frames by their heads, see h2_calm.h. */
#include "daemon/h2_calm.h"

#include <string.h>

#include "base/compiler.h"

enum {
    TYPE_DATA = 0,
    TYPE_HEADERS = 1,
    TYPE_RESET = 3,
    TYPE_CONTINUATION = 9,
    FLAG_END_HEADERS = 4,
};

void h2_calm_init(struct h2_calm *calm, uint64_t now_ms)
{
    *calm = (struct h2_calm){.credit = H2_CALM_MOST, .at_ms = now_ms};
}

void h2_calm_earn(struct h2_calm *calm, uint64_t credit)
{
    calm->credit = (int64_t)MIN((uint64_t)calm->credit + MIN(credit, (uint64_t)H2_CALM_MOST),
                                (uint64_t)H2_CALM_MOST);
}

bool h2_calm_spend(struct h2_calm *calm, uint32_t credit, uint64_t now_ms)
{
    uint64_t earned = (now_ms - calm->at_ms) * H2_CALM_A_SECOND / 1000;
    if (earned) {
        h2_calm_earn(calm, earned);
        calm->at_ms = now_ms;
    }
    if (calm->credit < credit)
        return false;
    calm->credit -= credit;
    return true;
}

/* What a frame costs. Headers cost nothing here, since there are only so many streams; data earns
 * by its bytes. */
static bool frame_pay(struct h2_calm *calm, uint32_t length, uint64_t now_ms)
{
    if (calm->type == TYPE_HEADERS)
        return true;
    if (calm->type == TYPE_DATA)
        h2_calm_earn(calm, length / H2_CALM_BYTES);
    return h2_calm_spend(calm, calm->type == TYPE_RESET ? H2_CALM_RESET : 1, now_ms);
}

static enum h2_calm_verdict block_follow(struct h2_calm *calm, uint32_t length)
{
    if (calm->type == TYPE_HEADERS) {
        calm->continuations = calm->block_bytes = 0;
        calm->block = true;
    } else if (calm->type == TYPE_CONTINUATION) {
        calm->continuations++;
    } else {
        return H2_CALM_FINE;
    }
    calm->block_bytes += length;
    if (calm->flags & FLAG_END_HEADERS)
        calm->block = false;
    return calm->continuations > H2_CONTINUATIONS || calm->block_bytes > H2_BLOCK_BYTES
               ? H2_CALM_BLOCK
               : H2_CALM_FINE;
}

/* A head is complete. */
static enum h2_calm_verdict frame_begin(struct h2_calm *calm, uint64_t now_ms)
{
    const uint8_t *head = calm->head;
    calm->left = (uint32_t)head[0] << 16 | (uint32_t)head[1] << 8 | head[2];
    calm->type = head[3];
    calm->flags = head[4];
    calm->n_head = 0;
    calm->heads += calm->type != TYPE_CONTINUATION;
    enum h2_calm_verdict verdict = block_follow(calm, calm->left);
    if (verdict)
        return verdict;
    return frame_pay(calm, calm->left, now_ms) ? H2_CALM_FINE : H2_CALM_FLOOD;
}

enum h2_calm_verdict h2_calm_feed(struct h2_calm *calm, const void *data, size_t size,
                                  uint64_t now_ms)
{
    const uint8_t *at = data, *end = at + size;
    enum h2_calm_verdict verdict = H2_CALM_FINE;
    size_t preface = MIN(size, (size_t)(H2_PREFACE - calm->preface));
    calm->preface += (uint32_t)preface;
    at += preface;
    while (at < end && !verdict) {
        size_t left = (size_t)(end - at);
        size_t n = MIN(left, (size_t)(calm->left ? calm->left : H2_FRAME_HEAD - calm->n_head));
        if (calm->left) {
            calm->left -= (uint32_t)n;
        } else {
            memcpy(calm->head + calm->n_head, at, n);
            calm->n_head += (uint32_t)n;
            if (calm->n_head == H2_FRAME_HEAD)
                verdict = frame_begin(calm, now_ms);
        }
        at += n;
    }
    return verdict;
}

bool h2_calm_in_head(const struct h2_calm *calm)
{
    return calm->preface < H2_PREFACE || calm->n_head || calm->block ||
           (calm->left && calm->type != TYPE_DATA);
}
