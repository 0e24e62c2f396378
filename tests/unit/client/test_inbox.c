/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "client/inbox.h"
#include "proto/frame.h"
#include "tests/test.h"

enum { STREAM = 3 * 1024 * 1024 };

/* Puts bytes in as a socket would: at most `most` at a time, and no more than fit. */
static size_t feed(struct inbox *in, const uint8_t *bytes, size_t size, size_t most)
{
    void *at;
    size_t room;
    assert_int_equal(inbox_room(in, &at, &room, NULL), STATUS_OK);
    assert_true(room > 0);
    size_t n = size < room ? size : room;
    n = n < most ? n : most;
    memcpy(at, bytes, n);
    inbox_filled(in, n);
    return n;
}

static void frames_come_out_as_they_went_in(void **state)
{
    (void)state;
    uint8_t *stream = malloc(STREAM);
    assert_non_null(stream);
    static const size_t chunks[] = {1, 3, 1000, 70000, STREAM};
    srand(5);
    for (size_t c = 0; c < sizeof(chunks) / sizeof(chunks[0]); c++) {
        struct inbox in;
        size_t used = 0, fed = 0, out = 0, limit = chunks[c] == 1 ? 40000 : STREAM;
        while (used < limit - 4) { /* frames of all sizes, the last up to the end */
            size_t size = (size_t)rand() % (rand() % 4 ? 100 : 300000);
            size = used + 4 + size > limit ? limit - used - 4 : size;
            frame_head_write(stream + used, (uint32_t)size);
            memset(stream + used + 4, (int)size, size);
            used += 4 + size;
        }
        inbox_init(&in, STREAM);
        while (out < used) {
            const void *message;
            size_t size;
            assert_int_equal(inbox_next(&in, &message, &size, NULL), STATUS_OK);
            if (!message) {
                assert_true(fed < used);
                fed += feed(&in, stream + fed, used - fed, chunks[c]);
                continue;
            }
            assert_int_equal(size, frame_head_read(stream + out));
            assert_memory_equal(message, stream + out + 4, size);
            out += 4 + size;
        }
        inbox_deinit(&in);
    }
    free(stream);
}

static void r1_memory_grows_with_bytes_not_with_what_is_announced(void **state)
{
    (void)state;
    struct inbox in;
    uint8_t head[4], byte = 0;
    const void *message;
    size_t size;
    inbox_init(&in, 1 << 30);
    frame_head_write(head, 1 << 29);
    feed(&in, head, 4, 4);
    for (int i = 0; i < 100000; i++) {
        feed(&in, &byte, 1, 1);
        assert_int_equal(inbox_next(&in, &message, &size, NULL), STATUS_OK);
        assert_null(message);
    }
    assert_true(in.cap <= 4 * 100004);
    inbox_deinit(&in);
}

static void a_frame_beyond_the_limit_is_refused(void **state)
{
    (void)state;
    struct inbox in;
    uint8_t bytes[14] = {0};
    const void *message = bytes;
    size_t size;
    struct error err;
    inbox_init(&in, 10);
    frame_head_write(bytes, 10);
    for (size_t fed = 0; fed < sizeof(bytes);)
        fed += feed(&in, bytes + fed, sizeof(bytes) - fed, 5);
    assert_int_equal(inbox_next(&in, &message, &size, &err), STATUS_OK);
    assert_non_null(message);
    assert_int_equal(size, 10);
    frame_head_write(bytes, 11);
    feed(&in, bytes, 4, 4);
    assert_int_equal(inbox_next(&in, &message, &size, &err), STATUS_OUT_OF_RANGE);
    assert_non_null(strstr(err.text, "11 bytes; at most 10"));
    assert_null(message);
    inbox_deinit(&in);
}

static void an_http_server_is_named(void **state)
{
    (void)state;
    struct inbox in;
    uint8_t bytes[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    const void *message;
    size_t size;
    struct error err;
    inbox_init(&in, 1 << 20);
    feed(&in, bytes, sizeof(bytes) - 1, sizeof(bytes) - 1);
    assert_int_equal(inbox_next(&in, &message, &size, &err), STATUS_OUT_OF_RANGE);
    assert_non_null(strstr(err.text, "speaks HTTP"));
    inbox_deinit(&in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_come_out_as_they_went_in),
        cmocka_unit_test(r1_memory_grows_with_bytes_not_with_what_is_announced),
        cmocka_unit_test(a_frame_beyond_the_limit_is_refused),
        cmocka_unit_test(an_http_server_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
