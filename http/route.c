/* SPDX-License-Identifier: Apache-2.0 */
/* Paths, see route.h. */
#include "http/route.h"

enum { SEGMENTS = 8 };

/* What stands in front of a path's tail. */
enum scope {
    SCOPE_SERVER,     /* v2/TAIL */
    SCOPE_MODEL,      /* v2/models/MODEL[/versions/VERSION]/TAIL */
    SCOPE_REPOSITORY, /* v2/repository[/REPOSITORY]/TAIL; there is one, whatever it is called */
    SCOPE_STORED,     /* v2/repository[/REPOSITORY]/models/MODEL/TAIL */
    SCOPE_MEMORY,     /* v2/systemsharedmemory[/region/NAME]/TAIL */
    SCOPE_CUDA,       /* v2/cudasharedmemory[/region/NAME]/TAIL */
};

struct row {
    enum scope scope;
    const char *tail;
    bool get, post;
    enum request_kind kind;
};

static const struct row rows[] = {
    {SCOPE_SERVER, "", true, false, REQUEST_SERVER_METADATA},
    {SCOPE_SERVER, "health/live", true, false, REQUEST_SERVER_LIVE},
    {SCOPE_SERVER, "health/ready", true, false, REQUEST_SERVER_READY},
    {SCOPE_SERVER, "models/stats", true, false, REQUEST_STATISTICS},
    {SCOPE_SERVER, "trace/setting", true, true, REQUEST_TRACE_SETTING},
    {SCOPE_SERVER, "logging", true, true, REQUEST_LOG_SETTING},
    {SCOPE_MODEL, "", true, false, REQUEST_MODEL_METADATA},
    {SCOPE_MODEL, "ready", true, false, REQUEST_MODEL_READY},
    {SCOPE_MODEL, "config", true, false, REQUEST_MODEL_CONFIG},
    {SCOPE_MODEL, "stats", true, false, REQUEST_STATISTICS},
    {SCOPE_MODEL, "infer", false, true, REQUEST_INFER},
    {SCOPE_MODEL, "trace/setting", true, true, REQUEST_TRACE_SETTING},
    {SCOPE_REPOSITORY, "index", false, true, REQUEST_REPOSITORY_INDEX},
    {SCOPE_STORED, "load", false, true, REQUEST_MODEL_LOAD},
    {SCOPE_STORED, "unload", false, true, REQUEST_MODEL_UNLOAD},
    {SCOPE_MEMORY, "status", true, false, REQUEST_MEMORY_STATUS},
    {SCOPE_MEMORY, "register", false, true, REQUEST_MEMORY_REGISTER},
    {SCOPE_MEMORY, "unregister", false, true, REQUEST_MEMORY_UNREGISTER},
    {SCOPE_CUDA, "status", true, false, REQUEST_CUDA_STATUS},
    {SCOPE_CUDA, "register", false, true, REQUEST_CUDA_REGISTER},
    {SCOPE_CUDA, "unregister", false, true, REQUEST_CUDA_UNREGISTER},
};

/* A path in its parts, from parts[at] on. */
struct path {
    struct message_text parts[SEGMENTS];
    uint32_t at, n;
};

/* Divides a path; empty parts at its end do not count ("/v2/"). False: it is none of ours. */
static bool path_divide(struct message_text text, struct path *out)
{
    out->at = out->n = 0;
    while (text.len && text.data[text.len - 1] == '/')
        text.len--;
    while (text.len) {
        const char *begin = text.data + 1, *end = text.data + text.len;
        const char *slash = begin < end ? memchr(begin, '/', (size_t)(end - begin)) : NULL;
        const char *stop = slash ? slash : end;
        if (out->n == SEGMENTS || stop == begin)
            return false;
        out->parts[out->n++] = (struct message_text){begin, (size_t)(stop - begin)};
        text = (struct message_text){stop, (size_t)(end - stop)};
    }
    return true;
}

static bool part_is(const struct path *path, uint32_t i, const char *wanted)
{
    return path->at + i < path->n &&
           message_text_equal(path->parts[path->at + i], message_text_of(wanted));
}

/* Undoes the encoding by per cent, and checks that this can be a name. */
static bool name_take(struct path *path, char out[MESSAGE_MAX_NAME + 1])
{
    if (path->at == path->n)
        return false;
    return http_text_decode(path->parts[path->at++], out, MESSAGE_MAX_NAME + 1) &&
           message_name_ok(message_text_of(out));
}

/* What stands between "region" and the last part: names of tensors, after which clients call their
 * regions, have slashes. */
static bool region_take(struct path *path, char out[REQUEST_MAX_REGION + 1])
{
    path->at++;
    if (path->at + 1 >= path->n)
        return false;
    const char *begin = path->parts[path->at].data;
    const struct message_text *last = &path->parts[path->n - 2];
    path->at = path->n - 1;
    const struct message_text whole = {begin, (size_t)(last->data + last->len - begin)};
    return http_text_decode(whole, out, REQUEST_MAX_REGION + 1) && utf8_ok(out, strlen(out));
}

/* Finds the scope and what it names. *ok is false if that is no name. */
static enum scope scope_take(struct path *path, struct http_route *out, bool *ok)
{
    if (part_is(path, 0, "models") && path->n > path->at + 1 &&
        !(part_is(path, 1, "stats") && path->n == path->at + 2)) {
        path->at++;
        *ok = name_take(path, out->model);
        if (*ok && part_is(path, 0, "versions")) {
            path->at++;
            *ok = name_take(path, out->version);
        }
        return SCOPE_MODEL;
    }
    if (part_is(path, 0, "repository")) {
        path->at++;
        if (!part_is(path, 0, "index") && !part_is(path, 0, "models"))
            path->at += path->at < path->n; /* its name */
        if (!part_is(path, 0, "models"))
            return SCOPE_REPOSITORY;
        path->at++;
        *ok = name_take(path, out->model);
        return SCOPE_STORED;
    }
    bool cuda = part_is(path, 0, "cudasharedmemory");
    if (!cuda && !part_is(path, 0, "systemsharedmemory"))
        return SCOPE_SERVER;
    path->at++;
    if (part_is(path, 0, "region"))
        *ok = region_take(path, out->region);
    return cuda ? SCOPE_CUDA : SCOPE_MEMORY;
}

static bool tail_is(const struct path *path, const char *tail)
{
    uint32_t i = path->at;
    struct message_text left = message_text_of(tail);
    while (left.len && i < path->n) {
        const char *slash = memchr(left.data, '/', left.len);
        size_t len = slash ? (size_t)(slash - left.data) : left.len;
        if (!message_text_equal(path->parts[i++], (struct message_text){left.data, len}))
            return false;
        size_t step = len + (slash ? 1 : 0);
        left = (struct message_text){left.data + step, left.len - step};
    }
    return !left.len && i == path->n;
}

static const struct row *row_find(enum scope scope, const struct path *path)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].scope == scope && tail_is(path, rows[i].tail))
            return &rows[i];
    return NULL;
}

static const char *allowed(const struct row *row)
{
    if (row->get && row->post)
        return "GET, HEAD, POST, OPTIONS";
    return row->get ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
}

static unsigned missing(const struct http_head *head, struct error *err)
{
    error_set(err, STATUS_NOT_FOUND, "there is no path '%.*s'; the API is under /v2",
              MESSAGE_TEXT(head->path));
    return 404;
}

unsigned http_route_find(const struct http_head *head, struct http_route *out, const char **allow,
                         struct error *err)
{
    struct path path;
    bool named = true;
    *out = (struct http_route){0};
    *allow = "";
    if (head->method == HTTP_METHOD_OPTIONS && head->path.len == 1) {
        *allow = "GET, HEAD, POST, OPTIONS";
        return 204;
    }
    if (!path_divide(head->path, &path) || !part_is(&path, 0, "v2"))
        return missing(head, err);
    path.at++;
    enum scope scope = scope_take(&path, out, &named);
    if (!named) {
        error_set(
            err, STATUS_INVALID_ARGUMENT,
            scope == SCOPE_MEMORY || scope == SCOPE_CUDA
                ? "'%.*s' names no region: names are UTF-8, of at most %d bytes"
                : "'%.*s' names no model: names are 1 to %d of [A-Za-z0-9._-], no leading dot",
            MESSAGE_TEXT(head->path),
            scope == SCOPE_MEMORY || scope == SCOPE_CUDA ? REQUEST_MAX_REGION : MESSAGE_MAX_NAME);
        return 400;
    }
    const struct row *row = row_find(scope, &path);
    if (!row)
        return missing(head, err);
    *allow = allowed(row);
    out->kind = row->kind;
    out->takes_body = row->post && head->method == HTTP_METHOD_POST;
    bool get = head->method == HTTP_METHOD_GET || head->method == HTTP_METHOD_HEAD;
    if (head->method == HTTP_METHOD_OPTIONS)
        return 204;
    if ((row->get && get) || out->takes_body)
        return 0;
    error_set(err, STATUS_UNIMPLEMENTED, "'%.*s' takes %s only", MESSAGE_TEXT(head->path), *allow);
    return 405;
}

unsigned http_code_of(enum status status)
{
    static const unsigned codes[STATUS_COUNT_] = {
        [STATUS_OK] = 200,
        [STATUS_CANCELLED] = 499,
        [STATUS_UNKNOWN] = 500,
        [STATUS_INVALID_ARGUMENT] = 400,
        [STATUS_DEADLINE_EXCEEDED] = 504,
        [STATUS_NOT_FOUND] = 404,
        [STATUS_ALREADY_EXISTS] = 409,
        [STATUS_PERMISSION_DENIED] = 403,
        [STATUS_RESOURCE_EXHAUSTED] = 429,
        [STATUS_FAILED_PRECONDITION] = 400,
        [STATUS_ABORTED] = 409,
        [STATUS_OUT_OF_RANGE] = 400,
        [STATUS_UNIMPLEMENTED] = 501,
        [STATUS_INTERNAL] = 500,
        [STATUS_UNAVAILABLE] = 503,
        [STATUS_DATA_LOSS] = 500,
        [STATUS_UNAUTHENTICATED] = 401,
    };
    return status < STATUS_COUNT_ ? codes[status] : 500;
}
