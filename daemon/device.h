/* SPDX-License-Identifier: Apache-2.0 */
/* The device that a configuration names, opened as the daemon opens it. */
#ifndef INFERD_DAEMON_DEVICE_H
#define INFERD_DAEMON_DEVICE_H

#include "base/log.h"
#include "config/config.h"
#include "engine/engine.h"

/* `log` must outlive the device. */
enum status device_configured_open(const struct config *config, const struct log_sink *log,
                                   struct device **out, struct error *err);

#endif
