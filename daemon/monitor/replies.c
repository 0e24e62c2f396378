/* SPDX-License-Identifier: Apache-2.0 */
/* What there is to ask the monitor for: a table of paths. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/identity.h"
#include "daemon/monitor/asset.h"
#include "daemon/monitor/metrics.h"
#include "daemon/monitor/monitor_internal.h"
#include "daemon/monitor/page.h"

#define NO_STORE "Cache-Control: no-store\r\n"

void reply_plain(unsigned status, struct reply *out)
{
    *out =
        (struct reply){.status = status, .type = "text/plain; charset=utf-8", .headers = NO_STORE};
    if (status == 401)
        out->headers = NO_STORE "WWW-Authenticate: Bearer realm=\"inferd\"\r\n"
                                "WWW-Authenticate: Basic realm=\"inferd\", charset=\"UTF-8\"\r\n";
    if (status == 405)
        out->headers = NO_STORE "Allow: GET, HEAD\r\n";
    text_init(&out->text, MONITOR_TEXT_MOST);
    text_printf(&out->text, "%s\n", http_phrase(status));
}

/* --- who may --- */

/* 200: the visitor has the right `status`. */
static unsigned permit(const struct monitor *m, const struct question *question)
{
    const struct identities *identities = m->table->identities;
    const struct message_text any = {0}, token = message_text_of(question->token);
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
static unsigned sets_wanted(struct message_text query)
{
    static const char *const names[] = {"collect[]", "collect%5B%5D", "collect%5b%5d"};
    unsigned sets = 0;
    char value[16];
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        for (size_t at = 0; question_value(query, names[i], &at, value, sizeof(value));)
            sets |= strcmp(value, "triton") == 0   ? METRICS_TRITON
                    : strcmp(value, "inferd") == 0 ? METRICS_OWN
                                                   : 0;
    return sets ? sets : METRICS_ALL;
}

enum { ARENA_LIMIT = 64 << 20 };

/* What an answer is made from; NULL: no memory. */
struct material {
    struct arena *arena;
    struct snapshot snapshot;
};

static void material_free(struct material **at)
{
    if (*at)
        arena_free((*at)->arena);
    free(*at);
}

static struct material *material_take(struct monitor *m)
{
    CLEANUP(material_free) struct material *taken = calloc(1, sizeof(*taken));
    if (!taken || !(taken->arena = arena_new(ARENA_LIMIT)))
        return NULL;
    dispatch_look(m->shared->dispatch);
    if (!snapshot_take(&m->sources, m->table, taken->arena, &taken->snapshot))
        return NULL;
    return STEAL(taken);
}

static void metrics(struct monitor *m, const struct question *question, struct reply *out)
{
    CLEANUP(material_free) struct material *material = material_take(m);
    out->type = METRICS_TYPE;
    if (material)
        metrics_write(&material->snapshot, sets_wanted(question->query), &out->text);
    else
        out->text.failed = true;
}

/* --- the status page --- */

static void page_make(struct monitor *m, const struct question *question,
                      const struct table_entry *entry, struct reply *out)
{
    CLEANUP(material_free) struct material *material = material_take(m);
    char since[24];
    size_t at = 0;
    out->type = "text/html; charset=utf-8";
    if (!material) {
        out->text.failed = true;
        return;
    }
    struct page page = {.snapshot = &material->snapshot, .history = m->history};
    page.part = question_value(question->query, "since", &at, since, sizeof(since));
    if (page.part)
        page.since = strtoull(since, NULL, 10);
    if (entry) {
        page.model = entry->model;
        page.counts = &material->snapshot.models[entry - m->table->entries];
    }
    page_write(&page, &out->text);
}

static void overview(struct monitor *m, const struct question *question, struct reply *out)
{
    page_make(m, question, NULL, out);
}

#define MODEL_PATH "/model/"

/* /model/NAME/VERSION; one that is not there, or not loaded, is not found. */
static void model(struct monitor *m, const struct question *question, struct reply *out)
{
    const char *name = question->path + strlen(MODEL_PATH), *slash = strchr(name, '/');
    for (uint32_t i = 0; slash && i < MIN(m->table->n, (uint32_t)SNAPSHOT_MODELS); i++) {
        const struct table_entry *entry = &m->table->entries[i];
        if (entry->model && strlen(entry->name) == (size_t)(slash - name) &&
            !strncmp(entry->name, name, (size_t)(slash - name)) &&
            !strcmp(entry->version, slash + 1)) {
            page_make(m, question, entry, out);
            return;
        }
    }
    text_deinit(&out->text);
    reply_plain(404, out);
}

/* --- paths --- */

static const struct path {
    const char *path; /* one that ends with "/" stands for what begins with it, except "/" itself */
    void (*make)(struct monitor *m, const struct question *question, struct reply *out);
} paths[] = {
    {"/", overview},
    {"/metrics", metrics},
    {MODEL_PATH, model},
};

static const struct path *path_find(const struct question *question)
{
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        size_t len = strlen(paths[i].path);
        bool begins = len > 1 && paths[i].path[len - 1] == '/';
        if (begins ? !strncmp(paths[i].path, question->path, len)
                   : !strcmp(paths[i].path, question->path))
            return &paths[i];
    }
    return NULL;
}

static const struct asset *asset_find(const struct question *question)
{
    for (unsigned i = 0; i < n_assets; i++)
        if (!strcmp(assets[i].path, question->path))
            return &assets[i];
    return NULL;
}

/* Every browser takes gzip, and nobody else asks for these. */
static void asset_reply(const struct asset *asset, struct reply *out)
{
    const char *dot = strrchr(asset->path, '.');
    text_deinit(&out->text);
    *out = (struct reply){.status = 200,
                          .type = !strcmp(dot, ".css")   ? "text/css; charset=utf-8"
                                  : !strcmp(dot, ".svg") ? "image/svg+xml"
                                                         : "text/javascript; charset=utf-8",
                          .headers = "Content-Encoding: gzip\r\nCache-Control: no-cache\r\n",
                          .fixed = asset->data,
                          .fixed_size = asset->size};
}

void reply_make(struct monitor *m, const struct question *question, struct reply *out)
{
    const struct path *path = path_find(question);
    const struct asset *asset = asset_find(question);
    unsigned status = permit(m, question);
    if (status == 200 && !path && !asset)
        status = 404;
    reply_plain(status, out);
    if (status != 200)
        return;
    if (asset) {
        asset_reply(asset, out);
        return;
    }
    out->text.len = 0;
    path->make(m, question, out);
}
