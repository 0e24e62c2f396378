/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that a user writes, as elements of a tensor. */
#ifndef INFERD_ENGINE_IMPORT_VALUE_H
#define INFERD_ENGINE_IMPORT_VALUE_H

#include "base/dtype.h"

/* Writes the numbers of `text`, which has commas between them, as `n` elements; one number fills
 * them all. False: they are fewer or more, or one is no number that the type holds. */
bool value_fill(const char *text, enum dtype dtype, size_t n, void *out);

#endif
