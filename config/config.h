/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's configuration: what config/inferd.yaml and the command line set, with defaults.
 * Read through libcyaml against a schema that refuses unknown and out-of-range keys; the reference
 * file documents every key. A struct config is plain data; the strings belong to it.
 */
#ifndef INFERD_CONFIG_CONFIG_H
#define INFERD_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/address.h"
#include "base/error.h"

/* The doors: X(name). Each is a protocol, and under its name a list of the addresses where it is
 * spoken: "127.0.0.1:8003", "[::1]:8003", "unix:/run/inferd/inferd.sock". */
#define CONFIG_DOORS(X)                                                                            \
    X(framed)                                                                                      \
    X(http)                                                                                        \
    X(metrics)                                                                                     \
    X(grpc)

enum config_door {
#define X(name) DOOR_##name,
    CONFIG_DOORS(X)
#undef X
        CONFIG_DOOR_COUNT_
};

extern const char *const config_door_names[CONFIG_DOOR_COUNT_];

struct config_addresses {
    char **items;
    uint32_t count;
};

struct config_listen {
    union {
        struct config_addresses doors[CONFIG_DOOR_COUNT_];
        struct { /* the same by their names: framed, framed_count and so on */
#define X(name)                                                                                    \
    char **name;                                                                                   \
    uint32_t name##_count;
            CONFIG_DOORS(X)
#undef X
        };
    };
    bool insecure; /* beyond loopback without tokens, because the operator insists */
    /* TLS, on TCP: PEM files. No certificate: none. */
    char *certificate;     /* with what leads from it to an authority */
    char *certificate_key; /* NULL: it is in the same file */
    char *client_ca;       /* who may sign clients' certificates; NULL: they need none */
    char **tls;            /* the doors that speak it; none are named: http and grpc */
    uint32_t tls_count;
};

/* The doors that speak TLS: a bit for each; 0 without a certificate. */
uint32_t config_tls_doors(const struct config_listen *listen);

#define CONFIG_ANONYMOUS "anonymous"

/* Who may do what. A peer is identified by the token it sends, or, on a unix socket, by the user
 * and group that the kernel says it runs as. */
struct config_identity {
    char *name;        /* as in the token file; CONFIG_ANONYMOUS: who has shown nothing */
    char *user;        /* name or number; NULL: any */
    char *group;       /* likewise; with both, both must fit */
    uint32_t priority; /* the best that its requests get; 0 is the first */
    uint32_t requests; /* of its in flight at a time, over all its connections; 0: no limit */
    uint64_t bytes;    /* likewise, of their inputs */
    uint32_t rights;   /* a mask of RIGHT_BIT */
    char **models;     /* names, with `*` for any characters */
    uint32_t models_count;
};

/* An input of an .onnx file that clients send as another type: value = scale * sent + bias. */
struct config_input {
    char *name;
    char *type;   /* "uint8", "fp16"; NULL: the model's own */
    float *scale; /* one for all or one a channel; none: 1 */
    uint32_t scale_count;
    float *bias; /* likewise; none: 0 */
    uint32_t bias_count;
};

/* What sizes and types an .onnx is built for, and what its layers run on, as `inferctl build` has
 * it: its option, and the key here. Each text is NAME=WHAT, in `keep` and `ragged` a name. */
#define CONFIG_SIZES(X)                                                                            \
    X(DIMS, dims, "--dim")                                                                         \
    X(SHAPES, shapes, "--shape")                                                                   \
    X(PROFILES, profiles, "--profiles")                                                            \
    X(VALUES, values, "--value")                                                                   \
    X(RAGGED, ragged, "--ragged")                                                                  \
    X(OUTPUT_TYPES, output_types, "--output-type")                                                 \
    X(PIN, pin, "--pin")                                                                           \
    X(KEEP, keep, "--keep")

#define CONFIG_SIZE_NUMBER(number, key, option) CONFIG_##number,
enum config_size { CONFIG_SIZES(CONFIG_SIZE_NUMBER) CONFIG_SIZE_COUNT_ };
#undef CONFIG_SIZE_NUMBER

struct config_texts {
    char **items;
    uint32_t count;
};

struct config_model {
    char *name;
    char *path;           /* .onnx, .plan */
    char *version;        /* "1" if not given */
    uint32_t max_batch;   /* 0: the plan's */
    int64_t max_delay_us; /* -1: the server's */
    uint32_t *preferred;  /* preferred batch sizes, rising */
    uint32_t preferred_count;
    uint32_t queue_limit; /* 0: the server's */
    uint32_t instances;   /* batches at a time; 0: as many as there are workers */
    char *precision;      /* of an .onnx: one of CONFIG_PRECISIONS; NULL: fp32 */
    /* What a profile of an .onnx may need, and a layer's kernel for its scratch memory; 0: as
     * the build has it. */
    uint64_t max_bytes;
    uint32_t memory_percent; /* the same as a part of the device's memory */
    uint64_t workspace;
    char *on_new_shape; /* of an .onnx: one of CONFIG_NEW_SHAPES; NULL: nothing is built */
    uint32_t *batches;  /* profiles to build for an .onnx; empty: the builder's default */
    uint32_t batches_count;
    struct config_input *inputs; /* of an .onnx; those not named are served as they are */
    uint32_t inputs_count;
    struct config_texts sizes[CONFIG_SIZE_COUNT_]; /* of an .onnx */
    /* A model of the repository has these from its config.pbtxt. */
    uint64_t timeout_us; /* the deadline of requests that bring none; 0: the server's */
    uint32_t priority_levels, default_priority; /* 1 is the first; 0: there are none */
};

/* The lowest types that a plan may compute in. */
#define CONFIG_PRECISIONS "fp32", "tf32", "fp16", "bf16"

/* What happens to a request whose sizes no profile has, while an engine for them is built. */
#define CONFIG_NEW_SHAPES "wait", "refuse", "fallback"

struct config_limits {
    uint64_t frame_bytes;               /* 64 MiB */
    uint64_t inflight_bytes;            /* 1 GiB */
    uint64_t connection_inflight_bytes; /* 256 MiB */
    uint32_t queue_requests;            /* 1024 a model */
    uint32_t connections;               /* 4096 */
    uint64_t output_bytes;              /* 64 MiB waiting on a slow reader, then closed */
    uint32_t header_timeout_ms;         /* 10 s */
    uint32_t frame_timeout_ms;          /* 30 s */
    uint32_t idle_timeout_ms;           /* 300 s */
    uint32_t connection_requests;       /* requests in flight of one connection; 1024 */
    uint64_t model_bytes;               /* memory of one model; 0: 3/4 of the machine's */
    uint64_t tail_bytes;                /* memory of a request whose sizes only it tells; 1 GiB */
    uint32_t receive_rate;              /* least bytes/s of large frames and replies; 65536 */
    /* Of one address, or one user at a unix socket. 0: half of the total, and for this machine's
     * own no limit (daemon/peer.h). */
    uint32_t address_connections;
    uint32_t address_requests; /* in flight; 0: no limit */
    uint64_t address_inflight_bytes;
    uint64_t large_inflight_bytes; /* before large messages take turns; 128 MiB. 0: never */
    uint32_t regions;              /* of shared memory; 1024 */
    uint64_t region_bytes;         /* in all of them; 1 GiB */
    /* New sizes: engines that wait to be built, and requests that wait for engines. */
    uint32_t shape_builds;        /* 16 */
    uint32_t shape_requests;      /* 256, */
    uint64_t shape_request_bytes; /* of 64 MiB together */
};

struct config {
    struct config_listen listen;
    char *device;                /* "cpu" */
    uint32_t workers;            /* 0: cores / threads; 2 on a GPU */
    uint32_t threads;            /* CPU threads of one worker, for plans built here; 0: all cores */
    uint32_t io_threads;         /* 1 */
    uint64_t max_delay_us;       /* T; 1000 */
    uint32_t max_batch;          /* 0: the plan's */
    uint32_t default_timeout_ms; /* deadline of requests that bring none; 0: none */
    uint32_t drain_timeout_ms;   /* 30 s */
    uint32_t drain_delay_ms;     /* unready, but serving, before draining; 0 */
    uint32_t build_timeout_s;    /* for a child inferctl build; 600 */
    uint64_t build_memory_bytes; /* for the same; 0: three quarters of the machine's */
    uint32_t hang_timeout_ms;    /* a batch running longer means a stuck worker; 30 s */
    char *repository;            /* <repo>/<model>/<version>/model.{onnx,plan}; NULL */
    char *repository_mode;       /* reload, poll, explicit */
    uint32_t repository_poll_ms; /* between two looks */
    char **repository_load;      /* explicit: models to load at the start; "*": all */
    uint32_t repository_load_count;
    char *readiness;            /* strict: not ready while a named model is missing; any */
    char *cache;                /* plan cache folder; NULL: $CACHE_DIRECTORY or ~/.cache/inferd */
    bool cache_insecure;        /* whoever can write that folder is trusted; false */
    char *tokens;               /* token file, or a name in $CREDENTIALS_DIRECTORY; NULL: none */
    uint64_t cache_bytes;       /* what is kept there; 16 GiB; 0: no limit */
    uint32_t shape_engines;     /* for sizes that no profile has; 64 */
    uint64_t shape_bytes;       /* of their memory; 4 GiB */
    uint64_t shape_cache_bytes; /* of their plans, which are kept beside the others; 4 GiB */
    char *plan_keys;            /* PEM file of who may sign models and plans; NULL: all go */
    char *log_level;            /* error, warning, info, verbose */
    char *log_components;       /* "peers=verbose, engine=warning"; NULL: all as log_level */
    char *log_format;           /* text, json, journal */
    char *shared_memory;     /* what names of clients' regions begin with; NULL: there are none */
    bool cuda_shared_memory; /* regions of the GPU's memory may be registered */
    uint32_t trace_rate;     /* one request in so many is traced; 0: none; 1000 */
    char *trace_file;        /* for Chrome's viewer; NULL: none */
    char *trace_collector;   /* "http://HOST:PORT[/PATH]", OTLP as JSON; NULL: none */
    char **plugins;          /* files of ops of one's own */
    uint32_t plugins_count;
    struct config_model *models;
    uint32_t models_count;
    struct config_identity *identities;
    uint32_t identities_count;
    struct config_limits limits;
};

/* Defaults only. NULL: no memory. */
struct config *config_new(void);
void config_free(struct config *config);
void config_cleanup(struct config **config);

/* Reads a file over defaults. Errors name file, line, key, what was expected and what came. */
enum status config_read(const char *path, struct config **out, struct error *err);
/* The same from memory; `name` stands for the file in errors. */
enum status config_parse(const char *name, const void *data, size_t size, struct config **out,
                         struct error *err);

/* Checks ranges and consistency once more, for a configuration that the command line has changed,
 * and who can reach its addresses. The last is not checked of a file alone, as the command line may
 * set other addresses. */
enum status config_check(const struct config *config, struct error *err);

/* Refuses an address that other machines can reach, unless there are tokens, clients need
 * certificates at this door, or `insecure` is set.
 * config_check asks this of all configured addresses; the daemon asks it of each socket that was
 * handed over to it or that was opened before a reload. */
enum status config_listen_check(const struct config *config, enum config_door door,
                                const struct address *address, struct error *err);

/* Writes the names of the settings that differ and that a running server cannot change, such as
 * "device, workers". Empty if there are none; cut if they do not fit. */
void config_restart_names(const struct config *running, const struct config *wanted, char *out,
                          size_t size);

/* "NAME=FILE" (file with .onnx or .plan) or a repository folder, as on the command line. A second,
 * different repository is refused: clear `repository` first to let an argument override the file.
 */
enum status config_model_argument(struct config *config, const char *argument, struct error *err);

#endif
