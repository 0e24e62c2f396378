/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The paths of the Open Inference Protocol over HTTP, with those that Triton has beside it: which
 * question a path asks, of which model or region. One row of a table for each.
 */
#ifndef INFERD_HTTP_ROUTE_H
#define INFERD_HTTP_ROUTE_H

#include "http/reader.h"
#include "proto/request.h"

struct http_route {
    enum request_kind kind;
    bool takes_body; /* a JSON body means something here */
    char model[MESSAGE_MAX_NAME + 1], version[MESSAGE_MAX_NAME + 1]; /* empty: none is named */
    char region[REQUEST_MAX_REGION + 1];
};

/* Finds the route of a head. 0: it is there; else the status to answer with: 400 (a name that no
 * model or region can have), 404, 405 or 204 (OPTIONS); `allow` is then what the path takes ("GET,
 * HEAD", or "" if there is no such path), and `err` says why. */
unsigned http_route_find(const struct http_head *head, struct http_route *out, const char **allow,
                         struct error *err);

/* The status of HTTP for one of ours. */
unsigned http_code_of(enum status status);

#endif
