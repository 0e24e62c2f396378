/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_copy, kernel_concat, kernel_gather, kernel_pad against the reference. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/ref.h"
#include "tests/unit/kernels_cuda/cases.h"

/* One type of each size, and the types with NaN. */
static const enum dtype dtypes[] = {DTYPE_U8,  DTYPE_F16, DTYPE_BF16, DTYPE_F32,
                                    DTYPE_I64, DTYPE_F64, DTYPE_BOOL, DTYPE_I32};

static enum dtype any_dtype(void)
{
    return dtypes[case_draw(ARRAY_LEN(dtypes))];
}

static enum case_layout any_layout(void)
{
    static const enum case_layout layouts[] = {CASE_PLAIN, CASE_LAST, CASE_ANY_ORDER, CASE_GAPS};
    return layouts[case_draw(4)];
}

static int64_t any_dim(void)
{
    return (int64_t[]){1, 2, 3, 4, 8, 16, 24, 33}[case_draw(8)];
}

static void test_copy(void **state)
{
    (void)state;
    case_seed(1);
    for (int i = 0; i < 400; i++) {
        enum dtype dtype = any_dtype();
        int32_t rank = (int32_t)case_draw(5);
        int64_t dims[4] = {any_dim(), any_dim(), any_dim(), any_dim()};
        struct case_tensor y = case_new(dtype, rank, dims, rank > 1 ? any_layout() : CASE_PLAIN);
        struct case_tensor x =
            case_operand(dtype, &y.view, case_draw(3) ? 0 : case_draw(1U << rank),
                         rank > 1 ? any_layout() : CASE_PLAIN);
        case_fill(&x);
        assert_int_equal(kernel_copy(&case_call, &x.view, &y.view), cudaSuccess);
        case_check(&y, &x.dense, 0);
        case_free(&x);
        case_free(&y);
    }
}

/* Tiles through shared memory, in all orders of three dims. */
static void test_copy_transposed(void **state)
{
    (void)state;
    case_seed(2);
    for (int i = 0; i < 60; i++) {
        enum dtype dtype = any_dtype();
        int64_t dims[3];
        for (int d = 0; d < 3; d++)
            dims[d] = (int64_t[]){2, 8, 48, 64, 100, 129}[case_draw(6)];
        dims[case_draw(3)] = 2;
        struct case_tensor x = case_new(dtype, 3, dims, CASE_PLAIN);
        struct case_tensor y = case_new(dtype, 3, dims, CASE_ANY_ORDER);
        case_fill(&x);
        assert_int_equal(kernel_copy(&case_call, &x.view, &y.view), cudaSuccess);
        case_check(&y, &x.dense, 0);
        case_free(&x);
        case_free(&y);
    }
}

/* A slice is a view that begins elsewhere, perhaps backwards. */
static void test_copy_slice(void **state)
{
    (void)state;
    case_seed(3);
    for (int i = 0; i < 300; i++) {
        enum dtype dtype = any_dtype();
        int64_t dims[3] = {any_dim(), any_dim(), any_dim()}, part[3], starts[3], steps[3];
        struct case_tensor x = case_new(dtype, 3, dims, case_draw(2) ? CASE_PLAIN : CASE_LAST);
        case_fill(&x);
        struct kernel_view from = x.view;
        int64_t first = 0;
        for (int d = 0; d < 3; d++) {
            bool back = case_draw(4) == 0;
            steps[d] = (back ? -1 : 1) * (1 + (int64_t)case_draw(2));
            starts[d] = (int64_t)case_draw((uint32_t)dims[d]);
            int64_t room = back ? starts[d] + 1 : dims[d] - starts[d];
            part[d] = (room - 1) / (back ? -steps[d] : steps[d]) + 1;
            first += starts[d] * x.view.stride[d];
            from.stride[d] = x.view.stride[d] * steps[d];
            from.dim[d] = part[d];
        }
        from.data = (char *)x.view.data + (size_t)first * dtype_size(dtype);
        struct case_tensor y = case_new(dtype, 3, part, case_draw(2) ? CASE_PLAIN : CASE_LAST);
        struct tensor_view want = case_dense(dtype, &y.dense.shape);
        ref_slice(starts, steps, &x.dense, &want);
        assert_int_equal(kernel_copy(&case_call, &from, &y.view), cudaSuccess);
        case_check(&y, &want, 0);
        free(want.data);
        case_free(&x);
        case_free(&y);
    }
}

static void test_concat(void **state)
{
    (void)state;
    case_seed(4);
    for (int i = 0; i < 200; i++) {
        enum dtype dtype = any_dtype();
        enum case_layout layout = case_draw(2) ? CASE_PLAIN : CASE_LAST;
        int32_t n = 1 + (int32_t)case_draw(case_draw(5) ? 4 : KERNEL_CONCAT_MAX);
        uint32_t axis = case_draw(4);
        int64_t dims[4] = {1 + case_draw(3), any_dim(), 1 + case_draw(4), any_dim()};
        struct case_tensor x[KERNEL_CONCAT_MAX];
        struct kernel_view parts[KERNEL_CONCAT_MAX];
        struct tensor_view dense[KERNEL_CONCAT_MAX];
        int64_t total = 0;
        for (int32_t p = 0; p < n; p++) {
            dims[axis] = case_draw(6) ? any_dim() : 0;
            total += dims[axis];
            x[p] = case_new(dtype, 4, dims, case_draw(8) ? layout : CASE_ANY_ORDER);
            case_fill(&x[p]);
            parts[p] = x[p].view;
            dense[p] = x[p].dense;
        }
        dims[axis] = total;
        struct case_tensor y = case_new(dtype, 4, dims, layout);
        struct tensor_view want = case_dense(dtype, &y.dense.shape);
        ref_concat(axis, (uint32_t)n, dense, &want);
        assert_int_equal(kernel_concat(&case_call, parts, n, (int32_t)axis, &y.view, NULL),
                         cudaSuccess);
        case_check(&y, &want, 0);
        free(want.data);
        for (int32_t p = 0; p < n; p++)
            case_free(&x[p]);
        case_free(&y);
    }
}

/* Scales and shifts of channels and a function, as in DenseNet, beside the reference's. */
static void test_concat_steps(void **state)
{
    static const enum dtype floats[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};
    (void)state;
    case_seed(14);
    for (int i = 0; i < 200; i++) {
        enum dtype dtype = floats[case_draw(3)];
        enum case_layout layout = case_draw(2) ? CASE_PLAIN : CASE_LAST;
        int32_t n = 1 + (int32_t)case_draw(case_draw(5) ? 4 : KERNEL_CONCAT_MAX);
        int64_t dims[4] = {1 + case_draw(2), 0, 1 + case_draw(4), any_dim()}, total = 0;
        bool even = case_draw(2);
        struct case_tensor x[KERNEL_CONCAT_MAX];
        struct kernel_view parts[KERNEL_CONCAT_MAX];
        struct tensor_view dense[KERNEL_CONCAT_MAX];
        for (int32_t p = 0; p < n; p++) {
            dims[1] = even ? 8 * (1 + (int64_t)case_draw(3)) : any_dim();
            total += dims[1];
            x[p] = case_new(dtype, 4, dims, layout);
            case_fill(&x[p]);
            parts[p] = x[p].view;
            dense[p] = x[p].dense;
        }
        dims[1] = total;
        struct case_tensor y = case_new(dtype, 4, dims, layout);
        struct case_tensor scale = case_operand(dtype, &y.view, 13, CASE_PLAIN);
        struct case_tensor shift = case_operand(DTYPE_F32, &y.view, 13, CASE_PLAIN);
        case_fill(&scale);
        case_fill(&shift);
        struct kernel_epilogue e = {
            .n = 3,
            .step[0] = {.binary = 1, .func = IR_BINARY_MUL, .operand = scale.view},
            .step[1] = {.binary = 1, .func = IR_BINARY_ADD, .operand = shift.view},
            .step[2] = {.func = IR_UNARY_RELU}};
        struct tensor_view joined = case_dense(dtype, &y.dense.shape);
        struct tensor_view wide = case_dense(DTYPE_F32, &y.dense.shape);
        struct tensor_view want = case_dense(dtype, &y.dense.shape);
        ref_concat(1, (uint32_t)n, dense, &joined);
        ref_cast(&joined, &wide);
        ref_binary(IR_BINARY_MUL, false, &wide, &scale.dense, &wide);
        ref_binary(IR_BINARY_ADD, false, &wide, &shift.dense, &wide);
        ref_unary(IR_UNARY_RELU, 0, 0, 0, &wide, &wide);
        ref_cast(&wide, &want);
        assert_int_equal(kernel_concat(&case_call, parts, n, 1, &y.view, &e), cudaSuccess);
        case_check(&y, &want, 4 * case_precision(dtype));
        free(joined.data);
        free(wide.data);
        free(want.data);
        for (int32_t p = 0; p < n; p++)
            case_free(&x[p]);
        case_free(&scale);
        case_free(&shift);
        case_free(&y);
    }
}

static void gather_case(bool break_one)
{
    enum dtype dtype = any_dtype(), of_index = case_draw(2) ? DTYPE_I64 : DTYPE_I32;
    int32_t rank = 1 + (int32_t)case_draw(3), picks = (int32_t)case_draw(3);
    int32_t axis = (int32_t)case_draw((uint32_t)rank);
    int64_t dims[3] = {any_dim(), any_dim(), any_dim()}, index_dims[2] = {any_dim(), any_dim()};
    int64_t out[KERNEL_RANK_MAX];
    int32_t n = 0;
    for (int32_t d = 0; d < axis; d++)
        out[n++] = dims[d];
    for (int32_t d = 0; d < picks; d++)
        out[n++] = index_dims[d];
    for (int32_t d = axis + 1; d < rank; d++)
        out[n++] = dims[d];
    struct case_tensor x = case_new(dtype, rank, dims, CASE_PLAIN);
    struct case_tensor at = case_new(of_index, picks, index_dims, CASE_PLAIN);
    struct case_tensor y = case_new(dtype, n, out, CASE_PLAIN);
    case_fill(&x);
    size_t total = 0;
    assert_true(shape_elements(&at.dense.shape, &total));
    for (size_t i = 0; i < total; i++) {
        int64_t index = (int64_t)case_draw(2 * (uint32_t)dims[axis]) - dims[axis];
        if (of_index == DTYPE_I64)
            ((int64_t *)at.dense.data)[i] = index;
        else
            ((int32_t *)at.dense.data)[i] = (int32_t)index;
    }
    if (break_one && of_index == DTYPE_I64)
        ((int64_t *)at.dense.data)[total - 1] = case_draw(2) ? dims[axis] : INT64_MIN;
    else if (break_one)
        ((int32_t *)at.dense.data)[total - 1] = -(int32_t)dims[axis] - 1;
    case_scatter(&at);
    int32_t bad = 0;
    assert_int_equal(kernel_gather(&case_call, &x.view, &at.view, axis, &y.view, &bad),
                     cudaSuccess);
    assert_int_equal(bad, break_one);
    if (!break_one) {
        struct tensor_view want = case_dense(dtype, &y.dense.shape);
        assert_int_equal(ref_gather((uint32_t)axis, &x.dense, &at.dense, &want, NULL), STATUS_OK);
        case_check(&y, &want, 0);
        free(want.data);
    }
    case_free(&x);
    case_free(&at);
    case_free(&y);
}

static void test_gather(void **state)
{
    (void)state;
    case_seed(5);
    for (int i = 0; i < 300; i++)
        gather_case(false);
}

static void test_gather_out_of_range(void **state)
{
    (void)state;
    case_seed(6);
    for (int i = 0; i < 60; i++)
        gather_case(true);
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8];
    int32_t indices[2] = {4, 1}, bad = 0;
    struct kernel_view vx = {
        .data = x, .dtype = DTYPE_F32, .rank = 2, .dim = {2, 4}, .stride = {4, 1}};
    struct kernel_view vi = {
        .data = indices, .dtype = DTYPE_I32, .rank = 1, .dim = {2}, .stride = {1}};
    struct kernel_view vy = {
        .data = y, .dtype = DTYPE_F32, .rank = 2, .dim = {2, 4}, .stride = {4, 1}};
    assert_int_equal(kernel_gather(&case_call, &vx, &vi, 0, &vy, &bad), cudaSuccess);
    assert_int_equal(bad, 1);
    for (int i = 0; i < 4; i++) {
        assert_true(y[i] != y[i]);
        assert_floats(&y[4 + i], &x[4 + i], 1, 0);
    }
}

/* Pads of all signs, in all modes. A crop leaves at least one element. */
static void draw_pads(int32_t rank, const int64_t *dims, int64_t *pads, int64_t *wide)
{
    for (int32_t d = 0; d < rank; d++) {
        if (case_draw(2)) {
            pads[d] = case_draw(4) * (d == 1 ? 8 : 1);
            pads[rank + d] = case_draw(4);
        }
        if (case_draw(4) == 0 && dims[d] > 2) {
            pads[d] = -(int64_t)case_draw((uint32_t)dims[d] / 2);
            pads[rank + d] = -(int64_t)case_draw((uint32_t)dims[d] / 2);
        }
        wide[d] = dims[d] + pads[d] + pads[rank + d];
    }
}

static void test_pad(void **state)
{
    (void)state;
    case_seed(7);
    for (int i = 0; i < 600; i++) {
        enum dtype dtype = any_dtype();
        enum ir_pad mode = (enum ir_pad)case_draw(4);
        enum case_layout layout = case_draw(2) ? CASE_PLAIN : CASE_LAST;
        int32_t rank = 2 + (int32_t)case_draw(3);
        int64_t dims[4] = {any_dim(), any_dim(), any_dim(), any_dim()}, wide[4], pads[8] = {0};
        draw_pads(rank, dims, pads, wide);
        float value = (float[]){0, 1, -3, 0.5F}[case_draw(4)];
        struct case_tensor x = case_new(dtype, rank, dims, layout);
        struct case_tensor y = case_new(dtype, rank, wide, layout);
        struct tensor_view want = case_dense(dtype, &y.dense.shape);
        case_fill(&x);
        ref_pad(mode, pads, (double)value, &x.dense, &want);
        assert_int_equal(kernel_pad(&case_call, mode, &x.view, pads, value, &y.view), cudaSuccess);
        case_check(&y, &want, 0);
        free(want.data);
        case_free(&x);
        case_free(&y);
    }
}

static void test_refused(void **state)
{
    (void)state;
    struct kernel_view a = {.data = NULL, .dtype = DTYPE_F32, .rank = 1, .dim = {4}, .stride = {1}},
                       b = a,
                       empty = {
                           .data = NULL, .dtype = DTYPE_F32, .rank = 1, .dim = {0}, .stride = {1}};
    b.dtype = DTYPE_F16;
    int64_t around[2] = {1, 1};
    assert_int_equal(kernel_copy(&case_call, &a, &b), cudaErrorNotSupported);
    assert_int_equal(kernel_gather(&case_call, &a, &a, 0, &a, NULL), cudaErrorNotSupported);
    assert_int_equal(kernel_concat(&case_call, &a, 0, 0, &a, NULL), cudaErrorNotSupported);
    struct kernel_epilogue relu = {.n = 1, .step[0] = {.func = IR_UNARY_RELU}};
    struct kernel_view whole = a;
    whole.dtype = DTYPE_I32;
    assert_int_equal(kernel_concat(&case_call, &whole, 1, 0, &whole, &relu), cudaErrorNotSupported);
    assert_int_equal(kernel_pad(&case_call, IR_PAD_EDGE, &empty, around, 0, &a),
                     cudaErrorNotSupported);
    assert_int_equal(kernel_copy(&case_call, &empty, &empty), cudaSuccess);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_copy_transposed),
        cmocka_unit_test(test_copy_slice),
        cmocka_unit_test(test_concat),
        cmocka_unit_test(test_concat_steps),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_gather_out_of_range),
        cmocka_unit_test(test_pad),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
