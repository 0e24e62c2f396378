/* SPDX-License-Identifier: Apache-2.0 */
/* Reading in pieces gives all the bytes in order, with their digest. Files that change meanwhile
 * are noticed. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file_read.h"
#include "tests/test.h"

enum { SIZES = 8 };
static const size_t sizes[SIZES] = {0,
                                    1,
                                    4096,
                                    FILE_PIECE - 1,
                                    FILE_PIECE,
                                    FILE_PIECE + 1,
                                    2 * FILE_PIECE + 3,
                                    21 * (size_t)FILE_PIECE + 7};

struct box {
    int fd;
    uint8_t *bytes;
    size_t size;
};

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 2654435761U >> 13);
}

/* A file without a name that holds `size` bytes. */
static struct box box_of(size_t size)
{
    struct box box = {memfd_create("test", MFD_CLOEXEC), malloc(size + 1), size};
    assert_true(box.fd >= 0);
    assert_non_null(box.bytes);
    for (size_t i = 0; i < size; i++)
        box.bytes[i] = byte_at(i);
    assert_int_equal(pwrite(box.fd, box.bytes, size, 0), size);
    return box;
}

static void box_free(struct box *box)
{
    close(box->fd);
    free(box->bytes);
}

struct seen {
    const struct box *box;
    size_t at;
    void (*act)(const struct box *box); /* called once, when the first piece has come */
};

static void piece_see(void *user, const void *data, size_t size)
{
    struct seen *seen = user;
    if (seen->box->bytes && !seen->act)
        assert_memory_equal(data, seen->box->bytes + seen->at, size);
    if (seen->act && seen->at == 0)
        seen->act(seen->box);
    seen->at += size;
}

static void digest_by_hand(const struct box *box, uint8_t out[DIGEST_BYTES])
{
    struct digest *whole = digest_new(), *part = digest_new();
    uint8_t length[8] = {0}, piece[DIGEST_BYTES];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)box->size >> (56 - 8 * i));
    digest_add(whole, "inferd file v1", 14);
    digest_add(whole, length, 8);
    for (size_t at = 0; at < box->size; at += FILE_PIECE) {
        digest_add(part, box->bytes + at, MIN((size_t)FILE_PIECE, box->size - at));
        assert_true(digest_finish(part, piece));
        digest_add(whole, piece, sizeof(piece));
    }
    assert_true(digest_finish(whole, out));
    digest_free(whole);
    digest_free(part);
}

static enum status digest_keep(void *user, const uint8_t digest[DIGEST_BYTES], struct error *err)
{
    (void)err;
    memcpy(user, digest, DIGEST_BYTES);
    return STATUS_OK;
}

static enum status digest_refuse(void *user, const uint8_t digest[DIGEST_BYTES], struct error *err)
{
    assert_memory_equal(user, digest, DIGEST_BYTES);
    return error_set(err, STATUS_FAILED_PRECONDITION, "not this one");
}

static void every_byte_in_order_and_its_digest(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        struct box box = box_of(sizes[i]);
        struct seen seen = {.box = &box};
        uint8_t want[DIGEST_BYTES], loaded[DIGEST_BYTES], alone[DIGEST_BYTES];
        struct file_map map;
        struct error err;
        struct file_guard guard = {.accept = digest_keep, .user = loaded};
        const struct file_read how = {
            .name = "box", .guard = &guard, .piece = piece_see, .user = &seen};
        assert_int_equal(file_load(box.fd, &how, &map, &err), STATUS_OK);
        assert_int_equal(map.size, box.size);
        assert_memory_equal(map.data, box.bytes, box.size);
        assert_int_equal(seen.at, box.size);
        assert_int_equal(file_digest(box.fd, &how, alone, &err), STATUS_OK);
        digest_by_hand(&box, want);
        assert_memory_equal(loaded, want, sizeof(want));
        assert_memory_equal(alone, want, sizeof(want));
        file_unmap(&map);
        guard.accept = digest_refuse;
        seen.at = 0;
        assert_int_equal(file_load(box.fd, &how, &map, &err), STATUS_FAILED_PRECONDITION);
        assert_null(map.data);
        box_free(&box);
    }
}

static void what_was_read_is_nobody_elses(void **state)
{
    (void)state;
    struct box box = box_of(3 * FILE_PIECE);
    struct file_map map;
    struct error err;
    const struct file_read how = {.name = "box"};
    assert_int_equal(file_load(box.fd, &how, &map, &err), STATUS_OK);
    assert_int_equal(pwrite(box.fd, "changed", 7, 0), 7);
    assert_int_equal(ftruncate(box.fd, 1), 0);
    assert_memory_equal(map.data, box.bytes, box.size);
    file_unmap(&map);
    box_free(&box);
}

static void cut(const struct box *box)
{
    assert_int_equal(ftruncate(box->fd, FILE_PIECE / 2), 0);
}

static void grow(const struct box *box)
{
    assert_int_equal(pwrite(box->fd, "more", 4, (off_t)box->size), 4);
}

static void overwrite(const struct box *box)
{
    usleep(20000); /* the clock of file times is coarse: wait for its next tick */
    assert_int_equal(pwrite(box->fd, "other", 5, 5), 5);
}

static void a_change_in_the_middle_is_refused(void **state)
{
    (void)state;
    void (*const acts[])(const struct box *) = {cut, grow, overwrite};
    for (size_t i = 0; i < ARRAY_LEN(acts); i++) {
        struct box box = box_of(16 * FILE_PIECE);
        struct seen seen = {.box = &box, .act = acts[i]};
        struct file_map map = {0};
        struct error err;
        const struct file_read how = {.name = "box", .piece = piece_see, .user = &seen};
        assert_int_equal(file_load(box.fd, &how, &map, &err), STATUS_UNAVAILABLE);
        assert_non_null(strstr(err.text, "box: changed while it was read"));
        assert_null(map.data);
        box_free(&box);
    }
}

static void limits_and_kinds_are_looked_at_first(void **state)
{
    (void)state;
    struct file_map map = {0};
    struct error err;
    uint8_t digest[DIGEST_BYTES];
    struct file_read how = {.name = "box", .limit = 5};
    int sparse = memfd_create("sparse", MFD_CLOEXEC);
    assert_int_equal(ftruncate(sparse, (off_t)400 << 30), 0);
    assert_int_equal(file_load(sparse, &how, &map, &err), STATUS_OUT_OF_RANGE);
    assert_int_equal(file_digest(sparse, &how, digest, &err), STATUS_OUT_OF_RANGE);
    assert_non_null(strstr(err.text, "429496729600 bytes, the limit is 5"));
    assert_int_equal(ftruncate(sparse, 5), 0);
    assert_int_equal(file_digest(sparse, &how, digest, &err), STATUS_OK);
    close(sparse);
    int folder = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(file_load(folder, &how, &map, &err), STATUS_INVALID_ARGUMENT);
    close(folder);
    assert_null(map.data);
}

static void whoever_is_told_to_stop_stops(void **state)
{
    (void)state;
    struct box box = box_of(16 * FILE_PIECE);
    struct file_map map = {0};
    struct error err;
    uint8_t digest[DIGEST_BYTES];
    const _Atomic bool stop = true;
    const struct file_guard guard = {.stop = &stop};
    const struct file_read how = {.name = "box", .guard = &guard};
    assert_int_equal(file_load(box.fd, &how, &map, &err), STATUS_CANCELLED);
    assert_int_equal(file_digest(box.fd, &how, digest, &err), STATUS_CANCELLED);
    assert_null(map.data);
    box_free(&box);
}

/* The word is found at the beginning, across each border of two pieces and at the end. A part of
 * the word is not taken for the word. */
static void a_word_is_found_wherever_it_stands(void **state)
{
    (void)state;
    const char word[] = "location";
    const size_t n = sizeof(word) - 1, size = 3 * FILE_PIECE;
    const size_t places[] = {0,          FILE_PIECE - n,     FILE_PIECE - 1,
                             FILE_PIECE, 2 * FILE_PIECE - 4, size - n};
    for (size_t i = 0; i <= ARRAY_LEN(places); i++) {
        struct box box = box_of(0);
        struct error err;
        uint8_t digest[DIGEST_BYTES];
        bool found = i == ARRAY_LEN(places);
        assert_int_equal(ftruncate(box.fd, (off_t)size), 0);
        if (i < ARRAY_LEN(places))
            assert_int_equal(pwrite(box.fd, word, n, (off_t)places[i]), n);
        else
            assert_int_equal(pwrite(box.fd, word, n - 1, (off_t)(size - n + 1)), n - 1);
        const struct file_read how = {.name = "box", .word = word, .found = &found};
        assert_int_equal(file_digest(box.fd, &how, digest, &err), STATUS_OK);
        assert_int_equal(found, i < ARRAY_LEN(places));
        box_free(&box);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_in_order_and_its_digest),
        cmocka_unit_test(what_was_read_is_nobody_elses),
        cmocka_unit_test(a_change_in_the_middle_is_refused),
        cmocka_unit_test(limits_and_kinds_are_looked_at_first),
        cmocka_unit_test(whoever_is_told_to_stop_stops),
        cmocka_unit_test(a_word_is_found_wherever_it_stands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
