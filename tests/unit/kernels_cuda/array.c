/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kernels_cuda/array.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "kernels/cpu/ref.h"

static uint32_t seed = 11;

uint32_t array_draw(uint32_t below)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

const int *array_channels_last(int rank)
{
    static const int orders[][5] = {{0, 2, 1}, {0, 2, 3, 1}, {0, 2, 3, 4, 1}};
    return rank < 3 ? NULL : orders[rank - 3];
}

float *array_values(const struct array *array)
{
    return array->dense.data;
}

size_t array_count(const struct array *array)
{
    size_t n = 0;
    assert_true(shape_elements(&array->dense.shape, &n));
    return n;
}

struct array array_new(enum dtype dtype, int rank, const int64_t *dims, const int *order,
                       float scale)
{
    struct array a = {.view = {.dtype = (int)dtype, .rank = rank}};
    int64_t n = 1;
    memcpy(a.view.dim, dims, (size_t)rank * sizeof(*dims));
    for (int i = rank - 1; i >= 0; i--) {
        int d = order ? order[i] : i;
        a.view.stride[d] = n;
        n *= dims[d];
    }
    float *values = malloc((size_t)n * sizeof(float) + 1);
    fill_random(values, (size_t)n, array_draw(1 << 20));
    for (int64_t i = 0; i < n; i++)
        values[i] *= scale;
    a.dense = view_of(DTYPE_F32, values, (uint32_t)rank, dims);
    assert_int_equal(posix_memalign(&a.view.data, 16, (size_t)n * dtype_size(dtype) + (n == 0)), 0);
    array_store(&a);
    return a;
}

void array_free(struct array *array)
{
    free(array->view.data);
    free(array->dense.data);
}

/* The offset in the view of element i, counted row-major. */
static int64_t place(const struct kernel_view *view, size_t i)
{
    int64_t at = 0;
    for (int d = view->rank - 1; d >= 0; d--) {
        at += (int64_t)(i % (size_t)view->dim[d]) * view->stride[d];
        i /= (size_t)view->dim[d];
    }
    return at;
}

static struct tensor_view element(const struct array *array, size_t i)
{
    size_t size = dtype_size((enum dtype)array->view.dtype);
    return view_scalar((enum dtype)array->view.dtype,
                       (char *)array->view.data + (size_t)place(&array->view, i) * size);
}

void array_store(struct array *array)
{
    float *values = array->dense.data;
    size_t n = array_count(array);
    for (size_t i = 0; i < n; i++) {
        struct tensor_view from = view_scalar(DTYPE_F32, &values[i]), to = element(array, i);
        ref_cast(&from, &to);
        ref_cast(&to, &from);
    }
}

void array_poison(const struct array *array)
{
    memset(array->view.data, 0xff, array_count(array) * dtype_size((enum dtype)array->view.dtype));
}

/* What memory holds of element i. */
static float value_at(const struct array *array, size_t i)
{
    float got = 0;
    struct tensor_view from = element(array, i), to = view_scalar(DTYPE_F32, &got);
    ref_cast(&from, &to);
    return got;
}

bool array_f16_is_near(const struct array *array)
{
    for (size_t i = 0; i < array_count(array); i++) {
        float got = value_at(array, i);
        float want = array_values(array)[i];
        if (!(fabsf(got - want) <= 0.01F * fmaxf(1, fabsf(want))))
            return false;
    }
    return true;
}

void array_check(const struct array *array, double tolerance, const char *what)
{
    const float *want = array->dense.data;
    size_t n = array_count(array);
    double unit = array->view.dtype == DTYPE_F16    ? 0x1p-10
                  : array->view.dtype == DTYPE_BF16 ? 0x1p-7
                                                    : 0;
    for (size_t i = 0; i < n; i++) {
        float got = value_at(array, i);
        if (isnan(want[i]) ? isnan(got) : got == want[i])
            continue;
        double size = fabs((double)want[i]), bound = unit * size + tolerance * fmax(1, size);
        if (!(fabs((double)got - (double)want[i]) <= bound))
            fail_msg("%s: element %zu of %zu: got %.9g, want %.9g", what, i, n, (double)got,
                     (double)want[i]);
    }
}
