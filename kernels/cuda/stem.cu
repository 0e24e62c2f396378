/* SPDX-License-Identifier: Apache-2.0 */
/* Which first layers go to the kernels of stem.cuh, and how their weights are packed. */
#include "kernels/cuda/stem.cuh"

static bool is_byte(int32_t dtype)
{
    return dtype == DTYPE_I8 || dtype == DTYPE_U8;
}

int32_t kernel_stem_taps(const struct kernel_stem *p)
{
    int most = 0;
    for (int i = 0; i < 2; i++) {
        if (p->kernel[i] < 1 || p->kernel[i] > KERNEL_STEM_WINDOW || p->pad[i] < 0 ||
            p->pad[i] >= p->kernel[i])
            return 0;
        most = max(most, (p->kernel[i] + p->pad[i] % 2 + 1) / 2);
    }
    return most > 4 ? 0 : most > 2 ? 4 : 2;
}

static int64_t size_of(const struct kernel_stem *p)
{
    return is_byte(p->y_dtype) ? 1 : 2;
}

static int64_t group_bytes(const struct kernel_stem *p)
{
    int taps = kernel_stem_taps(p);
    int steps = taps * kernel_stem_steps(is_byte(p->y_dtype), taps, p->channels == 4);
    return kernel_ceil_div(steps * 32, 128) * stem::PANEL;
}

int64_t kernel_stem_packed(const struct kernel_stem *p)
{
    return kernel_stem_filters(p->filters) / stem::SLAB * group_bytes(p) / size_of(p);
}

/* The byte of a line of taps that has tap b's channel of a cell: see patch::put and
 * consumer::cells. */
static int64_t depth_of(const struct kernel_stem *p, int taps, int64_t b, int64_t channel)
{
    if (is_byte(p->y_dtype))
        return b * stem::BRICK + channel;
    int64_t second = taps * stem::BRICK; /* begins behind the first plane's taps */
    if (channel < 8)
        return b * stem::BRICK + channel * 2;
    return second + (p->channels == 4 ? b * stem::BRICK : b * stem::BRICK / 2) + (channel - 8) * 2;
}

int64_t kernel_stem_place(const struct kernel_stem *p, int64_t filter, int64_t channel, int64_t r,
                          int64_t s)
{
    int taps = kernel_stem_taps(p);
    int steps = kernel_stem_steps(is_byte(p->y_dtype), taps, p->channels == 4);
    int64_t y = r + p->pad[0] % 2, x = s + p->pad[1] % 2, in = filter % stem::SLAB;
    int64_t down = y % 2, right = x % 2;
    int64_t of_cell = p->last && p->in[1] % 4 == 0 ? (down * 2 + right) * p->channels + channel
                                                   : channel * 4 + down * 2 + right;
    /* a thread has rows g and g + 8 of 16: two filters that follow one another */
    int64_t row = in / 16 * 16 + in % 16 / 2 + in % 2 * 8;
    int64_t k = y / 2 * steps * 32 + depth_of(p, taps, x / 2, of_cell);
    int64_t at = k / 128 * stem::PANEL + row * 128 + k % 128;
    return (filter / stem::SLAB * group_bytes(p) + (at ^ (at >> 7 & 7) << 4)) / size_of(p);
}

cudaError_t kernel_stem(const struct kernel_call *call, const struct kernel_stem *p)
{
    if (call->capability != 90 || p->channels < 1 || p->channels > KERNEL_STEM_CHANNELS ||
        !kernel_stem_taps(p))
        return cudaErrorNotSupported;
    if (p->y_dtype == DTYPE_F16)
        return stem::launch_f16(call, *p);
    if (p->y_dtype == DTYPE_BF16)
        return stem::launch_bf16(call, *p);
    return is_byte(p->y_dtype) ? stem::launch_bytes(call, *p) : cudaErrorNotSupported;
}
