/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The workers' shelves (engine.h): memory of the device where a batch of a pipeline's step leaves
 * what the next steps take, so that it does not go to the host and back.
 *
 * A batch has its shelf from right before it runs until nobody holds its output buffer any more,
 * and counts as kept all that time. There are as many shelves as batches may be kept. So whoever
 * finds its outputs on a shelf may keep them there, and workers cannot wait for each other. A batch
 * that finds no shelf leaves its outputs on the host, as all others do.
 */
#include "base/cleanup.h"
#include "daemon/dispatch.h"
#include "daemon/dispatch_internal.h"

void dispatch_shelf_take(struct dispatch *d, struct batch *batch)
{
    struct dispatch_worker *worker = &d->workers[batch->worker];
    pthread_mutex_lock(&d->lock);
    if (worker->n_shelves && worker->kept < DISPATCH_KEPT &&
        batch->profile->out_bytes <= worker->shelf_size) {
        batch->shelf = worker->shelves[--worker->n_shelves];
        batch->keepers++; /* the batch itself */
        worker->kept++;
    }
    pthread_mutex_unlock(&d->lock);
}

void dispatch_shelf_give(struct dispatch_worker *worker, struct batch *batch)
{
    if (!batch->shelf)
        return;
    worker->shelves[worker->n_shelves++] = batch->shelf;
    batch->shelf = NULL;
    batch->shelved = 0;
    batch->keepers--;
    worker->kept--;
}

void dispatch_shelves_free(struct dispatch_worker *worker)
{
    for (uint32_t i = 0; i < DISPATCH_KEPT; i++)
        shelf_free(worker->all_shelves[i]);
}

static enum status worker_grow(struct dispatch *d, struct dispatch_worker *worker, size_t size,
                               struct error *err)
{
    /* Only the thread that loads changes shelf_size, so it may read it without the lock. */
    if (size <= worker->shelf_size)
        return STATUS_OK;
    for (uint32_t i = 0; i < DISPATCH_KEPT; i++) {
        struct shelf **shelf = &worker->all_shelves[i];
        bool fresh = !*shelf;
        if (fresh)
            TRY(shelf_new(d->config.device, shelf, err));
        if (fresh) {
            pthread_mutex_lock(&d->lock);
            worker->shelves[worker->n_shelves++] = *shelf;
            pthread_mutex_unlock(&d->lock);
        }
        TRY(shelf_grow(*shelf, size, err)); /* they are as large as is said, or larger */
    }
    pthread_mutex_lock(&d->lock);
    worker->shelf_size = size;
    pthread_mutex_unlock(&d->lock);
    return STATUS_OK;
}

enum status dispatch_shelves_grow(struct dispatch *d, size_t size, struct error *err)
{
    CLEANUP(cleanup_unlock) UNUSED pthread_mutex_t *held = cleanup_lock(&d->loading);
    for (uint32_t w = 0; w < d->config.workers; w++)
        TRY(worker_grow(d, &d->workers[w], size, err));
    return STATUS_OK;
}
