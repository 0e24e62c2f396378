/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Outputs that stay on the device. The sample's output "same" is its input, so one batch may take
 * what another one left; all copies are counted.
 */
#include <string.h>

#include "base/clock.h"
#include "tests/test.h"
#include "tests/unit/mock/mock.h"
#include "tests/unit/runtime/rig.h"

enum { SAME = 2, ALL = (1 << WORLD_OUTPUTS) - 1 };

/* A second lane and context beside the rig's, and a shelf. */
struct pair {
    struct rig rig;
    struct lane *lane;
    struct context *next;
    struct shelf *shelf;
};

static void pair_init(struct pair *p, struct world *world, unsigned host)
{
    struct error err;
    *p = (struct pair){.shelf = NULL};
    rig_make(&p->rig, world, host, &(struct context_options){0});
    rig_must(lane_new(p->rig.device, &p->lane, &err), &err);
    rig_must(context_new(p->rig.engine, p->lane, &p->next, &err), &err);
    rig_must(shelf_new(p->rig.device, &p->shelf, &err), &err);
    rig_must(shelf_grow(p->shelf, engine_describe(p->rig.engine)->out_bytes_max, &err), &err);
}

static void pair_deinit(struct pair *p)
{
    shelf_free(p->shelf);
    context_free(p->next);
    lane_free(p->lane);
    rig_deinit(&p->rig);
}

static void run(const struct pair *p, struct context *ctx, const struct engine_batch *batch,
                const struct engine_span *spans)
{
    struct error err;
    struct engine_input input = {spans, batch->n_requests};
    memset(p->rig.buffer, 0xee, engine_describe(p->rig.engine)->out_bytes_max);
    rig_must(context_enqueue_batch(ctx, batch, &input, p->rig.buffer, &err), &err);
    rig_must(context_wait(ctx, NULL, &err), &err);
}

/* Runs a batch of the world's first instances, one a request. */
static void make(const struct pair *p, uint32_t n, uint64_t shelve, uint64_t unread)
{
    struct engine_request requests[WORLD_MAX_BATCH];
    struct engine_span spans[WORLD_MAX_BATCH];
    for (uint32_t i = 0; i < n; i++) {
        requests[i] = (struct engine_request){.instances = 1};
        spans[i] = (struct engine_span){p->rig.world->in + i * WORLD_IN, RIG_INSTANCE};
    }
    run(p, p->rig.ctx,
        &(struct engine_batch){.instances = n,
                               .requests = requests,
                               .n_requests = n,
                               .shelf = p->shelf,
                               .shelve = shelve,
                               .unread = unread},
        spans);
}

/* Where an instance of "same" is on the shelf, after a batch of `batch`. */
static const void *left(const struct pair *p, uint32_t batch, uint32_t instance)
{
    const struct engine_profile *profile = engine_profile_for(p->rig.engine, 0, batch);
    return shelf_at(p->shelf, profile->out_offset[SAME] + instance * RIG_INSTANCE);
}

/* The next batch: its requests are these instances of a batch of `made`; what is not there was
 * never on the host. */
static void take(const struct pair *p, uint32_t made, const uint32_t *which, uint32_t n)
{
    struct engine_request requests[WORLD_MAX_BATCH];
    struct engine_span spans[WORLD_MAX_BATCH];
    const void *at[WORLD_MAX_BATCH];
    for (uint32_t i = 0; i < n; i++) {
        at[i] = left(p, made, which[i]);
        requests[i] = (struct engine_request){.instances = 1, .shelved = &at[i]};
        spans[i] = (struct engine_span){NULL, RIG_INSTANCE};
    }
    run(p, p->next, &(struct engine_batch){.instances = n, .requests = requests, .n_requests = n},
        spans);
}

static struct mock_counts counts_since(const struct pair *p, const struct mock_counts *before)
{
    struct mock_counts now;
    mock_read(p->rig.mock, &now);
    for (int k = 0; k < 3; k++) {
        now.copies[k] -= before->copies[k];
        now.copy_calls[k] -= before->copy_calls[k];
    }
    return now;
}

static void check(const struct pair *p, uint32_t first, uint32_t n)
{
    world_check(p->rig.world, engine_profile_for(p->rig.engine, 0, n), p->rig.buffer, first, n);
}

/* --- tests --- */

/* Four requests go on as they are: one copy on the device for all of them, and nothing crosses. */
static void a_batch_that_goes_on_as_it_is(void **state)
{
    struct pair p;
    struct mock_counts before, counts;
    pair_init(&p, *state, 0);
    mock_read(p.rig.mock, &before);
    make(&p, 4, ALL, 0);
    counts = counts_since(&p, &before);
    assert_int_equal(context_shelved(p.rig.ctx), ALL);
    assert_int_equal(counts.copies[COPY_TO_HOST], WORLD_OUTPUTS);
    assert_int_equal(counts.copies[COPY_ON_DEVICE], WORLD_OUTPUTS);
    check(&p, 0, 4); /* the host has its copies, too */
    mock_read(p.rig.mock, &before);
    take(&p, 4, (const uint32_t[]){0, 1, 2, 3}, 4);
    counts = counts_since(&p, &before);
    assert_int_equal(counts.copies[COPY_TO_DEVICE], 0);
    assert_int_equal(counts.copies[COPY_ON_DEVICE], 1);
    assert_int_equal(context_shelved(p.next), 0);
    check(&p, 0, 4);
    struct engine_request request = {.instances = 1};
    struct engine_span span = {p.rig.world->in, RIG_INSTANCE};
    run(&p, p.rig.ctx,
        &(struct engine_batch){.instances = 1, .requests = &request, .n_requests = 1}, &span);
    assert_int_equal(context_shelved(p.rig.ctx), 0); /* this batch had no shelf */
    pair_deinit(&p);
}

static void what_nobody_reads_on_the_host_is_not_copied_there(void **state)
{
    struct pair p;
    struct mock_counts before, counts;
    pair_init(&p, *state, 0);
    mock_read(p.rig.mock, &before);
    make(&p, 4, 1 << SAME | 1, 1 << SAME);
    counts = counts_since(&p, &before);
    assert_int_equal(context_shelved(p.rig.ctx),
                     1 << SAME | 1); /* what nobody takes is not there */
    assert_int_equal(counts.copies[COPY_ON_DEVICE], 2);
    assert_int_equal(counts.copies[COPY_TO_HOST], WORLD_OUTPUTS - 1);
    const struct engine_profile *profile = engine_profile_for(p.rig.engine, 0, 4);
    for (int i = 0; i < 4 * RIG_INSTANCE; i++)
        assert_int_equal((uint8_t)p.rig.buffer[profile->out_offset[SAME] + (size_t)i], 0xee);
    take(&p, 4, (const uint32_t[]){0, 1, 2, 3}, 4);
    check(&p, 0, 4);
    pair_deinit(&p);
}

/* Requests that come in another order are one copy each; those that follow each other join. */
static void other_orders_are_gathered(void **state)
{
    struct pair p;
    struct mock_counts before, counts;
    pair_init(&p, *state, 0);
    make(&p, 8, ALL, ALL);
    mock_read(p.rig.mock, &before);
    take(&p, 8, (const uint32_t[]){5, 6, 7, 4}, 4);
    counts = counts_since(&p, &before);
    assert_int_equal(counts.copies[COPY_TO_DEVICE], 0);
    assert_int_equal(counts.copies[COPY_ON_DEVICE], 2);
    const struct engine_profile *four = engine_profile_for(p.rig.engine, 0, 4);
    const char *same = p.rig.buffer + four->out_offset[SAME];
    assert_memory_equal(same, p.rig.world->in + 5 * WORLD_IN, 3 * RIG_INSTANCE);
    assert_memory_equal(same + 3 * RIG_INSTANCE, p.rig.world->in + 4 * WORLD_IN, RIG_INSTANCE);
    pair_deinit(&p);
}

/* Batches of other sizes than the one before, padded with zeros; beside a request from the host. */
static void some_from_the_shelf_and_some_from_the_host(void **state)
{
    struct pair p;
    struct mock_counts before, counts;
    struct world *world = *state;
    pair_init(&p, world, 0);
    make(&p, 7, ALL, ALL);
    take(&p, 7, (const uint32_t[]){3, 4, 5}, 3);
    check(&p, 3, 3);
    const void *second = left(&p, 7, 1);
    struct engine_request requests[] = {
        {.instances = 1}, {.instances = 1, .shelved = &second}, {.instances = 1}};
    struct engine_span spans[] = {
        {world->in, RIG_INSTANCE}, {NULL, RIG_INSTANCE}, {world->in + 2 * WORLD_IN, RIG_INSTANCE}};
    mock_read(p.rig.mock, &before);
    run(&p, p.next, &(struct engine_batch){.instances = 3, .requests = requests, .n_requests = 3},
        spans);
    counts = counts_since(&p, &before);
    /* the first span; the third one, packed with the zeros behind it */
    assert_int_equal(counts.copies[COPY_TO_DEVICE], 2);
    assert_int_equal(counts.copies[COPY_ON_DEVICE], 1);
    check(&p, 0, 3);
    /* they follow each other on the shelf, but not in the input */
    const void *at[] = {left(&p, 7, 0), left(&p, 7, 1)};
    requests[0].shelved = &at[0];
    requests[1].shelved = NULL;
    requests[2].shelved = &at[1];
    spans[1].data = world->in + 6 * WORLD_IN;
    run(&p, p.next, &(struct engine_batch){.instances = 3, .requests = requests, .n_requests = 3},
        spans);
    const struct engine_profile *four = engine_profile_for(p.rig.engine, 0, 3);
    const char *same = p.rig.buffer + four->out_offset[SAME];
    assert_memory_equal(same, world->in, RIG_INSTANCE);
    assert_memory_equal(same + RIG_INSTANCE, world->in + 6 * WORLD_IN, RIG_INSTANCE);
    assert_memory_equal(same + 2 * RIG_INSTANCE, world->in + WORLD_IN, RIG_INSTANCE);
    pair_deinit(&p);
}

/* An output that the CPU made is on the host, whoever wants it. */
static void what_the_cpu_made_stays_on_the_host(void **state)
{
    struct pair p;
    struct mock_counts before, counts;
    for (unsigned host = 1; host < 1u << RIG_NODES; host++) {
        pair_init(&p, *state, host);
        mock_read(p.rig.mock, &before);
        make(&p, 4, ALL, 0);
        counts = counts_since(&p, &before);
        uint64_t shelved = context_shelved(p.rig.ctx);
        assert_int_equal(counts.copies[COPY_ON_DEVICE], __builtin_popcountll(shelved));
        assert_true(shelved & 1 << SAME); /* it is the input, which is on both sides */
        check(&p, 0, 4);
        make(&p, 4, ALL, ALL);
        assert_int_equal(context_shelved(p.rig.ctx), shelved);
        assert_false(engine_input_apart(p.rig.engine, 0));
        pair_deinit(&p);
    }
}

static void a_shelf_grows_in_place(void **state)
{
    struct pair p;
    struct error err;
    pair_init(&p, *state, 0);
    assert_true(engine_input_apart(p.rig.engine, 0));
    make(&p, 4, ALL, ALL);
    const void *at = shelf_at(p.shelf, 0);
    rig_must(shelf_grow(p.shelf, 10 * engine_describe(p.rig.engine)->out_bytes_max, &err), &err);
    rig_must(shelf_grow(p.shelf, 1, &err), &err); /* it does not shrink */
    assert_ptr_equal(shelf_at(p.shelf, 0), at);
    take(&p, 4, (const uint32_t[]){0, 1, 2, 3}, 4);
    check(&p, 0, 4);
    pair_deinit(&p);
}

static void a_device_without_memory_of_its_own_has_none(void **state)
{
    struct error err;
    struct shelf *shelf = NULL;
    const struct world *world = *state;
    assert_int_equal(shelf_new(world->cpu, &shelf, &err), STATUS_FAILED_PRECONDITION);
    assert_null(shelf);
    shelf_free(NULL);
}

/* A batch that fails has left nothing, and the context goes on. */
static void a_batch_that_fails_leaves_nothing(void **state)
{
    struct pair p;
    struct error err;
    struct world *world = *state;
    pair_init(&p, world, 0);
    make(&p, 4, ALL, ALL);
    struct engine_request request = {.instances = 2};
    struct engine_span span = {world->in, RIG_INSTANCE}; /* one is missing */
    struct engine_input input = {&span, 1};
    const struct engine_batch batch = {
        .instances = 2, .requests = &request, .n_requests = 1, .shelf = p.shelf, .shelve = ALL};
    assert_int_equal(context_enqueue_batch(p.next, &batch, &input, p.rig.buffer, &err),
                     STATUS_INVALID_ARGUMENT);
    assert_int_equal(context_shelved(p.next), 0);
    take(&p, 4, (const uint32_t[]){0, 1, 2, 3}, 4);
    check(&p, 0, 4);
    pair_deinit(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_that_goes_on_as_it_is),
        cmocka_unit_test(what_nobody_reads_on_the_host_is_not_copied_there),
        cmocka_unit_test(other_orders_are_gathered),
        cmocka_unit_test(some_from_the_shelf_and_some_from_the_host),
        cmocka_unit_test(what_the_cpu_made_stays_on_the_host),
        cmocka_unit_test(a_shelf_grows_in_place),
        cmocka_unit_test(a_device_without_memory_of_its_own_has_none),
        cmocka_unit_test(a_batch_that_fails_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
