/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products and convolutions of 8-bit integers.
 *
 * If the weights are known and fit INT8 once their zero point is subtracted, the node becomes one
 * with 8-bit operands and INT32 sums, for which there are fast kernels. The other operand's zero
 * point z is subtracted afterwards: sum((x - z) w) = sum(x w) - z sum(w). All of this is exact,
 * modulo 2^32 as ONNX has it. Weights that do not fit keep a rest r of their zero point:
 * sum(x (w - r)) = sum(x w) - r sum(x), and sum(x) is a product by weights of one. Anything else is
 * computed in fp64, which holds the sums exactly.
 */
#include <string.h>

#include "engine/import/ops.h"
#include "engine/import/window.h"

/* Weights less their zero point, and the sum of the weights of each output channel. */
struct byte_weights {
    uint32_t tensor, sums; /* INT8; INT32 [M], or [.., 1, N] for a product */
    uint32_t rest;         /* what is still to be subtracted from the weights: INT32, one number
                              or [M], [N]; IR_NONE: nothing */
};

/* A sum of so many products of a 9-bit and an 8-bit number stays within 31 bits. */
enum { DEPTH_MAX = 65536 };

/* So many sums of seen weights are known when the plan is built, by so many additions; more are
 * computed in each run. */
enum { SEEN_MAX = 1 << 20, SEEN_WORK = 1 << 28 };

static bool is_byte(const struct mapper *m, uint32_t tensor)
{
    return map_dtype(m, tensor) == DTYPE_I8 || map_dtype(m, tensor) == DTYPE_U8;
}

static bool is_known(const struct mapper *m, uint32_t tensor)
{
    return tensor != IR_NONE && ir_tensor_is_constant(ir_tensor(m->graph, tensor));
}

static bool is_single(const struct mapper *m, uint32_t tensor)
{
    size_t n;
    return shape_elements(map_shape(m, tensor), &n) && n == 1;
}

/* Reads a zero point that is left out (0) or is one known number; false for any other. */
static bool known_zero(const struct mapper *m, uint32_t zero, int64_t *out)
{
    *out = 0;
    if (zero == IR_NONE)
        return true;
    if (!is_known(m, zero) || !is_single(m, zero))
        return false;
    *out = map_element_int(ir_tensor(m->graph, zero), 0);
    return true;
}

/* The order of an array of weights: `outer` times `channels` sums of `depth` terms each. A
 * channel's terms lie `step` elements apart. */
struct weight_order {
    int64_t outer, channels, depth, step;
};

static int64_t weight_at(const struct weight_order *o, int64_t outer, int64_t channel, int64_t k)
{
    int64_t base = outer * o->channels * o->depth;
    return base + (o->step == 1 ? channel * o->depth + k : k * o->step + channel);
}

/* Subtracts the zero point from the weights. With `rests`, it subtracts 128 from UINT8 and nothing
 * from INT8 instead, and gives what is left of each number of the zero point. False: a weight then
 * does not fit INT8. */
static bool shift_weights(const struct mapper *m, const struct weight_order *o, uint32_t weights,
                          uint32_t zero, int32_t *rests, int8_t *to, int32_t *sums)
{
    const struct ir_tensor *w = ir_tensor(m->graph, weights);
    const struct ir_tensor *z = zero == IR_NONE ? NULL : ir_tensor(m->graph, zero);
    bool each = z && !is_single(m, zero);
    int64_t middle = map_dtype(m, weights) == DTYPE_U8 ? 128 : 0;
    for (int64_t i = 0; i < o->outer * o->channels; i++) {
        int64_t channel = i % o->channels, sum = 0;
        int64_t off = z ? map_element_int(z, each ? (size_t)channel : 0) : 0;
        if (rests) {
            rests[each ? channel : 0] = (int32_t)(off - middle);
            off = middle;
        }
        for (int64_t k = 0; k < o->depth; k++) {
            size_t at = (size_t)weight_at(o, i / o->channels, channel, k);
            int64_t value = map_element_int(w, at) - off;
            if (value < INT8_MIN || value > INT8_MAX)
                return false;
            to[at] = (int8_t)value;
            sum += value;
        }
        sums[i] = (int32_t)sum;
    }
    return true;
}

/* Reads weights as bytes. False, without failing: they are not known. */
static bool read_weights(struct mapper *m, uint32_t weights, uint32_t zero,
                         const struct weight_order *o, const struct shape *sums_shape,
                         struct byte_weights *out)
{
    const struct shape *zs = map_shape(m, zero);
    if (map_failed(m) || !is_byte(m, weights) || !is_known(m, weights) || o->depth > DEPTH_MAX ||
        (zero != IR_NONE && (!is_known(m, zero) || (!is_single(m, zero) &&
                                                    (zs->rank != 1 || zs->dim[0] != o->channels)))))
        return false;
    const struct shape shape = *map_shape(m, weights);
    int8_t *to = emit_room(m, &shape, DTYPE_I8);
    int32_t *sums = emit_room(m, sums_shape, DTYPE_I32);
    *out = (struct byte_weights){.rest = IR_NONE};
    if (!to || !sums)
        return false;
    if (!shift_weights(m, o, weights, zero, NULL, to, sums)) {
        bool single = zero == IR_NONE || is_single(m, zero);
        const struct shape each = {.rank = 1, .dim = {single ? 1 : o->channels}};
        int32_t *rests = emit_room(m, &each, DTYPE_I32);
        if (!rests || !shift_weights(m, o, weights, zero, rests, to, sums))
            return false;
        out->rest = emit_constant(m, DTYPE_I32, &each, rests);
    }
    out->tensor = emit_constant(m, DTYPE_I8, &shape, to);
    out->sums = emit_constant(m, DTYPE_I32, sums_shape, sums);
    return !map_failed(m);
}

/* Makes weights of one, with which a product sums its other operand. */
static struct byte_weights emit_ones(struct mapper *m, const struct shape *shape,
                                     const struct shape *sums_shape, int64_t depth)
{
    int8_t *to = emit_room(m, shape, DTYPE_I8);
    int32_t *sums = emit_room(m, sums_shape, DTYPE_I32);
    size_t n = 0, n_sums = 0;
    struct byte_weights ones = {IR_NONE, IR_NONE, IR_NONE};
    if (!to || !sums || !shape_elements(shape, &n) || !shape_elements(sums_shape, &n_sums))
        return ones;
    memset(to, 1, n);
    for (size_t i = 0; i < n_sums; i++)
        sums[i] = (int32_t)depth;
    ones.tensor = emit_constant(m, DTYPE_I8, shape, to);
    ones.sums = emit_constant(m, DTYPE_I32, sums_shape, sums);
    return ones;
}

/* Makes -z sums, INT32 [n]; IR_NONE if that is nothing. */
static uint32_t known_bias(struct mapper *m, int64_t z, uint32_t sums, int64_t n)
{
    const struct shape shape = {.rank = 1, .dim = {n}};
    if (!z)
        return IR_NONE;
    int32_t *to = emit_room(m, &shape, DTYPE_I32);
    for (int64_t i = 0; to && i < n; i++)
        to[i] = (int32_t)(-z * map_element_int(ir_tensor(m->graph, sums), (size_t)i));
    return to ? emit_constant(m, DTYPE_I32, &shape, to) : IR_NONE;
}

/* Makes acc - zero * sums, INT32. */
static uint32_t emit_less(struct mapper *m, uint32_t acc, uint32_t zero, uint32_t sums)
{
    uint32_t off = emit_binary(m, IR_BINARY_MUL, emit_cast(m, zero, DTYPE_I32), sums);
    return emit_binary(m, IR_BINARY_SUB, acc, off);
}

/* Makes -zero sums, INT32 [n], of a zero point of one number that is computed from an input. */
static uint32_t emit_bias(struct mapper *m, uint32_t zero, uint32_t sums, int64_t n)
{
    zero = emit_cast(m, emit_reshape(m, zero, &(struct shape){.rank = 0}), DTYPE_I32);
    return emit_binary(m, IR_BINARY_MUL, zero, known_bias(m, 1, sums, n));
}

/* --- convolution --- */

static uint32_t emit_conv_in(struct mapper *m, uint32_t x, uint32_t weights, uint32_t bias,
                             const struct window *w)
{
    const uint32_t inputs[] = {x, weights, bias};
    uint32_t node = emit_begin(m, IR_OP_CONV, bias == IR_NONE ? 2 : 3, inputs);
    window_emit(m, node, w);
    emit_int(m, node, IR_ATTR_GROUP, map_attr_int(m, "group", 1));
    return emit_end(m, node);
}

/* Pads x with its zero point, which stands for 0, and takes the pads from the window. */
static uint32_t emit_padded(struct mapper *m, uint32_t x, int64_t zero, struct window *w)
{
    int64_t pads[2 * SHAPE_MAX_RANK] = {0};
    uint32_t rank = map_shape(m, x)->rank;
    bool any = false;
    for (uint32_t i = 0; i < w->n; i++) {
        pads[2 + i] = w->pads[i];
        pads[rank + 2 + i] = w->pads[w->n + i];
        any = any || w->pads[i] || w->pads[w->n + i];
        w->pads[i] = w->pads[w->n + i] = 0;
    }
    if (!any)
        return x;
    uint32_t node = emit_begin(m, IR_OP_PAD, 1, &x);
    emit_ints(m, node, IR_ATTR_PADS, 2 * rank, pads);
    emit_int(m, node, IR_ATTR_MODE, IR_PAD_CONSTANT);
    emit_float(m, node, IR_ATTR_VALUE, (float)zero);
    return emit_end(m, node);
}

/* The sizes of a convolution's output, and how many places it has in one channel. */
struct places {
    int64_t size[WINDOW_MAX], n, taps;
};

/* False: there is none, or there are too many. */
static bool find_places(const struct shape *x, const struct window *w, struct places *p)
{
    *p = (struct places){.n = 1, .taps = 1};
    for (uint32_t i = 0; i < w->n; i++) {
        int64_t padded = x->dim[2 + i] + w->pads[i] + w->pads[w->n + i];
        p->size[i] = (padded - window_extent(w, i)) / w->strides[i] + 1;
        if (p->size[i] < 1 || p->size[i] > SEEN_MAX / p->n)
            return false;
        p->n *= p->size[i];
        p->taps *= w->kernel[i];
    }
    return true;
}

/* Whether the tap of an output's place lies inside the image. */
static bool is_inside(const struct shape *x, const struct window *w, const struct places *p,
                      int64_t place, int64_t tap)
{
    for (uint32_t i = w->n; i-- > 0;) {
        int64_t at =
            place % p->size[i] * w->strides[i] - w->pads[i] + tap % w->kernel[i] * w->dilations[i];
        if (at < 0 || at >= x->dim[2 + i])
            return false;
        place /= p->size[i];
        tap /= w->kernel[i];
    }
    return true;
}

/* Sums the weights of each channel and tap into by_tap [taps, channels]. */
static void sum_taps(const int8_t *weights, const struct shape *w, int64_t taps, int32_t *by_tap)
{
    int64_t channels = w->dim[0], depth = w->dim[1];
    memset(by_tap, 0, (size_t)(taps * channels) * sizeof(*by_tap));
    for (int64_t c = 0; c < channels; c++)
        for (int64_t k = 0; k < depth; k++)
            for (int64_t t = 0; t < taps; t++)
                by_tap[t * channels + c] += weights[(c * depth + k) * taps + t];
}

/* Computes the sums that emit_seen is to give, INT32 [1, M, ..]. IR_NONE: they would take too much
 * memory or time. */
static uint32_t known_seen(struct mapper *m, uint32_t x, const struct byte_weights *by,
                           const struct window *w)
{
    const struct shape *xs = map_shape(m, x);
    const struct ir_tensor *t = ir_tensor(m->graph, by->tensor);
    int64_t channels = t->shape.dim[0];
    struct shape shape = {.rank = xs->rank, .dim = {1, channels}};
    struct places p;
    if (channels < 1 || !find_places(xs, w, &p) || p.n > SEEN_MAX / channels ||
        p.taps > SEEN_WORK / (p.n * channels))
        return IR_NONE;
    const struct shape taps = {.rank = 2, .dim = {p.taps, channels}};
    for (uint32_t i = 0; i < w->n; i++)
        shape.dim[2 + i] = p.size[i];
    int32_t *to = emit_room(m, &shape, DTYPE_I32), *by_tap = emit_room(m, &taps, DTYPE_I32);
    if (!to || !by_tap)
        return IR_NONE;
    sum_taps(t->data, &t->shape, p.taps, by_tap);
    memset(to, 0, (size_t)(p.n * channels) * sizeof(*to));
    for (int64_t place = 0; place < p.n; place++)
        for (int64_t tap = 0; tap < p.taps; tap++)
            if (is_inside(xs, w, &p, place, tap))
                for (int64_t c = 0; c < channels; c++)
                    to[c * p.n + place] += by_tap[tap * channels + c];
    return emit_constant(m, DTYPE_I32, &shape, to);
}

/* For each output, the sum of the weights whose taps lie inside the image; without padding that is
 * the sum of all. */
static uint32_t emit_seen(struct mapper *m, uint32_t x, const struct byte_weights *by,
                          const struct window *w)
{
    struct shape shape = *map_shape(m, x);
    bool any = false;
    for (uint32_t i = 0; i < 2 * w->n; i++)
        any = any || w->pads[i];
    if (!any)
        return emit_along(m, by->sums, 1, shape.rank);
    uint32_t seen = map_failed(m) ? IR_NONE : known_seen(m, x, by, w);
    if (seen != IR_NONE)
        return seen;
    shape.dim[0] = 1;
    uint8_t *ones = emit_room(m, &shape, DTYPE_U8);
    size_t n = 0;
    if (!ones || !shape_elements(&shape, &n))
        return IR_NONE;
    memset(ones, 1, n);
    return emit_conv_in(m, emit_constant(m, DTYPE_U8, &shape, ones), by->tensor, IR_NONE, w);
}

/* Makes the INT32 sums of a convolution of x less its zero point. The weights' rest is left out. */
static uint32_t emit_conv_sums(struct mapper *m, uint32_t x, uint32_t x_zero,
                               const struct byte_weights *by, struct window w)
{
    int64_t z;
    if (known_zero(m, x_zero, &z)) {
        uint32_t bias = known_bias(m, z, by->sums, map_shape(m, by->sums)->dim[0]);
        if (z)
            x = emit_padded(m, x, z, &w);
        return emit_conv_in(m, x, by->tensor, bias, &w);
    }
    uint32_t acc = emit_conv_in(m, x, by->tensor, IR_NONE, &w);
    x_zero = emit_reshape(m, x_zero, &(struct shape){.rank = 0});
    return emit_less(m, acc, x_zero, emit_seen(m, x, by, &w));
}

/* Makes the INT32 sums of a convolution of bytes. False, without failing: the node cannot be
 * one. */
static bool emit_byte_conv(struct mapper *m, uint32_t x, uint32_t x_zero, uint32_t weights,
                           uint32_t w_zero, uint32_t *out)
{
    struct shape shape = *map_shape(m, weights);
    struct window w;
    struct byte_weights by;
    if (map_failed(m) || !is_byte(m, x) || shape.rank < 3 || map_shape(m, x)->rank < 3 ||
        (x_zero != IR_NONE && !is_single(m, x_zero)))
        return false;
    int64_t depth = map_product(m, &shape, 1, shape.rank), channels = shape.dim[0];
    const struct weight_order order = {1, channels, depth, 1};
    struct shape sums = {.rank = 1, .dim = {channels}};
    if (!read_weights(m, weights, w_zero, &order, &sums, &by))
        return false;
    window_read(m, x, weights, &w);
    window_auto_pad(m, x, &w);
    if (map_failed(m))
        return false;
    *out = emit_conv_sums(m, x, x_zero, &by, w);
    if (by.rest != IR_NONE) {
        if (map_attr_int(m, "group", 1) == 1)
            shape.dim[0] = sums.dim[0] = 1; /* all channels have the same sum */
        const struct byte_weights ones = emit_ones(m, &shape, &sums, depth);
        *out = emit_less(m, *out, emit_along(m, by.rest, 1, shape.rank),
                         emit_conv_sums(m, x, x_zero, &ones, w));
    }
    return true;
}

/* --- product --- */

/* As emit_conv_sums, of a [.., M, K] and weights [.., K, N]. */
static uint32_t emit_matmul_sums(struct mapper *m, uint32_t a, uint32_t a_zero,
                                 const struct byte_weights *by)
{
    uint32_t rank = map_shape(m, by->tensor)->rank, rank_a = map_shape(m, a)->rank;
    int64_t z, n = map_shape(m, by->tensor)->dim[rank - 1];
    if (known_zero(m, a_zero, &z) && (!z || rank == 2))
        return emit_matmul(m, a, by->tensor, known_bias(m, z, by->sums, n));
    if (is_single(m, a_zero) && rank == 2)
        return emit_matmul(m, a, by->tensor, emit_bias(m, a_zero, by->sums, n));
    a_zero = emit_along(m, a_zero, rank_a - 2, rank_a);
    return emit_less(m, emit_matmul(m, a, by->tensor, IR_NONE), a_zero, by->sums);
}

static bool emit_byte_matmul(struct mapper *m, uint32_t a, uint32_t a_zero, uint32_t b,
                             uint32_t b_zero, uint32_t *out)
{
    const struct shape *as = map_shape(m, a);
    struct shape bs = *map_shape(m, b);
    struct byte_weights by;
    if (map_failed(m) || !is_byte(m, a) || as->rank < 2 || bs.rank < 2)
        return false;
    uint32_t rank = bs.rank;
    const struct weight_order order = {map_product(m, &bs, 0, rank - 2), bs.dim[rank - 1],
                                       bs.dim[rank - 2], bs.dim[rank - 1]};
    struct shape sums = bs;
    sums.dim[rank - 2] = 1;
    if (map_failed(m) || order.step == 1 || !read_weights(m, b, b_zero, &order, &sums, &by))
        return false;
    *out = emit_matmul_sums(m, a, a_zero, &by);
    if (by.rest != IR_NONE) {
        bs.dim[rank - 1] = sums.dim[rank - 1] = 1;
        const struct byte_weights ones = emit_ones(m, &bs, &sums, order.depth);
        *out = emit_less(m, *out, by.rest, emit_matmul_sums(m, a, a_zero, &ones));
    }
    return true;
}

/* --- operators --- */

/* Checks that a zero point has its operand's type. */
static void check_zero(struct mapper *m, uint32_t operand, uint32_t zero)
{
    if (zero != IR_NONE && map_dtype(m, zero) != map_dtype(m, operand))
        map_invalid(m, "its zero point is %s, its operand %s", dtype_name(map_dtype(m, zero)),
                    dtype_name(map_dtype(m, operand)));
}

/* Makes the sums of a product: INT32, or FP64 if they are computed in it. */
static uint32_t emit_product(struct mapper *m, uint32_t a, uint32_t a_zero, uint32_t b,
                             uint32_t b_zero)
{
    uint32_t acc, rank_a = map_shape(m, a)->rank, rank_b = map_shape(m, b)->rank;
    check_zero(m, a, a_zero);
    check_zero(m, b, b_zero);
    if (emit_byte_matmul(m, a, a_zero, b, b_zero, &acc))
        return acc;
    a = emit_shifted(m, a, a_zero, rank_a >= 2 ? rank_a - 2 : 0, DTYPE_F64);
    b = emit_shifted(m, b, b_zero, rank_b ? rank_b - 1 : 0, DTYPE_F64);
    return emit_matmul_any(m, a, b);
}

/* Takes integers and gives INT32. */
void map_conv_integer(struct mapper *m)
{
    uint32_t x = map_in(m, 0), weights = map_in(m, 1), acc;
    uint32_t x_zero = map_in_opt(m, 2), w_zero = map_in_opt(m, 3);
    check_zero(m, x, x_zero);
    check_zero(m, weights, w_zero);
    if (!emit_byte_conv(m, x, x_zero, weights, w_zero, &acc)) {
        x = emit_shifted(m, x, x_zero, 1, DTYPE_F64);
        acc = emit_conv(m, x, emit_shifted(m, weights, w_zero, 0, DTYPE_F64), IR_NONE);
    }
    map_out(m, 0, emit_cast(m, acc, DTYPE_I32));
}

void map_matmul_integer(struct mapper *m)
{
    uint32_t a = map_in(m, 0), b = map_in(m, 1);
    uint32_t acc = emit_product(m, a, map_in_opt(m, 2), b, map_in_opt(m, 3));
    map_out(m, 0, emit_cast(m, acc, DTYPE_I32));
}

/* Makes acc * scale_a * scale_b + bias as real numbers. */
static uint32_t emit_real(struct mapper *m, uint32_t acc, uint32_t scale_a, uint32_t scale_b,
                          uint32_t bias)
{
    uint32_t rank = map_shape(m, acc)->rank, last = rank ? rank - 1 : 0;
    map_check_scale(m, scale_a, IR_NONE);
    map_check_scale(m, scale_b, IR_NONE);
    uint32_t scale = emit_along(m, emit_binary(m, IR_BINARY_MUL, scale_a, scale_b), last, rank);
    uint32_t y = emit_cast(m, acc, map_dtype(m, scale));
    y = emit_binary(m, IR_BINARY_MUL, y, scale);
    return bias == IR_NONE ? y : emit_binary(m, IR_BINARY_ADD, y, bias);
}

uint32_t emit_real_product(struct mapper *m, uint32_t a, const struct quantisation *by_a,
                           uint32_t b, const struct quantisation *by_b, uint32_t bias)
{
    uint32_t acc = emit_product(m, a, by_a->zero, b, by_b->zero);
    return emit_real(m, acc, by_a->scale, by_b->scale, bias);
}

void map_matmul_integer_to_float(struct mapper *m)
{
    struct quantisation a = {.scale = map_in(m, 2), .zero = map_in_opt(m, 4)};
    struct quantisation b = {.scale = map_in(m, 3), .zero = map_in_opt(m, 5)};
    map_out(m, 0, emit_real_product(m, map_in(m, 0), &a, map_in(m, 1), &b, map_in_opt(m, 6)));
}

void map_dynamic_quantize_matmul(struct mapper *m)
{
    struct quantisation by, b = {.scale = map_in(m, 2), .zero = map_in_opt(m, 3)};
    uint32_t a = emit_dynamic_quantize(m, map_in(m, 0), &by);
    map_out(m, 0, emit_real_product(m, a, &by, map_in(m, 1), &b, map_in_opt(m, 4)));
}
