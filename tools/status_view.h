/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `inferctl status` shows: a server since its start, or what happened between two looks at it.
 * No line has more than 80 columns, whatever names and numbers there are.
 */
#ifndef INFERD_TOOLS_STATUS_VIEW_H
#define INFERD_TOOLS_STATUS_VIEW_H

#include "client/client.h"

struct status_view {
    const struct inferd_status_page *now;
    const struct inferd_status_page *before; /* NULL: none of this run of the server */
    bool interval;                           /* show only what happened since `before` */
};

/* A model's numbers within the view. If the model was loaded after `before`, all its numbers count,
 * so that none is negative. */
struct status_counts {
    const struct inferd_status_model *before; /* the same load; NULL: all is counted */
    double seconds;                           /* 0: it is not known over which time */
    uint64_t requests, failures, instances, batches;
};
struct status_counts status_counts_of(const struct status_view *view,
                                      const struct inferd_status_model *model);

void status_view_print(const struct status_view *view);

#endif
