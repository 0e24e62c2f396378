/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status codes and error texts.
 *
 * Functions that can fail return `enum status`. Those whose reason a user must read also take a
 * `struct error *` (NULL: the text is not wanted) and fill it on failure only. The codes and their
 * numbers are gRPC's (grpc/doc/statuscodes.md), so a status goes onto the wire as it is.
 */
#ifndef INFERD_BASE_ERROR_H
#define INFERD_BASE_ERROR_H

#include <stdarg.h>

#include "base/compiler.h"

enum status {
    STATUS_OK = 0,
    STATUS_CANCELLED = 1,
    STATUS_UNKNOWN = 2,
    STATUS_INVALID_ARGUMENT = 3,
    STATUS_DEADLINE_EXCEEDED = 4,
    STATUS_NOT_FOUND = 5,
    STATUS_ALREADY_EXISTS = 6,
    STATUS_PERMISSION_DENIED = 7,
    STATUS_RESOURCE_EXHAUSTED = 8,
    STATUS_FAILED_PRECONDITION = 9,
    STATUS_ABORTED = 10,
    STATUS_OUT_OF_RANGE = 11,
    STATUS_UNIMPLEMENTED = 12,
    STATUS_INTERNAL = 13,
    STATUS_UNAVAILABLE = 14,
    STATUS_DATA_LOSS = 15,
    STATUS_UNAUTHENTICATED = 16,
    STATUS_COUNT_
};

/* Returns from the calling function with what `call` returns, unless that is STATUS_OK. What the
 * function owns at that point must be in CLEANUP variables. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum status status_ = (call);                                                              \
        if (status_)                                                                               \
            return status_;                                                                        \
    } while (0)

/* How far a failure reaches: this request alone, this model, or the device and so the process. */
enum error_scope { ERROR_REQUEST, ERROR_MODEL, ERROR_DEVICE };

enum { ERROR_TEXT_MAX = 512 };

struct error {
    enum status status;
    enum error_scope scope;
    char text[ERROR_TEXT_MAX]; /* one line of UTF-8; always terminated */
};

/* "INVALID_ARGUMENT" and so on; "UNKNOWN" for a number outside the table. Static storage. */
const char *status_name(enum status status);

/* Fills `err` (if not NULL) with scope ERROR_REQUEST and returns `status`. A text that is too long
 * is cut, not within a character. Control characters and bytes that are not UTF-8 are written as
 * \xNN, so that a text made from a peer's bytes is one line that any protobuf library takes. */
enum status error_set(struct error *err, enum status status, const char *fmt, ...) PRINTF(3, 4);
enum status error_setv(struct error *err, enum status status, const char *fmt, va_list args)
    PRINTF(3, 0);

/* error_set with the text of an errno value appended; the status follows from the errno. */
enum status error_errno(struct error *err, int errnum, const char *fmt, ...) PRINTF(3, 4);

/* Puts "text: " before what `err` already says; for callers who know where it happened. */
void error_prefix(struct error *err, const char *fmt, ...) PRINTF(2, 3);

#endif
