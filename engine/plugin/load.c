/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a plugin's file: its digest, its one symbol, its table. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/file_read.h"
#include "engine/plugin/plugin.h"

enum { FILE_MAX = 1 << 30 };

typedef const struct inferd_plugin *(*entry)(void);

static enum status digest_of(const char *path, char out[PLUGIN_DIGEST_MAX], struct error *err)
{
    uint8_t digest[DIGEST_BYTES];
    CLEANUP(cleanup_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_errno(err, errno, "plugin %s", path);
    TRY(file_digest(fd, &(struct file_read){.name = path, .limit = FILE_MAX}, digest, err));
    for (int i = 0; i < (PLUGIN_DIGEST_MAX - 1) / 2; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return STATUS_OK;
}

static enum status add_file(const char *path, struct error *err)
{
    char digest[PLUGIN_DIGEST_MAX];
    entry function = NULL;
    TRY(digest_of(path, digest, err));
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle)
        return error_set(err, STATUS_FAILED_PRECONDITION, "it does not load: %s", dlerror());
    *(void **)(void *)&function = dlsym(handle, "inferd_plugin");
    const struct inferd_plugin *table = function ? function() : NULL;
    if (!table)
        return error_set(err, STATUS_FAILED_PRECONDITION, "it has no table: it is no plugin");
    return plugin_add(table, digest, err);
}

/* A path without a slash would be looked for among the system's libraries, so all are made
 * whole. */
enum status plugin_load(const char *path, struct error *err)
{
    CLEANUP(cleanup_free) char *whole = realpath(path, NULL);
    if (!whole)
        return error_errno(err, errno, "plugin %s", path);
    enum status status = add_file(whole, err);
    if (status)
        error_prefix(err, "plugin %s", path);
    return status;
}
