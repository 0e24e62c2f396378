/* SPDX-License-Identifier: Apache-2.0 */
/* The plan as an object; see plan.h. */
#include "engine/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct plan *plan_new(void)
{
    struct plan *plan = calloc(1, sizeof(*plan));
    if (!plan)
        return NULL;
    plan->name = "";
    plan->arena = arena_new(0);
    if (!plan->arena) {
        free(plan);
        return NULL;
    }
    return plan;
}

void plan_free(struct plan *plan)
{
    if (!plan)
        return;
    for (uint32_t i = 0; i < plan->n_profiles; i++)
        ir_graph_free(plan->profiles[i].graph);
    arena_free(plan->arena);
    free(plan->tail_memory);
    file_unmap(&plan->map);
    free(plan);
}

void plan_cleanup(struct plan **at)
{
    plan_free(*at);
}

void plan_device_line(char out[PLAN_DEVICE_MAX], const char *device, const char *host)
{
    snprintf(out, PLAN_DEVICE_MAX, "%.*s%s%.*s", FINGERPRINT_MAX - 4, device, host ? " | " : "",
             FINGERPRINT_MAX - 1, host ? host : "");
}

bool plan_needs_host(const struct plan *plan, const char *backend)
{
    for (uint32_t p = 0; p < plan->n_profiles; p++)
        for (uint32_t i = 0; i < plan->profiles[p].graph->n_segments; i++)
            if (strcmp(plan->profiles[p].graph->segments[i].backend, backend) != 0)
                return true;
    return false;
}

bool plan_name_ok(const char *name)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/:";
    size_t len = strlen(name);
    return len >= 1 && len <= PLAN_NAME_MAX && strspn(name, allowed) == len;
}

bool plan_same_point(const struct plan *plan, const struct plan_profile *a,
                     const struct plan_profile *b)
{
    return memcmp(a->values, b->values, plan->n_free * sizeof(a->values[0])) == 0;
}

uint64_t plan_profile_time(const struct plan_profile *profile)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < profile->graph->n_nodes; i++)
        if (__builtin_add_overflow(sum, ir_node(profile->graph, i)->time_ns, &sum))
            return UINT64_MAX;
    return sum;
}
