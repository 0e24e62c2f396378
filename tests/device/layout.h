/* SPDX-License-Identifier: Apache-2.0 */
/* Host-side conversion between dense fp32 and any type and layout of the IR. It is slow, and
 * written to be read.
 */
#ifndef INFERD_TESTS_DEVICE_LAYOUT_H
#define INFERD_TESTS_DEVICE_LAYOUT_H

#include <stdbool.h>

#include "engine/ir/ir.h"

/* Where element `index` (dense row-major) of a tensor lies, in elements. */
uint64_t layout_at(const struct shape *shape, enum ir_layout layout, uint64_t index);

/* Float types only. */
double layout_load(const void *data, enum dtype dtype, uint64_t at);
void layout_store(void *data, enum dtype dtype, uint64_t at, double value);

/* Converts `plain`, which is dense and of type `dtype`, to a tensor's type and layout, with zeros
 * as padding. Elements of types other than floats are copied as they are. */
void layout_pack(const struct ir_tensor *tensor, const void *plain, enum dtype dtype, void *to);
/* Converts a tensor back to dense bytes of type `dtype`. */
void layout_unpack(const struct ir_tensor *tensor, const void *from, enum dtype dtype, void *plain);
/* Says whether the bytes between the elements are all zero. */
bool layout_padding_zero(const struct ir_tensor *tensor, const void *data);

#endif
