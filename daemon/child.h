/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds plans with `inferctl build` as a child, because the daemon links no importer. Nobody has
 * checked an ONNX file, so the child is confined as if the file had taken it over
 * (child_confine.h). It has the model and an empty file for the plan as open descriptors. It may
 * make the system calls that building takes and read libraries and the model's folder, but it
 * cannot reach other processes, the network or any other file. Its time, memory and output are
 * bounded, and it dies with the daemon (child_watch.h). Nor is its plan trusted: the plan reader
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
    const struct config_texts *sizes; /* CONFIG_SIZE_COUNT_ of them; NULL: none */
    const char *precision;            /* NULL: fp32 */
    uint64_t max_bytes, workspace;    /* 0: the build's own, as the next */
    uint32_t memory_percent;
    char *const *plugins; /* files; may be none */
    uint32_t n_plugins;
    uint32_t timeout_s;
    uint64_t memory_bytes;      /* 0: three quarters of the machine's */
    const struct log_sink *log; /* gets its lines, as verbose */
    const _Atomic bool *stop;   /* ends the child early */
};

/* Runs the child to its end; the descriptors stay the caller's. An error has the child's own cause,
 * if a child can know of that cause, and the last line that the child wrote. DISK_FULL: no room for
 * the plan. DEADLINE_EXCEEDED: the child took too long. STOPPED: the server stops. */
enum status child_build(const struct child_build *build, struct error *err);

/* Does the same with another program, open as a descriptor, and with a command line of its own.
 * Tests use it to run a program that tries what a hostile model could. */
enum status child_run(const struct child_build *build, int program, char *const *argv,
                      struct error *err);

#endif
