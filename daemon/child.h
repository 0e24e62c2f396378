/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `inferctl build` as a child: the daemon links no importer. An ONNX file is input that nobody has
 * checked, so the child has no network and no way into other processes (seccomp; for a device it
 * has the local sockets that drivers use), no new rights, bounded CPU time, file size and
 * descriptors, and dies with the daemon. What it leaves is not trusted either: the plan reader
 * checks every field.
 */
#ifndef INFERD_DAEMON_CHILD_H
#define INFERD_DAEMON_CHILD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "config/config.h"

struct child_build {
    int model_fd;       /* the model, open for reading */
    const char *name;   /* of the model's file, for messages */
    int folder;         /* what the model's external data lie in; -1: it has none */
    int plan_fd;        /* an empty file, open for writing: the plan */
    const char *device; /* "cpu" */
    uint32_t threads;
    bool reference;          /* plain kernels only */
    const uint32_t *batches; /* may be none */
    uint32_t n_batches;
    const struct config_input *inputs; /* served as other types; may be none */
    uint32_t n_inputs;
    uint32_t timeout_s;
    const struct log_sink *log; /* its lines, as verbose */
    const _Atomic bool *stop;   /* ends the child early */
};

/* Runs it to its end; the descriptors stay the caller's. Errors have the child's own status and its
 * last line (RESOURCE_EXHAUSTED: no memory, or no room for the plan). DEADLINE_EXCEEDED: it took
 * too long. CANCELLED: it was stopped. */
enum status child_build(const struct child_build *build, struct error *err);

#endif
