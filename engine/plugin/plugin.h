/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugins of this process, and nodes of their ops (IR_OP_PLUGIN).
 *
 * Plugins are loaded before any model is, and stay. A node has its plugin's name, version and
 * digest, its op's domain and name, and its attributes as one list of words, which plans store and
 * which is not believed when it comes back: plugin_node_read checks it, and finds the op by it.
 *
 * Threads: all functions may be called by any thread.
 */
#ifndef INFERD_ENGINE_PLUGIN_PLUGIN_H
#define INFERD_ENGINE_PLUGIN_PLUGIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/shape.h"
#include "engine/plugin/inferd_plugin.h"

enum {
    PLUGINS_MAX = 16,
    PLUGIN_OPS_MAX = 64,
    PLUGIN_KERNELS_MAX = 16,
    PLUGIN_ATTRS_MAX = 32,
    PLUGIN_WORDS_MAX = 512,
    PLUGIN_NAME_MAX = 65,
    PLUGIN_KERNEL_NAME_MAX = 33,
    PLUGIN_DIGEST_MAX = 33,
    PLUGIN_WHY_MAX = 200,
};

struct plugin {
    const struct inferd_plugin *table;
    char digest[PLUGIN_DIGEST_MAX]; /* of the file, hex */
};

struct plugin_registry;

/* This process's registry. A module that has a copy of this code is told to use the program's. */
struct plugin_registry *plugin_registry(void);
void plugin_registry_use(struct plugin_registry *registry);

/* Opens a plugin's file and adds its ops. A file that was loaded already is taken as done.
 * FAILED_PRECONDITION: it does not load, is of another ABI, or its table is wrong; ALREADY_EXISTS:
 * another plugin has its name, or one of its ops. */
enum status plugin_load(const char *path, struct error *err);
/* The same of a table that is there already. */
enum status plugin_add(const struct inferd_plugin *table, const char *digest, struct error *err);

/* Plugin number `i` in the order of loading; NULL: there are fewer. */
const struct plugin *plugin_at(uint32_t i);
/* NULL: no plugin has the op. */
const struct inferd_plugin_op *plugin_find(const char *domain, const char *name,
                                           const struct plugin **of);

/* --- nodes --- */

struct plugin_node {
    const struct plugin *plugin;
    const struct inferd_plugin_op *op;
    struct inferd_plugin_node node; /* its arrays are the next three */
    struct inferd_plugin_tensor in[INFERD_PLUGIN_MAX_INPUTS], out[INFERD_PLUGIN_MAX_OUTPUTS];
    struct inferd_plugin_attr attrs[PLUGIN_ATTRS_MAX];
    int64_t words[PLUGIN_WORDS_MAX];
};

/* Writes the words of a node of this op. False: they are more than PLUGIN_WORDS_MAX. */
bool plugin_node_write(const struct plugin *plugin, const struct inferd_plugin_op *op,
                       const struct inferd_plugin_attr *attrs, uint32_t n_attrs,
                       int64_t words[PLUGIN_WORDS_MAX], uint32_t *n_words) MUST_USE;
/* Reads words into a node without tensors. INVALID_ARGUMENT: they are none of ours;
 * FAILED_PRECONDITION: their plugin is not loaded, or another version or build of it is. */
enum status plugin_node_read(const int64_t *words, uint32_t n_words, struct plugin_node *out,
                             struct error *err);

/* Adds a tensor's type and shape. False: there is no room. */
bool plugin_node_input(struct plugin_node *node, enum dtype dtype, const struct shape *shape);
bool plugin_node_output(struct plugin_node *node, enum dtype dtype, const struct shape *shape);

/* Has the op infer its outputs, and checks that these are types and shapes. */
enum status plugin_node_infer(const struct plugin_node *node,
                              struct inferd_plugin_tensor out[INFERD_PLUGIN_MAX_OUTPUTS],
                              uint32_t *n_out, struct error *err);

/* Whether the kernel is for `where` and takes the node. */
bool plugin_kernel_takes(const struct inferd_plugin_kernel *kernel, enum inferd_plugin_where where,
                         const struct plugin_node *node);
/* The op's kernel of that name; NULL: there is none. */
const struct inferd_plugin_kernel *plugin_kernel_find(const struct inferd_plugin_op *op,
                                                      const char *name);
uint64_t plugin_kernel_workspace(const struct inferd_plugin_kernel *kernel,
                                 const struct plugin_node *node);

/* What a run is given beside the node. */
struct plugin_run {
    const void *const *inputs;
    void *const *outputs;
    void *workspace, *stream;
    uint32_t threads;
};
enum status plugin_kernel_run(const struct inferd_plugin_kernel *kernel,
                              const struct plugin_node *node, const struct plugin_run *run,
                              struct error *err);

#endif
