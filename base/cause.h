/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one table of causes: why something failed, in finer steps than a status. A program decides by
 * the cause, never by a text; the text beside it (base/error.h) is for people.
 *
 * The first 17 causes are the statuses themselves, with the same numbers. error_set gives one of
 * them where nobody needs to know more than the status. A row of the table has:
 *
 *   name      CAUSE_name; in CAUSE_STATUSES the status as well
 *   status    what goes onto the wire
 *   retry     the hint to a client: when it makes sense to try again, if at all
 *   counter   the daemon's (daemon/counters.h), for requests that fail for this cause
 *   sentence  the text where there is nothing particular to say (error_plain)
 *
 * Numbers leave a process only in the exit status of a build child (tools/handed.h), which is of
 * the same version.
 */
#ifndef INFERD_BASE_CAUSE_H
#define INFERD_BASE_CAUSE_H

enum {
    CAUSE_RETRY_NEVER = 0,       /* microseconds */
    CAUSE_RETRY_SOON = 10000,    /* a place, or memory, that others give back all the time */
    CAUSE_RETRY_LATER = 1000000, /* a server or a model that has yet to come back */
};

/* clang-format off */
#define CAUSE_STATUSES(X) \
    X(OK,                  NEVER, REQUESTS_OK,             "") \
    X(CANCELLED,           NEVER, CANCELLED,               "it was cancelled") \
    X(UNKNOWN,             NEVER, FAILED,                  "the reason is not known") \
    X(INVALID_ARGUMENT,    NEVER, REQUESTS_INVALID,        "it is not valid") \
    X(DEADLINE_EXCEEDED,   NEVER, EXPIRED,                 "it took too long") \
    X(NOT_FOUND,           NEVER, REQUESTS_NOT_FOUND,      "it is not there") \
    X(ALREADY_EXISTS,      NEVER, REQUESTS_INVALID,        "it is there already") \
    X(PERMISSION_DENIED,   NEVER, REFUSED_PERMISSION,      "there is no right to it") \
    X(RESOURCE_EXHAUSTED,  SOON,  REJECTED_MEMORY,         "a limit is reached") \
    X(FAILED_PRECONDITION, NEVER, REQUESTS_INVALID,        "it does not fit what there is") \
    X(ABORTED,             NEVER, FAILED,                  "it was given up") \
    X(OUT_OF_RANGE,        NEVER, REQUESTS_INVALID,        "it lies out of range") \
    X(UNIMPLEMENTED,       NEVER, REQUESTS_INVALID,        "it is unsupported") \
    X(INTERNAL,            NEVER, FAILED,                  "an internal error") \
    X(UNAVAILABLE,         LATER, REJECTED_UNAVAILABLE,    "it is not available now") \
    X(DATA_LOSS,           NEVER, FAILED,                  "data are damaged") \
    X(UNAUTHENTICATED,     NEVER, REFUSED_UNAUTHENTICATED, "a token is needed")

#define CAUSES(X) \
    /* a request: before, in and behind the queue */ \
    X(MODEL_MISSING,     NOT_FOUND,          NEVER, REQUESTS_NOT_FOUND, \
      "there is no such model") \
    X(MODEL_NOT_READY,   UNAVAILABLE,        LATER, REJECTED_UNAVAILABLE, \
      "the model is not ready") \
    X(FRAME_OVER_BUDGET, RESOURCE_EXHAUSTED, SOON,  FRAMES_REFUSED, \
      "no memory for the frame now") \
    X(OVER_BUDGET,       RESOURCE_EXHAUSTED, SOON,  REJECTED_MEMORY, \
      "no memory for the request now") \
    X(ADDRESS_FULL,      RESOURCE_EXHAUSTED, SOON,  REJECTED_ADDRESS, \
      "the limit of this address is reached") \
    X(IDENTITY_FULL,     RESOURCE_EXHAUSTED, SOON,  REJECTED_IDENTITY, \
      "the limit of this identity is reached") \
    X(QUEUE_FULL,        RESOURCE_EXHAUSTED, SOON,  REJECTED_QUEUE, \
      "the queue is full") \
    X(DEADLINE_HOPELESS, RESOURCE_EXHAUSTED, SOON,  REJECTED_DEADLINE, \
      "the queue is too long for the request's deadline") \
    X(EXPIRED,           DEADLINE_EXCEEDED,  NEVER, EXPIRED, \
      "the deadline passed before the request could run") \
    X(TAIL_OVER_LIMIT,   RESOURCE_EXHAUSTED, NEVER, REQUESTS_INVALID, \
      "the sizes that it leads to are beyond a limit") \
    X(DRAINING,          UNAVAILABLE,        LATER, REJECTED_UNAVAILABLE, \
      "the server is shutting down") \
    X(DEVICE_LOST,       UNAVAILABLE,        LATER, REJECTED_UNAVAILABLE, \
      "the device was lost") \
    X(WORKER_HANGS,      UNAVAILABLE,        LATER, REJECTED_UNAVAILABLE, \
      "a worker hangs") \
    X(SHAPE_BUILDING,    UNAVAILABLE,        LATER, REJECTED_SHAPE, \
      "an engine for these sizes is being built") \
    X(SHAPES_FULL,       RESOURCE_EXHAUSTED, LATER, REJECTED_SHAPE, \
      "too many other sizes wait for an engine to be built") \
    X(SHAPE_FAILED,      FAILED_PRECONDITION, NEVER, REJECTED_SHAPE, \
      "no engine can be built for these sizes") \
    X(CLIENT_CANCELLED,  CANCELLED,          NEVER, CANCELLED, \
      "cancelled by the client") \
    /* whatever is done */ \
    X(OUT_OF_MEMORY,     RESOURCE_EXHAUSTED, SOON,  REJECTED_MEMORY, \
      "out of memory") \
    X(DISK_FULL,         RESOURCE_EXHAUSTED, NEVER, FAILED, \
      "no room on the disk") \
    X(FILE_CHANGED,      UNAVAILABLE,        NEVER, FAILED, \
      "the file changed while it was read") \
    X(STOPPED,           CANCELLED,          NEVER, CANCELLED, \
      "the server is shutting down")
/* clang-format on */

enum cause {
#define STATUS_ROW(id, retry, counter, sentence)        CAUSE_##id,
#define CAUSE_ROW(id, status, retry, counter, sentence) CAUSE_##id,
    CAUSE_STATUSES(STATUS_ROW) CAUSES(CAUSE_ROW)
#undef STATUS_ROW
#undef CAUSE_ROW
        CAUSE_COUNT_
};

#endif
