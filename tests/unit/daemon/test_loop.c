/* SPDX-License-Identifier: Apache-2.0 */
/* An event loop in this process, over the toy engine and socket pairs. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/identity.h"
#include "daemon/loop.h"
#include "daemon/pipeline.h"
#include "proto/frame.h"
#include "tests/test.h"
#include "tests/unit/daemon/toy_engine.h"

enum { LONG = 1 << 18 };

static struct shared shared;
static struct config *config;
static struct model *retired;
static uint32_t queue_limit;
static bool with_line;
static uint32_t inputs = 1, outputs = 1; /* numbers that the toy takes and gives */
static int served_fd;                    /* the loop's end of the last connection */

static void deliver(void *user, uint32_t loop, struct inflight *first, struct inflight *last)
{
    (void)user;
    loop_complete(shared.loops[loop], first, last);
}

static void spent(void *user, uint32_t loop, struct inflight *first, struct inflight *last)
{
    (void)user;
    loop_spent(shared.loops[loop], first, last);
}

static void on_lost(void *user, const struct error *err)
{
    (void)user;
    (void)err;
}

static void on_retire(void *user, struct model *model)
{
    (void)user;
    model->next = retired;
    retired = model;
}

/* Three toys in a row, below the name "line". */
static void line_add(struct table *table)
{
    static const char text[] =
        "platform: 'ensemble' input { name: 'x' } output { name: 'y' } ensemble_scheduling {"
        "step { model_name: 'toy' input_map { key: 'x' value: 'x' }"
        "       output_map { key: 'y' value: 'a' } }"
        "step { model_name: 'toy' input_map { key: 'x' value: 'a' }"
        "       output_map { key: 'y' value: 'b' } }"
        "step { model_name: 'toy' input_map { key: 'x' value: 'b' }"
        "       output_map { key: 'y' value: 'y' } } }";
    struct model_file *file;
    struct pipeline *pipeline;
    struct model *model;
    struct error err;
    assert_int_equal(model_file_parse("test", text, strlen(text), "line", NULL, &file, &err), 0);
    assert_int_equal(pipeline_bind(table, file, &pipeline, &err), 0);
    assert_int_equal(
        dispatch_pipeline_load(shared.dispatch, config, "line", "1", pipeline, &model, &err), 0);
    model_file_free(file);
    assert_true(table_add(table, "line", "1", MODEL_READY, NULL, model));
    table_sort(table);
}

/* Loop 0 runs on a thread of its own here. */
static int setup_device(bool apart)
{
    struct error err;
    struct model *model;
    static char name[] = "toy";
    const struct config_model toy_config = {
        .name = name, .max_delay_us = -1, .queue_limit = queue_limit};
    const struct dispatch_config dispatch = {.device = toy_device(),
                                             .workers = 1,
                                             .counters = &shared.counters,
                                             .deliver = deliver,
                                             .spent = spent,
                                             .lost = on_lost,
                                             .retire = on_retire};
    toy_reset();
    atomic_store(&toy.apart, apart);
    memset(&shared, 0, sizeof(shared));
    config = config_new();
    config->max_delay_us = 0;
    shared.device = toy_device();
    atomic_store(&shared.ready, true);
    atomic_store(&shared.budget.limit, 1 << 24);
    if (dispatch_new(&dispatch, &shared.dispatch, &err) != STATUS_OK ||
        dispatch_model_load(shared.dispatch, config, &toy_config, "1",
                            outputs > 1 ? toy_engine_shaped(inputs, outputs) : toy_engine_new(128),
                            &model, &err) != STATUS_OK)
        return -1;
    struct table *table = table_new(config, 2);
    if (!table || identities_new(config, NULL, &table->identities, &err) != STATUS_OK ||
        !table_add(table, name, "1", MODEL_READY, NULL, model))
        return -1;
    if (with_line)
        line_add(table);
    enum status s = loop_new(&shared, 0, table, &shared.loops[0], &err);
    table_unref(table);
    shared.n_loops = 1;
    return s == STATUS_OK && loop_start(shared.loops[0], &err) == STATUS_OK ? 0 : -1;
}

static int setup(void **state)
{
    (void)state;
    return setup_device(false);
}

/* The queue has room for two requests besides the one that runs. */
static int setup_narrow(void **state)
{
    (void)state;
    queue_limit = 2;
    int failed = setup_device(false);
    queue_limit = 0;
    return failed;
}

static int setup_apart(void **state)
{
    (void)state;
    return setup_device(true);
}

static int setup_line(void **state)
{
    (void)state;
    with_line = true;
    int failed = setup_device(true);
    with_line = false;
    return failed;
}

/* Its outputs are so large that classes of them take many slices of the loop's time. */
static int setup_wide(void **state)
{
    (void)state;
    outputs = LONG;
    int failed = setup_device(false);
    outputs = 1;
    return failed;
}

/* Its inputs, too. */
static int setup_long(void **state)
{
    inputs = LONG;
    int failed = setup_wide(state);
    inputs = 1;
    return failed;
}

static int teardown(void **state)
{
    (void)state;
    toy_gate_open(); /* left by a test that failed */
    loop_order(shared.loops[0], LOOP_STOP);
    loop_join(shared.loops[0]);
    loop_free(shared.loops[0]);
    while (retired) {
        struct model *model = retired;
        retired = model->next;
        dispatch_model_unload(shared.dispatch, model);
    }
    dispatch_free(shared.dispatch);
    config_free(config);
    return atomic_load(&toy.buffers) || atomic_load(&toy.contexts) || atomic_load(&toy.engines) ||
           atomic_load(&toy.shelves) || budget_used(&shared.budget) ||
           atomic_load(&shared.connections);
}

static int peer_open_for(const struct session_ops *protocol)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    atomic_fetch_add(&shared.connections, 1);
    atomic_fetch_add(&shared.loops[0]->load, 1);
    const struct arrival arrival = {.fd = ends[1], .protocol = protocol};
    const struct timeval patience = {.tv_sec = 20}; /* a reply that does not come fails the test */
    assert_int_equal(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    served_fd = ends[1];
    loop_adopt(shared.loops[0], &arrival);
    return ends[0];
}

static int peer_open(void)
{
    return peer_open_for(&session_framed);
}

static void ask(int fd, uint64_t id, uint64_t value, const char *model, uint64_t timeout_us)
{
    static struct request request;
    static uint8_t head[MESSAGE_HEAD_MAX];
    struct iovec iov[MESSAGE_MAX_IOV];
    struct error err;
    uint32_t n;
    request = (struct request){.id = id,
                               .kind = REQUEST_INFER,
                               .model = message_text_of(model),
                               .timeout_us = timeout_us,
                               .n_inputs = 1};
    request.inputs[0] = (struct message_tensor){.name = message_text_of("x"),
                                                .dtype = DTYPE_U64,
                                                .shape = {2, {1, 1}},
                                                .data = &value,
                                                .size = sizeof(value)};
    assert_int_equal(request_encode(&request, head, iov, &n, &err), STATUS_OK);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(send(fd, iov[i].iov_base, iov[i].iov_len, MSG_NOSIGNAL), iov[i].iov_len);
}

static void send_infer(int fd, uint64_t id, uint64_t value)
{
    ask(fd, id, value, "toy", 0);
}

/* Valid until the next call. */
static const struct response *receive_any(int fd)
{
    static struct response response;
    static uint8_t message[4096];
    uint8_t head[FRAME_HEAD_BYTES];
    struct error err;
    assert_int_equal(recv(fd, head, sizeof(head), MSG_WAITALL), sizeof(head));
    size_t size = frame_head_read(head);
    assert_true(size <= sizeof(message));
    assert_int_equal(recv(fd, message, size, MSG_WAITALL), size);
    assert_int_equal(response_decode(message, size, &response, &err), STATUS_OK);
    return &response;
}

static uint64_t receive(int fd, uint64_t *value)
{
    const struct response *response = receive_any(fd);
    assert_int_equal(response->status, STATUS_OK);
    memcpy(value, response->outputs[0].data, sizeof(*value));
    return response->id;
}

/* Checks that the next reply is a refusal with its cause's status and hint, and that the counter of
 * the cause has reached `counted`. */
static void expect_refusal(int fd, uint64_t id, enum cause cause, uint64_t counted,
                           const char *text)
{
    const struct response *r = receive_any(fd);
    char message[160];
    snprintf(message, sizeof(message), "%.*s", MESSAGE_TEXT(r->message));
    assert_int_equal(r->id, id);
    assert_string_equal(message, text);
    assert_int_equal(r->status, cause_row(cause)->status);
    assert_int_equal(r->retry_after_us, cause_row(cause)->retry_us);
    assert_int_equal(counter_get(&shared.loops[0]->counters, counter_of_cause(cause)), counted);
}

static void r37_the_table_of_watchers_is_complete(void **state)
{
    (void)state;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_true(shared.loops[0]->uv.nwatchers >= limit.rlim_cur);
}

static void requests_and_replies(void **state)
{
    (void)state;
    int peers[20];
    for (int p = 0; p < 20; p++)
        peers[p] = peer_open();
    for (uint64_t id = 1; id <= 50; id++)
        for (int p = 0; p < 20; p++)
            send_infer(peers[p], id, 1000 * (uint64_t)p + id);
    for (int p = 0; p < 20; p++) {
        uint64_t seen = 0;
        for (int k = 0; k < 50; k++) {
            uint64_t value, id = receive(peers[p], &value);
            assert_int_equal(value, 1000 * (uint64_t)p + id + 1);
            seen += id;
        }
        assert_int_equal(seen, 50 * 51 / 2);
        close(peers[p]);
    }
    for (int i = 0; i < 2000 && atomic_load(&shared.connections); i++)
        usleep(1000);
    assert_int_equal(atomic_load(&shared.connections), 0);
    assert_int_equal(counter_get(&shared.loops[0]->counters, COUNTER_REQUESTS_OK), 1000);
}

static void connections_may_be_open_at_the_stop(void **state)
{
    (void)state;
    int peer = peer_open();
    uint64_t value;
    send_infer(peer, 7, 1);
    assert_int_equal(receive(peer, &value), 7);
    send_infer(peer, 8, 1);
    uint8_t half[3] = {0, 0, 1};
    assert_int_equal(send(peer, half, sizeof(half), 0), sizeof(half));
    assert_int_equal(receive(peer, &value), 8);
    close(peer);
}

/* While a device computes, payloads that it has copied are charged to nobody. They are given back
 * at the next thing that the loop does. */
static void payloads_are_free_before_the_reply(void **state)
{
    (void)state;
    int peer = peer_open(), other = peer_open();
    uint64_t value;
    atomic_store(&toy.delay_ns, 400 * 1000 * 1000);
    send_infer(peer, 1, 5);
    for (int i = 0; i < 300 && !atomic_load(&toy.batches); i++)
        usleep(1000);
    assert_int_equal(atomic_load(&toy.batches), 1);
    assert_true(budget_used(&shared.budget) > 0);
    usleep(20000);
    atomic_store(&toy.delay_ns, 0);
    close(other);
    for (int i = 0; i < 200 && budget_used(&shared.budget); i++)
        usleep(1000);
    assert_int_equal(budget_used(&shared.budget), 0);
    assert_int_equal(counter_get(&shared.loops[0]->counters, COUNTER_REQUESTS_OK), 0);
    assert_int_equal(receive(peer, &value), 1);
    assert_int_equal(value, 6);
    close(peer);
}

/* Whichever part refuses a request, the client hears why and when to try again, and one counter
 * counts the refusal. */
static void refusals_say_why_and_when_to_try_again(void **state)
{
    (void)state;
    int first = peer_open(), peer = peer_open(), other = peer_open();
    uint64_t value;
    toy_gate_close();
    send_infer(first, 1, 1);
    for (int i = 0; i < 5000 && !toy_gate_holds(); i++)
        usleep(1000);
    assert_true(toy_gate_holds());
    /* the time of a batch is not known yet, so it is queued, and expires */
    ask(peer, 2, 2, "toy", 1);
    send_infer(peer, 3, 3);
    send_infer(peer, 4, 4);
    expect_refusal(peer, 4, CAUSE_QUEUE_FULL, 1, "model 'toy': the queue is full");
    send_infer(other, 5, 5); /* has nothing queued yet, so it gets a place */
    expect_refusal(peer, 3, CAUSE_QUEUE_FULL, 2, "model 'toy': the queue is full");
    ask(peer, 6, 6, "joy", 0);
    expect_refusal(peer, 6, CAUSE_MODEL_MISSING, 1,
                   "there is no model 'joy'; there are 'toy' (did you mean 'toy'?)");
    toy_gate_open();
    assert_int_equal(receive(first, &value), 1);
    expect_refusal(peer, 2, CAUSE_EXPIRED, 1,
                   "model 'toy': the deadline passed before the request could run");
    assert_int_equal(receive(other, &value), 5);

    dispatch_drain(shared.dispatch); /* the loop has not heard of it yet */
    send_infer(peer, 7, 7);
    expect_refusal(peer, 7, CAUSE_DRAINING, 1, "model 'toy': the server is shutting down");
    atomic_store(&shared.draining, true);
    send_infer(peer, 8, 8);
    expect_refusal(peer, 8, CAUSE_DRAINING, 2,
                   "the server is shutting down; the request was not executed");
    atomic_store(&shared.lost, true);
    send_infer(peer, 9, 9);
    expect_refusal(peer, 9, CAUSE_DEVICE_LOST, 3,
                   "the device was lost; the request was not executed");
    close(first);
    close(peer);
    close(other);
}

/* A request to the pipeline, alone: each step but the last leaves its output on a shelf, and there
 * alone, and the next one takes it from there. */
static void line_serves(int peer, uint64_t id)
{
    int fetched = atomic_load(&toy.fetched), alone = atomic_load(&toy.alone);
    uint64_t value;
    ask(peer, id, 100, "line", 0);
    assert_int_equal(receive(peer, &value), id);
    assert_int_equal(value, 103);
    assert_int_equal(atomic_load(&toy.fetched), fetched + 2);
    assert_int_equal(atomic_load(&toy.alone), alone + 2);
}

/* The toy leaves rubbish on the host instead of what stays on the device, so that nobody can have
 * read that. */
static void tensors_stay_on_the_device_between_steps(void **state)
{
    (void)state;
    int peers[4];
    for (int p = 0; p < 4; p++)
        peers[p] = peer_open();
    for (uint64_t id = 1; id <= 20; id++)
        line_serves(peers[0], id);
    for (uint64_t id = 1; id <= 50; id++) /* in batches, and with more of them than shelves */
        for (int p = 0; p < 4; p++)
            ask(peers[p], id, 1000 * (uint64_t)p + id, id % 3 ? "line" : "toy", 0);
    for (int p = 0; p < 4; p++)
        for (int k = 0; k < 50; k++) {
            uint64_t value, id = receive(peers[p], &value);
            assert_int_equal(value, 1000 * (uint64_t)p + id + (id % 3 ? 3 : 1));
        }
    line_serves(peers[0], 99);
    for (int p = 0; p < 4; p++)
        close(peers[p]);
}

/* More often than there are shelves: a step fails, a client leaves while a step runs, and one
 * cannot wait for the next step. */
static void what_ends_early_gives_its_shelf_back(void **state)
{
    (void)state;
    int peer = peer_open();
    for (uint64_t i = 0; i < 8; i++) {
        uint64_t at = 10 * i;
        atomic_store(&toy.poison, 1000); /* of the inputs 999, 1000, 1001 the last one */
        ask(peer, at + 1, 999, "line", 0);
        assert_int_equal(receive_any(peer)->status, STATUS_INVALID_ARGUMENT);
        line_serves(peer, at + 2);
        toy_gate_close();
        int gone = peer_open();
        ask(gone, 1, 100, "line", 0);
        for (int k = 0; k < 2 + (int)(i % 3); k++) { /* a gate before each step, and one behind */
            for (int n = 0; n < 5000 && !toy_gate_holds(); n++)
                usleep(1000);
            assert_true(k == 1 + (int)(i % 3) || toy_gate_pass());
        }
        close(gone);
        for (int n = 0; n < 5000 && atomic_load(&shared.connections) > 1; n++)
            usleep(1000);
        toy_gate_open();
        for (int n = 0; n < 5000 && budget_used(&shared.budget); n++)
            usleep(1000);
        assert_int_equal(budget_used(&shared.budget), 0);
        line_serves(peer, at + 3);
        atomic_store(&toy.delay_ns, 20 * 1000 * 1000);
        ask(peer, at + 4, 100, "line", 30 * 1000);
        assert_int_equal(receive_any(peer)->status, STATUS_DEADLINE_EXCEEDED);
        atomic_store(&toy.delay_ns, 0);
        line_serves(peer, at + 5);
    }
    close(peer);
}

enum { ASKED = 12, CLASSES = 5 };

/* Asks over HTTP, whose parameters name classes. */
static int classes_ask(unsigned value)
{
    int peer = peer_open_for(&session_http);
    char json[256], all[512];
    int n = snprintf(json, sizeof(json),
                     "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"UINT64\",\"shape\":[1,1],"
                     "\"data\":[%u]}],\"outputs\":[{\"name\":\"y\",\"parameters\":"
                     "{\"classification\":%d}}]}",
                     value, CLASSES);
    n = snprintf(all, sizeof(all),
                 "POST /v2/models/toy/infer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                 "Content-Length: %d\r\n\r\n%s",
                 n, json);
    assert_int_equal(send(peer, all, (size_t)n, MSG_NOSIGNAL), n);
    return peer;
}

/* All that comes, to the connection's end. */
static const char *classes_receive(int peer)
{
    static char text[2048];
    ssize_t n;
    size_t have = 0;
    while ((n = recv(peer, text + have, sizeof(text) - 1 - have, 0)) > 0)
        have += (size_t)n;
    assert_int_equal(n, 0);
    text[have] = '\0';
    return text;
}

/* They are more than a worker may keep buffers for, so some outputs are copied. */
static void classes_of_large_outputs_are_right(void **state)
{
    (void)state;
    int peers[ASKED];
    for (unsigned p = 0; p < ASKED; p++)
        peers[p] = classes_ask(10 * p);
    for (unsigned p = 0; p < ASKED; p++) {
        const char *text = classes_receive(peers[p]);
        char expected[128];
        unsigned v = 10 * p + 1; /* all values are equal: the first ones win */
        snprintf(expected, sizeof(expected),
                 "\"data\":[\"%u:0\",\"%u:1\",\"%u:2\",\"%u:3\",\"%u:4\"]", v, v, v, v, v);
        assert_non_null(strstr(text, "200 OK"));
        assert_non_null(strstr(text, expected));
        close(peers[p]);
    }
}

/* Whoever goes while classes are found leaves nothing behind, which the teardown checks. */
static void classes_end_with_their_connection(void **state)
{
    (void)state;
    int peers[ASKED];
    for (unsigned p = 0; p < ASKED; p++)
        peers[p] = classes_ask(p);
    for (int i = 0; i < 20000 && !atomic_load(&toy.batches); i++)
        usleep(1000);
    for (int p = 0; p < ASKED; p += 3)
        close(peers[p]);
    loop_order(shared.loops[0], LOOP_FAIL_ALL);
    for (int p = 1; p < ASKED; p += 3) { /* each has one answer: a result, or that there is none */
        const char *text = classes_receive(peers[p]);
        assert_int_equal(strncmp(text, "HTTP/1.1 ", 9), 0);
        assert_null(strstr(text + 9, "HTTP/1.1 "));
        close(peers[p]);
    }
    for (int p = 2; p < ASKED; p += 3)
        close(peers[p]);
    int last = classes_ask(1); /* the worker is done with all of the above before */
    assert_non_null(strstr(classes_receive(last), "200 OK"));
    close(last);
}

/* Sends a request of many numbers as JSON; returns once the loop has read all of it. */
static void long_send(int peer)
{
    static char text[2 * LONG + 512];
    static const char before[] = "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"UINT64\","
                                 "\"shape\":[1,262144],\"data\":[7";
    static const char behind[] = "]}]}";
    size_t size = sizeof(before) + sizeof(behind) - 2 + 2 * (LONG - 1);
    size_t n = (size_t)snprintf(text, sizeof(text),
                                "POST /v2/models/toy/infer HTTP/1.1\r\nHost: x\r\n"
                                "Connection: close\r\nContent-Length: %zu\r\n\r\n%s",
                                size, before);
    for (int i = 1; i < LONG; i++, n += 2)
        memcpy(text + n, ",7", 2);
    memcpy(text + n, behind, sizeof(behind) - 1);
    n += sizeof(behind) - 1;
    assert_int_equal(send(peer, text, n, MSG_NOSIGNAL), n);
    for (int unread = 1; unread; usleep(100))
        assert_int_equal(ioctl(served_fd, FIONREAD, &unread), 0);
}

/* While a request is decoded, runs, and its answer is written, its connection is not idle. */
static void r23_a_connection_that_is_served_makes_no_room(void **state)
{
    (void)state;
    static char answer[1 << 20];
    int peer = peer_open_for(&session_http);
    ssize_t n = -1;
    size_t have = 0;
    usleep(1100 * 1000); /* now it is one that has been of no use for long */
    long_send(peer);
    for (int i = 0; n && i < 200000; i++) {
        loop_order(shared.loops[0], LOOP_EVICT);
        usleep(500);
        while ((n = recv(peer, answer + have, sizeof(answer) - have, MSG_DONTWAIT)) > 0)
            have += (size_t)n;
    }
    assert_int_equal(n, 0);
    assert_int_equal(strncmp(answer, "HTTP/1.1 200 OK", 15), 0);
    assert_memory_equal(answer + have - 5, "8]}]}", 5);
    assert_int_equal(counter_get(&shared.loops[0]->counters, COUNTER_EVICTED), 0);
    close(peer);
}

int main(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 1;
    limit.rlim_cur = MIN(limit.rlim_max, (rlim_t)3000);
    setrlimit(RLIMIT_NOFILE, &limit);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(r37_the_table_of_watchers_is_complete, setup, teardown),
        cmocka_unit_test_setup_teardown(requests_and_replies, setup, teardown),
        cmocka_unit_test_setup_teardown(refusals_say_why_and_when_to_try_again, setup_narrow,
                                        teardown),
        cmocka_unit_test_setup_teardown(connections_may_be_open_at_the_stop, setup, teardown),
        cmocka_unit_test_setup_teardown(requests_and_replies, setup_apart, teardown),
        cmocka_unit_test_setup_teardown(payloads_are_free_before_the_reply, setup_apart, teardown),
        cmocka_unit_test_setup_teardown(tensors_stay_on_the_device_between_steps, setup_line,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_ends_early_gives_its_shelf_back, setup_line, teardown),
        cmocka_unit_test_setup_teardown(classes_of_large_outputs_are_right, setup_wide, teardown),
        cmocka_unit_test_setup_teardown(r23_a_connection_that_is_served_makes_no_room, setup_long,
                                        teardown),
        cmocka_unit_test_setup_teardown(classes_end_with_their_connection, setup_wide, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
