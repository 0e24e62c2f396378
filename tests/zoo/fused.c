/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the passes make of a model for a backend with all features, on a machine that has none:
 *
 *   fused MODEL.onnx [--batch N] [--dim NAME=N] [--log] [--text] [--no-check] [--plan FILE]
 *
 * --plan builds a plan for the CPU with such a graph, in which reference kernels do every op.
 * Without it, the program prints how many nodes of each op are left, and compares the graph with
 * the imported one, on the reference kernels: for each output the norm of the difference over the
 * norm. Exit code 1 beyond 1e-5.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/build/build.h"
#include "engine/cpu/eval.h"
#include "engine/engine.h"
#include "engine/import/onnx.h"
#include "engine/passes/pass.h"

static const double bound = 1e-5;

struct settings {
    const char *path, *plan;
    struct onnx_options import;
    struct onnx_dim dim;
    char dim_name[64];
    bool text, check;
    struct log_sink log;
};

static void write_line(void *user, enum log_level level, const char *line)
{
    (void)user;
    (void)level;
    puts(line);
}

static bool parse(struct settings *s, int argc, char **argv)
{
    *s = (struct settings){.import.batch = 2, .check = true};
    s->import.evaluator.eval = cpu_eval_node;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--text"))
            s->text = true;
        else if (!strcmp(argv[i], "--no-check"))
            s->check = false;
        else if (!strcmp(argv[i], "--log"))
            s->log = (struct log_sink){.level = LOG_VERBOSE, .write = write_line, .user = NULL};
        else if (!strcmp(argv[i], "--plan") && i + 1 < argc)
            s->plan = argv[++i];
        else if (!strcmp(argv[i], "--batch") && i + 1 < argc)
            s->import.batch = strtol(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--dim") && i + 1 < argc &&
                 sscanf(argv[++i], "%63[^=]=%ld", s->dim_name, &s->dim.value) == 2)
            s->import.n_dims = 1;
        else if (argv[i][0] != '-' && !s->path)
            s->path = argv[i];
        else
            return false;
    }
    s->dim.name = s->dim_name;
    s->import.dims = &s->dim;
    return s->path != NULL;
}

static enum status make(struct onnx_model *model, const struct settings *s, bool fused,
                        struct ir_graph **out, struct error *err)
{
    struct pass_context context = {.evaluator = s->import.evaluator, .log = &s->log};
    static struct pass_pairs pairs, chains;
    context.attention = context.merge = context.picks = context.joins = context.patches = true;
    context.stems = true;
    enum status status = onnx_import(model, &s->import, out, err);
    if (!status && fused)
        status = passes_run(*out, &context, err);
    context.pairs = &pairs; /* as the builder does it, when all others are done */
    context.chains = &chains;
    if (!status && fused)
        status = pass_run(pass_find("fuse_pair"), *out, &context, err);
    return status || !fused ? status : pass_run(pass_find("fuse_chain"), *out, &context, err);
}

static void print_ops(const struct ir_graph *g)
{
    uint32_t counts[IR_OP_COUNT_] = {0};
    for (uint32_t i = 0; i < g->n_nodes; i++)
        counts[ir_node(g, i)->op]++;
    printf("%u nodes:", g->n_nodes);
    for (int op = 0; op < IR_OP_COUNT_; op++)
        if (counts[op])
            printf(" %s=%u", ir_op_name((enum ir_op)op), counts[op]);
    putchar('\n');
}

/* Numbers that serve as pixels and as token ids alike. */
static struct tensor_view make_input(const struct ir_tensor *t, uint64_t seed)
{
    struct tensor_view view = {t->dtype, t->shape, calloc(1, MAX(t->bytes, 1))};
    for (size_t i = 0; view.data && i < t->bytes / dtype_size(t->dtype); i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        if (t->dtype == DTYPE_F32)
            ((float *)view.data)[i] = (float)(seed >> 40) / (float)(1 << 23) - 1;
        else if (t->dtype == DTYPE_I64)
            ((int64_t *)view.data)[i] = (int64_t)(seed >> 63);
    }
    return view;
}

static enum status compute(const struct ir_graph *g, struct tensor_view *outputs, struct error *err)
{
    struct tensor_view inputs[IR_MAX_IO];
    for (uint32_t i = 0; i < g->n_inputs; i++)
        inputs[i] = make_input(ir_tensor(g, g->inputs[i]), i + 1);
    for (uint32_t i = 0; i < g->n_outputs; i++)
        outputs[i] = make_input(ir_tensor(g, g->outputs[i]), 77);
    enum status status = cpu_eval_graph(g, inputs, outputs, err);
    for (uint32_t i = 0; i < g->n_inputs; i++)
        free(inputs[i].data);
    return status;
}

static double relative_error(const struct tensor_view *got, const struct tensor_view *want)
{
    size_t n = 0;
    double difference = 0, norm = 0;
    if (got->dtype != DTYPE_F32 || !shape_equal(&got->shape, &want->shape) ||
        !shape_elements(&want->shape, &n))
        return INFINITY;
    for (size_t i = 0; i < n; i++) {
        double a = (double)((float *)got->data)[i], b = (double)((float *)want->data)[i];
        difference += (a - b) * (a - b);
        norm += b * b;
    }
    return sqrt(difference / norm);
}

static int check(const struct ir_graph *plain, const struct ir_graph *fused, struct error *err)
{
    struct tensor_view want[IR_MAX_IO], got[IR_MAX_IO];
    int rc = 0;
    if (compute(plain, want, err) || compute(fused, got, err))
        return fprintf(stderr, "%s\n", err->text), 1;
    for (uint32_t i = 0; i < plain->n_outputs; i++) {
        double error = relative_error(&got[i], &want[i]);
        printf("%s: relative error %.1e\n", ir_tensor(plain, plain->outputs[i])->name, error);
        if (!(error <= bound))
            rc = 1;
        free(want[i].data);
        free(got[i].data);
    }
    return rc;
}

/* The CPU's device under a table that says it has all features. */
static int write_plan(struct onnx_model *model, const struct settings *s, struct error *err)
{
    const struct device_options device_options = {.threads = 1, .log = &s->log};
    const uint32_t batch = (uint32_t)s->import.batch;
    struct build_options options = {.evaluator = s->import.evaluator, .batches = &batch};
    struct plan *plan = NULL;
    if (engine_device_open("cpu", &device_options, &options.device, err))
        return 1;
    struct backend all = *options.device->backend;
    const struct backend *own = options.device->backend;
    all.features =
        BACKEND_ATTENTION | BACKEND_MERGE | BACKEND_PICKS | BACKEND_JOINS | BACKEND_PATCHES;
    options.device->backend = &all;
    options.n_batches = 1;
    options.dims = s->import.dims;
    options.n_dims = s->import.n_dims;
    options.no_timing = true;
    options.log = &s->log;
    enum status status = build_plan(model, &options, &plan, err);
    options.device->backend = own;
    if (!status)
        status = plan_write(s->plan, plan, err);
    plan_free(plan);
    engine_device_close(options.device);
    return status ? 1 : 0;
}

int main(int argc, char **argv)
{
    struct settings s;
    struct onnx_model *model;
    struct ir_graph *plain = NULL, *fused = NULL;
    struct error err;
    int rc = 0;
    if (!parse(&s, argc, argv))
        return 2;
    if (onnx_open(s.path, &model, &err))
        return fprintf(stderr, "%s\n", err.text), 1;
    if (s.plan) {
        rc = write_plan(model, &s, &err);
        onnx_close(model);
        return rc ? fprintf(stderr, "%s\n", err.text), rc : 0;
    }
    if (make(model, &s, false, &plain, &err) || make(model, &s, true, &fused, &err))
        return fprintf(stderr, "%s\n", err.text), 1;
    onnx_close(model);
    if (s.text) {
        char *text = ir_graph_text(fused);
        puts(text ? text : "out of memory");
        free(text);
    }
    print_ops(fused);
    if (s.check)
        rc = check(plain, fused, &err);
    ir_graph_free(plain);
    ir_graph_free(fused);
    return rc;
}
