/* SPDX-License-Identifier: Apache-2.0 */
/* Host-side conversion between dense fp32 and any type and layout of the IR: slow, and to be read.
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

/* `plain` in `dtype`, dense, to a tensor's type and layout, its padding zero. Other types than
 * floats are copied as they are. */
void layout_pack(const struct ir_tensor *tensor, const void *plain, enum dtype dtype, void *to);
/* And back to dense bytes of `dtype`. */
void layout_unpack(const struct ir_tensor *tensor, const void *from, enum dtype dtype, void *plain);
/* Whether what lies between the elements is zero. */
bool layout_padding_zero(const struct ir_tensor *tensor, const void *data);

#endif
