/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inferctl models shows which models a daemon has, and what each takes and gives. It asks for the
 * index first, and then for the metadata of each model that is ready. A model that is gone by then
 * is shown as the index had it.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "tools/cleanup.h"
#include "tools/inferctl.h"
#include "tools/json.h"
#include "tools/request.h"
#include "tools/show.h"

struct models_args {
    bool json;
    const char *model;
    struct token_args token;
};

static const struct arg options[] = {
    {"model", 'm', ARG_TEXT, offsetof(struct models_args, model), "M",
     "only this one (default: all)"},
    {"json", 0, ARG_FLAG, offsetof(struct models_args, json), NULL, "one JSON object"},
    {NULL, 0, ARG_FLAG, 0, NULL, NULL},
};

static const struct args spec = {
    .usage = "inferctl models ADDRESS [--model M] [--json] [options]",
    .what = "Shows a daemon's models: versions, states, inputs and outputs.",
    .options = options,
    .min_positional = 1,
    .max_positional = 1,
    .shared = {{token_options, offsetof(struct models_args, token), NULL}},
};

/* A copy of one row of the index: the response is gone with the next question. */
struct entry {
    char *name, *version, *state, *reason;
};

struct entries {
    uint32_t n;
    struct entry *list;
};

static void entries_deinit(struct entries *entries)
{
    for (uint32_t i = 0; i < entries->n; i++) {
        free(entries->list[i].name);
        free(entries->list[i].version);
        free(entries->list[i].state);
        free(entries->list[i].reason);
    }
    free(entries->list);
}

/* The index has only models that this client may see, so the error may name them. They are
 * sorted. */
static enum status no_such_model(const struct inferd_index *index, const char *model,
                                 struct error *err)
{
    struct names names;
    names_init(&names, model, strlen(model));
    for (uint32_t i = 0; i < index->n_models; i++)
        if (i == 0 || strcmp(index->models[i].name, index->models[i - 1].name) != 0)
            names_add(&names, index->models[i].name);
    return error_set(err, STATUS_NOT_FOUND, "there is no model '%.64s'; there are %s", model,
                     names_text(&names));
}

static enum status index_take(const struct inferd_index *index, const char *model,
                              struct entries *out, struct error *err)
{
    out->list = calloc(index->n_models + 1, sizeof(*out->list));
    if (!out->list)
        return error_no_memory(err, "the index");
    for (uint32_t i = 0; i < index->n_models; i++) {
        const struct inferd_index_entry *from = &index->models[i];
        if (model && strcmp(model, from->name) != 0)
            continue;
        struct entry *to = &out->list[out->n++];
        to->name = strdup(from->name);
        to->version = strdup(from->version);
        to->state = strdup(from->state);
        to->reason = strdup(from->reason);
        if (!to->name || !to->version || !to->state || !to->reason)
            return error_no_memory(err, "the index");
    }
    if (model && out->n == 0)
        return no_such_model(index, model, err);
    return STATUS_OK;
}

static enum status index_ask(const struct models_args *args, struct inferd_client *client,
                             struct entries *out, struct error *err)
{
    const struct inferd_response *r;
    struct inferd_error from;
    struct inferd_request q = {.kind = INFERD_INDEX, .token = args->token.token};
    if (inferd_client_call(client, &q, &r, &from))
        return request_error(&from, err);
    return index_take(r->index, args->model, out, err);
}

/* `*out` is NULL for a model that is not ready, or that has gone since the index came. */
static enum status metadata_ask(const struct models_args *args, struct inferd_client *client,
                                const struct entry *entry, const struct inferd_metadata **out,
                                struct error *err)
{
    const struct inferd_response *r;
    struct inferd_error from;
    struct inferd_request q = {.kind = INFERD_MODEL_METADATA,
                               .model = entry->name,
                               .version = entry->version,
                               .token = args->token.token};
    *out = NULL;
    if (strcmp(entry->state, "READY") != 0)
        return STATUS_OK;
    enum inferd_status status = inferd_client_call(client, &q, &r, &from);
    if (status == INFERD_OK)
        *out = r->metadata;
    return status == INFERD_OK || status == INFERD_NOT_FOUND ? STATUS_OK
                                                             : request_error(&from, err);
}

static struct shape shape_of(const struct inferd_metadata_tensor *t)
{
    struct shape shape = {.rank = t->rank};
    memcpy(shape.dim, t->dim, sizeof(shape.dim));
    return shape;
}

static void tensors_print(const char *what, const struct inferd_metadata_tensor *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        char text[SHAPE_TEXT_MAX];
        struct shape shape = shape_of(&list[i]);
        show_printf("  %-6s  %s %s %s\n", what, list[i].name, list[i].datatype,
                    shape_format(&shape, text));
    }
}

static void model_print(const struct entry *e, const struct inferd_metadata *m)
{
    assert(e->reason);
    show_printf("%s version %s %s%s%s\n", e->name, e->version, e->state, *e->reason ? ": " : "",
                e->reason);
    if (m) {
        tensors_print("input", m->inputs, m->n_inputs);
        tensors_print("output", m->outputs, m->n_outputs);
    }
}

static void json_tensors(struct json *j, const char *key, const struct inferd_metadata_tensor *list,
                         uint32_t n)
{
    json_list(j, key);
    for (uint32_t i = 0; i < n; i++) {
        json_object(j, NULL);
        json_text(j, "name", list[i].name);
        json_text(j, "datatype", list[i].datatype);
        struct shape shape = shape_of(&list[i]);
        json_shape(j, "shape", &shape);
        json_end(j);
    }
    json_end(j);
}

static void model_json(struct json *j, const struct entry *e, const struct inferd_metadata *m)
{
    json_object(j, NULL);
    json_text(j, "name", e->name);
    json_text(j, "version", e->version);
    json_text(j, "state", e->state);
    json_text(j, "reason", e->reason);
    if (m) {
        json_text(j, "platform", m->platform);
        json_tensors(j, "inputs", m->inputs, m->n_inputs);
        json_tensors(j, "outputs", m->outputs, m->n_outputs);
    }
    json_end(j);
}

static enum status show(const struct models_args *args, struct inferd_client *client,
                        const struct entries *entries, struct error *err)
{
    struct json j;
    enum status status = STATUS_OK;
    if (args->json) {
        json_init(&j, stdout);
        json_object(&j, NULL);
        json_list(&j, "models");
    }
    for (uint32_t i = 0; i < entries->n && !status; i++) {
        const struct inferd_metadata *m;
        status = metadata_ask(args, client, &entries->list[i], &m, err);
        if (!status && args->json)
            model_json(&j, &entries->list[i], m);
        else if (!status)
            model_print(&entries->list[i], m);
    }
    if (args->json) {
        json_end(&j);
        json_end(&j);
    }
    return status;
}

static enum status models(struct models_args *args, const char *address, struct error *err)
{
    CLEANUP(client_cleanup) struct inferd_client *client = NULL;
    CLEANUP(entries_deinit) struct entries entries = {0};
    TRY(token_args_load(&args->token, err));
    TRY(request_connect(address, &client, err));
    TRY(index_ask(args, client, &entries, err));
    return show(args, client, &entries, err);
}

int command_models(int argc, char **argv)
{
    struct models_args args = {0};
    struct arg_texts addresses;
    struct error err;
    int rc = args_parse(&spec, argc, argv, &args, &addresses);
    if (rc < 0)
        rc = token_args_check(&args.token, &spec);
    if (rc >= 0)
        return rc;
    return models(&args, addresses.list[0], &err) ? command_failed("models", &err) : EXIT_OK;
}
