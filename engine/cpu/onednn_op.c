/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to a tactic that the tuner has chosen: constants are packed for it, and the node is
 * prepared and launched.
 *
 * A tactic's blob holds a choice and the name of the implementation that was timed. The recipe is
 * made again from the node. If oneDNN has no implementation of that name (because the library or
 * the machine is another), the tactic is refused. Every size is compared with the tensor that it is
 * for.
 *
 * If the descriptor of an input has padded channels, its memory object is made over plain bytes:
 * oneDNN zeroes the padding whenever a handle is set, and would write to weights that are mapped
 * read-only. Kernels take their descriptors from the primitive.
 */
#include <oneapi/dnnl/dnnl_debug.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "engine/cpu/onednn_recipe.h"
#include "engine/stored.h"

/* As TRY, for a call of oneDNN in a function that returns oneDNN's status. */
#define TRY_DNNL(call)                                                                             \
    do {                                                                                           \
        dnnl_status_t status_ = (call);                                                            \
        if (status_ != dnnl_success)                                                               \
            return status_;                                                                        \
    } while (0)

/* --- from a tactic to its recipe --- */

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
        return t->layout == IR_LAYOUT_OPAQUE && ir_tensor_is_constant(t) &&
               t->bytes == port->packed_bytes;
    return layout_canonical(&t->shape, t->layout) == port->format.layout && size <= t->bytes;
}

/* Makes the recipe of a tactic's implementation. oneDNN takes layouts that agree, as all do of
 * [2,6,1,1], for one operation and offers what its cache holds of it, so a build may find an
 * implementation that by itself takes only one of them: then it is made for that one. */
static enum status make_again(const struct subject *s, const struct onednn_row *row,
                              const char *impl, struct choice *choice, struct recipe *r)
{
    const struct choice said = *choice;
    recipe_init(r, impl);
    enum status status = row->make(s, said, r);
    for (uint8_t src = 0; status == STATUS_UNIMPLEMENTED && src < IR_LAYOUT_OPAQUE; src++)
        for (uint8_t dst = 0; status == STATUS_UNIMPLEMENTED && dst < IR_LAYOUT_OPAQUE; dst++) {
            if (!ir_layouts_agree(&subject_in(s, 0)->shape, said.src, src) ||
                !ir_layouts_agree(&subject_out(s, 0)->shape, said.dst, dst))
                continue;
            choice->src = src;
            choice->dst = dst;
            recipe_deinit(r);
            recipe_init(r, impl);
            status = row->make(s, *choice, r);
        }
    return status;
}

/* Makes the tactic's recipe again. `packed`: the constants have been repacked already. */
static enum status rebuild(const struct subject *s, const struct tactic *tactic, bool packed,
                           struct recipe *r, struct choice *choice, struct error *err)
{
    const struct onednn_row *row = onednn_row_find(s->node->op);
    struct choice_blob blob;
    if (!row || tactic->id != ONEDNN_TACTIC_FIRST || tactic->blob_size != sizeof(blob) ||
        s->node->n_outputs != 1 || s->node->n_inputs == 0 || !subject_fits(s) ||
        (packed && !stored_fits(tactic, s->graph, s->node)))
        return refuse(s, err, "not a tactic for this node");
    memcpy(&blob, tactic->blob, sizeof(blob));
    blob.impl[IMPL_NAME_MAX - 1] = '\0';
    if (blob.choice.src >= IR_LAYOUT_OPAQUE || blob.choice.dst >= IR_LAYOUT_OPAQUE ||
        blob.choice.serial > 1 || blob.choice.zero > ZERO_IN_BIAS)
        return refuse(s, err, "the tactic is damaged");
    *choice = blob.choice;
    omp_set_num_threads((int)choice_threads(s->dnn, blob.choice));
    enum status status = make_again(s, row, blob.impl, choice, r);
    r->want = NULL; /* `blob` ends with this function */
    if (status)
        return status == STATUS_RESOURCE_EXHAUSTED ? error_no_memory(err, "oneDNN")
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

struct reorder {
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;
    dnnl_stream_t stream;
    dnnl_memory_t from, to;
};

static void reorder_cleanup(struct reorder *r)
{
    dnnl_memory_destroy(r->to);
    dnnl_memory_destroy(r->from);
    dnnl_stream_destroy(r->stream);
    dnnl_primitive_destroy(r->primitive);
    dnnl_primitive_desc_destroy(r->pd);
}

/* Reorders the bytes at `from` into `to`. */
static dnnl_status_t reorder_now(const struct onednn *dnn, const dnnl_memory_desc_t *from_md,
                                 void *from, const dnnl_memory_desc_t *to_md, void *to)
{
    CLEANUP(reorder_cleanup) struct reorder r = {0};
    TRY_DNNL(
        dnnl_reorder_primitive_desc_create(&r.pd, from_md, dnn->engine, to_md, dnn->engine, NULL));
    TRY_DNNL(dnnl_primitive_create(&r.primitive, r.pd));
    TRY_DNNL(dnnl_stream_create(&r.stream, dnn->engine, dnnl_stream_default_flags));
    TRY_DNNL(dnnl_memory_create(&r.from, from_md, dnn->engine, from));
    TRY_DNNL(dnnl_memory_create(&r.to, to_md, dnn->engine, to));
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, r.from}, {DNNL_ARG_TO, r.to}};
    TRY_DNNL(dnnl_primitive_execute(r.primitive, r.stream, 2, args));
    return dnnl_stream_wait(r.stream);
}

/* Packs from a copy: a constant's bytes may lie at any address, but oneDNN wants aligned floats.
 * The bias of a scaled subject is the argument before the weights. */
static enum status pack_aligned(const struct subject *s, const struct recipe *r,
                                struct choice choice, void *to, struct error *err)
{
    const struct recipe_arg *arg = &r->args[r->packed_arg];
    size_t size = dnnl_memory_desc_get_size(&r->plain);
    bool scaled = subject_is_scaled(s);
    size_t rounded = (size + BACKEND_ALIGN - 1) & ~(size_t)63;
    CLEANUP(cleanup_free) void *from = aligned_alloc(BACKEND_ALIGN, rounded);
    if (!from)
        return error_no_memory(err, "oneDNN");
    memset(to, 0, r->in[arg->index].packed_bytes);
    if (scaled)
        scaled_weights(s, from);
    else
        memcpy(from, subject_in(s, arg->index)->data, size);
    if (scaled && !scaled_bias(s, choice, from, (float *)(void *)((char *)to + arg[-1].offset)))
        return refuse(s, err, "its bias is too large for the scales");
    dnnl_status_t packed = reorder_now(s->dnn, &r->plain, from, &arg->md, to);
    if (packed != dnnl_success)
        return error_set(err, status_of_dnnl(packed), "oneDNN: cannot pack the weights of '%s'",
                         s->node->name);
    return STATUS_OK;
}

enum status onednn_pack(struct onednn *dnn, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    struct subject s = {dnn, graph, node};
    CLEANUP(recipe_cleanup) struct recipe *r = recipe_new();
    struct choice choice;
    if (!r)
        return error_no_memory(err, "oneDNN");
    TRY(rebuild(&s, tactic, false, r, &choice, err));
    if (r->packed_arg == UINT32_MAX || r->args[r->packed_arg].index != input ||
        r->in[input].packed_bytes != tactic->in[input].packed_bytes || !subject_in(&s, input)->data)
        return refuse(&s, err, "this input is not packed");
    return pack_aligned(&s, r, choice, to, err);
}

/* --- running --- */

struct binding {
    dnnl_memory_t memory;
    void *handle; /* what the memory object points to now */
    bool output;
    uint32_t index;
    uint64_t offset;
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
    TRY_DNNL(dnnl_primitive_create(&op->primitive, r->pd));
    TRY_DNNL(dnnl_stream_create(&op->stream, op->dnn->engine, dnnl_stream_default_flags));
    for (uint32_t i = 0; i < r->n_args; i++) {
        struct binding *b = &op->bindings[i];
        b->output = r->args[i].output;
        b->index = r->args[i].index;
        b->offset = r->args[i].offset;
        TRY_DNNL(make_memory(op->dnn, &r->args[i], &b->memory));
        op->args[i] = (dnnl_exec_arg_t){r->args[i].arg, b->memory};
        op->n++;
    }
    const dnnl_memory_desc_t *scratch = recipe_md(r, dnnl_query_scratchpad_md, 0);
    op->workspace = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
    if (op->workspace > 0) {
        TRY_DNNL(dnnl_memory_create(&op->scratch, scratch, op->dnn->engine, DNNL_MEMORY_NONE));
        op->args[op->n] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, op->scratch};
    }
    return dnnl_success;
}

static void onednn_op_cleanup(struct onednn_op **at)
{
    onednn_op_free(*at);
}

enum status onednn_op_prepare(struct onednn *dnn, const struct ir_graph *graph,
                              const struct ir_node *node, const struct tactic *tactic,
                              struct onednn_op **out, struct error *err)
{
    struct subject s = {dnn, graph, node};
    CLEANUP(recipe_cleanup) struct recipe *r = recipe_new();
    CLEANUP(onednn_op_cleanup) struct onednn_op *op = calloc(1, sizeof(*op));
    if (!r || !op)
        return error_no_memory(err, "oneDNN");
    struct choice choice;
    op->dnn = dnn;
    op->name = node->name;
    TRY(rebuild(&s, tactic, true, r, &choice, err));
    op->threads = choice_threads(dnn, choice);
    dnnl_status_t made = fill_op(op, r);
    if (made != dnnl_success)
        return error_set(err, status_of_dnnl(made), "oneDNN: '%s' cannot be made ready",
                         node->name);
    *out = STEAL(op);
    return STATUS_OK;
}

uint64_t onednn_op_workspace(const struct onednn_op *op)
{
    return op->workspace;
}

uint32_t onednn_op_threads(const struct onednn_op *op)
{
    return op->threads;
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

/* Setting a handle may cost a pass over the padding, so it is set only when the address has
 * changed. */
static dnnl_status_t set_handle(dnnl_memory_t memory, void **now, void *want)
{
    if (*now == want)
        return dnnl_success;
    TRY_DNNL(dnnl_memory_set_data_handle(memory, want));
    *now = want;
    return dnnl_success;
}

static dnnl_status_t execute(struct onednn_op *op, void *const *inputs, void *const *outputs,
                             void *workspace)
{
    for (uint32_t i = 0; i < op->n; i++) {
        struct binding *b = &op->bindings[i];
        char *handle = b->output ? outputs[b->index] : inputs[b->index];
        TRY_DNNL(set_handle(b->memory, &b->handle, handle + b->offset));
    }
    if (op->workspace > 0)
        TRY_DNNL(set_handle(op->scratch, &op->scratch_handle, workspace));
    return dnnl_primitive_execute(op->primitive, op->stream,
                                  (int)op->n + (op->workspace > 0 ? 1 : 0), op->args);
}

enum status onednn_op_launch(struct onednn_op *op, void *const *inputs, void *const *outputs,
                             void *workspace, struct error *err)
{
    omp_set_num_threads((int)op->threads);
    dnnl_status_t done = execute(op, inputs, outputs, workspace);
    if (done != dnnl_success)
        return error_set(err, status_of_dnnl(done), "oneDNN: '%s' failed (%s)", op->name,
                         dnnl_status2str(done));
    return STATUS_OK;
}
