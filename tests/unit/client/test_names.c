/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that are given a name. The resolver is this program's own: it answers what a test says,
 * when the test says. */
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "base/address.h"
#include "client/client.h"
#include "tests/test.h"
#include "tests/unit/client/fake_server.h"

enum { MOST = 6 };

static struct {
    int code;
    uint32_t n;
    struct addrinfo list[MOST];
    struct address addresses[MOST];
    uv_sem_t *begun, *go; /* if not NULL, the resolver posts `begun` and waits for `go` */
} resolver;

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **out)
{
    (void)port;
    (void)hints;
    if (strcmp(host, "serving.example") != 0)
        return EAI_NONAME;
    if (resolver.begun) {
        uv_sem_post(resolver.begun);
        uv_sem_wait(resolver.go);
    }
    if (resolver.code == 0)
        *out = resolver.list;
    return resolver.code;
}

void freeaddrinfo(struct addrinfo *list)
{
    (void)list;
}

static void answer(const char *text)
{
    uint32_t i = resolver.n++;
    assert_int_equal(address_parse(text, &resolver.addresses[i], NULL), STATUS_OK);
    resolver.list[i] = (struct addrinfo){
        .ai_family = resolver.addresses[i].storage.ss_family,
        .ai_addr = (struct sockaddr *)&resolver.addresses[i].storage,
        .ai_addrlen = resolver.addresses[i].length,
    };
    if (i > 0)
        resolver.list[i - 1].ai_next = &resolver.list[i];
}

struct fixture {
    struct fake_server *server;
    int dead; /* bound and not listening: connections are refused */
    char dead_text[ADDRESS_TEXT_MAX];
    uv_loop_t loop;
    uv_timer_t guard;
    struct inferd_async *async;
    int connected, lost, closed, answers;
    enum inferd_status status;
    char reason[512];
};

static void on_guard(uv_timer_t *timer)
{
    (void)timer;
    fail_msg("the loop waits for ever");
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct address dead;
    assert_non_null(f);
    memset(&resolver, 0, sizeof(resolver));
    f->server = fake_server_start(false);
    assert_int_equal(address_parse("127.0.0.1:0", &dead, NULL), STATUS_OK);
    f->dead = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(f->dead, address_sockaddr(&dead), dead.length), 0);
    dead.length = sizeof(dead.storage);
    assert_int_equal(getsockname(f->dead, (struct sockaddr *)&dead.storage, &dead.length), 0);
    address_format(&dead, f->dead_text);
    uv_loop_init(&f->loop);
    uv_timer_init(&f->loop, &f->guard);
    uv_timer_start(&f->guard, on_guard, 20000, 0);
    uv_unref((uv_handle_t *)&f->guard);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    uv_close((uv_handle_t *)&f->guard, NULL);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    fake_server_stop(f->server);
    close(f->dead);
    free(f);
    return 0;
}

static const float numbers[4] = {1, 2, 3, 4};
static const struct inferd_tensor input = {.name = "x",
                                           .dtype = INFERD_FP32,
                                           .rank = 2,
                                           .dim = {1, 4},
                                           .data = numbers,
                                           .size = sizeof(numbers)};
static const struct inferd_request request = {.model = "echo", .n_inputs = 1, .inputs = &input};

/* Three addresses: the kernel refuses the first at once, the second's host refuses, and the third
 * serves. */
static void answer_with_detours(struct fixture *f)
{
    answer("[fe80::1]:9"); /* link-local, but without a link */
    answer(f->dead_text);
    answer(fake_server_address(f->server));
}

/* --- blocking --- */

static void addresses_are_tried_in_order(void **state)
{
    struct fixture *f = *state;
    struct inferd_client *client;
    struct inferd_error err = {0};
    const struct inferd_response *response;
    answer_with_detours(f);
    if (inferd_client_open("serving.example:80", NULL, &client, &err))
        fail_msg("%s", err.text);
    assert_int_equal(inferd_client_call(client, &request, &response, &err), INFERD_OK);
    inferd_client_close(client);
}

static void the_last_failure_is_told(void **state)
{
    struct fixture *f = *state;
    struct inferd_client *client = NULL;
    struct inferd_error err = {0};
    answer("[fe80::1]:9");
    answer(f->dead_text);
    assert_int_not_equal(inferd_client_open("serving.example:80", NULL, &client, &err), INFERD_OK);
    assert_null(client);
    assert_non_null(strstr(err.text, "serving.example:80: "));
    assert_non_null(strstr(err.text, "refused"));
    assert_int_equal(inferd_client_open("gone.example:80", NULL, &client, &err), INFERD_NOT_FOUND);
    assert_non_null(strstr(err.text, "\"gone.example:80\""));
}

/* --- asynchronous --- */

static void on_state(void *user, enum inferd_status status, const char *reason)
{
    struct fixture *f = user;
    f->status = status;
    snprintf(f->reason, sizeof(f->reason), "%s", reason);
    if (status == INFERD_OK)
        f->connected++;
    else
        f->lost++;
}

static void on_answer(void *user, const struct inferd_response *response)
{
    struct fixture *f = user;
    f->answers++;
    f->status = response->status;
}

static void on_closed(void *user)
{
    ((struct fixture *)user)->closed++;
}

static void open_named(struct fixture *f, uint32_t timeout_ms)
{
    struct inferd_error err = {0};
    const struct inferd_options options = {.connect_timeout_ms = timeout_ms};
    if (inferd_async_open(&f->loop, "serving.example:80", &options, on_state, f, &f->async, &err))
        fail_msg("%s", err.text);
}

static void close_now(struct fixture *f)
{
    inferd_async_close(f->async, on_closed, f);
    while (!f->closed)
        uv_run(&f->loop, UV_RUN_ONCE);
}

static void the_loop_does_not_wait_for_the_resolver(void **state)
{
    struct fixture *f = *state;
    uv_sem_t begun, go;
    uv_sem_init(&begun, 0);
    uv_sem_init(&go, 0);
    resolver.begun = &begun;
    resolver.go = &go;
    answer_with_detours(f);
    open_named(f, 5000);
    assert_int_equal(inferd_async_send(f->async, &request, on_answer, f, NULL, NULL), INFERD_OK);
    uv_sem_wait(&begun); /* the resolver's thread is asking, and this thread is free */
    for (int i = 0; i < 5; i++)
        uv_run(&f->loop, UV_RUN_NOWAIT);
    assert_int_equal(f->connected + f->lost + f->answers, 0);
    uv_sem_post(&go);
    while (!f->answers && !f->lost)
        uv_run(&f->loop, UV_RUN_ONCE);
    assert_int_equal(f->connected, 1);
    assert_int_equal(f->status, INFERD_OK);
    close_now(f);
    uv_sem_destroy(&begun);
    uv_sem_destroy(&go);
}

static void failures_are_told_once(void **state)
{
    struct fixture *f = *state;
    answer("[fe80::1]:9");
    answer(f->dead_text);
    answer("[fe80::1]:9");
    open_named(f, 5000);
    assert_int_equal(inferd_async_send(f->async, &request, on_answer, f, NULL, NULL), INFERD_OK);
    while (!f->lost)
        uv_run(&f->loop, UV_RUN_ONCE);
    assert_int_equal(f->answers, 1);
    assert_int_equal(f->connected, 0);
    assert_non_null(strstr(f->reason, "connect: "));
    close_now(f);
    assert_int_equal(f->lost, 1);
}

static void a_name_that_nobody_knows(void **state)
{
    struct fixture *f = *state;
    resolver.code = EAI_NONAME;
    open_named(f, 5000);
    while (!f->lost)
        uv_run(&f->loop, UV_RUN_ONCE);
    assert_int_equal(f->status, INFERD_UNAVAILABLE);
    assert_non_null(strstr(f->reason, "look-up of the host's name: "));
    close_now(f);
}

static void a_resolver_that_is_silent(void **state)
{
    struct fixture *f = *state;
    uv_sem_t begun, go;
    uv_sem_init(&begun, 0);
    uv_sem_init(&go, 0);
    resolver.begun = &begun;
    resolver.go = &go;
    answer(fake_server_address(f->server));
    open_named(f, 20);
    while (!f->lost) /* lost by the time limit for connecting */
        uv_run(&f->loop, UV_RUN_ONCE);
    assert_non_null(strstr(f->reason, "timed out"));
    uv_sem_wait(&begun);
    inferd_async_close(f->async, on_closed, f);
    for (int i = 0; i < 5; i++)
        uv_run(&f->loop, UV_RUN_NOWAIT);
    assert_int_equal(f->closed, 0); /* the resolver's thread still uses it */
    uv_sem_post(&go);
    while (!f->closed)
        uv_run(&f->loop, UV_RUN_ONCE);
    assert_int_equal(f->lost, 1);
    assert_int_equal(f->connected, 0);
    uv_sem_destroy(&begun);
    uv_sem_destroy(&go);
}

/* The client is closed in each round of the loop after opening; nothing freed is used. */
static void closed_at_any_moment(void **state)
{
    struct fixture *f = *state;
    answer_with_detours(f);
    for (int rounds = 0; rounds < 40; rounds++) {
        f->closed = 0;
        open_named(f, 5000);
        for (int i = 0; i < rounds / 2; i++) {
            if (rounds % 2)
                usleep(200); /* lets the resolver's thread and the kernel get further */
            uv_run(&f->loop, UV_RUN_NOWAIT);
        }
        close_now(f);
        assert_int_equal(f->lost, 0);
    }
}

#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SERVER(addresses_are_tried_in_order),
        WITH_SERVER(the_last_failure_is_told),
        WITH_SERVER(the_loop_does_not_wait_for_the_resolver),
        WITH_SERVER(failures_are_told_once),
        WITH_SERVER(a_name_that_nobody_knows),
        WITH_SERVER(a_resolver_that_is_silent),
        WITH_SERVER(closed_at_any_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
