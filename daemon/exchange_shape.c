/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of sizes that no point of their model has, see exchange.h. If there is an engine for
 * them, they become requests to it. Else they are parked on their loop, with the payload in place,
 * until the thread that builds engines (shapes.h) has news; then they ask again. Whoever takes such
 * a request back leaves it to the loop's next turn, as for requests that are not submitted yet.
 * Steps of pipelines are such requests, too.
 */

#include "daemon/admission.h"
#include "daemon/exchange.h"
#include "daemon/exchange_internal.h"
#include "daemon/loop.h"
#include "daemon/loop_internal.h"
#include "daemon/shapes.h"

enum { ASKED_MOST = 4 }; /* times that an engine may be lost again before it is used */

/* Moves a request to the engine, whose reference is taken over. It fits the model; its instances
 * and its outputs may not fit the engine. */
static enum status engine_take(struct inflight *inflight, struct model *engine, struct error *err)
{
    inflight->base = inflight->model;
    inflight->model = engine;
    inflight->point = 0;
    if (inflight->item.instances > engine->max_instances)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "%u instances; of these sizes this model takes 1 to %u",
                         inflight->item.instances, engine->max_instances);
    return exchange_regions_fit(inflight, err);
}

void exchange_shape_asker(const struct connection *c, const struct identity *who,
                          struct inflight *inflight)
{
    bool named = who != identities_anonymous(c->loop->table->identities);
    inflight->asker = named ? (uintptr_t)who : (uintptr_t)c->peer;
}

enum status exchange_shape_ask(struct loop *loop, struct inflight *inflight, struct error *err)
{
    struct model *engine;
    const struct shapes_question question = {.model = inflight->model,
                                             .values = inflight->values,
                                             .asker = inflight->asker,
                                             .counters = &loop->counters};
    TRY(shapes_ask(&question, &engine, err));
    if (engine)
        return engine_take(inflight, engine, err);
    TRY(shapes_wait_in(inflight->model, &loop->table->limits, inflight->use_bytes, err));
    inflight->parked = true;
    inflight->asked = 0;
    return STATUS_OK;
}

void exchange_shape_give(struct inflight *inflight)
{
    if (inflight->parked)
        shapes_wait_out(inflight->model, inflight->use_bytes);
    inflight->parked = false;
}

void exchange_shape_park(struct loop *loop, struct inflight *inflight)
{
    inflight->next = loop->parked;
    loop->parked = inflight;
    loop_tick_soon(loop);
}

/* --- a turn --- */

static void fail(struct loop *loop, struct inflight *inflight, enum cause cause, const char *why)
{
    struct error err;
    error_cause(&err, cause, "%s", why);
    exchange_tell(inflight, &err);
    loop_result(loop, inflight);
}

static void go_on(struct loop *loop, struct inflight *inflight, struct model *engine)
{
    struct error err;
    exchange_shape_give(inflight);
    inflight->item.admitted = true;
    if (engine_take(inflight, engine, &err)) {
        fail(loop, inflight, err.cause, err.text);
        return;
    }
    inflight_key(inflight);
    loop_submit(loop, inflight);
}

/* Whether the request is parked no longer. */
static bool ask_again(struct loop *loop, struct inflight *inflight)
{
    struct model *engine = NULL;
    struct error err;
    const struct shapes_question question = {.model = inflight->model,
                                             .values = inflight->values,
                                             .asker = inflight->asker,
                                             .again = true,
                                             .begun = &inflight->asked,
                                             .counters = &loop->counters};
    enum status status = inflight->asked < ASKED_MOST ? shapes_ask(&question, &engine, &err)
                                                      : error_plain(&err, CAUSE_SHAPES_FULL);
    if (!status && !engine)
        return false;
    if (status) {
        exchange_shape_give(inflight);
        fail(loop, inflight, err.cause, err.text);
    } else {
        go_on(loop, inflight, engine);
    }
    return true;
}

/* Whether the request is parked no longer. */
static bool look(struct loop *loop, struct inflight *inflight, bool news)
{
    if (!inflight->connection) { /* cancelled, or its connection has gone */
        exchange_shape_give(inflight);
        loop_unsubmitted(loop, inflight);
        return true;
    }
    if (inflight->item.deadline_ns <= loop->turn_ns) {
        exchange_shape_give(inflight);
        fail(loop, inflight, CAUSE_EXPIRED, "the deadline passed while an engine was built");
        return true;
    }
    return news && ask_again(loop, inflight);
}

void exchange_shapes_turn(struct loop *loop)
{
    bool news = atomic_exchange_explicit(&loop->shapes_news, false, memory_order_acquire);
    struct inflight *parked = STEAL(loop->parked), *next;
    for (; parked; parked = next) {
        next = parked->next;
        parked->next = NULL;
        if (look(loop, parked, news))
            continue;
        parked->next = loop->parked;
        loop->parked = parked;
    }
}
