/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings values into other types and layouts. All cores share the work, in pieces of some lines of
 * an image, because a layer of a large batch has a billion elements.
 *
 * Between plain layout and channels that lie side by side (all of an image's, or blocks of them) a
 * piece is turned by the CPU's fast kernels, and then cast if it has another type, or 8 bits by a
 * scale; on the way back it is cast first. They give what the reference kernels give, bit by bit.
 * What they do not do is left to those.
 */
#include "base/compiler.h"
#include "engine/guard/internal.h"
#include "engine/tune/spread.h"
#include "kernels/cpu/bytes.h"
#include "kernels/cpu/fast.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/typed.h"

enum {
    TURNED = 6000,    /* elements that are turned before they are cast */
    TURNED_LEAST = 2, /* pixels that are worth turning at once */
    TURNED_BACK = 96, /* pixels that are turned back at once: their rows in plain layout are long */
};

static size_t elements(const struct shape *shape)
{
    size_t n = 0;
    return shape_elements(shape, &n) ? n : 0;
}

const struct fast_kernels *value_kernels(void)
{
    const struct fast_kernels *list[FAST_MAX];
    fast_kernels_list(list);
    return list[0];
}

/* --- numbers of another type --- */

/* A cast, or, between floats and 8 bits by one scale, one of `widen` and `narrow`. */
struct conversion {
    typed_row row;
    void (*widen)(const void *x, float *y, size_t n, float step, float zero);
    void (*narrow)(const float *x, void *y, size_t n, float step, float zero);
    float step, zero;
};

static bool find_cast(enum dtype from, enum dtype to, struct conversion *out)
{
    const struct fast_kernels *fast = value_kernels();
    *out = (struct conversion){.row = fast->typed ? fast->typed->cast[from][to] : NULL};
    return out->row;
}

static bool find_step(const struct ir_scale *scale, enum dtype from, enum dtype to,
                      struct conversion *out)
{
    const struct byte_kernels *kernels = value_kernels()->bytes;
    bool back = to == DTYPE_F32;
    enum dtype bytes = back ? from : to, wide = back ? to : from;
    enum byte_type type = bytes == DTYPE_I8 ? BYTE_I8 : BYTE_U8;
    if (!kernels || scale->n != 1 || (bytes != DTYPE_I8 && bytes != DTYPE_U8) || wide != DTYPE_F32)
        return false;
    *out = (struct conversion){.widen = back ? kernels->widen[type] : NULL,
                               .narrow = back ? NULL : kernels->narrow[type],
                               .step = scale->step[0],
                               .zero = scale->zero ? (float)scale->zero[0] : 0};
    return true;
}

/* Finds the CPU's fast kernels; without a scale for a cast. False: only the reference does it. */
static bool find_conversion(const struct ir_scale *scale, enum dtype from, enum dtype to,
                            struct conversion *out)
{
    return scale ? find_step(scale, from, to, out) : find_cast(from, to, out);
}

/* Converts n numbers that lie side by side. */
static void convert(const struct conversion *c, const void *x, void *y, size_t n)
{
    const void *operands[TYPED_OPERANDS] = {x};
    if (c->row)
        c->row(operands, y, n);
    else if (c->widen)
        c->widen(x, y, n, c->step, c->zero);
    else
        c->narrow(x, y, n, c->step, c->zero);
}

/* --- the same layout --- */

struct casting {
    const struct tensor_view *x, *y;
    struct conversion by;
};

struct tensor_view value_piece(const struct tensor_view *t, uint32_t piece)
{
    size_t at = (size_t)piece * VALUE_PIECE, n = MIN(elements(&t->shape) - at, (size_t)VALUE_PIECE);
    struct shape shape = {.rank = 1, .dim = {(int64_t)n}};
    return (struct tensor_view){t->dtype, shape, (char *)t->data + at * dtype_size(t->dtype)};
}

uint32_t value_pieces(const struct tensor_view *t)
{
    return (uint32_t)((elements(&t->shape) + VALUE_PIECE - 1) / VALUE_PIECE);
}

static void cast_piece(void *user, uint32_t i)
{
    const struct casting *c = user;
    const struct tensor_view x = value_piece(c->x, i), y = value_piece(c->y, i);
    convert(&c->by, x.data, y.data, elements(&x.shape));
}

static void ref_cast_piece(void *user, uint32_t i)
{
    const struct casting *c = user;
    const struct tensor_view x = value_piece(c->x, i), y = value_piece(c->y, i);
    ref_cast(&x, &y);
}

/* --- channels side by side, and back --- */

struct turning {
    const struct fast_kernels *fast;
    const struct tensor_view *x, *y;
    bool back; /* into plain layout */
    bool same; /* the types are; else: */
    struct conversion by;
    int64_t block, pixels; /* channels that lie side by side; of an image */
    int64_t each, pieces;  /* pixels of a piece, pieces of a block */
};

/* The channels that lie side by side; 0: none do, or zeros lie among them. */
static int64_t block_of(enum ir_layout layout, int64_t channels)
{
    int64_t block = ir_layout_block(layout), multiple = ir_layout_multiple(layout);
    if (multiple == 0 || channels % multiple)
        return 0;
    return block ? block : channels;
}

/* to[c][r] = from[r][c] */
static void turn(const struct fast_kernels *fast, size_t size, const void *from, int64_t from_row,
                 void *to, int64_t to_row, int64_t rows, int64_t cols)
{
    if (size == 1)
        fast->bytes->turn(from, from_row, to, to_row, rows, cols);
    else
        fast->transpose_32(from, from_row, to, to_row, rows, cols);
}

/* Into plain layout, a group of channels after another, so that it has long rows there. */
static void cast_and_turn(const struct turning *t, const char *packed, char *plain, int64_t n)
{
    uint32_t turned[TURNED];
    int64_t size = (int64_t)dtype_size(t->x->dtype), most = TURNED / n;
    for (int64_t c = 0; c < t->block; c += most) {
        int64_t cols = MIN(most, t->block - c);
        for (int64_t i = 0; i < n; i++)
            convert(&t->by, packed + (i * t->block + c) * size, turned + i * cols, (size_t)cols);
        turn(t->fast, sizeof(*turned), turned, cols,
             plain + c * t->pixels * (int64_t)sizeof(*turned), t->pixels, n, cols);
    }
}

static void turn_and_cast(const struct turning *t, const char *plain, char *packed, int64_t n)
{
    uint32_t turned[TURNED];
    turn(t->fast, sizeof(*turned), plain, t->pixels, turned, t->block, t->block, n);
    convert(&t->by, turned, packed, (size_t)(n * t->block));
}

/* Some pixels of a block: `plain` is [block, pixels], `packed` [n, block]. */
static void turn_pixels(const struct turning *t, char *plain, char *packed, int64_t n)
{
    size_t size = dtype_size(t->x->dtype);
    if (!t->same && t->back)
        cast_and_turn(t, packed, plain, n);
    else if (!t->same)
        turn_and_cast(t, plain, packed, n);
    else if (t->back)
        turn(t->fast, size, packed, t->block, plain, t->pixels, n, t->block);
    else
        turn(t->fast, size, plain, t->pixels, packed, t->block, t->block, n);
}

static void turn_piece(void *user, uint32_t i)
{
    const struct turning *t = user;
    const struct tensor_view *plain = t->back ? t->y : t->x, *packed = t->back ? t->x : t->y;
    int64_t first = i / t->pieces * t->block * t->pixels; /* of the block */
    int64_t at = i % t->pieces * t->each, end = MIN(at + t->each, t->pixels);
    int64_t cast_most = t->back ? TURNED_BACK : TURNED / t->block; /* pixels */
    int64_t most = t->same ? t->each : cast_most;
    for (; at < end; at += most)
        turn_pixels(t, (char *)plain->data + (first + at) * (int64_t)dtype_size(plain->dtype),
                    (char *)packed->data +
                        (first + at * t->block) * (int64_t)dtype_size(packed->dtype),
                    MIN(most, end - at));
}

/* Whether there are kernels that turn and cast; sets which. */
static bool can_turn(struct turning *t, const struct ir_scale *scale)
{
    const struct tensor_view *plain = t->back ? t->y : t->x;
    size_t size = dtype_size(t->x->dtype);
    t->same = !scale && t->x->dtype == t->y->dtype;
    if (t->same)
        return size == sizeof(uint32_t) || (size == 1 && t->fast->bytes);
    return find_conversion(scale, t->x->dtype, t->y->dtype, &t->by) && plain->dtype == DTYPE_F32 &&
           t->block * TURNED_LEAST <= TURNED;
}

/* False: not in this way. */
static bool turn_all(enum ir_layout from, enum ir_layout to, const struct ir_scale *scale,
                     const struct tensor_view *x, const struct tensor_view *y)
{
    struct turning t = {.fast = value_kernels(), .x = x, .y = y, .back = to == IR_LAYOUT_PLAIN};
    size_t n = elements(&x->shape);
    if ((from == IR_LAYOUT_PLAIN) == t.back || x->shape.rank < 3 || n == 0)
        return false;
    int64_t images = x->shape.dim[0], channels = x->shape.dim[1];
    t.block = block_of(t.back ? from : to, channels);
    if (t.block == 0 || !can_turn(&t, scale))
        return false;
    t.pixels = (int64_t)n / images / channels;
    t.each = MAX(VALUE_PIECE / t.block, 1);
    t.pieces = (t.pixels + t.each - 1) / t.each;
    int64_t pieces = images * (channels / t.block) * t.pieces;
    if (pieces > UINT32_MAX)
        return false;
    spread((uint32_t)pieces, turn_piece, &t);
    return true;
}

/* --- what is left to the reference --- */

/* Instances of a batch, which lie one behind the other in every layout. */
struct instances {
    const struct tensor_view *x, *y;
    enum ir_layout from, to;
    uint64_t x_bytes, y_bytes; /* of one */
    uint32_t each;             /* of a piece */
};

static void reformat_piece(void *user, uint32_t i)
{
    const struct instances *s = user;
    struct tensor_view x = *s->x, y = *s->y;
    uint64_t first = (uint64_t)i * s->each;
    x.shape.dim[0] = y.shape.dim[0] = MIN(x.shape.dim[0] - (int64_t)first, (int64_t)s->each);
    x.data = (char *)x.data + first * s->x_bytes;
    y.data = (char *)y.data + first * s->y_bytes;
    ref_reformat(s->from, s->to, &x, &y);
}

static void reformat(enum ir_layout from, enum ir_layout to, const struct tensor_view *x,
                     const struct tensor_view *y)
{
    struct instances s = {.x = x, .y = y, .from = from, .to = to};
    int64_t batch = x->shape.rank ? x->shape.dim[0] : 0;
    struct shape one = x->shape;
    one.dim[0] = 1;
    if (batch < 1 || !ir_layout_bytes(&one, x->dtype, from, &s.x_bytes) ||
        !ir_layout_bytes(&one, y->dtype, to, &s.y_bytes) || s.x_bytes == 0) {
        ref_reformat(from, to, x, y);
        return;
    }
    s.each = (uint32_t)MAX(VALUE_PIECE * dtype_size(x->dtype) / s.x_bytes, 1);
    spread((uint32_t)((batch + s.each - 1) / s.each), reformat_piece, &s);
}

void value_move(enum ir_layout from, enum ir_layout to, const struct tensor_view *x,
                const struct tensor_view *y)
{
    struct casting c = {.x = x, .y = y};
    if (!ir_layouts_agree(&x->shape, from, to)) {
        if (!turn_all(from, to, NULL, x, y))
            reformat(from, to, x, y);
        return;
    }
    bool fast = find_conversion(NULL, x->dtype, y->dtype, &c.by);
    spread(value_pieces(x), fast ? cast_piece : ref_cast_piece, &c);
}

bool value_step(enum ir_layout from, enum ir_layout to, const struct ir_scale *scale,
                const struct tensor_view *x, const struct tensor_view *y)
{
    struct casting c = {.x = x, .y = y};
    if (!ir_layouts_agree(&x->shape, from, to))
        return turn_all(from, to, scale, x, y);
    if (!find_conversion(scale, x->dtype, y->dtype, &c.by))
        return false;
    spread(value_pieces(x), cast_piece, &c);
    return true;
}
