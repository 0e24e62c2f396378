/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts of fuzzed sessions; see guest.h. */
#include "tests/fuzz/guest.h"

#include <stdlib.h>
#include <string.h>

static struct guest *guest_of(struct session_host *base)
{
    return CONTAINER_OF(base, struct guest, base);
}

void guest_must(bool holds)
{
    if (!holds)
        abort();
}

/* --- memory --- */

static void *memory_alloc(void *user UNUSED, size_t size)
{
    return aligned_alloc(SLAB_ALIGN, (size + SLAB_ALIGN - 1) / SLAB_ALIGN * SLAB_ALIGN);
}

static void memory_release(void *user UNUSED, void *memory, size_t size UNUSED)
{
    free(memory);
}

void guest_open(struct guest *guest, const struct session_ops *protocol,
                const struct session_host_ops *host, uint64_t budget)
{
    const struct slab_memory memory = {memory_alloc, memory_release, NULL, NULL};
    guest->base.ops = host;
    guest->protocol = protocol;
    atomic_store(&guest->budget.limit, budget);
    guest->slabs = slabs_new(&memory, &guest->budget, 1 << 20);
    guest->session = protocol->create(&guest->base);
    guest_must(guest->slabs && guest->session);
}

void guest_close(struct guest *guest)
{
    guest_must(budget_used(&guest->budget) == 0);
    slabs_free(guest->slabs);
}

struct slab *guest_slab_take(struct session_host *base, size_t size)
{
    struct guest *guest = guest_of(base);
    struct slab *slab = slabs_take(guest->slabs, size, SLAB_REQUEST);
    guest->starved |= !slab;
    return slab;
}

/* Takes the memory as if it had been set aside before, whatever the budget says. */
struct slab *guest_slab_left(struct session_host *base, size_t size)
{
    struct guest *guest = guest_of(base);
    guest_must(size <= GUEST_STAGING);
    uint64_t limit = atomic_exchange(&guest->budget.limit, UINT64_C(1) << 40);
    struct slab *slab = slabs_take(guest->slabs, size, SLAB_REQUEST);
    atomic_store(&guest->budget.limit, limit);
    return slab;
}

void guest_slab_give(struct session_host *base, struct slab *slab)
{
    slabs_give(guest_of(base)->slabs, slab);
}

/* --- the stream --- */

uint8_t guest_cut(uint8_t cut, size_t size)
{
    return size > 8 * 1024 && cut < 5 ? 7 : cut;
}

size_t guest_next(uint8_t cut, uint32_t *seed, size_t left)
{
    static const size_t sizes[] = {1, 2, 3, 5, 64, 1000, 4096, 70000, SIZE_MAX};
    if (cut < ARRAY_LEN(sizes))
        return MIN(sizes[cut], left);
    *seed = *seed * 1664525 + 1013904223;
    return MIN(sizes[*seed >> 16 & 7], left);
}

size_t guest_feed(struct guest *guest, const uint8_t *data, size_t n)
{
    void *at;
    size_t room;
    guest->protocol->buffer(guest->session, &at, &room);
    if (room) {
        n = MIN(n, room);
        memcpy(at, data, n);
        guest->protocol->input(guest->session, at, n);
        return n;
    }
    n = MIN(n, (size_t)GUEST_STAGING);
    uint8_t *staging = malloc(n); /* exactly the size of the piece, so a read beyond it is seen */
    guest_must(staging != NULL);
    memcpy(staging, data, n);
    guest->protocol->input(guest->session, staging, n);
    free(staging);
    return n;
}

/* --- the rest --- */

size_t guest_queued(struct session_host *base)
{
    return guest_of(base)->queued;
}

struct request *guest_scratch(struct session_host *base)
{
    return &guest_of(base)->scratch;
}

bool guest_book(struct session_host *base, size_t bytes)
{
    return slabs_book(guest_of(base)->slabs, bytes);
}

void guest_unbook(struct session_host *base, size_t bytes)
{
    slabs_unbook(guest_of(base)->slabs, bytes);
}

bool guest_needs(struct session_host *base UNUSED, enum session_need what UNUSED)
{
    return true;
}

size_t guest_frame_limit(struct session_host *base UNUSED)
{
    return GUEST_LIMIT;
}

void guest_token(struct session_host *base, struct message_text token)
{
    for (size_t i = 0; i < token.len; i++)
        guest_of(base)->seen ^= (uint8_t)token.data[i];
}

void guest_end(struct session_host *base, enum session_end why UNUSED)
{
    guest_of(base)->ended = true;
}
