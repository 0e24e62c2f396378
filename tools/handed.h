/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that whoever started the program hands to it as open descriptors, in place of paths: a
 * build child of the daemon may open hardly anything itself (daemon/child.h). No option and no help
 * text speaks of them; they are for the daemon alone. On the command line they stand where a path
 * would:
 *
 *   fd:MODEL,FOLDER:NAME   a model, and the folder that its external data lie in
 *   fd:MODEL:NAME          a model that can have no external data
 *   fd:PLAN                the plan to write
 *
 * The first two are numbers, NAME is for messages.
 */
#ifndef INFERD_TOOLS_HANDED_H
#define INFERD_TOOLS_HANDED_H

#include <stdbool.h>

struct handed {
    int fd, folder;   /* folder is -1 if there is none */
    const char *name; /* points into the text; the whole of it if no name is given */
};

/* The exit status of a build for which files were handed over: this and the cause that it failed
 * for (base/cause.h), so that nobody has to guess it from a text. */
enum { EXIT_HANDED = 64 };

/* First thing of such a build: from here on the process executes nothing. False: the kernel has no
 * way to hold it to that. */
bool handed_seal(void);

/* False: the text is a path. */
bool handed_parse(const char *text, struct handed *out);

#endif
