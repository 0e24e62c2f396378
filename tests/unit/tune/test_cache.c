/* SPDX-License-Identifier: Apache-2.0 */
/* The timing cache's file: round trip, merging, damage, other devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/tune/internal.h"
#include "tests/test.h"
#include "tests/unit/tune/net.h"

static struct device *device;
static char folder[] = "/tmp/inferd-test-cache-XXXXXX", path[64];
static unsigned warnings;

static void count_warnings(void *user, enum log_level level, const char *line)
{
    (void)user;
    (void)line;
    warnings += level == LOG_WARNING;
}

static const struct log_sink sink = {.level = LOG_WARNING, .write = count_warnings, .user = NULL};

static int set_up(void **state)
{
    (void)state;
    device = net_device();
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/times", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    engine_device_close(device);
    return rmdir(folder);
}

static struct tune_cache *load(void)
{
    struct tune_cache *cache;
    assert_int_equal(tune_cache_load(path, device, &sink, &cache, NULL), STATUS_OK);
    return cache;
}

static uint64_t get(const struct tune_cache *cache, uint64_t key)
{
    uint64_t ns = 0;
    return tune_cache_get(cache, &(struct tune_key){key, ~key}, &ns) ? ns : 0;
}

static void put(struct tune_cache *cache, uint64_t key, uint64_t ns)
{
    assert_true(tune_cache_put(cache, &(struct tune_key){key, ~key}, ns));
}

static size_t slurp(unsigned char *to, size_t room)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(to, 1, room, f);
    fclose(f);
    return n;
}

static void spill(const unsigned char *from, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(from, 1, n, f), n);
    fclose(f);
}

static void save(struct tune_cache *cache)
{
    struct error err;
    if (tune_cache_save(cache, path, &err))
        fail_msg("%s", err.text);
}

static void what_was_saved_comes_back(void **state)
{
    (void)state;
    warnings = 0;
    struct tune_cache *cache = load(); /* no file: the cache is empty, without a warning */
    assert_int_equal(warnings, 0);
    assert_int_equal(get(cache, 1), 0);
    save(cache);
    assert_int_not_equal(access(path, F_OK), 0); /* an empty cache writes no file */
    for (uint64_t k = 1; k <= 100; k++)
        put(cache, k, 1000 + k);
    save(cache);
    tune_cache_free(cache);
    cache = load();
    for (uint64_t k = 1; k <= 100; k++)
        assert_int_equal(get(cache, k), 1000 + k);
    assert_int_equal(get(cache, 101), 0);
    tune_cache_free(cache);
    assert_int_equal(unlink(path), 0);
}

static void code_comes_back(void **state)
{
    (void)state;
    static unsigned char first[4096], second[4096];
    struct tune_cache *cache = load();
    const struct tune_key a = {5, 6}, b = {6, 5}, c = {1, 1};
    const void *code;
    uint64_t size;
    put(cache, 1, 11);
    assert_true(tune_cache_put_code(cache, &a, "some code", 10));
    assert_true(tune_cache_put_code(cache, &b, "", 0));
    assert_true(tune_cache_put_code(cache, &a, "other code", 11)); /* replaces the code before */
    save(cache);
    tune_cache_free(cache);
    size_t n = slurp(first, sizeof(first));
    cache = load();
    assert_true(tune_cache_get_code(cache, &a, &code, &size));
    assert_int_equal(size, 11);
    assert_string_equal(code, "other code");
    assert_true(tune_cache_get_code(cache, &b, &code, &size));
    assert_int_equal(size, 0);
    assert_false(tune_cache_get_code(cache, &c, &code, &size));
    assert_int_equal(get(cache, 1), 11);
    put(cache, 1, 11);
    save(cache); /* merges the file with times that came from it */
    assert_int_equal(slurp(second, sizeof(second)), n);
    assert_memory_equal(first, second, n);
    tune_cache_free(cache);
    assert_int_equal(unlink(path), 0);
}

/* The order in which times came does not show in the file. */
static void same_times_same_bytes(void **state)
{
    (void)state;
    static unsigned char a[4096], b[4096];
    struct tune_cache *cache = load();
    for (uint64_t k = 1; k <= 20; k++)
        put(cache, k, k);
    save(cache);
    size_t n = slurp(a, sizeof(a));
    tune_cache_free(cache);
    assert_int_equal(unlink(path), 0);
    cache = load();
    for (uint64_t k = 20; k >= 1; k--)
        put(cache, k, k);
    save(cache);
    assert_int_equal(slurp(b, sizeof(b)), n);
    assert_memory_equal(a, b, n);
    tune_cache_free(cache);
    assert_int_equal(unlink(path), 0);
}

/* Two processes began with the same file: nothing that either of them found is lost. */
static void savers_do_not_lose_each_others_times(void **state)
{
    (void)state;
    struct tune_cache *one = load(), *two = load();
    put(one, 1, 11);
    put(one, 3, 13);
    put(two, 2, 22);
    put(two, 3, 23);
    save(one);
    save(two);
    tune_cache_free(one);
    tune_cache_free(two);
    one = load();
    assert_int_equal(get(one, 1), 11);
    assert_int_equal(get(one, 2), 22);
    assert_int_equal(get(one, 3), 23);
    tune_cache_free(one);
    assert_int_equal(unlink(path), 0);
}

static void r34_every_damage_is_ignored_with_a_warning(void **state)
{
    (void)state;
    static unsigned char good[4096], bad[4096];
    struct tune_cache *cache = load();
    for (uint64_t k = 1; k <= 5; k++)
        put(cache, k, k);
    assert_true(tune_cache_put_code(cache, &(struct tune_key){7, 7}, "compiled", 9));
    save(cache);
    tune_cache_free(cache);
    size_t n = slurp(good, sizeof(good));
    assert_int_equal(n, 24 + 5 * 24 + (24 + 16) + 16);
    for (size_t cut = 0; cut < n; cut++) {
        warnings = 0;
        spill(good, cut);
        cache = load();
        assert_int_equal(warnings, 1);
        assert_int_equal(get(cache, 1), 0);
        tune_cache_free(cache);
    }
    for (size_t bit = 0; bit < 8 * n; bit++) {
        warnings = 0;
        memcpy(bad, good, n);
        bad[bit / 8] ^= (unsigned char)(1U << bit % 8);
        spill(bad, n);
        cache = load();
        assert_int_equal(warnings, 1);
        assert_int_equal(get(cache, 1), 0);
        tune_cache_free(cache);
    }
    /* The next save replaces the file. */
    cache = load();
    put(cache, 9, 9);
    save(cache);
    tune_cache_free(cache);
    cache = load();
    assert_int_equal(get(cache, 9), 9);
    tune_cache_free(cache);
    assert_int_equal(unlink(path), 0);
}

static void another_devices_times_are_not_used_but_kept(void **state)
{
    (void)state;
    struct device_options options = {.threads = 1};
    struct device *other;
    struct tune_cache *cache = load(), *theirs;
    put(cache, 1, 11);
    save(cache);
    tune_cache_free(cache);
    assert_int_equal(engine_device_open("cpu", &options, &other, NULL), STATUS_OK);
    assert_int_equal(tune_cache_load(path, other, &sink, &theirs, NULL), STATUS_OK);
    assert_int_equal(get(theirs, 1), 0);
    put(theirs, 1, 99);
    save(theirs);
    tune_cache_free(theirs);
    engine_device_close(other);
    cache = load();
    assert_int_equal(get(cache, 1), 11);
    tune_cache_free(cache);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_saved_comes_back),
        cmocka_unit_test(code_comes_back),
        cmocka_unit_test(same_times_same_bytes),
        cmocka_unit_test(savers_do_not_lose_each_others_times),
        cmocka_unit_test(r34_every_damage_is_ignored_with_a_warning),
        cmocka_unit_test(another_devices_times_are_not_used_but_kept),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
