/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inferctl graph: a picture of a graph. A model is drawn as it was imported, or with --fused as the
 * passes leave it; a plan is drawn as it runs. Constants are not drawn.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "tools/cleanup.h"
#include "tools/inferctl.h"
#include "tools/layers.h"
#include "tools/model.h"
#include "tools/output.h"

struct graph_args {
    struct model_args model;
    const char *output;
    uint32_t batch;
    bool fused;
};

static const struct arg options[] = {
    {"output", 'o', ARG_TEXT, offsetof(struct graph_args, output), "FILE.svg",
     "the picture (required)"},
    {"batch", 'b', ARG_U32, offsetof(struct graph_args, batch), "B",
     "which profile (default: the first)"},
    {"fused", 0, ARG_FLAG, offsetof(struct graph_args, fused), NULL,
     "of a model: after the passes instead of before"},
    {"device", 0, ARG_TEXT, offsetof(struct graph_args, model.device), "DEVICE",
     "of a model: fused for cpu (default), cuda, cuda:N"},
    {"verbose", 'v', ARG_COUNT, offsetof(struct graph_args, model.verbose), NULL,
     "say what was fused; twice: also what was not, and why"},
    {"plugin", 0, ARG_TEXTS, offsetof(struct graph_args, model.plugins), "FILE.so",
     "ops of one's own; may be given several times"},
    {NULL, 0, ARG_FLAG, 0, NULL, NULL},
};

static const struct args spec = {
    .usage = "inferctl graph MODEL|PLAN -o FILE.svg [--fused] [--batch B]",
    .what = "Draws the graph before or after fusion.",
    .options = options,
    .min_positional = 1,
    .max_positional = 1,
    .shared = {{model_import_options, offsetof(struct graph_args, model), "Of a MODEL.onnx:"}},
};

enum { BOX_HEIGHT = 40, LEVEL_HEIGHT = 76, GAP = 24, LABEL_MAX = 34, CHAR_WIDTH = 7 };

static const char *const colors[IR_GROUP_COUNT_] = {
    [IR_GROUP_CONVOLUTION] = "#cfe2f3", [IR_GROUP_PRODUCT] = "#d9ead3",
    [IR_GROUP_REDUCTION] = "#fff2cc",   [IR_GROUP_NORM] = "#ead1dc",
    [IR_GROUP_ELEMENTWISE] = "#fce5cd", [IR_GROUP_LAYOUT] = "#f4cccc",
    [IR_GROUP_PLUGIN] = "#d9d2e9",
};

/* Vertices: the graph's inputs, then its nodes, then its outputs. */
struct drawing {
    const struct ir_graph *graph;
    struct layers layers;
    FILE *to;
};

static const char *color_of(enum ir_op op)
{
    const char *color = colors[ir_op_row(op)->group];
    return color ? color : "#eeeeee";
}

static void put_xml(FILE *to, const char *text, size_t max)
{
    size_t n = 0;
    for (const unsigned char *c = (const unsigned char *)text; *c && n < max; c++, n++) {
        if (*c == '&' || *c == '<' || *c == '>' || *c == '"')
            fprintf(to, "&#%d;", *c);
        else
            fputc(*c < 0x20 || *c >= 0x7f ? '?' : *c, to);
    }
    if (text[n])
        fputs("..", to);
}

static float label_width(const char *text)
{
    size_t len = MIN(strlen(text), (size_t)LABEL_MAX + 2);
    return (float)(MAX(len, (size_t)10) * CHAR_WIDTH + 16);
}

/* --- the graph as vertices and edges --- */

static bool add_vertices(struct drawing *d)
{
    const struct ir_graph *g = d->graph;
    bool ok = true;
    for (uint32_t i = 0; i < g->n_inputs && ok; i++)
        ok = layers_vertex_add(&d->layers, label_width(ir_tensor(g, g->inputs[i])->name));
    for (uint32_t i = 0; i < g->n_nodes && ok; i++)
        ok = layers_vertex_add(&d->layers, label_width(ir_node(g, i)->name));
    for (uint32_t i = 0; i < g->n_outputs && ok; i++)
        ok = layers_vertex_add(&d->layers, label_width(ir_tensor(g, g->outputs[i])->name));
    return ok;
}

/* The vertex that a tensor comes from; false for a constant. */
static bool origin(const struct ir_graph *g, uint32_t tensor, uint32_t *vertex)
{
    const struct ir_tensor *t = ir_tensor(g, tensor);
    if (t->producer != IR_NONE) {
        *vertex = g->n_inputs + t->producer;
        return true;
    }
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (g->inputs[i] == tensor) {
            *vertex = i;
            return true;
        }
    return false;
}

static bool add_edges(struct drawing *d)
{
    const struct ir_graph *g = d->graph;
    uint32_t from;
    bool ok = true;
    for (uint32_t i = 0; i < g->n_nodes && ok; i++)
        for (uint32_t k = 0; k < ir_node(g, i)->n_inputs && ok; k++) {
            uint32_t t = ir_node(g, i)->inputs[k];
            if (t != IR_NONE && origin(g, t, &from))
                ok = layers_edge_add(&d->layers, from, g->n_inputs + i, t);
        }
    for (uint32_t i = 0; i < g->n_outputs && ok; i++)
        if (origin(g, g->outputs[i], &from))
            ok = layers_edge_add(&d->layers, from, g->n_inputs + g->n_nodes + i, g->outputs[i]);
    return ok;
}

/* --- drawing --- */

static float top_of(const struct drawing *d, uint32_t vertex)
{
    return (float)(GAP + d->layers.vertices[vertex].level * LEVEL_HEIGHT);
}

static void draw_edge(struct drawing *d, const struct layers_edge *e)
{
    const struct layers_vertex *a = &d->layers.vertices[e->from], *b = &d->layers.vertices[e->to];
    float y0 = top_of(d, e->from) + BOX_HEIGHT, y1 = top_of(d, e->to), bend = (y1 - y0) / 2;
    if (a->width <= 0) /* a point of a long edge: go straight through its level */
        fprintf(d->to, "<path d=\"M%.0f %.0fV%.0f\"/>\n", (double)a->x, (double)y0 - BOX_HEIGHT,
                (double)y0);
    fprintf(d->to, "<path d=\"M%.0f %.0fC%.0f %.0f %.0f %.0f %.0f %.0f\"%s/>\n", (double)a->x,
            (double)y0, (double)a->x, (double)(y0 + bend), (double)b->x, (double)(y1 - bend),
            (double)b->x, (double)y1, b->width > 0 ? " marker-end=\"url(#tip)\"" : "");
}

static void begin_box(struct drawing *d, uint32_t vertex, const char *color, int radius)
{
    const struct layers_vertex *v = &d->layers.vertices[vertex];
    fprintf(d->to,
            "<g transform=\"translate(%.0f %.0f)\"><rect x=\"%.0f\" width=\"%.0f\" height=\"%d\" "
            "rx=\"%d\" fill=\"%s\"/>",
            (double)v->x, (double)top_of(d, vertex), (double)(-v->width / 2), (double)v->width,
            BOX_HEIGHT, radius, color);
}

static void put_line(struct drawing *d, int y, const char *text, const char *second)
{
    fprintf(d->to, "<text y=\"%d\">", y);
    put_xml(d->to, text, LABEL_MAX);
    put_xml(d->to, second, LABEL_MAX);
    fputs("</text>", d->to);
}

static void draw_io(struct drawing *d, uint32_t vertex, uint32_t tensor)
{
    const struct ir_tensor *t = ir_tensor(d->graph, tensor);
    char shape[SHAPE_TEXT_MAX];
    begin_box(d, vertex, "#ffffff", BOX_HEIGHT / 2);
    put_line(d, 17, t->name, "");
    put_line(d, 32, shape_format(&t->shape, shape), "");
    fputs("</g>\n", d->to);
}

static void draw_node(struct drawing *d, uint32_t vertex, const struct ir_node *node)
{
    const struct ir_tensor *out = ir_tensor(d->graph, node->outputs[0]);
    char shape[SHAPE_TEXT_MAX], time[32] = "";
    begin_box(d, vertex, color_of(node->op), 4);
    fputs("<title>", d->to);
    put_xml(d->to, node->name, SIZE_MAX);
    fprintf(d->to, "\n%s -&gt; %s %s %s", ir_op_name(node->op), dtype_name(out->dtype),
            shape_format(&out->shape, shape), ir_layout_name(out->layout));
    if (node->tactic)
        fprintf(d->to, "\n%s", node->tactic->name);
    for (uint32_t i = 0; i < node->n_epilogue; i++) {
        const struct ir_epilogue *e = &node->epilogue[i];
        fprintf(d->to, "\n+ %s",
                e->kind == IR_EPILOGUE_UNARY ? ir_unary_name((enum ir_unary)e->func)
                                             : ir_binary_name((enum ir_binary)e->func));
    }
    fputs("</title>", d->to);
    if (node->time_ns)
        snprintf(time, sizeof(time), "  %.1f us", (double)node->time_ns / NS_PER_US);
    put_line(d, 17, node->name, "");
    put_line(d, 32, ir_op_name(node->op), time);
    fputs("</g>\n", d->to);
}

static void draw(struct drawing *d)
{
    const struct ir_graph *g = d->graph;
    int height = (int)(d->layers.n_levels * LEVEL_HEIGHT + 2 * GAP);
    fprintf(d->to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"11\" text-anchor=\"middle\">\n"
            "<defs><marker id=\"tip\" refX=\"6\" refY=\"3\" markerWidth=\"7\" markerHeight=\"6\" "
            "orient=\"auto\"><path d=\"M0 0L7 3L0 6z\" fill=\"#666\"/></marker></defs>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
            "<g fill=\"none\" stroke=\"#999\">\n",
            (double)d->layers.width, height);
    for (uint32_t i = 0; i < d->layers.n_edges; i++)
        draw_edge(d, &d->layers.edges[i]);
    fputs("</g>\n<g stroke=\"#666\" stroke-width=\"0.7\">\n"
          "<style>text{stroke:none;fill:#222}</style>\n",
          d->to);
    for (uint32_t i = 0; i < g->n_inputs; i++)
        draw_io(d, i, g->inputs[i]);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        draw_node(d, g->n_inputs + i, ir_node(g, i));
    for (uint32_t i = 0; i < g->n_outputs; i++)
        draw_io(d, g->n_inputs + g->n_nodes + i, g->outputs[i]);
    fputs("</g>\n</svg>\n", d->to);
}

/* False: no memory. */
static bool draw_text(struct drawing *d, char **text, size_t *size)
{
    if (!add_vertices(d) || !add_edges(d) || !layers_arrange(&d->layers, GAP) ||
        !(d->to = open_memstream(text, size)))
        return false;
    draw(d);
    return fclose(d->to) == 0;
}

static enum status write_svg(const struct ir_graph *graph, const char *path, struct error *err)
{
    struct drawing d = {.graph = graph};
    CLEANUP(file_writer_cleanup) struct file_writer *writer = NULL;
    CLEANUP(cleanup_free) char *text = NULL;
    size_t size = 0;
    bool drawn = draw_text(&d, &text, &size);
    layers_deinit(&d.layers);
    if (!drawn)
        return error_no_memory(err, "the drawing");
    TRY(file_writer_new_text(path, &writer, err));
    TRY(file_writer_put(writer, text, size, err));
    return file_writer_commit(writer, err);
}

/* --- where the graph comes from --- */

static enum status draw_plan(const struct graph_args *args, const char *path, struct error *err)
{
    CLEANUP(plan_cleanup) struct plan *plan = NULL;
    TRY(model_args_check(&args->model, path, err));
    if (args->fused || args->model.device)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "--%s is about models: a plan is drawn as it was built",
                         args->fused ? "fused" : "device");
    TRY(model_plugins_load(&args->model, err));
    TRY(plan_read(path, &plan, err));
    const struct ir_graph *graph = NULL;
    for (uint32_t i = 0; i < plan->n_profiles && !graph; i++)
        if (!args->batch || plan->profiles[i].batch == args->batch)
            graph = plan->profiles[i].graph;
    return graph ? write_svg(graph, args->output, err)
                 : error_set(err, STATUS_NOT_FOUND, "the plan has no profile for batch %u",
                             args->batch);
}

/* A device is opened only if it was named: some passes are for one kind of device alone. */
static enum status draw_model(const struct graph_args *args, const char *path, struct error *err)
{
    struct log_sink log = model_log(&args->model);
    CLEANUP(device_cleanup) struct device *device = NULL;
    CLEANUP(ir_graph_cleanup) struct ir_graph *graph = NULL;
    if (args->model.device)
        TRY(model_device_open(&args->model, NULL, &log, &device, err));
    TRY(model_graph(path, &args->model, device, &log, args->batch ? args->batch : 1, args->fused,
                    &graph, err));
    return write_svg(graph, args->output, err);
}

static enum status graph(const struct graph_args *args, const char *path, struct error *err)
{
    TRY(output_check(args->output, path, &args->model, err));
    TRY(file_writer_try_text(args->output, err));
    return model_is_plan(path) ? draw_plan(args, path, err) : draw_model(args, path, err);
}

int command_graph(int argc, char **argv)
{
    struct graph_args args = {0};
    struct arg_texts files;
    struct error err;
    int rc = args_parse(&spec, argc, argv, &args, &files);
    if (rc >= 0)
        return rc;
    if (!args.output) {
        fprintf(stderr, "inferctl graph: -o FILE.svg is required\n");
        return EXIT_USAGE;
    }
    return graph(&args, files.list[0], &err) ? command_failed("graph", &err) : EXIT_OK;
}
