/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tactics that come back: packing constants for them, preparing and launching.
 *
 * A tactic's blob holds a choice and the name of the implementation that was timed. When it comes
 * back, the recipe is made again from the node; where there is no implementation of that name (a
 * different library or machine) it is refused, and every size is compared with the tensor it is
 * for.
 *
 * Memory objects of inputs are made over bytes, not over the true descriptor, where that one has
 * padded channels: oneDNN zeroes the padding whenever a handle is set, which would write to weights
 * that are mapped read-only. Kernels take their descriptors from the primitive.
 */
#include <oneapi/dnnl/dnnl_debug.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/onednn_recipe.h"

/* --- back from a tactic to a recipe --- */

static enum status refuse(const struct subject *s, struct error *err, const char *why)
{
    return error_set(err, STATUS_FAILED_PRECONDITION, "oneDNN: '%s' cannot run as planned: %s",
                     s->node->name, why);
}

/* Whether the graph's tensor is what the recipe reads or writes. */
static bool fits(const struct ir_tensor *t, const struct tactic_port *port,
                 const dnnl_memory_desc_t *md)
{
    size_t size = dnnl_memory_desc_get_size(md);
    if (port->packed_bytes > 0)
        return t->layout == IR_LAYOUT_OPAQUE && ir_tensor_is_constant(t) && t->bytes == size;
    return layout_canonical(&t->shape, t->layout) == port->format.layout && size <= t->bytes;
}

/* `packed`: constants have been repacked already. */
static enum status rebuild(const struct subject *s, const struct tactic *tactic, bool packed,
                           struct recipe *r, uint32_t *threads, struct error *err)
{
    const struct onednn_row *row = onednn_row_find(s->node->op);
    struct choice_blob blob;
    if (!row || tactic->id != ONEDNN_TACTIC_FIRST || tactic->blob_size != sizeof(blob) ||
        s->node->n_outputs != 1 || s->node->n_inputs == 0 ||
        !(subject_all_f32(s) || subject_is_bytes(s)))
        return refuse(s, err, "not a tactic for this node");
    memcpy(&blob, tactic->blob, sizeof(blob));
    blob.impl[IMPL_NAME_MAX - 1] = '\0';
    if (blob.choice.src >= IR_LAYOUT_OPAQUE || blob.choice.dst >= IR_LAYOUT_OPAQUE ||
        blob.choice.serial > 1)
        return refuse(s, err, "the tactic is damaged");
    *threads = choice_threads(s->dnn, blob.choice);
    omp_set_num_threads((int)*threads);
    recipe_init(r, blob.impl);
    enum status st = row->make(s, blob.choice, r);
    r->want = NULL; /* it was ours */
    if (st != STATUS_OK)
        return st == STATUS_RESOURCE_EXHAUSTED ? error_no_memory(err, "oneDNN")
                                               : refuse(s, err, "no such implementation here");
    for (uint32_t i = 0; packed && i < r->n_args; i++) {
        const struct recipe_arg *a = &r->args[i];
        const struct ir_tensor *t = a->output ? subject_out(s, a->index) : subject_in(s, a->index);
        if (!fits(t, a->output ? &r->out[a->index] : &r->in[a->index], &a->md))
            return refuse(s, err, "a tensor has another size or layout than it needs");
    }
    return STATUS_OK;
}

/* --- packing --- */

/* Reorders the bytes at `from` into `to`. */
static dnnl_status_t reorder_now(const struct onednn *dnn, const dnnl_memory_desc_t *from_md,
                                 void *from, const dnnl_memory_desc_t *to_md, void *to)
{
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_stream_t stream = NULL;
    dnnl_memory_t a = NULL, b = NULL;
    dnnl_status_t st =
        dnnl_reorder_primitive_desc_create(&pd, from_md, dnn->engine, to_md, dnn->engine, NULL);
    if (st == dnnl_success)
        st = dnnl_primitive_create(&primitive, pd);
    if (st == dnnl_success)
        st = dnnl_stream_create(&stream, dnn->engine, dnnl_stream_default_flags);
    if (st == dnnl_success)
        st = dnnl_memory_create(&a, from_md, dnn->engine, from);
    if (st == dnnl_success)
        st = dnnl_memory_create(&b, to_md, dnn->engine, to);
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, a}, {DNNL_ARG_TO, b}};
    if (st == dnnl_success)
        st = dnnl_primitive_execute(primitive, stream, 2, args);
    if (st == dnnl_success)
        st = dnnl_stream_wait(stream);
    dnnl_memory_destroy(b);
    dnnl_memory_destroy(a);
    dnnl_stream_destroy(stream);
    dnnl_primitive_destroy(primitive);
    dnnl_primitive_desc_destroy(pd);
    return st;
}

/* A constant's bytes may lie at any address; oneDNN wants floats where floats go. */
static enum status pack_aligned(const struct subject *s, const struct recipe *r, void *to,
                                struct error *err)
{
    const struct recipe_arg *arg = &r->args[r->packed_arg];
    size_t size = dnnl_memory_desc_get_size(&r->plain);
    void *from = aligned_alloc(BACKEND_ALIGN, (size + BACKEND_ALIGN - 1) & ~(size_t)63);
    if (!from)
        return error_no_memory(err, "oneDNN");
    memcpy(from, subject_in(s, arg->index)->data, size);
    memset(to, 0, dnnl_memory_desc_get_size(&arg->md));
    dnnl_status_t st = reorder_now(s->dnn, &r->plain, from, &arg->md, to);
    free(from);
    return st == dnnl_success ? STATUS_OK
                              : error_set(err, status_of_dnnl(st),
                                          "oneDNN: cannot pack the weights of '%s'", s->node->name);
}

enum status onednn_pack(struct onednn *dnn, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    struct subject s = {dnn, graph, node};
    struct recipe *r = malloc(sizeof(*r));
    uint32_t threads;
    if (!r)
        return error_no_memory(err, "oneDNN");
    recipe_init(r, NULL);
    enum status st = rebuild(&s, tactic, false, r, &threads, err);
    if (st == STATUS_OK && (r->packed_arg == UINT32_MAX || r->args[r->packed_arg].index != input ||
                            r->in[input].packed_bytes != tactic->in[input].packed_bytes ||
                            !subject_in(&s, input)->data))
        st = refuse(&s, err, "this input is not packed");
    if (st == STATUS_OK)
        st = pack_aligned(&s, r, to, err);
    recipe_deinit(r);
    free(r);
    return st;
}

/* --- running --- */

struct binding {
    dnnl_memory_t memory;
    void *handle; /* what the memory object points to now */
    bool output;
    uint32_t index;
};

struct onednn_op {
    const struct onednn *dnn;
    const char *name; /* the node's */
    uint32_t threads;
    dnnl_primitive_t primitive;
    dnnl_stream_t stream;
    dnnl_memory_t scratch;
    void *scratch_handle;
    uint64_t workspace;
    uint32_t n;
    struct binding bindings[RECIPE_ARGS_MAX];
    dnnl_exec_arg_t args[RECIPE_ARGS_MAX + 1];
};

static bool has_padding(const dnnl_memory_desc_t *md)
{
    return memcmp(md->dims, md->padded_dims, sizeof(md->dims[0]) * (size_t)md->ndims) != 0;
}

static dnnl_status_t make_memory(const struct onednn *dnn, const struct recipe_arg *arg,
                                 dnnl_memory_t *out)
{
    dnnl_memory_desc_t bytes;
    if (arg->output || !has_padding(&arg->md))
        return dnnl_memory_create(out, &arg->md, dnn->engine, DNNL_MEMORY_NONE);
    if (!desc_bytes(&bytes, dnnl_memory_desc_get_size(&arg->md)))
        return dnnl_invalid_arguments;
    return dnnl_memory_create(out, &bytes, dnn->engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t fill_op(struct onednn_op *op, const struct recipe *r)
{
    dnnl_status_t st = dnnl_primitive_create(&op->primitive, r->pd);
    if (st == dnnl_success)
        st = dnnl_stream_create(&op->stream, op->dnn->engine, dnnl_stream_default_flags);
    for (uint32_t i = 0; st == dnnl_success && i < r->n_args; i++) {
        struct binding *b = &op->bindings[i];
        b->output = r->args[i].output;
        b->index = r->args[i].index;
        st = make_memory(op->dnn, &r->args[i], &b->memory);
        op->args[i] = (dnnl_exec_arg_t){r->args[i].arg, b->memory};
        op->n++;
    }
    const dnnl_memory_desc_t *scratch = recipe_md(r, dnnl_query_scratchpad_md, 0);
    op->workspace = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
    if (st == dnnl_success && op->workspace > 0) {
        st = dnnl_memory_create(&op->scratch, scratch, op->dnn->engine, DNNL_MEMORY_NONE);
        op->args[op->n] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, op->scratch};
    }
    return st;
}

enum status onednn_op_prepare(struct onednn *dnn, const struct ir_graph *graph,
                              const struct ir_node *node, const struct tactic *tactic,
                              struct onednn_op **out, struct error *err)
{
    struct subject s = {dnn, graph, node};
    struct recipe *r = malloc(sizeof(*r));
    struct onednn_op *op = calloc(1, sizeof(*op));
    enum status st = STATUS_RESOURCE_EXHAUSTED;
    if (r && op) {
        recipe_init(r, NULL);
        op->dnn = dnn;
        op->name = node->name;
        st = rebuild(&s, tactic, true, r, &op->threads, err);
        if (st == STATUS_OK) {
            dnnl_status_t made = fill_op(op, r);
            if (made != dnnl_success)
                st = error_set(err, status_of_dnnl(made), "oneDNN: '%s' cannot be made ready",
                               node->name);
        }
        recipe_deinit(r);
    } else {
        error_no_memory(err, "oneDNN");
    }
    free(r);
    if (st == STATUS_OK)
        *out = op;
    else
        onednn_op_free(op);
    return st;
}

uint64_t onednn_op_workspace(const struct onednn_op *op)
{
    return op->workspace;
}

void onednn_op_free(struct onednn_op *op)
{
    if (!op)
        return;
    for (uint32_t i = 0; i < op->n; i++)
        dnnl_memory_destroy(op->bindings[i].memory);
    dnnl_memory_destroy(op->scratch);
    dnnl_stream_destroy(op->stream);
    dnnl_primitive_destroy(op->primitive);
    free(op);
}

/* Setting a handle may cost a pass over the padding: only when the address has changed. */
static dnnl_status_t set_handle(dnnl_memory_t memory, void **now, void *want)
{
    if (*now == want)
        return dnnl_success;
    dnnl_status_t st = dnnl_memory_set_data_handle(memory, want);
    if (st == dnnl_success)
        *now = want;
    return st;
}

enum status onednn_op_launch(struct onednn_op *op, void *const *inputs, void *const *outputs,
                             void *workspace, struct error *err)
{
    omp_set_num_threads((int)op->threads);
    dnnl_status_t st = dnnl_success;
    for (uint32_t i = 0; i < op->n && st == dnnl_success; i++) {
        struct binding *b = &op->bindings[i];
        st = set_handle(b->memory, &b->handle, b->output ? outputs[b->index] : inputs[b->index]);
    }
    if (st == dnnl_success && op->workspace > 0)
        st = set_handle(op->scratch, &op->scratch_handle, workspace);
    if (st == dnnl_success)
        st = dnnl_primitive_execute(op->primitive, op->stream,
                                    (int)op->n + (op->workspace > 0 ? 1 : 0), op->args);
    if (st != dnnl_success)
        return error_set(err, status_of_dnnl(st), "oneDNN: '%s' failed (%s)", op->name,
                         dnnl_status2str(st));
    return STATUS_OK;
}
