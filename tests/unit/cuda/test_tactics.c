/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tactics as they come back from a plan file. Every candidate of every kind of node can be
 * prepared, unless that takes a driver (FAILED_PRECONDITION). A candidate that is damaged in any
 * way is refused or can still be prepared; the sanitizers watch that only existing bytes are read
 * or written.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/device.h"
#include "engine/cuda/dry.h"
#include "engine/cuda/family.h"
#include "tests/device/cases.h"
#include "tests/device/ranged.h"
#include "tests/test.h"

static const char *properties; /* a file with an H200's properties */

enum {
    CANDIDATES_MAX = 512,
    SEEDS = 2,      /* graphs of each kind */
    PER_FAMILY = 3, /* candidates tried for one graph and family */
    DAMAGES = 24,   /* damaged copies of each */
};

struct fixture {
    struct device *device;
    struct backend_stream *stream;
};

struct list {
    struct tactic *items[CANDIDATES_MAX];
    uint32_t n;
};

static int fixture_make(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct error err = {0};
    if (!f || cuda_device_open_dry(properties, NULL, &f->device, &err) ||
        cuda_stream_new_dry(f->device, &f->stream, &err)) {
        print_error("%s\n", err.text);
        return -1;
    }
    *state = f;
    return 0;
}

static int fixture_drop(void **state)
{
    struct fixture *f = *state;
    cuda_stream_free_dry(f->stream);
    backend_cuda.device_close(f->device);
    free(f);
    return 0;
}

static enum status keep(void *user, const struct tactic *tactic, struct error *err)
{
    struct list *list = user;
    (void)err;
    if (list->n == CANDIDATES_MAX)
        return STATUS_OK;
    struct tactic *copy = malloc(sizeof(*copy));
    assert_non_null(copy);
    *copy = *tactic;
    list->items[list->n++] = copy;
    return STATUS_OK;
}

static void list_free(struct list *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        free(list->items[i]);
    list->n = 0;
}

/* Gives the tensor the port's type and layout. A constant's bytes do not matter here. */
static void shape_tensor(struct ir_graph *g, uint32_t id, const struct tactic_port *port)
{
    if (id == IR_NONE)
        return;
    struct ir_tensor *t = ir_tensor(g, id);
    bool constant = ir_tensor_is_constant(t);
    if (port->packed_bytes && constant) {
        t->layout = IR_LAYOUT_OPAQUE;
        t->bytes = port->packed_bytes;
    } else {
        assert_true(ir_tensor_set_format(g, id, port->format));
    }
    if (constant && t->dtype != DTYPE_I64) {
        t->data = arena_alloc(g->arena, t->bytes + 1);
        assert_non_null(t->data);
    }
}

static void shape_node(struct ir_graph *g, const struct tactic *tactic)
{
    struct ir_node *node = ir_node(g, 0);
    for (uint32_t i = 0; i < node->n_inputs; i++)
        shape_tensor(g, node->inputs[i], &tactic->in[MIN(i, TACTIC_PORTS_MAX - 1U)]);
    for (uint32_t i = 0; i < node->n_outputs; i++)
        shape_tensor(g, node->outputs[i], &tactic->out[i]);
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Changes one of the fields that a plan stores. */
static void damage(struct tactic *t, uint64_t *random)
{
    uint32_t bits = (uint32_t)next_random(random), where = bits % 9, at = bits >> 8;
    uint32_t value = (uint32_t)next_random(random);
    if (where == 0)
        t->id ^= 1U << at % 32;
    else if (where == 1)
        t->out[0].format.dtype = (enum dtype)(value % 20);
    else if (where == 2)
        t->blob_size = value % 3 ? value % (TACTIC_BLOB_MAX + 1) : value;
    else if (where == 3 && t->n_in)
        t->in[at % t->n_in].format.layout = (enum ir_layout)(value % 9);
    else if (where == 4 && t->n_in)
        t->in[at % t->n_in].packed_bytes = value;
    else if (where == 5)
        t->out[0].format.layout = (enum ir_layout)(value % 9);
    else if (where == 6)
        t->n_in ^= 1U << at % 8;
    else if (t->blob_size)
        t->blob[at % t->blob_size] ^= (uint8_t)(1U << value % 8);
}

static enum status prepare_status(const struct fixture *f, const struct ir_graph *g,
                                  const struct tactic *tactic, struct error *err)
{
    struct backend_op *op = NULL;
    enum status status = backend_cuda.op_prepare(f->stream, g, ir_node(g, 0), tactic, &op, err);
    if (!status) {
        assert_non_null(op);
        (void)backend_cuda.op_workspace(op);
        assert_int_equal(backend_cuda.op_launch(op, f->stream, NULL, NULL, NULL, NULL),
                         STATUS_FAILED_PRECONDITION);
    } else {
        assert_null(op);
    }
    backend_cuda.op_free(op);
    return status;
}

static bool prepare(const struct fixture *f, const struct ir_graph *g, const struct tactic *tactic,
                    struct error *err)
{
    return prepare_status(f, g, tactic, err) == STATUS_OK;
}

static struct ir_graph *make_case(const struct case_kind *kind, uint64_t seed, bool ranged)
{
    struct ir_graph *g = case_new(kind, seed);
    assert_non_null(g);
    if (!ranged)
        return g;
    assert_int_equal(ranged_inputs(g, 0, DTYPE_I8, NULL), STATUS_OK);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        size_t n = ir_tensor(g, g->outputs[i])->bytes / sizeof(float) + 1;
        float *ones = malloc(n * sizeof(*ones));
        assert_non_null(ones);
        for (size_t k = 0; k < n; k++)
            ones[k] = 1;
        assert_int_equal(ranged_output(g, g->outputs[i], ones, 0, DTYPE_I8, NULL), STATUS_OK);
        free(ones);
    }
    return g;
}

/* Counts in `tried_of_all`, by family, the candidates that were offered. `ranged`: the tensors have
 * symmetric ranges, by which INT8 could hold them. */
static void try_case(const struct fixture *f, const struct case_kind *kind, uint64_t seed,
                     enum precision precision, bool ranged,
                     uint32_t tried_of_all[CUDA_FAMILY_COUNT_])
{
    struct list list = {0};
    struct error err = {0};
    struct ir_graph *asked = make_case(kind, seed, ranged);
    uint64_t random = seed * 77 + 1;
    uint32_t tried[CUDA_FAMILY_COUNT_] = {0};
    if (backend_cuda.candidates(f->device, asked, ir_node(asked, 0), precision, keep, &list, &err))
        fail_msg("%s: %s", kind->name, err.text);
    for (uint32_t i = 0; i < list.n; i++) {
        const struct tactic *right = list.items[i];
        assert_true(right->id >> 16 < CUDA_FAMILY_COUNT_);
        if (tried[right->id >> 16]++ >= PER_FAMILY)
            continue;
        struct ir_graph *g = make_case(kind, seed, ranged);
        shape_node(g, right);
        enum status status = prepare_status(f, g, right, &err);
        if (status && status != STATUS_FAILED_PRECONDITION)
            fail_msg("%s seed %llu '%s': %s", kind->name, (unsigned long long)seed, right->name,
                     err.text);
        for (uint32_t k = 0; k < DAMAGES; k++) {
            struct tactic wrong = *right;
            damage(&wrong, &random);
            (void)prepare(f, g, &wrong, &err);
            (void)backend_cuda.compile(f->device, g, ir_node(g, 0), &wrong, &err);
        }
        ir_graph_free(g);
        tried_of_all[right->id >> 16]++;
    }
    list_free(&list);
    ir_graph_free(asked);
}

static void every_candidate_and_damaged_ones(void **state)
{
    uint32_t tried[CUDA_FAMILY_COUNT_] = {0};
    for (const struct case_kind *kind = case_kinds; kind->name; kind++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            try_case(*state, kind, seed, PRECISION_F32, false, tried);
            try_case(*state, kind, seed, PRECISION_F16, false, tried);
            try_case(*state, kind, seed, PRECISION_F16, true, tried);
        }
    for (uint32_t id = 1; id < CUDA_FAMILY_COUNT_; id++)
        if (tried[id] == 0 && strcmp(cuda_takings[id].library, "cuBLASLt") != 0 && /* needs a GPU */
            id != CUDA_FAMILY_PLUGIN) /* no case has a plugin */
            fail_msg("no candidate of family '%s' was tried", cuda_takings[id].title);
}

static const struct cuda_family *family_of(uint32_t tactic_id, int op)
{
    struct ir_node node = {.op = (enum ir_op)op};
    struct tactic tactic = {.id = tactic_id};
    return cuda_family_of(&node, &tactic);
}

static void families_by_id(void **state)
{
    uint32_t n = 0;
    (void)state;
    for (uint32_t id = 0; id < 0x10000; id++)
        for (int op = 0; op < IR_OP_COUNT_; op++) {
            const struct cuda_family *family = family_of(id << 16 | 5, op);
            if (!family)
                continue;
            assert_int_equal(family->id, id);
            assert_non_null(family->candidates);
            assert_non_null(family->prepare);
            assert_true(strlen(cuda_takings[id].title) > 0);
            n++;
        }
    assert_true(n > 0);
    assert_null(family_of(0, IR_OP_CONV));
    assert_null(family_of(UINT32_MAX, IR_OP_CONV));
    assert_null(family_of(CUDA_FAMILY_COUNT_ << 16, IR_OP_CONV));
}

/* Tactics that the dispatch itself refuses, whatever the family. */
static void tactics_of_other_nodes(void **state)
{
    const struct fixture *f = *state;
    struct list list = {0};
    const struct case_kind *kind = case_kinds;
    struct ir_graph *g = NULL;
    struct error err = {0};
    for (; kind->name && list.n == 0; kind++) {
        ir_graph_free(g);
        g = case_new(kind, 1);
        assert_int_equal(
            backend_cuda.candidates(f->device, g, ir_node(g, 0), PRECISION_F32, keep, &list, &err),
            STATUS_OK);
    }
    assert_true(list.n > 0);
    struct tactic right = *list.items[0];
    shape_node(g, &right);
    assert_true(prepare(f, g, &right, &err));
    struct tactic wrong = right;
    wrong.id = 0;
    assert_false(prepare(f, g, &wrong, &err));
    assert_non_null(strstr(err.text, "not for this node"));
    wrong = right;
    wrong.n_in++;
    assert_false(prepare(f, g, &wrong, &err));
    wrong = right;
    wrong.n_out = 0;
    assert_false(prepare(f, g, &wrong, &err));
    wrong = right;
    wrong.blob_size = TACTIC_BLOB_MAX + 1;
    assert_false(prepare(f, g, &wrong, &err));
    wrong = right;
    wrong.code_size = 1;
    assert_false(prepare(f, g, &wrong, &err));
    wrong = right;
    wrong.out[0].format.layout = IR_LAYOUT_BLOCKED_8;
    assert_false(prepare(f, g, &wrong, &err));
    wrong = right;
    wrong.out[0].packed_bytes = 64;
    assert_false(prepare(f, g, &wrong, &err));
    assert_int_equal(backend_cuda.pack(f->device, g, ir_node(g, 0), &right, 200, NULL, &err),
                     STATUS_INVALID_ARGUMENT);
    ir_graph_free(g);
    list_free(&list);
}

/* Whether a candidate stores all that it reads and writes as the graph does. */
static bool has_wide(const struct list *list, const struct ir_graph *g)
{
    bool some = false;
    for (uint32_t k = 0; k < list->n && !some; k++) {
        const struct tactic *t = list->items[k];
        const struct ir_node *node = ir_node(g, 0);
        some = true;
        for (uint32_t i = 0; i < t->n_in; i++)
            some = some && (node->inputs[i] == IR_NONE || t->in[i].packed_bytes ||
                            t->in[i].format.dtype == ir_tensor(g, node->inputs[i])->dtype);
        for (uint32_t i = 0; i < t->n_out; i++)
            some = some && t->out[i].format.dtype == ir_tensor(g, node->outputs[i])->dtype;
    }
    return some;
}

/* Fusions that have no kernel in FP32: the builder takes them apart. */
static bool is_short_alone(const struct ir_node *node)
{
    return node->op == IR_OP_CONV_PAIR || node->op == IR_OP_CONV_CHAIN ||
           node->op == IR_OP_CONV_POOL;
}

/* What may not have 16 bits, for the sake of exactness, need not leave the device: where it has
 * kernels for 16 bits, it has others for FP32, with those or if it is asked for these alone. */
static void all_that_has_16_bits_has_fp32(void **state)
{
    const struct fixture *f = *state;
    uint32_t n = 0;
    for (const struct case_kind *kind = case_kinds; kind->name; kind++)
        for (uint64_t seed = 1; seed <= 4; seed++) {
            struct ir_graph *g = case_new(kind, seed);
            struct list both = {0}, wide = {0};
            struct error err = {0};
            const struct ir_node *node = ir_node(g, 0);
            bool exempt = is_short_alone(node) || node->op == IR_OP_MATMUL; /* cuBLASLt's */
            if (backend_cuda.candidates(f->device, g, node, PRECISION_F16, keep, &both, &err) ||
                backend_cuda.candidates(f->device, g, node, PRECISION_F32, keep, &wide, &err))
                fail_msg("%s: %s", kind->name, err.text);
            n += both.n > 0;
            if (both.n && !has_wide(&both, g) && !has_wide(&wide, g) && !exempt)
                fail_msg("%s, seed %u: nothing in FP32:\n%s", kind->name, (unsigned)seed,
                         ir_graph_text(g));
            list_free(&wide);
            list_free(&both);
            ir_graph_free(g);
        }
    assert_true(n > 0);
}

/* With 16 bits, a convolution is offered the slow kernel for FP32 that takes all of them; asked
 * for FP32 alone, it is offered those of cuDNN. */
static void convolutions_in_fp32_have_libraries(void **state)
{
    const struct fixture *f = *state;
    for (int alone = 0; alone < 2; alone++) {
        const struct case_kind *kind = case_kinds;
        struct list list = {0};
        uint32_t n = 0;
        while (strcmp(kind->name, "conv") != 0)
            kind++;
        struct ir_graph *g = case_new(kind, 1);
        assert_int_equal(backend_cuda.candidates(f->device, g, ir_node(g, 0),
                                                 alone ? PRECISION_F32 : PRECISION_F16, keep, &list,
                                                 NULL),
                         STATUS_OK);
        for (uint32_t k = 0; k < list.n; k++) {
            const struct list one = {.items = {list.items[k]}, .n = 1};
            n += has_wide(&one, g) && strncmp(list.items[k]->name, "cudnn", 5) == 0;
        }
        assert_int_equal(n > 0, alone);
        list_free(&list);
        ir_graph_free(g);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(families_by_id, fixture_make, fixture_drop),
        cmocka_unit_test_setup_teardown(tactics_of_other_nodes, fixture_make, fixture_drop),
        cmocka_unit_test_setup_teardown(all_that_has_16_bits_has_fp32, fixture_make, fixture_drop),
        cmocka_unit_test_setup_teardown(convolutions_in_fp32_have_libraries, fixture_make,
                                        fixture_drop),
        cmocka_unit_test_setup_teardown(every_candidate_and_damaged_ones, fixture_make,
                                        fixture_drop),
    };
    /* Keeps the library loaded: cuDNN unloads it, after which its leaks could not be told from
     * ours. */
    (void)dlopen("libnvrtc.so.13", RTLD_LAZY);
    if (setenv("INFERD_OWN_MATMUL", "1", 1)) /* so that all rows of products are candidates */
        return EXIT_FAILURE;
    properties = argc > 1 ? argv[1] : "";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
