/* SPDX-License-Identifier: Apache-2.0 */
/* Determinants by elimination with the largest pivot of each column. */
#include <math.h>

#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"

static void swap_rows(double *a, int64_t n, int64_t i, int64_t k)
{
    for (int64_t c = 0; c < n; c++) {
        double swap = a[i * n + c];
        a[i * n + c] = a[k * n + c];
        a[k * n + c] = swap;
    }
}

static double determinant(double *a, int64_t n)
{
    double det = 1;
    for (int64_t i = 0; i < n; i++) {
        int64_t pivot = i;
        for (int64_t r = i + 1; r < n; r++)
            if (fabs(a[r * n + i]) > fabs(a[pivot * n + i]))
                pivot = r;
        if (pivot != i) {
            swap_rows(a, n, i, pivot);
            det = -det;
        }
        det *= a[i * n + i];
        if (a[i * n + i] == 0)
            return det; /* 0, or NaN if the matrix holds one */
        for (int64_t r = i + 1; r < n; r++) {
            double factor = a[r * n + i] / a[i * n + i];
            for (int64_t c = i + 1; c < n; c++)
                a[r * n + c] -= factor * a[i * n + c];
        }
    }
    return det;
}

size_t ref_det_scratch(int64_t n)
{
    return (size_t)n * (size_t)n * sizeof(double);
}

void ref_det(const struct tensor_view *x, const struct tensor_view *y, void *scratch)
{
    int64_t n = x->shape.dim[x->shape.rank - 1];
    int64_t matrices = ref_extent(&x->shape, 0, x->shape.rank - 2);
    for (int64_t m = 0; m < matrices; m++) {
        ref_read_f64(x->dtype, x->data, m * n * n, 1, (size_t)(n * n), scratch);
        double det = determinant(scratch, n);
        ref_write_f64(y->dtype, y->data, m, 1, 1, &det);
    }
}
