/* SPDX-License-Identifier: Apache-2.0 */
/* Maps of tensors. The driver's function is asked for by name, so that the module needs no library
 * of the driver. */
#include "kernels/cuda/hopper_map.cuh"

namespace
{

constexpr int BOX_MAX = 256, ALIGN = 16;
/* Of images: steps of a window, places of its corners, and of a tap. */
constexpr int STEP_MAX = 8, CORNER_MIN = -128, CORNER_MAX = 127, OFFSET_MAX = 255;
constexpr int64_t DIM_MAX = INT64_C(1) << 32, STRIDE_MAX = INT64_C(1) << 40;

int line_of(const struct hopper_tensor *t)
{
    return t->box[0] * number_size(t->dtype);
}

/* Bytes; 0: none. */
int swizzle_line(const struct hopper_tensor *t)
{
    return t->plain ? 0 : line_of(t);
}

/* A dim of one element has a stride that nothing uses. */
int64_t stride_of(const struct hopper_tensor *t, int i)
{
    return (t->dim[i] > 1 ? t->stride[i] : ALIGN) * number_size(t->dtype);
}

/* The last place of the window's first tap, counted from the image's last pixel. */
int64_t upper_corner(const struct kernel_images *i, int d)
{
    return -i->pad[d] + (i->out[d] - 1) * i->stride[d] - (i->in[d] - 1);
}

bool side_fits(const struct kernel_images *i, int d)
{
    const int64_t most = INT64_C(1) << 20;
    return i->in[d] >= 1 && i->in[d] <= most && i->out[d] >= 1 && i->out[d] <= most &&
           i->stride[d] >= 1 && i->stride[d] <= STEP_MAX && i->kernel[d] >= 1 &&
           i->dilation[d] >= 1 && i->pad[d] >= 0 && i->pad[d] <= -CORNER_MIN &&
           upper_corner(i, d) >= CORNER_MIN && upper_corner(i, d) <= CORNER_MAX &&
           ((int64_t)i->kernel[d] - 1) * i->dilation[d] <= OFFSET_MAX;
}

} // namespace

bool hopper_images_fit(const struct hopper_images *t)
{
    const struct kernel_images *i = t->of;
    int size = number_size(t->dtype);
    return i->images >= 1 && i->images <= DIM_MAX && i->channels >= 1 && i->channels <= DIM_MAX &&
           side_fits(i, 0) && side_fits(i, 1) && i->channels * size % ALIGN == 0 && t->rows >= 1 &&
           t->rows <= BOX_MAX && (t->line == 32 || t->line == 64 || t->line == 128) &&
           (uintptr_t)t->data % ALIGN == 0 && i->channels * i->in[1] * size < STRIDE_MAX &&
           i->channels * i->in[1] * i->in[0] * size < STRIDE_MAX;
}

bool hopper_tensor_fits(const struct hopper_tensor *t)
{
    int line = line_of(t);
    bool fits = t->rank >= 1 && t->rank <= HOPPER_RANK_MAX && (t->dim[0] == 1 || t->stride[0] == 1);
    fits = fits && t->dim[0] * number_size(t->dtype) % ALIGN == 0 &&
           (t->plain ? line % ALIGN == 0 : line == 32 || line == 64 || line == 128) &&
           (uintptr_t)t->data % ALIGN == 0;
    for (int i = 0; fits && i < t->rank; i++)
        fits = t->dim[i] >= 1 && t->dim[i] <= DIM_MAX && t->box[i] >= 1 && t->box[i] <= BOX_MAX;
    for (int i = 1; fits && i < t->rank; i++)
        fits = stride_of(t, i) > 0 && stride_of(t, i) < STRIDE_MAX && stride_of(t, i) % ALIGN == 0;
    return fits;
}

#ifdef INFERD_EMULATE

cudaError_t hopper_map(const struct hopper_tensor *t, CUtensorMap *out)
{
    int64_t stride[HOPPER_RANK_MAX];
    for (int i = 1; i < t->rank; i++)
        stride[i] = stride_of(t, i);
    return emulate_map(out, t->data, number_size(t->dtype), t->rank, t->dim, stride, t->box,
                       swizzle_line(t))
               ? cudaSuccess
               : cudaErrorInvalidValue;
}

cudaError_t hopper_map_images(const struct hopper_images *t, CUtensorMap *out)
{
    const struct kernel_images *i = t->of;
    const int64_t dim[4] = {i->channels, i->in[1], i->in[0], i->images};
    const int32_t lower[2] = {-i->pad[1], -i->pad[0]}, step[2] = {i->stride[1], i->stride[0]};
    const int32_t upper[2] = {(int32_t)upper_corner(i, 1), (int32_t)upper_corner(i, 0)};
    return emulate_map_images(out, t->data, number_size(t->dtype), dim, lower, upper, step, t->rows,
                              t->line)
               ? cudaSuccess
               : cudaErrorInvalidValue;
}

#else

typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                              const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                              const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
typedef CUresult (*encode_images_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                     const cuuint64_t *, const cuuint64_t *, const int *,
                                     const int *, cuuint32_t, cuuint32_t, const cuuint32_t *,
                                     CUtensorMapInterleave, CUtensorMapSwizzle,
                                     CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's functions. Threads that come here at the same time all store the same address. */
static void *found_tiled, *found_images;

static cudaError_t find(const char *name, void **kept, void **out)
{
    void *known = __atomic_load_n(kept, __ATOMIC_ACQUIRE);
    if (!known) {
        cudaDriverEntryPointQueryResult result;
        cudaError_t code =
            cudaGetDriverEntryPointByVersion(name, &known, 12000, cudaEnableDefault, &result);
        if (code != cudaSuccess || result != cudaDriverEntryPointSuccess)
            return code != cudaSuccess ? code : cudaErrorNotSupported;
        __atomic_store_n(kept, known, __ATOMIC_RELEASE);
    }
    *out = known;
    return cudaSuccess;
}

static CUtensorMapDataType type_of(int32_t dtype)
{
    return dtype == DTYPE_F16    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
           : dtype == DTYPE_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
           : dtype == DTYPE_F32  ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                 : CU_TENSOR_MAP_DATA_TYPE_UINT8;
}

static CUtensorMapSwizzle swizzle_of(int line)
{
    return line == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
           : line == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
           : line == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                        : CU_TENSOR_MAP_SWIZZLE_NONE;
}

cudaError_t hopper_map(const struct hopper_tensor *t, CUtensorMap *out)
{
    void *make = nullptr;
    cuuint64_t dim[HOPPER_RANK_MAX], stride[HOPPER_RANK_MAX] = {};
    cuuint32_t box[HOPPER_RANK_MAX], step[HOPPER_RANK_MAX];
    cudaError_t code = find("cuTensorMapEncodeTiled", &found_tiled, &make);
    if (code != cudaSuccess)
        return code;
    for (int i = 0; i < t->rank; i++) {
        dim[i] = (cuuint64_t)t->dim[i];
        box[i] = (cuuint32_t)t->box[i];
        step[i] = 1;
        if (i > 0)
            stride[i - 1] = (cuuint64_t)stride_of(t, i);
    }
    CUresult made = reinterpret_cast<encode_fn>(make)(
        out, type_of(t->dtype), (cuuint32_t)t->rank, const_cast<void *>(t->data), dim, stride, box,
        step, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(swizzle_line(t)),
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return made == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

/* Drivers up to CUDA 13.1 set a bit for tensors below 128 KiB that must not be set (as CUTLASS
 * corrects in include/cute/atom/copy_traits_sm90_im2col.hpp). */
static void mend(const struct hopper_images *t, CUtensorMap *out)
{
    const struct kernel_images *i = t->of;
    const int64_t small = INT64_C(131072);
    uint64_t word;
    if (i->images * i->in[0] * i->in[1] * i->channels * number_size(t->dtype) >= small)
        return;
    memcpy(&word, reinterpret_cast<char *>(out) + sizeof(word), sizeof(word));
    word &= ~(UINT64_C(1) << 21);
    memcpy(reinterpret_cast<char *>(out) + sizeof(word), &word, sizeof(word));
}

cudaError_t hopper_map_images(const struct hopper_images *t, CUtensorMap *out)
{
    void *make = nullptr;
    const struct kernel_images *i = t->of;
    const int64_t size = number_size(t->dtype);
    const cuuint64_t dim[4] = {(cuuint64_t)i->channels, (cuuint64_t)i->in[1], (cuuint64_t)i->in[0],
                               (cuuint64_t)i->images};
    const cuuint64_t stride[3] = {dim[0] * size, dim[0] * dim[1] * size,
                                  dim[0] * dim[1] * dim[2] * size};
    const int lower[2] = {-i->pad[1], -i->pad[0]};
    const int upper[2] = {(int)upper_corner(i, 1), (int)upper_corner(i, 0)};
    const cuuint32_t step[4] = {1, (cuuint32_t)i->stride[1], (cuuint32_t)i->stride[0], 1};
    cudaError_t code = find("cuTensorMapEncodeIm2col", &found_images, &make);
    if (code != cudaSuccess)
        return code;
    CUresult made = reinterpret_cast<encode_images_fn>(make)(
        out, type_of(t->dtype), 4, const_cast<void *>(t->data), dim, stride, lower, upper,
        (cuuint32_t)(t->line / size), (cuuint32_t)t->rows, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
        swizzle_of(t->line), CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (made != CUDA_SUCCESS)
        return cudaErrorInvalidValue;
    mend(t, out);
    return cudaSuccess;
}

#endif
