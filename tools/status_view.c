/* SPDX-License-Identifier: Apache-2.0 */
/* The text of `inferctl status`; see status_view.h. */
#include "tools/status_view.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/escape.h"
#include "base/utf8.h"

enum { WIDTH = 80, LABEL = 22 };

/* --- differences --- */

static const struct inferd_status_model *same_load(const struct inferd_status_page *page,
                                                   const struct inferd_status_model *model)
{
    for (uint32_t i = 0; page && i < page->n_models; i++) {
        const struct inferd_status_model *m = &page->models[i];
        if (m->since_ms == model->since_ms && strcmp(m->name, model->name) == 0 &&
            strcmp(m->version, model->version) == 0)
            return m;
    }
    return NULL;
}

static uint64_t since(uint64_t now, uint64_t before)
{
    return now - MIN(now, before);
}

struct status_counts status_counts_of(const struct status_view *view,
                                      const struct inferd_status_model *model)
{
    static const struct inferd_status_model none;
    const struct inferd_status_model *b = view->interval ? same_load(view->before, model) : NULL;
    const struct inferd_status_model *from = b ? b : &none;
    uint64_t from_ns = view->interval && view->before ? view->before->uptime_ns : 0;
    return (struct status_counts){.before = b,
                                  .seconds = (double)since(view->now->uptime_ns, from_ns) /
                                             (double)NS_PER_S,
                                  .requests = since(model->requests, from->requests),
                                  .failures = since(model->failures, from->failures),
                                  .instances = since(model->instances, from->instances),
                                  .batches = since(model->batches, from->batches)};
}

/* --- texts that fit --- */

/* Cuts a text of more than `width` bytes and ends it with "..."; `out` has room for `width` + 1. */
static const char *cut(const char *text, size_t width, char *out)
{
    size_t len = strlen(text), keep = len > width ? utf8_prefix(text, len, width - 3) : len;
    snprintf(out, width + 1, "%.*s%s", (int)keep, text, len > width ? "..." : "");
    return out;
}

/* Prints one line: what a server says of itself is escaped, as in tools/show.h. */
static void PRINTF(1, 2) print_line(const char *format, ...)
{
    char line[1024], safe[ESCAPE_GROWTH * sizeof(line)], fits[WIDTH + 1];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    escape_text(safe, sizeof(safe), line);
    printf("%s\n", cut(safe, WIDTH, fits));
}

typedef char number_text[12];

/* Three digits and a unit: "0", "12.3k", "1.05ms". */
static const char *scaled(double value, const char *const *units, number_text out)
{
    for (; value >= 999.5 && units[1]; units++)
        value /= 1000;
    value = MIN(value, 999);
    int digits = value == (double)(uint64_t)value ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(out, sizeof(number_text), "%.*f%s", digits, value, *units);
    return out;
}

static const char *amount_of(double value, number_text out)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P", "E", NULL};
    return scaled(value, units, out);
}

static const char *bytes_of(uint64_t bytes, number_text out)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < ARRAY_LEN(units); unit++)
        value /= 1024;
    snprintf(out, sizeof(number_text), unit ? "%.1f %s" : "%.0f %s", MIN(value, 99999),
             units[unit]);
    return out;
}

static const char *quantile(const struct inferd_status_model *model,
                            const struct inferd_status_model *before, enum inferd_stage stage,
                            double q, number_text out)
{
    static const char *const units[] = {"ns", "us", "ms", "s", NULL};
    const struct inferd_histogram *now = &model->stages[stage];
    uint64_t ns = inferd_histogram_quantile(now, before ? &before->stages[stage] : NULL, q);
    return ns ? scaled((double)ns, units, out) : "-";
}

/* --- tables --- */

static void print_row(const struct status_view *view, const struct inferd_status_model *m)
{
    char name[INFERD_ERROR_TEXT], label[LABEL + 1];
    number_text a, b, c, n[6];
    snprintf(name, sizeof(name), "%s/%s", m->name, m->version);
    cut(name, LABEL, label);
    if (strcmp(m->state, "READY") != 0) {
        print_line("%-*s %s%s%s", LABEL, label, m->state, *m->reason ? ": " : "", m->reason);
        return;
    }
    struct status_counts s = status_counts_of(view, m);
    double rate = s.seconds > 0 ? (double)s.instances / s.seconds : 0;
    print_line("%-*s %8s %5s %6s %6s %6s %6s %6s %6s", LABEL, label,
               amount_of(view->interval ? rate : (double)s.requests, a),
               s.batches ? amount_of((double)s.instances / (double)s.batches, b) : "-",
               amount_of(m->queued, c), quantile(m, s.before, INFERD_QUEUE, 0.5, n[0]),
               quantile(m, s.before, INFERD_QUEUE, 0.99, n[1]),
               quantile(m, s.before, INFERD_COMPUTE, 0.5, n[2]),
               quantile(m, s.before, INFERD_COMPUTE, 0.99, n[3]),
               quantile(m, s.before, INFERD_TOTAL, 0.99, n[4]));
    if (s.failures)
        print_line("  %s failed", amount_of((double)s.failures, a));
}

static void print_models(const struct status_view *view)
{
    putchar('\n');
    print_line("%-*s %8s %5s %6s %13s %13s %6s", LABEL, "", "", "", "", "queue", "compute",
               "total");
    print_line("%-*s %8s %5s %6s %6s %6s %6s %6s %6s", LABEL, "model",
               view->interval ? "inst/s" : "requests", "batch", "queued", "p50", "p99", "p50",
               "p99", "p99");
    for (uint32_t i = 0; i < view->now->n_models; i++)
        print_row(view, &view->now->models[i]);
}

static void print_memory(const struct inferd_status_page *s)
{
    number_text bytes, limit;
    if (s->n_memory) {
        putchar('\n');
        print_line("%-28s %11s %11s", "memory", "bytes", "limit");
    }
    for (uint32_t i = 0; i < s->n_memory; i++) {
        const struct inferd_memory *m = &s->memory[i];
        print_line("%-28.40s %11s %11s", m->name, bytes_of(m->bytes, bytes),
                   m->limit ? bytes_of(m->limit, limit) : "-");
    }
}

/* Prints the counters that are not zero, as many in a line as fit. */
static void print_counters(const struct status_view *view)
{
    const struct inferd_status_page *now = view->now, *before = view->before;
    int at = 0;
    for (uint32_t i = 0; i < now->n_counters; i++) {
        const struct inferd_counter *c = &now->counters[i];
        bool known = view->interval && before && i < before->n_counters &&
                     strcmp(before->counters[i].name, c->name) == 0;
        uint64_t value = since(c->value, known ? before->counters[i].value : 0);
        char raw[WIDTH], one[WIDTH];
        if (!value)
            continue;
        snprintf(raw, sizeof(raw), "%.*s %" PRIu64, WIDTH - 24, c->name, value);
        escape_text(one, sizeof(one), raw);
        int size = (int)strlen(one);
        if (at && at + 2 + size <= WIDTH - 1)
            at += printf(", %s", one);
        else
            at = printf("%s%s", at ? ",\n" : "\ncounters: ", one) - (at ? 2 : 1);
    }
    printf("%s", at ? "\n" : "");
}

static void print_head(const struct status_view *view)
{
    const struct inferd_status_page *s = view->now;
    uint64_t up = s->uptime_s;
    uint32_t ready = 0;
    number_text a, b, c, d;
    for (uint32_t i = 0; i < s->n_models; i++)
        ready += strcmp(s->models[i].state, "READY") == 0;
    const char *unit = up < 300 ? "s" : up < 3 * 3600 ? "min" : up < 72 * 3600 ? "h" : "days";
    up /= up < 300 ? 1 : up < 3 * 3600 ? 60 : up < 72 * 3600 ? 3600 : 86400;
    print_line("inferd %.12s on %.30s, up %" PRIu64 " %s, %s: %u of %u models", s->version,
               s->device, up, unit, s->ready ? "ready" : "not ready", ready, s->n_models);
    print_line("workers %u of %u busy; connections %s; in flight %s requests, %s", s->workers_busy,
               s->workers, amount_of(s->connections, a), amount_of((double)s->inflight_requests, b),
               bytes_of(s->inflight_bytes, c));
    uint64_t from_ns = view->before ? view->before->uptime_ns : 0;
    double seconds = (double)since(s->uptime_ns, from_ns) / (double)NS_PER_S;
    if (view->interval)
        print_line("of the last %s s%s", amount_of(seconds, d),
                   view->before ? "" : ", since it was started again");
}

void status_view_print(const struct status_view *view)
{
    print_head(view);
    print_models(view);
    if (!view->interval)
        print_memory(view->now);
    print_counters(view);
}
