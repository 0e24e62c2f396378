/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Has the YAML schema for libcyaml, and turns its complaints into one line with file, line and key.
 *
 * libcyaml reports through a log callback: first what is wrong, then a backtrace from the innermost
 * place outwards with line numbers. Aliases, duplicate keys, unknown keys, second documents and
 * structures of the wrong kind are refused here; values are converted in field.c.
 */
#include "config/schema.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cyaml/cyaml.h>

#include "base/names.h"

#define OPTIONAL (CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER_NULL_STR)

#define TEXT_FIELD(owner, member)                                                                  \
    CYAML_FIELD_STRING_PTR(#member, OPTIONAL, struct owner, member, 0, CONFIG_TEXT_MAX),
#define SERVER_SCHEMA(member, kind, least, most)   TEXT_FIELD(raw_config, member)
#define IDENTITY_SCHEMA(member, kind, least, most) TEXT_FIELD(raw_identity, member)
#define MODEL_SCHEMA(member, kind, least, most)    TEXT_FIELD(raw_model, member)
#define INPUT_SCHEMA(member, kind, least, most)    TEXT_FIELD(raw_input, member)
#define LIMIT_SCHEMA(member, kind, least, most)    TEXT_FIELD(raw_limits, member)

/* A sequence whose struct raw_list is `member` of `owner`. */
#define LIST_FIELD(name, owner, member, most)                                                      \
    {                                                                                              \
        .key = (name),                                                                             \
        .data_offset = offsetof(struct owner, member) + offsetof(struct raw_list, items),          \
        .count_offset = offsetof(struct owner, member) + offsetof(struct raw_list, items_count),   \
        .count_size = sizeof(uint32_t),                                                            \
        .value = {CYAML_VALUE_SEQUENCE(OPTIONAL, char *, &text_schema, 0, most)},                  \
    }

#define DOOR_SCHEMA(name) LIST_FIELD(#name, raw_config, doors[DOOR_##name], CONFIG_LISTEN_MAX),

static const cyaml_schema_value_t text_schema = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char *, 0, CONFIG_TEXT_MAX)};

static const cyaml_schema_field_t input_schema_fields[] = {
    CONFIG_INPUT_FIELDS(INPUT_SCHEMA) /**/
    LIST_FIELD("scale", raw_input, scale, CONFIG_NUMBERS_MAX),
    LIST_FIELD("bias", raw_input, bias, CONFIG_NUMBERS_MAX),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t input_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct raw_input, input_schema_fields)};

static const cyaml_schema_field_t model_schema_fields[] = {
    CONFIG_MODEL_FIELDS(MODEL_SCHEMA) /**/
    LIST_FIELD("preferred", raw_model, preferred, CONFIG_PREFERRED_MAX),
    LIST_FIELD("batches", raw_model, batches, CONFIG_BATCHES_MAX),
    LIST_FIELD("dims", raw_model, dims, CONFIG_SIZES_MAX),
    LIST_FIELD("shapes", raw_model, shapes, CONFIG_SIZES_MAX),
    LIST_FIELD("profiles", raw_model, profiles, CONFIG_SIZES_MAX),
    LIST_FIELD("values", raw_model, values, CONFIG_SIZES_MAX),
    LIST_FIELD("ragged", raw_model, ragged, CONFIG_SIZES_MAX),
    LIST_FIELD("output_types", raw_model, output_types, CONFIG_SIZES_MAX),
    LIST_FIELD("pin", raw_model, pin, CONFIG_SIZES_MAX),
    LIST_FIELD("keep", raw_model, keep, CONFIG_SIZES_MAX),
    CYAML_FIELD_SEQUENCE("inputs", OPTIONAL, struct raw_model, inputs, &input_schema, 0,
                         CONFIG_INPUTS_MAX),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t model_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct raw_model, model_schema_fields)};

static const cyaml_schema_field_t identity_schema_fields[] = {
    CONFIG_IDENTITY_FIELDS(IDENTITY_SCHEMA) /**/
    LIST_FIELD("models", raw_identity, models, CONFIG_PATTERNS_MAX),
    LIST_FIELD("rights", raw_identity, rights, CONFIG_RIGHTS_MAX),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t identity_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct raw_identity, identity_schema_fields)};

static const cyaml_schema_field_t limits_schema_fields[] = {
    CONFIG_LIMIT_FIELDS(LIMIT_SCHEMA) /**/
    CYAML_FIELD_END,
};

static const cyaml_schema_field_t listen_schema_fields[] = {
    CONFIG_LISTEN_FIELDS(SERVER_SCHEMA) /**/
    CONFIG_DOORS(DOOR_SCHEMA)           /**/
    LIST_FIELD("tls", raw_config, tls, CONFIG_DOOR_COUNT_),
    CYAML_FIELD_END,
};

static const cyaml_schema_field_t server_schema_fields[] = {
    CONFIG_SERVER_FIELDS(SERVER_SCHEMA) /**/
    {
        .key = "listen", /* its keys lie in struct raw_config itself */
        .data_offset = 0,
        .value = {CYAML_VALUE_MAPPING(CYAML_FLAG_OPTIONAL, struct raw_config,
                                      listen_schema_fields)},
    },
    LIST_FIELD("plugins", raw_config, plugins, CONFIG_PLUGINS_MAX),
    LIST_FIELD("repository_load", raw_config, repository_load, CONFIG_MODELS_MAX),
    CYAML_FIELD_SEQUENCE("models", OPTIONAL, struct raw_config, models, &model_schema, 0,
                         CONFIG_MODELS_MAX),
    CYAML_FIELD_SEQUENCE("identities", OPTIONAL, struct raw_config, identities, &identity_schema, 0,
                         CONFIG_IDENTITIES_MAX),
    CYAML_FIELD_MAPPING("limits", CYAML_FLAG_OPTIONAL, struct raw_config, limits,
                        limits_schema_fields),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t server_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct raw_config, server_schema_fields)};

/* What libcyaml reported: its first message, and the path of the place ("models[2]"). It tells the
 * place, and which key it does not know, nowhere but in the lines of its log. */
struct complaint {
    char what[256];
    char where[128];
};

#define SEQUENCE_STEP "  in sequence entry '"

/* Each step of the backtrace is put in front, as it goes from the innermost place outwards. */
static void place_add(struct complaint *complaint, const char *text)
{
    char step[80], whole[sizeof(complaint->where) + sizeof(step)];
    char field[64];
    size_t skip = sizeof(SEQUENCE_STEP) - 1;
    unsigned long entry = strncmp(text, SEQUENCE_STEP, skip) ? 0 : strtoul(text + skip, NULL, 10);
    if (entry > 0)
        snprintf(step, sizeof(step), "[%lu]", entry - 1);
    else if (sscanf(text, "  in mapping field '%63[^']'", field) == 1)
        snprintf(step, sizeof(step), "%s", field);
    else
        return;
    const char *dot = complaint->where[0] && complaint->where[0] != '[' ? "." : "";
    snprintf(whole, sizeof(whole), "%s%s%s", step, dot, complaint->where);
    snprintf(complaint->where, sizeof(complaint->where), "%.*s", (int)sizeof(complaint->where) - 1,
             whole);
}

static void complaint_add(cyaml_log_t level UNUSED, void *user, const char *fmt, va_list args)
{
    struct complaint *complaint = user;
    char text[512];
    vsnprintf(text, sizeof(text), fmt, args);
    text[strcspn(text, "\n")] = '\0';
    if (strncmp(text, "  in ", 5) == 0) {
        place_add(complaint, text);
    } else if (complaint->what[0] == '\0' && !strstr(text, "Backtrace")) {
        const char *said = strncmp(text, "Load: ", 6) == 0 ? text + 6 : text;
        snprintf(complaint->what, sizeof(complaint->what), "%.200s", said);
    }
}

/* The field that `text` names, up to a dot or bracket; NULL: there is none. */
static const cyaml_schema_field_t *field_at(const cyaml_schema_field_t *fields, const char *text)
{
    size_t len = strcspn(text, ".[");
    for (; fields->key; fields++)
        if (strlen(fields->key) == len && strncmp(fields->key, text, len) == 0)
            return fields;
    return NULL;
}

/* The fields of the mapping at a place such as "models[0].inputs[1]"; NULL: it is none. */
static const cyaml_schema_field_t *fields_of(const char *where)
{
    const cyaml_schema_value_t *value = &server_schema;
    while (*where && value->type == CYAML_MAPPING) {
        const cyaml_schema_field_t *field = field_at(value->mapping.fields, where);
        if (!field)
            return NULL;
        value = &field->value;
        where += strcspn(where, ".[");
        if (*where == '[' && value->type == CYAML_SEQUENCE)
            value = value->sequence.entry;
        where += strcspn(where, ".");
        where += *where == '.';
    }
    return value->type == CYAML_MAPPING ? value->mapping.fields : NULL;
}

/* "unknown key", and the one that was probably meant. */
static void unknown_key(const char *where, const char *key, char *out, size_t size)
{
    struct names names;
    const cyaml_schema_field_t *fields = fields_of(where);
    names_init(&names, key, strlen(key));
    for (; fields && fields->key; fields++)
        names_add(&names, fields->key);
    snprintf(out, size, "unknown key%s; inferd.yaml(5) lists all", names_hint(&names));
}

static enum status refuse(const char *name, const void *data, size_t size,
                          const struct complaint *complaint, cyaml_err_t code, struct error *err)
{
    const char *what = complaint->what[0] ? complaint->what : cyaml_strerror(code);
    const char *unknown = code == CYAML_ERR_INVALID_KEY ? strstr(what, "key: ") : NULL;
    char key[400], why[160];
    snprintf(key, sizeof(key), "%s%s%s", complaint->where,
             unknown && complaint->where[0] ? "." : "", unknown ? unknown + 5 : "");
    if (unknown) {
        unknown_key(complaint->where, unknown + 5, why, sizeof(why));
        what = why;
    }

    bool is_yaml = code != CYAML_ERR_LIBYAML_PARSER;
    size_t line = schema_line(data, size, is_yaml ? key : NULL);
    error_set(err, STATUS_INVALID_ARGUMENT, "%s%s%s", key, key[0] ? ": " : "", what);
    if (line > 0)
        error_prefix(err, "%s:%zu", name, line);
    else
        error_prefix(err, "%s", name);
    return STATUS_INVALID_ARGUMENT;
}

static cyaml_config_t cyaml_settings(struct complaint *complaint)
{
    return (cyaml_config_t){
        .log_fn = complaint ? complaint_add : NULL,
        .log_ctx = complaint,
        .mem_fn = cyaml_mem,
        .log_level = CYAML_LOG_WARNING,
        .flags = CYAML_CFG_NO_ALIAS,
    };
}

enum status schema_load(const char *name, const void *data, size_t size, struct raw_config **out,
                        struct error *err)
{
    struct complaint complaint = {0};
    cyaml_config_t settings = cyaml_settings(&complaint);
    cyaml_data_t *loaded = NULL;
    if (size == 0) {
        *out = NULL;
        return STATUS_OK;
    }
    cyaml_err_t code = cyaml_load_data(data, size, &settings, &server_schema, &loaded, NULL);
    if (code == CYAML_ERR_OOM)
        return error_no_memory(err, "%s", name);
    if (code != CYAML_OK)
        return refuse(name, data, size, &complaint, code, err);
    if (complaint.what[0]) { /* a warning: documents behind the first would be ignored */
        schema_free((struct raw_config *)loaded);
        return refuse(name, data, size, &complaint, CYAML_ERR_UNEXPECTED_EVENT, err);
    }
    *out = (struct raw_config *)loaded;
    return STATUS_OK;
}

void schema_free(struct raw_config *raw)
{
    cyaml_config_t settings = cyaml_settings(NULL);
    if (raw)
        cyaml_free(&settings, &server_schema, raw, 0);
}
