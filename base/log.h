/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log sink. Library folders never print: whoever wants to hear of fusions, tactics or near
 * misses passes a sink. A NULL sink, and a NULL `write` in it, are silent.
 */
#ifndef INFERD_BASE_LOG_H
#define INFERD_BASE_LOG_H

#include "base/compiler.h"

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_VERBOSE };

struct log_sink {
    enum log_level level; /* messages above it are dropped before they are formatted; while others
                           * may write it is read and set by the functions below */
    void (*write)(void *user, enum log_level level, const char *line); /* called on any thread */
    void *user;
};

static inline enum log_level log_sink_level(const struct log_sink *sink)
{
    return __atomic_load_n(&sink->level, __ATOMIC_RELAXED);
}
static inline void log_sink_set(struct log_sink *sink, enum log_level level)
{
    __atomic_store_n(&sink->level, level, __ATOMIC_RELAXED);
}

void log_write(const struct log_sink *sink, enum log_level level, const char *fmt, ...)
    PRINTF(3, 4);

#endif
