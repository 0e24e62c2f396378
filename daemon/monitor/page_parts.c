/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the status page; see page.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "config/schema.h"
#include "daemon/pipeline.h"
#include "daemon/monitor/page.h"

/* --- pieces --- */

static void section(struct text *out, const char *id, const char *title)
{
    text_printf(out, "<section id=\"%s\" data-live><h2>%s</h2>\n", id, title);
}

/* The head of a table; names that begin with "#" are of numbers. */
static void table_begin(struct text *out, const char *const *names)
{
    text_put(out, "<div class=\"wide\"><table><thead><tr>");
    for (; *names; names++)
        text_printf(out, "<th scope=\"col\"%s>%s</th>", **names == '#' ? " class=\"n\"" : "",
                    *names + (**names == '#'));
    text_put(out, "</tr></thead><tbody>\n");
}

static void table_end(struct text *out)
{
    text_put(out, "</tbody></table></div></section>\n");
}

static void cell(struct text *out, const char *text)
{
    text_put(out, "<td>");
    text_html(out, text);
    text_put(out, "</td>");
}

static void number_cell(struct text *out, const char *text)
{
    text_printf(out, "<td class=\"n\">%s</td>", text);
}

/* A share as a bar that needs no style of its own: an SVG. */
static void bar_cell(struct text *out, double share)
{
    text_printf(out,
                "<td class=\"bar\"><svg viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" "
                "aria-hidden=\"true\"><rect width=\"%.1f\" height=\"8\"/></svg></td>",
                isnan(share) ? 0.0 : 100 * MIN(share, 1.0));
}

/* --- models --- */

static double last(const struct page *page, const struct history_series *s, enum history_row row)
{
    return s ? (double)history_point(page->history, s, row, page->history->next) : (double)NAN;
}

static void model_row(const struct page *page, const struct snapshot_model *model, struct text *out)
{
    const struct history_series *s = history_find(page->history, model->name, model->version);
    char number[PAGE_NUMBER];
    text_put(out, "<tr><th scope=\"row\"><a href=\"/model/");
    text_html(out, model->name);
    text_put(out, "/");
    text_html(out, model->version);
    text_put(out, "\">");
    text_html(out, model->name);
    text_put(out, "</a> <small>");
    text_html(out, model->version);
    text_printf(out, "</small></th><td><span class=\"state %s\">%s</span>",
                model->ready ? "good" : "bad", model->ready ? "ready" : model->state);
    if (model->reason && *model->reason) {
        text_put(out, " ");
        text_html(out, model->reason);
    }
    text_put(out, "</td>");
    number_cell(out, page_amount(s ? last(page, s, HISTORY_REQUESTS) : 0, number));
    number_cell(out, page_time(last(page, s, HISTORY_P50) * 1e6, number));
    number_cell(out, page_time(last(page, s, HISTORY_P99) * 1e6, number));
    number_cell(out, page_amount(last(page, s, HISTORY_BATCH), number));
    number_cell(out, page_amount((double)model->queued, number));
    number_cell(out, page_amount((double)model->ok, number));
    number_cell(out, page_amount((double)snapshot_failures(model), number));
    text_put(out, "</tr>\n");
}

void page_models(const struct page *page, struct text *out)
{
    static const char *const names[] = {"Model",  "State",    "#Requests/s", "#p50",     "#p99",
                                        "#Batch", "#Waiting", "#Answered",   "#Refused", NULL};
    const struct snapshot *s = page->snapshot;
    section(out, "models", "Models");
    if (!s->n_models)
        text_put(out, "<p>No models yet.</p>");
    table_begin(out, names);
    for (uint32_t i = 0; i < s->n_models; i++)
        model_row(page, &s->models[i], out);
    table_end(out);
}

/* --- what is refused --- */

static void cause_rows(const struct snapshot *s, const struct snapshot_model *one, struct text *out)
{
    char number[PAGE_NUMBER], name[SNAPSHOT_CAUSE];
    for (uint32_t k = 0; k < CAUSE_COUNT_; k++) {
        uint64_t n = one ? one->unrun[k] : 0;
        for (uint32_t i = 0; !one && i < s->n_models; i++)
            n += s->models[i].unrun[k];
        if (!n)
            continue;
        text_put(out, "<tr>");
        cell(out, snapshot_cause_name(k, name));
        cell(out, snapshot_cause_sentence(k));
        number_cell(out, page_amount((double)n, number));
        text_put(out, "</tr>\n");
    }
}

/* Counters of the server that tell of a limit at work, apart from those of requests. */
static const struct {
    enum counter counter;
    const char *what;
} troubles[] = {
    {COUNTER_ACCEPT_PAUSED, "the limit of connections was reached"},
    {COUNTER_ACCEPT_NO_DESCRIPTOR, "no descriptor was left for a connection"},
    {COUNTER_REFUSED_ADDRESS, "an address had too many connections"},
    {COUNTER_EVICTED, "an idle connection was closed to make room"},
    {COUNTER_FRAMES_TOO_LARGE, "a frame was larger than frame_bytes"},
    {COUNTER_FRAMES_REFUSED, "there was no memory for a frame"},
    {COUNTER_REQUESTS_NOT_FOUND, "a model was asked for that is not there"},
    {COUNTER_REFUSED_UNAUTHENTICATED, "a token was missing, or not known"},
    {COUNTER_REFUSED_PERMISSION, "somebody had no right to what was asked"},
    {COUNTER_READS_PAUSED, "a connection had too much in flight"},
    {COUNTER_TIMEOUT_HEADER, "a request's head did not come in time"},
    {COUNTER_TIMEOUT_FRAME, "a message did not come in time"},
    {COUNTER_SLOW_SENDERS, "a peer was slower than receive_rate"},
    {COUNTER_OUTPUT_LIMIT, "a client did not read its replies"},
    {COUNTER_BATCHES_SPLIT, "a batch failed and was run again in parts"},
    {COUNTER_RELOADS_FAILED, "a reload failed"},
    {COUNTER_LOADS_FAILED, "a model could not be loaded"},
    {COUNTER_WORKER_HANGS, "a batch hung"},
    {COUNTER_DEVICE_LOST, "the device was lost"},
};

void page_refused(const struct page *page, struct text *out)
{
    static const char *const names[] = {"Cause", "What happened", "#Times", NULL};
    const struct snapshot *s = page->snapshot;
    char number[PAGE_NUMBER];
    size_t begin = out->len;
    section(out, "refused", "What is refused, and why");
    table_begin(out, names);
    size_t empty = out->len;
    cause_rows(s, page->counts, out);
    uint64_t failed = page->counts ? page->counts->failed : s->counters[COUNTER_FAILED];
    if (failed)
        text_printf(out,
                    "<tr><td>failed_in_run</td><td>the model failed</td><td class=\"n\">%s</td>"
                    "</tr>\n",
                    page_amount((double)failed, number));
    for (size_t i = 0; !page->counts && i < ARRAY_LEN(troubles); i++)
        if (s->counters[troubles[i].counter])
            text_printf(out, "<tr><td>%s</td><td>%s</td><td class=\"n\">%s</td></tr>\n",
                        counter_name(troubles[i].counter), troubles[i].what,
                        page_amount((double)s->counters[troubles[i].counter], number));
    if (out->len > empty) {
        table_end(out);
        return;
    }
    out->len = begin;
    section(out, "refused", "What is refused, and why");
    text_put(out, "<p class=\"quiet\">Nothing so far.</p></section>\n");
}

/* --- memory, limits, GPUs --- */

void page_memory(const struct page *page, struct text *out)
{
    static const char *const names[] = {"Memory", "#Bytes", "#Limit", "", NULL};
    const struct snapshot *s = page->snapshot;
    char number[PAGE_NUMBER];
    section(out, "memory", "Memory");
    table_begin(out, names);
    for (size_t i = 0; i < ARRAY_LEN(s->memory); i++) {
        const struct body_memory *row = &s->memory[i];
        text_put(out, "<tr>");
        cell(out, row->name);
        number_cell(out, page_bytes((double)row->bytes, number));
        number_cell(out, row->limit ? page_bytes((double)row->limit, number) : "");
        bar_cell(out, row->limit ? (double)row->bytes / (double)row->limit : 0);
        text_put(out, "</tr>\n");
    }
    text_printf(out,
                "<tr><td>resident, of the whole process</td><td class=\"n\">%s</td>"
                "<td class=\"n\">",
                page_bytes((double)s->host.process_resident, number));
    text_printf(out, "%s</td>", page_bytes((double)s->host.memory_total, number));
    bar_cell(out, (double)s->host.process_resident / (double)MAX(s->host.memory_total, 1ULL));
    text_put(out, "</tr>\n");
    table_end(out);
}

void page_limits(const struct page *page, struct text *out)
{
    static const char *const names[] = {"Limit", "#Value", NULL};
#define LIMIT(member, kind, least, most) {#member, (uint64_t)page->snapshot->limits->member},
    const struct {
        const char *name;
        uint64_t value;
    } limits[] = {CONFIG_LIMIT_FIELDS(LIMIT)};
#undef LIMIT
    char number[PAGE_NUMBER];
    section(out, "limits", "Limits");
    table_begin(out, names);
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        text_put(out, "<tr>");
        cell(out, limits[i].name);
        if (!limits[i].value)
            snprintf(number, sizeof(number), "default");
        else if (strstr(limits[i].name, "_bytes"))
            page_bytes((double)limits[i].value, number);
        else
            snprintf(number, sizeof(number), "%" PRIu64, limits[i].value);
        number_cell(out, number);
        text_put(out, "</tr>\n");
    }
    table_end(out);
}

void page_gpus(const struct page *page, struct text *out)
{
    static const char *const names[] = {"GPU", "#Load", "", "#Memory", "", "#Power", NULL};
    const struct snapshot *s = page->snapshot;
    char number[PAGE_NUMBER], of[PAGE_NUMBER], text[2 * PAGE_NUMBER + 8];
    if (!s->n_gpus)
        return;
    section(out, "gpus", "GPUs");
    table_begin(out, names);
    for (uint32_t i = 0; i < s->n_gpus; i++) {
        const struct gpu *gpu = &s->gpus[i];
        text_put(out, "<tr>");
        cell(out, *gpu->name ? gpu->name : gpu->uuid);
        number_cell(out, gpu->has & GPU_UTILIZATION ? page_percent(gpu->utilization, number) : "-");
        bar_cell(out, gpu->utilization);
        snprintf(text, sizeof(text), "%s of %s", page_bytes((double)gpu->memory_used, number),
                 page_bytes((double)gpu->memory_total, of));
        number_cell(out, gpu->has & GPU_MEMORY ? text : "-");
        bar_cell(out, (double)gpu->memory_used / (double)MAX(gpu->memory_total, 1ULL));
        snprintf(text, sizeof(text), "%.0f W of %.0f W", gpu->power_w, gpu->power_limit_w);
        number_cell(out, gpu->has & GPU_POWER ? text : "-");
        text_put(out, "</tr>\n");
    }
    table_end(out);
}

/* --- one model --- */

/* Since the model was loaded, by the fine buckets. */
static double quantile(const struct histogram_shared *h, double q)
{
    uint64_t n = 0, seen = 0;
    for (uint32_t i = 0; i < HISTOGRAM_SHARED_BUCKETS; i++)
        n += atomic_load_explicit(&h->bucket[i], memory_order_relaxed);
    double rank = MAX(q * (double)n, 1.0);
    for (uint32_t i = 0; n && i < HISTOGRAM_SHARED_BUCKETS; i++) {
        seen += atomic_load_explicit(&h->bucket[i], memory_order_relaxed);
        if ((double)seen >= rank)
            return (double)(histogram_shared_low(i) + histogram_shared_low(i + 1)) / 2;
    }
    return (double)NAN;
}

void page_stages(const struct page *page, struct text *out)
{
    static const char *const names[] = {"Stage", "#Mean", "#p50", "#p90", "#p99", "", NULL};
    static const double q[] = {0.5, 0.9, 0.99};
    const struct snapshot_model *counts = page->counts;
    char number[PAGE_NUMBER];
    double all = (double)counts->times[BODY_TOTAL].sum_ns;
    section(out, "stages", "Time in each stage, since the model was loaded");
    table_begin(out, names);
    for (uint32_t k = 0; k < BODY_STAGES; k++) {
        double sum = (double)counts->times[k].sum_ns;
        text_put(out, "<tr>");
        cell(out, snapshot_stage_name(k));
        number_cell(out, page_time(counts->ok ? sum / (double)counts->ok : (double)NAN, number));
        for (size_t i = 0; i < ARRAY_LEN(q); i++)
            number_cell(out, page_time(quantile(&page->model->stats.stage_times[k], q[i]), number));
        bar_cell(out, all > 0 ? sum / all : 0);
        text_put(out, "</tr>\n");
    }
    table_end(out);
}

void page_sizes(const struct page *page, struct text *out)
{
    static const char *const names[] = {"#Instances", "#Batches", "#Share", "", NULL};
    const struct snapshot_model *counts = page->counts;
    char number[PAGE_NUMBER];
    uint64_t all = 0, most = 1;
    for (uint32_t b = 0; b <= SNAPSHOT_SIZES; b++) {
        all += counts->sizes[b];
        most = MAX(most, counts->sizes[b]);
    }
    section(out, "sizes", "Sizes of batches, since the model was loaded");
    table_begin(out, names);
    for (uint32_t b = 0; b <= SNAPSHOT_SIZES; b++) {
        uint32_t from = b ? snapshot_sizes[b - 1] + 1 : 1;
        if (from > counts->max_batch)
            break;
        uint32_t to =
            b < SNAPSHOT_SIZES ? MIN(snapshot_sizes[b], counts->max_batch) : counts->max_batch;
        text_printf(out, "<tr><td class=\"n\">%" PRIu32, from);
        if (to > from)
            text_printf(out, " to %" PRIu32, to);
        text_put(out, "</td>");
        number_cell(out, page_amount((double)counts->sizes[b], number));
        number_cell(out, page_percent(all ? (double)counts->sizes[b] / (double)all : 0, number));
        bar_cell(out, (double)counts->sizes[b] / (double)most);
        text_put(out, "</tr>\n");
    }
    table_end(out);
}

enum { LAYERS_MOST = 4096, LAYERS_SHOWN = 200 };

static int by_time(const void *a, const void *b)
{
    const struct engine_layer *x = a, *y = b;
    return (y->time_ns > x->time_ns) - (y->time_ns < x->time_ns);
}

static void layer_rows(const struct engine_layer *layers, uint32_t n, double all, struct text *out)
{
    char number[PAGE_NUMBER];
    for (uint32_t i = 0; i < MIN(n, (uint32_t)LAYERS_SHOWN); i++) {
        double ns = (double)layers[i].time_ns;
        text_put(out, "<tr><td class=\"name\">");
        text_html(out, layers[i].name ? layers[i].name : "");
        text_put(out, "</td>");
        cell(out, layers[i].op);
        cell(out, layers[i].tactic);
        number_cell(out, ns > 0 ? page_time(ns, number) : "-");
        bar_cell(out, all > 0 ? ns / (double)MAX(layers[0].time_ns, 1ULL) : 0);
        text_put(out, "</tr>\n");
    }
}

static void link_cell(struct text *out, const struct model_file_link *links, uint32_t n)
{
    text_put(out, "<td>");
    for (uint32_t i = 0; i < n; i++) {
        text_put(out, i ? ", " : "");
        text_html(out, links[i].inner);
        text_put(out, " = ");
        text_html(out, links[i].outer);
    }
    text_put(out, "</td>");
}

/* A pipeline has no layers of its own. */
static void page_steps(const struct model_file *file, struct text *out)
{
    static const char *const names[] = {"Step", "Model", "Takes", "Makes", NULL};
    text_put(out, "<section id=\"steps\"><h2>Steps</h2>\n");
    table_begin(out, names);
    for (uint32_t i = 0; i < file->n_steps; i++) {
        const struct model_file_step *step = &file->steps[i];
        text_printf(out, "<tr><td>%" PRIu32 "</td>", i + 1);
        cell(out, step->model);
        link_cell(out, step->inputs, step->n_inputs);
        link_cell(out, step->outputs, step->n_outputs);
        text_put(out, "</tr>\n");
    }
    table_end(out);
}

void page_layers(const struct page *page, struct text *out)
{
    if (page->model->pipeline) {
        page_steps(page->model->pipeline->file, out);
        return;
    }
    static const char *const names[] = {"Layer", "Op", "Tactic", "#Time", "", NULL};
    const struct engine_info *info = page->model->info;
    struct engine_layer *layers = calloc(LAYERS_MOST, sizeof(*layers));
    if (!layers)
        return;
    uint32_t n = engine_layers(page->model->engine, MAX(info->n_points, 1u) - 1, info->max_batch, 0,
                               layers, LAYERS_MOST);
    uint32_t kept = MIN(n, (uint32_t)LAYERS_MOST);
    double all = 0;
    char number[PAGE_NUMBER];
    for (uint32_t i = 0; i < kept; i++)
        all += (double)layers[i].time_ns;
    if (all > 0)
        qsort(layers, kept, sizeof(*layers), by_time);
    text_put(out, "<section id=\"layers\"><h2>Layers</h2>\n");
    text_printf(out, "<p class=\"quiet\">Of a batch of %" PRIu32 ": %" PRIu32 " layers",
                info->max_batch, n);
    if (all > 0)
        text_printf(out, ", together %s when the plan was built; the longest first",
                    page_time(all, number));
    else
        text_put(out, "; this plan was built without taking times (inferctl build takes them)");
    text_printf(out, "%s.</p>\n", n > LAYERS_SHOWN ? ", and those beyond 200 left out" : "");
    table_begin(out, names);
    layer_rows(layers, kept, all, out);
    table_end(out);
    free(layers);
}
