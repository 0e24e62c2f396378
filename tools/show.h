/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Printing of what files and servers say. Names of tensors and layers may hold anything, also what
 * terminals take for commands, so all of the text is escaped (base/escape.h) but the newlines that
 * the format begins and ends with.
 */
#ifndef INFERD_TOOLS_SHOW_H
#define INFERD_TOOLS_SHOW_H

#include <stdio.h>

#include "base/compiler.h"

/* To standard output. A format must have no newline in its middle. */
void show_printf(const char *format, ...) PRINTF(1, 2);
void show_fprintf(FILE *to, const char *format, ...) PRINTF(2, 3);

#endif
