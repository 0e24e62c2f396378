/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands of inferctl: one file each, one row each in inferctl.c's table. */
#ifndef INFERD_TOOLS_INFERCTL_H
#define INFERD_TOOLS_INFERCTL_H

#include "base/error.h"

/* argv[0] is the subcommand's name. The functions return the exit code (args.h). */
int command_build(int argc, char **argv);
int command_calibrate(int argc, char **argv);
int command_inspect(int argc, char **argv);
int command_graph(int argc, char **argv);
int command_run(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_infer(int argc, char **argv);
int command_load(int argc, char **argv);
int command_models(int argc, char **argv);
int command_status(int argc, char **argv);
int command_sign(int argc, char **argv);
int command_token(int argc, char **argv);
int command_completion(int argc, char **argv);

/* All of them; ends with a NULL name. */
struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
};
extern const struct command commands[];

/* Prints "inferctl COMMAND: text" on stderr, with "unsupported:" before the text if that is the
 * reason. Returns EXIT_FAILED. */
int command_failed(const char *command, const struct error *err);

#endif
