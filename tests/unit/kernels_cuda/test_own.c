/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The families of our own kernels, from a node to its answer, on the emulated device. For every
 * kind of node and every candidate, constants are packed, the op is prepared and launched, and the
 * answer is compared with the reference.
 */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cuda/device.h"
#include "engine/guard/internal.h"
#include "engine/quant/weights.h"
#include "kernels/cuda/kernels.h"
#include "tests/device/layout.h"
#include "tests/device/make.h"
#include "tests/device/ranged.h"
#include "tests/device/trial.h"
#include "tests/unit/kernels_cuda/emulated.h"
#include "tests/test.h"

enum { SEEDS = 5 };

/* test_own [KIND|all [SEEDS]] */
static const char *only; /* the one kind of cases that was asked for; NULL: all */
static uint64_t seeds = SEEDS;

/* --- the test --- */

static double bound_of(enum dtype dtype)
{
    return dtype == DTYPE_F16 ? 2e-3 : dtype == DTYPE_BF16 ? 2e-2 : 1e-5;
}

static void try_tactic(struct trial *trial, const struct case_kind *kind, uint64_t seed,
                       const struct tactic *tactic)
{
    struct subject subject;
    struct outcome out = {0};
    struct error err = {0};
    struct ir_graph *graph = case_new(kind, seed);
    enum dtype dtype = trial_type(graph, tactic);
    enum status status = subject_init(&subject, case_new(kind, seed), dtype, seed, true, &err);
    if (!status)
        status = trial_run(trial, &subject, graph, tactic, 0, &out, &err);
    if (status)
        fail_msg("%s seed %u '%s': %s", kind->name, (unsigned)seed, tactic->name, err.text);
    if (!(out.error <= bound_of(dtype)))
        fail_msg("%s seed %u '%s': error %g", kind->name, (unsigned)seed, tactic->name, out.error);
    subject_deinit(&subject);
    ir_graph_free(graph);
}

/* Rows of the tables of products on Hopper have tests of their own, on harder shapes: a fifth of
 * them will do here, others for each seed. */
static bool is_left_out(const struct tactic *tactic, uint64_t seed)
{
    uint32_t family = tactic->id >> 16, variant = cuda_tactic_variant(tactic);
    bool row = family == CUDA_FAMILY_OWN_MATMUL ||
               (family == CUDA_FAMILY_OWN_SCALED && variant > EMULATED_TILES);
    return row && (variant + seed) % 5 != 0;
}

static uint32_t try_case(struct trial *trial, const struct case_kind *kind, uint64_t seed,
                         enum precision precision)
{
    struct ir_graph *asked = case_new(kind, seed);
    assert_non_null(asked);
    struct emulated_offers *list = emulated_ask(trial->device, asked, precision);
    for (uint32_t i = 0; i < list->n; i++)
        if (!is_left_out(&list->items[i], seed))
            try_tactic(trial, kind, seed, &list->items[i]);
    uint32_t n = list->n;
    ir_graph_free(asked);
    free(list);
    return n;
}

static void every_candidate(void **state)
{
    CLEANUP(emulated_deinit) struct emulated b;
    emulated_init(&b);
    (void)state;
    for (const struct case_kind *kind = case_kinds; kind->name; kind++) {
        uint32_t n = 0;
        if (only && strcmp(only, kind->name) != 0)
            continue;
        for (uint64_t seed = 1; seed <= seeds; seed++)
            for (int p = PRECISION_F32; p <= PRECISION_BF16; p++)
                if (p != PRECISION_TF32)
                    n += try_case(&b.trial, kind, seed * 131, (enum precision)p);
        print_message("%-20s %u\n", kind->name, n);
    }
}

/* With two multiprocessors the directions of a layer follow one another. */
static void recurrent_on_a_small_device(void **state)
{
    CLEANUP(emulated_deinit) struct emulated b;
    emulated_init(&b);
    (void)state;
    b.device.properties.multiProcessorCount = 2;
    uint32_t n = 0;
    for (const struct case_kind *kind = case_kinds; kind->name; kind++)
        for (uint64_t seed = 1; seed <= 2 * SEEDS && !strcmp(kind->name, "recurrent"); seed++)
            n += try_case(&b.trial, kind, seed * 131, seed % 2 ? PRECISION_F16 : PRECISION_F32);
    assert_true(n > 0);
}

/* --- 8 bits --- */

static bool is_scaled(const struct tactic *tactic)
{
    bool scaled = false;
    for (uint32_t i = 0; i < tactic->n_in + tactic->n_out; i++)
        scaled = scaled ||
                 (i < tactic->n_in ? tactic->in[i] : tactic->out[i - tactic->n_in]).format.scale !=
                     IR_NO_SCALE;
    return scaled;
}

/* Tries all candidates that store a tensor in 8 bits; returns their number. */
static uint32_t try_bytes(struct trial *trial, const struct case_kind *kind, uint64_t seed,
                          enum precision precision, enum dtype bytes)
{
    struct subject subject;
    struct error err = {0};
    if (subject_init_ranged(&subject, case_new(kind, seed), seed, bytes, &err))
        fail_msg("%s seed %u: %s", kind->name, (unsigned)seed, err.text);
    struct ir_graph *asked = emulated_ranged(kind, seed, &subject);
    struct emulated_offers *list = emulated_ask(trial->device, asked, precision);
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        const struct tactic *tactic = &list->items[i];
        struct outcome out = {0};
        if (!is_scaled(tactic) || is_left_out(tactic, seed))
            continue;
        struct ir_graph *graph = emulated_ranged(kind, seed, &subject);
        if (trial_run(trial, &subject, graph, tactic, 0, &out, &err))
            fail_msg("%s seed %u '%s': %s", kind->name, (unsigned)seed, tactic->name, err.text);
        double bound = bound_of(trial_type(asked, tactic));
        if (tactic->out[0].format.scale) /* constants in 16 bits are rounded, too */
            bound = precision == PRECISION_F16 ? 0.1 : 0.02;
        if (tactic->out[0].format.dtype == DTYPE_F8) /* GELU in another form */
            bound = 0.2;
        if (!(out.error <= bound))
            fail_msg("%s seed %u '%s': error %g", kind->name, (unsigned)seed, tactic->name,
                     out.error);
        ir_graph_free(graph);
        n++;
    }
    ir_graph_free(asked);
    subject_deinit(&subject);
    free(list);
    return n;
}

static void every_candidate_in_bytes(void **state)
{
    static const char *const needed[] = {
        "conv-1x1", "conv-wide", "matmul-wide", "pool",  "unary", "binary",    "quantise",
        "reshape",  "transpose", "concat",      "slice", "pad",   "attention", "layer-norm"};
    static const char *const integers[] = {"conv-stem", "conv-depthwise", "conv-grouped",
                                           "conv-line", "conv-odd",       "conv-pool"};
    CLEANUP(emulated_deinit) struct emulated b;
    emulated_init(&b);
    (void)state;
    for (const struct case_kind *kind = case_kinds; kind->name; kind++) {
        uint32_t n = 0, floats = 0;
        if (only && strcmp(only, kind->name) != 0)
            continue;
        for (uint64_t seed = 1; seed <= 2 * seeds; seed++)
            n += try_bytes(&b.trial, kind, seed * 131, seed % 2 ? PRECISION_F16 : PRECISION_F32,
                           DTYPE_NONE);
        print_message("%-20s %u in 8 bits\n", kind->name, n);
        for (uint64_t seed = 1; seed <= 2 * seeds; seed++)
            floats += try_bytes(&b.trial, kind, seed * 131,
                                seed % 2 ? PRECISION_F16 : PRECISION_F32, DTYPE_F8);
        print_message("%-20s %u in FP8\n", kind->name, floats);
        for (size_t i = 0; i < ARRAY_LEN(needed); i++)
            assert_true((n > 0 && floats > 0) || strcmp(needed[i], kind->name) != 0);
        for (size_t i = 0; i < ARRAY_LEN(integers); i++)
            assert_true(n > 0 || strcmp(integers[i], kind->name) != 0);
    }
}

/* reformats, which are no op of a network, so that none of the cases has them */

static const enum ir_layout layouts[] = {IR_LAYOUT_PLAIN, IR_LAYOUT_CHANNELS_LAST,
                                         IR_LAYOUT_CHANNELS_LAST_4, IR_LAYOUT_CHANNELS_LAST_8};

static struct ir_graph *reformat_new(const struct shape *shape, enum ir_layout from,
                                     enum ir_layout to, enum dtype x_type, enum dtype y_type)
{
    struct ir_graph *graph = ir_graph_new();
    assert_non_null(graph);
    uint32_t x = ir_tensor_add(graph, "x", x_type, shape);
    uint32_t node = ir_node_add(graph, IR_OP_REFORMAT, "reformat", 1, &x);
    uint32_t y = ir_node_output_add(graph, node, "y", x_type, shape);
    assert_true(ir_tensor_set_layout(graph, x, from));
    assert_true(ir_tensor_set_format(graph, y, (struct ir_format){to, y_type, IR_NO_SCALE}));
    return graph;
}

/* Numbers that every type can represent go from one layout to another and back to plain. */
static void reformat_check(struct emulated *b, const struct shape *shape, enum ir_layout from,
                           enum ir_layout to, enum dtype x_type, enum dtype y_type)
{
    struct ir_graph *graph = reformat_new(shape, from, to, x_type, y_type);
    const struct ir_tensor *x = ir_tensor(graph, 0), *y = ir_tensor(graph, 1);
    struct emulated_offers *list = emulated_ask(&b->device.base, graph, PRECISION_F16);
    struct backend_op *op = NULL;
    struct error err = {0};
    size_t n = 0;
    assert_true(shape_elements(shape, &n));
    float *plain = calloc(n, sizeof(float)), *got = calloc(n, sizeof(float));
    void *in = NULL, *out = NULL;
    assert_false(posix_memalign(&in, 16, x->bytes) || posix_memalign(&out, 16, y->bytes));
    for (size_t i = 0; i < n; i++)
        plain[i] = (float)((int)(i * 37 % 255) - 127);
    layout_pack(x, plain, DTYPE_F32, in);
    memset(out, 0xff, y->bytes);
    assert_int_equal(list->n, 1);
    assert_int_equal(backend_emulated.op_prepare(&b->stream, graph, ir_node(graph, 0),
                                                 &list->items[0], &op, &err),
                     STATUS_OK);
    assert_int_equal(backend_emulated.op_launch(op, &b->stream, &in, &out, NULL, &err), STATUS_OK);
    backend_emulated.op_free(op);
    layout_unpack(y, out, DTYPE_F32, got);
    if (!layout_padding_zero(y, out) || memcmp(plain, got, n * sizeof(float)) != 0)
        fail_msg("%s: other numbers, or padding that is not zero", list->items[0].name);
    free(plain), free(got), free(in), free(out), free(list);
    ir_graph_free(graph);
}

static void every_reformat(void **state)
{
    static const int64_t channels[] = {3, 8, 20, 64};
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    CLEANUP(emulated_deinit) struct emulated b;
    emulated_init(&b);
    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(channels); c++)
        for (size_t i = 0; i < ARRAY_LEN(layouts) * ARRAY_LEN(layouts); i++)
            for (size_t k = 0; k < ARRAY_LEN(types) * ARRAY_LEN(types); k++) {
                struct shape shape = {.rank = 4, .dim = {2, channels[c], 8, k % 2 ? 9 : 12}};
                reformat_check(&b, &shape, layouts[i / 4], layouts[i % 4], types[k / 3],
                               types[k % 3]);
            }
}

/* Fills numbers that every format here holds: of four bits each. */
static void fill_whole(float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        values[i] = ldexpf((float)((int)(i * 37 % 31) - 15), (int)(i % 2) - 1);
}

static struct ir_graph *reformat_bytes_new(const struct shape *shape, struct ir_format from,
                                           struct ir_format to)
{
    const float step[3] = {0.5F, 0.25F, 0.125F};
    const int32_t zero = 40;
    struct ir_graph *graph = ir_graph_new();
    assert_non_null(graph);
    const struct ir_scale rows[3] = {
        {.n = 1, .dtype = DTYPE_U8, .step = &step[0], .zero = &zero},
        {.n = 1, .dtype = DTYPE_I8, .step = &step[1]},
        {.n = 1, .dtype = DTYPE_F8, .step = &step[2]},
    };
    assert_int_equal(ir_scale_add(graph, &rows[0]), 1);
    assert_int_equal(ir_scale_add(graph, &rows[1]), 2);
    assert_int_equal(ir_scale_add(graph, &rows[2]), 3);
    uint32_t x = ir_tensor_add(graph, "x", DTYPE_F32, shape);
    uint32_t node = ir_node_add(graph, IR_OP_REFORMAT, "reformat", 1, &x);
    uint32_t y = ir_node_output_add(graph, node, "y", DTYPE_F32, shape);
    assert_true(ir_tensor_set_format(graph, x, from) && ir_tensor_set_format(graph, y, to));
    return graph;
}

static void reformat_bytes_check(struct emulated *b, const struct shape *shape,
                                 struct ir_format from, struct ir_format to)
{
    struct ir_graph *graph = reformat_bytes_new(shape, from, to);
    const struct ir_tensor *x = ir_tensor(graph, 0), *y = ir_tensor(graph, 1);
    struct emulated_offers *list = emulated_ask(&b->device.base, graph, PRECISION_F16);
    struct backend_op *op = NULL;
    struct error err = {0};
    size_t n = 0;
    assert_true(shape_elements(shape, &n));
    float *plain = calloc(n, sizeof(float)), *got = calloc(n, sizeof(float));
    void *in = NULL, *out = NULL;
    assert_false(posix_memalign(&in, 16, x->bytes) || posix_memalign(&out, 16, y->bytes));
    fill_whole(plain, n);
    assert_true(value_store(graph, x, plain, in));
    const struct tactic *tactic = NULL; /* others offer what would not be asked for */
    for (uint32_t i = 0; i < list->n; i++)
        if (list->items[i].id >> 16 == CUDA_FAMILY_OWN_BYTES)
            tactic = &list->items[i];
    assert_non_null(tactic);
    assert_int_equal(
        backend_emulated.op_prepare(&b->stream, graph, ir_node(graph, 0), tactic, &op, &err),
        STATUS_OK);
    assert_int_equal(backend_emulated.op_launch(op, &b->stream, &in, &out, NULL, &err), STATUS_OK);
    backend_emulated.op_free(op);
    assert_true(value_load(graph, y, out, got));
    if (memcmp(plain, got, n * sizeof(float)) != 0)
        fail_msg("%s: other numbers", tactic->name);
    free(plain), free(got), free(in), free(out), free(list);
    ir_graph_free(graph);
}

static void every_reformat_of_bytes(void **state)
{
    static const struct ir_format formats[] = {
        {IR_LAYOUT_PLAIN, DTYPE_F32, 0},        {IR_LAYOUT_CHANNELS_LAST, DTYPE_F16, 0},
        {IR_LAYOUT_PLAIN, DTYPE_BF16, 0},       {IR_LAYOUT_PLAIN, DTYPE_U8, 1},
        {IR_LAYOUT_CHANNELS_LAST, DTYPE_U8, 1}, {IR_LAYOUT_PLAIN, DTYPE_I8, 2},
        {IR_LAYOUT_CHANNELS_LAST, DTYPE_I8, 2}, {IR_LAYOUT_PLAIN, DTYPE_F8, 3},
        {IR_LAYOUT_CHANNELS_LAST, DTYPE_F8, 3},
    };
    static const int64_t channels[] = {3, 16, 64};
    const size_t n = ARRAY_LEN(formats);
    CLEANUP(emulated_deinit) struct emulated b;
    emulated_init(&b);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(channels) * n * n; i++) {
        struct shape shape = {.rank = 4, .dim = {2, channels[i / n / n], 8, 9}};
        struct ir_format from = formats[i / n % n], to = formats[i % n];
        if (from.scale || to.scale)
            reformat_bytes_check(&b, &shape, from, to);
    }
}

/* Tactics that a damaged plan may ask for. */
static void stored_tactics_are_checked(void **state)
{
    struct shape shape = {.rank = 4, .dim = {2, 3, 4, 5}};
    CLEANUP(emulated_deinit) struct emulated b;
    struct backend_op *op = NULL;
    struct tactic tactic;
    emulated_init(&b);
    (void)state;
    struct ir_graph *graph =
        reformat_new(&shape, IR_LAYOUT_PLAIN, IR_LAYOUT_CHANNELS_LAST_8, DTYPE_F32, DTYPE_F16);
    const struct ir_node *node = ir_node(graph, 0);
    cuda_tactic(&tactic, &cuda_family_own_map, 1, graph, node, DTYPE_NONE, IR_LAYOUT_PLAIN, "");
    tactic.out[0].format.layout = IR_LAYOUT_CHANNELS_LAST_8;
    assert_int_equal(backend_emulated.op_prepare(&b.stream, graph, node, &tactic, &op, NULL),
                     STATUS_INVALID_ARGUMENT); /* no such variant */
    tactic.id = cuda_tactic_id(CUDA_FAMILY_OWN_MAP, 0);
    tactic.n_in = 0;
    assert_int_equal(backend_emulated.op_prepare(&b.stream, graph, node, &tactic, &op, NULL),
                     STATUS_INVALID_ARGUMENT);
    tactic.n_in = 1;
    tactic.out[0].format.layout = IR_LAYOUT_BLOCKED_8;
    assert_int_equal(backend_emulated.op_prepare(&b.stream, graph, node, &tactic, &op, NULL),
                     STATUS_INVALID_ARGUMENT);
    tactic.out[0].format.layout = IR_LAYOUT_CHANNELS_LAST_8;
    assert_int_equal(backend_emulated.op_prepare(&b.stream, graph, node, &tactic, &op, NULL),
                     STATUS_OK);
    backend_emulated.op_free(op);
    ir_graph_free(graph);
}

/* An index out of range raises the stream's flag; the rows of the other indices are right. */
static void gather_raises_the_flag(void **state)
{
    CLEANUP(emulated_deinit) struct emulated b;
    struct backend_op *op = NULL;
    struct tactic tactic;
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[4];
    int64_t at[2] = {1, 4};
    void *in[2] = {x, at}, *out = y;
    emulated_init(&b);
    (void)state;
    struct ir_graph *graph = ir_graph_new();
    struct shape table = {.rank = 2, .dim = {4, 2}}, two = {.rank = 1, .dim = {2}};
    struct shape rows = {.rank = 2, .dim = {2, 2}};
    uint32_t inputs[2] = {ir_tensor_add(graph, "x", DTYPE_F32, &table),
                          ir_tensor_add(graph, "at", DTYPE_I64, &two)};
    uint32_t node = ir_node_add(graph, IR_OP_GATHER, "gather", 2, inputs);
    assert_true(ir_attr_set_int(graph, node, IR_ATTR_AXIS, 0));
    assert_int_not_equal(ir_node_output_add(graph, node, "y", DTYPE_F32, &rows), IR_NONE);
    cuda_tactic(&tactic, &cuda_family_own_move, 0, graph, ir_node(graph, node), DTYPE_NONE,
                IR_LAYOUT_PLAIN, "");
    assert_int_equal(
        backend_emulated.op_prepare(&b.stream, graph, ir_node(graph, node), &tactic, &op, NULL),
        STATUS_OK);
    assert_int_equal(backend_emulated.op_launch(op, &b.stream, in, &out, NULL, NULL), STATUS_OK);
    assert_int_equal(b.flag, 1);
    assert_true(y[0] == 3 && y[1] == 4 && y[2] != y[2] && y[3] != y[3]);
    b.flag = 0;
    at[1] = -4;
    assert_int_equal(backend_emulated.op_launch(op, &b.stream, in, &out, NULL, NULL), STATUS_OK);
    assert_int_equal(b.flag, 0);
    assert_true(y[2] == 1 && y[3] == 2);
    backend_emulated.op_free(op);
    ir_graph_free(graph);
}

/* The same of any table of a sum of rows. */
static void embed_raises_the_flag(void **state)
{
    CLEANUP(emulated_deinit) struct emulated b;
    struct backend_op *op = NULL;
    struct tactic tactic;
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, rows[2] = {10, 20}, y[4];
    int64_t at[2] = {1, 0};
    int32_t other[2] = {-4, 4};
    void *in[6] = {x, at, rows, NULL, x, other}, *out = y;
    emulated_init(&b);
    (void)state;
    struct ir_graph *graph = ir_graph_new();
    struct shape table = {.rank = 2, .dim = {4, 2}}, two = {.rank = 1, .dim = {2}};
    uint32_t inputs[6] = {ir_tensor_add(graph, "x", DTYPE_F32, &table),
                          ir_tensor_add(graph, "at", DTYPE_I64, &two),
                          ir_tensor_add(graph, "rows", DTYPE_F32, &two),
                          IR_NONE,
                          ir_tensor_add(graph, "z", DTYPE_F32, &table),
                          ir_tensor_add(graph, "other", DTYPE_I32, &two)};
    uint32_t node = ir_node_add(graph, IR_OP_EMBED, "embed", 6, inputs);
    assert_int_equal(ir_infer_apply(graph, node, NULL, 0, NULL), STATUS_OK);
    cuda_tactic(&tactic, &cuda_family_own_embed, 0, graph, ir_node(graph, node), DTYPE_NONE,
                IR_LAYOUT_PLAIN, "");
    assert_int_equal(
        backend_emulated.op_prepare(&b.stream, graph, ir_node(graph, node), &tactic, &op, NULL),
        STATUS_OK);
    assert_int_equal(backend_emulated.op_launch(op, &b.stream, in, &out, NULL, NULL), STATUS_OK);
    assert_int_equal(b.flag, KERNEL_BAD_INDEX);
    assert_true(y[0] == 14 && y[1] == 26 && y[2] != y[2] && y[3] != y[3]);
    b.flag = 0;
    other[1] = 3;
    assert_int_equal(backend_emulated.op_launch(op, &b.stream, in, &out, NULL, NULL), STATUS_OK);
    assert_int_equal(b.flag, 0);
    assert_true(y[2] == 18 && y[3] == 30);
    backend_emulated.op_free(op);
    ir_graph_free(graph);
}

/* A row that names no place is left out; the others are put. */
static void scatter_raises_the_flag(void **state)
{
    CLEANUP(emulated_deinit) struct emulated b;
    struct backend_op *op = NULL;
    struct tactic tactic;
    float x[4] = {1, 2, 3, 4}, updates[3] = {10, 20, 30}, y[4];
    int64_t at[3] = {1, -5, 1};
    void *in[3] = {x, at, updates}, *out = y;
    emulated_init(&b);
    (void)state;
    struct ir_graph *graph = ir_graph_new();
    struct shape four = {.rank = 1, .dim = {4}}, three = {.rank = 1, .dim = {3}};
    struct shape rows = {.rank = 2, .dim = {3, 1}};
    uint32_t inputs[3] = {ir_tensor_add(graph, "x", DTYPE_F32, &four),
                          ir_tensor_add(graph, "at", DTYPE_I64, &rows),
                          ir_tensor_add(graph, "updates", DTYPE_F32, &three)};
    uint32_t node = ir_node_add(graph, IR_OP_SCATTER_ND, "scatter", 3, inputs);
    assert_int_not_equal(ir_node_output_add(graph, node, "y", DTYPE_F32, &four), IR_NONE);
    cuda_tactic(&tactic, &cuda_family_own_index, 0, graph, ir_node(graph, node), DTYPE_NONE,
                IR_LAYOUT_PLAIN, "");
    assert_int_equal(
        backend_emulated.op_prepare(&b.stream, graph, ir_node(graph, node), &tactic, &op, NULL),
        STATUS_OK);
    void *workspace = malloc(backend_emulated.op_workspace(op));
    assert_int_equal(backend_emulated.op_launch(op, &b.stream, in, &out, workspace, NULL),
                     STATUS_OK);
    assert_int_equal(b.flag, KERNEL_BAD_INDEX);
    assert_true(y[0] == 1 && y[1] == 30 && y[2] == 3 && y[3] == 4);
    b.flag = 0;
    at[1] = -4;
    assert_int_equal(backend_emulated.op_launch(op, &b.stream, in, &out, workspace, NULL),
                     STATUS_OK);
    assert_int_equal(b.flag, 0);
    assert_true(y[0] == 20 && y[1] == 30);
    free(workspace);
    backend_emulated.op_free(op);
    ir_graph_free(graph);
}

/* --- extremes --- */

static void set_range(struct ir_graph *graph, uint32_t tensor, enum dtype dtype, float step,
                      int32_t zero)
{
    const struct ir_scale scale = {
        .n = 1, .dtype = dtype, .step = &step, .zero = zero ? &zero : NULL};
    ir_tensor(graph, tensor)->range = ir_scale_add(graph, &scale);
}

static uint32_t add_equal(struct ir_graph *graph, struct shape shape, float value)
{
    size_t n = 0;
    assert_true(shape_elements(&shape, &n));
    float *data = arena_array(graph->arena, n, sizeof(*data));
    for (size_t i = 0; i < n; i++)
        data[i] = value;
    return ir_constant_add(graph, "w", DTYPE_F32, &shape, data);
}

/* Two sources whose weights are the largest numbers that INT8 has. */
static struct ir_graph *extreme_new(enum dtype dtype, int32_t zero)
{
    enum { FILTERS = 16, DEPTH = 256, SECOND = 16, SIDE = 9 };
    static const int64_t strides[2] = {1, 1};
    struct ir_graph *g = ir_graph_new();
    bool made = false;
    assert_non_null(g);
    uint32_t in[4] = {add_input(g, DTYPE_F32, DIMS(1, DEPTH, SIDE, SIDE)),
                      add_equal(g, DIMS(FILTERS, DEPTH, 1, 1), INT8_MAX),
                      add_input(g, DTYPE_F32, DIMS(1, SECOND, SIDE, SIDE)),
                      add_equal(g, DIMS(FILTERS, SECOND, 1, 1), INT8_MAX)};
    uint32_t node = ir_node_add(g, IR_OP_CONV_PAIR, "pair", 4, in);
    assert_true(ir_attr_set_ints(g, node, IR_ATTR_STRIDES, 2, strides) && finish(g, node));
    case_outputs(g);
    for (int i = 0; i < 4; i += 2) {
        set_range(g, in[i], dtype, 1, zero);
        assert_int_equal(quant_constant_range(g, in[i + 1], 0, DTYPE_I8, &made, NULL), STATUS_OK);
    }
    set_range(g, g->outputs[0], DTYPE_U8, 40000, 0);
    assert_int_equal(ir_verify(g, NULL), STATUS_OK);
    return g;
}

/* All of x is the largest number of its type, and the second source is 0. */
static void extreme_subject(struct ir_graph *graph, struct subject *out)
{
    const struct ir_tensor *x = ir_tensor(graph, graph->inputs[0]);
    const struct ir_tensor *second = ir_tensor(graph, graph->inputs[1]);
    const struct ir_tensor *y = ir_tensor(graph, graph->outputs[0]);
    const struct ir_scale *scale = ir_scale(graph, x->range);
    int32_t zero = scale->zero ? scale->zero[0] : 0;
    float most = (float)((scale->dtype == DTYPE_U8 ? UINT8_MAX : INT8_MAX) - zero);
    *out = (struct subject){.graph = graph, .dtype = DTYPE_F32};
    float *first = out->inputs[0] = value_new(x), *want = out->want[0] = value_new(y);
    out->inputs[1] = value_new(second);
    memset(out->inputs[1], 0, value_bytes(second));
    for (size_t i = 0; i < value_bytes(x) / sizeof(float); i++)
        first[i] = most;
    for (size_t i = 0; i < value_bytes(y) / sizeof(float); i++)
        want[i] = most * INT8_MAX * (float)x->shape.dim[1];
}

/* The first source's sums are as large as can be: kernels must not take them for less. */
static void largest_sums(void **state)
{
    static const struct {
        enum dtype dtype;
        int32_t zero;
    } rows[] = {{DTYPE_U8, 0}, {DTYPE_U8, 128}, {DTYPE_U8, 255}, {DTYPE_I8, 0}};
    CLEANUP(emulated_deinit) struct emulated b;
    emulated_init(&b);
    (void)state;
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        struct subject subject;
        uint32_t tried = 0;
        extreme_subject(extreme_new(rows[r].dtype, rows[r].zero), &subject);
        struct emulated_offers *list = emulated_ask(&b.device.base, subject.graph, PRECISION_F16);
        for (uint32_t i = 0; i < list->n; i++) {
            struct outcome out = {0};
            struct error err = {0};
            if (list->items[i].id >> 16 != CUDA_FAMILY_OWN_PAIR)
                continue;
            struct ir_graph *graph = extreme_new(rows[r].dtype, rows[r].zero);
            if (trial_run(&b.trial, &subject, graph, &list->items[i], 0, &out, &err))
                fail_msg("'%s': %s", list->items[i].name, err.text);
            if (!(out.error <= 0.5))
                fail_msg("'%s', zero point %d: error %g", list->items[i].name, (int)rows[r].zero,
                         out.error);
            ir_graph_free(graph);
            tried++;
        }
        assert_true(tried > 0);
        free(list);
        subject_deinit(&subject);
    }
}

static struct ir_graph *deep_new(int64_t depth)
{
    struct ir_graph *g = ir_graph_new();
    bool made = false;
    assert_non_null(g);
    uint32_t in[2] = {add_input(g, DTYPE_F32, DIMS(4, depth)), add_equal(g, DIMS(depth, 16), 1)};
    uint32_t node = ir_node_add(g, IR_OP_MATMUL, "product", 2, in);
    assert_true(node != IR_NONE && finish(g, node));
    case_outputs(g);
    set_range(g, in[0], DTYPE_U8, 1, 0);
    assert_int_equal(quant_constant_range(g, in[1], 1, DTYPE_I8, &made, NULL), STATUS_OK);
    set_range(g, g->outputs[0], DTYPE_U8, (float)depth, 0);
    assert_int_equal(ir_verify(g, NULL), STATUS_OK);
    return g;
}

/* Sums of integers have 32 bits. */
static void deeper_than_integers_count(void **state)
{
    enum { MOST = INT32_MAX / (255 * 128) / 16 * 16 };
    CLEANUP(emulated_deinit) struct emulated b;
    emulated_init(&b);
    (void)state;
    for (int deeper = 0; deeper < 2; deeper++) {
        struct ir_graph *graph = deep_new(MOST + 16 * deeper);
        struct emulated_offers *list = emulated_ask(&b.device.base, graph, PRECISION_F16);
        uint32_t n = 0;
        for (uint32_t i = 0; i < list->n; i++)
            n += list->items[i].id >> 16 == CUDA_FAMILY_OWN_SCALED;
        assert_int_equal(n > 0, !deeper);
        free(list);
        ir_graph_free(graph);
    }
}

int main(int argc, char **argv)
{
    only = argc > 1 && strcmp(argv[1], "all") != 0 ? argv[1] : NULL;
    seeds = argc > 2 ? strtoull(argv[2], NULL, 10) : SEEDS;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_candidate),
        cmocka_unit_test(recurrent_on_a_small_device),
        cmocka_unit_test(every_candidate_in_bytes),
        cmocka_unit_test(every_reformat),
        cmocka_unit_test(every_reformat_of_bytes),
        cmocka_unit_test(stored_tactics_are_checked),
        cmocka_unit_test(embed_raises_the_flag),
        cmocka_unit_test(gather_raises_the_flag),
        cmocka_unit_test(scatter_raises_the_flag),
        cmocka_unit_test(largest_sums),
        cmocka_unit_test(deeper_than_integers_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
