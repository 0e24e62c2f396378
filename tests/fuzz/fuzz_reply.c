/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the stream of a server, given to the client's reader of frames and its decoder. The
 * first byte is the number of bytes that come at a time. Replies that are accepted are read to
 * their last byte, as a user would read them.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/inbox.h"
#include "client/reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sum; /* so that the reads are not left out */

static void read_bytes(const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        sum += ((const uint8_t *)data)[i];
}

static void read_stages(const struct inferd_histogram *stages)
{
    for (int k = 0; k < INFERD_STAGES; k++) {
        const struct inferd_histogram *h = &stages[k];
        for (uint32_t i = 0; i < h->n_buckets; i++)
            if (h->buckets[i].low_ns >= h->buckets[i].high_ns ||
                (i > 0 && h->buckets[i].low_ns < h->buckets[i - 1].high_ns))
                abort(); /* the pieces are in order and do not overlap */
        sum += inferd_histogram_quantile(h, &stages[0], 0.99);
    }
}

static void read_all(const struct inferd_response *r)
{
    read_bytes(r->message, strlen(r->message));
    read_bytes(r->model, strlen(r->model));
    for (uint32_t i = 0; i < r->n_outputs; i++) {
        read_bytes(r->outputs[i].name, strlen(r->outputs[i].name));
        read_bytes(r->outputs[i].data, r->outputs[i].size);
    }
    for (uint32_t i = 0; r->metadata && i < r->metadata->n_inputs; i++)
        read_bytes(r->metadata->inputs[i].name, strlen(r->metadata->inputs[i].name));
    for (uint32_t i = 0; r->statistics && i < r->statistics->n_models; i++)
        read_bytes(r->statistics->models[i].name, strlen(r->statistics->models[i].name));
    for (uint32_t i = 0; r->index && i < r->index->n_models; i++)
        read_bytes(r->index->models[i].state, strlen(r->index->models[i].state));
    for (uint32_t i = 0; r->status_page && i < r->status_page->n_models; i++)
        read_bytes(r->status_page->models[i].reason, strlen(r->status_page->models[i].reason));
    for (uint32_t i = 0; r->status_page && i < r->status_page->n_models; i++)
        read_stages(r->status_page->models[i].stages);
    for (uint32_t i = 0; r->status_page && i < r->status_page->n_memory; i++)
        read_bytes(r->status_page->memory[i].name, strlen(r->status_page->memory[i].name));
    for (uint32_t i = 0; r->server && i < r->server->n_extensions; i++)
        read_bytes(r->server->extensions[i], strlen(r->server->extensions[i]));
}

static void take_messages(struct inbox *in, struct reply *reply)
{
    const void *message;
    size_t size;
    while (inbox_next(in, &message, &size, NULL) == STATUS_OK && message) {
        if (reply_decode(reply, message, size, NULL) == STATUS_OK)
            read_all(&reply->response);
        for (int kind = INFERD_INFER; kind <= INFERD_STATUS; kind++)
            sum += reply_fits(reply, (enum inferd_kind)kind);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct reply reply;
    struct inbox in;
    if (size < 1)
        return 0;
    size_t step = (size_t)data[0] + 1;
    inbox_init(&in, 1 << 20);
    for (size_t at = 1; at < size;) {
        void *to;
        size_t room, n = step < size - at ? step : size - at;
        if (inbox_room(&in, &to, &room, NULL))
            break;
        n = n < room ? n : room;
        memcpy(to, data + at, n);
        inbox_filled(&in, n);
        at += n;
        take_messages(&in, &reply);
    }
    inbox_deinit(&in);
    reply_deinit(&reply);
    return 0;
}
