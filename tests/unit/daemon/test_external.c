/* SPDX-License-Identifier: Apache-2.0 */
/* Which files a model names, and that each change of these files is noticed. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "daemon/external.h"
#include "tests/test.h"

#define KEY "\x0a\x08location"

static int folder = -1;
static char folder_path[] = "/tmp/inferd-external-XXXXXX";

static int setup(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder_path));
    folder = open(folder_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return folder >= 0 && mkdirat(folder, "sub", 0700) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char command[64];
    close(folder);
    snprintf(command, sizeof(command), "rm -rf %s", folder_path);
    return system(command);
}

static void put(const char *name, const char *text)
{
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static struct external *find(const char *model, size_t size)
{
    struct external *x = NULL;
    /* exactly as large as the text, so that AddressSanitizer sees a look beyond */
    char *copy = malloc(size + 1);
    assert_non_null(copy);
    copy = realloc(copy, size ? size : 1);
    memcpy(copy, model, size);
    assert_int_equal(external_find(copy, size, &x, NULL), STATUS_OK);
    free(copy);
    return x;
}

static void state_of(const struct external *x, uint8_t out[DIGEST_BYTES])
{
    assert_int_equal(external_state(x, folder, out, NULL), STATUS_OK);
}

/* Whether the state changes when the file `name` gets `text`. */
static bool notices(const struct external *x, const char *name, const char *text)
{
    uint8_t before[DIGEST_BYTES], after[DIGEST_BYTES];
    state_of(x, before);
    usleep(10000); /* the clock of file times is coarse */
    put(name, text);
    state_of(x, after);
    return memcmp(before, after, sizeof(before)) != 0;
}

static void models_without_external_data(void **state)
{
    (void)state;
    static const char *const models[] = {"", "location", "\x0a\x08locatio", "xx\x0a\x09location"};
    for (size_t i = 0; i < ARRAY_LEN(models); i++)
        assert_null(find(models[i], strlen(models[i])));
}

static void named_files_count_and_no_others(void **state)
{
    (void)state;
    static const char model[] = "ab" KEY "\x12\x01"
                                "a" KEY "\x12\x05sub/b" KEY "\x12\x01"
                                "a";
    struct external *x = find(model, sizeof(model) - 1);
    assert_non_null(x);
    assert_true(notices(x, "a", "one")); /* the file comes into being */
    assert_true(notices(x, "a", "two")); /* the same size */
    assert_true(notices(x, "sub/b", "one"));
    assert_false(notices(x, "c", "one"));
    assert_false(notices(x, "b", "one"));
    external_free(x);
}

static void times_that_are_set_back_do_not_hide_a_change(void **state)
{
    (void)state;
    static const char model[] = KEY "\x12\x01"
                                    "t";
    const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    uint8_t before[DIGEST_BYTES], after[DIGEST_BYTES];
    struct external *x = find(model, sizeof(model) - 1);
    put("t", "one");
    assert_int_equal(utimensat(folder, "t", times, 0), 0);
    state_of(x, before);
    usleep(10000);
    put("t", "two");
    assert_int_equal(utimensat(folder, "t", times, 0), 0);
    state_of(x, after);
    assert_memory_not_equal(before, after, sizeof(before));
    external_free(x);
}

static void names_out_of_the_folder_are_not_looked_at(void **state)
{
    (void)state;
    static const char model[] = KEY "\x12\x0b/etc/passwd" KEY "\x12\x04../x";
    struct external *x = find(model, sizeof(model) - 1);
    uint8_t digest[DIGEST_BYTES];
    assert_non_null(x);
    state_of(x, digest);
    external_free(x);
}

/* Then every file in the folder counts. */
static void keys_with_something_else_behind_them(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
    } models[] = {
        {KEY, sizeof(KEY) - 1},
        {KEY "\x12", sizeof(KEY)},
        {KEY "\x12\x05"
             "abcd",
         sizeof(KEY) + 5},
        {KEY "\x12\x00", sizeof(KEY) + 1},
        {KEY "\x12\x02"
             "a\0",
         sizeof(KEY) + 3},
        {KEY "\x12\xff\xff\x01", sizeof(KEY) + 3},
        {KEY "\x12\xff\x7f"
             "abc",
         sizeof(KEY) + 5},
        {KEY "\x1a\x01"
             "a",
         sizeof(KEY) + 2},
    };
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        struct external *x = find(models[i].bytes, models[i].size);
        assert_non_null(x);
        assert_true(notices(x, "any", i % 2 ? "odd" : "even"));
        external_free(x);
    }
}

static void long_paths_and_many_of_them(void **state)
{
    (void)state;
    enum { LONG = 200, MANY = 300 };
    char model[sizeof(KEY) + 3 + LONG];
    memcpy(model, KEY "\x12\xc8\x01", sizeof(KEY) + 2);
    memset(model + sizeof(KEY) + 2, 'n', LONG);
    struct external *x = find(model, sizeof(KEY) + 2 + LONG);
    char name[LONG + 1] = {0};
    memset(name, 'n', LONG);
    assert_true(notices(x, name, "one"));
    assert_false(notices(x, "other", "one"));
    external_free(x);

    char many[MANY * (sizeof(KEY) + 5)];
    size_t used = 0;
    for (unsigned i = 0; i < MANY; i++) {
        memcpy(many + used, KEY "\x12\x03", sizeof(KEY) + 1);
        used += sizeof(KEY) + 1;
        used += (size_t)snprintf(many + used, sizeof(many) - used, "%03u", i % 7);
    }
    x = find(many, used);
    assert_true(notices(x, "006", "one"));
    assert_false(notices(x, "007", "one"));
    external_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_without_external_data),
        cmocka_unit_test(named_files_count_and_no_others),
        cmocka_unit_test(times_that_are_set_back_do_not_hide_a_change),
        cmocka_unit_test(names_out_of_the_folder_are_not_looked_at),
        cmocka_unit_test(keys_with_something_else_behind_them),
        cmocka_unit_test(long_paths_and_many_of_them),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
