/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the token of a request of which only the beginning has come; see request.h. This walks the
 * few fields in front of the body by hand, because the decoder needs whole messages.
 */
#include "proto/request.h"

enum { FIELDS_MOST = 16, BYTES_MOST = 2048, TAG_TOKEN = 4, WIRE_VARINT = 0, WIRE_BYTES = 2 };

struct walk {
    const uint8_t *data;
    size_t at, size;
};

/* False if the varint continues beyond the bytes that are there, or is malformed; in the second
 * case `at` stops before the end. */
static bool varint_take(struct walk *w, uint64_t *out)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && w->at < w->size; shift += 7) {
        uint8_t byte = w->data[w->at++];
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *out = value;
            return true;
        }
    }
    return false;
}

/* Steps over one field, and sets `*token` if it is the token. FOUND means that the whole field was
 * there, whichever it was. */
static enum request_token field_pass(struct walk *w, struct message_text *token)
{
    uint64_t tag, value;
    if (!varint_take(w, &tag))
        return w->at == w->size ? REQUEST_TOKEN_MORE : REQUEST_TOKEN_NONE;
    unsigned wire = tag & 7;
    if (tag >> 3 >= REQUEST_INFER || (wire != WIRE_VARINT && wire != WIRE_BYTES))
        return REQUEST_TOKEN_NONE;
    if (!varint_take(w, &value))
        return w->at == w->size ? REQUEST_TOKEN_MORE : REQUEST_TOKEN_NONE;
    if (wire == WIRE_VARINT)
        return REQUEST_TOKEN_FOUND;
    if (value > MESSAGE_MAX_TOKEN)
        return REQUEST_TOKEN_NONE;
    if (value > w->size - w->at)
        return REQUEST_TOKEN_MORE;
    if (tag >> 3 == TAG_TOKEN)
        *token = (struct message_text){(const char *)w->data + w->at, (size_t)value};
    w->at += (size_t)value;
    return REQUEST_TOKEN_FOUND;
}

enum request_token request_token_find(const void *message, size_t size, struct message_text *out)
{
    struct walk w = {.data = message, .size = MIN(size, (size_t)BYTES_MOST)};
    struct message_text token = {0};
    enum request_token state = REQUEST_TOKEN_FOUND;
    for (int i = 0; i < FIELDS_MOST && state == REQUEST_TOKEN_FOUND; i++) {
        state = field_pass(&w, &token);
        if (token.len) {
            *out = token;
            return REQUEST_TOKEN_FOUND;
        }
    }
    return state == REQUEST_TOKEN_MORE && size < BYTES_MOST ? REQUEST_TOKEN_MORE
                                                            : REQUEST_TOKEN_NONE;
}
