/* SPDX-License-Identifier: Apache-2.0 */
/* Answers to server reflection, see schema.h; the numbers are those of reflection.proto.in. */
#include <pb_encode.h>

#include "proto/schema.h"
#include "proto/wire.h"

enum {
    ASKS_FILE = 3,
    ASKS_SYMBOL = 4,
    ASKS_EXTENSION = 5,
    ASKS_NUMBERS = 6,
    ASKS_SERVICES = 7,
    ORIGINAL = 2,
    ANSWER_FILE = 4,
    ANSWER_SERVICES = 6,
    ANSWER_ERROR = 7,
    FIRST = 1, /* the field of all these messages that matters */
    ERROR_MESSAGE = 2,
};

static bool bytes_put(pb_ostream_t *out, uint32_t number, struct message_text text)
{
    return pb_encode_tag(out, PB_WT_STRING, number) &&
           pb_encode_string(out, (const pb_byte_t *)text.data, text.len);
}

static bool file_write(pb_ostream_t *out, struct message_text file)
{
    return bytes_put(out, FIRST, file);
}

static bool services_write(pb_ostream_t *out)
{
    char name[SCHEMA_NAME_MAX];
    for (uint32_t i = 0; schema_service(i, name); i++) {
        pb_ostream_t size = PB_OSTREAM_SIZING;
        struct message_text text = message_text_of(name);
        if (!bytes_put(&size, FIRST, text) || !pb_encode_tag(out, PB_WT_STRING, FIRST) ||
            !pb_encode_varint(out, size.bytes_written) || !bytes_put(out, FIRST, text))
            return false;
    }
    return true;
}

static bool error_write(pb_ostream_t *out)
{
    return pb_encode_tag(out, PB_WT_VARINT, FIRST) && pb_encode_varint(out, STATUS_NOT_FOUND) &&
           bytes_put(out, ERROR_MESSAGE, message_text_of("there is nothing of that name"));
}

/* One of the three answers, of `which`. */
static bool answer_write(pb_ostream_t *out, uint32_t which, struct message_text file)
{
    return which == ANSWER_FILE       ? file_write(out, file)
           : which == ANSWER_SERVICES ? services_write(out)
                                      : error_write(out);
}

static bool response_write(pb_ostream_t *out, struct message_text request, uint32_t which,
                           struct message_text file)
{
    pb_ostream_t size = PB_OSTREAM_SIZING;
    return bytes_put(out, ORIGINAL, request) && answer_write(&size, which, file) &&
           pb_encode_tag(out, PB_WT_STRING, which) && pb_encode_varint(out, size.bytes_written) &&
           answer_write(out, which, file);
}

enum status schema_reflect(const void *request, size_t size, uint8_t *out, size_t *used,
                           struct error *err)
{
    struct wire w = wire_of(request, size);
    struct wire_field field = {0}, asked = {0};
    struct message_text file = {0};
    uint32_t which = ANSWER_ERROR;
    if (size > SCHEMA_REQUEST_MAX)
        return error_set(err, STATUS_INVALID_ARGUMENT, "a request of %zu bytes; at most %d", size,
                         SCHEMA_REQUEST_MAX);
    while (w.at < w.end) {
        if (!wire_next(&w, &field))
            return error_set(err, STATUS_INVALID_ARGUMENT, "malformed request");
        if (field.number >= ASKS_FILE && field.number <= ASKS_SERVICES && field.type == WIRE_BYTES)
            asked = field;
    }
    if (!asked.number)
        return error_set(err, STATUS_INVALID_ARGUMENT, "the request asks for nothing");
    const struct message_text name = {(const char *)asked.value.at, wire_left(&asked.value)};
    if (asked.number == ASKS_FILE)
        file = schema_file_named(name);
    else if (asked.number == ASKS_SYMBOL)
        file = schema_file_of(name);
    if (file.len)
        which = ANSWER_FILE;
    else if (asked.number == ASKS_SERVICES)
        which = ANSWER_SERVICES;
    pb_ostream_t stream = pb_ostream_from_buffer(out, SCHEMA_ANSWER_MAX);
    const struct message_text original = {request, size};
    if (!response_write(&stream, original, which, file))
        return error_set(err, STATUS_INTERNAL, "the description has no room");
    *used = stream.bytes_written;
    return STATUS_OK;
}
