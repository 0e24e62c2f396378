/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line and the environment of a build child. Of the daemon's environment the child gets
 * only the variables that libraries read their settings from, because others may hold secrets.
 */
#ifndef INFERD_DAEMON_CHILD_ARGS_H
#define INFERD_DAEMON_CHILD_ARGS_H

#include <stdbool.h>

#include "daemon/child.h"

struct child_args {
    char **argv;  /* NULL at the end */
    char **texts; /* what was made for inputs; NULL at the end */
    char model[320], plan[16], threads[16], batches[512];
    char limits[3][24];
};

/* False: no memory. */
bool child_args_init(struct child_args *args, const struct child_build *build);
void child_args_deinit(struct child_args *args); /* {0} and the half-built are fine */

/* The caller frees the array alone; its strings are static or the daemon's own. NULL: no memory. */
char **child_environment_new(void);

#endif
