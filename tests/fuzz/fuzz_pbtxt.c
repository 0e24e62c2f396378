/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a config.pbtxt. What is accepted keeps to the bounds that its users count on; a
 * pipeline is bound to models, and has steps that can run. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/model_file.h"
#include "config/schema.h"
#include "http/config_text.h"
#include "tests/unit/daemon/bound.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void rising(const uint32_t *list, uint32_t n, uint32_t most)
{
    must(n <= most);
    for (uint32_t i = 0; i < n; i++)
        must(list[i] > (i ? list[i - 1] : 0));
}

static void tensors(const struct model_file_tensor *list, uint32_t n)
{
    must(n <= MODEL_FILE_TENSORS);
    for (uint32_t i = 0; i < n; i++)
        must(list[i].name && *list[i].name && list[i].shape.rank <= SHAPE_MAX_RANK);
}

/* Before there is input: what is bound to is no part of what may fail. */
__attribute__((constructor)) static void table_make(void)
{
    bound_table();
}

static void pipeline(struct model_file *file)
{
    struct pipeline *bound = NULL;
    struct error err = {0};
    must(file->n_steps <= MODEL_FILE_STEPS);
    enum status status = pipeline_bind(bound_table(), file, &bound, &err);
    must(status ? !bound && err.text[0] : bound != NULL);
    if (bound)
        bound_check(bound);
    pipeline_free(bound);
}

static void file_check(enum status status, struct model_file *file, const struct error *err)
{
    if (status) {
        must(!file && err->status == status && err->text[0]);
        return;
    }
    const struct config_model *c = &file->config;
    rising(c->preferred, c->preferred_count, CONFIG_PREFERRED_MAX);
    rising(c->batches, c->batches_count, CONFIG_BATCHES_MAX);
    tensors(file->inputs, file->n_inputs);
    tensors(file->outputs, file->n_outputs);
    must(c->inputs_count <= CONFIG_INPUTS_MAX);
    must(!file->file || !strchr(file->file, '/'));
    must(c->default_priority <= c->priority_levels);
    if (file->n_steps)
        pipeline(file);
    model_file_free(file);
}

/* As a load brings it: JSON, which becomes such a text. */
static void json_take(struct message_text json)
{
    struct model_file *file = NULL;
    struct error err = {0};
    struct text text;
    text_init(&text, MODEL_FILE_MAX);
    enum status status = config_text_of_json(json, &text, &err);
    if (!status)
        status = model_file_parse_quoted("fuzz", text.data, text.len, "m", NULL, &file, &err);
    file_check(status, file, &err);
    text_deinit(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model_file *file = NULL;
    struct error err = {0};
    enum status status = model_file_parse("fuzz", data, size, "m", NULL, &file, &err);
    file_check(status, file, &err);
    json_take((struct message_text){(const char *)data, size});
    return 0;
}
