/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a block of the emulator has on Hopper beside threads and memory: mbarriers, named barriers,
 * tensor copies and matrix products that are under way. The emulator's files alone read this;
 * kernels see hopper.h.
 *
 * Shared memory is held twice: as threads see it, and as the asynchronous proxy sees it (tensor
 * copies and matrix products). A thread's stores (emulate_put) reach the second copy when that
 * thread fences, so that a read by the proxy finds a missing fence. What tensor copies write, both
 * have. Where a copy is still to write, nobody of the proxy may read.
 */
#ifndef INFERD_TESTS_EMULATE_ASYNC_H
#define INFERD_TESTS_EMULATE_ASYNC_H

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <vector>

struct async_barrier {
    uint32_t count, left;
    int64_t bytes; /* still to come in this phase */
    uint64_t phase;
    bool fenced; /* made visible to the proxy */
};

/* Rows of a box in shared memory, and where they lie in the tensor; see async_copy.cpp. */
struct async_map {
    uint64_t data;
    uint64_t stride[5]; /* bytes */
    int64_t dim[5];
    uint16_t box[5];
    uint8_t rank, size, swizzle; /* swizzle: bytes; 0: none */
    /* Of images: 0, or the pixels of a load; places of the window's first tap along W and H. */
    uint16_t pixels;
    int16_t lower[2], upper[2];
    uint8_t step[2];
};

struct async_copy {
    struct async_map map;
    uint32_t at;       /* address in shared memory */
    uint64_t *barrier; /* loads */
    int32_t first[5];
    int32_t tap[2];            /* loads of images: right, down */
    int thread, group;         /* stores */
    std::vector<char> content; /* stores: what shared memory held when the store was issued */
};

/* A product of one k step, which the warps of a warpgroup complete by themselves. */
struct async_product {
    int type, n;
    uint64_t a, b;
    bool keep, registers, transposed;
    int group;
    int left;                           /* threads that have not taken their result */
    std::vector<char> bytes_a, bytes_b; /* when issued, row after row */
    /* The same, as threads multiply with them: of B, [thread of 4][k][column of the thread], and of
     * A row after row, for the warps that have begun to take their results. */
    std::vector<float> numbers_b, numbers_a;
    bool has_a[4];
    void *d[128];
    const uint32_t *fragment[128]; /* of A, if it comes from registers */
    uint32_t was[128][4];
    std::vector<uint32_t> sums; /* what d held, n / 2 a thread */
    bool ready[128]; /* the thread's are valid; else the product before will bring them */
};

/* 16 bytes that another block of the cluster has sent. */
struct async_push {
    uint32_t at;
    uint64_t *barrier;
    uint32_t words[4];
};

struct async_group { /* a warpgroup */
    std::list<struct async_product> products;
    int issued[128], taken[128], committed[128];
    int dropped; /* products that are no longer in the list */
    bool fenced[128];
};

struct async_meeting {
    int threads, arrived;
    uint64_t round;
};

struct async_put {
    uint32_t at, size;
};

struct async {
    char *memory; /* the block's dynamic shared memory */
    size_t size;
    uint32_t origin;                   /* the address of its first byte */
    std::vector<char> seen;            /* by the proxy */
    std::vector<unsigned char> flight; /* of each 16 bytes: a load is to write them */
    std::vector<std::vector<struct async_put>> puts;
    std::map<uint64_t *, struct async_barrier> barriers;
    std::map<int, struct async_meeting> meetings;
    std::vector<struct async_copy> loads, stores;
    std::vector<struct async_push> pushes; /* to this block, under way */
    bool over;                             /* all threads have ended */
    std::vector<int> store_groups;         /* of each thread: committed */
    std::vector<struct async_group> groups;
    int registers_free;
    std::vector<int> registers;
};

/* --- emulate.cpp --- */
struct async *async_now(void); /* of the running thread's block */
int async_thread(void);        /* its number in its block */
void async_wait(const char *what, const uint64_t *seen, uint64_t last); /* until *seen != last */

struct async *async_of(int rank); /* of a block of the running thread's cluster */
void async_cluster_arrive(void);
void async_cluster_wait(void);

/* --- async.cpp --- */
struct async *async_new(char *memory, size_t size, int threads);
/* Lands one of the loads, and some of the pushes, that are under way. False: there is none. */
bool async_deliver(struct async *a);
/* The block has ended: whatever is still under way is an error. */
void async_end(struct async *a);

/* Addresses are those of the shared window. The functions below end the program if bytes lie
 * outside of dynamic shared memory. */
char *async_at(struct async *a, uint32_t address, size_t size);
uint32_t async_address(const struct async *a, const void *p);
/* By the proxy. */
void async_read(struct async *a, uint32_t address, char *to, size_t size);
void async_write(struct async *a, uint32_t address, const char *from, size_t size);
/* A load is to write there: until it does, the bytes are worthless. */
void async_claim(struct async *a, uint32_t address, size_t size);

static inline uint32_t async_swizzle(uint32_t address, int bytes)
{
    uint32_t mask = bytes == 128 ? 7 : bytes == 64 ? 3 : bytes == 32 ? 1 : 0;
    return address ^ ((address >> 7 & mask) << 4);
}

/* --- async_left_out.cpp --- */
/* A function of hopper.h asks, with its return address, whether it is to do nothing. */
bool async_left_out(const char *what, const void *site);
/* The same for one that waits: it is to wait for one group less. */
int async_weaker(const void *site);

/* --- async_barrier.cpp --- */
void async_barrier_bytes(struct async *a, uint64_t *barrier, int64_t bytes);

/* --- async_copy.cpp --- */
void async_land(struct async *a, const struct async_copy &load);

#endif
