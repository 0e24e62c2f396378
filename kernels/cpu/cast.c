/* SPDX-License-Identifier: Apache-2.0 */
#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"

/* Converts directly: through double, a large uint64 would be rounded twice on its way to fp32. */
static void cast_u64_to_f32(const struct tensor_view *x, const struct tensor_view *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float value = (float)(uint64_t)ref_get_i64(x->dtype, x->data, i);
        memcpy((char *)y->data + i * (int64_t)sizeof(value), &value, sizeof(value));
    }
}

void ref_cast(const struct tensor_view *x, const struct tensor_view *y)
{
    size_t total = 0;
    if (!shape_elements(&x->shape, &total))
        return;
    int64_t n = (int64_t)total;
    if (x->dtype == DTYPE_U64 && y->dtype == DTYPE_F32) {
        cast_u64_to_f32(x, y, n);
        return;
    }
    bool ints = !dtype_is_float(x->dtype) && x->dtype != DTYPE_F8 &&
                !(x->dtype == DTYPE_U64 && dtype_is_float(y->dtype));
    union {
        double f[REF_ROW];
        int64_t i[REF_ROW];
    } row;
    for (int64_t at = 0; at < n; at += REF_ROW) {
        size_t part = (size_t)MIN(n - at, REF_ROW);
        if (ints) {
            ref_read_i64(x->dtype, x->data, at, 1, part, row.i);
            ref_write_i64(y->dtype, y->data, at, 1, part, row.i);
        } else {
            ref_read_f64(x->dtype, x->data, at, 1, part, row.f);
            ref_write_f64(y->dtype, y->data, at, 1, part, row.f);
        }
    }
}
