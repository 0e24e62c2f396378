/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/repository.h"
#include "tests/test.h"

static char root[] = "/tmp/inferd-repository-XXXXXX";
static struct config *config;
static struct wanted_list list;
static struct error err;

static void put(const char *below, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", root, below);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void clear(void)
{
    char command[256];
    snprintf(command, sizeof(command), "rm -rf %s/*", root);
    assert_int_equal(system(command), 0);
}

static int setup(void **state)
{
    (void)state;
    clear();
    config = config_new();
    config->repository = strdup(root);
    return config->repository ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    config_free(config);
    return 0;
}

static const struct wanted *find(const char *name, const char *version)
{
    for (uint32_t i = 0; i < list.n; i++)
        if (strcmp(list.items[i].name, name) == 0 && strcmp(list.items[i].version, version) == 0)
            return &list.items[i];
    return NULL;
}

static void read_list(void)
{
    if (repository_list(config, NULL, &list, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void the_layout(void **state)
{
    (void)state;
    put("a/1/model.plan", "x");
    put("a/2/model.onnx", "y");
    put("b/v1/model.plan", "z");
    put("b/v1/model.onnx", "z"); /* the plan is preferred */
    put("b/v1/notes.txt", "z");
    put("c/model.plan", "no version");
    put("d/1/other.plan", "another name");
    put("file", "not a folder");
    put("bad name/1/model.plan", "x");
    put("a/bad name/model.plan", "x");
    read_list();
    assert_int_equal(list.n, 3);
    assert_false(find("a", "1")->onnx);
    assert_true(find("a", "2")->onnx);
    assert_false(find("b", "v1")->onnx);
    assert_true(find("a", "1")->fd >= 0);
    assert_true(find("a", "2")->folder >= 0);
    assert_string_equal(find("a", "2")->path, "model.onnx");
    assert_int_equal(find("a", "1")->config.max_delay_us, -1);
    repository_list_deinit(&list);
}

static void equal_files_are_equal_sources(void **state)
{
    (void)state;
    struct wanted_list old;
    put("a/1/model.plan", "x");
    put("b/1/model.plan", "x");
    read_list();
    old = list;
    read_list();
    assert_true(model_source_equal(&old.items[0].source, &list.items[0].source));
    assert_false(model_source_equal(&old.items[0].source, &list.items[1].source));
    repository_list_deinit(&list);
    put("a/1/model.plan", "longer");
    read_list();
    assert_false(model_source_equal(&old.items[0].source, &list.items[0].source) &&
                 model_source_equal(&old.items[1].source, &list.items[1].source));
    repository_list_deinit(&list);
    repository_list_deinit(&old);
}

static void r13_no_links(void **state)
{
    (void)state;
    char path[256], to[256];
    put("a/1/model.plan", "x");
    put("outside.plan", "x");
    static const char *const folders[] = {"s", "s/1", "h", "h/1", "f", "f/1"};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        snprintf(path, sizeof(path), "%s/%s", root, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    snprintf(to, sizeof(to), "%s/outside.plan", root);
    snprintf(path, sizeof(path), "%s/s/1/model.plan", root);
    assert_int_equal(symlink(to, path), 0);
    snprintf(path, sizeof(path), "%s/h/1/model.plan", root);
    assert_int_equal(link(to, path), 0);
    snprintf(path, sizeof(path), "%s/f/1/model.plan", root);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(path, sizeof(path), "%s/linked", root);
    assert_int_equal(symlink("a", path), 0);
    read_list();
    assert_int_equal(list.n, 4);
    assert_true(find("a", "1")->fd >= 0);
    static const char *const refused[] = {"s", "h", "f"};
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        const struct wanted *w = find(refused[i], "1");
        assert_non_null(w);
        assert_int_equal(w->fd, -1);
        assert_true(w->err.text[0]);
    }
    repository_list_deinit(&list);
}

static void configured_models_join(void **state)
{
    (void)state;
    char argument[256];
    put("a/1/model.plan", "x");
    put("extra.onnx", "x");
    snprintf(argument, sizeof(argument), "b=%s/extra.onnx", root);
    assert_int_equal(config_model_argument(config, argument, &err), STATUS_OK);
    snprintf(argument, sizeof(argument), "gone=%s/gone.onnx", root);
    assert_int_equal(config_model_argument(config, argument, &err), STATUS_OK);
    read_list();
    assert_int_equal(list.n, 3);
    assert_true(find("b", "1")->onnx);
    assert_true(find("b", "1")->fd >= 0);
    assert_int_equal(find("b", "1")->folder, -1);
    assert_int_equal(find("gone", "1")->fd, -1);
    assert_int_equal(find("gone", "1")->err.status, STATUS_NOT_FOUND);
    repository_list_deinit(&list);

    snprintf(argument, sizeof(argument), "a=%s/extra.onnx", root);
    assert_int_equal(config_model_argument(config, argument, &err), STATUS_OK);
    assert_int_equal(repository_list(config, NULL, &list, &err), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "'a' version '1' is there twice"));
}

static void no_repository(void **state)
{
    (void)state;
    free(config->repository);
    config->repository = strdup("/nowhere/at/all");
    assert_int_equal(repository_list(config, NULL, &list, &err), STATUS_NOT_FOUND);
    free(config->repository);
    config->repository = NULL;
    read_list();
    assert_int_equal(list.n, 0);
    repository_list_deinit(&list);
}

int main(void)
{
    if (!mkdtemp(root))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_layout, setup, teardown),
        cmocka_unit_test_setup_teardown(equal_files_are_equal_sources, setup, teardown),
        cmocka_unit_test_setup_teardown(r13_no_links, setup, teardown),
        cmocka_unit_test_setup_teardown(configured_models_join, setup, teardown),
        cmocka_unit_test_setup_teardown(no_repository, setup, teardown),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    clear();
    rmdir(root);
    return failed;
}
