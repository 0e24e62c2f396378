/* SPDX-License-Identifier: Apache-2.0 */
/* Where Hopper's threads wait: mbarriers, named barriers, and for registers. */
#include "tests/emulate/async.h"
#include "tests/emulate/emulate.h"

#include <cstring>

/* What memory holds where a barrier lies, so that a kernel that writes there is found. */
static uint64_t mark_of(const uint64_t *barrier)
{
    return UINT64_C(0x9e3779b97f4a7c15) * ((uint64_t)(uintptr_t)barrier + 1);
}

static struct async_barrier *find(struct async *a, uint64_t *barrier)
{
    auto found = a->barriers.find(barrier);
    uint64_t mark;
    if (found == a->barriers.end())
        emulate_fail("an mbarrier that is not initialised");
    memcpy(&mark, barrier, sizeof(mark));
    if (mark != mark_of(barrier))
        emulate_fail("an mbarrier that was written to");
    return &found->second;
}

/* PTX ISA, "Tracking asynchronous operations by the mbarrier object": tx-count has 20 bits and a
 * sign. */
static void settle(struct async_barrier *b)
{
    if (b->bytes >= 1 << 20 || b->bytes <= -(1 << 20))
        emulate_fail("an mbarrier that expects more bytes than it counts");
    if (b->left || b->bytes)
        return;
    b->phase++;
    b->left = b->count;
}

static void arrive(uint64_t *barrier, int64_t bytes)
{
    struct async_barrier *b = find(async_now(), barrier);
    if (!b->left)
        emulate_fail("one arrival too many at an mbarrier");
    b->left--;
    b->bytes += bytes;
    settle(b);
}

void async_barrier_bytes(struct async *a, uint64_t *barrier, int64_t bytes)
{
    struct async_barrier *b = find(a, barrier);
    if (!b->fenced)
        emulate_fail("a load to an mbarrier whose initialisation was not fenced");
    b->bytes -= bytes;
    settle(b);
}

void emulate_mbarrier_init(uint64_t *barrier, uint32_t count)
{
    struct async *a = async_now();
    uint32_t at = async_address(a, barrier);
    uint64_t mark = mark_of(barrier);
    if (at % 8 || !count || count >= 1u << 20)
        emulate_fail("mbarrier.init: address or count");
    if (a->barriers.count(barrier))
        emulate_fail("an mbarrier that is initialised twice");
    async_write(a, at, reinterpret_cast<const char *>(&mark), sizeof(mark));
    a->barriers[barrier] = {count, count, 0, 0, false};
}

void emulate_mbarrier_fence(void)
{
    if (async_left_out("fence.mbarrier_init", __builtin_return_address(0)))
        return;
    for (auto &b : async_now()->barriers)
        b.second.fenced = true;
}

void emulate_mbarrier_expect(uint64_t *barrier, uint32_t bytes)
{
    arrive(barrier, bytes);
}

void emulate_mbarrier_arrive(uint64_t *barrier)
{
    if (async_left_out("mbarrier.arrive", __builtin_return_address(0)))
        return;
    arrive(barrier, 0);
}

/* Until the phase of this parity is over. */
void emulate_mbarrier_wait(uint64_t *barrier, uint32_t parity)
{
    struct async_barrier *b = find(async_now(), barrier);
    if (async_left_out("mbarrier.try_wait", __builtin_return_address(0)))
        return;
    if (parity > 1)
        emulate_fail("a parity that is not 0 or 1");
    while ((b->phase & 1) == parity)
        async_wait("mbarrier", &b->phase, b->phase);
}

void emulate_named_sync(int id, int threads)
{
    if (async_left_out("bar.sync", __builtin_return_address(0)))
        return;
    if (id < 0 || id > 15 || threads <= 0 || threads % 32)
        emulate_fail("bar.sync: number or threads");
    struct async_meeting *m = &async_now()->meetings[id];
    if (m->arrived && m->threads != threads)
        emulate_fail("bar.sync by different numbers of threads");
    uint64_t round = m->round;
    m->threads = threads;
    if (++m->arrived == threads) {
        m->arrived = 0;
        m->round++;
        return;
    }
    while (m->round == round)
        async_wait("bar.sync", &m->round, round);
}

/* --- clusters --- */

void emulate_cluster_arrive(void)
{
    if (!async_left_out("barrier.cluster.arrive", __builtin_return_address(0)))
        async_cluster_arrive();
}

void emulate_cluster_wait(void)
{
    if (!async_left_out("barrier.cluster.wait", __builtin_return_address(0)))
        async_cluster_wait();
}

void emulate_peer_push(void *to, const uint32_t *words, uint64_t *barrier, int rank)
{
    struct async *mine = async_now(), *a = async_of(rank);
    uint32_t at = async_address(mine, to), bar = async_address(mine, barrier);
    struct async_push p = {at, nullptr, {words[0], words[1], words[2], words[3]}};
    if (at % 16)
        emulate_fail("a push to an unaligned place");
    async_at(a, at, sizeof(p.words));
    p.barrier = reinterpret_cast<uint64_t *>(async_at(a, bar, sizeof(*barrier)));
    find(a, p.barrier);
    a->pushes.push_back(p);
}

/* setmaxnreg: more registers come from what others have given back. */
void emulate_registers(int count)
{
    struct async *a = async_now();
    size_t t = (size_t)async_thread();
    if (count < 24 || count > 256 || count % 8)
        emulate_fail("setmaxnreg: number");
    while (count - a->registers[t] > a->registers_free)
        emulate_yield();
    a->registers_free -= count - a->registers[t];
    a->registers[t] = count;
}
