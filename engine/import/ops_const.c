/* SPDX-License-Identifier: Apache-2.0 */
/* Ops whose results are known when the plan is built: constants, shapes, ranges, windows. */
#include "engine/import/ops.h"

#include <math.h>
#include <string.h>

#include "engine/import/assume.h"
#include "engine/import/tensor.h"

/* Makes a TensorProto a constant of the graph, which keeps the model's bytes alive. */
uint32_t emit_tensor(struct mapper *m, const struct onnx_tensor *tensor, bool narrow)
{
    enum dtype dtype;
    const void *data;
    bool many = m->scope->outer != NULL; /* a loop may import this graph again */
    uint32_t known = many ? map_shared_find(m, tensor) : IR_NONE;
    if (map_failed(m) || known != IR_NONE)
        return known;
    struct error err;
    enum status status = (narrow && !many ? tensor_unpack : tensor_bytes)(
        m->model, m->graph->arena, tensor, &dtype, &data, &err);
    if (status) {
        map_failed_with(m, status, &err);
        return IR_NONE;
    }
    known = emit_constant(m, dtype, &tensor->shape, data);
    if (many)
        map_shared_add(m, tensor, known);
    return known;
}

static uint32_t emit_copy(struct mapper *m, enum dtype dtype, uint32_t n, const void *values)
{
    const struct shape shape = {.rank = 1, .dim = {n}};
    void *room = emit_room(m, &shape, dtype);
    if (!room)
        return IR_NONE;
    if (n)
        memcpy(room, values, n * dtype_size(dtype));
    return emit_constant(m, dtype, &shape, room);
}

static uint32_t constant_value(struct mapper *m, const struct onnx_attr *attr)
{
    const struct shape scalar = {0};
    switch (attr->type) {
    case ONNX_ATTR_TENSOR:
        return emit_tensor(m, attr->tensor, true);
    case ONNX_ATTR_FLOAT:
        return emit_reshape(m, emit_copy(m, DTYPE_F32, 1, &attr->f), &scalar);
    case ONNX_ATTR_FLOATS:
        return emit_copy(m, DTYPE_F32, attr->n_floats, attr->floats);
    case ONNX_ATTR_INT:
        return emit_reshape(m, emit_copy(m, DTYPE_I64, 1, &attr->i), &scalar);
    case ONNX_ATTR_INTS:
        return emit_copy(m, DTYPE_I64, attr->n_ints, attr->ints);
    default:
        map_refuse(m, "a value that is neither a dense tensor nor numbers");
        return IR_NONE;
    }
}

void map_constant(struct mapper *m)
{
    if (m->node->n_attrs != 1)
        map_invalid(m, "%u attributes, expected one", m->node->n_attrs);
    else
        map_out(m, 0, constant_value(m, &m->node->attrs[0]));
    const struct onnx_tensor *tensor = map_failed(m) ? NULL : m->node->attrs[0].tensor;
    if (tensor && tensor_is_narrow(tensor->type) && m->node->n_outputs)
        map_value_narrow(m, m->node->outputs[0], tensor->type);
}

void map_constant_of_shape(struct mapper *m)
{
    struct ints dims;
    struct shape shape = {.rank = 0};
    const struct onnx_attr *value = map_attr(m, "value");
    map_known_ints(m, map_in(m, 0), &dims);
    if (dims.n > SHAPE_MAX_RANK)
        map_refuse(m, "of rank %u, the limit is %d", dims.n, SHAPE_MAX_RANK);
    for (uint32_t d = 0; d < dims.n && !map_failed(m); d++) {
        shape.dim[shape.rank++] = dims.v[d];
        if (dims.v[d] < 0)
            map_invalid(m, "dimension %u is %lld", d, (long long)dims.v[d]);
    }
    if (value && value->type != ONNX_ATTR_TENSOR)
        map_invalid(m, "attribute 'value' is not a tensor");
    if (map_failed(m))
        return;
    uint32_t x = value ? emit_tensor(m, value->tensor, false) : emit_scalar(m, DTYPE_F32, 0);
    map_known_number(m, x);
    x = emit_reshape(m, x, &(struct shape){.rank = 0});
    map_out(m, 0, emit_expand(m, x, &shape));
}

void map_shape_of(struct mapper *m)
{
    uint32_t x = map_in(m, 0);
    const struct shape *shape = map_shape(m, x);
    int64_t rank = shape->rank, start = map_attr_int(m, "start", 0);
    int64_t end = map_attr_int(m, "end", rank);
    start = start < 0 ? MAX(start + rank, 0) : MIN(start, rank);
    end = end < 0 ? MAX(end + rank, 0) : MIN(end, rank);
    map_out(m, 0, emit_int_list(m, (uint32_t)MAX(end - start, 0), shape->dim + start));
}

void map_size_of(struct mapper *m)
{
    uint32_t x = map_in(m, 0);
    const struct shape *shape = map_shape(m, x);
    int64_t n = map_product(m, shape, 0, shape->rank);
    map_out(m, 0, emit_reshape(m, emit_int_list(m, 1, &n), &(struct shape){.rank = 0}));
}

enum { RANGE_MAX = 1 << 20 }; /* in a plan; what a request computes has its memory's limit */

/* Whether there may be so many values. */
static bool range_fits(struct mapper *m, double n)
{
    if (n <= RANGE_MAX || (m->computes && n <= (double)m->fold_budget))
        return true;
    if (isnan(n))
        map_invalid(m, "from and to where there is no number");
    else if (m->computes)
        map_spent(m);
    else
        map_refuse(m, "%.0f values, the limit is %d", n, RANGE_MAX);
    return false;
}

/* The length of the range, counted as numpy's arange does. */
static int64_t range_count(struct mapper *m, bool whole, const double *f, const int64_t *i)
{
    double n =
        whole ? ceil(((double)i[1] - (double)i[0]) / (double)i[2]) : ceil((f[1] - f[0]) / f[2]);
    if (whole ? i[2] == 0 : !(f[2] < 0 || f[2] > 0))
        map_invalid(m, "a step of 0");
    return map_failed(m) || !range_fits(m, n) || n < 0 ? 0 : (int64_t)n;
}

static void range_fill(void *to, enum dtype dtype, int64_t n, const double *f, const int64_t *i)
{
    size_t size = dtype_size(dtype);
    for (int64_t k = 0; k < n; k++) {
        uint64_t whole = (uint64_t)i[0] + (uint64_t)k * (uint64_t)i[2];
        float single = (float)f[0] + (float)k * (float)f[2];
        double wide = f[0] + (double)k * f[2];
        uint16_t half = dtype == DTYPE_F16 ? f32_to_f16(single) : f32_to_bf16(single);
        const void *from = dtype == DTYPE_F32      ? (const void *)&single
                           : dtype == DTYPE_F64    ? (const void *)&wide
                           : dtype_is_float(dtype) ? (const void *)&half
                                                   : (const void *)&whole;
        memcpy((uint8_t *)to + (size_t)k * size, from, size);
    }
}

void map_range(struct mapper *m)
{
    double f[3] = {0};
    int64_t i[3] = {0};
    uint32_t x[3];
    if (assume_range(m))
        return;
    for (uint32_t k = 0; k < 3; k++)
        x[k] = map_in(m, k);
    enum dtype dtype = map_dtype(m, x[0]);
    bool whole = !dtype_is_float(dtype);
    for (uint32_t k = 0; k < 3 && !map_failed(m); k++) {
        f[k] = map_known_number(m, x[k]);
        if (map_dtype(m, x[k]) != dtype)
            map_invalid(m, "operands of different types");
        else if (whole)
            i[k] = map_known_int(m, x[k]);
    }
    if (!map_failed(m) && dtype == DTYPE_BOOL)
        map_refuse(m, "of %s", dtype_name(dtype));
    struct shape shape = {.rank = 1, .dim = {map_failed(m) ? 0 : range_count(m, whole, f, i)}};
    void *room = emit_room(m, &shape, dtype);
    if (!room)
        return;
    range_fill(room, dtype, shape.dim[0], f, i);
    map_out(m, 0, emit_constant(m, dtype, &shape, room));
}

void map_eye_like(struct mapper *m)
{
    uint32_t x = map_in(m, 0);
    struct shape shape = *map_shape(m, x);
    enum dtype dtype =
        map_attr(m, "dtype") ? onnx_dtype(map_attr_int(m, "dtype", 0)) : map_dtype(m, x);
    int64_t k = map_attr_int(m, "k", 0);
    if (!map_failed(m) && shape.rank != 2)
        map_invalid(m, "an input of rank %u, expected 2", shape.rank);
    if (!map_failed(m) && dtype == DTYPE_NONE)
        map_refuse(m, "of that element type");
    const struct ir_tensor *one = map_failed(m) ? NULL : map_known(m, emit_scalar(m, dtype, 1));
    if (!one)
        return;
    const void *unit = one->data;
    uint8_t *room = emit_room(m, &shape, dtype);
    for (int64_t row = 0; room && row < shape.dim[0]; row++) {
        int64_t column;
        if (!__builtin_add_overflow(row, k, &column) && column >= 0 && column < shape.dim[1])
            memcpy(room + (size_t)(row * shape.dim[1] + column) * dtype_size(dtype), unit,
                   dtype_size(dtype));
    }
    if (room)
        map_out(m, 0, emit_constant(m, dtype, &shape, room));
}

/* a0 - a1 cos(2 pi i / n) + a2 cos(4 pi i / n); https://onnx.ai operators HannWindow and kin. */
static const double window_terms[][3] = {
    [MAP_WINDOW_HANN] = {0.5, 0.5, 0},
    [MAP_WINDOW_HAMMING] = {25.0 / 46.0, 21.0 / 46.0, 0},
    [MAP_WINDOW_BLACKMAN] = {0.42, 0.5, 0.08},
};

void map_window(struct mapper *m)
{
    const double *a = window_terms[m->row->func], turn = 6.283185307179586;
    int64_t n = map_known_int(m, map_in(m, 0));
    bool periodic = map_attr_int(m, "periodic", 1) != 0;
    enum dtype dtype = onnx_dtype(map_attr_int(m, "output_datatype", ONNX_FLOAT));
    if (n < 1)
        map_refuse(m, "%lld values, expected 1 to %d", (long long)n, RANGE_MAX);
    else if (!map_failed(m))
        range_fits(m, (double)n);
    if (dtype != DTYPE_F32 && dtype != DTYPE_F64)
        map_refuse(m, "of %s", dtype_name(dtype));
    if (map_failed(m))
        return;
    struct shape shape = {.rank = 1, .dim = {n}};
    void *room = emit_room(m, &shape, dtype);
    double period = periodic || n == 1 ? (double)n : (double)(n - 1);
    for (int64_t i = 0; room && i < n; i++) {
        double at = turn * (double)i / period;
        double value = a[0] - a[1] * cos(at) + a[2] * cos(2 * at);
        if (dtype == DTYPE_F32)
            ((float *)room)[i] = (float)value;
        else
            ((double *)room)[i] = value;
    }
    if (room)
        map_out(m, 0, emit_constant(m, dtype, &shape, room));
}
