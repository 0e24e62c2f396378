/* SPDX-License-Identifier: Apache-2.0 */
/* The emulator, and the parts that all kernels are made of: launches, reductions, tensor cores,
 * epilogues. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/shape.h"
#include "kernels/cpu/ref.h"
#include "tests/unit/cpu/views.h"
#include "tests/unit/kernels_cuda/probe.h"

static void test_block_sum(void **state)
{
    (void)state;
    float x[1000], sum = 0, y = NAN;
    for (int i = 0; i < 1000; i++)
        sum += x[i] = (float)(i % 17);
    assert_int_equal(probe_block_sum(x, 1000, &y), cudaSuccess);
    assert_floats(&y, &sum, 1, 0);
}

static void test_mma(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        float fa[256], fb[128], want[128], got[128];
        _Alignas(16) uint16_t a[256], b[128];
        fill_random(fa, 256, 1);
        fill_random(fb, 128, 2);
        for (int i = 0; i < 256; i++) {
            a[i] = bf16 ? f32_to_bf16(fa[i]) : f32_to_f16(fa[i]);
            fa[i] = bf16 ? bf16_to_f32(a[i]) : f16_to_f32(a[i]);
        }
        for (int i = 0; i < 128; i++) {
            b[i] = bf16 ? f32_to_bf16(fb[i]) : f32_to_f16(fb[i]);
            fb[i] = bf16 ? bf16_to_f32(b[i]) : f16_to_f32(b[i]);
        }
        struct tensor_view va = VIEW(DTYPE_F32, fa, 16, 16), vb = VIEW(DTYPE_F32, fb, 16, 8);
        struct tensor_view vw = VIEW(DTYPE_F32, want, 16, 8);
        POISONED(DTYPE_F32, got, 16, 8);
        ref_matmul(false, false, 1, &va, &vb, NULL, &vw);
        assert_int_equal(probe_mma(bf16, a, b, got), cudaSuccess);
        assert_floats(got, want, 128, 1e-6);
    }
}

static void test_divide(void **state)
{
    (void)state;
    uint32_t by[] = {1,     2,     3,      5,       7,        8,          9,          641,
                     65535, 65536, 100003, 1 << 30, 12345678, 0x7ffffffe, 0x7fffffff, 1000};
    for (size_t i = 0; i < ARRAY_LEN(by); i++) {
        uint32_t wrong = 0;
        assert_int_equal(probe_divide(by[i], &wrong), cudaSuccess);
        if (wrong)
            fail_msg("%u wrong quotients by %u", wrong, by[i]);
    }
}

static void test_ballot(void **state)
{
    (void)state;
    float x[32];
    uint32_t want = 0, got = 0;
    for (int i = 0; i < 32; i++) {
        x[i] = i % 3 ? 1 : -1;
        want |= (uint32_t)(i % 3 != 0) << i;
    }
    assert_int_equal(probe_ballot(x, &got), cudaSuccess);
    assert_int_equal(got, want);
}

static void test_convert(void **state)
{
    (void)state;
    double x[] = {0,         -0.0,         1.5,          -1.5,       2.5,
                  255,       256,          300,          -1,         65535,
                  65536,     -32769,       3e9,          -3e9,       5e9,
                  1e19,      1.9e19,       -1e19,        NAN,        INFINITY,
                  -INFINITY, 1e-8,         65504,        65519.99,   65520,
                  1e-40,     0.1,          1 + 0x1p-11,  1 + 0x1p-9, 1 + 0x1p-11 + 0x1p-30,
                  3.3895e38, 2147483647.5, -2147483648.5};
    enum { N = ARRAY_LEN(x) };
    for (int to = DTYPE_BOOL; to < DTYPE_COUNT_; to++)
        for (int wide = 0; wide < 2; wide++) {
            uint8_t got[N * 8], want[N * 8];
            double in[N];
            for (int i = 0; i < N; i++)
                in[i] = wide ? x[i] : (double)(float)x[i];
            struct tensor_view from = VIEW(DTYPE_F64, in, N);
            struct tensor_view vw = POISONED((enum dtype)to, want, N);
            struct tensor_view vg = POISONED((enum dtype)to, got, N);
            ref_cast(&from, &vw);
            assert_int_equal(probe_convert(to, wide, x, N, got), cudaSuccess);
            size_t size = dtype_size((enum dtype)to);
            for (int i = 0; i < N; i++) {
                if (isnan(x[i]) && dtype_is_float((enum dtype)to)) {
                    float f = 0;
                    struct tensor_view one = VIEW(DTYPE_F32, &f, 1), at = vg;
                    at.shape = one.shape;
                    at.data = got + (size_t)i * size;
                    ref_cast(&at, &one);
                    assert_true(isnan(f));
                } else if (memcmp(got + (size_t)i * size, want + (size_t)i * size, size) != 0) {
                    fail_msg("%g as %s (wide %d) has other bits", x[i], dtype_name((enum dtype)to),
                             wide);
                }
            }
            (void)vg;
        }
}

/* --- epilogues --- */

struct operand {
    struct kernel_view view;
    struct tensor_view dense; /* the same numbers, broadcast to y and row-major */
};

static uint32_t seed = 7;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

/* Strides of dims in memory order `order` (innermost last), 0 where `once`. */
static int64_t strides_of(int64_t *stride, const int64_t *dim, const int *order, unsigned once)
{
    int64_t n = 1;
    for (int i = 3; i >= 0; i--) {
        int d = order[i];
        stride[d] = once >> d & 1 ? 0 : n;
        n *= once >> d & 1 ? 1 : dim[d];
    }
    return n;
}

static struct operand operand_new(const struct kernel_view *y, const int *order, unsigned once,
                                  enum dtype dtype)
{
    struct operand o = {.view = *y};
    int64_t n = strides_of(o.view.stride, y->dim, order, once);
    float *values = calloc((size_t)n, sizeof(float));
    fill_random(values, (size_t)n, draw(1000));
    size_t size = dtype_size(dtype);
    o.view.dtype = (int)dtype;
    o.view.data = aligned_alloc(16, ((size_t)n * size + 15) / 16 * 16);
    struct tensor_view from = VIEW(DTYPE_F32, values, n), to = VIEW(dtype, o.view.data, n);
    ref_cast(&from, &to);
    ref_cast(&to, &from);
    int64_t total = y->dim[0] * y->dim[1] * y->dim[2] * y->dim[3];
    float *dense = calloc((size_t)total, sizeof(float));
    for (int64_t i = 0; i < total; i++) {
        int64_t rest = i, at = 0;
        for (int d = 3; d >= 0; d--) {
            at += rest % y->dim[d] * o.view.stride[d];
            rest /= y->dim[d];
        }
        dense[i] = values[at];
    }
    o.dense = VIEW(DTYPE_F32, dense, total);
    free(values);
    return o;
}

static void operand_free(struct operand *o)
{
    free(o->view.data);
    free(o->dense.data);
}

/* y has a random shape and order. Three binary steps, whose operands broadcast and lie in random
 * ways, and unary steps between them are compared with the reference. Values go along y's innermost
 * memory dim, which the probe takes to be y's last: y's own order is plain, possibly with gaps. */
static void epilogue_case(int wide)
{
    static const int orders[][4] = {{0, 1, 2, 3}, {0, 2, 3, 1}, {1, 0, 2, 3}, {3, 2, 1, 0}};
    static const int funcs[] = {IR_BINARY_ADD, IR_BINARY_MUL, IR_BINARY_MAX, IR_BINARY_SUB,
                                IR_BINARY_PRELU};
    static const int unaries[] = {IR_UNARY_RELU,    IR_UNARY_GELU, IR_UNARY_CLIP,
                                  IR_UNARY_SIGMOID, IR_UNARY_ELU,  IR_UNARY_LINEAR};
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    struct kernel_view y = {.dtype = DTYPE_F32, .rank = 4};
    for (int d = 0; d < 4; d++)
        y.dim[d] = 1 + draw(4);
    y.dim[3] = wide * (1 + draw(3));
    int64_t total = strides_of(y.stride, y.dim, orders[0], 0), span = total;
    if (draw(3) == 0) { /* rows further apart than they are long */
        int64_t gap = wide * (int64_t)draw(3);
        for (int d = 2; d >= 0; d--)
            y.stride[d] = d == 2 ? y.dim[3] + gap : y.stride[d + 1] * y.dim[d + 1];
        span = y.stride[0] * y.dim[0];
    }
    float *memory = malloc((size_t)span * sizeof(float));
    float *want = malloc((size_t)total * sizeof(float));
    memset(memory, 0xff, (size_t)span * sizeof(float));
    y.data = memory;
    for (int64_t i = 0; i < total; i++)
        want[i] = 0.5f * (float)i;

    struct tensor_view w = VIEW(DTYPE_F32, want, total);
    struct kernel_epilogue e = {.n = (int)draw(6)};
    struct operand operands[KERNEL_STEPS_MAX];
    int n_operands = 0;
    for (int s = 0; s < e.n; s++) {
        struct kernel_step *step = &e.step[s];
        step->alpha = 0.5f, step->beta = 2, step->gamma = 1;
        if (draw(2)) {
            struct operand *o = &operands[n_operands++];
            *o = operand_new(&y, orders[draw(4)], draw(16), dtypes[draw(ARRAY_LEN(dtypes))]);
            step->binary = 1;
            step->func = funcs[draw(5)];
            step->operand = o->view;
            ref_binary((enum ir_binary)step->func, false, &w, &o->dense, &w);
        } else {
            step->func = unaries[draw(6)];
            ref_unary((enum ir_unary)step->func, 0.5, 2, 1, &w, &w);
        }
    }
    assert_int_equal(probe_epilogue(&y, wide, &e), cudaSuccess);
    for (int64_t at = 0, i = 0; at < span; at++) {
        int64_t rest = at, index[4];
        for (int d = 0; d < 4; d++) {
            index[d] = y.stride[d] ? rest / y.stride[d] : 0;
            rest -= index[d] * y.stride[d];
        }
        if (index[3] < y.dim[3])
            assert_floats(&memory[at], &want[i++], 1, 2e-6);
        else
            assert_true(isnan(memory[at]));
    }
    for (int s = 0; s < n_operands; s++)
        operand_free(&operands[s]);
    free(memory);
    free(want);
}

static void test_epilogue(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++)
        epilogue_case(i % 3 == 0 ? 1 : i % 3 == 1 ? 4 : 8);
}

static void test_epilogue_refused(void **state)
{
    (void)state;
    struct kernel_view y = {
        .dtype = DTYPE_F32, .rank = 4, .dim = {2, 2, 2, 2}, .stride = {8, 4, 1, 1}};
    struct kernel_epilogue e = {.n = 1, .step[0] = {.func = IR_UNARY_RELU}};
    assert_int_equal(probe_epilogue(&y, 1, &e), cudaErrorNotSupported); /* y overlaps itself */
    y.stride[2] = 2;
    y.stride[0] = INT64_C(1) << 31;
    assert_int_equal(probe_epilogue(&y, 1, &e), cudaErrorNotSupported);
    e.n = KERNEL_STEPS_MAX + 1;
    y.stride[0] = 8;
    assert_int_equal(probe_epilogue(&y, 1, &e), cudaErrorNotSupported);
    float memory[16] = {0};
    _Alignas(16) double operand[16] = {0}; /* as wide as the widest type */
    y.data = memory;
    e = (struct kernel_epilogue){.n = 1, .step[0] = {.func = IR_BINARY_ADD, .binary = 1}};
    for (int dtype = 0; dtype < DTYPE_COUNT_; dtype++) {
        bool accepted = dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
        e.step[0].operand = y;
        e.step[0].operand.dtype = dtype;
        e.step[0].operand.data = operand;
        cudaError_t want = accepted ? cudaSuccess : cudaErrorNotSupported;
        if (probe_epilogue(&y, 1, &e) != want)
            fail_msg("an operand of type %s", dtype_name((enum dtype)dtype));
    }
}

/* errors that the emulator must find */

static int died(cudaError_t (*run)(void))
{
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(3);
        run();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static void test_deadlock(void **state)
{
    (void)state;
    assert_true(died(probe_deadlock));
}

#if defined(__SANITIZE_ADDRESS__)
static cudaError_t overrun(void)
{
    float *y = malloc(5 * sizeof(float));
    return probe_overrun(y, 5);
}

static void test_overrun(void **state)
{
    (void)state;
    assert_true(died(overrun));
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_block_sum),
        cmocka_unit_test(test_mma),
        cmocka_unit_test(test_divide),
        cmocka_unit_test(test_ballot),
        cmocka_unit_test(test_convert),
        cmocka_unit_test(test_epilogue),
        cmocka_unit_test(test_epilogue_refused),
        cmocka_unit_test(test_deadlock),
#if defined(__SANITIZE_ADDRESS__)
        cmocka_unit_test(test_overrun),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
