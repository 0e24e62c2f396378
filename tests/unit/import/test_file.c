/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/import/file.h"
#include "tests/test.h"

/* A folder of its own: model/ with what belongs to it, and secret beside it. */
struct place {
    char root[64], model[96], path[160];
    int folder;
};

static const char *in(struct place *p, const char *name)
{
    snprintf(p->path, sizeof(p->path), "%s/%s", p->root, name);
    return p->path;
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    char outside[96];
    assert_non_null(p);
    strcpy(p->root, "/tmp/inferd_test_XXXXXX");
    assert_non_null(mkdtemp(p->root));
    snprintf(p->model, sizeof(p->model), "%s/model", p->root);
    assert_int_equal(mkdir(p->model, 0700), 0);
    assert_int_equal(mkdir(in(p, "model/data"), 0700), 0);
    write_file(in(p, "secret"), "secret");
    write_file(in(p, "model/w.bin"), "weights");
    write_file(in(p, "model/empty"), "");
    write_file(in(p, "model/.w"), "hidden");
    write_file(in(p, "model/..w"), "twice");
    write_file(in(p, "model/data/w.bin"), "more");
    assert_int_equal(symlink("../secret", in(p, "model/link")), 0);
    assert_int_equal(symlink("w.bin", in(p, "model/inner_link")), 0);
    assert_int_equal(symlink("..", in(p, "model/up")), 0);
    snprintf(outside, sizeof(outside), "%s/secret", p->root);
    assert_int_equal(link(outside, in(p, "model/hard")), 0);
    assert_int_equal(mkfifo(in(p, "model/fifo"), 0600), 0);
    p->folder = open(p->model, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(p->folder >= 0);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    static const char *const made[] = {
        "model/.w",         "model/..w",  "model/hard",  "model/fifo",       "model/up",
        "model/inner_link", "model/link", "model/empty", "model/data/w.bin", "model/data",
        "model/w.bin",      "model",      "secret"};
    struct place *p = *state;
    close(p->folder);
    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++)
        assert_int_equal(remove(in(p, made[i])), 0);
    assert_int_equal(rmdir(p->root), 0);
    free(p);
    return 0;
}

static void assert_holds(struct place *p, const char *location, const char *text)
{
    struct file_map map;
    struct error err;
    if (file_map_open_beside(p->folder, location, &map, &err))
        fail_msg("%s: %s", location, err.text);
    assert_int_equal(map.size, strlen(text));
    assert_memory_equal(map.data, text, map.size);
    file_unmap(&map);
}

static void assert_refused(struct place *p, const char *location)
{
    struct file_map map = {.size = 7};
    struct error err = {.status = STATUS_OK};
    enum status status = file_map_open_beside(p->folder, location, &map, &err);
    if (!status)
        fail_msg("'%s' was opened", location);
    assert_int_equal(map.size, 7);
    assert_true(err.text[0]);
}

static void files_beside_the_model_are_mapped(void **state)
{
    assert_holds(*state, "w.bin", "weights");
    assert_holds(*state, "data/w.bin", "more");
    assert_holds(*state, "./w.bin", "weights");
    assert_holds(*state, "./data/w.bin", "more");
    assert_holds(*state, "empty", "");
    assert_holds(*state, ".w", "hidden"); /* these are names like any other */
    assert_holds(*state, "..w", "twice");
}

static void r13_paths_stay_below_the_model(void **state)
{
    struct place *p = *state;
    char absolute[128];
    snprintf(absolute, sizeof(absolute), "%s/w.bin", p->model);
    assert_refused(p, absolute);
    assert_refused(p, "../secret");
    assert_refused(p, "data/../../secret");
    assert_refused(p, "data/..");
    assert_refused(p, "..");
    assert_refused(p, ".");
    assert_refused(p, "");
    assert_refused(p, "/");
    assert_refused(p, "data//w.bin");
    assert_refused(p, "./");
    assert_refused(p, "./.");
    assert_refused(p, "././w.bin");
    assert_refused(p, ".//w.bin");
    assert_refused(p, "./../secret");
    assert_refused(p, "data/./w.bin");
    assert_refused(p, "no_such_file");
    char large[2048];
    memset(large, 'a', sizeof(large) - 1);
    large[sizeof(large) - 1] = 0;
    assert_refused(p, large);
}

static void r13_links_are_refused(void **state)
{
    assert_refused(*state, "link");
    assert_refused(*state, "inner_link");
    assert_refused(*state, "up/secret");
    assert_refused(*state, "hard");
}

static void r13_only_regular_files(void **state)
{
    assert_refused(*state, "data");
    assert_refused(*state, "fifo");
    assert_refused(*state, "w.bin/x");
}

static void r15_an_address_is_a_name_like_any_other(void **state)
{
    assert_refused(*state, "http://127.0.0.1/w.bin");
    assert_refused(*state, "file:///etc/passwd");
}

static void a_model_file_is_mapped_with_its_folder(void **state)
{
    struct place *p = *state;
    struct file_map map, beside;
    struct error err;
    int folder = -1;
    assert_int_equal(file_map_open(in(p, "model/w.bin"), 100, &map, &folder, &err), STATUS_OK);
    assert_int_equal(map.size, 7);
    assert_int_equal(file_map_open_beside(folder, "data/w.bin", &beside, &err), STATUS_OK);
    file_unmap(&map);
    file_unmap(&beside);
    close(folder);
    assert_int_equal(file_map_open(in(p, "model/w.bin"), 6, &map, NULL, &err), STATUS_OUT_OF_RANGE);
    assert_int_equal(file_map_open(in(p, "model/empty"), 100, &map, NULL, &err),
                     STATUS_INVALID_ARGUMENT);
    assert_int_equal(file_map_open(in(p, "model/fifo"), 100, &map, NULL, &err),
                     STATUS_INVALID_ARGUMENT);
    assert_int_equal(file_map_open(in(p, "nothing"), 100, &map, NULL, &err), STATUS_NOT_FOUND);
}

/* A name without a folder is one in the working directory. */
static void r13_a_plain_name_is_in_the_working_directory(void **state)
{
    struct place *p = *state;
    struct file_map map, beside;
    struct error err;
    int folder = -1, back = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(back >= 0);
    assert_int_equal(fchdir(p->folder), 0);
    enum status status = file_map_open("w.bin", 100, &map, &folder, &err);
    assert_int_equal(fchdir(back), 0);
    close(back);
    if (status)
        fail_msg("%s", err.text);
    assert_int_equal(map.size, 7);
    assert_int_equal(file_map_open_beside(folder, "data/w.bin", &beside, &err), STATUS_OK);
    assert_int_equal(beside.size, 4);
    file_unmap(&map);
    file_unmap(&beside);
    close(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_beside_the_model_are_mapped, setup, teardown),
        cmocka_unit_test_setup_teardown(r13_paths_stay_below_the_model, setup, teardown),
        cmocka_unit_test_setup_teardown(r13_links_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(r13_only_regular_files, setup, teardown),
        cmocka_unit_test_setup_teardown(r15_an_address_is_a_name_like_any_other, setup, teardown),
        cmocka_unit_test_setup_teardown(a_model_file_is_mapped_with_its_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(r13_a_plain_name_is_in_the_working_directory, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
