/* SPDX-License-Identifier: Apache-2.0 */
/* inferctl infer sends one request to a daemon; its outputs are shown or written. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "tools/cleanup.h"
#include "tools/inferctl.h"
#include "tools/npy.h"
#include "tools/output.h"
#include "tools/request.h"
#include "tools/show.h"
#include "tools/tensor.h"

struct infer_args {
    struct request_args request;
    const char *output;
    uint32_t batch;
    bool quiet;
};

static const struct arg options[] = {
    {"output", 'o', ARG_TEXT, offsetof(struct infer_args, output), "DIR",
     "write each output there as NAME.npy"},
    {"batch", 'b', ARG_U32, offsetof(struct infer_args, batch), "B",
     "instances of random inputs (default: 1)"},
    {"quiet", 'q', ARG_FLAG, offsetof(struct infer_args, quiet), NULL, "do not show the outputs"},
    {NULL, 0, ARG_FLAG, 0, NULL, NULL},
};

static const struct args spec = {
    .usage = "inferctl infer ADDRESS --model M [--input NAME=FILE]... [--output DIR] [options]",
    .what = "Sends one inference to a daemon: 127.0.0.1:8003, tls://HOST:8003 or unix:/PATH.",
    .options = options,
    .min_positional = 1,
    .max_positional = 1,
    .shared = REQUEST_TABLES(offsetof(struct infer_args, request)),
};

/* Makes a copy that may be read as numbers: received data has no alignment. */
static enum status copy_output(const struct inferd_tensor *from, struct tensor_view *out,
                               struct error *err)
{
    struct tensor_view t = {.dtype = (enum dtype)from->dtype, .shape.rank = from->rank};
    memcpy(t.shape.dim, from->dim, sizeof(t.shape.dim));
    t.data = malloc(from->size ? from->size : 1);
    if (!t.data)
        return error_no_memory(err, "output '%s'", from->name);
    if (from->size)
        memcpy(t.data, from->data, from->size);
    *out = t;
    return STATUS_OK;
}

static enum status write_output(const struct infer_args *args, const char *name,
                                const struct tensor_view *t, struct error *err)
{
    const char *folder = args->output;
    char path[4096], file[REQUEST_NAME_MAX];
    snprintf(file, sizeof(file), "%s", name);
    for (char *c = file; *c; c++) {
        if (*c == '/' || *c == ':' || (*c == '.' && c == file))
            *c = '_';
    }
    if (snprintf(path, sizeof(path), "%s/%s.npy", folder, file) >= (int)sizeof(path))
        return error_set(err, STATUS_INVALID_ARGUMENT, "--output: the path is too long");
    /* The outputs' names are known only now. */
    TRY(output_check_named(path, &args->request.inputs, err));
    return npy_write(path, t, err);
}

static enum status take_output(const struct infer_args *args, const struct inferd_tensor *from,
                               struct error *err)
{
    struct tensor_view t = {0};
    TRY(copy_output(from, &t, err));
    CLEANUP(cleanup_free) UNUSED void *data = t.data;
    if (!args->quiet)
        tensor_print(stdout, from->name, &t, 10);
    return args->output ? write_output(args, from->name, &t, err) : STATUS_OK;
}

static enum status take_outputs(const struct infer_args *args, const struct inferd_response *r,
                                struct error *err)
{
    if (args->output && mkdir(args->output, 0777) && errno != EEXIST)
        return error_errno(err, errno, "%s", args->output);
    for (uint32_t i = 0; i < r->n_outputs; i++)
        TRY(take_output(args, &r->outputs[i], err));
    return STATUS_OK;
}

static double us(uint64_t ns)
{
    return (double)ns / NS_PER_US;
}

static enum status infer(const struct infer_args *args, struct inferd_client *client,
                         const struct request_data *data, struct error *err)
{
    struct inferd_tensor tensors[INFERD_MAX_TENSORS];
    struct inferd_request q = request_slice(data, &args->request, 0, data->instances, tensors);
    const struct inferd_response *r;
    struct inferd_error from;
    uint64_t before = clock_now_ns();
    if (inferd_client_call(client, &q, &r, &from))
        return request_error(&from, err);
    double whole = us(clock_now_ns() - before);
    TRY(take_outputs(args, r, err));
    const struct inferd_timing *t = &r->timing;
    if (!args->quiet)
        show_printf(
            "%s/%s: %.0f us (queue %.0f, input %.0f, compute %.0f, output %.0f), in a batch of "
            "%u\n",
            r->model, r->version, whole, us(t->queue_ns), us(t->input_ns), us(t->compute_ns),
            us(t->output_ns), t->batch);
    return STATUS_OK;
}

static enum status infer_at(struct infer_args *args, const char *address, struct error *err)
{
    CLEANUP(client_cleanup) struct inferd_client *client = NULL;
    CLEANUP(request_data_close) struct request_data data = {0};
    TRY(token_args_load(&args->request.token, err));
    TRY(request_connect(address, &client, err));
    TRY(request_data_open(client, &args->request, args->batch, &data, err));
    if (args->batch && data.instances != args->batch)
        return error_set(err, STATUS_INVALID_ARGUMENT, "--batch %u: %s", args->batch,
                         data.batched ? "the files say how many instances there are"
                                      : "the model is not batched");
    return infer(args, client, &data, err);
}

int command_infer(int argc, char **argv)
{
    struct infer_args args = {0};
    struct arg_texts addresses;
    struct error err;
    int rc = args_parse(&spec, argc, argv, &args, &addresses);
    if (rc < 0)
        rc = token_args_check(&args.request.token, &spec);
    if (rc >= 0)
        return rc;
    if (!args.request.model) {
        fprintf(stderr, "--model is missing; usage: %s\n", spec.usage);
        return EXIT_USAGE;
    }
    return infer_at(&args, addresses.list[0], &err) ? command_failed("infer", &err) : EXIT_OK;
}
