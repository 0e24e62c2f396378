/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences of any lengths in one batch, on the host's memory and on a device that has its own. */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/eval.h"
#include "tests/test.h"
#include "tests/unit/import/wire.h"
#include "tests/unit/runtime/runner.h"

enum { C = 3, LONGEST = 8, TOKENS = 32 };

/* x [n,s,C]; mask [n,s]: y [n,s,C] = x + the row of a table by place, z [n,C] = the first of y. */
static struct plan *plan_make(struct device *device)
{
    static const char *const ragged_inputs[] = {"x", "mask"};
    static const uint32_t batches[] = {16, TOKENS};
    static const struct build_range range = {"x", 3, {0, 1, 0}, {0, LONGEST, 0}};
    const struct build_ragged ragged = {ragged_inputs, 2};
    struct build_options options = {.device = device,
                                    .batches = batches,
                                    .n_batches = 2,
                                    .shapes = &range,
                                    .n_shapes = 1,
                                    .ragged = &ragged,
                                    .evaluator = {.eval = cpu_eval_node},
                                    .no_timing = true};
    static const int64_t x[] = {-1, -2, C}, mask[] = {-1, -2}, one[] = {1}, zero[] = {0},
                         axis1[] = {1};
    static const int64_t table_dims[] = {LONGEST, C};
    static float table[LONGEST][C];
    static struct wire graph, bytes, axis;
    graph.n = bytes.n = axis.n = 0;
    for (int i = 0; i < LONGEST * C; i++)
        (&table[0][0])[i] = (float)(1000 * (i / C + 1));
    wire_input(&graph, "x", 1, 3, x);
    wire_input(&graph, "mask", 7, 2, mask);
    wire_constant(&graph, "table", 1, 2, table_dims, table, sizeof(table));
    wire_constant(&graph, "zero", 7, 1, one, zero, sizeof(zero));
    wire_constant(&graph, "one", 7, 1, one, axis1, sizeof(axis1));
    wire_constant(&graph, "first", 7, 0, NULL, zero, sizeof(zero));
    wire_node(&graph, "Shape", "x", "shape", NULL);
    wire_node(&graph, "Gather", "shape one", "size", NULL);
    wire_node(&graph, "Slice", "table zero size zero", "places", NULL);
    wire_node(&graph, "Add", "x places", "y", NULL);
    wire_attr_int(&axis, "axis", 1);
    wire_node(&graph, "Gather", "y first", "z0", &axis);
    wire_node(&graph, "Add", "z0 z0", "z", NULL);
    wire_output(&graph, "y");
    wire_output(&graph, "z");
    wire_model(&bytes, &graph, 13);
    return runner_plan(bytes.data, bytes.n, &options);
}

/* What clients see is not what the layers have. */
static void a_plan_of_tokens_is_shown_as_one_of_sequences(void **state UNUSED)
{
    static const struct shape x = {3, {-1, -1, C}}, mask = {2, {-1, -1}}, z = {2, {-1, C}};
    struct runner f;
    runner_open(&f, NULL, plan_make);
    assert_non_null(f.info->ragged);
    assert_int_equal(f.info->ragged->max_length, LONGEST);
    assert_int_equal(f.info->ragged->mask, 1);
    assert_int_equal(f.info->ragged->sequences, 2);
    assert_int_equal(f.info->n_inputs, 2);
    assert_string_equal(f.info->inputs[0].name, "x");
    assert_string_equal(f.info->inputs[1].name, "mask");
    assert_int_equal(f.info->inputs[1].dtype, DTYPE_I64);
    assert_true(shape_equal(&f.info->inputs[0].shape, &x));
    assert_true(shape_equal(&f.info->inputs[1].shape, &mask));
    assert_true(shape_equal(&f.info->outputs[0].shape, &x));
    assert_true(shape_equal(&f.info->outputs[1].shape, &z));
    assert_int_equal(f.info->max_batch, TOKENS);
    assert_int_equal(f.info->n_free, 2);
    assert_int_equal(f.info->free[1].high, LONGEST);
    assert_false(engine_counts_first(f.info));
    runner_close(&f);
}

/* --- instances --- */

static enum status count(const struct runner *f, int64_t n, int64_t s, const int64_t *mask,
                         uint32_t *out, struct error *err)
{
    const struct engine_span spans[] = {{NULL, 0}, {mask, (size_t)(n * s) * sizeof(*mask)}};
    return engine_ragged_instances(f->info, (const int64_t[ENGINE_MAX_FREE]){n, s}, spans, out,
                                   err);
}

static void refused(const struct runner *f, int64_t n, int64_t s, const int64_t *mask,
                    const char *word)
{
    uint32_t instances = 77;
    struct error err = {0};
    assert_int_equal(count(f, n, s, mask, &instances, &err), STATUS_INVALID_ARGUMENT);
    assert_int_equal(instances, 77);
    if (!strstr(err.text, word))
        fail_msg("'%s' lacks '%s'", err.text, word);
}

static void tokens_are_counted_by_the_mask(void **state UNUSED)
{
    static const int64_t two[] = {1, 1, 1, 0, 1, 0, 0, 0}, hole[] = {1, 0, 1},
                         none[] = {1, 1, 0, 0};
    static const int64_t one[] = {5, 0, 0, 0, 0, 0, 0, 0};
    static int64_t ones[TOKENS + LONGEST], firsts[17 * LONGEST];
    struct runner f;
    uint32_t instances;
    struct error err;
    runner_open(&f, NULL, plan_make);
    for (int i = 0; i < TOKENS + LONGEST; i++)
        ones[i] = 1;
    for (int i = 0; i < 17; i++)
        firsts[i * LONGEST] = 1;
    assert_int_equal(count(&f, 2, 4, two, &instances, &err), STATUS_OK);
    assert_int_equal(instances, 4);
    assert_int_equal(count(&f, 1, LONGEST, one, &instances, &err), STATUS_OK);
    assert_int_equal(instances, 2); /* a quarter of what it is padded to */
    assert_int_equal(count(&f, TOKENS / LONGEST, LONGEST, ones, &instances, &err), STATUS_OK);
    assert_int_equal(instances, TOKENS);
    assert_int_equal(count(&f, 16, LONGEST, firsts, &instances, &err), STATUS_OK);
    assert_int_equal(instances, TOKENS);
    refused(&f, 1, 3, hole, "row 0 hides token 1 and shows token 2");
    refused(&f, 2, 2, none, "row 1 shows no token");
    refused(&f, 1, LONGEST + 1, ones, "of 1 to 8");
    refused(&f, TOKENS + 1, 1, ones, "takes 1 to 32");
    refused(&f, 0, 1, ones, "0 sequences");
    refused(&f, 5, LONGEST, ones, "40 tokens");
    refused(&f, 17, LONGEST, firsts, "pad them less");
    runner_close(&f);
}

/* --- batches --- */

struct sent {
    uint32_t n, s;
    uint32_t lengths[TOKENS];
    float x[TOKENS * LONGEST][C];
    int64_t mask[TOKENS * LONGEST];
};

static void send(struct sent *to, uint32_t request, uint32_t n, uint32_t s, const uint32_t *lengths)
{
    to->n = n;
    to->s = s;
    for (uint32_t i = 0; i < n; i++) {
        to->lengths[i] = lengths[i];
        for (uint32_t k = 0; k < s; k++) {
            to->mask[i * s + k] = k < lengths[i];
            for (uint32_t c = 0; c < C; c++)
                to->x[i * s + k][c] = (float)(request * 100 + i * 20 + k) + (float)c / 4;
        }
    }
}

static void check(const struct runner *f, const struct sent *sent, uint32_t first, uint32_t batch)
{
    const struct engine_profile *p = engine_profile_for(f->engine, 0, batch);
    const float *y = (const float *)(const void *)(f->output + p->out_offset[0] +
                                                   first * f->info->outputs[0].instance_bytes);
    const float *z = (const float *)(const void *)(f->output + p->out_offset[1] +
                                                   first * f->info->outputs[1].instance_bytes);
    for (uint32_t i = 0; i < sent->n; i++)
        for (uint32_t k = 0; k < sent->s; k++)
            for (uint32_t c = 0; c < C; c++) {
                bool there = k < sent->lengths[i];
                float want = there ? sent->x[i * sent->s + k][c] + (float)(1000 * (k + 1)) : 0;
                if (y[(i * sent->s + k) * C + c] != want)
                    fail_msg("sequence %u, token %u: %g, expected %g", i, k,
                             (double)y[(i * sent->s + k) * C + c], (double)want);
                if (!k && z[i * C + c] != 2 * want)
                    fail_msg("sequence %u: %g, expected %g", i, (double)z[i * C + c],
                             (double)(2 * want));
            }
}

static struct sent sent[8];
static struct engine_request requests[8];
static struct engine_span spans[2][8];

/* Runs what was sent as one batch; `less` instances fewer are said of the first request. */
static enum status run(struct runner *f, uint32_t n, uint32_t less, struct error *err)
{
    struct engine_batch batch = {.requests = requests, .n_requests = n};
    for (uint32_t r = 0; r < n; r++) {
        uint32_t tokens = sent[r].n * sent[r].s;
        spans[0][r] = (struct engine_span){sent[r].x, tokens * sizeof(sent[r].x[0])};
        spans[1][r] = (struct engine_span){sent[r].mask, tokens * sizeof(sent[r].mask[0])};
        requests[r] = (struct engine_request){.values = {sent[r].n, sent[r].s}};
        assert_int_equal(count(f, sent[r].n, sent[r].s, sent[r].mask, &requests[r].instances, err),
                         STATUS_OK);
        requests[r].instances -= r ? 0 : less;
        batch.instances += requests[r].instances;
    }
    const struct engine_input inputs[] = {{spans[0], n}, {spans[1], n}};
    memset(f->output, 0x5a, f->info->out_bytes_max);
    TRY(context_enqueue_batch(f->ctx, &batch, inputs, f->output, err));
    TRY(context_wait(f->ctx, NULL, err));
    for (uint32_t r = 0, first = 0; r < n; first += requests[r++].instances)
        check(f, &sent[r], first, batch.instances);
    return STATUS_OK;
}

static void requests_of_any_lengths_run_together(const char *script)
{
    static const uint32_t a[] = {3, 1}, b[] = {8}, c[] = {1, 1, 1, 2}, d[] = {2},
                          all[] = {8, 8, 8, 8};
    struct runner f;
    struct error err;
    runner_open(&f, script, plan_make);
    for (int again = 0; again < 2; again++) {
        send(&sent[0], 1, 2, 4, a);
        send(&sent[1], 2, 1, 8, b);
        send(&sent[2], 3, 4, 2, c);
        send(&sent[3], 4, 1, 8, d);
        for (uint32_t n = 1; n <= 4; n++)
            if (run(&f, n, 0, &err))
                fail_msg("%s", err.text);
        send(&sent[0], 5, 4, 8, all);
        if (run(&f, 1, 0, &err))
            fail_msg("%s", err.text);
    }
    send(&sent[0], 1, 2, 4, a);
    assert_int_equal(run(&f, 1, 1, &err), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "counts 3 instances, and has 4"));
    runner_close(&f);
}

static void on_the_host(void **state UNUSED)
{
    requests_of_any_lengths_run_together(NULL);
}

static void on_a_device_of_its_own(void **state UNUSED)
{
    requests_of_any_lengths_run_together("on=cpu;apart");
}

/* For measuring: tokens alone, of sequences as long as may be. */
static void a_batch_without_requests_is_of_whole_sequences(void **state UNUSED)
{
    enum { N = 21 };
    static float x[N][C];
    static int64_t mask[N];
    struct runner f;
    struct error err;
    runner_open(&f, NULL, plan_make);
    const struct engine_span tokens = {x, sizeof(x)}, masks = {mask, sizeof(mask)},
                             few = {x, sizeof(x) - sizeof(x[0])};
    struct engine_input inputs[] = {{&tokens, 1}, {&masks, 1}};
    if (context_enqueue(f.ctx, N, inputs, f.output, &err) || context_wait(f.ctx, NULL, &err))
        fail_msg("%s", err.text);
    const struct engine_profile *p = engine_profile_for(f.engine, 0, N);
    const float *y = (const float *)(const void *)(f.output + p->out_offset[0]);
    for (int i = 0; i < N; i++)
        assert_true(y[i * C] == (float)(1000 * (i % LONGEST + 1)));
    assert_int_equal(context_enqueue(f.ctx, N, NULL, NULL, &err), STATUS_OK);
    assert_int_equal(context_wait(f.ctx, NULL, &err), STATUS_OK);
    inputs[0].spans = &few;
    assert_int_equal(context_enqueue(f.ctx, N, inputs, f.output, &err), STATUS_INVALID_ARGUMENT);
    assert_int_equal(context_enqueue(f.ctx, TOKENS + 1, inputs, f.output, &err),
                     STATUS_INVALID_ARGUMENT);
    runner_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_of_tokens_is_shown_as_one_of_sequences),
        cmocka_unit_test(tokens_are_counted_by_the_mask),
        cmocka_unit_test(on_the_host),
        cmocka_unit_test(on_a_device_of_its_own),
        cmocka_unit_test(a_batch_without_requests_is_of_whole_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
