/* SPDX-License-Identifier: Apache-2.0 */
/* One line of text a failure; see error.h. */
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const names[STATUS_COUNT_] = {
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
};

const char *status_name(enum status status)
{
    return (unsigned)status < STATUS_COUNT_ ? names[status] : "UNKNOWN";
}

/* Copies `in` to `out`, each control byte as \xNN; never splits an escape. */
static void escape(char *out, size_t size, const char *in)
{
    size_t n = 0;
    for (; *in; in++) {
        unsigned char c = (unsigned char)*in;
        if (c >= 0x20 && c != 0x7f) {
            if (n + 1 >= size)
                break;
            out[n++] = *in;
        } else {
            if (n + 4 >= size)
                break;
            snprintf(out + n, 5, "\\x%02x", c);
            n += 4;
        }
    }
    out[n] = '\0';
}

enum status error_setv(struct error *err, enum status status, const char *fmt, va_list args)
{
    if (err) {
        char raw[ERROR_TEXT_MAX];
        vsnprintf(raw, sizeof(raw), fmt, args);
        err->status = status;
        err->scope = ERROR_REQUEST;
        escape(err->text, sizeof(err->text), raw);
    }
    return status;
}

enum status error_set(struct error *err, enum status status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    error_setv(err, status, fmt, args);
    va_end(args);
    return status;
}

static enum status status_of_errno(int errnum)
{
    switch (errnum) {
    case ENOENT:
    case ENOTDIR:
        return STATUS_NOT_FOUND;
    case EACCES:
    case EPERM:
        return STATUS_PERMISSION_DENIED;
    case EEXIST:
        return STATUS_ALREADY_EXISTS;
    case EINVAL:
    case ELOOP:
    case ENAMETOOLONG:
        return STATUS_INVALID_ARGUMENT;
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
        return STATUS_RESOURCE_EXHAUSTED;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
        return STATUS_UNAVAILABLE;
    case ETIMEDOUT:
        return STATUS_DEADLINE_EXCEEDED;
    default:
        return STATUS_INTERNAL;
    }
}

enum status error_errno(struct error *err, int errnum, const char *fmt, ...)
{
    char what[ERROR_TEXT_MAX];
    const char *reason = strerrordesc_np(errnum); /* static storage, unlike strerror */
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    if (!reason)
        return error_set(err, STATUS_INTERNAL, "%s: errno %d", what, errnum);
    return error_set(err, status_of_errno(errnum), "%s: %s", what, reason);
}

void error_prefix(struct error *err, const char *fmt, ...)
{
    if (!err)
        return;
    char head[ERROR_TEXT_MAX];
    char whole[2 * ERROR_TEXT_MAX + 4];
    va_list args;
    va_start(args, fmt);
    vsnprintf(head, sizeof(head), fmt, args);
    va_end(args);
    snprintf(whole, sizeof(whole), "%s: %s", head, err->text);
    escape(err->text, sizeof(err->text), whole);
}
