/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/peer.h"
#include "tests/test.h"

static struct peers *peers;

static int setup(void **state)
{
    (void)state;
    peers = peers_new();
    return peers ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    peers_free(peers);
    return 0;
}

/* The server's end of a new connection from that address of the loopback network. */
static int accepted_from(const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(address)};
    socklen_t size = sizeof(to);
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&to, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&to, &size), 0);
    assert_int_equal(bind(client, (struct sockaddr *)&from, sizeof(from)), 0);
    assert_int_equal(connect(client, (struct sockaddr *)&to, sizeof(to)), 0);
    int fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    close(listener);
    close(client);
    return fd;
}

static struct peer *meet(const char *address)
{
    int fd = accepted_from(address);
    struct peer *peer = peers_meet(peers, fd);
    assert_non_null(peer);
    close(fd);
    return peer;
}

static void r18_connections_of_one_address_share_a_record(void **state)
{
    (void)state;
    struct peer *a = meet("127.0.0.1"), *b = meet("127.0.0.1"), *c = meet("127.0.0.2");
    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, c);
    assert_int_equal(peer_connections(a), 2);
    assert_true(a->local);
    peer_leave(a);
    peer_leave(b);
    peer_leave(c);
    assert_int_equal(peer_connections(a), 0);
    peer_leave(NULL);
}

static void users_of_unix_sockets_have_records(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    struct peer *a = peers_meet(peers, ends[0]), *b = peers_meet(peers, ends[1]);
    assert_ptr_equal(a, b);
    assert_true(a->local);
    peer_leave(a);
    peer_leave(b);
    close(ends[0]);
    close(ends[1]);
}

static void r18_what_is_booked_has_a_limit(void **state)
{
    (void)state;
    struct peer *peer = meet("127.0.0.1");
    assert_true(peer_requests_in(peer, 2));
    assert_true(peer_requests_in(peer, 2));
    assert_false(peer_requests_in(peer, 2));
    peer_requests_out(peer);
    assert_true(peer_requests_in(peer, 2));
    assert_true(peer_bytes_in(peer, 600, 1000));
    assert_false(peer_bytes_in(peer, 401, 1000));
    assert_false(peer_bytes_in(peer, UINT64_MAX, 1000));
    assert_true(peer_bytes_in(peer, 400, 1000));
    peer_bytes_out(peer, 1000);
    assert_int_equal(peer->bytes, 0);
    assert_true(peer_requests_in(NULL, 0)); /* a connection without a record has no limits */
    assert_true(peer_bytes_in(NULL, 1, 0));
    peer_leave(peer);
}

static void zero_is_half_for_others_and_no_limit_for_this_machine(void **state)
{
    (void)state;
    const struct peer here = {.local = true}, there = {.local = false};
    assert_int_equal(peer_most(&here, 0, 100), UINT64_MAX);
    assert_int_equal(peer_most(&there, 0, 100), 50);
    assert_int_equal(peer_most(&there, 0, 1), 1);
    assert_int_equal(peer_most(&here, 7, 100), 7);
    assert_int_equal(peer_most(&there, 7, 100), 7);
}

/* Addresses come and go without end, but only a bounded number of records is kept. */
static void records_of_those_who_left_are_forgotten(void **state)
{
    (void)state;
    char address[32];
    struct peer *stays = meet("127.9.9.9");
    for (int i = 0; i < 600; i++) {
        snprintf(address, sizeof(address), "127.1.%d.%d", i / 250, 1 + i % 250);
        peer_leave(meet(address));
    }
    struct peer *again = meet("127.9.9.9");
    assert_ptr_equal(stays, again); /* records of connected peers stay */
    assert_int_equal(peer_connections(stays), 2);
    peer_leave(stays);
    peer_leave(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(r18_connections_of_one_address_share_a_record, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(users_of_unix_sockets_have_records, setup, teardown),
        cmocka_unit_test_setup_teardown(r18_what_is_booked_has_a_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(zero_is_half_for_others_and_no_limit_for_this_machine,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(records_of_those_who_left_are_forgotten, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
