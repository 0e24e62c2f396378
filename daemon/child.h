/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `inferctl build` as a child: the daemon links no importer. An ONNX file is input that nobody has
 * checked, so the child is held as if the file had taken it over (child_confine.h): it has the
 * model and an empty file for the plan as open descriptors, may make the system calls that building
 * takes and read what libraries and the model's folder hold, and has no way to other processes, to
 * the network or to any other file. Its time, memory and output are bounded, and it dies with the
 * daemon (child_watch.h). What it leaves is not trusted either: the plan reader checks every field.
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
    uint64_t memory_bytes;      /* 0: three quarters of the machine's */
    const struct log_sink *log; /* its lines, as verbose */
    const _Atomic bool *stop;   /* ends the child early */
};

/* Runs it to its end; the descriptors stay the caller's. Errors have the child's own cause, if it
 * is one that a child can know of, and its last line (DISK_FULL: no room for the plan).
 * DEADLINE_EXCEEDED: it took too long. STOPPED: the server ends. */
enum status child_build(const struct child_build *build, struct error *err);

/* The same of another program, open as a descriptor, with a command line of its own: what a hostile
 * model could try, a test's program tries. */
enum status child_run(const struct child_build *build, int program, char *const *argv,
                      struct error *err);

#endif
