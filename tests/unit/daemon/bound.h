/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pipelines bound to models that are nothing but descriptions, for the tests of
 * daemon/pipeline_bind.c and the fuzz target of config.pbtxt:
 *
 *   a  x [N, 4] FP32 -> y [N, 4] FP32        up to 8 instances
 *   b  l, r [N, 4] FP32 -> sum [N, 4] FP32   up to 4
 *   c  u [N, 3] UINT8 -> v [N, 2, 2] INT64   up to 8
 *   w  p [1, 4] FP32 -> q [1, 4] FP32        does not count instances
 *   e  x, m [N, seq] FP32 -> y [N, seq] FP32 up to 8, seq is 1 to 64
 *   f  x [N, len] FP32 -> y [N, ?] FP32      up to 8, len is 16 to 200
 *   t  x [3, N, 2] FP32, s [] FP32 -> y [3, N, 2] FP32, up to 8, s is shared
 *   l  x [1, 4] FP32 -> y [?, 4] FP32        a run tells how many
 *   d  a pipeline of a and a, like a
 *   g  a pipeline of e and e, like e
 */
#ifndef INFERD_TESTS_UNIT_DAEMON_BOUND_H
#define INFERD_TESTS_UNIT_DAEMON_BOUND_H

#include "daemon/pipeline.h"

/* The table with these models; the same one each time. */
struct table *bound_table(void);
/* Lets all of it go. */
void bound_end(void);

/* Goes through the steps as a request would, and aborts if anything does not hold that
 * daemon/pipeline_run.c counts on. */
void bound_check(const struct pipeline *pipeline);

#endif
