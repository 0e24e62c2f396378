/* SPDX-License-Identifier: Apache-2.0 */
/* A loop looks for more of a large message before it sleeps, but only where more comes soon; where
 * several messages come it waits for much of one: over the toy engine, in virtual time, on the
 * test's own thread. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/identity.h"
#include "daemon/loop.h"
#include "proto/frame.h"
#include "tests/test.h"
#include "tests/unit/daemon/toy_engine.h"
#include "tests/unit/daemon/virtual_clock.h"

enum { MESSAGE = 1 << 20, PIECE = 2 * LOOP_POUR, TURNS = 8, PEERS = 2 };

static struct shared shared;
static struct config *config;
static struct loop *loop;
static int peers[PEERS];

static void deliver(void *user UNUSED, uint32_t to UNUSED, struct inflight *first UNUSED,
                    struct inflight *last UNUSED)
{
}

static void on_lost(void *user UNUSED, const struct error *err UNUSED)
{
}

static void on_retire(void *user UNUSED, struct model *model UNUSED)
{
}

static void turns(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        uv_run(&loop->uv, UV_RUN_NOWAIT);
}

/* Whether the loop would look again at once, instead of sleeping. */
static bool looks(void)
{
    return uv_is_active((const uv_handle_t *)&loop->again);
}

static void piece_send_of(int k, size_t size)
{
    static uint8_t bytes[PIECE];
    assert_int_equal(send(peers[k], bytes, size, MSG_NOSIGNAL), size);
    turns(TURNS);
}

static void piece_send(size_t size)
{
    piece_send_of(0, size);
}

/* How many bytes the kernel wakes the loop for. */
static size_t mark_of(int k)
{
    int mark = 0;
    socklen_t size = sizeof(mark);
    assert_int_equal(
        getsockopt(loop->slots[k].connection->fd, SOL_SOCKET, SO_RCVLOWAT, &mark, &size), 0);
    return (size_t)mark;
}

/* Opens a connection whose peer has announced a message. */
static int peer_open(void)
{
    int ends[2];
    uint8_t head[FRAME_HEAD_BYTES];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return -1;
    const struct arrival arrival = {.fd = ends[1], .protocol = &session_framed};
    loop_adopt(loop, &arrival);
    turns(TURNS);
    frame_head_write(head, MESSAGE);
    if (fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0 ||
        send(ends[0], head, sizeof(head), 0) != sizeof(head))
        return -1;
    return ends[0];
}

static int setup(void **state)
{
    (void)state;
    struct error err;
    const struct dispatch_config dispatch = {.device = toy_device(),
                                             .workers = 1,
                                             .counters = &shared.counters,
                                             .deliver = deliver,
                                             .spent = deliver,
                                             .lost = on_lost,
                                             .retire = on_retire};
    virtual_clock_start(NS_PER_S);
    toy_reset();
    memset(&shared, 0, sizeof(shared));
    config = config_new();
    shared.device = toy_device();
    atomic_store(&shared.budget.limit, 1 << 24);
    struct table *table = table_new(config, 1);
    if (!table || identities_new(config, NULL, &table->identities, &err) ||
        dispatch_new(&dispatch, &shared.dispatch, &err) || loop_new(&shared, 0, table, &loop, &err))
        return -1;
    table_unref(table);
    shared.loops[0] = loop;
    shared.n_loops = 1;
    atomic_store(&shared.connections, PEERS);
    atomic_store(&loop->load, PEERS);
    for (int k = 0; k < PEERS; k++)
        if ((peers[k] = peer_open()) < 0)
            return -1;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int k = 0; k < PEERS; k++)
        close(peers[k]);
    loop_order(loop, LOOP_STOP);
    turns(TURNS);
    loop_free(loop);
    dispatch_free(shared.dispatch);
    config_free(config);
    return budget_used(&shared.budget) || atomic_load(&shared.connections);
}

static void the_loop_looks_for_more_where_more_comes_soon(void **state)
{
    (void)state;
    piece_send(PIECE);
    assert_false(looks()); /* the first piece may be all there is */
    virtual_clock_advance(LOOP_POUR_NS / 2);
    piece_send(PIECE);
    assert_true(looks());
    virtual_clock_advance(LOOP_LOOK_NS / 2);
    turns(1);
    assert_true(looks());
    piece_send(PIECE); /* and looks for so long again */
    virtual_clock_advance(LOOP_LOOK_NS / 2 + 1);
    turns(1);
    assert_true(looks());
    virtual_clock_advance(LOOP_LOOK_NS);
    turns(1);
    assert_false(looks());
}

static void it_sleeps_between_pieces_that_come_slowly(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        virtual_clock_advance(LOOP_POUR_NS + 1);
        piece_send(PIECE);
        assert_false(looks());
    }
    for (int i = 0; i < 4; i++) { /* and where little comes */
        virtual_clock_advance(1000);
        piece_send(LOOP_POUR / 16);
        assert_false(looks());
    }
}

/* Both pour, so that the second piece finds that there is another. */
static void pour_both(void)
{
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < PEERS; k++) {
            virtual_clock_advance(LOOP_POUR_NS / 2);
            piece_send_of(k, PIECE);
        }
}

static void where_several_pour_much_wakes_the_loop(void **state)
{
    (void)state;
    assert_int_equal(mark_of(0), 1);
    pour_both();
    for (int k = 0; k < PEERS; k++)
        assert_in_range(mark_of(k), PIECE, LOOP_MARK);
    virtual_clock_advance(LOOP_LOOK_NS);
    turns(1);
    assert_false(looks());
    size_t left = MESSAGE - 2 * PIECE;
    for (; left > PIECE / 2; left -= PIECE / 2) {
        virtual_clock_advance(LOOP_POUR_NS / 2);
        piece_send_of(1, PIECE / 2);
        piece_send_of(0, PIECE / 2);
        assert_in_range(mark_of(0), 1, left - PIECE / 2); /* never more than is to come */
    }
    piece_send_of(0, left);
    assert_int_equal(mark_of(0), 1);
}

static void what_a_peer_holds_back_is_waited_for_a_moment(void **state)
{
    (void)state;
    pour_both();
    assert_true(mark_of(0) > 1);
    for (int i = 0; i < 3; i++) {
        virtual_clock_advance(2 * LOOP_MOMENT_MS * NS_PER_MS);
        turns(2);
    }
    for (int k = 0; k < PEERS; k++)
        assert_int_equal(mark_of(k), 1);
    piece_send_of(0, PIECE); /* alone, a peer is not made to wait */
    assert_int_equal(mark_of(0), 1);
}

static void a_connection_may_go_while_it_is_marked(void **state)
{
    (void)state;
    pour_both();
    assert_true(mark_of(0) > 1 && mark_of(1) > 1);
    close(peers[0]);
    turns(TURNS);
    peers[0] = -1;
    virtual_clock_advance(4 * LOOP_MOMENT_MS * NS_PER_MS);
    turns(TURNS);
    assert_null(loop->slots[0].connection);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_loop_looks_for_more_where_more_comes_soon, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(it_sleeps_between_pieces_that_come_slowly, setup, teardown),
        cmocka_unit_test_setup_teardown(where_several_pour_much_wakes_the_loop, setup, teardown),
        cmocka_unit_test_setup_teardown(what_a_peer_holds_back_is_waited_for_a_moment, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_connection_may_go_while_it_is_marked, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
