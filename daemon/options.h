/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line. It overrides the configuration file, at the start and at every reload: so what
 * it says is kept, and applied to each configuration that is read.
 */
#ifndef INFERD_DAEMON_OPTIONS_H
#define INFERD_DAEMON_OPTIONS_H

#include "config/config.h"

struct options {
    const char *config_file;                  /* NULL: defaults */
    const char *device;                       /* NULL: the file's */
    int64_t max_delay_us, max_batch, workers; /* -1: the file's */
    bool check, insecure;
    uint32_t n_models;
    struct config_addresses listen[CONFIG_DOOR_COUNT_];
    char **models; /* arguments; the arrays are the options' own */
};

enum options_result {
    OPTIONS_RUN,
    OPTIONS_DONE,   /* --help, --version: all is said */
    OPTIONS_WRONG,  /* the reason is on stderr */
    OPTIONS_FAILED, /* likewise */
};

enum options_result options_parse(int argc, char **argv, struct options *out);
void options_deinit(struct options *options);

/* The file, the options over it, and the check of the whole. */
enum status options_configure(const struct options *options, struct config **out,
                              struct error *err);

#endif
