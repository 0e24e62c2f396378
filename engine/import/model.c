/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes models, and reads files of a single tensor. */
#include "engine/import/model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/import/decode.h"
#include "engine/import/onnx.h"
#include "engine/import/tensor.h"

/* The wire format's own limit is 2 GiB. The records of the largest models need far less than the
 * arena's limit. */
static const size_t file_limit = (size_t)1 << 31, records_limit = (size_t)1 << 30;

struct onnx_model *onnx_model_ref(struct onnx_model *model)
{
    atomic_fetch_add_explicit(&model->refs, 1, memory_order_relaxed);
    return model;
}

void onnx_model_unref(void *object)
{
    struct onnx_model *model = object;
    if (!model || atomic_fetch_sub_explicit(&model->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; i < model->n_external; i++)
        file_unmap(&model->external[i].map);
    file_unmap(&model->file);
    if (model->folder >= 0)
        close(model->folder);
    arena_free(model->arena);
    free(model);
}

void onnx_close(struct onnx_model *model)
{
    onnx_model_unref(model);
}

static void model_cleanup(struct onnx_model **model)
{
    onnx_model_unref(*model);
}

static struct onnx_model *model_new(void)
{
    struct onnx_model *model = calloc(1, sizeof(*model));
    if (!model)
        return NULL;
    model->folder = -1;
    model->graph.name = "";
    model->last = &model->graph;
    atomic_init(&model->refs, 1);
    model->arena = arena_new(records_limit);
    if (!model->arena) {
        free(model);
        return NULL;
    }
    return model;
}

static int name_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts the names, so that a graph with a million inputs and as many initializers is still searched
 * cheaply. */
static enum status index_initializers(struct onnx_model *model, struct error *err)
{
    const char **names = arena_array(model->arena, model->graph.n_initializers, sizeof(*names));
    if (!names)
        return error_no_memory(err, "a model");
    for (uint32_t i = 0; i < model->graph.n_initializers; i++)
        names[i] = model->graph.initializers[i].name;
    qsort(names, model->graph.n_initializers, sizeof(*names), name_compare);
    model->initializer_names = names;
    return STATUS_OK;
}

static enum status read_model(struct onnx_model *model, struct error *err)
{
    TRY(decode_model(model, err));
    TRY(index_initializers(model, err));
    return onnx_model_sort(model, err);
}

enum status onnx_open_memory(const void *data, size_t size, struct onnx_model **out,
                             struct error *err)
{
    CLEANUP(model_cleanup) struct onnx_model *model = model_new();
    if (!model)
        return error_no_memory(err, "a model");
    if (!size || size > file_limit)
        return error_set(err, STATUS_INVALID_ARGUMENT, "a model of %zu bytes", size);
    model->bytes = (struct span){data, size};
    TRY(read_model(model, err));
    *out = STEAL(model);
    return STATUS_OK;
}

enum status onnx_tail_open(const void *data, size_t size, const void *store, size_t store_size,
                           struct onnx_model **out, struct error *err)
{
    static const uint8_t nothing[1];
    struct onnx_model *model = NULL;
    TRY(onnx_open_memory(data, size, &model, err));
    model->store = (struct span){store_size ? store : nothing, store_size};
    *out = model;
    return STATUS_OK;
}

uint32_t onnx_tail_inputs(const struct onnx_model *tail)
{
    return tail->graph.n_inputs;
}

const char *onnx_tail_output_name(const struct onnx_model *tail, uint32_t index, enum dtype *dtype)
{
    if (index >= tail->graph.n_outputs)
        return NULL;
    *dtype = onnx_dtype(tail->graph.outputs[index].type);
    return tail->graph.outputs[index].name;
}

/* Decodes a model whose file is mapped; takes the model over if it is good. */
static enum status open_mapped(struct onnx_model **model, const char *name, struct onnx_model **out,
                               struct error *err)
{
    (*model)->bytes = (struct span){(*model)->file.data, (*model)->file.size};
    enum status status = read_model(*model, err);
    if (status) {
        error_prefix(err, "%s", name);
        return status;
    }
    *out = STEAL(*model);
    return STATUS_OK;
}

enum status onnx_open(const char *path, struct onnx_model **out, struct error *err)
{
    CLEANUP(model_cleanup) struct onnx_model *model = model_new();
    if (!model)
        return error_no_memory(err, "a model");
    TRY(file_map_open(path, file_limit, &model->file, &model->folder, err));
    return open_mapped(&model, path, out, err);
}

enum status onnx_open_fd(int fd, int folder, const char *name, struct onnx_model **out,
                         struct error *err)
{
    CLEANUP(model_cleanup) struct onnx_model *model = model_new();
    if (!model)
        return error_no_memory(err, "a model");
    TRY(file_map_open_fd(fd, name, file_limit, &model->file, err));
    model->folder = folder < 0 ? -1 : fcntl(folder, F_DUPFD_CLOEXEC, 0);
    if (folder >= 0 && model->folder < 0)
        return error_errno(err, errno, "%s: its folder", name);
    return open_mapped(&model, name, out, err);
}

const void *onnx_bytes(const struct onnx_model *model, size_t *size)
{
    *size = model->bytes.size;
    return model->bytes.data;
}

bool onnx_is_initializer(const struct onnx_model *model, const char *name)
{
    return model->graph.n_initializers &&
           bsearch(&name, model->initializer_names, model->graph.n_initializers, sizeof(name),
                   name_compare);
}

static enum status decode_dense(struct arena *arena, const struct file_map *map,
                                struct onnx_tensor *tensor, enum dtype *dtype, const void **bytes,
                                struct error *err)
{
    TRY(decode_tensor(arena, (struct span){map->data, map->size}, tensor, err));
    return tensor_bytes(NULL, arena, tensor, dtype, bytes, err);
}

enum status onnx_tensor_read(const char *path, struct tensor_view *out, char **name,
                             struct error *err)
{
    CLEANUP(file_unmap) struct file_map map = {0};
    CLEANUP(arena_cleanup) struct arena *arena = arena_new(0);
    struct onnx_tensor tensor;
    struct tensor_view view;
    const void *bytes;
    size_t size;
    if (!arena)
        return error_no_memory(err, "%s", path);
    TRY(file_map_open(path, file_limit, &map, NULL, err));
    enum status status = decode_dense(arena, &map, &tensor, &view.dtype, &bytes, err);
    if (status) {
        error_prefix(err, "%s", path);
        return status;
    }
    view.shape = tensor.shape;
    char *copy_name = name ? strdup(tensor.name) : NULL;
    view.data = shape_bytes(&view.shape, view.dtype, &size) ? malloc(size ? size : 1) : NULL;
    if (!view.data || (name && !copy_name)) {
        free(view.data);
        free(copy_name);
        return error_no_memory(err, "a tensor of %s", path);
    }
    memcpy(view.data, bytes, size);
    *out = view;
    if (name)
        *name = copy_name;
    return STATUS_OK;
}
