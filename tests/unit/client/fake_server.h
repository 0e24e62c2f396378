/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server for tests of clients: speaks the protocol from threads of its own, one for each
 * connection, and does what the name of the requested model says:
 *
 *   echo      answers with the inputs as outputs; timing 1, 2, 3, 4 us, batch 8
 *   slow      as echo, after 20 ms
 *   drip      as echo, a byte at a time
 *   hold      keeps the request; "release" answers all that are kept, in reverse order, then itself
 *   silent    never answers, unless it is cancelled: then CANCELLED
 *   mute      never answers, cancelled or not
 *   refuse    RESOURCE_EXHAUSTED, retry after 1,234 us
 *   wrong     answers an inference with the body of model_ready
 *   stranger  answers with an id that nobody asked for, then as echo
 *   garbage   a frame that is no message
 *   huge      a frame's head that announces 2 GiB
 *   half      half of an answer, then closes
 *   die       closes the connection
 *   mortal    as slow, twenty times, then closes the connection
 *   farewell  an answer without an id (UNAVAILABLE "going away"), then closes
 *   stall     reads nothing more from this connection
 *   other     NOT_FOUND
 *
 * Questions about the server are answered with fixed bodies (see fake_server.c), but for its
 * status: the n-th time that it is asked, model "echo" has answered n times what it had the first
 * time, and since then more slowly; other models have long names and large numbers.
 */
#ifndef INFERD_TESTS_UNIT_CLIENT_FAKE_SERVER_H
#define INFERD_TESTS_UNIT_CLIENT_FAKE_SERVER_H

#include <stdbool.h>
#include <stdint.h>

struct fake_server;

/* Listens on 127.0.0.1 at a free port, or on a unix socket in a new folder. Aborts the test on
 * failure. */
struct fake_server *fake_server_start(bool unix_socket);
void fake_server_stop(struct fake_server *server);

/* "127.0.0.1:34567" */
const char *fake_server_address(const struct fake_server *server);

/* Requests decoded so far without cancels, and cancels so far. */
uint64_t fake_server_requests(const struct fake_server *server);
uint64_t fake_server_cancels(const struct fake_server *server);

#endif
