/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses outputs that are inputs, writes texts; see output.h. */
#include "tools/output.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/target.h"

enum status output_check_one(const char *output, const char *input, struct error *err)
{
    if (target_same(output, input))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "%.300s: writing it would destroy %.300s, which is read", output, input);
    return STATUS_OK;
}

enum status output_check_named(const char *output, const struct arg_texts *inputs,
                               struct error *err)
{
    for (uint32_t i = 0; i < inputs->n; i++) {
        const char *file = strchr(inputs->list[i], '=');
        if (file)
            TRY(output_check_one(output, file + 1, err));
    }
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

enum status output_text_begin(struct output_text *text, struct error *err)
{
    text->file = open_memstream(&text->data, &text->size);
    return text->file ? STATUS_OK : error_no_memory(err, "a text");
}

enum status output_text_end(struct output_text *text, const char *path, struct error *err)
{
    CLEANUP(file_writer_cleanup) struct file_writer *writer = NULL;
    bool bad = ferror(text->file) != 0;
    if (fclose(STEAL(text->file)) || bad)
        return error_no_memory(err, "%s", path);
    fflush(stdout); /* where the path leads there, what was printed comes first */
    TRY(file_writer_new_text(path, &writer, err));
    TRY(file_writer_put(writer, text->data, text->size, err));
    return file_writer_commit(writer, err);
}

void output_text_cleanup(struct output_text *text)
{
    if (text->file)
        fclose(text->file);
    free(text->data);
}
