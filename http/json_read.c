/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON on yajl, see json.h.
 *
 * yajl does not look whether it got memory, so its pool must always have enough. A buffer of yajl's
 * begins with 2 KiB and doubles until its text fits. A text that lies within one step is copied
 * only if it has escapes, and one that spans steps is gathered first; after each step a text that
 * has grown beyond JSON_TEXT_MOST ends the reading. So both buffers stay below JSON_TEXT_MOST +
 * JSON_STEP, rounded up to a power of two; and since the pool gives nothing back, each needs twice
 * that.
 */
#include "http/json.h"

#include <stdalign.h>

#include <yajl/yajl_parse.h>

enum {
    POOL_FIXED = 6 * 1024,                  /* handle, lexer, stack, the buffers' own structs */
    POOL_BUFFER = 2 * (2 * JSON_TEXT_MOST), /* the sum of 2 KiB, 4 KiB ... 32 KiB */
    POOL_MOST = POOL_FIXED + 2 * POOL_BUFFER,
};

struct json_reader {
    yajl_handle yajl;
    json_take_fn *take;
    void *user;
    struct error *err; /* of the present call */
    bool refused;      /* `take` has said why */
    size_t fed;        /* bytes of steps before the present one */
    uint32_t depth;
    yajl_alloc_funcs memory;
    size_t pool_used, pool_size;
    size_t largest; /* block that is in use */
    alignas(16) unsigned char pool[];
};

/* --- the pool --- */

struct block {
    alignas(16) size_t size;
};

static void *pool_take(void *ctx, size_t size)
{
    struct json_reader *r = ctx;
    size_t whole = sizeof(struct block) + ((size + 15) & ~(size_t)15);
    if (whole > r->pool_size - r->pool_used)
        return NULL; /* never, see above */
    struct block *block = (struct block *)(void *)(r->pool + r->pool_used);
    block->size = size;
    r->pool_used += whole;
    r->largest = MAX(r->largest, size);
    return block + 1;
}

static void *pool_grow(void *ctx, void *old, size_t size)
{
    const struct block *block = old ? (const struct block *)old - 1 : NULL;
    if (block && block->size >= size)
        return old;
    void *grown = pool_take(ctx, size);
    if (grown && block)
        memcpy(grown, old, block->size);
    return grown;
}

static void pool_give(void *ctx UNUSED, void *block UNUSED)
{
}

/* --- events --- */

static int event(struct json_reader *r, enum json_kind kind, const void *text, size_t len)
{
    struct json_event e = {.kind = kind, .text = {text, len}};
    e.end = r->fed + yajl_get_bytes_consumed(r->yajl);
    if (kind == JSON_OBJECT_END || kind == JSON_ARRAY_END)
        r->depth--;
    e.depth = r->depth;
    if (kind == JSON_OBJECT || kind == JSON_ARRAY)
        r->depth++;
    enum status status = r->depth <= JSON_DEPTH_MOST
                             ? r->take(r->user, &e, r->err)
                             : error_set(r->err, STATUS_INVALID_ARGUMENT,
                                         "JSON that is nested more than %d deep", JSON_DEPTH_MOST);
    r->refused |= status;
    return !status;
}

static int on_null(void *ctx)
{
    return event(ctx, JSON_NULL, NULL, 0);
}

static int on_boolean(void *ctx, int value)
{
    return event(ctx, value ? JSON_TRUE : JSON_FALSE, NULL, 0);
}

static int on_number(void *ctx, const char *text, size_t len)
{
    return event(ctx, JSON_NUMBER, text, len);
}

static int on_string(void *ctx, const unsigned char *text, size_t len)
{
    return event(ctx, JSON_STRING, text, len);
}

static int on_key(void *ctx, const unsigned char *text, size_t len)
{
    return event(ctx, JSON_KEY, text, len);
}

static int on_object(void *ctx)
{
    return event(ctx, JSON_OBJECT, NULL, 0);
}

static int on_object_end(void *ctx)
{
    return event(ctx, JSON_OBJECT_END, NULL, 0);
}

static int on_array(void *ctx)
{
    return event(ctx, JSON_ARRAY, NULL, 0);
}

static int on_array_end(void *ctx)
{
    return event(ctx, JSON_ARRAY_END, NULL, 0);
}

static const yajl_callbacks callbacks = {
    .yajl_null = on_null,
    .yajl_boolean = on_boolean,
    .yajl_number = on_number,
    .yajl_string = on_string,
    .yajl_start_map = on_object,
    .yajl_map_key = on_key,
    .yajl_end_map = on_object_end,
    .yajl_start_array = on_array,
    .yajl_end_array = on_array_end,
};

/* --- reading --- */

size_t json_reader_size(size_t size)
{
    /* Input of one step spans none, and its decoded texts are no longer than itself. */
    size_t pool = size <= JSON_STEP ? POOL_FIXED + 4096 + 4 * size : POOL_MOST;
    return sizeof(struct json_reader) + pool;
}

struct json_reader *json_reader_init(void *memory, size_t memory_size, json_take_fn *take,
                                     void *user)
{
    struct json_reader *r = memory;
    *r = (struct json_reader){.take = take,
                              .user = user,
                              .memory = {pool_take, pool_grow, pool_give, r},
                              .pool_size = memory_size - sizeof(*r)};
    r->yajl = yajl_alloc(&callbacks, &r->memory, r);
    r->largest = 0; /* its own */
    return r;
}

static enum status outcome(struct json_reader *r, yajl_status result, struct error *err)
{
    if (r->refused)
        return err ? err->status : STATUS_INVALID_ARGUMENT;
    if (result != yajl_status_ok)
        return error_set(err, STATUS_INVALID_ARGUMENT, "malformed JSON near byte %zu",
                         r->fed + yajl_get_bytes_consumed(r->yajl));
    return STATUS_OK;
}

enum status json_reader_feed(struct json_reader *r, const void *data, size_t size,
                             struct error *err)
{
    r->err = err;
    TRY(outcome(r, yajl_parse(r->yajl, data, size), err));
    r->fed += size;
    if (r->largest > JSON_TEXT_MOST)
        return error_set(err, STATUS_INVALID_ARGUMENT, "JSON with a text of more than %d bytes",
                         JSON_TEXT_MOST);
    return STATUS_OK;
}

enum status json_reader_end(struct json_reader *r, struct error *err)
{
    r->err = err;
    return outcome(r, yajl_complete_parse(r->yajl), err);
}
