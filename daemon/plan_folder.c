/* SPDX-License-Identifier: Apache-2.0 */
/* The cache's folder, see plan_folder.h. */
#include "daemon/plan_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/digest.h"

enum { PATH_MAX_ = 4096, NAME_MAX_ = 256, WAIT_NS = 50 * 1000 * 1000 };

#define OTHERS_WRITE (S_IWGRP | S_IWOTH)

struct plan_folder {
    int fd;
    uint64_t limit;
    uint32_t most;
    const struct log_sink *log;
    char path[PATH_MAX_];
};

/* --- the folder --- */

static enum status path_find(const char *configured, const char *below, char out[PATH_MAX_],
                             struct error *err)
{
    const char *from = configured ? configured : getenv("CACHE_DIRECTORY");
    const char *home = getenv("HOME");
    int len;
    if (from && *from) /* systemd may name several */
        len = snprintf(out, PATH_MAX_, "%.*s",
                       (int)(configured ? strlen(from) : strcspn(from, ":")), from);
    else if (home && home[0] == '/')
        len = snprintf(out, PATH_MAX_, "%s/.cache/inferd", home);
    else
        return error_set(err, STATUS_NOT_FOUND,
                         "there is no folder: neither `cache` nor "
                         "$CACHE_DIRECTORY nor $HOME is set");
    if (below && len < PATH_MAX_)
        len += snprintf(out + len, (size_t)(PATH_MAX_ - len), "/%s", below);
    return len < PATH_MAX_ ? STATUS_OK
                           : error_set(err, STATUS_INVALID_ARGUMENT, "a path that is too long");
}

/* mkdir -p, for us alone. */
static enum status folder_make(const char *path, struct error *err)
{
    char part[PATH_MAX_];
    size_t len = strlen(path);
    memcpy(part, path, len + 1);
    for (size_t i = 1; i <= len; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        char kept = part[i];
        part[i] = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST)
            return error_errno(err, errno, "%s", part);
        part[i] = kept;
    }
    return STATUS_OK;
}

/* Checks one folder on the way, or the last one. A sticky folder lets others write, but not rename
 * what is not theirs. */
static enum status folder_check(const struct stat *st, const char *path, bool last, bool *sticky,
                                struct error *err)
{
    bool open_to_others = st->st_mode & OTHERS_WRITE;
    bool ours = st->st_uid == geteuid(), trusted = ours || (st->st_uid == 0 && !last);
    if (trusted && open_to_others && (st->st_mode & S_ISVTX) && !last) {
        *sticky = true;
        return STATUS_OK;
    }
    if (ours && !last && !(st->st_mode & (S_IRWXG | S_IRWXO)))
        *sticky = false; /* nobody else gets below this one */
    mode_t closed = *sticky && last ? S_IRWXG | S_IRWXO : OTHERS_WRITE;
    if (trusted && !(st->st_mode & closed))
        return STATUS_OK;
    return error_set(err, STATUS_PERMISSION_DENIED,
                     "%s belongs to user %u and has mode %04o, expected user %u%s and %s", path,
                     (unsigned)st->st_uid, (unsigned)(st->st_mode & 07777), (unsigned)geteuid(),
                     last ? "" : " or 0",
                     *sticky && last ? "mode 0700, as it lies below a folder that all can write"
                                     : "no right to write for group and others");
}

/* Opens the folder `name` in `at`, but not through a link, and closes `at`. */
static int folder_enter(int at, const char *name, size_t len)
{
    char text[NAME_MAX_];
    int next = -1;
    errno = ENAMETOOLONG;
    if (len < sizeof(text)) {
        memcpy(text, name, len);
        text[len] = '\0';
        next = openat(at, text, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    int saved = errno;
    close(at);
    errno = saved;
    return next;
}

/* Checks each folder from the root down, unless all are trusted. `path` has no links, and no slash
 * at its end. */
static enum status folder_walk(const char *path, bool trusted, int *out, struct error *err)
{
    char part[PATH_MAX_];
    bool sticky = false;
    CLEANUP(cleanup_close) int at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t end = 0;;) {
        struct stat st;
        bool last = path[end] == '\0' || strcmp(path, "/") == 0;
        snprintf(part, sizeof(part), "%.*s", end ? (int)end : 1, path);
        if (at < 0 || fstat(at, &st) != 0)
            return error_errno(err, errno, "%s", part);
        if (!trusted)
            TRY(folder_check(&st, part, last, &sticky, err));
        if (last)
            break;
        size_t begin = end + 1;
        end = begin + strcspn(path + begin, "/");
        at = folder_enter(at, path + begin, end - begin);
    }
    if (faccessat(at, ".", W_OK | X_OK, AT_EACCESS) != 0)
        return error_errno(err, errno, "%s", path);
    int fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_errno(err, errno, "%s", path);
    *out = fd;
    return STATUS_OK;
}

static enum status folder_open(struct plan_folder *f, const struct plan_folder_config *config,
                               struct error *err)
{
    TRY(path_find(config->path, config->below, f->path, err));
    TRY(folder_make(f->path, err));
    CLEANUP(cleanup_free) char *whole = realpath(f->path, NULL);
    if (!whole)
        return error_errno(err, errno, "%s", f->path);
    return folder_walk(whole, config->insecure, &f->fd, err);
}

enum status plan_folder_open(const struct plan_folder_config *config, struct plan_folder **out,
                             struct error *err)
{
    struct plan_folder *f = calloc(1, sizeof(*f));
    if (!f)
        return error_no_memory(err, "the plan cache");
    f->fd = -1;
    f->limit = config->limit;
    f->most = config->most;
    f->log = config->log;
    enum status status = folder_open(f, config, err);
    if (status) {
        plan_folder_close(f);
        return status;
    }
    if (file_sweep(f->fd) > 0)
        log_write(f->log, LOG_INFO, "plan cache: removed what a killed build had left");
    plan_folder_trim(f);
    *out = f;
    return STATUS_OK;
}

void plan_folder_close(struct plan_folder *f)
{
    if (f && f->fd >= 0)
        close(f->fd);
    free(f);
}

const char *plan_folder_path(const struct plan_folder *f)
{
    return f->path;
}

/* --- a plan --- */

static void plan_name(const char *key, char out[NAME_MAX_])
{
    snprintf(out, NAME_MAX_, "%s.plan", key);
}

/* By the time of access: by the time of change a reader tells whether somebody writes the file
 * (base/file_read.c), and another process may be reading it. */
void plan_folder_mark(int fd)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
    futimens(fd, times);
}

enum status plan_folder_find(struct plan_folder *f, const char *key, int *out, struct error *err)
{
    char name[NAME_MAX_];
    struct stat st;
    plan_name(key, name);
    int fd = openat(f->fd, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return error_errno(err, errno, "%s", name);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink > 1 ||
        (st.st_mode & OTHERS_WRITE)) {
        close(fd);
        return error_set(err, STATUS_PERMISSION_DENIED,
                         "%s: expected a file of our own with one name that nobody else can write",
                         name);
    }
    flock(fd,
          LOCK_SH | LOCK_NB); /* fails while the plan is being removed; it is read all the same */
    plan_folder_mark(fd);
    *out = fd;
    return STATUS_OK;
}

enum status plan_folder_write(struct plan_folder *f, const char *key, uint32_t timeout_s,
                              const _Atomic bool *stop, struct file_writer **out, struct error *err)
{
    char name[NAME_MAX_];
    const struct timespec pause = {.tv_nsec = WAIT_NS};
    uint64_t end_ns = clock_now_ns() + timeout_s * NS_PER_S;
    plan_name(key, name);
    for (bool first = true;; first = false) {
        enum status status = file_writer_new_in(f->fd, name, false, out, err);
        if (!status && fchmod(file_writer_fd(*out), 0600) != 0)
            log_write(f->log, LOG_WARNING, "plan cache: %s: chmod: %s", name, strerror(errno));
        if (status != STATUS_UNAVAILABLE)
            return status;
        if (first)
            log_write(f->log, LOG_INFO, "plan cache: another process writes %s: waiting", name);
        if (atomic_load_explicit(stop, memory_order_relaxed)) /* it guards no other data */
            return error_plain(err, CAUSE_STOPPED);
        if (clock_now_ns() > end_ns)
            return error_set(err, STATUS_DEADLINE_EXCEEDED,
                             "%s: another process was still writing it after %u s", name,
                             timeout_s);
        nanosleep(&pause, NULL);
    }
}

/* --- the limit --- */

struct kept {
    char name[NAME_MAX_];
    uint64_t size, used_ns;
};

/* Whether a name is "MODEL-HEX" and `end`, with the HEX of a SHA-256 or of the 128 bits of former
 * versions. Nothing else that may lie in the folder is ours to remove. */
static bool is_kept(const char *name, const char *end)
{
    size_t len = strlen(name), n = strlen(end);
    if (len <= n || len >= NAME_MAX_ || strcmp(name + len - n, end) != 0)
        return false;
    const char *dash = strrchr(name, '-');
    size_t digits = dash ? strspn(dash + 1, "0123456789abcdef") : 0;
    return dash && dash > name && dash + 1 + digits == name + len - n &&
           (digits == DIGEST_TEXT - 1 || digits == 32);
}

/* Removes a file, unless somebody has it locked. */
static bool remove_unused(const struct plan_folder *f, const char *name)
{
    int fd = openat(f->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    bool removed = flock(fd, LOCK_EX | LOCK_NB) == 0 && unlinkat(f->fd, name, 0) == 0;
    close(fd);
    return removed;
}

/* Adds a plan to the list; removes lock files of former versions of inferd. False: no memory. */
static bool entry_see(const struct plan_folder *f, const char *name, struct kept **list, size_t *n)
{
    struct stat st;
    if (is_kept(name, ".lock"))
        remove_unused(f, name);
    if (!is_kept(name, ".plan") || fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(st.st_mode))
        return true;
    if (*n % 64 == 0) {
        struct kept *more = realloc(*list, (*n + 64) * sizeof(**list));
        if (!more)
            return false;
        *list = more;
    }
    struct kept *k = &(*list)[(*n)++];
    memcpy(k->name, name, strlen(name) + 1);
    k->size = (uint64_t)st.st_size;
    k->used_ns = (uint64_t)st.st_atim.tv_sec * NS_PER_S + (uint64_t)st.st_atim.tv_nsec;
    return true;
}

static int by_use(const void *a, const void *b)
{
    const struct kept *x = a, *y = b;
    return x->used_ns < y->used_ns ? -1 : x->used_ns > y->used_ns;
}

void plan_folder_trim(struct plan_folder *f)
{
    struct kept *list = NULL;
    size_t n = 0;
    uint64_t sum = 0;
    int own = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = own >= 0 ? fdopendir(own) : NULL;
    if (!dir && own >= 0)
        close(own);
    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (!entry_see(f, e->d_name, &list, &n))
            break;
    if (dir)
        closedir(dir);
    for (size_t i = 0; i < n; i++)
        sum += list[i].size;
    if (n)
        qsort(list, n, sizeof(*list), by_use);
    size_t left = n;
    for (size_t i = 0; i < n && ((f->limit && sum > f->limit) || (f->most && left > f->most)); i++)
        if (remove_unused(f, list[i].name)) {
            sum -= list[i].size;
            left--;
            log_write(f->log, LOG_INFO, "plan cache: removed %s, not used for the longest time",
                      list[i].name);
        }
    free(list);
}
