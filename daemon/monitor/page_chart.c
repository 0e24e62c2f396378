/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Charts of the last 15 minutes. They come as SVG, so that they are there without JavaScript; where
 * there is JavaScript, page.js draws the same rows with the library and keeps them up to date.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/monitor/page.h"

enum {
    WIDTH = 600,
    HEIGHT = 150,
    LINES = 4,
    WINDOW_LEAST = 60, /* points that are shown at least; more, up to all, as they come */
};

/* X and Y: places in the picture. */
static const struct chart {
    const char *id, *title, *unit; /* the unit of page.js: "", "ms", "%" */
    bool stacked, server_only;
    struct {
        enum history_row row;
        const char *label;
    } lines[LINES];
    uint32_t n;
} charts[] = {
    {"throughput",
     "Throughput, per second",
     "",
     false,
     false,
     {{HISTORY_REQUESTS, "requests"}, {HISTORY_INSTANCES, "instances"}},
     2},
    {"latency", "Latency", "ms", false, false, {{HISTORY_P50, "p50"}, {HISTORY_P99, "p99"}}, 2},
    {"stages",
     "Time in each stage (mean)",
     "ms",
     true,
     false,
     {{HISTORY_QUEUE, "queue"},
      {HISTORY_INPUT, "input"},
      {HISTORY_COMPUTE, "compute"},
      {HISTORY_OUTPUT, "output"}},
     4},
    {"waiting", "Requests waiting", "", false, false, {{HISTORY_WAITING, "waiting"}}, 1},
    {"batch", "Instances in a batch (mean)", "", false, false, {{HISTORY_BATCH, "batch"}}, 1},
    {"refused",
     "Refused and failed, per second",
     "",
     false,
     false,
     {{HISTORY_REFUSED, "refused"}},
     1},
    {"busy", "Device", "%", false, true, {{HISTORY_BUSY, "workers busy"}, {HISTORY_GPU, "GPU"}}, 2},
};

static const struct history_series none;

static const struct history_series *series_of(const struct page *page)
{
    const struct history_series *found = &page->history->server;
    if (page->model)
        found = history_find(page->history, page->model->name, page->model->version);
    return found ? found : &none;
}

/* The sum of the first `n` + 1 lines where they are stacked, else line `n`. */
static double height(const struct page *page, const struct history_series *s,
                     const struct chart *chart, uint32_t n, uint64_t number)
{
    double sum = 0;
    for (uint32_t k = chart->stacked ? 0 : n; k <= n; k++)
        sum += (double)history_point(page->history, s, chart->lines[k].row, number);
    return sum;
}

static uint64_t first_point(const struct page *page)
{
    uint64_t next = page->history->next;
    return next > HISTORY_POINTS - 1 ? next - HISTORY_POINTS + 2 : 1;
}

/* How many points the charts have room for. */
static uint64_t window_of(const struct page *page)
{
    return MIN(MAX(page->history->next, (uint64_t)WINDOW_LEAST), (uint64_t)HISTORY_POINTS - 1);
}

static double top_of(const struct page *page, const struct history_series *s,
                     const struct chart *chart)
{
    double top = 0;
    for (uint32_t n = chart->stacked ? chart->n - 1 : 0; n < chart->n; n++)
        for (uint64_t k = first_point(page); k <= page->history->next; k++) {
            double y = height(page, s, chart, n, k);
            top = y > top ? y : top;
        }
    return top;
}

/* Ends a run of points; a stacked one is an area. */
static void run_end(const struct chart *chart, double begin, struct text *out)
{
    if (chart->stacked)
        text_printf(out, "V%dH%.1fZ", HEIGHT, begin);
}

/* One line; where there are no points it is broken. */
static void line_write(const struct page *page, const struct history_series *s,
                       const struct chart *chart, uint32_t n, double top, struct text *out)
{
    bool pen = false;
    double begin = 0;
    uint64_t next = page->history->next, window = window_of(page);
    text_printf(out, "<path class=\"l%u%s\" d=\"", (unsigned)n, chart->stacked ? " area" : "");
    for (uint64_t k = first_point(page); k <= next; k++) {
        double y = height(page, s, chart, n, k);
        double x = (double)(window - 1 - (next - k)) * WIDTH / (double)(window - 1);
        if (isnan(y)) {
            if (pen)
                run_end(chart, begin, out);
            pen = false;
            continue;
        }
        begin = pen ? begin : x;
        text_printf(out, "%c%.1f %.1f", pen ? 'L' : 'M', x,
                    HEIGHT - (top > 0 ? y / top : 0) * (HEIGHT - 4) - 1);
        if (!pen)
            text_put(out, "h.1");
        pen = true;
    }
    if (pen)
        run_end(chart, begin, out);
    text_put(out, "\"/>");
}

static void value_text(const struct chart *chart, double value, char out[PAGE_NUMBER])
{
    if (!strcmp(chart->unit, "ms"))
        page_time(value * 1e6, out);
    else if (!strcmp(chart->unit, "%"))
        page_percent(value, out);
    else
        page_amount(value, out);
}

static void legend_write(const struct page *page, const struct history_series *s,
                         const struct chart *chart, struct text *out)
{
    char number[PAGE_NUMBER];
    text_printf(out, "<p class=\"legend\" id=\"legend-%s\" data-live>", chart->id);
    for (uint32_t n = 0; n < chart->n; n++) {
        double value =
            (double)history_point(page->history, s, chart->lines[n].row, page->history->next);
        if (chart->lines[n].row == HISTORY_GPU && isnan(value))
            continue;
        value_text(chart, value, number);
        text_printf(out, "<span class=\"k%u\">%s <b>%s</b></span> ", (unsigned)n,
                    chart->lines[n].label, number);
    }
    text_put(out, "</p>");
}

static void chart_write(const struct page *page, const struct chart *chart, struct text *out)
{
    char number[PAGE_NUMBER];
    const struct history_series *s = series_of(page);
    double top = page->part ? 0 : top_of(page, s, chart);
    if (page->part) {
        legend_write(page, s, chart, out);
        return;
    }
    text_printf(out,
                "<figure class=\"chart\" data-chart=\"%s\" data-unit=\"%s\" data-stacked=\"%d\" "
                "data-rows=\"",
                chart->id, chart->unit, chart->stacked);
    for (uint32_t n = 0; n < chart->n; n++)
        text_printf(out, "%s%s", n ? " " : "", history_row_name(chart->lines[n].row));
    text_printf(out, "\"><figcaption>%s</figcaption>", chart->title);
    legend_write(page, s, chart, out);
    value_text(chart, top, number);
    text_printf(out,
                "<div class=\"plot\"><svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" "
                "role=\"img\" aria-label=\"%s\">",
                WIDTH, HEIGHT, chart->title);
    for (uint32_t n = chart->n; n-- > 0;)
        line_write(page, s, chart, n, top, out);
    text_printf(out, "</svg><span class=\"top\">%s</span>", number);
    page_span((double)(window_of(page) * HISTORY_PERIOD_MS) / 1000, number);
    text_printf(out,
                "<span class=\"then\">%s ago</span><span class=\"now\">now</span></div></figure>\n",
                number);
}

void page_charts(const struct page *page, struct text *out)
{
    if (!page->part)
        text_printf(out, "<section class=\"charts%s\">\n", page->model ? " of-model" : "");
    for (size_t i = 0; i < ARRAY_LEN(charts); i++)
        if (!charts[i].server_only || !page->model)
            chart_write(page, &charts[i], out);
    if (!page->part)
        text_put(out, "</section>\n");
}

static void row_write(const struct page *page, const struct history_series *s, enum history_row row,
                      uint64_t first, struct text *out)
{
    text_printf(out, ",\"%s\":[", history_row_name(row));
    for (uint64_t k = first; k <= page->history->next; k++) {
        double value = (double)history_point(page->history, s, row, k);
        text_put(out, k > first ? "," : "");
        if (isnan(value))
            text_put(out, "null");
        else
            text_printf(out, "%.4g", value);
    }
    text_put(out, "]");
}

void page_points(const struct page *page, struct text *out)
{
    const struct history_series *s = series_of(page);
    uint64_t first = first_point(page);
    if (page->part && page->since > first)
        first = page->since;
    text_printf(out,
                "<script type=\"application/json\" id=\"points\">{\"started\":%" PRIu64
                ",\"first\":%" PRIu64 ",\"next\":%" PRIu64 ",\"at\":%" PRIu64
                ",\"period\":%d,\"least\":%d,\"most\":%d",
                page->snapshot->started_ms, first, page->history->next + 1, page->history->at_ms,
                HISTORY_PERIOD_MS, WINDOW_LEAST, HISTORY_POINTS - 1);
    for (uint32_t row = 0; row < HISTORY_ROW_COUNT_; row++)
        row_write(page, s, row, first, out);
    text_put(out, "}</script>\n");
}
