/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What somebody asks the monitor for, out of a head that http/reader.h has read: GET or HEAD, a
 * path and no body, because nothing here takes one, and a body that nobody reads could pass for the
 * next request.
 */
#ifndef INFERD_DAEMON_MONITOR_QUESTION_H
#define INFERD_DAEMON_MONITOR_QUESTION_H

#include "base/token.h"
#include "http/reader.h"

enum { QUESTION_PATH_MOST = 1024 }; /* bytes of a request's path and query */

struct question {
    bool head;                     /* HEAD: no body is sent */
    bool keep;                     /* another request may follow */
    char path[QUESTION_PATH_MOST]; /* with %XX decoded */
    struct message_text query;     /* still encoded; it lies in the reader */
    char token[TOKEN_MOST + 1];    /* of Authorization; "" if there is none */
};

/* Returns 200, or the status of a refusal. */
unsigned question_read(const struct http_head *head, struct question *out);

/* The value of `name` in a query such as "a=1&b=2"; false: it is not there, or does not fit. May be
 * called with rising `*at` (0 first) for names that come several times. */
bool question_value(struct message_text query, const char *name, size_t *at, char *out,
                    size_t size);

#endif
