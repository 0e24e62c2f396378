/* SPDX-License-Identifier: Apache-2.0 */
/* The fibers for a block's threads, and the places where the threads meet; see emulate.h. One
 * launch at a time. */
#include "tests/emulate/emulate.h"

#include "tests/emulate/async.h"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <sys/mman.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#ifdef EMULATE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace
{

enum {
    WARP = 32,
    STACK_BYTES = 256 << 10,
    SLOT = 64,
    POLLS_MAX = 10000,
    TOGETHER_MAX = 132,
    CLUSTER_MAX = 8
};
enum { SHARED_SKEW = 16, SHARED_ALIGN = 1024, LANDS_ONE_IN = 8, HELD_ROUNDS = 16 };

struct copy {
    char *to;
    const char *from;
    size_t size;
    bool valid;
    int group; /* -1: not yet committed */
};

/* The lanes of one mask that exchange values. There are two sets of slots, so that quick lanes do
 * not overwrite values that slow lanes still read. Masks that are in use at the same time have
 * different lowest lanes. */
struct meeting {
    unsigned arrived;
    uint64_t round;
    const char *what;
    alignas(16) char slot[2][WARP * SLOT];
};

struct thread {
    int fiber; /* -1: not started, or over */
    bool over;
    const char *waits;    /* what the thread waits for; NULL: can go on */
    const uint64_t *seen; /* waits until *seen differs from `last` */
    uint64_t last;
    bool polls; /* went on only to ask again */
    std::vector<copy> copies;
    int groups;              /* committed */
    uint64_t cluster_round;  /* rounds of the cluster's barrier at which the thread has arrived */
    uint64_t cluster_waited; /* the last of them for which it has waited */
};

/* Where a fiber, or the scheduler, goes on. swapcontext asks the kernel for the mask of signals at
 * each switch, which would take half of the time of a test with many barriers. So on x86-64 a place
 * is a stack pointer, and on that stack are the registers that a function has to preserve. */
#ifdef __x86_64__
typedef void *place;
extern "C" void emulate_switch(place *from, const place *to);
__asm__(R"(
    .text
    .type emulate_switch, @function
emulate_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq (%rsi), %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emulate_switch, . - emulate_switch
)");

void place_begin(place *p, void *stack, void (*entry)(void))
{
    enum { REGISTERS = 6 };
    void **top = reinterpret_cast<void **>(static_cast<char *>(stack) + STACK_BYTES);
    *--top = nullptr; /* to where `entry` would return */
    memcpy(--top, &entry, sizeof(entry));
    *p = top - REGISTERS; /* the stack is fresh: they are 0 */
}
#else
typedef ucontext_t place;

void emulate_switch(place *from, const place *to)
{
    swapcontext(from, to);
}

void place_begin(place *p, void *stack, void (*entry)(void))
{
    getcontext(p);
    p->uc_stack.ss_sp = stack;
    p->uc_stack.ss_size = STACK_BYTES;
    p->uc_link = nullptr;
    makecontext(p, entry, 0);
    /* Given no size, the address sanitizer does not unpoison the whole stack that is switched to;
     * unpoisoning would be slow and would hide errors. */
    p->uc_stack.ss_size = 0;
}
#endif

struct fiber {
    place context;
    void *stack;
    int thread; /* the thread that the fiber runs; -1: none */
    void *fake; /* the address sanitizer's */
};

/* Where the threads of a block meet, and the block's dynamic shared memory. */
struct hall {
    int left; /* threads that are not over */
    int barrier_arrived;
    int count_now, count_last;
    uint64_t barrier_round;
    const char *barrier_what;
    void *window; /* of SHARED_ALIGN; the block's memory begins behind SHARED_SKEW bytes */
    void *shared;
    size_t shared_bytes;
    struct async *async; /* NULL until the block uses what is in hopper.h */
};

/* The blocks that run side by side; mostly there is one. */
struct block {
    emulate_body body;
    void *user;
    int threads, next, left; /* of all blocks; next: the next one to start; left: those not over */
    int may;                 /* threads that may start: a cluster's blocks begin late */
    int each;                /* threads of a block */
    bool together;           /* several blocks: threads know theirs by their number */
    unsigned base;           /* the first of them */
    int cluster;             /* blocks of a cluster; 0: none */
    int cluster_arrived;     /* threads at the cluster's barrier that are not over */
    uint64_t cluster_round;
    std::vector<hall> halls;
    bool backwards;
    int polls; /* rounds in which threads did nothing but ask again */
    unsigned rounds;
    unsigned passes; /* over all threads */
    int held;        /* the warp that is left behind; -1: none */
    std::vector<thread> thread_of;
    std::vector<fiber *> fibers;
    std::vector<int> idle; /* fibers without a thread */
    int on, current;       /* the fiber and the thread that run now; -1: the scheduler */
    place scheduler;
    void *scheduler_fake;
    const void *scheduler_stack;
    size_t scheduler_stack_bytes;
    std::vector<meeting> meetings; /* warp * 32 + lowest lane of the mask */
};

struct block &now = *new block(); /* never destroyed, as its fibers are not */

/* Every switch is announced to the address sanitizer. */
void leave_for(place *from, const place *to, void **fake, const void *stack, size_t bytes)
{
#ifdef EMULATE_ASAN
    __sanitizer_start_switch_fiber(fake, stack, bytes);
#else
    (void)fake, (void)stack, (void)bytes;
#endif
    emulate_switch(from, to);
}

void arrived(void *fake, const void **stack, size_t *bytes)
{
#ifdef EMULATE_ASAN
    __sanitizer_finish_switch_fiber(fake, stack, bytes);
#else
    (void)fake, (void)stack, (void)bytes;
#endif
}

void be(int t)
{
    now.current = t;
    if (now.together)
        blockIdx.x = now.base + (unsigned)(t / now.each);
    t %= now.each;
    threadIdx.x = (unsigned)t % blockDim.x;
    threadIdx.y = (unsigned)t / blockDim.x % blockDim.y;
    threadIdx.z = (unsigned)t / blockDim.x / blockDim.y;
}

/* Opens the barrier if all threads that have not ended stand at it. */
void barrier_check(hall *h)
{
    if (h->barrier_arrived == 0 || h->barrier_arrived < h->left)
        return;
    h->count_last = h->count_now;
    h->barrier_arrived = h->count_now = 0;
    h->barrier_round++;
}

hall *hall_of(int t)
{
    return &now.halls[(size_t)(t / now.each)];
}

/* Opens the cluster's barrier if all threads that have not ended have arrived. */
void cluster_check(void)
{
    if (now.cluster_arrived == 0 || now.cluster_arrived < now.left)
        return;
    now.cluster_arrived = 0;
    now.cluster_round++;
}

/* The thread that runs has ended. */
void leave_block(void)
{
    thread *t = &now.thread_of[(size_t)now.current];
    hall *h = hall_of(now.current);
    t->over = true;
    t->fiber = -1;
    now.left--;
    h->left--;
    if (!h->left && h->async)
        h->async->over = true;
    if (t->cluster_round > now.cluster_round)
        now.cluster_arrived--;
    barrier_check(h);
    cluster_check();
}

/* The next thread to start. Of a cluster, which block begins first differs between clusters. */
int next_thread(void)
{
    int i = now.next++;
    if (now.cluster) {
        int first = (int)(now.base / (unsigned)now.cluster) % now.cluster;
        return (i / now.each + first) % now.cluster * now.each + i % now.each;
    }
    return now.backwards ? now.threads - 1 - i : i;
}

/* A fiber runs new threads one after the other until one of them waits. From then on the fiber
 * belongs to that thread until the thread ends. */
void fiber_main(void)
{
    arrived(nullptr, &now.scheduler_stack, &now.scheduler_stack_bytes);
    fiber *self = now.fibers[(size_t)now.on];
    int index = now.on;
    for (;;) {
        while (now.next < now.may) {
            int t = next_thread();
            self->thread = t;
            now.thread_of[(size_t)t].fiber = index;
            be(t);
            now.body(now.user);
            leave_block();
        }
        self->thread = -1;
        now.idle.push_back(index);
        leave_for(&self->context, &now.scheduler, &self->fake, now.scheduler_stack,
                  now.scheduler_stack_bytes);
        arrived(self->fake, &now.scheduler_stack, &now.scheduler_stack_bytes);
    }
}

void pause_thread(void)
{
    fiber *self = now.fibers[(size_t)now.on];
    leave_for(&self->context, &now.scheduler, &self->fake, now.scheduler_stack,
              now.scheduler_stack_bytes);
    arrived(self->fake, &now.scheduler_stack, &now.scheduler_stack_bytes);
}

void wait_for(const char *what, const uint64_t *seen, uint64_t last)
{
    thread *t = &now.thread_of[(size_t)now.current];
    t->waits = what;
    t->seen = seen;
    t->last = last;
    pause_thread();
    t->waits = nullptr;
}

void resume(int index)
{
    fiber *to = now.fibers[(size_t)index];
    now.on = index;
    if (to->thread >= 0)
        be(to->thread);
    leave_for(&now.scheduler, &to->context, &now.scheduler_fake, to->stack, STACK_BYTES);
    arrived(now.scheduler_fake, nullptr, nullptr);
    now.on = now.current = -1;
}

int idle_fiber(void)
{
    if (!now.idle.empty()) {
        int index = now.idle.back();
        now.idle.pop_back();
        return index;
    }
    fiber *f = new fiber();
    f->stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stack == MAP_FAILED)
        emulate_fail("no memory for stacks");
    f->thread = -1;
    place_begin(&f->context, f->stack, fiber_main);
    now.fibers.push_back(f);
    return (int)now.fibers.size() - 1;
}

/* Of kernels that use what is in hopper.h, a warp is left behind now and then, until the others do
 * nothing but wait. If another warp does not wait for it where it has to, that one is too early. */
void hold_another(void)
{
    static std::minstd_rand randomly(1);
    int warps = now.threads / WARP;
    bool async = false;
    for (const hall &h : now.halls)
        async = async || h.async;
    now.held = async && warps > 1 && randomly() % 2 ? (int)(randomly() % (unsigned)warps) : -1;
}

/* Something lands in each block, but for one of a cluster's: there only if nothing else would
 * happen. Others may end before they should, then. */
bool deliver(bool idle)
{
    const unsigned cluster = (unsigned)now.cluster;
    hall *late = cluster ? &now.halls[now.base / cluster % cluster] : nullptr;
    bool landed = false;
    for (hall &h : now.halls)
        landed = (&h != late && async_deliver(h.async)) || landed;
    return landed || (late && idle && async_deliver(late->async));
}

/* Makes one pass over all threads; threads that have not been started come last. Returns false if
 * no thread could go on, or if for long none has done anything but ask again. */
bool round_of(void)
{
    bool moved = false, polling = true;
    if (now.passes++ % HELD_ROUNDS == 0)
        hold_another();
    for (int i = 0; i < now.threads; i++) {
        int t = now.backwards ? now.threads - 1 - i : i;
        thread *it = &now.thread_of[(size_t)t];
        if (it->fiber < 0 || it->over || t / WARP == now.held ||
            (it->waits && *it->seen == it->last))
            continue;
        moved = true;
        it->polls = false;
        resume(it->fiber);
        polling = polling && now.thread_of[(size_t)t].polls;
    }
    while (now.next < now.may) {
        moved = true;
        polling = false;
        resume(idle_fiber());
    }
    if ((!moved || polling || ++now.rounds % LANDS_ONE_IN == 0) && deliver(!moved || polling)) {
        moved = true;
        polling = false;
    }
    if (now.held >= 0 && (!moved || polling)) {
        now.held = -1;
        moved = true;
        polling = false;
    }
    if (!moved && now.may < now.threads) {
        now.may += now.each;
        moved = true;
    }
    now.backwards = !now.backwards;
    now.polls = moved && polling ? now.polls + 1 : 0;
    return moved && now.polls < POLLS_MAX;
}

/* The memory is aligned to 16 bytes and to no more, as a kernel has to expect. */
void hall_open(hall *h, size_t shared)
{
    h->left = now.each;
    h->shared_bytes = shared;
    if (!shared)
        return;
    if (posix_memalign(&h->window, SHARED_ALIGN, SHARED_SKEW + shared))
        emulate_fail("no memory for shared memory");
#ifdef EMULATE_ASAN
    __asan_poison_memory_region(h->window, SHARED_SKEW);
#endif
    h->shared = static_cast<char *>(h->window) + SHARED_SKEW;
    memset(h->shared, 0xff, shared);
}

void hall_close(hall *h)
{
    async_end(h->async);
    if (!h->window)
        return;
#ifdef EMULATE_ASAN
    __asan_unpoison_memory_region(h->window, SHARED_SKEW);
#endif
    free(h->window);
}

void run_blocks(int blocks, size_t shared)
{
    now.each = (int)(blockDim.x * blockDim.y * blockDim.z);
    now.threads = now.left = blocks * now.each;
    now.next = now.polls = now.cluster_arrived = 0;
    now.held = -1;
    now.cluster_round = 0;
    now.may = now.cluster ? now.each : now.threads;
    now.thread_of.assign((size_t)now.threads, thread());
    for (thread &t : now.thread_of)
        t.fiber = -1;
    size_t warps = (size_t)(now.threads + WARP - 1) / WARP;
    if (now.meetings.size() < warps * WARP)
        now.meetings.resize(warps * WARP);
    now.halls.assign((size_t)blocks, hall());
    for (hall &h : now.halls)
        hall_open(&h, shared);
    while (now.left > 0)
        if (!round_of()) {
            for (int t = 0; t < now.threads; t++)
                if (!now.thread_of[(size_t)t].over) {
                    be(t);
                    break;
                }
            emulate_fail("deadlock");
        }
    for (hall &h : now.halls)
        hall_close(&h);
}

int barrier(const char *what, int predicate)
{
    hall *h = hall_of(now.current);
    uint64_t round = h->barrier_round;
    if (h->barrier_arrived == 0)
        h->barrier_what = what;
    else if (h->barrier_what != what)
        emulate_fail("different barriers");
    h->count_now += predicate != 0;
    h->barrier_arrived++;
    barrier_check(h);
    if (h->barrier_round == round)
        wait_for(what, &h->barrier_round, round);
    return h->count_last;
}

bool launch_fits(dim3 grid, dim3 block)
{
    return block.x > 0 && block.y > 0 && block.z > 0 && block.x * block.y * block.z <= 1024 &&
           block.z <= 64 && grid.y <= 65535 && grid.z <= 65535 && grid.x <= 0x7fffffff;
}

void begin_launch(dim3 grid, dim3 block, emulate_body body, void *user)
{
    gridDim = grid;
    blockDim = block;
    now.body = body;
    now.user = user;
    now.on = now.current = -1;
    now.base = 0;
    now.cluster = 0;
}

} // namespace

void emulate_fail(const char *what)
{
    fprintf(stderr, "emulated kernel: %s: thread (%u,%u,%u) of block (%u,%u,%u)", what, threadIdx.x,
            threadIdx.y, threadIdx.z, blockIdx.x, blockIdx.y, blockIdx.z);
    if (now.current >= 0 && now.thread_of[(size_t)now.current].waits)
        fprintf(stderr, " waits in %s", now.thread_of[(size_t)now.current].waits);
    fprintf(stderr, "\n");
    abort();
}

cudaError_t emulate_run(dim3 grid, dim3 block, size_t shared, emulate_body body, void *user)
{
    if (!launch_fits(grid, block))
        return cudaErrorInvalidConfiguration;
    if (shared > 227u << 10)
        return cudaErrorInvalidValue;
    begin_launch(grid, block, body, user);
    now.together = false;
    for (blockIdx.z = 0; blockIdx.z < grid.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++)
                run_blocks(1, shared);
    return cudaSuccess;
}

cudaError_t emulate_run_together(dim3 grid, dim3 block, size_t shared, emulate_body body,
                                 void *user)
{
    unsigned threads = block.x * block.y * block.z;
    if (!launch_fits(grid, block) || grid.y != 1 || grid.z != 1 || threads % WARP)
        return cudaErrorInvalidConfiguration;
    if (shared > 227u << 10)
        return cudaErrorInvalidValue;
    if (grid.x > TOGETHER_MAX)
        return cudaErrorCooperativeLaunchTooLarge;
    begin_launch(grid, block, body, user);
    blockIdx = {0, 0, 0};
    now.together = true;
    run_blocks((int)grid.x, shared);
    return cudaSuccess;
}

cudaError_t emulate_run_cluster(dim3 grid, dim3 block, size_t shared, int cluster,
                                emulate_body body, void *user)
{
    unsigned threads = block.x * block.y * block.z, blocks = (unsigned)cluster;
    if (!launch_fits(grid, block) || grid.y != 1 || grid.z != 1 || threads % WARP || cluster < 1 ||
        cluster > CLUSTER_MAX || grid.x % blocks)
        return cudaErrorInvalidConfiguration;
    if (shared > 227u << 10)
        return cudaErrorInvalidValue;
    begin_launch(grid, block, body, user);
    now.together = true;
    now.cluster = cluster;
    for (now.base = 0; now.base < grid.x; now.base += blocks) {
        blockIdx = {now.base, 0, 0};
        run_blocks(cluster, shared);
    }
    return cudaSuccess;
}

int emulate_cluster_rank(void)
{
    return now.cluster ? now.current / now.each : 0;
}

void async_cluster_arrive(void)
{
    thread *t = &now.thread_of[(size_t)now.current];
    if (!now.cluster)
        emulate_fail("a cluster's barrier in a kernel without clusters");
    if (t->cluster_round != t->cluster_waited)
        emulate_fail("a thread that arrives twice at the cluster's barrier");
    t->cluster_round = now.cluster_round + 1;
    now.cluster_arrived++;
    cluster_check();
}

void async_cluster_wait(void)
{
    thread *t = &now.thread_of[(size_t)now.current];
    uint64_t round = now.cluster_round;
    if (t->cluster_round == t->cluster_waited)
        emulate_fail("a thread that waits at the cluster's barrier before it arrives");
    t->cluster_waited = t->cluster_round;
    if (t->cluster_round > round)
        wait_for("the cluster's barrier", &now.cluster_round, round);
}

struct async *async_of(int rank)
{
    if (rank < 0 || rank >= now.cluster)
        emulate_fail("a block that is not of the cluster");
    hall *h = &now.halls[(size_t)rank];
    if (!h->async)
        emulate_fail("shared memory of a block that has not begun");
    if (!h->left)
        emulate_fail("shared memory of a block that has ended");
    return h->async;
}

void emulate_yield(void)
{
    now.thread_of[(size_t)now.current].polls = true;
    pause_thread();
}

void *emulate_shared(void)
{
    return hall_of(now.current)->shared;
}

struct async *async_now(void)
{
    hall *h = hall_of(now.current);
    if (!h->async)
        h->async = async_new(static_cast<char *>(h->shared), h->shared_bytes, now.each);
    return h->async;
}

int async_thread(void)
{
    return now.current % now.each;
}

void async_wait(const char *what, const uint64_t *seen, uint64_t last)
{
    wait_for(what, seen, last);
}

int emulate_lane(void)
{
    return now.current % WARP;
}

void __syncthreads(void)
{
    barrier("__syncthreads", 0);
}

int __syncthreads_count(int predicate)
{
    return barrier("__syncthreads_count", predicate);
}

int __syncthreads_or(int predicate)
{
    return barrier("__syncthreads_or", predicate) != 0;
}

int __syncthreads_and(int predicate)
{
    return barrier("__syncthreads_and", !predicate) == 0;
}

const char *emulate_exchange(unsigned mask, const char *what, const void *in, size_t size)
{
    int lane = emulate_lane(), warp = now.current / WARP;
    int lanes = now.threads - warp * WARP < WARP ? now.threads - warp * WARP : WARP;
    unsigned here = lanes == WARP ? 0xffffffffu : (1u << lanes) - 1;
    if (!(mask >> lane & 1) || size > SLOT)
        emulate_fail("a lane outside of its mask");
    mask &= here;
    meeting *m = &now.meetings[(size_t)(warp * WARP + __builtin_ctz(mask))];
    uint64_t round = m->round;
    if (m->arrived == 0)
        m->what = what;
    else if (m->what != what && strcmp(m->what, what) != 0)
        emulate_fail("lanes meet in different operations");
    char *slots = m->slot[round & 1];
    if (size)
        memcpy(slots + lane * SLOT, in, size);
    m->arrived |= 1u << lane;
    if (m->arrived == mask) {
        m->arrived = 0;
        m->round++;
    } else {
        wait_for(what, &m->round, round);
    }
    return slots;
}

/* --- tensor cores and asynchronous copies --- */

static float half_of(bool bf16, uint32_t pair, int which)
{
    uint16_t bits = (uint16_t)(which ? pair >> 16 : pair);
    if (bf16) {
        uint32_t wide = (uint32_t)bits << 16;
        float f;
        memcpy(&f, &wide, sizeof(f));
        return f;
    }
    return __half2float(__ushort_as_half(bits));
}

/* Of slots as mma_m16n8k16 fills them: the sum goes on from `sum`. */
static float dot_of_halves(const char *all, int row, int column, float sum)
{
    for (int k = 0; k < 16; k++) {
        const char *lane_a = all + (row % 8 * 4 + k % 8 / 2) * SLOT;
        const char *lane_b = all + (column * 4 + k % 8 / 2) * SLOT;
        int at_a = (row / 8 + k / 8 * 2) * 2 + k % 2, at_b = 8 + k / 8 * 2 + k % 2;
        sum += reinterpret_cast<const float *>(lane_a)[at_a] *
               reinterpret_cast<const float *>(lane_b)[at_b];
    }
    return sum;
}

void emulate_mma_m16n8k16(bool bf16, float *d, const uint32_t *a, const uint32_t *b)
{
    float mine[12]; /* the pairs of a, then those of b */
    static_assert(sizeof(mine) <= SLOT, "lanes exchange them");
    for (int i = 0; i < 12; i++)
        mine[i] = half_of(bf16, i < 8 ? a[i / 2] : b[i / 2 - 4], i % 2);
    const char *all = emulate_exchange(0xffffffffu, "mma_m16n8k16", mine, sizeof(mine));
    int lane = emulate_lane();
    for (int i = 0; i < 4; i++) {
        int row = lane / 4 + (i >= 2 ? 8 : 0), column = lane % 4 * 2 + i % 2;
        d[i] = dot_of_halves(all, row, column, d[i]);
    }
}

/* Of slots as mma_m16n8k32 fills them: the sum goes on from `sum`. */
static uint32_t dot_of_bytes(const char *all, bool is_signed, int row, int column, uint32_t sum)
{
    for (int k = 0; k < 32; k++) {
        const char *lane_a = all + (row % 8 * 4 + k % 16 / 4) * SLOT;
        const char *lane_b = all + (column * 4 + k % 16 / 4) * SLOT;
        uint8_t from_a = (uint8_t)lane_a[(row / 8 + k / 16 * 2) * 4 + k % 4];
        int32_t left = is_signed ? (int8_t)from_a : from_a;
        sum += (uint32_t)(left * (int8_t)lane_b[(4 + k / 16) * 4 + k % 4]);
    }
    return sum;
}

void emulate_mma_m16n8k32(bool is_signed, int32_t *d, const uint32_t *a, const uint32_t *b)
{
    uint32_t mine[6]; /* those of a, then those of b */
    for (int i = 0; i < 6; i++)
        mine[i] = i < 4 ? a[i] : b[i - 4];
    const char *all = emulate_exchange(0xffffffffu, "mma_m16n8k32", mine, sizeof(mine));
    int lane = emulate_lane();
    for (int i = 0; i < 4; i++) {
        int row = lane / 4 + (i >= 2 ? 8 : 0), column = lane % 4 * 2 + i % 2;
        d[i] = (int32_t)dot_of_bytes(all, is_signed, row, column, (uint32_t)d[i]);
    }
}

void emulate_ldmatrix(int matrices, bool transposed, uint32_t *r, const void *row)
{
    if ((uintptr_t)row % 16)
        emulate_fail("ldmatrix from an unaligned row");
#ifdef EMULATE_ASAN
    if (__asan_region_is_poisoned(const_cast<void *>(row), 16))
        emulate_fail("ldmatrix from a row outside of its memory");
#endif
    const char *all = emulate_exchange(0xffffffffu, "ldmatrix", &row, sizeof(row));
    int lane = emulate_lane();
    for (int i = 0; i < matrices; i++) {
        uint16_t pair[2];
        for (int j = 0; j < 2; j++) {
            int y = transposed ? lane % 4 * 2 + j : lane / 4;
            int x = transposed ? lane / 4 : lane % 4 * 2 + j;
            const char *from = emulate_lane_value<const char *>(all, i * 8 + y);
            memcpy(&pair[j], from + x * 2, sizeof(pair[j]));
        }
        r[i] = pair[0] | (uint32_t)pair[1] << 16;
    }
    __syncwarp(); /* no lane overwrites a row before all lanes have read it */
}

void emulate_copy_async(void *shared, const void *global, size_t size, bool valid)
{
    if ((uintptr_t)shared % size || (valid && (uintptr_t)global % size))
        emulate_fail("an unaligned asynchronous copy");
    memset(shared, 0xff, size);
    copy c = {static_cast<char *>(shared), static_cast<const char *>(global), size, valid, -1};
    now.thread_of[(size_t)now.current].copies.push_back(c);
}

void emulate_copy_commit(void)
{
    thread *t = &now.thread_of[(size_t)now.current];
    for (copy &c : t->copies)
        if (c.group < 0)
            c.group = t->groups;
    t->groups++;
}

void emulate_copy_wait(int pending)
{
    thread *t = &now.thread_of[(size_t)now.current];
    std::vector<copy> left;
    for (const copy &c : t->copies) {
        if (c.group < 0 || c.group >= t->groups - pending) {
            left.push_back(c);
        } else if (c.valid) {
            memcpy(c.to, c.from, c.size);
        } else {
            memset(c.to, 0, c.size);
        }
    }
    t->copies.swap(left);
}
