/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs that do not lie in the message as the worker reads them: typed contents of a large frame,
 * and what lies in regions of shared memory. Typed contents can be tens of millions of elements,
 * each an integer of variable length, and would keep a loop busy for most of a second; a region is
 * as large as its client likes. So both are taken in slices of the loop's time. The frame stays
 * until the end, the connection takes no other request meanwhile, and the time counts as part of
 * the request's.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "daemon/admission.h"
#include "daemon/exchange_internal.h"
#include "daemon/loop.h"
#include "daemon/regions.h"

enum { STEP = 16 * 1024 /* bytes of contents between two looks at the clock */ };
enum { COPY_STEP = 256 * 1024 /* the same of bytes that are copied */ };

struct input {
    struct message_tensor tensor;
    struct region *region; /* a reference; NULL: it lies in the frame */
    bool there;            /* it was unpacked when all began */
};

struct exchange_unpack {
    struct inflight *request;
    struct slab *frame; /* NULL: there is none */
    uint32_t k, n;      /* the input that is being unpacked, and how many there are */
    bool begun;         /* input k has been begun */
    size_t copied;      /* bytes of it, if it is copied */
    struct message_unpacking now;
    struct input inputs[]; /* in the model's order; they point into the frame */
};

static void regions_give(struct exchange_unpack *unpack)
{
    for (uint32_t k = 0; k < unpack->n; k++)
        region_give(unpack->inputs[k].region);
}

static void unpack_free(struct connection *c)
{
    struct exchange_unpack *unpack = STEAL(c->unpack);
    connection_slab_give(c, unpack->frame);
    regions_give(unpack);
    free(unpack);
}

static void unpack_cleanup(struct exchange_unpack **unpack)
{
    if (*unpack)
        regions_give(*unpack);
    free(*unpack);
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

/* What lies in memory that is there during this call only. */
static enum status input_unpack(struct input *input, void *to, size_t size, struct error *err)
{
    const struct message_tensor *t = &input->tensor;
    if (t->typed)
        TRY(message_unpack(t, to, size, err));
    else if (size)
        memcpy(to, t->data, size);
    input->there = true;
    return STATUS_OK;
}

static enum status input_begin(struct connection *c, const struct identity *who,
                               struct input *input, bool stays, const struct engine_span *span,
                               struct error *err)
{
    const struct message_region *place = &input->tensor.region;
    if (place->sized) {
        struct regions_owner owner;
        regions_owner_of(c->loop->table->identities, who, c->fd, c->peer, &owner);
        return region_take(c->loop->shared->regions, &owner, place, &input->region, err);
    }
    return stays ? STATUS_OK : input_unpack(input, (void *)(uintptr_t)span->data, span->size, err);
}

enum status exchange_unpack_begin(struct connection *c, const struct request *request,
                                  const struct identity *who, const uint8_t *input,
                                  struct inflight *inflight, struct slab **frame, struct error *err)
{
    uint32_t n = inflight->model->info->n_inputs;
    CLEANUP(unpack_cleanup)
    struct exchange_unpack *unpack = calloc(1, sizeof(*unpack) + n * sizeof(unpack->inputs[0]));
    if (!unpack)
        return error_plain(err, CAUSE_OVER_BUDGET);
    unpack->n = n;
    uint8_t *to = inflight->slab->data;
    for (uint32_t k = 0; k < n; k++) {
        size_t size = 0;
        struct message_tensor *t = &unpack->inputs[k].tensor;
        *t = request->inputs[input[k]];
        if (!shape_bytes(&t->shape, t->dtype, &size))
            return error_set(err, STATUS_INVALID_ARGUMENT, "input too large");
        inflight->spans[k] = (struct engine_span){to, size};
        TRY(input_begin(c, who, &unpack->inputs[k], *frame != NULL, &inflight->spans[k], err));
        to += (size + ADMISSION_ALIGN - 1) & ~(size_t)(ADMISSION_ALIGN - 1);
    }
    unpack->request = inflight;
    unpack->frame = STEAL(*frame);
    c->unpack = STEAL(unpack);
    return STATUS_OK;
}

/* A step of an input that is copied, from a region or from the frame. */
static enum status copy_step(struct exchange_unpack *unpack, const struct input *input, bool *done,
                             struct error *err)
{
    const struct engine_span *span = &unpack->request->spans[unpack->k];
    const struct message_tensor *t = &input->tensor;
    uint8_t *to = (uint8_t *)(uintptr_t)span->data + unpack->copied;
    size_t size = MIN(span->size - unpack->copied, (size_t)COPY_STEP);
    if (input->region)
        TRY(region_read(input->region, t->region.offset + unpack->copied, to, size, err));
    else if (t->data)
        memcpy(to, (const uint8_t *)t->data + unpack->copied, size);
    unpack->copied += size;
    *done = unpack->copied == span->size;
    return STATUS_OK;
}

static enum status typed_step(struct exchange_unpack *unpack, const struct input *input, bool *done,
                              struct error *err)
{
    const struct engine_span *span = &unpack->request->spans[unpack->k];
    if (!unpack->begun)
        TRY(message_unpack_begin(&unpack->now, &input->tensor, (void *)(uintptr_t)span->data,
                                 span->size, err));
    unpack->begun = true;
    return message_unpack_step(&unpack->now, STEP, done, err);
}

/* Takes one step. *done: all inputs are there. */
static enum status unpack_step(struct exchange_unpack *unpack, bool *done, struct error *err)
{
    *done = unpack->k == unpack->n;
    if (*done)
        return STATUS_OK;
    const struct input *input = &unpack->inputs[unpack->k];
    bool input_done = input->there;
    if (!input->there && input->tensor.typed)
        TRY(typed_step(unpack, input, &input_done, err));
    else if (!input->there)
        TRY(copy_step(unpack, input, &input_done, err));
    if (input_done) {
        unpack->begun = false;
        unpack->copied = 0;
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
