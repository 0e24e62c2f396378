/* SPDX-License-Identifier: Apache-2.0 */
/* inferctl inspect shows what is in a plan or a model, as text or as JSON. It needs no device. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "engine/ir/ops.h"
#include "engine/plan/plan.h"
#include "tools/args.h"
#include "tools/cleanup.h"
#include "tools/exactness.h"
#include "tools/inferctl.h"
#include "tools/inspect_model.h"
#include "tools/json.h"
#include "tools/model.h"
#include "tools/show.h"
#include "tools/types.h"

struct inspect_args {
    struct model_args model;
    bool json;
    uint32_t batch;
};

static const struct arg options[] = {
    {"json", 0, ARG_FLAG, offsetof(struct inspect_args, json), NULL, "one JSON object"},
    {"batch", 0, ARG_U32, offsetof(struct inspect_args, batch), "B",
     "of a plan: only this profile; of a model: check it for so many instances (default: 1)"},
    {"dim", 0, ARG_TEXTS, offsetof(struct inspect_args, model.dims), "NAME=N",
     "of a model: value of another symbolic dimension"},
    {"plugin", 0, ARG_TEXTS, offsetof(struct inspect_args, model.plugins), "FILE.so",
     "ops of one's own; may be given several times"},
    {NULL, 0, ARG_FLAG, 0, NULL, NULL},
};

static const struct args spec = {
    .usage = "inferctl inspect MODEL|PLAN [--json] [--batch B] [--dim NAME=N]...",
    .what =
        "Of a plan: layers, fusions, tactics, precision, times and memory of each profile.\n"
        "Of a model: inputs, outputs, ops, and what a build would refuse; exit 1 if there is any.",
    .options = options,
    .min_positional = 1,
    .max_positional = 1,
};

static bool wanted(const struct inspect_args *args, const struct plan_profile *profile)
{
    return !args->batch || profile->batch == args->batch;
}

static uint64_t arena_bytes(const struct ir_graph *graph)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < graph->n_segments; i++)
        bytes = MAX(bytes, graph->segments[i].arena_bytes);
    return bytes;
}

/* Of a node that does not run: whether it renames a tensor, or its parts lie where they must. */
static const char *tactic_of(const struct ir_node *node)
{
    return node->tactic                            ? node->tactic->name
           : ir_op_has(node->op, IR_TRAIT_RENAMES) ? "alias"
                                                   : "in place";
}

static const char *precision_of(const struct ir_graph *graph, const struct ir_node *node)
{
    return dtype_name(types_of_layer(graph, node));
}

/* --- JSON --- */

static void json_bindings(struct json *j, const char *key, const struct plan_binding *list,
                          uint32_t n)
{
    json_list(j, key);
    for (uint32_t i = 0; i < n; i++) {
        json_object(j, NULL);
        json_text(j, "name", list[i].name);
        json_text(j, "dtype", dtype_name(list[i].dtype));
        json_shape(j, "shape", &list[i].shape);
        json_end(j);
    }
    json_end(j);
}

static void json_scale(struct json *j, const struct ir_scale *scale)
{
    if (!scale)
        return;
    json_object(j, "scale");
    json_list(j, "step");
    for (uint32_t i = 0; i < scale->n; i++)
        json_real(j, NULL, (double)scale->step[i]);
    json_end(j);
    json_list(j, "zero");
    for (uint32_t i = 0; scale->zero && i < scale->n; i++)
        json_int(j, NULL, scale->zero[i]);
    json_end(j);
    if (scale->n > 1)
        json_uint(j, "axis", scale->axis);
    json_end(j);
}

static void json_tensors(struct json *j, const char *key, const struct ir_graph *graph,
                         const uint32_t *ids, uint32_t n)
{
    json_list(j, key);
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] == IR_NONE)
            continue;
        const struct ir_tensor *t = ir_tensor(graph, ids[i]);
        json_object(j, NULL);
        json_text(j, "name", t->name);
        json_text(j, "dtype", dtype_name(t->dtype));
        json_shape(j, "shape", &t->shape);
        json_text(j, "layout", ir_layout_name(t->layout));
        json_scale(j, ir_scale(graph, t->scale));
        json_bool(j, "constant", ir_tensor_is_constant(t));
        json_end(j);
    }
    json_end(j);
}

static void json_layer(struct json *j, const struct ir_graph *graph, const struct ir_node *node)
{
    json_object(j, NULL);
    json_text(j, "name", node->name);
    json_text(j, "op", ir_op_name(node->op));
    json_list(j, "fused");
    for (uint32_t i = 0; i < node->n_epilogue; i++) {
        const struct ir_epilogue *e = &node->epilogue[i];
        json_text(j, NULL,
                  e->kind == IR_EPILOGUE_UNARY ? ir_unary_name((enum ir_unary)e->func)
                                               : ir_binary_name((enum ir_binary)e->func));
    }
    json_end(j);
    json_text(j, "tactic", tactic_of(node));
    json_text(j, "precision", precision_of(graph, node));
    json_uint(j, "time_ns", node->time_ns);
    json_uint(j, "workspace_bytes", node->workspace_bytes);
    json_tensors(j, "inputs", graph, node->inputs, node->n_inputs);
    json_tensors(j, "outputs", graph, node->outputs, node->n_outputs);
    json_end(j);
}

static void json_profile(struct json *j, const struct plan *plan,
                         const struct plan_profile *profile)
{
    const struct ir_graph *graph = profile->graph;
    json_object(j, NULL);
    json_uint(j, "batch", profile->batch);
    json_object(j, "sizes");
    for (uint32_t i = 0; i < plan->n_free; i++)
        json_uint(j, plan->free[i].name, (uint64_t)profile->values[i]);
    json_end(j);
    json_uint(j, "time_ns", plan_profile_time(profile));
    json_uint(j, "arena_bytes", arena_bytes(graph));
    json_uint(j, "tensor_bytes", profile->tensor_bytes);
    json_list(j, "segments");
    for (uint32_t i = 0; i < graph->n_segments; i++) {
        json_object(j, NULL);
        json_text(j, "backend", graph->segments[i].backend);
        json_uint(j, "layers", graph->segments[i].count);
        json_end(j);
    }
    json_end(j);
    json_list(j, "layers");
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        json_layer(j, graph, ir_node(graph, i));
    json_end(j);
    json_end(j);
}

static void json_ragged(struct json *j, const struct plan_ragged *ragged)
{
    if (!ragged->max_length)
        return;
    json_object(j, "ragged");
    json_uint(j, "max_length", (uint64_t)ragged->max_length);
    if (ragged->mask)
        json_text(j, "mask", ragged->mask);
    json_end(j);
}

static void print_json(const struct plan *plan, const struct inspect_args *args)
{
    struct json j;
    json_init(&j, stdout);
    json_object(&j, NULL);
    json_text(&j, "name", plan->name);
    json_text(&j, "device", plan->device);
    json_text(&j, "model_digest", plan->digest);
    json_bool(&j, "batched", plan->batched);
    json_uint(&j, "weight_bytes", plan->weight_bytes);
    json_bindings(&j, "inputs", plan->inputs, plan->n_inputs);
    if (plan->n_late)
        json_bindings(&j, "outputs", plan->late, plan->n_late);
    else
        json_bindings(&j, "outputs", plan->outputs, plan->n_outputs);
    json_uint(&j, "tail_bytes", plan->tail_bytes);
    json_ragged(&j, &plan->ragged);
    exactness_json(&j, plan);
    json_list(&j, "free");
    for (uint32_t i = 0; i < plan->n_free; i++) {
        json_object(&j, NULL);
        json_text(&j, "name", plan->free[i].name);
        json_uint(&j, "least", (uint64_t)plan->free[i].low);
        json_uint(&j, "most", (uint64_t)plan->free[i].high);
        json_bool(&j, "pads", plan->free[i].pads);
        json_end(&j);
    }
    json_end(&j);
    json_list(&j, "profiles");
    for (uint32_t i = 0; i < plan->n_profiles; i++)
        if (wanted(args, &plan->profiles[i]))
            json_profile(&j, plan, &plan->profiles[i]);
    json_end(&j);
    json_end(&j);
}

/* --- text --- */

static void print_bindings(const char *what, const struct plan_binding *list, uint32_t n)
{
    char text[SHAPE_TEXT_MAX];
    for (uint32_t i = 0; i < n; i++)
        show_printf("%-8s %s %s %s\n", what, list[i].name, dtype_name(list[i].dtype),
                    shape_format(&list[i].shape, text));
}

/* "cuda 12 layers, cpu 1, cuda 3"; a plan that runs on one device alone has no such line. */
static void print_segments(const struct ir_graph *graph)
{
    if (graph->n_segments < 2)
        return;
    printf("runs on  ");
    for (uint32_t i = 0; i < graph->n_segments; i++) {
        const struct ir_segment *segment = &graph->segments[i];
        show_printf("%s%s %u%s", i ? ", " : "", segment->backend, segment->count,
                    i                     ? ""
                    : segment->count == 1 ? " layer"
                                          : " layers");
    }
    putchar('\n');
}

/* Widths of the columns whose texts differ most in length. */
struct widths {
    int output, tactic;
};

static struct widths measure(const struct ir_graph *graph)
{
    struct widths w = {.output = (int)strlen("output"), .tactic = (int)strlen("tactic")};
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(graph, i);
        char text[SHAPE_TEXT_MAX];
        shape_format(&ir_tensor(graph, node->outputs[0])->shape, text);
        w.output = MAX(w.output, (int)strlen(text));
        w.tactic = MAX(w.tactic, (int)strlen(tactic_of(node)));
    }
    return w;
}

static void print_profile(const struct plan *plan, const struct plan_profile *profile)
{
    const struct ir_graph *graph = profile->graph;
    uint64_t arena = arena_bytes(graph);
    struct widths w = measure(graph);
    char types[TYPES_TEXT_MAX];
    show_printf("\nprofile  batch %u, ", profile->batch);
    for (uint32_t i = 0; i < plan->n_free; i++) {
        show_printf("%s", plan->free[i].name);
        printf(" %lld, ", (long long)profile->values[i]);
    }
    printf("%u layers, arena %.2f MiB (tensors alone %.2f MiB), %.1f us\n", graph->n_nodes,
           (double)arena / (1 << 20), (double)profile->tensor_bytes / (1 << 20),
           (double)plan_profile_time(profile) / NS_PER_US);
    printf("types    %s\n", types_format(graph, types));
    print_segments(graph);
    printf("%10s  %-10s %-5s %-*s  %-*s  %s\n", "us", "op", "type", w.output, "output", w.tactic,
           "tactic", "layer");
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(graph, i);
        const struct ir_tensor *out = ir_tensor(graph, node->outputs[0]);
        char text[SHAPE_TEXT_MAX], format[IR_FORMAT_TEXT_MAX];
        show_printf("%10.1f  %-10s %-5s %-*s  %-*s  ", (double)node->time_ns / NS_PER_US,
                    ir_op_name(node->op), precision_of(graph, node), w.output,
                    shape_format(&out->shape, text), w.tactic, tactic_of(node));
        show_printf("%s", node->name);
        if (out->scale != IR_NO_SCALE)
            show_printf("  [%s]", ir_format_text(graph, out->format, format));
        putchar('\n');
    }
}

static void print_tail(const struct plan *plan)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_profiles; i++)
        n = MAX(n, plan->profiles[i].n_bodies);
    printf("tail     %.2f MiB: runs on the CPU behind the layers; a request tells its sizes\n",
           (double)plan->tail_bytes / (1 << 20));
    if (n)
        printf("         with %u loop%s whose iterations run as a whole\n", n, n == 1 ? "" : "s");
}

static void print_text(const struct plan *plan, const struct inspect_args *args)
{
    printf("plan     ");
    show_printf("%s", plan->name);
    printf("\ndevice   ");
    show_printf("%s", plan->device);
    show_printf("\nmodel    digest %s, %s\n", plan->digest,
                plan->batched ? "batched" : "not batched");
    printf("weights  %.2f MiB\n", (double)plan->weight_bytes / (1 << 20));
    print_bindings("input", plan->inputs, plan->n_inputs);
    if (plan->n_late)
        print_bindings("output", plan->late, plan->n_late);
    else
        print_bindings("output", plan->outputs, plan->n_outputs);
    if (plan->n_late)
        print_tail(plan);
    if (plan->ragged.max_length)
        show_printf("ragged   batches of tokens, of sequences of up to %lld%s%s\n",
                    (long long)plan->ragged.max_length,
                    plan->ragged.mask ? ", by the mask " : "; there is no mask",
                    plan->ragged.mask ? plan->ragged.mask : "");
    exactness_print(plan, "", UINT32_MAX);
    for (uint32_t i = 0; i < plan->n_free; i++) {
        printf("free     ");
        show_printf("%s", plan->free[i].name);
        printf(" from %lld to %lld%s\n", (long long)plan->free[i].low,
               (long long)plan->free[i].high,
               plan->free[i].pads ? ", padded to the next profile" : ", the profiles' sizes alone");
    }
    for (uint32_t i = 0; i < plan->n_profiles; i++)
        if (wanted(args, &plan->profiles[i]))
            print_profile(plan, &plan->profiles[i]);
}

/* --- where it comes from --- */

static bool has_profile(const struct inspect_args *args, const struct plan *plan)
{
    for (uint32_t i = 0; i < plan->n_profiles; i++)
        if (wanted(args, &plan->profiles[i]))
            return true;
    return false;
}

static enum status no_such_profile(uint32_t batch, const struct plan *plan, struct error *err)
{
    char list[200] = "";
    for (uint32_t i = 0, used = 0; i < plan->n_profiles && used < sizeof(list) - 16; i++) {
        if (i && !plan_same_point(plan, &plan->profiles[i], &plan->profiles[0]))
            break; /* all points have the same */
        used += (uint32_t)snprintf(list + used, sizeof(list) - used, "%s%u", i ? ", " : "",
                                   plan->profiles[i].batch);
    }
    return error_set(err, STATUS_NOT_FOUND, "--batch %u: the plan has profiles for %s", batch,
                     list);
}

static enum status inspect_plan(const struct inspect_args *args, const char *path,
                                struct error *err)
{
    CLEANUP(plan_cleanup) struct plan *plan = NULL;
    TRY(model_args_check(&args->model, path, err));
    TRY(model_plugins_load(&args->model, err));
    TRY(plan_read(path, &plan, err));
    if (!has_profile(args, plan))
        return no_such_profile(args->batch, plan, err);
    if (args->json)
        print_json(plan, args);
    else
        print_text(plan, args);
    return STATUS_OK;
}

static enum status inspect_model(const struct inspect_args *args, const char *path, int *rc,
                                 struct error *err)
{
    struct onnx_survey *survey;
    TRY(model_survey(path, &args->model, args->batch ? args->batch : 1, &survey, err));
    inspect_model_print(path, survey, args->json);
    *rc = survey->n_refused ? EXIT_FAILED : EXIT_OK;
    onnx_survey_free(survey);
    return STATUS_OK;
}

int command_inspect(int argc, char **argv)
{
    struct inspect_args args = {0};
    struct arg_texts files;
    struct error err;
    int rc = args_parse(&spec, argc, argv, &args, &files);
    if (rc >= 0)
        return rc;
    const char *path = files.list[0];
    rc = EXIT_OK;
    enum status status = model_is_plan(path) ? inspect_plan(&args, path, &err)
                                             : inspect_model(&args, path, &rc, &err);
    return status ? command_failed("inspect", &err) : rc;
}
