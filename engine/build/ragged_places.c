/* SPDX-License-Identifier: Apache-2.0 */
/* Constants that have a row for each place of a sequence: a ragged graph reads such rows from the
 * table of the longest sequences, by the position of each token. */
#include <string.h>

#include "engine/build/ragged_internal.h"

/* A name for people of who reads the tensor. */
static const char *reader_of(const struct ir_graph *graph, uint32_t tensor)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        for (uint32_t k = 0; k < ir_node(graph, i)->n_inputs; k++)
            if (ir_node(graph, i)->inputs[k] == tensor)
                return ir_node(graph, i)->name;
    return ir_tensor(graph, tensor)->name;
}

/* Finds the dimension of places of a constant. Before it are ones, or it is the second one behind
 * that of sequences, which are all the same. False: it is neither. */
static bool find_places(const struct ragged_forms *f, uint32_t tensor, uint32_t *axis)
{
    const struct shape *a = &ir_tensor(f->graph, tensor)->shape;
    const struct shape *b = &ir_tensor(f->longer, tensor)->shape;
    const struct shape *c = &ir_tensor(f->more, tensor)->shape;
    bool repeats = a->rank > 1 && a->dim[0] == f->n && c->dim[0] == f->n + 1 && b->dim[0] == f->n;
    uint32_t d = repeats;
    while (!repeats && d < a->rank && a->dim[d] == b->dim[d] && a->dim[d] == 1)
        d++;
    if (a->rank != b->rank || d == a->rank || a->dim[d] != f->s || b->dim[d] != f->other)
        return false;
    for (uint32_t i = 0; i < a->rank; i++)
        if ((i != d && a->dim[i] != b->dim[i]) || (i != 0 && a->dim[i] != c->dim[i]))
            return false;
    *axis = d;
    return repeats || a->dim[0] == c->dim[0];
}

/* Whether the constant is the same for all sequences, of which it has `n`. */
static bool repeats_itself(const struct ir_tensor *t, int64_t n)
{
    size_t one = t->bytes / (size_t)n;
    for (int64_t i = 1; i < n; i++)
        if (memcmp(t->data, (const char *)t->data + (size_t)i * one, one) != 0)
            return false;
    return true;
}

/* A table, as a constant of the graph, and the positions by which it is read. */
struct places {
    uint32_t table, by;
};

static enum status add_places(struct ir_graph *graph, int64_t n, int64_t s, uint32_t axis,
                              const struct ir_tensor *table, struct places *out, struct error *err)
{
    const struct shape positions = {.rank = 2, .dim = {n, s}};
    struct shape flat = {.rank = table->shape.rank - axis};
    size_t bytes = table->bytes / (size_t)(axis == 1 ? table->shape.dim[0] : 1);
    memcpy(flat.dim, table->shape.dim + axis, flat.rank * sizeof(flat.dim[0]));
    void *data = arena_array(graph->arena, bytes + 1, 1);
    out->by = ragged_input_of(graph, RAGGED_POSITIONS, &positions);
    if (!data || out->by == IR_NONE)
        return ragged_no_memory(err);
    memcpy(data, table->data, bytes);
    out->table = ir_constant_add(graph, table->name, table->dtype, &flat, data);
    return out->table == IR_NONE ? ragged_no_memory(err) : STATUS_OK;
}

/* Lets sums of rows that read the constant `id` as it is read the table by positions. */
static enum status embed_places(struct ir_graph *graph, uint32_t id, const struct places *places,
                                struct error *err)
{
    const struct shape *table = &ir_tensor(graph, places->table)->shape,
                       *by = &ir_tensor(graph, places->by)->shape;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        for (uint32_t k = 1; k < IR_EMBED_TABLES; k++) {
            struct ir_node *node = ir_node(graph, i);
            if (node->op != IR_OP_EMBED || ir_embed_table(node, k) != id ||
                ir_embed_ids(node, k) != IR_NONE || table->rank != 2 ||
                !shape_equal(&ir_tensor(graph, node->inputs[1])->shape, by))
                continue;
            node->inputs[2 * k] = places->table;
            if (2 * k + 1 < node->n_inputs)
                node->inputs[2 * k + 1] = places->by;
            else if (ir_node_input_add(graph, i, places->by) == IR_NONE)
                return ragged_no_memory(err);
        }
    return STATUS_OK;
}

/* Gathers the table by positions: [n,s,..], with ones between if the constant had them. */
static uint32_t gather_table(struct ir_graph *graph, int64_t n, int64_t s, uint32_t axis,
                             const struct places *places, struct error *err)
{
    const struct shape flat = ir_tensor(graph, places->table)->shape;
    struct shape wide = {.rank = 0};
    wide.dim[wide.rank++] = n;
    for (uint32_t d = 1; d < axis; d++)
        wide.dim[wide.rank++] = 1;
    wide.dim[wide.rank++] = s;
    for (uint32_t d = 1; d < flat.rank && wide.rank < SHAPE_MAX_RANK; d++)
        wide.dim[wide.rank++] = flat.dim[d];
    uint32_t made = ragged_add_gather(graph, "ragged: by position", places->table, places->by, err);
    if (made == IR_NONE || axis < 2)
        return made;
    return ragged_add_reshape(graph, "ragged: by position", made, &wide, err);
}

/* Puts the table in place of the constant `id`. */
static enum status read_by_places(struct ir_graph *graph, int64_t n, int64_t s, uint32_t id,
                                  uint32_t axis, const struct ir_tensor *table, struct error *err)
{
    struct places places;
    TRY(add_places(graph, n, s, axis, table, &places, err));
    TRY(embed_places(graph, id, &places, err));
    if (!ir_tensor_uses(graph, id))
        return STATUS_OK;
    uint32_t made = gather_table(graph, n, s, axis, &places, err);
    if (made == IR_NONE)
        return err->status;
    ir_replace_uses(graph, id, made);
    return STATUS_OK;
}

/* The constant in the form of the longest sequences: what the same node reads there. Its number may
 * be another one, since smaller constants are made sooner. */
static const struct ir_tensor *longest_of(const struct ragged_forms *f, uint32_t id)
{
    for (uint32_t i = 0; f->most && i < f->graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(f->graph, i), *there = ir_node(f->most, i);
        for (uint32_t k = 0; k < node->n_inputs; k++)
            if (node->inputs[k] == id && there->op == node->op && k < there->n_inputs &&
                there->inputs[k] != IR_NONE)
                return ir_tensor(f->most, there->inputs[k]);
    }
    return ir_tensor(f->graph, id);
}

/* Whether the table of a constant, of which it has a copy for each sequence or only one, begins
 * with another one. */
static bool begins_with(const struct ir_tensor *table, const struct ir_tensor *t, uint32_t axis)
{
    size_t all = table->bytes / (size_t)(axis == 1 ? table->shape.dim[0] : 1);
    size_t own = t->bytes / (size_t)(axis == 1 ? t->shape.dim[0] : 1);
    return !memcmp(table->data, t->data, MIN(all, own));
}

/* Whether the constant has a row for each place that there may be, and else the form of `t`. */
static bool is_table(const struct ragged_forms *f, const struct ir_tensor *table,
                     const struct ir_tensor *t, uint32_t axis)
{
    bool same = ir_tensor_is_constant(table) && table->dtype == t->dtype &&
                table->shape.rank == t->shape.rank && table->shape.dim[axis] == f->length;
    for (uint32_t d = axis + 1; same && d < t->shape.rank; d++)
        same = table->shape.dim[d] == t->shape.dim[d];
    return same;
}

static enum status gather_constant(struct ragged_forms *f, uint32_t id, struct error *err)
{
    const struct ir_tensor *a = ir_tensor(f->graph, id), *b = ir_tensor(f->longer, id);
    uint32_t axis;
    if (!find_places(f, id, &axis))
        return ragged_refuse(
            err, reader_of(f->graph, id),
            "reads a constant that depends on the number of tokens in more than one way");
    const struct ir_tensor table = *longest_of(f, id);
    if (!is_table(f, &table, a, axis) || !begins_with(&table, a, axis) ||
        !begins_with(&table, b, axis))
        return ragged_refuse(err, reader_of(f->graph, id),
                             "reads a constant that is another one for another number of tokens");
    const struct ir_tensor *const all[] = {a, b, &table};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (!repeats_itself(all[i], axis == 1 ? all[i]->shape.dim[0] : 1))
            return ragged_refuse(err, reader_of(f->graph, id),
                                 "reads a constant that tells sequences apart");
    TRY(read_by_places(f->graph, f->n, f->s, id, axis, &table, err));
    return read_by_places(f->longer, f->n, f->other, id, axis, &table, err);
}

enum status ragged_gather_constants(struct ragged_forms *f, struct error *err)
{
    uint32_t n = f->graph->n_tensors; /* of the model */
    for (uint32_t id = 0; id < n; id++)
        if (ir_tensor_is_constant(ir_tensor(f->graph, id)) &&
            ragged_differs(f->graph, f->longer, id) && ir_tensor_uses(f->graph, id))
            TRY(gather_constant(f, id, err));
    return STATUS_OK;
}
