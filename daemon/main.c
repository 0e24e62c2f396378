/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inferd. Exit status: 0 stopped by a signal, or the configuration is in order; 1 failure, a lost
 * device among them; 2 wrong usage.
 *
 * oneDNN's threads are those of libgomp, which reads its environment when it is loaded, before
 * main. Unless the operator chose how they wait, the program sets that and starts itself once more
 * (base/restart.h); the process stays the same for a service manager.
 *
 * For tests: INFERD_FAULT_SCRIPT is the script of the device "fault", and INFERD_REFERENCE_KERNELS
 * keeps the CPU to plain kernels, which sanitizers see through.
 */
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "base/restart.h"
#include "base/standard.h"
#include "daemon/check.h"
#include "daemon/last_words.h"
#include "daemon/options.h"
#include "daemon/server.h"

/* Blocks of this size and more have mappings of their own, which go back when they are freed. Left
 * to itself, glibc raises the size with every such block, up to 32 MiB; frames and replies then lie
 * in the threads' heaps, and a small block at the end of a heap keeps all of it. */
enum { MAPPED_BYTES = 128 << 10 };

/* The process is closed to others of its account, a build child among them: they cannot open its
 * memory, its environment or its descriptors in /proc, nor trace it. The price: debuggers and
 * profilers, and whoever lists /proc/PID/fd, need root. Cores are left all the same (last_words.h).
 * At its end it is opened again for leak checkers, which trace it from a process that is a copy of
 * it. */
static void close_to_others(bool closed)
{
    prctl(PR_SET_DUMPABLE, closed ? 0 : 1, 0, 0, 0);
}

/* What could not be printed is a failure; one that came before has its own line and status. A
 * server is left out: it has served, whoever took its lines. */
static int finish(int result)
{
    struct error err;
    if (!standard_flush(stdout, &err) || result)
        return result;
    fprintf(stderr, "inferd: %s\n", err.text);
    return EXIT_FAILURE;
}

static int run(struct options *options)
{
    close_to_others(true);
    struct config *config;
    struct error err;
    int result = EXIT_FAILURE;
    if (options_configure(options, &config, &err)) {
        fprintf(stderr, "inferd: %s\n", err.text);
    } else if (options->check) {
        result = finish(check_run(config));
        config_free(config);
    } else {
        result = server_run(options, config);
    }
    options_deinit(options);
    close_to_others(false);
    return result;
}

int main(int argc, char **argv)
{
    standard_open();
    server_signals_hold();
    restart_for_openmp(argv);
    last_words_install();
    mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
    prctl(PR_SET_NAME, "inferd"); /* else it would be called after the link it was started by */
    struct options options;
    switch (options_parse(argc, argv, &options)) {
    case OPTIONS_DONE:
        return finish(EXIT_SUCCESS);
    case OPTIONS_WRONG:
        return 2;
    case OPTIONS_FAILED:
        return EXIT_FAILURE;
    case OPTIONS_RUN:
        break;
    }
    return run(&options);
}
