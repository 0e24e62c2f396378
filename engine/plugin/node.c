/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes as words, and the calls into a plugin. The words are: the number of attributes; the texts
 * plugin, version, digest, domain, op; and for each attribute its kind, its count, its name and its
 * values. A text is its length, then its bytes with a 0 behind them, filled up to whole words; so
 * are floats. All values are aligned, and are read where they lie.
 */
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "engine/plugin/plugin.h"

#define DIM_MAX (INT64_C(1) << 40)

_Static_assert((int)INFERD_PLUGIN_FP64 == DTYPE_F64 && INFERD_PLUGIN_FP64 + 1 == DTYPE_F8,
               "element types are numbered alike");
_Static_assert((int)INFERD_PLUGIN_MAX_RANK == SHAPE_MAX_RANK, "shapes have the same length");

/* --- writing --- */

struct words {
    int64_t *at;
    uint32_t n;
    bool full;
};

static void put_bytes(struct words *w, const void *bytes, size_t size, size_t end)
{
    size_t count = (size + end + 7) / 8;
    if (w->full || count > PLUGIN_WORDS_MAX - w->n) {
        w->full = true;
        return;
    }
    memset(w->at + w->n, 0, count * 8);
    if (size)
        memcpy(w->at + w->n, bytes, size);
    w->n += (uint32_t)count;
}

static void put_word(struct words *w, int64_t value)
{
    put_bytes(w, &value, sizeof(value), 0);
}

static void put_text(struct words *w, const char *text)
{
    put_word(w, (int64_t)strlen(text));
    put_bytes(w, text, strlen(text), 1);
}

static void put_attr(struct words *w, const struct inferd_plugin_attr *attr)
{
    put_word(w, attr->kind);
    put_word(w, attr->count);
    put_text(w, attr->name);
    if (attr->kind == INFERD_PLUGIN_INTS)
        put_bytes(w, attr->ints, attr->count * sizeof(*attr->ints), 0);
    else if (attr->kind == INFERD_PLUGIN_FLOATS)
        put_bytes(w, attr->floats, attr->count * sizeof(*attr->floats), 0);
    else
        put_bytes(w, attr->text, attr->count, 1);
}

bool plugin_node_write(const struct plugin *plugin, const struct inferd_plugin_op *op,
                       const struct inferd_plugin_attr *attrs, uint32_t n_attrs,
                       int64_t words[PLUGIN_WORDS_MAX], uint32_t *n_words)
{
    struct words w = {.at = words, .full = n_attrs > PLUGIN_ATTRS_MAX};
    const char *const texts[] = {plugin->table->name, plugin->table->version, plugin->digest,
                                 op->domain, op->name};
    put_word(&w, n_attrs);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        put_text(&w, texts[i]);
    for (uint32_t i = 0; i < n_attrs && !w.full; i++)
        put_attr(&w, &attrs[i]);
    *n_words = w.n;
    return !w.full;
}

/* --- reading --- */

struct reader {
    const int64_t *words;
    uint32_t n, at;
    bool bad;
};

static int64_t get_word(struct reader *r, int64_t most)
{
    int64_t value = r->bad || r->at == r->n ? -1 : r->words[r->at++];
    r->bad = r->bad || value < 0 || value > most;
    return r->bad ? 0 : value;
}

/* The bytes, and a 0 behind them if `end` is 1. */
static const void *get_bytes(struct reader *r, size_t size, size_t end)
{
    size_t count = (size + end + 7) / 8;
    r->bad = r->bad || count > r->n - r->at;
    if (r->bad)
        return "";
    const char *bytes = (const char *)(r->words + r->at);
    r->bad = end && bytes[size];
    r->at += (uint32_t)count;
    return r->bad ? "" : bytes;
}

static const char *get_text(struct reader *r)
{
    size_t length = (size_t)get_word(r, PLUGIN_NAME_MAX - 1);
    const char *text = get_bytes(r, length, 1);
    r->bad = r->bad || strlen(text) != length;
    return r->bad ? "" : text;
}

static void get_attr(struct reader *r, struct inferd_plugin_attr *out)
{
    int64_t kind = get_word(r, INFERD_PLUGIN_TEXT);
    uint32_t count = (uint32_t)get_word(r, PLUGIN_WORDS_MAX * 8);
    *out = (struct inferd_plugin_attr){.name = get_text(r), .count = count};
    if (kind == INFERD_PLUGIN_INTS)
        out->ints = get_bytes(r, count * sizeof(*out->ints), 0);
    else if (kind == INFERD_PLUGIN_FLOATS)
        out->floats = get_bytes(r, count * sizeof(*out->floats), 0);
    else if (kind == INFERD_PLUGIN_TEXT)
        out->text = get_bytes(r, count, 1);
    else
        r->bad = true;
    if (!r->bad)
        out->kind = (enum inferd_plugin_kind)kind;
}

/* Who made the node. */
struct maker {
    const char *plugin, *version, *digest, *domain, *op;
};

static enum status find_maker(const struct maker *m, struct plugin_node *out, struct error *err)
{
    const struct plugin *plugin = NULL;
    for (uint32_t i = 0; (plugin = plugin_at(i)); i++)
        if (!strcmp(plugin->table->name, m->plugin))
            break;
    if (!plugin)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "op '%s' of domain '%s' needs the plugin '%s' version %s (digest %s), "
                         "which is not loaded: name its file with --plugin, or under plugins:",
                         m->op, m->domain, m->plugin, m->version, m->digest);
    if (strcmp(plugin->table->version, m->version) != 0 || strcmp(plugin->digest, m->digest) != 0)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "op '%s' of domain '%s' needs the plugin '%s' version %s (digest %s), "
                         "loaded is version %s (digest %s): build the plan again",
                         m->op, m->domain, m->plugin, m->version, m->digest, plugin->table->version,
                         plugin->digest);
    const struct plugin *of = NULL;
    out->op = plugin_find(m->domain, m->op, &of);
    out->plugin = plugin;
    if (!out->op || of != plugin)
        return error_set(err, STATUS_INVALID_ARGUMENT, "plugin '%s' has no op '%s' of domain '%s'",
                         m->plugin, m->op, m->domain);
    return STATUS_OK;
}

enum status plugin_node_read(const int64_t *words, uint32_t n_words, struct plugin_node *out,
                             struct error *err)
{
    if (n_words > PLUGIN_WORDS_MAX)
        return error_set(err, STATUS_INVALID_ARGUMENT, "a plugin's node of %u words", n_words);
    if (n_words)
        memcpy(out->words, words, n_words * sizeof(*words));
    struct reader r = {.words = out->words, .n = n_words};
    out->node = (struct inferd_plugin_node){.inputs = out->in, .attrs = out->attrs};
    out->node.n_attrs = (uint32_t)get_word(&r, PLUGIN_ATTRS_MAX);
    struct maker m = {.plugin = get_text(&r)};
    m.version = get_text(&r);
    m.digest = get_text(&r);
    m.domain = get_text(&r);
    m.op = get_text(&r);
    for (uint32_t i = 0; i < out->node.n_attrs && !r.bad; i++)
        get_attr(&r, &out->attrs[i]);
    if (r.bad || r.at != r.n)
        return error_set(err, STATUS_INVALID_ARGUMENT, "the words of a plugin's node are damaged");
    return find_maker(&m, out, err);
}

static bool add(struct inferd_plugin_tensor *list, uint32_t *n, uint32_t most, enum dtype dtype,
                const struct shape *shape)
{
    if (*n == most)
        return false;
    struct inferd_plugin_tensor *t = &list[(*n)++];
    *t = (struct inferd_plugin_tensor){.dtype = (enum inferd_plugin_dtype)dtype,
                                       .rank = shape->rank};
    memcpy(t->dim, shape->dim, sizeof(t->dim));
    return true;
}

bool plugin_node_input(struct plugin_node *node, enum dtype dtype, const struct shape *shape)
{
    return add(node->in, &node->node.n_inputs, INFERD_PLUGIN_MAX_INPUTS, dtype, shape);
}

bool plugin_node_output(struct plugin_node *node, enum dtype dtype, const struct shape *shape)
{
    node->node.outputs = node->out;
    return add(node->out, &node->node.n_outputs, INFERD_PLUGIN_MAX_OUTPUTS, dtype, shape);
}

/* --- calls --- */

static enum status refused(const struct plugin_node *node, enum status status, const char *why,
                           struct error *err)
{
    return error_set(err, status, "plugin '%s', op '%s': %.*s", node->plugin->table->name,
                     node->op->name, PLUGIN_WHY_MAX, *why ? why : "it gives no reason");
}

static const char *fault_of(const struct inferd_plugin_tensor *t)
{
    if (!dtype_size((enum dtype)t->dtype))
        return "it infers an output of no type";
    if (t->rank > SHAPE_MAX_RANK)
        return "it infers an output of more than 8 dimensions";
    for (uint32_t i = 0; i < t->rank; i++)
        if (t->dim[i] < 0 || t->dim[i] > DIM_MAX)
            return "it infers an output with a dimension below 0 or beyond 2^40";
    return NULL;
}

enum status plugin_node_infer(const struct plugin_node *node,
                              struct inferd_plugin_tensor out[INFERD_PLUGIN_MAX_OUTPUTS],
                              uint32_t *n_out, struct error *err)
{
    char why[PLUGIN_WHY_MAX] = "";
    uint32_t n = 0;
    memset(out, 0, INFERD_PLUGIN_MAX_OUTPUTS * sizeof(*out));
    if (node->op->infer(&node->node, out, &n, why, sizeof(why))) {
        why[sizeof(why) - 1] = '\0';
        return refused(node, STATUS_INVALID_ARGUMENT, why, err);
    }
    if (!n || n > INFERD_PLUGIN_MAX_OUTPUTS)
        return refused(node, STATUS_INVALID_ARGUMENT, "it infers no outputs, or more than 4", err);
    for (uint32_t i = 0; i < n; i++) {
        const char *fault = fault_of(&out[i]);
        if (fault)
            return refused(node, STATUS_INVALID_ARGUMENT, fault, err);
        for (uint32_t d = out[i].rank; d < SHAPE_MAX_RANK; d++)
            out[i].dim[d] = 0;
    }
    *n_out = n;
    return STATUS_OK;
}

bool plugin_kernel_takes(const struct inferd_plugin_kernel *kernel, enum inferd_plugin_where where,
                         const struct plugin_node *node)
{
    return kernel->where == where && (!kernel->takes || kernel->takes(&node->node));
}

const struct inferd_plugin_kernel *plugin_kernel_find(const struct inferd_plugin_op *op,
                                                      const char *name)
{
    for (uint32_t i = 0; i < op->n_kernels; i++)
        if (op->kernels[i].name && !strcmp(op->kernels[i].name, name))
            return &op->kernels[i];
    return NULL;
}

uint64_t plugin_kernel_workspace(const struct inferd_plugin_kernel *kernel,
                                 const struct plugin_node *node)
{
    return kernel->workspace ? kernel->workspace(&node->node) : 0;
}

enum status plugin_kernel_run(const struct inferd_plugin_kernel *kernel,
                              const struct plugin_node *node, const struct plugin_run *run,
                              struct error *err)
{
    char why[PLUGIN_WHY_MAX] = "";
    const struct inferd_plugin_call call = {
        .size = sizeof(call),
        .node = &node->node,
        .inputs = run->inputs,
        .outputs = run->outputs,
        .workspace = run->workspace,
        .stream = run->stream,
        .threads = run->threads,
        .why = why,
        .why_size = sizeof(why),
    };
    if (!kernel->run(&call))
        return STATUS_OK;
    why[sizeof(why) - 1] = '\0';
    return refused(node, STATUS_INTERNAL, why, err);
}
