/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests by RFC 9112, strictly; see http.h. A head ends its lines with CR LF, has no folded
 * lines, and no bytes but visible ones, blanks and tabs. A request that announces a body is
 * refused: none of what is asked here has one, and a body that is not read could pass for the next
 * request.
 */
#include "daemon/monitor/http.h"

#include <string.h>
#include <strings.h>

#include "base/compiler.h"
#include "base/hex.h"

static const struct {
    int status;
    const char *reason;
} reasons[] = {
    {200, "OK"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {503, "Service Unavailable"},
    {505, "HTTP Version Not Supported"},
};

const char *http_reason(int status)
{
    for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "Unknown";
}

/* --- texts --- */

struct span {
    const char *at;
    size_t len;
};

static bool is(struct span span, const char *text)
{
    return span.len == strlen(text) && strncasecmp(span.at, text, span.len) == 0;
}

static bool is_name(struct span name)
{
    static const char allowed[] = "!#$%&'*+-.^_`|~0123456789"
                                  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for (size_t i = 0; i < name.len; i++)
        if (!name.at[i] || !strchr(allowed, name.at[i]))
            return false;
    return name.len > 0;
}

static bool is_value(struct span value)
{
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.at[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

static struct span trim(struct span s)
{
    while (s.len && (*s.at == ' ' || *s.at == '\t')) {
        s.at++;
        s.len--;
    }
    while (s.len && (s.at[s.len - 1] == ' ' || s.at[s.len - 1] == '\t'))
        s.len--;
    return s;
}

/* --- the first line --- */

/* Decodes the path; the query stays as it is. False: it is no path. */
static bool target_read(struct span from, struct http_request *out)
{
    size_t n = 0;
    bool path = true;
    if (!from.len || *from.at != '/')
        return false;
    out->query = "";
    for (size_t i = 0; i < from.len; i++) {
        char c = from.at[i];
        if ((unsigned char)c <= 0x20 || (unsigned char)c >= 0x7f)
            return false;
        if (path && c == '%') {
            int high = i + 2 < from.len ? hex_value(from.at[i + 1]) : -1;
            int low = high >= 0 ? hex_value(from.at[i + 2]) : -1;
            c = (char)(high * 16 + low);
            if (low < 0 || (unsigned char)c < 0x20 || c == 0x7f)
                return false;
            i += 2;
        } else if (path && c == '?') {
            path = false;
            out->target[n++] = '\0';
            out->query = out->target + n;
            continue;
        }
        out->target[n++] = c;
    }
    out->target[n] = '\0';
    if (path)
        out->query = out->target + n;
    return true;
}

/* Returns the status that the line asks for; 200: go on. */
static int line_read(struct span line, struct http_request *out)
{
    const char *first = memchr(line.at, ' ', line.len);
    const char *last = memrchr(line.at, ' ', line.len);
    if (!first || first == last)
        return 400;
    struct span method = {line.at, (size_t)(first - line.at)};
    struct span target = {first + 1, (size_t)(last - first - 1)};
    struct span version = {last + 1, line.len - (size_t)(last + 1 - line.at)};
    if (!is_name(method) || version.len != 8 || strncmp(version.at, "HTTP/", 5) != 0)
        return 400;
    if (strncmp(version.at + 5, "1.1", 3) != 0 && strncmp(version.at + 5, "1.0", 3) != 0)
        return 505;
    if (target.len >= HTTP_TARGET_MOST)
        return 414;
    if (!target_read(target, out))
        return 400;
    out->head = method.len == 4 && memcmp(method.at, "HEAD", 4) == 0;
    out->keep = version.at[7] == '1';
    return out->head || (method.len == 3 && memcmp(method.at, "GET", 3) == 0) ? 200 : 405;
}

/* --- headers --- */

/* Decodes base64 (RFC 4648) into `out`, terminated. Returns its length; 0: it is not base64, or
 * does not fit. */
static size_t base64_read(struct span from, char *out, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned bits = 0, n_bits = 0;
    size_t n = 0;
    while (from.len && from.at[from.len - 1] == '=')
        from.len--;
    for (size_t i = 0; i < from.len; i++) {
        const char *digit = from.at[i] ? strchr(digits, from.at[i]) : NULL;
        if (!digit || n + 1 >= size)
            return 0;
        bits = (bits << 6 | (unsigned)(digit - digits)) & 0xffff;
        n_bits += 6;
        if (n_bits >= 8)
            out[n++] = (char)(bits >> (n_bits -= 8));
    }
    out[n] = '\0';
    return n;
}

/* Takes a token from "Bearer TOKEN", or from "Basic" as its password, because that is what a
 * browser can send. What does not fit is no token. */
static void token_read(struct span value, struct http_request *out)
{
    char pair[256];
    struct span token = {"", 0};
    if (value.len > 7 && strncasecmp(value.at, "Bearer ", 7) == 0) {
        token = trim((struct span){value.at + 7, value.len - 7});
    } else if (value.len > 6 && strncasecmp(value.at, "Basic ", 6) == 0) {
        size_t n =
            base64_read(trim((struct span){value.at + 6, value.len - 6}), pair, sizeof(pair));
        const char *colon = memchr(pair, ':', n);
        if (colon)
            token = (struct span){colon + 1, n - (size_t)(colon + 1 - pair)};
    }
    /* One character too many says that there is a token, and that it is none of ours. */
    size_t len = MIN(token.len, sizeof(out->token) - 1);
    memcpy(out->token, token.at, len);
    out->token[len] = '\0';
    if (memchr(out->token, '\0', len))
        out->token[0] = '?';
}

struct seen {
    uint32_t hosts, tokens, n;
};

static int header_read(struct span line, struct http_request *out, struct seen *seen)
{
    const char *colon = memchr(line.at, ':', line.len);
    if (!colon)
        return 400;
    struct span name = {line.at, (size_t)(colon - line.at)};
    struct span value = trim((struct span){colon + 1, line.len - name.len - 1});
    if (!is_name(name) || !is_value(value))
        return 400;
    if (++seen->n > HTTP_HEADERS_MOST)
        return 431;
    if (is(name, "Host"))
        seen->hosts++;
    if (is(name, "Connection") && is(value, "close"))
        out->keep = false;
    if (is(name, "Transfer-Encoding") || (is(name, "Content-Length") && !is(value, "0")))
        return 413;
    if (is(name, "Authorization")) {
        if (seen->tokens++)
            return 400;
        token_read(value, out);
    }
    return 200;
}

enum http_result http_parse(const char *data, size_t len, struct http_request *out, size_t *size,
                            int *status)
{
    const char *end = memmem(data, len, "\r\n\r\n", 4);
    struct seen seen = {0};
    *out = (struct http_request){.query = ""};
    *status = 431;
    if (!end)
        return len >= HTTP_HEAD_MOST ? HTTP_BAD : HTTP_MORE;
    *size = (size_t)(end - data) + 4;
    if (*size > HTTP_HEAD_MOST)
        return HTTP_BAD;
    const char *line = data, *stop;
    bool first = true;
    while (line < end + 2 && (stop = memmem(line, (size_t)(end + 2 - line), "\r\n", 2))) {
        struct span span = {line, (size_t)(stop - line)};
        *status = first ? line_read(span, out) : header_read(span, out, &seen);
        if (*status != 200)
            return HTTP_BAD;
        first = false;
        line = stop + 2;
    }
    if (seen.hosts > 1 || (!seen.hosts && out->keep)) { /* HTTP/1.0 may come without */
        *status = 400;
        return HTTP_BAD;
    }
    return HTTP_DONE;
}

/* --- queries --- */

bool http_query(const char *query, const char *name, size_t *at, char *out, size_t size)
{
    size_t len = strlen(name);
    while (query[*at]) {
        const char *pair = query + *at;
        size_t n = strcspn(pair, "&");
        *at += n + (pair[n] == '&');
        if (n <= len || strncmp(pair, name, len) != 0 || pair[len] != '=' || n - len - 1 >= size)
            continue;
        memcpy(out, pair + len + 1, n - len - 1);
        out[n - len - 1] = '\0';
        return true;
    }
    return false;
}
