/* SPDX-License-Identifier: Apache-2.0 */
/* Unique, of a known operand only, because the number of results is the shape of the output. */
#include "engine/import/ops.h"

#include <math.h>
#include <string.h>

enum { UNIQUE_MAX = 1 << 22 };

/* The parts of a tensor along one axis, which are compared with each other. */
struct parts {
    struct ir_tensor tensor;
    int64_t outer, n, inner;
};

static int order_of(double a, double b)
{
    if (isnan(a) || isnan(b)) /* NaN is the largest number, and equals NaN */
        return (isnan(a) != 0) - (isnan(b) != 0);
    return (a > b) - (a < b);
}

static int compare(const struct parts *p, int64_t a, int64_t b)
{
    int order = 0;
    for (int64_t i = 0; i < p->outer * p->inner && !order; i++) {
        size_t x = (size_t)((i / p->inner * p->n + a) * p->inner + i % p->inner);
        size_t y = (size_t)((i / p->inner * p->n + b) * p->inner + i % p->inner);
        if (dtype_is_float(p->tensor.dtype)) {
            order = order_of(map_element(&p->tensor, x), map_element(&p->tensor, y));
            continue;
        }
        int64_t u = map_element_int(&p->tensor, x), v = map_element_int(&p->tensor, y);
        order = p->tensor.dtype == DTYPE_U64
                    ? ((uint64_t)u > (uint64_t)v) - ((uint64_t)u < (uint64_t)v)
                    : (u > v) - (u < v);
    }
    return order;
}

/* Sorts by merging ever longer runs; equal parts stay in order. `order` is 0, 1, .. at first. */
static void sort(const struct parts *p, int64_t *order, int64_t *room)
{
    for (int64_t run = 1; run < p->n; run *= 2) {
        for (int64_t first = 0; first < p->n; first += 2 * run) {
            int64_t a = first, b = MIN(first + run, p->n), a_end = b, end = MIN(b + run, p->n);
            for (int64_t to = first; to < end; to++) {
                bool left = a < a_end && (b == end || compare(p, order[a], order[b]) <= 0);
                room[to] = left ? order[a++] : order[b++];
            }
        }
        memcpy(order, room, (size_t)p->n * sizeof(*order));
    }
}

static int64_t *numbers(struct mapper *m, int64_t n)
{
    int64_t *room = emit_room(m, &(struct shape){.rank = 1, .dim = {n}}, DTYPE_I64);
    for (int64_t i = 0; room && i < n; i++)
        room[i] = i;
    return room;
}

/* Puts equal parts into one group: group[i] is the group of part i. Groups have numbers in the
 * order of the output. Returns how many there are. */
static int64_t group_parts(struct mapper *m, const struct parts *p, bool sorted, int64_t *group)
{
    int64_t *order = numbers(m, p->n), *name = numbers(m, p->n), n = 0, next = 0;
    int64_t *room = numbers(m, p->n);
    if (map_failed(m))
        return 0;
    sort(p, order, room);
    for (int64_t i = 0; i < p->n; i++) {
        n += i == 0 || compare(p, order[i - 1], order[i]) != 0;
        group[order[i]] = n - 1;
    }
    if (sorted)
        return n;
    memset(name, -1, (size_t)p->n * sizeof(*name));
    for (int64_t i = 0; i < p->n; i++) {
        if (name[group[i]] < 0)
            name[group[i]] = next++;
        group[i] = name[group[i]];
    }
    return n;
}

static uint32_t as_constant(struct mapper *m, int64_t n, const int64_t *values)
{
    return emit_constant(m, DTYPE_I64, &(struct shape){.rank = 1, .dim = {n}}, values);
}

void map_unique(struct mapper *m)
{
    uint32_t x = map_in(m, 0), axis = 0;
    bool sorted = map_attr_int(m, "sorted", 1) != 0;
    if (!map_known(m, x))
        return;
    if (map_attr(m, "axis"))
        axis = map_axis(m, map_attr_int(m, "axis", 0), map_shape(m, x)->rank);
    else
        x = emit_flat(m, x);
    const struct ir_tensor *t = map_known(m, x);
    if (!t)
        return;
    struct parts p = {.tensor = *t, .n = t->shape.dim[axis]};
    p.outer = map_product(m, &p.tensor.shape, 0, axis);
    p.inner = map_product(m, &p.tensor.shape, axis + 1, p.tensor.shape.rank);
    if (!map_failed(m) && p.n > UNIQUE_MAX)
        map_refuse(m, "of more than %d values", UNIQUE_MAX);
    int64_t *group = numbers(m, p.n), n = group_parts(m, &p, sorted, group);
    int64_t *first = numbers(m, n), *counts = numbers(m, n);
    if (map_failed(m))
        return;
    memset(counts, 0, (size_t)n * sizeof(*counts));
    for (int64_t i = p.n; i-- > 0;) {
        first[group[i]] = i;
        counts[group[i]]++;
    }
    uint32_t indices = as_constant(m, n, first);
    map_out(m, 0, emit_gather(m, x, indices, axis));
    if (map_out_used(m, 1))
        map_out(m, 1, indices);
    if (map_out_used(m, 2))
        map_out(m, 2, as_constant(m, p.n, group));
    if (map_out_used(m, 3))
        map_out(m, 3, as_constant(m, n, counts));
}
