/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of ONNX files, see plan_cache.h. */
#include "daemon/plan_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"
#include "daemon/child.h"
#include "daemon/counters.h"
#include "engine/backend.h"

enum { PATH_MAX_ = 4096 };

struct plan_cache {
    struct plan_cache_config config;
    bool usable;
    char folder[PATH_MAX_ - 256];
};

/* ---- the folder ---- */

static bool folder_find(const char *configured, char *out, size_t size)
{
    const char *from = configured ? configured : getenv("CACHE_DIRECTORY");
    const char *home = getenv("HOME");
    int len;
    if (from && *from)
        len = snprintf(out, size, "%.*s", (int)strcspn(from, ":"), from);
    else if (home && home[0] == '/')
        len = snprintf(out, size, "%s/.cache/inferd", home);
    else
        return false;
    return len > 0 && (size_t)len < size;
}

/* mkdir -p, for us alone. */
static bool folder_make(const char *path)
{
    char part[PATH_MAX_];
    size_t len = strlen(path);
    if (len >= sizeof(part))
        return false;
    memcpy(part, path, len + 1);
    for (size_t i = 1; i <= len; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        char kept = part[i];
        part[i] = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST)
            return false;
        part[i] = kept;
    }
    return access(path, W_OK | X_OK) == 0;
}

enum status plan_cache_new(const struct plan_cache_config *config, struct plan_cache **out,
                           struct error *err)
{
    struct plan_cache *cache = calloc(1, sizeof(*cache));
    if (!cache)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "no memory for the plan cache");
    cache->config = *config;
    cache->usable = folder_find(config->folder, cache->folder, sizeof(cache->folder)) &&
                    folder_make(cache->folder);
    if (!cache->usable)
        log_write(config->log, LOG_WARNING,
                  "plan cache %s cannot be written (%s): plans are built anew at each start",
                  *cache->folder ? cache->folder : "(no folder)", strerror(errno));
    else if (file_sweep(cache->folder) > 0)
        log_write(config->log, LOG_INFO, "plan cache: removed what a killed build had left");
    *out = cache;
    return STATUS_OK;
}

void plan_cache_free(struct plan_cache *cache)
{
    free(cache);
}

/* ---- names ---- */

/* The folder that the model lies in; -1 if it cannot be opened. */
static int model_folder(const struct wanted *w)
{
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    char path[PATH_MAX_];
    const char *slash = strrchr(w->path, '/');
    int len = slash ? (int)(slash - w->path) + 1 : 0;
    if (w->folder >= 0 || !slash)
        return openat(w->folder >= 0 ? w->folder : AT_FDCWD, ".", flags);
    if (snprintf(path, sizeof(path), "%.*s", len, w->path) >= (int)sizeof(path))
        return -1;
    return open(path, flags);
}

/* Names, sizes and times of the files beside a model; the sum does not depend on their order. */
static uint64_t files_beside(const struct wanted *w)
{
    int fd = model_folder(w);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir && fd >= 0)
        close(fd);
    uint64_t sum = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        struct stat st;
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(st.st_mode))
            continue;
        const int64_t seen[] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
        sum += XXH3_64bits_withSeed(entry->d_name, strlen(entry->d_name),
                                    XXH3_64bits(seen, sizeof(seen)));
    }
    if (dir)
        closedir(dir);
    return sum;
}

/* The plan depends on the model's bytes, on what it is built for, and on its external data. The
 * daemon does not read models: one that has the word by which a tensor names its file (onnx.proto3,
 * TensorProto.external_data) may have some, and then the files beside it count. */
static enum status key_make(const struct plan_cache *cache, const struct wanted *w,
                            char out[MESSAGE_MAX_NAME + 40], struct error *err)
{
    struct file_map map;
    enum status s = file_map_fd(w->fd, w->source.path, 0, &map, err);
    if (s != STATUS_OK)
        return s;
    char fingerprint[FINGERPRINT_MAX] = "";
    struct device *device = cache->config.device;
    device->backend->device_fingerprint(device, fingerprint);
    XXH3_state_t *state = XXH3_createState();
    if (!state) {
        file_unmap(&map);
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "no memory for a digest");
    }
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, INFERD_VERSION, sizeof(INFERD_VERSION));
    XXH3_128bits_update(state, fingerprint, sizeof(fingerprint));
    XXH3_128bits_update(state, &w->config.batches_count, sizeof(w->config.batches_count));
    if (w->config.batches_count)
        XXH3_128bits_update(state, w->config.batches,
                            w->config.batches_count * sizeof(w->config.batches[0]));
    uint64_t inputs = wanted_inputs_digest(&w->config);
    XXH3_128bits_update(state, &inputs, sizeof(inputs));
    XXH3_128bits_update(state, map.data, map.size);
    if (memmem(map.data, map.size, "location", strlen("location"))) {
        uint64_t beside = files_beside(w);
        XXH3_128bits_update(state, &beside, sizeof(beside));
    }
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    file_unmap(&map);
    snprintf(out, MESSAGE_MAX_NAME + 40, "%s-%016llx%016llx", w->name,
             (unsigned long long)hash.high64, (unsigned long long)hash.low64);
    return STATUS_OK;
}

/* ---- building ---- */

static enum status build(const struct plan_cache *cache, const struct wanted *w, uint32_t timeout_s,
                         const char *plan, struct error *err)
{
    struct file_writer *writer;
    enum status s = file_writer_new(plan, true, &writer, err);
    if (s != STATUS_OK)
        return s;
    int folder = model_folder(w);
    const char *slash = strrchr(w->path, '/');
    const struct child_build child = {
        .model_fd = w->fd,
        .name = slash ? slash + 1 : w->path,
        .folder = folder,
        .plan_fd = file_writer_fd(writer),
        /* Faults are for those who serve. */
        .device =
            strncmp(cache->config.device_spec, "fault", 5) == 0 ? "cpu" : cache->config.device_spec,
        .threads = cache->config.device->threads,
        .reference = cache->config.reference,
        .batches = w->config.batches,
        .n_batches = w->config.batches_count,
        .inputs = w->config.inputs,
        .n_inputs = w->config.inputs_count,
        .timeout_s = timeout_s,
        .log = cache->config.log,
        .stop = cache->config.stop,
    };
    log_write(cache->config.log, LOG_INFO, "model '%s' version '%s': building a plan from %s",
              w->name, w->version, w->source.path);
    s = child_build(&child, err);
    if (s == STATUS_OK)
        s = file_writer_commit(writer, err);
    if (s == STATUS_OK)
        counter_add(cache->config.counters, COUNTER_PLANS_BUILT, 1);
    if (folder >= 0)
        close(folder);
    file_writer_free(writer);
    return s;
}

/* Without a cache: the file is gone once it is mapped. */
static enum status load_uncached(const struct plan_cache *cache, const struct wanted *w,
                                 uint32_t timeout_s, struct engine **out, struct error *err)
{
    static const char *const places[] = {"/dev/shm", "/tmp"};
    char folder[64], plan[96];
    bool made = false;
    for (size_t i = 0; i < ARRAY_LEN(places) && !made; i++) {
        snprintf(folder, sizeof(folder), "%s/inferd-XXXXXX", places[i]);
        made = mkdtemp(folder) != NULL;
    }
    if (!made)
        return error_errno(err, errno, "no place for a plan");
    snprintf(plan, sizeof(plan), "%s/model.plan", folder);
    enum status s = build(cache, w, timeout_s, plan, err);
    if (s == STATUS_OK)
        s = engine_load(cache->config.device, plan, out, err);
    unlink(plan);
    rmdir(folder);
    return s;
}

/* Waits until nobody else builds this plan. -1: the folder cannot be written. */
static int lock_take(const struct plan_cache *cache, const char *key)
{
    char path[PATH_MAX_];
    snprintf(path, sizeof(path), "%s/%s.lock", cache->folder, key);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    while (fd >= 0 && flock(fd, LOCK_EX) != 0)
        if (errno != EINTR) {
            close(fd);
            fd = -1;
        }
    return fd;
}

/* A kept plan that is damaged or made for something else is as good as none. */
static enum status load_kept(const struct plan_cache *cache, const struct wanted *w,
                             const char *plan, struct engine **out, struct error *err)
{
    enum status s = engine_load(cache->config.device, plan, out, err);
    if (s != STATUS_OK && s != STATUS_NOT_FOUND)
        log_write(cache->config.log, LOG_WARNING, "model '%s' version '%s': the kept plan: %s",
                  w->name, w->version, err->text);
    return s;
}

enum status plan_cache_load(struct plan_cache *cache, const struct wanted *w, uint32_t timeout_s,
                            struct engine **out, struct error *err)
{
    char key[MESSAGE_MAX_NAME + 40], plan[PATH_MAX_];
    enum status s = key_make(cache, w, key, err);
    if (s != STATUS_OK)
        return s;
    if (!cache->usable)
        return load_uncached(cache, w, timeout_s, out, err);
    snprintf(plan, sizeof(plan), "%s/%s.plan", cache->folder, key);
    if (load_kept(cache, w, plan, out, err) == STATUS_OK)
        return STATUS_OK;
    int lock = lock_take(cache, key);
    if (lock < 0)
        return load_uncached(cache, w, timeout_s, out, err);
    s = load_kept(cache, w, plan, out, err); /* somebody may have built it meanwhile */
    if (s != STATUS_OK) {
        s = build(cache, w, timeout_s, plan, err);
        if (s == STATUS_OK)
            s = engine_load(cache->config.device, plan, out, err);
    }
    close(lock);
    if (s == STATUS_RESOURCE_EXHAUSTED) { /* a full disk, say: memory may have room */
        log_write(cache->config.log, LOG_WARNING, "plan cache %s: %s", cache->folder, err->text);
        s = load_uncached(cache, w, timeout_s, out, err);
    }
    return s;
}
