/* SPDX-License-Identifier: Apache-2.0 */
/* Ready or not, see readiness.h. */
#include "daemon/readiness.h"

#include <stdio.h>
#include <string.h>

static bool withheld(const struct readiness_models *models)
{
    return models->strict && models->missing > 0;
}

bool readiness_decide(const struct readiness *r)
{
    return r->serving && !r->hung && !r->lost && !withheld(&r->models);
}

struct readiness_models readiness_count(const struct config *config, const struct table *table,
                                        const struct log_sink *log)
{
    struct readiness_models models = {.strict = strcmp(config->readiness, "any") != 0,
                                      .named = config->models_count};
    for (uint32_t i = 0; i < config->models_count; i++) {
        const struct config_model *m = &config->models[i];
        const struct table_entry *e =
            table_find(table, message_text_of(m->name), message_text_of(m->version));
        if (e && e->state == MODEL_READY)
            continue;
        models.missing++;
        if (models.strict)
            log_write(log, LOG_WARNING,
                      "not ready: model '%s' version '%s' is missing (readiness: strict)", m->name,
                      m->version);
    }
    return models;
}

const char *readiness_format(const struct readiness_models *models, uint32_t loaded,
                             char out[READINESS_TEXT])
{
    int len = 0;
    if (withheld(models))
        len = snprintf(out, READINESS_TEXT, "not ready: %u of %u named models %s missing; ",
                       models->missing, models->named, models->missing == 1 ? "is" : "are");
    snprintf(out + len, (size_t)(READINESS_TEXT - len), "serving %u model version%s", loaded,
             loaded == 1 ? "" : "s");
    return out;
}
