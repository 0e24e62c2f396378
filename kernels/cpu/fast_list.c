/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/fast.h"

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
