/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/device/layout.h"

#include <stdlib.h>
#include <string.h>

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static int64_t block_of(enum ir_layout layout)
{
    return layout == IR_LAYOUT_BLOCKED_8 ? 8 : layout == IR_LAYOUT_BLOCKED_16 ? 16 : 0;
}

static int64_t channels_held(int64_t channels, enum ir_layout layout)
{
    if (layout == IR_LAYOUT_CHANNELS_LAST_4)
        return round_up(channels, 4);
    return layout == IR_LAYOUT_CHANNELS_LAST_8 ? round_up(channels, 8) : channels;
}

uint64_t layout_at(const struct shape *shape, enum ir_layout layout, uint64_t index)
{
    int64_t i[SHAPE_MAX_RANK], spatial = 1, place = 0;
    if (layout == IR_LAYOUT_PLAIN || shape->rank < 2)
        return index;
    for (uint32_t d = shape->rank; d-- > 0;) {
        i[d] = (int64_t)(index % (uint64_t)shape->dim[d]);
        index /= (uint64_t)shape->dim[d];
    }
    for (uint32_t d = 2; d < shape->rank; d++) {
        spatial *= shape->dim[d];
        place = place * shape->dim[d] + i[d];
    }
    int64_t block = block_of(layout);
    if (block) {
        int64_t blocks = round_up(shape->dim[1], block) / block;
        return (uint64_t)(((i[0] * blocks + i[1] / block) * spatial + place) * block +
                          i[1] % block);
    }
    return (uint64_t)((i[0] * spatial + place) * channels_held(shape->dim[1], layout) + i[1]);
}

double layout_load(const void *data, enum dtype dtype, uint64_t at)
{
    const uint16_t *half = data;
    switch (dtype) {
    case DTYPE_F16:
        return (double)f16_to_f32(half[at]);
    case DTYPE_BF16:
        return (double)bf16_to_f32(half[at]);
    case DTYPE_F32:
        return (double)((const float *)data)[at];
    case DTYPE_F64:
        return ((const double *)data)[at];
    default:
        abort();
    }
}

void layout_store(void *data, enum dtype dtype, uint64_t at, double value)
{
    uint16_t *half = data;
    switch (dtype) {
    case DTYPE_F16:
        half[at] = f32_to_f16((float)value);
        break;
    case DTYPE_BF16:
        half[at] = f32_to_bf16((float)value);
        break;
    case DTYPE_F32:
        ((float *)data)[at] = (float)value;
        break;
    case DTYPE_F64:
        ((double *)data)[at] = value;
        break;
    default:
        abort();
    }
}

static uint64_t elements(const struct ir_tensor *tensor)
{
    size_t n;
    if (!shape_elements(&tensor->shape, &n))
        abort();
    return n;
}

static void convert(const void *from, enum dtype from_type, uint64_t from_at, void *to,
                    enum dtype to_type, uint64_t to_at)
{
    size_t size = dtype_size(to_type);
    if (from_type == to_type)
        memcpy((char *)to + to_at * size, (const char *)from + from_at * size, size);
    else
        layout_store(to, to_type, to_at, layout_load(from, from_type, from_at));
}

void layout_pack(const struct ir_tensor *tensor, const void *plain, enum dtype dtype, void *to)
{
    uint64_t n = elements(tensor);
    memset(to, 0, tensor->bytes);
    for (uint64_t i = 0; i < n; i++)
        convert(plain, dtype, i, to, tensor->dtype, layout_at(&tensor->shape, tensor->layout, i));
}

void layout_unpack(const struct ir_tensor *tensor, const void *from, enum dtype dtype, void *plain)
{
    uint64_t n = elements(tensor);
    for (uint64_t i = 0; i < n; i++)
        convert(from, tensor->dtype, layout_at(&tensor->shape, tensor->layout, i), plain, dtype, i);
}

bool layout_padding_zero(const struct ir_tensor *tensor, const void *data)
{
    uint64_t n = elements(tensor), size = dtype_size(tensor->dtype), held = tensor->bytes / size;
    const unsigned char *bytes = data;
    bool *used = calloc(held + 1, sizeof(*used)), zero = used != NULL;
    for (uint64_t i = 0; used && i < n; i++)
        used[layout_at(&tensor->shape, tensor->layout, i)] = true;
    for (uint64_t i = 0; zero && i < held; i++)
        for (uint64_t b = 0; !used[i] && b < size; b++)
            zero = zero && bytes[i * size + b] == 0;
    free(used);
    return zero;
}
