/* SPDX-License-Identifier: Apache-2.0 */
/* The blocking client against a server that behaves and misbehaves; see fake_server.h. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "client/client.h"
#include "tests/test.h"
#include "tests/unit/client/fake_server.h"

struct fixture {
    struct fake_server *server;
    struct inferd_client *client;
};

static const float numbers[4] = {1, 2, 3, 4};

static const struct inferd_tensor input = {.name = "x",
                                           .dtype = INFERD_FP32,
                                           .rank = 2,
                                           .dim = {1, 4},
                                           .data = numbers,
                                           .size = sizeof(numbers)};

static struct inferd_request infer(const char *model)
{
    return (struct inferd_request){.model = model, .n_inputs = 1, .inputs = &input};
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct inferd_error err = {0};
    struct inferd_options options = {.grace_ms = 30, .connect_timeout_ms = 2000};
    assert_non_null(f);
    f->server = fake_server_start(false);
    if (inferd_client_open(fake_server_address(f->server), &options, &f->client, &err))
        fail_msg("%s", err.text);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    inferd_client_close(f->client);
    fake_server_stop(f->server);
    free(f);
    return 0;
}

/* Checks that the answer repeats the inputs. */
static void check_echo(const struct inferd_response *r, const char *model)
{
    assert_int_equal(r->status, INFERD_OK);
    assert_string_equal(r->model, model);
    assert_int_equal(r->n_outputs, 1);
    assert_string_equal(r->outputs[0].name, "x");
    assert_int_equal(r->outputs[0].dtype, INFERD_FP32);
    assert_int_equal(r->outputs[0].rank, 2);
    assert_int_equal(r->outputs[0].dim[1], 4);
    assert_int_equal(r->outputs[0].size, sizeof(numbers));
    assert_memory_equal(r->outputs[0].data, numbers, sizeof(numbers));
}

static void call_ok(struct fixture *f, const char *model)
{
    struct inferd_request request = infer(model);
    const struct inferd_response *r;
    struct inferd_error err = {0};
    if (inferd_client_call(f->client, &request, &r, &err))
        fail_msg("%s: %s", model, err.text);
    check_echo(r, model);
}

static void call_fails(struct fixture *f, const char *model, enum inferd_status status,
                       const char *text)
{
    struct inferd_request request = infer(model);
    const struct inferd_response *r = NULL;
    struct inferd_error err = {0};
    enum inferd_status got = inferd_client_call(f->client, &request, &r, &err);
    if (got != status)
        fail_msg("%s: %s (%s), not %s", model, inferd_status_name(got), err.text,
                 inferd_status_name(status));
    assert_int_equal(err.status, status);
    if (!strstr(err.text, text))
        fail_msg("%s: \"%s\" says nothing of \"%s\"", model, err.text, text);
    assert_int_equal(inferd_client_in_flight(f->client), 0);
}

static void a_call_gets_its_answer(void **state)
{
    struct fixture *f = *state;
    struct inferd_request request = infer("echo");
    const struct inferd_response *r;
    assert_int_equal(inferd_client_call(f->client, &request, &r, NULL), INFERD_OK);
    check_echo(r, "echo");
    assert_string_equal(r->version, "7");
    assert_string_equal(r->message, "");
    assert_int_equal(r->timing.queue_ns, 1000);
    assert_int_equal(r->timing.output_ns, 4000);
    assert_int_equal(r->timing.batch, 8);
    for (int i = 0; i < 100; i++)
        call_ok(f, "echo");
}

static void unix_sockets_work_alike(void **state)
{
    (void)state;
    struct fixture f = {.server = fake_server_start(true)};
    struct inferd_error err = {0};
    if (inferd_client_open(fake_server_address(f.server), NULL, &f.client, &err))
        fail_msg("%s", err.text);
    call_ok(&f, "echo");
    inferd_client_close(f.client);
    fake_server_stop(f.server);
}

static void the_server_describes_itself(void **state)
{
    struct fixture *f = *state;
    const struct inferd_response *r;
    struct inferd_request q = {.kind = INFERD_MODEL_METADATA, .model = "echo"};
    assert_int_equal(inferd_client_call(f->client, &q, &r, NULL), INFERD_OK);
    assert_non_null(r->metadata);
    assert_int_equal(r->metadata->n_inputs, 2);
    assert_string_equal(r->metadata->inputs[0].name, "x");
    assert_int_equal(r->metadata->inputs[0].dtype, INFERD_FP32);
    assert_int_equal(r->metadata->inputs[0].dim[0], -1);
    assert_int_equal(r->metadata->inputs[0].dim[1], 16);
    assert_int_equal(r->metadata->inputs[1].dtype, INFERD_BOOL);
    assert_string_equal(r->metadata->outputs[0].datatype, "WEIRD");
    assert_int_equal(r->metadata->outputs[0].dtype, INFERD_NONE);
    assert_string_equal(r->metadata->versions[1], "2");
    assert_null(r->status_page);

    q.kind = INFERD_STATISTICS;
    assert_int_equal(inferd_client_call(f->client, &q, &r, NULL), INFERD_OK);
    assert_int_equal(r->statistics->n_models, 1);
    assert_int_equal(r->statistics->models[0].inferences, 10);
    assert_int_equal(r->statistics->models[0].success.ns, 300);
    assert_int_equal(r->statistics->models[0].queue.ns, 30);

    q.kind = INFERD_STATUS;
    assert_int_equal(inferd_client_call(f->client, &q, &r, NULL), INFERD_OK);
    assert_true(r->status_page->ready);
    assert_int_equal(r->status_page->uptime_s, 12);
    assert_string_equal(r->status_page->models[0].state, "READY");
    const struct inferd_status_model *model = &r->status_page->models[0];
    assert_int_equal(model->requests, 9);
    assert_int_equal(model->total_ns, 2000);
    assert_int_equal(model->stages[INFERD_QUEUE].n_buckets, 1);
    assert_int_equal(model->stages[INFERD_QUEUE].buckets[0].low_ns, 1024);
    assert_int_equal(model->stages[INFERD_QUEUE].buckets[0].high_ns, 1056);
    assert_int_equal(model->stages[INFERD_QUEUE].buckets[0].count, 9);
    assert_int_equal(r->status_page->models[1].stages[INFERD_TOTAL].buckets[0].high_ns, 1ull << 37);
    assert_string_equal(r->status_page->counters[0].name, "rejected");
    assert_int_equal(r->status_page->counters[0].value, 4);
    assert_int_equal(r->status_page->n_memory, 3);
    assert_string_equal(r->status_page->memory[1].name, "replies");
    assert_int_equal(r->status_page->memory[1].bytes, 1023);
    assert_int_equal(r->status_page->memory[1].limit, 0);
    assert_int_equal(r->status_page->memory[2].limit, 2048);

    q.kind = INFERD_INDEX;
    assert_int_equal(inferd_client_call(f->client, &q, &r, NULL), INFERD_OK);
    assert_string_equal(r->index->models[0].name, "echo");

    q.kind = INFERD_SERVER_METADATA;
    assert_int_equal(inferd_client_call(f->client, &q, &r, NULL), INFERD_OK);
    assert_string_equal(r->server->name, "fake");
    assert_string_equal(r->server->extensions[0], "statistics");

    static const enum inferd_kind yes[] = {INFERD_SERVER_LIVE, INFERD_SERVER_READY,
                                           INFERD_MODEL_READY};
    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        q.kind = yes[i];
        assert_int_equal(inferd_client_call(f->client, &q, &r, NULL), INFERD_OK);
        assert_true(r->yes);
        assert_null(r->server);
    }
}

static void errors_of_the_server_are_passed_on(void **state)
{
    struct fixture *f = *state;
    call_fails(f, "nosuch", INFERD_NOT_FOUND, "no such model");
    struct inferd_request request = infer("refuse");
    const struct inferd_response *r = NULL;
    assert_int_equal(inferd_client_call(f->client, &request, &r, NULL), INFERD_RESOURCE_EXHAUSTED);
    assert_non_null(r);
    assert_int_equal(r->retry_after_us, 1234);
    call_ok(f, "echo");
}

static void many_are_sent_before_any_is_received(void **state)
{
    struct fixture *f = *state;
    enum { N = 200 };
    uint64_t ids[N];
    struct inferd_request hold = infer("hold"), release = infer("release");
    for (int i = 0; i < N; i++)
        assert_int_equal(inferd_client_send(f->client, &hold, &ids[i], NULL), INFERD_OK);
    const struct inferd_response *r;
    struct inferd_error err;
    assert_int_equal(inferd_client_receive(f->client, 1000, &r, &err), INFERD_DEADLINE_EXCEEDED);
    assert_int_equal(inferd_client_in_flight(f->client), N);
    uint64_t last;
    assert_int_equal(inferd_client_send(f->client, &release, &last, NULL), INFERD_OK);
    for (int i = N - 1; i >= 0; i--) { /* the answers come in reverse order */
        assert_int_equal(inferd_client_receive(f->client, UINT64_MAX, &r, NULL), INFERD_OK);
        assert_int_equal(r->id, ids[i]);
        check_echo(r, "hold");
    }
    assert_int_equal(inferd_client_receive(f->client, UINT64_MAX, &r, NULL), INFERD_OK);
    assert_int_equal(r->id, last);
    assert_int_equal(inferd_client_receive(f->client, 0, &r, NULL), INFERD_FAILED_PRECONDITION);
}

static void a_call_keeps_the_answers_of_others(void **state)
{
    struct fixture *f = *state;
    uint64_t a, b;
    struct inferd_request hold = infer("hold");
    assert_int_equal(inferd_client_send(f->client, &hold, &a, NULL), INFERD_OK);
    assert_int_equal(inferd_client_send(f->client, &hold, &b, NULL), INFERD_OK);
    call_ok(f, "release"); /* the answers to both held requests come before its own */
    const struct inferd_response *r;
    assert_int_equal(inferd_client_receive(f->client, 0, &r, NULL), INFERD_OK);
    assert_int_equal(r->id, b);
    check_echo(r, "hold");
    assert_int_equal(inferd_client_receive(f->client, 0, &r, NULL), INFERD_OK);
    assert_int_equal(r->id, a);
    check_echo(r, "hold");
    assert_int_equal(inferd_client_in_flight(f->client), 0);
}

static void large_tensors_come_back_whole(void **state)
{
    struct fixture *f = *state;
    enum { N = 5 * 1024 * 1024 };
    uint8_t *bytes = malloc(N);
    assert_non_null(bytes);
    for (size_t i = 0; i < N; i++)
        bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    struct inferd_tensor t[2] = {
        {.name = "a", .dtype = INFERD_UINT8, .rank = 1, .dim = {N}, .data = bytes, .size = N},
        {.name = "b", .dtype = INFERD_UINT8, .rank = 1, .dim = {100}, .data = bytes, .size = 100}};
    struct inferd_request q = {.model = "echo", .n_inputs = 2, .inputs = t};
    const struct inferd_response *r;
    uint64_t id;
    /* Three at once are more than the sockets hold, so the server writes while we still do. */
    for (int i = 0; i < 3; i++)
        assert_int_equal(inferd_client_send(f->client, &q, &id, NULL), INFERD_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(inferd_client_receive(f->client, UINT64_MAX, &r, NULL), INFERD_OK);
        assert_int_equal(r->n_outputs, 2);
        assert_int_equal(r->outputs[0].size, N);
        assert_memory_equal(r->outputs[0].data, bytes, N);
        assert_memory_equal(r->outputs[1].data, bytes, 100);
    }
    free(bytes);
}

static void answers_in_single_bytes_are_put_together(void **state)
{
    call_ok(*state, "drip");
}

static void an_answer_that_does_not_come_is_given_up(void **state)
{
    struct fixture *f = *state;
    struct inferd_request q = infer("mute");
    const struct inferd_response *r = NULL;
    struct inferd_error err;
    q.timeout_us = 10000; /* the client waits 30 ms longer */
    uint64_t before = clock_now_ns();
    assert_int_equal(inferd_client_call(f->client, &q, &r, &err), INFERD_DEADLINE_EXCEEDED);
    uint64_t took = clock_now_ns() - before;
    if (took < 40 * NS_PER_MS || took > 5 * NS_PER_S)
        fail_msg("took %llu us", (unsigned long long)took / 1000);
    call_ok(f, "echo"); /* the connection lives */

    uint64_t id;
    assert_int_equal(inferd_client_send(f->client, &q, &id, NULL), INFERD_OK);
    assert_int_equal(inferd_client_receive(f->client, UINT64_MAX, &r, &err), INFERD_OK);
    assert_int_equal(r->id, id);
    assert_int_equal(r->status, INFERD_DEADLINE_EXCEEDED);
}

static void an_answer_that_comes_too_late_is_dropped(void **state)
{
    struct fixture *f = *state;
    struct inferd_options options = {.grace_ms = 1};
    inferd_client_close(f->client);
    f->client = NULL;
    assert_int_equal(inferd_client_open(fake_server_address(f->server), &options, &f->client, NULL),
                     INFERD_OK);
    struct inferd_request q = infer("slow");
    const struct inferd_response *r;
    q.timeout_us = 1;
    assert_int_equal(inferd_client_call(f->client, &q, &r, NULL), INFERD_DEADLINE_EXCEEDED);
    call_ok(f, "echo"); /* not the late answer */
}

static void a_cancelled_request_gets_its_one_answer(void **state)
{
    struct fixture *f = *state;
    struct inferd_request q = infer("silent");
    const struct inferd_response *r;
    uint64_t id;
    assert_int_equal(inferd_client_send(f->client, &q, &id, NULL), INFERD_OK);
    assert_int_equal(inferd_client_cancel(f->client, id + 1, NULL), INFERD_NOT_FOUND);
    assert_int_equal(inferd_client_cancel(f->client, id, NULL), INFERD_OK);
    assert_int_equal(inferd_client_receive(f->client, UINT64_MAX, &r, NULL), INFERD_OK);
    assert_int_equal(r->id, id);
    assert_int_equal(r->status, INFERD_CANCELLED);
    assert_int_equal(inferd_client_cancel(f->client, id, NULL), INFERD_NOT_FOUND);
    call_ok(f, "echo"); /* the answer to the cancel itself is dropped */
}

static void in_flight_is_bounded(void **state)
{
    struct fixture *f = *state;
    struct inferd_options options = {.max_in_flight = 3};
    struct inferd_request q = infer("hold");
    struct inferd_error err;
    uint64_t id;
    inferd_client_close(f->client);
    f->client = NULL;
    assert_int_equal(inferd_client_open(fake_server_address(f->server), &options, &f->client, NULL),
                     INFERD_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(inferd_client_send(f->client, &q, &id, NULL), INFERD_OK);
    assert_int_equal(inferd_client_send(f->client, &q, &id, &err), INFERD_RESOURCE_EXHAUSTED);
}

static void bad_requests_are_not_sent(void **state)
{
    struct fixture *f = *state;
    struct inferd_tensor t = input;
    struct inferd_request q = {.model = "echo", .n_inputs = 1, .inputs = &t};
    const struct inferd_response *r;
    struct inferd_error err;
    t.size = 15;
    assert_int_equal(inferd_client_call(f->client, &q, &r, &err), INFERD_INVALID_ARGUMENT);
    assert_string_equal(err.text, "input \"x\": its type and shape take 16 bytes, 15 are given");
    t.size = 16;
    t.data = NULL;
    assert_int_equal(inferd_client_call(f->client, &q, &r, &err), INFERD_INVALID_ARGUMENT);
    t = input;
    t.rank = 9;
    assert_int_equal(inferd_client_call(f->client, &q, &r, &err), INFERD_INVALID_ARGUMENT);
    t = input;
    t.dim[0] = -1;
    assert_int_equal(inferd_client_call(f->client, &q, &r, &err), INFERD_INVALID_ARGUMENT);
    t = input;
    t.dtype = (enum inferd_dtype)99;
    assert_int_equal(inferd_client_call(f->client, &q, &r, &err), INFERD_INVALID_ARGUMENT);
    q.n_inputs = INFERD_MAX_TENSORS + 1;
    assert_int_equal(inferd_client_call(f->client, &q, &r, &err), INFERD_INVALID_ARGUMENT);
    q.kind = (enum inferd_kind)77;
    assert_int_equal(inferd_client_call(f->client, &q, &r, &err), INFERD_INVALID_ARGUMENT);
    assert_int_equal(fake_server_requests(f->server), 0);
    assert_int_equal(inferd_client_in_flight(f->client), 0);
    call_ok(f, "echo");
}

static void a_server_that_breaks_the_protocol_is_refused(void **state)
{
    static const struct {
        const char *model;
        enum inferd_status status;
        const char *text;
    } cases[] = {
        {"garbage", INFERD_INTERNAL, "unreadable response"},
        {"huge", INFERD_OUT_OF_RANGE, "2147483648 bytes"},
        {"half", INFERD_UNAVAILABLE, "closed the connection"},
        {"die", INFERD_UNAVAILABLE, "closed the connection"},
        {"farewell", INFERD_UNAVAILABLE, "going away"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct fixture *f;
        setup((void **)&f);
        call_fails(f, cases[i].model, cases[i].status, cases[i].text);
        call_fails(f, "echo", cases[i].status, cases[i].text); /* the client stays unusable */
        teardown((void **)&f);
    }
}

static void an_answer_to_another_question_is_an_error(void **state)
{
    struct fixture *f = *state;
    call_fails(f, "wrong", INFERD_INTERNAL, "another question");
    call_ok(f, "stranger"); /* an answer that nobody asked for is dropped */
    call_ok(f, "echo");
}

static void a_lost_connection_answers_what_is_in_flight(void **state)
{
    struct fixture *f = *state;
    struct inferd_request hold = infer("hold"), die = infer("die"), echo = infer("echo");
    const struct inferd_response *r;
    uint64_t id;
    assert_int_equal(inferd_client_send(f->client, &echo, &id, NULL), INFERD_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(inferd_client_send(f->client, &hold, &id, NULL), INFERD_OK);
    assert_int_equal(inferd_client_send(f->client, &die, &id, NULL), INFERD_OK);
    assert_int_equal(inferd_client_receive(f->client, UINT64_MAX, &r, NULL), INFERD_OK);
    check_echo(r, "echo"); /* an answer that came before the end is delivered */
    for (int i = 0; i < 4; i++) {
        assert_int_equal(inferd_client_receive(f->client, UINT64_MAX, &r, NULL), INFERD_OK);
        assert_int_equal(r->status, INFERD_UNAVAILABLE);
    }
    assert_int_equal(inferd_client_receive(f->client, 0, &r, NULL), INFERD_FAILED_PRECONDITION);
    assert_int_equal(inferd_client_cancel(f->client, id, NULL), INFERD_NOT_FOUND);
}

static void a_server_that_does_not_read_is_given_up(void **state)
{
    struct fixture *f = *state;
    enum { N = 64 * 1024 * 1024 };
    uint8_t *bytes = calloc(1, N);
    assert_non_null(bytes);
    struct inferd_tensor t = {
        .name = "a", .dtype = INFERD_UINT8, .rank = 1, .dim = {N}, .data = bytes, .size = N};
    struct inferd_request stall = infer("stall"),
                          q = {.model = "echo", .n_inputs = 1, .inputs = &t, .timeout_us = 20000};
    uint64_t id;
    struct inferd_error err;
    assert_int_equal(inferd_client_send(f->client, &stall, &id, NULL), INFERD_OK);
    assert_int_equal(inferd_client_send(f->client, &q, &id, &err), INFERD_UNAVAILABLE);
    assert_non_null(strstr(err.text, "takes no more bytes"));
    free(bytes);
}

static void addresses_that_do_not_work_say_why(void **state)
{
    (void)state;
    struct inferd_client *client = NULL;
    struct inferd_error err;
    assert_int_equal(inferd_client_open("example", NULL, &client, &err), INFERD_INVALID_ARGUMENT);
    assert_int_equal(inferd_client_open("unix:/nonexistent/x", NULL, &client, &err),
                     INFERD_NOT_FOUND);
    assert_non_null(strstr(err.text, "unix:/nonexistent/x"));
    struct fake_server *server = fake_server_start(false);
    char address[64];
    strcpy(address, fake_server_address(server));
    fake_server_stop(server); /* nobody listens there any more */
    assert_int_equal(inferd_client_open(address, NULL, &client, &err), INFERD_UNAVAILABLE);
    assert_non_null(strstr(err.text, address));
    assert_null(client);
    inferd_client_close(NULL);
}

static void names_and_sizes(void **state)
{
    (void)state;
    assert_string_equal(inferd_status_name(INFERD_RESOURCE_EXHAUSTED), "RESOURCE_EXHAUSTED");
    assert_string_equal(inferd_dtype_name(INFERD_BF16), "BF16");
    assert_int_equal(inferd_dtype_size(INFERD_FP64), 8);
    assert_int_equal(inferd_dtype_size(INFERD_NONE), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_call_gets_its_answer),
        cmocka_unit_test(unix_sockets_work_alike),
        CASE(the_server_describes_itself),
        CASE(errors_of_the_server_are_passed_on),
        CASE(many_are_sent_before_any_is_received),
        CASE(a_call_keeps_the_answers_of_others),
        CASE(large_tensors_come_back_whole),
        CASE(answers_in_single_bytes_are_put_together),
        CASE(an_answer_that_does_not_come_is_given_up),
        CASE(an_answer_that_comes_too_late_is_dropped),
        CASE(a_cancelled_request_gets_its_one_answer),
        CASE(in_flight_is_bounded),
        CASE(bad_requests_are_not_sent),
        cmocka_unit_test(a_server_that_breaks_the_protocol_is_refused),
        CASE(an_answer_to_another_question_is_an_error),
        CASE(a_lost_connection_answers_what_is_in_flight),
        CASE(a_server_that_does_not_read_is_given_up),
        cmocka_unit_test(addresses_that_do_not_work_say_why),
        cmocka_unit_test(names_and_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
