/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of a device's execution plans, and plans as bytes.
 *
 * A plan stands in the table while it is being made, and threads that want it wait for it. A plan
 * that could not be made stays as a failure, so that nobody tries again, unless another try may
 * succeed (memory was short, or stored code did not load).
 *
 * As bytes, a plan is a head and cuDNN's JSON text. cuDNN trusts such a text, so it is given only a
 * text that its head fits: the head says for which graph, engine, knobs and version the text was
 * written, and holds a digest of it. The digest finds accidents, not malice: the text holds machine
 * code for the device.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL /* so that the module needs no library */
#include <xxhash.h>

#include "base/cleanup.h"
#include "engine/cuda/dnn_graph.h"
#include "base/hash.h"

enum { CODE_MAX = 64 << 20 };

struct key {
    uint64_t high, low;
};

enum plan_state { PLAN_MAKING, PLAN_READY, PLAN_FAILED };

struct dnn_plan {
    struct key key;
    UT_hash_handle hh;
    uint32_t refs;         /* under the table's lock */
    enum plan_state state; /* under the table's lock, too */
    struct error failure;  /* of FAILED */
    struct dnn_build *build;
    dnn_desc desc;
    uint64_t workspace;
};

struct dnn_plans {
    pthread_mutex_t lock;
    pthread_cond_t made;
    struct dnn_plan *rows; /* under lock */
};

struct code_head {
    char magic[8];
    uint64_t version; /* of cuDNN */
    struct key key;
    uint64_t size; /* of the text behind it */
    uint64_t digest;
};

static const char code_magic[8] = "dnnplan1";

/* --- the table --- */

struct dnn_plans *dnn_plans_new(void)
{
    struct dnn_plans *plans = calloc(1, sizeof(*plans));
    if (!plans)
        return NULL;
    pthread_mutex_init(&plans->lock, NULL);
    pthread_cond_init(&plans->made, NULL);
    return plans;
}

static void plan_free(struct dnn_plan *plan)
{
    dnn_build_free(plan->build);
    free(plan);
}

void dnn_plans_drop(struct dnn_plans *plans)
{
    struct dnn_plan *row, *next, *gone = NULL;
    pthread_mutex_lock(&plans->lock);
    HASH_ITER(hh, plans->rows, row, next)
    {
        if (row->refs > 0)
            continue;
        HASH_DEL(plans->rows, row);
        row->hh.next = gone; /* a list of its own from here on */
        gone = row;
    }
    pthread_mutex_unlock(&plans->lock);
    for (row = gone; row; row = next) {
        next = row->hh.next;
        plan_free(row);
    }
}

void dnn_plans_free(struct dnn_plans *plans)
{
    if (!plans)
        return;
    dnn_plans_drop(plans);
    pthread_cond_destroy(&plans->made);
    pthread_mutex_destroy(&plans->lock);
    free(plans);
}

static struct key key_of(const struct dnn_recipe *r)
{
    uint8_t config[DNN_CONFIG_BYTES_MAX];
    uint32_t size = dnn_config_write(&r->config, config);
    XXH128_hash_t spec = XXH3_128bits(r->spec, r->spec_size);
    XXH128_hash_t both = XXH3_128bits_withSeed(config, size, spec.low64);
    return (struct key){spec.high64 ^ both.high64, spec.low64 ^ both.low64};
}

/* --- making --- */

static void set_config(struct dnn_build *b, const struct dnn_config *config)
{
    dnn_desc knobs[DNN_KNOBS_MAX], properties = dnn_properties(b->dnn);
    int64_t index = config->engine;
    dnn_desc engine = dnn_make(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "engine");
    dnn_set_desc(b, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, b->graph);
    dnn_set(b, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index);
    if (properties)
        dnn_set_desc(b, engine, CUDNN_ATTR_ENGINE_DEVICEPROP, properties);
    dnn_finish(b, engine, "engine");
    for (uint32_t i = 0; i < config->n_knobs; i++) {
        cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)config->knob[i].type;
        int64_t value = config->knob[i].value;
        knobs[i] = dnn_make(b, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, "knob");
        dnn_set(b, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
        dnn_set(b, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
        dnn_finish(b, knobs[i], "knob");
    }
    dnn_desc choice = dnn_make(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "configuration");
    dnn_set_desc(b, choice, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    if (config->n_knobs > 0)
        dnn_set(b, choice, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                config->n_knobs, knobs);
    dnn_finish(b, choice, "configuration");
    dnn_desc plan = dnn_make(b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan");
    dnn_set_desc(b, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, choice);
    if (b->handle)
        dnn_set(b, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->handle);
    dnn_finish(b, plan, "plan");
}

static void set_code(struct dnn_build *b, const char *text, uint64_t size)
{
    dnn_desc properties = dnn_properties(b->dnn);
    dnn_desc plan = dnn_make(b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan");
    if (b->handle)
        dnn_set(b, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->handle);
    else
        dnn_set_desc(b, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, properties);
    dnn_set(b, plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)size,
            text);
    dnn_finish(b, plan, "stored plan");
}

static enum status take_workspace(struct dnn_plan *plan, struct error *err)
{
    int64_t n = 0, bytes = -1;
    cudnnStatus_t code = cudnnBackendGetAttribute(
        plan->desc, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes);
    if (code)
        return dnn_error(err, code, "workspace of a plan");
    if (bytes < 0 || bytes > DNN_WORKSPACE_MAX)
        return error_set(err, STATUS_FAILED_PRECONDITION, "cuDNN: a workspace of %lld bytes",
                         (long long)bytes);
    plan->workspace = (uint64_t)bytes;
    return STATUS_OK;
}

static enum status damaged(struct error *err, const char *why)
{
    return error_set(err, STATUS_FAILED_PRECONDITION, "cuDNN: the compiled tactic %s", why);
}

/* Gives the text behind the head, if the head fits this text and the key. */
static enum status open_code(const struct key *key, const void *code, uint64_t size,
                             const char **text, uint64_t *text_size, struct error *err)
{
    struct code_head head;
    if (size <= sizeof(head) || size > CODE_MAX)
        return damaged(err, "has a wrong size");
    memcpy(&head, code, sizeof(head));
    if (memcmp(head.magic, code_magic, sizeof(head.magic)) != 0 || head.size != size - sizeof(head))
        return damaged(err, "is damaged");
    if (head.version != cudnnGetVersion())
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "cuDNN: compiled by version %llu, and this one is %llu",
                         (unsigned long long)head.version, (unsigned long long)cudnnGetVersion());
    if (head.key.high != key->high || head.key.low != key->low)
        return damaged(err, "is for another node");
    *text = (const char *)code + sizeof(head);
    *text_size = head.size;
    if (XXH3_64bits(*text, head.size) != head.digest)
        return damaged(err, "is damaged");
    return STATUS_OK;
}

static enum status make(struct cuda_dnn *dnn, const struct dnn_recipe *r, struct dnn_plan *plan,
                        const void *code, uint64_t code_size, struct error *err)
{
    const char *text = NULL;
    uint64_t size = 0;
    if (code)
        TRY(open_code(&plan->key, code, code_size, &text, &size, err));
    TRY(dnn_build_new(dnn, &plan->build, err));
    struct dnn_build *b = plan->build;
    if (text) {
        set_code(b, text, size);
    } else {
        dnn_compiler_hold(dnn);
        r->build(b, r->spec);
        dnn_graph_finish(b);
        set_config(b, &r->config);
    }
    enum status status =
        b->status ? dnn_build_error(b, err, text ? "a compiled tactic does not load" : "no plan")
                  : STATUS_OK;
    dnn_build_settle(b);
    if (status)
        return status;
    plan->desc = b->owned[b->n_owned - 1];
    return take_workspace(plan, err);
}

static struct dnn_plan *find(struct dnn_plans *plans, const struct key *key)
{
    struct dnn_plan *row = NULL;
    HASH_FIND(hh, plans->rows, key, sizeof(*key), row);
    return row;
}

/* Adds a row for a plan that the caller makes next; NULL: there is no memory. */
static struct dnn_plan *add_row(struct dnn_plans *plans, const struct key *key)
{
    CLEANUP(cleanup_free) struct dnn_plan *plan = calloc(1, sizeof(*plan));
    if (!plan)
        return NULL;
    plan->key = *key;
    plan->refs = 1;
    HASH_ADD(hh, plans->rows, key, sizeof(plan->key), plan);
    return HASH_ADDED(plan) ? STEAL(plan) : NULL;
}

/* Takes a reference to a row that another thread has made, or waits until it has. Called under the
 * lock. */
static enum status share(struct dnn_plans *plans, struct dnn_plan *plan, struct error *err)
{
    plan->refs++;
    while (plan->state == PLAN_MAKING)
        pthread_cond_wait(&plans->made, &plans->lock);
    if (plan->state == PLAN_READY)
        return STATUS_OK;
    enum status status = plan->failure.status;
    if (err)
        *err = plan->failure;
    plan->refs--;
    return status;
}

/* Ends the making of a plan; called under the lock. `final`: another try would fail alike. A
 * failure that is not final is given to those who wait for it now; the next call tries again. */
static void settle(struct dnn_plans *plans, struct dnn_plan *plan, enum status status, bool final)
{
    plan->state = status ? PLAN_FAILED : PLAN_READY;
    if (status) {
        plan->refs--;
        if (!final)
            plan->key.low = ~plan->key.low; /* found by nobody; dropped with the rest */
    }
    pthread_cond_broadcast(&plans->made);
}

enum status dnn_plan_get(struct cuda_dnn *dnn, const struct dnn_recipe *recipe, const void *code,
                         uint64_t code_size, struct dnn_plan **out, struct error *err)
{
    struct dnn_plans *plans = dnn_plans(dnn);
    struct key key = key_of(recipe);
    pthread_mutex_lock(&plans->lock);
    struct dnn_plan *plan = find(plans, &key);
    if (plan) {
        enum status status = share(plans, plan, err);
        pthread_mutex_unlock(&plans->lock);
        if (!status)
            *out = plan;
        return status;
    }
    plan = add_row(plans, &key);
    pthread_mutex_unlock(&plans->lock);
    if (!plan)
        return error_no_memory(err, "cuDNN");
    enum status status = make(dnn, recipe, plan, code, code_size, &plan->failure);
    if (status && err)
        *err = plan->failure;
    pthread_mutex_lock(&plans->lock);
    settle(plans, plan, status, !code && status == STATUS_FAILED_PRECONDITION);
    pthread_mutex_unlock(&plans->lock);
    if (!status)
        *out = plan;
    return status;
}

enum status dnn_plan_of(struct cuda_device *device, const struct ir_node *node,
                        const struct tactic *tactic, const struct dnn_recipe *recipe,
                        struct dnn_plan **out, struct error *err)
{
    enum status status =
        dnn_plan_get(device->dnn, recipe, tactic->code, tactic->code_size, out, err);
    if (status)
        error_prefix(err, "'%s'", node->name);
    return status;
}

void dnn_plan_put(struct cuda_dnn *dnn, struct dnn_plan *plan)
{
    if (!plan)
        return;
    struct dnn_plans *plans = dnn_plans(dnn);
    pthread_mutex_lock(&plans->lock);
    plan->refs--;
    pthread_mutex_unlock(&plans->lock);
}

dnn_desc dnn_plan_desc(const struct dnn_plan *plan)
{
    return plan->desc;
}

uint64_t dnn_plan_workspace(const struct dnn_plan *plan)
{
    return plan->workspace;
}

/* --- plans as bytes --- */

enum status dnn_plan_code(const struct dnn_plan *plan, struct arena *arena, const void **code,
                          uint64_t *size, struct error *err)
{
    int64_t n = 0, got = 0;
    cudnnStatus_t result = cudnnBackendGetAttribute(
        plan->desc, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0, &n, NULL);
    if (result)
        return dnn_error(err, result, "size of a plan's text");
    if (n <= 0 || n > CODE_MAX / 2)
        return error_set(err, STATUS_INTERNAL, "cuDNN: a plan's text of %lld bytes", (long long)n);
    struct code_head head = {.version = cudnnGetVersion(), .key = plan->key};
    char *out = arena_alloc(arena, sizeof(head) + (size_t)n);
    if (!out)
        return error_no_memory(err, "cuDNN");
    result = cudnnBackendGetAttribute(plan->desc, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                      CUDNN_TYPE_CHAR, n, &got, out + sizeof(head));
    if (result || got <= 0 || got > n)
        return dnn_error(err, result, "a plan's text");
    memcpy(head.magic, code_magic, sizeof(head.magic));
    head.size = (uint64_t)got;
    head.digest = XXH3_64bits(out + sizeof(head), head.size);
    memcpy(out, &head, sizeof(head));
    *code = out;
    *size = sizeof(head) + head.size;
    return STATUS_OK;
}
