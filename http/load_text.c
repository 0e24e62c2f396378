/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON of an order to load a model, see load_text.h. */
#include "http/load_text.h"

#include <string.h>

#include "base/base64.h"

enum { DECODE_STEP = 256 * 1024, PIECES = 64 /* in a step */ };

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Feeds the next `n` bytes, or a step of them. */
static enum status feed(struct load_text *l, struct json_reader *reader, size_t n, bool *done,
                        struct error *err)
{
    const char *at = l->json.data + l->read;
    n = MIN(n, (size_t)JSON_STEP);
    for (size_t i = n; i > 0; i--)
        if (!is_space(at[i - 1])) {
            l->last = at[i - 1];
            break;
        }
    TRY(json_reader_feed(reader, at, n, err));
    l->read += n;
    *done = l->read == l->json.len;
    return *done ? json_reader_end(reader, err) : STATUS_OK;
}

/* Feeds what comes next of a text, up to its end or behind its next escape. */
static enum status inside_feed(struct load_text *l, struct json_reader *reader, bool *done,
                               struct error *err)
{
    const char *at = l->json.data + l->read;
    size_t left = l->json.len - l->read, most = MIN(left, (size_t)JSON_STEP - 1), n = 0;
    while (n < most && at[n] != '"' && at[n] != '\\')
        n++;
    if (n < most) {
        l->inside = at[n] != '"';
        n += l->inside ? 2 : 1;
    }
    return feed(l, reader, MIN(n, left), done, err);
}

static enum status file_find(struct load_text *l, struct json_reader *reader, struct error *err)
{
    const char *begin = l->json.data + l->read + 1, *end = l->json.data + l->json.len;
    const char *close = begin < end ? memchr(begin, '"', (size_t)(end - begin)) : NULL;
    if (!close)
        return error_set(err, STATUS_INVALID_ARGUMENT, "'%.*s': the text does not end",
                         MESSAGE_TEXT(*l->key));
    l->file = (struct message_text){begin, (size_t)(close - begin)};
    l->read += l->file.len + 2;
    l->last = '"';
    l->found = true;
    enum status status = json_reader_feed(reader, "\"\"", 2, err);
    l->found = false;
    return status;
}

static enum status piece_feed(struct load_text *l, struct json_reader *reader, bool *done,
                              struct error *err)
{
    const char *at = l->json.data + l->read;
    size_t left = l->json.len - l->read;
    if (l->inside)
        return inside_feed(l, reader, done, err);
    const char *quote = left ? memchr(at, '"', MIN(left, (size_t)JSON_STEP)) : NULL;
    if (!quote || quote > at)
        return feed(l, reader, quote ? (size_t)(quote - at) : left, done, err);
    if (l->last == ':' && request_setting_is_file(*l->key))
        return file_find(l, reader, err);
    l->inside = true;
    return feed(l, reader, 1, done, err);
}

bool load_text_begin(struct load_text *l, struct request_setting *setting)
{
    if (!l->found)
        return false;
    setting->text = (struct message_text){l->file.data, 0};
    l->into = setting;
    return true;
}

/* Decodes a step of the file in hand. */
static enum status file_decode(struct load_text *l, struct error *err)
{
    struct message_text *text = &l->into->text;
    size_t n = MIN(l->file.len, (size_t)DECODE_STEP), got = 0;
    bool last = n == l->file.len;
    if (!base64_decode(l->file.data, n, (char *)(uintptr_t)text->data + text->len, &got) ||
        (!last && got != n / 4 * 3))
        return error_set(err, STATUS_INVALID_ARGUMENT, "'%.*s': expected base64 without escapes",
                         MESSAGE_TEXT(l->into->key));
    text->len += got;
    l->file.data += n;
    l->file.len -= n;
    if (last)
        l->into = NULL;
    return STATUS_OK;
}

enum status load_text_step(struct load_text *l, struct json_reader *reader, bool *done,
                           struct error *err)
{
    for (uint32_t i = 0; i < PIECES && !*done; i++) {
        if (l->into)
            return file_decode(l, err);
        TRY(piece_feed(l, reader, done, err));
    }
    return STATUS_OK;
}
