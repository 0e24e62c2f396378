/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status codes, causes and error texts.
 *
 * Functions that can fail return `enum status`. Those whose reason a user must read also take a
 * `struct error *` (NULL: the reason is not wanted) and fill it on failure only. The codes and
 * their numbers are gRPC's (grpc/doc/statuscodes.md), so a status goes onto the wire as it is.
 * Where somebody acts on more than the status, the error has a cause of its own (base/cause.h); its
 * text is for people, and no program looks into it.
 */
#ifndef INFERD_BASE_ERROR_H
#define INFERD_BASE_ERROR_H

#include <stdarg.h>
#include <stdint.h>

#include "base/cause.h"
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
        enum status try_status = (call);                                                           \
        if (try_status)                                                                            \
            return try_status;                                                                     \
    } while (0)

/* How far a failure reaches: this request alone, this model, or the device and so the process. */
enum error_scope { ERROR_REQUEST, ERROR_MODEL, ERROR_DEVICE };

enum { ERROR_TEXT_MAX = 512 };

struct error {
    enum status status; /* the cause's */
    enum cause cause;
    enum error_scope scope;
    char text[ERROR_TEXT_MAX]; /* one line of UTF-8; always terminated */
};

/* "INVALID_ARGUMENT" and so on; "UNKNOWN" for a number outside the table. Static storage. */
const char *status_name(enum status status);

/* A row of the table of causes (base/cause.h). cause_row() gives UNKNOWN's row for a number outside
 * the table. */
struct cause_row {
    const char *name;
    enum status status;
    uint32_t retry_us; /* 0: trying again is of no use */
    const char *sentence;
};
const struct cause_row *cause_row(enum cause cause);

/* Fills `err` (if not NULL) with scope ERROR_REQUEST and the status as its cause, and returns
 * `status`. A text that is too long is cut between two characters. Control characters and bytes
 * that are not UTF-8 are written as \xNN, so that a text made from a peer's bytes is one line that
 * any protobuf library takes. */
enum status error_set(struct error *err, enum status status, const char *fmt, ...) PRINTF(3, 4);
enum status error_setv(struct error *err, enum status status, const char *fmt, va_list args)
    PRINTF(3, 0);

/* The same for a cause, whose status is returned. error_plain takes the cause's sentence as
 * text. */
enum status error_cause(struct error *err, enum cause cause, const char *fmt, ...) PRINTF(3, 4);
enum status error_plain(struct error *err, enum cause cause);

/* Fails with the cause OUT_OF_MEMORY; the text is "no memory for " and what could not be made. */
enum status error_no_memory(struct error *err, const char *fmt, ...) PRINTF(2, 3);

/* error_set with the text of an errno value appended; the cause follows from the errno. */
enum status error_errno(struct error *err, int errnum, const char *fmt, ...) PRINTF(3, 4);

/* Hands on another function's error unchanged, and returns its status. */
enum status error_copy(struct error *err, const struct error *from);

/* Gives `err` another cause, keeps its text, and returns the status of the cause. */
enum status error_recast(struct error *err, enum cause cause);

/* Puts "text: " before what `err` already says; for callers who know where it happened. */
void error_prefix(struct error *err, const char *fmt, ...) PRINTF(2, 3);

#endif
