/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs for requests; see request.h. */
#include "tools/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/names.h"
#include "tools/tensor.h"

#define FIELD(name) offsetof(struct request_args, name)

const struct arg request_options[] = {
    {"model", 'm', ARG_TEXT, FIELD(model), "M", "its name; required"},
    {"version", 0, ARG_TEXT, FIELD(version), "V", "its version (default: the newest)"},
    {"input", 'i', ARG_TEXTS, FIELD(inputs), "NAME=FILE",
     ".npy or TensorProto (.pb); random if not given"},
    {"timeout-ms", 0, ARG_U32, FIELD(timeout_ms), "MS",
     "deadline of a request (default: the server's)"},
    {"priority", 0, ARG_U32, FIELD(priority), "P", "0 (first) to 3"},
    {NULL, 0, ARG_FLAG, 0, NULL, NULL},
};

enum status request_error(const struct inferd_error *from, struct error *err)
{
    return error_set(err, (enum status)from->status, "%s", from->text);
}

enum status request_connect(const char *address, struct inferd_client **out, struct error *err)
{
    struct inferd_error from;
    return inferd_client_open(address, NULL, out, &from) ? request_error(&from, err) : STATUS_OK;
}

void request_data_close(struct request_data *data)
{
    for (uint32_t i = 0; i < data->n; i++)
        free(data->tensors[i].data);
    data->n = 0;
}

/* --- from metadata and files --- */

static enum status metadata_of(struct inferd_client *client, const struct request_args *args,
                               const struct inferd_metadata **out, struct error *err)
{
    const struct inferd_response *response;
    struct inferd_error from;
    struct inferd_request q = {.kind = INFERD_MODEL_METADATA,
                               .model = args->model,
                               .version = args->version,
                               .token = args->token.token};
    if (inferd_client_call(client, &q, &response, &from))
        return request_error(&from, err);
    *out = response->metadata;
    return STATUS_OK;
}

static enum status input_check(const struct inferd_metadata *m, const char *name, struct error *err)
{
    struct names names;
    names_init(&names, name, strlen(name));
    for (uint32_t i = 0; i < m->n_inputs; i++) {
        if (strcmp(m->inputs[i].name, name) == 0)
            return STATUS_OK;
        names_add(&names, m->inputs[i].name);
    }
    return error_set(err, STATUS_INVALID_ARGUMENT,
                     "--input '%s': the model has no such input; it has %s", name,
                     names_text(&names));
}

static enum status read_file(const struct inferd_metadata *m, const char *text,
                             struct request_data *data, struct error *err)
{
    const char *path;
    uint32_t i = data->n;
    if (i == INFERD_MAX_TENSORS)
        return error_set(err, STATUS_INVALID_ARGUMENT, "more than %d inputs", INFERD_MAX_TENSORS);
    if (!args_split(text, data->names[i], REQUEST_NAME_MAX, &path))
        return error_set(err, STATUS_INVALID_ARGUMENT, "--input '%s': the form is NAME=FILE", text);
    for (uint32_t k = 0; k < i; k++) {
        if (strcmp(data->names[k], data->names[i]) == 0)
            return error_set(err, STATUS_INVALID_ARGUMENT, "--input '%s' is given twice",
                             data->names[i]);
    }
    TRY(input_check(m, data->names[i], err));
    TRY(tensor_read(path, &data->tensors[i], err));
    data->n++;
    return STATUS_OK;
}

static bool given(const struct request_data *data, const char *name)
{
    for (uint32_t i = 0; i < data->n; i++) {
        if (strcmp(data->names[i], name) == 0)
            return true;
    }
    return false;
}

static enum status make_random(const struct inferd_metadata_tensor *m, struct request_data *data,
                               struct error *err)
{
    uint64_t seed = 1 + data->n;
    uint32_t i = data->n;
    struct tensor_view t = {.dtype = (enum dtype)m->dtype, .shape.rank = m->rank};
    size_t n, bytes;
    for (uint32_t d = 0; d < m->rank; d++) {
        if (m->dim[d] < 0 && d > 0)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "input '%.64s': dimension %u is not fixed: give a file", m->name, d);
        t.shape.dim[d] = m->dim[d] < 0 ? data->instances : m->dim[d];
    }
    if (strlen(m->name) >= REQUEST_NAME_MAX || i == INFERD_MAX_TENSORS ||
        !shape_bytes(&t.shape, t.dtype, &bytes) || !shape_elements(&t.shape, &n))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "input '%.64s' (%.16s) cannot be made: give a file", m->name, m->datatype);
    t.data = malloc(bytes ? bytes : 1);
    if (!t.data)
        return error_no_memory(err, "input '%.64s'", m->name);
    tensor_random(t.data, n, t.dtype, &seed);
    memcpy(data->names[i], m->name, strlen(m->name) + 1);
    data->tensors[i] = t;
    data->n++;
    return STATUS_OK;
}

static bool is_batched(const struct inferd_metadata *m)
{
    for (uint32_t i = 0; i < m->n_inputs; i++) {
        if (m->inputs[i].rank == 0 || m->inputs[i].dim[0] >= 0)
            return false;
    }
    return m->n_inputs > 0;
}

static enum status count_instances(struct request_data *data, uint32_t wanted, struct error *err)
{
    data->instances = data->batched && wanted ? wanted : 1;
    for (uint32_t i = 0; i < data->n && data->batched; i++) {
        const struct shape *s = &data->tensors[i].shape;
        if (s->rank && s->dim[0] == 0)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "input '%s': no instances: its first dimension counts them, and is 0",
                             data->names[i]);
        if (s->rank == 0 || s->dim[0] < 1 || s->dim[0] > UINT32_MAX)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "input '%s': its first dimension must count instances",
                             data->names[i]);
        if (i > 0 && (uint32_t)s->dim[0] != data->instances)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "input '%s': %lld instances, others have %u", data->names[i],
                             (long long)s->dim[0], data->instances);
        data->instances = (uint32_t)s->dim[0];
    }
    return STATUS_OK;
}

static enum status fill(struct inferd_client *client, const struct request_args *args,
                        uint32_t instances, struct request_data *data, struct error *err)
{
    const struct inferd_metadata *m = NULL;
    TRY(metadata_of(client, args, &m, err));
    for (uint32_t i = 0; i < args->inputs.n; i++)
        TRY(read_file(m, args->inputs.list[i], data, err));
    data->batched = is_batched(m);
    TRY(count_instances(data, instances, err));
    for (uint32_t i = 0; i < m->n_inputs; i++) {
        if (!given(data, m->inputs[i].name))
            TRY(make_random(&m->inputs[i], data, err));
    }
    return STATUS_OK;
}

enum status request_data_open(struct inferd_client *client, const struct request_args *args,
                              uint32_t instances, struct request_data *out, struct error *err)
{
    memset(out, 0, sizeof(*out));
    enum status status = fill(client, args, instances, out, err);
    if (status)
        request_data_close(out);
    return status;
}

/* --- instances --- */

enum status request_data_resize(struct request_data *data, uint32_t instances, struct error *err)
{
    if (!data->batched || instances == data->instances)
        return STATUS_OK;
    for (uint32_t i = 0; i < data->n; i++) {
        struct tensor_view *t = &data->tensors[i];
        size_t have, want;
        if (!shape_bytes(&t->shape, t->dtype, &have) ||
            !checked_mul(have / data->instances, instances, &want))
            return error_set(err, STATUS_RESOURCE_EXHAUSTED, "%u instances are too many",
                             instances);
        char *bytes = realloc(t->data, want ? want : 1);
        if (!bytes)
            return error_no_memory(err, "%u instances", instances);
        for (size_t at = have; at < want && have > 0; at += have)
            memcpy(bytes + at, bytes, MIN(have, want - at));
        t->data = bytes;
    }
    for (uint32_t i = 0; i < data->n; i++)
        data->tensors[i].shape.dim[0] = instances;
    data->instances = instances;
    return STATUS_OK;
}

struct inferd_request request_slice(const struct request_data *data,
                                    const struct request_args *args, uint32_t first, uint32_t count,
                                    struct inferd_tensor *tensors)
{
    for (uint32_t i = 0; i < data->n; i++) {
        const struct tensor_view *t = &data->tensors[i];
        size_t bytes = 0;
        if (!shape_bytes(&t->shape, t->dtype, &bytes))
            bytes = 0; /* it was made or read, so it has a size */
        size_t each = data->batched ? bytes / data->instances : bytes;
        tensors[i] = (struct inferd_tensor){.name = data->names[i],
                                            .dtype = (enum inferd_dtype)t->dtype,
                                            .rank = t->shape.rank,
                                            .data = (const char *)t->data + first * each,
                                            .size = count * each};
        memcpy(tensors[i].dim, t->shape.dim, sizeof(tensors[i].dim));
        if (data->batched)
            tensors[i].dim[0] = count;
    }
    return (struct inferd_request){.model = args->model,
                                   .version = args->version,
                                   .token = args->token.token,
                                   .n_inputs = data->n,
                                   .inputs = tensors,
                                   .timeout_us = (uint64_t)args->timeout_ms * 1000,
                                   .priority = args->priority};
}
