/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products and 1x1 convolutions of FP8 (E4M3) by constant FP8 weights through cuBLASLt, whose sums
 * are FP32. x stands for sx p and the weights of output column c for sw[c] q, so that
 *
 *     y[c] = alpha sx sw[c] sum(p q) + bias[c]
 *
 * There are two ways. SCALED: there is one sw, and cuBLASLt scales, adds a residual and the bias of
 * 16 bits, and does ReLU or the tanh form of GELU; it stores FP8, by a scale, or 16 bits. Steps
 * that it does not have are done by one launch of our kernel (kernel_bytes). SUMS: it stores the
 * sums as they are, and our kernel does all the rest, whatever the types are.
 *
 * The tanh form also stands for the exact GELU where FP8 is stored: the two differ by less than
 * 0.0005, and FP8's numbers have 4 bits.
 *
 * The weights are packed as [N, K], since cuBLASLt's FP8 kernels want a transposed A and a plain B;
 * behind them lie the scales, the bias, and the reciprocal of y's scale.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "engine/cuda/lt_sums.h"

enum {
    WIDTH = 16,  /* K and N are multiples of it */
    PRECISE = 2, /* candidates that add up the slow way */
};

enum way { SUMS = 0, SCALED = 1, WAYS = 2 }; /* stored in plans */

/* How a product is done. */
struct plan {
    enum way way;
    enum dtype wide; /* of residual, bias and what is stored besides FP8; SUMS: FP32 */
    uint32_t taken;  /* steps that cuBLASLt does */
    bool fast;       /* sums lose some bits, as NVIDIA's own libraries choose to do */
};

struct f8_blob { /* native endianness */
    uint32_t version;
    uint8_t way, wide, taken, fast;
    int64_t m, n, k;
    uint64_t workspace;
    cublasLtMatmulAlgo_t algo;
};

_Static_assert(sizeof(struct f8_blob) <= TACTIC_BLOB_MAX, "a blob fits");

/* Where the parts of the packed weights lie, in bytes. */
struct places {
    uint64_t scale, bias, to, size;
};

/* What is left to our kernel. */
struct rest {
    struct kernel_view from, y;
    struct kernel_epilogue steps;
    int32_t own;    /* the first of the node's own steps */
    uint32_t first; /* its number in the node's epilogue */
};

struct product {
    struct lt_sums p;
    struct plan plan;
    struct lt_epilogue epilogue;
    enum dtype stored; /* what cuBLASLt stores */
    bool rested;       /* our kernel comes behind it */
    bool in_place;     /* cuBLASLt stores where y is */
    struct rest rest;
};

static uint64_t aligned(uint64_t bytes, uint64_t by)
{
    return (bytes + by - 1) / by * by;
}

static struct places places_of(const struct lt_sums *s)
{
    struct places p;
    p.scale = aligned((uint64_t)s->n * (uint64_t)s->k, BACKEND_ALIGN);
    p.bias = p.scale + aligned((uint64_t)s->n * sizeof(float), BACKEND_ALIGN);
    p.to = p.bias + aligned((uint64_t)s->n * sizeof(float), BACKEND_ALIGN);
    p.size = p.to + BACKEND_ALIGN;
    return p;
}

/* --- reading a node --- */

static bool read_sums(const struct ir_graph *graph, const struct ir_node *node, struct lt_sums *s)
{
    return lt_sums_read(graph, node, DTYPE_F8, s) && s->k % WIDTH == 0 && s->n % WIDTH == 0;
}

/* The node's steps, bias first, as cuBLASLt may do them in 16 bits. */
static bool read_steps(const struct ir_graph *graph, const struct ir_node *node,
                       const struct lt_sums *s, enum dtype wide, struct lt_steps *out)
{
    struct lt_product p = {.dtype = wide, .axis = s->axis};
    if (!lt_steps_read(graph, node, 2, wide, false, &p))
        return false;
    for (uint32_t i = 0; i < p.steps.n && s->y.dtype == DTYPE_F8; i++)
        if (!p.steps.step[i].binary && p.steps.step[i].func == IR_UNARY_GELU)
            p.steps.step[i].func = IR_UNARY_GELU_TANH;
    *out = p.steps;
    return true;
}

static struct kernel_step column_step(const struct kernel_view *like, uint32_t axis, int32_t func)
{
    struct kernel_step step = {.binary = 1, .func = func, .operand = *like};
    step.operand.dtype = DTYPE_F32;
    step.operand.step = step.operand.zero = 0;
    memset(step.operand.stride, 0, sizeof(step.operand.stride));
    step.operand.stride[axis] = 1;
    return step;
}

/* What our kernel does behind the steps that cuBLASLt has taken. */
static bool read_rest(const struct ir_graph *graph, const struct ir_node *node,
                      struct product *product)
{
    const struct lt_sums *s = &product->p;
    struct rest *r = &product->rest;
    struct kernel_epilogue own;
    struct kernel_call dry = {.dry = true};
    struct ir_tensor y = *ir_tensor(graph, node->outputs[0]);
    y.layout = s->layout;
    if (!cuda_view(&y, &r->y, NULL) || !cuda_epilogue(graph, node, &r->y, &own))
        return false;
    r->y.step = s->y.step;
    r->y.zero = (float)s->y.zero;
    r->from = r->y;
    r->from.dtype = (int32_t)product->plan.wide;
    r->from.step = r->from.zero = 0;
    if (product->plan.way == SUMS) {
        r->steps.step[0] = column_step(&r->y, s->axis, IR_BINARY_MUL);
        r->steps.step[1] = column_step(&r->y, s->axis, IR_BINARY_ADD);
        r->steps.n = r->own = 2;
    } else {
        r->first = product->plan.taken - s->biased;
    }
    if (r->first > (uint32_t)own.n || r->steps.n + own.n > KERNEL_STEPS_MAX)
        return false;
    for (int32_t i = (int32_t)r->first; i < own.n; i++)
        r->steps.step[r->steps.n++] = own.step[i];
    return kernel_bytes(&dry, &r->from, &r->y, &r->steps) == cudaSuccess;
}

/* `exact`: tensors have their final types; else F32 stands for plan->wide. */
static bool read_product(const struct ir_graph *graph, const struct ir_node *node,
                         const struct plan *plan, bool exact, struct product *out)
{
    struct product r = {.plan = *plan, .stored = plan->wide};
    struct lt_steps steps;
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    if (!read_sums(graph, node, &r.p))
        return false;
    bool alike = r.p.y.dtype == DTYPE_NONE && (!exact || y->dtype == plan->wide);
    if (plan->way == SCALED) {
        if (!read_steps(graph, node, &r.p, plan->wide, &steps) ||
            !lt_epilogue(&steps, plan->taken, &r.epilogue) || (r.p.biased && plan->taken == 0))
            return false;
        bool all = plan->taken == steps.n;
        if (all && r.p.y.dtype == DTYPE_F8)
            r.stored = DTYPE_F8;
        r.rested = !all || (r.stored != DTYPE_F8 && !alike);
        r.in_place = r.stored == DTYPE_F8 || alike;
        const struct ir_tensor *z = cuda_input(graph, node, r.epilogue.residual);
        if (exact && z && z->dtype != plan->wide)
            return false;
    } else {
        r.epilogue = (struct lt_epilogue){IR_NONE, IR_NONE, CUBLASLT_EPILOGUE_DEFAULT};
        r.rested = true;
    }
    if (r.rested && !read_rest(graph, node, &r))
        return false;
    *out = r;
    return true;
}

/* --- descriptors --- */

static cudaDataType_t type_of(enum dtype dtype)
{
    return dtype == DTYPE_F8     ? CUDA_R_8F_E4M3
           : dtype == DTYPE_F16  ? CUDA_R_16F
           : dtype == DTYPE_BF16 ? CUDA_R_16BF
                                 : CUDA_R_32F;
}

static uint32_t epilogue_of(const struct lt_epilogue *e)
{
    bool biased = e->bias != IR_NONE;
    if (e->act == CUBLASLT_EPILOGUE_RELU)
        return biased ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    if (e->act == CUBLASLT_EPILOGUE_GELU)
        return biased ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    return biased ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

struct setting {
    cublasLtMatmulDescAttributes_t key;
    const void *value;
    size_t size;
};

static cublasStatus_t set_all(const struct lt_api *api, cublasLtMatmulDesc_t op,
                              const struct setting *settings, size_t n)
{
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < n && code == CUBLAS_STATUS_SUCCESS; i++)
        if (settings[i].size)
            code = api->cublasLtMatmulDescSetAttribute(op, settings[i].key, settings[i].value,
                                                       settings[i].size);
    return code;
}

/* Sets the addresses of what lies behind the weights. */
static cublasStatus_t set_places(const struct lt_api *api, const struct product *r,
                                 const char *packed, cublasLtMatmulDesc_t op)
{
    struct places at = places_of(&r->p);
    const void *scale = packed + at.scale, *bias = packed + at.bias, *to = packed + at.to;
    const struct setting settings[] = {
        {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &scale, r->plan.way == SCALED ? sizeof(scale) : 0},
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, r->epilogue.bias != IR_NONE ? sizeof(bias) : 0},
        {CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, &to, r->stored == DTYPE_F8 ? sizeof(to) : 0},
    };
    return set_all(api, op, settings, ARRAY_LEN(settings));
}

static cublasStatus_t set_op(const struct lt_api *api, const struct product *r,
                             cublasLtMatmulDesc_t op)
{
    int32_t trans = CUBLAS_OP_T, plain = CUBLAS_OP_N, bias = (int32_t)type_of(r->plan.wide);
    uint32_t epilogue = epilogue_of(&r->epilogue);
    int8_t fast = r->plan.fast;
    const struct setting settings[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &trans, sizeof(trans)},
        {CUBLASLT_MATMUL_DESC_TRANSB, &plain, sizeof(plain)},
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)},
        {CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof(fast)},
        {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias,
         r->epilogue.bias != IR_NONE ? sizeof(bias) : 0},
    };
    cublasStatus_t code = set_all(api, op, settings, ARRAY_LEN(settings));
    /* the address stands for that of a launch */
    return code == CUBLAS_STATUS_SUCCESS
               ? set_places(api, r, (const char *)(uintptr_t)LT_SUMS_ALIGN, op)
               : code;
}

static cublasStatus_t make_desc(const struct lt_api *api, const struct product *r,
                                struct lt_desc *d)
{
    const struct {
        cublasLtMatrixLayout_t *to;
        cudaDataType_t type;
        int64_t rows, cols;
    } layouts[] = {
        {&d->a, CUDA_R_8F_E4M3, r->p.k, r->p.n},
        {&d->b, CUDA_R_8F_E4M3, r->p.k, r->p.m},
        {&d->c, type_of(r->plan.wide), r->p.n, r->p.m},
        {&d->y, type_of(r->stored), r->p.n, r->p.m},
    };
    cublasStatus_t code = api->cublasLtMatmulDescCreate(&d->op, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = set_op(api, r, d->op);
    for (size_t i = 0; i < ARRAY_LEN(layouts) && code == CUBLAS_STATUS_SUCCESS; i++)
        code = api->cublasLtMatrixLayoutCreate(layouts[i].to, layouts[i].type,
                                               (uint64_t)layouts[i].rows, (uint64_t)layouts[i].cols,
                                               layouts[i].rows);
    return code;
}

static enum status new_desc(const struct lt_api *api, const struct product *r, struct lt_desc *out,
                            struct error *err)
{
    struct lt_desc d = {0};
    cublasStatus_t code = make_desc(api, r, &d);
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
    const struct ir_graph *graph;
    const struct ir_node *node;
    enum precision precision;
    tactic_visit visit;
    void *user;
    uint32_t found;
};

static enum status visit_one(struct ask *ask, enum dtype dtype, const struct product *r,
                             const cublasLtMatmulHeuristicResult_t *result, struct error *err)
{
    const struct lt_product named = {.dtype = DTYPE_F8, .trans_b = true};
    const struct f8_blob blob = {.version = ask->api->version,
                                 .way = (uint8_t)r->plan.way,
                                 .wide = (uint8_t)r->plan.wide,
                                 .taken = (uint8_t)r->plan.taken,
                                 .fast = r->plan.fast,
                                 .m = r->p.m,
                                 .n = r->p.n,
                                 .k = r->p.k,
                                 .workspace = result->workspaceSize,
                                 .algo = result->algo};
    enum dtype y = r->p.y.dtype != DTYPE_NONE ? r->p.y.dtype : dtype;
    struct tactic tactic;
    char detail[TACTIC_NAME_MAX];
    lt_algo_name(ask->api, &named, &blob.algo, detail,
                 sizeof(detail) - sizeof(" fast to BF16 + map"));
    size_t used = strlen(detail);
    snprintf(detail + used, sizeof(detail) - used, "%s to %s%s", r->plan.fast ? " fast" : "",
             dtype_name(y), r->rested ? " + map" : "");
    cuda_tactic(&tactic, &cuda_family_lt_f8, 0, ask->graph, ask->node, dtype, r->p.layout, detail);
    lt_sums_ports(ask->graph, ask->node, &r->p, DTYPE_F8, places_of(&r->p).size, &tactic);
    tactic.blob_size = sizeof(blob);
    memcpy(tactic.blob, &blob, sizeof(blob));
    ask->found++;
    return ask->visit(ask->user, &tactic, err);
}

static enum status ask_plan(struct ask *ask, enum dtype dtype, const struct plan *plan, int most,
                            struct error *err)
{
    cublasLtMatmulHeuristicResult_t results[LT_SUMS_ALGOS] = {0};
    struct product r;
    struct lt_desc desc;
    struct error why;
    if (!read_product(ask->graph, ask->node, plan, false, &r))
        return STATUS_OK;
    if (new_desc(ask->api, &r, &desc, &why)) {
        log_write(ask->device->log, LOG_VERBOSE, "'%s': %s", ask->node->name, why.text);
        return STATUS_OK;
    }
    int n = lt_sums_ask(ask->api, &desc, results);
    lt_desc_free(ask->api, &desc);
    if (n == 0)
        log_write(ask->device->log, LOG_VERBOSE,
                  "'%s': cuBLASLt has no FP8 product of %lld x %lld x %lld with %s out",
                  ask->node->name, (long long)r.p.m, (long long)r.p.n, (long long)r.p.k,
                  dtype_name(r.stored));
    for (int i = 0; i < n && most > 0; i++) {
        if (results[i].state != CUBLAS_STATUS_SUCCESS ||
            results[i].workspaceSize > LT_WORKSPACE_MAX)
            continue;
        TRY(visit_one(ask, dtype, &r, &results[i], err));
        most--;
    }
    return STATUS_OK;
}

/* With as many steps in the product as cuBLASLt does. */
static enum status ask_scaled(struct ask *ask, enum dtype dtype, const struct lt_sums *s,
                              struct error *err)
{
    struct plan plan = {.way = SCALED, .wide = dtype};
    struct lt_steps steps;
    uint32_t before = ask->found;
    if (!read_steps(ask->graph, ask->node, s, dtype, &steps))
        return STATUS_OK;
    for (uint32_t taken = lt_epilogue_longest(&steps) + 1; taken-- > 0 && ask->found == before;) {
        plan.taken = taken;
        plan.fast = true;
        TRY(ask_plan(ask, dtype, &plan, LT_SUMS_ALGOS - PRECISE, err));
        plan.fast = false;
        TRY(ask_plan(ask, dtype, &plan, PRECISE, err));
    }
    return STATUS_OK;
}

static enum status ask_dtype(struct ask *ask, enum dtype dtype, const struct lt_sums *s,
                             struct error *err)
{
    const struct ir_scale *scale =
        ir_scale(ask->graph, cuda_input(ask->graph, ask->node, 1)->range);
    const struct plan sums = {.way = SUMS, .wide = DTYPE_F32, .fast = true};
    uint32_t before = ask->found;
    enum dtype wide = dtype == DTYPE_NONE ? DTYPE_F16 : dtype;
    if (scale->n == 1 && wide != DTYPE_F32)
        TRY(ask_scaled(ask, wide, s, err));
    return ask->found > before ? STATUS_OK : ask_plan(ask, dtype, &sums, LT_SUMS_ALGOS / 2, err);
}

static enum status ask_stored(void *user, const struct ir_graph *graph, struct error *err)
{
    struct ask *ask = user;
    struct lt_sums s;
    enum dtype dtypes[3];
    ask->graph = graph;
    ask->found = 0;
    if (!read_sums(graph, ask->node, &s) || !lt_sums_constants_fit(graph, ask->node, &s, DTYPE_F8))
        return STATUS_OK;
    if (!ask->api)
        TRY(lt_open_or_tell(ask->device, &ask->api, err));
    if (!ask->api)
        return STATUS_OK;
    uint32_t n = cuda_dtypes(graph, ask->node, ask->precision, dtypes);
    for (uint32_t i = 0; i < n && ask->found == 0; i++)
        TRY(ask_dtype(ask, dtypes[i], &s, err));
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
    return error_set(err, STATUS_INVALID_ARGUMENT, "%s '%s': the cuBLASLt tactic for FP8 %s",
                     ir_op_name(node->op), node->name, why);
}

/* `exact`: the weights are packed, and the node is about to run. */
static enum status reread(const struct ir_graph *graph, const struct ir_node *node,
                          const struct tactic *tactic, bool exact, struct f8_blob *blob,
                          struct product *r, struct error *err)
{
    if (tactic->id != cuda_tactic_id(CUDA_FAMILY_LT_F8, 0) || tactic->blob_size != sizeof(*blob) ||
        tactic->n_in < 2)
        return refuse(node, err, "is not one");
    memcpy(blob, tactic->blob, sizeof(*blob));
    const struct plan plan = {.way = (enum way)blob->way,
                              .wide = (enum dtype)blob->wide,
                              .taken = blob->taken,
                              .fast = blob->fast != 0};
    bool scaled = plan.way == SCALED && (plan.wide == DTYPE_F16 || plan.wide == DTYPE_BF16);
    bool sums = plan.way == SUMS && plan.wide == DTYPE_F32 && plan.taken == 0;
    if ((!scaled && !sums) || !read_product(graph, node, &plan, exact, r) || blob->m != r->p.m ||
        blob->n != r->p.n || blob->k != r->p.k || blob->workspace > LT_WORKSPACE_MAX ||
        tactic->in[0].format.layout != r->p.layout || tactic->out[0].format.layout != r->p.layout ||
        tactic->in[1].packed_bytes != places_of(&r->p).size)
        return refuse(node, err, "does not fit the node's types and shapes");
    for (uint32_t i = ir_node_own_inputs(node); i < tactic->n_in; i++)
        if (tactic->in[i].packed_bytes ||
            (r->epilogue.residual == i && tactic->in[i].format.layout != r->p.layout))
            return refuse(node, err, "wants layouts that it cannot read");
    return STATUS_OK;
}

/* --- packing --- */

struct packing {
    const struct lt_sums *s;
    const struct ir_scale *scale;
    const float *weights, *bias;
    bool rows; /* the weights are [N, K] */
    char *to;
};

static void pack_column(const struct packing *p, const struct plan *plan, int64_t c)
{
    const struct lt_sums *s = p->s;
    struct places at = places_of(s);
    float step = p->scale->step[p->scale->n > 1 ? c : 0], one = s->alpha * s->x.step * step;
    uint16_t half = plan->wide == DTYPE_BF16 ? f32_to_bf16(p->bias[c]) : f32_to_f16(p->bias[c]);
    for (int64_t i = 0; i < s->k; i++)
        p->to[c * s->k + i] =
            (char)f32_to_f8(p->weights[p->rows ? c * s->k + i : i * s->n + c] / step);
    memcpy(p->to + at.scale + (size_t)c * sizeof(float), plan->way == SUMS ? &one : &step,
           sizeof(float));
    if (plan->way == SUMS)
        memcpy(p->to + at.bias + (size_t)c * sizeof(float), &p->bias[c], sizeof(float));
    else
        memcpy(p->to + at.bias + (size_t)c * sizeof(half), &half, sizeof(half));
}

static enum status pack(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    struct f8_blob blob;
    struct product r;
    TRY(reread(graph, node, tactic, false, &blob, &r, err));
    const struct lt_sums *s = &r.p;
    if (input != 1 || !lt_sums_constants_fit(graph, node, s, DTYPE_F8))
        return refuse(node, err, "packs a constant that is none");
    uint64_t n = (uint64_t)(s->n * s->k);
    CLEANUP(cleanup_free) float *weights = malloc(n * sizeof(*weights));
    CLEANUP(cleanup_free) float *bias = calloc((size_t)s->n, sizeof(*bias));
    if (!weights || !bias)
        return error_no_memory(err, "CUDA");
    if (!cuda_constant_f32(cuda_input(graph, node, 1), weights, n) ||
        (s->biased && !cuda_constant_f32(cuda_input(graph, node, 2), bias, (uint64_t)s->n)))
        return refuse(node, err, "packs a constant that is none");
    const struct packing p = {.s = s,
                              .scale = ir_scale(graph, cuda_input(graph, node, 1)->range),
                              .weights = weights,
                              .bias = bias,
                              .rows = lt_sums_channels(node) == 0,
                              .to = to};
    const float reciprocal = s->y.step > 0 ? 1 / s->y.step : 1;
    memset(to, 0, places_of(s).size);
    for (int64_t c = 0; c < s->n; c++)
        pack_column(&p, &r.plan, c);
    memcpy(p.to + places_of(s).to, &reciprocal, sizeof(reciprocal));
    return STATUS_OK;
}

/* --- running --- */

struct f8_op {
    struct backend_op base;
    const struct lt_api *api;
    const struct cuda_device *device;
    const struct ir_node *node;
    struct lt_desc desc;
    struct product product;
    struct f8_blob blob;
    uint64_t stored_bytes, workspace; /* of what our kernel reads, aligned; of cuBLASLt */
};

static void free_op(struct backend_op *base)
{
    struct f8_op *op = CONTAINER_OF(base, struct f8_op, base);
    lt_desc_free(op->api, &op->desc);
    free(op);
}

static void op_cleanup(struct f8_op **at)
{
    if (*at)
        free_op(&(*at)->base);
}

static cublasStatus_t multiply(struct f8_op *op, struct backend_stream *stream, void *const *inputs,
                               void *y, void *workspace)
{
    const struct product *r = &op->product;
    uint32_t residual = r->epilogue.residual;
    float alpha = r->plan.way == SCALED ? r->p.alpha * r->p.x.step : 1;
    float beta = residual == IR_NONE ? 0.0F : 1.0F;
    const void *add = residual == IR_NONE ? NULL : inputs[residual];
    if (!add && r->stored == r->plan.wide)
        add = y; /* not read */
    cublasStatus_t code = set_places(op->api, r, inputs[1], op->desc.op);
    if (code != CUBLAS_STATUS_SUCCESS)
        return code;
    return op->api->cublasLtMatmul(op->api->handle, op->desc.op, &alpha, inputs[1], op->desc.a,
                                   inputs[0], op->desc.b, &beta, add, op->desc.c, y, op->desc.y,
                                   &op->blob.algo, cuda_counter(stream, op->workspace, workspace),
                                   op->workspace, stream->stream);
}

static enum status run_rest(struct f8_op *op, struct backend_stream *stream, void *const *inputs,
                            void *const *outputs, void *from, struct error *err)
{
    struct kernel_call call = {.stream = stream->stream,
                               .multiprocessors = op->device->properties.multiProcessorCount};
    const struct places at = places_of(&op->product.p);
    struct rest *r = &op->product.rest;
    r->from.data = from;
    r->y.data = outputs[0];
    if (r->own) {
        r->steps.step[0].operand.data = (char *)inputs[1] + at.scale;
        r->steps.step[1].operand.data = (char *)inputs[1] + at.bias;
    }
    for (int32_t i = r->own; i < r->steps.n; i++)
        if (r->steps.step[i].binary)
            r->steps.step[i].operand.data =
                inputs[op->node->epilogue[r->first + (uint32_t)(i - r->own)].input];
    cudaError_t code = kernel_bytes(&call, &r->from, &r->y, &r->steps);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "kernel_bytes");
}

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace,
                          struct error *err)
{
    struct f8_op *op = CONTAINER_OF(base, struct f8_op, base);
    char *at = (char *)(uintptr_t)aligned((uintptr_t)workspace, LT_SUMS_ALIGN);
    void *to = op->product.in_place ? outputs[0] : at;
    cublasStatus_t code =
        multiply(op, stream, inputs, to, op->workspace ? at + op->stored_bytes : NULL);
    if (code != CUBLAS_STATUS_SUCCESS)
        return lt_error(op->api, code, "cublasLtMatmul", err);
    return op->product.rested ? run_rest(op, stream, inputs, outputs, to, err) : STATUS_OK;
}

static enum status check_algo(struct f8_op *op, struct error *err)
{
    const struct product *r = &op->product;
    TRY(lt_algo_check(op->api, &op->desc, &op->blob.algo, op->blob.workspace, &op->workspace, err));
    if (!r->in_place)
        op->stored_bytes =
            aligned((uint64_t)(r->p.m * r->p.n) * dtype_size(r->stored), LT_SUMS_ALIGN);
    if (op->stored_bytes + op->workspace)
        op->base.workspace = op->stored_bytes + op->workspace + LT_SUMS_ALIGN;
    return STATUS_OK;
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    CLEANUP(op_cleanup) struct f8_op *op = calloc(1, sizeof(*op));
    if (!op)
        return error_no_memory(err, "CUDA");
    op->base = (struct backend_op){.launch = launch, .free = free_op};
    op->device = stream->device;
    op->node = node;
    TRY(reread(graph, node, tactic, true, &op->blob, &op->product, err));
    TRY(lt_open(stream->device->lt, &op->api, err));
    TRY(lt_version_check(op->api, op->blob.version, err));
    TRY(new_desc(op->api, &op->product, &op->desc, err));
    TRY(check_algo(op, err));
    cuda_counters_reserve(stream, op->workspace);
    *out = &STEAL(op)->base;
    return STATUS_OK;
}

const struct cuda_family cuda_family_lt_f8 = {
    .id = CUDA_FAMILY_LT_F8,
    .scales = true,
    .candidates = candidates,
    .pack = pack,
    .prepare = prepare,
};
