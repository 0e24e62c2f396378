/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/cpu/views.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct tensor_view view_of(enum dtype dtype, void *data, uint32_t rank, const int64_t *dims)
{
    struct tensor_view view = {.dtype = dtype, .shape.rank = rank, .data = data};
    memcpy(view.shape.dim, dims, rank * sizeof(*dims));
    return view;
}

struct tensor_view view_scalar(enum dtype dtype, void *data)
{
    return (struct tensor_view){.dtype = dtype, .data = data};
}

struct tensor_view poisoned(struct tensor_view view)
{
    size_t bytes = 0;
    assert_true(shape_bytes(&view.shape, view.dtype, &bytes));
    memset(view.data, 0xff, bytes);
    return view;
}

static bool is_close(double got, double want, double tolerance)
{
    if (isnan(got) || isnan(want))
        return isnan(got) && isnan(want);
    if (isinf(got) || isinf(want))
        return got == want;
    return fabs(got - want) <= tolerance * fmax(1, fabs(want));
}

void assert_floats(const float *got, const float *want, size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!is_close((double)got[i], (double)want[i], tolerance))
            fail_msg("element %zu of %zu: got %.9g, want %.9g", i, n, (double)got[i],
                     (double)want[i]);
}

void assert_doubles(const double *got, const double *want, size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!is_close(got[i], want[i], tolerance))
            fail_msg("element %zu of %zu: got %.17g, want %.17g", i, n, got[i], want[i]);
}

static int64_t int_at(const struct tensor_view *view, size_t i)
{
    switch (view->dtype) {
    case DTYPE_BOOL:
    case DTYPE_U8:
        return ((const uint8_t *)view->data)[i];
    case DTYPE_I8:
        return ((const int8_t *)view->data)[i];
    case DTYPE_U16:
        return ((const uint16_t *)view->data)[i];
    case DTYPE_I16:
        return ((const int16_t *)view->data)[i];
    case DTYPE_U32:
        return ((const uint32_t *)view->data)[i];
    case DTYPE_I32:
        return ((const int32_t *)view->data)[i];
    default:
        return ((const int64_t *)view->data)[i];
    }
}

void assert_ints(const struct tensor_view *got, const int64_t *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (int_at(got, i) != want[i])
            fail_msg("element %zu of %zu: got %" PRId64 ", want %" PRId64, i, n, int_at(got, i),
                     want[i]);
}

void fill_random(float *out, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        out[i] = (float)(seed >> 8) / (float)(1 << 23) - 1;
    }
}
