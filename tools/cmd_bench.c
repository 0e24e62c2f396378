/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inferctl bench: what the engine does without a daemon. Each context runs on its own thread and
 * lane, one batch behind the other, on random inputs (integers are zeros and ones, those of masks
 * ones) in pinned memory, from which a device copies them, and which the CPU reads in place.
 * --input-copy none measures a device without its copies: inputs stay on it from the warm-up,
 * outputs are left there. Warm-up is not counted. A ragged plan gets a batch of tokens, of
 * sequences as long as may be or of --lengths.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "engine/runtime/layer_times.h"
#include "engine/runtime/memory.h"
#include "tools/bench_trace.h"
#include "tools/inferctl.h"
#include "tools/json.h"
#include "tools/model.h"
#include "tools/output.h"
#include "tools/samples.h"
#include "tools/show.h"
#include "tools/tensor.h"
#include "tools/types.h"

struct bench_args {
    struct model_args model;
    uint32_t batch, contexts;
    double seconds;
    const char *input_copy, *trace, *lengths;
    bool layers, no_capture, json;
};

static const struct arg options[] = {
    {"batch", 'b', ARG_U32, offsetof(struct bench_args, batch), "B",
     "instances in a batch (default: 1)"},
    {"contexts", 'c', ARG_U32, offsetof(struct bench_args, contexts), "N",
     "threads with a context each (default: 1)"},
    {"seconds", 's', ARG_F64, offsetof(struct bench_args, seconds), "S", "how long (default: 5)"},
    {"layers", 0, ARG_FLAG, offsetof(struct bench_args, layers), NULL,
     "also show the time of each layer"},
    {"memory", 0, ARG_FLAG, offsetof(struct bench_args, model.track_memory), NULL,
     "also show the memory taken, by tag and over time"},
    {"input-copy", 0, ARG_TEXT, offsetof(struct bench_args, input_copy), "HOW",
     "pinned (default): inputs and outputs are copied; none: they stay on the device"},
    {"lengths", 0, ARG_TEXT, offsetof(struct bench_args, lengths), "A..B",
     "of a ragged plan's sequences, drawn from A to B (default: as long as may be)"},
    {"no-capture", 0, ARG_FLAG, offsetof(struct bench_args, no_capture), NULL,
     "launch layer by layer instead of one captured graph"},
    {"trace", 0, ARG_TEXT, offsetof(struct bench_args, trace), "FILE",
     "also write what happened when, for chrome://tracing or Perfetto"},
    {"json", 0, ARG_FLAG, offsetof(struct bench_args, json), NULL, "one JSON object"},
    {NULL, 0, ARG_FLAG, 0, NULL, NULL},
};

static const struct args spec = {
    .usage = "inferctl bench MODEL|PLAN [--batch B] [--contexts N] [--seconds S] [options]",
    .what = "Measures throughput and latency of an engine in this process.",
    .options = options,
    .min_positional = 1,
    .max_positional = 1,
    .shared = MODEL_TABLES(struct bench_args, model),
};

enum { CONTEXTS_MAX = 256, WARM_UP = 3, SAMPLES_MAX = 1 << 20 /* of all contexts */ };

/* What is measured of each batch: the times that the device reports, and the latency. */
enum { INPUT, COMPUTE, OUTPUT, LATENCY, N_SERIES };
static const char *const part_keys[LATENCY] = {"input_p50_us", "compute_p50_us", "output_p50_us"};

struct bench {
    const struct bench_args *args;
    struct model model;
    uint32_t batch, point;
    bool resident;                   /* inputs and outputs are not copied */
    struct engine_request *requests; /* a sequence each, by --lengths; NULL: nothing is said */
    uint32_t n_requests;
    struct trace_base *base;
    pthread_barrier_t start;
    struct memory_view memory; /* if it is asked for */
    uint64_t begin_ns, end_ns; /* written by the first runner between two barriers */
    atomic_bool failed;        /* relaxed; ends the other runners early */
};

/* What one thread has. */
struct runner {
    struct bench *bench;
    uint32_t index;
    pthread_t thread;
    struct lane *lane;
    struct context *ctx;
    void *inputs[IR_MAX_IO], *output;
    struct engine_span spans[IR_MAX_IO], *parts[IR_MAX_IO]; /* parts: of each request */
    struct engine_input bound[IR_MAX_IO];
    struct samples series[N_SERIES];
    struct bench_trace trace;
    uint64_t ready_ns, first_ns; /* to make the context, to run its first batch */
    uint64_t last_ns;            /* when its last batch ended */
    enum status status;
    struct error err;
};

/* The requests' parts of an input, one behind the other; `bytes`: of all. */
static enum status make_parts(struct runner *r, uint32_t input, size_t *bytes)
{
    struct bench *b = r->bench;
    const struct engine_info *info = engine_describe(b->model.engine);
    r->parts[input] = calloc(b->n_requests, sizeof(*r->parts[input]));
    *bytes = 0;
    if (!r->parts[input])
        return error_no_memory(&r->err, "the requests");
    for (uint32_t k = 0; k < b->n_requests; k++) {
        const struct engine_request *request = &b->requests[k];
        struct shape shape =
            engine_shape_of(info, engine_input_axes(info, input), &info->inputs[input].shape,
                            request->instances, request->values);
        size_t size = 0;
        if (!shape_bytes(&shape, info->inputs[input].dtype, &size))
            return error_no_memory(&r->err, "the requests");
        r->parts[input][k].size = size;
        *bytes += size;
    }
    return STATUS_OK;
}

/* One sequence a request. Nothing but zeros hides tokens. */
static enum status make_ragged_input(struct runner *r, uint32_t input, uint64_t *seed)
{
    struct bench *b = r->bench;
    const struct engine_info *info = engine_describe(b->model.engine);
    size_t bytes = 0, at = 0;
    TRY(make_parts(r, input, &bytes));
    TRY(engine_buffer_alloc(b->model.device, MAX(bytes, (size_t)1), "input", &r->inputs[input],
                            &r->err));
    if (input == info->ragged->mask)
        memset(r->inputs[input], 1, bytes);
    else
        tensor_random(r->inputs[input], bytes / dtype_size(info->inputs[input].dtype),
                      info->inputs[input].dtype, seed);
    for (uint32_t k = 0; k < b->n_requests; at += r->parts[input][k++].size)
        r->parts[input][k].data = (char *)r->inputs[input] + at;
    r->bound[input] = (struct engine_input){r->parts[input], b->n_requests};
    return STATUS_OK;
}

/* Random numbers; but integers of what is named a mask are ones, which hide nothing. */
static void fill_input(const struct engine_binding *input, void *to, size_t bytes, uint64_t *seed)
{
    size_t size = dtype_size(input->dtype);
    int64_t one = 1; /* little-endian */
    if (dtype_is_float(input->dtype) || !strcasestr(input->name, "mask"))
        tensor_random(to, bytes / size, input->dtype, seed);
    else
        for (size_t i = 0; i < bytes / size; i++)
            memcpy((char *)to + i * size, &one, size);
}

static enum status make_inputs(struct runner *r)
{
    struct bench *b = r->bench;
    const struct engine_info *info = engine_describe(b->model.engine);
    uint64_t seed = 1 + r->index;
    for (uint32_t i = 0; i < info->n_inputs; i++) {
        if (b->requests) {
            TRY(make_ragged_input(r, i, &seed));
            continue;
        }
        size_t bytes = engine_point_inputs(info, b->point)[i].instance_bytes *
                       engine_count_of(info, engine_input_axes(info, i), b->batch);
        TRY(engine_buffer_alloc(b->model.device, bytes ? bytes : 1, "input", &r->inputs[i],
                                &r->err));
        fill_input(&info->inputs[i], r->inputs[i], bytes, &seed);
        r->spans[i] = (struct engine_span){r->inputs[i], bytes};
        r->bound[i] = (struct engine_input){&r->spans[i], 1};
    }
    return engine_buffer_alloc(b->model.device, MAX(info->out_bytes_max, (size_t)64), "output",
                               &r->output, &r->err);
}

static enum status run_one(struct runner *r, bool resident, struct engine_times *times)
{
    const struct bench *b = r->bench;
    const struct engine_batch batch = {.point = b->point,
                                       .instances = b->batch,
                                       .requests = b->requests,
                                       .n_requests = b->n_requests};
    if (b->requests && !resident)
        TRY(context_enqueue_batch(r->ctx, &batch, r->bound, r->output, &r->err));
    else
        TRY(context_enqueue_at(r->ctx, b->point, b->batch, resident ? NULL : r->bound,
                               resident ? NULL : r->output, &r->err));
    return context_wait(r->ctx, times, &r->err);
}

static enum status prepare(struct runner *r)
{
    struct bench *b = r->bench;
    struct context_options wanted = {.batch = b->batch, .no_capture = b->args->no_capture};
    TRY(lane_new(b->model.device, &r->lane, &r->err));
    uint64_t begin_ns = clock_now_ns();
    TRY(context_new_with(b->model.engine, r->lane, &wanted, &r->ctx, &r->err));
    r->ready_ns = clock_now_ns() - begin_ns;
    TRY(make_inputs(r));
    for (int i = 0; i < WARM_UP; i++) {
        begin_ns = clock_now_ns();
        TRY(run_one(r, false, NULL));
        if (i == 0)
            r->first_ns = clock_now_ns() - begin_ns;
    }
    for (int k = 0; k < N_SERIES; k++)
        TRY(samples_init(&r->series[k], SAMPLES_MAX / b->args->contexts, &r->err));
    if (b->args->layers)
        TRY(context_layer_times_start(r->ctx, &r->err));
    return b->args->trace ? bench_trace_init(&r->trace, &r->err) : STATUS_OK;
}

/* Runs one batch and adds the times that the device reports. */
static enum status measure_one(struct runner *r)
{
    struct bench *b = r->bench;
    struct engine_times times;
    TRY(run_one(r, b->resident, &times));
    samples_add(&r->series[INPUT], times.input_ns);
    samples_add(&r->series[COMPUTE], times.compute_ns);
    samples_add(&r->series[OUTPUT], times.output_ns);
    return b->base ? bench_trace_add(&r->trace, r->ctx, b->base, &r->err) : STATUS_OK;
}

static void measure(struct runner *r)
{
    struct bench *b = r->bench;
    uint64_t before = clock_now_ns();
    while (before < b->end_ns && !atomic_load_explicit(&b->failed, memory_order_relaxed)) {
        r->status = measure_one(r);
        if (r->status) {
            atomic_store_explicit(&b->failed, true, memory_order_relaxed);
            return;
        }
        uint64_t now = clock_now_ns();
        samples_add(&r->series[LATENCY], now - before);
        before = now;
    }
    r->last_ns = before;
}

static void *runner_main(void *arg)
{
    struct runner *r = arg;
    struct bench *b = r->bench;
    r->status = prepare(r);
    if (r->status)
        atomic_store_explicit(&b->failed, true, memory_order_relaxed);
    pthread_barrier_wait(&b->start);
    if (r->index == 0) {
        b->begin_ns = clock_now_ns();
        b->end_ns = b->begin_ns + (uint64_t)(b->args->seconds * NS_PER_S);
    }
    pthread_barrier_wait(&b->start);
    measure(r);
    return NULL;
}

/* Only when the report is made: it reads the layer times in the contexts. */
static void runner_deinit(struct runner *r)
{
    for (uint32_t i = 0; i < IR_MAX_IO; i++) {
        engine_buffer_free(r->bench->model.device, r->inputs[i]);
        free(r->parts[i]);
    }
    engine_buffer_free(r->bench->model.device, r->output);
    context_free(r->ctx);
    lane_free(r->lane);
    bench_trace_deinit(&r->trace);
    for (int k = 0; k < N_SERIES; k++)
        samples_deinit(&r->series[k]);
}

/* --- results --- */

struct result {
    struct samples series[N_SERIES];
    double throughput, seconds;
};

static double us(uint64_t ns)
{
    return (double)ns / NS_PER_US;
}

static double quantile_us(const struct result *result, int series, double q)
{
    return us(samples_quantile(&result->series[series], q));
}

/* The timed layers of a context's profile. */
struct listing {
    const struct layer_time *layers;
    const struct ir_graph *graph;
    uint32_t n;
};

static struct listing list_layers(const struct context *ctx, const struct engine *engine,
                                  uint32_t point, uint32_t batch)
{
    struct listing l = {.graph = engine_graph_for(engine, point, batch)};
    l.layers = context_layer_times(ctx, point, batch, &l.n);
    return l;
}

static struct listing layers_of(const struct runner *r)
{
    return list_layers(r->ctx, r->bench->model.engine, r->bench->point, r->bench->batch);
}

/* Loop number `index` of the tail; false: there is none. */
static bool loop_of(const struct runner *r, uint32_t index, const char **name, struct listing *out)
{
    const struct engine *engine;
    const struct context *loop =
        context_loop(r->ctx, r->bench->point, r->bench->batch, index, &engine);
    if (!loop)
        return false;
    *name = engine_describe(engine)->name;
    *out = list_layers(loop, engine, 0, 1);
    return true;
}

static uint64_t loop_runs(const struct listing *loop)
{
    return loop->n ? loop->layers[0].runs : 0;
}

static void print_listing_json(struct json *j, const struct listing *l)
{
    json_list(j, "layers");
    for (uint32_t i = 0; i < l->n; i++) {
        const struct layer_time *layer = &l->layers[i];
        json_object(j, NULL);
        json_text(j, "name", layer->node->name);
        json_text(j, "op", ir_op_name(layer->node->op));
        json_text(j, "tactic", layer->node->tactic->name);
        json_text(j, "precision", dtype_name(types_of_layer(l->graph, layer->node)));
        json_real(j, "mean_us", us(layer->total_ns) / (double)MAX(layer->runs, 1u));
        json_real(j, "min_us", us(layer->min_ns));
        json_end(j);
    }
    json_end(j);
}

static void print_layers_json(struct json *j, const struct runner *r)
{
    struct listing l = layers_of(r);
    uint64_t ns, runs = context_tail_runs(r->ctx, &ns);
    const char *name;
    print_listing_json(j, &l);
    if (!runs)
        return;
    json_real(j, "tail_us", us(ns) / (double)runs);
    json_list(j, "loops");
    for (uint32_t i = 0; loop_of(r, i, &name, &l); i++) {
        json_object(j, NULL);
        json_text(j, "name", name);
        json_real(j, "iterations", (double)loop_runs(&l) / (double)runs);
        print_listing_json(j, &l);
        json_end(j);
    }
    json_end(j);
}

static size_t read_tags(struct bench *b, struct memory_tag *tags, size_t max)
{
    return MIN(memory_track_tags(b->model.device, tags, max), max);
}

static const char *where(const struct bench *b, const struct memory_tag *tag)
{
    bool apart = engine_device_apart(b->model.device);
    return apart && tag->kind == MEMORY_DEVICE ? "device" : "host";
}

static void print_json(struct bench *b, const struct result *result, const struct runner *first)
{
    struct json j;
    struct memory_tag tags[32];
    json_init(&j, stdout);
    json_object(&j, NULL);
    json_text(&j, "model", engine_describe(b->model.engine)->name);
    json_text(&j, "device", engine_describe(b->model.engine)->device);
    json_uint(&j, "batch", b->batch);
    json_uint(&j, "contexts", b->args->contexts);
    json_real(&j, "seconds", result->seconds);
    json_real(&j, "throughput", result->throughput);
    if (b->requests)
        json_real(&j, "sequences_s", result->throughput / b->batch * b->n_requests);
    json_real(&j, "mean_us", samples_mean(&result->series[LATENCY]) / NS_PER_US);
    json_real(&j, "min_us", us(result->series[LATENCY].min));
    json_real(&j, "p50_us", quantile_us(result, LATENCY, 0.5));
    json_real(&j, "p90_us", quantile_us(result, LATENCY, 0.9));
    json_real(&j, "p99_us", quantile_us(result, LATENCY, 0.99));
    json_real(&j, "max_us", us(result->series[LATENCY].max));
    json_text(&j, "input_copy", b->resident ? "none" : "pinned");
    for (int i = 0; i < LATENCY; i++)
        json_real(&j, part_keys[i], quantile_us(result, i, 0.5));
    json_real(&j, "load_ms", (double)b->model.load_ns / NS_PER_MS);
    json_real(&j, "ready_ms", (double)first->ready_ns / NS_PER_MS);
    json_real(&j, "first_us", us(first->first_ns));
    if (b->args->layers)
        print_layers_json(&j, first);
    if (b->args->model.track_memory) {
        json_list(&j, "memory");
        for (size_t i = 0, n = read_tags(b, tags, ARRAY_LEN(tags)); i < n; i++) {
            json_object(&j, NULL);
            json_text(&j, "tag", tags[i].tag);
            json_text(&j, "where", where(b, &tags[i]));
            json_uint(&j, "peak_bytes", tags[i].peak);
            json_uint(&j, "count", tags[i].count);
            json_end(&j);
        }
        json_end(&j);
        memory_view_json(&b->memory, &j);
    }
    json_end(&j);
}

static uint64_t time_of(const struct listing *l)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < l->n; i++)
        sum += l->layers[i].total_ns;
    return sum;
}

static void print_listing(const struct listing *l, uint64_t whole)
{
    int width = (int)strlen("tactic");
    for (uint32_t i = 0; i < l->n; i++)
        width = MAX(width, (int)strlen(l->layers[i].node->tactic->name));
    printf("\n%10s %10s %6s  %-10s %-5s  %-*s  %s\n", "mean us", "min us", "%", "op", "type", width,
           "tactic", "layer");
    for (uint32_t i = 0; i < l->n; i++) {
        const struct layer_time *layer = &l->layers[i];
        show_printf("%10.1f %10.1f %6.1f  %-10s %-5s  %-*s  %s\n",
                    us(layer->total_ns) / (double)MAX(layer->runs, 1u), us(layer->min_ns),
                    whole ? 100.0 * (double)layer->total_ns / (double)whole : 0.0,
                    ir_op_name(layer->node->op), dtype_name(types_of_layer(l->graph, layer->node)),
                    width, layer->node->tactic->name, layer->node->name);
    }
}

/* The layers; then the tail, if there is one, with the layers of its loops' iterations. Shares are
 * of all of it. */
static void print_layers(const struct runner *r)
{
    struct listing l = layers_of(r);
    uint64_t ns, runs = context_tail_runs(r->ctx, &ns), whole = time_of(&l) + ns;
    const char *name;
    print_listing(&l, whole);
    if (!runs)
        return;
    printf("\n%10.1f %10s %6.1f  the tail: what runs behind the layers\n", us(ns) / (double)runs,
           "", 100.0 * (double)ns / (double)whole);
    for (uint32_t i = 0; loop_of(r, i, &name, &l); i++) {
        show_printf("\n%10.1f iterations of loop '%s', %.1f us each, %.1f of them layers:\n",
                    (double)loop_runs(&l) / (double)runs, name,
                    us(ns) / (double)MAX(loop_runs(&l), 1u),
                    us(time_of(&l)) / (double)MAX(loop_runs(&l), 1u));
        print_listing(&l, whole);
    }
}

static void print_text(struct bench *b, const struct result *result, const struct runner *first)
{
    struct memory_tag tags[32];
    printf("batch %u, %u context%s, %.1f s: %.1f instances/s, latency of a batch "
           "p50 %.0f us, p90 %.0f us, p99 %.0f us, max %.0f us\n",
           b->batch, b->args->contexts, b->args->contexts == 1 ? "" : "s", result->seconds,
           result->throughput, quantile_us(result, LATENCY, 0.5), quantile_us(result, LATENCY, 0.9),
           quantile_us(result, LATENCY, 0.99), us(result->series[LATENCY].max));
    if (b->requests)
        printf("%u sequences of %.1f tokens in the mean: %.1f sequences/s\n", b->n_requests,
               (double)b->batch / b->n_requests, result->throughput / b->batch * b->n_requests);
    if (engine_device_apart(b->model.device))
        printf("on the device, p50: input copy %.1f us, compute %.1f us, output copy %.1f us\n",
               quantile_us(result, INPUT, 0.5), quantile_us(result, COMPUTE, 0.5),
               quantile_us(result, OUTPUT, 0.5));
    printf("made ready in %.1f ms\n", (double)(b->model.load_ns + first->ready_ns) / NS_PER_MS);
    if (b->args->layers)
        print_layers(first);
    if (b->args->model.track_memory)
        printf("\n%12s %8s  %-6s  %s\n", "peak KiB", "count", "where", "memory");
    for (size_t i = 0, n = b->args->model.track_memory ? read_tags(b, tags, ARRAY_LEN(tags)) : 0;
         i < n; i++)
        show_printf("%12.1f %8llu  %-6s  %s\n", (double)tags[i].peak / 1024,
                    (unsigned long long)tags[i].count, where(b, &tags[i]), tags[i].tag);
    if (b->args->model.track_memory)
        memory_view_print(&b->memory, b->args->layers);
}

static enum status write_trace(struct bench *b, const struct runner *runners, struct error *err)
{
    const struct bench_trace *traces[CONTEXTS_MAX];
    bool full = false;
    for (uint32_t i = 0; i < b->args->contexts; i++) {
        traces[i] = &runners[i].trace;
        full |= runners[i].trace.full;
    }
    if (full)
        fprintf(stderr, "inferctl bench: the trace has the beginning of the run only\n");
    return bench_trace_write(b->args->trace, traces, b->args->contexts, b->base,
                             b->args->model.track_memory ? &b->memory : NULL, err);
}

static void result_free(struct result **result)
{
    for (int k = 0; *result && k < N_SERIES; k++)
        samples_deinit(&(*result)->series[k]);
    free(*result);
}

static enum status collect(const struct bench *b, struct runner *runners, struct result *result,
                           struct error *err)
{
    uint64_t last = b->begin_ns;
    for (int k = 0; k < N_SERIES; k++) {
        uint32_t n = 2;
        for (uint32_t i = 0; i < b->args->contexts; i++)
            n += runners[i].series[k].n;
        TRY(samples_init(&result->series[k], n, err));
        for (uint32_t i = 0; i < b->args->contexts; i++)
            samples_merge(&result->series[k], &runners[i].series[k]);
        samples_sort(&result->series[k]);
    }
    for (uint32_t i = 0; i < b->args->contexts; i++)
        last = MAX(last, runners[i].last_ns);
    result->seconds = (double)(last - b->begin_ns) / NS_PER_S;
    if (result->seconds > 0)
        result->throughput = (double)result->series[LATENCY].count * b->batch / result->seconds;
    return STATUS_OK;
}

static enum status report(struct bench *b, struct runner *runners, struct error *err)
{
    CLEANUP(result_free) struct result *result = calloc(1, sizeof(*result));
    if (!result)
        return error_no_memory(err, "the results");
    TRY(collect(b, runners, result, err));
    if (b->args->model.track_memory)
        TRY(memory_view_init(&b->memory, b->model.device,
                             engine_graph_for(b->model.engine, b->point, b->batch), err));
    if (b->args->json)
        print_json(b, result, runners);
    else
        print_text(b, result, runners);
    return b->args->trace ? write_trace(b, runners, err) : STATUS_OK;
}

/* --- running --- */

static bool parse_lengths(const char *text, uint32_t *least, uint32_t *most)
{
    const char *dots = strstr(text, "..");
    char first[16];
    snprintf(first, sizeof(first), "%.*s", dots ? (int)MIN(dots - text, 15) : 15, text);
    return args_u32(first, least) && args_u32(dots ? dots + 2 : first, most) && *least >= 1 &&
           *least <= *most;
}

/* As many sequences as fill the batch; the last one is cut. */
static enum status draw_sequences(struct bench *b, struct error *err)
{
    const struct engine_ragged *ragged = engine_describe(b->model.engine)->ragged;
    uint32_t least = 0, most = 0;
    uint64_t seed = 1;
    if (!ragged)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "--lengths is for ragged plans, and this one is not ragged");
    if (!parse_lengths(b->args->lengths, &least, &most) || most > ragged->max_length)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "--lengths '%.32s': the form is A..B, the tokens that sequences have; the "
                         "plan takes up to %lld",
                         b->args->lengths, (long long)ragged->max_length);
    b->requests = calloc(b->batch, sizeof(*b->requests));
    if (!b->requests)
        return error_no_memory(err, "%u sequences", b->batch);
    for (uint32_t tokens = 0; tokens < b->batch;) {
        uint64_t drawn = 0;
        tensor_random(&drawn, 1, DTYPE_U8, &seed); /* 0 to 255 */
        uint32_t length = least + (uint32_t)(drawn * (most - least) / UINT8_MAX);
        length = MIN(length, b->batch - tokens);
        b->requests[b->n_requests++] =
            (struct engine_request){.instances = length, .values = {1, length}};
        tokens += length;
    }
    return STATUS_OK;
}

/* The first failure of a runner, or the report. */
static enum status conclude(struct bench *b, struct runner *runners, struct error *err)
{
    for (uint32_t i = 0; i < b->args->contexts; i++)
        if (runners[i].status)
            return error_copy(err, &runners[i].err);
    return report(b, runners, err);
}

static enum status run_threads(struct bench *b, struct runner *runners, struct error *err)
{
    uint32_t n = b->args->contexts;
    pthread_barrier_init(&b->start, NULL, n);
    for (uint32_t i = 0; i < n; i++) {
        runners[i].bench = b;
        runners[i].index = i;
        /* Threads that wait at the barrier could not be ended, so the program ends. */
        if (pthread_create(&runners[i].thread, NULL, runner_main, &runners[i])) {
            fprintf(stderr, "inferctl bench: cannot start %u threads\n", n);
            exit(EXIT_FAILED);
        }
    }
    for (uint32_t i = 0; i < n; i++)
        pthread_join(runners[i].thread, NULL);
    pthread_barrier_destroy(&b->start);
    enum status status = conclude(b, runners, err);
    for (uint32_t i = 0; i < n; i++)
        runner_deinit(&runners[i]);
    return status;
}

static enum status bench_model(struct bench *b, struct error *err)
{
    CLEANUP(cleanup_free) struct runner *runners = calloc(b->args->contexts, sizeof(*runners));
    if (!runners)
        return error_no_memory(err, "the measurement");
    if (b->args->lengths)
        TRY(draw_sequences(b, err));
    if (b->args->trace)
        TRY(trace_base_new(b->model.device, &b->base, err));
    return run_threads(b, runners, err);
}

static enum status bench(struct bench *b, const char *path, struct error *err)
{
    struct arg_u32s batches = {.n = 1, .list = {b->batch}};
    if (b->args->trace) {
        TRY(output_check(b->args->trace, path, &b->args->model, err));
        TRY(file_writer_try_text(b->args->trace, err));
    }
    TRY(model_open(&b->model, path, &b->args->model, &batches, err));
    b->point = engine_describe(b->model.engine)->n_points - 1; /* the largest */
    enum status status = bench_model(b, err);
    free(b->requests);
    trace_base_free(b->base);
    memory_view_deinit(&b->memory);
    model_close(&b->model);
    return status;
}

int command_bench(int argc, char **argv)
{
    struct bench_args args = {.batch = 1, .contexts = 1, .seconds = 5};
    struct arg_texts files;
    struct error err;
    int rc = args_parse(&spec, argc, argv, &args, &files);
    if (rc >= 0)
        return rc;
    if (args.contexts == 0 || args.contexts > CONTEXTS_MAX) {
        fprintf(stderr, "inferctl bench: --contexts: 1 to %d\n", CONTEXTS_MAX);
        return EXIT_USAGE;
    }
    bool resident = args.input_copy && !strcmp(args.input_copy, "none");
    if (args.input_copy && !resident && strcmp(args.input_copy, "pinned") != 0) {
        fprintf(stderr, "inferctl bench: --input-copy: none or pinned\n");
        return EXIT_USAGE;
    }
    struct bench b = {.args = &args, .batch = args.batch, .resident = resident};
    return bench(&b, files.list[0], &err) ? command_failed("bench", &err) : EXIT_OK;
}
