/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ATTENTION in fp32. The queries that read one head of keys, of all heads that share it, are cut
 * into blocks; a block is a unit, and each thread has scratch of its own for it.
 */
#include <string.h>

#include "base/compiler.h"
#include "engine/cpu/native_op.h"

/* Rows of this many elements at most, so that the scratch stays within reason. */
enum { DIM_MAX = 1 << 14 };

/* The places of `heads` heads that begin with head `skip` of the `all` heads in the tensor. */
static struct native_heads heads_of(const struct ir_graph *graph, const struct ir_node *node,
                                    uint32_t input, int64_t heads, int64_t all, int64_t skip)
{
    const struct shape *s = &ir_tensor(graph, node->inputs[input])->shape;
    struct native_heads h = {.input = input};
    if (s->rank == 4) { /* [N,heads,S,D] */
        h.rows = s->dim[2];
        h.row = h.dim = s->dim[3];
        h.head = h.rows * h.dim;
        h.batch = heads * h.head;
    } else { /* [N,S,all*D] */
        h.rows = s->dim[1];
        h.row = s->dim[2];
        h.head = h.dim = s->dim[2] / all;
        h.batch = h.rows * h.row;
        h.first = skip * h.dim;
    }
    return h;
}

static const float *head_at(const struct native_op *op, const struct native_heads *h, int64_t batch,
                            int64_t head)
{
    return (const float *)op->inputs[h->input] + h->first + batch * h->batch + head * h->head;
}

/* Numbers of a span are a request's, and may be any. */
static void set_span(struct attend_query *query, const int32_t *span, int64_t keys)
{
    query->from = MIN(MAX(span[0], 0), keys);
    query->seen = MIN(MAX(span[1], 0), query->seen);
    if (query->seen <= query->from)
        query->from = query->seen = 0;
}

/* Moves the keys to the first one that any of the queries sees, so that no others are read. */
static void narrow_keys(struct attend *a)
{
    int64_t first = a->keys, end = 0;
    for (int64_t i = 0; i < a->n; i++)
        if (a->query[i].seen > 0) {
            first = MIN(first, a->query[i].from);
            end = MAX(end, a->query[i].seen);
        }
    for (int64_t i = 0; i < a->n; i++)
        if (a->query[i].seen > 0) {
            a->query[i].from -= first;
            a->query[i].seen -= first;
        }
    a->keys = MAX(end - first, 0);
    a->k += a->keys ? first * a->k_row : 0;
    a->v += a->keys ? first * a->v_row : 0;
}

/* Sets the queries from row `at` on of those that read one head of keys: first come all of one
 * head, then all of the next. */
static void set_queries(const struct native_op *op, struct attend *a, int64_t batch,
                        int64_t kv_head, int64_t at)
{
    const struct native_attention *t = &op->attention;
    int64_t head = kv_head * t->group + at / t->q.rows, row = at % t->q.rows, keys = t->k.rows;
    int64_t y_row = t->kv_heads * t->group * t->v.dim, size = (int64_t)dtype_size(t->mask);
    const char *mask = t->mask == DTYPE_NONE ? NULL : op->inputs[3];
    for (int64_t i = 0; i < a->n; i++) {
        struct attend_query *query = &a->query[i];
        query->q = head_at(op, &t->q, batch, head) + row * t->q.row;
        query->y = (float *)op->output + (batch * t->q.rows + row) * y_row + head * t->v.dim;
        query->from = 0;
        query->seen = t->causal ? MAX(MIN(row + keys - t->q.rows + 1, keys), 0) : keys;
        if (t->spans)
            set_span(query, (const int32_t *)op->inputs[4] + 2 * row, keys);
        query->mask = mask ? mask + (batch % t->mask_batches * t->mask_stride[0] +
                                     head * t->mask_stride[1] + row * t->mask_stride[2]) *
                                        size
                           : NULL;
        if (++row == t->q.rows) {
            row = 0;
            head++;
        }
    }
}

/* Whether both queries see the same keys, or, if they are causal, keys of the same sequence. */
static bool see_the_same(const struct attend_query *a, const struct attend_query *b, bool causal)
{
    return a->from == b->from && (causal ? (a->seen > 0) == (b->seen > 0) : a->seen == b->seen);
}

/* Runs queries of one sequence after the other. Were they to meet keys of others, with weights of
 * 0, an infinite value of one sequence would reach its neighbours. */
static void attend_spans(const struct native_op *op, const struct attend *all)
{
    for (int64_t first = 0, end; first < all->n; first = end) {
        struct attend part = *all;
        for (end = first + 1; end < all->n && see_the_same(&all->query[first], &all->query[end],
                                                           op->attention.causal);)
            end++;
        part.n = end - first;
        memmove(part.query, all->query + first, (size_t)part.n * sizeof(*part.query));
        narrow_keys(&part);
        op->fast->attend(&part);
    }
}

static void attend_blocks(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    const struct native_attention *t = &op->attention;
    struct attend a = {.keys = t->k.rows, .dim = t->k.dim, .out_dim = t->v.dim};
    a.k_row = t->k.row;
    a.v_row = t->v.row;
    a.scale = t->scale;
    a.mask = t->mask;
    a.mask_step = t->mask_stride[3];
    a.mask_shared = t->mask_shared;
    a.scratch = (float *)op->workspace + team_thread() * t->scratch;
    for (int64_t unit = first; unit < end; unit++) {
        int64_t head = unit / t->blocks, at = unit % t->blocks * ATTEND_QUERIES;
        int64_t batch = head / t->kv_heads;
        head %= t->kv_heads;
        a.n = MIN(t->group * t->q.rows - at, ATTEND_QUERIES);
        a.k = head_at(op, &t->k, batch, head);
        a.v = head_at(op, &t->v, batch, head);
        set_queries(op, &a, batch, head, at);
        a.keys = t->k.rows;
        if (t->spans)
            attend_spans(op, &a);
        else
            op->fast->attend(&a);
    }
}

static bool set_mask(struct native_attention *t, const struct ir_graph *graph,
                     const struct ir_node *node)
{
    t->mask = DTYPE_NONE;
    if (node->n_inputs < 4 || node->inputs[3] == IR_NONE)
        return true;
    const struct ir_tensor *mask = ir_tensor(graph, node->inputs[3]);
    t->mask_batches = mask->shape.rank == 4 && mask->shape.dim[0] > 1 ? mask->shape.dim[0] : 1;
    struct shape scores = {.rank = 4,
                           .dim = {t->mask_batches, t->kv_heads * t->group, t->q.rows, t->k.rows}};
    ref_broadcast_strides(&mask->shape, &scores, t->mask_stride);
    t->mask = mask->dtype;
    t->mask_shared =
        t->mask_stride[2] == 0 && (t->group == 1 || t->mask_stride[1] == 0 || t->q.rows == 0);
    return t->mask == DTYPE_F32 || t->mask == DTYPE_BOOL;
}

bool native_attention_make(struct native_op *op, const struct ir_graph *graph,
                           const struct ir_node *node)
{
    struct native_attention *t = &op->attention;
    const struct ir_tensor *q = ir_tensor(graph, node->inputs[0]);
    int64_t heads = ir_attr_int(node, IR_ATTR_HEADS), kv = ir_attr_int(node, IR_ATTR_KV_HEADS);
    bool packed = ir_attr_int(node, IR_ATTR_PACKED);
    if (q->dtype != DTYPE_F32 || node->n_epilogue)
        return false;
    t->kv_heads = kv ? kv : heads;
    t->group = heads / t->kv_heads;
    int64_t all = packed ? heads + 2 * t->kv_heads : heads;
    int64_t all_kv = packed ? all : t->kv_heads;
    t->q = heads_of(graph, node, 0, heads, all, 0);
    t->k = heads_of(graph, node, packed ? 0 : 1, t->kv_heads, all_kv, packed ? heads : 0);
    t->v = heads_of(graph, node, packed ? 0 : 2, t->kv_heads, all_kv,
                    packed ? heads + t->kv_heads : 0);
    t->spans = node->n_inputs > 4 && node->inputs[4] != IR_NONE;
    int64_t batches = q->shape.dim[0];
    if (t->spans) { /* the rows of all instances are those of one */
        t->q.rows *= batches;
        t->k.rows *= batches;
        t->v.rows *= batches;
        batches = 1;
    }
    t->causal = ir_attr_int(node, IR_ATTR_CAUSAL);
    t->scale = ir_attr_float(node, IR_ATTR_ALPHA);
    t->blocks = (t->group * t->q.rows + ATTEND_QUERIES - 1) / ATTEND_QUERIES;
    t->scratch = attend_scratch(t->k.dim, t->v.dim);
    op->thread_bytes = (uint64_t)t->scratch * sizeof(float);
    op->units = batches * t->kv_heads * t->blocks;
    op->work = attend_blocks;
    return t->k.dim <= DIM_MAX && t->v.dim <= DIM_MAX && set_mask(t, graph, node);
}
