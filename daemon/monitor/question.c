/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to the monitor, see question.h. */
#include "daemon/monitor/question.h"

#include <strings.h>

#include <openssl/evp.h>

/* Cuts a scheme's name off what Authorization says. */
static bool scheme_take(struct message_text *value, const char *scheme)
{
    size_t n = strlen(scheme);
    if (value->len <= n || strncasecmp(value->data, scheme, n) != 0)
        return false;
    while (n < value->len && value->data[n] == ' ')
        n++;
    *value = (struct message_text){value->data + n, value->len - n};
    return true;
}

/* The password in the pair "user:password" of the scheme Basic. Empty: there is none. */
static struct message_text password(struct message_text coded, unsigned char pair[256])
{
    int n = coded.len <= 256 / 3 * 4 && coded.len % 4 == 0
                ? EVP_DecodeBlock(pair, (const unsigned char *)coded.data, (int)coded.len)
                : 0;
    for (size_t i = coded.len; n > 0 && i && coded.data[i - 1] == '='; i--)
        n--; /* the filling stands for bytes that are not there */
    const unsigned char *colon = n > 0 ? memchr(pair, ':', (size_t)n) : NULL;
    if (!colon)
        return (struct message_text){0};
    return (struct message_text){(const char *)colon + 1, (size_t)(pair + n - colon) - 1};
}

/* Takes a token from "Bearer TOKEN", or from "Basic" as its password, because that is what a
 * browser can send. What does not fit is no token. */
static void token_read(struct message_text value, struct question *out)
{
    unsigned char pair[256];
    struct message_text token = {0};
    if (scheme_take(&value, "Bearer "))
        token = value;
    else if (scheme_take(&value, "Basic "))
        token = password(value, pair);
    /* One character too many says that there is a token, and that it is none of ours. */
    size_t len = MIN(token.len, sizeof(out->token) - 1);
    if (len)
        memcpy(out->token, token.data, len);
    out->token[len] = '\0';
    if (memchr(out->token, '\0', len))
        out->token[0] = '?';
}

unsigned question_read(const struct http_head *head, struct question *out)
{
    *out = (struct question){.head = head->method == HTTP_METHOD_HEAD,
                             .keep = head->keep_alive && head->minor,
                             .query = head->query};
    if (!out->head && head->method != HTTP_METHOD_GET)
        return 405;
    if (head->body != HTTP_BODY_NONE)
        return 413;
    if (head->path.len + head->query.len >= sizeof(out->path))
        return 414;
    if (!http_text_decode(head->path, out->path, sizeof(out->path)))
        return 400;
    token_read(head->fields[HTTP_FIELD_AUTHORIZATION], out);
    return 200;
}

bool question_value(struct message_text query, const char *name, size_t *at, char *out, size_t size)
{
    size_t len = strlen(name);
    while (*at < query.len) {
        const char *pair = query.data + *at;
        const char *mark = memchr(pair, '&', query.len - *at);
        size_t n = mark ? (size_t)(mark - pair) : query.len - *at;
        *at += n + (mark != NULL);
        if (n <= len || memcmp(pair, name, len) != 0 || pair[len] != '=' || n - len - 1 >= size)
            continue;
        memcpy(out, pair + len + 1, n - len - 1);
        out[n - len - 1] = '\0';
        return true;
    }
    return false;
}
