/* SPDX-License-Identifier: Apache-2.0 */
/* The receive buffer; see inbox.h. */
#include "client/inbox.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "proto/frame.h"

enum { INBOX_FIRST = 64 * 1024, INBOX_LEAST_ROOM = 16 * 1024 };

void inbox_init(struct inbox *in, size_t limit)
{
    *in = (struct inbox){.limit = limit};
}

void inbox_deinit(struct inbox *in)
{
    free(in->data);
    *in = (struct inbox){0};
}

static void drop_taken(struct inbox *in)
{
    in->begin += in->taken;
    in->taken = 0;
    if (in->begin == in->end)
        in->begin = in->end = 0;
}

/* Doubles the buffer, but not beyond what the frame in front needs, if its length is known. */
static enum status grow(struct inbox *in, struct error *err)
{
    size_t want = in->cap ? in->cap * 2 : INBOX_FIRST, size = 0;
    if (frame_peek(in->data + in->begin, in->end - in->begin, in->limit, &size) == FRAME_PARTIAL &&
        size > 0)
        want = MIN(want, MAX(size + FRAME_HEAD_BYTES, in->cap + INBOX_LEAST_ROOM));
    uint8_t *data = realloc(in->data, want);
    if (!data)
        return error_no_memory(err, "%zu bytes of a response", want);
    in->data = data;
    in->cap = want;
    return STATUS_OK;
}

enum status inbox_room(struct inbox *in, void **at, size_t *size, struct error *err)
{
    drop_taken(in);
    if (in->cap - in->end < INBOX_LEAST_ROOM && in->begin > 0) {
        memmove(in->data, in->data + in->begin, in->end - in->begin);
        in->end -= in->begin;
        in->begin = 0;
    }
    if (in->cap == in->end)
        TRY(grow(in, err));
    *at = in->data + in->end;
    *size = in->cap - in->end;
    return STATUS_OK;
}

void inbox_filled(struct inbox *in, size_t size)
{
    in->end += size;
}

enum status inbox_next(struct inbox *in, const void **message, size_t *size, struct error *err)
{
    drop_taken(in);
    *message = NULL;
    switch (frame_peek(in->data + in->begin, in->end - in->begin, in->limit, size)) {
    case FRAME_COMPLETE:
        *message = in->data + in->begin + FRAME_HEAD_BYTES;
        in->taken = *size + FRAME_HEAD_BYTES;
        return STATUS_OK;
    case FRAME_PARTIAL:
        return STATUS_OK;
    case FRAME_TOO_LARGE:
        break;
    }
    if (in->end - in->begin >= 4 && !memcmp(in->data + in->begin, "HTTP", 4))
        return error_set(err, STATUS_OUT_OF_RANGE,
                         "a server that speaks HTTP answers there; expected the framed protocol "
                         "(listen.framed, usually port 8003)");
    return error_set(err, STATUS_OUT_OF_RANGE, "a response of %zu bytes; at most %zu are taken",
                     *size, in->limit);
}
