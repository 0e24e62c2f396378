/* SPDX-License-Identifier: Apache-2.0 */
/* Maps of tensors for Hopper's tensor copies, made by a launcher. */
#ifndef INFERD_KERNELS_CUDA_HOPPER_MAP_CUH
#define INFERD_KERNELS_CUDA_HOPPER_MAP_CUH

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/kernels_hopper.h"

enum { HOPPER_RANK_MAX = 5 };

/* A tensor and the box of it that one copy moves; the innermost dim first. A line of the box
 * (box[0] elements) is as long as the swizzle, 32, 64 or 128 bytes; a plain one has no swizzle and
 * lines of any multiple of 16 bytes. */
struct hopper_tensor {
    const void *data;
    int32_t dtype, rank;
    int64_t dim[HOPPER_RANK_MAX];
    int64_t stride[HOPPER_RANK_MAX]; /* elements; of dim 0: 1 */
    int32_t box[HOPPER_RANK_MAX];
    bool plain;
};

/* Whether tensor copies can do it: strides and lines of multiples of 16 bytes, and so on. The
 * driver takes other lines where strides are not used, but a copy does not end within 16 bytes: an
 * H200 wrote more than 24 bytes of a line of 24. Does not look at the address, a multiple of 16. */
bool hopper_tensor_fits(const struct hopper_tensor *tensor);
/* The map of a tensor that fits. */
cudaError_t hopper_map(const struct hopper_tensor *tensor, CUtensorMap *out);

/* Images as rows of pixels that a convolution's window passes over: one copy moves `rows` pixels
 * (at most 256) by `line` bytes of channels. */
struct hopper_images {
    const void *data;
    int32_t dtype;
    const struct kernel_images *of; /* dense [N, H, W, C], and the window over it */
    int32_t rows, line;
};

bool hopper_images_fit(const struct hopper_images *images);
cudaError_t hopper_map_images(const struct hopper_images *images, CUtensorMap *out);

#endif
