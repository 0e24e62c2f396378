/* SPDX-License-Identifier: Apache-2.0 */
/* The steps from a model to a plan; see build.h. */
#include "engine/build/build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/cleanup.h"
#include "engine/build/batches.h"
#include "engine/build/fuse.h"
#include "engine/build/instances.h"
#include "engine/build/pads.h"
#include "engine/build/pairs.h"
#include "engine/build/points.h"
#include "engine/build/ragged.h"
#include "engine/build/ranged.h"
#include "engine/build/tails.h"
#include "engine/build/ties.h"
#include "engine/build/watch.h"
#include "engine/engine.h"
#include "engine/passes/pass.h"
#include "engine/tune/pin.h"

/* `max_error`: what healthy networks stay well below. At fp32 and tf32 it is that of the 8 bits
 * that a model asks for itself. */
static const struct {
    const char *name;
    double max_error;
} precisions[] = {{"fp32", 0.15}, {"tf32", 0.15}, {"fp16", 0.02},
                  {"bf16", 0.1},  {"int8", 0.15}, {"fp8", 0.15}};

const char *precision_name(enum precision precision)
{
    return (unsigned)precision < ARRAY_LEN(precisions) ? precisions[precision].name : NULL;
}

double build_max_error(enum precision precision)
{
    return (unsigned)precision < ARRAY_LEN(precisions) ? precisions[precision].max_error : 0.15;
}

struct builder {
    struct onnx_model *model;
    const struct build_options *options;
    struct build_options own; /* what `options` points to: the caller's, with the space's dims */
    struct arena *arena;
    struct build_space space;
    struct build_instances instances;
    struct build_store *store;
    struct build_tails *tails;
    struct tune_history *history;
    struct guard *guard;       /* NULL: off */
    struct device *guard_host; /* a CPU with all cores, beside a device; NULL: none */
    struct plan *plan;
    uint32_t batch, point; /* being built */
    struct build_report report;
    double weight, done_weight, all_weight; /* work: at this profile, at those before, at all */
    bool made;                              /* a profile */
    bool told;   /* the log has the import's lines, which are the same for all profiles */
    bool beyond; /* the profile needs more than max_bytes */
};

/* A larger batch takes longer to build, but not in proportion: some work is the same for all. */
static double weight_of(uint32_t batch)
{
    return 4.0 + batch;
}

static void progress(const struct builder *b, const char *what, uint32_t done, uint32_t total)
{
    double part = b->done_weight + b->weight * done / MAX(total, 1u);
    const struct build_progress at = {b->batch, b->point + 1, b->space.n_points,   what,
                                      done,     total,        part / b->all_weight};
    if (b->options->progress)
        b->options->progress(b->options->user, &at);
}

static void tune_progress(void *user, uint32_t done, uint32_t total, const char *what)
{
    progress(user, strcmp(what, "compiling") ? "tuning" : what, done, total);
}

/* --- graphs --- */

static enum status make_graph(struct onnx_model *model, const struct build_options *options,
                              uint32_t batch, struct build_report *report, struct onnx_tail *tail,
                              struct ir_graph **out, struct error *err)
{
    CLEANUP(ir_graph_cleanup) struct ir_graph *graph = NULL;
    if (options->ragged)
        return build_ragged_graph(model, options, batch, report, out, err);
    CLEANUP(cleanup_free) bool *known = NULL;
    TRY(build_import(model, options, batch, NULL, tail, &graph, err));
    if (report) {
        TRY(build_find_known(graph, options, &known, err));
        TRY(build_fuse_named(graph, options, report, err));
        TRY(build_range(graph, options, known, report, err));
    }
    *out = STEAL(graph);
    return STATUS_OK;
}

/* The caller's options with the values of the largest point. `alone`: as in build_wishes. */
static enum status find_space(struct onnx_model *model, const struct build_options *options,
                              bool alone, struct arena *arena, struct build_space *space,
                              struct build_options *out, struct error *err)
{
    const struct build_wishes wishes = {.alone = alone,
                                        .dims = options->dims,
                                        .n_dims = options->n_dims,
                                        .ranges = options->shapes,
                                        .n_ranges = options->n_shapes,
                                        .sizes = options->sizes,
                                        .n_sizes = options->n_sizes};
    if (!arena)
        return error_no_memory(err, "the builder");
    TRY(build_space_find(model, &wishes, arena, space, err));
    if (space->batch_differs) {
        TRY(find_space(model, options, true, arena, space, out, err));
        space->batch_differs = true;
        return STATUS_OK;
    }
    *out = *options;
    out->dims = space->dims;
    out->n_dims = space->n_dims;
    out->said = space->said;
    return build_ties_find(model, out, arena, space, err);
}

enum status build_graph(struct onnx_model *model, const struct build_options *options,
                        uint32_t batch, bool fused, struct ir_graph **out, struct error *err)
{
    struct build_report unread;
    struct build_space space;
    struct build_options own;
    if (options->ragged) {
        TRY(build_ragged_check(model, options, err));
        return build_ragged_graph(model, options, batch, fused ? &unread : NULL, out, err);
    }
    CLEANUP(arena_cleanup) struct arena *arena = arena_new(0);
    TRY(find_space(model, options, false, arena, &space, &own, err));
    CLEANUP(build_tail_cleanup) struct onnx_tail tail = {.n_nodes = 0}; /* only runs need it */
    return make_graph(model, &own, batch, fused ? &unread : NULL, &tail, out, err);
}

/* --- instances --- */

/* A value for the batch dimension would fix the model's number of instances. It is refused if the
 * model is batched without it: --batch is meant then. A first dimension that is time or a size may
 * be given. */
static enum status batch_dim_check(struct builder *b, struct error *err)
{
    struct build_options without = *b->options;
    struct onnx_dim others[256];
    const struct onnx_dim *batch = NULL;
    without.n_dims = 0;
    without.log = NULL;
    for (uint32_t i = 0; i < b->options->n_dims && i < ARRAY_LEN(others); i++)
        if (onnx_is_batch_dim(b->model, b->options->dims[i].name))
            batch = &b->options->dims[i];
        else
            others[without.n_dims++] = b->options->dims[i];
    bool named;
    without.dims = others;
    if (!batch || !build_looks_batched(b->model, &without, &named))
        return STATUS_OK;
    struct error unread;
    struct build_instances free_of_it; /* says nothing */
    if (build_instances_find(b->model, &without, &free_of_it, &unread) || !free_of_it.batched)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID_ARGUMENT,
                     "--dim %.64s=%lld: '%.64s' counts instances; give --batch %lld, or several "
                     "sizes with commas between",
                     batch->name, (long long)batch->value, batch->name, (long long)batch->value);
}

enum { PROFILE_TEXT = 256 };

/* "batch 8", "batch 8, seq=64". */
static const char *profile_text(const struct builder *b, char out[PROFILE_TEXT])
{
    int n = snprintf(out, PROFILE_TEXT, "batch %u", b->batch);
    for (uint32_t i = 0; i < b->space.n_free && n < PROFILE_TEXT; i++)
        n += snprintf(out + n, (size_t)(PROFILE_TEXT - n), ", %.40s=%lld", b->space.free[i].name,
                      (long long)b->space.points[b->point][i]);
    return out;
}

static enum status bounds_check(struct builder *b, const struct ir_graph *graph, struct error *err)
{
    enum status status = build_bounds_check(graph, b->options->max_bytes, err);
    b->beyond = status == STATUS_FAILED_PRECONDITION;
    char text[PROFILE_TEXT];
    if (b->beyond)
        error_prefix(err, "%s", profile_text(b, text));
    return status;
}

static enum status fits_check(struct builder *b, const struct ir_graph *graph, struct error *err)
{
    enum status status = build_fits_check(graph, b->options->max_bytes, err);
    char text[PROFILE_TEXT];
    b->beyond = status == STATUS_FAILED_PRECONDITION;
    if (b->beyond)
        error_prefix(err, "%s", profile_text(b, text));
    return status;
}

/* Imports the profile's graph and tunes it, or *joined, as build_tune_pairs does. *again: there is
 * no graph yet, because a convolution and its pool have to be two nodes (watch.h). `import` says so
 * from here on, and so do the options of the profiles to come. */
static enum status tune_profile(struct builder *b, struct build_options *import,
                                const struct tune_options *options, struct tune_report *report,
                                struct plan_profile *out, struct ir_graph **graph,
                                struct ir_graph **joined, bool *again, struct error *err)
{
    struct tune_options tune = *options;
    struct build_watch watch = {.ended = false};
    CLEANUP(build_tail_cleanup)
    struct onnx_tail tail = {.keep = build_tails_keep, .user = b->tails};
    TRY(make_graph(b->model, import, out->batch, &b->report, &tail, graph, err));
    TRY(bounds_check(b, *graph, err)); /* before the tuner takes memory for tensors */
    if (tune.judge) {
        build_watch_init(&watch, tune.judge, WATCH_OP(IR_OP_CONV_POOL), NULL, NULL);
        tune.judge = &watch.judge;
    }
    TRY(build_tune_pairs(*graph, import, &tune, &b->report, report, joined, err));
    *again = watch.ended;
    if (!watch.ended)
        return build_tails_add(b->tails, &tail, *graph, out, err);
    log_write(b->options->log, LOG_INFO,
              "the first convolution and its pool: two nodes again, since they are held back from "
              "16 bits");
    import->stems_apart = b->own.stems_apart = true;
    import->log = NULL; /* it was told of the passes */
    ir_graph_free(STEAL(*joined));
    ir_graph_free(STEAL(*graph));
    return STATUS_OK;
}

/* Sets graph and tensor_bytes of the profile out->batch. */
static enum status make_profile(struct builder *b, struct build_options *import,
                                struct tune_report *report, struct plan_profile *out,
                                struct error *err)
{
    const struct build_options *o = b->options;
    CLEANUP(ir_graph_cleanup) struct ir_graph *graph = NULL;
    CLEANUP(ir_graph_cleanup) struct ir_graph *joined = NULL;
    build_space_set(&b->space, out->values);
    const struct tune_options tune = {
        .device = o->device,
        .host = o->host,
        .history = b->history,
        .precision = o->precision,
        .no_timing = o->no_timing,
        .retune = o->retune,
        .thorough = o->thorough,
        .workspace = o->workspace,
        .pins = o->pins,
        .min_segment = o->min_segment,
        .cache = o->cache,
        .judge = b->guard ? guard_judge(b->guard) : NULL,
        .seed = out->batch,
        .log = o->log,
        .progress = tune_progress,
        .user = b,
    };
    if (b->guard)
        guard_set_batch(b->guard,
                        b->plan->batched && !o->ragged && build_instances_first(&b->instances)
                            ? out->batch
                            : 0);
    for (bool again = true; again;)
        TRY(tune_profile(b, import, &tune, report, out, &graph, &joined, &again, err));
    struct ir_graph **tuned = joined ? &joined : &graph;
    TRY(build_place(*tuned, &out->tensor_bytes, err));
    TRY(fits_check(b, *tuned, err));
    return build_store_graph(b->store, STEAL(*tuned), &out->graph, err);
}

static enum status build_profile(struct builder *b, uint32_t batch, struct plan_profile *out,
                                 struct error *err)
{
    struct plan_profile profile = {.batch = batch};
    memcpy(profile.values, b->space.points[b->point], sizeof(profile.values));
    struct tune_report report = {0};
    struct build_options import = *b->options;
    if (b->told)
        import.log = NULL;
    b->told = true;
    b->beyond = false;
    b->batch = batch;
    b->done_weight += b->weight;
    b->weight = weight_of(batch);
    progress(b, "importing", 0, 1);
    char text[PROFILE_TEXT];
    enum status status = make_profile(b, &import, &report, &profile, err);
    if (status) {
        if (b->space.n_points > 1 && !b->beyond)
            error_prefix(err, "%s", profile_text(b, text));
        return status;
    }
    const struct ir_graph *graph = profile.graph;
    b->report.timed += report.timed;
    b->report.disturbed += report.disturbed;
    b->report.from_cache += report.from_cache;
    b->report.given_up += report.given_up;
    tune_effort_add(&b->report.effort, &report.effort);
    if (batch >= b->report.host_batch)
        memcpy(b->report.host, report.host, sizeof(report.host));
    b->report.host_batch = MAX(b->report.host_batch, batch);
    log_write(b->options->log, LOG_INFO,
              "%s: %u layers, %u reformat%s, %u candidates timed, %u from the cache, %u not "
              "tried, activations %.1f MiB in an arena of %.1f MiB",
              profile_text(b, text), report.nodes, report.reformats,
              report.reformats == 1 ? "" : "s", report.timed, report.from_cache, report.given_up,
              (double)profile.tensor_bytes / (1 << 20),
              graph->n_segments ? (double)graph->segments[0].arena_bytes / (1 << 20) : 0.0);
    *out = profile;
    return STATUS_OK;
}

/* Builds the last point's profile of the largest batch size that fits. Default sizes, which nobody
 * asked for, are left out for all points if they need too much memory there. */
static enum status build_largest(struct builder *b, const uint32_t *batches, uint32_t *n,
                                 struct plan_profile *out, struct error *err)
{
    struct error why;
    b->point = b->space.n_points - 1;
    for (; *n > 1; --*n) {
        if (!build_profile(b, batches[*n - 1], out, &why))
            return STATUS_OK;
        if (!b->beyond || b->options->batches)
            return error_copy(err, &why);
        log_write(b->options->log, LOG_WARNING, "left out: %s", why.text);
        b->all_weight -= b->weight;
        b->weight = 0;
    }
    return b->space.n_points == 1 ? STATUS_OK : build_profile(b, batches[0], out, err);
}

/* Builds what lies between two profiles, halfway first. */
static enum status build_between(struct builder *b, const uint32_t *batches, uint32_t n,
                                 uint32_t from, uint32_t to, struct error *err)
{
    uint32_t at = from + (to - from) / 2;
    if (at == from)
        return STATUS_OK;
    b->point = at / n;
    TRY(build_profile(b, batches[at % n], &b->plan->profiles[at], err));
    TRY(build_between(b, batches, n, from, at, err));
    return build_between(b, batches, n, at, to, err);
}

/* The smallest and the largest are built first, then what is halfway between two that are there:
 * sizes on both sides, near by, show which candidates are not worth trying. */
static enum status build_profiles(struct builder *b, const uint32_t *batches, uint32_t n,
                                  struct error *err)
{
    struct plan *plan = b->plan;
    uint32_t points = b->space.n_points;
    struct plan_profile largest = {.batch = 0};
    if ((uint64_t)n * points > PLAN_MAX_PROFILES)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "%u profiles; at most %d: choose fewer by --profiles or --batch",
                         n * points, PLAN_MAX_PROFILES);
    for (uint32_t i = 0; i < n; i++)
        b->all_weight += points * weight_of(batches[i]);
    b->point = 0;
    plan->n_profiles = 1;
    TRY(build_profile(b, batches[0], &plan->profiles[0], err));
    if (n * points == 1)
        return STATUS_OK;
    uint32_t before = n;
    TRY(build_largest(b, batches, &n, &largest, err));
    for (uint32_t i = n; i < before; i++)
        b->all_weight -= (points - 1) * weight_of(batches[i]);
    uint32_t last = n * points - 1;
    if (last == 0) /* but for the smallest, all were left out */
        return STATUS_OK;
    plan->profiles[last] = largest;
    plan->n_profiles = last + 1; /* those between have no graphs yet */
    return build_between(b, batches, n, 0, last, err);
}

/* --- the plan --- */

/* Whether the dimension has this size at all points. */
static bool is_same(const struct plan *plan, bool input, uint32_t index, uint32_t d, int64_t size)
{
    for (uint32_t p = 0; p < plan->n_profiles; p++) {
        const struct ir_graph *g = plan->profiles[p].graph;
        if (ir_tensor(g, input ? g->inputs[index] : g->outputs[index])->shape.dim[d] != size)
            return false;
    }
    return true;
}

/* What the dimensions of a binding are, by its name in the model; -1 is put where sizes differ. */
static struct plan_axes find_axes(const struct builder *b, bool input, uint32_t index,
                                  const char *name, struct shape *shape)
{
    const struct plan *plan = b->plan;
    struct plan_axes axes = {.shared = false};
    if (plan->batched)
        axes = input ? b->instances.inputs[index] : b->instances.outputs[index];
    for (uint32_t d = 0; d < shape->rank; d++) {
        if (plan->batched && !axes.shared && d == axes.batch) {
            shape->dim[d] = -1;
            continue;
        }
        if (input)
            axes.free[d] = (uint8_t)build_space_free(&b->space, name, d);
        if (axes.free[d] || !is_same(plan, input, index, d, shape->dim[d]))
            shape->dim[d] = -1;
    }
    return axes;
}

static enum status make_bindings(struct builder *b, bool input, struct error *err)
{
    struct plan *plan = b->plan;
    const struct ir_graph *graph = plan->profiles[0].graph;
    struct plan_binding *list = input ? plan->inputs : plan->outputs;
    struct plan_axes *axes = input ? plan->input_axes : plan->output_axes;
    uint32_t n = input ? graph->n_inputs : graph->n_outputs;
    for (uint32_t i = 0; i < n; i++) {
        const struct ir_tensor *t = ir_tensor(graph, input ? graph->inputs[i] : graph->outputs[i]);
        const char *name = NULL;
        if (!input && plan->n_late)
            name = arena_printf(plan->arena, "tail.%u", i);
        else
            TRY(build_binding_name(plan, list, i, t->name, b->options->log, &name, err));
        if (!name)
            return error_no_memory(err, "the builder");
        list[i] = (struct plan_binding){.name = name, .dtype = t->dtype, .shape = t->shape};
        axes[i] = find_axes(b, input, i, t->name, &list[i].shape);
    }
    *(input ? &plan->n_inputs : &plan->n_outputs) = n;
    return STATUS_OK;
}

/* --- padding --- */

static enum status graph_at(void *user, const int64_t *values, struct ir_graph **out,
                            struct error *err)
{
    struct builder *b = user;
    struct build_report unread;
    struct build_options quiet = *b->options;
    quiet.log = NULL;
    quiet.layers_apart = true; /* a larger point may have a chain apart; they compute the same */
    build_space_set(&b->space, values);
    uint32_t batch =
        b->plan->batched ? MIN(b->plan->profiles[b->plan->n_profiles - 1].batch, 2u) : 1;
    return make_graph(b->model, &quiet, batch, &unread, NULL, out, err); /* tails are not padded */
}

static uint8_t mask_of(const struct along_result *proof, uint32_t input)
{
    return proof->whole >> input & 1   ? ENGINE_MASK_WHOLE
           : proof->first >> input & 1 ? ENGINE_MASK_FIRST
           : proof->masks >> input & 1 ? ENGINE_MASK_ROWS
                                       : ENGINE_MASK_NONE;
}

/* Finds which sizes a larger point may run, and which dimensions of outputs shrink with them. */
static enum status find_pads(struct builder *b, struct error *err)
{
    struct plan *plan = b->plan;
    for (uint32_t f = 0; f < plan->n_free; f++) {
        struct build_pads found;
        TRY(build_pads_find(&b->space, f, graph_at, b, &found, err));
        plan->free[f].pads = found.pads;
        for (uint32_t i = 0; found.pads && i < plan->n_inputs; i++)
            plan->input_axes[i].mask = MAX(plan->input_axes[i].mask, mask_of(&found.result, i));
        for (uint32_t i = 0; found.pads && i < plan->n_outputs; i++)
            for (uint32_t d = 0; d < SHAPE_MAX_RANK; d++)
                if (found.result.out[i] >> d & 1) {
                    plan->output_axes[i].free[d] = (uint8_t)(f + 1);
                    plan->outputs[i].shape.dim[d] = -1; /* also if all points have one size */
                }
        if (found.pads)
            log_write(b->options->log, LOG_INFO,
                      "'%s': a request of another size runs padded, at the next larger point",
                      plan->free[f].name);
        else if (found.result.why[0])
            log_write(b->options->log, LOG_INFO, "'%s': sizes are not padded: %s",
                      plan->free[f].name, found.result.why);
    }
    return STATUS_OK;
}

static enum status make_free(struct builder *b, struct error *err)
{
    struct plan *plan = b->plan;
    for (uint32_t i = 0; i < b->space.n_free; i++) {
        plan->free[i] = b->space.free[i];
        plan->free[i].name = arena_strndup(plan->arena, b->space.free[i].name, BUILD_NAME_MAX);
        if (!plan->free[i].name)
            return error_no_memory(err, "the builder");
    }
    plan->n_free = b->space.n_free;
    for (uint32_t i = 0; i < plan->n_free; i++)
        plan->free[i].pads = plan->free[i].pads && !plan->n_late; /* a tail reads real sizes */
    return STATUS_OK;
}

bool build_is_valued(const struct build_options *options, const char *input)
{
    for (uint32_t i = 0; i < options->n_values; i++)
        if (!strcmp(options->values[i].name, input))
            return true;
    return false;
}

void build_digest(const struct onnx_model *model, char out[PLAN_DIGEST_MAX])
{
    static const char hex[] = "0123456789abcdef";
    size_t size;
    const void *bytes = onnx_bytes(model, &size);
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, XXH3_128bits(bytes, size));
    for (int i = 0; i < 16; i++) {
        out[2 * i] = hex[c.digest[i] >> 4];
        out[2 * i + 1] = hex[c.digest[i] & 15];
    }
    out[32] = '\0';
}

void build_put_device(struct plan *plan, struct device *on, struct device *host)
{
    char device[FINGERPRINT_MAX] = "", host_line[FINGERPRINT_MAX] = "";
    bool both = host && plan_needs_host(plan, on->backend->name);
    on->backend->device_fingerprint(on, device);
    if (both)
        host->backend->device_fingerprint(host, host_line);
    plan_device_line(plan->device, device, both ? host_line : NULL);
}

/* --- precision --- */

/* What the device can do of a precision with 8 bits, and whose ranges they are. */
static enum status check_precision(const struct builder *b, struct error *err)
{
    const struct build_options *o = b->options;
    const struct backend *backend = o->device->backend;
    char digest[PLAN_DIGEST_MAX];
    if (build_emulates(o))
        log_write(
            o->log, LOG_WARNING,
            "precision fp8: the %s backend has no kernels for 8-bit floats: products round to "
            "them and compute in %s, which shows what FP8 costs, and is slower",
            backend->name, precision_name(precision_floats(o->precision, backend)));
    else if (precision_is_8bit(o->precision) &&
             !(backend->features & (BACKEND_SCALES | BACKEND_F8)))
        log_write(o->log, LOG_WARNING,
                  "precision %s: the %s backend has no kernels for 8 bits: layers stay in %s",
                  precision_name(o->precision), backend->name,
                  precision_name(precision_floats(o->precision, backend)));
    if (!o->ranges)
        return STATUS_OK;
    const char *of = quant_table_model(o->ranges);
    build_digest(b->model, digest);
    if (!precision_is_8bit(o->precision))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "ranges are for the precisions int8 and fp8, not for %s",
                         precision_name(o->precision));
    if (strcmp(of, "any") != 0 && strcmp(of, digest) != 0)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "the ranges are those of another model: %s, and this one is %s: calibrate "
                         "again",
                         of, digest);
    return STATUS_OK;
}

static void tell_disturbed(const struct builder *b)
{
    const struct build_report *r = &b->report;
    if (r->disturbed)
        log_write(b->options->log, LOG_WARNING,
                  "%u of %u timings were disturbed by other work on this machine; they are not "
                  "kept: build again when it is idle",
                  r->disturbed, r->timed);
}

/* --- exactness --- */

/* fp32 of the whole model is more than the host's few threads are for. */
static enum status open_guard_host(struct builder *b, struct error *err)
{
    const struct build_options *o = b->options;
    const struct device_options all = {.reference_only = o->host && o->host->reference_only};
    return o->host && o->guard != BUILD_GUARD_OFF
               ? engine_device_open("cpu", &all, &b->guard_host, err)
               : STATUS_OK;
}

/* Random numbers are a guess at what a model will see: not much time is given up for them alone. */
#define MOST_LOSS 0.25

static enum status make_guard(struct builder *b, struct error *err)
{
    const struct build_options *o = b->options;
    TRY(open_guard_host(b, err));
    double bound = o->max_error > 0 ? o->max_error : build_max_error(o->precision);
    const struct guard_options options = {
        .host = b->guard_host                     ? b->guard_host
                : o->device->backend->host_memory ? o->device
                                                  : NULL,
        .bound = o->guard == BUILD_GUARD_MEASURE ? GUARD_NO_BOUND : bound,
        .most_loss = o->max_error > 0 || o->samples ? 1 : MOST_LOSS,
        .source = o->samples,
        .seed = 1,
        .log = o->log,
    };
    return o->guard == BUILD_GUARD_OFF ? STATUS_OK : guard_new(&options, &b->guard, err);
}

/* Three digits: the rest differs from machine to machine, and says nothing. */
static float rounded(double value)
{
    char text[32];
    snprintf(text, sizeof(text), "%.3g", value);
    return strtof(text, NULL);
}

static enum status put_held(struct plan *plan, const struct guard_report *r, struct error *err)
{
    struct plan_exactness *e = &plan->exactness;
    uint32_t n = MIN(r->n_held, (uint32_t)PLAN_MAX_HELD);
    struct plan_held *held = arena_array(plan->arena, (size_t)n + 1, sizeof(*held));
    if (!held)
        return error_no_memory(err, "the builder");
    for (uint32_t i = 0; i < n; i++) {
        const struct guard_layer *l = &r->held[i];
        held[i] = (struct plan_held){arena_strndup(plan->arena, l->name, strlen(l->name)), l->type,
                                     rounded(l->error)};
        if (!held[i].layer)
            return error_no_memory(err, "the builder");
    }
    e->held = held;
    e->n_held = n;
    return STATUS_OK;
}

static enum status put_exactness(struct builder *b, struct error *err)
{
    struct plan_exactness *e = &b->plan->exactness;
    struct guard_report r = {0};
    if (b->guard)
        guard_read(b->guard, &r);
    if (b->options->sensitivity)
        b->options->sensitivity(b->options->sensitivity_user, &r);
    if (!r.measured)
        return STATUS_OK;
    e->measured = true;
    e->data = b->options->samples;
    e->samples = r.samples;
    e->bound = rounded(r.bound);
    e->n_outputs = r.n_outputs;
    for (uint32_t i = 0; i < r.n_outputs; i++) {
        e->outputs[i].error = rounded(r.outputs[i].error);
        e->outputs[i].agreement = r.outputs[i].agreement < 0 ? -1 : rounded(r.outputs[i].agreement);
    }
    return put_held(b->plan, &r, err);
}

/* Of those that were asked for; 0: none was. */
static uint32_t largest_batch(const struct build_options *options)
{
    uint32_t most = 0;
    for (uint32_t i = 0; options->batches && i < options->n_batches; i++)
        most = MAX(most, options->batches[i]);
    return most;
}

/* A ragged plan's instances are tokens, whose dimension is the first one of all its tensors. */
static enum status find_tokens(struct builder *b, struct error *err)
{
    TRY(build_ragged_check(b->model, b->options, err));
    b->own = *b->options;
    b->options = &b->own;
    b->space.n_points = 1;
    b->space.points = arena_array(b->arena, 1, sizeof(*b->space.points));
    if (!b->space.points)
        return error_no_memory(err, "the builder");
    b->instances.batched = true;
    return STATUS_OK;
}

static enum status find_instances(struct builder *b, struct error *err)
{
    const struct build_options *wished = b->options;
    TRY(find_space(b->model, wished, false, b->arena, &b->space, &b->own, err));
    b->options = &b->own;
    TRY(check_precision(b, err));
    if (!b->space.batch_differs)
        TRY(batch_dim_check(b, err));
    TRY(build_instances_find(b->model, b->options, &b->instances, err));
    if (b->space.batch_differs)
        snprintf(b->instances.why, sizeof(b->instances.why),
                 "first dimensions of its inputs have different ranges");
    if (b->instances.batched && b->space.batch_sizes)
        return error_set(
            err, STATUS_INVALID_ARGUMENT,
            "--profiles '%.64s': it counts instances, whose sizes are those of --batch",
            b->space.batch_sizes);
    if (!b->instances.batched && b->space.batch_high > 1 && largest_batch(wished) <= 1)
        TRY(find_space(b->model, wished, true, b->arena, &b->space, &b->own, err));
    return STATUS_OK;
}

static enum status fill_plan(struct builder *b, struct error *err)
{
    struct plan *plan = b->plan;
    uint32_t batches[PLAN_MAX_PROFILES] = {0}, n = 0;
    bool ragged = b->options->ragged;
    TRY(ragged ? find_tokens(b, err) : find_instances(b, err));
    plan->batched = b->instances.batched;
    const struct build_batching batching = {b->options, &b->space, plan->batched, b->instances.why};
    TRY(build_batches_choose(&batching, batches, &n, err));
    if (!ragged)
        TRY(build_points_keep(b->model, b->options, batches[0], &b->space, err));
    TRY(make_guard(b, err));
    TRY(build_profiles(b, batches, n, err));
    build_tails_give(b->tails);
    TRY(put_exactness(b, err));
    tell_disturbed(b);
    if (b->options->report)
        *b->options->report = b->report;
    const struct ir_graph *first = plan->profiles[0].graph;
    plan->name = arena_strndup(plan->arena, first->name, strlen(first->name));
    if (!plan->name)
        return error_no_memory(err, "the builder");
    TRY(make_free(b, err));
    TRY(make_bindings(b, true, err));
    TRY(make_bindings(b, false, err));
    if (ragged)
        TRY(build_ragged_describe(b->model, b->options, plan, err));
    TRY(find_pads(b, err));
    build_digest(b->model, plan->digest);
    build_put_device(plan, b->options->device, b->options->host);
    return plan_check(plan, err);
}

enum status build_plan(struct onnx_model *model, const struct build_options *options,
                       struct plan **out, struct error *err)
{
    CLEANUP(arena_cleanup) struct arena *arena = arena_new(0);
    struct builder b = {.model = model, .options = options, .arena = arena};
    TRY(build_store_new(&b.store, err));
    b.plan = plan_new();
    b.history = tune_history_new();
    b.tails = build_tails_new(b.plan, options);
    enum status status =
        b.plan && b.history && b.tails ? fill_plan(&b, err) : error_no_memory(err, "the builder");
    tune_history_free(b.history);
    guard_free(b.guard);
    engine_device_close(b.guard_host);
    build_tails_free(b.tails);
    build_store_unref(b.store);
    if (status) {
        plan_free(b.plan);
        return status;
    }
    *out = b.plan;
    return STATUS_OK;
}
