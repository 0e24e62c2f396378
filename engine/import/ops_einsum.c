/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Einsum as sums, transposes and matrix products.
 *
 * Operands are taken from the left, two at a time. An index that only one of the two has is summed
 * away if nothing needs it any more, and otherwise becomes a row or a column. An index that both
 * have becomes part of the batch if something still needs it, and otherwise of the inner dimension.
 * Before that, an index that one operand has twice becomes the diagonal of the two dimensions, and
 * a dimension of 1 is dropped if the other operand's is larger.
 */
#include "engine/import/ops.h"

#include <string.h>

enum { TERM_MAX = SHAPE_MAX_RANK, MAX_TERMS = 16 };

/* The labels of an operand's dimensions: 'a'..'z' and 'A'..'Z' stand for themselves, dimensions
 * under an ellipsis are 1, 2, .. from the right. */
struct term {
    uint32_t n;
    char labels[TERM_MAX];
};

struct equation {
    uint32_t n;
    struct term terms[MAX_TERMS], out;
    uint32_t dots; /* the most dimensions that an ellipsis stands for */
    bool has_out;
};

static bool has(const struct term *term, char label)
{
    return memchr(term->labels, label, term->n) != NULL;
}

static void term_add(struct mapper *m, struct term *term, char label)
{
    if (term->n == TERM_MAX)
        map_refuse(m, "a term of more than %d indices", TERM_MAX);
    else
        term->labels[term->n++] = label;
}

/* Reads a term up to ',', '-' or the end; its ellipsis stands for `dots` dimensions. Returns where
 * the text goes on. */
static size_t read_term(struct mapper *m, struct span text, size_t at, uint32_t dots,
                        struct term *term)
{
    *term = (struct term){.n = 0};
    for (; at < text.size && text.data[at] != ',' && text.data[at] != '-' && !map_failed(m); at++) {
        char c = (char)text.data[at];
        if (c == ' ')
            continue;
        if (c == '.' && text.size - at >= 3 && !memcmp(text.data + at, "...", 3)) {
            for (uint32_t i = dots; i > 0; i--)
                term_add(m, term, (char)i);
            at += 2;
        } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
            term_add(m, term, c);
        } else {
            map_invalid(m, "attribute 'equation' has an unknown character");
        }
    }
    return at;
}

/* The number of dimensions that the ellipsis of an operand of this rank stands for. */
static uint32_t dots_of(struct span text, size_t at, uint32_t rank)
{
    uint32_t letters = 0, dots = 0;
    for (; at < text.size && text.data[at] != ',' && text.data[at] != '-'; at++) {
        dots += text.data[at] == '.';
        letters += text.data[at] != '.' && text.data[at] != ' ';
    }
    return dots == 3 && rank > letters ? rank - letters : 0;
}

static void read_equation(struct mapper *m, struct span text, struct equation *e)
{
    size_t at = 0;
    *e = (struct equation){.n = m->node->n_inputs};
    if (!e->n || e->n > MAX_TERMS)
        map_refuse(m, "%u operands, expected 1 to %d", e->n, MAX_TERMS);
    for (uint32_t i = 0; i < e->n && !map_failed(m); i++) {
        uint32_t rank = map_shape(m, map_in(m, i))->rank, dots = dots_of(text, at, rank);
        e->dots = MAX(e->dots, dots);
        at = read_term(m, text, at, dots, &e->terms[i]);
        if (!map_failed(m) && e->terms[i].n != rank)
            map_invalid(m, "term %u has %u indices for an operand of rank %u", i, e->terms[i].n,
                        rank);
        bool more = at < text.size && text.data[at] == ',';
        if (!map_failed(m) && more != (i + 1 < e->n))
            map_invalid(m, "%u operands do not fit attribute 'equation'", e->n);
        at += more;
    }
    e->has_out = text.size - at >= 2 && !memcmp(text.data + at, "->", 2);
    if (map_failed(m) || !e->has_out)
        return;
    if (read_term(m, text, at + 2, e->dots, &e->out) != text.size)
        map_invalid(m, "attribute 'equation' goes on behind its result");
    for (uint32_t i = 1; i < e->out.n; i++)
        if (memchr(e->out.labels, e->out.labels[i], i))
            map_invalid(m, "an index twice in the result");
}

/* Without an arrow the output is the ellipsis, then every index that occurs once, in alphabetical
 * order. */
static void implied_output(struct mapper *m, struct equation *e)
{
    for (uint32_t i = e->dots; i > 0; i--)
        term_add(m, &e->out, (char)i);
    for (int label = 'A'; label <= 'z'; label++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < e->n; i++)
            for (uint32_t k = 0; k < e->terms[i].n; k++)
                count += e->terms[i].labels[k] == label;
        if (count == 1)
            term_add(m, &e->out, (char)label);
    }
}

/* Says whether the result, or an operand from `next` on, still needs an index. */
static bool needed(const struct equation *e, uint32_t next, char label)
{
    bool found = has(&e->out, label);
    for (uint32_t i = next; i < e->n; i++)
        found |= has(&e->terms[i], label);
    return found;
}

/* Sums over the indices that are neither needed nor shared with `other` (may be NULL). */
static uint32_t sum_away(struct mapper *m, const struct equation *e, uint32_t next, uint32_t x,
                         struct term *term, const struct term *other)
{
    struct ints axes = {.n = 0};
    struct term kept = {.n = 0};
    for (uint32_t i = 0; i < term->n; i++) {
        if (needed(e, next, term->labels[i]) || (other && has(other, term->labels[i])))
            kept.labels[kept.n++] = term->labels[i];
        else
            axes.v[axes.n++] = i;
    }
    *term = kept;
    return axes.n ? emit_reduce(m, IR_REDUCE_SUM, x, &axes, false) : x;
}

/* Takes the diagonal of two dimensions; they go to the end, as one. */
static uint32_t diagonal(struct mapper *m, uint32_t x, struct term *term, uint32_t a, uint32_t b)
{
    struct shape shape = *map_shape(m, x), flat = {.rank = 0};
    struct term left = {.n = 0};
    int64_t perm[TERM_MAX], n = shape.dim[a], end;
    if (shape.dim[b] != n || n < 1 || n > INT32_MAX) {
        map_invalid(m, "an index of size %lld and %lld", (long long)n, (long long)shape.dim[b]);
        return x;
    }
    for (uint32_t i = 0; i < term->n; i++) {
        if (i == a || i == b)
            continue;
        flat.dim[left.n] = shape.dim[i];
        perm[left.n] = i;
        left.labels[left.n++] = term->labels[i];
    }
    perm[left.n] = a;
    perm[left.n + 1] = b;
    end = n * n;
    flat.dim[left.n] = end;
    flat.rank = left.n + 1;
    left.labels[left.n++] = term->labels[a];
    x = emit_reshape(m, emit_transpose(m, x, term->n, perm), &flat);
    *term = left;
    return emit_strided(m, x, flat.rank - 1, n + 1);
}

/* Operand i, in which each index occurs once. */
static uint32_t operand(struct mapper *m, struct equation *e, uint32_t i)
{
    struct term *term = &e->terms[i];
    uint32_t x = map_in(m, i);
    for (uint32_t a = 0; a < term->n && !map_failed(m); a++)
        for (uint32_t b = a + 1; b < term->n && !map_failed(m); b++)
            if (term->labels[a] == term->labels[b]) {
                x = diagonal(m, x, term, a, b);
                a = b = 0; /* search again: the dimensions have moved */
            }
    return x;
}

/* Transposes x into the order of `to`, which has the same indices. */
static uint32_t permuted(struct mapper *m, uint32_t x, const struct term *from,
                         const struct term *to)
{
    int64_t perm[TERM_MAX];
    bool same = true;
    for (uint32_t i = 0; i < to->n; i++) {
        const char *at = memchr(from->labels, to->labels[i], from->n);
        perm[i] = at ? at - from->labels : 0;
        same &= perm[i] == i;
    }
    return same ? x : emit_transpose(m, x, to->n, perm);
}

static void append(struct term *to, const struct term *from)
{
    for (uint32_t i = 0; i < from->n && to->n < TERM_MAX; i++)
        to->labels[to->n++] = from->labels[i];
}

/* The sizes of the indices of one pair of operands. */
struct sizes {
    int64_t of[128];
};

static void note_sizes(struct mapper *m, uint32_t x, const struct term *term, struct sizes *sizes)
{
    for (uint32_t i = 0; i < term->n && !map_failed(m); i++) {
        int64_t *size = &sizes->of[(unsigned char)term->labels[i]];
        int64_t dim = map_shape(m, x)->dim[i];
        if (*size >= 0 && *size != dim)
            map_invalid(m, "an index of size %lld and %lld", (long long)*size, (long long)dim);
        *size = dim;
    }
}

static int64_t product(struct mapper *m, const struct term *term, const struct sizes *sizes)
{
    struct shape shape = {.rank = term->n};
    for (uint32_t i = 0; i < term->n; i++)
        shape.dim[i] = sizes->of[(unsigned char)term->labels[i]];
    return map_product(m, &shape, 0, shape.rank);
}

/* Reshapes an operand to [batch, first, second], each a product of indices. */
static uint32_t as_matrix(struct mapper *m, uint32_t x, const struct term *term,
                          const struct term *const parts[3], const struct sizes *sizes)
{
    struct term order = {.n = 0};
    struct shape shape = {.rank = 3};
    for (uint32_t i = 0; i < 3; i++) {
        append(&order, parts[i]);
        shape.dim[i] = product(m, parts[i], sizes);
    }
    return emit_reshape(m, permuted(m, x, term, &order), &shape);
}

/* Drops dimensions of 1 from x if `other` has a larger one under the same index. */
static uint32_t without_ones(struct mapper *m, uint32_t x, struct term *term, uint32_t other,
                             const struct term *others)
{
    struct shape shape = *map_shape(m, x), kept = {.rank = 0};
    struct term left = {.n = 0};
    for (uint32_t i = 0; i < term->n && !map_failed(m); i++) {
        const char *at = memchr(others->labels, term->labels[i], others->n);
        if (at && shape.dim[i] == 1 && map_shape(m, other)->dim[at - others->labels] != 1)
            continue;
        kept.dim[kept.rank++] = shape.dim[i];
        left.labels[left.n++] = term->labels[i];
    }
    *term = left;
    return emit_reshape(m, x, &kept);
}

/* Multiplies two operands and sums over the indices that nothing needs afterwards. */
static uint32_t contract(struct mapper *m, const struct equation *e, uint32_t next, uint32_t a,
                         struct term *left, uint32_t b, struct term right)
{
    struct term batch = {.n = 0}, rows = {.n = 0}, columns = {.n = 0}, inner = {.n = 0};
    struct sizes sizes;
    struct shape shape = {.rank = 0};
    memset(&sizes, -1, sizeof(sizes));
    const struct term both = *left;
    uint32_t whole = a;
    a = without_ones(m, a, left, b, &right);
    b = without_ones(m, b, &right, whole, &both);
    a = sum_away(m, e, next, a, left, &right);
    b = sum_away(m, e, next, b, &right, left);
    note_sizes(m, a, left, &sizes);
    note_sizes(m, b, &right, &sizes);
    for (uint32_t i = 0; i < left->n; i++) {
        struct term *to = !has(&right, left->labels[i])      ? &rows
                          : needed(e, next, left->labels[i]) ? &batch
                                                             : &inner;
        to->labels[to->n++] = left->labels[i];
    }
    for (uint32_t i = 0; i < right.n; i++) {
        if (!has(left, right.labels[i]))
            columns.labels[columns.n++] = right.labels[i];
    }
    if (batch.n + rows.n + columns.n > TERM_MAX)
        map_refuse(m, "a product of more than %d indices", TERM_MAX);
    if (map_failed(m))
        return IR_NONE;
    a = as_matrix(m, a, left, (const struct term *const[]){&batch, &rows, &inner}, &sizes);
    b = as_matrix(m, b, &right, (const struct term *const[]){&batch, &inner, &columns}, &sizes);
    *left = batch;
    append(left, &rows);
    append(left, &columns);
    for (uint32_t i = 0; i < left->n; i++)
        shape.dim[shape.rank++] = sizes.of[(unsigned char)left->labels[i]];
    /* a product of bytes has INT32 sums; here the result has the operands' type */
    uint32_t y = emit_cast(m, emit_matmul(m, a, b, IR_NONE), map_dtype(m, a));
    return emit_reshape(m, y, &shape);
}

void map_einsum(struct mapper *m)
{
    struct equation e;
    const struct onnx_attr *text = map_attr(m, "equation");
    if (!text || text->type != ONNX_ATTR_STRING) {
        map_invalid(m, "attribute 'equation' is missing");
        return;
    }
    read_equation(m, text->s, &e);
    if (map_failed(m))
        return;
    if (!e.has_out)
        implied_output(m, &e);
    uint32_t operands[MAX_TERMS] = {0};
    for (uint32_t i = 0; i < e.n; i++)
        operands[i] = operand(m, &e, i);
    uint32_t y = operands[0];
    struct term term = e.terms[0];
    for (uint32_t i = 1; i < e.n && !map_failed(m); i++)
        y = contract(m, &e, i + 1, y, &term, operands[i], e.terms[i]);
    y = sum_away(m, &e, e.n, y, &term, NULL);
    if (!map_failed(m) && term.n != e.out.n)
        map_invalid(m, "its result has an index that no operand has");
    if (!map_failed(m))
        map_out(m, 0, permuted(m, y, &term, &e.out));
}
