/* SPDX-License-Identifier: Apache-2.0 */
/* See declared.h. Files with max_batch_size 0 declare whole shapes, others leave the batch out. */
#include "daemon/declared.h"

#include <string.h>

#include "base/names.h"

/* One side of the model: its inputs or its outputs. */
struct side {
    const char *word;
    uint32_t n;
    const struct engine_binding *bindings;
    uint32_t n_declared;
    const struct model_file_tensor *declared;
};

static enum status name_refuse(const struct side *side, const char *name, struct error *err)
{
    struct names names;
    names_init(&names, name, strlen(name));
    for (uint32_t i = 0; i < side->n; i++)
        names_add(&names, side->bindings[i].name);
    return error_set(err, STATUS_FAILED_PRECONDITION,
                     "config.pbtxt: the model has no %s '%s'; it has %s", side->word, name,
                     names_text(&names));
}

/* The shape without the batch, if that is how it is declared. */
static struct shape shape_of(const struct engine_binding *binding, bool batched)
{
    struct shape shape = binding->shape;
    if (!batched || !shape.rank)
        return shape;
    shape.rank--;
    memmove(shape.dim, shape.dim + 1, shape.rank * sizeof(shape.dim[0]));
    shape.dim[shape.rank] = 0;
    return shape;
}

static bool shape_fits(const struct shape *declared, const struct shape *own)
{
    bool fits = declared->rank == own->rank;
    for (uint32_t i = 0; fits && i < own->rank; i++)
        fits = declared->dim[i] < 0 || own->dim[i] < 0 || declared->dim[i] == own->dim[i];
    return fits;
}

static enum status tensor_check(const struct side *side, const struct model_file_tensor *t,
                                bool batched, struct error *err)
{
    const struct engine_binding *b = NULL;
    for (uint32_t i = 0; i < side->n; i++)
        if (strcmp(side->bindings[i].name, t->name) == 0)
            b = &side->bindings[i];
    if (!b)
        return name_refuse(side, t->name, err);
    if (t->dtype && t->dtype != b->dtype)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "config.pbtxt: %s '%s': declared as TYPE_%s, but the model has %s",
                         side->word, t->name, dtype_name(t->dtype), dtype_name(b->dtype));
    struct shape own = shape_of(b, batched);
    if (t->dims_given && !shape_fits(&t->shape, &own)) {
        char want[SHAPE_TEXT_MAX], have[SHAPE_TEXT_MAX];
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "config.pbtxt: %s '%s': declared with dims %s, but the model has %s%s",
                         side->word, t->name, shape_format(&t->shape, want),
                         shape_format(&own, have), batched ? " beside the batch" : "");
    }
    return STATUS_OK;
}

static enum status side_check(const struct side *side, bool batched, struct error *err)
{
    for (uint32_t i = 0; i < side->n_declared; i++)
        TRY(tensor_check(side, &side->declared[i], batched, err));
    return STATUS_OK;
}

static enum status batch_check(const struct model_file *file, const struct engine_info *info,
                               struct error *err)
{
    if (file->batched && !info->batched)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "config.pbtxt: max_batch_size: expected 0, since the model has no "
                         "dimension that counts instances, got %u",
                         file->config.max_batch);
    if (file->batched && !engine_counts_first(info))
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "config.pbtxt: max_batch_size: expected 0, since the model counts "
                         "instances elsewhere than in the first dimension of each input and "
                         "output, got %u",
                         file->config.max_batch);
    if (file->config.max_batch > info->max_batch)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "config.pbtxt: max_batch_size: expected at most %u, which the plan was "
                         "built for, got %u",
                         info->max_batch, file->config.max_batch);
    return STATUS_OK;
}

enum status declared_check(const struct model_file *file, const struct engine_info *info,
                           struct error *err)
{
    const struct side inputs = {"input", info->n_inputs, info->inputs, file->n_inputs,
                                file->inputs};
    const struct side outputs = {"output", info->n_outputs, info->outputs, file->n_outputs,
                                 file->outputs};
    TRY(batch_check(file, info, err));
    TRY(side_check(&inputs, file->batched, err));
    TRY(side_check(&outputs, file->batched, err));
    if (file->n_inputs && file->n_inputs != info->n_inputs)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "config.pbtxt: %u inputs are declared, but the model has %u",
                         file->n_inputs, info->n_inputs);
    return STATUS_OK;
}
