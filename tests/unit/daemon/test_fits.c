/* SPDX-License-Identifier: Apache-2.0 */
/* Which models can be served within the limits. Each refusal names the tensor, the number and the
 * key. */
#include <string.h>

#include "base/machine.h"
#include "daemon/fits.h"
#include "tests/test.h"

enum { MIB = 1 << 20, BATCH = 8, WORKERS = 2 };

#define GIB (UINT64_C(1) << 30)

static struct engine_binding input, outputs[2];
static struct engine_profile profile;
static struct engine_info info;
static struct config_limits limits;
static struct error err;

static int setup(void **state)
{
    (void)state;
    input = (struct engine_binding){"x", DTYPE_F32, {2, {-1, 4}}, 16};
    outputs[0] = (struct engine_binding){"y", DTYPE_F32, {2, {-1, 4}}, 16};
    outputs[1] = (struct engine_binding){"z", DTYPE_F32, {2, {-1, 4}}, 16};
    profile = (struct engine_profile){.batch = BATCH, .out_bytes = 256, .arena_bytes = 64};
    info = (struct engine_info){.batched = true,
                                .max_batch = BATCH,
                                .n_inputs = 1,
                                .n_outputs = 2,
                                .n_profiles = 1,
                                .inputs = &input,
                                .outputs = outputs,
                                .profiles = &profile,
                                .out_bytes_max = 256};
    limits = (struct config_limits){.frame_bytes = 64 * MIB,
                                    .inflight_bytes = 1024 * MIB,
                                    .output_bytes = 64 * MIB,
                                    .model_bytes = 512 * MIB};
    return 0;
}

static uint32_t instances(void)
{
    uint32_t n = 0;
    if (fits_check(&info, &limits, WORKERS, BATCH, &n, &err))
        fail_msg("%s", err.text);
    return n;
}

static void refused(const char *text)
{
    uint32_t n = 12345;
    assert_int_equal(fits_check(&info, &limits, WORKERS, BATCH, &n, &err),
                     STATUS_FAILED_PRECONDITION);
    assert_string_equal(err.text, text);
    assert_int_equal(n, 12345);
}

static void what_fits_is_served_whole(void **state)
{
    (void)state;
    assert_int_equal(instances(), BATCH);
    info.n_outputs = 0;
    assert_int_equal(instances(), BATCH);
}

static void an_output_no_reply_can_carry_is_refused(void **state)
{
    (void)state;
    outputs[1].instance_bytes = 5 * GIB;
    refused("output 'z' takes 5.0 GiB for one instance; limits.output_bytes is 64.0 MiB");
    limits.output_bytes = 16 * GIB;
    refused("output 'z' takes 5.0 GiB for one instance; limits.inflight_bytes is 1.0 GiB");
    limits.inflight_bytes = 16 * GIB;
    refused("output 'z' takes 5.0 GiB for one instance; a frame is 4.0 GiB");
    outputs[0].instance_bytes = outputs[1].instance_bytes = SIZE_MAX / 2 + 1; /* the sum wraps */
    refused("output 'y' takes 8.0 EiB for one instance; a frame is 4.0 GiB");
}

static void outputs_count_together(void **state)
{
    (void)state;
    outputs[0].instance_bytes = outputs[1].instance_bytes = 32 * MIB;
    refused(
        "the 2 outputs take 64.0 MiB together for one instance; limits.output_bytes is 64.0 MiB");
    outputs[1].instance_bytes -= 4096; /* leaves room for the head */
    assert_int_equal(instances(), 1);
}

static void a_request_carries_what_a_reply_can(void **state)
{
    (void)state;
    outputs[0].instance_bytes = 20 * MIB;
    outputs[1].instance_bytes = 100;
    assert_int_equal(instances(), 3);
    limits.output_bytes = 40 * MIB;
    assert_int_equal(instances(), 1);
}

static void inputs_no_frame_can_carry_are_refused(void **state)
{
    (void)state;
    limits.model_bytes = 2 * GIB;
    input.instance_bytes = 64 * MIB;
    assert_int_equal(instances(), BATCH);
    input.instance_bytes = 65 * MIB;
    refused("input 'x' takes 65.0 MiB for one instance; limits.frame_bytes is 64.0 MiB");
}

static void memory_is_counted_for_each_worker(void **state)
{
    (void)state;
    info.weight_bytes = 100 * MIB;
    profile.arena_bytes = 50 * MIB;
    input.instance_bytes = 1 * MIB; /* a profile has 8 instances */
    info.out_bytes_max = 20 * MIB;  /* a worker has five such buffers */
    limits.model_bytes = (100 + 2 * (50 + 8 + 100)) * (uint64_t)MIB;
    assert_int_equal(instances(), BATCH);
    limits.model_bytes--;
    refused("the model needs 416.0 MiB: weights 100.0 MiB, and for each of 2 workers an arena of "
            "50.0 MiB, inputs of 8.0 MiB, 5 output buffers of 20.0 MiB; limits.model_bytes is "
            "416.0 MiB");
    profile.arena_bytes = SIZE_MAX - 1; /* sums that wrap are too large */
    assert_int_equal(fits_check(&info, &limits, WORKERS, BATCH, &(uint32_t){0}, &err),
                     STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "the model needs 16.0 EiB"));
}

static void the_default_is_of_the_machine(void **state)
{
    (void)state;
    limits.model_bytes = 0;
    assert_true(fits_model_bytes(&limits) == machine_memory() / 4 * 3);
    profile.arena_bytes = (size_t)1 << 48;
    assert_int_equal(fits_check(&info, &limits, WORKERS, BATCH, &(uint32_t){0}, &err),
                     STATUS_FAILED_PRECONDITION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_fits_is_served_whole, setup),
        cmocka_unit_test_setup(an_output_no_reply_can_carry_is_refused, setup),
        cmocka_unit_test_setup(outputs_count_together, setup),
        cmocka_unit_test_setup(a_request_carries_what_a_reply_can, setup),
        cmocka_unit_test_setup(inputs_no_frame_can_carry_are_refused, setup),
        cmocka_unit_test_setup(memory_is_counted_for_each_worker, setup),
        cmocka_unit_test_setup(the_default_is_of_the_machine, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
