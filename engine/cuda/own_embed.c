/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of rows of tables (EMBED) by our own kernel. All tensors are plain, tables and result are of
 * one type. own_move.c says what becomes of an index out of range.
 *
 * Ids, and rows without ids, repeat for the rows of y in one way only: along dims before and behind
 * those that they have. Refused: what has dims on both sides of one along which it repeats.
 */
#include "base/compiler.h"
#include "engine/cuda/device.h"
#include "engine/cuda/own.h"

struct embed_call {
    int32_t n, dtype;
    int64_t rows, width;
    struct kernel_table table[IR_EMBED_TABLES];
    int32_t *bad;
};

struct embed_op {
    struct backend_op base;
    struct embed_call call;
};

/* Says how what has the dims `own` repeats over `rows`, to which these broadcast. */
static bool read_repeats(const struct shape *own, const struct shape *rows, struct kernel_table *t)
{
    int64_t between = 1; /* of dims behind the last one of its own */
    uint32_t shift = rows->rank - own->rank;
    t->inner = t->n = 1;
    for (uint32_t d = rows->rank; d-- > 0;) {
        int64_t dim = d < shift ? 1 : own->dim[d - shift];
        if (dim == 1) {
            between *= rows->dim[d];
            continue;
        }
        if (t->n == 1)
            t->inner = between;
        else if (between != 1)
            return false;
        t->n *= dim;
        between = 1;
    }
    return t->n > 0 && t->inner > 0;
}

static bool read_table(const struct ir_graph *graph, const struct ir_node *node, uint32_t k,
                       const struct shape *rows, struct kernel_table *t)
{
    const struct ir_tensor *table = cuda_input(graph, node, 2 * k),
                           *ids = cuda_input(graph, node, 2 * k + 1);
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    struct shape own = ids ? ids->shape : table->shape;
    *t = (struct kernel_table){.ids_type = (int32_t)(ids ? ids->dtype : DTYPE_NONE)};
    t->rows = table->shape.dim[0];
    own.rank -= ids ? 0 : 1;
    return table->dtype == y->dtype && read_repeats(&own, rows, t);
}

/* `dtype` stands in for F32; NONE: the types that the tensors have. */
static bool embed_read(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                       struct embed_call *out)
{
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    struct shape rows = y->shape;
    size_t n;
    rows.rank--;
    if (node->n_epilogue || !shape_elements(&rows, &n) || n > INT32_MAX)
        return false;
    *out = (struct embed_call){.n = (int32_t)ir_embed_count(node),
                               .dtype = (int32_t)own_type(y->dtype, dtype),
                               .rows = (int64_t)n,
                               .width = y->shape.dim[rows.rank]};
    for (uint32_t k = 0; k < (uint32_t)out->n; k++)
        if (!read_table(graph, node, k, &rows, &out->table[k]))
            return false;
    return true;
}

static cudaError_t run(const struct kernel_call *call, const struct embed_call *c, void *y)
{
    return kernel_embed(call, c->table, c->n, c->dtype, c->rows, c->width, y, c->bad);
}

static cudaError_t run_dry(const struct cuda_device *device, const struct embed_call *c)
{
    struct kernel_call call = own_call_dry(device, 0);
    return run(&call, c, NULL);
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    enum dtype dtypes[3];
    uint32_t n = cuda_dtypes(graph, node, precision, dtypes);
    for (uint32_t d = 0; d < n; d++) {
        struct embed_call c;
        struct tactic tactic;
        if (!embed_read(graph, node, dtypes[d], &c) || run_dry(device, &c) != cudaSuccess)
            continue;
        cuda_tactic(&tactic, &cuda_family_own_embed, 0, graph, node, dtypes[d], IR_LAYOUT_PLAIN,
                    dtype_name((enum dtype)c.dtype));
        TRY(visit(user, &tactic, err));
    }
    return STATUS_OK;
}

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace UNUSED,
                          struct error *err)
{
    struct embed_call *c = &CONTAINER_OF(base, struct embed_op, base)->call;
    struct kernel_call call = own_call(stream, 0);
    for (int32_t k = 0; k < c->n; k++) {
        c->table[k].data = inputs[2 * k];
        c->table[k].ids = c->table[k].ids_type == DTYPE_NONE ? NULL : inputs[2 * k + 1];
    }
    cudaError_t code = run(&call, c, outputs[0]);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "kernel_embed");
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct embed_op made = {.base.launch = launch};
    if (cuda_tactic_variant(tactic) != 0 || !own_plain(tactic) ||
        !embed_read(graph, node, DTYPE_NONE, &made.call) ||
        run_dry(stream->device, &made.call) != cudaSuccess)
        return cuda_refuse(node, tactic, err);
    TRY(cuda_stream_flag(stream, &made.call.bad, err));
    return own_op_new(&made.base, sizeof(made), out, err);
}

const struct cuda_family cuda_family_own_embed = {
    .id = CUDA_FAMILY_OWN_EMBED,
    .candidates = candidates,
    .prepare = prepare,
};
