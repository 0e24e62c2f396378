/* SPDX-License-Identifier: Apache-2.0 */
/* A loop looks for more of a large message before it sleeps, but only where more comes soon: over
 * the toy engine, in virtual time, on the test's own thread. */
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

enum { MESSAGE = 1 << 20, PIECE = 2 * LOOP_POUR, TURNS = 8 };

static struct shared shared;
static struct config *config;
static struct loop *loop;
static int peer;

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

static void piece_send(size_t size)
{
    static uint8_t bytes[PIECE];
    assert_int_equal(send(peer, bytes, size, MSG_NOSIGNAL), size);
    turns(TURNS);
}

static int setup(void **state)
{
    (void)state;
    int ends[2];
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
        dispatch_new(&dispatch, &shared.dispatch, &err) ||
        loop_new(&shared, 0, table, &loop, &err) || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return -1;
    table_unref(table);
    shared.loops[0] = loop;
    shared.n_loops = 1;
    atomic_store(&shared.connections, 1);
    atomic_store(&loop->load, 1);
    const struct arrival arrival = {.fd = ends[1], .protocol = &session_framed};
    peer = ends[0];
    loop_adopt(loop, &arrival);
    turns(TURNS);
    uint8_t head[FRAME_HEAD_BYTES];
    frame_head_write(head, MESSAGE);
    return fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0 ||
           send(peer, head, sizeof(head), 0) != sizeof(head);
}

static int teardown(void **state)
{
    (void)state;
    close(peer);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_loop_looks_for_more_where_more_comes_soon, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(it_sleeps_between_pieces_that_come_slowly, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
