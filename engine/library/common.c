/* SPDX-License-Identifier: Apache-2.0 */
/* Versions, names, errors, and structs that may grow. */
#include <stdio.h>

#include "base/cleanup.h"
#include "engine/library/internal.h"

/* Both enums have the engine's numbers. */
_Static_assert((int)INFERD_ENGINE_FP64 == DTYPE_F64 && INFERD_ENGINE_FP64 + 1 == DTYPE_F8,
               "element types are numbered alike");
_Static_assert((int)INFERD_ENGINE_DATA_LOSS == STATUS_DATA_LOSS, "statuses are numbered alike");
_Static_assert((int)INFERD_ENGINE_OF_DEVICE == ERROR_DEVICE, "scopes are numbered alike");
_Static_assert((int)INFERD_ENGINE_LOG_VERBOSE == LOG_VERBOSE, "log levels are numbered alike");
_Static_assert((int)INFERD_ENGINE_MAX_RANK == SHAPE_MAX_RANK, "shapes have the same length");
_Static_assert((int)INFERD_ENGINE_ERROR_TEXT == ERROR_TEXT_MAX, "an error's text fits");

enum { STRUCT_MAX = 4096 }; /* bytes: a larger `size` is no size */

uint32_t inferd_engine_api(void)
{
    return INFERD_ENGINE_API;
}

const char *inferd_engine_version(void)
{
    return INFERD_VERSION;
}

const char *inferd_engine_status_name(enum inferd_engine_status status)
{
    return status_name((enum status)status);
}

const char *inferd_engine_dtype_name(enum inferd_engine_dtype dtype)
{
    return dtype_name((enum dtype)dtype);
}

size_t inferd_engine_dtype_size(enum inferd_engine_dtype dtype)
{
    return dtype_size((enum dtype)dtype);
}

enum inferd_engine_status library_tell(enum status status, const struct error *why,
                                       struct inferd_engine_error *err)
{
    if (status && err) {
        err->status = (enum inferd_engine_status)status;
        err->scope = (enum inferd_engine_scope)why->scope;
        memcpy(err->text, why->text, sizeof(err->text));
    }
    return (enum inferd_engine_status)status;
}

static enum status read_size(const void *theirs, size_t *out, struct error *err)
{
    memcpy(out, theirs, sizeof(*out));
    if (*out < sizeof(*out) || *out > STRUCT_MAX)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "a struct of %zu bytes: make it by its init function", *out);
    return STATUS_OK;
}

enum status library_read(void *own, size_t own_size, const void *theirs, struct error *err)
{
    size_t size;
    memset(own, 0, own_size);
    if (!theirs)
        return STATUS_OK;
    TRY(read_size(theirs, &size, err));
    for (size_t i = own_size; i < size; i++)
        if (((const char *)theirs)[i])
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "a struct of %zu bytes has members set that version %s does not know",
                             size, INFERD_VERSION);
    memcpy(own, theirs, MIN(size, own_size));
    return STATUS_OK;
}

enum status library_write(void *theirs, const void *own, size_t own_size, struct error *err)
{
    size_t size;
    TRY(read_size(theirs, &size, err));
    size_t first = sizeof(size), known = MIN(size, own_size);
    memcpy((char *)theirs + first, (const char *)own + first, known - first);
    memset((char *)theirs + known, 0, size - known);
    return STATUS_OK;
}

void library_shape(const struct shape *shape, uint32_t *rank, int64_t *dim)
{
    *rank = shape->rank;
    memcpy(dim, shape->dim, sizeof(shape->dim));
}
