/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of what is wanted, see shape_source.h. */
#include "daemon/shape_source.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SOURCE_BYTES = 8 << 20 };

struct shape_source {
    struct arena *arena;
    struct wanted wanted;
};

void shape_source_free(struct shape_source *source)
{
    if (!source)
        return;
    if (source->wanted.fd >= 0)
        close(source->wanted.fd);
    if (source->wanted.folder >= 0)
        close(source->wanted.folder);
    arena_free(source->arena);
    free(source);
}

static void source_cleanup(struct shape_source **at)
{
    shape_source_free(*at);
}

/* --- copies; each sets *failed if there is no memory --- */

static char *text_copy(struct arena *arena, const char *text, bool *failed)
{
    char *copy = text ? arena_strndup(arena, text, INT_MAX) : NULL;
    *failed |= text && !copy;
    return copy;
}

static void *array_copy(struct arena *arena, const void *from, size_t n, size_t size, bool *failed)
{
    void *copy = n ? arena_array(arena, n, size) : NULL;
    *failed |= n && !copy;
    return copy ? memcpy(copy, from, n * size) : NULL;
}

static void inputs_copy(struct arena *arena, struct config_model *model, bool *failed)
{
    model->inputs =
        array_copy(arena, model->inputs, model->inputs_count, sizeof(*model->inputs), failed);
    for (uint32_t i = 0; model->inputs && i < model->inputs_count; i++) {
        struct config_input *in = &model->inputs[i];
        in->name = text_copy(arena, in->name, failed);
        in->type = text_copy(arena, in->type, failed);
        in->scale = array_copy(arena, in->scale, in->scale_count, sizeof(*in->scale), failed);
        in->bias = array_copy(arena, in->bias, in->bias_count, sizeof(*in->bias), failed);
    }
}

static void config_copy(struct arena *arena, struct config_model *model, bool *failed)
{
    model->path = text_copy(arena, model->path, failed);
    model->precision = text_copy(arena, model->precision, failed);
    model->on_new_shape = NULL;
    model->preferred = array_copy(arena, model->preferred, model->preferred_count,
                                  sizeof(*model->preferred), failed);
    model->batches =
        array_copy(arena, model->batches, model->batches_count, sizeof(*model->batches), failed);
    inputs_copy(arena, model, failed);
    for (uint32_t k = 0; k < CONFIG_SIZE_COUNT_; k++) {
        struct config_texts *sizes = &model->sizes[k];
        sizes->items = array_copy(arena, sizes->items, sizes->count, sizeof(*sizes->items), failed);
        for (uint32_t i = 0; sizes->items && i < sizes->count; i++)
            sizes->items[i] = text_copy(arena, sizes->items[i], failed);
    }
}

static bool source_fill(struct shape_source *source, const struct wanted *from)
{
    struct wanted *to = &source->wanted;
    bool failed = false;
    struct arena *arena = source->arena = arena_new(SOURCE_BYTES);
    if (!arena)
        return false;
    to->config = from->config;
    to->onnx = true;
    to->name = text_copy(arena, from->name, &failed);
    to->version = text_copy(arena, from->version, &failed);
    to->path = text_copy(arena, from->path, &failed);
    to->source = from->source;
    to->source.path = text_copy(arena, from->source.path, &failed);
    config_copy(arena, &to->config, &failed);
    to->config.name = to->name;
    to->config.version = to->version;
    return !failed;
}

/* The model's file is the one that was opened, whatever its name leads to by now. */
static enum status source_open(struct shape_source *source, const struct wanted *from,
                               struct error *err)
{
    source->wanted.fd = fcntl(from->fd, F_DUPFD_CLOEXEC, 0);
    if (source->wanted.fd >= 0 && from->folder >= 0)
        source->wanted.folder = fcntl(from->folder, F_DUPFD_CLOEXEC, 0);
    if (source->wanted.fd < 0 || (from->folder >= 0 && source->wanted.folder < 0))
        return error_errno(err, errno, "%s", from->source.path);
    return STATUS_OK;
}

enum status shape_source_new(const struct wanted *wanted, struct shape_source **out,
                             struct error *err)
{
    CLEANUP(source_cleanup) struct shape_source *source = calloc(1, sizeof(*source));
    if (!source)
        return error_no_memory(err, "a model");
    source->wanted.fd = source->wanted.folder = -1;
    if (!source_fill(source, wanted))
        return error_no_memory(err, "a model");
    TRY(source_open(source, wanted, err));
    *out = STEAL(source);
    return STATUS_OK;
}

enum status shape_source_at(const struct shape_source *source, const struct engine_info *info,
                            const int64_t *values, bool on_cpu, struct arena *arena,
                            struct wanted *out, struct error *err)
{
    static char everything[] = "*=cpu";
    static char *pins[] = {everything};
    struct wanted wanted = source->wanted;
    if (on_cpu)
        wanted.config.sizes[CONFIG_PIN] = (struct config_texts){pins, 1};
    struct config_texts *profiles = &wanted.config.sizes[CONFIG_PROFILES];
    profiles->items = arena_array(arena, info->n_free, sizeof(*profiles->items));
    profiles->count = info->n_free;
    for (uint32_t i = 0; profiles->items && i < info->n_free; i++) {
        profiles->items[i] =
            arena_printf(arena, "%s=%lld", info->free[i].name, (long long)values[i]);
        if (!profiles->items[i])
            return error_no_memory(err, "a model");
    }
    if (!profiles->items)
        return error_no_memory(err, "a model");
    *out = wanted;
    return STATUS_OK;
}
