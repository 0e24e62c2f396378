/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/brought.h"
#include "tests/test.h"

static struct request request;
static char base[] = "/tmp/test-brought-XXXXXX";

static void setting(const char *key, const char *text)
{
    request.settings[request.n_settings++] = (struct request_setting){
        .key = message_text_of(key), .kind = REQUEST_SETTING_TEXT, .text = message_text_of(text)};
}

static void begin(void)
{
    request_clear(&request);
    request.kind = REQUEST_MODEL_LOAD;
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(base) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(base); /* nothing is left in it */
}

static void files_are_written_and_removed(void **state)
{
    (void)state;
    struct brought brought;
    struct brought_folder folder = {NULL, -1}, other = {NULL, -1};
    struct error err;
    char text[16] = {0}, stale[80];
    begin();
    setting("config", "{}");
    setting("file:1/model.onnx", "onnx");
    setting("file:1/deep/er", "");
    setting("file:config.pbtxt", "name");
    must(brought_take(&request, &brought, &err), &err);
    assert_int_equal(brought.n, 3);
    void *memory = malloc(brought_size(&brought));
    const struct brought *copy = brought_copy(&brought, memory);
    begin(); /* the copy points to nothing of the request */
    snprintf(stale, sizeof(stale), "%s/inferd-load-stale", base);
    assert_int_equal(mkdir(stale, 0700), 0);
    must(brought_write(copy, base, "m", &folder, &err), &err);
    assert_int_not_equal(access(stale, F_OK), 0);
    int fd = openat(folder.fd, "m/1/model.onnx", O_RDONLY);
    assert_int_equal(read(fd, text, sizeof(text)), 4);
    assert_string_equal(text, "onnx");
    close(fd);
    assert_int_equal(faccessat(folder.fd, "m/1/deep/er", R_OK, 0), 0);
    assert_int_equal(faccessat(folder.fd, "m/config.pbtxt", R_OK, 0), 0);
    /* Another one leaves a folder alone that is in use. */
    must(brought_write(copy, base, "m", &other, &err), &err);
    assert_int_equal(faccessat(folder.fd, "m/1/model.onnx", R_OK, 0), 0);
    brought_folder_cleanup(&other);
    brought_folder_cleanup(&folder);
    brought_folder_cleanup(&folder);
    free(memory);
}

static void what_is_no_file_below_a_model_is_refused(void **state)
{
    (void)state;
    static const char *const keys[] = {"file:",          "file:..",       "file:../x", "file:/x",
                                       "file:1//x",      "file:1/",       "file:1/.x", "file:a b",
                                       "file:1/2/3/4/5", "file:1/../../x"};
    struct brought brought;
    struct error err;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        begin();
        setting(keys[i], "x");
        assert_int_equal(brought_take(&request, &brought, &err), STATUS_INVALID_ARGUMENT);
    }
    begin();
    setting("file:1/x", "x");
    setting("file:1/x", "y");
    assert_int_equal(brought_take(&request, &brought, &err), STATUS_INVALID_ARGUMENT);
    begin();
    setting("file:1/x", "x");
    request.settings[0].kind = REQUEST_SETTING_NUMBER;
    assert_int_equal(brought_take(&request, &brought, &err), STATUS_INVALID_ARGUMENT);
}

static void what_cannot_be_written_leaves_nothing(void **state)
{
    (void)state;
    struct brought brought;
    struct brought_folder folder = {NULL, -1};
    struct error err;
    begin();
    setting("file:1", "a file, and");
    setting("file:1/x", "a folder of that name");
    must(brought_take(&request, &brought, &err), &err);
    assert_int_not_equal(brought_write(&brought, base, "m", &folder, &err), STATUS_OK);
    assert_null(folder.path);
    assert_int_equal(brought_write(&brought, "/nowhere", "m", &folder, &err), STATUS_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_written_and_removed),
        cmocka_unit_test(what_is_no_file_below_a_model_is_refused),
        cmocka_unit_test(what_cannot_be_written_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
