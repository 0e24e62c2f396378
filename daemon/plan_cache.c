/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of ONNX files, see plan_cache.h. */
#include "daemon/plan_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file_read.h"
#include "daemon/child.h"
#include "daemon/counters.h"
#include "daemon/external.h"
#include "daemon/plan_folder.h"
#include "engine/backend.h"

enum { KEY_MAX = MESSAGE_MAX_NAME + 1 + DIGEST_TEXT, ATTEMPTS = 2, COPY_BYTES = 16 << 20 };

/* ONNX files are one protobuf message each, which is less than 2 GiB. */
#define MODEL_MAX_BYTES (UINT64_C(1) << 31)

/* A kept plan that is served: its descriptor keeps others from removing it. */
struct in_use {
    struct in_use *next;
    const struct engine *engine;
    int fd;
};

struct plan_cache {
    struct plan_cache_config config;
    struct plan_folder *folder; /* NULL: there is none that can be used */
    struct in_use *in_use;
    uint64_t builds;
};

/* One model on its way to an engine. */
struct loading {
    struct plan_cache *cache;
    const struct wanted *w;
    const struct engine *like;
    uint32_t timeout_s;
    uint8_t model[DIGEST_BYTES];
    struct external *external;           /* NULL: the model has no external data */
    int folder;                          /* that external data lie in; else -1 */
    uint8_t external_seen[DIGEST_BYTES]; /* the data's state when the key was made */
    char key[KEY_MAX];
};

enum status plan_cache_new(const struct plan_cache_config *config, struct plan_cache **out,
                           struct error *err)
{
    struct plan_cache *cache = calloc(1, sizeof(*cache));
    struct error why;
    if (!cache)
        return error_no_memory(err, "the plan cache");
    cache->config = *config;
    const struct plan_folder_config folder = {
        .path = config->folder,
        .below = config->below,
        .insecure = config->insecure,
        .limit = config->limit,
        .most = config->most,
        .log = config->log,
    };
    if (!config->keep_none && plan_folder_open(&folder, &cache->folder, &why))
        log_write(config->log, LOG_WARNING,
                  "plan cache cannot be used: %s: plans are built anew at each start", why.text);
    *out = cache;
    return STATUS_OK;
}

bool plan_cache_keeps(const struct plan_cache *cache)
{
    return cache->folder;
}

void plan_cache_free(struct plan_cache *cache)
{
    if (!cache)
        return;
    while (cache->in_use)
        plan_cache_release(cache, cache->in_use->engine);
    plan_folder_close(cache->folder);
    free(cache);
}

void plan_cache_release(struct plan_cache *cache, const struct engine *engine)
{
    for (struct in_use **at = &cache->in_use; *at; at = &(*at)->next) {
        struct in_use *gone = *at;
        if (gone->engine != engine)
            continue;
        *at = gone->next;
        plan_folder_mark(gone->fd); /* it was used until now */
        close(gone->fd);
        free(gone);
        return;
    }
}

/* Takes over `fd`. */
static void in_use_add(struct plan_cache *cache, const struct engine *engine, int fd)
{
    struct in_use *use = calloc(1, sizeof(*use));
    if (!use) {
        close(fd); /* the plan may be removed then, and is built again */
        return;
    }
    *use = (struct in_use){cache->in_use, engine, fd};
    cache->in_use = use;
}

uint64_t plan_cache_builds(const struct plan_cache *cache)
{
    return cache->builds;
}

/* --- names --- */

/* The folder that the model lies in; -1 if it cannot be opened. */
static int model_folder(const struct wanted *w)
{
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    const char *slash = strrchr(w->path, '/');
    if (w->folder >= 0 || !slash)
        return openat(w->folder >= 0 ? w->folder : AT_FDCWD, ".", flags);
    char *path = strndup(w->path, (size_t)(slash - w->path) + 1);
    int fd = path ? open(path, flags) : -1;
    free(path);
    return fd;
}

static enum status key_format(struct loading *l, struct error *err)
{
    const struct plan_cache_config *config = &l->cache->config;
    char fingerprint[FINGERPRINT_MAX] = "";
    config->device->backend->device_fingerprint(config->device, fingerprint);
    uint64_t inputs = wanted_build_digest(&l->w->config);
    uint32_t batches = l->w->config.batches_count;
    uint8_t key[DIGEST_BYTES];
    char text[DIGEST_TEXT];
    struct digest *d = digest_new();
    if (!d)
        return error_no_memory(err, "a digest");
    digest_add(d, INFERD_VERSION, sizeof(INFERD_VERSION));
    digest_add(d, fingerprint, sizeof(fingerprint));
    digest_add(d, &batches, sizeof(batches));
    digest_add(d, l->w->config.batches, batches * sizeof(*l->w->config.batches));
    digest_add(d, &inputs, sizeof(inputs));
    digest_add(d, l->model, sizeof(l->model));
    if (l->external)
        digest_add(d, l->external_seen, sizeof(l->external_seen));
    bool ok = digest_finish(d, key);
    digest_free(d);
    if (!ok)
        return error_no_memory(err, "a digest");
    digest_text(key, text);
    snprintf(l->key, sizeof(l->key), "%s-%s", l->w->name, text);
    return STATUS_OK;
}

static enum status model_digest(const struct loading *l, int fd, uint8_t out[DIGEST_BYTES],
                                bool *external, struct error *err)
{
    const struct file_guard guard = {.stop = l->cache->config.stop};
    const struct file_read how = {.name = l->w->source.path,
                                  .limit = MODEL_MAX_BYTES,
                                  .guard = &guard,
                                  .word = external ? EXTERNAL_WORD : NULL,
                                  .found = external};
    return file_digest(fd, &how, out, err);
}

static enum status changed(const struct loading *l, struct error *err)
{
    return error_cause(err, CAUSE_FILE_CHANGED, "%s: the file changed while it was built",
                       l->w->source.path);
}

static enum status same_model(void *user, const uint8_t digest[DIGEST_BYTES], struct error *err)
{
    const struct loading *l = user;
    return memcmp(digest, l->model, DIGEST_BYTES) == 0 ? STATUS_OK : changed(l, err);
}

/* Looks for external data in a model that has the word by which tensors name their files. */
static enum status external_look(struct loading *l, struct error *err)
{
    const struct file_guard guard = {l->cache->config.stop, same_model, l};
    const struct file_read how = {
        .name = l->w->source.path, .limit = MODEL_MAX_BYTES, .guard = &guard};
    struct file_map map;
    TRY(file_load(l->w->fd, &how, &map, err));
    enum status status = external_find(map.data, map.size, &l->external, err);
    file_unmap(&map);
    if (status || !l->external)
        return status;
    if (l->cache->config.trust)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "plan_keys: a signature does not cover external data; build a plan of the "
                         "model and sign that");
    l->folder = model_folder(l->w);
    if (l->folder < 0)
        return error_errno(err, errno, "%s: its folder", l->w->source.path);
    return external_state(l->external, l->folder, l->external_seen, err);
}

/* The plan depends on the model's bytes, on what it is built for, and on its external data. */
static enum status key_make(struct loading *l, struct error *err)
{
    bool word = false;
    TRY(model_digest(l, l->w->fd, l->model, &word, err));
    TRY(trust_check(l->cache->config.trust, l->w, l->model, err));
    if (word)
        TRY(external_look(l, err));
    return key_format(l, err);
}

/* --- building --- */

static enum status copy_bytes(const struct loading *l, int to, struct error *err)
{
    for (;;) {
        if (atomic_load_explicit(l->cache->config.stop, memory_order_relaxed))
            return error_plain(err, CAUSE_STOPPED);
        off_t at = lseek(to, 0, SEEK_CUR);
        if (at > (off_t)MODEL_MAX_BYTES)
            return changed(l, err); /* somebody keeps writing to the file */
        ssize_t n = sendfile(to, l->w->fd, &at, COPY_BYTES);
        if (n == 0)
            return STATUS_OK;
        if (n < 0 && errno != EINTR)
            return error_errno(err, errno, "%s: copying it to memory", l->w->source.path);
    }
}

/* Copies the model to `to`, and seals the copy; it must have the digest that is in the key. */
static enum status copy_sealed(const struct loading *l, int to, struct error *err)
{
    uint8_t digest[DIGEST_BYTES];
    TRY(copy_bytes(l, to, err));
    if (fcntl(to, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
        return error_errno(err, errno, "sealing a copy of the model");
    TRY(model_digest(l, to, digest, NULL, err));
    return memcmp(digest, l->model, sizeof(digest)) == 0 ? STATUS_OK : changed(l, err);
}

/* Makes a copy of the model that nobody can change. */
static enum status model_copy(const struct loading *l, int *out, struct error *err)
{
    int fd = memfd_create("model", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return error_errno(err, errno, "memfd_create");
    enum status status = copy_sealed(l, fd, err);
    if (status)
        close(fd);
    else
        *out = fd;
    return status;
}

static enum status plan_make(struct loading *l, int model, int plan, struct error *err)
{
    const struct plan_cache_config *config = &l->cache->config;
    const struct wanted *w = l->w;
    const char *slash = strrchr(w->path, '/');
    const struct child_build child = {
        .model_fd = model,
        .name = slash ? slash + 1 : w->path,
        .folder = l->folder,
        .plan_fd = plan,
        /* The device "fault" is for serving only. */
        .device = strncmp(config->device_spec, "fault", 5) == 0 ? "cpu" : config->device_spec,
        .threads = config->device->threads,
        .reference = config->reference,
        .batches = w->config.batches,
        .n_batches = w->config.batches_count,
        .inputs = w->config.inputs,
        .n_inputs = w->config.inputs_count,
        .sizes = w->config.sizes,
        .precision = w->config.precision,
        .max_bytes = w->config.max_bytes,
        .workspace = w->config.workspace,
        .memory_percent = w->config.memory_percent,
        .plugins = config->plugins,
        .n_plugins = config->n_plugins,
        .timeout_s = l->timeout_s,
        .memory_bytes = config->build_memory_bytes,
        .log = config->log,
        .stop = config->stop,
    };
    log_write(config->log, config->quiet ? LOG_VERBOSE : LOG_INFO,
              "model '%s' version '%s': building a plan from %s", w->name, w->version,
              w->source.path);
    TRY(child_build(&child, err));
    l->cache->builds++;
    counter_add(config->counters, COUNTER_PLANS_BUILT, 1);
    return STATUS_OK;
}

/* Builds the plan into the empty file `plan`, and loads the engine from there. */
static enum status build(struct loading *l, int plan, struct engine **out, struct error *err)
{
    const struct file_guard guard = {.stop = l->cache->config.stop};
    uint8_t now[DIGEST_BYTES];
    int model = -1;
    TRY(model_copy(l, &model, err));
    enum status status = plan_make(l, model, plan, err);
    close(model); /* it takes memory that the engine may need */
    if (status)
        return status;
    if (l->external) {
        TRY(external_state(l->external, l->folder, now, err));
        if (memcmp(now, l->external_seen, sizeof(now)) != 0)
            return changed(l, err);
    }
    return engine_load_fd(l->cache->config.device, plan, "the plan that was built", &guard, l->like,
                          out, err);
}

/* Without a cache: the plan has no name, and is gone once it is read. */
static enum status load_uncached(struct loading *l, struct engine **out, struct error *err)
{
    CLEANUP(cleanup_close) int plan = memfd_create("plan", MFD_CLOEXEC);
    if (plan < 0)
        return error_errno(err, errno, "memfd_create");
    return build(l, plan, out, err);
}

/* A kept plan that is damaged or made for something else is as good as none. */
static enum status load_kept(const struct loading *l, struct engine **out, struct error *err)
{
    const struct plan_cache_config *config = &l->cache->config;
    const struct file_guard guard = {.stop = config->stop};
    int fd;
    enum status status = plan_folder_find(l->cache->folder, l->key, &fd, err);
    if (status == STATUS_NOT_FOUND)
        return status;
    if (!status) {
        status = engine_load_fd(config->device, fd, l->key, &guard, l->like, out, err);
        if (status)
            close(fd);
        else
            in_use_add(l->cache, *out, fd);
    }
    if (status && status != STATUS_CANCELLED)
        log_write(config->log, LOG_WARNING, "model '%s' version '%s': the kept plan: %s",
                  l->w->name, l->w->version, err->text);
    return status;
}

/* Takes over the writer, whose lock would keep us from marking the plan as used. */
static enum status plan_keep(struct loading *l, struct file_writer *writer,
                             const struct engine *engine, struct error *err)
{
    int fd;
    enum status status = file_writer_commit(writer, err);
    file_writer_free(writer);
    if (status)
        return status;
    TRY(plan_folder_find(l->cache->folder, l->key, &fd, err));
    in_use_add(l->cache, engine, fd);
    return STATUS_OK;
}

/* Takes over the writer. Makes the engine first, because a plan that does not load is not kept. */
static enum status build_kept(struct loading *l, struct file_writer *writer, struct engine **out,
                              struct error *err)
{
    struct plan_cache *cache = l->cache;
    struct error why;
    enum status status = build(l, file_writer_fd(writer), out, err);
    if (status) {
        file_writer_free(writer);
        return status;
    }
    if (plan_keep(l, writer, *out, &why))
        log_write(cache->config.log, LOG_WARNING, "plan cache %s: the plan is not kept: %s",
                  plan_folder_path(cache->folder), why.text);
    plan_folder_trim(cache->folder);
    return STATUS_OK;
}

/* Whether there is any use in building what was kept and could not be loaded. */
static bool worth_building(enum status status)
{
    return status && status != STATUS_CANCELLED && status != STATUS_RESOURCE_EXHAUSTED;
}

static enum status load_cached(struct loading *l, struct engine **out, struct error *err)
{
    struct plan_cache *cache = l->cache;
    struct file_writer *writer;
    enum status status = load_kept(l, out, err);
    if (!worth_building(status))
        return status;
    status =
        plan_folder_write(cache->folder, l->key, l->timeout_s, cache->config.stop, &writer, err);
    if (status == STATUS_CANCELLED)
        return status;
    if (!status) {
        status = load_kept(l, out, err); /* another process may have built it meanwhile */
        if (worth_building(status))
            status = build_kept(l, writer, out, err);
        else
            file_writer_free(writer);
        if (!status || err->cause != CAUSE_DISK_FULL)
            return status;
    }
    /* The folder has no place for the plan, or another process does not finish writing it. */
    log_write(cache->config.log, LOG_WARNING, "plan cache %s: %s", plan_folder_path(cache->folder),
              err->text);
    return load_uncached(l, out, err);
}

static enum status load_once(struct loading *l, struct engine **out, struct error *err)
{
    TRY(key_make(l, err));
    return l->cache->folder ? load_cached(l, out, err) : load_uncached(l, out, err);
}

enum status plan_cache_load(struct plan_cache *cache, const struct wanted *w, uint32_t timeout_s,
                            const struct engine *like, struct engine **out, struct error *err)
{
    enum status status;
    uint32_t attempts = 0;
    do {
        struct loading l = {
            .cache = cache, .w = w, .like = like, .timeout_s = timeout_s, .folder = -1};
        status = load_once(&l, out, err);
        external_free(l.external);
        if (l.folder >= 0)
            close(l.folder);
    } while (status && err->cause == CAUSE_FILE_CHANGED && ++attempts < ATTEMPTS);
    return status;
}
