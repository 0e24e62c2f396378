/* SPDX-License-Identifier: Apache-2.0 */
/* The status page as a whole; see page.h. */
#include "daemon/monitor/page.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/clock.h"

static double last(const struct page *page, enum history_row row)
{
    const struct history_series *s = &page->history->server;
    if (page->model)
        s = history_find(page->history, page->model->name, page->model->version);
    return s ? (double)history_point(page->history, s, row, page->history->next) : (double)NAN;
}

static void tile(struct text *out, const char *label, const char *value, const char *more)
{
    text_printf(out, "<div class=\"tile\"><dt>%s</dt><dd>%s</dd>", label, value);
    if (more)
        text_printf(out, "<dd class=\"quiet\">%s</dd>", more);
    text_put(out, "</div>\n");
}

static void server_tiles(const struct page *page, struct text *out)
{
    const struct snapshot *s = page->snapshot;
    char value[2 * PAGE_NUMBER], more[2 * PAGE_NUMBER + 16], number[PAGE_NUMBER];
    snprintf(value, sizeof(value), "%" PRIu32 " of %" PRIu32, s->workers_busy, s->workers);
    tile(out, "Workers busy", value, NULL);
    snprintf(more, sizeof(more), "%s in flight", page_amount((double)s->in_flight, number));
    tile(out, "Connections", page_amount(s->connections, value), more);
    snprintf(more, sizeof(more), "of %s", page_bytes((double)s->inflight_limit, number));
    tile(out, "Requests and replies", page_bytes((double)s->inflight_bytes, value), more);
}

static void model_tiles(const struct page *page, struct text *out)
{
    const struct snapshot_model *m = page->counts;
    char value[PAGE_NUMBER], more[2 * PAGE_NUMBER + 32], number[PAGE_NUMBER];
    snprintf(more, sizeof(more), "at most %" PRIu32 "; waits up to %s", m->max_batch,
             page_time((double)m->max_delay_ns, number));
    tile(out, "Batch", page_amount(last(page, HISTORY_BATCH), value), more);
    snprintf(more, sizeof(more), "%s refused or failed",
             page_amount((double)snapshot_failures(m), number));
    tile(out, "Answered", page_amount((double)m->ok, value), more);
    snprintf(more, sizeof(more), "loaded in %s", page_time((double)m->load_ns, number));
    tile(out, "Weights", page_bytes((double)m->weight_bytes, value), more);
}

static void tiles(const struct page *page, struct text *out)
{
    const struct snapshot *s = page->snapshot;
    char value[PAGE_NUMBER], more[2 * PAGE_NUMBER + 32], number[PAGE_NUMBER];
    uint64_t waiting = 0, age_ns = 0;
    for (uint32_t i = 0; i < s->n_models; i++)
        if (!page->counts || page->counts == &s->models[i]) {
            waiting += s->models[i].queued;
            age_ns = MAX(age_ns, s->models[i].queue_age_ns);
        }
    text_put(out, "<dl class=\"tiles\" id=\"tiles\" data-live>\n");
    snprintf(more, sizeof(more), "%s instances",
             page_amount(last(page, HISTORY_INSTANCES), number));
    tile(out, "Requests/s", page_amount(last(page, HISTORY_REQUESTS), value), more);
    snprintf(more, sizeof(more), "p99 %s", page_time(last(page, HISTORY_P99) * 1e6, number));
    tile(out, "Latency p50", page_time(last(page, HISTORY_P50) * 1e6, value), more);
    snprintf(more, sizeof(more), "the oldest for %s", page_time((double)age_ns, number));
    tile(out, "Waiting", page_amount((double)waiting, value), waiting ? more : NULL);
    if (page->counts)
        model_tiles(page, out);
    else
        server_tiles(page, out);
    text_put(out, "</dl>\n");
}

static void state(const struct page *page, struct text *out)
{
    const struct snapshot *s = page->snapshot;
    char number[PAGE_NUMBER];
    const char *word = s->lost       ? "device lost"
                       : s->draining ? "draining"
                       : s->ready    ? "ready"
                                     : "not ready";
    text_printf(out,
                "<p id=\"state\" data-live><span class=\"state %s\">%s</span> <span>up %s</span> "
                "<span>",
                s->ready ? "good" : "bad", word,
                page_span((double)s->uptime_ns / (double)NS_PER_S, number));
    text_html(out, s->device);
    text_put(out, "</span> <span>" INFERD_VERSION "</span></p>\n");
}

static void head(const struct page *page, struct text *out)
{
    text_put(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>");
    if (page->model) {
        text_html(out, page->model->name);
        text_put(out, " - ");
    }
    text_put(out, "inferd</title>\n"
                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                  "<meta name=\"color-scheme\" content=\"light dark\">\n"
                  "<link rel=\"icon\" href=\"/icon.svg\" type=\"image/svg+xml\">\n"
                  "<link rel=\"stylesheet\" href=\"/page.css\">\n"
                  "<noscript><meta http-equiv=\"refresh\" content=\"10\"></noscript>\n"
                  "<script src=\"/chart.js\" defer></script>\n"
                  "<script src=\"/page.js\" defer></script>\n</head>\n<body>\n<header><h1>");
    if (page->model) {
        text_put(out, "<a href=\"/\">inferd</a> / ");
        text_html(out, page->model->name);
        text_put(out, " <small>");
        text_html(out, page->model->version);
        text_put(out, "</small>");
    } else {
        text_put(out, "inferd");
    }
    text_put(out, "</h1>\n");
}

static void parts(const struct page *page, struct text *out)
{
    tiles(page, out);
    page_charts(page, out);
    if (page->model) {
        text_put(out, page->part ? "" : "<div class=\"columns\">\n");
        page_stages(page, out);
        page_sizes(page, out);
        page_refused(page, out);
        text_put(out, page->part ? "" : "</div>\n");
        if (!page->part)
            page_layers(page, out);
        return;
    }
    page_models(page, out);
    page_gpus(page, out);
    text_put(out, page->part ? "" : "<div class=\"columns\">\n");
    page_refused(page, out);
    page_memory(page, out);
    page_limits(page, out);
    text_put(out, page->part ? "" : "</div>\n");
}

void page_write(const struct page *page, struct text *out)
{
    if (!page->part)
        head(page, out);
    state(page, out);
    if (!page->part)
        text_put(out, "</header>\n<p id=\"away\" hidden role=\"status\"></p>\n<main>\n");
    parts(page, out);
    page_points(page, out);
    if (!page->part)
        text_put(out, "</main>\n<footer><noscript>This page loads itself again every ten seconds. "
                      "</noscript>Numbers of the last two seconds where nothing else is said. For "
                      "Prometheus: <a href=\"/metrics\">/metrics</a></footer>\n</body></html>\n");
}
