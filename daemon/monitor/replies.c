/* SPDX-License-Identifier: Apache-2.0 */
/* What there is to ask the monitor for: a table of paths. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/identity.h"
#include "daemon/monitor/metrics.h"
#include "daemon/monitor/monitor_internal.h"

#define NO_STORE "Cache-Control: no-store\r\n"

void reply_plain(int status, struct reply *out)
{
    *out =
        (struct reply){.status = status, .type = "text/plain; charset=utf-8", .headers = NO_STORE};
    if (status == 401)
        out->headers = NO_STORE "WWW-Authenticate: Bearer realm=\"inferd\"\r\n"
                                "WWW-Authenticate: Basic realm=\"inferd\", charset=\"UTF-8\"\r\n";
    if (status == 405)
        out->headers = NO_STORE "Allow: GET, HEAD\r\n";
    text_init(&out->text, MONITOR_TEXT_MOST);
    text_printf(&out->text, "%s\n", http_reason(status));
}

/* --- who may --- */

/* 200: the visitor has the right `status`. */
static int permit(const struct monitor *m, const struct http_request *request)
{
    const struct identities *identities = m->table->identities;
    const struct message_text any = {0}, token = message_text_of(request->token);
    const struct identity *who;
    if (!identities) /* the first models have yet to be loaded, and tokens to be read */
        return 503;
    if (!identities_required(identities))
        return 200;
    who = identities_anonymous(identities);
    if (token.len && identities_by_token(identities, token, &who, NULL))
        return 401;
    if (identity_may(who, RIGHT_STATUS, any))
        return 200;
    return token.len ? 403 : 401;
}

/* --- metrics --- */

/* Both spellings of collect[]=triton and collect[]=inferd; without them both sets. */
static unsigned sets_wanted(const char *query)
{
    static const char *const names[] = {"collect[]", "collect%5B%5D", "collect%5b%5d"};
    unsigned sets = 0;
    char value[16];
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        for (size_t at = 0; http_query(query, names[i], &at, value, sizeof(value));)
            sets |= strcmp(value, "triton") == 0   ? METRICS_TRITON
                    : strcmp(value, "inferd") == 0 ? METRICS_OWN
                                                   : 0;
    return sets ? sets : METRICS_ALL;
}

enum { ARENA_LIMIT = 64 << 20 };

static void metrics(struct monitor *m, const struct http_request *request, struct reply *out)
{
    struct snapshot *snapshot = malloc(sizeof(*snapshot));
    struct arena *arena = arena_new(ARENA_LIMIT);
    out->type = METRICS_TYPE;
    dispatch_look(m->shared->dispatch);
    if (snapshot && arena && snapshot_take(&m->sources, m->table, arena, snapshot))
        metrics_write(snapshot, sets_wanted(request->query), &out->text);
    else
        out->text.failed = true;
    arena_free(arena);
    free(snapshot);
}

/* --- paths --- */

static const struct path {
    const char *path;
    bool dear;
    void (*make)(struct monitor *m, const struct http_request *request, struct reply *out);
} paths[] = {
    {"/metrics", true, metrics},
};

static const struct path *path_find(const struct http_request *request)
{
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        if (strcmp(paths[i].path, request->target) == 0)
            return &paths[i];
    return NULL;
}

bool reply_is_dear(const struct http_request *request)
{
    const struct path *path = path_find(request);
    return path && path->dear;
}

void reply_make(struct monitor *m, const struct http_request *request, struct reply *out)
{
    const struct path *path = path_find(request);
    int status = permit(m, request);
    if (status == 200 && !path)
        status = 404;
    reply_plain(status, out);
    if (status != 200)
        return;
    out->text.len = 0;
    path->make(m, request, out);
}
