/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fusion must not cost a node its fast kernel: what has one bare has one with the epilogue that
 * the passes gave it. Otherwise a convolution would fall to the reference kernels because of the
 * activation behind it.
 */
#ifndef INFERD_TESTS_UNIT_PASSES_KEPT_H
#define INFERD_TESTS_UNIT_PASSES_KEPT_H

#include "engine/backend.h"

enum kept_by { KEPT_BY_ONEDNN, KEPT_BY_ANY /* but the reference */ };

/* INTERNAL, with the name of the node, if one has lost its kernels of this kind on this CPU device.
 * `fused` is counted up by the nodes that have an epilogue. */
enum status kept_check(struct device *device, const struct ir_graph *graph, enum kept_by by,
                       uint32_t *fused, struct error *err);

#endif
