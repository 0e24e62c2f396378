/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry: a list that only grows. Whoever adds holds the lock; readers see a plugin once the
 * number of plugins says so.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/cleanup.h"
#include "engine/plugin/plugin.h"

struct plugin_registry {
    pthread_mutex_t lock;
    atomic_uint n; /* release when a plugin is complete; acquire to read the list */
    struct plugin list[PLUGINS_MAX];
};

static struct plugin_registry own = {.lock = PTHREAD_MUTEX_INITIALIZER};
static struct plugin_registry *registry = &own; /* set before any other thread reads it */

struct plugin_registry *plugin_registry(void)
{
    return registry;
}

void plugin_registry_use(struct plugin_registry *other)
{
    registry = other;
}

const struct plugin *plugin_at(uint32_t i)
{
    return i < atomic_load_explicit(&registry->n, memory_order_acquire) ? &registry->list[i] : NULL;
}

const struct inferd_plugin_op *plugin_find(const char *domain, const char *name,
                                           const struct plugin **of)
{
    const struct plugin *plugin;
    for (uint32_t i = 0; (plugin = plugin_at(i)); i++)
        for (uint32_t k = 0; k < plugin->table->n_ops; k++) {
            const struct inferd_plugin_op *op = &plugin->table->ops[k];
            if (strcmp(op->domain, domain) != 0 || strcmp(op->name, name) != 0)
                continue;
            *of = plugin;
            return op;
        }
    return NULL;
}

/* --- what a table must be --- */

static bool is_name(const char *text, size_t max)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return text && *text && strnlen(text, max) < max && !text[strspn(text, letters)];
}

static enum status wrong(struct error *err, const char *what)
{
    return error_set(err, STATUS_FAILED_PRECONDITION, "the plugin's table is wrong: %s", what);
}

static enum status check_kernels(const struct inferd_plugin_op *op, struct error *err)
{
    if (!op->n_kernels || op->n_kernels > PLUGIN_KERNELS_MAX || !op->kernels)
        return wrong(err, "an op without kernels, or with more than 16");
    if (op->kernels[0].where != INFERD_PLUGIN_CPU)
        return wrong(err, "an op's first kernel is its reference, which runs on the CPU");
    for (uint32_t i = 0; i < op->n_kernels; i++) {
        const struct inferd_plugin_kernel *kernel = &op->kernels[i];
        if (!is_name(kernel->name, PLUGIN_KERNEL_NAME_MAX) || !kernel->run ||
            (kernel->where != INFERD_PLUGIN_CPU && kernel->where != INFERD_PLUGIN_CUDA))
            return wrong(err, "a kernel without a name, a place or a function");
        if (plugin_kernel_find(op, kernel->name) != kernel)
            return wrong(err, "two kernels of one op have the same name");
    }
    return STATUS_OK;
}

static enum status check_op(const struct inferd_plugin_op *op, struct error *err)
{
    static const char *const onnx[] = {"ai.onnx", "ai.onnx.ml"};
    const struct plugin *of;
    if (!is_name(op->domain, PLUGIN_NAME_MAX) || !is_name(op->name, PLUGIN_NAME_MAX))
        return wrong(err, "an op whose domain or name is not of [A-Za-z0-9._-]{1,64}");
    for (size_t i = 0; i < ARRAY_LEN(onnx); i++)
        if (!strcmp(op->domain, onnx[i]))
            return wrong(err, "an op of ONNX's own domain");
    if (!op->infer)
        return wrong(err, "an op without `infer`");
    if (op->flags & ~(uint32_t)(INFERD_PLUGIN_MIXES | INFERD_PLUGIN_TYPES))
        return wrong(err, "an op with flags that this version does not know");
    if (plugin_find(op->domain, op->name, &of))
        return error_set(err, STATUS_ALREADY_EXISTS, "op '%s' of domain '%s' is plugin '%s''s",
                         op->name, op->domain, of->table->name);
    return check_kernels(op, err);
}

static enum status check_table(const struct inferd_plugin *table, struct error *err)
{
    if (table->abi != INFERD_PLUGIN_ABI)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "the plugin has ABI %u, expected %d: compile it for this version",
                         table->abi, INFERD_PLUGIN_ABI);
    if (table->op_size != sizeof(struct inferd_plugin_op))
        return wrong(err, "op_size is not that of the header");
    if (!is_name(table->name, PLUGIN_NAME_MAX) || !is_name(table->version, PLUGIN_NAME_MAX))
        return wrong(err, "its name or version is not of [A-Za-z0-9._-]{1,64}");
    if (!table->n_ops || table->n_ops > PLUGIN_OPS_MAX || !table->ops)
        return wrong(err, "it has no ops, or more than 64");
    for (uint32_t i = 0; i < table->n_ops; i++) {
        TRY(check_op(&table->ops[i], err));
        for (uint32_t k = 0; k < i; k++)
            if (!strcmp(table->ops[i].name, table->ops[k].name) &&
                !strcmp(table->ops[i].domain, table->ops[k].domain))
                return wrong(err, "two ops have the same name");
    }
    return STATUS_OK;
}

enum status plugin_add(const struct inferd_plugin *table, const char *digest, struct error *err)
{
    CLEANUP(cleanup_unlock) UNUSED pthread_mutex_t *held = cleanup_lock(&registry->lock);
    const struct plugin *plugin;
    uint32_t n = 0;
    for (; (plugin = plugin_at(n)); n++) {
        if (plugin->table == table)
            return STATUS_OK;
        if (table->abi == INFERD_PLUGIN_ABI && table->name &&
            !strcmp(plugin->table->name, table->name))
            return error_set(err, STATUS_ALREADY_EXISTS, "a plugin '%s' is loaded already",
                             table->name);
    }
    TRY(check_table(table, err));
    if (n == PLUGINS_MAX)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "more than %d plugins", PLUGINS_MAX);
    registry->list[n].table = table;
    memcpy(registry->list[n].digest, digest,
           MIN(strlen(digest) + 1, sizeof(registry->list[n].digest)));
    registry->list[n].digest[PLUGIN_DIGEST_MAX - 1] = '\0';
    atomic_store_explicit(&registry->n, n + 1, memory_order_release);
    return STATUS_OK;
}
