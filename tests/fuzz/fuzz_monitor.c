/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as what somebody sends to the monitor's port, and as a client's traceparent. A request
 * that is taken has a path, ends within the bytes, and each of its beginnings wants more. What its
 * texts become in a page, in JSON and in a label has nothing left that means something there. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/utf8.h"
#include "daemon/monitor/question.h"
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

/* Whether the bytes begin with a head. */
static bool head_read(struct http_reader *reader, const char *data, size_t size, size_t *used,
                      enum http_step *step)
{
    struct error err;
    unsigned code = 0;
    http_reader_next(reader);
    *step = http_reader_head(reader, data, size, used, &code, &err);
    return *step == HTTP_DONE;
}

static void request(struct http_reader *reader, const char *data, size_t size)
{
    struct question question;
    enum http_step step;
    size_t used = 0, at = 0, less;
    char value[16];
    if (!head_read(reader, data, size, &used, &step))
        return;
    if (!used || used > size)
        abort();
    if (head_read(reader, data, used - 1, &less, &step) || step != HTTP_MORE)
        abort();
    if (!head_read(reader, data, used, &less, &step) ||
        question_read(http_reader_request(reader), &question) != 200)
        return;
    if (question.path[0] != '/')
        abort();
    while (question_value(question.query, "since", &at, value, sizeof(value)))
        if (strlen(value) >= sizeof(value))
            abort();
    texts(question.path);
    texts(question.token);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace_parent parent;
    struct http_reader *reader = http_reader_new();
    char *copy = malloc(size + 1); /* of the very size, so that a byte too far is seen */
    if (!copy || !reader) {
        http_reader_free(reader);
        free(copy);
        return 0;
    }
    memcpy(copy, data, size);
    copy[size] = '\0';
    texts(copy);
    request(reader, copy, size);
    trace_parent_parse((struct message_text){copy, size}, &parent);
    http_reader_free(reader);
    free(copy);
    return 0;
}
