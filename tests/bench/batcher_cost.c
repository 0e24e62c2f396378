/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the batcher costs a request (submit, step, and its share of a batch), by the number of
 * models and of flows. Time is virtual, so only the decisions are measured: a request every 10 us
 * to a random model, T = 1 ms, max batch 8, and two workers that come back after 50 us.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "batching/batcher.h"

enum { REQUESTS = 1000000, ITEMS = 65536, WORKERS = 2, GAP_NS = 10000, RUN_NS = 50000 };

static uint64_t batches;
static uint32_t ran[WORKERS];      /* instances of the last batch */
static struct batcher_item *spare; /* linked by ->next: the one that was used last is used next */

static void spare_add(struct batcher_item *list)
{
    while (list) {
        struct batcher_item *item = list;
        list = list->next;
        item->next = spare;
        spare = item;
    }
}

static void step_all(struct batcher *batcher, uint64_t now, uint64_t back[WORKERS])
{
    struct batcher_decision d;
    for (uint32_t w = 0; w < WORKERS; w++) {
        if (back[w] && back[w] <= now) {
            batcher_worker_ran(batcher, w, ran[w], RUN_NS);
            batcher_worker_idle(batcher, w);
            back[w] = 0;
        }
    }
    for (batcher_step(batcher, now, &d); d.model; batcher_step(batcher, now, &d)) {
        spare_add(d.batch);
        ran[d.worker] = d.instances;
        back[d.worker] = now + RUN_NS;
        batches++;
    }
}

static double run(uint32_t n_models, uint32_t n_keys, uint32_t n_flows)
{
    static struct batcher_item items[ITEMS];
    static struct batcher_model *models[1000];
    const struct batcher_model_config config = {
        .max_batch = 8, .max_delay_ns = NS_PER_MS, .queue_limit = 1024};
    struct batcher *batcher = batcher_new();
    struct batcher_item *evicted;
    uint64_t now = 0, back[WORKERS] = {1, 1};
    for (uint32_t i = 0; i < n_models; i++)
        batcher_model_add(batcher, &config, &models[i], NULL);
    spare = NULL;
    for (uint32_t i = 0; i < ITEMS; i++) {
        items[i] =
            (struct batcher_item){.instances = 1, .deadline_ns = BATCHER_NEVER, .next = spare};
        spare = &items[i];
    }
    batches = 0;
    srand(1);
    uint64_t before = clock_now_ns();
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct batcher_item *item = spare;
        now += GAP_NS;
        if (!item)
            abort();
        spare = item->next;
        item->shape_key = n_keys > 1 ? (uint32_t)rand() % n_keys : 0;
        item->flow = n_flows > 1 ? (uint32_t)rand() % n_flows : 0;
        batcher_submit(models[(uint32_t)rand() % n_models], item, now, &evicted);
        step_all(batcher, now, back);
    }
    double ns = (double)(clock_now_ns() - before) / REQUESTS;
    batcher_drain(batcher);
    for (uint32_t m = 0; m < n_models;) {
        struct batcher_model_stats stats;
        now += RUN_NS;
        step_all(batcher, now, back);
        batcher_model_stats(models[m], &stats);
        m += stats.queued_items == 0;
    }
    batcher_free(batcher);
    return ns;
}

int main(void)
{
    static const uint32_t models[] = {1, 10, 100, 1000}, keys[] = {1, 16}, flows[] = {1, 64};
    printf("| models | shape keys | flows | ns a request | requests a batch |\n"
           "|---:|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < 16; i++) {
        uint32_t n = models[i % 4], k = keys[i / 8], f = flows[i / 4 % 2];
        double ns = run(n, k, f);
        printf("| %" PRIu32 " | %" PRIu32 " | %" PRIu32 " | %.0f | %.2f |\n", n, k, f, ns,
               (double)REQUESTS / (double)batches);
    }
    return 0;
}
