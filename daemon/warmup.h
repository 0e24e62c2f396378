/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a model that has been loaded, on every worker, with the inputs that its config.pbtxt says,
 * before anybody sends it requests. The loader's thread.
 */
#ifndef INFERD_DAEMON_WARMUP_H
#define INFERD_DAEMON_WARMUP_H

#include "daemon/dispatch.h"
#include "daemon/repository.h"

/* The first run that fails is the result. */
enum status warmup_run(struct dispatch *dispatch, struct device *device, struct model *model,
                       const struct wanted *wanted, struct error *err);

#endif
