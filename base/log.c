/* SPDX-License-Identifier: Apache-2.0 */
/* Formats one line and gives it to the sink; see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char *const components[] = {
#define X(id, name) name,
    LOG_COMPONENTS(X)
#undef X
};

static const char *const levels[] = {"error", "warning", "info", "verbose"};

/* What the files' paths begin with, from the root of the tree; the first that fits. */
static const struct {
    const char *begin;
    enum log_component component;
} origins[] = {
    {"engine/", LOG_ENGINE},          {"kernels/", LOG_ENGINE},
    {"daemon/child", LOG_MODELS},     {"daemon/dispatch_model", LOG_MODELS},
    {"daemon/external", LOG_MODELS},  {"daemon/fits", LOG_MODELS},
    {"daemon/models", LOG_MODELS},    {"daemon/plan_", LOG_MODELS},
    {"daemon/readiness", LOG_MODELS}, {"daemon/repository", LOG_MODELS},
    {"daemon/trust", LOG_MODELS},     {"daemon/warmup", LOG_MODELS},
    {"daemon/caller", LOG_PEERS},     {"daemon/connection", LOG_PEERS},
    {"daemon/exchange", LOG_PEERS},   {"daemon/identity", LOG_PEERS},
    {"daemon/listener", LOG_PEERS},   {"daemon/peer", LOG_PEERS},
    {"daemon/permit", LOG_PEERS},     {"daemon/session", LOG_PEERS},
    {"daemon/token_file", LOG_PEERS}, {"http/", LOG_PEERS},
    {"config/", LOG_MODELS},
};

enum log_component log_component_of(const char *file)
{
    while (strncmp(file, "../", 3) == 0)
        file += 3;
    for (size_t i = 0; i < ARRAY_LEN(origins); i++)
        if (strncmp(file, origins[i].begin, strlen(origins[i].begin)) == 0)
            return origins[i].component;
    return LOG_SERVER;
}

const char *log_component_name(enum log_component component)
{
    return components[component];
}

const char *log_level_name(enum log_level level)
{
    return levels[level];
}

/* The place of a name in a list; `n`: it is not there. */
static size_t find(const char *const *names, size_t n, const char *name, size_t len)
{
    size_t i = 0;
    while (i < n && (strlen(names[i]) != len || memcmp(names[i], name, len) != 0))
        i++;
    return i;
}

bool log_component_parse(const char *name, size_t len, enum log_component *out)
{
    size_t i = find(components, ARRAY_LEN(components), name, len);
    if (i < ARRAY_LEN(components))
        *out = (enum log_component)i;
    return i < ARRAY_LEN(components);
}

bool log_level_parse(const char *name, size_t len, enum log_level *out)
{
    size_t i = find(levels, ARRAY_LEN(levels), name, len);
    if (i < ARRAY_LEN(levels))
        *out = (enum log_level)i;
    return i < ARRAY_LEN(levels);
}

bool log_components_parse(const char *text, int out[LOG_COMPONENT_COUNT_])
{
    for (bool more = true; more;) {
        enum log_component component;
        enum log_level level;
        text += strspn(text, " ");
        size_t name = strcspn(text, "=, ");
        if (text[name] != '=' || !log_component_parse(text, name, &component))
            return false;
        text += name + 1;
        size_t len = strcspn(text, ", ");
        if (!log_level_parse(text, len, &level))
            return false;
        out[component] = (int)level + 1;
        text += len;
        text += strspn(text, " ");
        more = *text == ',';
        text += more;
    }
    return *text == '\0';
}

void log_write_from(const struct log_sink *sink, const char *file, enum log_level level,
                    const char *fmt, ...)
{
    if (!sink || (!sink->write && !sink->write_of))
        return;
    enum log_component component = log_component_of(file);
    if (level > log_component_level(sink, component))
        return;
    char line[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    if (sink->write_of)
        sink->write_of(sink->user, component, level, line);
    else
        sink->write(sink->user, level, line);
}
