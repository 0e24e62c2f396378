/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Classes in the place of outputs (classify.h). A request whose outputs are large is not answered
 * at once: it waits on a list of its loop, and each turn of the loop gives a slice of time to the
 * one that has waited for longest. Meanwhile it is a request like any other that its connection has
 * in flight, so it can be abandoned, and ends with its connection.
 *
 * A worker must not wait for it. So either its batch is kept, if the worker has enough other
 * buffers (dispatch_keep), or the outputs are copied first, into memory that its connection is
 * charged for, and the batch goes back.
 */
#include <string.h>
#include <utlist.h>

#include "base/clock.h"
#include "daemon/classify.h"
#include "daemon/exchange_internal.h"
#include "daemon/loop.h"
#include "daemon/pipeline.h"

enum {
    STEP = 1024,            /* elements between two looks at the clock */
    AT_ONCE = 2 * STEP,     /* elements of a request that is answered without a wait */
    COPY_STEP = 256 * 1024, /* bytes that are copied between two looks */
};

struct exchange_classes {
    struct exchange_classes *prev, *next; /* utlist DL, of the loop */
    struct inflight *request;
    bool waits;    /* it is on that list */
    bool begun;    /* output k has been */
    uint32_t k;    /* the output whose classes are being found */
    char *to;      /* where its texts go */
    uint8_t *copy; /* where the next output is copied to; NULL: none is copied (any more) */
    uint32_t copy_k;
    size_t copied; /* bytes of it */
    struct response_timing timing;
    struct classify now;
    struct message_tensor outputs[];
};

size_t exchange_classes_room(const struct response *response, const struct inflight *inflight)
{
    bool batched = inflight->model->info->batched;
    size_t room = 0;
    for (uint32_t k = 0; k < inflight->n_outputs; k++)
        if (inflight->classes[k])
            room += classify_room(&response->outputs[k], batched, inflight->classes[k]);
    return room;
}

void exchange_classes_fill(struct response *response, const struct inflight *inflight)
{
    const struct exchange_classes *s = inflight->found;
    response->timing = s->timing;
    response->n_outputs = inflight->n_outputs;
    memcpy(response->outputs, s->outputs, inflight->n_outputs * sizeof(s->outputs[0]));
}

/* --- steps --- */

/* Finds classes for about as long as `work` elements take. True: all are there. */
static bool find(struct exchange_classes *s, size_t work)
{
    const struct inflight *inflight = s->request;
    for (; s->k < inflight->n_outputs; s->k++) {
        struct message_tensor *output = &s->outputs[s->k];
        if (!inflight->classes[s->k])
            continue;
        if (!s->begun)
            classify_begin(&s->now, output, inflight->model->info->batched, inflight->classes[s->k],
                           s->to);
        s->begun = true;
        if (!classify_step(&s->now, &work))
            return false;
        s->begun = false;
        s->to += output->size;
    }
    return true;
}

/* The outputs are in memory of the request's own, so that the worker has its buffer back. */
static void batch_give(struct loop *loop, struct inflight *inflight)
{
    struct batch *done = NULL;
    dispatch_release(inflight, &done);
    if (done)
        dispatch_recycle(loop->shared->dispatch, done);
}

/* Whether an output is read where the batch left it, and not where its classes were written. */
static bool is_in_batch(const struct exchange_classes *s, uint32_t k)
{
    return s->outputs[k].size && (k >= s->k || !s->request->classes[k]);
}

/* Copies a part of the outputs. */
static void copy(struct loop *loop, struct exchange_classes *s)
{
    while (s->copy_k < s->request->n_outputs && !is_in_batch(s, s->copy_k))
        s->copy_k++;
    if (s->copy_k == s->request->n_outputs) {
        s->copy = NULL;
        batch_give(loop, s->request);
        return;
    }
    struct message_tensor *output = &s->outputs[s->copy_k];
    size_t n = MIN(output->size - s->copied, (size_t)COPY_STEP);
    memcpy(s->copy + s->copied, (const uint8_t *)output->data + s->copied, n);
    s->copied += n;
    if (s->copied < output->size)
        return;
    output->data = s->copy;
    s->copy += (output->size + SLAB_ALIGN - 1) / SLAB_ALIGN * SLAB_ALIGN;
    s->copied = 0;
    s->copy_k++;
}

/* --- the beginning --- */

static struct exchange_classes *state_new(struct loop *loop, const struct response *response,
                                          struct inflight *inflight, size_t room)
{
    struct exchange_classes *s;
    size_t size = sizeof(*s) + inflight->n_outputs * sizeof(s->outputs[0]);
    inflight->texts = slabs_take(loop->slabs, size + room, SLAB_REPLY);
    if (!inflight->texts)
        return NULL;
    s = (void *)inflight->texts->data;
    s->request = inflight;
    s->waits = s->begun = false;
    s->k = s->copy_k = 0;
    s->to = (char *)inflight->texts->data + size;
    s->copy = NULL;
    s->copied = 0;
    s->timing = response->timing;
    memcpy(s->outputs, response->outputs, inflight->n_outputs * sizeof(s->outputs[0]));
    return s;
}

/* Sees to it that the outputs stay and that no worker waits for them. Those of a pipeline do: its
 * steps were kept, or copied. False: there is no memory. */
static bool outputs_stay(struct connection *c, struct exchange_classes *s)
{
    struct inflight *inflight = s->request;
    size_t size = 0;
    if (inflight->run || dispatch_keep(inflight))
        return true;
    for (uint32_t k = 0; k < inflight->n_outputs; k++)
        if (is_in_batch(s, k))
            size += (s->outputs[k].size + SLAB_ALIGN - 1) / SLAB_ALIGN * SLAB_ALIGN;
    struct slab *slab = connection_slab_take(c, size);
    if (!slab)
        return false;
    slab->next = inflight->rooms;
    inflight->rooms = slab;
    s->copy = slab->data;
    return true;
}

bool exchange_classes_begin(struct connection *c, const struct response *response,
                            struct inflight *inflight)
{
    struct loop *loop = c->loop;
    size_t room = exchange_classes_room(response, inflight);
    if (!room)
        return false;
    loop->result_costly = true;
    inflight->found = state_new(loop, response, inflight, room);
    if (!inflight->found || find(inflight->found, AT_ONCE))
        return false;
    if (!outputs_stay(c, inflight->found)) {
        inflight->found = NULL;
        return false;
    }
    inflight->found->waits = true;
    DL_APPEND(loop->classes, inflight->found);
    return true;
}

/* --- turns --- */

void exchange_classes_drop(struct loop *loop, struct inflight *inflight)
{
    struct exchange_classes *s = STEAL(inflight->found);
    if (s && s->waits)
        DL_DELETE(loop->classes, s);
}

/* Whether anybody still waits for it. */
static bool is_wanted(const struct loop *loop, const struct exchange_classes *s)
{
    const struct connection *c = loop_connection(loop, s->request->connection);
    return c && c->phase < CONNECTION_DYING;
}

/* Goes on until that time. True: all classes are there, or nobody wants them. */
static bool go_on(struct loop *loop, struct exchange_classes *s, uint64_t end_ns)
{
    bool over = !is_wanted(loop, s);
    while (!over) {
        if (s->copy)
            copy(loop, s);
        else
            over = find(s, STEP);
        if (clock_now_ns() >= end_ns)
            break;
    }
    return over;
}

void exchange_classes_turn(struct loop *loop)
{
    uint64_t end_ns = clock_now_ns() + LOOP_SLICE_NS;
    do {
        struct exchange_classes *s = loop->classes;
        bool over = go_on(loop, s, end_ns);
        DL_DELETE(loop->classes, s);
        s->waits = !over;
        if (over)
            exchange_result_end(loop, s->request);
        else
            DL_APPEND(loop->classes, s);
    } while (loop->classes && clock_now_ns() < end_ns);
}
