/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status page: HTML that is whole without JavaScript. With it, page.js asks every two seconds
 * for the parts that change (`?since=N`), puts them in the place of the old ones, and draws the
 * points behind number N; so what a number looks like is said once, here.
 *
 *   page.c         the page, and the page of one model
 *   page_parts.c   its tables
 *   page_chart.c   its charts, as SVG and as points
 *   page_text.c    numbers for people
 */
#ifndef INFERD_DAEMON_MONITOR_PAGE_H
#define INFERD_DAEMON_MONITOR_PAGE_H

#include "base/text.h"
#include "daemon/monitor/history.h"
#include "daemon/monitor/snapshot.h"

struct page {
    const struct snapshot *snapshot;
    const struct history *history;
    const struct model *model;           /* whose page it is; NULL: the server's */
    const struct snapshot_model *counts; /* of that model */
    bool part;                           /* only what changes */
    uint64_t since;                      /* then: points from this number on */
};

void page_write(const struct page *page, struct text *out);

/* --- page_parts.c --- */

void page_models(const struct page *page, struct text *out);
void page_refused(const struct page *page, struct text *out);
void page_memory(const struct page *page, struct text *out);
void page_gpus(const struct page *page, struct text *out);
void page_limits(const struct page *page, struct text *out);
void page_stages(const struct page *page, struct text *out);
void page_sizes(const struct page *page, struct text *out);
void page_layers(const struct page *page, struct text *out);

/* --- page_chart.c --- */

void page_charts(const struct page *page, struct text *out);
/* The points for page.js, as a block of JSON that nobody runs. */
void page_points(const struct page *page, struct text *out);

/* --- page_text.c --- */

enum { PAGE_NUMBER = 32 };
/* Three digits and a unit; "-" for NAN. */
const char *page_amount(double value, char out[PAGE_NUMBER]);
const char *page_bytes(double bytes, char out[PAGE_NUMBER]);
const char *page_time(double ns, char out[PAGE_NUMBER]);
const char *page_span(double seconds, char out[PAGE_NUMBER]); /* "3 d 4 h" */
const char *page_percent(double share, char out[PAGE_NUMBER]);

#endif
