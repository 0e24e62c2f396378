/* SPDX-License-Identifier: Apache-2.0 */
/* See calibrate.h. Every float tensor of the fused graph gets a histogram. */
#include "engine/build/calibrate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/build/observe.h"
#include "engine/quant/method.h"
#include "engine/quant/ranges.h"

enum { LEVELS_SIGNED = 128, LEVELS_UNSIGNED = 256 };

struct calibration {
    char model[PLAN_DIGEST_MAX];
    struct ir_graph *graph;
    struct observer *observer;
    struct quant_histograms histograms; /* by tensor */
    uint32_t *index;                    /* of a tensor's histogram; IR_NONE: it has none */
    uint64_t samples;
};

static bool has_histogram(const struct ir_tensor *t)
{
    return dtype_is_float(ir_tensor_type(t)) && !ir_tensor_is_constant(t);
}

static enum status take_histograms(struct calibration *c, struct error *err)
{
    uint32_t n = 0;
    c->index = calloc((size_t)c->graph->n_tensors + 1, sizeof(*c->index));
    for (uint32_t i = 0; c->index && i < c->graph->n_tensors; i++)
        c->index[i] = has_histogram(ir_tensor(c->graph, i)) ? n++ : IR_NONE;
    if (!c->index || !quant_histograms_init(&c->histograms, n))
        return error_no_memory(err, "histograms");
    return STATUS_OK;
}

enum status calibration_new(struct onnx_model *model, const struct build_options *options,
                            struct calibration **out, struct error *err)
{
    if (options->ragged)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "--ragged goes with floats, which need no ranges");
    CLEANUP(calibration_cleanup) struct calibration *c = calloc(1, sizeof(*c));
    if (!c)
        return error_no_memory(err, "a calibration");
    build_digest(model, c->model);
    TRY(build_graph(model, options, 1, true, &c->graph, err));
    TRY(build_bounds_check(c->graph, options->max_bytes, err));
    if (!quant_name_tensors(c->graph))
        return error_no_memory(err, "a calibration");
    TRY(take_histograms(c, err));
    TRY(observer_new(c->graph, options->device, options->host, options->log, &c->observer, err));
    *out = STEAL(c);
    return STATUS_OK;
}

void calibration_free(struct calibration *c)
{
    if (!c)
        return;
    observer_free(c->observer);
    quant_histograms_deinit(&c->histograms);
    ir_graph_free(c->graph);
    free(c->index);
    free(c);
}

void calibration_cleanup(struct calibration **at)
{
    calibration_free(*at);
}

const struct ir_graph *calibration_graph(const struct calibration *c)
{
    return c->graph;
}

static enum status count(void *user, const struct observed *value, struct error *err UNUSED)
{
    struct calibration *c = user;
    quant_histogram_add(&c->histograms, c->index[value->tensor], value->values, value->n);
    return STATUS_OK;
}

enum status calibration_add(struct calibration *c, const void *const *inputs, struct error *err)
{
    TRY(observer_run(c->observer, inputs, count, c, err));
    c->samples++;
    return STATUS_OK;
}

/* --- the table --- */

/* How ranges are found, and the table that they go to. */
struct making {
    const struct calibration *c;
    enum quant_method method;
    double percentile;
    struct quant_table *table;
    struct calibration_report *report;
    struct error *err;
};

/* A tensor that was never anything but 0 gets a range that holds whatever comes once to some
 * degree. */
static enum status set_limit(struct making *m, const struct quant_histogram *h,
                             struct quant_row *row)
{
    bool has_sign = h->least < 0;
    float limit = 0; /* of magnitudes: the range ends at the values seen, where these end before */
    if (!quant_limit(h, m->method, m->percentile, has_sign ? LEVELS_SIGNED : LEVELS_UNSIGNED,
                     &limit))
        return error_no_memory(m->err, "a calibration");
    float low = has_sign ? fmaxf(-limit, h->least) : 0, high = fminf(limit, fmaxf(h->most, 0));
    if (limit > 0 && quant_row_set_range(row, low, high))
        return STATUS_OK;
    m->report->empty++;
    return quant_row_set_range(row, 0, 1)
               ? STATUS_OK
               : error_set(m->err, STATUS_INTERNAL, "calibration: no range");
}

static enum status add_row(struct making *m, uint32_t tensor)
{
    const struct calibration *c = m->c;
    const struct quant_histogram *h = &c->histograms.list[c->index[tensor]];
    struct quant_row row = {.name = ir_tensor(c->graph, tensor)->name, .samples = c->samples};
    quant_method_format(m->method, m->percentile, row.source);
    /* No layer makes it, it has no elements, or no table can name it. */
    if ((!h->count && !h->bad) || !row.name[0] || strlen(row.name) > QUANT_NAME_MAX)
        return STATUS_OK;
    m->report->tensors++;
    if (h->bad) {
        if (!m->report->infinite++)
            m->report->first_infinite = row.name;
    } else {
        TRY(set_limit(m, h, &row));
    }
    return quant_table_add(m->table, &row, m->err);
}

static enum status add_rows(struct making *m)
{
    const struct ir_graph *g = m->c->graph;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (m->c->index[g->inputs[i]] != IR_NONE)
            TRY(add_row(m, g->inputs[i]));
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; k < ir_node(g, i)->n_outputs; k++)
            if (m->c->index[ir_node(g, i)->outputs[k]] != IR_NONE)
                TRY(add_row(m, ir_node(g, i)->outputs[k]));
    return STATUS_OK;
}

enum status calibration_table(const struct calibration *c, enum quant_method method,
                              double percentile, struct quant_table **out,
                              struct calibration_report *report, struct error *err)
{
    CLEANUP(quant_table_cleanup) struct quant_table *table = quant_table_new(c->model);
    if (!table)
        return error_no_memory(err, "a calibration");
    if (!c->samples)
        return error_set(err, STATUS_FAILED_PRECONDITION, "calibration: there was no sample");
    *report = (struct calibration_report){.samples = c->samples};
    struct making m = {c, method, percentile, table, report, err};
    TRY(add_rows(&m));
    *out = STEAL(table);
    return STATUS_OK;
}
