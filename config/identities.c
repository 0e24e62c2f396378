/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The section `identities`: who may do what.
 *
 * Whatever an entry does not name is not allowed. An entry without models may use none, and an
 * entry whose rights are of no use without models is refused: a list that lost its last model must
 * not open anything.
 */
#include "config/schema.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/right.h"

enum { RIGHTS_OF_MODELS = RIGHT_BIT(RIGHT_INFER) | RIGHT_BIT(RIGHT_DESCRIBE) };

static const char anonymous[] = CONFIG_ANONYMOUS;

static enum status read_rights(const struct raw_list *raw, const char *section, uint32_t *out,
                               struct report *report)
{
    for (uint32_t i = 0; i < raw->items_count; i++) {
        enum right right;
        char key[32];
        snprintf(key, sizeof(key), "rights[%" PRIu32 "]", i);
        if (!right_parse(raw->items[i], strlen(raw->items[i]), &right))
            return report_set(report, section, key, raw->items[i], "one of %s", right_names);
        *out |= RIGHT_BIT(right);
    }
    return STATUS_OK;
}

static enum status read_one(const struct raw_identity *raw, uint32_t index,
                            struct config_identity *out, struct report *report)
{
    char section[32];
    snprintf(section, sizeof(section), "identities[%" PRIu32 "].", index);
    TRY(fields_read(config_identity_fields, section, raw, out, report));
    TRY(read_rights(&raw->rights, section, &out->rights, report));
    if (!raw->models.items_count)
        return STATUS_OK;
    out->models = config_texts_copy(raw->models.items, raw->models.items_count);
    if (!out->models)
        return error_no_memory(report->err, "the configuration");
    out->models_count = raw->models.items_count;
    return STATUS_OK;
}

enum status config_identities_read(const struct raw_config *raw, struct config *config,
                                   struct report *report)
{
    if (!raw->identities_count)
        return STATUS_OK;
    config->identities = calloc(raw->identities_count, sizeof(*config->identities));
    if (!config->identities)
        return error_no_memory(report->err, "the configuration");
    config->identities_count = raw->identities_count;
    for (uint32_t i = 0; i < raw->identities_count; i++)
        TRY(read_one(&raw->identities[i], i, &config->identities[i], report));
    return STATUS_OK;
}

void config_identities_deinit(struct config *config)
{
    for (uint32_t i = 0; i < config->identities_count; i++) {
        struct config_identity *identity = &config->identities[i];
        free(identity->name);
        free(identity->user);
        free(identity->group);
        config_texts_free(identity->models, identity->models_count);
    }
    free(config->identities);
}

/* A model's name in which `*` stands for any characters. */
static bool is_pattern(const char *text)
{
    char name[CONFIG_NAME_MAX + 2];
    size_t len = strlen(text);
    if (len < 1 || len > CONFIG_NAME_MAX)
        return false;
    memcpy(name, text, len + 1);
    for (char *c = name; (c = strchr(c, '*'));)
        *c = 'x';
    return config_name_ok(name);
}

static enum status check_models(const struct config_identity *identity, const char *section,
                                struct report *report)
{
    for (uint32_t i = 0; i < identity->models_count; i++) {
        char key[32];
        snprintf(key, sizeof(key), "models[%" PRIu32 "]", i);
        if (!is_pattern(identity->models[i]))
            return report_set(report, section, key, identity->models[i],
                              "the name of a model, in which * stands for any characters");
    }
    if (identity->rights & RIGHTS_OF_MODELS && !identity->models_count)
        return report_set(report, section, "models", NULL,
                          "the models that it may use (\"*\": all)");
    return STATUS_OK;
}

/* Checks that a peer can become this identity at all: by a token, or by a user or group. */
static enum status check_way_in(const struct config *config, const struct config_identity *identity,
                                const char *section, struct report *report)
{
    bool nobody = strcmp(identity->name, anonymous) == 0;
    if (nobody && (identity->user || identity->group))
        return report_set(report, section, "name", identity->name,
                          "another name: this one is for who has shown nothing");
    if (!nobody && !identity->user && !identity->group && !config->tokens)
        return report_set(report, section, "user", NULL,
                          "a user, a group, or tokens: nobody could come to be this one");
    return STATUS_OK;
}

static enum status check_one(const struct config *config, uint32_t index, struct report *report)
{
    const struct config_identity *identity = &config->identities[index];
    char section[32];
    snprintf(section, sizeof(section), "identities[%" PRIu32 "].", index);
    if (!identity->name || !config_name_ok(identity->name))
        return report_set(report, section, "name", identity->name,
                          "1 to %d of A-Z a-z 0-9 . _ - and no leading dot", CONFIG_NAME_MAX);
    for (uint32_t i = 0; i < index; i++)
        if (strcmp(config->identities[i].name, identity->name) == 0)
            return report_set(report, section, "name", identity->name,
                              "each name once (identities[%" PRIu32 "] has it too)", i);
    TRY(fields_check(config_identity_fields, section, identity, report));
    if (!identity->rights)
        TRY(report_set(report, section, "rights", NULL, "some of %s", right_names));
    TRY(check_models(identity, section, report));
    return check_way_in(config, identity, section, report);
}

enum status config_identities_check(const struct config *config, struct report *report)
{
    for (uint32_t i = 0; i < config->identities_count; i++)
        TRY(check_one(config, i, report));
    return STATUS_OK;
}
