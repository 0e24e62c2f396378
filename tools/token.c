/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens for requests; see token.h. */
#include "tools/token.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct arg token_options[] = {
    {"token-file", 0, ARG_TEXT, offsetof(struct token_args, file), "FILE",
     "send its first line as the token (default: $INFERD_TOKEN_FILE)"},
    {"token", 0, ARG_TEXT, offsetof(struct token_args, token), "TEXT",
     "send this token; ps shows it to everybody"},
    {NULL, 0, ARG_FLAG, 0, NULL, NULL},
};

int token_args_check(const struct token_args *args, const struct args *spec)
{
    if (!args->token || !args->file)
        return -1;
    fprintf(stderr, "--token and --token-file: give only one of them; usage: %s\n", spec->usage);
    return EXIT_USAGE;
}

/* The file may be a pipe: shells make one of `<(command)`. */
static enum status line_read(const char *path, char *out, size_t size, size_t *len,
                             struct error *err)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return error_errno(err, errno, "%s", path);
    errno = 0;
    size_t n = fread(out, 1, size, f);
    int why = ferror(f) ? errno ? errno : EIO : 0;
    fclose(f);
    if (why)
        return error_errno(err, why, "%s", path);
    const char *end = memchr(out, '\n', n);
    *len = end ? (size_t)(end - out) : n;
    *len -= *len > 0 && out[*len - 1] == '\r';
    return STATUS_OK;
}

enum status token_args_load(struct token_args *args, struct error *err)
{
    const char *path = args->file ? args->file : getenv("INFERD_TOKEN_FILE");
    char line[TOKEN_MOST + 2]; /* with the end of the line */
    size_t len = 0;
    if (args->token || !path || !*path)
        return STATUS_OK;
    TRY(line_read(path, line, sizeof(line), &len, err));
    if (!token_ok(line, len))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "%s: expected a token of %d to %d printable characters in the first line",
                         path, TOKEN_LEAST, TOKEN_MOST);
    memcpy(args->text, line, len);
    args->text[len] = '\0';
    args->token = args->text;
    return STATUS_OK;
}
