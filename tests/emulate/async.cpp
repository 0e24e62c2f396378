/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory as threads and the asynchronous proxy see it, and what is under way in a block; see
 * async.h. */
#include "tests/emulate/async.h"
#include "tests/emulate/emulate.h"

#include <cstring>
#include <random>

enum { GRAIN = 16, WARPGROUP = 128, REGISTERS = 65536 };

static std::mt19937 randomly(1);

struct async *async_new(char *memory, size_t size, int threads)
{
    struct async *a = new struct async();
    a->memory = memory;
    a->size = size;
    a->origin = 1024 + (uint32_t)((uintptr_t)memory % 1024);
    a->seen.assign(size, (char)0xff);
    a->flight.assign(size / GRAIN + 1, 0);
    a->puts.resize((size_t)threads);
    a->store_groups.assign((size_t)threads, 0);
    a->groups.resize((size_t)(threads + WARPGROUP - 1) / WARPGROUP);
    int each = REGISTERS / threads / 8 * 8;
    a->registers.assign((size_t)threads, each < 255 ? each : 255);
    a->registers_free = 0;
    a->over = false;
    return a;
}

/* Some pushes land, in any order: one by one would take long. */
static bool deliver_pushes(struct async *a)
{
    if (a->pushes.empty())
        return false;
    if (a->over)
        emulate_fail("a push to a block that has ended");
    for (size_t n = 1 + randomly() % a->pushes.size(); n > 0; n--) {
        size_t i = randomly() % a->pushes.size();
        struct async_push p = a->pushes[i];
        a->pushes[i] = a->pushes.back();
        a->pushes.pop_back();
        memcpy(async_at(a, p.at, sizeof(p.words)), p.words, sizeof(p.words));
        async_barrier_bytes(a, p.barrier, sizeof(p.words));
    }
    return true;
}

bool async_deliver(struct async *a)
{
    if (a && deliver_pushes(a))
        return true;
    if (!a || a->loads.empty())
        return false;
    size_t i = randomly() % a->loads.size();
    struct async_copy load = a->loads[i];
    a->loads.erase(a->loads.begin() + (std::ptrdiff_t)i);
    async_land(a, load);
    return true;
}

void async_end(struct async *a)
{
    if (!a)
        return;
    if (!a->loads.empty())
        emulate_fail("a tensor load nobody waits for");
    if (!a->pushes.empty())
        emulate_fail("a push to a block that has ended");
    if (!a->stores.empty())
        emulate_fail("a tensor store that was not waited for");
    for (const struct async_group &g : a->groups)
        if (!g.products.empty())
            emulate_fail("a product that was not waited for");
    for (const auto &b : a->barriers)
        if (b.second.bytes)
            emulate_fail("an mbarrier that still expects bytes");
    delete a;
}

char *async_at(struct async *a, uint32_t address, size_t size)
{
    if (address < a->origin || address - a->origin + size > a->size)
        emulate_fail("an address outside of dynamic shared memory");
    return a->memory + (address - a->origin);
}

uint32_t async_address(const struct async *a, const void *p)
{
    uintptr_t at = (uintptr_t)p - (uintptr_t)a->memory;
    if (at > a->size)
        emulate_fail("a pointer outside of dynamic shared memory");
    return a->origin + (uint32_t)at;
}

static void grains(struct async *a, uint32_t address, size_t size, size_t *first, size_t *last)
{
    uint32_t at = address - a->origin;
    *first = at / GRAIN;
    *last = (at + size - 1) / GRAIN;
}

void async_read(struct async *a, uint32_t address, char *to, size_t size)
{
    const char *from = async_at(a, address, size);
    size_t first, last;
    grains(a, address, size, &first, &last);
    for (size_t i = first; i <= last; i++)
        if (a->flight[i])
            emulate_fail("shared memory read while a load is to write it");
    if (memcmp(from, &a->seen[address - a->origin], size) != 0)
        emulate_fail("shared memory read by the proxy without a fence");
    memcpy(to, from, size);
}

void async_write(struct async *a, uint32_t address, const char *from, size_t size)
{
    size_t first, last;
    memcpy(async_at(a, address, size), from, size);
    memcpy(&a->seen[address - a->origin], from, size);
    grains(a, address, size, &first, &last);
    for (size_t i = first; i <= last; i++)
        a->flight[i] = 0;
}

void async_claim(struct async *a, uint32_t address, size_t size)
{
    size_t first, last;
    memset(async_at(a, address, size), 0xff, size);
    memset(&a->seen[address - a->origin], 0xff, size);
    grains(a, address, size, &first, &last);
    for (size_t i = first; i <= last; i++) {
        if (a->flight[i])
            emulate_fail("two loads to the same place");
        a->flight[i] = 1;
    }
}

uint32_t emulate_address(const void *shared)
{
    return async_address(async_now(), shared);
}

void emulate_put(void *shared, const void *from, size_t size)
{
    struct async *a = async_now();
    uint32_t at = async_address(a, shared);
    memcpy(async_at(a, at, size), from, size);
    a->puts[(size_t)async_thread()].push_back({at, (uint32_t)size});
}

void emulate_proxy_fence(void)
{
    struct async *a = async_now();
    if (async_left_out("fence.proxy.async", __builtin_return_address(0)))
        return;
    std::vector<struct async_put> &puts = a->puts[(size_t)async_thread()];
    for (const struct async_put &p : puts)
        memcpy(&a->seen[p.at - a->origin], async_at(a, p.at, p.size), p.size);
    puts.clear();
}
