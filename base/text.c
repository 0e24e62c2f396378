/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that grow; see text.h. */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { FIRST = 4096 };

void text_init(struct text *text, size_t most)
{
    *text = (struct text){.most = most};
}

void text_deinit(struct text *text)
{
    free(text->data);
    *text = (struct text){.failed = true};
}

/* Makes room for `size` bytes behind what there is. */
static bool reserve(struct text *text, size_t size)
{
    if (text->failed)
        return false;
    if (size > text->most - text->len)
        return !(text->failed = true);
    if (text->len + size <= text->capacity)
        return true;
    size_t wanted = MIN(MAX(MAX(2 * text->capacity, text->len + size), (size_t)FIRST), text->most);
    char *grown = realloc(text->data, wanted);
    if (!grown)
        return !(text->failed = true);
    text->data = grown;
    text->capacity = wanted;
    return true;
}

void text_bytes(struct text *text, const void *data, size_t size)
{
    if (!size || !reserve(text, size))
        return;
    memcpy(text->data + text->len, data, size);
    text->len += size;
}

void text_put(struct text *text, const char *string)
{
    text_bytes(text, string, strlen(string));
}

void text_printf(struct text *text, const char *fmt, ...)
{
    char line[1024];
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    if (len < 0 || (size_t)len >= sizeof(line))
        text->failed = true;
    else
        text_bytes(text, line, (size_t)len);
}

void text_html(struct text *text, const char *string)
{
    static const char special[] = "&<>\"'";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    while (*string) {
        size_t plain = strcspn(string, special);
        text_bytes(text, string, plain);
        string += plain;
        if (*string)
            text_put(text, names[strchr(special, *string++) - special]);
    }
}

void text_label(struct text *text, const char *string)
{
    while (*string) {
        size_t plain = strcspn(string, "\\\"\n");
        text_bytes(text, string, plain);
        string += plain;
        if (*string)
            text_put(text, *string == '\n' ? "\\n" : *string == '"' ? "\\\"" : "\\\\");
        string += *string != '\0';
    }
}

void text_json(struct text *text, const char *string)
{
    size_t left = strlen(string);
    while (left) {
        unsigned char c = (unsigned char)*string;
        size_t n = 1;
        if (c == '"' || c == '\\') {
            text_printf(text, "\\%c", c);
        } else if (c < 0x20 || c == 0x7f) {
            text_printf(text, "\\u%04x", c);
        } else if (c < 0x80) {
            text_bytes(text, string, 1);
        } else {
            n = utf8_char(string, left);
            if (n)
                text_bytes(text, string, n);
            else
                text_put(text, "\\ufffd");
            n += !n;
        }
        string += n;
        left -= n;
    }
}
