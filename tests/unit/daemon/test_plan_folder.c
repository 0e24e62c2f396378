/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of kept plans beside other processes that use it at the same time. A thread takes the
 * part of the other process: all that they share are files, and flock tells descriptors apart. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/file_read.h"
#include "daemon/plan_folder.h"
#include "tests/test.h"

#define KEY_OF(c) "m-" c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c

enum { PLAN_BYTES = 4 << 20, LOADS = 30, WRITES = 300, SWEEPERS = 4, TIMEOUT_S = 60 };

static char root[64];
static const _Atomic bool never;

static int setup(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/inferd-plans-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command);
}

static struct plan_folder *folder_of(uint32_t most)
{
    struct plan_folder *f = NULL;
    struct error err = {0};
    const struct plan_folder_config config = {.path = root, .most = most};
    if (plan_folder_open(&config, &f, &err))
        fail_msg("%s", err.text);
    return f;
}

static void keep(struct plan_folder *f, const char *key, size_t size)
{
    struct error err = {0};
    struct file_writer *w;
    char *bytes = calloc(1, size);
    assert_non_null(bytes);
    if (plan_folder_write(f, key, TIMEOUT_S, &never, &w, &err) ||
        file_writer_put(w, bytes, size, &err) || file_writer_commit(w, &err))
        fail_msg("%s", err.text);
    file_writer_free(w);
    free(bytes);
}

static bool is_kept(struct plan_folder *f, const char *key)
{
    int fd;
    if (plan_folder_find(f, key, &fd, NULL))
        return false;
    close(fd);
    return true;
}

/* The other process: does `each` in a folder of its own, until it is told to stop. */
struct other {
    pthread_t thread;
    struct plan_folder *folder;
    void (*each)(struct plan_folder *folder);
    _Atomic bool stop;
    _Atomic uint32_t done;
};

static void *other_run(void *arg)
{
    struct other *o = arg;
    while (!atomic_load(&o->stop)) {
        o->each(o->folder);
        atomic_fetch_add(&o->done, 1);
    }
    return NULL;
}

static void other_begin(struct other *o, void (*each)(struct plan_folder *))
{
    *o = (struct other){.folder = folder_of(0), .each = each};
    assert_int_equal(pthread_create(&o->thread, NULL, other_run, o), 0);
}

static void other_end(struct other *o)
{
    while (atomic_load(&o->done) == 0)
        usleep(1000);
    atomic_store(&o->stop, true);
    pthread_join(o->thread, NULL);
    plan_folder_close(o->folder);
}

static void find_a(struct plan_folder *f)
{
    is_kept(f, KEY_OF("a"));
}

/* Else two servers that start together build the plan twice. */
static void r35_a_plan_that_others_use_is_read(void **state)
{
    (void)state;
    struct plan_folder *f = folder_of(0);
    struct other other;
    keep(f, KEY_OF("a"), PLAN_BYTES);
    other_begin(&other, find_a);
    for (int i = 0; i < LOADS; i++) {
        struct error err = {0};
        struct file_map map;
        int fd;
        const struct file_read how = {.name = "the plan"};
        assert_int_equal(plan_folder_find(f, KEY_OF("a"), &fd, &err), STATUS_OK);
        if (file_load(fd, &how, &map, &err))
            fail_msg("load %d: %s", i, err.text);
        file_unmap(&map);
        close(fd);
    }
    other_end(&other);
    plan_folder_close(f);
}

static void sweep(struct plan_folder *f)
{
    (void)f;
    plan_folder_close(folder_of(0)); /* opening it removes what killed builds left */
}

static void keep_a(struct plan_folder *f)
{
    keep(f, KEY_OF("a"), 1);
}

/* Two that write, some that start again and again. */
static void r36_a_live_writer_is_not_swept(void **state)
{
    (void)state;
    struct plan_folder *f = folder_of(0);
    struct other sweeping[SWEEPERS], writing;
    other_begin(&writing, keep_a);
    for (int i = 0; i < SWEEPERS; i++)
        other_begin(&sweeping[i], sweep);
    for (int i = 0; i < WRITES; i++)
        keep(f, KEY_OF("b"), 1);
    for (int i = 0; i < SWEEPERS; i++)
        other_end(&sweeping[i]);
    other_end(&writing);
    plan_folder_close(f);
}

static void what_was_used_last_stays(void **state)
{
    (void)state;
    struct plan_folder *f = folder_of(2);
    const char *const keys[] = {KEY_OF("a"), KEY_OF("b"), KEY_OF("c")};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        keep(f, keys[i], 1);
        usleep(20 * 1000); /* the clock of a file system moves by ticks */
    }
    assert_true(is_kept(f, keys[0])); /* used now */
    plan_folder_trim(f);
    assert_true(is_kept(f, keys[0]));
    assert_false(is_kept(f, keys[1]));
    assert_true(is_kept(f, keys[2]));
    plan_folder_close(f);
}

/* As Kubernetes makes a pod's volume: a group's, and open to all. */
static void a_folder_that_is_open_to_all(void **state)
{
    (void)state;
    struct plan_folder *f = NULL;
    struct error err = {0};
    struct plan_folder_config config = {.path = root};
    assert_int_equal(chmod(root, 02777), 0);
    assert_int_equal(plan_folder_open(&config, &f, &err), STATUS_PERMISSION_DENIED);
    config.insecure = true;
    if (plan_folder_open(&config, &f, &err))
        fail_msg("%s", err.text);
    keep(f, KEY_OF("a"), 1);
    assert_true(is_kept(f, KEY_OF("a")));
    plan_folder_close(f);
    config.below = "shapes";
    assert_int_equal(plan_folder_open(&config, &f, &err), STATUS_OK);
    plan_folder_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(r35_a_plan_that_others_use_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(r36_a_live_writer_is_not_swept, setup, teardown),
        cmocka_unit_test_setup_teardown(what_was_used_last_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(a_folder_that_is_open_to_all, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
