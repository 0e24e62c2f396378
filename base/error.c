/* SPDX-License-Identifier: Apache-2.0 */
/* One line of text for each failure; see error.h. */
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/escape.h"

/* A text is formatted to this size and cut there. The size is above ERROR_TEXT_MAX, so that the cut
 * lies beyond what an error has room for. */
enum { RAW_MAX = ERROR_TEXT_MAX + 4 };

static const struct cause_row rows[CAUSE_COUNT_] = {
#define STATUS_ROW(id, retry, counter, sentence)                                                   \
    [CAUSE_##id] = {#id, STATUS_##id, CAUSE_RETRY_##retry, sentence},
#define CAUSE_ROW(id, status, retry, counter, sentence)                                            \
    [CAUSE_##id] = {#id, STATUS_##status, CAUSE_RETRY_##retry, sentence},
    CAUSE_STATUSES(STATUS_ROW) CAUSES(CAUSE_ROW)
#undef STATUS_ROW
#undef CAUSE_ROW
};

const struct cause_row *cause_row(enum cause cause)
{
    return &rows[(unsigned)cause < CAUSE_COUNT_ ? cause : CAUSE_UNKNOWN];
}

const char *status_name(enum status status)
{
    return rows[(unsigned)status < STATUS_COUNT_ ? (unsigned)status : CAUSE_UNKNOWN].name;
}

static enum status fill(struct error *err, enum cause cause, const char *text)
{
    if (err) {
        err->status = cause_row(cause)->status;
        err->cause = cause;
        err->scope = ERROR_REQUEST;
        escape_text(err->text, sizeof(err->text), text);
    }
    return cause_row(cause)->status;
}

enum status error_setv(struct error *err, enum status status, const char *fmt, va_list args)
{
    char raw[RAW_MAX];
    if (!err)
        return status;
    vsnprintf(raw, sizeof(raw), fmt, args);
    return fill(err, (enum cause)status, raw);
}

enum status error_set(struct error *err, enum status status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    error_setv(err, status, fmt, args);
    va_end(args);
    return status;
}

enum status error_cause(struct error *err, enum cause cause, const char *fmt, ...)
{
    char raw[RAW_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(raw, sizeof(raw), fmt, args);
    va_end(args);
    return fill(err, cause, raw);
}

enum status error_plain(struct error *err, enum cause cause)
{
    return fill(err, cause, cause_row(cause)->sentence);
}

enum status error_no_memory(struct error *err, const char *fmt, ...)
{
    char what[RAW_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    return error_cause(err, CAUSE_OUT_OF_MEMORY, "no memory for %s", what);
}

static enum cause cause_of_errno(int errnum)
{
    switch (errnum) {
    case ENOENT:
    case ENOTDIR:
        return CAUSE_NOT_FOUND;
    case EACCES:
    case EPERM:
        return CAUSE_PERMISSION_DENIED;
    case EEXIST:
        return CAUSE_ALREADY_EXISTS;
    case EINVAL:
    case ELOOP:
    case ENAMETOOLONG:
        return CAUSE_INVALID_ARGUMENT;
    case ENOMEM:
        return CAUSE_OUT_OF_MEMORY;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: /* the process's limit on the size of a file */
        return CAUSE_DISK_FULL;
    case EMFILE:
    case ENFILE:
        return CAUSE_RESOURCE_EXHAUSTED;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
        return CAUSE_UNAVAILABLE;
    case ETIMEDOUT:
        return CAUSE_DEADLINE_EXCEEDED;
    default:
        return CAUSE_INTERNAL;
    }
}

enum status error_errno(struct error *err, int errnum, const char *fmt, ...)
{
    char what[RAW_MAX];
    const char *reason = strerrordesc_np(errnum); /* static storage, unlike strerror */
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    if (!reason)
        return error_set(err, STATUS_INTERNAL, "%s: errno %d", what, errnum);
    return error_cause(err, cause_of_errno(errnum), "%s: %s", what, reason);
}

enum status error_copy(struct error *err, const struct error *from)
{
    if (err)
        *err = *from;
    return from->status;
}

enum status error_recast(struct error *err, enum cause cause)
{
    if (err) {
        err->status = cause_row(cause)->status;
        err->cause = cause;
    }
    return cause_row(cause)->status;
}

void error_prefix(struct error *err, const char *fmt, ...)
{
    if (!err)
        return;
    char head[RAW_MAX];
    char whole[2 * RAW_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(head, sizeof(head), fmt, args);
    va_end(args);
    snprintf(whole, sizeof(whole), "%s: %s", head, err->text);
    escape_text(err->text, sizeof(err->text), whole);
}
