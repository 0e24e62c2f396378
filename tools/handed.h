/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that the daemon hands to its build child as open descriptors instead of paths, because the
 * child may open hardly anything itself (daemon/child.h). They are for the daemon alone: no help
 * text speaks of them. On the command line they stand where a path would:
 *
 *   fd:MODEL,FOLDER:NAME   a model, and the folder that its external data lie in
 *   fd:MODEL:NAME          a model that can have no external data
 *   fd:PLAN                the plan to write
 *
 * MODEL, FOLDER and PLAN are numbers; NAME is for messages.
 */
#ifndef INFERD_TOOLS_HANDED_H
#define INFERD_TOOLS_HANDED_H

#include <stdbool.h>

struct handed {
    int fd, folder;   /* folder is -1 if there is none */
    const char *name; /* points into the text; the whole of it if no name is given */
};

/* A build with handed files that fails has this exit status plus the number of its cause
 * (base/cause.h), so that nobody has to guess the cause from a text. */
enum { EXIT_HANDED = 64 };

/* Such a build calls this first: from here on the process can execute no other program. False: the
 * kernel cannot hold it to that. */
bool handed_seal(void);

/* False: the text is a path. */
bool handed_parse(const char *text, struct handed *out);

#endif
