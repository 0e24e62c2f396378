/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that a build child may open: the program it is, with its loader; what libraries lie in;
 * what tells of the machine; and the folder of its model. All of it to read only, but for a GPU's
 * device files. Kernels that know of it (Landlock, Linux 5.13; more of it later) also keep the
 * child from TCP, and from signals and abstract sockets to processes outside.
 *
 * Rules are gathered by the daemon, where opening files and memory are no matter, and are taken on
 * by the child between fork and exec.
 */
#ifndef INFERD_DAEMON_CHILD_LANDLOCK_H
#define INFERD_DAEMON_CHILD_LANDLOCK_H

#include <stdbool.h>

/* A set of rules for a program (a descriptor) and a folder (-1: none), as a close-on-exec
 * descriptor. -1: this kernel has no Landlock, or the daemon may not use it. */
int child_landlock_new(int program, int folder, bool device);

/* In the child, once its descriptors are in place; async-signal-safe. It must not be able to gain
 * privileges. False: errno. */
bool child_landlock_enter(int rules, bool device);

#endif
