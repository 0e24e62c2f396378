/* SPDX-License-Identifier: Apache-2.0 */
/* Maps files through base/file.h, and says where a model's external data may lie. */
#include "engine/import/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { LOCATION_MAX = 1024 };

static int open_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    char parent[4096];
    if (!slash)
        return open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    size_t len = slash == path ? 1 : (size_t)(slash - path);
    if (len >= sizeof(parent)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(parent, path, len);
    parent[len] = 0;
    return open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

enum status file_map_open_fd(int fd, const char *name, size_t limit, struct file_map *out,
                             struct error *err)
{
    struct file_map map;
    TRY(file_map_fd(fd, name, limit, &map, err));
    if (!map.size)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: the file is empty", name);
    *out = map;
    return STATUS_OK;
}

enum status file_map_open(const char *path, size_t limit, struct file_map *out, int *folder,
                          struct error *err)
{
    CLEANUP(cleanup_close) int fd = -1;
    struct file_map map = {0};
    TRY(file_open(path, &fd, err));
    TRY(file_map_open_fd(fd, path, limit, &map, err));
    int parent = folder ? open_parent(path) : -1;
    if (folder && parent < 0) {
        enum status status = error_errno(err, errno, "%s: its folder", path);
        file_unmap(&map);
        return status;
    }
    if (folder)
        *folder = parent;
    *out = map;
    return STATUS_OK;
}

/* Says whether each component is a plain name; "a//b", "a/./b" and "a/" have no use in a model. */
static bool location_ok(const char *location)
{
    size_t len = strlen(location);
    if (!len || len >= LOCATION_MAX)
        return false;
    for (const char *part = location;;) {
        size_t n = strcspn(part, "/");
        if (!n || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        if (!part[n])
            return true;
        part += n + 1;
    }
}

static enum status map_beneath(int folder, const char *location, struct file_map *out,
                               struct error *err)
{
    CLEANUP(cleanup_close) int fd = -1;
    TRY(file_open_beneath(folder, location, &fd, err));
    return file_map_fd(fd, location, 0, out, err);
}

enum status file_map_open_beside(int folder, const char *location, struct file_map *out,
                                 struct error *err)
{
    /* Some tools write "./weights.bin". */
    const char *path = strncmp(location, "./", 2) ? location : location + 2;
    if (!location_ok(path))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "external data at '%s': expected a path below the model's folder, of "
                         "plain names",
                         location);
    enum status status = map_beneath(folder, path, out, err);
    if (status)
        error_prefix(err, "external data");
    return status;
}
