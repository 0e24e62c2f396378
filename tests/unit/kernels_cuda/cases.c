/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kernels_cuda/cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"

const struct kernel_call case_call = {.multiprocessors = 3};

static uint64_t state = 1;

void case_seed(uint32_t seed)
{
    state = seed;
}

uint32_t case_draw(uint32_t below)
{
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(state >> 33) % below;
}

struct tensor_view case_dense(enum dtype dtype, const struct shape *shape)
{
    size_t n = 0;
    assert_true(shape_bytes(shape, dtype, &n));
    struct tensor_view view = {.dtype = dtype, .shape = *shape, .data = malloc(n ? n : 1)};
    assert_non_null(view.data);
    memset(view.data, 0xff, n);
    return view;
}

static void order_of(enum case_layout layout, int32_t rank, int32_t *order)
{
    for (int32_t i = 0; i < rank; i++)
        order[i] = i;
    if (layout == CASE_ANY_ORDER || layout == CASE_GAPS) {
        for (int32_t i = rank - 1; i > 0; i--) {
            int32_t k = (int32_t)case_draw((uint32_t)i + 1), swap = order[i];
            order[i] = order[k];
            order[k] = swap;
        }
    } else if (layout != CASE_PLAIN && rank >= 2) {
        for (int32_t i = 1; i + 1 < rank; i++)
            order[i] = i + 1;
        order[rank - 1] = 1;
    }
}

static struct case_tensor make(enum dtype dtype, int32_t rank, const int64_t *dims, unsigned once,
                               enum case_layout layout)
{
    struct case_tensor t = {.view = {.dtype = (int32_t)dtype, .rank = rank}};
    struct shape shape = {.rank = (uint32_t)rank};
    int32_t order[KERNEL_RANK_MAX];
    int64_t span = 1;
    order_of(layout, rank, order);
    int64_t multiple = layout == CASE_LAST_4 ? 4 : layout == CASE_LAST_8 ? 8 : 1;
    for (int32_t i = rank - 1; i >= 0; i--) {
        int32_t d = order[i];
        t.view.dim[d] = shape.dim[d] = dims[d];
        t.view.stride[d] = once >> d & 1 ? 0 : span;
        if (once >> d & 1)
            continue;
        span *= d == 1 ? (dims[d] + multiple - 1) / multiple * multiple : dims[d];
        if (layout == CASE_GAPS)
            span += (int64_t)case_draw(3) * 8;
    }
    if (multiple > 1)
        t.padded = (dims[1] + multiple - 1) / multiple * multiple;
    t.bytes = (size_t)span * dtype_size(dtype);
    /* Aligned to 16, and the block ends where the tensor does. */
    t.view.data = NULL;
    assert_int_equal(posix_memalign(&t.view.data, 16, t.bytes ? t.bytes : 1), 0);
    memset(t.view.data, 0xff, t.bytes);
    t.dense = case_dense(dtype, &shape);
    return t;
}

struct case_tensor case_new(enum dtype dtype, int32_t rank, const int64_t *dims,
                            enum case_layout layout)
{
    return make(dtype, rank, dims, 0, layout);
}

struct case_tensor case_operand(enum dtype dtype, const struct kernel_view *like, unsigned once,
                                enum case_layout layout)
{
    return make(dtype, like->rank, like->dim, once, layout);
}

void case_free(struct case_tensor *tensor)
{
    free(tensor->view.data);
    free(tensor->dense.data);
}

/* Offset of the dense element i. */
static int64_t offset(const struct kernel_view *view, int64_t i)
{
    int64_t at = 0;
    for (int32_t d = view->rank - 1; d >= 0; d--) {
        at += i % view->dim[d] * view->stride[d];
        i /= view->dim[d];
    }
    return at;
}

static int64_t elements(const struct kernel_view *view)
{
    int64_t n = 1;
    for (int32_t d = 0; d < view->rank; d++)
        n *= view->dim[d];
    return n;
}

void case_scatter(struct case_tensor *t)
{
    size_t size = dtype_size(t->dense.dtype);
    for (int64_t i = 0; i < elements(&t->view); i++)
        memcpy((char *)t->view.data + (size_t)offset(&t->view, i) * size,
               (const char *)t->dense.data + (size_t)i * size, size);
}

void case_fill(struct case_tensor *t)
{
    enum dtype dtype = t->dense.dtype;
    int64_t n = elements(&t->view);
    /* The dense copy is read back from the view's memory, so that broadcast elements are the
     * same. */
    for (int64_t i = 0; i < n; i++) {
        double f = ((double)case_draw(1 << 20) / (1 << 17)) - 4;
        int64_t v = dtype == DTYPE_BOOL
                        ? case_draw(2)
                        : (int64_t)case_draw(200) - (dtype_is_signed(dtype) ? 100 : 0);
        if (dtype_is_float(dtype))
            ref_write_f64(dtype, t->view.data, offset(&t->view, i), 1, 1, &f);
        else
            ref_write_i64(dtype, t->view.data, offset(&t->view, i), 1, 1, &v);
    }
    size_t size = dtype_size(dtype);
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)t->dense.data + (size_t)i * size,
               (const char *)t->view.data + (size_t)offset(&t->view, i) * size, size);
    /* bytes outside of the elements must never be read: an input's padding stays NaN */
    if (t->padded) {
        return;
    }
}

static void check_element(const struct case_tensor *got, const struct tensor_view *want, int64_t i,
                          double tolerance)
{
    size_t size = dtype_size(want->dtype);
    int64_t at = offset(&got->view, i);
    const char *g = (const char *)got->view.data + (size_t)at * size;
    const char *w = (const char *)want->data + (size_t)i * size;
    if (memcmp(g, w, size) == 0)
        return;
    double dg = ref_get_f64(want->dtype, g, 0), dw = ref_get_f64(want->dtype, w, 0);
    if (isnan(dg) && isnan(dw))
        return;
    if (!(tolerance > 0) || !(fabs(dg - dw) <= tolerance * fmax(1, fabs(dw))))
        fail_msg("element %lld (offset %lld) is %.9g, not %.9g", (long long)i, (long long)at, dg,
                 dw);
}

void case_check(const struct case_tensor *got, const struct tensor_view *want, double tolerance)
{
    int64_t n = elements(&got->view);
    size_t size = dtype_size(want->dtype), span = got->bytes / size;
    uint8_t *touched = calloc(span ? span : 1, 1);
    for (int64_t i = 0; i < n; i++) {
        check_element(got, want, i, tolerance);
        touched[offset(&got->view, i)] = 1;
    }
    for (size_t at = 0; at < span; at++)
        for (size_t b = 0; b < size && !touched[at]; b++) {
            unsigned byte = ((const uint8_t *)got->view.data)[at * size + b];
            unsigned should = got->padded ? 0 : 0xff;
            if (byte != should)
                fail_msg("byte %zu of offset %zu, no element, is %02x, not %02x", b, at, byte,
                         should);
        }
    free(touched);
}

double case_precision(enum dtype dtype)
{
    return dtype == DTYPE_F16 ? 1e-3 : dtype == DTYPE_BF16 ? 8e-3 : dtype == DTYPE_F32 ? 3e-6 : 0;
}
