/* SPDX-License-Identifier: Apache-2.0 */
/* A product as cuBLASLt's descriptors, and the names of its algorithms. */
#include "engine/cuda/lt.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"

/* The heuristics look at the alignment of the bias's address. The address is not known yet, so this
 * one stands in for it. */
#define ANY_ADDRESS ((const void *)(uintptr_t)4096)

static cudaDataType_t data_type(enum dtype dtype)
{
    return dtype == DTYPE_F16 ? CUDA_R_16F : dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasLtEpilogue_t epilogue_of(const struct lt_epilogue *e)
{
    bool biased = e->bias != IR_NONE;
    if (e->act == CUBLASLT_EPILOGUE_RELU)
        return biased ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    if (e->act == CUBLASLT_EPILOGUE_GELU)
        return biased ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    return biased ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static cublasStatus_t make_op(const struct lt_api *api, const struct lt_product *p,
                              const struct lt_epilogue *e, cublasLtMatmulDesc_t *out)
{
    int32_t a = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N, b = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint32_t epilogue = epilogue_of(e);
    const void *bias = ANY_ADDRESS;
    const struct {
        cublasLtMatmulDescAttributes_t key;
        const void *value;
        size_t size;
    } attributes[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof(a)},
        {CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof(b)},
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)},
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)},
    };
    size_t n = ARRAY_LEN(attributes) - (e->bias == IR_NONE);
    cublasStatus_t code = api->cublasLtMatmulDescCreate(
        out, p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    for (size_t i = 0; i < n && code == CUBLAS_STATUS_SUCCESS; i++)
        code = api->cublasLtMatmulDescSetAttribute(*out, attributes[i].key, attributes[i].value,
                                                   attributes[i].size);
    return code;
}

/* A dense row-major matrix, or `batch` of them, `step` elements apart. */
static cublasStatus_t make_layout(const struct lt_api *api, enum dtype dtype, int64_t rows,
                                  int64_t cols, int64_t batch, int64_t step,
                                  cublasLtMatrixLayout_t *out)
{
    int32_t count = (int32_t)batch;
    cublasStatus_t code = api->cublasLtMatrixLayoutCreate(out, data_type(dtype), (uint64_t)cols,
                                                          (uint64_t)rows, cols);
    if (code != CUBLAS_STATUS_SUCCESS || batch == 1)
        return code;
    code = api->cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                 sizeof(count));
    return code == CUBLAS_STATUS_SUCCESS
               ? api->cublasLtMatrixLayoutSetAttribute(
                     *out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof(step))
               : code;
}

static cublasStatus_t make(const struct lt_api *api, const struct lt_product *p,
                           const struct lt_epilogue *epilogue, struct lt_desc *d)
{
    const struct lt_loop *batch = &p->batch;
    cublasStatus_t code = make_op(api, p, epilogue, &d->op);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = make_layout(api, p->dtype, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n,
                           batch->n, batch->b, &d->a);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = make_layout(api, p->dtype, p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k,
                           batch->n, batch->a, &d->b);
    return code == CUBLAS_STATUS_SUCCESS
               ? make_layout(api, p->dtype, p->m, p->n, batch->n, batch->y, &d->y)
               : code;
}

enum status lt_desc_new(const struct lt_api *api, const struct lt_product *p,
                        const struct lt_epilogue *epilogue, struct lt_desc *out, struct error *err)
{
    struct lt_desc d = {0};
    cublasStatus_t code = make(api, p, epilogue, &d);
    if (code != CUBLAS_STATUS_SUCCESS) {
        lt_desc_free(api, &d);
        return lt_error(api, code, "descriptors", err);
    }
    *out = d;
    return STATUS_OK;
}

void lt_desc_free(const struct lt_api *api, struct lt_desc *desc)
{
    if (desc->op)
        api->cublasLtMatmulDescDestroy(desc->op);
    if (desc->a)
        api->cublasLtMatrixLayoutDestroy(desc->a);
    if (desc->b)
        api->cublasLtMatrixLayoutDestroy(desc->b);
    if (desc->c)
        api->cublasLtMatrixLayoutDestroy(desc->c);
    if (desc->y)
        api->cublasLtMatrixLayoutDestroy(desc->y);
    *desc = (struct lt_desc){0};
}

/* --- names --- */

static const uint16_t first_tiles[][2] = {
    {0, 0},     {8, 8},    {8, 16},   {16, 8},   {8, 32},    {16, 16},   {32, 8},    {8, 64},
    {16, 32},   {32, 16},  {64, 8},   {32, 32},  {32, 64},   {64, 32},   {32, 128},  {64, 64},
    {128, 32},  {64, 128}, {128, 64}, {64, 256}, {128, 128}, {256, 64},  {64, 512},  {128, 256},
    {256, 128}, {512, 64}, {64, 96},  {96, 64},  {96, 128},  {128, 160}, {160, 128}, {192, 128},
    {128, 192}, {128, 96}, {32, 256}, {256, 32},
};

static const uint16_t last_tiles[][2] = {{256, 512}, {256, 1024}, {512, 512}, {512, 1024}};

/* The tile numbers behind the first ones run over two grids and leave out sizes that came
 * before. */
static const struct grid {
    uint16_t row_step, col_step;
    uint32_t most; /* rows x cols */
} grids[] = {{8, 64, 49152}, {64, 8, 65536}};

static bool is_earlier(size_t grid, uint32_t rows, uint32_t cols)
{
    for (size_t i = 0; i < ARRAY_LEN(first_tiles); i++)
        if (first_tiles[i][0] == rows && first_tiles[i][1] == cols)
            return true;
    return grid > 0 && cols % grids[0].col_step == 0 && rows * cols <= grids[0].most;
}

bool lt_tile_size(uint32_t tile, uint32_t *rows, uint32_t *cols)
{
    uint32_t at = ARRAY_LEN(first_tiles);
    if (tile > 0 && tile < at) {
        *rows = first_tiles[tile][0];
        *cols = first_tiles[tile][1];
        return true;
    }
    for (size_t g = 0; tile >= at && g < ARRAY_LEN(grids); g++)
        for (uint32_t r = grids[g].row_step; r <= 768; r += grids[g].row_step)
            for (uint32_t c = grids[g].col_step; c <= 768 && r * c <= grids[g].most;
                 c += grids[g].col_step)
                if (!is_earlier(g, r, c) && at++ == tile) {
                    *rows = r;
                    *cols = c;
                    return true;
                }
    if (tile < at || tile - at >= ARRAY_LEN(last_tiles))
        return false;
    *rows = last_tiles[tile - at][0];
    *cols = last_tiles[tile - at][1];
    return true;
}

/* Names a cublasLtMatmulStages_t: its number of stages, "auto", or "#" and the enumerator's
 * value. */
enum status lt_version_check(const struct lt_api *api, uint32_t planned, struct error *err)
{
    if (!api->handle)
        return error_set(err, STATUS_FAILED_PRECONDITION, "cuBLASLt: there is no device");
    if (planned != api->version)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "cuBLASLt: the plan was built with version %u, this is %u: build it again",
                         planned, api->version);
    return STATUS_OK;
}

enum status lt_algo_check(const struct lt_api *api, const struct lt_desc *desc,
                          const cublasLtMatmulAlgo_t *algo, uint64_t planned, uint64_t *workspace,
                          struct error *err)
{
    cublasLtMatmulHeuristicResult_t result = {0};
    cublasStatus_t code =
        api->cublasLtMatmulAlgoCheck(api->handle, desc->op, desc->a, desc->b,
                                     desc->c ? desc->c : desc->y, desc->y, algo, &result);
    if (code != CUBLAS_STATUS_SUCCESS)
        return lt_error(api, code, "this algorithm does not fit the node", err);
    *workspace = MAX(result.workspaceSize, planned);
    if (*workspace > LT_WORKSPACE_MAX)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "cuBLASLt: this algorithm wants %llu bytes of workspace",
                         (unsigned long long)*workspace);
    return STATUS_OK;
}

static void stages_name(uint32_t stages, char *out, size_t size)
{
    if (stages >= CUBLASLT_MATMUL_STAGES_16x1 && stages <= CUBLASLT_MATMUL_STAGES_128x6)
        snprintf(out, size, "%u", (unsigned)((stages - 1) % 6 + 1));
    else if (stages >= CUBLASLT_MATMUL_STAGES_8xAUTO && stages < CUBLASLT_MATMUL_STAGES_END)
        snprintf(out, size, "auto");
    else
        snprintf(out, size, "#%u", (unsigned)stages);
}

static uint32_t config(const struct lt_api *api, const cublasLtMatmulAlgo_t *algo,
                       cublasLtMatmulAlgoConfigAttributes_t key)
{
    uint32_t value = 0;
    size_t written;
    return api->cublasLtMatmulAlgoConfigGetAttribute(algo, key, &value, sizeof(value), &written) ==
                   CUBLAS_STATUS_SUCCESS
               ? value
               : 0;
}

void lt_algo_name(const struct lt_api *api, const struct lt_product *p,
                  const cublasLtMatmulAlgo_t *algo, char *out, size_t size)
{
    char stages[16], tile[32];
    uint32_t id = config(api, algo, CUBLASLT_ALGO_CONFIG_TILE_ID), rows, cols;
    stages_name(config(api, algo, CUBLASLT_ALGO_CONFIG_STAGES_ID), stages, sizeof(stages));
    if (lt_tile_size(id, &rows, &cols))
        snprintf(tile, sizeof(tile), "%ux%u", (unsigned)rows, (unsigned)cols);
    else
        snprintf(tile, sizeof(tile), "#%u", (unsigned)id);
    snprintf(out, size, "%c%c algo%u tile%s stages%s splitk%u %s", p->trans_b ? 't' : 'n',
             p->trans_a ? 't' : 'n', (unsigned)config(api, algo, CUBLASLT_ALGO_CONFIG_ID), tile,
             stages, (unsigned)config(api, algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
             p->tf32                  ? "tf32"
             : p->dtype == DTYPE_I8   ? "i8"
             : p->dtype == DTYPE_F8   ? "e4m3"
             : p->dtype == DTYPE_F16  ? "f16"
             : p->dtype == DTYPE_BF16 ? "bf16"
                                      : "f32");
}
