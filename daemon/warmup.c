/* SPDX-License-Identifier: Apache-2.0 */
/* See warmup.h. Inputs lie in one buffer, each aligned as requests' payloads are. */
#include "daemon/warmup.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/file_read.h"
#include "daemon/admission.h"

struct warming {
    struct device *device;
    const struct engine_info *info;
    const struct model_file_warmup *warmup;
    uint32_t point; /* of the engine's: the one that has the declared sizes */
    int folder;     /* the model's; -1: it cannot be opened */
    void *buffer;
    struct engine_span spans[MESSAGE_MAX_TENSORS];
    struct engine_input inputs[MESSAGE_MAX_TENSORS];
};

PRINTF(3, 4)
static enum status refuse(const struct warming *w, struct error *err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    error_setv(err, STATUS_FAILED_PRECONDITION, fmt, args);
    va_end(args);
    error_prefix(err, "config.pbtxt: model_warmup '%s'", w->warmup->name);
    return STATUS_FAILED_PRECONDITION;
}

/* --- data --- */

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

/* Numbers from 0 to 1 for floats; 0 and 1 for integers, which may be places in a table. */
static void random_fill(enum dtype dtype, uint8_t *data, size_t size)
{
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    size_t each = dtype_size(dtype);
    for (size_t at = 0; at + each <= size; at += each) {
        uint64_t bits = random_next(&state);
        float f = (float)(bits >> 40) / (float)(1 << 24);
        double wide = (double)f;
        uint16_t half = dtype == DTYPE_F16 ? f32_to_f16(f) : f32_to_bf16(f);
        uint64_t whole = bits >> 63;
        const void *from = &whole; /* little-endian, as all supported machines are */
        if (dtype_is_float(dtype))
            from = dtype == DTYPE_F32 ? (void *)&f : dtype == DTYPE_F64 ? (void *)&wide : &half;
        memcpy(data + at, from, each);
    }
}

static enum status file_fill(const struct warming *w, const char *name, uint8_t *data, size_t size,
                             struct error *err)
{
    char below[MESSAGE_MAX_NAME + 16];
    struct file_map map;
    const struct file_read how = {.name = name, .limit = size + 1};
    CLEANUP(cleanup_close) int fd = -1;
    snprintf(below, sizeof(below), REPOSITORY_WARMUP "/%s", name);
    TRY(file_open_beneath(w->folder, below, &fd, err));
    TRY(file_load(fd, &how, &map, err));
    size_t have = map.size;
    if (have == size)
        memcpy(data, map.data, size);
    file_unmap(&map);
    return have == size ? STATUS_OK
                        : refuse(w, err, "%s: expected %zu bytes, got %zu", below, size, have);
}

static enum status input_fill(const struct warming *w, const struct model_file_warm_input *from,
                              enum dtype dtype, uint8_t *data, size_t size, struct error *err)
{
    assert(from); /* sizes_check found them all */
    if (from->data == WARM_FILE)
        return file_fill(w, from->file, data, size, err);
    if (from->data == WARM_RANDOM)
        random_fill(dtype, data, size);
    else
        memset(data, 0, size);
    return STATUS_OK;
}

/* --- inputs --- */

static const struct model_file_warm_input *input_find(const struct model_file_warmup *warmup,
                                                      const char *name)
{
    for (uint32_t i = 0; i < warmup->n_inputs; i++)
        if (strcmp(warmup->inputs[i].name, name) == 0)
            return &warmup->inputs[i];
    return NULL;
}

static enum status input_size(const struct warming *w, const struct engine_binding *b, size_t *out,
                              struct error *err)
{
    const struct model_file_warm_input *in = input_find(w->warmup, b->name);
    size_t declared;
    if (!in)
        return refuse(w, err, "expected the input '%s'", b->name);
    if (in->dtype && in->dtype != b->dtype)
        return refuse(w, err, "input '%s': expected TYPE_%s, got TYPE_%s", b->name,
                      dtype_name(b->dtype), dtype_name(in->dtype));
    if (!shape_bytes(&in->shape, b->dtype, &declared) || declared != b->instance_bytes)
        return refuse(w, err, "input '%s': expected dims of %zu bytes", b->name, b->instance_bytes);
    const struct engine_axes *axes =
        engine_input_axes(w->info, (uint32_t)(b - engine_point_inputs(w->info, w->point)));
    if (!checked_mul(b->instance_bytes, engine_count_of(w->info, axes, w->warmup->batch), out))
        return refuse(w, err, "input '%s': it is too large", b->name);
    return STATUS_OK;
}

/* Whether all inputs are declared with the sizes that they have at the point. */
static bool point_fits(const struct warming *w, uint32_t point)
{
    const struct engine_binding *inputs = engine_point_inputs(w->info, point);
    for (uint32_t i = 0; i < w->info->n_inputs; i++) {
        const struct model_file_warm_input *in = input_find(w->warmup, inputs[i].name);
        size_t declared;
        if (!in || !shape_bytes(&in->shape, inputs[i].dtype, &declared) ||
            declared != inputs[i].instance_bytes)
            return false;
    }
    return true;
}

/* The point that fits; else the first, of which errors tell. */
static uint32_t point_find(const struct warming *w)
{
    for (uint32_t i = 0; i < w->info->n_points; i++)
        if (point_fits(w, i))
            return i;
    return 0;
}

static enum status sizes_check(const struct warming *w, size_t sizes[MESSAGE_MAX_TENSORS],
                               size_t *sum, struct error *err)
{
    if (w->warmup->batch > w->info->max_batch)
        return refuse(w, err, "batch_size: expected at most %u, got %u", w->info->max_batch,
                      w->warmup->batch);
    if (w->warmup->n_inputs != w->info->n_inputs)
        return refuse(w, err, "expected %u inputs, got %u", w->info->n_inputs, w->warmup->n_inputs);
    *sum = ADMISSION_ALIGN;
    for (uint32_t i = 0; i < w->info->n_inputs; i++) {
        TRY(input_size(w, &engine_point_inputs(w->info, w->point)[i], &sizes[i], err));
        if (!checked_add(*sum, sizes[i] + ADMISSION_ALIGN, sum))
            return refuse(w, err, "its inputs are too large");
    }
    return STATUS_OK;
}

static enum status inputs_make(struct warming *w, struct error *err)
{
    size_t sizes[MESSAGE_MAX_TENSORS] = {0}, sum = 0;
    TRY(sizes_check(w, sizes, &sum, err));
    TRY(engine_buffer_alloc(w->device, sum, "warm-up", &w->buffer, err));
    uint8_t *at = w->buffer;
    for (uint32_t i = 0; i < w->info->n_inputs; i++) {
        const struct engine_binding *b = &w->info->inputs[i];
        TRY(input_fill(w, input_find(w->warmup, b->name), b->dtype, at, sizes[i], err));
        w->spans[i] = (struct engine_span){at, sizes[i]};
        w->inputs[i] = (struct engine_input){&w->spans[i], 1};
        at += (sizes[i] + ADMISSION_ALIGN - 1) & ~(size_t)(ADMISSION_ALIGN - 1);
    }
    return STATUS_OK;
}

static enum status inputs_run(struct dispatch *dispatch, struct model *model, struct warming *w,
                              struct error *err)
{
    w->point = point_find(w);
    const struct dispatch_trial trial = {model, w->inputs, w->point, w->warmup->batch,
                                         w->warmup->count};
    TRY(inputs_make(w, err));
    return dispatch_model_try(dispatch, &trial, err);
}

static enum status one_run(struct dispatch *dispatch, struct model *model, struct warming *w,
                           struct error *err)
{
    enum status status = inputs_run(dispatch, model, w, err);
    if (w->buffer)
        engine_buffer_free(w->device, w->buffer);
    w->buffer = NULL;
    return status;
}

enum status warmup_run(struct dispatch *dispatch, struct device *device, struct model *model,
                       const struct wanted *wanted, struct error *err)
{
    const struct model_file *file = wanted->settings;
    if (!file || !file->n_warmups)
        return STATUS_OK;
    CLEANUP(cleanup_close)
    int folder = openat(wanted->folder, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct warming w = {.device = device, .info = model->info, .folder = folder};
    for (uint32_t i = 0; i < file->n_warmups; i++) {
        w.warmup = &file->warmups[i];
        TRY(one_run(dispatch, model, &w, err));
    }
    return STATUS_OK;
}
