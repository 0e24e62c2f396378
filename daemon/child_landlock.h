/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that a build child may open: its program with the loader, the folders of libraries,
 * files that describe the machine, and the folder of its model. All of these may only be read,
 * except for a GPU's device files. Landlock came with Linux 5.13; later versions of it also keep
 * the child from TCP, and from signals and abstract sockets to processes outside.
 *
 * The daemon gathers the rules, because it may open files and allocate. The child enters them
 * between fork and exec.
 */
#ifndef INFERD_DAEMON_CHILD_LANDLOCK_H
#define INFERD_DAEMON_CHILD_LANDLOCK_H

#include <stdbool.h>

/* Makes the rules for a program (a descriptor) and a folder (-1: none), and returns them as a
 * close-on-exec descriptor. -1: this kernel has no Landlock, or the daemon may not use it. */
int child_landlock_new(int program, int folder, bool device);

/* Enters the rules, in the child, once its descriptors are in place. The child must not be able to
 * gain privileges. Async-signal-safe. False: errno says why. */
bool child_landlock_enter(int rules, bool device);

#endif
