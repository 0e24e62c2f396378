/* SPDX-License-Identifier: Apache-2.0 */
/* Every kind of request against every kind of peer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "daemon/permit.h"
#include "tests/test.h"

enum { NOBODY, TEAM, OPS, WRONG, PEERS };

/* NOBODY has an empty token, and the token of WRONG is in no file */
static char tokens[PEERS][TOKEN_TEXT + 1];
static char path[] = "/tmp/test_permit_XXXXXX";
static struct identities *all;

static struct identities *make(const char *text)
{
    struct config *config = NULL;
    struct identities *made = NULL;
    struct error err = {0};
    if (config_parse("t", text, strlen(text), &config, &err) ||
        identities_new(config, NULL, &made, &err))
        fail_msg("%s", err.text);
    config_free(config);
    return made;
}

static int setup(void **state)
{
    (void)state;
    char text[512];
    int fd = mkstemp(path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f)
        return -1;
    for (int i = TEAM; i < PEERS; i++) {
        struct token_hash hash;
        char hex[TOKEN_HASH_TEXT + 1];
        if (token_new(tokens[i], NULL) || !token_hash_of(tokens[i], TOKEN_TEXT, &hash))
            return -1;
        token_hash_format(&hash, hex);
        if (i != WRONG)
            fprintf(f, "%s %s\n", i == TEAM ? "team" : "ops", hex);
    }
    fclose(f);
    snprintf(text, sizeof(text),
             "tokens: %s\n"
             "identities:\n"
             "- {name: team, models: [mine-*], rights: [infer, describe]}\n"
             "- {name: ops, rights: [status]}\n",
             path);
    all = make(text);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    identities_unref(all);
    return unlink(path);
}

static enum status ask(struct identities *now, int peer, enum request_kind kind, const char *model,
                       struct error *err)
{
    static struct request request;
    const struct identity *who = NULL;
    struct caller caller = {0};
    request.kind = kind;
    request.model = message_text_of(model);
    request.token = message_text_of(tokens[peer]);
    enum status s = permit_request(&caller, now, -1, &request, &who, err);
    assert_int_equal(who != NULL, s == STATUS_OK);
    caller_deinit(&caller);
    return s;
}

static void r16_who_may_ask_what(void **state)
{
    (void)state;
    enum { OK = STATUS_OK, DENIED = STATUS_PERMISSION_DENIED, WHO = STATUS_UNAUTHENTICATED };
    static const struct {
        enum request_kind kind;
        const char *model;
        int answer[PEERS]; /* nobody, team, ops, a wrong token */
    } cases[] = {
        {REQUEST_SERVER_LIVE, "", {OK, OK, OK, OK}},
        {REQUEST_SERVER_READY, "", {OK, OK, OK, OK}},
        {REQUEST_CANCEL, "", {OK, OK, OK, OK}},
        {REQUEST_INFER, "mine-1", {WHO, OK, DENIED, WHO}},
        {REQUEST_INFER, "other", {WHO, DENIED, DENIED, WHO}},
        {REQUEST_MODEL_READY, "mine-1", {WHO, OK, DENIED, WHO}},
        {REQUEST_MODEL_READY, "other", {WHO, DENIED, DENIED, WHO}},
        {REQUEST_SERVER_METADATA, "", {WHO, OK, DENIED, WHO}},
        {REQUEST_MODEL_METADATA, "mine-1", {WHO, OK, DENIED, WHO}},
        {REQUEST_MODEL_METADATA, "other", {WHO, DENIED, DENIED, WHO}},
        {REQUEST_STATISTICS, "mine-1", {WHO, OK, DENIED, WHO}},
        {REQUEST_STATISTICS, "other", {WHO, DENIED, DENIED, WHO}},
        {REQUEST_STATISTICS, "", {WHO, DENIED, OK, WHO}},
        {REQUEST_REPOSITORY_INDEX, "", {WHO, DENIED, OK, WHO}},
        {REQUEST_SERVER_STATUS, "", {WHO, DENIED, OK, WHO}},
        {(enum request_kind)77, "mine-1", {WHO, DENIED, DENIED, WHO}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (int peer = 0; peer < PEERS; peer++) {
            struct error err = {0};
            int got = (int)ask(all, peer, cases[i].kind, cases[i].model, &err);
            if (got != cases[i].answer[peer])
                fail_msg("case %zu, peer %d: %s \"%s\"", i, peer, status_name((enum status)got),
                         err.text);
            if (got != OK)
                assert_true(err.text[0]);
        }
}

static void every_kind_has_a_row(void **state)
{
    (void)state;
    struct identities *open = make("");
    for (int kind = REQUEST_INFER; kind <= REQUEST_SERVER_STATUS; kind++)
        assert_int_equal(ask(open, NOBODY, (enum request_kind)kind, "m", NULL), STATUS_OK);
    /* without identities a token means nothing */
    assert_int_equal(ask(open, WRONG, REQUEST_INFER, "m", NULL), STATUS_OK);
    assert_int_equal(ask(open, NOBODY, (enum request_kind)77, "m", NULL), STATUS_PERMISSION_DENIED);
    identities_unref(open);
}

static void texts_do_not_tell_models_apart(void **state)
{
    (void)state;
    struct error err = {0};
    ask(all, NOBODY, REQUEST_INFER, "mine-1", &err);
    assert_string_equal(err.text, "inferences of model 'mine-1': a token is needed for this");
    ask(all, TEAM, REQUEST_INFER, "other", &err);
    assert_string_equal(
        err.text, "inferences of model 'other': 'team' lacks the right 'infer' to this model");
    ask(all, TEAM, REQUEST_SERVER_STATUS, "", &err);
    assert_string_equal(err.text, "the server's status: 'team' lacks the right 'status'");
    ask(all, WRONG, REQUEST_INFER, "mine-1", &err);
    assert_string_equal(err.text, "the token is not known");
}

static void a_refusal_is_news_once(void **state)
{
    (void)state;
    static struct request request;
    const struct identity *who;
    struct caller caller = {0};
    enum status s;
    for (int peer = NOBODY; peer <= TEAM; peer++)
        for (int again = 0; again < 2; again++) {
            request.kind = REQUEST_SERVER_STATUS;
            request.token = message_text_of(tokens[peer]);
            s = permit_request(&caller, all, -1, &request, &who, NULL);
            assert_int_equal(permit_refusal_is_news(&caller, all, &request, s), !again);
            request.kind = REQUEST_INFER;
            request.model = message_text_of("other");
            s = permit_request(&caller, all, -1, &request, &who, NULL);
            assert_int_equal(permit_refusal_is_news(&caller, all, &request, s), !again);
        }
    /* a peer with an unknown token counts as anonymous here */
    request.token = message_text_of(tokens[WRONG]);
    s = permit_request(&caller, all, -1, &request, &who, NULL);
    assert_int_equal(s, STATUS_UNAUTHENTICATED);
    assert_false(permit_refusal_is_news(&caller, all, &request, s));
    caller_deinit(&caller);
}

/* Field 4, behind an id. */
static size_t message_make(uint8_t *out, const char *token)
{
    size_t len = strlen(token), n = 0;
    out[n++] = 1 << 3;
    out[n++] = 7;
    out[n++] = 4 << 3 | 2;
    out[n++] = (uint8_t)len;
    memcpy(out + n, token, len);
    n += len;
    out[n++] = 10 << 3 | 2; /* the body begins */
    out[n++] = 0x80;
    return n;
}

static void a_large_message_shows_its_token_first(void **state)
{
    (void)state;
    uint8_t message[256];
    struct error err = {0};
    struct caller caller = {0};
    size_t size = message_make(message, tokens[TEAM]);
    for (size_t n = 0; n < size - 2; n++)
        assert_int_equal(permit_large(&caller, all, -1, message, n, &err), STATUS_UNAVAILABLE);
    assert_true(caller_is_stranger(&caller, all, -1));
    assert_int_equal(permit_large(&caller, all, -1, message, size, &err), STATUS_OK);
    assert_false(caller_is_stranger(&caller, all, -1));
    caller_deinit(&caller);

    caller = (struct caller){0};
    size = message_make(message, tokens[WRONG]);
    assert_int_equal(permit_large(&caller, all, -1, message, size, &err), STATUS_UNAUTHENTICATED);
    assert_int_equal(caller.refused, 1);
    size = message_make(message, ""); /* the body comes, and there was no token */
    assert_int_equal(permit_large(&caller, all, -1, message, size, &err), STATUS_UNAUTHENTICATED);
    assert_non_null(strstr(err.text, "the token stands before the body"));
    caller_deinit(&caller);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(r16_who_may_ask_what),
        cmocka_unit_test(every_kind_has_a_row),
        cmocka_unit_test(texts_do_not_tell_models_apart),
        cmocka_unit_test(a_refusal_is_news_once),
        cmocka_unit_test(a_large_message_shows_its_token_first),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
