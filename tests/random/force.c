/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/random/force.h"

#include <string.h>

static struct {
    struct backend table;
    int turn;
    uint32_t most;
    FILE *names;
} forced;

struct pick {
    uint32_t count, want;
    tactic_visit visit;
    void *user;
};

static enum status count_one(void *user, const struct tactic *tactic, struct error *err)
{
    struct pick *pick = user;
    (void)tactic;
    (void)err;
    pick->count++;
    return STATUS_OK;
}

static enum status visit_one(void *user, const struct tactic *tactic, struct error *err)
{
    struct pick *pick = user;
    if (pick->count++ != pick->want)
        return STATUS_OK;
    if (forced.names)
        fprintf(forced.names, "tactic %s\n", tactic->name);
    return pick->visit(pick->user, tactic, err);
}

static enum status candidates(struct device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    struct pick pick = {.visit = visit, .user = user};
    enum status status =
        backend_cpu.candidates(device, graph, node, precision, count_one, &pick, err);
    if (forced.most < pick.count)
        forced.most = pick.count;
    if (status || !pick.count)
        return status;
    if (forced.turn == FORCE_NONE)
        return backend_cpu.candidates(device, graph, node, precision, visit, user, err);
    pick.want = (uint32_t)forced.turn % pick.count;
    pick.count = 0;
    return backend_cpu.candidates(device, graph, node, precision, visit_one, &pick, err);
}

static enum status arena_grow(struct backend_arena *arena, size_t size, struct error *err)
{
    enum status status = backend_cpu.arena_grow(arena, size, err);
    if (!status)
        memset(backend_cpu.arena_base(arena), 0xff, size);
    return status;
}

static enum status memory_alloc(struct device *device, enum memory_kind kind, size_t size,
                                const char *tag, void **out, struct error *err)
{
    enum status status = backend_cpu.memory_alloc(device, kind, size, tag, out, err);
    if (!status)
        memset(*out, 0xff, size);
    return status;
}

void force_device(struct device *device)
{
    forced.table = backend_cpu;
    forced.table.candidates = candidates;
    forced.table.arena_grow = arena_grow;
    forced.table.memory_alloc = memory_alloc;
    forced.turn = FORCE_NONE;
    device->backend = &forced.table;
}

void force_turn(int turn, FILE *names)
{
    forced.turn = turn;
    forced.most = 0;
    forced.names = names;
}

uint32_t force_most(void)
{
    return forced.most;
}
