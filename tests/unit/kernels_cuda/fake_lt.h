/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cuBLASLt without a device, as far as products of INT8 and FP8 need it: descriptors are tables,
 * the heuristics refuse what the library's documentation refuses, and a product is computed from
 * descriptors and addresses alone.
 */
#ifndef INFERD_TESTS_UNIT_KERNELS_CUDA_FAKE_LT_H
#define INFERD_TESTS_UNIT_KERNELS_CUDA_FAKE_LT_H

#include "engine/cuda/lt.h"

extern const struct lt_api fake_lt;

#endif
