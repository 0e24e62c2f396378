/* SPDX-License-Identifier: Apache-2.0 */
/* See tensor.h. */
#include "tools/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/import/onnx.h"
#include "tools/npy.h"
#include "tools/show.h"

enum status tensor_read(const char *path, struct tensor_view *out, struct error *err)
{
    size_t len = strlen(path);
    char *name = NULL;
    if (len > 4 && !strcmp(path + len - 4, ".npy"))
        return npy_read(path, out, err);
    enum status status = onnx_tensor_read(path, out, &name, err);
    if (!status)
        free(name);
    else if (status == STATUS_INVALID_ARGUMENT && (len <= 3 || strcmp(path + len - 3, ".pb") != 0))
        return error_set(err, status, "%s: expected a tensor: a .npy file, or ONNX's in a .pb file",
                         path);
    return status;
}

/* splitmix64 */
static uint64_t next(uint64_t *seed)
{
    uint64_t z = *seed += 0x9e3779b97f4a7c15ULL;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return z ^ z >> 31;
}

static void put(void *data, size_t i, enum dtype dtype, double v)
{
    switch (dtype) {
    case DTYPE_F16:
        ((uint16_t *)data)[i] = f32_to_f16((float)v);
        break;
    case DTYPE_BF16:
        ((uint16_t *)data)[i] = f32_to_bf16((float)v);
        break;
    case DTYPE_F32:
        ((float *)data)[i] = (float)v;
        break;
    case DTYPE_F64:
        ((double *)data)[i] = v;
        break;
    case DTYPE_U8: /* pixels: all values */
        ((uint8_t *)data)[i] = (uint8_t)((v + 1) * 128);
        break;
    default: {
        size_t size = dtype_size(dtype); /* little-endian: the low byte is first */
        memset((char *)data + i * size, 0, size);
        ((unsigned char *)data)[i * size] = v >= 0;
    }
    }
}

void tensor_random(void *data, size_t n, enum dtype dtype, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++)
        put(data, i, dtype, (double)(next(seed) >> 40) / (1 << 23) - 1.0);
}

double tensor_at(const struct tensor_view *tensor, size_t i)
{
    const void *d = tensor->data;
    switch (tensor->dtype) {
    case DTYPE_BOOL:
    case DTYPE_U8:
        return ((const uint8_t *)d)[i];
    case DTYPE_U16:
        return ((const uint16_t *)d)[i];
    case DTYPE_U32:
        return ((const uint32_t *)d)[i];
    case DTYPE_U64:
        return (double)((const uint64_t *)d)[i];
    case DTYPE_I8:
        return ((const int8_t *)d)[i];
    case DTYPE_I16:
        return ((const int16_t *)d)[i];
    case DTYPE_I32:
        return ((const int32_t *)d)[i];
    case DTYPE_I64:
        return (double)((const int64_t *)d)[i];
    case DTYPE_F16:
        return f16_to_f32(((const uint16_t *)d)[i]);
    case DTYPE_BF16:
        return bf16_to_f32(((const uint16_t *)d)[i]);
    case DTYPE_F32:
        return ((const float *)d)[i];
    case DTYPE_F64:
        return ((const double *)d)[i];
    case DTYPE_F8:
        return f8_to_f32(((const uint8_t *)d)[i]);
    case DTYPE_NONE:
    case DTYPE_COUNT_:
        break;
    }
    return 0;
}

bool tensor_compare(const struct tensor_view *a, const struct tensor_view *b, double rtol,
                    double atol, struct tensor_difference *out)
{
    struct tensor_difference d = {0};
    size_t bytes;
    if (a->dtype != b->dtype || !shape_equal(&a->shape, &b->shape) ||
        !shape_elements(&a->shape, &d.elements) || !shape_bytes(&a->shape, a->dtype, &bytes))
        return false;
    size_t size = dtype_size(a->dtype);
    bool exact = !dtype_is_float(a->dtype) && rtol == 0 && atol == 0;
    for (size_t i = 0; i < d.elements; i++) {
        double x = tensor_at(a, i), y = tensor_at(b, i), diff = fabs(x - y);
        bool same = exact ? !memcmp((const char *)a->data + i * size,
                                    (const char *)b->data + i * size, size)
                          : x == y || (isnan(x) && isnan(y)) || diff <= atol + rtol * fabs(y);
        if (x == y || (isnan(x) && isnan(y)))
            diff = 0;
        else if (isnan(diff))
            diff = INFINITY;
        d.max_abs = fmax(d.max_abs, diff);
        if (diff > 0)
            d.max_rel = fmax(d.max_rel, y != 0 ? diff / fabs(y) : INFINITY);
        if (!same && d.different++ == 0)
            d.first = i;
    }
    *out = d;
    return true;
}

void tensor_print(FILE *to, const char *name, const struct tensor_view *tensor, size_t max)
{
    char text[SHAPE_TEXT_MAX];
    size_t n = 0;
    if (!shape_elements(&tensor->shape, &n))
        return;
    show_fprintf(to, "%s %s %s", name, dtype_name(tensor->dtype),
                 shape_format(&tensor->shape, text));
    for (size_t i = 0; i < n && i < max; i++)
        fprintf(to, " %.6g", tensor_at(tensor, i));
    fprintf(to, "%s\n", n > max ? " ..." : "");
}
