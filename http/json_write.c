/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON, see json.h. */
#include <inttypes.h>
#include <stdio.h>

#include "base/utf8.h"
#include "http/json.h"

void json_raw(struct json_writer *w, const char *text, size_t len)
{
    w->full |= len > (size_t)(w->end - w->at);
    if (w->full || !len)
        return;
    memcpy(w->at, text, len);
    w->at += len;
}

void json_text(struct json_writer *w, const char *text)
{
    json_raw(w, text, strlen(text));
}

static void escape(struct json_writer *w, unsigned char c)
{
    static const char names[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    char text[8];
    for (size_t i = 0; i + 1 < sizeof(names); i += 2)
        if ((unsigned char)names[i] == c) {
            json_raw(w, (const char[]){'\\', names[i + 1]}, 2);
            return;
        }
    snprintf(text, sizeof(text), "\\u%04x", c);
    json_text(w, text);
}

void json_string(struct json_writer *w, struct message_text text)
{
    size_t len = utf8_prefix(text.data, text.len, text.len), begin = 0;
    json_raw(w, "\"", 1);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f)
            continue;
        json_raw(w, text.data + begin, i - begin);
        escape(w, c);
        begin = i + 1;
    }
    if (begin < len)
        json_raw(w, text.data + begin, len - begin);
    json_raw(w, "\"", 1);
}

void json_uint(struct json_writer *w, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, value);
    json_text(w, text);
}

void json_int(struct json_writer *w, int64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, value);
    json_text(w, text);
}
