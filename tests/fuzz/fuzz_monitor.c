/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as what somebody sends to the monitor's port, and as a client's traceparent. A request
 * that is taken has a path, ends within the bytes, and each of its beginnings wants more. What its
 * texts become in a page, in JSON and in a label has nothing left that means something there. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/utf8.h"
#include "daemon/monitor/http.h"
#include "daemon/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void texts(const char *string)
{
    struct text text;
    text_init(&text, 1 << 20);
    text_html(&text, string);
    if (memchr(text.len ? text.data : "", '<', text.len) ||
        memchr(text.len ? text.data : "", '"', text.len))
        abort();
    text.len = 0;
    text_json(&text, string);
    if (!utf8_ok(text.len ? text.data : "", text.len))
        abort();
    text.len = 0;
    text_label(&text, string);
    if (memchr(text.len ? text.data : "", '\n', text.len))
        abort();
    text_deinit(&text);
}

static void request(const char *data, size_t size)
{
    struct http_request request, part;
    size_t used = 0, at = 0, less;
    char value[16];
    int status;
    if (http_parse(data, size, &request, &used, &status) != HTTP_DONE)
        return;
    if (!used || used > size || request.target[0] != '/')
        abort();
    if (http_parse(data, used - 1, &part, &less, &status) != HTTP_MORE)
        abort();
    while (http_query(request.query, "since", &at, value, sizeof(value)))
        if (strlen(value) >= sizeof(value))
            abort();
    texts(request.target);
    texts(request.token);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace_parent parent;
    char *copy = malloc(size + 1); /* of the very size, so that a byte too far is seen */
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    copy[size] = '\0';
    texts(copy);
    request(copy, size);
    trace_parent_parse((struct message_text){copy, size}, &parent);
    free(copy);
    return 0;
}
