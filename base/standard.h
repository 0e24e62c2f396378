/* SPDX-License-Identifier: Apache-2.0 */
/* Standard output: written at the end. */
#ifndef INFERD_BASE_STANDARD_H
#define INFERD_BASE_STANDARD_H

#include <stdio.h>

#include "base/error.h"

/* The last thing in main: writes what `output`, the standard one, still holds. Fails if that, or
 * anything printed before, could not be written. */
enum status standard_flush(FILE *output, struct error *err);

#endif
