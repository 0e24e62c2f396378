/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the models to be served; see repository.h. */
#include "daemon/repository.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"

static const char *const file_names[] = {"model.plan", "model.onnx"}; /* a plan is preferred */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

bool model_source_equal(const struct model_source *a, const struct model_source *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns && a->profiles == b->profiles &&
           strcmp(a->path, b->path) == 0;
}

static void wanted_deinit(struct wanted *w)
{
    if (w->fd >= 0)
        close(w->fd);
    if (w->folder >= 0)
        close(w->folder);
    free(w->name);
    free(w->version);
    free(w->path);
    free(w->source.path);
}

void repository_list_deinit(struct wanted_list *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        wanted_deinit(&list->items[i]);
    free(list->items);
    *list = (struct wanted_list){0};
}

/* Appends an entry with its own copies of the texts. NULL: no memory. */
static struct wanted *wanted_add(struct wanted_list *list, const char *name, const char *version,
                                 const char *path, const char *source)
{
    if (list->n == list->capacity) {
        uint32_t capacity = list->capacity ? 2 * list->capacity : 16;
        struct wanted *items = realloc(list->items, capacity * sizeof(*items));
        if (!items)
            return NULL;
        list->items = items;
        list->capacity = capacity;
    }
    struct wanted *w = &list->items[list->n];
    *w = (struct wanted){.name = strdup(name),
                         .version = strdup(version),
                         .path = strdup(path),
                         .folder = -1,
                         .fd = -1,
                         .source.path = strdup(source),
                         .onnx = ends_with(path, ".onnx")};
    if (!w->name || !w->version || !w->path || !w->source.path) {
        wanted_deinit(w);
        return NULL;
    }
    list->n++;
    return w;
}

static void source_fill(struct wanted *w)
{
    struct stat st;
    if (w->fd < 0)
        return;
    if (fstat(w->fd, &st) != 0) {
        error_errno(&w->err, errno, "stat");
        close(w->fd);
        w->fd = -1;
        return;
    }
    w->source.device = st.st_dev;
    w->source.inode = st.st_ino;
    w->source.size = (uint64_t)st.st_size;
    w->source.mtime_ns = (uint64_t)st.st_mtim.tv_sec * NS_PER_S + (uint64_t)st.st_mtim.tv_nsec;
    w->source.ctime_ns = (uint64_t)st.st_ctim.tv_sec * NS_PER_S + (uint64_t)st.st_ctim.tv_nsec;
}

static uint64_t digest_add(uint64_t digest, const void *data, size_t size)
{
    return XXH3_64bits_withSeed(size ? data : "", size, digest + size + 1);
}

uint64_t wanted_inputs_digest(const struct config_model *config)
{
    uint64_t digest = 0;
    for (uint32_t i = 0; i < config->inputs_count; i++) {
        const struct config_input *in = &config->inputs[i];
        digest = digest_add(digest, in->name, strlen(in->name));
        digest = digest_add(digest, in->type, in->type ? strlen(in->type) : 0);
        digest = digest_add(digest, in->scale, in->scale_count * sizeof(*in->scale));
        digest = digest_add(digest, in->bias, in->bias_count * sizeof(*in->bias));
    }
    return digest;
}

static enum status configured_add(const struct config_model *config, struct wanted_list *list,
                                  struct error *err)
{
    struct wanted *w = wanted_add(list, config->name, config->version ? config->version : "1",
                                  config->path, config->path);
    if (!w)
        return error_no_memory(err, "the list of models");
    w->config = *config;
    if (config->batches_count)
        w->source.profiles =
            XXH3_64bits(config->batches, config->batches_count * sizeof(config->batches[0]));
    w->source.profiles += wanted_inputs_digest(config);
    file_open(config->path, &w->fd, &w->err); /* the entry keeps the reason of a failure */
    source_fill(w);
    return STATUS_OK;
}

/* --- the repository --- */

struct scan {
    int root;
    const char *path; /* the repository's */
    const struct log_sink *log;
    struct wanted_list *list;
};

static enum status version_add(const struct scan *scan, const char *name, const char *version,
                               struct error *err)
{
    char below[2 * MESSAGE_MAX_NAME + 32], source[4096];
    for (size_t i = 0; i < ARRAY_LEN(file_names); i++) {
        struct error why;
        int fd;
        snprintf(below, sizeof(below), "%s/%s/%s", name, version, file_names[i]);
        enum status status = file_open_beneath(scan->root, below, &fd, &why);
        if (status == STATUS_NOT_FOUND)
            continue;
        snprintf(source, sizeof(source), "%s/%s", scan->path, below);
        struct wanted *w = wanted_add(scan->list, name, version, file_names[i], source);
        if (!w) {
            if (!status)
                close(fd);
            return error_no_memory(err, "the list of models");
        }
        w->config = (struct config_model){.max_delay_us = -1};
        w->err = why;
        if (!status) {
            *strrchr(below, '/') = '\0';
            w->fd = fd;
            w->folder = openat(scan->root, below, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        }
        source_fill(w);
        return STATUS_OK;
    }
    log_write(scan->log, LOG_WARNING, "%s/%s/%s: neither model.plan nor model.onnx: left out",
              scan->path, name, version);
    return STATUS_OK;
}

/* Calls entry_walk for each sub-folder of `fd`, which is closed. `name` is the model's, or NULL on
 * the first level. */
static enum status folder_walk(const struct scan *scan, int fd, const char *name,
                               struct error *err);

static enum status entry_walk(const struct scan *scan, int parent, const char *name,
                              const char *entry, struct error *err)
{
    if (!message_name_ok(message_text_of(entry))) {
        log_write(scan->log, LOG_WARNING, "%s/%s%s%s: no name for a model or version: left out",
                  scan->path, name ? name : "", name ? "/" : "", entry);
        return STATUS_OK;
    }
    if (name)
        return version_add(scan, name, entry, err);
    int fd = openat(parent, entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        log_write(scan->log, LOG_WARNING, "%s/%s: %s: left out", scan->path, entry,
                  strerror(errno));
        return STATUS_OK;
    }
    return folder_walk(scan, fd, entry, err);
}

static enum status folder_walk(const struct scan *scan, int fd, const char *name, struct error *err)
{
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return error_no_memory(err, "the list of models");
    }
    enum status status = STATUS_OK;
    for (struct dirent *e; !status && (e = readdir(dir));) {
        struct stat st;
        if (e->d_name[0] == '.' || fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (S_ISDIR(st.st_mode))
            status = entry_walk(scan, dirfd(dir), name, e->d_name, err);
    }
    closedir(dir);
    return status;
}

static enum status repository_scan(const char *path, const struct log_sink *log,
                                   struct wanted_list *list, struct error *err)
{
    CLEANUP(cleanup_close) int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return error_errno(err, errno, "repository %s", path);
    const struct scan scan = {root, path, log, list};
    int top = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
        return error_errno(err, errno, "repository %s", path);
    return folder_walk(&scan, top, NULL, err);
}

static enum status duplicates_check(const struct wanted_list *list, struct error *err)
{
    for (uint32_t i = 0; i < list->n; i++)
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(list->items[i].name, list->items[k].name) == 0 &&
                strcmp(list->items[i].version, list->items[k].version) == 0)
                return error_set(err, STATUS_INVALID_ARGUMENT,
                                 "model '%s' version '%s' is there twice: %s and %s",
                                 list->items[i].name, list->items[i].version,
                                 list->items[k].source.path, list->items[i].source.path);
    return STATUS_OK;
}

enum status repository_list(const struct config *config, const struct log_sink *log,
                            struct wanted_list *out, struct error *err)
{
    CLEANUP(repository_list_deinit) struct wanted_list list = {0};
    for (uint32_t i = 0; i < config->models_count; i++)
        TRY(configured_add(&config->models[i], &list, err));
    if (config->repository)
        TRY(repository_scan(config->repository, log, &list, err));
    TRY(duplicates_check(&list, err));
    *out = list;
    list = (struct wanted_list){0};
    return STATUS_OK;
}
