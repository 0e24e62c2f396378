/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops along one dim that compare or accumulate: ARG_REDUCE, CUMSUM and TOPK, on
 * x[outer][dim][inner]. A unit of the first two is some neighbouring columns of one outer index,
 * which are scanned together; a unit of TOPK is one column.
 */
#include <string.h>

#include "base/compiler.h"
#include "engine/cpu/native_op.h"

enum { COLS = 256 };

/* Columns of unit `unit`: the first one's place in x, and how many there are. */
struct columns {
    int64_t outer, first, n;
};

static struct columns columns_of(const struct native_op *op, int64_t unit)
{
    struct columns c = {.outer = unit / op->blocks, .first = unit % op->blocks * COLS};
    c.n = MIN(op->scan.inner - c.first, COLS);
    return c;
}

/* `cols`: of one unit. */
static void set_scan(struct native_op *op, const struct ir_graph *graph, const struct ir_node *node,
                     int64_t cols)
{
    const struct ir_tensor *x = ir_tensor(graph, node->inputs[0]);
    uint32_t axis = (uint32_t)ir_attr_int(node, IR_ATTR_AXIS);
    op->scan.dim = x->shape.dim[axis];
    op->scan.inner = ref_extent(&x->shape, axis + 1, x->shape.rank);
    op->scan.dtype = x->dtype;
    op->blocks = (op->scan.inner + cols - 1) / cols;
    op->units = ref_extent(&x->shape, 0, axis) * op->blocks;
}

/* --- the largest or smallest element --- */

static void arg_across(const struct native_op *op, const float *x, int64_t *y, size_t n)
{
    float best[COLS];
    int32_t at[COLS];
    op->fast->sweep->arg_begin(x, best, at, n, op->scan.smallest);
    for (int64_t d = 1; d < op->scan.dim; d++)
        op->fast->sweep->arg_next(x + d * op->scan.inner, best, at, n, (int32_t)d,
                                  op->scan.smallest, op->scan.last);
    for (size_t i = 0; i < n; i++)
        y[i] = at[i];
}

static int64_t find(const float *x, int64_t n, float value, bool last)
{
    bool nan = value != value;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = last ? n - 1 - i : i;
        if (nan ? x[at] != x[at] : x[at] == value)
            return at;
    }
    return 0;
}

/* Element 0 starts both folds, so that a row of infinities has an answer, too. */
static int64_t arg_along(const struct native_op *op, const float *x)
{
    enum { LANES = 64 };
    enum sweep_fold fold = op->scan.smallest ? SWEEP_MIN : SWEEP_MAX;
    int64_t n = op->scan.dim, width = MIN(n, LANES), rows = n / width;
    float best[LANES], one;
    for (int64_t i = 0; i < width; i++)
        best[i] = x[0];
    op->fast->sweep->fold[fold](best, x, rows, width, (size_t)width);
    op->fast->sweep->fold[fold](best, x + rows * width, 1, 0, (size_t)(n % width));
    one = best[0];
    op->fast->sweep->fold[fold](&one, best, width, 1, 1);
    return find(x, n, one, op->scan.last);
}

static void run_arg(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    const struct native_scan *s = &op->scan;
    for (int64_t unit = first; unit < end; unit++) {
        struct columns c = columns_of(op, unit);
        const float *x = (const float *)op->inputs[0] + c.outer * s->dim * s->inner + c.first;
        int64_t *y = (int64_t *)op->output + c.outer * s->inner + c.first;
        if (s->inner == 1)
            *y = arg_along(op, x);
        else
            arg_across(op, x, y, (size_t)c.n);
    }
}

bool native_arg_make(struct native_op *op, const struct ir_graph *graph, const struct ir_node *node)
{
    set_scan(op, graph, node, COLS);
    op->scan.smallest = ir_attr_int(node, IR_ATTR_FUNC) == 1;
    op->scan.last = ir_attr_int(node, IR_ATTR_SELECT_LAST) != 0;
    op->work = run_arg;
    return op->scan.dtype == DTYPE_F32 && op->scan.dim > 0 && op->scan.dim <= INT32_MAX;
}

/* --- running sums --- */

#define CUMSUM(name, type, wide)                                                                   \
    static void name(const struct native_op *op, const struct columns *c)                          \
    {                                                                                              \
        const struct native_scan *s = &op->scan;                                                   \
        int64_t base = c->outer * s->dim * s->inner + c->first;                                    \
        const type *x = (const type *)op->inputs[0] + base;                                        \
        type *y = (type *)op->output + base;                                                       \
        wide sums[COLS] = {0};                                                                     \
        for (int64_t k = 0; k < s->dim; k++) {                                                     \
            int64_t at = (s->reverse ? s->dim - 1 - k : k) * s->inner;                             \
            for (int64_t i = 0; i < c->n; i++) {                                                   \
                wide before = sums[i];                                                             \
                sums[i] += (wide)x[at + i];                                                        \
                y[at + i] = (type)(s->exclusive ? before : sums[i]);                               \
            }                                                                                      \
        }                                                                                          \
    }

CUMSUM(cumsum_f32, float, double)
CUMSUM(cumsum_32, uint32_t, uint32_t)
CUMSUM(cumsum_64, uint64_t, uint64_t)

static void (*const cumsums[DTYPE_COUNT_])(const struct native_op *op, const struct columns *c) = {
    [DTYPE_F32] = cumsum_f32, [DTYPE_I32] = cumsum_32, [DTYPE_U32] = cumsum_32,
    [DTYPE_I64] = cumsum_64,  [DTYPE_U64] = cumsum_64,
};

static void run_cumsum(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    for (int64_t unit = first; unit < end; unit++) {
        struct columns c = columns_of(op, unit);
        cumsums[op->scan.dtype](op, &c);
    }
}

bool native_cumsum_make(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node)
{
    set_scan(op, graph, node, COLS);
    op->scan.exclusive = ir_attr_int(node, IR_ATTR_EXCLUSIVE) != 0;
    op->scan.reverse = ir_attr_int(node, IR_ATTR_REVERSE) != 0;
    op->work = run_cumsum;
    return op->scan.dtype < DTYPE_COUNT_ && cumsums[op->scan.dtype];
}

/* --- the k largest --- */

/* An element as one number, so that the larger number comes first in the answer: its order in the
 * high half (NaN is the largest, -0 is 0), in the low half the earlier place. */
static uint64_t key_of(float value, int64_t at, bool smallest)
{
    uint32_t bits, sign = UINT32_C(1) << 31;
    value += 0.0F; /* -0 becomes 0 */
    memcpy(&bits, &value, sizeof(bits));
    bits = value != value ? UINT32_MAX : bits & sign ? ~bits : bits | sign;
    return (uint64_t)(smallest ? ~bits : bits) << 32 | (uint32_t) ~(uint32_t)at;
}

static int64_t place_of(uint64_t key)
{
    return (int64_t)(uint32_t) ~(uint32_t)key;
}

/* Puts a key in place of the smallest one, which stands on top of the heap. */
static void replace_top(uint64_t *heap, int64_t n, uint64_t key)
{
    int64_t at = 0;
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (key <= heap[child])
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = key;
}

/* Leaves the k largest keys of a column in `heap`, the largest first. */
static void select_keys(const struct native_op *op, const float *x, uint64_t *heap)
{
    const struct native_scan *s = &op->scan;
    memset(heap, 0, (size_t)s->k * sizeof(*heap)); /* no key is 0 */
    for (int64_t d = 0; d < s->dim; d++) {
        uint64_t key = key_of(x[d * s->inner], d, s->smallest);
        if (key > heap[0])
            replace_top(heap, s->k, key);
    }
    for (int64_t n = s->k; n-- > 1;) {
        uint64_t least = heap[0], moved = heap[n];
        replace_top(heap, n, moved);
        heap[n] = least;
    }
}

static void run_topk(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    const struct native_scan *s = &op->scan;
    float *values = op->outputs[0];
    int64_t *places = op->outputs[1];
    for (int64_t unit = first; unit < end; unit++) {
        int64_t outer = unit / s->inner, i = unit % s->inner;
        const float *x = (const float *)op->inputs[0] + outer * s->dim * s->inner + i;
        uint64_t *heap = (uint64_t *)op->workspace + unit * s->k;
        select_keys(op, x, heap);
        for (int64_t k = 0; k < s->k; k++) {
            int64_t to = (outer * s->k + k) * s->inner + i;
            places[to] = place_of(heap[k]);
            values[to] = x[places[to] * s->inner];
        }
    }
}

bool native_topk_make(struct native_op *op, const struct ir_graph *graph,
                      const struct ir_node *node)
{
    set_scan(op, graph, node, 1);
    op->scan.k = ir_attr_int(node, IR_ATTR_K);
    op->scan.smallest = !ir_attr_int(node, IR_ATTR_LARGEST);
    op->work = run_topk;
    op->workspace_bytes = (uint64_t)(op->units * op->scan.k) * sizeof(uint64_t);
    return op->scan.dtype == DTYPE_F32 && op->scan.k > 0 && op->scan.k <= op->scan.dim &&
           op->scan.dim <= INT32_MAX && node->n_outputs == 2;
}
