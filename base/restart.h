/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Environment variables that libraries read while they are loaded, before main: the program starts
 * itself again with them. OpenMP's OMP_WAIT_POLICY is one: by default idle threads spin, which
 * ruins everything else on the machine and the program's own tail latency.
 */
#ifndef INFERD_BASE_RESTART_H
#define INFERD_BASE_RESTART_H

/* First thing in main. Returns at once if the variable is set, however, or if starting again does
 * not work; else it does not return. */
void restart_with_env(const char *name, const char *value, char **argv);

#endif
