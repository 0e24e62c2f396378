/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that is added to the scores or hides them becomes the causal flag and one mask: BOOL if keys
 * are only hidden, floats otherwise.
 *
 * A hidden score is -inf in the attention. Exporters write other low numbers too, which differs
 * where a query sees no key at all: its probabilities are then the same for all keys, not zero. So
 * a low number becomes -inf only if every query is known to see a key. Otherwise the lowest number
 * of the type is added, beside which no score counts, and such a query gets what it got.
 */
#include "engine/passes/attention.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/passes/constant.h"

/* Constants with more elements are not looked at, and are floats to add. */
enum { LOOK_MAX = 1 << 26 };

/* How many times the queries' elements a mask may have that must be expanded. */
enum { EXPAND_MAX = 4 };

/* What a constant hides. */
struct sight {
    bool all;      /* nothing */
    bool causal;   /* what the causal flag hides, and nothing else */
    bool each_row; /* no row as a whole */
};

/* --- shapes --- */

/* A term's shape as [N,H,Sq,Sk], and what has to be done for that. */
struct heads_shape {
    uint32_t rank;                  /* of the scores */
    int64_t expand[SHAPE_MAX_RANK]; /* the shape in which its batches and heads are whole or 1 */
    bool expands;                   /* the term does not have this shape yet */
    int64_t dim[4];
};

/* Joins dimensions first..end-1 of the scores. They repeat the term as a whole or not at all;
 * otherwise the term is expanded. */
static int64_t join(struct heads_shape *to, const int64_t *term, const struct shape *scores,
                    uint32_t first, uint32_t end)
{
    bool whole = true, one = true;
    int64_t n = 1;
    for (uint32_t i = first; i < end; i++) {
        whole = whole && term[i] == scores->dim[i];
        one = one && term[i] == 1;
        n *= scores->dim[i];
    }
    for (uint32_t i = first; i < end && !one; i++)
        to->expand[i] = scores->dim[i];
    to->expands = to->expands || (!one && !whole);
    return one ? 1 : n;
}

static bool heads_shape(const struct rewrite *rw, const struct attention *a, uint32_t tensor,
                        const struct shape *scores, struct heads_shape *to)
{
    const struct shape *shape = &ir_tensor(rw->graph, tensor)->shape;
    int64_t n = 1;
    uint32_t batches = scores->rank - 2, split = 0;
    if (shape->rank > scores->rank)
        return false;
    *to = (struct heads_shape){.rank = scores->rank};
    for (uint32_t i = 0; i < scores->rank; i++) {
        uint32_t ahead = scores->rank - shape->rank;
        to->expand[i] = i < ahead ? 1 : shape->dim[i - ahead];
        if (to->expand[i] != 1 && to->expand[i] != scores->dim[i])
            return false;
    }
    int64_t term[SHAPE_MAX_RANK];
    memcpy(term, to->expand, sizeof(term));
    while (split < batches && n < a->batches)
        n *= scores->dim[split++];
    to->dim[2] = term[batches];
    to->dim[3] = term[batches + 1];
    if (n == a->batches) {
        uint32_t same = 0; /* batches of which all have the same mask */
        while (same < split && term[same] == 1)
            same++;
        to->dim[0] = join(to, term, scores, same, split);
        to->dim[1] = join(to, term, scores, split, batches);
    } else { /* batches and heads divide a dimension */
        bool one = join(to, term, scores, 0, batches) == 1;
        to->dim[0] = one ? 1 : a->batches;
        to->dim[1] = one ? 1 : a->heads;
    }
    return true;
}

bool attention_fits_heads(const struct rewrite *rw, const struct attention *a, uint32_t tensor,
                          const struct shape *scores)
{
    struct heads_shape to;
    if (!heads_shape(rw, a, tensor, scores, &to))
        return false;
    /* What is expanded is read by the attention, so it should not be much more than the queries. */
    int64_t n = to.dim[0] * to.dim[1] * to.dim[2] * to.dim[3];
    return !to.expands || n <= EXPAND_MAX * a->batches * a->heads * a->queries * a->dim;
}

uint32_t attention_to_heads(struct rewrite *rw, const struct attention *a, uint32_t tensor,
                            const struct shape *scores, const char *name)
{
    struct heads_shape to;
    if (!heads_shape(rw, a, tensor, scores, &to))
        return IR_NONE;
    if (to.expands) {
        uint32_t node = rw_add_node(rw, IR_OP_EXPAND, name, 1, &tensor);
        rw_set_ints(rw, node, IR_ATTR_SHAPE, to.rank, to.expand);
        tensor = rw_finish(rw, node);
        if (tensor == IR_NONE)
            return IR_NONE;
    }
    const struct shape *have = &ir_tensor(rw->graph, tensor)->shape;
    uint32_t skip = have->rank <= 4 ? 4 - have->rank : 0;
    bool same = have->rank <= 4 && memcmp(have->dim, to.dim + skip, have->rank * 8) == 0;
    for (uint32_t i = 0; i < skip; i++)
        same = same && to.dim[i] == 1;
    if (same)
        return tensor;
    return rw_add_reshape(rw, name, tensor, 4, to.dim);
}

/* --- constants --- */

/* Whether element i of the term's constant leaves its score as it is. False: it is neither seen nor
 * hidden. */
static bool is_seen(const struct rewrite *rw, const struct attention_term *term, size_t i,
                    bool *seen)
{
    const struct ir_tensor *t = ir_tensor(rw->graph, term->tensor);
    if (term->hides) {
        bool set = t->dtype == DTYPE_BOOL ? ((const uint8_t *)t->data)[i] != 0
                                          : constant_at(rw, term->tensor, i) != 0;
        *seen = set != term->inverted;
        return true;
    }
    float value = term->scale * constant_at(rw, term->tensor, i);
    *seen = value == 0;
    return value == 0 || value <= ATTENTION_FLOOR_MAX;
}

/* Reads a constant term that hides or lets see, row by row. */
static bool look(const struct rewrite *rw, const struct attention *a,
                 const struct attention_term *term, struct sight *out)
{
    const struct ir_tensor *t = ir_tensor(rw->graph, term->tensor);
    const struct shape *shape = &t->shape;
    bool readable = (t->data && t->dtype == DTYPE_BOOL && t->layout == IR_LAYOUT_PLAIN) ||
                    constant_is_float(rw, term->tensor);
    int64_t rows = shape->rank > 1 ? shape->dim[shape->rank - 2] : 1;
    int64_t columns = shape->rank ? shape->dim[shape->rank - 1] : 1;
    size_t n, i = 0;
    if (!readable || !shape_elements(shape, &n) || n == 0 || n > LOOK_MAX)
        return false;
    *out = (struct sight){true, a->keys >= a->queries, true};
    if (rows != a->queries || columns != a->keys)
        out->causal = false;
    for (; i < n; i += (size_t)columns) {
        int64_t row = (int64_t)i / columns % rows, last = row + a->keys - a->queries;
        bool any = false, seen;
        for (int64_t j = 0; j < columns; j++) {
            if (!is_seen(rw, term, i + (size_t)j, &seen))
                return false;
            any = any || seen;
            out->all = out->all && seen;
            out->causal = out->causal && seen == (j <= last);
        }
        out->each_row = out->each_row && any;
    }
    return true;
}

/* Says whether a term that is added may hide scores: any may, but for a constant without low
 * numbers. */
static bool may_hide(const struct rewrite *rw, const struct attention_term *term)
{
    size_t n;
    if (term->hides || !constant_is_float(rw, term->tensor) ||
        !shape_elements(&ir_tensor(rw->graph, term->tensor)->shape, &n) || n > LOOK_MAX)
        return true;
    for (size_t i = 0; i < n; i++)
        if (!(term->scale * constant_at(rw, term->tensor, i) > ATTENTION_FLOOR_MAX / 10))
            return true;
    return false;
}

/* --- decisions --- */

static bool is_low(const struct rewrite *rw, const struct attention *a, float floor)
{
    uint32_t q = ir_node(rw->graph, a->scores_node)->inputs[0];
    return floor <= (ir_tensor(rw->graph, q)->dtype == DTYPE_F16 ? -6e4F : -1e30F);
}

/* A sum with Where(seen, 0, low) hides. */
static void read_sum(const struct rewrite *rw, const struct attention *a,
                     struct attention_term *term)
{
    uint32_t select = rw_made_by(rw, term->tensor, IR_OP_SELECT);
    float x, y;
    if (term->hides || select == IR_NONE || !constant_number(rw, rw_input(rw, select, 1), &x) ||
        !constant_number(rw, rw_input(rw, select, 2), &y) || (x != 0 && y != 0))
        return;
    float floor = term->scale * (x == 0 ? y : x);
    if (!is_low(rw, a, floor) || term->scale <= 0)
        return;
    term->hides = true;
    term->inverted = x != 0;
    term->floor = floor;
    term->tensor = rw_input(rw, select, 0);
}

/* Reads the condition past a negation, and divides seen = a and b (or hidden = a or b) if one of
 * them is constant. Says whether something was done. */
static bool read_condition(const struct rewrite *rw, struct attention *a, uint32_t i)
{
    struct attention_term *term = &a->terms[i];
    uint32_t not_node = rw_made_by_unary(rw, term->tensor, IR_UNARY_NOT);
    if (!term->hides)
        return false;
    if (not_node != IR_NONE) {
        term->tensor = rw_input(rw, not_node, 0);
        term->inverted = !term->inverted;
        return true;
    }
    uint32_t both =
        rw_made_by_binary(rw, term->tensor, term->inverted ? IR_BINARY_OR : IR_BINARY_AND);
    if (both == IR_NONE || a->n_terms == ATTENTION_TERMS_MAX)
        return false;
    for (uint32_t k = 0; k < 2; k++) {
        struct attention_term part = *term;
        struct sight sight;
        part.tensor = rw_input(rw, both, k);
        if (!look(rw, a, &part, &sight) || !(sight.all || (sight.causal && term->floor < -FLT_MAX)))
            continue;
        term->tensor = rw_input(rw, both, 1 - k);
        if (!sight.all)
            a->terms[a->n_terms++] = part;
        return true;
    }
    return false;
}

static void drop_term(struct attention *a, uint32_t i)
{
    a->n_terms--;
    memmove(&a->terms[i], &a->terms[i + 1], (a->n_terms - i) * sizeof(a->terms[0]));
}

/* Drops what hides nothing, and what the causal flag says. `hiding` terms may hide scores. */
static void read_constants(const struct rewrite *rw, struct attention *a, uint32_t hiding)
{
    for (uint32_t i = 0; i < a->n_terms;) {
        struct attention_term *term = &a->terms[i];
        struct sight sight;
        if (!look(rw, a, term, &sight)) {
            i++;
        } else if (sight.all) {
            drop_term(a, i);
        } else if (sight.causal && (hiding == 1 || term->floor < -FLT_MAX)) {
            a->causal = true;
            drop_term(a, i);
        } else {
            if (term->hides && sight.each_row && hiding == 1)
                term->floor = -INFINITY;
            i++;
        }
    }
}

/* A constant that is added hides as -inf does if it holds nothing but zeros and -inf. */
static void read_infinite(const struct rewrite *rw, struct attention_term *term)
{
    size_t n;
    if (term->hides || !constant_is_float(rw, term->tensor) ||
        !shape_elements(&ir_tensor(rw->graph, term->tensor)->shape, &n) || n > LOOK_MAX)
        return;
    term->floor = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        float value = term->scale * constant_at(rw, term->tensor, i);
        if (value != 0 && value >= -FLT_MAX)
            term->floor = 0;
    }
}

const char *attention_read_mask(const struct rewrite *rw, struct attention *a)
{
    uint32_t hiding = 0, zeroed = 0;
    a->causal = false;
    for (uint32_t i = 0; i < a->n_terms; i++) {
        struct attention_term *term = &a->terms[i];
        if (term->hides && a->zeroed == term->tensor && a->zeroed_inverted == term->inverted) {
            term->floor = -INFINITY;
            zeroed++;
        }
        read_sum(rw, a, term);
        read_infinite(rw, term);
    }
    if (a->zeroed != IR_NONE && !zeroed)
        return "its probabilities become zero by another condition than its scores";
    for (uint32_t i = 0; i < a->n_terms;)
        i += !read_condition(rw, a, i);
    for (uint32_t i = 0; i < a->n_terms; i++)
        hiding += may_hide(rw, &a->terms[i]);
    read_constants(rw, a, hiding);
    for (uint32_t i = 0; i < a->n_terms; i++) {
        /* The first term comes last in the graph: others are replaced with the score. */
        struct attention_term *term = &a->terms[i];
        if (term->hides && !is_low(rw, a, term->floor) && i > 0)
            return "a number that is not the lowest hides its scores beside another mask";
    }
    return NULL;
}

/* --- the mask --- */

/* A constant of one number. */
static uint32_t number(struct rewrite *rw, enum dtype dtype, float value)
{
    const struct shape shape = {.rank = 0};
    return constant_make(rw, "", dtype, &shape, &value);
}

static uint32_t binary(struct rewrite *rw, uint32_t x, uint32_t y, enum ir_binary func,
                       const char *name)
{
    const uint32_t inputs[2] = {x, y};
    if (x == IR_NONE || y == IR_NONE)
        return x == IR_NONE ? y : x;
    uint32_t node = rw_add_node(rw, IR_OP_BINARY, name, 2, inputs);
    rw_set_int(rw, node, IR_ATTR_FUNC, func);
    return rw_finish(rw, node);
}

/* Where(seen, x, low). */
static uint32_t choose(struct rewrite *rw, uint32_t seen, uint32_t x, uint32_t low,
                       const char *name)
{
    const uint32_t inputs[3] = {seen, x, low};
    if (rw->status)
        return IR_NONE;
    return rw_finish(rw, rw_add_node(rw, IR_OP_SELECT, name, 3, inputs));
}

/* The numbers of a constant as BOOL. */
static uint32_t to_bool(struct rewrite *rw, uint32_t tensor)
{
    const struct shape shape = ir_tensor(rw->graph, tensor)->shape;
    size_t n;
    void *data;
    if (ir_tensor(rw->graph, tensor)->dtype == DTYPE_BOOL)
        return tensor;
    uint32_t made = rw_add_constant(rw, "", DTYPE_BOOL, &shape, &data);
    if (made == IR_NONE || !shape_elements(&shape, &n))
        return IR_NONE;
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)data)[i] = constant_at(rw, tensor, i) != 0;
    return made;
}

/* True where a score is seen. */
static uint32_t make_seen(struct rewrite *rw, const struct attention *a,
                          const struct attention_term *term, const char *name)
{
    uint32_t seen = to_bool(rw, term->tensor);
    if (seen != IR_NONE && term->inverted) {
        uint32_t node = rw_add_node(rw, IR_OP_UNARY, name, 1, &seen);
        rw_set_int(rw, node, IR_ATTR_FUNC, IR_UNARY_NOT);
        seen = rw_finish(rw, node);
    }
    return seen == IR_NONE ? IR_NONE : attention_to_heads(rw, a, seen, &term->scores, name);
}

/* What is added, in the type of the queries. */
static uint32_t make_added(struct rewrite *rw, const struct attention *a,
                           const struct attention_term *term, enum dtype dtype, const char *name)
{
    uint32_t x = term->tensor;
    if (term->scale != 1) {
        uint32_t node = rw_add_node(rw, IR_OP_UNARY, name, 1, &x);
        rw_set_int(rw, node, IR_ATTR_FUNC, IR_UNARY_LINEAR);
        rw_set_float(rw, node, IR_ATTR_ALPHA, term->scale);
        rw_set_float(rw, node, IR_ATTR_BETA, 0);
        x = rw_finish(rw, node);
    }
    if (x != IR_NONE && ir_tensor(rw->graph, x)->dtype != dtype) {
        uint32_t node = rw_add_node(rw, IR_OP_CAST, name, 1, &x);
        rw_set_int(rw, node, IR_ATTR_TO, dtype);
        x = rw_finish(rw, node);
    }
    return x == IR_NONE ? IR_NONE : attention_to_heads(rw, a, x, &term->scores, name);
}

uint32_t attention_make_mask(struct rewrite *rw, const struct attention *a, const char *name)
{
    enum dtype dtype = ir_tensor(rw->graph, ir_node(rw->graph, a->scores_node)->inputs[0])->dtype;
    uint32_t seen = IR_NONE, sum = IR_NONE;
    for (uint32_t i = 0; i < a->n_terms && !rw->status; i++) {
        const struct attention_term *term = &a->terms[i];
        if (!term->hides) {
            sum = binary(rw, sum, make_added(rw, a, term, dtype, name), IR_BINARY_ADD, name);
            continue;
        }
        uint32_t here = make_seen(rw, a, term, name);
        if (term->floor < -FLT_MAX) {
            seen = binary(rw, seen, here, IR_BINARY_AND, name);
            continue;
        }
        uint32_t low = number(rw, dtype, dtype == DTYPE_F16 ? -65504 : -0x1.fep127F);
        here = choose(rw, here, number(rw, dtype, 0), low, name);
        sum = binary(rw, sum, here, IR_BINARY_ADD, name);
    }
    if (seen != IR_NONE && sum != IR_NONE)
        return choose(rw, seen, sum, number(rw, dtype, -INFINITY), name);
    return seen != IR_NONE ? seen : sum;
}
