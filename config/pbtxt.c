/* SPDX-License-Identifier: Apache-2.0 */
/* A recursive descent over the text, see pbtxt.h; PBTXT_DEPTH_MAX bounds its stack. */
#include "config/pbtxt.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/hex.h"
#include "base/utf8.h"

enum { GOT_MAX = 40 };

struct reader {
    const char *name;
    const char *at, *end;
    size_t line;
    uint32_t fields;
    struct arena *arena;
    struct error *err;
};

static enum status message_read(struct reader *r, struct pbtxt_field *message, char close,
                                uint32_t depth);

/* --- characters --- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char peek(const struct reader *r)
{
    return r->at < r->end ? *r->at : '\0';
}

static void blanks_skip(struct reader *r)
{
    for (; r->at < r->end; r->at++) {
        if (*r->at == '#')
            while (r->at + 1 < r->end && r->at[1] != '\n')
                r->at++;
        else if (*r->at == '\n')
            r->line++;
        else if (!strchr(" \t\r\v\f", *r->at) || !*r->at)
            return;
    }
}

static bool took(struct reader *r, char c)
{
    blanks_skip(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static enum status refuse(struct reader *r, const char *expected)
{
    char got[GOT_MAX];
    size_t len = MIN((size_t)(r->end - r->at), sizeof(got) - 1);
    snprintf(got, sizeof(got), "%.*s", (int)len, r->at);
    got[strcspn(got, "\r\n")] = '\0';
    if (r->at == r->end)
        return error_set(r->err, STATUS_INVALID_ARGUMENT, "%s:%zu: expected %s, got the end",
                         r->name, r->line, expected);
    return error_set(r->err, STATUS_INVALID_ARGUMENT, "%s:%zu: expected %s, got \"%s\"", r->name,
                     r->line, expected, got);
}

static enum status no_memory(const struct reader *r)
{
    return error_no_memory(r->err, "%s: it may take a few MiB when read", r->name);
}

/* --- strings --- */

/* Reads at most `most` digits of a base; false: there are fewer than `least`. */
static bool digits_read(struct reader *r, int base, int least, int most, uint32_t *out)
{
    uint32_t n = 0;
    int count = 0;
    for (; count < most && r->at < r->end; count++, r->at++) {
        int digit = hex_value(*r->at);
        if (digit < 0 || digit >= base)
            break;
        n = n * (uint32_t)base + (uint32_t)digit;
    }
    *out = n;
    return count >= least;
}

static size_t utf8_put(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(lead[n] | c);
    return n;
}

/* What stands behind a backslash; *n bytes of `out`. */
static bool escape_read(struct reader *r, char out[4], size_t *n)
{
    static const char letters[] = "abfnrtv\\?'\"", bytes[] = "\a\b\f\n\r\t\v\\?'\"";
    char c = peek(r);
    const char *at = c ? strchr(letters, c) : NULL;
    uint32_t code = 0;
    bool ok = true;
    *n = 1;
    if (at) {
        out[0] = bytes[at - letters];
        r->at++;
        return true;
    }
    if (c >= '0' && c <= '7') {
        digits_read(r, 8, 1, 3, &code);
        out[0] = (char)code;
        return code > 0 && code <= 255;
    }
    r->at += r->at < r->end;
    switch (c) {
    case 'x':
    case 'X':
        ok = digits_read(r, 16, 1, 2, &code);
        out[0] = (char)code;
        break;
    case 'u':
        ok = digits_read(r, 16, 4, 4, &code);
        *n = utf8_put(code, out);
        break;
    case 'U':
        ok = digits_read(r, 16, 8, 8, &code) && code <= 0x10ffff;
        *n = ok ? utf8_put(code, out) : 0;
        break;
    default:
        return false;
    }
    return ok && code > 0;
}

/* One quoted string into `out`, which has room for all the bytes up to the text's end. */
static enum status quoted_read(struct reader *r, char *out, size_t *len)
{
    char quote = *r->at++;
    for (;;) {
        char c = peek(r);
        size_t n = 1;
        if (r->at == r->end || c == '\n' || c == '\0')
            return refuse(r, "the end of a string");
        r->at++;
        if (c == quote)
            return STATUS_OK;
        out[*len] = c;
        if (c == '\\') {
            const char *start = r->at - 1;
            char bytes[4];
            if (!escape_read(r, bytes, &n)) {
                r->at = start;
                return refuse(r, "an escape sequence for a byte that is not 0");
            }
            memcpy(out + *len, bytes, n);
        }
        *len += n;
    }
}

/* The length of a string as it is written, quotes and all; no fewer than its bytes. */
static size_t quoted_length(const struct reader *r)
{
    const char *at = r->at + 1;
    while (at < r->end && *at != *r->at && *at != '\n')
        at += *at == '\\' && at + 1 < r->end ? 2 : 1;
    return (size_t)(at - r->at);
}

/* Strings that stand beside each other are one. */
static enum status string_read(struct reader *r, struct pbtxt_field *field)
{
    char *whole = NULL;
    size_t len = 0;
    for (; peek(r) == '"' || peek(r) == '\''; blanks_skip(r)) {
        char *grown = arena_alloc(r->arena, len + quoted_length(r) + 1);
        if (!grown)
            return no_memory(r);
        if (len)
            memcpy(grown, whole, len);
        whole = grown;
        TRY(quoted_read(r, whole, &len));
        whole[len] = '\0';
    }
    if (!utf8_ok(whole, len))
        return refuse(r, "a string of UTF-8 before this");
    field->kind = PBTXT_STRING;
    field->spelling = whole;
    return STATUS_OK;
}

/* --- other scalars --- */

static size_t word_length(const struct reader *r)
{
    size_t n = 0;
    while (r->at + n < r->end && (is_letter(r->at[n]) || is_digit(r->at[n])))
        n++;
    return n;
}

/* 1, 0x1f, -2.5e-3f: letters and digits, points, and signs behind an exponent's "e". */
static size_t number_length(const struct reader *r)
{
    size_t n = 0;
    bool hex = r->end - r->at > 1 && r->at[0] == '0' && (r->at[1] | 0x20) == 'x';
    for (; r->at + n < r->end; n++) {
        char c = r->at[n];
        bool sign = (c == '-' || c == '+') && n > 0 && !hex && (r->at[n - 1] | 0x20) == 'e';
        if (!is_letter(c) && !is_digit(c) && c != '.' && !sign)
            break;
    }
    return n;
}

static enum status plain_read(struct reader *r, struct pbtxt_field *field)
{
    bool negative = took(r, '-');
    blanks_skip(r);
    bool number = is_digit(peek(r)) || peek(r) == '.';
    size_t len = number ? number_length(r) : word_length(r);
    if (!len)
        return refuse(r, "a value");
    char *text = arena_alloc(r->arena, len + 2);
    if (!text)
        return no_memory(r);
    text[0] = '-';
    memcpy(text + negative, r->at, len);
    r->at += len;
    field->kind = number || negative ? PBTXT_NUMBER : PBTXT_WORD;
    field->spelling = text;
    return STATUS_OK;
}

/* --- fields --- */

static enum status value_read(struct reader *r, struct pbtxt_field *field, bool colon,
                              uint32_t depth)
{
    blanks_skip(r);
    field->line = r->line;
    if (took(r, '{'))
        return message_read(r, field, '}', depth + 1);
    if (took(r, '<'))
        return message_read(r, field, '>', depth + 1);
    if (!colon)
        return refuse(r, "':' or '{'");
    return peek(r) == '"' || peek(r) == '\'' ? string_read(r, field) : plain_read(r, field);
}

static enum status field_add(struct reader *r, struct pbtxt_field ***end, const char *name,
                             bool colon, uint32_t depth)
{
    if (++r->fields > PBTXT_FIELDS_MAX)
        return error_set(r->err, STATUS_INVALID_ARGUMENT, "%s:%zu: expected at most %d fields",
                         r->name, r->line, PBTXT_FIELDS_MAX);
    struct pbtxt_field *field = arena_alloc(r->arena, sizeof(*field));
    if (!field)
        return no_memory(r);
    field->name = name;
    **end = field;
    *end = &field->next;
    return value_read(r, field, colon, depth);
}

static enum status list_read(struct reader *r, struct pbtxt_field ***end, const char *name,
                             bool colon, uint32_t depth)
{
    if (took(r, ']'))
        return STATUS_OK;
    do {
        TRY(field_add(r, end, name, colon, depth));
    } while (took(r, ','));
    return took(r, ']') ? STATUS_OK : refuse(r, "',' or ']'");
}

static enum status field_read(struct reader *r, struct pbtxt_field ***end, uint32_t depth)
{
    size_t len = is_letter(peek(r)) ? word_length(r) : 0;
    if (!len || len > PBTXT_NAME_MAX)
        return refuse(r, "a field's name");
    const char *name = arena_strndup(r->arena, r->at, len);
    if (!name)
        return no_memory(r);
    r->at += len;
    bool colon = took(r, ':');
    TRY(took(r, '[') ? list_read(r, end, name, colon, depth)
                     : field_add(r, end, name, colon, depth));
    if (!took(r, ','))
        took(r, ';');
    return STATUS_OK;
}

/* Reads up to `close`; '\0': to the text's end. */
static enum status message_read(struct reader *r, struct pbtxt_field *message, char close,
                                uint32_t depth)
{
    struct pbtxt_field **end = &message->first;
    if (depth > PBTXT_DEPTH_MAX)
        return error_set(r->err, STATUS_INVALID_ARGUMENT,
                         "%s:%zu: expected at most %d messages within each other", r->name, r->line,
                         PBTXT_DEPTH_MAX);
    message->kind = PBTXT_MESSAGE;
    for (blanks_skip(r); close ? !took(r, close) : r->at < r->end; blanks_skip(r))
        TRY(field_read(r, &end, depth));
    return STATUS_OK;
}

enum status pbtxt_parse(const char *name, const void *data, size_t size, struct arena *arena,
                        struct pbtxt_field **out, struct error *err)
{
    struct reader r = {
        .name = name, .at = data, .end = (const char *)data + size, .line = 1, .arena = arena};
    r.err = err;
    struct pbtxt_field *root = arena_alloc(arena, sizeof(*root));
    if (!root)
        return no_memory(&r);
    root->line = 1;
    TRY(message_read(&r, root, '\0', 0));
    *out = root;
    return STATUS_OK;
}
