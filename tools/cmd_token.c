/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inferctl token makes a new token, and the line for the daemon's file of tokens.
 *
 * Nobody may choose a token: its hash is a fast one (base/token.h), which would not protect a
 * password. Without --output the token is the first line of the output, so that the output can be a
 * client's token file.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/right.h"
#include "base/token.h"
#include "proto/message.h"
#include "tools/args.h"
#include "tools/inferctl.h"

enum { RIGHTS_TEXT = 256 };

struct token_command {
    const char *rights, *output;
};

static const struct arg options[] = {
    {"rights", 0, ARG_TEXT, offsetof(struct token_command, rights), "R,R,...",
     "infer, describe, status: for a name without an entry in `identities`"},
    {"output", 'o', ARG_TEXT, offsetof(struct token_command, output), "FILE",
     "write the token to this new file, for its owner alone"},
    {NULL, 0, ARG_FLAG, 0, NULL, NULL},
};

static const struct args spec = {
    .usage = "inferctl token NAME [--rights R,R,...] [--output FILE]",
    .what = "Makes a token: shows it, and the line for the file that inferd.yaml's `tokens` names.",
    .options = options,
    .min_positional = 1,
    .max_positional = 1,
};

/* "infer,describe" as " infer describe". */
static enum status rights_spell(const char *text, char out[RIGHTS_TEXT], struct error *err)
{
    size_t used = 0;
    *out = '\0';
    while (text) {
        enum right right;
        size_t len = strcspn(text, ",");
        if (!right_parse(text, len, &right) || used > RIGHTS_TEXT / 2)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "--rights: expected some of %s, with commas between, got \"%.40s\"",
                             right_names, text);
        used += (size_t)snprintf(out + used, RIGHTS_TEXT - used, " %s", right_name(right));
        text = text[len] ? text + len + 1 : NULL;
    }
    return STATUS_OK;
}

static enum status token_write(const char *path, const char *token, struct error *err)
{
    char line[TOKEN_TEXT + 2];
    int n = snprintf(line, sizeof(line), "%s\n", token);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_errno(err, errno, "%s", path);
    ssize_t written = write(fd, line, (size_t)n);
    int why = written < 0 ? errno : written < n ? ENOSPC : 0;
    if (close(fd) != 0 && !why)
        why = errno;
    if (!why)
        return STATUS_OK;
    unlink(path);
    return error_errno(err, why, "%s", path);
}

static enum status token_make(const struct token_command *args, const char *name, struct error *err)
{
    char token[TOKEN_TEXT + 1], text[TOKEN_HASH_TEXT + 1], rights[RIGHTS_TEXT];
    struct token_hash hash;
    if (!message_name_ok(message_text_of(name)))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "expected a name, 1 to %d of A-Z a-z 0-9 . _ - and no leading dot, got "
                         "\"%.80s\"",
                         MESSAGE_MAX_NAME, name);
    TRY(rights_spell(args->rights, rights, err));
    TRY(token_new(token, err));
    if (!token_hash_of(token, TOKEN_TEXT, &hash))
        return error_set(err, STATUS_INTERNAL, "libcrypto has no SHA-256");
    if (args->output)
        TRY(token_write(args->output, token, err));
    token_hash_format(&hash, text);
    if (!args->output)
        printf("%s\n", token);
    printf("%s %s%s\n", name, text, rights);
    if (fflush(stdout) != 0)
        return error_errno(err, errno, "standard output");
    return STATUS_OK;
}

int command_token(int argc, char **argv)
{
    struct token_command args = {0};
    struct arg_texts positional;
    struct error err;
    int rc = args_parse(&spec, argc, argv, &args, &positional);
    if (rc >= 0)
        return rc;
    return token_make(&args, positional.list[0], &err) ? command_failed("token", &err) : EXIT_OK;
}
