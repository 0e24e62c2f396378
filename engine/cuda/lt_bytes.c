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
#include "engine/cuda/lt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "engine/stored.h"

enum {
    ALGOS = 8,
    DEPTH_MAX = 65000, /* so many products of two bytes stay within 31 bits */
    POINTER_ALIGN = 16,
    WORKSPACE_ALIGN = 256,
    WIDTH = 4, /* K and N are multiples of it */
};

enum way { SUMS = 0, DIRECT = 1, WAYS = 2 }; /* stored in plans */

/* A node as a product. */
struct sums {
    int64_t m, n, k;
    enum ir_layout layout; /* of x, y and tensors of y's shape */
    uint32_t axis;         /* the dim of y along which N lies */
    float alpha;
    struct stored x, y;
    bool biased; /* input 2 is the bias */
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
        ((uint64_t)s->n * sizeof(float) + BACKEND_ALIGN - 1) & ~(BACKEND_ALIGN - 1ULL);
    p.scale = ((uint64_t)s->n * (uint64_t)s->k + BACKEND_ALIGN - 1) & ~(BACKEND_ALIGN - 1ULL);
    p.bias = p.scale + vector;
    p.size = p.bias + vector;
    return p;
}

/* --- reading a node --- */

static bool read_conv(const struct ir_graph *graph, const struct ir_node *node, struct sums *s)
{
    const struct shape *x = &cuda_input(graph, node, 0)->shape;
    const struct shape *w = &cuda_input(graph, node, 1)->shape;
    size_t n;
    if (x->rank < 3 || w->rank != x->rank || !lt_is_pointwise(node, x, w) ||
        !shape_elements(x, &n) || n == 0)
        return false;
    s->k = x->dim[1];
    s->n = w->dim[0];
    s->m = (int64_t)n / s->k;
    s->layout = IR_LAYOUT_CHANNELS_LAST;
    s->axis = 1;
    s->alpha = 1;
    return w->dim[1] == s->k;
}

static bool read_matmul(const struct ir_graph *graph, const struct ir_node *node, struct sums *s)
{
    const struct shape *a = &cuda_input(graph, node, 0)->shape;
    const struct shape *b = &cuda_input(graph, node, 1)->shape;
    bool trans = ir_attr_int(node, IR_ATTR_TRANS_B) != 0;
    size_t n;
    if (b->rank != 2 || a->rank < 2 || ir_attr_int(node, IR_ATTR_TRANS_A) ||
        !shape_elements(a, &n) || n == 0)
        return false;
    s->k = a->dim[a->rank - 1];
    s->n = b->dim[trans ? 0 : 1];
    s->m = (int64_t)n / s->k;
    s->layout = IR_LAYOUT_PLAIN;
    s->axis = a->rank - 1;
    s->alpha = ir_attr_float(node, IR_ATTR_ALPHA);
    return b->dim[trans ? 1 : 0] == s->k && s->alpha > 0;
}

/* The steps that DIRECT can do: [+ residual] [ReLU]. */
static bool read_direct(const struct ir_graph *graph, const struct ir_node *node, struct sums *s)
{
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    uint32_t i = 0;
    s->residual = IR_NONE;
    if (s->y.dtype != DTYPE_I8 || s->y.zero)
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

static bool is_float_like(const struct ir_graph *graph, uint32_t id)
{
    struct stored stored;
    const struct ir_tensor *t = ir_tensor(graph, id);
    return stored_read(graph, id, &stored) &&
           (stored.dtype != DTYPE_NONE || t->dtype == DTYPE_F32 || t->dtype == DTYPE_F16 ||
            t->dtype == DTYPE_BF16);
}

/* The graph's tensors have their formats; F32 may stand for shorter floats. */
static bool read_sums(const struct ir_graph *graph, const struct ir_node *node, struct sums *out)
{
    const struct ir_tensor *x = cuda_input(graph, node, 0), *w = cuda_input(graph, node, 1);
    struct sums s = {0};
    if (!x || !w || node->n_outputs != 1 || !ir_tensor_is_constant(w) ||
        !stored_read(graph, node->inputs[0], &s.x) || s.x.dtype != DTYPE_I8 ||
        !is_float_like(graph, node->outputs[0]) || !stored_read(graph, node->outputs[0], &s.y) ||
        !(node->op == IR_OP_CONV ? read_conv : read_matmul)(graph, node, &s))
        return false;
    for (uint32_t i = ir_node_own_inputs(node); i < node->n_inputs; i++)
        if (node->inputs[i] == IR_NONE || !is_float_like(graph, node->inputs[i]))
            return false;
    s.biased = ir_node_own_inputs(node) > 2 && cuda_input(graph, node, 2);
    s.direct = read_direct(graph, node, &s);
    *out = s;
    return s.k % WIDTH == 0 && s.n % WIDTH == 0 && s.k <= DEPTH_MAX && s.m <= INT32_MAX &&
           s.n <= INT32_MAX;
}

/* The dimension of the weights along which the output's columns lie. */
static uint32_t channel_axis(const struct ir_node *node)
{
    return node->op == IR_OP_MATMUL && ir_attr_int(node, IR_ATTR_TRANS_B) == 0;
}

/* Whether the weights' integers are INT8 without zero points; and whether the bias is as packing
 * wants it. Asked only before they are packed. */
static bool constants_fit(const struct ir_graph *graph, const struct ir_node *node,
                          const struct sums *s)
{
    const struct ir_tensor *w = cuda_input(graph, node, 1);
    const struct ir_tensor *bias = s->biased ? cuda_input(graph, node, 2) : NULL;
    const struct ir_scale *scale = ir_scale(graph, w->range);
    return scale && scale->dtype != DTYPE_U8 && !scale->zero_min && !scale->zero_max &&
           (scale->n == 1 || (scale->axis == channel_axis(node) && scale->n == s->n)) &&
           dtype_is_float(w->dtype) && w->layout == IR_LAYOUT_PLAIN && w->data &&
           (!bias || (ir_tensor_is_constant(bias) && dtype_is_float(bias->dtype) &&
                      bias->shape.rank == 1 && bias->shape.dim[0] == s->n));
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
    r.y.step = s->y.step;
    r.y.zero = (float)s->y.zero;
    r.sums = r.y;
    r.sums.dtype = DTYPE_I32;
    r.sums.step = r.sums.zero = 0;
    for (int32_t i = 0; i < 2; i++) {
        struct kernel_step *step = &r.steps.step[i];
        *step = (struct kernel_step){.binary = 1, .func = i ? IR_BINARY_ADD : IR_BINARY_MUL};
        step->operand = r.sums;
        step->operand.dtype = DTYPE_F32;
        memset(step->operand.stride, 0, sizeof(step->operand.stride));
        step->operand.stride[s->axis] = 1;
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
    uint64_t m = (uint64_t)s->m, n = (uint64_t)s->n, k = (uint64_t)s->k;
    cublasStatus_t code = api->cublasLtMatmulDescCreate(&d->op, CUBLAS_COMPUTE_32I,
                                                        way == DIRECT ? CUDA_R_32F : CUDA_R_32I);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = set_op(api, s, way, d->op);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = api->cublasLtMatrixLayoutCreate(&d->a, CUDA_R_8I, k, n, s->k);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = api->cublasLtMatrixLayoutCreate(&d->b, CUDA_R_8I, k, m, s->k);
    return code == CUBLAS_STATUS_SUCCESS ? api->cublasLtMatrixLayoutCreate(&d->y, out, n, m, s->n)
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

static int ask_heuristics(const struct lt_api *api, const struct lt_desc *d,
                          cublasLtMatmulHeuristicResult_t *results)
{
    cublasLtMatmulPreference_t preference = NULL;
    uint64_t workspace = LT_WORKSPACE_MAX;
    uint32_t align = POINTER_ALIGN;
    const struct {
        cublasLtMatmulPreferenceAttributes_t key;
        const void *value;
        size_t size;
    } attributes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align, sizeof(align)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align, sizeof(align)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align, sizeof(align)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align, sizeof(align)},
    };
    int n = 0;
    cublasStatus_t code = api->cublasLtMatmulPreferenceCreate(&preference);
    for (size_t i = 0; i < ARRAY_LEN(attributes) && code == CUBLAS_STATUS_SUCCESS; i++)
        code = api->cublasLtMatmulPreferenceSetAttribute(preference, attributes[i].key,
                                                         attributes[i].value, attributes[i].size);
    if (code != CUBLAS_STATUS_SUCCESS ||
        api->cublasLtMatmulAlgoGetHeuristic(api->handle, d->op, d->a, d->b, d->y, d->y, preference,
                                            ALGOS, results, &n) != CUBLAS_STATUS_SUCCESS)
        n = 0;
    if (preference)
        api->cublasLtMatmulPreferenceDestroy(preference);
    return n;
}

struct ask {
    struct cuda_device *device;
    const struct lt_api *api;
    const struct ir_node *node;
    enum precision precision;
    tactic_visit visit;
    void *user;
};

static void set_ports(const struct ir_graph *graph, const struct ir_node *node,
                      const struct sums *s, struct tactic *t)
{
    const struct ir_tensor *w = cuda_input(graph, node, 1);
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    for (uint32_t i = 1; i < t->n_in; i++) {
        const struct ir_tensor *tensor = cuda_input(graph, node, i);
        if (!tensor || !shape_equal(&tensor->shape, y))
            t->in[i].format.layout = IR_LAYOUT_PLAIN;
    }
    stored_set_scales(t, graph, node);
    if (s->biased) /* packing reads it as it is */
        t->in[2].format = (struct ir_format){.dtype = cuda_input(graph, node, 2)->dtype};
    t->in[1].format = (struct ir_format){.dtype = DTYPE_I8, .scale = w->range};
    tactic_port_pack(&t->in[1], places_of(s).size);
}

static enum status visit_one(const struct ask *ask, const struct ir_graph *graph,
                             const struct sums *s, enum dtype dtype, enum way way,
                             const cublasLtMatmulHeuristicResult_t *result, struct error *err)
{
    const struct lt_product named = {.dtype = DTYPE_I8, .trans_b = true};
    const struct bytes_blob blob = {.version = ask->api->version,
                                    .way = way,
                                    .m = s->m,
                                    .n = s->n,
                                    .k = s->k,
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
    cuda_tactic(&tactic, &cuda_family_lt_bytes, 0, graph, ask->node, dtype, s->layout, detail);
    set_ports(graph, ask->node, s, &tactic);
    tactic.blob_size = sizeof(blob);
    memcpy(tactic.blob, &blob, sizeof(blob));
    return ask->visit(ask->user, &tactic, err);
}

/* *found: the number of candidates that were visited. */
static enum status ask_way(const struct ask *ask, const struct ir_graph *graph,
                           const struct sums *s, enum dtype dtype, enum way way, uint32_t *found,
                           struct error *err)
{
    cublasLtMatmulHeuristicResult_t results[ALGOS] = {0};
    struct rest rest;
    struct lt_desc desc;
    struct error why;
    if (way == SUMS && !read_rest(graph, ask->node, s, s->layout, &rest))
        return STATUS_OK;
    if (new_desc(ask->api, s, way, &desc, &why)) {
        log_write(ask->device->log, LOG_VERBOSE, "'%s': %s", ask->node->name, why.text);
        return STATUS_OK;
    }
    int n = ask_heuristics(ask->api, &desc, results);
    lt_desc_free(ask->api, &desc);
    if (n == 0)
        log_write(ask->device->log, LOG_VERBOSE,
                  "'%s': cuBLASLt has no INT8 product of %lld x %lld x %lld with %s",
                  ask->node->name, (long long)s->m, (long long)s->n, (long long)s->k,
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
    if (!read_sums(graph, ask->node, &s) || !constants_fit(graph, ask->node, &s))
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
        blob->m != s->m || blob->n != s->n || blob->k != s->k ||
        blob->workspace > LT_WORKSPACE_MAX || tactic->in[0].format.layout != s->layout ||
        tactic->out[0].format.layout != s->layout ||
        tactic->in[1].packed_bytes != places_of(s).size)
        return refuse(node, err, "does not fit the node's types and shapes");
    for (uint32_t i = ir_node_own_inputs(node); i < tactic->n_in; i++)
        if (tactic->in[i].packed_bytes ||
            (s->residual == i && tactic->in[i].format.layout != s->layout))
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
    double one = (double)s->alpha * (double)s->x.step * (double)step;
    int64_t sum = 0;
    for (int64_t i = 0; i < s->k; i++) {
        float q = rintf(p->weights[p->rows ? c * s->k + i : i * s->n + c] / step);
        to[i] = (int8_t)fminf(fmaxf(q, INT8_MIN), INT8_MAX);
        sum += to[i];
    }
    *scale = (float)(one / (double)p->unit);
    *bias = (float)(((p->bias ? (double)p->bias[c] : 0) - one * (double)(s->x.zero * sum)) /
                    (double)p->unit);
}

static enum status pack(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    struct bytes_blob blob;
    struct sums s;
    TRY(reread(graph, node, tactic, &blob, &s, err));
    if (input != 1 || !constants_fit(graph, node, &s))
        return refuse(node, err, "packs a constant that is none");
    struct places at = places_of(&s);
    uint64_t n = (uint64_t)(s.n * s.k);
    CLEANUP(cleanup_free) float *weights = malloc(n * sizeof(*weights));
    CLEANUP(cleanup_free) float *bias = calloc((size_t)s.n, sizeof(*bias));
    if (!weights || !bias)
        return error_no_memory(err, "CUDA");
    if (!cuda_constant_f32(cuda_input(graph, node, 1), weights, n) ||
        (s.biased && !cuda_constant_f32(cuda_input(graph, node, 2), bias, (uint64_t)s.n)))
        return refuse(node, err, "packs a constant that is none");
    const struct packing p = {.scale = ir_scale(graph, cuda_input(graph, node, 1)->range),
                              .weights = weights,
                              .bias = bias,
                              .rows = channel_axis(node) == 0,
                              .unit = blob.way == DIRECT ? s.y.step : 1};
    memset(to, 0, at.size);
    for (int64_t c = 0; c < s.n; c++)
        pack_column(&s, &p, c, (int8_t *)to + c * s.k, (float *)(void *)((char *)to + at.scale) + c,
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
    float beta = adds ? s->residual_step / s->y.step : 0;
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
        adds ? inputs[s->residual] : y, op->desc.y, y, op->desc.y, &op->blob.algo, workspace,
        op->workspace, stream->stream);
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
        (char *)(((uintptr_t)workspace + WORKSPACE_ALIGN - 1) & ~(uintptr_t)(WORKSPACE_ALIGN - 1));
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
            ((uint64_t)(op->sums.m * op->sums.n) * sizeof(int32_t) + WORKSPACE_ALIGN - 1) /
            WORKSPACE_ALIGN * WORKSPACE_ALIGN;
    if (op->sums_bytes + op->workspace)
        op->base.workspace = op->sums_bytes + op->workspace + WORKSPACE_ALIGN;
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
    if (op->blob.way == SUMS && !read_rest(graph, node, &op->sums, op->sums.layout, &op->rest))
        return refuse(node, err, "leaves an epilogue that no kernel does");
    TRY(lt_open(stream->device->lt, &op->api, err));
    TRY(lt_version_check(op->api, op->blob.version, err));
    TRY(new_desc(op->api, &op->sums, (enum way)op->blob.way, &op->desc, err));
    TRY(check_algo(op, err));
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
