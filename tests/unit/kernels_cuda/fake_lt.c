/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kernels_cuda/fake_lt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

enum { ATTRIBUTES = 48, WORKSPACE = 1024, ANY_ALGO = 1000, ROWS_ALGO = 1001 };

/* Both are what the library's opaque structs are here. */
struct desc {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    uint64_t value[ATTRIBUTES];
};

struct layout {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld;
};

static struct desc *desc_of(cublasLtMatmulDesc_t op)
{
    return (struct desc *)(void *)op;
}

static const struct layout *layout_of(cublasLtMatrixLayout_t layout)
{
    return (const struct layout *)(void *)layout;
}

static cublasStatus_t desc_create(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                  cudaDataType_t scale)
{
    struct desc *d = calloc(1, sizeof(*d));
    if (!d)
        return CUBLAS_STATUS_ALLOC_FAILED;
    d->compute = compute;
    d->scale = scale;
    *out = (cublasLtMatmulDesc_t)(void *)d;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t desc_destroy(cublasLtMatmulDesc_t op)
{
    free(op);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t desc_set(cublasLtMatmulDesc_t op, cublasLtMatmulDescAttributes_t key,
                               const void *value, size_t size)
{
    if ((unsigned)key >= ATTRIBUTES || size > sizeof(uint64_t))
        return CUBLAS_STATUS_INVALID_VALUE;
    desc_of(op)->value[key] = 0;
    memcpy(&desc_of(op)->value[key], value, size);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t layout_create(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows,
                                    uint64_t cols, int64_t ld)
{
    struct layout *l = calloc(1, sizeof(*l));
    if (!l)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *l = (struct layout){type, rows, cols, ld};
    *out = (cublasLtMatrixLayout_t)(void *)l;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t layout_destroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_create(cublasLtMatmulPreference_t *out)
{
    *out = (cublasLtMatmulPreference_t)calloc(1, 8);
    return *out ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

static cublasStatus_t preference_set(cublasLtMatmulPreference_t preference UNUSED,
                                     cublasLtMatmulPreferenceAttributes_t key UNUSED,
                                     const void *value UNUSED, size_t size UNUSED)
{
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_destroy(cublasLtMatmulPreference_t preference)
{
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

/* INT8 kernels: a transposed A and a plain B, multiples of 4; INT32 out with INT32 factors and no
 * epilogue, or INT8 out with a vector of fp32 factors. */
static bool is_supported(const struct desc *d, const struct layout *a, const struct layout *b,
                         const struct layout *y)
{
    bool direct = y->type == CUDA_R_8I;
    uint64_t epilogue = d->value[CUBLASLT_MATMUL_DESC_EPILOGUE];
    uint64_t mode = d->value[CUBLASLT_MATMUL_DESC_POINTER_MODE];
    return d->compute == CUBLAS_COMPUTE_32I && a->type == CUDA_R_8I && b->type == CUDA_R_8I &&
           d->value[CUBLASLT_MATMUL_DESC_TRANSA] == CUBLAS_OP_T &&
           d->value[CUBLASLT_MATMUL_DESC_TRANSB] == CUBLAS_OP_N && a->rows % 4 == 0 &&
           a->cols % 4 == 0 && a->ld % 4 == 0 && b->ld % 4 == 0 && y->ld % 4 == 0 &&
           a->rows == b->rows && y->rows == a->cols && y->cols == b->cols &&
           (direct ? d->scale == CUDA_R_32F &&
                         mode == CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST
                   : y->type == CUDA_R_32I && d->scale == CUDA_R_32I && mode == 0 && epilogue == 0);
}

static bool is_wide(cudaDataType_t type)
{
    return type == CUDA_R_16F || type == CUDA_R_16BF;
}

/* FP8 kernels: the same forms, multiples of 16; FP8 out by a scale, or C's type. */
static bool is_supported_f8(const struct desc *d, const struct layout *a, const struct layout *b,
                            const struct layout *c, const struct layout *y)
{
    uint64_t epilogue = d->value[CUBLASLT_MATMUL_DESC_EPILOGUE];
    bool biased = epilogue & CUBLASLT_EPILOGUE_BIAS;
    bool typed = !biased || d->value[CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE] == (uint64_t)c->type;
    bool scaled = y->type == CUDA_R_8F_E4M3 && d->value[CUBLASLT_MATMUL_DESC_D_SCALE_POINTER];
    return d->compute == CUBLAS_COMPUTE_32F && d->scale == CUDA_R_32F &&
           a->type == CUDA_R_8F_E4M3 && b->type == CUDA_R_8F_E4M3 &&
           d->value[CUBLASLT_MATMUL_DESC_TRANSA] == CUBLAS_OP_T &&
           d->value[CUBLASLT_MATMUL_DESC_TRANSB] == CUBLAS_OP_N && a->ld % 16 == 0 &&
           b->ld % 16 == 0 && y->ld % 16 == 0 && a->rows == b->rows && y->rows == a->cols &&
           y->cols == b->cols && c->rows == y->rows && c->cols == y->cols && typed &&
           (is_wide(c->type) ? y->type == c->type || scaled
                             : c->type == CUDA_R_32F && y->type == c->type && epilogue <= 1);
}

static uint64_t size_of(cudaDataType_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

/* Float kernels, of those that load and store 16 aligned bytes: a transposed A and a plain B; the
 * same type out, or FP32. */
static bool is_supported_float(const struct desc *d, const struct layout *a, const struct layout *b,
                               const struct layout *y)
{
    uint64_t epilogue = d->value[CUBLASLT_MATMUL_DESC_EPILOGUE];
    return (d->compute == CUBLAS_COMPUTE_32F ||
            (d->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a->type == CUDA_R_32F)) &&
           (is_wide(a->type) || a->type == CUDA_R_32F) && b->type == a->type &&
           (y->type == a->type || y->type == CUDA_R_32F) &&
           d->value[CUBLASLT_MATMUL_DESC_TRANSA] == CUBLAS_OP_T &&
           d->value[CUBLASLT_MATMUL_DESC_TRANSB] == CUBLAS_OP_N &&
           (uint64_t)a->ld * size_of(a->type) % 16 == 0 &&
           (uint64_t)b->ld * size_of(b->type) % 16 == 0 &&
           (uint64_t)y->ld * size_of(y->type) % 16 == 0 && a->rows == b->rows &&
           y->rows == a->cols && y->cols == b->cols &&
           (epilogue <= CUBLASLT_EPILOGUE_DEFAULT || epilogue == CUBLASLT_EPILOGUE_BIAS);
}

static bool is_any(cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t y)
{
    const struct layout *am = layout_of(a), *bm = layout_of(b), *ym = layout_of(y);
    return am->type == CUDA_R_8F_E4M3 ? is_supported_f8(desc_of(op), am, bm, layout_of(c), ym)
           : am->type == CUDA_R_8I    ? is_supported(desc_of(op), am, bm, ym)
                                      : is_supported_float(desc_of(op), am, bm, ym);
}

/* Of floats there is an algorithm that takes no single row. */
static bool has_rows_algo(cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t y)
{
    return (is_wide(layout_of(a)->type) || layout_of(a)->type == CUDA_R_32F) &&
           layout_of(y)->cols > 1;
}

static cublasStatus_t heuristic(cublasLtHandle_t handle UNUSED, cublasLtMatmulDesc_t op,
                                cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                cublasLtMatmulPreference_t preference UNUSED, int most,
                                cublasLtMatmulHeuristicResult_t *results, int *n)
{
    *n = 0;
    if (most < 2 || !is_any(op, a, b, c, d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < 2; i++)
        results[i] = (cublasLtMatmulHeuristicResult_t){.algo = {{i ? ROWS_ALGO : ANY_ALGO}},
                                                       .workspaceSize = WORKSPACE,
                                                       .state = i && !has_rows_algo(a, d)
                                                                    ? CUBLAS_STATUS_NOT_SUPPORTED
                                                                    : CUBLAS_STATUS_SUCCESS};
    *n = 2;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check(cublasLtHandle_t handle UNUSED, cublasLtMatmulDesc_t op,
                            cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                            const cublasLtMatmulAlgo_t *algo,
                            cublasLtMatmulHeuristicResult_t *result)
{
    result->workspaceSize = WORKSPACE;
    bool known = algo->data[0] == ANY_ALGO || (algo->data[0] == ROWS_ALGO && has_rows_algo(a, d));
    return known && is_any(op, a, b, c, d) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

static cublasStatus_t config(const cublasLtMatmulAlgo_t *algo UNUSED,
                             cublasLtMatmulAlgoConfigAttributes_t key UNUSED, void *value,
                             size_t size, size_t *written)
{
    memset(value, 0, size);
    *written = size;
    return CUBLAS_STATUS_SUCCESS;
}

static void put(const struct desc *d, const struct layout *y, uint64_t row, uint64_t at,
                int32_t sum, const void *alpha, float beta, const void *c, void *to)
{
    uint64_t epilogue = d->value[CUBLASLT_MATMUL_DESC_EPILOGUE];
    if (y->type == CUDA_R_32I) {
        ((int32_t *)to)[at] = sum;
        return;
    }
    float v = ((const float *)alpha)[row] * (float)sum;
    v += beta == 0 ? 0 : beta * (float)((const int8_t *)c)[at];
    if (epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS)
        v += ((const float *)(uintptr_t)d->value[CUBLASLT_MATMUL_DESC_BIAS_POINTER])[row];
    if (epilogue == CUBLASLT_EPILOGUE_RELU_BIAS)
        v = fmaxf(v, 0);
    ((int8_t *)to)[at] = (int8_t)fminf(fmaxf(rintf(v), -128), 127);
}

/* --- FP8 --- */

static float wide_at(cudaDataType_t type, const void *data, uint64_t i)
{
    if (type == CUDA_R_32F)
        return ((const float *)data)[i];
    uint16_t bits = ((const uint16_t *)data)[i];
    return type == CUDA_R_16F ? f16_to_f32(bits) : bf16_to_f32(bits);
}

static float pointed(const struct desc *d, cublasLtMatmulDescAttributes_t key)
{
    return d->value[key] ? *(const float *)(uintptr_t)d->value[key] : 1;
}

static float activate(const struct desc *d, float v)
{
    uint64_t epilogue = d->value[CUBLASLT_MATMUL_DESC_EPILOGUE];
    if (epilogue == CUBLASLT_EPILOGUE_RELU || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS)
        return fmaxf(v, 0);
    if (epilogue == CUBLASLT_EPILOGUE_GELU || epilogue == CUBLASLT_EPILOGUE_GELU_BIAS)
        return 0.5F * v * (1 + tanhf(0.7978845608F * (v + 0.044715F * v * v * v)));
    return v;
}

static void put_wide(cudaDataType_t type, float v, void *to, uint64_t at)
{
    if (type == CUDA_R_8F_E4M3)
        ((uint8_t *)to)[at] = f32_to_f8(v);
    else if (type == CUDA_R_32F)
        ((float *)to)[at] = v;
    else
        ((uint16_t *)to)[at] = type == CUDA_R_16F ? f32_to_f16(v) : f32_to_bf16(v);
}

static float sum_f8(const uint8_t *p, const uint8_t *q, uint64_t n)
{
    float sum = 0;
    for (uint64_t k = 0; k < n; k++)
        sum += f8_to_f32(p[k]) * f8_to_f32(q[k]);
    return sum;
}

static cublasStatus_t multiply_f8(const struct desc *d, float alpha, const uint8_t *a,
                                  const struct layout *am, const uint8_t *b,
                                  const struct layout *bm, float beta, const void *c,
                                  const struct layout *cm, void *to, const struct layout *y)
{
    const void *bias = (const void *)(uintptr_t)d->value[CUBLASLT_MATMUL_DESC_BIAS_POINTER];
    bool biased = d->value[CUBLASLT_MATMUL_DESC_EPILOGUE] & CUBLASLT_EPILOGUE_BIAS;
    alpha *= pointed(d, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
    for (uint64_t col = 0; col < y->cols; col++)
        for (uint64_t row = 0; row < y->rows; row++) {
            uint64_t at = col * (uint64_t)y->ld + row;
            float v =
                alpha * sum_f8(a + row * (uint64_t)am->ld, b + col * (uint64_t)bm->ld, am->rows);
            v += beta == 0 ? 0 : beta * wide_at(cm->type, c, at);
            v += biased ? wide_at(cm->type, bias, row) : 0;
            put_wide(y->type,
                     activate(d, v) * (y->type == CUDA_R_8F_E4M3
                                           ? pointed(d, CUBLASLT_MATMUL_DESC_D_SCALE_POINTER)
                                           : 1),
                     to, at);
        }
    return CUBLAS_STATUS_SUCCESS;
}

/* --- floats --- */

static cublasStatus_t multiply_floats(const struct desc *d, float alpha, const void *a,
                                      const struct layout *am, const void *b,
                                      const struct layout *bm, void *to, const struct layout *y)
{
    const void *bias = (const void *)(uintptr_t)d->value[CUBLASLT_MATMUL_DESC_BIAS_POINTER];
    bool biased = d->value[CUBLASLT_MATMUL_DESC_EPILOGUE] & CUBLASLT_EPILOGUE_BIAS;
    if ((uintptr_t)a % 16 || (uintptr_t)b % 16 || (uintptr_t)to % 16 || (uintptr_t)bias % 16)
        return CUBLAS_STATUS_INVALID_VALUE;
    for (uint64_t col = 0; col < y->cols; col++)
        for (uint64_t row = 0; row < y->rows; row++) {
            double sum = 0;
            for (uint64_t k = 0; k < am->rows; k++)
                sum += (double)wide_at(am->type, a, row * (uint64_t)am->ld + k) *
                       (double)wide_at(bm->type, b, col * (uint64_t)bm->ld + k);
            float v = alpha * (float)sum + (biased ? wide_at(y->type, bias, row) : 0);
            put_wide(y->type, v, to, col * (uint64_t)y->ld + row);
        }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t multiply(cublasLtHandle_t handle UNUSED, cublasLtMatmulDesc_t op,
                               const void *alpha, const void *a, cublasLtMatrixLayout_t al,
                               const void *b, cublasLtMatrixLayout_t bl, const void *beta,
                               const void *c, cublasLtMatrixLayout_t cl, void *to,
                               cublasLtMatrixLayout_t yl, const cublasLtMatmulAlgo_t *algo UNUSED,
                               void *workspace, size_t size, cudaStream_t stream UNUSED)
{
    const struct desc *d = desc_of(op);
    const struct layout *am = layout_of(al), *bm = layout_of(bl), *y = layout_of(yl);
    bool direct = y->type == CUDA_R_8I;
    if ((is_wide(am->type) || am->type == CUDA_R_32F) && size >= WORKSPACE)
        return *(const float *)beta == 0
                   ? multiply_floats(d, *(const float *)alpha, a, am, b, bm, to, y)
                   : CUBLAS_STATUS_INVALID_VALUE;
    if (am->type == CUDA_R_8F_E4M3 && size >= WORKSPACE && (uintptr_t)workspace % 256 == 0) {
        memset(workspace, 0xff, size);
        return multiply_f8(d, *(const float *)alpha, a, am, b, bm, *(const float *)beta, c,
                           layout_of(cl), to, y);
    }
    if (size < WORKSPACE || (uintptr_t)workspace % 256 || (!direct && *(const int32_t *)alpha != 1))
        return CUBLAS_STATUS_INVALID_VALUE;
    memset(workspace, 0xff, size);
    for (uint64_t col = 0; col < y->cols; col++)
        for (uint64_t row = 0; row < y->rows; row++) {
            const int8_t *p = (const int8_t *)a + row * (uint64_t)am->ld;
            const int8_t *q = (const int8_t *)b + col * (uint64_t)bm->ld;
            int32_t sum = 0;
            for (uint64_t k = 0; k < am->rows; k++)
                sum += p[k] * q[k];
            put(d, y, row, col * (uint64_t)y->ld + row, sum, alpha,
                direct ? *(const float *)beta : 0, c, to);
        }
    return CUBLAS_STATUS_SUCCESS;
}

static const char *code_name(cublasStatus_t code)
{
    return code == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "failed";
}

static cublasStatus_t handle_destroy(cublasLtHandle_t handle UNUSED)
{
    return CUBLAS_STATUS_SUCCESS;
}

const struct lt_api fake_lt = {
    .cublasLtDestroy = handle_destroy,
    .cublasLtGetStatusName = code_name,
    .cublasLtMatmul = multiply,
    .cublasLtMatmulDescCreate = desc_create,
    .cublasLtMatmulDescDestroy = desc_destroy,
    .cublasLtMatmulDescSetAttribute = desc_set,
    .cublasLtMatrixLayoutCreate = layout_create,
    .cublasLtMatrixLayoutDestroy = layout_destroy,
    .cublasLtMatmulPreferenceCreate = preference_create,
    .cublasLtMatmulPreferenceDestroy = preference_destroy,
    .cublasLtMatmulPreferenceSetAttribute = preference_set,
    .cublasLtMatmulAlgoGetHeuristic = heuristic,
    .cublasLtMatmulAlgoCheck = check,
    .cublasLtMatmulAlgoConfigGetAttribute = config,
    .handle = (cublasLtHandle_t)8,
    .version = 1,
};
