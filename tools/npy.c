/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .npy files; the format is in numpy's documentation ("numpy.lib.format"). The header is a Python
 * dictionary literal with three keys, of which only the subset that numpy writes is understood.
 */
#include "tools/npy.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "tools/cleanup.h"

#define MAGIC "\x93NUMPY"
enum { MAGIC_LEN = 6, HEADER_MAX = 65536 };

static const struct {
    const char *descr;
    enum dtype dtype;
} types[] = {
    {"|b1", DTYPE_BOOL}, {"|u1", DTYPE_U8},  {"|i1", DTYPE_I8},  {"<u2", DTYPE_U16},
    {"<i2", DTYPE_I16},  {"<u4", DTYPE_U32}, {"<i4", DTYPE_I32}, {"<u8", DTYPE_U64},
    {"<i8", DTYPE_I64},  {"<f2", DTYPE_F16}, {"<f4", DTYPE_F32}, {"<f8", DTYPE_F64},
};

struct cursor {
    const char *p, *end;
};

static void skip_space(struct cursor *c)
{
    while (c->p < c->end && isspace((unsigned char)*c->p))
        c->p++;
}

static bool accept(struct cursor *c, char what)
{
    skip_space(c);
    if (c->p == c->end || *c->p != what)
        return false;
    c->p++;
    return true;
}

/* 'text' or "text" */
static bool read_string(struct cursor *c, char *out, size_t size)
{
    size_t n = 0;
    skip_space(c);
    if (c->p == c->end || (*c->p != '\'' && *c->p != '"'))
        return false;
    char quote = *c->p++;
    while (c->p < c->end && *c->p != quote) {
        if (n + 1 >= size)
            return false;
        out[n++] = *c->p++;
    }
    out[n] = '\0';
    return accept(c, quote);
}

static bool read_word(struct cursor *c, const char *word)
{
    size_t len = strlen(word);
    skip_space(c);
    if ((size_t)(c->end - c->p) < len || memcmp(c->p, word, len) != 0)
        return false;
    c->p += len;
    return true;
}

static bool read_int(struct cursor *c, int64_t *out)
{
    int64_t v = 0;
    skip_space(c);
    if (c->p == c->end || !isdigit((unsigned char)*c->p))
        return false;
    while (c->p < c->end && isdigit((unsigned char)*c->p))
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *c->p++ - '0', &v))
            return false;
    *out = v;
    return true;
}

/* (), (3,), (3, 4) */
static bool read_shape(struct cursor *c, struct shape *shape)
{
    *shape = (struct shape){0};
    if (!accept(c, '('))
        return false;
    while (!accept(c, ')')) {
        if (shape->rank == SHAPE_MAX_RANK || !read_int(c, &shape->dim[shape->rank++]))
            return false;
        if (!accept(c, ','))
            return accept(c, ')');
    }
    return true;
}

static enum dtype type_of(const char *descr)
{
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (!strcmp(types[i].descr, descr))
            return types[i].dtype;
    return DTYPE_NONE;
}

static bool read_entry(struct cursor *c, char *descr, size_t size, bool *fortran,
                       struct shape *shape, unsigned *seen)
{
    char key[32];
    if (!read_string(c, key, sizeof(key)) || !accept(c, ':'))
        return false;
    if (!strcmp(key, "descr")) {
        *seen |= 1;
        return read_string(c, descr, size);
    }
    if (!strcmp(key, "fortran_order")) {
        *seen |= 2;
        *fortran = read_word(c, "True");
        return *fortran || read_word(c, "False");
    }
    *seen |= 4;
    return !strcmp(key, "shape") && read_shape(c, shape);
}

static enum status parse_header(struct cursor *c, const char *name, struct tensor_view *out,
                                struct error *err)
{
    char descr[16] = "";
    bool fortran = false;
    unsigned seen = 0;
    bool ok = accept(c, '{');
    while (ok && !accept(c, '}')) {
        ok = read_entry(c, descr, sizeof(descr), &fortran, &out->shape, &seen);
        if (ok && !accept(c, ',')) {
            ok = accept(c, '}');
            break;
        }
    }
    if (!ok || seen != 7)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: a damaged .npy header", name);
    out->dtype = type_of(descr);
    if (out->dtype == DTYPE_NONE)
        return error_set(err, STATUS_UNIMPLEMENTED, "%s: element type '%s'", name, descr);
    if (fortran && out->shape.rank > 1)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s: Fortran order; save numpy.ascontiguousarray of it", name);
    return STATUS_OK;
}

/* Where the header's text begins, and how long it is. */
static bool find_header(const unsigned char *data, size_t size, size_t *begin, size_t *len)
{
    if (size < 10 || memcmp(data, MAGIC, MAGIC_LEN) != 0 || data[6] < 1 || data[6] > 3)
        return false;
    *begin = data[6] == 1 ? 10 : 12;
    if (size < *begin)
        return false;
    *len = (size_t)data[8] | (size_t)data[9] << 8;
    if (data[6] > 1)
        *len |= (size_t)data[10] << 16 | (size_t)data[11] << 24;
    return *len <= HEADER_MAX && *len <= size - *begin;
}

enum status npy_parse(const void *data, size_t size, const char *name, struct tensor_view *out,
                      struct error *err)
{
    size_t begin, len, bytes;
    struct tensor_view view = {0};
    if (!find_header(data, size, &begin, &len))
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: not a .npy file", name);
    const char *text = (const char *)data + begin;
    struct cursor c = {text, text + len};
    TRY(parse_header(&c, name, &view, err));
    if (!shape_bytes(&view.shape, view.dtype, &bytes) || bytes != size - begin - len)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "%s: the file's length does not fit its shape", name);
    view.data = malloc(bytes ? bytes : 1);
    if (!view.data)
        return error_no_memory(err, "%s", name);
    memcpy(view.data, text + len, bytes);
    *out = view;
    return STATUS_OK;
}

enum status npy_read(const char *path, struct tensor_view *out, struct error *err)
{
    struct file_map map;
    TRY(file_map_path(path, 0, &map, err));
    enum status status = npy_parse(map.data, map.size, path, out, err);
    file_unmap(&map);
    return status;
}

static const char *descr_of(enum dtype dtype)
{
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (types[i].dtype == dtype)
            return types[i].descr;
    return "<u2";
}

/* Magic, version, length and the dictionary, padded with spaces to a multiple of 64. */
static size_t make_header(const struct tensor_view *tensor, char out[512])
{
    int n = snprintf(out + 10, 400, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                     descr_of(tensor->dtype));
    for (uint32_t i = 0; i < tensor->shape.rank; i++)
        n += snprintf(out + 10 + n, (size_t)(400 - n), "%lld,%s", (long long)tensor->shape.dim[i],
                      i + 1 < tensor->shape.rank ? " " : "");
    n += snprintf(out + 10 + n, (size_t)(400 - n), "), }");
    size_t total = ((size_t)n + 10 + 1 + 63) / 64 * 64, len = total - 10;
    memset(out + 10 + n, ' ', len - (size_t)n - 1);
    out[total - 1] = '\n';
    memcpy(out, MAGIC, MAGIC_LEN); /* NOLINT: bytes, whose end is no zero */
    out[6] = 1;
    out[7] = 0;
    out[8] = (char)(len & 0xff);
    out[9] = (char)(len >> 8);
    return total;
}

enum status npy_write(const char *path, const struct tensor_view *tensor, struct error *err)
{
    char header[512];
    size_t bytes;
    CLEANUP(file_writer_cleanup) struct file_writer *writer = NULL;
    if (!shape_bytes(&tensor->shape, tensor->dtype, &bytes))
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: a tensor of a bad shape", path);
    TRY(file_writer_new(path, true, &writer, err));
    TRY(file_writer_put(writer, header, make_header(tensor, header), err));
    TRY(file_writer_put(writer, tensor->data, bytes, err));
    return file_writer_commit(writer, err);
}
