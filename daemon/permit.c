/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which right each request takes; see permit.h.
 *
 * server_live and server_ready take no right: load balancers ask them, and their answers tell of no
 * model. Neither does a cancel, which reaches requests of its own connection alone. Everything else
 * takes a right, even to hear that there is no such model.
 */
#include "daemon/permit.h"

enum scope {
    SCOPE_FREE,   /* takes no right */
    SCOPE_SERVER, /* no model is named */
    SCOPE_MODEL,  /* the right, and this model */
    SCOPE_ALL,    /* a model may be named; a request for all models takes RIGHT_STATUS */
};

struct row {
    enum request_kind kind;
    enum scope scope;
    enum right right;
    const char *what;
};

static const struct row rows[] = {
    {REQUEST_SERVER_LIVE, SCOPE_FREE, RIGHT_DESCRIBE, ""},
    {REQUEST_SERVER_READY, SCOPE_FREE, RIGHT_DESCRIBE, ""},
    {REQUEST_CANCEL, SCOPE_FREE, RIGHT_INFER, ""},
    {REQUEST_INFER, SCOPE_MODEL, RIGHT_INFER, "inferences"},
    {REQUEST_MODEL_READY, SCOPE_MODEL, RIGHT_DESCRIBE, "the readiness"},
    {REQUEST_SERVER_METADATA, SCOPE_SERVER, RIGHT_DESCRIBE, "the server's metadata"},
    {REQUEST_MODEL_METADATA, SCOPE_MODEL, RIGHT_DESCRIBE, "the metadata"},
    {REQUEST_MODEL_CONFIG, SCOPE_MODEL, RIGHT_DESCRIBE, "the configuration"},
    {REQUEST_STATISTICS, SCOPE_ALL, RIGHT_DESCRIBE, "the statistics"},
    {REQUEST_REPOSITORY_INDEX, SCOPE_SERVER, RIGHT_STATUS, "the index of models"},
    {REQUEST_SERVER_STATUS, SCOPE_SERVER, RIGHT_STATUS, "the server's status"},
    {REQUEST_MODEL_LOAD, SCOPE_MODEL, RIGHT_ADMIN, "loading"},
    {REQUEST_MODEL_UNLOAD, SCOPE_MODEL, RIGHT_ADMIN, "unloading"},
    {REQUEST_MEMORY_STATUS, SCOPE_SERVER, RIGHT_MEMORY, "regions of shared memory"},
    {REQUEST_MEMORY_REGISTER, SCOPE_SERVER, RIGHT_MEMORY, "registering shared memory"},
    {REQUEST_MEMORY_UNREGISTER, SCOPE_SERVER, RIGHT_MEMORY, "unregistering shared memory"},
    {REQUEST_CUDA_STATUS, SCOPE_SERVER, RIGHT_MEMORY, "regions of a GPU's memory"},
    {REQUEST_CUDA_REGISTER, SCOPE_SERVER, RIGHT_MEMORY, "registering a GPU's memory"},
    {REQUEST_CUDA_UNREGISTER, SCOPE_SERVER, RIGHT_MEMORY, "unregistering a GPU's memory"},
    {REQUEST_TRACE_SETTING, SCOPE_SERVER, RIGHT_STATUS, "the settings of traces"},
    {REQUEST_LOG_SETTING, SCOPE_SERVER, RIGHT_STATUS, "the settings of the log"},
};

/* For a kind that was forgotten above. */
static const struct row unknown = {REQUEST_NONE, SCOPE_SERVER, RIGHT_ADMIN, "this"};

static const struct row *row_of(enum request_kind kind)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].kind == kind)
            return &rows[i];
    return &unknown;
}

/* To change a setting takes more than to read it. */
static enum right right_of(const struct row *row, const struct request *request)
{
    bool sets = request->kind == REQUEST_TRACE_SETTING || request->kind == REQUEST_LOG_SETTING;
    if (sets && request->n_settings)
        return RIGHT_ADMIN;
    return row->scope == SCOPE_ALL && !request->model.len ? RIGHT_STATUS : row->right;
}

static enum status refuse(const struct identities *now, const struct identity *who,
                          const char *what, enum right right, struct message_text model,
                          struct error *err)
{
    const char *of = model.len ? " of model '" : "", *end = model.len ? "'" : "";
    if (identities_required(now) && who == identities_anonymous(now))
        return error_set(err, STATUS_UNAUTHENTICATED, "%s%s%.*s%s: a token is needed for this",
                         what, of, MESSAGE_TEXT(model), end);
    return error_set(err, STATUS_PERMISSION_DENIED, "%s%s%.*s%s: '%s' lacks the right '%s'%s", what,
                     of, MESSAGE_TEXT(model), end, identity_name(who), right_name(right),
                     model.len ? " to this model" : "");
}

enum status permit_request(struct caller *caller, struct identities *now, int fd,
                           const struct request *request, const struct identity **out,
                           struct error *err)
{
    const struct row *row = row_of(request->kind);
    const struct identity *who = identities_anonymous(now);
    struct message_text model = {0};
    enum status status = caller_identify(caller, now, fd, request->token, &who, err);
    if (row->scope == SCOPE_FREE) { /* even with an unknown token: that of a probe may be old */
        *out = who;
        return STATUS_OK;
    }
    if (status)
        return status;
    if (row->scope != SCOPE_SERVER)
        model = request->model;
    enum right right = right_of(row, request);
    if (!identity_may(who, right, model))
        return refuse(now, who, row->what, right, model, err);
    *out = who;
    return STATUS_OK;
}

/* The identity that permit_request has just found. */
static const struct identity *asker(const struct caller *caller, const struct identities *now,
                                    const struct request *request)
{
    bool by_token = request->token.len && identities_required(now);
    return by_token ? caller->by_token : caller->silent;
}

bool permit_sees(const struct caller *caller, const struct identities *now,
                 const struct request *request, const char *model)
{
    return identity_may(asker(caller, now, request), row_of(request->kind)->right,
                        message_text_of(model));
}

bool permit_refusal_is_news(const struct caller *caller, struct identities *now,
                            const struct request *request, enum status status)
{
    const struct row *row = row_of(request->kind);
    const struct identity *who = identities_anonymous(now);
    if (status == STATUS_PERMISSION_DENIED)
        who = asker(caller, now, request);
    return identities_refusal_is_news(now, who, right_of(row, request));
}

enum status permit_large(struct caller *caller, struct identities *now, int fd, const void *message,
                         size_t size, struct error *err)
{
    const struct identity *who;
    struct message_text token = {0};
    enum request_token found = request_token_find(message, size, &token);
    if (found == REQUEST_TOKEN_MORE)
        return error_set(err, STATUS_UNAVAILABLE, "the token has not come yet");
    if (found == REQUEST_TOKEN_FOUND)
        TRY(caller_identify(caller, now, fd, token, &who, err));
    if (!caller_is_stranger(caller, now, fd))
        return STATUS_OK;
    return error_set(err, STATUS_UNAUTHENTICATED,
                     "a message of more than %d bytes from a peer that has shown no token; the "
                     "token stands before the body",
                     CALLER_FRAME_MOST);
}
