/* SPDX-License-Identifier: Apache-2.0 */
/* Standard input, output and error: there from the beginning, written at the end. */
#ifndef INFERD_BASE_STANDARD_H
#define INFERD_BASE_STANDARD_H

#include <stdio.h>

#include "base/error.h"

/* The first thing in main. Opens /dev/null in the place of each of the three that is closed: else
 * the first file or socket that is opened would take its number, and what is printed would go
 * there. */
void standard_open(void);

/* The last thing in main: writes what `output`, the standard one, still holds. Fails if that, or
 * anything printed before, could not be written. */
enum status standard_flush(FILE *output, struct error *err);

#endif
