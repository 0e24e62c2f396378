/* SPDX-License-Identifier: Apache-2.0 */
/* Maps of tensors. The driver's function is asked for by name, so that the module needs no library
 * of the driver. */
#include "kernels/cuda/hopper_map.cuh"

namespace
{

constexpr int BOX_MAX = 256, ALIGN = 16;
constexpr int64_t DIM_MAX = INT64_C(1) << 32, STRIDE_MAX = INT64_C(1) << 40;

int line_of(const struct hopper_tensor *t)
{
    return t->box[0] * number_size(t->dtype);
}

/* A dim of one element has a stride that nothing uses. */
int64_t stride_of(const struct hopper_tensor *t, int i)
{
    return (t->dim[i] > 1 ? t->stride[i] : ALIGN) * number_size(t->dtype);
}

} // namespace

bool hopper_tensor_fits(const struct hopper_tensor *t)
{
    int line = line_of(t);
    bool fits = t->rank >= 1 && t->rank <= HOPPER_RANK_MAX && (t->dim[0] == 1 || t->stride[0] == 1);
    fits = fits && (line == 32 || line == 64 || line == 128) && (uintptr_t)t->data % ALIGN == 0;
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
                       line_of(t))
               ? cudaSuccess
               : cudaErrorInvalidValue;
}

#else

typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                              const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                              const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static encode_fn encode;

/* Threads that come here at the same time all store the same address. */
static cudaError_t find_encode(encode_fn *out)
{
    encode_fn known = __atomic_load_n(&encode, __ATOMIC_ACQUIRE);
    if (!known) {
        void *found = nullptr;
        cudaDriverEntryPointQueryResult result;
        cudaError_t code = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                            cudaEnableDefault, &result);
        if (code != cudaSuccess || result != cudaDriverEntryPointSuccess)
            return code != cudaSuccess ? code : cudaErrorNotSupported;
        known = reinterpret_cast<encode_fn>(found);
        __atomic_store_n(&encode, known, __ATOMIC_RELEASE);
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
                        : CU_TENSOR_MAP_SWIZZLE_32B;
}

cudaError_t hopper_map(const struct hopper_tensor *t, CUtensorMap *out)
{
    encode_fn make;
    cuuint64_t dim[HOPPER_RANK_MAX], stride[HOPPER_RANK_MAX] = {};
    cuuint32_t box[HOPPER_RANK_MAX], step[HOPPER_RANK_MAX];
    cudaError_t code = find_encode(&make);
    if (code != cudaSuccess)
        return code;
    for (int i = 0; i < t->rank; i++) {
        dim[i] = (cuuint64_t)t->dim[i];
        box[i] = (cuuint32_t)t->box[i];
        step[i] = 1;
        if (i > 0)
            stride[i - 1] = (cuuint64_t)stride_of(t, i);
    }
    CUresult made =
        make(out, type_of(t->dtype), (cuuint32_t)t->rank, const_cast<void *>(t->data), dim, stride,
             box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(line_of(t)),
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return made == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

#endif
