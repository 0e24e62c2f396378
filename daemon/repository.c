/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the models to be served; see repository.h. */
#include "daemon/repository.h"

#include <assert.h>
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
#include "base/file_read.h"

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
    for (uint32_t i = 0; i < list->n_files; i++)
        model_file_free(list->files[i]);
    free(list->items);
    free(list->files);
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

static uint64_t mix(uint64_t digest, const void *data, size_t size)
{
    return XXH3_64bits_withSeed(size ? data : "", size, digest + size + 1);
}

uint64_t wanted_build_digest(const struct config_model *config)
{
    uint64_t digest = 0;
    for (uint32_t i = 0; i < config->inputs_count; i++) {
        const struct config_input *in = &config->inputs[i];
        digest = mix(digest, in->name, strlen(in->name));
        digest = mix(digest, in->type, in->type ? strlen(in->type) : 0);
        digest = mix(digest, in->scale, in->scale_count * sizeof(*in->scale));
        digest = mix(digest, in->bias, in->bias_count * sizeof(*in->bias));
    }
    for (uint32_t k = 0; k < CONFIG_SIZE_COUNT_; k++)
        for (uint32_t i = 0; i < config->sizes[k].count; i++) {
            const char *text = config->sizes[k].items[i];
            digest = mix(digest + k + 1, text, strlen(text));
        }
    if (config->precision)
        digest = mix(digest, config->precision, strlen(config->precision));
    const uint64_t limits[] = {config->max_bytes, config->memory_percent, config->workspace};
    if (limits[0] || limits[1] || limits[2])
        digest = mix(digest, limits, sizeof(limits));
    return digest;
}

uint64_t wanted_signature(const struct wanted *items, uint32_t n, uint64_t *changed_ns)
{
    uint64_t digest = n;
    *changed_ns = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct model_source *s = &items[i].source;
        const uint64_t numbers[] = {s->device,   s->inode,    s->size,         s->mtime_ns,
                                    s->ctime_ns, s->profiles, items[i].fd >= 0};
        digest = mix(digest, items[i].version, strlen(items[i].version));
        digest = mix(digest, numbers, sizeof(numbers));
        if (items[i].fd < 0)
            digest = mix(digest, items[i].err.text, strlen(items[i].err.text));
        *changed_ns = MAX(*changed_ns, MAX(s->ctime_ns, s->mtime_ns));
    }
    return digest;
}

/* --- settings --- */

static bool file_keep(struct wanted_list *list, struct model_file *file)
{
    struct model_file **files =
        realloc(list->files, ((size_t)list->n_files + 1) * sizeof(struct model_file *));
    if (!files) {
        model_file_free(file);
        return false;
    }
    list->files = files;
    files[list->n_files++] = file;
    return true;
}

/* Reads a model's settings, and a digest of the file, which is never 0. */
static enum status settings_load(struct wanted_list *list, int fd, const char *name,
                                 const char *model, const struct log_sink *log,
                                 struct model_file **out, uint64_t *digest, struct error *err)
{
    struct file_map text;
    struct model_file *file;
    const struct file_read how = {.name = name, .limit = MODEL_FILE_MAX};
    TRY(file_load(fd, &how, &text, err));
    *digest = XXH3_64bits(text.data, text.size) | 1;
    enum status status = model_file_parse(name, text.data, text.size, model, log, &file, err);
    file_unmap(&text);
    if (status)
        return status;
    if (!file_keep(list, file))
        return error_no_memory(err, "%s", name);
    *out = file;
    return STATUS_OK;
}

/* --- models of the configuration --- */

/* Reads a pipeline's file; the entry keeps the reason of a failure. */
static enum status pipeline_read(struct wanted_list *list, struct wanted *w,
                                 const struct log_sink *log)
{
    TRY(settings_load(list, w->fd, w->path, w->name, log, &w->settings, &w->source.profiles,
                      &w->err));
    if (!w->settings->n_steps)
        return error_set(&w->err, STATUS_INVALID_ARGUMENT,
                         "%s: expected platform \"ensemble\": a model is an .onnx or a .plan",
                         w->path);
    w->config = w->settings->config;
    w->pipeline = true;
    return STATUS_OK;
}

static enum status configured_add(const struct config_model *config, const struct log_sink *log,
                                  struct wanted_list *list, struct error *err)
{
    struct wanted *w = wanted_add(list, config->name, config->version ? config->version : "1",
                                  config->path, config->path);
    if (!w)
        return error_no_memory(err, "the list of models");
    w->config = *config;
    if (config->batches_count)
        w->source.profiles =
            XXH3_64bits(config->batches, config->batches_count * sizeof(config->batches[0]));
    w->source.profiles += wanted_build_digest(config);
    file_open(config->path, &w->fd, &w->err); /* the entry keeps the reason of a failure */
    source_fill(w);
    if (w->fd < 0 || !ends_with(config->path, ".pbtxt"))
        return STATUS_OK;
    pipeline_read(list, w, log);
    close(w->fd);
    w->fd = -1;
    return STATUS_OK;
}

/* --- the repository --- */

struct scan {
    int root;
    const char *path; /* the repository's */
    const struct log_sink *log;
    struct wanted_list *list;
    const char *instead; /* of config.pbtxt; NULL: nothing */
};

/* One model of it. */
struct model_scan {
    const struct scan *scan;
    const char *name;
    struct model_file *settings;
    uint64_t file_digest;    /* of config.pbtxt; 0: there is none */
    uint64_t file_change_ns; /* when it was changed */
    struct error why;        /* of its status if it cannot be used */
};

static enum status source_add(const struct model_scan *m, const char *version, const char *file,
                              const char *below, struct wanted **out, struct error *err)
{
    char source[4096];
    snprintf(source, sizeof(source), "%s/%s", m->scan->path, below);
    struct wanted *w = wanted_add(m->scan->list, m->name, version, file, source);
    if (!w)
        return error_no_memory(err, "the list of models");
    w->config = m->settings ? m->settings->config : (struct config_model){.max_delay_us = -1};
    w->settings = m->settings;
    w->of_repository = true;
    w->source.profiles = m->file_digest;
    *out = w;
    return STATUS_OK;
}

/* Takes over `fd`. */
static void source_open(const struct model_scan *m, struct wanted *w, char *below, int fd)
{
    *strrchr(below, '/') = '\0';
    w->fd = fd;
    w->folder = openat(m->scan->root, below, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    source_fill(w);
    w->source.mtime_ns = MAX(w->source.mtime_ns, m->file_change_ns);
    if (m->why.status) {
        close(w->fd);
        w->fd = -1;
        w->err = m->why;
    }
}

/* A pipeline's file is its config.pbtxt, whatever lies in the folder of its version. */
static enum status pipeline_add(const struct model_scan *m, const char *version, struct error *err)
{
    struct wanted *w = NULL;
    char below[MESSAGE_MAX_NAME + 32];
    snprintf(below, sizeof(below), "%s/" REPOSITORY_MODEL_FILE, m->name);
    TRY(source_add(m, version, REPOSITORY_MODEL_FILE, below, &w, err));
    assert(w);
    w->pipeline = true;
    w->source.ctime_ns = w->source.mtime_ns = m->file_change_ns;
    return STATUS_OK;
}

static enum status version_add(const struct model_scan *m, const char *version, struct error *err)
{
    if (m->settings && m->settings->n_steps)
        return pipeline_add(m, version, err);
    const char *own = m->settings ? m->settings->file : NULL;
    const char *const *names = own ? &own : file_names;
    char below[3 * MESSAGE_MAX_NAME + 32];
    for (size_t i = 0; i < (own ? 1 : ARRAY_LEN(file_names)); i++) {
        struct error why;
        struct wanted *w = NULL;
        int fd = -1;
        snprintf(below, sizeof(below), "%s/%s/%s", m->name, version, names[i]);
        enum status status = file_open_beneath(m->scan->root, below, &fd, &why);
        if (status == STATUS_NOT_FOUND)
            continue;
        enum status add_status = source_add(m, version, names[i], below, &w, err);
        if (add_status) {
            if (!status)
                close(fd);
            return add_status;
        }
        w->err = why;
        if (!status)
            source_open(m, w, below, fd);
        return STATUS_OK;
    }
    if (m->why.status) { /* it may have been meant as a pipeline, which has no such file */
        struct wanted *w = NULL;
        TRY(source_add(m, version, REPOSITORY_MODEL_FILE, m->name, &w, err));
        assert(w);
        w->err = m->why;
        return STATUS_OK;
    }
    log_write(m->scan->log, LOG_WARNING, "%s/%s/%s: neither model.plan nor model.onnx: left out",
              m->scan->path, m->name, version);
    return STATUS_OK;
}

/* Calls `see` for each sub-folder of `fd` whose name can be a model's or a version's; closes it. */
static enum status folder_walk(const struct scan *scan, int fd, const char *above,
                               enum status (*see)(void *user, int parent, const char *name,
                                                  struct error *err),
                               void *user, struct error *err)
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
        if (S_ISLNK(st.st_mode))
            log_write(scan->log, LOG_WARNING, "%s/%s%s: a symbolic link: left out", scan->path,
                      above, e->d_name);
        if (!S_ISDIR(st.st_mode))
            continue;
        if (message_name_ok(message_text_of(e->d_name)))
            status = see(user, dirfd(dir), e->d_name, err);
        else
            log_write(scan->log, LOG_WARNING, "%s/%s%s: no name for a model or version: left out",
                      scan->path, above, e->d_name);
    }
    closedir(dir);
    return status;
}

static enum status version_see(void *user, int parent UNUSED, const char *name, struct error *err)
{
    const struct model_scan *m = user;
    if (m->settings && strcmp(name, REPOSITORY_WARMUP) == 0)
        return STATUS_OK;
    return version_add(m, name, err);
}

/* --- config.pbtxt --- */

/* What came with a load takes the file's place. */
static void settings_instead(struct model_scan *m)
{
    const char *text = m->scan->instead;
    size_t size = strlen(text);
    m->file_digest = XXH3_64bits(text, size) | 1;
    if (model_file_parse_quoted("config", text, size, m->name, m->scan->log, &m->settings, &m->why))
        return;
    if (file_keep(m->scan->list, m->settings)) {
        m->why = (struct error){0};
    } else {
        m->settings = NULL;
        error_no_memory(&m->why, "config");
    }
}

/* Reads the file if there is one; m->why says why it cannot be used. */
static void settings_read(struct model_scan *m)
{
    char below[MESSAGE_MAX_NAME + 32], name[4096];
    struct stat st;
    int fd;
    if (m->scan->instead) {
        settings_instead(m);
        return;
    }
    snprintf(below, sizeof(below), "%s/" REPOSITORY_MODEL_FILE, m->name);
    snprintf(name, sizeof(name), "%s/%s", m->scan->path, below);
    enum status status = file_open_beneath(m->scan->root, below, &fd, &m->why);
    if (status == STATUS_NOT_FOUND) {
        m->why = (struct error){0};
        return;
    }
    if (status) {
        m->file_digest = 1;
        error_prefix(&m->why, "%s", name);
        return;
    }
    if (fstat(fd, &st) == 0)
        m->file_change_ns = (uint64_t)st.st_ctim.tv_sec * NS_PER_S + (uint64_t)st.st_ctim.tv_nsec;
    status = settings_load(m->scan->list, fd, name, m->name, m->scan->log, &m->settings,
                           &m->file_digest, &m->why);
    if (!status)
        m->why = (struct error){0};
    close(fd);
}

/* --- which versions --- */

static int by_version(const void *a, const void *b)
{
    const struct wanted *x = a, *y = b;
    return strverscmp(x->version, y->version);
}

static bool version_named(const struct model_file *settings, const char *version)
{
    for (uint32_t i = 0; i < settings->n_specific; i++) {
        char text[24];
        snprintf(text, sizeof(text), "%lld", (long long)settings->specific[i]);
        if (strcmp(text, version) == 0)
            return true;
    }
    return false;
}

/* Takes the versions from items[first] on that the policy does not want off the list. */
static void policy_apply(const struct model_scan *m, uint32_t first)
{
    struct wanted_list *list = m->scan->list;
    const struct model_file *settings = m->settings;
    uint32_t n = list->n - first, kept = first;
    if (!settings || settings->policy == POLICY_ALL || !n)
        return;
    qsort(list->items + first, n, sizeof(*list->items), by_version);
    for (uint32_t i = first; i < list->n; i++) {
        bool wanted = settings->policy == POLICY_LATEST
                          ? list->n - i <= settings->latest
                          : version_named(settings, list->items[i].version);
        if (wanted)
            list->items[kept++] = list->items[i];
        else
            wanted_deinit(&list->items[i]);
    }
    list->n = kept;
    if (settings->policy == POLICY_SPECIFIC && kept - first < settings->n_specific)
        log_write(m->scan->log, LOG_WARNING,
                  "%s/%s: version_policy names %u versions, of which %u are there", m->scan->path,
                  m->name, settings->n_specific, kept - first);
}

static enum status model_see(void *user, int parent, const char *name, struct error *err)
{
    const struct scan *scan = user;
    struct model_scan m = {.scan = scan, .name = name};
    char above[MESSAGE_MAX_NAME + 2];
    uint32_t first = scan->list->n;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        log_write(scan->log, LOG_WARNING, "%s/%s: %s: left out", scan->path, name, strerror(errno));
        return STATUS_OK;
    }
    settings_read(&m);
    snprintf(above, sizeof(above), "%s/", name);
    TRY(folder_walk(scan, fd, above, version_see, &m, err));
    if (m.settings && m.settings->n_steps && scan->list->n == first)
        TRY(pipeline_add(&m, "1", err)); /* git, for one, keeps no empty folders */
    policy_apply(&m, first);
    return STATUS_OK;
}

/* Lists all models, or the one of this name. */
static enum status repository_scan(const char *path, const char *only, const char *instead,
                                   const struct log_sink *log, struct wanted_list *list,
                                   struct error *err)
{
    CLEANUP(cleanup_close) int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return error_errno(err, errno, "repository %s", path);
    struct scan scan = {root, path, log, list, instead};
    struct stat st;
    if (only)
        return message_name_ok(message_text_of(only)) &&
                       fstatat(root, only, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)
                   ? model_see(&scan, root, only, err)
                   : STATUS_OK;
    int top = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
        return error_errno(err, errno, "repository %s", path);
    return folder_walk(&scan, top, "", model_see, &scan, err);
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
        TRY(configured_add(&config->models[i], log, &list, err));
    if (config->repository)
        TRY(repository_scan(config->repository, NULL, NULL, log, &list, err));
    TRY(duplicates_check(&list, err));
    *out = list;
    list = (struct wanted_list){0};
    return STATUS_OK;
}

enum status repository_list_model(const struct config *config, const char *root, const char *model,
                                  const char *instead, const struct log_sink *log,
                                  struct wanted_list *out, struct error *err)
{
    CLEANUP(repository_list_deinit) struct wanted_list list = {0};
    const char *path = root ? root : config->repository;
    if (path)
        TRY(repository_scan(path, model, instead, log, &list, err));
    *out = list;
    list = (struct wanted_list){0};
    return STATUS_OK;
}
