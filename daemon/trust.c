/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures of models and plans, see trust.h. */
#include "daemon/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file_read.h"
#include "base/signature.h"

struct trust {
    struct signature_keys *keys;
};

static enum status keys_load(const char *path, struct signature_keys **out, struct error *err)
{
    CLEANUP(cleanup_close) int fd = -1;
    struct stat st;
    TRY(file_open(path, &fd, err));
    if (fstat(fd, &st) != 0)
        return error_errno(err, errno, "%s", path);
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) || (st.st_uid != 0 && st.st_uid != geteuid()))
        return error_set(err, STATUS_PERMISSION_DENIED,
                         "%s belongs to user %u and has mode %04o, expected user %u or 0 and no "
                         "right to write for group and others",
                         path, (unsigned)st.st_uid, (unsigned)(st.st_mode & 07777),
                         (unsigned)geteuid());
    return signature_keys_read(fd, path, out, err);
}

enum status trust_new(const char *path, struct trust **out, struct error *err)
{
    struct trust *t = calloc(1, sizeof(*t));
    if (!t)
        return error_no_memory(err, "plan_keys");
    enum status status = keys_load(path, &t->keys, err);
    if (status) {
        trust_free(t);
        error_prefix(err, "plan_keys");
        return status;
    }
    *out = t;
    return STATUS_OK;
}

void trust_free(struct trust *t)
{
    if (t)
        signature_keys_free(t->keys);
    free(t);
}

/* Opens FILE.sig where the file itself was found. */
static enum status signature_open(const struct wanted *w, int *fd, struct error *err)
{
    char path[4096 + 8];
    if (snprintf(path, sizeof(path), "%s.sig", w->path) >= (int)sizeof(path))
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: a path that is too long", w->path);
    return w->folder >= 0 ? file_open_beneath(w->folder, path, fd, err) : file_open(path, fd, err);
}

static enum status signature_verify(const struct trust *t, const struct wanted *w,
                                    const uint8_t digest[DIGEST_BYTES], struct error *err)
{
    CLEANUP(cleanup_close) int fd = -1;
    uint8_t signature[SIGNATURE_BYTES];
    TRY(signature_open(w, &fd, err));
    TRY(signature_read(fd, signature, err));
    return signature_check(t->keys, digest, signature, err);
}

enum status trust_check(const struct trust *t, const struct wanted *w,
                        const uint8_t digest[DIGEST_BYTES], struct error *err)
{
    if (!t)
        return STATUS_OK;
    const char *slash = strrchr(w->path, '/');
    const char *name = slash ? slash + 1 : w->path;
    struct error why;
    enum status status = signature_verify(t, w, digest, &why);
    if (!status)
        return STATUS_OK;
    return error_set(err, STATUS_FAILED_PRECONDITION,
                     "plan_keys asks for a signature of %s in %s.sig: %s", name, name,
                     status == STATUS_NOT_FOUND ? "there is none" : why.text);
}
