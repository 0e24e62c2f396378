/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products by constant weights whose rows have an odd number of columns: heads over a vocabulary of
 * 50,257 words. Such rows begin at odd addresses, for which cuBLASLt has no fast kernels. There are
 * two ways around that:
 *
 *   PADDED  the product has columns of zeros up to a multiple of 8 and goes to the workspace; one
 *           launch of our elementwise kernel drops them and does the epilogue
 *   DIRECT  rows whose addresses end alike are one product: of FP32 rows of an odd length, every
 *           fourth. Its rows are far apart, which is no matter, and begin where the first aligned
 *           column is. The few columns that this leaves on both sides are done by our own kernel.
 *           The weights are read once for each of these products, so it is for many rows.
 *
 * Both store FP32 at once if that is wanted. The weights are packed as [N, K], for PADDED with rows
 * of zeros. DIRECT packs the bias once for each product, beginning with the product's first column.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "engine/cuda/lt.h"

enum {
    COLUMNS_MIN = 1024, /* fewer are not worth the trouble */
    LANES = 8,          /* columns are a multiple of it, or the rows are ragged */
    ALIGN = 16,         /* bytes, of what kernels load and store at once */
    WORKSPACE_ALIGN = 256,
    ALGOS = 8,
};

enum way { PADDED = 0, DIRECT = 1, WAYS = 2 }; /* stored in plans */

struct head {
    int64_t m, n, k;
    float alpha;
    enum dtype x, y;
    bool biased;
};

struct head_blob { /* native endianness */
    uint32_t version;
    uint8_t way, tf32, x, y;
    int64_t m, n, k;
    uint64_t workspace;
    cublasLtMatmulAlgo_t algo;
};

_Static_assert(sizeof(struct head_blob) <= TACTIC_BLOB_MAX, "a blob fits");

/* --- reading a node --- */

static bool is_wide_enough(const struct ir_graph *graph, const struct ir_node *node)
{
    const struct ir_tensor *w = cuda_input(graph, node, 1);
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    int64_t n = y->shape.rank ? y->shape.dim[y->shape.rank - 1] : 0;
    return w && ir_tensor_is_constant(w) && w->shape.rank == 2 && n >= COLUMNS_MIN &&
           n % LANES != 0 && !ir_attr_int(node, IR_ATTR_TRANS_A);
}

static bool is_float(enum dtype dtype)
{
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16 || dtype == DTYPE_F32;
}

/* x and y: the types that these tensors have, or will have. */
static bool read_head(const struct ir_graph *graph, const struct ir_node *node, enum dtype x_type,
                      enum dtype y_type, struct head *out)
{
    const struct ir_tensor *x = cuda_input(graph, node, 0), *bias = cuda_input(graph, node, 2);
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    bool own = ir_node_own_inputs(node) > 2;
    size_t all;
    if (!x || !is_wide_enough(graph, node) || !is_float(x_type) ||
        (y_type != x_type && y_type != DTYPE_F32) || !shape_elements(y, &all) || all == 0 ||
        (own && bias && !ir_tensor_is_constant(bias)))
        return false;
    struct head h = {.n = y->dim[y->rank - 1],
                     .k = x->shape.dim[x->shape.rank - 1],
                     .alpha = ir_attr_float(node, IR_ATTR_ALPHA),
                     .x = x_type,
                     .y = y_type,
                     .biased = own && bias};
    h.m = (int64_t)all / h.n;
    *out = h;
    return h.k > 0 && h.k * (int64_t)dtype_size(x_type) % ALIGN == 0;
}

static int64_t lanes_of(enum dtype dtype)
{
    return ALIGN / (int64_t)dtype_size(dtype);
}

static int64_t padded_columns(const struct head *h)
{
    return (h->n + LANES - 1) / LANES * LANES;
}

/* Rows so far apart lie alike; DIRECT has a product for each of the first ones. */
static int64_t row_step(const struct head *h)
{
    int64_t step = 1;
    while (step * h->n % lanes_of(h->y))
        step *= 2;
    return step;
}

static int64_t classes_of(const struct head *h)
{
    return MIN(row_step(h), h->m);
}

/* The columns of each row that DIRECT's products leave out, before the first aligned one or at the
 * end. What is left is a multiple of LANES, as PADDED's columns are, for which cuBLASLt has kernels
 * for Hopper. */
static int64_t left_columns(const struct head *h)
{
    return row_step(h) == 1 ? 0 : h->n - (h->n - lanes_of(h->y) + 1) / LANES * LANES;
}

/* The first column of a row that is aligned. */
static int64_t first_column(const struct head *h, int64_t row)
{
    int64_t lanes = lanes_of(h->y);
    return (lanes - row * h->n % lanes) % lanes;
}

/* A bias of DIRECT takes so many bytes, one of PADDED the same. */
static uint64_t bias_bytes(const struct head *h, enum way way)
{
    uint64_t columns = (uint64_t)(way == PADDED ? padded_columns(h) : h->n);
    uint64_t size = dtype_size(way == PADDED ? h->x : h->y);
    return (columns * size + BACKEND_ALIGN - 1) / BACKEND_ALIGN * BACKEND_ALIGN;
}

static uint64_t packed_bytes(const struct head *h, enum way way, uint32_t input)
{
    int64_t columns = way == PADDED ? padded_columns(h) : h->n;
    return input == 1 ? (uint64_t)(columns * h->k) * dtype_size(h->x)
                      : bias_bytes(h, way) * (uint64_t)(way == PADDED ? 1 : classes_of(h));
}

/* --- what PADDED leaves to our kernel --- */

struct rest {
    struct kernel_view from, to;
    struct kernel_epilogue steps;
};

static bool read_rest(const struct ir_graph *graph, const struct ir_node *node,
                      const struct head *h, struct rest *out)
{
    struct kernel_call dry = {.dry = true};
    struct rest r;
    if (!cuda_view(ir_tensor(graph, node->outputs[0]), &r.to, NULL))
        return false;
    r.to.dtype = (int32_t)h->y;
    r.from = r.to;
    r.from.dtype = (int32_t)h->x;
    for (int32_t d = 0; d + 1 < r.from.rank; d++)
        r.from.stride[d] = r.from.stride[d] / h->n * padded_columns(h);
    if (!cuda_epilogue(graph, node, &r.to, &r.steps))
        return false;
    *out = r;
    return kernel_map(&dry, &r.from, &r.to, 0, &r.steps) == cudaSuccess;
}

static bool does(const struct ir_graph *graph, const struct ir_node *node, const struct head *h,
                 enum way way)
{
    struct rest rest;
    return way == PADDED ? read_rest(graph, node, h, &rest) : node->n_epilogue == 0;
}

/* --- descriptors --- */

static cudaDataType_t data_type(enum dtype dtype)
{
    return dtype == DTYPE_F16 ? CUDA_R_16F : dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasStatus_t set_op(const struct lt_api *api, const struct head *h,
                             cublasLtMatmulDesc_t op)
{
    int32_t trans = CUBLAS_OP_T;
    uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const void *bias = (const void *)(uintptr_t)4096; /* stands for the address of a launch */
    cublasStatus_t code =
        api->cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSA, &trans, sizeof(trans));
    if (code == CUBLAS_STATUS_SUCCESS && h->biased)
        code = api->cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                                   sizeof(epilogue));
    if (code == CUBLAS_STATUS_SUCCESS && h->biased)
        code = api->cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                                   sizeof(bias));
    return code;
}

/* A product of `rows` rows. */
static cublasStatus_t make_desc(const struct lt_api *api, const struct head *h, enum way way,
                                bool tf32, int64_t rows, struct lt_desc *d)
{
    int64_t columns = way == PADDED ? padded_columns(h) : h->n - left_columns(h);
    int64_t step = way == PADDED ? 1 : row_step(h);
    uint64_t m = (uint64_t)rows, n = (uint64_t)columns, k = (uint64_t)h->k;
    cublasStatus_t code = api->cublasLtMatmulDescCreate(
        &d->op, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = set_op(api, h, d->op);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = api->cublasLtMatrixLayoutCreate(&d->a, data_type(h->x), k, n, h->k);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = api->cublasLtMatrixLayoutCreate(&d->b, data_type(h->x), k, m, step * h->k);
    if (code != CUBLAS_STATUS_SUCCESS)
        return code;
    return api->cublasLtMatrixLayoutCreate(&d->y, data_type(way == PADDED ? h->x : h->y), n, m,
                                           way == PADDED ? columns : step * h->n);
}

static enum status new_desc(const struct lt_api *api, const struct head *h, enum way way, bool tf32,
                            int64_t rows, struct lt_desc *out, struct error *err)
{
    struct lt_desc d = {0};
    cublasStatus_t code = make_desc(api, h, way, tf32, rows, &d);
    if (code != CUBLAS_STATUS_SUCCESS) {
        lt_desc_free(api, &d);
        return lt_error(api, code, "descriptors", err);
    }
    *out = d;
    return STATUS_OK;
}

/* The rows of product `i`. Products differ by one row at most: the first has most. */
static int64_t rows_of(const struct head *h, enum way way, int64_t i)
{
    return way == PADDED ? h->m : (h->m - i + row_step(h) - 1) / row_step(h);
}

/* --- candidates --- */

struct ask {
    const struct lt_api *api;
    const struct ir_graph *graph;
    const struct ir_node *node;
    enum dtype dtype; /* of the tactic */
    bool tf32;
    tactic_visit visit;
    void *user;
};

static void set_ports(const struct ir_node *node, const struct head *h, enum way way,
                      struct tactic *t)
{
    for (uint32_t i = 0; i < t->n_out; i++)
        t->out[i].format.dtype = h->y;
    t->in[0].format.dtype = h->x;
    t->in[1].format.dtype = h->x;
    tactic_port_pack(&t->in[1], packed_bytes(h, way, 1));
    if (h->biased && ir_node_own_inputs(node) > 2) {
        t->in[2].format.dtype = way == PADDED ? h->x : h->y;
        tactic_port_pack(&t->in[2], packed_bytes(h, way, 2));
    }
}

static enum status visit_one(const struct ask *ask, const struct head *h, enum way way,
                             const cublasLtMatmulHeuristicResult_t *result, struct error *err)
{
    const struct lt_product named = {.dtype = h->x, .tf32 = ask->tf32, .trans_b = true};
    const struct head_blob blob = {.version = ask->api->version,
                                   .way = (uint8_t)way,
                                   .tf32 = ask->tf32,
                                   .x = (uint8_t)h->x,
                                   .y = (uint8_t)h->y,
                                   .m = h->m,
                                   .n = h->n,
                                   .k = h->k,
                                   .workspace = result->workspaceSize,
                                   .algo = result->algo};
    struct tactic tactic;
    char detail[TACTIC_NAME_MAX];
    lt_algo_name(ask->api, &named, &blob.algo, detail, sizeof(detail) - sizeof(" to BF16, padded"));
    size_t used = strlen(detail);
    snprintf(detail + used, sizeof(detail) - used, " to %s%s", dtype_name(h->y),
             way == PADDED ? ", padded" : "");
    cuda_tactic(&tactic, &cuda_family_lt_head, 0, ask->graph, ask->node, ask->dtype,
                IR_LAYOUT_PLAIN, detail);
    set_ports(ask->node, h, way, &tactic);
    tactic.blob_size = sizeof(blob);
    memcpy(tactic.blob, &blob, sizeof(blob));
    return ask->visit(ask->user, &tactic, err);
}

static int ask_heuristics(const struct lt_api *api, const struct lt_desc *d,
                          cublasLtMatmulHeuristicResult_t *results)
{
    cublasLtMatmulPreference_t preference = NULL;
    uint64_t workspace = LT_WORKSPACE_MAX;
    uint32_t align = ALIGN;
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* sums in FP32 */
    const struct lt_preference wishes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof(schemes)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align, sizeof(align)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align, sizeof(align)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align, sizeof(align)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align, sizeof(align)},
    };
    int n = 0;
    if (lt_preference_new(api, wishes, ARRAY_LEN(wishes), &preference) != CUBLAS_STATUS_SUCCESS ||
        api->cublasLtMatmulAlgoGetHeuristic(api->handle, d->op, d->a, d->b, d->y, d->y, preference,
                                            ALGOS, results, &n) != CUBLAS_STATUS_SUCCESS)
        n = 0;
    if (preference)
        api->cublasLtMatmulPreferenceDestroy(preference);
    return n;
}

/* Leaves the algorithms that can do the last product too, which may have a row less. Returns their
 * number. */
static int keep_common(const struct lt_api *api, const struct head *h, enum way way, bool tf32,
                       int n, cublasLtMatmulHeuristicResult_t *results)
{
    int64_t rows = rows_of(h, way, way == DIRECT ? classes_of(h) - 1 : 0);
    struct lt_desc last;
    int kept = 0;
    if (rows == rows_of(h, way, 0))
        return n;
    if (new_desc(api, h, way, tf32, rows, &last, NULL))
        return 0;
    for (int i = 0; i < n; i++) {
        uint64_t workspace;
        if (!lt_algo_check(api, &last, &results[i].algo, 0, &workspace, NULL))
            results[kept++] = results[i];
    }
    lt_desc_free(api, &last);
    return kept;
}

static enum status ask_way(const struct ask *ask, enum dtype x, enum dtype y, enum way way,
                           struct error *err)
{
    cublasLtMatmulHeuristicResult_t results[ALGOS] = {0};
    struct head h;
    struct lt_desc desc;
    if (!read_head(ask->graph, ask->node, x, y, &h) || !does(ask->graph, ask->node, &h, way) ||
        new_desc(ask->api, &h, way, ask->tf32, rows_of(&h, way, 0), &desc, NULL))
        return STATUS_OK;
    int n = ask_heuristics(ask->api, &desc, results);
    lt_desc_free(ask->api, &desc);
    n = keep_common(ask->api, &h, way, ask->tf32, n, results);
    for (int i = 0; i < n; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS &&
            results[i].workspaceSize <= LT_WORKSPACE_MAX)
            TRY(visit_one(ask, &h, way, &results[i], err));
    return STATUS_OK;
}

/* Whether reading the weights once more for each product costs less than writing the sums twice. */
static bool has_many_rows(const struct ir_graph *graph, const struct ir_node *node, enum dtype x,
                          enum dtype y)
{
    struct head h;
    return read_head(graph, node, x, y, &h) && 2 * h.m > (row_step(&h) - 1) * h.k;
}

static enum status ask_types(const struct ask *ask, enum dtype x, enum dtype y, struct error *err)
{
    enum way first = has_many_rows(ask->graph, ask->node, x, y) ? DIRECT : PADDED;
    TRY(ask_way(ask, x, y, first, err));
    return ask_way(ask, x, y, first == DIRECT ? PADDED : DIRECT, err);
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    struct ask ask = {.graph = graph, .node = node, .visit = visit, .user = user};
    enum dtype dtypes[3];
    uint32_t n = cuda_dtypes(graph, node, precision, dtypes);
    if (device->ordinal < 0 || node->n_outputs != 1 || !is_wide_enough(graph, node))
        return STATUS_OK;
    TRY(lt_open_or_tell(device, &ask.api, err));
    for (uint32_t i = 0; i < n && ask.api; i++) {
        enum dtype x = lt_type(cuda_input(graph, node, 0), dtypes[i], false);
        enum dtype y = lt_type(ir_tensor(graph, node->outputs[0]), dtypes[i], false);
        ask.dtype = dtypes[i];
        ask.tf32 = x == DTYPE_F32 && precision != PRECISION_F32;
        if (ir_tensor(graph, node->outputs[0])->dtype == DTYPE_F32 && y != DTYPE_F32)
            TRY(ask_types(&ask, x, DTYPE_F32, err));
        TRY(ask_types(&ask, x, y, err));
    }
    return STATUS_OK;
}

/* cuBLASLt's own kernels for such rows are slow. */
static bool leads(const struct cuda_device *device UNUSED, const struct ir_graph *graph,
                  const struct ir_node *node)
{
    return is_wide_enough(graph, node);
}

/* --- back from a tactic --- */

static enum status refuse(const struct ir_node *node, struct error *err, const char *why)
{
    return error_set(err, STATUS_INVALID_ARGUMENT, "%s '%s': the cuBLASLt tactic for a head %s",
                     ir_op_name(node->op), node->name, why);
}

static bool ports_fit(const struct ir_node *node, const struct tactic *tactic, const struct head *h,
                      enum way way)
{
    bool fit = tactic->n_in >= 2 && tactic->n_out == 1 && tactic->in[0].format.dtype == h->x &&
               tactic->out[0].format.dtype == h->y &&
               tactic->in[1].packed_bytes == packed_bytes(h, way, 1);
    if (fit && h->biased)
        fit = tactic->n_in > 2 && tactic->in[2].packed_bytes == packed_bytes(h, way, 2);
    for (uint32_t i = 0; fit && i < tactic->n_in; i++)
        fit = i == 1 || (i == 2 && h->biased) ||
              (!tactic->in[i].packed_bytes &&
               (i >= ir_node_own_inputs(node) || tactic->in[i].format.layout == IR_LAYOUT_PLAIN));
    return fit && tactic->out[0].format.layout == IR_LAYOUT_PLAIN;
}

static enum status reread(const struct ir_graph *graph, const struct ir_node *node,
                          const struct tactic *tactic, struct head_blob *blob, struct head *h,
                          struct error *err)
{
    if (tactic->id != cuda_tactic_id(CUDA_FAMILY_LT_HEAD, 0) || tactic->blob_size != sizeof(*blob))
        return refuse(node, err, "is not one");
    memcpy(blob, tactic->blob, sizeof(*blob));
    if (blob->way >= WAYS || blob->workspace > LT_WORKSPACE_MAX ||
        !read_head(graph, node, (enum dtype)blob->x, (enum dtype)blob->y, h) || blob->m != h->m ||
        blob->n != h->n || blob->k != h->k || blob->tf32 > (h->x == DTYPE_F32) ||
        !ports_fit(node, tactic, h, (enum way)blob->way))
        return refuse(node, err, "does not fit the node's types and shapes");
    return STATUS_OK;
}

/* --- packing --- */

/* The rows that are not there stay zeros. */
static void pack_weights(const struct ir_node *node, const struct head *h, const char *from,
                         char *to)
{
    size_t size = dtype_size(h->x), row = (size_t)h->k * size;
    if (ir_attr_int(node, IR_ATTR_TRANS_B)) {
        memcpy(to, from, (size_t)h->n * row);
        return;
    }
    for (int64_t k = 0; k < h->k; k++)
        for (int64_t n = 0; n < h->n; n++)
            memcpy(to + (size_t)n * row + (size_t)k * size, from + (size_t)(k * h->n + n) * size,
                   size);
}

static void pack_bias(const struct head *h, enum way way, const char *from, char *to)
{
    size_t size = dtype_size(way == PADDED ? h->x : h->y);
    for (int64_t i = 0; i < (way == PADDED ? 1 : classes_of(h)); i++) {
        int64_t first = way == PADDED ? 0 : first_column(h, i);
        memcpy(to + (size_t)i * bias_bytes(h, way), from + (size_t)first * size,
               (size_t)(h->n - first) * size);
    }
}

static enum status pack(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    struct head_blob blob;
    struct head h;
    TRY(reread(graph, node, tactic, &blob, &h, err));
    enum way way = (enum way)blob.way;
    if (input != 1 && input != 2)
        return refuse(node, err, "packs a constant that is none");
    enum dtype dtype = input == 1 || way == PADDED ? h.x : h.y;
    uint64_t n = (uint64_t)(input == 1 ? h.n * h.k : h.n);
    CLEANUP(cleanup_free) char *same = malloc(n * dtype_size(dtype));
    if (!same)
        return error_no_memory(err, "CUDA");
    if (!cuda_constant_cast(cuda_input(graph, node, input), dtype, same, n))
        return refuse(node, err, "packs a constant that is none");
    memset(to, 0, packed_bytes(&h, way, input));
    if (input == 1)
        pack_weights(node, &h, same, to);
    else
        pack_bias(&h, way, same, to);
    return STATUS_OK;
}

/* --- running --- */

struct head_op {
    struct backend_op base;
    const struct lt_api *api;
    const struct cuda_device *device;
    const struct ir_node *node;
    struct head head;
    struct head_blob blob;
    struct lt_desc desc[2]; /* of the first product's rows; and of one row less, if some have */
    uint64_t workspace, sums_bytes; /* of cuBLASLt; of PADDED's product, aligned */
    struct rest rest;
};

static void free_op(struct backend_op *base)
{
    struct head_op *op = CONTAINER_OF(base, struct head_op, base);
    lt_desc_free(op->api, &op->desc[0]);
    lt_desc_free(op->api, &op->desc[1]);
    free(op);
}

static void op_cleanup(struct head_op **at)
{
    if (*at)
        free_op(&(*at)->base);
}

static cublasStatus_t multiply(const struct head_op *op, int64_t i, struct backend_stream *stream,
                               void *const *inputs, void *y, void *workspace)
{
    const struct head *h = &op->head;
    enum way way = (enum way)op->blob.way;
    const struct lt_desc *d = &op->desc[rows_of(h, way, i) != rows_of(h, way, 0)];
    int64_t first = way == PADDED ? 0 : first_column(h, i), size = (int64_t)dtype_size(h->x);
    const char *x = (const char *)inputs[0] + i * h->k * size;
    const char *w = (const char *)inputs[1] + first * h->k * size;
    char *to = (char *)y + (i * h->n + first) * (int64_t)dtype_size(h->y);
    float none = 0;
    if (h->biased) {
        const void *bias = (const char *)inputs[2] + (uint64_t)i * bias_bytes(h, way);
        cublasStatus_t code = op->api->cublasLtMatmulDescSetAttribute(
            d->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
        if (code != CUBLAS_STATUS_SUCCESS)
            return code;
    }
    return op->api->cublasLtMatmul(op->api->handle, d->op, &h->alpha, w, d->a, x, d->b, &none, to,
                                   d->y, to, d->y, &op->blob.algo,
                                   cuda_counter(stream, op->workspace, workspace), op->workspace,
                                   stream->stream);
}

static cudaError_t launch_rest(struct head_op *op, struct backend_stream *stream,
                               void *const *inputs, void *const *outputs, void *sums)
{
    const struct head *h = &op->head;
    struct kernel_call call = {.stream = stream->stream,
                               .multiprocessors = op->device->properties.multiProcessorCount};
    const struct kernel_edges edges = {.rows = h->m,
                                       .cols = h->n,
                                       .depth = h->k,
                                       .left = left_columns(h),
                                       .alpha = h->alpha,
                                       .x_dtype = (int32_t)h->x,
                                       .y_dtype = (int32_t)h->y};
    if (op->blob.way == DIRECT)
        return kernel_product_edges(&call, &edges, inputs[0], inputs[1],
                                    h->biased ? inputs[2] : NULL, outputs[0]);
    op->rest.from.data = sums;
    op->rest.to.data = outputs[0];
    cuda_epilogue_bind(&op->rest.steps, op->node, inputs);
    return kernel_map(&call, &op->rest.from, &op->rest.to, 0, &op->rest.steps);
}

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace,
                          struct error *err)
{
    struct head_op *op = CONTAINER_OF(base, struct head_op, base);
    char *aligned =
        (char *)(((uintptr_t)workspace + WORKSPACE_ALIGN - 1) & ~(uintptr_t)(WORKSPACE_ALIGN - 1));
    void *y = op->blob.way == DIRECT ? outputs[0] : aligned;
    int64_t products = op->blob.way == DIRECT ? classes_of(&op->head) : 1;
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    for (int64_t i = 0; i < products && code == CUBLAS_STATUS_SUCCESS; i++)
        code = multiply(op, i, stream, inputs, y, op->workspace ? aligned + op->sums_bytes : NULL);
    if (code != CUBLAS_STATUS_SUCCESS)
        return lt_error(op->api, code, "cublasLtMatmul", err);
    cudaError_t rest = launch_rest(op, stream, inputs, outputs, aligned);
    return rest == cudaSuccess ? STATUS_OK : cuda_error(err, rest, "the rest of a head");
}

/* Both products must be the algorithm's. */
static enum status make_products(struct head_op *op, struct error *err)
{
    const struct head *h = &op->head;
    enum way way = (enum way)op->blob.way;
    int64_t last = way == DIRECT ? classes_of(h) - 1 : 0;
    for (int i = 0; i < 2; i++) {
        uint64_t workspace;
        int64_t rows = rows_of(h, way, i ? last : 0);
        if (i && rows == rows_of(h, way, 0))
            break;
        TRY(new_desc(op->api, h, way, op->blob.tf32, rows, &op->desc[i], err));
        TRY(lt_algo_check(op->api, &op->desc[i], &op->blob.algo, op->blob.workspace, &workspace,
                          err));
        op->workspace = MAX(op->workspace, workspace);
    }
    if (way == PADDED)
        op->sums_bytes =
            ((uint64_t)(h->m * padded_columns(h)) * dtype_size(h->x) + WORKSPACE_ALIGN - 1) /
            WORKSPACE_ALIGN * WORKSPACE_ALIGN;
    if (op->sums_bytes + op->workspace)
        op->base.workspace = op->sums_bytes + op->workspace + WORKSPACE_ALIGN;
    return STATUS_OK;
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    CLEANUP(op_cleanup) struct head_op *op = calloc(1, sizeof(*op));
    if (!op)
        return error_no_memory(err, "CUDA");
    op->base = (struct backend_op){.launch = launch, .free = free_op};
    op->device = stream->device;
    op->node = node;
    TRY(reread(graph, node, tactic, &op->blob, &op->head, err));
    if (!does(graph, node, &op->head, (enum way)op->blob.way) ||
        (op->blob.way == PADDED && !read_rest(graph, node, &op->head, &op->rest)))
        return refuse(node, err, "leaves an epilogue that no kernel does");
    TRY(lt_open(stream->device->lt, &op->api, err));
    TRY(lt_version_check(op->api, op->blob.version, err));
    TRY(make_products(op, err));
    cuda_counters_reserve(stream, op->workspace);
    *out = &STEAL(op)->base;
    return STATUS_OK;
}

const struct cuda_family cuda_family_lt_head = {
    .id = CUDA_FAMILY_LT_HEAD,
    .casts = true,
    .leads = leads,
    .candidates = candidates,
    .pack = pack,
    .prepare = prepare,
};
