/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fusion must not cost a node its fast kernel: if the bare node has a fast kernel, so has the
 * node with the epilogue that the passes gave it. Otherwise a convolution would fall to the
 * reference kernels because of the activation behind it.
 */
#ifndef INFERD_TESTS_UNIT_PASSES_KEPT_H
#define INFERD_TESTS_UNIT_PASSES_KEPT_H

#include "engine/backend.h"

enum kept_by { KEPT_BY_ONEDNN, KEPT_BY_ANY /* but the reference */ };

/* Returns INTERNAL, with the node's name, if a node has lost its kernels of this kind on this CPU
 * device. Adds the number of nodes with an epilogue to `fused`. */
enum status kept_check(struct device *device, const struct ir_graph *graph, enum kept_by by,
                       uint32_t *fused, struct error *err);

#endif
