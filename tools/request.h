/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inputs of requests to a daemon: read from files, or made at random after the model's
 * metadata, the same in every run.
 */
#ifndef INFERD_TOOLS_REQUEST_H
#define INFERD_TOOLS_REQUEST_H

#include "base/error.h"
#include "base/shape.h"
#include "client/client.h"
#include "tools/args.h"
#include "tools/token.h"

enum { REQUEST_NAME_MAX = 65 };

/* What a request asks of which model; filled by the tables below. */
struct request_args {
    const char *model, *version;
    struct token_args token;
    struct arg_texts inputs;
    uint32_t timeout_ms, priority;
};

extern const struct arg request_options[];

/* clang-format off */
#define REQUEST_TABLES(at) {                                                                       \
    {request_options, (at), NULL},                                                                 \
    {token_options, (at) + offsetof(struct request_args, token), NULL},                            \
}
/* clang-format on */

struct request_data {
    bool batched;       /* the first dimension of every input counts instances */
    uint32_t instances; /* 1 if not batched */
    uint32_t n;
    char names[INFERD_MAX_TENSORS][REQUEST_NAME_MAX];
    struct tensor_view tensors[INFERD_MAX_TENSORS]; /* their data is malloc-ed */
};

/* Asks for the model's metadata and reads or makes its inputs. `instances`: how many are made if no
 * file says so, 0 for 1. */
enum status request_data_open(struct inferd_client *client, const struct request_args *args,
                              uint32_t instances, struct request_data *out, struct error *err);
void request_data_close(struct request_data *data);

/* Makes the data hold exactly `instances`: repeats them from the first on, or drops the last. */
enum status request_data_resize(struct request_data *data, uint32_t instances, struct error *err);

/* The request for `count` instances from `first` on; `tensors` has INFERD_MAX_TENSORS entries and
 * has to stay as long as the request. If not batched, `first` is 0 and `count` 1. */
struct inferd_request request_slice(const struct request_data *data,
                                    const struct request_args *args, uint32_t first, uint32_t count,
                                    struct inferd_tensor *tensors);

/* Opens a connection; the client's error becomes ours. */
enum status request_connect(const char *address, struct inferd_client **out, struct error *err);
enum status request_error(const struct inferd_error *from, struct error *err);

#endif
