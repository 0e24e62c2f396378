/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pooling by our own kernels, in channels-last and plain layout. A window as large as the image is
 * also offered as a reduction, and, with channels last, by the kernel for bytes, which takes floats
 * as well: both share out the image among threads. The output of one pixel lies the same in both
 * layouts. Refused: the argmax output, negative padding.
 */
#include <limits.h>
#include <stdio.h>

#include "base/compiler.h"
#include "engine/cuda/own.h"

struct pool {
    struct kernel_window window;
    struct kernel_view x, y;
    struct kernel_epilogue epilogue;
    int32_t func;
    float power;           /* of LP pooling */
    bool count_pad, whole; /* the window is all of the image */
};

struct pool_op {
    struct backend_op base;
    const struct ir_node *node;
    int32_t variant;
    struct pool pool;
};

enum { VARIANT_REDUCE = 100, VARIANT_SHARED = 101 };

static const struct {
    const char *name;
    int32_t variant;
} variants[] = {
    {"shared", VARIANT_SHARED},     {"reduce", VARIANT_REDUCE},
    {"tile 2", KERNEL_POOL_TILE_2}, {"tile 4", KERNEL_POOL_TILE_4},
    {"single", KERNEL_POOL_SINGLE}, {"general", KERNEL_POOL_GENERAL},
};

/* Reads one value per spatial dim, beginning with number `first` of `key`. */
static bool read_ints(const struct ir_node *node, enum ir_attr_key key, uint32_t first, uint32_t n,
                      int32_t *out)
{
    for (uint32_t i = 0; i < n; i++) {
        int64_t v = ir_attr_at(node, key, first + i);
        if (v < 0 || v > INT32_MAX)
            return false;
        out[i] = (int32_t)v;
    }
    return true;
}

bool own_window_read(const struct ir_node *node, uint32_t spatial, struct kernel_window *w)
{
    w->spatial = (int32_t)spatial;
    return read_ints(node, IR_ATTR_KERNEL, 0, spatial, w->kernel) &&
           read_ints(node, IR_ATTR_STRIDES, 0, spatial, w->stride) &&
           read_ints(node, IR_ATTR_DILATIONS, 0, spatial, w->dilation) &&
           read_ints(node, IR_ATTR_PADS, 0, spatial, w->pad) &&
           read_ints(node, IR_ATTR_PADS, spatial, spatial, w->end);
}

static bool is_whole(const struct pool *p)
{
    bool whole = true;
    for (int32_t i = 0; i < p->window.spatial; i++)
        whole = whole && p->window.kernel[i] == p->x.dim[i + 2] && p->window.pad[i] == 0 &&
                p->window.end[i] == 0 && p->window.dilation[i] == 1 && p->y.dim[i + 2] == 1;
    return whole;
}

static bool pool_read(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                      enum ir_layout in, enum ir_layout out, struct pool *pool)
{
    const struct ir_tensor *x = ir_tensor(graph, node->inputs[0]);
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    struct pool p = {.func = (int32_t)ir_attr_int(node, IR_ATTR_FUNC),
                     .power = ir_attr_float(node, IR_ATTR_ALPHA),
                     .count_pad = ir_attr_int(node, IR_ATTR_COUNT_INCLUDE_PAD) != 0};
    if (node->n_outputs != 1 || x->shape.rank < 3 || x->shape.rank > 5 ||
        !own_window_read(node, x->shape.rank - 2, &p.window) || !own_view(x, dtype, in, &p.x) ||
        !own_view(y, dtype, out, &p.y) || !cuda_epilogue(graph, node, &p.y, &p.epilogue))
        return false;
    p.whole = is_whole(&p);
    *pool = p;
    return true;
}

static cudaError_t pool_shared(const struct kernel_call *call, const struct pool *p)
{
    return p->epilogue.n == 0 && p->x.stride[1] == 1
               ? kernel_bytes_pool(call, p->func == IR_POOL_AVERAGE, p->count_pad, &p->window,
                                   &p->x, &p->y)
               : cudaErrorNotSupported;
}

static cudaError_t pool_call(struct kernel_call *call, const struct pool *p)
{
    static const int32_t axes[] = {2, 3, 4};
    bool shared = call->variant == VARIANT_SHARED;
    if (!shared && call->variant != VARIANT_REDUCE)
        return kernel_pool(call, p->func, p->power, p->count_pad, &p->window, &p->x, &p->y,
                           &p->epilogue);
    if (!p->whole || p->func == IR_POOL_LP)
        return cudaErrorNotSupported;
    call->variant = 0;
    return shared ? pool_shared(call, p)
                  : kernel_reduce(call, p->func == IR_POOL_MAX ? IR_REDUCE_MAX : IR_REDUCE_MEAN,
                                  axes, p->window.spatial, &p->x, &p->y, &p->epilogue);
}

/* Visits all variants of a type and a pair of layouts; the general one only if no other is
 * there. */
static enum status list(struct cuda_device *device, const struct ir_graph *graph,
                        const struct ir_node *node, enum dtype dtype, uint32_t layout,
                        tactic_visit visit, void *user, struct error *err)
{
    struct pool pool;
    bool any = false;
    if (!pool_read(graph, node, dtype, own_image_layouts[layout].x, own_image_layouts[layout].y,
                   &pool) ||
        (own_image_layouts[layout].x != own_image_layouts[layout].y && !pool.whole))
        return STATUS_OK;
    for (uint32_t i = 0; i < ARRAY_LEN(variants); i++) {
        struct kernel_call call = own_call_dry(device, variants[i].variant);
        if ((any && variants[i].variant == KERNEL_POOL_GENERAL) ||
            pool_call(&call, &pool) != cudaSuccess)
            continue;
        any = true;
        char detail[TACTIC_NAME_MAX];
        snprintf(detail, sizeof(detail), "%s %s %s", dtype_name((enum dtype)pool.x.dtype),
                 own_image_layouts[layout].name, variants[i].name);
        struct tactic tactic;
        own_tactic(&tactic, &cuda_family_own_pool, (uint32_t)variants[i].variant, graph, node,
                   dtype, own_image_layouts[layout].x, own_image_layouts[layout].y, detail);
        TRY(visit(user, &tactic, err));
    }
    return STATUS_OK;
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    enum dtype dtypes[3];
    uint32_t n = cuda_dtypes(graph, node, precision, dtypes);
    for (uint32_t d = 0; d < n; d++)
        for (uint32_t l = 0; l < OWN_IMAGE_LAYOUTS; l++)
            TRY(list(device, graph, node, dtypes[d], l, visit, user, err));
    return STATUS_OK;
}

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace UNUSED,
                          struct error *err)
{
    struct pool_op *op = CONTAINER_OF(base, struct pool_op, base);
    op->pool.x.data = inputs[0];
    op->pool.y.data = outputs[0];
    cuda_epilogue_bind(&op->pool.epilogue, op->node, inputs);
    struct kernel_call call = own_call(stream, op->variant);
    cudaError_t code = pool_call(&call, &op->pool);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "pooling kernel");
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct pool_op made = {
        .base.launch = launch,
        .node = node,
        .variant = (int32_t)cuda_tactic_variant(tactic),
    };
    struct kernel_call call = own_call_dry(stream->device, made.variant);
    if (made.variant == 0 || own_packed(tactic) ||
        !pool_read(graph, node, DTYPE_NONE, ir_tensor(graph, node->inputs[0])->layout,
                   ir_tensor(graph, node->outputs[0])->layout, &made.pool) ||
        pool_call(&call, &made.pool) != cudaSuccess)
        return cuda_refuse(node, tactic, err);
    return own_op_new(&made.base, sizeof(made), out, err);
}

const struct cuda_family cuda_family_own_pool = {
    .id = CUDA_FAMILY_OWN_POOL,
    .candidates = candidates,
    .prepare = prepare,
};
