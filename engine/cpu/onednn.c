/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oneDNN part of the CPU backend: the device, the table of ops and the candidates of a node.
 * onednn_op.c prepares and launches nodes. Both files use the recipes of the per-op files.
 */
#include "engine/cpu/onednn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cpu/onednn_recipe.h"
#include "engine/stored.h"

/* Up to this many operations (some 50 us of a good kernel) one thread may be faster than waking the
 * others. Products of 8-bit integers are several times as fast. */
static const double serial_work_max = 1e7, serial_bytes_max = 4e7;

static const struct onednn_row *const rows[] = {
    &onednn_conv,       &onednn_deconv,     &onednn_matmul,   &onednn_pool,   &onednn_softmax,
    &onednn_layer_norm, &onednn_batch_norm, &onednn_unary,    &onednn_binary, &onednn_reduce,
    &onednn_resize,     &onednn_concat,     &onednn_reformat, &onednn_slice,  &onednn_transpose,
};

static const struct {
    dnnl_cpu_isa_t isa;
    const char *name;
} isas[] = {
    {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
    {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
    {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
    {dnnl_cpu_isa_avx512_core, "avx512_core"},
    {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
    {dnnl_cpu_isa_avx2, "avx2"},
    {dnnl_cpu_isa_avx, "avx"},
    {dnnl_cpu_isa_sse41, "sse41"},
};

static bool has_isa(dnnl_cpu_isa_t want)
{
    return ((unsigned)dnnl_get_effective_cpu_isa() & (unsigned)want) == (unsigned)want;
}

enum status onednn_new(uint32_t threads, struct onednn **out, struct error *err)
{
    struct onednn *dnn = calloc(1, sizeof(*dnn));
    if (!dnn)
        return error_no_memory(err, "oneDNN");
    if (dnnl_engine_create(&dnn->engine, dnnl_cpu, 0) != dnnl_success) {
        free(dnn);
        return error_set(err, STATUS_INTERNAL, "oneDNN: no CPU engine");
    }
    dnn->threads = threads;
    dnn->avx = has_isa(dnnl_cpu_isa_avx);
    dnn->avx512 = has_isa(dnnl_cpu_isa_avx512_core);
    dnn->bf16 = has_isa(dnnl_cpu_isa_avx512_core_bf16);
    dnn->vnni = has_isa(dnnl_cpu_isa_avx512_core_vnni) || has_isa(dnnl_cpu_isa_avx2_vnni);
    *out = dnn;
    return STATUS_OK;
}

void onednn_free(struct onednn *dnn)
{
    if (!dnn)
        return;
    dnnl_engine_destroy(dnn->engine);
    free(dnn);
}

void onednn_fingerprint(const struct onednn *dnn UNUSED, char *out, size_t size)
{
    const dnnl_version_t *v = dnnl_version();
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    const char *name = "other";
    for (size_t i = 0; i < ARRAY_LEN(isas); i++)
        if (isas[i].isa == isa)
            name = isas[i].name;
    snprintf(out, size, "oneDNN %d.%d.%d %s %s", v->major, v->minor, v->patch, name,
             v->cpu_runtime == DNNL_RUNTIME_OMP ? "omp" : "other");
}

const struct onednn_row *onednn_row_find(enum ir_op op)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i]->op == op)
            return rows[i];
    return NULL;
}

bool onednn_takes(enum ir_op op)
{
    return onednn_row_find(op) != NULL;
}

/* --- candidates --- */

/* oneDNN's reference implementations serve to check others, and an implementation for an older
 * instruction set has no chance. */
static bool worth_timing(const struct onednn *dnn, const char *name, uint32_t found)
{
    if (strncmp(name, "ref", 3) == 0)
        return false;
    bool older = !strstr(name, "avx512") && (strstr(name, ":sse") || strstr(name, ":avx"));
    return !(dnn->avx512 && found > 0 && older);
}

static const char *layouts_text(const struct recipe *r, char *text, size_t size)
{
    const char *from = ir_layout_name(r->in[0].format.layout),
               *to = ir_layout_name(r->out[0].format.layout);
    if (r->in[0].format.layout == r->out[0].format.layout)
        snprintf(text, size, "%s", from);
    else
        snprintf(text, size, "%s>%s", from, to);
    return text;
}

static void fill_tactic(const struct subject *s, const struct recipe *r, struct choice c,
                        struct tactic *t)
{
    char layouts[32];
    struct choice_blob blob = {.choice = c};
    snprintf(blob.impl, sizeof(blob.impl), "%s", recipe_impl(r));
    memset(t, 0, sizeof(*t));
    t->backend = "cpu";
    t->id = ONEDNN_TACTIC_FIRST;
    snprintf(t->name, sizeof(t->name), "onednn %s %s%s", recipe_impl(r),
             layouts_text(r, layouts, sizeof(layouts)), c.serial ? " 1 thread" : "");
    t->blob_size = sizeof(blob);
    memcpy(t->blob, &blob, sizeof(blob));
    t->n_in = MIN(s->node->n_inputs, (uint32_t)TACTIC_PORTS_MAX);
    t->n_out = s->node->n_outputs;
    memcpy(t->in, r->in, sizeof(t->in));
    memcpy(t->out, r->out, sizeof(t->out));
    tactic_set_types(t, s->graph, s->node, DTYPE_NONE);
    stored_set_scales(t, s->graph, s->node);
    if (subject_is_scaled(s))
        scaled_port(s, &t->in[1]);
    else if (subject_is_half(s) && t->in[1].packed_bytes)
        t->in[1].format.dtype = DTYPE_BF16;
}

static enum status visit_impl(const struct subject *s, const struct onednn_row *row,
                              struct choice c, const char *name, struct recipe *r,
                              tactic_visit visit, void *user, struct error *err)
{
    struct tactic tactic;
    recipe_init(r, name);
    enum status status = row->make(s, c, r);
    if (!status) {
        fill_tactic(s, r, c, &tactic);
        status = visit(user, &tactic, err);
    } else if (status == STATUS_UNIMPLEMENTED) {
        status = STATUS_OK;
    } else {
        error_set(err, status, "oneDNN: no candidates for '%s': %s", s->node->name,
                  status_name(status));
    }
    recipe_deinit(r);
    return status;
}

/* Visits the implementations of one choice that are worth timing. */
static enum status visit_choice(const struct subject *s, const struct onednn_row *row,
                                struct choice c, struct recipe *r, tactic_visit visit, void *user,
                                struct error *err)
{
    char impls[IMPL_MAX][IMPL_NAME_MAX];
    uint32_t n = 0, found = 0;
    omp_set_num_threads((int)choice_threads(s->dnn, c));
    recipe_init(r, NULL);
    enum status status = row->make(s, c, r);
    if (!status) {
        n = r->n_impls;
        memcpy(impls, r->impls, sizeof(impls));
    }
    recipe_deinit(r);
    if (status == STATUS_RESOURCE_EXHAUSTED)
        return error_no_memory(err, "oneDNN");
    for (uint32_t i = 0; i < n && found < row->impls; i++) {
        if (!worth_timing(s->dnn, impls[i], found))
            continue;
        found++;
        TRY(visit_impl(s, row, c, impls[i], r, visit, user, err));
    }
    return STATUS_OK;
}

struct question {
    struct onednn *dnn;
    const struct onednn_row *row;
    const struct ir_node *node;
    tactic_visit visit;
    void *user;
};

/* Visits the candidates for the node with its tensors stored as the graph says. */
static enum status ask(void *user, const struct ir_graph *graph, struct error *err)
{
    const struct question *q = user;
    const struct ir_node *node = q->node;
    const struct onednn_row *row = q->row;
    struct subject s = {q->dnn, graph, node};
    CLEANUP(recipe_cleanup) struct recipe *r = recipe_new();
    if (!r)
        return error_no_memory(err, "oneDNN");
    struct choice choices[CHOICES_MAX];
    uint32_t n = row->list(&s, choices);
    double most = subject_is_scaled(&s) ? serial_bytes_max : serial_work_max;
    bool serial = q->dnn->threads > 1 && subject_work(&s) < most;
    /* nobody turns bytes out of blocks */
    bool moves = node->op != IR_OP_REFORMAT && stored_any(graph, node) && stored_moves(graph, node);
    for (uint32_t i = 0; i < (serial ? 2 * n : n); i++) {
        struct choice c = choices[i % n];
        if (moves &&
            (ir_layout_block((enum ir_layout)c.src) || ir_layout_block((enum ir_layout)c.dst)))
            continue;
        c.serial = i >= n;
        TRY(visit_choice(&s, row, c, r, q->visit, q->user, err));
    }
    return STATUS_OK;
}

enum status onednn_candidates(struct onednn *dnn, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    const struct onednn_row *row = onednn_row_find(node->op);
    struct question q = {dnn, row, node, visit, user};
    const struct subject s = {dnn, graph, node};
    if (!row || node->n_outputs != 1 || node->n_inputs == 0 || !subject_fits(&s))
        return STATUS_OK;
    if (precision == PRECISION_BF16)
        TRY(half_each(&s, ask, &q, err));
    return ask(&q, graph, err);
}

uint32_t onednn_tactic_impl(const struct onednn *dnn, const struct tactic *tactic,
                            char impl[ONEDNN_IMPL_MAX])
{
    struct choice_blob blob;
    memcpy(&blob, tactic->blob, sizeof(blob));
    memcpy(impl, blob.impl, ONEDNN_IMPL_MAX);
    impl[ONEDNN_IMPL_MAX - 1] = '\0';
    return choice_threads(dnn, blob.choice);
}
