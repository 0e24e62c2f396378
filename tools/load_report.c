/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of a load test; see load_report.h. */
#include "tools/load_report.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "tools/json.h"
#include "tools/output.h"

/* The columns that JSON and CSV share, in their order. */
enum { COLUMNS = 24 };

struct column {
    const char *key;
    double value;
};

static double us(double ns)
{
    return ns / NS_PER_US;
}

static double quantile_us(const struct load_stats *s, double q)
{
    return us((double)histogram_quantile(&s->latency, q));
}

static double mean_us(uint64_t sum_ns, const struct load_stats *s)
{
    return s->requests ? us((double)sum_ns / (double)s->requests) : 0;
}

static void columns(const struct load_point *p, struct column out[COLUMNS])
{
    const struct load_stats *s = &p->stats;
    const struct column list[COLUMNS] = {
        {"concurrency", p->concurrency},
        {"rate", p->rate},
        {"achieved", s->seconds > 0 ? (double)s->requests / s->seconds : 0},
        {"throughput", load_stats_throughput(s)},
        {"mean_us", us(histogram_mean(&s->latency))},
        {"p50_us", quantile_us(s, 0.5)},
        {"p90_us", quantile_us(s, 0.9)},
        {"p95_us", quantile_us(s, 0.95)},
        {"p99_us", quantile_us(s, 0.99)},
        {"p999_us", quantile_us(s, 0.999)},
        {"max_us", us((double)s->latency.max)},
        {"errors", (double)load_stats_errors(s)},
        {"mean_batch", load_stats_mean_batch(s)},
        {"queue_us", mean_us(s->queue_ns, s)},
        {"input_us", mean_us(s->input_ns, s)},
        {"compute_us", mean_us(s->compute_ns, s)},
        {"output_us", mean_us(s->output_ns, s)},
        {"requests", (double)s->requests},
        {"late", (double)s->late},
        {"in_time", (double)s->in_time},
        {"refused", (double)s->refused.count},
        {"refused_p50_us", us((double)histogram_quantile(&s->refused, 0.5))},
        {"refused_p99_us", us((double)histogram_quantile(&s->refused, 0.99))},
        {"seconds", s->seconds},
    };
    for (int i = 0; i < COLUMNS; i++)
        out[i] = list[i];
}

/* --- text --- */

void load_report_head(FILE *to)
{
    fprintf(to, "%9s %10s %11s %9s %9s %9s %9s %9s %9s %7s %7s\n", "in flight", "offered/s",
            "instances/s", "p50 ms", "p90 ms", "p95 ms", "p99 ms", "p99.9 ms", "max ms", "batch",
            "errors");
}

void load_report_line(FILE *to, const struct load_point *point)
{
    const struct load_stats *s = &point->stats;
    char clients[16] = "-", offered[24] = "-";
    if (point->concurrency)
        snprintf(clients, sizeof(clients), "%u", point->concurrency);
    else
        snprintf(offered, sizeof(offered), "%.0f", point->rate);
    fprintf(to, "%9s %10s %11.0f %9.3f %9.3f %9.3f %9.3f %9.3f %9.3f %7.2f %7" PRIu64 "%s\n",
            clients, offered, load_stats_throughput(s), quantile_us(s, 0.5) / 1000,
            quantile_us(s, 0.9) / 1000, quantile_us(s, 0.95) / 1000, quantile_us(s, 0.99) / 1000,
            quantile_us(s, 0.999) / 1000, us((double)s->latency.max) / 1000,
            load_stats_mean_batch(s), load_stats_errors(s),
            point->cut      ? "  cut short"
            : point->stable ? ""
                            : "  not stable");
    fflush(to);
}

void load_report_detail(FILE *to, const struct load_point *point)
{
    const struct load_stats *s = &point->stats;
    double queue = mean_us(s->queue_ns, s), input = mean_us(s->input_ns, s);
    double compute = mean_us(s->compute_ns, s), output = mean_us(s->output_ns, s);
    double mean = us(histogram_mean(&s->latency));
    if (s->timed_instances)
        fprintf(to,
                "  mean %.0f us: queue %.0f, input %.0f, compute %.0f, output %.0f, outside the "
                "server %.0f\n",
                mean, queue, input, compute, output, mean - queue - input - compute - output);
    if (point->rate > 0)
        fprintf(to, "  offered %.1f requests/s, answered %.1f; %" PRIu64 " sent over 1 ms late\n",
                point->rate, s->seconds > 0 ? (double)s->requests / s->seconds : 0, s->late);
    for (int i = STATUS_OK + 1; i < STATUS_COUNT_; i++) {
        if (s->by_status[i])
            fprintf(to, "  %" PRIu64 " answered %s\n", s->by_status[i],
                    status_name((enum status)i));
    }
    if (s->deadline_ns)
        fprintf(to, "  %" PRIu64 " of %" PRIu64 " answered within %.0f ms\n", s->in_time,
                s->requests, us((double)s->deadline_ns) / 1000);
    if (s->refused.count)
        fprintf(to, "  refused after p50 %.3f ms, p99 %.3f ms\n",
                us((double)histogram_quantile(&s->refused, 0.5)) / 1000,
                us((double)histogram_quantile(&s->refused, 0.99)) / 1000);
}

void load_report_answer(FILE *to, const struct load_report *report)
{
    const struct load_answer *a = &report->answer;
    char below[32] = "none is known not to";
    if (a->high > 0)
        snprintf(below, sizeof(below), "%.0f did not", a->high);
    if (a->found)
        fprintf(to, "highest rate with p99 <= %g ms: %.0f requests/s", report->p99_bound_ms,
                a->rate);
    else
        fprintf(to, "no rate keeps p99 <= %g ms", report->p99_bound_ms);
    if (a->low > 0)
        fprintf(to, " (%.0f held, %s)", a->low, below);
    else
        fprintf(to, " (none held without doubt, %s)", below);
    fprintf(to, "%s\n",
            a->sure ? "" : "; not sure: readings contradict each other, or are too few");
}

/* --- files --- */

static void json_point(struct json *j, const struct load_point *p)
{
    struct column list[COLUMNS];
    columns(p, list);
    json_object(j, NULL);
    for (int i = 0; i < COLUMNS; i++)
        json_real(j, list[i].key, list[i].value);
    json_uint(j, "connections", p->connections);
    json_bool(j, "stable", p->stable);
    json_bool(j, "cut", p->cut);
    json_object(j, "errors_by_code");
    for (int i = STATUS_OK + 1; i < STATUS_COUNT_; i++) {
        if (p->stats.by_status[i])
            json_uint(j, status_name((enum status)i), p->stats.by_status[i]);
    }
    json_end(j);
    json_end(j);
}

enum status load_report_json(const struct load_report *report, const char *path, struct error *err)
{
    struct json j;
    uint32_t connections = 0; /* the most of any point: without the option each has its own */
    for (uint32_t i = 0; i < report->n_points; i++)
        connections = MAX(connections, report->points[i].connections);
    CLEANUP(output_text_cleanup) struct output_text text = {0};
    TRY(output_text_begin(&text, err));
    json_init(&j, text.file);
    json_object(&j, NULL);
    json_text(&j, "address", report->address);
    json_text(&j, "model", report->model);
    json_uint(&j, "batch", report->batch);
    json_uint(&j, "connections", connections);
    json_list(&j, "points");
    for (uint32_t i = 0; i < report->n_points; i++)
        json_point(&j, &report->points[i]);
    json_end(&j);
    if (report->p99_bound_ms > 0) {
        json_real(&j, "p99_bound_ms", report->p99_bound_ms);
        json_real(&j, "best_rate", report->answer.rate);
        json_real(&j, "best_held", report->answer.low);
        json_real(&j, "best_failed", report->answer.high);
        json_bool(&j, "best_sure", report->answer.sure);
    }
    if (report->error)
        json_text(&j, "error", report->error);
    json_end(&j);
    return output_text_end(&text, path, err);
}

enum status load_report_csv(const struct load_report *report, const char *path, struct error *err)
{
    struct column list[COLUMNS];
    CLEANUP(output_text_cleanup) struct output_text text = {0};
    TRY(output_text_begin(&text, err));
    columns(&report->points[0], list);
    for (int i = 0; i < COLUMNS; i++)
        fprintf(text.file, "%s,", list[i].key);
    fprintf(text.file, "stable\n");
    for (uint32_t p = 0; p < report->n_points; p++) {
        columns(&report->points[p], list);
        for (int i = 0; i < COLUMNS; i++)
            fprintf(text.file, "%.10g,", list[i].value);
        fprintf(text.file, "%d\n", report->points[p].stable);
    }
    return output_text_end(&text, path, err);
}
