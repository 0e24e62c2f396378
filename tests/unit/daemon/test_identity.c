/* SPDX-License-Identifier: Apache-2.0 */
/* Who a peer is, and who may do what. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "daemon/identity.h"
#include "tests/test.h"

/* Tokens of these tests, and a file with their hashes. */
static const char *const names[] = {"team-a", "team-a", "team-b", "free"};
static char tokens[ARRAY_LEN(names)][TOKEN_TEXT + 1];
static char path[] = "/tmp/test_identity_XXXXXX";

static void tokens_write(const char *rights_of_the_last)
{
    char hash[TOKEN_HASH_TEXT + 1];
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct token_hash bytes;
        assert_true(token_hash_of(tokens[i], TOKEN_TEXT, &bytes));
        token_hash_format(&bytes, hash);
        fprintf(f, "%s %s%s\n", names[i], hash,
                i + 1 == ARRAY_LEN(names) ? rights_of_the_last : "");
    }
    fclose(f);
}

static int files_make(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    if (fd < 0)
        return -1;
    close(fd);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (token_new(tokens[i], NULL) != STATUS_OK)
            return -1;
    return 0;
}

static int files_remove(void **state)
{
    (void)state;
    return unlink(path);
}

/* A configuration as text; "TOKENS" becomes the file's path. */
static struct config *configure(const char *text)
{
    char whole[4096];
    struct config *config = NULL;
    struct error err = {0};
    const char *at = strstr(text, "TOKENS");
    if (at)
        snprintf(whole, sizeof(whole), "%.*s%s%s", (int)(at - text), text, path, at + 6);
    else
        snprintf(whole, sizeof(whole), "%s", text);
    if (config_parse("t.yaml", whole, strlen(whole), &config, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return config;
}

static struct identities *make(const char *text)
{
    struct identities *all = NULL;
    struct error err = {0};
    struct config *config = configure(text);
    if (identities_new(config, NULL, &all, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    config_free(config);
    return all;
}

static void refuse(const char *text, const char *expected)
{
    struct identities *all = NULL;
    struct error err = {0};
    struct config *config = configure(text);
    enum status status = identities_new(config, NULL, &all, &err);
    if (status == STATUS_OK || all)
        fail_msg("taken: %s", text);
    if (!strstr(err.text, expected))
        fail_msg("\"%s\" is not in \"%s\"", expected, err.text);
    config_free(config);
}

static const char *by_token(const struct identities *all, const char *token)
{
    const struct identity *identity;
    struct error err = {0};
    enum status s = identities_by_token(all, message_text_of(token), &identity, &err);
    return s == STATUS_OK ? identity_name(identity) : status_name(s);
}

static const struct identity *of_token(const struct identities *all, size_t which)
{
    const struct identity *identity = NULL;
    assert_int_equal(identities_by_token(all, message_text_of(tokens[which]), &identity, NULL),
                     STATUS_OK);
    return identity;
}

static bool may(const struct identity *identity, enum right right, const char *model)
{
    return identity_may(identity, right, message_text_of(model));
}

#define ROWS                                                                                       \
    "tokens: TOKENS\n"                                                                             \
    "identities:\n"                                                                                \
    "- {name: team-a, models: [resnet, 'bert-*'], rights: [infer, describe], priority: 2}\n"       \
    "- {name: team-b, rights: [status]}\n"

static void nothing_configured_is_open(void **state)
{
    (void)state;
    struct identities *all = make("");
    struct credentials peer = {0};
    assert_false(identities_required(all));
    assert_string_equal(by_token(all, "whatever"), "local");
    assert_string_equal(identity_name(identities_by_peer(all, &peer)), "local");
    assert_string_equal(identity_name(identities_anonymous(all)), "local");
    const struct identity *local = identities_anonymous(all);
    assert_true(may(local, RIGHT_INFER, "m") && may(local, RIGHT_DESCRIBE, "m") &&
                may(local, RIGHT_STATUS, ""));
    assert_false(may(local, RIGHT_ADMIN, ""));
    assert_int_equal(identity_priority(local, 0), 0);
    identities_unref(all);
}

static void r16_a_token_is_who_it_stands_for(void **state)
{
    (void)state;
    tokens_write(" infer");
    struct identities *all = make(ROWS);
    assert_true(identities_required(all));
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_string_equal(by_token(all, tokens[i]), names[i]);
    assert_ptr_equal(of_token(all, 0), of_token(all, 1)); /* two tokens of one name */
    identities_unref(all);
}

static void r16_tokens_that_are_not_known(void **state)
{
    (void)state;
    tokens_write(" infer");
    struct identities *all = make(ROWS);
    static char longest[MESSAGE_MAX_TOKEN + 1];
    char text[TOKEN_TEXT + 2];
    memset(longest, 'a', sizeof(longest) - 1);
    assert_string_equal(by_token(all, longest), "UNAUTHENTICATED");
    assert_string_equal(by_token(all, ""), "UNAUTHENTICATED");
    assert_string_equal(by_token(all, "team-a"), "UNAUTHENTICATED");
    for (size_t len = 0; len < TOKEN_TEXT; len++) {
        snprintf(text, sizeof(text), "%.*s", (int)len, tokens[0]);
        assert_string_equal(by_token(all, text), "UNAUTHENTICATED");
    }
    snprintf(text, sizeof(text), "%sA", tokens[0]);
    assert_string_equal(by_token(all, text), "UNAUTHENTICATED");
    for (size_t i = 0; i < TOKEN_TEXT; i++) {
        snprintf(text, sizeof(text), "%s", tokens[0]);
        text[i] = text[i] == 'A' ? 'B' : 'A';
        assert_string_equal(by_token(all, text), "UNAUTHENTICATED");
    }
    identities_unref(all);
}

/* A password's hash in the file does not make the password work as a token. */
static void what_is_short_is_never_a_token(void **state)
{
    (void)state;
    struct token_hash bytes;
    char hash[TOKEN_HASH_TEXT + 1];
    FILE *f = fopen(path, "w");
    assert_true(token_hash_of("secret", 6, &bytes));
    token_hash_format(&bytes, hash);
    fprintf(f, "a %s infer\n", hash);
    fclose(f);
    struct identities *all = make("tokens: TOKENS");
    assert_string_equal(by_token(all, "secret"), "UNAUTHENTICATED");
    identities_unref(all);
}

static void rights_models_and_priority(void **state)
{
    (void)state;
    tokens_write(" infer describe");
    struct identities *all = make(ROWS);
    const struct identity *a = of_token(all, 0), *b = of_token(all, 2),
                          *free_one = of_token(all, 3);
    assert_true(may(a, RIGHT_INFER, "resnet") && may(a, RIGHT_INFER, "bert-") &&
                may(a, RIGHT_INFER, "bert-large") && may(a, RIGHT_DESCRIBE, "resnet"));
    assert_false(may(a, RIGHT_INFER, "resnet2") || may(a, RIGHT_INFER, "resne") ||
                 may(a, RIGHT_INFER, "bert") || may(a, RIGHT_INFER, "a-bert-"));
    assert_true(may(a, RIGHT_DESCRIBE, "")); /* whatever the model */
    assert_false(may(a, RIGHT_STATUS, "") || may(a, RIGHT_ADMIN, ""));
    assert_int_equal(identity_priority(a, 0), 2);
    assert_int_equal(identity_priority(a, 3), 3);
    assert_true(may(b, RIGHT_STATUS, ""));
    assert_false(may(b, RIGHT_INFER, "resnet") || may(b, RIGHT_DESCRIBE, "resnet"));
    assert_true(may(free_one, RIGHT_INFER, "anything") && may(free_one, RIGHT_DESCRIBE, "x"));
    assert_false(may(free_one, RIGHT_STATUS, ""));
    assert_int_equal(identity_priority(free_one, 0), 0);
    assert_true(identity_has_rights(b));
    identities_unref(all);
}

static void stars_in_patterns(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool fits;
    } cases[] = {
        {"*", "a", true},          {"a*", "a", true},       {"a*", "ab", true},
        {"a*", "ba", false},       {"*a", "ba", true},      {"*a", "ab", false},
        {"a*b", "ab", true},       {"a*b", "axxb", true},   {"a*b", "axxbx", false},
        {"a*b*c", "abbc", true},   {"a*b*c", "acb", false}, {"*aab*", "aaab", true},
        {"**", "a", true},         {"a**b", "ab", true},    {"*ab*ab", "abab", true},
        {"*ab*ab", "abxab", true}, {"*ab*ab", "ab", false}, {"x*x", "x", false},
        {"m.1", "m.1", true},      {"m.1", "mx1", false},   {"m", "M", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[256];
        snprintf(text, sizeof(text),
                 "identities: [{name: anonymous, rights: [infer], models: ['%s']}]",
                 cases[i].pattern);
        struct identities *all = make(text);
        if (may(identities_anonymous(all), RIGHT_INFER, cases[i].name) != cases[i].fits)
            fail_msg("'%s' and '%s'", cases[i].pattern, cases[i].name);
        identities_unref(all);
    }
}

static void rights_stand_in_one_place(void **state)
{
    (void)state;
    tokens_write("");
    refuse(ROWS, "line 4: expected rights behind the hash (infer, describe, status, memory, "
                 "admin), or an entry \"free\" in `identities`");
    tokens_write(" infer");
    refuse(ROWS "- {name: free, rights: [status]}\n",
           "line 4: expected no rights, as \"free\" has an entry in `identities`");
    refuse("tokens: TOKENS", "line 1: expected rights behind the hash");
    identities_unref(make(ROWS));

    FILE *f = fopen(path, "w");
    fprintf(f, "a sha256:%064d infer\na sha256:%064d status\n", 1, 2);
    fclose(f);
    refuse("tokens: TOKENS", "line 2: expected the same rights as on the other lines of \"a\"");
}

static void a_file_without_tokens_is_refused(void **state)
{
    (void)state;
    FILE *f = fopen(path, "w");
    fprintf(f, "# none yet\n");
    fclose(f);
    refuse("tokens: TOKENS", "expected at least one token (inferctl token makes one)");
    refuse("tokens: /nowhere/tokens", "/nowhere/tokens");
}

/* --- peers --- */

static const char *of_peer(const struct identities *all, uid_t uid, gid_t gid, gid_t more)
{
    static struct credentials peer;
    peer = (struct credentials){.known = true, .by_mode = true, .uid = uid, .gid = gid};
    if (more)
        peer.groups[peer.n_groups++] = more;
    return identity_name(identities_by_peer(all, &peer));
}

static void peers_by_user_and_group(void **state)
{
    (void)state;
    struct identities *all = make("identities:\n"
                                  "- {name: both, user: 1001, group: 2001, rights: [status]}\n"
                                  "- {name: user, user: 1001, rights: [status]}\n"
                                  "- {name: ops, user: root, rights: [status]}\n"
                                  "- {name: group, group: 2002, rights: [status]}\n");
    assert_true(identities_required(all));
    assert_string_equal(of_peer(all, 1001, 2001, 0), "both");
    assert_string_equal(of_peer(all, 1001, 5, 2001), "both");
    assert_string_equal(of_peer(all, 1001, 5, 0), "user");
    assert_string_equal(of_peer(all, 0, 0, 0), "ops");
    assert_string_equal(of_peer(all, 1002, 2002, 0), "group");
    assert_string_equal(of_peer(all, 1002, 5, 2002), "group");
    assert_string_equal(of_peer(all, 1002, 2001, 0), "anonymous");
    assert_string_equal(of_peer(all, 65534, 65534, 65534), "anonymous");
    struct credentials tcp = {.known = false, .uid = 1001, .gid = 2001};
    assert_string_equal(identity_name(identities_by_peer(all, &tcp)), "anonymous");
    assert_false(identity_has_rights(identities_anonymous(all)));
    assert_false(may(identities_anonymous(all), RIGHT_DESCRIBE, "m"));
    identities_unref(all);
}

static void without_such_entries_the_mode_decides(void **state)
{
    (void)state;
    tokens_write(" infer");
    struct identities *all = make(ROWS);
    struct credentials abstract = {.known = true, .by_mode = false};
    assert_string_equal(of_peer(all, 1001, 2001, 0), "local");
    assert_string_equal(identity_name(identities_by_peer(all, &abstract)), "anonymous");
    struct credentials tcp = {.known = false};
    assert_string_equal(identity_name(identities_by_peer(all, &tcp)), "anonymous");
    identities_unref(all);
}

static void users_and_groups_that_are_nobody(void **state)
{
    (void)state;
    refuse("identities: [{name: a, user: no-such-user, rights: [status]}]",
           "identity \"a\": expected a user of this machine or its number, got \"no-such-user\"");
    refuse("identities: [{name: a, group: no-such-group, rights: [status]}]",
           "expected a group of this machine or its number, got \"no-such-group\"");
    refuse("identities: [{name: a, user: 65534, rights: [status]}]",
           "stands for everybody who has no number here");
    refuse("identities: [{name: a, user: nobody, rights: [status]}]", "stands for everybody");
    refuse("identities: [{name: a, group: nogroup, rights: [status]}]", "stands for everybody");
    refuse("identities: [{name: a, user: 4294967295, rights: [status]}]", "expected a user");
}

static enum status charge(const struct identities *all, size_t which, uint64_t size,
                          struct identity_use **out)
{
    struct error err = {0};
    enum status s = identity_charge(of_token(all, which), size, out, &err);
    if (s != STATUS_OK)
        assert_string_equal(err.text, "'team-a' has as much in flight as it may have");
    return s;
}

#define LIMITED(limits)                                                                            \
    "tokens: TOKENS\n"                                                                             \
    "identities:\n"                                                                                \
    "- {name: team-a, rights: [status], " limits "}\n"                                             \
    "- {name: team-b, rights: [status]}\n"

static void limits_of_what_is_in_flight(void **state)
{
    (void)state;
    tokens_write(" infer");
    struct identities *all = make(LIMITED("requests: 3, bytes: 1KiB"));
    struct identity_use *a, *b, *none = (void *)path;
    assert_int_equal(charge(all, 2, 1 << 30, &none), STATUS_OK); /* identity team-b has no limits */
    assert_null(none);
    identity_use_give(none, 1 << 30);
    assert_int_equal(charge(all, 0, 5000, &a), STATUS_OK); /* the only request may be of any size */
    /* the identity's other token shares the limit */
    assert_int_equal(charge(all, 1, 1, &b), STATUS_RESOURCE_EXHAUSTED);
    identity_use_give(a, 5000);
    for (int i = 0; i < 3; i++)
        assert_int_equal(charge(all, 0, 100, &a), STATUS_OK);
    assert_int_equal(charge(all, 0, 100, &b), STATUS_RESOURCE_EXHAUSTED);
    identity_use_give(a, 100);
    assert_int_equal(charge(all, 0, 825, &b), STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(charge(all, 0, 824, &b), STATUS_OK);
    identity_use_give(b, 824);
    identity_use_give(a, 100);
    identity_use_give(a, 100);
    identities_unref(all);
}

static void limits_outlive_a_reload(void **state)
{
    (void)state;
    tokens_write(" infer");
    struct error err = {0};
    struct identities *first = make(LIMITED("requests: 2")), *second = NULL, *third = NULL;
    struct config *config = configure(LIMITED("requests: 1"));
    struct identity_use *one, *two, *more;
    assert_int_equal(charge(first, 0, 7, &one), STATUS_OK);
    assert_int_equal(charge(first, 0, 7, &two), STATUS_OK);
    assert_int_equal(identities_new(config, first, &second, &err), STATUS_OK);
    identities_unref(first);
    assert_int_equal(charge(second, 0, 7, &more), STATUS_RESOURCE_EXHAUSTED);
    identity_use_give(one, 7);
    /* the limit is 1 now */
    assert_int_equal(charge(second, 0, 7, &more), STATUS_RESOURCE_EXHAUSTED);
    config_free(config);
    config = configure(ROWS); /* there are no limits any more, and one request is still in flight */
    assert_int_equal(identities_new(config, second, &third, &err), STATUS_OK);
    identities_unref(second);
    identities_unref(third);
    identity_use_give(two, 7);
    config_free(config);
}

static void anonymous_has_what_its_entry_says(void **state)
{
    (void)state;
    struct identities *all = make("identities:\n"
                                  "- {name: anonymous, rights: [describe], models: ['open-*']}\n");
    const struct identity *nobody = identities_anonymous(all);
    assert_true(may(nobody, RIGHT_DESCRIBE, "open-1") && identity_has_rights(nobody));
    assert_false(may(nobody, RIGHT_DESCRIBE, "secret") || may(nobody, RIGHT_INFER, "open-1"));
    assert_string_equal(of_peer(all, 1001, 2001, 0), "local"); /* the socket's mode decides */
    identities_unref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_configured_is_open),
        cmocka_unit_test(r16_a_token_is_who_it_stands_for),
        cmocka_unit_test(r16_tokens_that_are_not_known),
        cmocka_unit_test(what_is_short_is_never_a_token),
        cmocka_unit_test(rights_models_and_priority),
        cmocka_unit_test(stars_in_patterns),
        cmocka_unit_test(rights_stand_in_one_place),
        cmocka_unit_test(a_file_without_tokens_is_refused),
        cmocka_unit_test(peers_by_user_and_group),
        cmocka_unit_test(without_such_entries_the_mode_decides),
        cmocka_unit_test(users_and_groups_that_are_nobody),
        cmocka_unit_test(limits_of_what_is_in_flight),
        cmocka_unit_test(limits_outlive_a_reload),
        cmocka_unit_test(anonymous_has_what_its_entry_says),
    };
    return cmocka_run_group_tests(tests, files_make, files_remove);
}
