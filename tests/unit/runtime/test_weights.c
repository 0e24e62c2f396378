/* SPDX-License-Identifier: Apache-2.0 */
/* What engines of one model have in common is in memory once, and how long. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/runtime/memory.h"
#include "engine/runtime/weights.h"
#include "tests/test.h"
#include "tests/unit/runtime/world.h"

enum { MIB = 1 << 20, SMALL = 128, MOST = 8 };

/* A constant: where it lies, its bytes, and what they are. */
struct piece {
    size_t offset, size;
    unsigned char fill;
};

struct shelf {
    struct plan *plan;
    size_t size;
};

/* A plan that was read, as far as weights look at it. */
static struct shelf shelf_make(const struct piece *pieces, uint32_t n)
{
    struct shelf s = {.plan = plan_new()};
    assert_non_null(s.plan);
    for (uint32_t i = 0; i < n; i++)
        s.size = MAX(s.size, pieces[i].offset + pieces[i].size);
    char *memory = mmap(NULL, s.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    s.plan->map = (struct file_map){memory, s.size};
    s.plan->weights = memory;
    s.plan->weight_bytes = s.size;
    s.plan->n_free = 1;
    s.plan->n_profiles = 1;
    s.plan->profiles[0].graph = ir_graph_new();
    assert_non_null(s.plan->profiles[0].graph);
    for (uint32_t i = 0; i < n; i++) {
        struct shape shape = {1, {(int64_t)pieces[i].size}};
        uint32_t id = ir_tensor_add(s.plan->profiles[0].graph, "w", DTYPE_U8, &shape);
        struct ir_tensor *t = ir_tensor(s.plan->profiles[0].graph, id);
        memset(memory + pieces[i].offset, pieces[i].fill, pieces[i].size);
        t->place = IR_PLACE_CONSTANT;
        t->offset = pieces[i].offset;
        t->bytes = pieces[i].size;
        t->data = memory + pieces[i].offset;
    }
    return s;
}

static struct weights *take(struct device *device, const struct shelf *shelf, struct weights *like)
{
    struct weights *weights = NULL;
    struct error err;
    if (weights_new(device, shelf->plan, like, &weights, &err))
        fail_msg("%s", err.text);
    return weights;
}

static void give(struct shelf *shelf, struct weights *weights)
{
    plan_free(shelf->plan);
    weights_free(weights);
}

static size_t held(struct device *device)
{
    struct memory_tag tags[MOST];
    size_t n = memory_track_tags(device, tags, MOST), sum = 0;
    assert_true(n <= MOST);
    for (size_t i = 0; i < MIN(n, MOST); i++)
        if (strcmp(tags[i].tag, "weights") == 0)
            sum += tags[i].held;
    return sum;
}

/* The devices of these tests have memory that tests can read. */
static void check_bytes(const struct weights *weights, const struct piece *pieces, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const unsigned char *at = weights_at(weights, pieces[i].offset);
        for (size_t k = 0; k < pieces[i].size; k++)
            if (at[k] != pieces[i].fill)
                fail_msg("piece %u, byte %zu: %u in the place of %u", i, k, at[k], pieces[i].fill);
    }
}

static bool is_resident(const void *data)
{
    unsigned char there = 1;
    return mincore((void *)((uintptr_t)data & ~(uintptr_t)4095), 4096, &there) == 0 && there & 1;
}

static const struct piece first[] = {{0, MIB, 1}, {MIB, MIB, 2}, {2 * MIB, SMALL, 3}},
                          second[] = {{0, MIB, 2},
                                      {MIB, MIB, 4},
                                      {2 * MIB, SMALL, 3},
                                      {2 * MIB + SMALL, MIB, 1}},
                          third[] = {{0, MIB, 4}, {MIB, MIB, 1}};

static void what_is_equal_is_there_once(struct device *device, bool on_host)
{
    struct error err;
    assert_int_equal(memory_track_start(device, &err), STATUS_OK);
    struct shelf a = shelf_make(first, 3), b = shelf_make(second, 4), c = shelf_make(third, 2);
    const char *read = b.plan->weights;
    struct weights *of_a = take(device, &a, NULL);
    assert_int_equal(held(device), 2 * MIB + SMALL);
    assert_int_equal(weights_common(of_a), 0);
    struct weights *of_b = take(device, &b, of_a);
    assert_int_equal(held(device), 3 * MIB + 2 * SMALL);
    assert_int_equal(weights_common(of_b), 2 * MIB);
    assert_ptr_equal(weights_at(of_b, 0), weights_at(of_a, MIB));
    assert_ptr_equal(weights_at(of_b, 2 * MIB + SMALL + 64), weights_at(of_a, 64));
    check_bytes(of_a, first, 3);
    check_bytes(of_b, second, 4);
    if (on_host) {
        assert_false(is_resident(read + 4096));
        assert_true(is_resident(read + MIB + 4096));
        assert_ptr_equal(ir_tensor(b.plan->profiles[0].graph, 0)->data, weights_at(of_a, MIB));
    }
    give(&a, of_a); /* what b has of it stays */
    assert_int_equal(held(device), 3 * MIB + SMALL);
    check_bytes(of_b, second, 4);
    struct weights *of_c = take(device, &c, of_b);
    assert_int_equal(held(device), 3 * MIB + SMALL);
    give(&b, of_b);
    assert_int_equal(held(device), 2 * MIB);
    check_bytes(of_c, third, 2);
    give(&c, of_c);
    assert_int_equal(held(device), 0);
    memory_track_stop(device);
}

static void on_the_host(void **state)
{
    struct world *w = *state;
    what_is_equal_is_there_once(w->cpu, true);
}

static void on_a_device_with_memory_of_its_own(void **state)
{
    (void)state;
    struct device *device = world_fault("apart");
    what_is_equal_is_there_once(device, false);
    engine_device_close(device);
}

/* Pages that leave must not take bytes of neighbours along. */
static void constants_that_overlap_or_touch_are_right(void **state)
{
    struct world *w = *state;
    static const struct piece one[] = {{0, 100000, 1}, {100032, 70000, 2}, {170048, 5, 3}},
                              two[] = {{0, 5, 3}, {64, 70000, 2}, {70080, 100000, 1}};
    struct shelf a = shelf_make(one, 3), b = shelf_make(two, 3);
    struct weights *of_a = take(w->cpu, &a, NULL), *of_b = take(w->cpu, &b, of_a);
    check_bytes(of_b, two, 3);
    give(&b, of_b);
    check_bytes(of_a, one, 3);
    give(&a, of_a);
    static const struct piece over[] = {{0, 2 * WEIGHTS_LARGE, 7}, {WEIGHTS_LARGE, MIB, 7}};
    struct shelf c = shelf_make(over, 2);
    struct weights *of_c = take(w->cpu, &c, NULL);
    assert_ptr_equal((const char *)weights_at(of_c, 0) + WEIGHTS_LARGE,
                     weights_at(of_c, WEIGHTS_LARGE));
    give(&c, of_c);
}

static void without_memory_nothing_is_left_behind(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        char script[64];
        snprintf(script, sizeof(script), "apart;memory#%d:oom", n);
        struct device *device = world_fault(script);
        struct error err;
        assert_int_equal(memory_track_start(device, &err), STATUS_OK);
        struct shelf a = shelf_make(first, 3);
        struct weights *weights = NULL;
        assert_int_equal(weights_new(device, a.plan, NULL, &weights, &err),
                         STATUS_RESOURCE_EXHAUSTED);
        assert_null(weights);
        assert_int_equal(held(device), 0);
        give(&a, NULL);
        memory_track_stop(device);
        engine_device_close(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_the_host),
        cmocka_unit_test(on_a_device_with_memory_of_its_own),
        cmocka_unit_test(constants_that_overlap_or_touch_are_right),
        cmocka_unit_test(without_memory_nothing_is_left_behind),
    };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
