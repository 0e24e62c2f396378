/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "daemon/session.h"
#include "proto/frame.h"
#include "tests/test.h"

enum { LIMIT = 1 << 20, MOST = 64 };

/* A host that records all calls. */
struct host {
    struct session_host base;
    struct budget budget;
    struct slabs *slabs;
    struct session *session;
    bool paused;
    uint32_t pause_after; /* number of requests; 0: never */
    uint32_t n, n_malformed, n_frames, n_end, n_left;
    size_t queued; /* bytes that the socket claims to hold */
    uint64_t ids[MOST];
    uint64_t malformed_id;
    enum status malformed_status;
    enum session_end end;
    struct slab *frames[MOST]; /* frames that came with requests */
    struct request scratch;
    uint8_t head[MESSAGE_HEAD_MAX];
    uint8_t written[4096];
    size_t n_written;
};

static struct host host;

static struct host *host_of(struct session_host *base)
{
    return CONTAINER_OF(base, struct host, base);
}

static void on_request(struct session_host *base, const struct request *r, struct slab *frame)
{
    struct host *h = host_of(base);
    h->ids[h->n++] = r->id;
    if (frame)
        h->frames[h->n_frames++] = frame;
    h->paused = h->pause_after && h->n % h->pause_after == 0;
}

static void on_malformed(struct session_host *base, uint64_t id, const struct error *err)
{
    struct host *h = host_of(base);
    h->n_malformed++;
    h->malformed_id = id;
    h->malformed_status = err->status;
}

static bool on_paused(struct session_host *base)
{
    return host_of(base)->paused;
}

static void *on_head(struct session_host *base)
{
    return host_of(base)->head;
}

static void on_write(struct session_host *base, const struct iovec *iov, uint32_t n)
{
    struct host *h = host_of(base);
    for (uint32_t i = 0; i < n; i++) {
        memcpy(h->written + h->n_written, iov[i].iov_base, iov[i].iov_len);
        h->n_written += iov[i].iov_len;
    }
}

static struct slab *on_take(struct session_host *base, size_t size)
{
    return slabs_take(host_of(base)->slabs, size, SLAB_REQUEST);
}

/* Memory that was set aside is given whatever the budget says. */
static struct slab *on_left(struct session_host *base, size_t size)
{
    struct host *h = host_of(base);
    uint64_t limit = atomic_exchange(&h->budget.limit, UINT64_C(1) << 40);
    struct slab *slab = slabs_take(h->slabs, size, SLAB_REQUEST);
    atomic_store(&h->budget.limit, limit);
    h->n_left++;
    return slab;
}

static size_t on_queued(struct session_host *base)
{
    return host_of(base)->queued;
}

static void on_give(struct session_host *base, struct slab *slab)
{
    slabs_give(host_of(base)->slabs, slab);
}

static struct request *on_scratch(struct session_host *base)
{
    return &host_of(base)->scratch;
}

static size_t on_limit(struct session_host *base)
{
    (void)base;
    return LIMIT;
}

static enum status on_introduce(struct session_host *base, const void *message, size_t size,
                                size_t whole, struct error *err)
{
    (void)base;
    (void)message;
    (void)size;
    return error_set(err, STATUS_INVALID_ARGUMENT, "a frame of %zu bytes; the limit is %d", whole,
                     LIMIT);
}

static void on_end(struct session_host *base, enum session_end why)
{
    host_of(base)->n_end++;
    host_of(base)->end = why;
}

static const struct session_host_ops ops = {
    .request = on_request,
    .malformed = on_malformed,
    .paused = on_paused,
    .head = on_head,
    .write = on_write,
    .slab_take = on_take,
    .slab_left = on_left,
    .queued = on_queued,
    .slab_give = on_give,
    .scratch = on_scratch,
    .frame_limit = on_limit,
    .introduce = on_introduce,
    .end = on_end,
};

static void *memory_alloc(void *user, size_t size)
{
    (void)user;
    return aligned_alloc(SLAB_ALIGN, size);
}

static void memory_release(void *user, void *memory, size_t size)
{
    (void)size;
    (void)user;
    free(memory);
}

static int setup(void **state)
{
    (void)state;
    const struct slab_memory memory = {memory_alloc, memory_release, NULL, NULL};
    memset(&host, 0, sizeof(host));
    host.base.ops = &ops;
    atomic_store(&host.budget.limit, UINT64_C(1) << 40);
    host.slabs = slabs_new(&memory, &host.budget, 0);
    host.session = session_framed.create(&host.base);
    return host.slabs && host.session ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    session_framed.destroy(host.session);
    while (host.n_frames)
        slabs_give(host.slabs, host.frames[--host.n_frames]);
    int left = (int)budget_used(&host.budget);
    slabs_free(host.slabs);
    return left;
}

/* Appends a server_live request with that id, filled up to a message of `size` bytes. */
static size_t frame_put(uint8_t *to, uint8_t id, size_t size)
{
    size_t n = FRAME_HEAD_BYTES;
    to[n++] = 1 << 3;
    to[n++] = id;
    to[n++] = 11 << 3 | 2;
    to[n++] = 0;
    if (size > n - FRAME_HEAD_BYTES) {
        size_t rest = size - (n - FRAME_HEAD_BYTES) - 7; /* an unknown field: tag and length */
        to[n++] = 0xa2;
        to[n++] = 0x06;
        for (int i = 0; i < 5; i++)
            to[n++] = (uint8_t)((rest >> 7 * i & 0x7f) | (i < 4 ? 0x80 : 0));
        memset(to + n, 'x', rest);
        n += rest;
    }
    frame_head_write(to, (uint32_t)(n - FRAME_HEAD_BYTES));
    return n;
}

static void feed(const uint8_t *data, size_t size)
{
    session_framed.input(host.session, data, size);
}

static struct session_state now(void)
{
    struct session_state s;
    session_framed.state(host.session, &s);
    return s;
}

static void whole_frames_need_no_memory(void **state)
{
    (void)state;
    uint8_t data[4096];
    size_t n = 0;
    for (uint8_t id = 1; id <= 20; id++)
        n += frame_put(data + n, id, id % 3 ? 4 : 100);
    feed(data, n);
    assert_int_equal(host.n, 20);
    for (uint8_t id = 1; id <= 20; id++)
        assert_int_equal(host.ids[id - 1], id);
    assert_int_equal(budget_used(&host.budget), 0);
    assert_int_equal(now().wait, SESSION_WAIT_NOTHING);
    assert_int_equal(now().message, 20);
}

static void a_frame_may_come_byte_by_byte(void **state)
{
    (void)state;
    uint8_t data[256];
    size_t n = frame_put(data, 9, 200);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(host.n, 0);
        feed(data + i, 1);
        if (i + 1 < n) {
            assert_int_equal(now().wait, i + 1 < 4 ? SESSION_WAIT_HEAD : SESSION_WAIT_BODY);
            assert_int_equal(now().received, i + 1);
        }
    }
    assert_int_equal(host.n, 1);
    assert_int_equal(budget_used(&host.budget), 0);
}

/* Feeds as a connection does: straight into the session's place for input, if it has one. */
static void feed_in_place(const uint8_t *data, size_t size)
{
    while (size) {
        void *to;
        size_t room;
        session_framed.buffer(host.session, &to, &room);
        size_t n = room ? MIN(room, size) : size;
        if (room)
            memcpy(to, data, n);
        session_framed.input(host.session, room ? to : data, n);
        data += n;
        size -= n;
    }
}

static void r1_memory_follows_the_bytes(void **state)
{
    (void)state;
    static uint8_t data[LIMIT + 16];
    size_t n = frame_put(data, 1, LIMIT);
    feed_in_place(data, 4);
    assert_int_equal(budget_used(&host.budget), 0); /* an announced length costs nothing */
    for (size_t at = 4; at < n; at += MIN((size_t)1000, n - at)) {
        feed_in_place(data + at, MIN((size_t)1000, n - at));
        size_t came = MIN(at + 1000, n);
        if (came < n) /* four times the bytes, and the rounding up to the size class */
            assert_true(budget_used(&host.budget) <= 4 * came * 5 / 4 + 6000);
    }
    assert_int_equal(host.n, 1);
    assert_int_equal(host.n_frames, 1); /* the buffer is handed over without a copy */
    assert_memory_equal(host.frames[0]->data, data, n);
}

/* Whatever its length is, half of a message moves at most while it grows. */
static void little_of_a_message_moves(void **state)
{
    (void)state;
    for (size_t need = 70000; need < 4 << 20; need += 9973) {
        size_t have = 16384, size = 0, moved = 0;
        while ((size = session_slab_size(&host.base, have, need)) < need) {
            assert_true(size > have);
            moved += size;
            have = size + 1;
        }
        if (moved > need / 2 + 8192)
            fail_msg("%zu of %zu bytes moved", moved, need);
    }
}

static void r1_what_waits_in_the_socket_has_come(void **state)
{
    (void)state;
    static uint8_t data[LIMIT + 16];
    size_t n = frame_put(data, 1, LIMIT);
    host.queued = n - 100000;
    feed(data, 100000);
    void *to;
    size_t room;
    session_framed.buffer(host.session, &to, &room);
    assert_int_equal(room, n - 100000); /* the rest is read in place, and nothing beyond it */
    memcpy(to, data + 100000, room);
    session_framed.input(host.session, to, room);
    assert_int_equal(host.n, 1);
    assert_memory_equal(host.frames[0]->data, data, n);
}

/* If no more is read than the session wants, nothing is left over, however often the host
 * pauses. */
static void what_is_wanted_leaves_nothing_behind(void **state)
{
    (void)state;
    static uint8_t data[200000];
    size_t n = 0, at = 0;
    for (uint8_t id = 1; id <= 12; id++)
        n += frame_put(data + n, id, id == 7 ? 70000 : 50);
    host.pause_after = 2;
    while (at < n) {
        size_t wanted = MIN(session_framed.wants(host.session), (size_t)30000);
        assert_true(wanted > 0 && wanted <= n - at);
        feed_in_place(data + at, wanted);
        at += wanted;
        if (host.paused) {
            assert_false(session_framed.waiting(host.session));
            host.paused = false;
        }
    }
    assert_int_equal(host.n, 12);
    assert_int_equal(host.n_left, 0);
}

static void other_protocols_are_recognised(void **state)
{
    (void)state;
    static const char *const begins[] = {"GET / HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n",
                                         "\x16\x03\x01\x02 hello"};
    for (size_t i = 0; i < ARRAY_LEN(begins); i++) {
        session_framed.destroy(host.session);
        host.session = session_framed.create(&host.base);
        feed((const uint8_t *)begins[i], strlen(begins[i]));
        assert_int_equal(host.n_end, i + 1);
        assert_int_equal(host.end, SESSION_FOREIGN);
    }
    session_framed.destroy(host.session);
    host.session = session_framed.create(&host.base);
    uint8_t data[64];
    size_t n = frame_put(data, 1, 4); /* after a frame these bytes are no longer taken for HTTP */
    memcpy(data + n, "GET ", 4);
    feed(data, n + 4);
    assert_int_equal(host.end, SESSION_TOO_LARGE);
}

static void a_small_frame_behind_a_large_one(void **state)
{
    (void)state;
    static uint8_t data[300000];
    size_t n = frame_put(data, 1, 100000);
    n += frame_put(data + n, 2, 4);
    n += frame_put(data + n, 3, 150000);
    for (size_t at = 0; at < n; at += 70000)
        feed(data + at, MIN((size_t)70000, n - at));
    assert_int_equal(host.n, 3);
    assert_int_equal(host.ids[2], 3);
}

static void r1_a_length_beyond_the_limit_ends_it(void **state)
{
    (void)state;
    uint8_t data[64];
    size_t n = frame_put(data, 1, 4);
    frame_head_write(data + n, LIMIT + 1);
    feed(data, n + 4);
    assert_int_equal(host.n, 1);
    assert_int_equal(host.n_malformed, 1);
    assert_int_equal(host.n_end, 1);
    assert_int_equal(host.end, SESSION_TOO_LARGE);
    feed(data, n); /* nothing is read from it any more */
    assert_int_equal(host.n, 1);
    assert_int_equal(budget_used(&host.budget), 0);
}

static void r20_what_follows_a_pause_is_kept(void **state)
{
    (void)state;
    static uint8_t data[200000];
    size_t n = 0;
    for (uint8_t id = 1; id <= 12; id++)
        n += frame_put(data + n, id, id == 7 ? 70000 : 50);
    host.pause_after = 3;
    feed(data, n - 20);
    for (uint32_t seen = 3; seen <= 9; seen += 3) {
        assert_int_equal(host.n, seen);
        host.paused = false;
        session_framed.resume(host.session);
    }
    assert_int_equal(host.n, 11);
    feed(data + n - 20, 20);
    assert_int_equal(host.n, 12);
    for (uint8_t id = 1; id <= 12; id++)
        assert_int_equal(host.ids[id - 1], id);
}

static void r18_a_frame_that_finds_no_budget_is_refused_and_skipped(void **state)
{
    (void)state;
    static uint8_t data[300000];
    size_t n = frame_put(data, 1, 200000);
    size_t large = n;
    n += frame_put(data + n, 2, 4);
    atomic_store(&host.budget.limit, 150000);
    for (size_t at = 0; at < n; at += 30000) {
        feed(data + at, MIN((size_t)30000, n - at));
        if (at + 30000 > 70000 && at + 30000 < large)
            assert_int_equal(now().wait, SESSION_WAIT_BODY);
    }
    assert_int_equal(host.n_malformed, 1);
    assert_int_equal(host.malformed_status, STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(host.malformed_id, 1); /* the id stands in the part that had come */
    assert_int_equal(host.n, 1);
    assert_int_equal(host.ids[0], 2);
    assert_int_equal(host.n_end, 0);
    assert_int_equal(budget_used(&host.budget), 0);
}

static void malformed_messages_do_not_end_it(void **state)
{
    (void)state;
    const uint8_t bad[] = {0, 0, 0, 3, 0xff, 0xff, 0xff, 0, 0, 0, 0};
    uint8_t data[64];
    feed(bad, sizeof(bad));
    assert_int_equal(host.n_malformed, 2);
    feed(data, frame_put(data, 5, 4));
    assert_int_equal(host.n, 1);
}

static void a_reply_is_a_frame(void **state)
{
    (void)state;
    static struct response response;
    struct error err;
    response = (struct response){.id = 3, .kind = REQUEST_SERVER_LIVE, .yes = true};
    session_framed.reply(host.session, &response);
    assert_int_equal(frame_head_read(host.written), host.n_written - FRAME_HEAD_BYTES);
    assert_int_equal(response_decode(host.written + FRAME_HEAD_BYTES,
                                     host.n_written - FRAME_HEAD_BYTES, &response, &err),
                     STATUS_OK);
    assert_int_equal(response.id, 3);

    /* A response that cannot be encoded becomes an error with the reason. */
    host.n_written = 0;
    response = (struct response){.id = 4, .kind = REQUEST_INFER, .n_outputs = 65};
    session_framed.reply(host.session, &response);
    assert_int_equal(response_decode(host.written + FRAME_HEAD_BYTES,
                                     host.n_written - FRAME_HEAD_BYTES, &response, &err),
                     STATUS_OK);
    assert_int_equal(response.id, 4);
    assert_int_equal(response.status, STATUS_INTERNAL);
}

static struct session_pace at_ms(uint64_t now_ms)
{
    return (struct session_pace){
        .now_ms = now_ms, .passed_ms = 500, .timeout_ms = 10000, .rate = 100000};
}

static void r21_a_message_has_a_time_that_stands_while_it_cannot_come(void **state)
{
    (void)state;
    struct session_clock clock = {0};
    struct session_pace pace = at_ms(5000);
    assert_int_equal(session_clock_tick(&clock, 10, 1, false, &pace), 0);
    for (uint64_t ms = 5500; ms <= 15000; ms += 500) { /* that some of it comes changes nothing */
        pace = at_ms(ms);
        assert_int_equal(session_clock_tick(&clock, ms / 100, 1, false, &pace), ms - 5000);
        assert_int_equal(session_lateness(&clock, ms / 100, &pace), SESSION_IN_TIME);
    }
    pace = at_ms(15500);
    assert_int_equal(session_clock_tick(&clock, 200, 1, true, &pace), 10000);
    assert_int_equal(session_lateness(&clock, 200, &pace), SESSION_IN_TIME);
    pace = at_ms(15501);
    assert_int_equal(session_lateness(&clock, 200, &pace), SESSION_LATE);
}

static void r21_messages_side_by_side_share_the_rate(void **state)
{
    (void)state;
    struct session_clock one = {0}, many = {0};
    struct session_pace pace = at_ms(1000);
    session_clock_tick(&one, 70000, 1, false, &pace);
    session_clock_tick(&many, 70000, 4, false, &pace);
    pace = at_ms(2999); /* nobody is slow so soon */
    assert_int_equal(session_lateness(&one, 70001, &pace), SESSION_IN_TIME);
    pace = at_ms(5000);
    session_clock_tick(&many, 170001, 1, false, &pace); /* the others are through */
    assert_int_equal(session_lateness(&one, 470000, &pace), SESSION_IN_TIME);
    assert_int_equal(session_lateness(&one, 469999, &pace), SESSION_SLOW);
    assert_int_equal(session_lateness(&many, 170000, &pace), SESSION_IN_TIME);
    assert_int_equal(session_lateness(&many, 169999, &pace), SESSION_SLOW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(whole_frames_need_no_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(a_frame_may_come_byte_by_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(r1_memory_follows_the_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(little_of_a_message_moves, setup, teardown),
        cmocka_unit_test_setup_teardown(r1_what_waits_in_the_socket_has_come, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_wanted_leaves_nothing_behind, setup, teardown),
        cmocka_unit_test_setup_teardown(other_protocols_are_recognised, setup, teardown),
        cmocka_unit_test_setup_teardown(a_small_frame_behind_a_large_one, setup, teardown),
        cmocka_unit_test_setup_teardown(r1_a_length_beyond_the_limit_ends_it, setup, teardown),
        cmocka_unit_test_setup_teardown(r20_what_follows_a_pause_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(r18_a_frame_that_finds_no_budget_is_refused_and_skipped,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(malformed_messages_do_not_end_it, setup, teardown),
        cmocka_unit_test_setup_teardown(a_reply_is_a_frame, setup, teardown),
        cmocka_unit_test(r21_a_message_has_a_time_that_stands_while_it_cannot_come),
        cmocka_unit_test(r21_messages_side_by_side_share_the_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
