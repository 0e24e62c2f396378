/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks in an arena: blocks that are alive together never overlap, whether packed by size or by
 * time, and neither way takes too long. */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/build/pack.h"
#include "tests/test.h"

enum { STEPS = 200, BLOCKS = 300 };

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void random_blocks(struct pack_block *blocks, uint64_t *offsets, uint64_t seed)
{
    for (uint32_t i = 0; i < BLOCKS; i++) {
        uint32_t first = (uint32_t)(draw(&seed) % STEPS);
        uint32_t last = first + (uint32_t)(draw(&seed) % (seed % 8 ? 5 : STEPS));
        offsets[i] = UINT64_MAX;
        blocks[i] = (struct pack_block){.offset = &offsets[i],
                                        .size = 64 * (1 + draw(&seed) % 50),
                                        .first = first,
                                        .last = MIN(last, (uint32_t)STEPS - 1),
                                        .index = i};
    }
}

static bool meet(const struct pack_block *a, const struct pack_block *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static void expect_apart(const struct pack_block *blocks, uint64_t arena)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < BLOCKS; i++) {
        const struct pack_block *a = &blocks[i];
        end = MAX(end, *a->offset + a->size);
        for (uint32_t k = 0; k < i; k++) {
            const struct pack_block *b = &blocks[k];
            if (meet(a, b) && *a->offset < *b->offset + b->size &&
                *b->offset < *a->offset + a->size)
                fail_msg("blocks %u and %u overlap", a->index, b->index);
        }
    }
    assert_int_equal(end, arena);
}

/* The algorithm that pack.c describes, without its trees. */
static uint64_t greedy(struct pack_block *blocks)
{
    uint64_t arena = 0;
    for (uint32_t n = 0; n < BLOCKS; n++) {
        uint64_t best = UINT64_MAX, best_size = UINT64_MAX, end = 0;
        for (;;) { /* the next block above `end` among those alive at the same time */
            const struct pack_block *next = NULL;
            uint64_t above = end;
            for (uint32_t i = 0; i < n; i++) {
                const struct pack_block *b = &blocks[i];
                if (!meet(b, &blocks[n]) || *b->offset + b->size <= end)
                    continue;
                if (*b->offset <= end)
                    above = MAX(above, *b->offset + b->size);
                else if (!next || *b->offset < *next->offset)
                    next = b;
            }
            if (above > end) {
                end = above;
                continue;
            }
            if (!next)
                break;
            uint64_t gap = *next->offset - end;
            if (gap >= blocks[n].size && gap < best_size) {
                best = end;
                best_size = gap;
            }
            end = *next->offset;
        }
        *blocks[n].offset = best != UINT64_MAX ? best : end;
        arena = MAX(arena, *blocks[n].offset + blocks[n].size);
    }
    return arena;
}

static void blocks_do_not_overlap(void **state)
{
    struct pack_block blocks[BLOCKS], sorted[BLOCKS];
    uint64_t offsets[BLOCKS], again[BLOCKS], arena;
    struct pack_load load;
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        random_blocks(blocks, offsets, seed);
        assert_true(pack_measure(blocks, BLOCKS, STEPS, &load));
        assert_true(pack_blocks(blocks, BLOCKS, &load, &arena));
        expect_apart(blocks, arena);
        for (uint32_t i = 0; i < BLOCKS; i++) { /* the blocks are sorted by size now */
            sorted[i] = blocks[i];
            sorted[i].offset = &again[i];
            assert_true(i == 0 || sorted[i].size <= sorted[i - 1].size);
        }
        assert_int_equal(greedy(sorted), arena);
        for (uint32_t i = 0; i < BLOCKS; i++)
            assert_int_equal(again[i], *blocks[i].offset);
        load.pairs = UINT64_MAX; /* as if there were too many pairs for packing by size */
        assert_true(pack_blocks(blocks, BLOCKS, &load, &arena));
        expect_apart(blocks, arena);
    }
}

static void the_load_is_counted(void **state)
{
    uint64_t offset[4];
    const struct pack_block blocks[4] = {{&offset[0], 64, 0, 3, 0},
                                         {&offset[1], 64, 1, 1, 1},
                                         {&offset[2], 64, 1, 2, 2},
                                         {&offset[3], 64, 3, 3, 3}};
    struct pack_load load;
    (void)state;
    assert_true(pack_measure(blocks, 4, 4, &load));
    assert_int_equal(load.alive, 3);
    assert_int_equal(load.pairs, 1 + 3 + 3 + 2);
}

/* 60,000 blocks: a chain, some blocks that live all the time, and 8,000 that live at once. To look
 * at all pairs would take 2 x 10^9 steps. */
static void many_blocks_are_placed(void **state)
{
    enum { MANY = 60000 };
    static const uint32_t lives[] = {1, 2, 8000};
    struct pack_block *blocks = calloc(MANY, sizeof(*blocks));
    uint64_t *offsets = calloc(MANY, sizeof(*offsets)), arena;
    struct pack_load load;
    (void)state;
    assert_true(blocks && offsets);
    for (size_t k = 0; k < ARRAY_LEN(lives); k++) {
        for (uint32_t i = 0; i < MANY; i++) {
            uint32_t last = k == 1 && i < 10 ? MANY - 1 : MIN(i + lives[k] - 1, (uint32_t)MANY - 1);
            blocks[i] = (struct pack_block){&offsets[i], 64 + 64 * (i % 3), i, last, i};
        }
        assert_true(pack_measure(blocks, MANY, MANY, &load));
        assert_true(pack_blocks(blocks, MANY, &load, &arena));
        assert_true(arena >= 64 * (uint64_t)lives[k] && arena <= 3 * 64 * (uint64_t)load.alive);
    }
    free(blocks);
    free(offsets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_do_not_overlap),
        cmocka_unit_test(the_load_is_counted),
        cmocka_unit_test(many_blocks_are_placed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
