/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inferctl status shows what a daemon says of itself: once, since its start, or again and again,
 * for the interval since the look before. A watch goes on while the daemon is away.
 *
 * A response is good until the next call on its connection, so looks alternate between two
 * connections: the page of the look before stays valid on the other one.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/inferctl.h"
#include "tools/json.h"
#include "tools/request.h"
#include "tools/status_view.h"

enum { TIMEOUT_S = 10 };

struct status_args {
    bool watch, json;
    double interval;
    uint32_t count;
    struct token_args token;
};

static const struct arg options[] = {
    {"watch", 'w', ARG_FLAG, offsetof(struct status_args, watch), NULL,
     "show it again and again, each time for the last interval"},
    {"interval", 0, ARG_F64, offsetof(struct status_args, interval), "S",
     "seconds of an interval (default: 1)"},
    {"count", 'n', ARG_U32, offsetof(struct status_args, count), "N",
     "stop after so many intervals (default: never)"},
    {"json", 0, ARG_FLAG, offsetof(struct status_args, json), NULL,
     "one JSON object (with --watch one for each interval, in a line)"},
    {NULL, 0, ARG_FLAG, 0, NULL, NULL},
};

static const struct args spec = {
    .usage = "inferctl status ADDRESS [--watch] [--json] [options]",
    .what = "Shows what a daemon does. Exit 1 if it cannot be asked or is not ready.",
    .options = options,
    .min_positional = 1,
    .max_positional = 1,
    .shared = {{token_options, offsetof(struct status_args, token), NULL}},
};

struct look {
    struct inferd_client *client;          /* NULL: it has to be opened */
    const struct inferd_status_page *page; /* good while the client is */
};

struct watch {
    const struct status_args *args;
    const char *address;
    struct look looks[2];
    uint32_t next;          /* index of the coming look; the other one is the look before */
    uint64_t away_since_ns; /* 0: the last look found the server */
    bool ready;
};

/* --- asking --- */

static enum status call(const struct watch *w, struct look *look, struct error *err)
{
    const struct inferd_response *r = NULL;
    struct inferd_error from;
    struct inferd_request q = {
        .kind = INFERD_STATUS, .token = w->args->token.token, .timeout_us = TIMEOUT_S * 1000000};
    look->page = NULL;
    if (inferd_client_call(look->client, &q, &r, &from)) {
        if (!r) /* the connection failed, and stays so */
            inferd_client_close(STEAL(look->client));
        return request_error(&from, err);
    }
    look->page = r->status_page;
    return STATUS_OK;
}

/* The server of an old connection may be gone, so a connection that fails is opened once more. */
static enum status ask(const struct watch *w, struct look *look, struct error *err)
{
    if (look->client) {
        enum status status = call(w, look, err);
        if (!status || look->client)
            return status;
    }
    TRY(request_connect(w->address, &look->client, err));
    return call(w, look, err);
}

/* --- JSON --- */

static void json_times(struct json *j, const struct inferd_status_model *m,
                       const struct inferd_status_model *before)
{
    static const char *const names[] = {"queue", "input", "compute", "output", "total"};
    static const double q[] = {0.5, 0.99};
    for (size_t k = 0; k < ARRAY_LEN(names) * ARRAY_LEN(q); k++) {
        size_t stage = k / ARRAY_LEN(q), which = k % ARRAY_LEN(q);
        const struct inferd_histogram *from = before ? &before->stages[stage] : NULL;
        char key[32];
        snprintf(key, sizeof(key), "%s_p%.0f_us", names[stage], 100 * q[which]);
        json_real(j, key,
                  (double)inferd_histogram_quantile(&m->stages[stage], from, q[which]) /
                      (double)NS_PER_US);
    }
}

static void json_interval(struct json *j, const struct status_view *view,
                          const struct inferd_status_model *m)
{
    struct status_counts s = status_counts_of(view, m);
    json_object(j, "interval");
    json_real(j, "seconds", s.seconds);
    json_uint(j, "requests", s.requests);
    json_uint(j, "failures", s.failures);
    json_uint(j, "instances", s.instances);
    json_uint(j, "batches", s.batches);
    json_real(j, "instances_per_s", s.seconds > 0 ? (double)s.instances / s.seconds : 0);
    json_real(j, "batch", s.batches ? (double)s.instances / (double)s.batches : 0);
    json_times(j, m, s.before);
    json_end(j);
}

static void json_model(struct json *j, const struct status_view *view,
                       const struct inferd_status_model *m)
{
    const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {
        {"max_batch", m->max_batch}, {"max_delay_us", m->max_delay_us}, {"queued", m->queued},
        {"oldest_us", m->oldest_us}, {"requests", m->requests},         {"failures", m->failures},
        {"instances", m->instances}, {"batches", m->batches},           {"queue_ns", m->queue_ns},
        {"input_ns", m->input_ns},   {"compute_ns", m->compute_ns},     {"output_ns", m->output_ns},
        {"total_ns", m->total_ns},   {"since_ms", m->since_ms},
    };
    json_object(j, NULL);
    json_text(j, "name", m->name);
    json_text(j, "version", m->version);
    json_text(j, "state", m->state);
    json_text(j, "reason", m->reason);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        json_uint(j, numbers[i].key, numbers[i].value);
    json_times(j, m, NULL);
    if (view->interval)
        json_interval(j, view, m);
    json_end(j);
}

static void print_json(const struct status_view *view)
{
    const struct inferd_status_page *s = view->now;
    struct json j;
    json_init(&j, stdout);
    j.compact = view->interval;
    json_object(&j, NULL);
    json_text(&j, "version", s->version);
    json_text(&j, "device", s->device);
    json_uint(&j, "uptime_s", s->uptime_s);
    json_uint(&j, "started_ms", s->started_ms);
    json_bool(&j, "ready", s->ready);
    json_uint(&j, "workers", s->workers);
    json_uint(&j, "workers_busy", s->workers_busy);
    json_uint(&j, "connections", s->connections);
    json_uint(&j, "inflight_bytes", s->inflight_bytes);
    json_uint(&j, "inflight_requests", s->inflight_requests);
    json_list(&j, "models");
    for (uint32_t i = 0; i < s->n_models; i++)
        json_model(&j, view, &s->models[i]);
    json_end(&j);
    json_object(&j, "counters");
    for (uint32_t i = 0; i < s->n_counters; i++)
        json_uint(&j, s->counters[i].name, s->counters[i].value);
    json_end(&j);
    json_list(&j, "memory");
    for (uint32_t i = 0; i < s->n_memory; i++) {
        json_object(&j, NULL);
        json_text(&j, "name", s->memory[i].name);
        json_uint(&j, "bytes", s->memory[i].bytes);
        json_uint(&j, "limit", s->memory[i].limit);
        json_end(&j);
    }
    json_end(&j);
    json_end(&j);
}

/* --- showing --- */

/* A watch that a person looks at. */
static bool on_terminal(const struct status_args *args)
{
    return args->watch && !args->json && isatty(STDOUT_FILENO);
}

static void clear(const struct status_args *args)
{
    if (on_terminal(args))
        printf("\033[H\033[J"); /* home, clear */
}

static void show(const struct status_args *args, const struct status_view *view)
{
    clear(args);
    if (args->json)
        print_json(view);
    else
        status_view_print(view);
    if (args->watch && !args->json && !on_terminal(args))
        printf("\n");
    fflush(stdout);
}

static void show_away(struct watch *w, const struct error *err)
{
    uint64_t now = clock_now_ns();
    if (!w->away_since_ns)
        w->away_since_ns = now;
    double seconds = (double)(now - w->away_since_ns) / (double)NS_PER_S;
    clear(w->args);
    if (w->args->json) {
        struct json j;
        json_init(&j, stdout);
        j.compact = true;
        json_object(&j, NULL);
        json_bool(&j, "ready", false);
        json_real(&j, "away_s", seconds);
        json_text(&j, "reason", err->text);
        json_end(&j);
    } else {
        printf("the server is away for %.0f s:\n%s\n", seconds, err->text);
    }
    fflush(stdout);
}

/* --- looking --- */

/* Takes a look and shows it; the first look of a watch is only remembered. */
static enum status look(struct watch *w, bool first, struct error *err)
{
    struct look *mine = &w->looks[w->next], *other = &w->looks[1 - w->next];
    enum status status = ask(w, mine, err);
    if (status) {
        w->ready = false;
        if (first || status == STATUS_UNAUTHENTICATED || status == STATUS_PERMISSION_DENIED)
            return status;
        show_away(w, err);
        return STATUS_OK;
    }
    assert(mine->page);
    const struct inferd_status_page *before = other->page;
    if (before && before->started_ms != mine->page->started_ms)
        before = NULL;
    const struct status_view view = {mine->page, before, w->args->watch};
    if (!first || !w->args->watch)
        show(w->args, &view);
    w->ready = mine->page->ready;
    w->away_since_ns = 0;
    w->next = 1 - w->next;
    return STATUS_OK;
}

static enum status watch(struct watch *w, struct error *err)
{
    const struct status_args *args = w->args;
    TRY(look(w, true, err));
    if (on_terminal(args))
        printf("the first interval takes %g s\n", args->interval);
    uint64_t next = clock_now_ns();
    for (uint32_t i = 0; args->watch && (!args->count || i < args->count) && !ferror(stdout); i++) {
        next = MAX(next + (uint64_t)(args->interval * (double)NS_PER_S), clock_now_ns());
        clock_sleep_until(next);
        TRY(look(w, false, err));
    }
    return STATUS_OK;
}

int command_status(int argc, char **argv)
{
    struct status_args args = {.interval = 1};
    struct arg_texts addresses;
    struct error err;
    int rc = args_parse(&spec, argc, argv, &args, &addresses);
    if (rc < 0)
        rc = token_args_check(&args.token, &spec);
    if (rc >= 0)
        return rc;
    if (args.interval < 0.01 || args.interval > 86400) {
        fprintf(stderr, "inferctl status: --interval: 0.01 to 86400 seconds\n");
        return EXIT_USAGE;
    }
    struct watch w = {.args = &args, .address = addresses.list[0]};
    if (token_args_load(&args.token, &err))
        return command_failed("status", &err);
    enum status status = watch(&w, &err);
    for (size_t i = 0; i < ARRAY_LEN(w.looks); i++)
        inferd_client_close(w.looks[i].client);
    if (status)
        return command_failed("status", &err);
    return w.ready ? EXIT_OK : EXIT_FAILED;
}
