/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the batcher costs a request: submit, step, and its share of a batch, over how many models
 * there are. Time is virtual, so this is the decision alone: a request every 10 us to a random
 * model, T = 1 ms, max batch 8, two workers that are back after 50 us.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "batching/batcher.h"

enum { REQUESTS = 1000000, ITEMS = 65536, WORKERS = 2, GAP_NS = 10000, RUN_NS = 50000 };

static uint64_t batches;

static void step_all(struct batcher *batcher, uint64_t now, uint64_t back[WORKERS])
{
    struct batcher_decision d;
    for (uint32_t w = 0; w < WORKERS; w++) {
        if (back[w] && back[w] <= now) {
            batcher_worker_idle(batcher, w);
            back[w] = 0;
        }
    }
    for (batcher_step(batcher, now, &d); d.model; batcher_step(batcher, now, &d)) {
        back[d.worker] = now + RUN_NS;
        batches++;
    }
}

static double run(uint32_t n_models, uint32_t n_keys)
{
    static struct batcher_item items[ITEMS];
    static struct batcher_model *models[1000];
    const struct batcher_model_config config = {
        .max_batch = 8, .max_delay_ns = NS_PER_MS, .queue_limit = 1024};
    struct batcher *batcher = batcher_new();
    uint64_t now = 0, back[WORKERS] = {1, 1};
    for (uint32_t i = 0; i < n_models; i++)
        batcher_model_add(batcher, &config, &models[i], NULL);
    for (uint32_t i = 0; i < ITEMS; i++)
        items[i] = (struct batcher_item){.instances = 1, .deadline_ns = BATCHER_NEVER};
    batches = 0;
    srand(1);
    uint64_t before = clock_now_ns();
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct batcher_item *item = &items[i % ITEMS];
        now += GAP_NS;
        if (item->model)
            abort();
        item->shape_key = n_keys > 1 ? (uint32_t)rand() % n_keys : 0;
        batcher_submit(models[(uint32_t)rand() % n_models], item, now, NULL);
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
    static const uint32_t models[] = {1, 10, 100, 1000}, keys[] = {1, 16};
    printf("| models | shape keys | ns a request | requests a batch |\n|---:|---:|---:|---:|\n");
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < 4; i++) {
            double ns = run(models[i], keys[k]);
            printf("| %" PRIu32 " | %" PRIu32 " | %.0f | %.2f |\n", models[i], keys[k], ns,
                   (double)REQUESTS / (double)batches);
        }
    }
    return 0;
}
