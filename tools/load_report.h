/* SPDX-License-Identifier: Apache-2.0 */
/* The results of `inferctl load` as a text table, JSON and CSV. The keys must stay: scripts read
 * them.
 */
#ifndef INFERD_TOOLS_LOAD_REPORT_H
#define INFERD_TOOLS_LOAD_REPORT_H

#include <stdio.h>

#include "client/load/load_run.h"
#include "client/load/load_search.h"

/* What was measured, and what the head of the JSON object says. */
struct load_report {
    const char *address, *model;
    uint32_t batch;
    const struct load_point *points;
    uint32_t n_points;
    double p99_bound_ms; /* 0: no search */
    struct load_answer answer;
    const char *error; /* what ended the test before its time; NULL: nothing */
};

/* The table's head, and a line for each point as it comes. */
void load_report_head(FILE *to);
void load_report_line(FILE *to, const struct load_point *point);

/* What the server says about where the time goes, and errors by their code, if there are any. */
void load_report_detail(FILE *to, const struct load_point *point);

/* The answer of a search: the rate, and how sure that is. */
void load_report_answer(FILE *to, const struct load_report *report);

/* NOT_FOUND and the like if the file cannot be written. */
enum status load_report_json(const struct load_report *report, const char *path, struct error *err);
enum status load_report_csv(const struct load_report *report, const char *path, struct error *err);

#endif
