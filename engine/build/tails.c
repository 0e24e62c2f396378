/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/build/tails.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#define HASH_FUNCTION(key, len, hash) ((hash) = (unsigned)XXH3_64bits((key), (len)))

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "engine/build/bodies.h"
#include "engine/cpu/eval.h"

enum { TRIAL_BYTES = 1 << 28 };

_Static_assert((int)ONNX_MAX_BODIES == (int)PLAN_MAX_BODIES, "a plan has room for all");

struct piece {
    struct {
        XXH128_hash_t hash;
        uint64_t size;
    } key;
    uint64_t offset;
    UT_hash_handle hh;
};

struct build_tails {
    struct plan *plan;
    const struct build_options *options;
    uint32_t n; /* profiles seen */
    struct piece *table;
    uint8_t *data;
    size_t size, cap;
};

struct build_tails *build_tails_new(struct plan *plan, const struct build_options *options)
{
    struct build_tails *tails = calloc(1, sizeof(*tails));
    if (tails)
        *tails = (struct build_tails){.plan = plan, .options = options};
    return tails;
}

void build_tails_free(struct build_tails *tails)
{
    struct piece *p, *next;
    if (!tails)
        return;
    HASH_ITER(hh, tails->table, p, next)
    {
        HASH_DEL(tails->table, p); /* NOLINT: the analyser loses uthash's list */
        free(p);
    }
    free(tails->data);
    free(tails);
}

/* Makes room behind what there is, at a multiple of 64, with zeros between. */
static bool grow(struct build_tails *tails, size_t size)
{
    size_t begin, end;
    if (!checked_round_up(tails->size, BACKEND_ALIGN, &begin) || !checked_add(begin, size, &end) ||
        end > SIZE_MAX / 2)
        return false;
    if (end > tails->cap) {
        size_t cap = MAX(end, 2 * tails->cap);
        uint8_t *more = realloc(tails->data, cap);
        if (!more)
            return false;
        tails->data = more;
        tails->cap = cap;
    }
    if (begin > tails->size)
        memset(tails->data + tails->size, 0, begin - tails->size);
    tails->size = end;
    return true;
}

static bool append(struct build_tails *tails, const void *data, size_t size, uint64_t *offset)
{
    if (!grow(tails, size))
        return false;
    *offset = tails->size - size;
    if (size)
        memcpy(tails->data + *offset, data, size);
    return true;
}

enum status build_tails_keep(void *user, const void *data, size_t size, uint64_t *offset,
                             struct error *err)
{
    struct build_tails *tails = user;
    struct piece *p, probe = {.offset = 0};
    probe.key.hash = XXH3_128bits(data, size);
    probe.key.size = size;
    HASH_FIND(hh, tails->table, &probe.key, sizeof(probe.key), p);
    if (p && memcmp(tails->data + p->offset, data, size) == 0) {
        *offset = p->offset;
        return STATUS_OK;
    }
    CLEANUP(cleanup_free) struct piece *fresh = malloc(sizeof(*fresh));
    if (!fresh || !append(tails, data, size, &probe.offset))
        return error_no_memory(err, "the builder");
    *fresh = probe;
    HASH_ADD(hh, tails->table, key, sizeof(fresh->key), fresh);
    if (!HASH_ADDED(fresh))
        return error_no_memory(err, "the builder");
    *offset = STEAL(fresh)->offset;
    return STATUS_OK;
}

enum status build_binding_name(struct plan *plan, const struct plan_binding *earlier, uint32_t n,
                               const char *from, const struct log_sink *log, const char **out,
                               struct error *err)
{
    size_t len = strlen(from);
    char *name = arena_strndup(plan->arena, len ? from : "unnamed", len ? MIN(len, 64u) : 7);
    if (!name)
        return error_no_memory(err, "the builder");
    for (char *c = name; *c; c++) {
        const char one[2] = {*c, '\0'};
        if (!plan_name_ok(one))
            *c = '_';
    }
    if (strcmp(name, from) != 0)
        log_write(log, LOG_WARNING, "input or output '%s' is called '%s' from here on", from, name);
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(earlier[i].name, name))
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "two inputs or outputs would be called '%s'", name);
    *out = name;
    return STATUS_OK;
}

/* --- ranks that the file does not tell --- */

struct trial {
    struct onnx_model *model;
    struct ir_graph *memory;
    void *zeros;
};

static void trial_deinit(struct trial *t)
{
    if (t->model)
        onnx_close(t->model);
    ir_graph_free(t->memory);
    free(t->zeros);
}

/* Runs the tail on zeros. */
static enum status try_tail(const struct build_tails *tails, const struct onnx_tail *tail,
                            const struct ir_graph *graph, struct trial *t,
                            struct tensor_view *outputs, struct error *err)
{
    struct tensor_view inputs[IR_MAX_IO];
    uint64_t largest = 1;
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        largest = MAX(largest, ir_tensor(graph, graph->outputs[i])->bytes);
    t->zeros = calloc(1, largest);
    if (!t->zeros)
        return error_no_memory(err, "the builder");
    for (uint32_t i = 0; i < graph->n_outputs; i++) {
        const struct ir_tensor *from = ir_tensor(graph, graph->outputs[i]);
        inputs[i] = (struct tensor_view){from->dtype, from->shape, t->zeros};
    }
    const struct onnx_computing how = {
        .inputs = inputs, .evaluator = {.eval = cpu_eval_node}, .memory_max = TRIAL_BYTES};
    TRY(onnx_tail_open(tail->model, tail->size, tails->data, tails->size, &t->model, err));
    return onnx_compute(t->model, &how, outputs, &t->memory, err);
}

/* A rank that the file does not tell is that of a trial. */
static enum status find_ranks(const struct build_tails *tails, struct onnx_tail *tail,
                              const struct ir_graph *graph, struct error *err)
{
    CLEANUP(trial_deinit) struct trial t = {.model = NULL};
    struct tensor_view outputs[IR_MAX_IO] = {{.dtype = DTYPE_NONE}};
    struct error why;
    uint32_t n = 0, first = 0;
    for (uint32_t i = tail->n_outputs; i-- > 0;)
        if (tail->outputs[i].unranked) {
            first = i;
            n++;
        }
    if (!n)
        return STATUS_OK;
    if (try_tail(tails, tail, graph, &t, outputs, &why))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "the model's file does not tell the rank of output '%s', and a trial did "
                         "not either (%s): declare its shape there, with names for sizes that a "
                         "request tells",
                         tail->outputs[first].name, why.text);
    for (uint32_t i = 0; i < tail->n_outputs; i++) {
        struct onnx_tail_output *to = &tail->outputs[i];
        if (!to->unranked)
            continue;
        to->shape.rank = outputs[i].shape.rank;
        for (uint32_t d = 0; d < to->shape.rank; d++)
            to->shape.dim[d] = -1;
    }
    return STATUS_OK;
}

/* Notes what the tail makes: the same for all profiles, but for sizes. */
static enum status put_late(const struct build_tails *tails, const struct onnx_tail *tail,
                            struct error *err)
{
    struct plan *plan = tails->plan;
    bool first = !plan->n_late;
    if (!first && plan->n_late != tail->n_outputs)
        return error_set(err, STATUS_UNIMPLEMENTED, "the model has other outputs at other sizes");
    for (uint32_t i = 0; i < tail->n_outputs; i++) {
        const struct onnx_tail_output *from = &tail->outputs[i];
        struct plan_binding *to = &plan->late[i];
        if (first) {
            TRY(build_binding_name(plan, plan->late, i, from->name, tails->options->log, &to->name,
                                   err));
            to->dtype = from->dtype;
            to->shape = from->shape;
        } else if (to->dtype != from->dtype || to->shape.rank != from->shape.rank) {
            return error_set(err, STATUS_UNIMPLEMENTED, "output '%s' is another at other sizes",
                             from->name);
        }
        for (uint32_t d = 0; d < to->shape.rank; d++)
            if (to->shape.dim[d] != from->shape.dim[d])
                to->shape.dim[d] = -1;
    }
    plan->n_late = tail->n_outputs;
    return STATUS_OK;
}

/* Builds the bodies of the tail's loops, which it gives up. */
static enum status add_bodies(struct build_tails *tails, struct onnx_tail *tail,
                              struct plan_profile *profile, struct error *err)
{
    struct plan_body *list =
        arena_array(tails->plan->arena, MAX(tail->n_bodies, 1u), sizeof(*list));
    if (!list)
        return error_no_memory(err, "the builder");
    profile->bodies = list;
    for (uint32_t i = 0; i < tail->n_bodies; i++) {
        CLEANUP(plan_bytes_deinit) struct plan_bytes bytes = {.head = NULL};
        struct plan_body *to = &list[profile->n_bodies];
        if (!build_body(tails->options, STEAL(tail->bodies[i]), &bytes))
            continue;
        *to = (struct plan_body){.size = bytes.head_size, .weights_size = bytes.weights_size};
        TRY(build_tails_keep(tails, bytes.weights, bytes.weights_size, &to->weights_offset, err));
        if (!append(tails, bytes.head, bytes.head_size, &to->offset))
            return error_no_memory(err, "the builder");
        profile->n_bodies++;
    }
    return STATUS_OK;
}

enum status build_tails_add(struct build_tails *tails, struct onnx_tail *tail,
                            const struct ir_graph *graph, struct plan_profile *profile,
                            struct error *err)
{
    bool first = !tails->n++, late = tails->plan->n_late != 0;
    if (!first && (tail->n_nodes != 0) != late)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "at some of the sizes, and not at others, there are sizes that only a "
                         "request tells");
    if (!tail->n_nodes)
        return STATUS_OK;
    if (first)
        log_write(tails->options->log, LOG_INFO,
                  "%u nodes of the model run on the CPU when the others have: a request tells "
                  "their sizes",
                  tail->n_nodes);
    TRY(find_ranks(tails, tail, graph, err));
    TRY(put_late(tails, tail, err));
    if (!append(tails, tail->model, tail->size, &profile->tail_offset))
        return error_no_memory(err, "the builder");
    profile->tail_size = tail->size;
    return add_bodies(tails, tail, profile, err);
}

void build_tails_give(struct build_tails *tails)
{
    struct plan *plan = tails->plan;
    plan->tail_bytes = tails->size;
    plan->tail = plan->tail_memory = STEAL(tails->data);
}
