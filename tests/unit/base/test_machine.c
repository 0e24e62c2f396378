/* SPDX-License-Identifier: Apache-2.0 */
/* The available memory is the least limit in a tree of control groups, which the test makes up. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/machine.h"
#include "tests/test.h"

static char mount[] = "/tmp/test_machine.XXXXXX";
static const char *const folders[] = {"", "/a", "/a/b", "/a/b/c"};

static void limit_put(const char *folder, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s%s/memory.max", mount, folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(mount))
        return -1;
    for (size_t i = 1; i < ARRAY_LEN(folders); i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%s%s", mount, folders[i]);
        if (mkdir(path, 0700))
            return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = ARRAY_LEN(folders); i-- > 0;) {
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%s%s/memory.max", mount, folders[i]);
        unlink(path);
        snprintf(path, sizeof(path), "%s%s", mount, folders[i]);
        rmdir(path);
    }
    return 0;
}

static void the_least_limit_counts(void **state)
{
    (void)state;
    assert_true(machine_group_limit(mount, "/a/b/c") == UINT64_MAX); /* no file anywhere */
    limit_put("/a/b/c", "max\n");
    assert_true(machine_group_limit(mount, "/a/b/c") == UINT64_MAX);
    limit_put("/a", "5000000000\n");
    assert_true(machine_group_limit(mount, "/a/b/c") == UINT64_C(5000000000));
    limit_put("/a/b", "6000000000\n");
    assert_true(machine_group_limit(mount, "/a/b/c") == UINT64_C(5000000000));
    limit_put("/a/b/c", "4096\n");
    assert_true(machine_group_limit(mount, "/a/b/c") == 4096);
    assert_true(machine_group_limit(mount, "/a/b") == UINT64_C(5000000000));
    limit_put("", "100\n");
    assert_true(machine_group_limit(mount, "/a/b") == 100);
    assert_true(machine_group_limit(mount, "/") == 100);
    assert_true(machine_group_limit(mount, "/not/there") == 100);
}

static void there_is_some_memory(void **state)
{
    (void)state;
    assert_true(machine_memory() > (uint64_t)1 << 20);
    assert_true(machine_memory() < UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_limit_counts),
        cmocka_unit_test(there_is_some_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
