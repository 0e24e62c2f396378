/* SPDX-License-Identifier: Apache-2.0 */
/* See guard_data.h. */
#include "tools/guard_data.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tools/dataset.h"

struct guard_data {
    struct guard_source source;
    const char *folder;
    const char *names[IR_MAX_IO];
    uint32_t n;
    struct dataset *set;
    bool some; /* the set has given a sample since it was opened */
};

static enum status open_set(struct guard_data *d, struct error *err)
{
    dataset_close(d->set);
    d->set = NULL;
    d->some = false;
    return dataset_open(d->folder, d->names, d->n, 0, &d->set, err);
}

static enum status next(struct guard_data *d, const struct dataset_want *want, const void **data,
                        struct error *err)
{
    for (;;) {
        bool end = true;
        TRY(dataset_next(d->set, want, data, &end, err));
        if (!end) {
            d->some = true;
            return STATUS_OK;
        }
        if (!d->some)
            return error_set(err, STATUS_INVALID_ARGUMENT, "--data %.200s: there is no sample",
                             d->folder);
        TRY(open_set(d, err));
    }
}

static enum status read_batch(void *user, const struct ir_graph *graph, uint32_t batch,
                              uint32_t index, void *const *to, struct error *err)
{
    struct guard_data *d = user;
    struct dataset_want want[IR_MAX_IO] = {{0}};
    uint32_t place[IR_MAX_IO] = {0};
    const void *data[IR_MAX_IO] = {0};
    if (index == 0)
        TRY(open_set(d, err));
    dataset_wants(d->names, d->n, graph, batch > 0, want, place);
    for (uint32_t row = 0; row < MAX(batch, 1); row++) {
        TRY(next(d, want, data, err));
        for (uint32_t i = 0; i < d->n; i++) {
            size_t size = 0;
            if (place[i] == IR_NONE || !shape_bytes(&want[i].shape, want[i].dtype, &size))
                continue;
            memcpy((char *)to[place[i]] + row * size, data[i], size);
        }
    }
    return STATUS_OK;
}

enum status guard_data_open(const char *folder, const struct onnx_survey *survey,
                            struct guard_data **out, struct error *err)
{
    struct guard_data *d = calloc(1, sizeof(*d));
    if (!d)
        return error_no_memory(err, "the data");
    d->source = (struct guard_source){.read = read_batch, .user = d};
    d->folder = folder;
    d->n = MIN(survey->n_inputs, (uint32_t)IR_MAX_IO);
    for (uint32_t i = 0; i < d->n; i++)
        d->names[i] = survey->inputs[i].name;
    enum status status = open_set(d, err);
    if (status) {
        guard_data_close(d);
        return status;
    }
    *out = d;
    return STATUS_OK;
}

void guard_data_close(struct guard_data *d)
{
    if (!d)
        return;
    dataset_close(d->set);
    free(d);
}

const struct guard_source *guard_data_source(const struct guard_data *d)
{
    return &d->source;
}
