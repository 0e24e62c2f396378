/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The little of HTTP/1.1 that the monitor's port speaks: GET and HEAD, without bodies. Pure
 * functions over bytes; everything has a limit, and what is not plainly allowed is refused.
 */
#ifndef INFERD_DAEMON_MONITOR_HTTP_H
#define INFERD_DAEMON_MONITOR_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/token.h"

enum {
    HTTP_HEAD_MOST = 8192, /* bytes of a request */
    HTTP_HEADERS_MOST = 64,
    HTTP_TARGET_MOST = 1024,
};

struct http_request {
    bool head;                     /* HEAD: no body is sent */
    bool keep;                     /* another request may follow */
    char target[HTTP_TARGET_MOST]; /* the path, with %XX decoded */
    const char *query;             /* within target; "" if there is none, still encoded */
    char token[TOKEN_MOST + 1];    /* of Authorization; "" if there is none */
};

enum http_result {
    HTTP_MORE, /* not all of it has come */
    HTTP_DONE, /* *out is filled; `size` bytes were used */
    HTTP_BAD,  /* *status says why: the connection cannot go on */
};

/* Reads the request at the beginning of `data`. */
enum http_result http_parse(const char *data, size_t len, struct http_request *out, size_t *size,
                            int *status);

/* "OK", "Not Found" ... for the numbers that are used here. */
const char *http_reason(int status);

/* The value of `name` in a query such as "a=1&b=2"; false: it is not there, or does not fit. May be
 * called with rising `*at` (0 first) for names that come several times. */
bool http_query(const char *query, const char *name, size_t *at, char *out, size_t size);

#endif
