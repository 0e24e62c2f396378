/* SPDX-License-Identifier: Apache-2.0 */
/* Instances that are counted elsewhere than in the first dimension, and inputs that all share. */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/eval.h"
#include "engine/runtime/box.h"
#include "tests/test.h"
#include "tests/unit/import/wire.h"
#include "tests/unit/runtime/runner.h"

/* --- boxes --- */

static void boxes_are_put_and_taken(void **state UNUSED)
{
    static const struct shape whole = {3, {2, 5, 3}}, part = {3, {2, 2, 2}};
    const struct box box = {&whole, &part, 1, 2, sizeof(int)};
    int tensor[30] = {0}, in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8];
    box_put(&box, tensor, in);
    assert_int_equal(tensor[6], 1);
    assert_int_equal(tensor[7], 2);
    assert_int_equal(tensor[8], 0);
    assert_int_equal(tensor[9], 3);
    assert_int_equal(tensor[15 + 9], 7);
    assert_int_equal(tensor[15 + 10], 8);
    box_take(&box, tensor, out);
    assert_memory_equal(in, out, sizeof(in));
    assert_false(box_is_whole(&box));
}

static void boxes_of_all_shapes_are_copied(void **state UNUSED)
{
    for (uint32_t seed = 0; seed < 500; seed++) {
        struct shape whole = {4, {1, 1, 1, 1}}, part = whole;
        struct box box = {&whole, &part, seed % 4, 0, 1};
        uint8_t tensor[256], in[256], out[256], want[256];
        uint32_t random = seed * 2654435761u;
        for (uint32_t d = 0; d < 4; d++, random = random * 1103515245u + 12345) {
            whole.dim[d] = 1 + (random >> 16) % 4;
            part.dim[d] = (random >> 24) % (uint32_t)(whole.dim[d] + 1);
        }
        box.first = (int64_t)(seed % 3) % (whole.dim[box.axis] - part.dim[box.axis] + 1);
        for (int i = 0; i < 256; i++)
            in[i] = (uint8_t)(i + 1);
        memset(tensor, 0, sizeof(tensor));
        memset(want, 0, sizeof(want));
        uint8_t next = 0;
        for (int64_t i = 0; i < 256; i++) {
            int64_t at[4], rest = i;
            bool inside = i < whole.dim[0] * whole.dim[1] * whole.dim[2] * whole.dim[3];
            for (int d = 4; d-- > 0; rest /= whole.dim[d])
                at[d] = rest % whole.dim[d] - (d == (int)box.axis ? box.first : 0);
            for (int d = 0; d < 4; d++)
                inside = inside && at[d] >= 0 && at[d] < part.dim[d];
            if (inside)
                want[i] = ++next;
        }
        box_put(&box, tensor, in);
        assert_memory_equal(tensor, want, sizeof(want));
        memset(out, 0, sizeof(out));
        box_take(&box, tensor, out);
        assert_memory_equal(out, in, next);
        assert_int_equal(out[next], 0);
    }
}

/* --- a model --- */

enum { T = 3, C = 2, BATCH = 4 };

/* a [n,C]; x [T,n,C]; s: y [T,n,C] = (x + a) * s, z [1,n,C] = the first of y. */
static struct plan *plan_make(struct device *device)
{
    static const uint32_t batches[] = {1, BATCH};
    struct build_options options = {.device = device,
                                    .batches = batches,
                                    .n_batches = 2,
                                    .evaluator = {.eval = cpu_eval_node},
                                    .no_timing = true};
    static const int64_t a[] = {-1, C}, x[] = {T, -1, C}, one[] = {1}, zero[] = {0};
    static struct wire graph, bytes;
    graph.n = bytes.n = 0;
    wire_input(&graph, "a", 1, 2, a);
    wire_input(&graph, "x", 1, 3, x);
    wire_input(&graph, "s", 1, 0, NULL);
    wire_constant(&graph, "first", 7, 1, one, zero, sizeof(zero));
    wire_node(&graph, "Add", "x a", "sum", NULL);
    wire_node(&graph, "Mul", "sum s", "y", NULL);
    wire_node(&graph, "Gather", "y first", "z", NULL);
    wire_output(&graph, "y");
    wire_output(&graph, "z");
    wire_model(&bytes, &graph, 13);
    return runner_plan(bytes.data, bytes.n, &options);
}

static float a_at(uint32_t request, uint32_t n, uint32_t c)
{
    return (float)(request * 100 + n * 10 + c);
}

static float x_at(uint32_t request, uint32_t t, uint32_t n, uint32_t c)
{
    return (float)(t * 1000) + a_at(request, n, c) / 2;
}

struct sent {
    float a[BATCH * C], x[T * BATCH * C];
};

static void send(struct sent *to, uint32_t request, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t c = 0; c < C; c++) {
            to->a[i * C + c] = a_at(request, i, c);
            for (uint32_t t = 0; t < T; t++)
                to->x[(t * n + i) * C + c] = x_at(request, t, i, c);
        }
}

static void check(const float *y, const float *z, uint32_t request, uint32_t n, float s)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t c = 0; c < C; c++)
            for (uint32_t t = 0; t < T; t++) {
                float want = (x_at(request, t, i, c) + a_at(request, i, c)) * s;
                if (y[(t * n + i) * C + c] != want || (!t && z[i * C + c] != want))
                    fail_msg("request %u, instance %u of %u at %u: %g, expected %g", request, i, n,
                             t, (double)y[(t * n + i) * C + c], (double)want);
            }
}

/* Runs requests of so many instances as one batch. */
static void run(struct runner *f, const uint32_t *counts, uint32_t n, bool named)
{
    static struct sent sent[BATCH];
    struct engine_request requests[BATCH] = {{0}};
    struct engine_span a[BATCH], x[BATCH], s;
    float factor = 3;
    struct engine_batch batch = {.requests = named ? requests : NULL, .n_requests = named ? n : 0};
    const struct engine_input inputs[] = {{a, n}, {x, n}, {&s, 1}};
    struct error err;
    s = (struct engine_span){&factor, sizeof(factor)};
    for (uint32_t r = 0; r < n; r++) {
        send(&sent[r], r, counts[r]);
        a[r] = (struct engine_span){sent[r].a, counts[r] * C * sizeof(float)};
        x[r] = (struct engine_span){sent[r].x, T * counts[r] * C * sizeof(float)};
        requests[r].instances = counts[r];
        batch.instances += counts[r];
    }
    memset(f->output, 0xee, engine_describe(f->engine)->out_bytes_max);
    if (context_enqueue_batch(f->ctx, &batch, inputs, f->output, &err) ||
        context_wait(f->ctx, NULL, &err))
        fail_msg("%s", err.text);
    const struct engine_profile *p = engine_profile_for(f->engine, 0, batch.instances);
    const float *y = (const float *)(void *)(f->output + p->out_offset[0]);
    const float *z = (const float *)(void *)(f->output + p->out_offset[1]);
    for (uint32_t r = 0; named && r < n; r++) {
        check(y, z, r, counts[r], factor);
        y += T * counts[r] * C;
        z += counts[r] * C;
    }
    if (!named && n == 1)
        check(y, z, 0, counts[0], factor);
}

static void run_all(const char *script)
{
    static const struct {
        uint32_t counts[BATCH], n;
    } cases[] = {{{1}, 1},    {{4}, 1},    {{2}, 1},       {{3}, 1},         {{1, 1}, 2},
                 {{1, 2}, 2}, {{2, 2}, 2}, {{1, 2, 1}, 3}, {{1, 1, 1, 1}, 4}};
    struct runner f;
    runner_open(&f, script, plan_make);
    const struct engine_info *info = engine_describe(f.engine);
    assert_true(info->batched);
    assert_int_equal(info->input_axes[1].batch, 1);
    assert_true(info->input_axes[2].shared);
    assert_int_equal(info->output_axes[0].batch, 1);
    assert_int_equal(info->inputs[1].shape.dim[1], -1);
    assert_false(engine_counts_first(info));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        run(&f, cases[i].counts, cases[i].n, true);
        run(&f, cases[i].counts, cases[i].n, false);
    }
    runner_close(&f);
}

static void instances_lie_along_any_axis(void **state UNUSED)
{
    run_all(NULL);
}

static void a_device_with_memory_of_its_own_gets_whole_tensors(void **state UNUSED)
{
    run_all("on=cpu;apart");
}

static void a_request_has_the_bytes_of_its_shape(void **state UNUSED)
{
    struct runner f;
    float values[T * BATCH * C] = {0};
    struct engine_request request = {.instances = 2};
    struct engine_batch batch = {.instances = 2, .requests = &request, .n_requests = 1};
    struct engine_span a = {values, 2 * C * sizeof(float)}, x = {values, T * 2 * C * sizeof(float)};
    struct engine_span s = {values, sizeof(float)};
    struct engine_input inputs[] = {{&a, 1}, {&x, 1}, {&s, 1}};
    struct error err;
    runner_open(&f, NULL, plan_make);
    x.size -= sizeof(float);
    assert_int_equal(context_enqueue_batch(f.ctx, &batch, inputs, f.output, &err),
                     STATUS_INVALID_ARGUMENT);
    x.size += sizeof(float);
    batch.instances = 3;
    assert_int_equal(context_enqueue_batch(f.ctx, &batch, inputs, f.output, &err),
                     STATUS_INVALID_ARGUMENT);
    batch.instances = 2;
    inputs[2].n_spans = 0;
    assert_int_equal(context_enqueue_batch(f.ctx, &batch, inputs, f.output, &err),
                     STATUS_INVALID_ARGUMENT);
    inputs[2].n_spans = 1;
    assert_int_equal(context_enqueue_batch(f.ctx, &batch, inputs, f.output, &err), STATUS_OK);
    assert_int_equal(context_wait(f.ctx, NULL, &err), STATUS_OK);
    runner_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boxes_are_put_and_taken),
        cmocka_unit_test(boxes_of_all_shapes_are_copied),
        cmocka_unit_test(instances_lie_along_any_axis),
        cmocka_unit_test(a_device_with_memory_of_its_own_gets_whole_tensors),
        cmocka_unit_test(a_request_has_the_bytes_of_its_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
