/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products and 1x1 convolutions of INT8 by constant INT8 weights through cuBLASLt. x stands for
 * sx (p - zx) and the weights of output column c for sw[c] q, so that
 *
 *     y[c] = alpha sx sw[c] (sum(p q) - zx sum(q)) + bias[c]
 *
 * There are two ways. DIRECT: cuBLASLt itself multiplies its sums by a vector of scales, adds a
 * residual in INT8 and the bias, and stores INT8; with no activation but ReLU, and without zero
 * points of residual and output. SUMS: it stores INT32 sums, and one launch of our kernel
 * (kernel_bytes) does all the rest, whatever the types are.
 *
 * The weights are packed as [N, K], which with cuBLASLt's column-major eyes is the transposed A
 * that its INT8 kernels want; behind them lie scales and bias, as fp32.
 */
#include "engine/cuda/lt_sums.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"

enum {
    DEPTH_MAX = 65000, /* so many products of two bytes stay within 31 bits */
    WIDTH = 4,         /* K and N are multiples of it */
};

enum way { SUMS = 0, DIRECT = 1, WAYS = 2 }; /* stored in plans */

struct sums {
    struct lt_sums p;
    bool direct; /* it can be done so, with: */
    bool relu;
    uint32_t residual; /* an input, or IR_NONE */
    float residual_step;
};

/* Where the parts of the packed weights lie, in bytes. */
struct places {
    uint64_t scale, bias, size;
};

struct bytes_blob { /* native endianness */
    uint32_t version, way;
    int64_t m, n, k;
    uint64_t workspace;
    cublasLtMatmulAlgo_t algo;
};

_Static_assert(sizeof(struct bytes_blob) <= TACTIC_BLOB_MAX, "a blob fits");

static struct places places_of(const struct sums *s)
{
    struct places p;
    uint64_t vector =
        ((uint64_t)s->p.n * sizeof(float) + BACKEND_ALIGN - 1) & ~(BACKEND_ALIGN - 1ULL);
    p.scale = ((uint64_t)s->p.n * (uint64_t)s->p.k + BACKEND_ALIGN - 1) & ~(BACKEND_ALIGN - 1ULL);
    p.bias = p.scale + vector;
    p.size = p.bias + vector;
    return p;
}

/* --- reading a node --- */

/* The steps that DIRECT can do: [+ residual] [ReLU]. */
static bool read_direct(const struct ir_graph *graph, const struct ir_node *node, struct sums *s)
{
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    uint32_t i = 0;
    s->residual = IR_NONE;
    if (s->p.y.dtype != DTYPE_I8 || s->p.y.zero)
        return false;
    if (i < node->n_epilogue && node->epilogue[i].kind == IR_EPILOGUE_BINARY) {
        const struct ir_epilogue *e = &node->epilogue[i++];
        const struct ir_tensor *z = cuda_input(graph, node, e->input);
        struct stored stored;
        if (e->func != IR_BINARY_ADD || !z || !shape_equal(&z->shape, &y->shape) ||
            !stored_read(graph, node->inputs[e->input], &stored) || stored.dtype != DTYPE_I8 ||
            stored.zero)
            return false;
        s->residual = e->input;
        s->residual_step = stored.step;
    }
    if (i < node->n_epilogue && node->epilogue[i].kind == IR_EPILOGUE_UNARY &&
        node->epilogue[i].func == IR_UNARY_RELU) {
        s->relu = true;
        i++;
    }
    return i == node->n_epilogue;
}

/* The graph's tensors have their formats; F32 may stand for shorter floats. */
static bool read_sums(const struct ir_graph *graph, const struct ir_node *node, struct sums *out)
{
    struct sums s = {0};
    if (!lt_sums_read(graph, node, DTYPE_I8, &s.p))
        return false;
    s.direct = read_direct(graph, node, &s);
    *out = s;
    return s.p.k % WIDTH == 0 && s.p.n % WIDTH == 0 && s.p.k <= DEPTH_MAX;
}

/* --- what SUMS leaves to our kernel --- */

struct rest {
    struct kernel_view sums, y;
    struct kernel_epilogue steps; /* scales, bias, and the node's */
};

static bool read_rest(const struct ir_graph *graph, const struct ir_node *node,
                      const struct sums *s, enum ir_layout layout, struct rest *out)
{
    struct rest r = {.steps.n = 2};
    struct kernel_epilogue own;
    struct kernel_call dry = {.dry = true};
    struct ir_tensor y = *ir_tensor(graph, node->outputs[0]);
    y.layout = layout;
    if (!cuda_view(&y, &r.y, NULL))
        return false;
    r.y.step = s->p.y.step;
    r.y.zero = (float)s->p.y.zero;
    r.sums = r.y;
    r.sums.dtype = DTYPE_I32;
    r.sums.step = r.sums.zero = 0;
    for (int32_t i = 0; i < 2; i++) {
        struct kernel_step *step = &r.steps.step[i];
        *step = (struct kernel_step){.binary = 1, .func = i ? IR_BINARY_ADD : IR_BINARY_MUL};
        step->operand = r.sums;
        step->operand.dtype = DTYPE_F32;
        memset(step->operand.stride, 0, sizeof(step->operand.stride));
        step->operand.stride[s->p.axis] = 1;
    }
    if (!cuda_epilogue(graph, node, &r.y, &own) || own.n + r.steps.n > KERNEL_STEPS_MAX)
        return false;
    for (int32_t i = 0; i < own.n; i++)
        r.steps.step[r.steps.n++] = own.step[i];
    *out = r;
    return kernel_bytes(&dry, &r.sums, &r.y, &r.steps) == cudaSuccess;
}

/* --- descriptors --- */

static cublasStatus_t set_op(const struct lt_api *api, const struct sums *s, enum way way,
                             cublasLtMatmulDesc_t op)
{
    int32_t trans = CUBLAS_OP_T, plain = CUBLAS_OP_N;
    int32_t mode = CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST;
    uint32_t epilogue = s->relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
    const void *bias = (const void *)(uintptr_t)4096; /* stands for the address of a launch */
    const struct {
        cublasLtMatmulDescAttributes_t key;
        const void *value;
        size_t size;
    } attributes[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &trans, sizeof(trans)},
        {CUBLASLT_MATMUL_DESC_TRANSB, &plain, sizeof(plain)},
        {CUBLASLT_MATMUL_DESC_POINTER_MODE, &mode, sizeof(mode)},
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)},
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)},
    };
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    size_t n = way == DIRECT ? ARRAY_LEN(attributes) : 2;
    for (size_t i = 0; i < n && code == CUBLAS_STATUS_SUCCESS; i++)
        code = api->cublasLtMatmulDescSetAttribute(op, attributes[i].key, attributes[i].value,
                                                   attributes[i].size);
    return code;
}

static cublasStatus_t make_desc(const struct lt_api *api, const struct sums *s, enum way way,
                                struct lt_desc *d)
{
    cudaDataType_t out = way == DIRECT ? CUDA_R_8I : CUDA_R_32I;
    uint64_t m = (uint64_t)s->p.m, n = (uint64_t)s->p.n, k = (uint64_t)s->p.k;
    cublasStatus_t code = api->cublasLtMatmulDescCreate(&d->op, CUBLAS_COMPUTE_32I,
                                                        way == DIRECT ? CUDA_R_32F : CUDA_R_32I);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = set_op(api, s, way, d->op);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = api->cublasLtMatrixLayoutCreate(&d->a, CUDA_R_8I, k, n, s->p.k);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = api->cublasLtMatrixLayoutCreate(&d->b, CUDA_R_8I, k, m, s->p.k);
    return code == CUBLAS_STATUS_SUCCESS ? api->cublasLtMatrixLayoutCreate(&d->y, out, n, m, s->p.n)
                                         : code;
}

static enum status new_desc(const struct lt_api *api, const struct sums *s, enum way way,
                            struct lt_desc *out, struct error *err)
{
    struct lt_desc d = {0};
    cublasStatus_t code = make_desc(api, s, way, &d);
    if (code != CUBLAS_STATUS_SUCCESS) {
        lt_desc_free(api, &d);
        return lt_error(api, code, "descriptors", err);
    }
    *out = d;
    return STATUS_OK;
}

/* --- candidates --- */

struct ask {
    struct cuda_device *device;
    const struct lt_api *api;
    const struct ir_node *node;
    enum precision precision;
    tactic_visit visit;
    void *user;
};

static enum status visit_one(const struct ask *ask, const struct ir_graph *graph,
                             const struct sums *s, enum dtype dtype, enum way way,
                             const cublasLtMatmulHeuristicResult_t *result, struct error *err)
{
    const struct lt_product named = {.dtype = DTYPE_I8, .trans_b = true};
    const struct bytes_blob blob = {.version = ask->api->version,
                                    .way = way,
                                    .m = s->p.m,
                                    .n = s->p.n,
                                    .k = s->p.k,
                                    .workspace = result->workspaceSize,
                                    .algo = result->algo};
    struct tactic tactic;
    char detail[TACTIC_NAME_MAX];
    lt_algo_name(ask->api, &named, &blob.algo, detail, sizeof(detail) - sizeof(" to BF16 + map"));
    size_t used = strlen(detail);
    enum dtype y = ir_tensor(graph, ask->node->outputs[0])->dtype;
    snprintf(detail + used, sizeof(detail) - used, " to %s%s",
             dtype_name(y == DTYPE_F32 && dtype != DTYPE_NONE ? dtype : y),
             way == DIRECT ? "" : " + map");
    cuda_tactic(&tactic, &cuda_family_lt_bytes, 0, graph, ask->node, dtype, s->p.layout, detail);
    lt_sums_ports(graph, ask->node, &s->p, DTYPE_I8, places_of(s).size, &tactic);
    tactic.blob_size = sizeof(blob);
    memcpy(tactic.blob, &blob, sizeof(blob));
    return ask->visit(ask->user, &tactic, err);
}

/* *found: the number of candidates that were visited. */
static enum status ask_way(const struct ask *ask, const struct ir_graph *graph,
                           const struct sums *s, enum dtype dtype, enum way way, uint32_t *found,
                           struct error *err)
{
    cublasLtMatmulHeuristicResult_t results[LT_SUMS_ALGOS] = {0};
    struct rest rest;
    struct lt_desc desc;
    struct error why;
    if (way == SUMS && !read_rest(graph, ask->node, s, s->p.layout, &rest))
        return STATUS_OK;
    if (new_desc(ask->api, s, way, &desc, &why)) {
        log_write(ask->device->log, LOG_VERBOSE, "'%s': %s", ask->node->name, why.text);
        return STATUS_OK;
    }
    int n = lt_sums_ask(ask->api, &desc, results);
    lt_desc_free(ask->api, &desc);
    if (n == 0)
        log_write(ask->device->log, LOG_VERBOSE,
                  "'%s': cuBLASLt has no INT8 product of %lld x %lld x %lld with %s",
                  ask->node->name, (long long)s->p.m, (long long)s->p.n, (long long)s->p.k,
                  way == DIRECT ? "INT8 out" : "INT32 sums");
    for (int i = 0; i < n; i++) {
        if (results[i].state != CUBLAS_STATUS_SUCCESS ||
            results[i].workspaceSize > LT_WORKSPACE_MAX)
            continue;
        TRY(visit_one(ask, graph, s, dtype, way, &results[i], err));
        (*found)++;
    }
    return STATUS_OK;
}

static enum status ask_stored(void *user, const struct ir_graph *graph, struct error *err)
{
    struct ask *ask = user;
    struct sums s;
    enum dtype dtypes[3];
    uint32_t found = 0;
    if (!read_sums(graph, ask->node, &s) ||
        !lt_sums_constants_fit(graph, ask->node, &s.p, DTYPE_I8))
        return STATUS_OK;
    if (!ask->api)
        TRY(lt_open_or_tell(ask->device, &ask->api, err));
    if (!ask->api)
        return STATUS_OK;
    if (s.direct)
        TRY(ask_way(ask, graph, &s, DTYPE_NONE, DIRECT, &found, err));
    uint32_t n = found ? 0 : cuda_dtypes(graph, ask->node, ask->precision, dtypes);
    for (uint32_t i = 0; i < n && found == 0; i++)
        TRY(ask_way(ask, graph, &s, dtypes[i], SUMS, &found, err));
    return STATUS_OK;
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    struct ask ask = {
        .device = device, .node = node, .precision = precision, .visit = visit, .user = user};
    if (device->ordinal < 0 || node->n_outputs != 1)
        return STATUS_OK;
    return stored_each(graph, node, ask_stored, &ask, err);
}

/* --- back from a tactic --- */

static enum status refuse(const struct ir_node *node, struct error *err, const char *why)
{
    return error_set(err, STATUS_INVALID_ARGUMENT, "%s '%s': the cuBLASLt tactic for bytes %s",
                     ir_op_name(node->op), node->name, why);
}

static enum status reread(const struct ir_graph *graph, const struct ir_node *node,
                          const struct tactic *tactic, struct bytes_blob *blob, struct sums *s,
                          struct error *err)
{
    if (tactic->id != cuda_tactic_id(CUDA_FAMILY_LT_BYTES, 0) ||
        tactic->blob_size != sizeof(*blob) || tactic->n_in < 2)
        return refuse(node, err, "is not one");
    memcpy(blob, tactic->blob, sizeof(*blob));
    if (blob->way >= WAYS || !read_sums(graph, node, s) || (blob->way == DIRECT && !s->direct) ||
        blob->m != s->p.m || blob->n != s->p.n || blob->k != s->p.k ||
        blob->workspace > LT_WORKSPACE_MAX || tactic->in[0].format.layout != s->p.layout ||
        tactic->out[0].format.layout != s->p.layout ||
        tactic->in[1].packed_bytes != places_of(s).size)
        return refuse(node, err, "does not fit the node's types and shapes");
    for (uint32_t i = ir_node_own_inputs(node); i < tactic->n_in; i++)
        if (tactic->in[i].packed_bytes ||
            (s->residual == i && tactic->in[i].format.layout != s->p.layout))
            return refuse(node, err, "wants layouts that it cannot read");
    return STATUS_OK;
}

/* --- packing --- */

struct packing {
    const struct ir_scale *scale;
    const float *weights, *bias; /* bias: NULL if there is none */
    bool rows;                   /* the weights are [N, K] */
    float unit;                  /* what 1 of the result stands for */
};

static void pack_column(const struct sums *s, const struct packing *p, int64_t c, int8_t *to,
                        float *scale, float *bias)
{
    float step = p->scale->step[p->scale->n > 1 ? c : 0];
    double one = (double)s->p.alpha * (double)s->p.x.step * (double)step;
    int64_t sum = 0;
    for (int64_t i = 0; i < s->p.k; i++) {
        float q = rintf(p->weights[p->rows ? c * s->p.k + i : i * s->p.n + c] / step);
        to[i] = (int8_t)fminf(fmaxf(q, INT8_MIN), INT8_MAX);
        sum += to[i];
    }
    *scale = (float)(one / (double)p->unit);
    *bias = (float)(((p->bias ? (double)p->bias[c] : 0) - one * (double)(s->p.x.zero * sum)) /
                    (double)p->unit);
}

static enum status pack(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    struct bytes_blob blob;
    struct sums s;
    TRY(reread(graph, node, tactic, &blob, &s, err));
    if (input != 1 || !lt_sums_constants_fit(graph, node, &s.p, DTYPE_I8))
        return refuse(node, err, "packs a constant that is none");
    struct places at = places_of(&s);
    uint64_t n = (uint64_t)(s.p.n * s.p.k);
    CLEANUP(cleanup_free) float *weights = malloc(n * sizeof(*weights));
    CLEANUP(cleanup_free) float *bias = calloc((size_t)s.p.n, sizeof(*bias));
    if (!weights || !bias)
        return error_no_memory(err, "CUDA");
    if (!cuda_constant_f32(cuda_input(graph, node, 1), weights, n) ||
        (s.p.biased && !cuda_constant_f32(cuda_input(graph, node, 2), bias, (uint64_t)s.p.n)))
        return refuse(node, err, "packs a constant that is none");
    const struct packing p = {.scale = ir_scale(graph, cuda_input(graph, node, 1)->range),
                              .weights = weights,
                              .bias = bias,
                              .rows = lt_sums_channels(node) == 0,
                              .unit = blob.way == DIRECT ? s.p.y.step : 1};
    memset(to, 0, at.size);
    for (int64_t c = 0; c < s.p.n; c++)
        pack_column(&s, &p, c, (int8_t *)to + c * s.p.k,
                    (float *)(void *)((char *)to + at.scale) + c,
                    (float *)(void *)((char *)to + at.bias) + c);
    return STATUS_OK;
}

/* --- running --- */

struct bytes_op {
    struct backend_op base;
    const struct lt_api *api;
    const struct cuda_device *device;
    const struct ir_node *node;
    struct lt_desc desc;
    struct sums sums;
    struct places places;
    struct bytes_blob blob;
    uint64_t sums_bytes, workspace; /* of the sums, aligned; of cuBLASLt */
    struct rest rest;
};

static void free_op(struct backend_op *base)
{
    struct bytes_op *op = CONTAINER_OF(base, struct bytes_op, base);
    lt_desc_free(op->api, &op->desc);
    free(op);
}

static void op_cleanup(struct bytes_op **at)
{
    if (*at)
        free_op(&(*at)->base);
}

static cublasStatus_t multiply(struct bytes_op *op, struct backend_stream *stream,
                               void *const *inputs, void *y, void *workspace)
{
    const char *packed = inputs[1];
    const void *bias = packed + op->places.bias;
    const struct sums *s = &op->sums;
    bool adds = op->blob.way == DIRECT && s->residual != IR_NONE;
    float beta = adds ? s->residual_step / s->p.y.step : 0;
    const int32_t one = 1, none = 0;
    bool direct = op->blob.way == DIRECT;
    cublasStatus_t code =
        direct ? op->api->cublasLtMatmulDescSetAttribute(
                     op->desc.op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias))
               : CUBLAS_STATUS_SUCCESS;
    if (code != CUBLAS_STATUS_SUCCESS)
        return code;
    return op->api->cublasLtMatmul(
        op->api->handle, op->desc.op,
        direct ? (const void *)(packed + op->places.scale) : (const void *)&one, packed, op->desc.a,
        inputs[0], op->desc.b, direct ? (const void *)&beta : (const void *)&none,
        adds ? inputs[s->residual] : y, op->desc.y, y, op->desc.y, &op->blob.algo,
        cuda_counter(stream, op->workspace, workspace), op->workspace, stream->stream);
}

static enum status run_rest(struct bytes_op *op, struct backend_stream *stream, void *const *inputs,
                            void *const *outputs, void *sums, struct error *err)
{
    struct kernel_call call = {.stream = stream->stream,
                               .multiprocessors = op->device->properties.multiProcessorCount};
    struct rest *r = &op->rest;
    r->sums.data = sums;
    r->y.data = outputs[0];
    r->steps.step[0].operand.data = (char *)inputs[1] + op->places.scale;
    r->steps.step[1].operand.data = (char *)inputs[1] + op->places.bias;
    cuda_epilogue_bind(&r->steps, op->node, inputs);
    cudaError_t code = kernel_bytes(&call, &r->sums, &r->y, &r->steps);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "kernel_bytes");
}

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace,
                          struct error *err)
{
    struct bytes_op *op = CONTAINER_OF(base, struct bytes_op, base);
    char *aligned =
        (char *)(((uintptr_t)workspace + LT_SUMS_ALIGN - 1) & ~(uintptr_t)(LT_SUMS_ALIGN - 1));
    void *y = op->blob.way == DIRECT ? outputs[0] : aligned;
    cublasStatus_t code =
        multiply(op, stream, inputs, y, op->workspace ? aligned + op->sums_bytes : NULL);
    if (code != CUBLAS_STATUS_SUCCESS)
        return lt_error(op->api, code, "cublasLtMatmul", err);
    return op->blob.way == DIRECT ? STATUS_OK : run_rest(op, stream, inputs, outputs, aligned, err);
}

static enum status check_algo(struct bytes_op *op, struct error *err)
{
    TRY(lt_algo_check(op->api, &op->desc, &op->blob.algo, op->blob.workspace, &op->workspace, err));
    if (op->blob.way == SUMS)
        op->sums_bytes =
            ((uint64_t)(op->sums.p.m * op->sums.p.n) * sizeof(int32_t) + LT_SUMS_ALIGN - 1) /
            LT_SUMS_ALIGN * LT_SUMS_ALIGN;
    if (op->sums_bytes + op->workspace)
        op->base.workspace = op->sums_bytes + op->workspace + LT_SUMS_ALIGN;
    return STATUS_OK;
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    CLEANUP(op_cleanup) struct bytes_op *op = calloc(1, sizeof(*op));
    if (!op)
        return error_no_memory(err, "CUDA");
    op->base = (struct backend_op){.launch = launch, .free = free_op};
    op->device = stream->device;
    op->node = node;
    TRY(reread(graph, node, tactic, &op->blob, &op->sums, err));
    op->places = places_of(&op->sums);
    if (op->blob.way == SUMS && !read_rest(graph, node, &op->sums, op->sums.p.layout, &op->rest))
        return refuse(node, err, "leaves an epilogue that no kernel does");
    TRY(lt_open(stream->device->lt, &op->api, err));
    TRY(lt_version_check(op->api, op->blob.version, err));
    TRY(new_desc(op->api, &op->sums, (enum way)op->blob.way, &op->desc, err));
    TRY(check_algo(op, err));
    cuda_counters_reserve(stream, op->workspace);
    *out = &STEAL(op)->base;
    return STATUS_OK;
}

const struct cuda_family cuda_family_lt_bytes = {
    .id = CUDA_FAMILY_LT_BYTES,
    .scales = true,
    .candidates = candidates,
    .pack = pack,
    .prepare = prepare,
};
