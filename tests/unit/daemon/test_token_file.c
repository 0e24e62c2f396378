/* SPDX-License-Identifier: Apache-2.0 */
/* The file of token hashes: its lines, and whose file it may be. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/right.h"
#include "daemon/token_file.h"
#include "tests/test.h"

#define HEX_63  "a7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define HASH(c) "sha256:" c HEX_63

static struct token_list parse(const char *text)
{
    struct token_list list = {0};
    struct error err = {0};
    if (token_list_parse("tokens", text, strlen(text), &list, &err) != STATUS_OK)
        fail_msg("refused: %s\n%s", err.text, text);
    return list;
}

static void refuse(const char *text, const char *expected)
{
    struct token_list list = {.n = 77};
    struct error err = {0};
    enum status status = token_list_parse("tokens", text, strlen(text), &list, &err);
    if (status != STATUS_INVALID_ARGUMENT || list.n != 77)
        fail_msg("status %s for: %s", status_name(status), text);
    if (!strstr(err.text, expected))
        fail_msg("\"%s\" is not in \"%s\"", expected, err.text);
}

static const struct token_line *of_line(const struct token_list *list, uint32_t line)
{
    for (uint32_t i = 1; i < list->n; i++)
        assert_true(list->items[i - 1].line < list->items[i].line);
    for (uint32_t i = 0; i < list->n; i++)
        if (list->items[i].line == line)
            return &list->items[i];
    fail_msg("nothing of line %u", line);
    return NULL;
}

static void lines_comments_and_blanks(void **state)
{
    (void)state;
    struct token_list list = parse(
        "# tokens\n"
        "\n"
        "  \t \r\n"
        "team-a " HASH("b") "\n"
                            "\tteam-a\t" HASH("c") " # the new one\r\n"
                                                   "b.1 " HASH("0") " infer describe status\n"
                                                                    "last " HASH("1") " admin");
    assert_int_equal(list.n, 4);
    assert_string_equal(of_line(&list, 4)->name, "team-a");
    assert_int_equal(of_line(&list, 4)->rights, 0);
    assert_int_equal(of_line(&list, 4)->hash.bytes[0], 0xba);
    assert_string_equal(of_line(&list, 5)->name, "team-a");
    assert_int_equal(of_line(&list, 6)->rights,
                     RIGHT_BIT(RIGHT_INFER) | RIGHT_BIT(RIGHT_DESCRIBE) | RIGHT_BIT(RIGHT_STATUS));
    assert_int_equal(of_line(&list, 7)->rights, RIGHT_BIT(RIGHT_ADMIN));
    token_list_deinit(&list);
    list = parse("");
    assert_int_equal(list.n, 0);
    token_list_deinit(&list);
}

static void what_is_wrong_has_a_line(void **state)
{
    (void)state;
    refuse("\na b\n", "tokens:2: expected sha256: and 64 hexadecimal digits behind \"a\"");
    refuse("a\n", "tokens:1: expected sha256: and 64 hexadecimal digits behind \"a\", got nothing");
    refuse("a " HASH("b") "0\n", "tokens:1: expected sha256:");
    refuse("a sha512:b" HEX_63 "\n", "tokens:1: expected sha256:");
    refuse(".a " HASH("b") "\n", "tokens:1: expected a name");
    refuse("a/b " HASH("b") "\n", "tokens:1: expected a name");
    refuse("anonymous " HASH("b") "\n", "tokens:1: expected a name, got \"anonymous\"");
    refuse("a " HASH("b") "\na " HASH("c") " infer all\n",
           "tokens:2: expected rights of infer, describe, status, memory, admin, got \"all\"");
    refuse("a " HASH("b") "\n#\nc " HASH("B") "\n",
           "tokens:3: expected each token once, and line 1 has this one too");
    refuse("a\x01 " HASH("b") "\n", "tokens:1: expected a name");
}

/* Somebody pasted the token where its hash belongs: the error must not carry it into a log. */
static void a_token_in_the_file_is_not_shown(void **state)
{
    (void)state;
    static const char token[] = "Yk3xq0mB5b8tq0lq3WQwJc8m8bq4zv0S6lW1c2d3e4f";
    char text[128];
    struct token_list list;
    struct error err = {0};
    snprintf(text, sizeof(text), "a %s\n", token);
    assert_int_equal(token_list_parse("tokens", text, strlen(text), &list, &err),
                     STATUS_INVALID_ARGUMENT);
    assert_null(strstr(err.text, token));
    assert_non_null(strstr(err.text, "inferctl token"));
}

static void a_file_has_limits(void **state)
{
    (void)state;
    size_t each = strlen("a " HASH("b") "\n"), size = (TOKEN_FILE_LINES + 1) * each;
    char *text = calloc(1, size + 1);
    struct token_list list = {0};
    struct error err = {0};
    for (int i = 0; i <= TOKEN_FILE_LINES; i++)
        snprintf(text + (size_t)i * each, each + 1, "a sha256:%08x%056d\n", (unsigned)i, 0);
    assert_int_equal(token_list_parse("t", text, size - each, &list, &err), STATUS_OK);
    assert_int_equal(list.n, TOKEN_FILE_LINES);
    token_list_deinit(&list);
    assert_int_equal(token_list_parse("t", text, size, &list, &err), STATUS_INVALID_ARGUMENT);
    assert_string_equal(err.text, "t:4097: expected at most 4096 tokens");
    free(text);
    text = calloc(1, TOKEN_FILE_BYTES + 1);
    memset(text, '\n', TOKEN_FILE_BYTES + 1);
    assert_int_equal(token_list_parse("t", text, TOKEN_FILE_BYTES, &list, &err), STATUS_OK);
    token_list_deinit(&list);
    assert_int_equal(token_list_parse("t", text, TOKEN_FILE_BYTES + 1, &list, &err),
                     STATUS_INVALID_ARGUMENT);
    free(text);
}

/* --- the file --- */

static char folder[] = "/tmp/test_token_file_XXXXXX";
static char path[sizeof(folder) + 16];

static int folder_make(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/tokens", folder);
    return 0;
}

static int folder_remove(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void file_write(const char *text, mode_t mode)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void read_as(const char *name, enum status wanted, const char *expected)
{
    struct token_list list = {0};
    struct error err = {0};
    enum status status = token_list_read(name, &list, &err);
    if (status != wanted || (expected && !strstr(err.text, expected)))
        fail_msg("%s: %s \"%s\"", name, status_name(status), err.text);
    if (status == STATUS_OK)
        assert_int_equal(list.n, 1);
    token_list_deinit(&list);
}

static void a_file_that_others_may_read_is_refused(void **state)
{
    (void)state;
    static const mode_t open[] = {0640, 0604, 0644, 0620, 0602, 0777, 0610};
    file_write("a " HASH("b") "\n", 0600);
    read_as(path, STATUS_OK, NULL);
    file_write("a " HASH("b") "\n", 0400);
    read_as(path, STATUS_OK, NULL);
    for (size_t i = 0; i < ARRAY_LEN(open); i++) {
        file_write("a " HASH("b") "\n", open[i]);
        read_as(path, STATUS_PERMISSION_DENIED, "its owner's alone (chmod 600), got mode ");
    }
}

static void a_file_of_somebody_else_is_refused(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    file_write("a " HASH("b") "\n", 0600);
    assert_int_equal(chown(path, 12345, 0), 0);
    read_as(path, STATUS_PERMISSION_DENIED, "of this account or of root, got one of user 12345");
}

static void only_regular_files(void **state)
{
    (void)state;
    read_as(folder, STATUS_INVALID_ARGUMENT, "expected a regular file");
    read_as("/dev/null", STATUS_INVALID_ARGUMENT, "expected a regular file");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    read_as(path, STATUS_INVALID_ARGUMENT, "expected a regular file"); /* and does not wait */
    unlink(path);
    read_as(path, STATUS_NOT_FOUND, path);
}

static void a_bare_name_is_a_credential(void **state)
{
    (void)state;
    unsetenv("CREDENTIALS_DIRECTORY");
    read_as("tokens", STATUS_FAILED_PRECONDITION, "$CREDENTIALS_DIRECTORY, which is not set");
    setenv("CREDENTIALS_DIRECTORY", folder, 1);
    file_write("a " HASH("b") "\n", 0440); /* as an access list looks */
    read_as("tokens", STATUS_OK, NULL);
    read_as(path, STATUS_PERMISSION_DENIED, "its owner's alone");
    read_as("other", STATUS_NOT_FOUND, "other");
    unsetenv("CREDENTIALS_DIRECTORY");
}

static void errors_name_file_and_line(void **state)
{
    (void)state;
    char expected[64];
    file_write("\nx\n", 0600);
    snprintf(expected, sizeof(expected), "%s:2: expected", path);
    read_as(path, STATUS_INVALID_ARGUMENT, expected);
    assert_int_equal(truncate(path, TOKEN_FILE_BYTES + 1), 0);
    read_as(path, STATUS_INVALID_ARGUMENT, "expected at most 1048576 bytes, got 1048577");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_comments_and_blanks),
        cmocka_unit_test(what_is_wrong_has_a_line),
        cmocka_unit_test(a_token_in_the_file_is_not_shown),
        cmocka_unit_test(a_file_has_limits),
        cmocka_unit_test(a_file_that_others_may_read_is_refused),
        cmocka_unit_test(a_file_of_somebody_else_is_refused),
        cmocka_unit_test(only_regular_files),
        cmocka_unit_test(a_bare_name_is_a_credential),
        cmocka_unit_test(errors_name_file_and_line),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
