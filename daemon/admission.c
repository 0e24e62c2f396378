/* SPDX-License-Identifier: Apache-2.0 */
/* Requests against models; see admission.h. */
#include "daemon/admission.h"

#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/names.h"

static int find_input(const struct request *request, const char *name)
{
    struct message_text wanted = message_text_of(name);
    for (uint32_t i = 0; i < request->n_inputs; i++)
        if (message_text_equal(request->inputs[i].name, wanted))
            return (int)i;
    return -1;
}

static bool model_has_input(const struct engine_info *model, struct message_text name)
{
    for (uint32_t i = 0; i < model->n_inputs; i++)
        if (message_text_equal(name, message_text_of(model->inputs[i].name)))
            return true;
    return false;
}

/* Sizes must be equal to the binding's; where the binding has -1, any size fits. */
static bool shape_fits(const struct shape *wanted, const struct shape *came)
{
    if (wanted->rank != came->rank)
        return false;
    for (uint32_t i = 0; i < wanted->rank; i++)
        if (wanted->dim[i] != -1 && wanted->dim[i] != came->dim[i])
            return false;
    return true;
}

static enum status type_check(const struct engine_binding *wanted,
                              const struct message_tensor *came, struct error *err)
{
    if (came->dtype != wanted->dtype)
        return error_set(err, STATUS_INVALID_ARGUMENT, "input '%s': expected %s, got %s",
                         wanted->name, dtype_name(wanted->dtype), dtype_name(came->dtype));
    return STATUS_OK;
}

static enum status shape_check(const struct engine_binding *wanted, const struct shape *came,
                               struct error *err)
{
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    if (!shape_fits(&wanted->shape, came))
        return error_set(err, STATUS_INVALID_ARGUMENT, "input '%s': expected shape %s, got %s",
                         wanted->name, shape_format(&wanted->shape, a), shape_format(came, b));
    return STATUS_OK;
}

/* --- instances --- */

/* Finds how many instances the request has; all its inputs must have as many. */
static enum status instances_check(const struct engine_binding *wanted, const struct shape *came,
                                   uint32_t axis, uint32_t max_batch, uint32_t *instances,
                                   struct error *err)
{
    int64_t n = came->dim[axis];
    if (n < 1 || n > max_batch)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "input '%s': %lld instances; this model takes 1 to %u", wanted->name,
                         (long long)n, max_batch);
    if (*instances && *instances != n)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "input '%s': %lld instances, but %u in the inputs before it", wanted->name,
                         (long long)n, *instances);
    *instances = (uint32_t)n;
    return STATUS_OK;
}

/* --- free dimensions --- */

static enum status value_check(const struct engine_free *f, const char *input, uint32_t axis,
                               int64_t value, int64_t *known, struct error *err)
{
    if (value < f->low || value > f->high)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "input '%s': dimension %u ('%s') is %lld; this model takes %lld to %lld",
                         input, axis, f->name, (long long)value, (long long)f->low,
                         (long long)f->high);
    if (*known && *known != value)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "input '%s': dimension %u ('%s') is %lld, but %lld elsewhere", input, axis,
                         f->name, (long long)value, (long long)*known);
    *known = value;
    return STATUS_OK;
}

/* Takes the values of the free dimensions from an input. */
static enum status values_check(const struct engine_info *model, const char *input,
                                const struct engine_axes *axes, const struct shape *shape,
                                int64_t *values, struct error *err)
{
    for (uint32_t d = 0; model->n_free && d < shape->rank; d++) {
        uint32_t number = axes->free[d];
        if (number)
            TRY(value_check(&model->free[number - 1], input, d, shape->dim[d], &values[number - 1],
                            err));
    }
    return STATUS_OK;
}

void admission_values_text(const struct engine_info *model, const int64_t *values,
                           char out[ADMISSION_VALUES_TEXT])
{
    size_t len = 0;
    *out = '\0';
    for (uint32_t i = 0; i < model->n_free && len < ADMISSION_VALUES_TEXT - 1; i++)
        len += (size_t)snprintf(out + len, ADMISSION_VALUES_TEXT - len, "%s%.32s=%lld",
                                i ? ", " : "", model->free[i].name, (long long)values[i]);
}

enum { POINTS_TOLD = 4 };

enum status admission_no_point(const struct engine_info *model, const int64_t *values,
                               struct error *err)
{
    char wanted[ADMISSION_VALUES_TEXT], one[ADMISSION_VALUES_TEXT];
    char there[POINTS_TOLD * ADMISSION_VALUES_TEXT / 2] = "";
    size_t len = 0;
    admission_values_text(model, values, wanted);
    for (uint32_t i = 0; i < MIN(model->n_points, (uint32_t)POINTS_TOLD); i++) {
        admission_values_text(model, model->points[i].values, one);
        if (len < sizeof(there))
            len += (size_t)snprintf(there + len, sizeof(there) - len, "%s%s", i ? "; " : "", one);
    }
    return error_set(err, STATUS_FAILED_PRECONDITION,
                     "no profile of the model is for %s; there are %s%s (inferctl build "
                     "--profiles makes others, and so does on_new_shape in the configuration)",
                     wanted, there, model->n_points > POINTS_TOLD ? "; and more" : "");
}

static enum status no_such(const char *what, struct message_text wanted,
                           const struct engine_binding *list, uint32_t n, struct error *err)
{
    struct names names;
    names_init(&names, wanted.data, wanted.len);
    for (uint32_t i = 0; i < n; i++)
        names_add(&names, list[i].name);
    return error_set(err, STATUS_INVALID_ARGUMENT, "the model has no %s '%.*s'; it has %s", what,
                     MESSAGE_TEXT(wanted), names_text(&names));
}

static const struct engine_axes plain;

/* What the shape of an input says of the request. */
static enum status sizes_take(const struct engine_info *model, uint32_t input, uint32_t max_batch,
                              const struct shape *shape, struct admission_sizes *out,
                              struct error *err)
{
    const struct engine_binding *wanted = &model->inputs[input];
    const struct engine_axes *axes = model->input_axes ? &model->input_axes[input] : &plain;
    TRY(shape_check(wanted, shape, err));
    TRY(values_check(model, wanted->name, axes, shape, out->values, err));
    if (model->batched && !model->ragged && !axes->shared) /* tokens are counted with the payload */
        TRY(instances_check(wanted, shape, axes->batch, max_batch, &out->instances, err));
    return STATUS_OK;
}

static struct admission_sizes sizes_none(const struct engine_info *model)
{
    return (struct admission_sizes){.instances = model->batched ? 0 : 1};
}

static void sizes_end(const struct engine_info *model, struct admission_sizes *sizes)
{
    sizes->fit = engine_fit_of(model, sizes->values, &sizes->point);
    sizes->instances = MAX(sizes->instances, 1u); /* a model without inputs */
}

enum status admission_sizes_check(const struct engine_info *model, uint32_t max_batch,
                                  const struct shape *shapes, struct admission_sizes *out,
                                  struct error *err)
{
    struct admission_sizes sizes = sizes_none(model);
    for (uint32_t i = 0; i < model->n_inputs; i++)
        TRY(sizes_take(model, i, max_batch, &shapes[i], &sizes, err));
    sizes_end(model, &sizes);
    *out = sizes;
    return STATUS_OK;
}

static enum status inputs_check(const struct engine_info *model, uint32_t max_batch,
                                const struct request *request, struct admission *out,
                                struct error *err)
{
    struct admission_sizes sizes = sizes_none(model);
    out->payload_bytes = 0;
    for (uint32_t i = 0; i < model->n_inputs; i++) {
        const struct engine_binding *wanted = &model->inputs[i];
        int at = find_input(request, wanted->name);
        if (at < 0)
            return error_set(err, STATUS_INVALID_ARGUMENT, "input '%s' is missing", wanted->name);
        const struct message_tensor *came = &request->inputs[at];
        TRY(type_check(wanted, came, err));
        TRY(sizes_take(model, i, max_batch, &came->shape, &sizes, err));
        size_t bytes;
        if (!shape_bytes(&came->shape, came->dtype, &bytes) ||
            !checked_round_up(bytes, ADMISSION_ALIGN, &bytes) ||
            !checked_add(out->payload_bytes, bytes, &out->payload_bytes))
            return error_set(err, STATUS_INVALID_ARGUMENT, "input '%s': too large", wanted->name);
        out->input[i] = (uint8_t)at;
    }
    for (uint32_t i = 0; i < request->n_inputs; i++)
        if (!model_has_input(model, request->inputs[i].name))
            return no_such("input", request->inputs[i].name, model->inputs, model->n_inputs, err);
    sizes_end(model, &sizes);
    out->instances = sizes.instances;
    out->point = sizes.point;
    out->fit = sizes.fit;
    memcpy(out->values, sizes.values, sizeof(out->values));
    return STATUS_OK;
}

static enum status outputs_check(const struct engine_info *model, const struct request *request,
                                 struct admission *out, struct error *err)
{
    out->n_outputs = request->n_outputs ? request->n_outputs : model->n_outputs;
    for (uint32_t i = 0; i < out->n_outputs; i++) {
        uint32_t at = i;
        if (request->n_outputs)
            for (at = 0; at < model->n_outputs; at++)
                if (message_text_equal(request->outputs[i],
                                       message_text_of(model->outputs[at].name)))
                    break;
        if (at == model->n_outputs)
            return no_such("output", request->outputs[i], model->outputs, model->n_outputs, err);
        out->output[i] = (uint8_t)at;
    }
    return STATUS_OK;
}

enum status admission_check(const struct engine_info *model, uint32_t max_batch,
                            const struct request *request, struct admission *out, struct error *err)
{
    struct admission admission = {0};
    TRY(inputs_check(model, max_batch, request, &admission, err));
    TRY(outputs_check(model, request, &admission, err));
    *out = admission;
    return STATUS_OK;
}

static enum status bindings_check(const struct engine_binding *bindings, uint32_t n,
                                  const char *what, struct error *err)
{
    if (n > MESSAGE_MAX_TENSORS)
        return error_set(err, STATUS_UNIMPLEMENTED, "%u %ss; a request carries at most %d", n, what,
                         MESSAGE_MAX_TENSORS);
    for (uint32_t i = 0; i < n; i++)
        if (!message_tensor_name_ok(message_text_of(bindings[i].name)))
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "%s '%s': names have 1 to %d printable characters without spaces",
                             what, bindings[i].name, MESSAGE_MAX_NAME);
    return STATUS_OK;
}

enum status admission_model_check(const struct engine_info *model, struct error *err)
{
    for (uint32_t i = 0; model->batched && !model->input_axes && i < model->n_inputs; i++)
        if (model->inputs[i].shape.rank == 0 || model->inputs[i].shape.dim[0] != -1)
            return error_set(err, STATUS_FAILED_PRECONDITION,
                             "input '%s' of a batched model does not count instances",
                             model->inputs[i].name);
    TRY(bindings_check(model->inputs, model->n_inputs, "input", err));
    return bindings_check(model->outputs, model->n_outputs, "output", err);
}
