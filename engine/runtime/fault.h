/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fault backend: wraps another backend and misbehaves by script (device_options.script), so
 * that tests see what a broken device would do to everything above it.
 *
 *   script = clause { ";" clause }
 *   clause = "on=" BACKEND                       what is wrapped; "cpu" if not given
 *          | "apart"                             the device claims to have memory of its own:
 *                                                inputs, outputs and weights pass through copy
 *          | POINT [ "#" N [ "+" ] ] ":" ACTION  at each call, the Nth (from 1), or from the Nth on
 *   POINT  = "memory"   memory_alloc and arena_grow
 *          | "prepare"  op_prepare
 *          | "launch"   op_launch and graph_launch
 *          | "copy"     copy
 *          | "wait"     event_wait
 *   ACTION = "delay=" N ("us" | "ms" | "s")      waits, then does the call as usual
 *          | "hang"                              never returns: for processes that will be killed
 *          | "fail" [ "=" STATUS ]               fails with STATUS ("unavailable"; INTERNAL if it
 *                                                is not given), scope ERROR_REQUEST
 *          | "model"                             INTERNAL, scope ERROR_MODEL
 *          | "oom"                               RESOURCE_EXHAUSTED
 *          | "short"                             only at copy: copies half of the bytes, then
 *                                                DATA_LOSS
 *          | "device"                            the device is lost: this and every later call
 *                                                fails with UNAVAILABLE, scope ERROR_DEVICE
 *
 * "on=cpu;launch:delay=50ms;launch#3:fail;launch#10:hang;memory:oom;prepare#2:fail;launch#5:device"
 *
 * If several clauses match a call, all their delays happen, and then the first other action. Calls
 * are counted over the whole device; calls of warm-up and capture count too. A fault device claims
 * what the wrapped backend claims (host memory, stable addresses, capture). It has the wrapped
 * device's fingerprint, so that device's plans fit.
 */
#ifndef INFERD_ENGINE_RUNTIME_FAULT_H
#define INFERD_ENGINE_RUNTIME_FAULT_H

#include "engine/backend.h"

/* The name of the backend that the device wraps; NULL: it is no fault device. */
const char *fault_wrapped(const struct device *device);

#endif
