/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/test.h"

struct box {
    char dir[64];
    int fd;
};

static int setup(void **state)
{
    struct box *box = calloc(1, sizeof(*box));
    assert_non_null(box);
    strcpy(box->dir, "/tmp/inferd-file-XXXXXX");
    assert_non_null(mkdtemp(box->dir));
    box->fd = open(box->dir, O_RDONLY | O_DIRECTORY);
    assert_true(box->fd >= 0);
    *state = box;
    return 0;
}

static int teardown(void **state)
{
    struct box *box = *state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", box->dir);
    int rc = system(command);
    close(box->fd);
    free(box);
    return rc;
}

static const char *at(const struct box *box, const char *name)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", box->dir, name);
    return path;
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static unsigned entries(const struct box *box)
{
    unsigned n = 0;
    DIR *d = opendir(box->dir);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

static void assert_content(const char *path, const char *want)
{
    struct file_map map;
    struct error err;
    assert_int_equal(file_map_path(path, 0, &map, &err), STATUS_OK);
    assert_int_equal(map.size, strlen(want));
    assert_memory_equal(map.data, want, map.size);
    file_unmap(&map);
}

static void maps_regular_files_only(void **state)
{
    struct box *box = *state;
    struct file_map map = {0};
    struct error err;
    put(at(box, "a"), "hello");
    assert_content(at(box, "a"), "hello");
    put(at(box, "empty"), "");
    assert_content(at(box, "empty"), "");
    assert_int_equal(file_map_path(at(box, "a"), 4, &map, &err), STATUS_OUT_OF_RANGE);
    assert_int_equal(file_map_path(at(box, "none"), 0, &map, &err), STATUS_NOT_FOUND);
    assert_int_equal(file_map_path(box->dir, 0, &map, &err), STATUS_INVALID_ARGUMENT);
    assert_int_equal(mkfifo(at(box, "pipe"), 0600), 0);
    assert_int_equal(file_map_path(at(box, "pipe"), 0, &map, &err), STATUS_INVALID_ARGUMENT);
    assert_int_equal(file_map_path("/dev/zero", 0, &map, &err), STATUS_INVALID_ARGUMENT);
    assert_null(map.data);
    file_unmap(&map);
}

static void r13_beneath_stays_beneath(void **state)
{
    struct box *box = *state;
    struct error err;
    int fd = -1;
    assert_int_equal(mkdir(at(box, "sub"), 0700), 0);
    put(at(box, "sub/file"), "x");
    assert_int_equal(file_open_beneath(box->fd, "sub/file", &fd, &err), STATUS_OK);
    close(fd);
    fd = -1;
    assert_int_equal(symlink("sub/file", at(box, "link")), 0);
    assert_int_equal(symlink("sub", at(box, "dirlink")), 0);
    put(at(box, "twice"), "x");
    char first[256];
    snprintf(first, sizeof(first), "%s", at(box, "twice"));
    assert_int_equal(link(first, at(box, "twice2")), 0);
    static const char *const refused[] = {
        "link", "dirlink/file", "../etc/passwd", "/etc/passwd", "twice2", "sub/../../x", "", "sub"};
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        if (file_open_beneath(box->fd, refused[i], &fd, &err) == STATUS_OK)
            fail_msg("'%s' was opened", refused[i]);
        assert_int_equal(fd, -1);
    }
}

static void r33_replaces_atomically(void **state)
{
    struct box *box = *state;
    struct error err;
    struct file_writer *w;
    char path[256];
    snprintf(path, sizeof(path), "%s", at(box, "plan"));
    put(path, "old");
    assert_int_equal(file_writer_new(path, false, &w, &err), STATUS_OK);
    assert_int_equal(file_writer_put(w, "new ", 4, &err), STATUS_OK);
    assert_content(path, "old");
    assert_int_equal(file_writer_put(w, "text", 4, &err), STATUS_OK);
    assert_int_equal(file_writer_commit(w, &err), STATUS_OK);
    file_writer_free(w);
    assert_content(path, "new text");
    assert_int_equal(entries(box), 1);
    /* A write that is given up changes nothing and leaves nothing behind. */
    assert_int_equal(file_writer_new(path, false, &w, &err), STATUS_OK);
    assert_int_equal(file_writer_put(w, "x", 1, &err), STATUS_OK);
    file_writer_free(w);
    assert_content(path, "new text");
    assert_int_equal(entries(box), 1);
}

static void r33_failed_write_discards(void **state)
{
    struct box *box = *state;
    struct error err;
    struct file_writer *w;
    char path[256];
    snprintf(path, sizeof(path), "%s", at(box, "plan"));
    put(path, "old");
    struct rlimit saved, small = {.rlim_cur = 4096};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &saved), 0);
    small.rlim_max = saved.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    char *data = calloc(1, 8192);
    assert_non_null(data);
    assert_int_equal(file_writer_new(path, false, &w, &err), STATUS_OK);
    enum status status = file_writer_put(w, data, 8192, &err);
    file_writer_free(w);
    free(data);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &saved), 0);
    assert_int_not_equal(status, STATUS_OK);
    assert_content(path, "old");
    assert_int_equal(entries(box), 1);
}

static void a_writer_of_a_descriptor_writes_there(void **state)
{
    struct box *box = *state;
    struct file_writer *w;
    struct error err;
    put(at(box, "given"), "what was there before");
    int fd = open(at(box, "given"), O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(file_writer_new_fd(fd, "given", &w, &err), STATUS_OK);
    assert_int_equal(file_writer_put(w, "new", 3, &err), STATUS_OK);
    assert_int_equal(file_writer_commit(w, &err), STATUS_OK);
    file_writer_free(w);
    assert_content(at(box, "given"), "new");
    assert_int_equal(entries(box), 1);
    close(fd);
    fd = open("/dev/null", O_RDWR);
    assert_int_equal(file_writer_new_fd(fd, "null", &w, &err), STATUS_INVALID_ARGUMENT);
    close(fd);
    fd = open(at(box, "given"), O_RDONLY);
    assert_int_not_equal(file_writer_new_fd(fd, "given", &w, &err), STATUS_OK);
    close(fd);
    assert_content(at(box, "given"), "new");
}

static void r35_one_writer(void **state)
{
    struct box *box = *state;
    struct error err;
    struct file_writer *a, *b = NULL;
    char path[256];
    snprintf(path, sizeof(path), "%s", at(box, "plan"));
    assert_int_equal(file_writer_new(path, false, &a, &err), STATUS_OK);
    assert_int_equal(file_writer_new(path, false, &b, &err), STATUS_UNAVAILABLE);
    assert_null(b);
    assert_int_equal(file_sweep(box->fd), 0); /* a live writer's temporary stays */
    assert_int_equal(file_writer_put(a, "a", 1, &err), STATUS_OK);
    assert_int_equal(file_writer_commit(a, &err), STATUS_OK);
    file_writer_free(a);
    assert_int_equal(file_writer_new(path, false, &b, &err), STATUS_OK);
    file_writer_free(b);
    assert_content(path, "a");
}

static void r36_orphans_are_swept_or_reused(void **state)
{
    struct box *box = *state;
    struct error err;
    struct file_writer *w;
    put(at(box, ".plan.inferd-tmp"), "left by a killed writer");
    put(at(box, ".other.inferd-tmp"), "left too");
    put(at(box, "keep"), "k");
    char path[256];
    snprintf(path, sizeof(path), "%s", at(box, "plan"));
    assert_int_equal(file_writer_new(path, false, &w, &err), STATUS_OK);
    assert_int_equal(file_writer_put(w, "n", 1, &err), STATUS_OK);
    assert_int_equal(file_writer_commit(w, &err), STATUS_OK);
    file_writer_free(w);
    assert_content(path, "n");
    assert_int_equal(file_sweep(box->fd), 1);
    assert_int_equal(entries(box), 2);
}

static void refuses_bad_targets(void **state)
{
    struct box *box = *state;
    struct error err;
    struct file_writer *w = NULL;
    assert_int_not_equal(file_writer_new("", false, &w, &err), STATUS_OK);
    assert_int_not_equal(file_writer_new(at(box, ""), false, &w, &err), STATUS_OK);
    assert_int_equal(file_writer_new(at(box, "no/plan"), false, &w, &err), STATUS_NOT_FOUND);
    assert_int_equal(symlink("/tmp/elsewhere", at(box, ".plan.inferd-tmp")), 0);
    assert_int_not_equal(file_writer_new(at(box, "plan"), false, &w, &err), STATUS_OK);
    assert_null(w);
}

/* Rename would replace these by a regular file. */
static void only_regular_files_are_replaced(void **state)
{
    struct box *box = *state;
    struct error err;
    struct file_writer *w = NULL;
    struct stat st;
    assert_int_equal(mkfifo(at(box, "pipe"), 0600), 0);
    assert_int_equal(file_writer_new(at(box, "pipe"), false, &w, &err), STATUS_INVALID_ARGUMENT);
    assert_int_equal(symlink("/dev/null", at(box, "null")), 0);
    assert_int_equal(file_writer_new(at(box, "null"), false, &w, &err), STATUS_INVALID_ARGUMENT);
    assert_int_equal(file_writer_new(box->dir, false, &w, &err), STATUS_INVALID_ARGUMENT);
    assert_null(w);
    assert_int_equal(lstat(at(box, "pipe"), &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    assert_int_equal(entries(box), 2);
}

static void write_link(const struct box *box, const char *text)
{
    struct error err;
    struct file_writer *w;
    assert_int_equal(file_writer_new(at(box, "link"), false, &w, &err), STATUS_OK);
    assert_int_equal(file_writer_put(w, text, strlen(text), &err), STATUS_OK);
    assert_int_equal(file_writer_commit(w, &err), STATUS_OK);
    file_writer_free(w);
}

static void what_a_link_leads_to_is_replaced(void **state)
{
    struct box *box = *state;
    struct stat st;
    assert_int_equal(mkdir(at(box, "sub"), 0700), 0);
    assert_int_equal(symlink("sub/second", at(box, "link")), 0);
    assert_int_equal(symlink("../plan", at(box, "sub/second")), 0);
    write_link(box, "made"); /* it leads to nothing yet */
    assert_content(at(box, "plan"), "made");
    write_link(box, "replaced");
    assert_content(at(box, "plan"), "replaced");
    assert_int_equal(lstat(at(box, "link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(entries(box), 3);
}

static void texts_go_into_pipes(void **state)
{
    struct box *box = *state;
    struct error err;
    struct file_writer *w;
    char got[8] = "";
    assert_int_equal(mkfifo(at(box, "pipe"), 0600), 0);
    int end = open(at(box, "pipe"), O_RDONLY | O_NONBLOCK);
    assert_int_equal(file_writer_try_text(at(box, "pipe"), &err), STATUS_OK);
    assert_int_equal(file_writer_new_text(at(box, "pipe"), &w, &err), STATUS_OK);
    assert_int_equal(file_writer_put(w, "text", 4, &err), STATUS_OK);
    assert_int_equal(file_writer_commit(w, &err), STATUS_OK);
    file_writer_free(w);
    assert_int_equal(read(end, got, sizeof(got)), 4);
    assert_string_equal(got, "text");
    close(end);
    assert_int_equal(entries(box), 1);
    assert_int_equal(file_writer_try_text(at(box, "no/text"), &err), STATUS_NOT_FOUND);
    assert_int_equal(file_writer_try_text(at(box, "text"), &err), STATUS_OK);
    assert_int_equal(entries(box), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(maps_regular_files_only, setup, teardown),
        cmocka_unit_test_setup_teardown(r13_beneath_stays_beneath, setup, teardown),
        cmocka_unit_test_setup_teardown(r33_replaces_atomically, setup, teardown),
        cmocka_unit_test_setup_teardown(r33_failed_write_discards, setup, teardown),
        cmocka_unit_test_setup_teardown(a_writer_of_a_descriptor_writes_there, setup, teardown),
        cmocka_unit_test_setup_teardown(r35_one_writer, setup, teardown),
        cmocka_unit_test_setup_teardown(r36_orphans_are_swept_or_reused, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_bad_targets, setup, teardown),
        cmocka_unit_test_setup_teardown(only_regular_files_are_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(what_a_link_leads_to_is_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(texts_go_into_pipes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
