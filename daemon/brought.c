/* SPDX-License-Identifier: Apache-2.0 */
/* Files that came with an order, see brought.h. */
#include "daemon/brought.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

#define FOLDER "inferd-load-"

enum { PARTS_MOST = 4, PATH_LEAST = 256 };

/* --- what came --- */

/* Each part of a path is a name as models have it, so none leads out of its folder. */
static bool path_ok(struct message_text path)
{
    uint32_t parts = 0;
    while (true) {
        const char *slash = path.len ? memchr(path.data, '/', path.len) : NULL;
        size_t n = slash ? (size_t)(slash - path.data) : path.len;
        if (++parts > PARTS_MOST || !message_name_ok((struct message_text){path.data, n}))
            return false;
        if (!slash)
            return true;
        path = (struct message_text){slash + 1, path.len - n - 1};
    }
}

static enum status add(struct brought *out, const struct request_setting *s, struct error *err)
{
    const struct message_text path = {s->key.data + REQUEST_FILE_PREFIX,
                                      s->key.len - REQUEST_FILE_PREFIX};
    if (s->kind != REQUEST_SETTING_TEXT || !path_ok(path))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "parameter '%.*s': expected file:VERSION/NAME and its bytes",
                         MESSAGE_TEXT(s->key));
    for (uint32_t i = 0; i < out->n; i++)
        if (message_text_equal(out->files[i].path, path))
            return error_set(err, STATUS_INVALID_ARGUMENT, "parameter '%.*s' comes twice",
                             MESSAGE_TEXT(s->key));
    out->files[out->n].path = path;
    out->files[out->n++].data = s->text;
    return STATUS_OK;
}

enum status brought_take(const struct request *request, struct brought *out, struct error *err)
{
    out->n = 0;
    for (uint32_t i = 0; i < request->n_settings; i++)
        if (request_setting_is_file(request->settings[i].key))
            TRY(add(out, &request->settings[i], err));
    return STATUS_OK;
}

size_t brought_size(const struct brought *brought)
{
    size_t size = sizeof(*brought);
    for (uint32_t i = 0; i < brought->n; i++)
        size += brought->files[i].path.len + brought->files[i].data.len;
    return size;
}

static char *text_put(struct message_text *text, char *to)
{
    if (text->len)
        memcpy(to, text->data, text->len);
    text->data = to;
    return to + text->len;
}

struct brought *brought_copy(const struct brought *brought, void *memory)
{
    struct brought *copy = memory;
    char *to = (char *)memory + sizeof(*copy);
    *copy = *brought;
    for (uint32_t i = 0; i < copy->n; i++) {
        to = text_put(&copy->files[i].path, to);
        to = text_put(&copy->files[i].data, to);
    }
    return copy;
}

/* --- the folder --- */

/* Empties a folder, which is as deep as path_ok lets paths be; what cannot be removed stays. */
static void empty(int folder, uint32_t depth)
{
    int top = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = top < 0 ? NULL : fdopendir(top);
    if (!dir) {
        if (top >= 0)
            close(top);
        return;
    }
    for (struct dirent *e; (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            unlinkat(folder, e->d_name, 0) == 0 || depth > PARTS_MOST)
            continue;
        int below = openat(folder, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0) {
            empty(below, depth + 1);
            close(below);
            unlinkat(folder, e->d_name, AT_REMOVEDIR);
        }
    }
    closedir(dir);
}

/* Removes folders that nobody holds, if they are ours: those of daemons that were killed. */
static void sweep(int base)
{
    int top = openat(base, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = top < 0 ? NULL : fdopendir(top);
    if (!dir && top >= 0)
        close(top);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        struct stat st;
        if (strncmp(e->d_name, FOLDER, strlen(FOLDER)) != 0)
            continue;
        CLEANUP(cleanup_close)
        int fd = openat(base, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) != 0 || st.st_uid != geteuid() ||
            flock(fd, LOCK_EX | LOCK_NB) != 0)
            continue;
        empty(fd, 0);
        unlinkat(base, e->d_name, AT_REMOVEDIR);
    }
    if (dir)
        closedir(dir);
}

static enum status file_fill(int fd, struct message_text data, const char *name, struct error *err)
{
    while (data.len) {
        ssize_t n = write(fd, data.data, data.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return error_errno(err, n < 0 ? errno : EIO, "%s", name);
        data = (struct message_text){data.data + n, data.len - (size_t)n};
    }
    return STATUS_OK;
}

/* Writes a file below the folder, with the folders on its way. */
static enum status file_write(int root, const char *model, struct message_text path,
                              struct message_text data, struct error *err)
{
    char name[(MESSAGE_MAX_NAME + 1) * (PARTS_MOST + 1) + 1];
    snprintf(name, sizeof(name), "%s/%.*s", model, MESSAGE_TEXT(path));
    for (char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdirat(root, name, 0700) != 0 && errno != EEXIST)
            return error_errno(err, errno, "%s", name);
        *slash = '/';
    }
    CLEANUP(cleanup_close)
    int fd = openat(root, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_errno(err, errno, "%s", name);
    return file_fill(fd, data, name, err);
}

static const char *base_of(const char *base)
{
    static const char *const names[] = {"CACHE_DIRECTORY", "TMPDIR"};
    for (size_t i = 0; i < ARRAY_LEN(names) && !base; i++)
        base = getenv(names[i]);
    return base && *base ? base : "/tmp";
}

static enum status folder_make(const char *base, struct brought_folder *out, struct error *err)
{
    size_t size = strlen(base) + PATH_LEAST;
    CLEANUP(cleanup_free) char *name = malloc(size);
    if (!name)
        return error_no_memory(err, "the name of a folder");
    CLEANUP(cleanup_close) int above = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (above >= 0)
        sweep(above);
    snprintf(name, size, "%s/" FOLDER "XXXXXX", base);
    if (!mkdtemp(name))
        return error_errno(err, errno, "a folder for files in %s", base);
    out->path = STEAL(name);
    out->fd = open(out->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (out->fd < 0 || flock(out->fd, LOCK_EX | LOCK_NB) != 0)
        return error_errno(err, errno, "%s", out->path);
    return STATUS_OK;
}

enum status brought_write(const struct brought *brought, const char *base, const char *model,
                          struct brought_folder *out, struct error *err)
{
    CLEANUP(brought_folder_cleanup) struct brought_folder folder = {NULL, -1};
    TRY(folder_make(base_of(base), &folder, err));
    for (uint32_t i = 0; i < brought->n; i++)
        TRY(file_write(folder.fd, model, brought->files[i].path, brought->files[i].data, err));
    *out = folder;
    folder = (struct brought_folder){NULL, -1};
    return STATUS_OK;
}

void brought_folder_cleanup(struct brought_folder *folder)
{
    if (folder->fd >= 0) {
        empty(folder->fd, 0);
        close(folder->fd);
    }
    if (folder->path)
        rmdir(folder->path);
    free(folder->path);
    *folder = (struct brought_folder){NULL, -1};
}
