/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hands clients' orders to load and unload models on to the loader, and its answers back. What an
 * order asks for beside a name is refused here: settings of a model come from its config.pbtxt.
 */
#include <stdio.h>
#include <stdlib.h>

#include "daemon/server_internal.h"

struct handed {
    struct models_order order;
    struct answer_order *asked;
};

static void order_done(struct models_order *order, const struct error *err)
{
    struct handed *handed = CONTAINER_OF(order, struct handed, order);
    answer_ordered(handed->asked, err);
    free(handed);
}

static enum status order_take(void *user, struct answer_order *asked, struct error *err)
{
    struct server *s = user;
    if (asked->config)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "parameter 'config': a model's settings are in its config.pbtxt");
    struct handed *handed = calloc(1, sizeof(*handed));
    if (!handed)
        return error_no_memory(err, "an order");
    handed->asked = asked;
    handed->order.dependents = asked->dependents;
    handed->order.unload = asked->kind == REQUEST_MODEL_UNLOAD;
    handed->order.done = order_done;
    snprintf(handed->order.name, sizeof(handed->order.name), "%s", asked->model);
    enum status status = models_order(s->models, &handed->order, err);
    if (status)
        free(handed);
    return status;
}

void server_orders_init(struct server *s)
{
    s->orders = (struct answer_orders){.take = order_take, .user = s};
    s->shared.orders = &s->orders;
}
