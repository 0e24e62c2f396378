/* SPDX-License-Identifier: Apache-2.0 */
/*
 * openat2 keeps an external file below the model's folder even while somebody swaps its parts; on
 * kernels without it every component is opened by itself with O_NOFOLLOW, which holds as well.
 * A file with a second hard link is refused: it may be anybody's (R13).
 */
#include "engine/import/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LOCATION_MAX = 1024, OPEN_FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };

static const uint8_t nothing[1];

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static enum status map_fd(int fd, const char *what, size_t limit, bool one_link,
                          struct file_map *out, struct error *err)
{
    struct stat st;
    if (fstat(fd, &st))
        return error_errno(err, errno, "%s", what);
    if (!S_ISREG(st.st_mode))
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: not a regular file", what);
    if (one_link && st.st_nlink != 1)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: has %llu hard links, expected one",
                         what, (unsigned long long)st.st_nlink);
    if ((uint64_t)st.st_size > limit)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "%s: %lld bytes, the limit is %zu", what,
                         (long long)st.st_size, limit);
    if (!st.st_size) {
        *out = (struct file_map){.data = nothing};
        return STATUS_OK;
    }
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return error_errno(err, errno, "%s: cannot map", what);
    *out = (struct file_map){.data = data, .size = (size_t)st.st_size};
    return STATUS_OK;
}

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

enum status file_map_open(const char *path, size_t limit, struct file_map *out, int *folder,
                          struct error *err)
{
    int fd CLEANUP(close_fd) = open(path, OPEN_FLAGS);
    if (fd < 0)
        return error_errno(err, errno, "%s", path);
    struct file_map map;
    enum status status = map_fd(fd, path, limit, false, &map, err);
    if (status)
        return status;
    if (!map.size)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: the file is empty", path);
    if (folder) {
        int parent = open_parent(path);
        if (parent < 0) {
            status = error_errno(err, errno, "%s: its folder", path);
            file_map_close(&map);
            return status;
        }
        *folder = parent;
    }
    *out = map;
    return STATUS_OK;
}

/* Each component must be a plain name; "a//b", "./a" and "a/" have no use in a model. */
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

static int open_by_parts(int folder, const char *location)
{
    char name[LOCATION_MAX];
    int at = folder;
    for (const char *part = location;;) {
        size_t n = strcspn(part, "/");
        memcpy(name, part, n);
        name[n] = 0;
        bool last = !part[n];
        int next =
            openat(at, name, O_NOFOLLOW | (last ? OPEN_FLAGS : O_PATH | O_DIRECTORY | O_CLOEXEC));
        int saved = errno;
        if (at != folder)
            close(at);
        errno = saved;
        if (next < 0 || last)
            return next;
        at = next;
        part += n + 1;
    }
}

static int open_beneath(int folder, const char *location)
{
    struct open_how how = {.flags = OPEN_FLAGS,
                           .resolve =
                               RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    long fd = syscall(SYS_openat2, folder, location, &how, sizeof(how));
    if (fd < 0 && (errno == ENOSYS || errno == EPERM))
        return open_by_parts(folder, location);
    return (int)fd;
}

enum status file_map_open_beside(int folder, const char *location, struct file_map *out,
                                 struct error *err)
{
    if (!location_ok(location))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "external data at '%s': expected a path below the model's folder",
                         location);
    int fd CLEANUP(close_fd) = open_beneath(folder, location);
    if (fd < 0 && (errno == ELOOP || errno == EXDEV))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "external data at '%s': links are not followed", location);
    if (fd < 0)
        return error_errno(err, errno, "external data at '%s'", location);
    return map_fd(fd, location, SIZE_MAX / 2, true, out, err);
}

void file_map_close(struct file_map *map)
{
    if (map->data && map->size)
        munmap((void *)(uintptr_t)map->data, map->size);
    *map = (struct file_map){0};
}
