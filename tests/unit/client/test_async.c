/* SPDX-License-Identifier: Apache-2.0 */
/* The asynchronous client on a loop, against a server that behaves and misbehaves. */
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/compiler.h"
#include "client/client.h"
#include "tests/test.h"
#include "tests/unit/client/fake_server.h"

struct fixture {
    struct fake_server *server;
    uv_loop_t loop;
    struct inferd_async *async;
    uv_timer_t guard;
    int connected, lost, closed;
    enum inferd_status lost_status;
    char lost_reason[512];
    bool close_when_done;
    uint32_t want, answers, by_status[17];
    uint64_t ids[2048]; /* in the order of the answers */
    bool in_send;
    const struct inferd_prepared *again; /* how often the callback sends another request */
    uint32_t rounds;
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

static void on_guard(uv_timer_t *timer)
{
    (void)timer;
    fail_msg("the loop waits for ever");
}

static void on_closed(void *user)
{
    ((struct fixture *)user)->closed++;
}

static void on_state(void *user, enum inferd_status status, const char *reason)
{
    struct fixture *f = user;
    if (status == INFERD_OK) {
        f->connected++;
        return;
    }
    f->lost++;
    f->lost_status = status;
    snprintf(f->lost_reason, sizeof(f->lost_reason), "%s", reason);
    uv_stop(&f->loop);
}

static void open_with(struct fixture *f, const struct inferd_options *options)
{
    struct inferd_error err = {0};
    if (inferd_async_open(&f->loop, fake_server_address(f->server), options, on_state, f, &f->async,
                          &err))
        fail_msg("%s", err.text);
}

static void close_it(struct fixture *f)
{
    int before = f->closed;
    inferd_async_close(f->async, on_closed, f);
    f->async = NULL;
    while (f->closed == before)
        uv_run(&f->loop, UV_RUN_ONCE);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct inferd_options options = {.grace_ms = 30};
    assert_non_null(f);
    f->server = fake_server_start(false);
    uv_loop_init(&f->loop);
    uv_timer_init(&f->loop, &f->guard);
    uv_timer_start(&f->guard, on_guard, 20000, 0);
    open_with(f, &options);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    if (f->async)
        close_it(f);
    uv_close((uv_handle_t *)&f->guard, NULL);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0); /* nothing is left on the loop */
    fake_server_stop(f->server);
    free(f);
    return 0;
}

static void check_echo(const struct inferd_response *r)
{
    assert_int_equal(r->n_outputs, 1);
    assert_string_equal(r->outputs[0].name, "x");
    assert_int_equal(r->outputs[0].size, sizeof(numbers));
    assert_memory_equal(r->outputs[0].data, numbers, sizeof(numbers));
    assert_int_equal(r->timing.compute_ns, 3000);
}

static void on_answer(void *user, const struct inferd_response *r)
{
    struct fixture *f = user;
    assert_false(f->in_send);
    if (f->answers < ARRAY_LEN(f->ids))
        f->ids[f->answers] = r->id;
    f->answers++;
    f->by_status[r->status]++;
    if (r->status == INFERD_OK && r->kind == INFERD_INFER)
        check_echo(r);
    if (f->again && f->rounds > 0) {
        f->rounds--;
        assert_int_equal(inferd_async_send_prepared(f->async, f->again, on_answer, f, NULL, NULL),
                         INFERD_OK);
    }
    if (f->answers == f->want)
        uv_stop(&f->loop);
}

static uint64_t send_request(struct fixture *f, const struct inferd_request *request)
{
    struct inferd_error err = {0};
    uint64_t id;
    f->in_send = true;
    if (inferd_async_send(f->async, request, on_answer, f, &id, &err))
        fail_msg("%s", err.text);
    f->in_send = false;
    return id;
}

static uint64_t send_to(struct fixture *f, const char *model)
{
    struct inferd_request request = infer(model);
    return send_request(f, &request);
}

/* Runs until so many answers have come in all. */
static void run(struct fixture *f, uint32_t want)
{
    f->want = want;
    if (f->answers < want)
        uv_run(&f->loop, UV_RUN_DEFAULT);
}

static void many_go_out_before_the_connection_is_made(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 100; i++)
        send_to(f, "echo");
    assert_int_equal(inferd_async_in_flight(f->async), 100);
    run(f, 100);
    assert_int_equal(f->by_status[INFERD_OK], 100);
    assert_int_equal(f->connected, 1);
    assert_int_equal(inferd_async_in_flight(f->async), 0);
}

static void unix_sockets_work_alike(void **state)
{
    struct fixture *f = *state;
    close_it(f);
    fake_server_stop(f->server);
    f->server = fake_server_start(true);
    open_with(f, NULL);
    send_to(f, "echo");
    run(f, 1);
    assert_int_equal(f->by_status[INFERD_OK], 1);
}

static void answers_find_their_requests_out_of_order(void **state)
{
    struct fixture *f = *state;
    enum { N = 100 };
    uint64_t ids[N];
    for (int i = 0; i < N; i++)
        ids[i] = send_to(f, "hold");
    uint64_t last = send_to(f, "release");
    run(f, N + 1);
    for (int i = 0; i < N; i++)
        assert_int_equal(f->ids[i], ids[N - 1 - i]);
    assert_int_equal(f->ids[N], last);
}

static void a_prepared_request_is_sent_again_and_again(void **state)
{
    struct fixture *f = *state;
    struct inferd_request request = infer("echo");
    struct inferd_prepared *prepared;
    assert_int_equal(inferd_prepared_new(&request, &prepared, NULL), INFERD_OK);
    f->again = prepared;
    f->rounds = 20000 - 32;
    for (int i = 0; i < 32; i++)
        assert_int_equal(inferd_async_send_prepared(f->async, prepared, on_answer, f, NULL, NULL),
                         INFERD_OK);
    run(f, 20000);
    assert_int_equal(f->by_status[INFERD_OK], 20000);
    assert_int_equal(fake_server_requests(f->server), 20000);
    inferd_prepared_free(prepared);
}

static void a_prepared_request_sends_the_bytes_of_the_moment(void **state)
{
    struct fixture *f = *state;
    float data[4] = {9, 9, 9, 9};
    struct inferd_tensor t = input;
    t.data = data;
    struct inferd_request request = {.model = "echo", .n_inputs = 1, .inputs = &t};
    struct inferd_prepared *prepared;
    assert_int_equal(inferd_prepared_new(&request, &prepared, NULL), INFERD_OK);
    memcpy(data, numbers, sizeof(data)); /* the values that on_answer expects */
    inferd_async_send_prepared(f->async, prepared, on_answer, f, NULL, NULL);
    run(f, 1);
    assert_int_equal(f->by_status[INFERD_OK], 1);
    inferd_prepared_free(prepared);

    t.size = 3;
    struct inferd_error err;
    assert_int_equal(inferd_prepared_new(&request, &prepared, &err), INFERD_INVALID_ARGUMENT);
    inferd_prepared_free(NULL);
}

struct big {
    struct fixture *f;
    const uint8_t *bytes;
    size_t size;
    int answers;
};

static void on_big(void *user, const struct inferd_response *r)
{
    struct big *big = user;
    assert_int_equal(r->status, INFERD_OK);
    assert_int_equal(r->n_outputs, 2);
    assert_int_equal(r->outputs[0].size, big->size);
    assert_memory_equal(r->outputs[0].data, big->bytes, big->size);
    assert_memory_equal(r->outputs[1].data, big->bytes, 100);
    if (++big->answers == 4)
        uv_stop(&big->f->loop);
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
    struct big big = {.f = f, .bytes = bytes, .size = N};
    struct inferd_prepared *prepared;
    assert_int_equal(inferd_prepared_new(&q, &prepared, NULL), INFERD_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(inferd_async_send(f->async, &q, on_big, &big, NULL, NULL), INFERD_OK);
        assert_int_equal(inferd_async_send_prepared(f->async, prepared, on_big, &big, NULL, NULL),
                         INFERD_OK);
    }
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(big.answers, 4);
    inferd_prepared_free(prepared);
    free(bytes);
}

static void questions_about_the_server(void **state)
{
    struct fixture *f = *state;
    struct inferd_request q = {.kind = INFERD_STATUS};
    send_request(f, &q);
    q.kind = INFERD_SERVER_LIVE;
    send_request(f, &q);
    run(f, 2);
    assert_int_equal(f->by_status[INFERD_OK], 2);
}

static void an_answer_that_does_not_come_is_given_up(void **state)
{
    struct fixture *f = *state;
    struct inferd_request q = infer("mute");
    q.timeout_us = 5000; /* the client waits 30 ms longer */
    for (int i = 0; i < 10; i++)
        send_request(f, &q);
    uint64_t before = uv_hrtime();
    run(f, 10);
    uint64_t took = uv_hrtime() - before;
    assert_int_equal(f->by_status[INFERD_DEADLINE_EXCEEDED], 10);
    if (took < 30000000 || took > 5000000000)
        fail_msg("took %llu us", (unsigned long long)took / 1000);
    send_to(f, "echo");
    run(f, 11);
    assert_int_equal(f->by_status[INFERD_OK], 1);
    assert_int_equal(fake_server_cancels(f->server), 10); /* the server was told */
}

static void an_answer_that_comes_too_late_is_dropped(void **state)
{
    struct fixture *f = *state;
    struct inferd_options options = {.grace_ms = 1};
    close_it(f);
    open_with(f, &options);
    struct inferd_request q = infer("slow");
    q.timeout_us = 1;
    send_request(f, &q);
    run(f, 1);
    assert_int_equal(f->by_status[INFERD_DEADLINE_EXCEEDED], 1);
    uint64_t id = send_to(f, "echo");
    run(f, 2);
    assert_int_equal(f->ids[1], id);
    assert_int_equal(f->by_status[INFERD_OK], 1);
}

static void a_cancelled_request_gets_its_one_answer(void **state)
{
    struct fixture *f = *state;
    uint64_t id = send_to(f, "silent");
    assert_int_equal(inferd_async_cancel(f->async, id + 1, NULL), INFERD_NOT_FOUND);
    assert_int_equal(inferd_async_cancel(f->async, id, NULL), INFERD_OK);
    run(f, 1);
    assert_int_equal(f->by_status[INFERD_CANCELLED], 1);
    send_to(f, "echo");
    run(f, 2);
    assert_int_equal(f->by_status[INFERD_OK], 1);
}

static void in_flight_is_bounded(void **state)
{
    struct fixture *f = *state;
    struct inferd_options options = {.max_in_flight = 3};
    struct inferd_request q = infer("hold");
    struct inferd_error err;
    close_it(f);
    open_with(f, &options);
    for (int i = 0; i < 3; i++)
        send_to(f, "hold");
    assert_int_equal(inferd_async_send(f->async, &q, on_answer, f, NULL, &err),
                     INFERD_RESOURCE_EXHAUSTED);
    close_it(f);
    assert_int_equal(f->answers, 3); /* closing answers what is in flight */
    assert_int_equal(f->by_status[INFERD_CANCELLED], 3);
}

static void bad_requests_are_refused(void **state)
{
    struct fixture *f = *state;
    struct inferd_tensor t = input;
    struct inferd_request q = {.model = "echo", .n_inputs = 1, .inputs = &t};
    struct inferd_error err;
    t.size = 15;
    assert_int_equal(inferd_async_send(f->async, &q, on_answer, f, NULL, &err),
                     INFERD_INVALID_ARGUMENT);
    assert_int_equal(inferd_async_in_flight(f->async), 0);
}

static void a_lost_connection_answers_what_is_in_flight(void **state)
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
    struct fixture *f = *state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        memset(f->by_status, 0, sizeof(f->by_status));
        f->answers = 0;
        f->lost = 0;
        send_to(f, "echo");
        send_to(f, "hold");
        send_to(f, cases[i].model);
        uv_run(&f->loop, UV_RUN_DEFAULT);
        assert_int_equal(f->lost, 1);
        assert_int_equal(f->lost_status, cases[i].status);
        if (!strstr(f->lost_reason, cases[i].text))
            fail_msg("%s: \"%s\"", cases[i].model, f->lost_reason);
        assert_int_equal(f->by_status[INFERD_OK], 1);
        assert_int_equal(f->by_status[cases[i].status], 2);
        struct inferd_request q = infer("echo");
        assert_int_equal(inferd_async_send(f->async, &q, on_answer, f, NULL, NULL),
                         INFERD_UNAVAILABLE);
        assert_int_equal(inferd_async_cancel(f->async, 1, NULL), INFERD_UNAVAILABLE);
        close_it(f);
        open_with(f, NULL);
    }
}

static void a_server_that_does_not_read_is_given_up(void **state)
{
    struct fixture *f = *state;
    enum { N = 64 * 1024 * 1024 };
    uint8_t *bytes = calloc(1, N);
    assert_non_null(bytes);
    struct inferd_tensor t = {
        .name = "a", .dtype = INFERD_UINT8, .rank = 1, .dim = {N}, .data = bytes, .size = N};
    struct inferd_request q = {.model = "echo", .n_inputs = 1, .inputs = &t, .timeout_us = 20000};
    send_to(f, "stall");
    send_request(f, &q);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(f->lost, 1);
    assert_int_equal(f->by_status[INFERD_UNAVAILABLE], 2);
    free(bytes);
}

/* A write to a socket that the other side has closed raises SIGPIPE, which ends the program. */
static void a_server_that_is_gone_ends_no_program(void **state)
{
    struct fixture *f = *state;
    close_it(f);
    fake_server_stop(f->server);
    f->server = fake_server_start(true);
    open_with(f, NULL);
    send_to(f, "echo");
    run(f, 1);
    fake_server_stop(f->server);
    f->server = fake_server_start(false);
    send_to(f, "echo"); /* the loop writes before it learns of the end */
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(f->lost, 1);
    assert_int_equal(f->by_status[INFERD_UNAVAILABLE], 1);
}

static void nobody_there_is_told(void **state)
{
    struct fixture *f = *state;
    struct inferd_error err;
    struct inferd_async *other = NULL;
    char address[64];
    assert_int_equal(inferd_async_open(&f->loop, "nowhere", NULL, NULL, NULL, &other, &err),
                     INFERD_INVALID_ARGUMENT);
    assert_null(other);
    close_it(f);
    snprintf(address, sizeof(address), "%s", fake_server_address(f->server));
    fake_server_stop(f->server);
    assert_int_equal(inferd_async_open(&f->loop, address, NULL, on_state, f, &f->async, &err),
                     INFERD_OK);
    send_to(f, "echo");
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(f->lost, 1);
    assert_int_equal(f->connected, 0);
    assert_int_equal(f->lost_status, INFERD_UNAVAILABLE);
    assert_int_equal(f->by_status[INFERD_UNAVAILABLE], 1);
    f->server = fake_server_start(false); /* for the teardown */
}

static void on_answer_close(void *user, const struct inferd_response *r)
{
    struct fixture *f = user;
    f->by_status[r->status]++;
    f->answers++;
    if (f->async) {
        inferd_async_close(f->async, on_closed, f);
        f->async = NULL;
    }
}

static void closing_from_within_an_answer(void **state)
{
    struct fixture *f = *state;
    struct inferd_request q = infer("hold"), echo = infer("echo");
    for (int i = 0; i < 5; i++)
        inferd_async_send(f->async, &q, on_answer_close, f, NULL, NULL);
    inferd_async_send(f->async, &echo, on_answer_close, f, NULL, NULL);
    while (!f->closed)
        uv_run(&f->loop, UV_RUN_ONCE);
    assert_int_equal(f->by_status[INFERD_OK], 1);
    assert_int_equal(f->by_status[INFERD_CANCELLED], 5);
}

static void closing_from_within_a_loss(void **state)
{
    struct fixture *f = *state;
    struct inferd_request q = infer("hold"), die = infer("die");
    for (int i = 0; i < 5; i++)
        inferd_async_send(f->async, &q, on_answer_close, f, NULL, NULL);
    inferd_async_send(f->async, &die, on_answer_close, f, NULL, NULL);
    while (!f->closed)
        uv_run(&f->loop, UV_RUN_ONCE);
    assert_int_equal(f->answers, 6);
    assert_int_equal(f->lost, 0); /* the connection is gone: no callback is called */
}

static void closing_while_connecting(void **state)
{
    struct fixture *f = *state;
    send_to(f, "echo");
    close_it(f);
    assert_int_equal(f->by_status[INFERD_CANCELLED], 1);
    assert_int_equal(f->closed, 1);
    inferd_async_close(NULL, NULL, NULL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(many_go_out_before_the_connection_is_made),
        CASE(unix_sockets_work_alike),
        CASE(answers_find_their_requests_out_of_order),
        CASE(a_prepared_request_is_sent_again_and_again),
        CASE(a_prepared_request_sends_the_bytes_of_the_moment),
        CASE(large_tensors_come_back_whole),
        CASE(questions_about_the_server),
        CASE(an_answer_that_does_not_come_is_given_up),
        CASE(an_answer_that_comes_too_late_is_dropped),
        CASE(a_cancelled_request_gets_its_one_answer),
        CASE(in_flight_is_bounded),
        CASE(bad_requests_are_refused),
        CASE(a_lost_connection_answers_what_is_in_flight),
        CASE(a_server_that_does_not_read_is_given_up),
        CASE(a_server_that_is_gone_ends_no_program),
        CASE(nobody_there_is_told),
        CASE(closing_from_within_an_answer),
        CASE(closing_from_within_a_loss),
        CASE(closing_while_connecting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
