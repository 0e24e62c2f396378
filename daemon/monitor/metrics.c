/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names and the text, see metrics.h. The numbers of a model are rows of one table; what has
 * more labels than model and version, or is a histogram, has a function.
 */
#include "daemon/monitor/metrics.h"

#include <ctype.h>
#include <inttypes.h>
#include <stddef.h>

#include "base/clock.h"
#include "config/schema.h"

/* --- pieces --- */

static void family(struct text *out, const char *name, const char *type, const char *help)
{
    text_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Exactly: a double would lose the last digits of a sum that has grown for months. */
static void seconds(struct text *out, uint64_t ns)
{
    text_printf(out, "%llu.%09llu", ns / NS_PER_S, ns % NS_PER_S);
}

static void number(struct text *out, const char *name, const char *type, const char *help,
                   double value)
{
    family(out, name, type, help);
    text_printf(out, "%s %.17g\n", name, value);
}

/* `NAMESUFFIX{model="...",version="..."`, without the brace at the end. */
static void model_labels(struct text *out, const char *name, const char *suffix,
                         const struct snapshot_model *model)
{
    text_printf(out, "%s%s{model=\"", name, suffix);
    text_label(out, model->name);
    text_put(out, "\",version=\"");
    text_label(out, model->version);
    text_put(out, "\"");
}

/* --- one number for each model --- */

enum unit { UNIT_NUMBER, UNIT_US, UNIT_S, UNIT_MS_AS_S };

struct row {
    unsigned set;
    const char *name, *type, *help;
    size_t at; /* of a uint64_t in struct snapshot_model */
    enum unit unit;
};

#define AT(member)   offsetof(struct snapshot_model, member)
#define STAGE(stage) AT(times[BODY_##stage].sum_ns)

static const struct row model_rows[] = {
    {METRICS_TRITON, "nv_inference_request_success", "counter",
     "Number of successful inference requests, all batch sizes", AT(ok), UNIT_NUMBER},
    {METRICS_TRITON, "nv_inference_count", "counter",
     "Number of inferences performed (does not include cached requests)", AT(instances),
     UNIT_NUMBER},
    {METRICS_TRITON, "nv_inference_exec_count", "counter",
     "Number of model executions performed (does not include cached requests)", AT(batches),
     UNIT_NUMBER},
    {METRICS_TRITON, "nv_inference_request_duration_us", "counter",
     "Cumulative inference request duration in microseconds (includes cached requests)",
     STAGE(TOTAL), UNIT_US},
    {METRICS_TRITON, "nv_inference_queue_duration_us", "counter",
     "Cumulative inference queuing duration in microseconds (includes cached requests)",
     STAGE(QUEUE), UNIT_US},
    {METRICS_TRITON, "nv_inference_compute_input_duration_us", "counter",
     "Cumulative compute input duration in microseconds (does not include cached requests)",
     STAGE(INPUT), UNIT_US},
    {METRICS_TRITON, "nv_inference_compute_infer_duration_us", "counter",
     "Cumulative compute inference duration in microseconds (does not include cached requests)",
     STAGE(COMPUTE), UNIT_US},
    {METRICS_TRITON, "nv_inference_compute_output_duration_us", "counter",
     "Cumulative inference compute output duration in microseconds (does not include cached "
     "requests)",
     STAGE(OUTPUT), UNIT_US},
    {METRICS_TRITON, "nv_inference_pending_request_count", "gauge",
     "Instantaneous number of pending requests awaiting execution per-model.", AT(queued),
     UNIT_NUMBER},
    {METRICS_TRITON, "nv_model_load_duration_secs", "gauge", "Model load time in seconds",
     AT(load_ns), UNIT_S},
    {METRICS_OWN, "inferd_queue_requests", "gauge", "Requests that wait in the model's queue.",
     AT(queued), UNIT_NUMBER},
    {METRICS_OWN, "inferd_queue_limit_requests", "gauge",
     "Requests that may wait in the model's queue.", AT(queue_limit), UNIT_NUMBER},
    {METRICS_OWN, "inferd_queue_age_seconds", "gauge",
     "How long the oldest request in the model's queue has waited.", AT(queue_age_ns), UNIT_S},
    {METRICS_OWN, "inferd_batch_delay_limit_seconds", "gauge",
     "How long a request may wait for others while a worker is idle (max_delay_us).",
     AT(max_delay_ns), UNIT_S},
    {METRICS_OWN, "inferd_model_load_duration_seconds", "gauge",
     "How long the model took to load, building included.", AT(load_ns), UNIT_S},
    {METRICS_OWN, "inferd_model_weight_bytes", "gauge", "Bytes of the model's weights.",
     AT(weight_bytes), UNIT_NUMBER},
    {METRICS_OWN, "inferd_model_failed_requests_total", "counter",
     "Requests that failed while the model ran.", AT(failed), UNIT_NUMBER},
    {METRICS_OWN, "inferd_model_last_inference_timestamp_seconds", "gauge",
     "When the model ran last, since 1970; 0: never.", AT(last_ms), UNIT_MS_AS_S},
};

static void value(struct text *out, enum unit unit, uint64_t v)
{
    if (unit == UNIT_S)
        seconds(out, v);
    else if (unit == UNIT_MS_AS_S)
        text_printf(out, "%" PRIu64 ".%03" PRIu64, v / 1000, v % 1000);
    else
        text_printf(out, "%llu", v / (unit == UNIT_US ? NS_PER_US : 1ULL));
}

static void row_write(const struct snapshot *s, const struct row *row, struct text *out)
{
    family(out, row->name, row->type, row->help);
    for (uint32_t i = 0; i < s->n_models; i++) {
        const struct snapshot_model *model = &s->models[i];
        if (!model->loaded)
            continue;
        model_labels(out, row->name, "", model);
        text_put(out, "} ");
        value(out, row->unit, *(const uint64_t *)(const void *)((const char *)model + row->at));
        text_put(out, "\n");
    }
}

static void rows_write(const struct snapshot *s, unsigned set, struct text *out)
{
    for (size_t i = 0; i < ARRAY_LEN(model_rows); i++)
        if (model_rows[i].set == set)
            row_write(s, &model_rows[i], out);
}

/* --- histograms --- */

/* In which unit the bounds and the sum of a histogram are. */
static void time_put(struct text *out, uint64_t ns, bool ms)
{
    text_printf(out, "%.12g", (double)ns / (double)(ms ? NS_PER_MS : NS_PER_S));
}

static void times_write(struct text *out, const char *name, const struct snapshot_model *model,
                        enum body_stage_name stage, bool staged, bool ms)
{
    const struct snapshot_times *times = &model->times[stage];
    uint64_t below = 0;
    for (uint32_t b = 0; b <= SNAPSHOT_BOUNDS; b++) {
        below += times->count[b];
        model_labels(out, name, "_bucket", model);
        if (staged)
            text_printf(out, ",stage=\"%s\"", snapshot_stage_name(stage));
        text_put(out, ",le=\"");
        if (b < SNAPSHOT_BOUNDS)
            time_put(out, snapshot_bounds[b], ms);
        else
            text_put(out, "+Inf");
        text_printf(out, "\"} %" PRIu64 "\n", below);
    }
    for (uint32_t k = 0; k < 2; k++) {
        model_labels(out, name, k ? "_count" : "_sum", model);
        if (staged)
            text_printf(out, ",stage=\"%s\"", snapshot_stage_name(stage));
        text_put(out, "} ");
        if (k)
            text_printf(out, "%" PRIu64, below);
        else if (ms)
            time_put(out, times->sum_ns, true);
        else
            seconds(out, times->sum_ns);
        text_put(out, "\n");
    }
}

static void totals_write(const struct snapshot *s, const char *name, const char *help, bool ms,
                         struct text *out)
{
    family(out, name, "histogram", help);
    for (uint32_t i = 0; i < s->n_models; i++)
        if (s->models[i].loaded)
            times_write(out, name, &s->models[i], BODY_TOTAL, false, ms);
}

static void stages_write(const struct snapshot *s, struct text *out)
{
    static const char name[] = "inferd_stage_duration_seconds";
    family(out, name, "histogram",
           "Time of an answered request in each stage: in the queue, and in the gathering of "
           "inputs, the run and the copying of outputs of its batch.");
    for (uint32_t i = 0; i < s->n_models; i++)
        for (uint32_t stage = 0; s->models[i].loaded && stage < BODY_TOTAL; stage++)
            times_write(out, name, &s->models[i], stage, true, false);
}

static void sizes_write(const struct snapshot *s, struct text *out)
{
    static const char name[] = "inferd_batch_instances";
    family(out, name, "histogram", "Instances in the batches that ran.");
    for (uint32_t i = 0; i < s->n_models; i++) {
        const struct snapshot_model *model = &s->models[i];
        uint64_t below = 0;
        for (uint32_t b = 0; model->loaded && b <= SNAPSHOT_SIZES; b++) {
            below += model->sizes[b];
            model_labels(out, name, "_bucket", model);
            if (b < SNAPSHOT_SIZES)
                text_printf(out, ",le=\"%" PRIu32 "\"} %" PRIu64 "\n", snapshot_sizes[b], below);
            else
                text_printf(out, ",le=\"+Inf\"} %" PRIu64 "\n", below);
        }
        if (!model->loaded)
            continue;
        model_labels(out, name, "_sum", model);
        text_printf(out, "} %" PRIu64 "\n", model->instances);
        model_labels(out, name, "_count", model);
        text_printf(out, "} %" PRIu64 "\n", below);
    }
}

/* --- failures --- */

/* Triton's words for why a request failed. */
enum reason { REASON_REJECTED, REASON_CANCELED, REASON_BACKEND, REASON_OTHER, REASONS };

static enum reason reason_of(enum cause cause)
{
    switch (counter_of_cause(cause)) {
    case COUNTER_CANCELLED:
        return REASON_CANCELED;
    case COUNTER_FAILED:
        return REASON_BACKEND;
    case COUNTER_EXPIRED:
    case COUNTER_FRAMES_REFUSED:
    case COUNTER_REJECTED_ADDRESS:
    case COUNTER_REJECTED_DEADLINE:
    case COUNTER_REJECTED_IDENTITY:
    case COUNTER_REJECTED_MEMORY:
    case COUNTER_REJECTED_QUEUE:
    case COUNTER_REJECTED_UNAVAILABLE:
        return REASON_REJECTED;
    default:
        return REASON_OTHER;
    }
}

static void reasons_write(const struct snapshot *s, struct text *out)
{
    static const char *const names[] = {"REJECTED", "CANCELED", "BACKEND", "OTHER"};
    static const char name[] = "nv_inference_request_failure";
    family(out, name, "counter", "Number of failed inference requests, all batch sizes");
    for (uint32_t i = 0; i < s->n_models; i++) {
        const struct snapshot_model *model = &s->models[i];
        uint64_t sums[REASONS] = {[REASON_BACKEND] = model->failed};
        for (uint32_t k = 0; k < CAUSE_COUNT_; k++)
            sums[reason_of(k)] += model->unrun[k];
        for (uint32_t k = 0; model->loaded && k < REASONS; k++) {
            model_labels(out, name, "", model);
            text_printf(out, ",reason=\"%s\"} %" PRIu64 "\n", names[k], sums[k]);
        }
    }
}

static void causes_write(const struct snapshot *s, struct text *out)
{
    static const char name[] = "inferd_model_refused_requests_total";
    char cause[SNAPSHOT_CAUSE];
    family(out, name, "counter",
           "Requests that ended without a result of a run, by the cause; causes that have not "
           "happened are left out.");
    for (uint32_t i = 0; i < s->n_models; i++) {
        const struct snapshot_model *model = &s->models[i];
        for (uint32_t k = 0; model->loaded && k < CAUSE_COUNT_; k++) {
            if (!model->unrun[k])
                continue;
            model_labels(out, name, "", model);
            text_printf(out, ",cause=\"%s\"} %" PRIu64 "\n", snapshot_cause_name(k, cause),
                        model->unrun[k]);
        }
    }
}

/* --- machine --- */

struct gpu_row {
    uint32_t has;
    const char *name, *type, *help;
};

static double gpu_value(const struct gpu *gpu, size_t row)
{
    const double values[] = {gpu->utilization, (double)gpu->memory_total, (double)gpu->memory_used,
                             gpu->power_w,     gpu->power_limit_w,        gpu->energy_j};
    return values[row];
}

static void gpus_write(const struct snapshot *s, struct text *out)
{
    static const struct gpu_row rows[] = {
        {GPU_UTILIZATION, "nv_gpu_utilization", "gauge", "GPU utilization rate [0.0 - 1.0)"},
        {GPU_MEMORY, "nv_gpu_memory_total_bytes", "gauge", "GPU total memory, in bytes"},
        {GPU_MEMORY, "nv_gpu_memory_used_bytes", "gauge", "GPU used memory, in bytes"},
        {GPU_POWER, "nv_gpu_power_usage", "gauge", "GPU power usage in watts"},
        {GPU_LIMIT, "nv_gpu_power_limit", "gauge", "GPU power management limit in watts"},
        {GPU_ENERGY, "nv_energy_consumption", "counter",
         "GPU energy consumption in joules since the driver was last loaded"},
    };
    for (size_t r = 0; r < ARRAY_LEN(rows) && s->n_gpus; r++) {
        family(out, rows[r].name, rows[r].type, rows[r].help);
        for (uint32_t i = 0; i < s->n_gpus; i++) {
            if (!(s->gpus[i].has & rows[r].has))
                continue;
            text_printf(out, "%s{gpu_uuid=\"", rows[r].name);
            text_label(out, s->gpus[i].uuid);
            text_printf(out, "\"} %.17g\n", gpu_value(&s->gpus[i], r));
        }
    }
}

static void machine_write(const struct snapshot *s, struct text *out)
{
    const struct host *host = &s->host;
    if (host->has_cpu)
        number(out, "nv_cpu_utilization", "gauge", "CPU utilization rate [0.0 - 1.0]",
               host->cpu_load);
    if (host->memory_total) {
        number(out, "nv_cpu_memory_total_bytes", "gauge", "CPU total memory (RAM), in bytes",
               (double)host->memory_total);
        number(out, "nv_cpu_memory_used_bytes", "gauge", "CPU used memory (RAM), in bytes",
               (double)host->memory_used);
    }
    if (s->apart) {
        number(out, "nv_pinned_memory_pool_total_bytes", "gauge",
               "Pinned memory pool total memory size, in bytes", (double)s->inflight_limit);
        number(out, "nv_pinned_memory_pool_used_bytes", "gauge",
               "Pinned memory pool used memory size, in bytes", (double)s->inflight_bytes);
    }
    gpus_write(s, out);
}

static void process_write(const struct snapshot *s, struct text *out)
{
    const struct host *host = &s->host;
    number(out, "process_cpu_seconds_total", "counter",
           "Total user and system CPU time spent in seconds.", host->process_cpu_s);
    number(out, "process_resident_memory_bytes", "gauge", "Resident memory size in bytes.",
           (double)host->process_resident);
    number(out, "process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.",
           (double)host->process_virtual);
    number(out, "process_open_fds", "gauge", "Number of open file descriptors.",
           (double)host->process_fds);
    number(out, "process_max_fds", "gauge", "Maximum number of open file descriptors.",
           (double)host->process_fds_most);
    number(out, "process_threads", "gauge", "Number of OS threads in the process.",
           (double)host->process_threads);
    number(out, "process_start_time_seconds", "gauge",
           "Start time of the process since unix epoch in seconds.",
           (double)s->started_ms / 1000.0);
}

/* --- the server --- */

static void limits_write(const struct snapshot *s, struct text *out)
{
#define LIMIT(member, kind, least, most) {#member, (uint64_t)s->limits->member},
    const struct {
        const char *name;
        uint64_t value;
    } limits[] = {CONFIG_LIMIT_FIELDS(LIMIT)};
#undef LIMIT
    family(out, "inferd_limit", "gauge",
           "The limits of the configuration, under the names of their keys; 0: see there.");
    for (size_t i = 0; i < ARRAY_LEN(limits); i++)
        text_printf(out, "inferd_limit{limit=\"%s\"} %" PRIu64 "\n", limits[i].name,
                    limits[i].value);
}

static void memory_write(const struct snapshot *s, struct text *out)
{
    family(out, "inferd_memory_bytes", "gauge",
           "Memory that grows with peers, models and workers, by what it is for.");
    for (size_t i = 0; i < ARRAY_LEN(s->memory); i++) {
        text_put(out, "inferd_memory_bytes{part=\"");
        for (const char *c = s->memory[i].name; *c; c++)
            if (isalnum((unsigned char)*c) || *c == ' ')
                text_bytes(out, *c == ' ' ? "_" : c, 1);
        text_printf(out, "\"} %" PRIu64 "\n", s->memory[i].bytes);
    }
}

static void counters_write(const struct snapshot *s, struct text *out)
{
    for (uint32_t k = 0; k < COUNTER_COUNT_; k++)
        text_printf(out,
                    "# HELP inferd_%s_total The counter %s of inferctl status.\n"
                    "# TYPE inferd_%s_total counter\ninferd_%s_total %" PRIu64 "\n",
                    counter_name(k), counter_name(k), counter_name(k), counter_name(k),
                    s->counters[k]);
}

static void server_write(const struct snapshot *s, struct text *out)
{
    const struct {
        const char *name, *help;
        double value;
    } rows[] = {
        {"inferd_ready", "1 while the server is ready.", s->ready},
        {"inferd_draining", "1 while the server comes to its end.", s->draining},
        {"inferd_device_lost", "1 once the device is lost.", s->lost},
        {"inferd_uptime_seconds", "Time since the start.", (double)s->uptime_ns / (double)NS_PER_S},
        {"inferd_workers", "Batches that can run at the same time.", s->workers},
        {"inferd_workers_busy", "Workers that run a batch.", s->workers_busy},
        {"inferd_event_loops", "Event loops.", s->loops},
        {"inferd_connections", "Open connections.", s->connections},
        {"inferd_connections_limit", "Connections that may be open.", s->connections_limit},
        {"inferd_in_flight_requests", "Requests that were taken and have not been answered.",
         (double)s->in_flight},
        {"inferd_in_flight_bytes", "Memory in use for requests and replies.",
         (double)s->inflight_bytes},
        {"inferd_in_flight_limit_bytes", "Memory that requests and replies may use.",
         (double)s->inflight_limit},
        {"inferd_shared_memory_regions", "Regions of shared memory that are registered.",
         s->regions},
        {"inferd_shared_memory_bytes", "Bytes of these regions.", (double)s->region_bytes},
        {"inferd_shape_engines", "Engines for sizes that no profile has.",
         (double)s->shape_engines},
        {"inferd_shape_engine_bytes", "Memory of these engines.", (double)s->shape_bytes},
        {"inferd_shape_waiting_requests", "Requests that wait for such an engine.",
         (double)s->shape_waiting},
        {"inferd_models_left_out", "Model versions that are not told of, because they are many.",
         s->models_left_out},
    };
    family(out, "inferd_build_info", "gauge", "Version and device; always 1.");
    text_put(out, "inferd_build_info{version=\"" INFERD_VERSION "\",device=\"");
    text_label(out, s->device);
    text_put(out, "\"} 1\n");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        number(out, rows[i].name, "gauge", rows[i].help, rows[i].value);
}

static void ready_write(const struct snapshot *s, struct text *out)
{
    static const char name[] = "inferd_model_ready";
    family(out, name, "gauge", "1 while the model takes requests.");
    for (uint32_t i = 0; i < s->n_models; i++) {
        model_labels(out, name, "", &s->models[i]);
        text_printf(out, "} %d\n", s->models[i].ready);
    }
}

void metrics_write(const struct snapshot *s, unsigned sets, struct text *out)
{
    if (sets & METRICS_TRITON) {
        rows_write(s, METRICS_TRITON, out);
        reasons_write(s, out);
        totals_write(s, "nv_inference_first_response_histogram_ms",
                     "Duration from request to first response in milliseconds", true, out);
        machine_write(s, out);
    }
    if (sets & METRICS_OWN) {
        server_write(s, out);
        limits_write(s, out);
        memory_write(s, out);
        counters_write(s, out);
        ready_write(s, out);
        rows_write(s, METRICS_OWN, out);
        totals_write(s, "inferd_request_duration_seconds",
                     "Time of an answered request from its arrival in the queue to the end of its "
                     "batch.",
                     false, out);
        stages_write(s, out);
        sizes_write(s, out);
        causes_write(s, out);
        process_write(s, out);
    }
}
