/* SPDX-License-Identifier: Apache-2.0 */
/* The check of a configuration, see check.h. */
#include "daemon/check.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/address.h"
#include "daemon/admission.h"
#include "daemon/check_pipelines.h"
#include "daemon/counters.h"
#include "daemon/declared.h"
#include "daemon/device.h"
#include "daemon/fits.h"
#include "daemon/identity.h"
#include "daemon/listen_names.h"
#include "daemon/models.h"
#include "daemon/pipeline.h"
#include "daemon/repository.h"
#include "daemon/tls.h"
#include "daemon/trust.h"
#include "engine/backend.h"

struct check {
    const struct config *config;
    struct log_sink log; /* gets the warnings of what is tried */
    struct counters counters;
    struct device *device; /* NULL: it cannot be opened */
    struct lane *lane;     /* a stream and an arena, for contexts */
    struct trust *trust;   /* NULL: files need no signature */
    struct plan_cache *cache;
    struct check_pipelines *pipelines; /* NULL: there are none */
    _Atomic bool stop; /* never set: a signal ends the process, and builds with it */
    uint32_t failures, models, models_good;
};

/* --- what is said --- */

static void log_line(void *user UNUSED, enum log_level level, const char *line)
{
    fprintf(stderr, "inferd: %s%s\n", level == LOG_ERROR ? "" : "warning: ", line);
}

PRINTF(2, 3) static void fail(struct check *c, const char *fmt, ...)
{
    char line[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    fflush(stdout); /* lines come in the order of the findings */
    log_write(&c->log, LOG_ERROR, "%s", line);
    c->failures++;
}

/* --- addresses --- */

static void unix_check(struct check *c, const char *text, const struct address *address)
{
    const struct sockaddr_un *sun = (const struct sockaddr_un *)(const void *)&address->storage;
    char folder[sizeof(sun->sun_path)];
    struct stat st;
    snprintf(folder, sizeof(folder), "%s", sun->sun_path);
    char *slash = strrchr(folder, '/');
    slash[slash == folder] = '\0'; /* "/" stays itself */
    if (stat(folder, &st) != 0)
        fail(c, "address %s: %s: %s", text, folder, strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        fail(c, "address %s: %s is no folder", text, folder);
    else
        printf("address %s: its folder is there; the socket is left alone\n", text);
}

/* Binds as the listener does. An address in use is no failure: the daemon may be running with this
 * configuration already. */
static void tcp_check(struct check *c, const char *text, const struct address *address)
{
    const struct sockaddr *sa = address_sockaddr(address);
    int on = 1, fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (sa->sa_family == AF_INET6)
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    }
    if (fd >= 0 && bind(fd, sa, address->length) == 0)
        printf("address %s: ok\n", text);
    else if (fd >= 0 && errno == EADDRINUSE)
        printf("address %s: in use, by an inferd that runs or by something else\n", text);
    else
        fail(c, "address %s: %s", text, strerror(errno));
    if (fd >= 0)
        close(fd);
}

static void address_check(struct check *c, enum config_door door, char *text)
{
    const struct config_listen one = {.framed = &text, .framed_count = 1};
    struct config_listen listen;
    struct error err;
    if (listen_names_resolve(&one, &listen, &err)) {
        fail(c, "%s", err.text);
        return;
    }
    for (uint32_t i = 0; i < listen.framed_count; i++) {
        struct address address;
        if (address_parse(listen.framed[i], &address, &err) ||
            config_listen_check(c->config, door, &address, &err))
            fail(c, "%s", err.text);
        else
            (address_is_unix(&address) ? unix_check : tcp_check)(c, listen.framed[i], &address);
    }
    listen_names_free(&listen);
}

/* --- device and cache --- */

/* If the keys cannot be read, the check has failed, and goes on without looking at signatures. */
static void trust_open(struct check *c)
{
    struct error err;
    if (c->config->plan_keys && trust_new(c->config->plan_keys, &c->trust, &err))
        fail(c, "%s", err.text);
}

static enum status device_and_cache_open(struct check *c, struct error *err)
{
    TRY(device_configured_open(c->config, &c->log, &c->device, err));
    TRY(lane_new(c->device, &c->lane, err));
    const struct plan_cache_config cache = {.folder = c->config->cache,
                                            .insecure = c->config->cache_insecure,
                                            .device = c->device,
                                            .device_spec = c->config->device,
                                            .reference = c->device->reference_only,
                                            .log = &c->log,
                                            .counters = &c->counters,
                                            .trust = c->trust,
                                            .limit = c->config->cache_bytes,
                                            .plugins = c->config->plugins,
                                            .n_plugins = c->config->plugins_count,
                                            .build_memory_bytes = c->config->build_memory_bytes,
                                            .stop = &c->stop};
    return plan_cache_new(&cache, &c->cache, err);
}

static void device_check(struct check *c)
{
    struct error err;
    if (!device_and_cache_open(c, &err)) {
        char fingerprint[FINGERPRINT_MAX] = "";
        c->device->backend->device_fingerprint(c->device, fingerprint);
        printf("device %s: %s, ok\n", c->config->device, fingerprint);
        return;
    }
    fail(c, "device %s: %s", c->config->device, err.text);
    lane_free(c->lane);
    engine_device_close(c->device);
    c->lane = NULL;
    c->device = NULL;
}

/* --- models --- */

static void size_format(size_t bytes, char out[32])
{
    if (bytes < 1000)
        snprintf(out, 32, "%zu bytes of weights", bytes);
    else if (bytes < 1000000)
        snprintf(out, 32, "%.1f kB of weights", (double)bytes / 1e3);
    else
        snprintf(out, 32, "%.1f MB of weights", (double)bytes / 1e6);
}

/* Makes a context, as each worker would: only the backend understands the plan's tactics. */
static enum status engine_try(struct check *c, const struct wanted *wanted, struct engine *engine,
                              const char *kind, struct error *err)
{
    const struct engine_info *info = engine_describe(engine);
    struct context *context;
    uint32_t max_instances;
    if (wanted->settings)
        TRY(declared_check(wanted->settings, info, err));
    TRY(admission_model_check(info, err));
    TRY(fits_check(info, &c->config->limits, MAX(c->config->workers, 1u), info->max_batch,
                   &max_instances, err));
    TRY(context_new(engine, c->lane, &context, err));
    context_free(context);
    if (c->pipelines)
        TRY(check_pipelines_model(c->pipelines, wanted, engine, max_instances, err));
    char size[32];
    size_format(info->weight_bytes, size);
    printf("model '%s' version '%s': %s, %u profile%s, %s, ok\n", wanted->name, wanted->version,
           kind, info->n_profiles, info->n_profiles == 1 ? "" : "s", size);
    return STATUS_OK;
}

/* Without a device a plan is still read and checked, but whether it would run stays open. */
static enum status file_try(const struct check *c, const struct wanted *wanted, struct error *err)
{
    if (wanted->fd < 0)
        return error_copy(err, &wanted->err);
    if (!wanted->onnx) {
        const char *slash = strrchr(wanted->path, '/');
        TRY(engine_plan_check_fd(wanted->fd, slash ? slash + 1 : wanted->path, c->config->device,
                                 err));
    }
    printf("model '%s' version '%s': %s, not tried without the device\n", wanted->name,
           wanted->version, wanted->onnx ? "ONNX file" : "plan, whole");
    return STATUS_OK;
}

static void pipeline_found(void *user, const struct table_entry *entry, const struct error *err)
{
    struct check *c = user;
    if (err)
        fail(c, "model '%s' version '%s' (%s): %s", entry->name, entry->version, entry->source.path,
             err->text);
    else
        printf("model '%s' version '%s': pipeline, %u steps, ok\n", entry->name, entry->version,
               entry->model->pipeline->n_steps);
    c->models++;
    c->models_good += !err;
}

/* Whether a pipeline fits turns out when all models are known. */
static void pipeline_note(struct check *c, const struct wanted *wanted)
{
    struct error err;
    if (!c->device)
        printf("model '%s' version '%s': pipeline, not tried without the device\n", wanted->name,
               wanted->version);
    else if (!c->pipelines || check_pipelines_add(c->pipelines, wanted, &err))
        fail(c, "model '%s': no memory", wanted->name);
}

static void model_check(struct check *c, const struct wanted *wanted)
{
    struct error err;
    if (wanted->pipeline) {
        pipeline_note(c, wanted);
        return;
    }
    struct engine *engine = NULL;
    uint64_t built = counter_get(&c->counters, COUNTER_PLANS_BUILT);
    const struct models_source source = {c->device, c->cache, c->trust, &c->stop};
    enum status status = c->device ? models_engine_open(&source, c->config, wanted, &engine, &err)
                                   : file_try(c, wanted, &err);
    built = counter_get(&c->counters, COUNTER_PLANS_BUILT) - built;
    if (engine)
        status = engine_try(c, wanted, engine,
                            !wanted->onnx ? "plan"
                            : built       ? "ONNX file, its plan built now"
                                          : "ONNX file, its plan from the cache",
                            &err);
    if (engine) {
        plan_cache_release(c->cache, engine);
        engine_unref(engine);
    }
    if (status)
        fail(c, "model '%s' version '%s' (%s): %s", wanted->name, wanted->version,
             wanted->source.path, err.text);
    c->models++;
    c->models_good += !status;
    fflush(stdout); /* a build takes a while */
}

/* Checks all models of one part of the configuration. False: they cannot be listed. */
static bool part_check(struct check *c, const struct config *part)
{
    struct wanted_list list;
    struct error err;
    /* The first listing is silent: a wrong folder would cause a warning for each of its entries. */
    if (repository_list(part, NULL, &list, &err)) {
        fail(c, "%s", err.text);
        return false;
    }
    bool empty = part->repository && list.n == 0;
    if (!empty && part->repository) {
        repository_list_deinit(&list);
        if (repository_list(part, &c->log, &list, &err)) {
            fail(c, "%s", err.text);
            return false;
        }
    }
    for (uint32_t i = 0; i < list.n; i++)
        model_check(c, &list.items[i]);
    repository_list_deinit(&list);
    if (empty)
        fail(c, "repository %s holds no model: expected %s/MODEL/VERSION/model.plan or model.onnx",
             part->repository, part->repository);
    return true;
}

/* If the configuration cannot be listed, that is told later. */
static void pipelines_open(struct check *c)
{
    struct wanted_list list;
    struct error err;
    if (repository_list(c->config, NULL, &list, &err))
        return;
    if (check_pipelines_new(c->config, &list, &c->pipelines, &err))
        fail(c, "%s", err.text);
    repository_list_deinit(&list);
}

/* Checks the named models and those of the repository separately, so that an error in one list does
 * not keep the models of the other one from being tried. */
static void models_check(struct check *c)
{
    struct config named = *c->config, found = *c->config;
    named.repository = NULL;
    found.models_count = 0;
    struct wanted_list list;
    struct error err;
    pipelines_open(c);
    bool listed = part_check(c, &named);
    if (found.repository)
        listed &= part_check(c, &found);
    if (c->pipelines)
        check_pipelines_run(c->pipelines, pipeline_found, c);
    check_pipelines_free(c->pipelines);
    if (listed && repository_list(c->config, NULL, &list, &err))
        fail(c, "%s", err.text); /* the same name in both */
    else if (listed)
        repository_list_deinit(&list);
}

/* --- the whole --- */

/* Reads the token file and looks up users and groups. */
static void identities_check(struct check *c)
{
    struct identities *identities = NULL;
    struct error err;
    if (identities_new(c->config, NULL, &identities, &err))
        fail(c, "%s", err.text);
    identities_unref(identities);
}

static void tls_check(struct check *c)
{
    struct tls *tls = NULL;
    struct error err;
    if (tls_new(c->config, &tls, &err))
        fail(c, "%s", err.text);
    tls_unref(tls);
}

/* main blocks these signals for the server. Here they must end the process, and a running build
 * with it. */
static void signals_release(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

int check_run(const struct config *config)
{
    struct check c = {.config = config, .log = {.level = LOG_WARNING, .write = log_line}};
    signals_release();
    for (uint32_t door = 0; door < CONFIG_DOOR_COUNT_; door++)
        for (uint32_t i = 0; i < config->listen.doors[door].count; i++)
            address_check(&c, door, config->listen.doors[door].items[i]);
    identities_check(&c);
    tls_check(&c);
    trust_open(&c);
    device_check(&c);
    models_check(&c);
    plan_cache_free(c.cache);
    trust_free(c.trust);
    lane_free(c.lane);
    engine_device_close(c.device);
    if (c.failures)
        printf("not in order: %u error%s; %u of %u models can be served\n", c.failures,
               c.failures == 1 ? "" : "s", c.device ? c.models_good : 0, c.models);
    else if (c.models == 0)
        printf("in order, but no models are configured\n");
    else
        printf("in order: %u model%s can be served\n", c.models, c.models == 1 ? "" : "s");
    return c.failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
