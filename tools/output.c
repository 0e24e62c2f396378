/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses outputs that are inputs; see output.h. */
#include "tools/output.h"

#include "base/target.h"

enum status output_check_one(const char *output, const char *input, struct error *err)
{
    if (target_same(output, input))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "%.300s: writing it would destroy %.300s, which is read", output, input);
    return STATUS_OK;
}

static enum status check_list(const char *output, const struct arg_texts *inputs, struct error *err)
{
    for (uint32_t i = 0; i < inputs->n; i++)
        TRY(output_check_one(output, inputs->list[i], err));
    return STATUS_OK;
}

enum status output_check(const char *output, const char *model, const struct model_args *args,
                         struct error *err)
{
    TRY(output_check_one(output, model, err));
    if (!args)
        return STATUS_OK;
    if (args->timing_cache)
        TRY(output_check_one(output, args->timing_cache, err));
    TRY(check_list(output, &args->ranges, err));
    return check_list(output, &args->plugins, err);
}
