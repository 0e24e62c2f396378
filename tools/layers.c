/* SPDX-License-Identifier: Apache-2.0 */
/* See layers.h. */
#include "tools/layers.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

enum { SWEEPS = 8 };

static bool grow(void **array, uint32_t n, uint32_t *cap, size_t size)
{
    if (n < *cap)
        return true;
    uint32_t wanted = *cap ? 2 * *cap : 64;
    void *p = realloc(*array, wanted * size);
    if (!p)
        return false;
    *array = p;
    *cap = wanted;
    return true;
}

bool layers_vertex_add(struct layers *l, float width)
{
    void *array = l->vertices;
    if (!grow(&array, l->n_vertices, &l->vertices_cap, sizeof(*l->vertices)))
        return false;
    l->vertices = array;
    l->vertices[l->n_vertices++] = (struct layers_vertex){.width = width};
    return true;
}

bool layers_edge_add(struct layers *l, uint32_t from, uint32_t to, uint32_t tag)
{
    void *array = l->edges;
    if (!grow(&array, l->n_edges, &l->edges_cap, sizeof(*l->edges)))
        return false;
    l->edges = array;
    l->edges[l->n_edges++] = (struct layers_edge){from, to, tag};
    return true;
}

void layers_deinit(struct layers *l)
{
    free(l->vertices);
    free(l->edges);
    *l = (struct layers){0};
}

static int by_target(const void *a, const void *b)
{
    const struct layers_edge *x = a, *y = b;
    return x->to < y->to ? -1 : x->to > y->to;
}

/* Edges come sorted by target, and vertices in topological order: one pass is enough. */
static void find_levels(struct layers *l)
{
    qsort(l->edges, l->n_edges, sizeof(*l->edges), by_target);
    for (uint32_t i = 0; i < l->n_edges; i++) {
        const struct layers_edge *e = &l->edges[i];
        uint32_t level = l->vertices[e->from].level + 1;
        l->vertices[e->to].level = MAX(l->vertices[e->to].level, level);
    }
    for (uint32_t i = 0; i < l->n_vertices; i++)
        l->n_levels = MAX(l->n_levels, l->vertices[i].level + 1);
}

/* Vertices without an incoming edge move right above their first reader. */
static void lower_sources(struct layers *l)
{
    for (uint32_t i = 0; i < l->n_vertices; i++) {
        uint32_t lowest = UINT32_MAX;
        bool source = true;
        for (uint32_t k = 0; k < l->n_edges && source; k++) {
            source = l->edges[k].to != i;
            if (l->edges[k].from == i)
                lowest = MIN(lowest, l->vertices[l->edges[k].to].level);
        }
        if (source && lowest != UINT32_MAX)
            l->vertices[i].level = lowest - 1;
    }
}

static bool split_long_edges(struct layers *l)
{
    uint32_t n = l->n_edges;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t from = l->edges[i].from, to = l->edges[i].to, tag = l->edges[i].tag;
        while (l->vertices[from].level + 1 < l->vertices[to].level) {
            uint32_t point = l->n_vertices;
            if (!layers_vertex_add(l, 0) || !layers_edge_add(l, from, point, tag))
                return false;
            l->vertices[point].level = l->vertices[from].level + 1;
            from = point;
        }
        l->edges[i].from = from;
    }
    return true;
}

/* --- order and positions --- */

struct place {
    uint32_t vertex;
    float want;
};

struct work {
    struct layers *l;
    struct place *order;   /* all vertices, level by level, from left to right */
    uint32_t *first;       /* of each level; n_levels + 1 */
    float *sum, *position; /* of vertices */
    uint32_t *count;
    float gap;
};

static int by_want(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->want != y->want)
        return x->want < y->want ? -1 : 1;
    return x->vertex < y->vertex ? -1 : x->vertex > y->vertex;
}

/* The mean position of each vertex's neighbours above (down) or below. */
static void find_wants(struct work *w, bool down)
{
    memset(w->sum, 0, w->l->n_vertices * sizeof(*w->sum));
    memset(w->count, 0, w->l->n_vertices * sizeof(*w->count));
    for (uint32_t i = 0; i < w->l->n_edges; i++) {
        const struct layers_edge *e = &w->l->edges[i];
        uint32_t self = down ? e->to : e->from, other = down ? e->from : e->to;
        w->sum[self] += w->position[other];
        w->count[self]++;
    }
}

static float distance(const struct work *w, uint32_t a, uint32_t b)
{
    return (w->l->vertices[a].width + w->l->vertices[b].width) / 2 + w->gap;
}

/* Puts each vertex of a level as near to its wanted position as its left neighbours allow. Then the
 * whole level moves back by the mean distance that vertices were pushed. */
static void settle(struct work *w, uint32_t level)
{
    struct place *p = &w->order[w->first[level]];
    uint32_t n = w->first[level + 1] - w->first[level];
    float pushed = 0;
    for (uint32_t i = 0; i < n; i++) {
        float x = p[i].want;
        if (i)
            x = MAX(x, w->position[p[i - 1].vertex] + distance(w, p[i - 1].vertex, p[i].vertex));
        pushed += x - p[i].want;
        w->position[p[i].vertex] = x;
    }
    for (uint32_t i = 0; i < n; i++)
        w->position[p[i].vertex] -= pushed / (float)n;
}

static void sweep(struct work *w, bool down)
{
    for (uint32_t k = 0; k < w->l->n_levels; k++) {
        uint32_t level = down ? k : w->l->n_levels - 1 - k;
        find_wants(w, down);
        struct place *p = &w->order[w->first[level]];
        uint32_t n = w->first[level + 1] - w->first[level];
        for (uint32_t i = 0; i < n; i++) {
            uint32_t v = p[i].vertex;
            p[i].want = w->count[v] ? w->sum[v] / (float)w->count[v] : w->position[v];
        }
        qsort(p, n, sizeof(*p), by_want);
        settle(w, level);
    }
}

static void fill_order(struct work *w)
{
    struct layers *l = w->l;
    for (uint32_t i = 0; i < l->n_vertices; i++)
        w->first[l->vertices[i].level + 1]++;
    for (uint32_t i = 0; i < l->n_levels; i++)
        w->first[i + 1] += w->first[i];
    for (uint32_t i = 0; i < l->n_vertices; i++) {
        uint32_t level = l->vertices[i].level, at = w->first[level] + w->count[level]++;
        w->order[at] = (struct place){i, 0};
        uint32_t left = w->order[at - (at > w->first[level])].vertex;
        w->position[i] = at > w->first[level] ? w->position[left] + distance(w, left, i) : 0;
    }
}

static void finish(struct work *w)
{
    float left = 0, right = 0;
    for (uint32_t i = 0; i < w->l->n_vertices; i++) {
        float half = w->l->vertices[i].width / 2;
        left = i ? MIN(left, w->position[i] - half) : w->position[i] - half;
        right = i ? MAX(right, w->position[i] + half) : w->position[i] + half;
    }
    for (uint32_t i = 0; i < w->l->n_vertices; i++)
        w->l->vertices[i].x = w->position[i] - left + w->gap;
    w->l->width = right - left + 2 * w->gap;
}

bool layers_arrange(struct layers *l, float gap)
{
    find_levels(l);
    lower_sources(l);
    if (!split_long_edges(l))
        return false;
    uint32_t n = MAX(l->n_vertices, l->n_levels) + 1;
    struct work w = {.l = l, .gap = gap};
    w.order = calloc(n, sizeof(*w.order));
    w.first = calloc((size_t)l->n_levels + 2, sizeof(*w.first));
    w.sum = calloc(n, sizeof(*w.sum));
    w.position = calloc(n, sizeof(*w.position));
    w.count = calloc(n, sizeof(*w.count));
    bool ok = w.order && w.first && w.sum && w.position && w.count;
    if (ok) {
        fill_order(&w);
        for (int i = 0; i < SWEEPS; i++)
            sweep(&w, i % 2 == 0);
        finish(&w);
    }
    free(w.order);
    free(w.first);
    free(w.sum);
    free(w.position);
    free(w.count);
    return ok;
}
