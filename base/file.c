/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapped reading and atomic writing; see file.h.
 *
 * The writer's lock is on the temporary itself. Whoever gets the lock checks that the name still
 * leads to the file it locked: the last holder may have renamed it away meanwhile.
 */
#include "base/file.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h> /* renameat */
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/target.h"

#define TEMPORARY_SUFFIX ".inferd-tmp"

static enum status check_regular(int fd, const char *path, bool alone, struct error *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return error_errno(err, errno, "%s", path);
    if (!S_ISREG(st.st_mode))
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: not a regular file", path);
    if (alone && st.st_nlink != 1)
        return error_set(err, STATUS_PERMISSION_DENIED, "%s: has more than one name", path);
    return STATUS_OK;
}

/* Gives `file` to the caller, or closes it if it is not regular. */
static enum status regular_take(int file, const char *path, bool alone, int *fd, struct error *err)
{
    enum status status = check_regular(file, path, alone, err);
    if (status)
        close(file);
    else
        *fd = file;
    return status;
}

enum status file_open(const char *path, int *fd, struct error *err)
{
    /* O_NONBLOCK: opening a pipe must not wait for its other end. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (file < 0)
        return error_errno(err, errno, "%s", path);
    return regular_take(file, path, false, fd, err);
}

/* Walks the path by hand, because kernels before 5.6 and some sandboxes have no openat2. */
static int open_walk(int dir, const char *path)
{
    int at = dir, flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW;
    if (*path == '/') {
        errno = EXDEV;
        return -1;
    }
    for (;;) {
        char part[256];
        size_t len = strcspn(path, "/");
        const char *rest = path + len + strspn(path + len, "/");
        if (len == 0 || len >= sizeof(part) || (len == 2 && !memcmp(path, "..", 2))) {
            if (at != dir)
                close(at);
            errno = len >= sizeof(part) ? ENAMETOOLONG : EXDEV;
            return -1;
        }
        memcpy(part, path, len);
        part[len] = '\0';
        int next = openat(at, part, *rest ? flags | O_DIRECTORY : flags);
        int saved = errno;
        if (at != dir)
            close(at);
        errno = saved;
        if (next < 0 || !*rest)
            return next;
        at = next;
        path = rest;
    }
}

enum status file_open_beneath(int dir, const char *path, int *fd, struct error *err)
{
    struct open_how how = {
        .flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    int file = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
    if (file < 0 && (errno == ENOSYS || errno == EPERM))
        file = open_walk(dir, path);
    if (file < 0 && (errno == ELOOP || errno == EXDEV))
        return error_set(err, STATUS_PERMISSION_DENIED,
                         "%s: symbolic links and paths out of the folder are not followed", path);
    if (file < 0)
        return error_errno(err, errno, "%s", path);
    return regular_take(file, path, true, fd, err);
}

enum status file_map_fd(int fd, const char *name, size_t limit, struct file_map *out,
                        struct error *err)
{
    struct stat st;
    TRY(check_regular(fd, name, false, err));
    if (fstat(fd, &st) < 0)
        return error_errno(err, errno, "%s", name);
    if (limit && (uint64_t)st.st_size > limit)
        return error_set(err, STATUS_OUT_OF_RANGE, "%s: %lld bytes, the limit is %zu", name,
                         (long long)st.st_size, limit);
    if (st.st_size == 0) {
        *out = (struct file_map){.data = "", .size = 0};
        return STATUS_OK;
    }
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return error_errno(err, errno, "%s: mmap", name);
    *out = (struct file_map){.data = data, .size = (size_t)st.st_size};
    return STATUS_OK;
}

enum status file_map_path(const char *path, size_t limit, struct file_map *out, struct error *err)
{
    CLEANUP(cleanup_close) int fd = -1;
    TRY(file_open(path, &fd, err));
    return file_map_fd(fd, path, limit, out, err);
}

void file_unmap(struct file_map *map)
{
    if (map->size)
        munmap((void *)(uintptr_t)map->data, map->size);
    *map = (struct file_map){0};
}

struct file_writer {
    int dir, fd; /* dir is -1 if the file was opened by somebody else, or is a stream */
    bool committed;
    char *path; /* as given, for error texts */
    char *name; /* within dir */
    char *temporary;
};

static enum status take_name(struct file_writer *w, const char *path, const char *name,
                             struct error *err)
{
    size_t len = strlen(name);
    if (!len || !strcmp(name, ".") || !strcmp(name, "..") || strchr(name, '/'))
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: not a file name", path);
    w->path = strdup(path);
    w->name = strdup(name);
    w->temporary = malloc(len + sizeof("." TEMPORARY_SUFFIX));
    if (!w->path || !w->name || !w->temporary)
        return error_no_memory(err, "%s", path);
    w->temporary[0] = '.';
    memcpy(w->temporary + 1, name, len);
    memcpy(w->temporary + 1 + len, TEMPORARY_SUFFIX, sizeof(TEMPORARY_SUFFIX));
    return STATUS_OK;
}

/* Whether the file is still the one of this name; if not, errno is ENOENT or tells why. Once it is
 * locked, that stays so: only who has the lock renames or removes a temporary. */
static bool is_named(int dir, const char *name, int fd, struct stat *mine)
{
    struct stat named;
    if (fstat(fd, mine) < 0 || fstatat(dir, name, &named, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    errno = ENOENT;
    return mine->st_ino == named.st_ino && mine->st_dev == named.st_dev;
}

/* Opens and locks the temporary. 1: it still is the file of that name. 0: try again. -1: errno. */
static int lock_temporary(struct file_writer *w, bool wait)
{
    struct stat mine;
    w->fd =
        openat(w->dir, w->temporary, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (w->fd < 0)
        return -1;
    int rc;
    do
        rc = flock(w->fd, wait ? LOCK_EX : LOCK_EX | LOCK_NB);
    while (rc < 0 && errno == EINTR);
    if (rc < 0)
        return -1;
    if (!is_named(w->dir, w->temporary, w->fd, &mine))
        return errno == ENOENT ? 0 : -1;
    if (!S_ISREG(mine.st_mode) || mine.st_nlink != 1 || mine.st_uid != geteuid()) {
        errno = EPERM; /* somebody else put it there */
        return -1;
    }
    return 1;
}

/* Takes over `dir`; `path` is for error texts. */
static enum status writer_new(int dir, const char *path, const char *name, bool wait,
                              struct file_writer **out, struct error *err)
{
    CLEANUP(file_writer_cleanup) struct file_writer *w = calloc(1, sizeof(*w));
    if (!w) {
        close(dir);
        return error_no_memory(err, "%s", path);
    }
    w->dir = dir;
    w->fd = -1;
    w->committed = true; /* nothing to remove yet */
    TRY(take_name(w, path, name, err));
    assert(w->temporary);
    int rc;
    while ((rc = lock_temporary(w, wait)) == 0) {
        close(w->fd);
        w->fd = -1;
    }
    if (rc < 0 && errno == EWOULDBLOCK)
        return error_set(err, STATUS_UNAVAILABLE, "%s: another process is writing it", path);
    if (rc < 0)
        return error_errno(err, errno, "%s: opening the temporary %s", path, w->temporary);
    w->committed = false;
    if (ftruncate(w->fd, 0) < 0)
        return error_errno(err, errno, "%s", path);
    *out = STEAL(w);
    return STATUS_OK;
}

/* "a/b" is "b" in the folder "a". `real` is where the file lies, `path` is for error texts. */
static enum status writer_of_file(const char *path, const char *real, bool wait,
                                  struct file_writer **out, struct error *err)
{
    const char *slash = strrchr(real, '/');
    char *folder = slash ? strndup(real, (size_t)(slash - real) + 1) : strdup("./");
    if (!folder)
        return error_no_memory(err, "%s", path);
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), saved = errno;
    free(folder);
    if (dir < 0)
        return error_errno(err, saved, "%s", path);
    return writer_new(dir, path, slash ? slash + 1 : real, wait, out, err);
}

enum status file_writer_new(const char *path, bool wait, struct file_writer **out,
                            struct error *err)
{
    CLEANUP(cleanup_free) char *real = NULL;
    enum target_kind kind;
    TRY(target_find(path, &kind, &real, err));
    if (kind == TARGET_STREAM)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: not a regular file", path);
    return writer_of_file(path, real, wait, out, err);
}

enum status file_writer_new_in(int dir, const char *name, bool wait, struct file_writer **out,
                               struct error *err)
{
    int own = fcntl(dir, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return error_errno(err, errno, "%s", name);
    return writer_new(own, name, name, wait, out, err);
}

/* A writer of what is open already; takes over `fd`. There is no name to remove. */
static enum status writer_of_fd(int fd, const char *name, struct file_writer **out,
                                struct error *err)
{
    struct file_writer *w = calloc(1, sizeof(*w));
    char *path = strdup(name);
    if (!w || !path) {
        free(w);
        free(path);
        close(fd);
        return error_no_memory(err, "%s", name);
    }
    *w = (struct file_writer){.dir = -1, .fd = fd, .committed = true, .path = path};
    *out = w;
    return STATUS_OK;
}

enum status file_writer_new_fd(int fd, const char *name, struct file_writer **out,
                               struct error *err)
{
    TRY(check_regular(fd, name, false, err));
    CLEANUP(cleanup_close) int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0 || ftruncate(own, 0) < 0 || lseek(own, 0, SEEK_SET) < 0)
        return error_errno(err, errno, "%s", name);
    int taken = own;
    own = -1;
    return writer_of_fd(taken, name, out, err);
}

/* A stream has no *real. */
static enum status find_text(const char *path, char **real, struct error *err)
{
    CLEANUP(cleanup_free) char *found = NULL;
    enum target_kind kind;
    if (target_is_stdout(path))
        return STATUS_OK;
    TRY(target_find(path, &kind, &found, err));
    if (kind == TARGET_FILE)
        *real = STEAL(found);
    return STATUS_OK;
}

enum status file_writer_new_text(const char *path, struct file_writer **out, struct error *err)
{
    CLEANUP(cleanup_free) char *real = NULL;
    int fd;
    TRY(find_text(path, &real, err));
    if (real)
        return writer_of_file(path, real, true, out, err);
    TRY(target_open_stream(path, &fd, err));
    return writer_of_fd(fd, path, out, err);
}

enum status file_writer_try_text(const char *path, struct error *err)
{
    CLEANUP(cleanup_free) char *real = NULL;
    CLEANUP(file_writer_cleanup) struct file_writer *writer = NULL;
    TRY(find_text(path, &real, err));
    if (real)
        return writer_of_file(path, real, true, &writer, err);
    if (!target_is_stdout(path) && access(path, W_OK) < 0)
        return error_errno(err, errno, "%s", path);
    return STATUS_OK;
}

int file_writer_fd(const struct file_writer *w)
{
    return w->fd;
}

enum status file_writer_put(struct file_writer *w, const void *data, size_t size, struct error *err)
{
    const char *p = data;
    while (size) {
        ssize_t n = write(w->fd, p, MIN(size, (size_t)1 << 30));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_errno(err, errno, "%s: write", w->path);
        p += n;
        size -= (size_t)n;
    }
    return STATUS_OK;
}

enum status file_writer_commit(struct file_writer *w, struct error *err)
{
    bool stream = w->dir < 0; /* EINVAL, EROFS: fsync(2) of what has no disk behind it */
    if (fsync(w->fd) < 0 && !(stream && (errno == EINVAL || errno == EROFS)))
        return error_errno(err, errno, "%s: fsync", w->path);
    if (stream)
        return STATUS_OK;
    if (renameat(w->dir, w->temporary, w->dir, w->name) < 0)
        return error_errno(err, errno, "%s: rename", w->path);
    w->committed = true;
    if (fsync(w->dir) < 0 && errno != EINVAL) /* EINVAL: a file system without it */
        return error_errno(err, errno, "%s: fsync of its folder", w->path);
    return STATUS_OK;
}

/* Calls only what a signal handler may: fstat, fstatat, unlinkat (signal-safety(7)). Once this
 * writer has renamed its file, a file of the temporary's name is another writer's and stays. */
void file_writer_abandon(const struct file_writer *w)
{
    struct stat mine;
    if (!w->committed && is_named(w->dir, w->temporary, w->fd, &mine))
        unlinkat(w->dir, w->temporary, 0);
}

void file_writer_free(struct file_writer *w)
{
    if (!w)
        return;
    if (!w->committed)
        unlinkat(w->dir, w->temporary, 0);
    if (w->fd >= 0)
        close(w->fd); /* drops the lock */
    if (w->dir >= 0)
        close(w->dir);
    free(w->path);
    free(w->name);
    free(w->temporary);
    free(w);
}

void file_writer_cleanup(struct file_writer **at)
{
    file_writer_free(*at);
}

static bool is_temporary(const char *name)
{
    size_t len = strlen(name), suffix = strlen(TEMPORARY_SUFFIX);
    return name[0] == '.' && len > suffix + 1 && !strcmp(name + len - suffix, TEMPORARY_SUFFIX);
}

uint32_t file_sweep(int dir)
{
    uint32_t n = 0;
    int own = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = own >= 0 ? fdopendir(own) : NULL;
    if (!d) {
        if (own >= 0)
            close(own);
        return 0;
    }
    for (const struct dirent *e; (e = readdir(d));) {
        if (!is_temporary(e->d_name))
            continue;
        int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0)
            continue;
        struct stat mine; /* between open and flock its writer may have ended and another begun */
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && is_named(dirfd(d), e->d_name, fd, &mine) &&
            unlinkat(dirfd(d), e->d_name, 0) == 0)
            n++;
        close(fd);
    }
    closedir(d);
    return n;
}

uint32_t file_writer_sweep(const struct file_writer *w)
{
    return w->dir >= 0 ? file_sweep(w->dir) : 0;
}
