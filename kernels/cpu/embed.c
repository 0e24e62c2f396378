/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of rows of tables, in double until they are rounded. */
#include "base/compiler.h"
#include "kernels/cpu/index.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"

enum { TABLES_MAX = 3 };

static struct shape rows_of(const struct shape *shape)
{
    struct shape rows = *shape;
    rows.rank--;
    return rows;
}

/* Writes row `row` of y: the sum of row from[k] of each table. */
static void sum_row(uint32_t n, const struct tensor_view *const *tables, const int64_t *from,
                    const struct tensor_view *y, int64_t row)
{
    int64_t width = y->shape.dim[y->shape.rank - 1];
    for (int64_t at = 0; at < width; at += REF_ROW) {
        double sum[REF_ROW], more[REF_ROW];
        size_t count = (size_t)MIN(width - at, REF_ROW);
        ref_read_f64(tables[0]->dtype, tables[0]->data, from[0] * width + at, 1, count, sum);
        for (uint32_t k = 1; k < n; k++) {
            ref_read_f64(tables[k]->dtype, tables[k]->data, from[k] * width + at, 1, count, more);
            for (size_t i = 0; i < count; i++)
                sum[i] += more[i];
        }
        ref_write_f64(y->dtype, y->data, row * width + at, 1, count, sum);
    }
}

/* Follows y's rows, and in each table's ids, or in its own rows, what broadcasts to them. */
enum status ref_embed(uint32_t n, const struct tensor_view *const *tables,
                      const struct tensor_view *const *ids, const struct tensor_view *y,
                      struct error *err)
{
    struct shape rows = rows_of(&y->shape);
    int64_t strides[1 + TABLES_MAX][SHAPE_MAX_RANK], from[TABLES_MAX];
    struct ref_walk w;
    shape_strides(&rows, strides[0]);
    for (uint32_t k = 0; k < n; k++) {
        struct shape own = ids[k] ? ids[k]->shape : rows_of(&tables[k]->shape);
        ref_broadcast_strides(&own, &rows, strides[1 + k]);
    }
    for (bool row = ref_walk_init(&w, &rows, 1 + n, strides); row; row = ref_walk_next(&w))
        for (int64_t i = 0; i < w.row; i++) {
            for (uint32_t k = 0; k < n; k++) {
                from[k] = w.at[1 + k] + i * w.step[1 + k];
                if (ids[k])
                    TRY(ref_index(ids[k], from[k], tables[k]->shape.dim[0], &from[k], err));
            }
            sum_row(n, tables, from, y, w.at[0] + i * w.step[0]);
        }
    return STATUS_OK;
}
