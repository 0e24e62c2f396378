/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/fast.h"

#include <string.h>

extern const struct fast_kernels fast_kernels_base;
#ifdef __x86_64__
extern const struct fast_kernels fast_kernels_avx2, fast_kernels_avx512;
#endif

size_t fast_kernels_list(const struct fast_kernels *out[FAST_MAX])
{
    size_t n = 0;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        out[n++] = &fast_kernels_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        out[n++] = &fast_kernels_avx2;
#endif
    out[n++] = &fast_kernels_base;
    return n;
}

void fast_pack(const void *m, int64_t cols, int64_t depth, float *packed)
{
    const char *from = m;
    memset(packed, 0, (size_t)fast_packed_floats(cols, depth) * sizeof(*packed));
    for (int64_t c = 0; c < cols; c++) {
        float *to = packed + c / FAST_PANEL * FAST_PANEL * depth + c % FAST_PANEL;
        for (int64_t k = 0; k < depth; k++)
            memcpy(&to[k * FAST_PANEL], from + (size_t)(c * depth + k) * sizeof(*to), sizeof(*to));
    }
}
