/* SPDX-License-Identifier: Apache-2.0 */
/* inferctl status: what a daemon says of itself, once or again and again. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/inferctl.h"
#include "tools/json.h"
#include "tools/request.h"

struct status_args {
    bool watch, json;
    double interval;
    uint32_t count;
    struct token_args token;
};

static const struct arg options[] = {
    {"watch", 'w', ARG_FLAG, offsetof(struct status_args, watch), NULL,
     "again and again, with rates since the last time"},
    {"interval", 0, ARG_F64, offsetof(struct status_args, interval), "S",
     "seconds between two looks (default: 1)"},
    {"count", 'n', ARG_U32, offsetof(struct status_args, count), "N",
     "stop after so many looks (default: never)"},
    {"json", 0, ARG_FLAG, offsetof(struct status_args, json), NULL,
     "one JSON object (each time, with --watch)"},
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

/* Of the last look, for rates: models by their place, which is stable unless they change. */
enum { SEEN_MODELS = 256 };
struct seen {
    uint64_t at_ns; /* 0: there was none */
    uint32_t n;
    uint64_t instances[SEEN_MODELS];
};

static double per(uint64_t sum, uint64_t count)
{
    return count ? (double)sum / (double)count : 0;
}

static void print_model(const struct inferd_status_model *m, const struct seen *before, uint32_t i,
                        uint64_t now)
{
    char rate[32] = "-";
    if (before->at_ns && i < before->n && m->instances >= before->instances[i])
        snprintf(rate, sizeof(rate), "%.1f",
                 (double)(m->instances - before->instances[i]) * (double)NS_PER_S /
                     (double)(now - before->at_ns));
    printf("%-24.40s %-8.16s %-11s %9s %10" PRIu64 " %8" PRIu64 " %6u %7.2f %9.0f %9.0f\n", m->name,
           m->version, m->state, rate, m->requests, m->failures, m->queued,
           per(m->instances, m->batches), per(m->queue_ns, m->requests) / NS_PER_US,
           per(m->compute_ns, m->requests) / NS_PER_US);
    if (m->reason[0])
        printf("  %s\n", m->reason);
}

/* "1.5 GiB" */
static const char *amount(uint64_t bytes, char *to, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < ARRAY_LEN(units); unit++)
        value /= 1024;
    snprintf(to, size, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return to;
}

static void print_memory(const struct inferd_status_page *s)
{
    char bytes[32], limit[32];
    if (s->n_memory)
        printf("\n%-24s %11s %11s\n", "memory", "bytes", "limit");
    for (uint32_t i = 0; i < s->n_memory; i++) {
        const struct inferd_memory *m = &s->memory[i];
        printf("%-24.40s %11s %11s\n", m->name, amount(m->bytes, bytes, sizeof(bytes)),
               m->limit ? amount(m->limit, limit, sizeof(limit)) : "-");
    }
}

static void print_text(const struct inferd_status_page *s, const struct seen *before, uint64_t now)
{
    printf("inferd %s on %s, up %" PRIu64 " s, %s\n", s->version, s->device, s->uptime_s,
           s->ready ? "ready" : "not ready");
    printf("workers %u of %u busy; connections %u; in flight %" PRIu64 " requests, %" PRIu64
           " bytes\n\n",
           s->workers_busy, s->workers, s->connections, s->inflight_requests, s->inflight_bytes);
    printf("%-24s %-8s %-11s %9s %10s %8s %6s %7s %9s %9s\n", "model", "version", "state", "inst/s",
           "requests", "failures", "queued", "batch", "queue us", "comp. us");
    for (uint32_t i = 0; i < s->n_models; i++)
        print_model(&s->models[i], before, i, now);
    print_memory(s);
    bool any = false;
    for (uint32_t i = 0; i < s->n_counters; i++) {
        if (s->counters[i].value == 0)
            continue;
        printf("%s%s %" PRIu64, any ? ", " : "\ncounters: ", s->counters[i].name,
               s->counters[i].value);
        any = true;
    }
    printf("%s", any ? "\n" : "");
}

static void json_model(struct json *j, const struct inferd_status_model *m)
{
    json_object(j, NULL);
    json_text(j, "name", m->name);
    json_text(j, "version", m->version);
    json_text(j, "state", m->state);
    json_text(j, "reason", m->reason);
    json_uint(j, "max_batch", m->max_batch);
    json_uint(j, "max_delay_us", m->max_delay_us);
    json_uint(j, "queued", m->queued);
    json_uint(j, "oldest_us", m->oldest_us);
    json_uint(j, "requests", m->requests);
    json_uint(j, "failures", m->failures);
    json_uint(j, "instances", m->instances);
    json_uint(j, "batches", m->batches);
    json_uint(j, "queue_ns", m->queue_ns);
    json_uint(j, "input_ns", m->input_ns);
    json_uint(j, "compute_ns", m->compute_ns);
    json_uint(j, "output_ns", m->output_ns);
    json_end(j);
}

static void print_json(const struct inferd_status_page *s)
{
    struct json j;
    json_init(&j, stdout);
    json_object(&j, NULL);
    json_text(&j, "version", s->version);
    json_text(&j, "device", s->device);
    json_uint(&j, "uptime_s", s->uptime_s);
    json_bool(&j, "ready", s->ready);
    json_uint(&j, "workers", s->workers);
    json_uint(&j, "workers_busy", s->workers_busy);
    json_uint(&j, "connections", s->connections);
    json_uint(&j, "inflight_bytes", s->inflight_bytes);
    json_uint(&j, "inflight_requests", s->inflight_requests);
    json_list(&j, "models");
    for (uint32_t i = 0; i < s->n_models; i++)
        json_model(&j, &s->models[i]);
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

static void remember(const struct inferd_status_page *s, uint64_t now, struct seen *seen)
{
    seen->at_ns = now;
    seen->n = MIN(s->n_models, (uint32_t)SEEN_MODELS);
    for (uint32_t i = 0; i < seen->n; i++)
        seen->instances[i] = s->models[i].instances;
}

static enum status look(const struct status_args *args, struct inferd_client *client,
                        struct seen *seen, bool *ready, struct error *err)
{
    const struct inferd_response *r;
    struct inferd_error from;
    struct inferd_request q = {.kind = INFERD_STATUS, .token = args->token.token};
    if (inferd_client_call(client, &q, &r, &from))
        return request_error(&from, err);
    uint64_t now = clock_now_ns();
    if (args->json) {
        print_json(r->status_page);
    } else {
        if (args->watch && isatty(STDOUT_FILENO))
            printf("\033[H\033[J"); /* home, clear */
        print_text(r->status_page, seen, now);
        if (args->watch && !isatty(STDOUT_FILENO))
            printf("\n");
    }
    fflush(stdout);
    remember(r->status_page, now, seen);
    *ready = r->status_page->ready;
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
    struct inferd_client *client = NULL;
    struct seen seen = {0};
    bool ready = false;
    enum status status = token_args_load(&args.token, &err);
    if (!status)
        status = request_connect(addresses.list[0], &client, &err);
    uint64_t next = clock_now_ns();
    for (uint32_t i = 0; !status; i++) {
        status = look(&args, client, &seen, &ready, &err);
        if (!args.watch || (args.count && i + 1 >= args.count) || ferror(stdout))
            break;
        next += (uint64_t)(args.interval * (double)NS_PER_S);
        clock_sleep_until(next);
    }
    inferd_client_close(client);
    if (status)
        return command_failed("status", &err);
    return ready ? EXIT_OK : EXIT_FAILED;
}
