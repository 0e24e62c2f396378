/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Typed contents of a large frame. They can be tens of millions of elements, each an integer of
 * variable length, and would keep a loop busy for most of a second, so they are unpacked in slices
 * of the loop's time. The frame stays until the end, the connection takes no other request
 * meanwhile, and the time counts as part of the request's.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "daemon/admission.h"
#include "daemon/exchange_internal.h"
#include "daemon/loop.h"

enum { STEP = 16 * 1024 /* bytes of contents between two looks at the clock */ };

struct exchange_unpack {
    struct inflight *request;
    struct slab *frame;
    uint32_t k, n; /* the input that is being unpacked, and how many there are */
    bool begun;    /* input k has been begun */
    struct message_unpacking now;
    struct message_tensor inputs[]; /* in the model's order; they point into the frame */
};

static void unpack_free(struct connection *c)
{
    struct exchange_unpack *unpack = STEAL(c->unpack);
    connection_slab_give(c, unpack->frame);
    free(unpack);
}

void exchange_unpack_cancel(struct connection *c, const struct inflight *inflight)
{
    if (c->unpack && c->unpack->request == inflight)
        unpack_free(c);
}

void exchange_unpack_drop(struct connection *c)
{
    if (!c->unpack)
        return;
    struct inflight *inflight = c->unpack->request;
    unpack_free(c);
    peer_requests_out(c->peer);
    exchange_drop(c, inflight);
}

void exchange_unpack_withdraw(struct connection *c, uint64_t id)
{
    if (c->unpack && c->unpack->request->id == id)
        exchange_unpack_drop(c);
}

enum status exchange_unpack_begin(struct connection *c, const struct request *request,
                                  const uint8_t *input, struct inflight *inflight,
                                  struct slab **frame, struct error *err)
{
    uint32_t n = inflight->model->info->n_inputs;
    CLEANUP(cleanup_free)
    struct exchange_unpack *unpack = calloc(1, sizeof(*unpack) + n * sizeof(unpack->inputs[0]));
    if (!unpack)
        return error_plain(err, CAUSE_OVER_BUDGET);
    uint8_t *to = inflight->slab->data;
    for (uint32_t k = 0; k < n; k++) {
        size_t size = 0;
        unpack->inputs[k] = request->inputs[input[k]];
        if (!shape_bytes(&unpack->inputs[k].shape, unpack->inputs[k].dtype, &size))
            return error_set(err, STATUS_INVALID_ARGUMENT, "input too large");
        inflight->spans[k] = (struct engine_span){to, size};
        to += (size + ADMISSION_ALIGN - 1) & ~(size_t)(ADMISSION_ALIGN - 1);
    }
    unpack->request = inflight;
    unpack->n = n;
    unpack->frame = STEAL(*frame);
    c->unpack = STEAL(unpack);
    return STATUS_OK;
}

/* Takes one step. *done: all inputs are there. */
static enum status unpack_step(struct exchange_unpack *unpack, bool *done, struct error *err)
{
    bool input_done = false;
    const struct engine_span *span = &unpack->request->spans[unpack->k];
    *done = unpack->k == unpack->n;
    if (*done)
        return STATUS_OK;
    if (!unpack->begun)
        TRY(message_unpack_begin(&unpack->now, &unpack->inputs[unpack->k],
                                 (void *)(uintptr_t)span->data, span->size, err));
    unpack->begun = true;
    TRY(message_unpack_step(&unpack->now, STEP, &input_done, err));
    if (input_done) {
        unpack->begun = false;
        unpack->k++;
        *done = unpack->k == unpack->n;
    }
    return STATUS_OK;
}

/* Steps until all inputs are there (*done) or the loop's slice is over. */
static enum status unpack_slice(struct connection *c, bool *done, struct error *err)
{
    do {
        TRY(unpack_step(c->unpack, done, err));
    } while (!*done && !loop_slice_over(c->loop));
    return STATUS_OK;
}

void exchange_unpack_go_on(struct connection *c)
{
    struct error err;
    bool done = false;
    enum status status = unpack_slice(c, &done, &err);
    struct inflight *inflight = c->unpack->request;
    if (status) {
        uint64_t id = inflight->id;
        model_unrun(inflight->model, err.cause);
        exchange_unpack_drop(c);
        exchange_error(c, id, &err);
    } else if (done) {
        unpack_free(c);
        exchange_submit(c, inflight);
    }
}
