/* SPDX-License-Identifier: Apache-2.0 */
/* Formats one line and gives it to the sink; see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

void log_write(const struct log_sink *sink, enum log_level level, const char *fmt, ...)
{
    if (!sink || !sink->write || level > log_sink_level(sink))
        return;
    char line[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    sink->write(sink->user, level, line);
}
