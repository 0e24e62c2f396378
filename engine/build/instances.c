/* SPDX-License-Identifier: Apache-2.0 */
/* See instances.h. The model is imported for one instance and for two, and the shapes compared. */
#include "engine/build/instances.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "engine/build/along.h"
#include "engine/ir/plugin_node.h"

struct finding {
    struct onnx_model *model;
    const struct build_options *options;
    struct build_instances *out;
};

void build_tail_cleanup(struct onnx_tail *tail)
{
    free(tail->model);
    for (uint32_t i = 0; i < tail->n_bodies; i++)
        ir_graph_free(tail->bodies[i]);
}

enum status build_import(struct onnx_model *model, const struct build_options *options,
                         uint32_t batch, uint64_t *steps, struct onnx_tail *tail,
                         struct ir_graph **out, struct error *err)
{
    struct onnx_options import = {
        .batch = batch,
        .dims = options->dims,
        .n_dims = options->n_dims,
        .said = options->said,
        .values = options->values,
        .n_values = options->n_values,
        .evaluator = options->evaluator,
        .log = options->log,
        .tail = tail,
        .steps = steps,
    };
    CLEANUP(ir_graph_cleanup) struct ir_graph *graph = NULL;
    TRY(onnx_import(model, &import, &graph, err));
    TRY(build_serve(graph, options->inputs, options->n_inputs, err));
    TRY(build_serve_outputs(graph, options->outputs, options->n_outputs, err));
    *out = STEAL(graph);
    return STATUS_OK;
}

/* Finds the dimension that is 1 for one instance and 2 for two. *same: there is no such dimension,
 * and none differs. False: more than one dimension differs, or one in another way. */
static bool find_axis(const struct ir_tensor *one, const struct ir_tensor *two, uint8_t *axis,
                      bool *same)
{
    uint32_t n = 0;
    if (one->shape.rank != two->shape.rank)
        return false;
    for (uint32_t d = 0; d < one->shape.rank; d++) {
        if (one->shape.dim[d] == two->shape.dim[d])
            continue;
        if (n++ || one->shape.dim[d] != 1 || two->shape.dim[d] != 2)
            return false;
        *axis = (uint8_t)d;
    }
    *same = n == 0;
    return true;
}

/* Finds which dimension of each input and output counts instances. Returns the first one that has
 * none although it should: its number, with the outputs behind the inputs. IR_NONE: all is well. An
 * input may have none: then all instances of a batch share it. */
static uint32_t find_counts(struct finding *f, const struct ir_graph *one,
                            const struct ir_graph *two)
{
    assert(one && two);
    for (uint32_t i = 0; i < one->n_inputs; i++) {
        f->out->inputs[i] = (struct plan_axes){.shared = false};
        if (!find_axis(ir_tensor(one, one->inputs[i]), ir_tensor(two, two->inputs[i]),
                       &f->out->inputs[i].batch, &f->out->inputs[i].shared))
            return i;
    }
    for (uint32_t i = 0; i < one->n_outputs; i++) {
        bool same = false;
        f->out->outputs[i] = (struct plan_axes){.shared = false};
        if (!find_axis(ir_tensor(one, one->outputs[i]), ir_tensor(two, two->outputs[i]),
                       &f->out->outputs[i].batch, &same) ||
            same)
            return one->n_inputs + i;
    }
    return IR_NONE;
}

static const struct ir_tensor *nth(const struct ir_graph *graph, uint32_t number)
{
    return ir_tensor(graph, number < graph->n_inputs ? graph->inputs[number]
                                                     : graph->outputs[number - graph->n_inputs]);
}

/* Whether an output mixes instances: NonMaxSuppression puts the boxes of all images into one list,
 * so none of its rows is an instance's own. */
static bool mixes_instances(const struct ir_graph *graph)
{
    assert(graph);
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (ir_op_has(ir_node(graph, i)->op, IR_TRAIT_MIXES) ||
            ir_plugin_mixes(graph, ir_node(graph, i)))
            return true;
    return false;
}

PRINTF(2, 3)
static enum status not_batched(struct finding *f, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(f->out->why, sizeof(f->out->why), fmt, args);
    va_end(args);
    log_write(f->options->log, LOG_WARNING, "not batched: %s", f->out->why);
    return STATUS_OK;
}

enum { HINT = 80 };

/* For people: how to say that the dimension counts instances all the same. */
static const char *hint(const struct finding *f, const struct ir_graph *graph, char out[HINT])
{
    uint32_t i = 0;
    while (i + 1 < graph->n_inputs && f->out->inputs[i].shared)
        i++;
    const struct ir_tensor *t = ir_tensor(graph, graph->inputs[i]);
    int n = snprintf(out, HINT, "--shape %.40s=", t->name);
    for (uint32_t d = 0; d < t->shape.rank && n < HINT; d++)
        n += snprintf(out + n, (size_t)(HINT - n), "%s%s", d ? "x" : "",
                      d == f->out->inputs[i].batch ? "N" : "*");
    return out;
}

/* Dimensions that are not called a batch must be shown to keep instances apart, else requests that
 * share one would see each other: rows of text attend to each other, say. `two` is the graph of two
 * instances. */
static enum status prove_apart(struct finding *f, const struct build_options *quiet,
                               const struct ir_graph *two, struct error *err)
{
    CLEANUP(ir_graph_cleanup) struct ir_graph *three = NULL;
    struct along_result r;
    struct error why;
    char text[HINT];
    enum status status = build_import(f->model, quiet, 3, NULL, NULL, &three, &why);
    if (status == STATUS_RESOURCE_EXHAUSTED)
        return error_copy(err, &why);
    f->out->batched = false;
    if (status)
        return not_batched(f, "the model cannot take three instances at once: %s", why.text);
    bool apart = along_prove(two, three, 2, 3, ALONG_APART, &r);
    if (r.no_memory)
        return error_no_memory(err, "the builder");
    for (uint32_t i = 0; i < two->n_outputs && apart; i++)
        apart = r.out[i] == 1u << f->out->outputs[i].batch;
    f->out->batched = apart;
    if (apart)
        return STATUS_OK;
    return not_batched(f, "%s; if it counts instances, say %s, and give a length a range",
                       r.why[0] ? r.why : "an output may mix what lies along it",
                       hint(f, two, text));
}

/* A name is believed, but a request whose answer depends on those beside it should surprise nobody:
 * batches are also padded with zeros up to the next size. */
static enum status warn_of_mixing(struct finding *f, const struct build_options *quiet,
                                  const struct ir_graph *two, struct error *err)
{
    const struct build_options *o = f->options;
    CLEANUP(ir_graph_cleanup) struct ir_graph *three = NULL;
    struct along_result r;
    struct error why;
    bool single = o->batches && o->n_batches == 1 && o->batches[0] == 1;
    if (!o->log || single || build_import(f->model, quiet, 3, NULL, NULL, &three, &why))
        return STATUS_OK;
    bool apart = along_prove(two, three, 2, 3, ALONG_APART, &r);
    if (r.no_memory)
        return error_no_memory(err, "the builder");
    if (!apart && r.joins[0])
        log_write(o->log, LOG_WARNING,
                  "layer '%s' mixes instances of a batch: an answer depends on the requests beside "
                  "it, and on the zeros behind them; if that is not meant, say --batch 1",
                  r.joins);
    return STATUS_OK;
}

/* Whether both graphs differ as those of one and of two instances do. */
static enum status compare(struct finding *f, const struct ir_graph *one,
                           const struct ir_graph *two)
{
    char with_one[SHAPE_TEXT_MAX], with_two[SHAPE_TEXT_MAX];
    if (one->n_inputs != two->n_inputs || one->n_outputs != two->n_outputs)
        return not_batched(f, "it has other inputs or outputs for two instances");
    uint32_t odd = find_counts(f, one, two);
    f->out->batched = odd == IR_NONE;
    return f->out->batched
               ? STATUS_OK
               : not_batched(f,
                             "%s '%.64s' is %s for one instance and %s for two: no dimension "
                             "of it counts them",
                             odd < one->n_inputs ? "input" : "output", nth(one, odd)->name,
                             shape_format(&nth(one, odd)->shape, with_one),
                             shape_format(&nth(two, odd)->shape, with_two));
}

/* The dimensions that look as if they counted instances do so only if all outputs grow with them.
 */
static enum status find(struct finding *f, struct error *err)
{
    CLEANUP(ir_graph_cleanup) struct ir_graph *one = NULL;
    CLEANUP(ir_graph_cleanup) struct ir_graph *two = NULL;
    struct error why;
    uint64_t steps_of_one = 0, steps_of_two = 0;
    bool named;
    struct build_options quiet = *f->options;
    quiet.log = NULL;
    if (!build_looks_batched(f->model, f->options, &named)) {
        snprintf(f->out->why, sizeof(f->out->why),
                 "no input has an open dimension that counts instances");
        return STATUS_OK;
    }
    CLEANUP(build_tail_cleanup) struct onnx_tail tail = {.n_nodes = 0};
    TRY(build_import(f->model, &quiet, 1, &steps_of_one, &tail, &one, err));
    if (tail.n_nodes)
        return not_batched(f, "sizes in it are known only when a request has come");
    if (mixes_instances(one))
        return not_batched(f, "a layer puts what it makes of all instances together");
    enum status status = build_import(f->model, &quiet, 2, &steps_of_two, NULL, &two, &why);
    if (status == STATUS_RESOURCE_EXHAUSTED)
        return error_copy(err, &why); /* says nothing about the model */
    if (status)
        return not_batched(f, "the model cannot take two instances at once: %s", why.text);
    if (steps_of_one != steps_of_two)
        return not_batched(f, "what would count instances is the length of a sequence");
    TRY(compare(f, one, two));
    if (!f->out->batched)
        return STATUS_OK;
    return named ? warn_of_mixing(f, &quiet, two, err) : prove_apart(f, &quiet, two, err);
}

bool build_looks_batched(const struct onnx_model *model, const struct build_options *options,
                         bool *named)
{
    const struct onnx_options import = {
        .dims = options->dims, .n_dims = options->n_dims, .said = options->said};
    bool looks = onnx_is_batched(model, &import, named);
    *named = *named && !options->guessed;
    return looks;
}

enum status build_instances_find(struct onnx_model *model, const struct build_options *options,
                                 struct build_instances *out, struct error *err)
{
    struct finding f = {model, options, out};
    *out = (struct build_instances){.batched = false};
    return find(&f, err);
}

bool build_instances_first(const struct build_instances *instances)
{
    for (uint32_t i = 0; i < IR_MAX_IO; i++)
        if (instances->inputs[i].shared || instances->inputs[i].batch)
            return false;
    return true;
}
