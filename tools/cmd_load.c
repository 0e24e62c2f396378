/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inferctl load: a load test against a daemon. It measures one point after the other: a range of
 * numbers of clients (closed loop), a rate (open loop), or a search for the highest rate whose p99
 * keeps a bound (client/load/load_search.h), below what a closed loop reaches. A server that goes
 * away ends the test, and what was measured until then is reported.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "tools/cleanup.h"
#include "tools/inferctl.h"
#include "tools/load_report.h"
#include "tools/output.h"
#include "tools/request.h"

enum {
    POINTS_MAX = 256,
    VARIANTS_MAX = 16, /* different requests, from a file of many instances */
    SEARCH_CLIENTS = 64,
};

struct load_args {
    struct request_args request;
    const char *concurrency, *json, *csv;
    double rate, p99_ms, seconds, warm_up;
    bool poisson, quiet;
    uint32_t connections, batch, outstanding, max_windows;
};

#define FIELD(name) offsetof(struct load_args, name)

static const struct arg options[] = {
    {"concurrency", 'c', ARG_TEXT, FIELD(concurrency), "A[:B[:STEP]]",
     "closed loop: clients that wait for their answers (default: 1)"},
    {"rate", 'r', ARG_F64, FIELD(rate), "R", "open loop: requests a second, answered or not"},
    {"poisson", 0, ARG_FLAG, FIELD(poisson), NULL, "send at random times instead of even ones"},
    {"p99", 0, ARG_F64, FIELD(p99_ms), "MS", "search the highest rate with a p99 of at most this"},
    {"seconds", 's', ARG_F64, FIELD(seconds), "S", "for each point, in three windows (default: 5)"},
    {"warm-up", 0, ARG_F64, FIELD(warm_up), "S",
     "warm-up before them (default: a fifth, at most 1)"},
    {"max-windows", 0, ARG_U32, FIELD(max_windows), "N",
     "go on until three in a row agree to 10%, or to so many (default: 6)"},
    {"connections", 0, ARG_U32, FIELD(connections), "N",
     "connections that clients share (default: one each; open loop: 16)"},
    {"batch", 'b', ARG_U32, FIELD(batch), "B", "instances in a request (default: 1)"},
    {"outstanding", 0, ARG_U32, FIELD(outstanding), "N",
     "open loop: unanswered requests at most (default: 4096)"},
    {"json", 0, ARG_TEXT, FIELD(json), "FILE", "write the results there"},
    {"csv", 0, ARG_TEXT, FIELD(csv), "FILE", "write the results there"},
    {"quiet", 'q', ARG_FLAG, FIELD(quiet), NULL, "no table"},
    {NULL, 0, ARG_FLAG, 0, NULL, NULL},
};

static const struct args spec = {
    .usage = "inferctl load ADDRESS --model M [--concurrency A:B:STEP | --rate R [--poisson]] "
             "[--p99 MS] [options]",
    .what = "Measures a daemon under load: throughput, latency, batches, where the time goes.",
    .options = options,
    .min_positional = 1,
    .max_positional = 1,
    .shared = REQUEST_TABLES(offsetof(struct load_args, request)),
};

_Static_assert(LOAD_SEARCH_READINGS < (int)POINTS_MAX, "a search may need more points");

struct range {
    uint32_t from, to, step;
};

struct test {
    const struct load_args *args;
    struct range range;
    struct load_plan plan;
    struct request_data data;
    struct inferd_prepared *requests[VARIANTS_MAX];
    struct load_point *points; /* POINTS_MAX */
    uint32_t n_points;
    struct load_search search;
};

/* --- arguments --- */

/* "A", "A:B", "A:B:STEP" */
static bool parse_range(const char *text, struct range *out)
{
    uint32_t part[3] = {0, 0, 1};
    int n = 0;
    for (;;) {
        char one[16];
        size_t len = strcspn(text, ":");
        if (n == 3 || len >= sizeof(one))
            return false;
        memcpy(one, text, len);
        one[len] = '\0';
        if (!args_u32(one, &part[n++]))
            return false;
        if (!text[len])
            break;
        text += len + 1;
    }
    *out = (struct range){part[0], n > 1 ? part[1] : part[0], part[2]};
    return out->from >= 1 && out->to >= out->from && out->step >= 1 &&
           out->to <= LOAD_OUTSTANDING_MAX && (out->to - out->from) / out->step < POINTS_MAX;
}

static int usage(const char *what)
{
    fprintf(stderr, "%s; usage: %s\n", what, spec.usage);
    return EXIT_USAGE;
}

/* -1, or the exit code. */
static int check_args(const struct load_args *args, struct range *range)
{
    if (!args->request.model)
        return usage("--model is missing");
    if (!parse_range(args->concurrency ? args->concurrency : "1", range))
        return usage("--concurrency: A, A:B or A:B:STEP, from 1 to 65536, at most 256 points");
    if (args->rate == 0 || args->p99_ms == 0)
        return usage("--rate and --p99: more than 0");
    if (args->concurrency && args->rate > 0)
        return usage("--concurrency is a closed loop, --rate an open one: one of them");
    if (args->poisson && !(args->rate > 0) && !(args->p99_ms > 0))
        return usage("--poisson goes with --rate or --p99");
    if (args->p99_ms > 0 && (args->concurrency || args->rate > 0))
        return usage("--p99 finds the rate itself");
    if (args->rate > 1e7 || args->seconds > 86400 || args->warm_up > 3600 || args->seconds < 0.03)
        return usage("--rate to 10,000,000, --seconds from 0.03 to 86,400, --warm-up to 3,600");
    if (args->connections > LOAD_CONNECTIONS_MAX || args->outstanding > LOAD_OUTSTANDING_MAX)
        return usage("--connections to 1024, --outstanding to 65536");
    if (args->max_windows && args->max_windows < LOAD_WINDOWS)
        return usage("--max-windows: at least 3");
    return -1;
}

/* --- requests --- */

/* Makes the requests. Files of many instances give several, which are sent in turn. */
static enum status prepare(struct test *t, struct error *err)
{
    struct inferd_tensor tensors[INFERD_MAX_TENSORS];
    struct inferd_error from;
    uint32_t each = t->data.batched && t->args->batch ? t->args->batch : 1;
    uint32_t n = MAX(MIN(t->data.instances / each, (uint32_t)VARIANTS_MAX), 1u);
    if (!t->data.batched && t->args->batch > 1)
        return error_set(err, STATUS_INVALID_ARGUMENT, "--batch: the model is not batched");
    TRY(request_data_resize(&t->data, n * each, err));
    for (uint32_t i = 0; i < n; i++) {
        struct inferd_request q =
            request_slice(&t->data, &t->args->request, i * each, each, tensors);
        if (inferd_prepared_new(&q, &t->requests[i], &from))
            return request_error(&from, err);
    }
    t->plan.requests = t->requests;
    t->plan.n_requests = n;
    t->plan.instances = each;
    return STATUS_OK;
}

/* Sends one request before the test, so that the server says what is wrong with it. Failures that
 * may be over a moment later are left for the test to count. */
static enum status try_one(const struct test *t, struct inferd_client *client, struct error *err)
{
    struct inferd_tensor tensors[INFERD_MAX_TENSORS];
    struct inferd_request q =
        request_slice(&t->data, &t->args->request, 0, t->plan.instances, tensors);
    const struct inferd_response *r;
    struct inferd_error from;
    switch (inferd_client_call(client, &q, &r, &from)) {
    case INFERD_OK:
    case INFERD_RESOURCE_EXHAUSTED:
    case INFERD_UNAVAILABLE:
    case INFERD_DEADLINE_EXCEEDED:
        return STATUS_OK;
    default:
        return request_error(&from, err);
    }
}

static enum status open_requests(struct test *t, struct error *err)
{
    CLEANUP(client_cleanup) struct inferd_client *client = NULL;
    TRY(request_connect(t->plan.address, &client, err));
    TRY(request_data_open(client, &t->args->request, t->args->batch, &t->data, err));
    TRY(prepare(t, err));
    return try_one(t, client, err);
}

/* --- points --- */

static enum status run_point(struct test *t, uint32_t concurrency, double rate, struct error *err)
{
    const struct load_args *args = t->args;
    uint32_t each = concurrency ? concurrency : 16;
    struct load_point *point = &t->points[t->n_points];
    t->plan.concurrency = concurrency;
    t->plan.rate = rate;
    t->plan.connections =
        args->connections ? args->connections : MIN(each, (uint32_t)LOAD_CONNECTIONS_MAX);
    TRY(load_run(&t->plan, point, err));
    t->n_points++;
    if (!args->quiet) {
        load_report_line(stdout, point);
        load_report_detail(stdout, point);
    }
    return point->cut ? err->status : STATUS_OK;
}

static struct load_reading reading_of(const struct load_point *point)
{
    const struct load_stats *s = &point->stats;
    double achieved = s->seconds > 0 ? (double)s->requests / s->seconds : 0;
    return (struct load_reading){
        .latency = (double)histogram_quantile(&s->latency, 0.99) / NS_PER_MS,
        .kept_up = s->requests > 0 && load_stats_errors(s) == 0 && achieved >= 0.95 * point->rate,
        .stable = point->stable};
}

static enum status search(struct test *t, struct error *err)
{
    load_search_init(&t->search, t->args->p99_ms, 0);
    TRY(run_point(t, SEARCH_CLIENTS, 0, err));
    const struct load_stats *all = &t->points[0].stats;
    double capacity = all->seconds > 0 ? (double)all->requests / all->seconds : 0, rate;
    load_search_init(&t->search, t->args->p99_ms, capacity);
    while ((rate = load_search_next(&t->search)) > 0) {
        TRY(run_point(t, 0, rate, err));
        struct load_reading reading = reading_of(&t->points[t->n_points - 1]);
        load_search_add(&t->search, &reading);
    }
    return STATUS_OK;
}

static enum status run_points(struct test *t, struct error *err)
{
    if (t->args->p99_ms > 0)
        return search(t, err);
    if (t->args->rate > 0)
        return run_point(t, 0, t->args->rate, err);
    for (uint32_t c = t->range.from; c <= t->range.to; c += t->range.step)
        TRY(run_point(t, c, 0, err));
    return STATUS_OK;
}

static enum status write_files(const struct load_args *args, const struct load_report *report,
                               struct error *err)
{
    if (args->json)
        TRY(load_report_json(report, args->json, err));
    return args->csv ? load_report_csv(report, args->csv, err) : STATUS_OK;
}

/* Before the test: the results would be lost otherwise. */
static enum status try_files(const struct load_args *args, struct error *err)
{
    const char *const files[] = {args->json, args->csv};
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (files[i]) {
            TRY(output_check_named(files[i], &args->request.inputs, err));
            TRY(file_writer_try_text(files[i], err));
        }
    return STATUS_OK;
}

/* Reports after a failure too: what was measured until then is worth keeping. */
static enum status run(struct test *t, struct error *err)
{
    const struct load_args *args = t->args;
    t->points = calloc(POINTS_MAX, sizeof(*t->points));
    if (!t->points)
        return error_no_memory(err, "the results");
    TRY(try_files(args, err));
    TRY(open_requests(t, err));
    if (!args->quiet)
        load_report_head(stdout);
    enum status status = run_points(t, err);
    if (t->n_points == 0)
        return status;
    const struct load_report report = {.address = t->plan.address,
                                       .model = args->request.model,
                                       .batch = t->plan.instances,
                                       .points = t->points,
                                       .n_points = t->n_points,
                                       .p99_bound_ms = MAX(args->p99_ms, 0),
                                       .answer = load_search_answer(&t->search),
                                       .error = status ? err->text : NULL};
    if (args->p99_ms > 0 && !args->quiet)
        load_report_answer(stdout, &report);
    struct error file_err;
    enum status file_status = write_files(args, &report, status ? &file_err : err);
    return status ? status : file_status;
}

int command_load(int argc, char **argv)
{
    struct load_args args = {.seconds = 5, .warm_up = -1, .rate = -1, .p99_ms = -1};
    struct arg_texts addresses;
    struct error err;
    struct range range;
    int rc = args_parse(&spec, argc, argv, &args, &addresses);
    if (rc < 0)
        rc = check_args(&args, &range);
    if (rc < 0)
        rc = token_args_check(&args.request.token, &spec);
    if (rc >= 0)
        return rc;
    struct test t = {.args = &args, .range = range};
    t.plan.address = addresses.list[0];
    t.plan.poisson = args.poisson;
    t.plan.outstanding = args.outstanding ? args.outstanding : 4096;
    t.plan.deadline_ns = args.request.timeout_ms * NS_PER_MS;
    t.plan.window_s = args.seconds / LOAD_WINDOWS;
    t.plan.warm_up_s = args.warm_up >= 0 ? args.warm_up : MIN(1.0, args.seconds / 5);
    t.plan.max_windows = args.max_windows ? args.max_windows : 2 * LOAD_WINDOWS;
    if (token_args_load(&args.request.token, &err))
        return command_failed("load", &err);
    enum status status = run(&t, &err);
    for (uint32_t i = 0; i < VARIANTS_MAX; i++)
        inferd_prepared_free(t.requests[i]);
    request_data_close(&t.data);
    free(t.points);
    if (status)
        return command_failed("load", &err);
    return args.p99_ms > 0 && !load_search_answer(&t.search).found ? EXIT_FAILED : EXIT_OK;
}
