/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log sink. Library folders never print: whoever wants to hear of fusions, tactics or near
 * misses passes a sink. A NULL sink, and a NULL `write` in it, are silent.
 *
 * Each message is of a component, so that a person can listen to one of them more closely than to
 * the rest. Nobody says so when writing: the component follows from the source file.
 */
#ifndef INFERD_BASE_LOG_H
#define INFERD_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_VERBOSE };

/* X(ID, name) */
#define LOG_COMPONENTS(X)                                                                          \
    X(SERVER, "server") /* start and end, signals, readiness, the monitor */                       \
    X(PEERS, "peers")   /* connections, requests, who may do what */                               \
    X(MODELS, "models") /* loading, building, the repository, the plan cache */                    \
    X(ENGINE, "engine") /* devices, importing, tuning */

enum log_component {
#define X(id, name) LOG_##id,
    LOG_COMPONENTS(X)
#undef X
        LOG_COMPONENT_COUNT_
};

struct log_sink {
    enum log_level level; /* messages above it are dropped before they are formatted; while others
                           * may write it is read and set by the functions below */
    void (*write)(void *user, enum log_level level, const char *line); /* called on any thread */
    void *user;
    /* The same with the component, instead of `write`; NULL: there is only `write`. */
    void (*write_of)(void *user, enum log_component component, enum log_level level,
                     const char *line);
    /* A level of its own for each component, plus one; 0: `level`. Read and set likewise. */
    int component_level[LOG_COMPONENT_COUNT_];
};

static inline enum log_level log_sink_level(const struct log_sink *sink)
{
    return __atomic_load_n(&sink->level, __ATOMIC_RELAXED);
}
static inline void log_sink_set(struct log_sink *sink, enum log_level level)
{
    __atomic_store_n(&sink->level, level, __ATOMIC_RELAXED);
}
/* What a component's messages are measured by: its own level, or that of all. */
static inline enum log_level log_component_level(const struct log_sink *sink,
                                                 enum log_component component)
{
    int own = __atomic_load_n(&sink->component_level[component], __ATOMIC_RELAXED);
    return own ? (enum log_level)(own - 1) : log_sink_level(sink);
}
static inline void log_component_set(struct log_sink *sink, enum log_component component,
                                     enum log_level level)
{
    __atomic_store_n(&sink->component_level[component], (int)level + 1, __ATOMIC_RELAXED);
}
static inline void log_component_clear(struct log_sink *sink, enum log_component component)
{
    __atomic_store_n(&sink->component_level[component], 0, __ATOMIC_RELAXED);
}

const char *log_component_name(enum log_component component);
const char *log_level_name(enum log_level level);
/* False: there is none of that name. `len` bytes of `name` count. */
bool log_component_parse(const char *name, size_t len, enum log_component *out);
bool log_level_parse(const char *name, size_t len, enum log_level *out);

/* "peers=verbose, engine=warning": sets out[component] to the level plus one; those that are not
 * named stay. False: it is no such list. */
bool log_components_parse(const char *text, int out[LOG_COMPONENT_COUNT_]);

/* The component of a source file, by the path that the compiler had of it. */
enum log_component log_component_of(const char *file);

#define log_write(sink, level, ...) log_write_from(sink, __FILE__, level, __VA_ARGS__)
void log_write_from(const struct log_sink *sink, const char *file, enum log_level level,
                    const char *fmt, ...) PRINTF(4, 5);

#endif
