/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The token of commands that talk to a daemon. It is the first line of a file, whose name comes
 * from the command line or the environment, or a text on the command line, which everybody on the
 * machine can read there.
 */
#ifndef INFERD_TOOLS_TOKEN_H
#define INFERD_TOOLS_TOKEN_H

#include "base/token.h"
#include "tools/args.h"

struct token_args {
    const char *token, *file;
    char text[TOKEN_MOST + 1]; /* what came from the file */
};

extern const struct arg token_options[]; /* for commands that have a struct token_args */

/* After args_parse: -1, or EXIT_USAGE after a complaint. */
int token_args_check(const struct token_args *args, const struct args *spec);

/* Sets `token` from the file, if one is named; it stays NULL if there is no token. */
enum status token_args_load(struct token_args *args, struct error *err);

#endif
