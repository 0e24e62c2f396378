/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of traces and log by the names that the field's clients know; see answer.h. The
 * log's level, and whether, how often and how many requests are traced, can be changed while the
 * server serves. What cannot be changed is refused, unless it is set to what it is.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/answer.h"
#include "daemon/trace.h"

enum { TRACE_RATE = 1000 }; /* while nobody said otherwise */

/* --- the log --- */

static bool is(const struct request_setting *s, const char *key)
{
    return message_text_equal(s->key, message_text_of(key));
}

static enum status not_so(const struct request_setting *s, const char *expected, struct error *err)
{
    return error_set(err, STATUS_INVALID_ARGUMENT, "setting '%.*s': expected %s",
                     MESSAGE_TEXT(s->key), expected);
}

/* The three switches are steps of one scale: what is less important than a level that is off is
 * off, too. */
static enum status level_set(const struct request_setting *s, enum log_level level,
                             enum log_level *now, struct error *err)
{
    if (s->kind != REQUEST_SETTING_BOOL)
        return not_so(s, "true or false", err);
    if (s->number)
        *now = MAX(*now, level);
    else if (level != LOG_ERROR)
        *now = MIN(*now, level - 1);
    else
        return not_so(s, "true: errors are always logged", err);
    return STATUS_OK;
}

static enum status log_set(const struct request_setting *s, enum log_level *now, struct error *err)
{
    if (is(s, "log_error"))
        return level_set(s, LOG_ERROR, now, err);
    if (is(s, "log_warning"))
        return level_set(s, LOG_WARNING, now, err);
    if (is(s, "log_info"))
        return level_set(s, LOG_INFO, now, err);
    if (is(s, "log_verbose_level")) {
        if (s->kind != REQUEST_SETTING_NUMBER)
            return not_so(s, "a number", err);
        *now = s->number ? LOG_VERBOSE : MIN(*now, LOG_INFO);
        return STATUS_OK;
    }
    if (is(s, "log_format") && s->kind == REQUEST_SETTING_TEXT &&
        message_text_equal(s->text, message_text_of("default")))
        return STATUS_OK;
    if (is(s, "log_format"))
        return not_so(s, "'default'", err);
    if (is(s, "log_file") && s->kind == REQUEST_SETTING_TEXT && !s->text.len)
        return STATUS_OK;
    if (is(s, "log_file"))
        return not_so(s, "'': no request says where the log goes", err);
    return not_so(s, "log_error, log_warning, log_info, log_verbose_level, log_format or log_file",
                  err);
}

static enum status log_settings(struct loop *loop, const struct request *request,
                                struct arena *arena, struct body_settings *out, struct error *err)
{
    struct log_sink *log = &loop->shared->log;
    enum log_level level = log_sink_level(log);
    for (uint32_t i = 0; i < request->n_settings; i++)
        TRY(log_set(&request->settings[i], &level, err));
    if (request->n_settings)
        log_sink_set(log, level);
    const struct body_setting rows[] = {
        {"log_file", REQUEST_SETTING_TEXT, "", 0},
        {"log_info", REQUEST_SETTING_BOOL, NULL, level >= LOG_INFO},
        {"log_warning", REQUEST_SETTING_BOOL, NULL, level >= LOG_WARNING},
        {"log_error", REQUEST_SETTING_BOOL, NULL, 1},
        {"log_verbose_level", REQUEST_SETTING_NUMBER, NULL, level >= LOG_VERBOSE},
        {"log_format", REQUEST_SETTING_TEXT, "default", 0},
    };
    struct body_setting *items = arena_array(arena, ARRAY_LEN(rows), sizeof(*items));
    if (!items)
        return error_no_memory(err, "a description");
    memcpy(items, rows, sizeof(rows));
    *out = (struct body_settings){ARRAY_LEN(rows), items};
    return STATUS_OK;
}

/* --- traces --- */

enum { TRACE_SETTINGS = 6 };

/* Whether a setting is to be what it is, or its default. */
static bool stays(const struct request_setting *s, const char *now)
{
    return s->kind == REQUEST_SETTING_CLEAR || message_text_equal(s->text, message_text_of(now));
}

static bool rate_read(const struct request_setting *s, uint32_t *out)
{
    uint64_t rate = 0;
    for (size_t i = 0; i < s->text.len; i++) {
        if (s->text.data[i] < '0' || s->text.data[i] > '9' || rate > UINT32_MAX)
            return false;
        rate = 10 * rate + (uint64_t)(s->text.data[i] - '0');
    }
    *out = (uint32_t)rate;
    return s->text.len && rate && rate <= UINT32_MAX;
}

struct tracing {
    bool on;
    uint32_t rate; /* that counts while it is on */
    int64_t left;  /* traces to come; -1: any number */
    bool counted;  /* it was set */
};

/* A number, or -1 for any number of traces. */
static bool count_read(const struct request_setting *s, int64_t *out)
{
    uint32_t n = 0;
    bool any =
        s->kind == REQUEST_SETTING_CLEAR || message_text_equal(s->text, message_text_of("-1"));
    bool none = message_text_equal(s->text, message_text_of("0"));
    if (!any && !none && !rate_read(s, &n))
        return false;
    *out = any ? -1 : (int64_t)n;
    return true;
}

static enum status trace_set(const struct request_setting *s, struct tracing *now,
                             struct error *err)
{
    static const struct body_setting fixed[] = {{"log_frequency", REQUEST_SETTING_TEXT, "0", 0},
                                                {"trace_file", REQUEST_SETTING_TEXT, "", 0},
                                                {"trace_mode", REQUEST_SETTING_TEXT, "triton", 0}};
    if (is(s, "trace_level")) {
        now->on = !stays(s, "OFF");
        if (now->on && !stays(s, "TIMESTAMPS"))
            return not_so(s, "OFF or TIMESTAMPS", err);
        return STATUS_OK;
    }
    if (is(s, "trace_rate")) {
        if (s->kind == REQUEST_SETTING_CLEAR)
            now->rate = TRACE_RATE;
        else if (!rate_read(s, &now->rate))
            return not_so(s, "a number from 1", err);
        return STATUS_OK;
    }
    if (is(s, "trace_count")) {
        now->counted = true;
        return count_read(s, &now->left) ? STATUS_OK : not_so(s, "a number from 0, or -1", err);
    }
    for (size_t k = 0; k < ARRAY_LEN(fixed); k++) {
        if (!is(s, fixed[k].key))
            continue;
        if (stays(s, fixed[k].text))
            return STATUS_OK;
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "setting '%s': it is '%s' and cannot be changed", fixed[k].key,
                         fixed[k].text);
    }
    return not_so(s, "a setting of traces, such as trace_level", err);
}

static enum status trace_settings(struct loop *loop, const struct request *request,
                                  struct arena *arena, struct body_settings *out, struct error *err)
{
    struct traces *traces = loop->shared->traces;
    uint32_t before = traces ? traces_rate(traces) : 0;
    struct tracing now = {before != 0, before ? before : TRACE_RATE,
                          traces ? traces_left(traces) : -1, false};
    for (uint32_t i = 0; i < request->n_settings; i++)
        TRY(trace_set(&request->settings[i], &now, err));
    if (now.on && !traces)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "the configuration names neither a file nor a collector for traces");
    if (!now.on && now.rate != TRACE_RATE && !before)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "setting 'trace_rate': it counts while trace_level is TIMESTAMPS");
    if (traces && request->n_settings)
        traces_rate_set(traces, now.on ? now.rate : 0);
    if (traces && now.counted)
        traces_left_set(traces, now.left);
    struct body_setting *items = arena_array(arena, TRACE_SETTINGS, sizeof(*items));
    char *text = arena_printf(arena, "%u", now.rate);
    char *left = arena_printf(arena, "%lld", (long long)(traces ? now.left : -1));
    if (!items || !text || !left)
        return error_no_memory(err, "a description");
    const struct body_setting rows[] = {
        {"trace_level", REQUEST_SETTING_TEXT, now.on ? "TIMESTAMPS" : "OFF", 0},
        {"trace_rate", REQUEST_SETTING_TEXT, text, 0},
        {"trace_count", REQUEST_SETTING_TEXT, left, 0},
        {"log_frequency", REQUEST_SETTING_TEXT, "0", 0},
        {"trace_file", REQUEST_SETTING_TEXT, "", 0},
        {"trace_mode", REQUEST_SETTING_TEXT, "triton", 0},
    };
    _Static_assert(ARRAY_LEN(rows) == TRACE_SETTINGS, "there is room for all");
    memcpy(items, rows, sizeof(rows));
    *out = (struct body_settings){ARRAY_LEN(rows), items};
    return STATUS_OK;
}

enum status answer_settings(struct loop *loop, const struct request *request, struct arena *arena,
                            struct body_settings *out, struct error *err)
{
    if (request->kind == REQUEST_LOG_SETTING)
        return log_settings(loop, request, arena, out, err);
    return trace_settings(loop, request, arena, out, err);
}
