/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the server calls itself ready, which is what a load balancer asks. All reasons against it
 * meet here, so that none of them can be forgotten when another one ends.
 *
 * The policy is about models that the configuration or the command line names: "strict", the
 * default, is not ready while one of them is missing; "any" is ready with whatever could be loaded.
 * Whatever the policy says, the models that are there are served, and each has a readiness of its
 * own. A repository's models are not named: what lies there may come and go.
 */
#ifndef INFERD_DAEMON_READINESS_H
#define INFERD_DAEMON_READINESS_H

#include "base/log.h"
#include "config/config.h"
#include "daemon/model.h"

/* Counts for one configuration and the table made of it. */
struct readiness_models {
    bool strict;
    uint32_t named, missing;
};

struct readiness {
    bool serving; /* the first models are loaded, and the end has not begun */
    bool hung;    /* a batch hangs */
    bool lost;    /* the device */
    struct readiness_models models;
};

bool readiness_decide(const struct readiness *readiness);

/* Counts the named models, and logs those that are missing if that withholds readiness. `log` may
 * be NULL. */
struct readiness_models readiness_count(const struct config *config, const struct table *table,
                                        const struct log_sink *log);

enum { READINESS_TEXT = 128 };
/* "serving 3 model versions", after what withholds readiness, if anything does; returns `out`. */
const char *readiness_format(const struct readiness_models *models, uint32_t loaded,
                             char out[READINESS_TEXT]);

#endif
