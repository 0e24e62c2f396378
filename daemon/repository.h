/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which versions of which models are to be served: those of the configuration, and those found in
 * the repository, <repository>/<model>/<version>/model.plan or model.onnx. Files below the
 * repository are opened without following symbolic links or leaving it (R13 of docs/operations.md).
 */
#ifndef INFERD_DAEMON_REPOSITORY_H
#define INFERD_DAEMON_REPOSITORY_H

#include "base/log.h"
#include "daemon/model.h"

struct wanted {
    struct config_model config; /* the configuration's, or defaults; the strings are not its own */
    char *name, *version;
    char *path;                 /* of the file, below `folder` if that is not -1 */
    int folder;                 /* the file's folder in the repository; -1: `path` says it all */
    int fd;                     /* the file; -1: it could not be opened */
    bool onnx;                  /* else a plan */
    struct model_source source; /* which file this is; its path is `path` of the listing */
    struct error err;           /* why fd is -1 */
};

struct wanted_list {
    uint32_t n, capacity;
    struct wanted *items;
};

/* What cannot be opened is listed with its reason. Fails if the repository cannot be read, if two
 * entries have the same name and version, or for want of memory. */
enum status repository_list(const struct config *config, const struct log_sink *log,
                            struct wanted_list *out, struct error *err);
void repository_list_deinit(struct wanted_list *list);

/* A digest of the types that inputs are served as; 0: all as the model has them. */
uint64_t wanted_inputs_digest(const struct config_model *config);

bool model_source_equal(const struct model_source *a, const struct model_source *b);

#endif
