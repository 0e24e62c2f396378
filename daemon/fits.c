/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of sizes that a plan chooses saturate: a sum that does not fit 64 bits fits no limit either.
 */
#include "daemon/fits.h"

#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/machine.h"
#include "daemon/dispatch.h"
#include "proto/message.h"
#include "daemon/slab.h"

enum {
    SIZE_TEXT = 24,
    /* Bytes of a reply besides its outputs: numbers, times, lengths, and what surrounds each
     * output's name. */
    REPLY_ROOM = 256,
    OUTPUT_ROOM = 64 + 10 * SHAPE_MAX_RANK,
    OUTPUT_BUFFERS = DISPATCH_OUTPUTS + 1, /* and one behind the arena */
};

/* Formats as "5.0 GiB"; sizes below a KiB are in bytes. */
static const char *size_text(uint64_t bytes, char out[SIZE_TEXT])
{
    static const char units[] = "KMGTPE";
    double value = (double)bytes;
    int unit = -1;
    while (value >= 1024 && unit < (int)sizeof(units) - 2) {
        value /= 1024;
        unit++;
    }
    if (unit < 0)
        snprintf(out, SIZE_TEXT, "%llu bytes", (unsigned long long)bytes);
    else
        snprintf(out, SIZE_TEXT, "%.1f %ciB", value, units[unit]);
    return out;
}

static size_t add(size_t a, size_t b)
{
    size_t sum;
    return checked_add(a, b, &sum) ? sum : SIZE_MAX;
}

static size_t times(size_t a, size_t b)
{
    size_t product;
    return checked_mul(a, b, &product) ? product : SIZE_MAX;
}

/* --- what frames carry --- */

/* A limit and its name. */
struct bound {
    uint64_t most;
    const char *name;
};

/* The model's name and version are in a reply too. */
static size_t reply_head(const struct engine_info *info)
{
    size_t head = REPLY_ROOM + MESSAGE_MAX_ID + 2 * MESSAGE_MAX_NAME;
    for (uint32_t i = 0; i < info->n_outputs; i++)
        head += OUTPUT_ROOM + strlen(info->outputs[i].name);
    return head;
}

static struct bound reply_bound(const struct config_limits *limits)
{
    struct bound bound = {UINT32_MAX, "a frame"};
    if (limits->output_bytes < bound.most)
        bound = (struct bound){limits->output_bytes, "limits.output_bytes"};
    if (budget_limit(limits) < bound.most)
        bound = (struct bound){budget_limit(limits), "limits.inflight_bytes"};
    return bound;
}

uint64_t fits_reply_bytes(const struct engine_info *info, const struct config_limits *limits)
{
    struct bound bound = reply_bound(limits);
    size_t head = reply_head(info);
    return bound.most > head ? bound.most - head : 0;
}

static size_t instance_bytes(const struct engine_binding *bindings, uint32_t n)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum = add(sum, bindings[i].instance_bytes);
    return sum;
}

/* Says that one instance does not fit: names the largest tensor if that takes half of the bound. */
static enum status too_large(const struct engine_binding *bindings, uint32_t n, const char *what,
                             const struct bound *bound, struct error *err)
{
    char needs[SIZE_TEXT], have[SIZE_TEXT];
    uint32_t largest = 0;
    for (uint32_t i = 1; i < n; i++)
        if (bindings[i].instance_bytes > bindings[largest].instance_bytes)
            largest = i;
    size_text(bound->most, have);
    if (bindings[largest].instance_bytes > bound->most / 2)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "%s '%s' takes %s for one instance; %s is %s", what,
                         bindings[largest].name, size_text(bindings[largest].instance_bytes, needs),
                         bound->name, have);
    return error_set(err, STATUS_FAILED_PRECONDITION,
                     "the %u %ss take %s together for one instance; %s is %s", n, what,
                     size_text(instance_bytes(bindings, n), needs), bound->name, have);
}

/* The frame's own limit bounds a request's instances, so one instance is all that needs to fit. */
static enum status request_check(const struct engine_info *info, const struct config_limits *limits,
                                 struct error *err)
{
    struct bound bound = {limits->frame_bytes, "limits.frame_bytes"};
    if (instance_bytes(info->inputs, info->n_inputs) > bound.most)
        return too_large(info->inputs, info->n_inputs, "input", &bound, err);
    return STATUS_OK;
}

static enum status reply_check(const struct engine_info *info, const struct config_limits *limits,
                               uint32_t max_batch, uint32_t *max_instances, struct error *err)
{
    struct bound bound = reply_bound(limits);
    size_t each = instance_bytes(info->outputs, info->n_outputs), head = reply_head(info);
    if (add(each, head) > bound.most)
        return too_large(info->outputs, info->n_outputs, "output", &bound, err);
    *max_instances = max_batch;
    if (each > 0)
        *max_instances = (uint32_t)MIN(max_batch, (bound.most - head) / each);
    return STATUS_OK;
}

/* --- memory --- */

uint64_t fits_model_bytes(const struct config_limits *limits)
{
    return limits->model_bytes ? limits->model_bytes : machine_memory() / 4 * 3;
}

/* What each worker has for itself. */
struct share {
    size_t arena, inputs, outputs;
};

static struct share worker_share(const struct engine_info *info)
{
    struct share share = {0};
    for (uint32_t p = 0; p < info->n_profiles; p++) {
        size_t inputs =
            times(instance_bytes(info->inputs, info->n_inputs), info->profiles[p].batch);
        share.arena = MAX(share.arena, info->profiles[p].arena_bytes);
        share.inputs = MAX(share.inputs, inputs);
    }
    share.outputs = times(info->out_bytes_max, OUTPUT_BUFFERS);
    return share;
}

uint64_t fits_bytes(const struct engine_info *info, uint32_t workers)
{
    struct share share = worker_share(info);
    size_t each = add(share.arena, add(share.inputs, share.outputs));
    return add(info->weight_bytes - info->common_bytes, times(each, workers));
}

static enum status memory_check(const struct engine_info *info, const struct config_limits *limits,
                                uint32_t workers, struct error *err)
{
    char all[SIZE_TEXT], most[SIZE_TEXT], weights[SIZE_TEXT], arena[SIZE_TEXT], inputs[SIZE_TEXT],
        outputs[SIZE_TEXT];
    struct share share = worker_share(info);
    uint64_t limit = fits_model_bytes(limits);
    size_t needs = fits_bytes(info, workers);
    if (needs <= limit)
        return STATUS_OK;
    return error_set(err, STATUS_FAILED_PRECONDITION,
                     "the model needs %s: weights %s, and for each of %u workers an arena of %s, "
                     "inputs of %s, %d output buffers of %s; limits.model_bytes is %s",
                     size_text(needs, all), size_text(info->weight_bytes, weights), workers,
                     size_text(share.arena, arena), size_text(share.inputs, inputs), OUTPUT_BUFFERS,
                     size_text(info->out_bytes_max, outputs), size_text(limit, most));
}

enum status fits_check(const struct engine_info *info, const struct config_limits *limits,
                       uint32_t workers, uint32_t max_batch, uint32_t *max_instances,
                       struct error *err)
{
    uint32_t most = 0;
    TRY(request_check(info, limits, err));
    TRY(reply_check(info, limits, max_batch, &most, err));
    TRY(memory_check(info, limits, workers, err));
    *max_instances = most;
    return STATUS_OK;
}
