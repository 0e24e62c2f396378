/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hands clients' orders to load and unload models on to the loader, and its answers back. A load
 * may bring a configuration, as JSON, which takes the place of the model's config.pbtxt, and files
 * in place of the repository's.
 */
#include <stdio.h>
#include <stdlib.h>

#include "config/model_file.h"
#include "daemon/server_internal.h"
#include "http/config_text.h"

struct handed {
    struct models_order order;
    struct answer_order *asked;
    struct text instead; /* `config` as the text of a config.pbtxt */
};

static void handed_free(struct handed *handed)
{
    text_deinit(&handed->instead);
    free(handed);
}

static void handed_cleanup(struct handed **handed)
{
    if (*handed)
        handed_free(*handed);
}

static enum status config_take(struct handed *handed, const char *config, struct error *err)
{
    if (!config)
        return STATUS_OK;
    if (handed->order.unload)
        return error_set(err, STATUS_INVALID_ARGUMENT, "parameter 'config': a load takes it");
    TRY(config_text_of_json(message_text_of(config), &handed->instead, err));
    text_bytes(&handed->instead, "", 1);
    if (handed->instead.failed)
        return error_no_memory(err, "a configuration");
    handed->order.instead = handed->instead.data;
    return STATUS_OK;
}

static void order_done(struct models_order *order, const struct error *err)
{
    struct handed *handed = CONTAINER_OF(order, struct handed, order);
    answer_ordered(handed->asked, err);
    handed_free(handed);
}

static enum status order_take(void *user, struct answer_order *asked, struct error *err)
{
    struct server *s = user;
    CLEANUP(handed_cleanup) struct handed *handed = calloc(1, sizeof(*handed));
    if (!handed)
        return error_no_memory(err, "an order");
    text_init(&handed->instead, MODEL_FILE_MAX);
    handed->asked = asked;
    handed->order.dependents = asked->dependents;
    handed->order.unload = asked->kind == REQUEST_MODEL_UNLOAD;
    handed->order.brought = asked->brought;
    handed->order.done = order_done;
    snprintf(handed->order.name, sizeof(handed->order.name), "%s", asked->model);
    TRY(config_take(handed, asked->config, err));
    TRY(models_order(s->models, &handed->order, err));
    handed = NULL; /* the loader's */
    return STATUS_OK;
}

void server_orders_init(struct server *s)
{
    s->orders = (struct answer_orders){.take = order_take, .user = s};
    s->shared.orders = &s->orders;
}
