/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: loading and describing them. */
#include <stdlib.h>

#include "base/clock.h"
#include "engine/library/internal.h"

/* Where a plan comes from: a path, or a descriptor that `path` stands for. */
struct source {
    const char *path;
    int fd; /* -1: open the path */
};

static enum status load(struct inferd_engine_device *device, const struct source *from,
                        struct engine **out, struct error *err)
{
    uint64_t begin = clock_now_ns();
    if (from->fd >= 0)
        TRY(engine_load_fd(device->device, from->fd, from->path, NULL, NULL, out, err));
    else
        TRY(engine_load(device->device, from->path, out, err));
    if (engine_describe(*out)->late) {
        engine_unref(*out);
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s: a request tells the sizes of its outputs, for which this library has "
                         "no call; serve it by inferd",
                         from->path);
    }
    log_write(&device->log, LOG_INFO, "plan %s: loaded in %.1f ms, %zu bytes of weights",
              from->path, (double)(clock_now_ns() - begin) / NS_PER_MS,
              engine_describe(*out)->weight_bytes);
    return STATUS_OK;
}

static enum inferd_engine_status new_plan(struct inferd_engine_device *device,
                                          const struct source *from,
                                          struct inferd_engine_plan **out,
                                          struct inferd_engine_error *err)
{
    struct error why;
    struct inferd_engine_plan *plan = calloc(1, sizeof(*plan));
    if (!plan)
        return library_tell(error_no_memory(&why, "a plan"), &why, err);
    enum status status = load(device, from, &plan->engine, &why);
    if (status) {
        free(plan);
        return library_tell(status, &why, err);
    }
    atomic_init(&plan->refs, 1);
    plan->device = device;
    atomic_fetch_add_explicit(&device->refs, 1, memory_order_relaxed);
    *out = plan;
    return INFERD_ENGINE_OK;
}

enum inferd_engine_status inferd_engine_plan_load(struct inferd_engine_device *device,
                                                  const char *path, struct inferd_engine_plan **out,
                                                  struct inferd_engine_error *err)
{
    return new_plan(device, &(struct source){path, -1}, out, err);
}

enum inferd_engine_status inferd_engine_plan_load_fd(struct inferd_engine_device *device, int fd,
                                                     const char *name,
                                                     struct inferd_engine_plan **out,
                                                     struct inferd_engine_error *err)
{
    struct error why;
    if (fd < 0)
        return library_tell(
            error_set(&why, STATUS_INVALID_ARGUMENT, "%s: %d is no descriptor", name, fd), &why,
            err);
    return new_plan(device, &(struct source){name, fd}, out, err);
}

struct inferd_engine_plan *library_plan_ref(struct inferd_engine_plan *plan)
{
    atomic_fetch_add_explicit(&plan->refs, 1, memory_order_relaxed);
    return plan;
}

void inferd_engine_plan_free(struct inferd_engine_plan *plan)
{
    if (!plan || atomic_fetch_sub_explicit(&plan->refs, 1, memory_order_acq_rel) != 1)
        return;
    engine_unref(plan->engine);
    library_device_unref(plan->device);
    free(plan);
}

void inferd_engine_plan_settle(struct inferd_engine_plan *plan)
{
    engine_settle(plan->engine);
}

/* --- description --- */

enum inferd_engine_status inferd_engine_plan_describe(const struct inferd_engine_plan *plan,
                                                      struct inferd_engine_plan_info *out,
                                                      struct inferd_engine_error *err)
{
    struct error why;
    const struct engine_info *info = engine_describe(plan->engine);
    struct inferd_engine_plan_info own = {
        .name = info->name,
        .device = info->device,
        .digest = info->digest,
        .batched = info->batched,
        .max_batch = info->max_batch,
        .n_inputs = info->n_inputs,
        .n_outputs = info->n_outputs,
        .n_profiles = info->n_profiles,
        .weight_bytes = info->weight_bytes,
    };
    return library_tell(library_write(out, &own, sizeof(own), &why), &why, err);
}

static enum status check_index(const char *what, uint32_t index, uint32_t n, struct error *err)
{
    if (index < n)
        return STATUS_OK;
    return error_set(err, STATUS_NOT_FOUND, "%s %u: the plan has %u, counted from 0", what, index,
                     n);
}

static enum status describe_tensor(const char *what, const struct engine_binding *list, uint32_t n,
                                   uint32_t index, struct inferd_engine_tensor *out,
                                   struct error *err)
{
    TRY(check_index(what, index, n, err));
    struct inferd_engine_tensor own = {
        .name = list[index].name,
        .dtype = (enum inferd_engine_dtype)list[index].dtype,
        .instance_bytes = list[index].instance_bytes,
    };
    library_shape(&list[index].shape, &own.rank, own.dim);
    return library_write(out, &own, sizeof(own), err);
}

enum inferd_engine_status inferd_engine_plan_input(const struct inferd_engine_plan *plan,
                                                   uint32_t index, struct inferd_engine_tensor *out,
                                                   struct inferd_engine_error *err)
{
    struct error why;
    const struct engine_info *info = engine_describe(plan->engine);
    return library_tell(describe_tensor("input", info->inputs, info->n_inputs, index, out, &why),
                        &why, err);
}

enum inferd_engine_status inferd_engine_plan_output(const struct inferd_engine_plan *plan,
                                                    uint32_t index,
                                                    struct inferd_engine_tensor *out,
                                                    struct inferd_engine_error *err)
{
    struct error why;
    const struct engine_info *info = engine_describe(plan->engine);
    return library_tell(describe_tensor("output", info->outputs, info->n_outputs, index, out, &why),
                        &why, err);
}

static enum status describe_profile(const struct engine_info *info, uint32_t index,
                                    struct inferd_engine_profile *out, struct error *err)
{
    TRY(check_index("profile", index, info->n_profiles, err));
    const struct engine_profile *p = &info->profiles[index];
    struct inferd_engine_profile own = {.batch = p->batch,
                                        .arena_bytes = p->arena_bytes,
                                        .output_bytes = p->out_bytes,
                                        .time_ns = p->time_ns};
    return library_write(out, &own, sizeof(own), err);
}

enum inferd_engine_status inferd_engine_plan_profile(const struct inferd_engine_plan *plan,
                                                     uint32_t index,
                                                     struct inferd_engine_profile *out,
                                                     struct inferd_engine_error *err)
{
    struct error why;
    return library_tell(describe_profile(engine_describe(plan->engine), index, out, &why), &why,
                        err);
}

static enum status describe_layer(const struct engine *engine, uint32_t batch, uint32_t index,
                                  struct inferd_engine_layer *out, struct error *err)
{
    struct engine_layer layer;
    if (!engine_profile_for(engine, 0, batch))
        return error_set(err, STATUS_NOT_FOUND, "a batch of %u: the plan takes 1 to %u", batch,
                         engine_describe(engine)->max_batch);
    TRY(check_index("layer", index, engine_layers(engine, 0, batch, index, &layer, 1), err));
    struct inferd_engine_layer own = {
        .name = layer.name, .op = layer.op, .tactic = layer.tactic, .time_ns = layer.time_ns};
    return library_write(out, &own, sizeof(own), err);
}

enum inferd_engine_status inferd_engine_plan_layer(const struct inferd_engine_plan *plan,
                                                   uint32_t batch, uint32_t index,
                                                   struct inferd_engine_layer *out,
                                                   struct inferd_engine_error *err)
{
    struct error why;
    return library_tell(describe_layer(plan->engine, batch, index, out, &why), &why, err);
}
