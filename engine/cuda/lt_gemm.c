/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products by cuBLASLt: candidates, packing, preparation, launch.
 *
 * Steps that cuBLASLt's epilogues cannot do are left to one launch of our elementwise kernel, in
 * place. If the heuristics find nothing for the longest part of the epilogue (odd sizes), shorter
 * parts are asked.
 *
 * Partial sums of a split K are added up in fp32, never in 16 bit.
 */
#include "engine/cuda/lt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

enum {
    ALGOS_ASKED = 32,
    ALGOS_ASKED_AGAIN = 16, /* for the other order of B */
    ALGOS_ASKED_LESS = 8,   /* without workspace, and for types that are not the fastest */
    ALGOS_MAX = 48,         /* different algorithms of one question */
    POINTER_ALIGN = 16,     /* of tensors; what any algorithm wants at most */
    WORKSPACE_ALIGN = 256,
};

struct lt_op {
    struct backend_op base;
    const struct lt_api *api;
    const struct cuda_device *device;
    struct lt_desc desc;
    struct lt_product p;
    struct lt_epilogue epilogue;
    struct lt_blob blob;
    uint64_t workspace; /* bytes, without the room to align it */
    struct kernel_epilogue rest;
    uint32_t rest_input[KERNEL_STEPS_MAX];
    struct kernel_view y;
};

/* --- the part of the epilogue that cuBLASLt leaves --- */

static void bias_view(const struct lt_product *p, const struct kernel_view *y,
                      struct kernel_view *out)
{
    *out = *y;
    out->dtype = (int32_t)p->dtype;
    memset(out->stride, 0, sizeof(out->stride));
    out->stride[p->axis] = 1;
}

/* False: our kernels cannot do it either. */
static bool make_rest(const struct ir_graph *graph, const struct ir_node *node,
                      const struct lt_product *p, uint32_t taken, struct lt_op *op)
{
    struct kernel_epilogue all;
    uint32_t first = p->steps.n - node->n_epilogue; /* 1 if there is a bias */
    op->rest.n = 0;
    if (taken == p->steps.n)
        return true;
    if (p->steps.n - taken > KERNEL_STEPS_MAX ||
        !cuda_view(ir_tensor(graph, node->outputs[0]), &op->y, NULL) ||
        !cuda_epilogue(graph, node, &op->y, &all))
        return false;
    for (uint32_t i = taken; i < p->steps.n; i++) {
        struct kernel_step *step = &op->rest.step[op->rest.n];
        op->rest_input[op->rest.n++] = p->steps.step[i].input;
        if (i >= first) {
            *step = all.step[i - first];
            continue;
        }
        *step = (struct kernel_step){.binary = 1, .func = IR_BINARY_ADD};
        bias_view(p, &op->y, &step->operand);
    }
    struct kernel_call call = {.dry = true};
    return kernel_map(&call, &op->y, &op->y, 0, &op->rest) == cudaSuccess;
}

/* --- tactics --- */

struct lt_blob lt_blob_make(const struct lt_product *p, enum lt_order order, uint32_t taken)
{
    return (struct lt_blob){
        .dtype = (uint8_t)p->dtype,
        .tf32 = p->tf32,
        .order = (uint8_t)order,
        .taken = (uint8_t)taken,
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .batch = p->batch.n,
    };
}

static void set_ports(const struct lt_kind *kind, const struct ir_graph *graph,
                      const struct ir_node *node, const struct lt_product *p, enum lt_order order,
                      struct tactic *tactic)
{
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    uint32_t own = ir_node_own_inputs(node);
    for (uint32_t i = 1; i < tactic->n_in; i++) {
        const struct ir_tensor *t = cuda_input(graph, node, i);
        bool like_y = t && i >= own && shape_equal(&t->shape, y);
        tactic->in[i].format.layout = like_y ? kind->layout : IR_LAYOUT_PLAIN;
    }
    if (order != LT_AS_IS)
        tactic_port_pack(&tactic->in[1], p->b_elements * dtype_size(p->dtype));
}

void lt_tactic_fill(const struct lt_kind *kind, const struct lt_api *api,
                    const struct ir_graph *graph, const struct ir_node *node,
                    const struct lt_product *p, enum dtype dtype, const struct lt_blob *blob,
                    struct tactic *out)
{
    char detail[TACTIC_NAME_MAX];
    lt_algo_name(api, p, &blob->algo, detail, sizeof(detail) - sizeof(" + map"));
    size_t used = strlen(detail);
    if (blob->taken < p->steps.n)
        snprintf(detail + used, sizeof(detail) - used, " + map");
    cuda_tactic(out, kind->family, 0, graph, node, dtype, kind->layout, detail);
    set_ports(kind, graph, node, p, (enum lt_order)blob->order, out);
    out->blob_size = sizeof(*blob);
    memcpy(out->blob, blob, sizeof(*blob));
}

static enum status refuse(const struct ir_node *node, struct error *err, const char *why)
{
    return error_set(err, STATUS_INVALID_ARGUMENT, "%s '%s': the cuBLASLt tactic %s",
                     ir_op_name(node->op), node->name, why);
}

static bool ports_equal(const struct tactic *a, const struct tactic *b)
{
    bool equal = a->n_in == b->n_in && a->n_out == b->n_out;
    for (uint32_t i = 0; equal && i < a->n_in; i++)
        equal = a->in[i].format.layout == b->in[i].format.layout &&
                a->in[i].packed_bytes == b->in[i].packed_bytes;
    for (uint32_t i = 0; equal && i < a->n_out; i++)
        equal = a->out[i].format.layout == b->out[i].format.layout && !a->out[i].packed_bytes;
    return equal;
}

static bool blob_fits(const struct lt_blob *blob, const struct lt_product *p)
{
    struct lt_epilogue epilogue;
    struct lt_blob want = lt_blob_make(p, (enum lt_order)blob->order, blob->taken);
    return blob->tf32 <= (blob->dtype == DTYPE_F32) && blob->dtype == want.dtype &&
           blob->m == want.m && blob->n == want.n && blob->k == want.k &&
           blob->batch == want.batch && blob->workspace <= LT_WORKSPACE_MAX &&
           lt_epilogue(&p->steps, blob->taken, &epilogue);
}

enum status lt_blob_read(const struct lt_kind *kind, const struct ir_graph *graph,
                         const struct ir_node *node, const struct tactic *tactic,
                         struct lt_blob *blob, struct lt_product *p, struct error *err)
{
    struct tactic ports;
    if (tactic->id != cuda_tactic_id(kind->family->id, 0) || tactic->blob_size != sizeof(*blob) ||
        tactic->n_in > TACTIC_PORTS_MAX || tactic->n_out > IR_MAX_OUTPUTS)
        return refuse(node, err, "is not one");
    memcpy(blob, tactic->blob, sizeof(*blob));
    if (blob->order >= LT_ORDER_COUNT_ || node->n_outputs != 1 ||
        !kind->read(graph, node, tactic_float(tactic), true, (enum lt_order)blob->order, p) ||
        !blob_fits(blob, p))
        return refuse(node, err, "does not fit the node's types and shapes");
    p->tf32 = blob->tf32;
    cuda_tactic(&ports, kind->family, 0, graph, node, tactic_float(tactic), kind->layout, "");
    set_ports(kind, graph, node, p, (enum lt_order)blob->order, &ports);
    return ports_equal(tactic, &ports) ? STATUS_OK
                                       : refuse(node, err, "wants layouts that it cannot read");
}

/* --- candidates --- */

struct ask {
    const struct lt_kind *kind;
    const struct lt_api *api;
    const struct ir_graph *graph;
    const struct ir_node *node;
    const struct lt_product *p;
    enum dtype dtype; /* of the tactic */
    enum lt_order order;
    tactic_visit visit;
    void *user;
    uint32_t n;
    cublasLtMatmulAlgo_t seen[ALGOS_MAX];
};

/* The alignment that the operand's address has in all launches. */
static uint32_t alignment(const struct lt_product *p, size_t step_offset)
{
    uint32_t align = POINTER_ALIGN;
    for (uint32_t i = 0; i < p->n_loops; i++) {
        int64_t step;
        memcpy(&step, (const char *)&p->loops[i] + step_offset, sizeof(step));
        while (step * (int64_t)dtype_size(p->dtype) % align)
            align /= 2;
    }
    return align;
}

cublasStatus_t lt_preference_new(const struct lt_api *api, const struct lt_preference *wishes,
                                 size_t n, cublasLtMatmulPreference_t *out)
{
    cublasStatus_t code = api->cublasLtMatmulPreferenceCreate(out);
    for (size_t i = 0; i < n && code == CUBLAS_STATUS_SUCCESS; i++)
        code = api->cublasLtMatmulPreferenceSetAttribute(*out, wishes[i].key, wishes[i].value,
                                                         wishes[i].size);
    return code;
}

static cublasStatus_t make_preference(const struct lt_api *api, const struct lt_product *p,
                                      uint64_t workspace, cublasLtMatmulPreference_t *out)
{
    uint32_t a = alignment(p, offsetof(struct lt_loop, b)); /* cuBLASLt's A is our B */
    uint32_t b = alignment(p, offsetof(struct lt_loop, a));
    uint32_t y = alignment(p, offsetof(struct lt_loop, y));
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (p->dtype == DTYPE_F32)
        schemes |= CUBLASLT_REDUCTION_SCHEME_INPLACE;
    const struct lt_preference wishes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof(schemes)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof(a)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof(b)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &y, sizeof(y)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &y, sizeof(y)},
    };
    return lt_preference_new(api, wishes, ARRAY_LEN(wishes), out);
}

static bool is_new(struct ask *ask, const cublasLtMatmulAlgo_t *algo)
{
    for (uint32_t i = 0; i < ask->n; i++)
        if (memcmp(&ask->seen[i], algo, sizeof(*algo)) == 0)
            return false;
    if (ask->n == ALGOS_MAX)
        return false;
    ask->seen[ask->n++] = *algo;
    return true;
}

/* Returns the number of results. 0 is not an error: another spelling may have some. */
static int ask_heuristics(const struct lt_api *api, const struct lt_product *p,
                          const struct lt_desc *desc, uint64_t workspace, int most,
                          cublasLtMatmulHeuristicResult_t *results)
{
    cublasLtMatmulPreference_t preference = NULL;
    int n = 0;
    if (make_preference(api, p, workspace, &preference) != CUBLAS_STATUS_SUCCESS ||
        api->cublasLtMatmulAlgoGetHeuristic(api->handle, desc->op, desc->a, desc->b, desc->y,
                                            desc->y, preference, most, results,
                                            &n) != CUBLAS_STATUS_SUCCESS)
        n = 0;
    if (preference)
        api->cublasLtMatmulPreferenceDestroy(preference);
    return n;
}

static enum status visit_results(struct ask *ask, uint32_t taken, int n,
                                 const cublasLtMatmulHeuristicResult_t *results, struct error *err)
{
    for (int i = 0; i < n; i++) {
        struct lt_blob blob = lt_blob_make(ask->p, ask->order, taken);
        struct tactic tactic;
        if (results[i].state != CUBLAS_STATUS_SUCCESS ||
            results[i].workspaceSize > LT_WORKSPACE_MAX || !is_new(ask, &results[i].algo))
            continue;
        blob.version = ask->api->version;
        blob.workspace = results[i].workspaceSize;
        blob.algo = results[i].algo;
        lt_tactic_fill(ask->kind, ask->api, ask->graph, ask->node, ask->p, ask->dtype, &blob,
                       &tactic);
        TRY(ask->visit(ask->user, &tactic, err));
    }
    return STATUS_OK;
}

static enum status ask_and_visit(struct ask *ask, uint32_t taken, const struct lt_desc *desc,
                                 int most, struct error *err)
{
    cublasLtMatmulHeuristicResult_t results[ALGOS_ASKED] = {0};
    int n = ask_heuristics(ask->api, ask->p, desc, LT_WORKSPACE_MAX, most, results);
    TRY(visit_results(ask, taken, n, results, err));
    n = ask_heuristics(ask->api, ask->p, desc, 0, MIN(most, ALGOS_ASKED_LESS), results);
    return visit_results(ask, taken, n, results, err);
}

/* Asks with the first `taken` steps of the epilogue in the product. */
static enum status ask_taken(struct ask *ask, uint32_t taken, int most, struct error *err)
{
    struct lt_epilogue epilogue;
    struct lt_desc desc;
    struct lt_op op;
    if (!lt_epilogue(&ask->p->steps, taken, &epilogue) ||
        !make_rest(ask->graph, ask->node, ask->p, taken, &op))
        return STATUS_OK;
    if (lt_desc_new(ask->api, ask->p, &epilogue, &desc, NULL))
        return STATUS_OK;
    enum status status = ask_and_visit(ask, taken, &desc, most, err);
    lt_desc_free(ask->api, &desc);
    return status;
}

/* Asks with the longest part of the epilogue that has an answer. If cuBLASLt's GELU stands for the
 * exact one there, asks without it too: a kernel that has no GELU may be so much faster. */
static enum status ask_all(struct ask *ask, int most, struct error *err)
{
    const struct lt_steps *steps = &ask->p->steps;
    uint32_t taken = lt_epilogue_longest(steps);
    ask->n = 0;
    TRY(ask_taken(ask, taken, most, err));
    while (ask->n == 0 && taken > 0)
        TRY(ask_taken(ask, --taken, most, err));
    if (ask->n == 0 || taken == 0 || steps->step[taken - 1].binary ||
        steps->step[taken - 1].func != IR_UNARY_GELU)
        return STATUS_OK;
    uint32_t n = ask->n;
    ask->n = 0; /* an algorithm may be the same with and without it */
    TRY(ask_taken(ask, taken - 1, MIN(most, ALGOS_ASKED_LESS), err));
    ask->n = MAX(ask->n, n);
    return STATUS_OK;
}

enum status lt_open_or_tell(struct cuda_device *device, const struct lt_api **api,
                            struct error *err)
{
    struct error reason;
    *api = NULL;
    enum status status = lt_open(device->lt, api, &reason);
    if (status == STATUS_UNIMPLEMENTED) {
        if (lt_first_failure(device->lt))
            log_write(device->log, LOG_WARNING, "%s", reason.text);
        return STATUS_OK;
    }
    if (status && err)
        *err = reason;
    return status;
}

enum status lt_gemm_candidates(const struct lt_kind *kind, struct cuda_device *device,
                               const struct ir_graph *graph, const struct ir_node *node,
                               enum precision precision, tactic_visit visit, void *user,
                               struct error *err)
{
    static const enum lt_order orders[] = {LT_PACKED_NK, LT_PACKED_KN, LT_AS_IS};
    struct lt_product p;
    struct ask ask = {
        .kind = kind, .graph = graph, .node = node, .p = &p, .visit = visit, .user = user};
    enum dtype dtypes[3];
    uint32_t n = cuda_dtypes(graph, node, precision, dtypes);
    if (device->ordinal < 0 || node->n_outputs != 1)
        return STATUS_OK;
    for (uint32_t i = 0; i < n; i++) {
        int most = i == 0 ? ALGOS_ASKED : ALGOS_ASKED_LESS;
        for (size_t k = 0; k < ARRAY_LEN(orders) && most > 0; k++) {
            ask.dtype = dtypes[i];
            ask.order = orders[k];
            if (!kind->read(graph, node, ask.dtype, false, ask.order, &p))
                continue;
            p.tf32 = p.dtype == DTYPE_F32 && precision != PRECISION_F32;
            if (!ask.api)
                TRY(lt_open_or_tell(device, &ask.api, err));
            if (!ask.api)
                return STATUS_OK;
            TRY(ask_all(&ask, most, err));
            if (ask.n > 0)
                most = i == 0 ? ALGOS_ASKED_AGAIN : 0;
        }
    }
    return STATUS_OK;
}

/* --- packing --- */

/* to[c][r] = from[r][c], in each of `matrices` that follow one another. */
static void transpose(const char *from, char *to, uint64_t matrices, uint64_t rows, uint64_t cols,
                      size_t size)
{
    for (uint64_t i = 0; i < matrices; i++)
        for (uint64_t c = 0; c < cols; c++)
            for (uint64_t r = 0; r < rows; r++)
                memcpy(to + ((i * cols + c) * rows + r) * size,
                       from + ((i * rows + r) * cols + c) * size, size);
}

/* The rows and columns of B's matrices as the node has them; true: they are [N, K]. */
static bool read_constant(const struct ir_node *node, const struct shape *b, uint64_t *rows,
                          uint64_t *cols)
{
    *rows = (uint64_t)(node->op == IR_OP_CONV ? b->dim[0] : b->dim[b->rank - 2]);
    *cols = (uint64_t)(node->op == IR_OP_CONV ? b->dim[1] : b->dim[b->rank - 1]);
    return node->op == IR_OP_CONV || ir_attr_int(node, IR_ATTR_TRANS_B) != 0;
}

enum status lt_gemm_pack(const struct lt_kind *kind, const struct ir_graph *graph,
                         const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                         void *to, struct error *err)
{
    struct lt_blob blob;
    uint64_t rows, cols;
    size_t n;
    const struct ir_tensor *b = cuda_input(graph, node, input);
    if (tactic->id != cuda_tactic_id(kind->family->id, 0) || tactic->blob_size != sizeof(blob))
        return refuse(node, err, "is not one");
    memcpy(&blob, tactic->blob, sizeof(blob));
    if (input != 1 || !b || b->shape.rank < 2 || !shape_elements(&b->shape, &n) || n == 0 ||
        (blob.order != LT_PACKED_KN && blob.order != LT_PACKED_NK) ||
        !dtype_is_float((enum dtype)blob.dtype) ||
        tactic->in[1].packed_bytes != n * dtype_size((enum dtype)blob.dtype))
        return refuse(node, err, "does not fit the constant that it packs");
    bool same_order = read_constant(node, &b->shape, &rows, &cols) == (blob.order == LT_PACKED_NK);
    void *same = same_order ? to : malloc(tactic->in[1].packed_bytes);
    if (!same)
        return error_no_memory(err, "CUDA");
    bool ok = cuda_constant_cast(b, (enum dtype)blob.dtype, same, n);
    if (ok && !same_order)
        transpose(same, to, n / (rows * cols), rows, cols, dtype_size((enum dtype)blob.dtype));
    if (!same_order)
        free(same);
    return ok ? STATUS_OK : refuse(node, err, "packs a constant that is none");
}

/* --- running --- */

static void free_op(struct backend_op *base)
{
    struct lt_op *op = CONTAINER_OF(base, struct lt_op, base);
    lt_desc_free(op->api, &op->desc);
    free(op);
}

static void op_cleanup(struct lt_op **at)
{
    if (*at)
        free_op(&(*at)->base);
}

static const char *at(const void *base, int64_t elements, const struct lt_op *op)
{
    return (const char *)base + elements * (int64_t)dtype_size(op->p.dtype);
}

/* Launch `i` of the loops around the batch. */
static cublasStatus_t launch_one(const struct lt_op *op, int64_t i, struct backend_stream *stream,
                                 void *const *inputs, void *const *outputs, void *workspace)
{
    int64_t a = 0, b = 0, y = 0;
    float beta = op->epilogue.residual == IR_NONE ? 0.0F : 1.0F;
    for (uint32_t k = 0; k < op->p.n_loops; k++) {
        const struct lt_loop *loop = &op->p.loops[k];
        a += i % loop->n * loop->a;
        b += i % loop->n * loop->b;
        y += i % loop->n * loop->y;
        i /= loop->n;
    }
    char *to = (char *)outputs[0] + y * (int64_t)dtype_size(op->p.dtype);
    const void *add = beta == 0.0F ? to : at(inputs[op->epilogue.residual], y, op);
    return op->api->cublasLtMatmul(
        op->api->handle, op->desc.op, &op->p.alpha, at(inputs[1], b, op), op->desc.a,
        at(inputs[0], a, op), op->desc.b, &beta, add, op->desc.y, to, op->desc.y, &op->blob.algo,
        cuda_counter(stream, op->workspace, workspace), op->workspace, stream->stream);
}

static enum status launch_rest(struct lt_op *op, struct backend_stream *stream, void *const *inputs,
                               void *const *outputs, struct error *err)
{
    struct kernel_call call = {.stream = stream->stream,
                               .multiprocessors = op->device->properties.multiProcessorCount};
    op->y.data = outputs[0];
    for (int32_t i = 0; i < op->rest.n; i++)
        if (op->rest.step[i].binary)
            op->rest.step[i].operand.data = inputs[op->rest_input[i]];
    cudaError_t code = kernel_map(&call, &op->y, &op->y, 0, &op->rest);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "kernel_map");
}

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace,
                          struct error *err)
{
    struct lt_op *op = CONTAINER_OF(base, struct lt_op, base);
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    uintptr_t aligned =
        ((uintptr_t)workspace + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN;
    if (op->epilogue.bias != IR_NONE)
        code =
            op->api->cublasLtMatmulDescSetAttribute(op->desc.op, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                    &inputs[op->epilogue.bias], sizeof(void *));
    for (int64_t i = 0; i < op->p.launches && code == CUBLAS_STATUS_SUCCESS; i++)
        code = launch_one(op, i, stream, inputs, outputs, op->workspace ? (void *)aligned : NULL);
    if (code != CUBLAS_STATUS_SUCCESS)
        return lt_error(op->api, code, "cublasLtMatmul", err);
    return op->rest.n ? launch_rest(op, stream, inputs, outputs, err) : STATUS_OK;
}

static enum status make_op(struct lt_op *op, const struct ir_graph *graph,
                           const struct ir_node *node, struct error *err)
{
    TRY(lt_version_check(op->api, op->blob.version, err));
    lt_epilogue(&op->p.steps, op->blob.taken, &op->epilogue);
    if (!make_rest(graph, node, &op->p, op->blob.taken, op))
        return refuse(node, err, "leaves an epilogue that no kernel does");
    TRY(lt_desc_new(op->api, &op->p, &op->epilogue, &op->desc, err));
    TRY(lt_algo_check(op->api, &op->desc, &op->blob.algo, op->blob.workspace, &op->workspace, err));
    op->base.workspace = op->workspace ? op->workspace + WORKSPACE_ALIGN : 0;
    return STATUS_OK;
}

enum status lt_gemm_prepare(const struct lt_kind *kind, struct backend_stream *stream,
                            const struct ir_graph *graph, const struct ir_node *node,
                            const struct tactic *tactic, struct backend_op **out, struct error *err)
{
    CLEANUP(op_cleanup) struct lt_op *op = calloc(1, sizeof(*op));
    if (!op)
        return error_no_memory(err, "CUDA");
    op->base = (struct backend_op){.launch = launch, .free = free_op};
    op->device = stream->device;
    TRY(lt_blob_read(kind, graph, node, tactic, &op->blob, &op->p, err));
    TRY(lt_open(stream->device->lt, &op->api, err));
    TRY(make_op(op, graph, node, err));
    cuda_counters_reserve(stream, op->workspace);
    *out = &STEAL(op)->base;
    return STATUS_OK;
}
