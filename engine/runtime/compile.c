/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Before ops are prepared, compiled tactics are loaded, and tactics without compiled code are
 * compiled. Several threads do it, because each node takes up to milliseconds, and once for all
 * contexts of an engine, because the device keeps the results. Only a backend that compiles is
 * asked.
 */
#include <pthread.h>
#include <unistd.h>

#include "engine/runtime/internal.h"

enum { THREADS_MAX = 8, NODES_A_THREAD = 4 /* fewer are not worth a thread */ };

/* One profile's nodes. */
struct work {
    const struct engine *engine;
    const struct ir_graph *graph;
    atomic_uint next; /* relaxed: it only hands out numbers */
};

static bool compiles(const struct work *work, const struct ir_node *node)
{
    const struct ir_segment *segment = &work->graph->segments[node->segment];
    return node->tactic && !engine_segment_on_host(work->engine, segment);
}

static void *compile_nodes(void *arg)
{
    struct work *work = arg;
    struct device *device = work->engine->device;
    for (;;) {
        uint32_t i = atomic_fetch_add_explicit(&work->next, 1, memory_order_relaxed);
        if (i >= work->graph->n_nodes)
            return NULL;
        const struct ir_node *node = ir_node(work->graph, i);
        if (!compiles(work, node))
            continue;
        /* A failure is not told here: op_prepare meets it again. */
        (void)device->backend->compile(device, work->graph, node, node->tactic, NULL);
    }
}

static uint32_t thread_count(uint32_t n_nodes)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t most = MIN((uint32_t)MAX(cores, 1L), (uint32_t)THREADS_MAX);
    return MIN(most, 1 + n_nodes / NODES_A_THREAD);
}

/* The caller works too, so the work is done even if no thread can be started. */
static void compile_profile(struct work *work)
{
    pthread_t threads[THREADS_MAX];
    uint32_t n = 0, wanted = thread_count(work->graph->n_nodes) - 1;
    while (n < wanted && pthread_create(&threads[n], NULL, compile_nodes, work) == 0)
        n++;
    compile_nodes(work);
    while (n)
        pthread_join(threads[--n], NULL);
}

void engine_compile(struct engine *engine, uint32_t profile)
{
    if (!engine->device->backend->compile)
        return;
    pthread_mutex_lock(&engine->lock);
    if (!engine->compiled[profile]) {
        struct work work = {.engine = engine, .graph = engine->plan->profiles[profile].graph};
        compile_profile(&work);
        engine->compiled[profile] = true;
    }
    pthread_mutex_unlock(&engine->lock);
}
