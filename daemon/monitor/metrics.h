/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot as text for Prometheus (exposition format 0.0.4). There are two sets of names, and
 * whoever asks may want one of them: those of Triton, with its labels and units, so that dashboards
 * made for it go on working; and our own, which follow the conventions of Prometheus.
 */
#ifndef INFERD_DAEMON_MONITOR_METRICS_H
#define INFERD_DAEMON_MONITOR_METRICS_H

#include "base/text.h"
#include "daemon/monitor/snapshot.h"

enum { METRICS_TRITON = 1, METRICS_OWN = 2, METRICS_ALL = METRICS_TRITON | METRICS_OWN };

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

void metrics_write(const struct snapshot *snapshot, unsigned sets, struct text *out);

#endif
