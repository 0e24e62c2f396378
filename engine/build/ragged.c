/* SPDX-License-Identifier: Apache-2.0 */
/* See ragged.h. The model is imported for three pairs of numbers: its own, for sequences of another
 * length, and for one sequence more. What differs between the first two depends on tokens, what
 * differs between the first and the last on sequences. Sequences are short ones, because masks that
 * are to vanish may be as large as scores; tables come from a fourth import. */
#include "engine/build/ragged.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "engine/build/along.h"
#include "engine/build/fuse.h"
#include "engine/build/instances.h"
#include "engine/build/ragged_internal.h"
#include "engine/build/ranged.h"

enum { NAME_ROOM = BUILD_NAME_MAX + 8, DIMS_MAX = 256, SHORT = 8 };

/* --- what the user says --- */

static bool has_mask_in(const char *name)
{
    for (; *name; name++)
        if (!strncasecmp(name, "mask", strlen("mask")))
            return true;
    return false;
}

/* The number of the input that says which tokens are there; as many as there are: none. */
static uint32_t mask_of(const struct build_ragged *ragged)
{
    uint32_t i = 0;
    while (i < ragged->n && !has_mask_in(ragged->inputs[i]))
        i++;
    return i;
}

static bool is_listed(const struct build_ragged *ragged, const char *name)
{
    for (uint32_t i = 0; i < ragged->n; i++)
        if (!strcmp(ragged->inputs[i], name))
            return true;
    return false;
}

static bool has_input(const struct onnx_model *model, const char *name)
{
    uint32_t rank;
    for (uint32_t i = 0; i < onnx_n_inputs(model); i++)
        if (!strcmp(onnx_input(model, i, &rank), name))
            return true;
    return false;
}

static enum status check_names(const struct onnx_model *model, const struct build_options *o,
                               struct error *err)
{
    const struct build_ragged *ragged = o->ragged;
    uint32_t rank, masks = 0;
    if (ragged->n > IR_MAX_IO || o->n_dims > DIMS_MAX || o->n_values > IR_MAX_IO)
        return error_set(err, STATUS_INVALID_ARGUMENT, "--ragged: too many names");
    for (uint32_t i = 0; i < ragged->n; i++) {
        masks += has_mask_in(ragged->inputs[i]);
        if (!has_input(model, ragged->inputs[i]))
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "--ragged: the model has no input '%.64s'", ragged->inputs[i]);
    }
    if (masks > 1 || masks == ragged->n)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "--ragged: %u inputs are called a mask; one may be, beside others", masks);
    for (uint32_t i = 0; i < onnx_n_inputs(model); i++) {
        const char *name = onnx_input(model, i, &rank);
        if (!is_listed(ragged, name) && !build_is_valued(o, name))
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "--ragged: the model's input '%.64s' is not among them: name it, or "
                             "give it a --value",
                             name);
        if (is_listed(ragged, name) && (rank == UINT32_MAX || rank < 2))
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "--ragged: input '%.64s' must have sequences and tokens as its first "
                             "two dimensions",
                             name);
    }
    return STATUS_OK;
}

/* Whether the range says at most how long sequences are. */
static bool range_ok(const struct build_range *r)
{
    for (uint32_t d = 2; d < r->rank; d++)
        if (r->low[d])
            return false;
    return r->rank >= 2 && (r->low[0] == 0 || r->low[0] == BUILD_INSTANCES) &&
           (r->low[1] == 0 || (r->low[1] == 1 && r->high[1] > 1 && r->high[1] <= PLAN_MAX_BATCH));
}

/* The most tokens of a sequence; 0: nothing is said. */
static int64_t said_length(const struct build_options *o)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < o->n_shapes; i++)
        most = o->shapes[i].low[1] ? o->shapes[i].high[1] : most;
    return most;
}

static enum status check_ranges(const struct build_options *o, struct error *err)
{
    int64_t most = said_length(o);
    for (uint32_t i = 0; i < o->n_shapes; i++) {
        const struct build_range *r = &o->shapes[i];
        if (!is_listed(o->ragged, r->input) || !range_ok(r))
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "--shape %.64s: with --ragged the form is INPUT=*x1..N, of an input "
                             "that is ragged; N, at most %d, is how long sequences may be",
                             r->input, PLAN_MAX_BATCH);
        if (r->low[1] && r->high[1] != most)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "--shape %.64s: sequences of up to %lld tokens, and %lld elsewhere",
                             r->input, (long long)r->high[1], (long long)most);
    }
    return STATUS_OK;
}

enum status build_ragged_check(const struct onnx_model *model, const struct build_options *o,
                               struct error *err)
{
    if (o->n_sizes || o->n_inputs || o->n_outputs || o->samples)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "--ragged goes without --profiles, --data, and types of inputs and "
                         "outputs");
    if (!o->device || !(o->device->backend->features & BACKEND_ATTENTION))
        return error_set(err, STATUS_UNIMPLEMENTED, "--ragged: the device has no attention");
    TRY(check_names(model, o, err));
    return check_ranges(o, err);
}

/* --- graphs --- */

static int64_t max_length(const struct build_options *o)
{
    int64_t said = said_length(o);
    return said ? said : RAGGED_MAX_LENGTH;
}

/* The names and numbers that bind the model's dimensions. */
struct binding {
    char names[2 * IR_MAX_IO][NAME_ROOM];
    struct onnx_dim dims[2 * IR_MAX_IO + DIMS_MAX];
    struct onnx_value values[IR_MAX_IO + 1];
};

/* The options of an import of n sequences of s tokens. `masked`: the mask is an input. */
static struct build_options bind(const struct build_options *o, struct binding *b, int64_t s,
                                 bool masked)
{
    struct build_options own = *o;
    const struct build_ragged *ragged = o->ragged;
    uint32_t mask = mask_of(ragged);
    for (uint32_t i = 0; i < ragged->n; i++) {
        snprintf(b->names[2 * i], NAME_ROOM, "%s:0", ragged->inputs[i]);
        snprintf(b->names[2 * i + 1], NAME_ROOM, "%s:1", ragged->inputs[i]);
        b->dims[2 * i] = (struct onnx_dim){b->names[2 * i], ONNX_INSTANCES};
        b->dims[2 * i + 1] = (struct onnx_dim){b->names[2 * i + 1], s};
    }
    for (uint32_t i = 0; i < o->n_values; i++)
        b->values[i] = o->values[i];
    own.n_values = o->n_values;
    if (mask < ragged->n && !masked)
        b->values[own.n_values++] = (struct onnx_value){.name = ragged->inputs[mask], .text = "1"};
    own.values = b->values;
    own.dims = b->dims;
    own.n_dims = 2 * ragged->n;
    for (uint32_t i = 0; i < o->n_dims; i++)
        b->dims[own.n_dims++] = o->dims[i];
    own.said = true;
    own.layers_apart = true; /* of a chain nothing is known to the proof */
    return own;
}

/* What is imported: `n` sequences of `s` tokens. */
struct form {
    int64_t n, s;
    bool masked;                 /* the mask is an input */
    struct build_report *report; /* of fusing it; NULL: it is not fused */
};

static enum status import_bound(struct onnx_model *model, const struct build_options *o,
                                struct binding *b, const struct form *f, struct ir_graph **out,
                                struct error *err)
{
    CLEANUP(ir_graph_cleanup) struct ir_graph *graph = NULL;
    struct build_options own = bind(o, b, f->s, f->masked);
    enum status status = build_import(model, &own, (uint32_t)f->n, NULL, NULL, &graph, err);
    if (status) {
        error_prefix(err, "--ragged: %lld sequences of %lld tokens", (long long)f->n,
                     (long long)f->s);
        return status;
    }
    if (f->report)
        TRY(build_fuse_named(graph, &own, f->report, err));
    *out = STEAL(graph);
    return STATUS_OK;
}

static enum status import(struct onnx_model *model, const struct build_options *o,
                          const struct form *f, struct ir_graph **out, struct error *err)
{
    CLEANUP(cleanup_free) struct binding *b = calloc(1, sizeof(*b));
    return b ? import_bound(model, o, b, f, out, err) : error_no_memory(err, "the builder");
}

/* As clients see the model: with its mask. */
static enum status import_padded(struct onnx_model *model, const struct build_options *o,
                                 struct ir_graph **out, struct error *err)
{
    const struct form padded = {2, max_length(o), true, NULL};
    struct build_options quiet = *o;
    quiet.log = NULL;
    return import(model, &quiet, &padded, out, err);
}

/* Which rows of the table name tensors of the model. Some are there only beside a mask. */
static enum status find_known(struct onnx_model *model, const struct build_options *o, bool **known,
                              struct error *err)
{
    CLEANUP(ir_graph_cleanup) struct ir_graph *padded = NULL;
    if (!precision_is_8bit(o->precision))
        return STATUS_OK;
    TRY(import_padded(model, o, &padded, err));
    return build_find_known(padded, o, known, err);
}

/* How many tokens a sequence has of those that the graph is made for: it makes no difference to
 * what is computed. */
static int64_t choose_length(int64_t tokens, int64_t most)
{
    int64_t s = MIN(tokens / 2, most);
    while (tokens % s)
        s--;
    return s;
}

/* The reason goes on with what the proof says. */
static enum status not_apart(const struct along_result *r, const char *what, struct error *err)
{
    if (r->no_memory)
        return error_no_memory(err, "the builder");
    return error_set(err, STATUS_UNIMPLEMENTED, "--ragged: %s are not apart: %s", what,
                     r->why[0] ? r->why : "an output may mix them");
}

static enum status prove_sequences(const struct ragged_forms *f, struct error *err)
{
    struct along_result r;
    if (!along_prove(f->graph, f->more, f->n, f->n + 1, ALONG_APART, &r))
        return not_apart(&r, "sequences", err);
    return STATUS_OK;
}

/* Whether the model's tensor is made of tokens that a layer joins. */
static bool is_cut(const struct ragged_forms *f, uint32_t tensor)
{
    for (uint32_t i = 0; i < f->n_picks; i++)
        if (f->picks[i].to == tensor)
            return true;
    return false;
}

/* A copy to prove: its nodes are in order, while the graph's keep their numbers, and what is cut
 * off comes of outputs, which the proof looks at. */
static enum status ordered(const struct ragged_forms *f, const struct ir_graph *graph,
                           struct ir_graph **out, struct error *err)
{
    CLEANUP(ir_graph_cleanup) struct ir_graph *copy = NULL;
    TRY(ir_graph_copy(graph, &copy, err));
    copy->n_outputs = 0;
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        if (!is_cut(f, graph->outputs[i]))
            copy->outputs[copy->n_outputs++] = graph->outputs[i];
    for (uint32_t i = 0; i < f->n_picks; i++) {
        uint32_t from = f->picks[i].from;
        if (ir_tensor(copy, from)->producer == IR_NONE || ir_tensor_is_output(copy, from))
            continue;
        if (copy->n_outputs == IR_MAX_IO)
            return error_set(err, STATUS_UNIMPLEMENTED, "--ragged: too many first tokens");
        copy->outputs[copy->n_outputs++] = from;
    }
    TRY(ir_graph_compact(copy, err));
    TRY(ir_verify(copy, err));
    *out = STEAL(copy);
    return STATUS_OK;
}

static enum status prove_tokens(const struct ragged_forms *f, struct error *err)
{
    CLEANUP(ir_graph_cleanup) struct ir_graph *small = NULL;
    CLEANUP(ir_graph_cleanup) struct ir_graph *large = NULL;
    struct along_result r;
    bool longer = f->other > f->s;
    TRY(ordered(f, longer ? f->graph : f->longer, &small, err));
    TRY(ordered(f, longer ? f->longer : f->graph, &large, err));
    if (!along_prove(small, large, MIN(f->s, f->other), MAX(f->s, f->other), ALONG_APART, &r))
        return not_apart(&r, "tokens", err);
    uint32_t k = 0;
    for (uint32_t i = 0; i < f->graph->n_outputs; i++)
        if (!is_cut(f, f->graph->outputs[i]) &&
            r.out[k++] != (f->tokens[f->graph->outputs[i]] ? 2 : 0))
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "--ragged: output '%.64s' does not have its tokens in the second "
                             "dimension",
                             ir_tensor(f->graph, f->graph->outputs[i])->name);
    for (; k < small->n_outputs; k++)
        if (r.out[k] != 2)
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "--ragged: tokens are joined of what does not have them in the second "
                             "dimension");
    return STATUS_OK;
}

static enum status same_layers(const struct ragged_forms *f, struct error *err)
{
    const struct ir_graph *all[] = {f->longer, f->more, f->most};
    for (size_t i = 0; i < ARRAY_LEN(all) && all[i]; i++)
        if (all[i]->n_nodes != f->graph->n_nodes || all[i]->n_tensors != f->graph->n_tensors)
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "--ragged: the model has other layers for another number of %s",
                             i == 1 ? "sequences" : "tokens");
    return STATUS_OK;
}

enum status build_ragged_graph(struct onnx_model *model, const struct build_options *o,
                               uint32_t tokens, struct build_report *report, struct ir_graph **out,
                               struct error *err)
{
    CLEANUP(ir_graph_cleanup) struct ir_graph *graph = NULL;
    CLEANUP(ir_graph_cleanup) struct ir_graph *longer = NULL;
    CLEANUP(ir_graph_cleanup) struct ir_graph *more = NULL;
    CLEANUP(ir_graph_cleanup) struct ir_graph *most = NULL;
    CLEANUP(cleanup_free) bool *known = NULL;
    struct build_report unread;
    struct build_options quiet = *o;
    quiet.log = NULL;
    if (tokens % RAGGED_TOKENS_OF)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "batch %u: with --ragged it counts tokens, by multiples of %d", tokens,
                         RAGGED_TOKENS_OF);
    struct ragged_forms f = {.length = max_length(o)};
    f.s = choose_length(tokens, MIN(f.length, (int64_t)SHORT));
    f.n = tokens / f.s;
    f.other = f.s == f.length ? f.s - 1 : f.s + 1;
    const struct form own = {f.n, f.s, false, report};
    const struct form of_longer = {f.n, f.other, false, &unread};
    const struct form of_more = {f.n + 1, f.s, false, &unread};
    const struct form of_most = {2, f.length, false, &unread};
    TRY(import(model, o, &own, &graph, err));
    TRY(import(model, &quiet, &of_longer, &longer, err));
    TRY(import(model, &quiet, &of_more, &more, err));
    if (f.s < f.length)
        TRY(import(model, &quiet, &of_most, &most, err));
    f.graph = graph;
    f.longer = longer;
    f.more = more;
    f.most = most;
    TRY(ragged_drop_masks(&f, err));
    TRY(same_layers(&f, err));
    TRY(prove_sequences(&f, err));
    TRY(ragged_rewrite(&f, err));
    TRY(prove_tokens(&f, err));
    TRY(ragged_finish(&f, err));
    TRY(find_known(model, o, &known, err));
    TRY(build_range(graph, o, known, report, err));
    *out = STEAL(graph);
    return STATUS_OK;
}

/* --- the plan --- */

static enum plan_role role_of(const char *name)
{
    return !strcmp(name, RAGGED_SPANS)       ? PLAN_ROLE_SPANS
           : !strcmp(name, RAGGED_POSITIONS) ? PLAN_ROLE_POSITIONS
           : !strcmp(name, RAGGED_STARTS)    ? PLAN_ROLE_STARTS
                                             : PLAN_ROLE_TOKENS;
}

/* Whether the output has a row for each sequence: it has as many dimensions as in the model then.
 * An output of tokens has one less, since sequences and tokens have become one dimension. */
static bool is_of_sequences(const struct ir_graph *whole, uint32_t i, const struct shape *flat)
{
    return ir_tensor(whole, whole->outputs[i])->shape.rank == flat->rank;
}

enum status build_ragged_describe(struct onnx_model *model, const struct build_options *o,
                                  struct plan *plan, struct error *err)
{
    CLEANUP(ir_graph_cleanup) struct ir_graph *whole = NULL;
    TRY(import_padded(model, o, &whole, err));
    uint32_t mask = mask_of(o->ragged);
    struct plan_ragged *ragged = &plan->ragged;
    ragged->max_length = MIN(max_length(o), (int64_t)plan->profiles[plan->n_profiles - 1].batch);
    for (uint32_t i = 0; i < whole->n_inputs && mask < o->ragged->n; i++) {
        const struct ir_tensor *t = ir_tensor(whole, whole->inputs[i]);
        if (strcmp(t->name, o->ragged->inputs[mask]) != 0)
            continue;
        if (t->shape.rank != 2)
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "--ragged: the mask '%.64s' must be of two dimensions: sequences and "
                             "tokens",
                             t->name);
        ragged->mask = arena_strndup(plan->arena, t->name, strlen(t->name));
        ragged->mask_type = t->dtype;
        ragged->mask_at = i;
        if (!ragged->mask)
            return error_no_memory(err, "the builder");
    }
    for (uint32_t i = 0; i < plan->n_inputs; i++)
        plan->input_axes[i].role = role_of(plan->inputs[i].name);
    for (uint32_t i = 0; i < plan->n_outputs; i++)
        plan->output_axes[i].role = is_of_sequences(whole, i, &plan->outputs[i].shape)
                                        ? PLAN_ROLE_SEQUENCES
                                        : PLAN_ROLE_TOKENS;
    return STATUS_OK;
}
