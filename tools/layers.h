/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layered drawing of a directed acyclic graph (Sugiyama, Tagawa and Toda, "Methods for Visual
 * Understanding of Hierarchical System Structures", 1981): levels by longest path, long edges led
 * through each level by points of their own, order within a level by barycentres, then positions
 * that make edges straight without changing the order.
 */
#ifndef INFERD_TOOLS_LAYERS_H
#define INFERD_TOOLS_LAYERS_H

#include <stdbool.h>
#include <stdint.h>

struct layers_vertex {
    float width;    /* 0: a point of a long edge */
    float x;        /* of its middle */
    uint32_t level; /* 0 is the top */
};

struct layers_edge {
    uint32_t from, to; /* neighbouring levels after layers_arrange */
    uint32_t tag;      /* the caller's: which edge this is a part of */
};

struct layers {
    struct layers_vertex *vertices;
    struct layers_edge *edges;
    uint32_t n_vertices, n_edges, n_levels;
    uint32_t vertices_cap, edges_cap;
    float width; /* of the drawing */
};

/* False: no memory. Vertices are numbered from 0 in the order in which they are added. */
bool layers_vertex_add(struct layers *layers, float width);
/* `from` was added before `to`: that keeps the graph acyclic. */
bool layers_edge_add(struct layers *layers, uint32_t from, uint32_t to, uint32_t tag);
bool layers_arrange(struct layers *layers, float gap);
void layers_deinit(struct layers *layers);

#endif
