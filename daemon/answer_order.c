/* SPDX-License-Identifier: Apache-2.0 */
/* Orders to load and unload models, see answer.h. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "config/model_file.h"
#include "daemon/answer.h"
#include "daemon/exchange.h"

static void order_free(struct answer_order *order)
{
    if (order) {
        slabs_give(order->loop->slabs, order->files);
        free((void *)(uintptr_t)order->config);
    }
    free(order);
}

static void order_cleanup(struct answer_order **order)
{
    order_free(*order);
}

/* A load's `config`. A configuration has a limit, as its file has. */
static enum status config_find(const struct request *request, const char **out, struct error *err)
{
    CLEANUP(cleanup_free) char *config = NULL;
    for (uint32_t i = 0; i < request->n_settings; i++) {
        const struct request_setting *s = &request->settings[i];
        bool is_config = message_text_equal(s->key, message_text_of("config"));
        if (message_text_equal(s->key, message_text_of("unload_dependents")) ||
            request_setting_is_file(s->key))
            continue;
        if (is_config && s->text.len > MODEL_FILE_MAX)
            return error_set(err, STATUS_INVALID_ARGUMENT, "parameter 'config': at most %d bytes",
                             MODEL_FILE_MAX);
        if (!is_config || s->kind != REQUEST_SETTING_TEXT || config)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "parameter '%.*s': expected `config` once, a text, or files as "
                             "`file:VERSION/NAME`",
                             MESSAGE_TEXT(s->key));
        config = strndup(s->text.data ? s->text.data : "", s->text.len);
        if (!config)
            return error_no_memory(err, "a configuration");
    }
    *out = STEAL(config);
    return STATUS_OK;
}

/* A load's files, copied: the loader writes them when their message is long gone. The copy counts
 * against the budget of all that came in. */
static enum status files_find(struct loop *loop, const struct request *request,
                              struct answer_order *order, struct error *err)
{
    struct brought brought;
    TRY(brought_take(request, &brought, err));
    if (!brought.n)
        return STATUS_OK;
    if (request->kind != REQUEST_MODEL_LOAD)
        return error_set(err, STATUS_INVALID_ARGUMENT, "files: a load takes them");
    order->files = slabs_take(loop->slabs, brought_size(&brought), SLAB_REQUEST);
    if (!order->files)
        return error_plain(err, CAUSE_OVER_BUDGET);
    order->brought = brought_copy(&brought, order->files->data);
    return STATUS_OK;
}

static enum status order_make(struct connection *c, const struct request *request,
                              struct answer_order *order, struct error *err)
{
    order->loop = c->loop; /* first: the order's memory goes back there */
    if (!request->model.len)
        return error_set(err, STATUS_INVALID_ARGUMENT, "the request names no model");
    order->kind = request->kind;
    order->dependents = request->dependents;
    order->connection = c->id;
    order->id = request->id;
    memcpy(order->model, request->model.data, request->model.len); /* its decoder has checked it */
    TRY(files_find(c->loop, request, order, err));
    return config_find(request, &order->config, err);
}

static enum status order_give(struct connection *c, const struct request *request,
                              struct error *err)
{
    const struct answer_orders *orders = c->loop->shared->orders;
    if (!orders)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "models are not loaded and unloaded on request here");
    CLEANUP(order_cleanup) struct answer_order *order = calloc(1, sizeof(*order));
    if (!order)
        return error_no_memory(err, "an order");
    TRY(order_make(c, request, order, err));
    TRY(orders->take(orders->user, order, err));
    order = NULL; /* the taker's */
    c->n_orders++;
    return STATUS_OK;
}

void answer_order(struct connection *c, const struct request *request)
{
    struct error err;
    if (order_give(c, request, &err))
        exchange_error(c, request->id, &err);
}

void answer_ordered(struct answer_order *order, const struct error *err)
{
    order->failed = err != NULL;
    if (err)
        order->err = *err;
    loop_answered(order->loop, order);
}

/* Over HTTP the body of a success says what was done ({"load":true}). */
static void answer_send(struct connection *c, const struct answer_order *order)
{
    if (order->failed) {
        exchange_error(c, order->id, &order->err);
        return;
    }
    struct response *response = exchange_begin(c, order->id, order->kind);
    response->yes = true;
    connection_reply(c, response);
}

void answer_order_end(struct answer_order *order)
{
    struct connection *c = loop_connection(order->loop, order->connection);
    if (c && c->phase < CONNECTION_DYING) {
        c->n_orders--;
        answer_send(c, order);
        connection_dirty(c);
    }
    order_free(order);
}
