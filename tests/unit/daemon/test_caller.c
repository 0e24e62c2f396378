/* SPDX-License-Identifier: Apache-2.0 */
/* What a connection remembers of its peer, over real sockets. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/compiler.h"
#include "daemon/caller.h"
#include "tests/test.h"

static char token[2][TOKEN_TEXT + 1], unknown[TOKEN_TEXT + 1];
static char path[] = "/tmp/test_caller_XXXXXX";

static int files_make(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    if (fd < 0)
        return -1;
    close(fd);
    return token_new(token[0], NULL) || token_new(token[1], NULL) || token_new(unknown, NULL);
}

static int files_remove(void **state)
{
    (void)state;
    return unlink(path);
}

/* Makes the tokens of the bits in `which` known, as "zero" and "one". */
static struct identities *make(unsigned which, const char *rows)
{
    FILE *f = fopen(path, "w");
    for (unsigned i = 0; i < 2; i++) {
        char hash[TOKEN_HASH_TEXT + 1];
        struct token_hash bytes;
        assert_true(token_hash_of(token[i], TOKEN_TEXT, &bytes));
        token_hash_format(&bytes, hash);
        if (which & 1u << i)
            fprintf(f, "%s %s infer\n", i ? "one" : "zero", hash);
    }
    fclose(f);
    char text[512];
    struct config *config = NULL;
    struct identities *all = NULL;
    struct error err = {0};
    snprintf(text, sizeof(text), which ? "tokens: %s\n%s" : "# %s\n%s", path, rows);
    if (config_parse("t", text, strlen(text), &config, &err) ||
        identities_new(config, NULL, &all, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    config_free(config);
    return all;
}

static const char *ask(struct caller *caller, struct identities *now, int fd, const char *text)
{
    const struct identity *identity = NULL;
    struct error err = {0};
    enum status s = caller_identify(caller, now, fd, message_text_of(text), &identity, &err);
    return s == STATUS_OK ? identity_name(identity) : status_name(s);
}

/* Connects `client` to a listening socket. Returns the listener's end of the connection. */
static int connect_to(struct sockaddr *address, socklen_t length, int *client)
{
    int listener = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *client = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, address, length), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, address, &length), 0);
    assert_int_equal(connect(*client, address, length), 0);
    int fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    close(listener);
    return fd;
}

static int tcp(int *client)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return connect_to((struct sockaddr *)&address, sizeof(address), client);
}

/* `file`: the socket is a file; else its name is in no file system. */
static int local(bool file, int *client)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path + !file, sizeof(address.sun_path) - 1, "%s.sock", path);
    int fd = connect_to(
        (struct sockaddr *)(void *)&address,
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + !file + strlen(path) + 5 + file),
        client);
    if (file)
        unlink(address.sun_path);
    return fd;
}

static void the_kernel_says_who_is_there(void **state)
{
    (void)state;
    static struct credentials peer;
    int client, fd = local(true, &client);
    credentials_read(fd, &peer);
    assert_true(peer.known && peer.by_mode);
    assert_int_equal(peer.uid, geteuid());
    assert_int_equal(peer.gid, getegid());
    assert_int_equal(peer.n_groups, getgroups(0, NULL));
    close(client);
    close(fd);
    fd = local(false, &client);
    credentials_read(fd, &peer);
    assert_true(peer.known && !peer.by_mode);
    close(client);
    close(fd);
    fd = tcp(&client);
    credentials_read(fd, &peer);
    assert_false(peer.known);
    close(client);
    close(fd);
    credentials_read(-1, &peer);
    assert_false(peer.known);
}

static void tokens_count_for_their_request_alone(void **state)
{
    (void)state;
    struct identities *now = make(3, "");
    struct caller caller = {0};
    int client, fd = tcp(&client);
    assert_true(caller_is_stranger(&caller, now, fd));
    assert_string_equal(ask(&caller, now, fd, ""), "anonymous");
    assert_true(caller_is_stranger(&caller, now, fd));
    assert_string_equal(ask(&caller, now, fd, token[0]), "zero");
    assert_false(caller_is_stranger(&caller, now, fd));
    assert_string_equal(ask(&caller, now, fd, token[0]), "zero"); /* the answer is remembered */
    assert_string_equal(ask(&caller, now, fd, token[1]), "one");
    assert_string_equal(ask(&caller, now, fd, ""), "anonymous");
    assert_string_equal(ask(&caller, now, fd, token[0]), "zero");
    assert_int_equal(caller.refused, 0);
    caller_deinit(&caller);
    identities_unref(now);
    close(client);
    close(fd);
}

static void unknown_tokens_are_counted(void **state)
{
    (void)state;
    struct identities *now = make(1, "");
    struct caller caller = {0};
    int client, fd = local(true, &client);
    assert_string_equal(ask(&caller, now, fd, ""), "local");
    /* a wrong token does not make it "local" */
    assert_string_equal(ask(&caller, now, fd, unknown), "UNAUTHENTICATED");
    assert_string_equal(ask(&caller, now, fd, unknown), "UNAUTHENTICATED");
    assert_int_equal(caller.refused, 2);
    assert_string_equal(ask(&caller, now, fd, token[0]), "zero");
    assert_int_equal(caller.refused, 2);
    caller_deinit(&caller);
    identities_unref(now);
    close(client);
    close(fd);
}

static void a_reload_is_followed(void **state)
{
    (void)state;
    struct identities *open = make(0, ""), *both = make(3, ""), *one = make(2, "");
    struct caller caller = {0};
    int client, fd = tcp(&client);
    assert_string_equal(ask(&caller, open, fd, unknown), "local"); /* identities are not asked */
    assert_false(caller_is_stranger(&caller, open, fd));
    assert_string_equal(ask(&caller, both, fd, ""), "anonymous");
    assert_true(caller_is_stranger(&caller, both, fd));
    assert_string_equal(ask(&caller, both, fd, token[0]), "zero");
    /* the connection's own reference keeps the old identities until it has changed over */
    identities_unref(both);
    assert_string_equal(ask(&caller, one, fd, token[0]), "UNAUTHENTICATED");
    assert_true(caller_is_stranger(&caller, one, fd));
    assert_string_equal(ask(&caller, one, fd, token[1]), "one");
    caller_deinit(&caller);
    caller_deinit(&caller); /* a second call does no harm */
    identities_unref(open);
    identities_unref(one);
    close(client);
    close(fd);
}

static void a_user_is_known_without_a_token(void **state)
{
    (void)state;
    char rows[160];
    snprintf(rows, sizeof(rows), "identities: [{name: me, user: %u, rights: [status]}]", geteuid());
    struct identities *mine = make(1, rows);
    snprintf(rows, sizeof(rows), "identities: [{name: other, user: %u, rights: [status]}]",
             geteuid() + 1);
    struct identities *theirs = make(1, rows);
    struct caller caller = {0};
    int client, fd = local(true, &client);
    assert_string_equal(ask(&caller, mine, fd, ""), "me");
    assert_false(caller_is_stranger(&caller, mine, fd));
    assert_string_equal(ask(&caller, mine, fd, token[0]), "zero");
    assert_string_equal(ask(&caller, theirs, fd, ""), "anonymous");
    assert_true(caller_is_stranger(&caller, theirs, fd));
    caller_deinit(&caller);
    identities_unref(mine);
    identities_unref(theirs);
    close(client);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernel_says_who_is_there),
        cmocka_unit_test(tokens_count_for_their_request_alone),
        cmocka_unit_test(unknown_tokens_are_counted),
        cmocka_unit_test(a_reload_is_followed),
        cmocka_unit_test(a_user_is_known_without_a_token),
    };
    return cmocka_run_group_tests(tests, files_make, files_remove);
}
