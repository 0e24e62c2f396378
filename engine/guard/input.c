/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random inputs. Floats are normal numbers (mean 0, variance 1), which is what images and features
 * are after the usual normalisation, or fill the input's range if it has one; bytes are any bytes.
 * Images have structures that are large beside a window, and some noise: of noise alone the first
 * layers leave little, and what is behind them would see numbers far from those it was trained for.
 * An integer input that ends as an index is below the size of what is indexed: token ids are within
 * the vocabulary. Lengths are full, spans are those of sequences of some rows. All other integers,
 * truth values, and floats that are called masks are ones.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/guard/internal.h"
#include "engine/tune/spread.h"
#include "kernels/cpu/ref.h"

enum {
    HOPS_MAX = 8,     /* nodes between an input and the node that it is an index of */
    IMAGE_SIDE = 16,  /* pixels a side, at least */
    IMAGE_PARTS = 5,  /* parts a side, each of about one colour */
    NORMAL_STEPS = 2, /* of the random numbers' state, for a normal number */
};

#define NOISE 0.3                          /* of a pixel, beside its part's colour */
#define STEP  UINT64_C(0x9e3779b97f4a7c15) /* of the random numbers' state */

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += STEP; /* splitmix64 (Steele, Lea, Flood 2014) */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
    x = (x ^ x >> 27) * 0x94d049bb133111ebU;
    return x ^ x >> 31;
}

/* A sum of eight 16-bit numbers is normal enough. */
static float next_normal(uint64_t *state)
{
    double sum = 0;
    for (int i = 0; i < NORMAL_STEPS; i++)
        for (uint64_t r = next_random(state), k = 0; k < 4; k++, r >>= 16)
            sum += (double)(r & 0xffff) / 65536 - 0.5;
    return (float)(sum * 1.224744871391589); /* the root of 12 / 8 */
}

/* --- what an integer input means --- */

struct meaning {
    int64_t below; /* indices are below this; 0: it is no index */
    int64_t steps; /* lengths are this; 0: it is no length */
    bool spans;    /* they are pairs of places among the rows that they are of */
};

static int64_t least(int64_t a, int64_t b)
{
    return a == 0 || (b > 0 && b < a) ? b : a;
}

/* What an index of the node is below: the size of the axis, or the least size of any. Each of
 * EMBED's inputs of ids stands behind its table. */
static int64_t bound_of(const struct ir_graph *graph, const struct ir_node *node, uint32_t input)
{
    const struct shape *data = &ir_tensor(graph, node->inputs[0])->shape;
    int64_t bound = 0;
    if (node->op == IR_OP_EMBED)
        return ir_tensor(graph, node->inputs[input - 1])->shape.dim[0];
    if (ir_op_attr(node->op, IR_ATTR_AXIS)) {
        int64_t axis = ir_attr_int(node, IR_ATTR_AXIS);
        axis += axis < 0 ? data->rank : 0;
        return axis >= 0 && axis < data->rank ? data->dim[axis] : 0;
    }
    for (uint32_t d = 0; d < data->rank; d++)
        bound = least(bound, data->dim[d]);
    return bound;
}

static bool passes_on(const struct ir_graph *graph, const struct ir_node *node)
{
    return node->n_outputs == 1 &&
           (ir_op_has(node->op, IR_TRAIT_MOVES) || ir_op_has(node->op, IR_TRAIT_RENAMES) ||
            node->op == IR_OP_CAST) &&
           !dtype_is_float(ir_tensor_type(ir_tensor(graph, node->outputs[0])));
}

static void find_meaning(const struct ir_graph *graph, uint32_t tensor, int hops,
                         struct meaning *out)
{
    for (uint32_t i = 0; i < graph->n_nodes && hops < HOPS_MAX; i++) {
        const struct ir_node *node = ir_node(graph, i);
        for (uint32_t k = 0; node->op != IR_OP_NONE && k < node->n_inputs; k++) {
            if (node->inputs[k] != tensor)
                continue;
            const struct ir_operand *operand =
                k < IR_OPERANDS_MAX ? &ir_op_row(node->op)->operands[k] : NULL;
            if (operand && operand->name && operand->flags & IR_OPERAND_LENGTH)
                out->steps = least(out->steps, ir_tensor(graph, node->inputs[0])->shape.dim[0]);
            else if (operand && operand->name && operand->flags & IR_OPERAND_SPANS)
                out->spans = true;
            else if (operand && operand->name && operand->flags & IR_OPERAND_FAILS)
                out->below = least(out->below, bound_of(graph, node, k));
            else if (passes_on(graph, node))
                find_meaning(graph, node->outputs[0], hops + 1, out);
        }
    }
}

static bool is_mask(const char *name)
{
    return strcasestr(name, "mask") != NULL;
}

/* --- filling --- */

/* The numbers that the tensor's range holds; all, if it has none. */
struct interval {
    double least, most;
};

static struct interval interval_of(const struct ir_scale *scale)
{
    struct interval all = {-DBL_MAX, DBL_MAX};
    if (!scale || scale->n > 1)
        return all;
    bool bytes = scale->dtype ? scale->dtype == DTYPE_U8 : scale->zero_max > INT8_MAX;
    if (scale->dtype == DTYPE_F8)
        return (struct interval){-(double)(DTYPE_F8_MAX * scale->step[0]),
                                 (double)(DTYPE_F8_MAX * scale->step[0])};
    double least = (bytes ? 0 : INT8_MIN) - (double)(scale->zero ? scale->zero[0] : 0);
    return (struct interval){least * (double)scale->step[0],
                             (least + UINT8_MAX) * (double)scale->step[0]};
}

/* Normal numbers; where 8 bits hold only some, numbers that are about as normal within these. Ends
 * to both sides are rare numbers, which calibration has found among many: were ours larger than
 * what it saw, all layers behind would be cut off, each a little more than the one before. */
static float within(const struct interval *in, double v)
{
    double deviations = in->least < 0 ? 10 : 6;
    if (in->most < DBL_MAX)
        v = (in->least + in->most) / 2 + v * (in->most - in->least) / deviations;
    return (float)fmin(fmax(v, in->least), in->most);
}

/* Where the sides of an image are among the dims of [N, C, H, W] or [N, H, W, C] of few channels;
 * 0: it is none. */
static uint32_t image_height(const struct shape *s)
{
    for (uint32_t at = 2; s->rank == 4 && at > 0; at--) {
        int64_t channels = s->dim[at == 2 ? 1 : 3];
        if ((channels == 1 || channels == 3 || channels == 4) && s->dim[at] >= IMAGE_SIDE &&
            s->dim[at + 1] >= IMAGE_SIDE)
            return at;
    }
    return 0;
}

/* A normal number: that of the pixel's part of the image, with some of its own. */
static double next_pixel(const struct shape *s, uint32_t height, size_t at, uint64_t seed,
                         uint64_t *state)
{
    size_t h = (size_t)s->dim[height], w = (size_t)s->dim[height + 1];
    size_t inner = height == 1 ? (size_t)s->dim[3] : 1, pixel = at / inner;
    size_t part = pixel / w % h * IMAGE_PARTS / h * IMAGE_PARTS + pixel % w * IMAGE_PARTS / w;
    size_t plane = pixel / (h * w) * inner + at % inner;
    uint64_t of_part = seed ^ 0x9fb21c651e98df25U * (plane * IMAGE_PARTS * IMAGE_PARTS + part + 1);
    double coarse = (double)next_normal(&of_part);
    return (coarse + NOISE * (double)next_normal(state)) / sqrt(1 + NOISE * NOISE);
}

/* What all pieces of a tensor have in common. */
struct filling {
    const struct tensor_view *to; /* in fp32 */
    struct interval in;
    bool mask;
    uint32_t height;
    uint64_t seed;
};

/* Each number takes two steps of the generator, so every piece knows where it begins. */
static void fill_piece(void *user, uint32_t piece)
{
    const struct filling *f = user;
    const struct tensor_view part = value_piece(f->to, piece);
    size_t first = (size_t)piece * VALUE_PIECE;
    uint64_t state = f->seed + NORMAL_STEPS * STEP * first;
    for (int64_t i = 0; i < part.shape.dim[0]; i++) {
        double v = f->height
                       ? next_pixel(&f->to->shape, f->height, first + (size_t)i, f->seed, &state)
                       : (double)next_normal(&state);
        ((float *)part.data)[i] = f->mask ? 1.0F : within(&f->in, v);
    }
}

static bool fill_floats(const struct ir_graph *graph, const struct ir_tensor *t, size_t n,
                        uint64_t seed, void *value)
{
    float *wide = malloc((n + 1) * sizeof(*wide));
    if (!wide)
        return false;
    const struct tensor_view x = {DTYPE_F32, t->shape, wide};
    const struct tensor_view y = {ir_tensor_type(t), t->shape, value};
    struct filling f = {.to = &x,
                        .in = interval_of(ir_scale(graph, t->range)),
                        .mask = is_mask(t->name),
                        .height = image_height(&t->shape),
                        .seed = seed};
    spread(value_pieces(&x), fill_piece, &f);
    value_move(IR_LAYOUT_PLAIN, IR_LAYOUT_PLAIN, &x, &y);
    free(wide);
    return true;
}

static void fill_integers(const struct ir_tensor *t, size_t n, struct meaning meaning,
                          uint64_t seed, void *value)
{
    size_t size = dtype_size(ir_tensor_type(t));
    bool bytes = ir_tensor_type(t) == DTYPE_U8 && !meaning.below;
    for (size_t i = 0; i < n; i++) {
        uint64_t number = meaning.steps ? (uint64_t)meaning.steps : 1;
        if (meaning.below && !meaning.steps)
            number = next_random(&seed) % (uint64_t)meaning.below;
        if (meaning.spans)
            number = (uint64_t)ir_span_sample(i, n);
        if (bytes)
            number = next_random(&seed) & UINT8_MAX;
        memcpy((char *)value + i * size, &number, size); /* little-endian */
    }
}

bool input_fill(const struct ir_graph *graph, uint32_t input, uint64_t seed, void *value)
{
    const struct ir_tensor *t = ir_tensor(graph, graph->inputs[input]);
    struct meaning meaning = {0};
    size_t n = 0;
    seed += 0x632be59bd9b4e019U * (input + 1); /* no two inputs get the same numbers */
    if (!shape_elements(&t->shape, &n))
        return false;
    if (dtype_is_float(ir_tensor_type(t)))
        return fill_floats(graph, t, n, seed, value);
    find_meaning(graph, graph->inputs[input], 0, &meaning);
    fill_integers(t, n, meaning, seed, value);
    return true;
}
