/* SPDX-License-Identifier: Apache-2.0 */
/* inferctl sign puts a signature beside a file: FILE gets FILE.sig. */
#include <stdio.h>
#include <unistd.h>

#include "base/file_read.h"
#include "base/signature.h"
#include "tools/args.h"
#include "tools/cleanup.h"
#include "tools/inferctl.h"

struct sign_args {
    const char *key;
};

static const struct arg options[] = {
    {"key", 'k', ARG_TEXT, offsetof(struct sign_args, key), "KEY.pem",
     "the private Ed25519 key (required)"},
    {NULL, 0, ARG_FLAG, 0, NULL, NULL},
};

static const struct args spec = {
    .usage = "inferctl sign FILE... --key KEY.pem",
    .what = "Signs plans and models for daemons with plan_keys: each gets a file FILE.sig.",
    .options = options,
    .min_positional = 1,
    .max_positional = ARG_LIST_MAX,
};

static enum status digest_of(const char *path, uint8_t out[DIGEST_BYTES], struct error *err)
{
    const struct file_read how = {.name = path};
    CLEANUP(cleanup_close) int fd = -1;
    TRY(file_open(path, &fd, err));
    return file_digest(fd, &how, out, err);
}

static enum status sign(const char *path, int key, const char *key_path, struct error *err)
{
    uint8_t digest[DIGEST_BYTES], signature[SIGNATURE_BYTES];
    char beside[4096];
    CLEANUP(file_writer_cleanup) struct file_writer *writer = NULL;
    if (snprintf(beside, sizeof(beside), "%s.sig", path) >= (int)sizeof(beside))
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: the path is too long", path);
    TRY(digest_of(path, digest, err));
    TRY(signature_make(key, key_path, digest, signature, err));
    TRY(file_writer_new(beside, true, &writer, err));
    TRY(file_writer_put(writer, signature, sizeof(signature), err));
    return file_writer_commit(writer, err);
}

int command_sign(int argc, char **argv)
{
    struct sign_args args = {0};
    struct arg_texts files;
    struct error err;
    int key;
    int rc = args_parse(&spec, argc, argv, &args, &files);
    if (rc >= 0)
        return rc;
    if (!args.key) {
        fprintf(stderr, "inferctl sign: --key KEY.pem is required\n");
        return EXIT_USAGE;
    }
    enum status status = file_open(args.key, &key, &err);
    if (status)
        return command_failed("sign", &err);
    for (uint32_t i = 0; i < files.n && !status; i++)
        status = sign(files.list[i], key, args.key, &err);
    close(key);
    return status ? command_failed("sign", &err) : EXIT_OK;
}
