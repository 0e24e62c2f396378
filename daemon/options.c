/* SPDX-License-Identifier: Apache-2.0 */
/* The command line, see options.h. */
#include "daemon/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/names.h"

static const char usage[] =
    "usage: inferd [options] [MODEL...]\n"
    "\n"
    "Serves models to clients over TCP and unix sockets. MODEL is NAME=FILE.onnx, NAME=FILE.plan,\n"
    "NAME=FILE.pbtxt (a pipeline of models) or a repository: a folder with\n"
    "MODEL/VERSION/model.onnx or model.plan.\n"
    "\n"
    "  --config FILE       configuration; the options below override it\n"
    "  --check-config      try what a start would do, also beside a running inferd: device, "
    "addresses\n"
    "                      and every model; say what was found, and exit\n"
    "  --listen ADDRESS    127.0.0.1:8003, [::1]:8003 or unix:/PATH; port 0 takes a free one; may "
    "be\n"
    "                      given more than once\n"
    "  --http ADDRESS      the same for HTTP/1.1: 127.0.0.1:8000\n"
    "  --grpc ADDRESS      the same for gRPC, usually at 127.0.0.1:8001\n"
    "  --metrics ADDRESS   tell about itself over HTTP, usually at 127.0.0.1:8002: / is for\n"
    "                      browsers, /metrics for Prometheus; may be given more than once\n"
    "  --insecure          listen beyond loopback without tokens: everybody there may do "
    "everything\n"
    "  --device DEVICE     cpu, cuda or cuda:N\n"
    "  --max-delay-us T    how long a request may wait for others while a worker is idle\n"
    "  --max-batch N       the most instances in one batch; 0: what the plan was built for\n"
    "  --workers N         batches at the same time; 0: as many as fill the cores, or two\n"
    "                      on a GPU\n"
    "  -V, -v, --version   show the version\n"
    "  -h, --help          show this\n";

enum {
    OPT_CONFIG = 256,
    OPT_CHECK,
    OPT_LISTEN,
    OPT_HTTP,
    OPT_METRICS,
    OPT_GRPC,
    OPT_INSECURE,
    OPT_DEVICE,
    OPT_DELAY,
    OPT_BATCH,
    OPT_WORKERS
};

static const struct option table[] = {
    {"config", required_argument, NULL, OPT_CONFIG},
    {"check-config", no_argument, NULL, OPT_CHECK},
    {"listen", required_argument, NULL, OPT_LISTEN},
    {"http", required_argument, NULL, OPT_HTTP},
    {"metrics", required_argument, NULL, OPT_METRICS},
    {"grpc", required_argument, NULL, OPT_GRPC},
    {"insecure", no_argument, NULL, OPT_INSECURE},
    {"device", required_argument, NULL, OPT_DEVICE},
    {"max-delay-us", required_argument, NULL, OPT_DELAY},
    {"max-batch", required_argument, NULL, OPT_BATCH},
    {"workers", required_argument, NULL, OPT_WORKERS},
    {"version", no_argument, NULL, 'V'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static bool number_parse(const char *option, const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || end == text || *end || n < 0 || n > UINT32_MAX) {
        fprintf(stderr, "inferd: --%s: '%s' is not a number from 0 to 4294967295\n", option, text);
        return false;
    }
    *out = n;
    return true;
}

/* Says what is wrong with an option. getopt's own messages would not suggest a similar one. */
static void complain(char **argv, int which)
{
    const char *given = argv[optind - 1];
    struct names names;
    if (which == ':')
        fprintf(stderr, "inferd: a value is missing after '%s'\n", given);
    else if (optopt >= OPT_CONFIG || (optopt && !strncmp(given, "--", 2)))
        fprintf(stderr, "inferd: this option takes no value: '%s'\n", given);
    else if (optopt)
        fprintf(stderr, "inferd: no such option '-%c'\n", optopt);
    else {
        const char *name = given + strspn(given, "-");
        names_init(&names, name, strcspn(name, "="));
        for (const struct option *row = table; row->name; row++)
            names_add(&names, row->name);
        fprintf(stderr, "inferd: no such option '%s'%s\n", given, names_hint(&names));
    }
}

static bool listen_take(struct options *o, enum config_door door)
{
    o->listen[door].items[o->listen[door].count++] = optarg;
    return true;
}

static bool option_take(struct options *o, int which)
{
    switch (which) {
    case OPT_CONFIG:
        o->config_file = optarg;
        return true;
    case OPT_CHECK:
        return o->check = true;
    case OPT_LISTEN:
        return listen_take(o, DOOR_framed);
    case OPT_HTTP:
        return listen_take(o, DOOR_http);
    case OPT_METRICS:
        return listen_take(o, DOOR_metrics);
    case OPT_GRPC:
        return listen_take(o, DOOR_grpc);
    case OPT_INSECURE:
        return o->insecure = true;
    case OPT_DEVICE:
        o->device = optarg;
        return true;
    case OPT_DELAY:
        return number_parse("max-delay-us", optarg, &o->max_delay_us);
    case OPT_BATCH:
        return number_parse("max-batch", optarg, &o->max_batch);
    case OPT_WORKERS:
        return number_parse("workers", optarg, &o->workers);
    default:
        return false;
    }
}

/* Takes `inferd help` and `inferd version` for options; a repository of that name is `./help`. */
static void words_translate(int argc, char **argv)
{
    static char help[] = "--help", version[] = "--version";
    if (argc == 2 && !strcmp(argv[1], "help"))
        argv[1] = help;
    else if (argc == 2 && !strcmp(argv[1], "version"))
        argv[1] = version;
}

enum options_result options_parse(int argc, char **argv, struct options *out)
{
    struct options o = {.max_delay_us = -1, .max_batch = -1, .workers = -1};
    bool whole = (o.models = calloc((size_t)argc, sizeof(*o.models))) != NULL;
    for (uint32_t door = 0; door < CONFIG_DOOR_COUNT_; door++)
        whole &= (o.listen[door].items = calloc((size_t)argc, sizeof(char *))) != NULL;
    if (!whole) {
        fprintf(stderr, "inferd: no memory for the command line\n");
        options_deinit(&o);
        return OPTIONS_FAILED;
    }
    enum options_result result = OPTIONS_RUN;
    opterr = 0;
    words_translate(argc, argv);
    for (int c;
         result == OPTIONS_RUN && (c = getopt_long(argc, argv, ":hVv", table, NULL)) != -1;) {
        if (c == 'h' || c == 'V' || c == 'v') {
            printf("%s", c == 'h' ? usage : "inferd " INFERD_VERSION "\n");
            result = OPTIONS_DONE;
        } else if (!option_take(&o, c)) {
            result = OPTIONS_WRONG;
            if (c == '?' || c == ':')
                complain(argv, c);
        }
    }
    while (result == OPTIONS_RUN && optind < argc)
        o.models[o.n_models++] = argv[optind++];
    if (result == OPTIONS_WRONG)
        fprintf(stderr, "Try inferd --help.\n");
    if (result == OPTIONS_RUN)
        *out = o;
    else
        options_deinit(&o);
    return result;
}

void options_deinit(struct options *o)
{
    for (uint32_t door = 0; door < CONFIG_DOOR_COUNT_; door++)
        free(o->listen[door].items);
    free(o->models);
    *o = (struct options){0};
}

/* Addresses on the command line take the place of the file's, door by door. */
static enum status listen_set(const struct config_addresses *given, struct config_addresses *door,
                              struct error *err)
{
    char **items = calloc(given->count, sizeof(*items));
    if (!items)
        return error_no_memory(err, "the configuration");
    for (uint32_t i = 0; i < door->count; i++)
        free(door->items[i]);
    free(door->items);
    *door = (struct config_addresses){items, given->count};
    for (uint32_t i = 0; i < given->count; i++)
        if (!(items[i] = strdup(given->items[i])))
            return error_no_memory(err, "the configuration");
    return STATUS_OK;
}

/* Models on the command line join those of the file; a repository takes the place of the file's. */
static enum status models_set(const struct options *o, struct config *config, struct error *err)
{
    bool repository_given = false;
    for (uint32_t i = 0; i < o->n_models; i++) {
        if (!strchr(o->models[i], '=') && !repository_given) {
            free(config->repository);
            config->repository = NULL;
            repository_given = true;
        }
        TRY(config_model_argument(config, o->models[i], err));
    }
    return STATUS_OK;
}

static enum status options_apply(const struct options *o, struct config *config, struct error *err)
{
    if (o->insecure)
        config->listen.insecure = true;
    if (o->max_delay_us >= 0)
        config->max_delay_us = (uint64_t)o->max_delay_us;
    if (o->max_batch >= 0)
        config->max_batch = (uint32_t)o->max_batch;
    if (o->workers >= 0)
        config->workers = (uint32_t)o->workers;
    if (o->device) {
        char *device = strdup(o->device);
        if (!device)
            return error_no_memory(err, "the configuration");
        free(config->device);
        config->device = device;
    }
    for (uint32_t door = 0; door < CONFIG_DOOR_COUNT_; door++)
        if (o->listen[door].count)
            TRY(listen_set(&o->listen[door], &config->listen.doors[door], err));
    return models_set(o, config, err);
}

enum status options_configure(const struct options *options, struct config **out, struct error *err)
{
    CLEANUP(config_cleanup) struct config *config = NULL;
    if (options->config_file)
        TRY(config_read(options->config_file, &config, err));
    else if (!(config = config_new()))
        return error_no_memory(err, "the configuration");
    TRY(options_apply(options, config, err));
    TRY(config_check(config, err));
    *out = STEAL(config);
    return STATUS_OK;
}
