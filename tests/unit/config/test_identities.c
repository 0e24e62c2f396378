/* SPDX-License-Identifier: Apache-2.0 */
/* The section `identities`: its values, and that a mistake grants nobody access. */
#include <stdio.h>
#include <string.h>

#include "base/right.h"
#include "config/config.h"
#include "tests/test.h"

static void refuse(const char *text, const char *expected)
{
    struct config *config = NULL;
    struct error err = {0};
    enum status status = config_parse("t.yaml", text, strlen(text), &config, &err);
    if (status != STATUS_INVALID_ARGUMENT)
        fail_msg("status %s for: %s", status_name(status), text);
    if (!strstr(err.text, expected))
        fail_msg("\"%s\" is not in \"%s\"", expected, err.text);
}

static void every_key(void **state)
{
    (void)state;
    static const char text[] = "tokens: inferd.tokens\n"
                               "listen: {insecure: true}\n"
                               "identities:\n"
                               "- name: team-a\n"
                               "  models: [resnet, 'bert-*', '*']\n"
                               "  rights: [infer, describe]\n"
                               "  priority: 1\n"
                               "- {name: ops, user: root, group: 0, rights: [status]}\n"
                               "- {name: anonymous, rights: [describe], models: [public-*]}\n";
    struct config *c = NULL;
    struct error err = {0};
    if (config_parse("t.yaml", text, strlen(text), &c, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_string_equal(c->tokens, "inferd.tokens");
    assert_true(c->listen.insecure);
    assert_int_equal(c->identities_count, 3);
    assert_string_equal(c->identities[0].name, "team-a");
    assert_int_equal(c->identities[0].models_count, 3);
    assert_string_equal(c->identities[0].models[1], "bert-*");
    assert_int_equal(c->identities[0].rights, RIGHT_BIT(RIGHT_INFER) | RIGHT_BIT(RIGHT_DESCRIBE));
    assert_int_equal(c->identities[0].priority, 1);
    assert_null(c->identities[0].user);
    assert_string_equal(c->identities[1].user, "root");
    assert_string_equal(c->identities[1].group, "0");
    assert_int_equal(c->identities[1].priority, 0);
    assert_int_equal(c->identities[1].rights, RIGHT_BIT(RIGHT_STATUS));
    assert_string_equal(c->identities[2].name, CONFIG_ANONYMOUS);
    config_free(c);
}

#define ROW "tokens: t\nidentities:\n- name: a\n"

static void mistakes_are_refused_with_their_place(void **state)
{
    (void)state;
    refuse("tokens: t\nidentities:\n- rights: [infer]\n", "identities[0].name: expected");
    refuse("tokens: t\nidentities:\n- {name: a b, rights: [status]}\n", "identities[0].name");
    refuse(ROW "  rights: [infer, all]\n  models: ['*']\n",
           "t.yaml:4: identities[0].rights[1]: expected one of infer, describe, status, memory, "
           "admin, got \"all\"");
    refuse(ROW "  rights: [status]\n  priority: 4\n",
           "t.yaml:5: identities[0].priority: expected a whole number from 0 to 3");
    refuse(ROW "  right: [status]\n", "t.yaml:4: identities[0].right: unknown key");
    refuse(ROW "  rights: [status]\n- {name: a, rights: [status]}\n",
           "identities[1].name: expected each name once (identities[0] has it too)");
    refuse("listen: {insecure: yes}\n", "listen.insecure: expected true or false, got \"yes\"");
    refuse("listen: {insecure: 1}\n", "listen.insecure: expected true or false, got \"1\"");
}

static void what_is_not_given_is_not_allowed(void **state)
{
    (void)state;
    refuse(ROW, "identities[0].rights: expected some of infer, describe, status, memory, admin");
    refuse(ROW "  rights: []\n  models: ['*']\n", "identities[0].rights: expected some of");
    refuse(ROW "  rights: [infer]\n", "identities[0].models: expected the models");
    refuse(ROW "  rights: [infer]\n  models: []\n", "identities[0].models: expected the models");
    refuse(ROW "  rights: [status, describe]\n", "identities[0].models: expected the models");
}

static void patterns_are_names_with_stars(void **state)
{
    (void)state;
    static const char *const wrong[] = {"''", "a/b", "'a b'", ".a", "a?", "'[a]'", "ä"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        char text[128];
        snprintf(text, sizeof(text), ROW "  rights: [infer]\n  models: [x, %s]\n", wrong[i]);
        refuse(text, "identities[0].models[1]: expected the name of a model");
    }
}

static void everybody_has_a_way_in(void **state)
{
    (void)state;
    refuse("identities:\n- {name: a, rights: [status]}\n",
           "identities[0].user: expected a user, a group, or tokens");
    refuse("identities:\n- {name: anonymous, rights: [status], user: root}\n",
           "identities[0].name: expected another name");
    refuse("identities:\n- {name: anonymous, rights: [status], group: root}\n",
           "identities[0].name: expected another name");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key),
        cmocka_unit_test(mistakes_are_refused_with_their_place),
        cmocka_unit_test(what_is_not_given_is_not_allowed),
        cmocka_unit_test(patterns_are_names_with_stars),
        cmocka_unit_test(everybody_has_a_way_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
