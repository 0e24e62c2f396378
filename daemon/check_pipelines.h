/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of a configuration's check that is about pipelines (daemon/pipeline.h): whether they fit
 * the models beside them. Only if there are any, engines of models are kept until then.
 */
#ifndef INFERD_DAEMON_CHECK_PIPELINES_H
#define INFERD_DAEMON_CHECK_PIPELINES_H

#include "daemon/repository.h"

struct check_pipelines;

/* `list` is all of the configuration. *out is NULL if there is no pipeline in it. */
enum status check_pipelines_new(const struct config *config, const struct wanted_list *list,
                                struct check_pipelines **out, struct error *err);
void check_pipelines_free(struct check_pipelines *check); /* NULL is fine */

/* A model that can be served, `max_instances` in a request; a reference to its engine is taken. */
enum status check_pipelines_model(struct check_pipelines *check, const struct wanted *wanted,
                                  struct engine *engine, uint32_t max_instances, struct error *err);
enum status check_pipelines_add(struct check_pipelines *check, const struct wanted *wanted,
                                struct error *err);

/* After the last of them: calls `found` for each pipeline; `err` NULL: it can be served. */
void check_pipelines_run(struct check_pipelines *check,
                         void (*found)(void *user, const struct table_entry *entry,
                                       const struct error *err),
                         void *user);

#endif
