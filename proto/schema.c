/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds things in descriptions of files; see schema.h. The numbers are those of descriptor.proto
 * (https://github.com/protocolbuffers/protobuf), in which protoc describes files.
 */
#include "proto/schema.h"

#include <stdio.h>

#include "proto/wire.h"

enum {
    SET_FILE = 1,
    FILE_NAME = 1,
    FILE_PACKAGE = 2,
    FILE_MESSAGE = 4,
    FILE_ENUM = 5,
    FILE_SERVICE = 6,
    MESSAGE_NESTED = 3,
    MESSAGE_ENUM = 4,
    SERVICE_METHOD = 2,
    ANY_NAME = 1, /* of a message, an enumeration, a service, a method */
    DEPTH_MOST = 8,
};

static struct message_text text_of(struct wire value)
{
    return (struct message_text){(const char *)value.at, wire_left(&value)};
}

static struct message_text text_find(struct wire w, uint32_t number)
{
    struct wire_field field = {0};
    while (wire_next(&w, &field))
        if (field.number == number && field.type == WIRE_BYTES)
            return text_of(field.value);
    return (struct message_text){0};
}

/* What is left of `path` behind `head` and a dot; *is: they are equal. False: neither. */
static bool behind(struct message_text path, struct message_text head, struct message_text *rest,
                   bool *is)
{
    *is = message_text_equal(path, head);
    if (*is)
        return true;
    if (!head.len || path.len <= head.len || memcmp(path.data, head.data, head.len) != 0 ||
        path.data[head.len] != '.')
        return false;
    *rest = (struct message_text){path.data + head.len + 1, path.len - head.len - 1};
    return true;
}

/* Which fields of a container hold things that have names, and what these contain. */
struct container {
    uint32_t number;
    const struct container *within; /* ends with number 0; NULL: nothing that is asked for */
};
static const struct container in_service[] = {{SERVICE_METHOD, NULL}, {0, NULL}};
static const struct container in_message[] = {
    {MESSAGE_NESTED, in_message}, {MESSAGE_ENUM, NULL}, {0, NULL}};
static const struct container in_file[] = {
    {FILE_MESSAGE, in_message}, {FILE_ENUM, NULL}, {FILE_SERVICE, in_service}, {0, NULL}};

static bool holds(struct wire w, const struct container *kinds, struct message_text path, int depth)
{
    struct wire_field field = {0};
    while (kinds && depth < DEPTH_MOST && wire_next(&w, &field)) {
        const struct container *kind = kinds;
        while (kind->number && kind->number != field.number)
            kind++;
        struct message_text rest;
        bool is;
        if (!kind->number || field.type != WIRE_BYTES ||
            !behind(path, text_find(field.value, ANY_NAME), &rest, &is))
            continue;
        if (is || holds(field.value, kind->within, rest, depth + 1))
            return true;
    }
    return false;
}

struct message_text schema_file_named(struct message_text name)
{
    struct wire w = wire_of(schema_data, schema_data_size);
    struct wire_field field = {0};
    while (wire_next(&w, &field))
        if (field.number == SET_FILE && message_text_equal(text_find(field.value, FILE_NAME), name))
            return text_of(field.value);
    return (struct message_text){0};
}

struct message_text schema_file_of(struct message_text symbol)
{
    struct wire w = wire_of(schema_data, schema_data_size);
    struct wire_field field = {0};
    while (wire_next(&w, &field)) {
        struct message_text rest;
        bool is;
        if (field.number == SET_FILE &&
            behind(symbol, text_find(field.value, FILE_PACKAGE), &rest, &is) && !is &&
            holds(field.value, in_file, rest, 0))
            return text_of(field.value);
    }
    return (struct message_text){0};
}

bool schema_service(uint32_t number, char out[SCHEMA_NAME_MAX])
{
    struct wire set = wire_of(schema_data, schema_data_size);
    struct wire_field file = {0}, field = {0};
    while (wire_next(&set, &file)) {
        struct message_text package = text_find(file.value, FILE_PACKAGE);
        struct wire w = file.value;
        while (wire_next(&w, &field)) {
            if (field.number != FILE_SERVICE || number-- > 0)
                continue;
            struct message_text name = text_find(field.value, ANY_NAME);
            snprintf(out, SCHEMA_NAME_MAX, "%.*s.%.*s", MESSAGE_TEXT(package), MESSAGE_TEXT(name));
            return true;
        }
    }
    return false;
}
