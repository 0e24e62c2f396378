/* SPDX-License-Identifier: Apache-2.0 */
/* What an output's path leads to; see target.h. */
#include "base/target.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/compiler.h"

enum { LINKS_MAX = 40 }; /* as many as the kernel follows */

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

bool target_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && same(&x, &y);
}

bool target_is_stdout(const char *path)
{
    struct stat named, out;
    return stat(path, &named) == 0 && fstat(STDOUT_FILENO, &out) == 0 && same(&named, &out);
}

/* Replaces `path` by what the link of that name holds. False: errno; EINVAL: it is no link. */
static bool follow(char path[PATH_MAX])
{
    char to[PATH_MAX], joined[2 * PATH_MAX];
    ssize_t n = readlink(path, to, sizeof(to) - 1);
    if (n < 0)
        return false;
    to[n] = '\0';
    const char *slash = strrchr(path, '/');
    int folder = slash && to[0] != '/' ? (int)(slash - path) + 1 : 0;
    if (snprintf(joined, sizeof(joined), "%.*s%s", folder, path, to) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(path, joined, strlen(joined) + 1);
    return true;
}

static enum status follow_all(const char *path, char out[PATH_MAX], struct error *err)
{
    if (strlen(path) >= PATH_MAX)
        return error_errno(err, ENAMETOOLONG, "%s", path);
    memcpy(out, path, strlen(path) + 1);
    for (int i = 0; i < LINKS_MAX; i++)
        if (!follow(out))
            return errno == EINVAL || errno == ENOENT ? STATUS_OK
                                                      : error_errno(err, errno, "%s", path);
    return error_errno(err, ELOOP, "%s", path);
}

enum status target_find(const char *path, enum target_kind *kind, char **real, struct error *err)
{
    struct stat st;
    char followed[PATH_MAX];
    bool there = stat(path, &st) == 0;
    if (!there && errno != ENOENT)
        return error_errno(err, errno, "%s", path);
    bool file = !there || S_ISREG(st.st_mode);
    bool stream = !file && (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode) || target_is_stdout(path));
    if (!file && !stream)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: not a regular file", path);
    TRY(follow_all(path, followed, err));
    /* A link of /proc to an open file need not hold its path. */
    if (there && !stream && !target_same(path, followed))
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: a file without a name", path);
    char *copy = strdup(followed);
    if (!copy)
        return error_no_memory(err, "%s", path);
    *kind = stream ? TARGET_STREAM : TARGET_FILE;
    *real = copy;
    return STATUS_OK;
}

/* Standard output is not opened anew: a new opening of a file would write from its beginning, and a
 * socket has none. */
enum status target_open_stream(const char *path, int *fd, struct error *err)
{
    int file = target_is_stdout(path) ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
                                      : open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (file < 0)
        return error_errno(err, errno, "%s", path);
    *fd = file;
    return STATUS_OK;
}
