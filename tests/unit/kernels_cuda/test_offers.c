/* SPDX-License-Identifier: Apache-2.0 */
/* What the families of our own kernels offer: for which nodes, on which device, in which order. */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/mlp.h"
#include "engine/tune/tune.h"
#include "kernels/cuda/kernels_hopper.h"
#include "tests/device/ranged.h"
#include "tests/unit/kernels_cuda/emulated.h"
#include "tests/test.h"

/* Variants of own scaled. */
enum {
    FIRST_FOR_BYTES = EMULATED_TILES + 1,
    FIRST_SPLIT = EMULATED_TILES + KERNEL_TILE_SPLIT,
    FIRST_WIDE = EMULATED_TILES + KERNEL_TILE_WIDE
};

/* Those of one family, from a variant on. */
static uint32_t count_family(struct emulated *b, const struct ir_graph *graph, uint32_t family,
                             uint32_t first)
{
    uint32_t n = 0;
    struct emulated_offers *list = emulated_ask(&b->device.base, graph, PRECISION_F16);
    for (uint32_t i = 0; i < list->n; i++)
        n += list->items[i].id >> 16 == family && cuda_tactic_variant(&list->items[i]) >= first;
    free(list);
    return n;
}

static const struct case_kind *kind_of(const char *name)
{
    const struct case_kind *kind = case_kinds;
    while (strcmp(kind->name, name) != 0)
        kind++;
    return kind;
}

/* Products on Hopper are offered to no other device, and those of 16 bits that do not divide the
 * depth only to those who ask for them. */
static void products_by_request(void **state)
{
    CLEANUP(emulated_deinit) struct emulated b;
    enum { SPLIT = 8 }; /* the first row that divides the depth; those write FP32, too */
    const int products = KERNEL_MATMUL_PATCH - 1 + KERNEL_MATMUL_PATCH - SPLIT;
    emulated_init(&b);
    (void)state;
    struct ir_graph *graph = case_new(kind_of("matmul-deep"), 131);
    assert_int_equal(count_family(&b, graph, CUDA_FAMILY_OWN_MATMUL, 0), products);
    b.device.properties.major = 8;
    assert_int_equal(count_family(&b, graph, CUDA_FAMILY_OWN_MATMUL, 0), 0);
    b.device.properties.major = 9;
    assert_int_equal(unsetenv("INFERD_OWN_MATMUL"), 0);
    assert_int_equal(count_family(&b, graph, CUDA_FAMILY_OWN_MATMUL, 0),
                     2 * (KERNEL_MATMUL_PATCH - SPLIT));
    ir_graph_free(graph);
}

/* A chain of equal layers. */
static struct ir_graph *chain_new(enum dtype dtype, uint32_t layers, int64_t width)
{
    int64_t widths[MLP_LAYERS_MAX], funcs[MLP_LAYERS_MAX] = {0};
    float constants[MLP_LAYERS_MAX] = {0};
    struct shape x = {.rank = 2, .dim = {3, width}}, b = {.rank = 1, .dim = {layers * width}},
                 w = {.rank = 1, .dim = {layers * width * width}};
    struct ir_graph *graph = ir_graph_new();
    assert_non_null(graph);
    for (uint32_t i = 0; i < layers; i++)
        widths[i] = width;
    void *data = arena_array(graph->arena, (size_t)w.dim[0], dtype_size(dtype));
    assert_non_null(data);
    memset(data, 0, (size_t)w.dim[0] * dtype_size(dtype));
    const uint32_t in[3] = {ir_tensor_add(graph, "x", dtype, &x),
                            ir_constant_add(graph, "w", dtype, &w, data),
                            ir_constant_add(graph, "b", dtype, &b, data)};
    uint32_t node = ir_node_add(graph, IR_OP_MLP, "mlp", 3, in);
    assert_true(ir_attr_set_ints(graph, node, IR_ATTR_WIDTHS, layers, widths) &&
                ir_attr_set_ints(graph, node, IR_ATTR_FUNCS, layers, funcs) &&
                ir_attr_set_floats(graph, node, IR_ATTR_ALPHAS, layers, constants) &&
                ir_attr_set_floats(graph, node, IR_ATTR_BETAS, layers, constants));
    assert_int_equal(ir_infer_apply(graph, node, NULL, 0, NULL), STATUS_OK);
    return graph;
}

static uint32_t count_types(struct emulated *b, const struct ir_graph *graph,
                            enum precision precision, enum dtype dtype)
{
    struct emulated_offers *list = emulated_ask(&b->device.base, graph, precision);
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->n; i++)
        n += list->items[i].in[0].format.dtype == dtype;
    free(list);
    return n;
}

/* Every chain that fits by base/mlp.h, as fuse_mlp asks, has candidates in its type, and in FP32,
 * which the bound on the error may ask for, even where that does not fit. */
static void chains_that_fit_are_taken(void **state)
{
    static const uint64_t rooms[] = {227 << 10, 163 << 10, 99 << 10, 64 << 10};
    CLEANUP(emulated_deinit) struct emulated b;
    emulated_init(&b);
    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(rooms) * MLP_LAYERS_MAX; i++) {
        uint64_t limit = rooms[i / MLP_LAYERS_MAX];
        uint32_t layers = i % MLP_LAYERS_MAX + 1;
        int32_t widths[MLP_LAYERS_MAX + 1], width = 0;
        struct mlp_room room;
        do { /* the widest that fits */
            width++;
            for (uint32_t k = 0; k <= layers; k++)
                widths[k] = width;
        } while (mlp_room(widths, layers, 2, &room) &&
                 mlp_room_bytes(&room, MLP_ROWS_LEAST) <= limit);
        b.device.properties.sharedMemPerBlockOptin = limit;
        struct ir_graph *fits = chain_new(DTYPE_F32, layers, width - 1);
        struct ir_graph *wider = chain_new(DTYPE_F32, layers, width);
        assert_in_range(count_types(&b, fits, PRECISION_F16, DTYPE_F16), 1, KERNEL_MLP_VARIANTS);
        assert_in_range(count_types(&b, fits, PRECISION_BF16, DTYPE_BF16), 1, KERNEL_MLP_VARIANTS);
        assert_in_range(count_types(&b, fits, PRECISION_F16, DTYPE_F32), 1, KERNEL_MLP_VARIANTS);
        assert_int_equal(count_types(&b, wider, PRECISION_F16, DTYPE_F16), 0);
        assert_in_range(count_types(&b, wider, PRECISION_F32, DTYPE_F32), 1, KERNEL_MLP_VARIANTS);
        ir_graph_free(fits);
        ir_graph_free(wider);
    }
}

/* Candidates of a graph of this kind. */
static uint32_t count_of(struct emulated *b, const char *name, enum precision precision)
{
    uint32_t n = 0;
    for (const struct case_kind *kind = case_kinds; kind->name; kind++) {
        if (strcmp(kind->name, name) != 0)
            continue;
        struct ir_graph *graph = case_new(kind, 131);
        assert_non_null(graph);
        struct emulated_offers *list = emulated_ask(&b->device.base, graph, precision);
        n += list->n;
        free(list);
        ir_graph_free(graph);
    }
    return n;
}

/* Nothing but our kernels for Hopper runs a convolution and its pool as one node, or the sum of two
 * convolutions, and that not in FP32: the passes that make such nodes ask for candidates first. */
static void fusions_on_hopper_alone(void **state)
{
    CLEANUP(emulated_deinit) struct emulated b;
    emulated_init(&b);
    (void)state;
    /* two layouts of the image, in FP32 and in 16 bits */
    assert_int_equal(count_of(&b, "conv-pool", PRECISION_F16), 4);
    assert_int_equal(count_of(&b, "conv-pool", PRECISION_BF16), 4);
    assert_int_equal(count_of(&b, "conv-pool", PRECISION_F32), 0);
    assert_true(count_of(&b, "conv-pair", PRECISION_F16) > 0);
    assert_true(count_of(&b, "conv-pair", PRECISION_BF16) > 0);
    assert_int_equal(count_of(&b, "conv-pair", PRECISION_F32), 0);
    b.device.properties.major = 8;
    assert_int_equal(count_of(&b, "conv-pool", PRECISION_F16), 0);
    assert_int_equal(count_of(&b, "conv-pair", PRECISION_F16), 0);
}

/* Convolutions whose windows tensor copies read are for Hopper alone, in 16 bits and in 8; some of
 * them share a tile's depth among blocks. */
static void windows_on_hopper(void **state)
{
    CLEANUP(emulated_deinit) struct emulated b;
    struct error err = {0};
    struct subject subject;
    emulated_init(&b);
    assert_int_equal(unsetenv("INFERD_OWN_MATMUL"), 0);
    (void)state;
    const struct case_kind *kind = kind_of("conv-wide");
    uint32_t half = 0, bytes = 0, splits = 0, wide = 0, elsewhere = 0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        if (subject_init_ranged(&subject, case_new(kind, seed), seed, DTYPE_I8, &err))
            fail_msg("%s", err.text);
        struct ir_graph *graph = emulated_ranged(kind, seed, &subject);
        half += count_family(&b, graph, CUDA_FAMILY_OWN_MATMUL, 1);
        bytes += count_family(&b, graph, CUDA_FAMILY_OWN_SCALED, FIRST_FOR_BYTES);
        splits += count_family(&b, graph, CUDA_FAMILY_OWN_SCALED, FIRST_SPLIT);
        wide += count_family(&b, graph, CUDA_FAMILY_OWN_SCALED, FIRST_WIDE);
        b.device.properties.major = 8;
        elsewhere += count_family(&b, graph, CUDA_FAMILY_OWN_MATMUL, 1) +
                     count_family(&b, graph, CUDA_FAMILY_OWN_SCALED, FIRST_FOR_BYTES);
        b.device.properties.major = 9;
        ir_graph_free(graph);
        subject_deinit(&subject);
    }
    print_message("%u in 16 bits, %u in 8, of which %u split and %u wide\n", half, bytes,
                  splits - wide, wide);
    assert_true(half > 0 && bytes > splits && splits > wide && wide > 0 && elsewhere == 0);
}

/* Candidates of a family, from a variant on, for some cases whose tensors have ranges. */
static uint32_t count_ranged(struct emulated *b, const char *name, enum dtype bytes,
                             uint32_t family, uint32_t first)
{
    struct error err = {0};
    uint32_t n = 0;
    for (uint64_t seed = 1; seed <= 64; seed++) {
        struct subject subject;
        if (subject_init_ranged(&subject, case_new(kind_of(name), seed), seed, bytes, &err))
            fail_msg("%s", err.text);
        struct ir_graph *graph = emulated_ranged(kind_of(name), seed, &subject);
        n += count_family(b, graph, family, first);
        ir_graph_free(graph);
        subject_deinit(&subject);
    }
    return n;
}

/* All rows of bytes are offered unasked: of FP8, and those of two sources that share depths. */
static void bytes_unasked(void **state)
{
    CLEANUP(emulated_deinit) struct emulated b;
    emulated_init(&b);
    assert_int_equal(unsetenv("INFERD_OWN_MATMUL"), 0);
    (void)state;
    const uint32_t f8 = count_ranged(&b, "conv-wide", DTYPE_F8, CUDA_FAMILY_OWN_SCALED, 0);
    const uint32_t wide =
        count_ranged(&b, "conv-wide", DTYPE_F8, CUDA_FAMILY_OWN_SCALED, FIRST_WIDE);
    const uint32_t pairs = count_ranged(&b, "conv-pair", DTYPE_I8, CUDA_FAMILY_OWN_PAIR, 0);
    const uint32_t splits =
        count_ranged(&b, "conv-pair", DTYPE_I8, CUDA_FAMILY_OWN_PAIR, KERNEL_TILE_SPLIT);
    print_message("%u of FP8, %u wide; %u of two sources, %u split\n", f8, wide, pairs, splits);
    assert_true(f8 > wide && wide > 0 && pairs > splits && splits > 0);
}

/* Two convolutions in a row have kernels for 8 bits on Hopper, and no other one. */
static void chains_of_bytes(void **state)
{
    CLEANUP(emulated_deinit) struct emulated b;
    emulated_init(&b);
    (void)state;
    assert_true(count_ranged(&b, "conv-chain", DTYPE_I8, CUDA_FAMILY_OWN_CHAIN, 0) > 0);
    assert_true(count_ranged(&b, "conv-chain", DTYPE_F8, CUDA_FAMILY_OWN_CHAIN, 0) > 0);
    assert_true(count_ranged(&b, "conv-pair", DTYPE_F8, CUDA_FAMILY_OWN_PAIR, 0) > 0);
    assert_int_equal(count_of(&b, "conv-chain", PRECISION_F16), 0);
    assert_int_equal(count_of(&b, "conv-chain", PRECISION_F32), 0);
    b.device.properties.major = 8;
    assert_int_equal(count_ranged(&b, "conv-chain", DTYPE_I8, CUDA_FAMILY_OWN_CHAIN, 0), 0);
}

/* A convolution of bytes of one tap or 3x3, padded to the image's size before its steps. */
struct layer {
    int64_t images, side, channels, filters, taps, step;
};

static struct ir_graph *layer_new(const struct layer *l)
{
    int64_t y_side = (l->side - 1) / l->step + 1, n_y = l->images * l->filters * y_side * y_side;
    int64_t n_w = l->filters * l->channels * l->taps * l->taps;
    const int64_t pad = l->taps / 2, pads[4] = {pad, pad, pad, pad}, steps[2] = {l->step, l->step};
    struct shape x = {.rank = 4, .dim = {l->images, l->channels, l->side, l->side}};
    struct shape w = {.rank = 4, .dim = {l->filters, l->channels, l->taps, l->taps}};
    struct ir_graph *graph = ir_graph_new();
    assert_non_null(graph);
    float *data = arena_array(graph->arena, (size_t)n_w, sizeof(float));
    float *ones = calloc((size_t)n_y, sizeof(float));
    assert_true(data && ones);
    for (int64_t i = 0; i < n_w; i++)
        data[i] = (float)(i % 15 - 7);
    for (int64_t i = 0; i < n_y; i++)
        ones[i] = 1;
    const uint32_t in[2] = {ir_tensor_add(graph, "x", DTYPE_F32, &x),
                            ir_constant_add(graph, "w", DTYPE_F32, &w, data)};
    uint32_t node = ir_node_add(graph, IR_OP_CONV, "conv", 2, in);
    graph->inputs[graph->n_inputs++] = in[0];
    assert_true(ir_attr_set_ints(graph, node, IR_ATTR_PADS, 4, pads) &&
                ir_attr_set_ints(graph, node, IR_ATTR_STRIDES, 2, steps));
    assert_int_equal(ir_infer_apply(graph, node, NULL, 0, NULL), STATUS_OK);
    uint32_t y = ir_node(graph, node)->outputs[0];
    assert_int_equal(ranged_inputs(graph, 0, DTYPE_I8, NULL), STATUS_OK);
    assert_int_equal(ranged_output(graph, y, ones, 0, DTYPE_I8, NULL), STATUS_OK);
    free(ones);
    return graph;
}

/* Without timing, the layers of ResNet-50 get the tiles that timing on an H200 chose, or such as
 * come near. Where rows are few and depth is large, these come before what libraries have. */
static void first_tiles_of_bytes(void **state)
{
    static const struct {
        struct layer layer;
        const char *name;
        bool leads;
    } rows[] = {
        {{1, 56, 64, 64, 3, 1}, "patch 64", false},
        {{1, 28, 128, 128, 3, 1}, "patch 128", false},
        {{1, 56, 128, 128, 3, 2}, "64x32 by 2", false},
        {{1, 28, 512, 128, 1, 1}, "64x32 by 2", false},
        {{1, 14, 256, 256, 3, 1}, "64x32 by 4", true},
        {{1, 14, 1024, 256, 1, 1}, "64x32 by 4", true},
        {{1, 14, 1024, 512, 1, 1}, "64x32 by 2", true},
        {{1, 7, 512, 512, 3, 1}, "64x32 by 8", true},
        {{1, 7, 2048, 512, 1, 1}, "64x32 by 8", true},
        {{1, 7, 512, 2048, 1, 1}, "64x32 by 2", false},
        {{1, 14, 256, 1024, 1, 1}, "64x64 k9", false},
        {{1, 56, 256, 64, 1, 1}, "64x64 k9", false},
        {{8, 28, 512, 128, 1, 1}, "64x64 k9", false},
        {{8, 28, 128, 512, 1, 1}, "64x256 k2", false},
        {{8, 14, 256, 256, 3, 1}, "64x64 by 2", false},
        {{8, 14, 256, 1024, 1, 1}, "64x128 k8", false},
        {{8, 7, 512, 512, 3, 1}, "64x64 by 4", false},
        {{8, 7, 2048, 512, 1, 1}, "64x64 by 4", false},
        {{32, 7, 512, 2048, 1, 1}, "64x256 k4", false},
        {{128, 14, 256, 1024, 1, 1}, "64x256 k2", false},
    };
    CLEANUP(emulated_deinit) struct emulated b;
    emulated_init(&b);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ir_graph *graph = layer_new(&rows[i].layer);
        const struct ir_node *node = ir_node(graph, 0);
        struct emulated_offers *list = emulated_ask(&b.device.base, graph, PRECISION_F16);
        const struct tactic *first = NULL;
        for (uint32_t k = 0; k < list->n && !first; k++)
            if (list->items[k].id >> 16 == CUDA_FAMILY_OWN_SCALED)
                first = &list->items[k];
        assert_non_null(first);
        if (!strstr(first->name, rows[i].name))
            fail_msg("row %zu: %s", i, first->name);
        assert_int_equal(cuda_family_own_scaled.leads(&b.device, graph, node), rows[i].leads);
        b.device.properties.major = 8;
        assert_false(cuda_family_own_scaled.leads(&b.device, graph, node));
        b.device.properties.major = 9;
        free(list);
        ir_graph_free(graph);
    }
}

/* The first candidate whose results have so many bytes, and the image as models have it; NULL:
 * none. */
static const struct tactic *plain_images(const struct emulated_offers *list, size_t size)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const struct ir_format *x = &list->items[i].in[0].format;
        if (x->layout == IR_LAYOUT_PLAIN && x->dtype == DTYPE_F32 &&
            dtype_size(list->items[i].out[0].format.dtype) == size)
            return &list->items[i];
    }
    return NULL;
}

/* First layers read FP32 images where they lie, for results of 16 bits and of 8: without timing
 * such a tactic is the first. What turns numbers into bytes is in the tactic, since plans have no
 * ranges. */
static void first_layers_read_images(void **state)
{
    CLEANUP(emulated_deinit) struct emulated b;
    const struct case_kind *kind = kind_of("conv-pool");
    struct error err = {0};
    uint32_t n = 0;
    emulated_init(&b);
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct subject subject;
        if (subject_init_ranged(&subject, case_new(kind, seed), seed, DTYPE_I8, &err))
            fail_msg("%s", err.text);
        struct ir_graph *graph = emulated_ranged(kind, seed, &subject);
        struct emulated_offers *list = emulated_ask(&b.device.base, graph, PRECISION_F16);
        if (ir_tensor(graph, ir_node(graph, 0)->inputs[0])->dtype == DTYPE_F32) {
            const struct tactic *bytes = plain_images(list, 1);
            assert_ptr_equal(plain_images(list, 2), &list->items[0]);
            assert_true(bytes && bytes->out[0].format.scale && bytes->blob_size > 0);
            assert_int_equal(list->items[0].blob_size, 0);
            n++;
        }
        free(list);
        ir_graph_free(graph);
        subject_deinit(&subject);
    }
    assert_true(n > 0);
}

/* The tuner's own stream and events, which it only makes if nothing is timed. */
static enum status no_stream(struct device *device, struct backend_stream **out,
                             struct error *err UNUSED)
{
    *out = calloc(1, sizeof(**out));
    assert_non_null(*out);
    (*out)->device = cuda_device_of(device);
    return STATUS_OK;
}

static void free_stream(struct backend_stream *stream)
{
    free(stream);
}

static enum status no_event(struct device *device UNUSED, bool timing UNUSED,
                            struct backend_event **out, struct error *err UNUSED)
{
    *out = NULL;
    return STATUS_OK;
}

/* Without timing, too, nothing is in front of a first layer that reads FP32 images: neither in 16
 * bits nor, by ranges, in 8. */
static void no_reformat_before_first_layers(void **state)
{
    CLEANUP(emulated_deinit) struct emulated b;
    struct backend scales = backend_emulated;
    const struct case_kind *kind = kind_of("conv-pool");
    uint32_t n = 0;
    emulated_init(&b);
    (void)state;
    scales.features = BACKEND_SCALES;
    scales.stream_new = no_stream, scales.stream_free = free_stream;
    scales.event_new = no_event;
    b.device.base.backend = &scales;
    const struct tune_options options = {
        .device = &b.device.base, .precision = PRECISION_F16, .no_timing = true};
    for (uint64_t seed = 1; seed <= 64; seed++) {
        struct subject subject;
        struct error err = {0};
        if (subject_init_ranged(&subject, case_new(kind, seed), seed, DTYPE_I8, &err))
            fail_msg("%s", err.text);
        struct ir_graph *graphs[] = {case_new(kind, seed), emulated_ranged(kind, seed, &subject)};
        for (size_t i = 0; i < ARRAY_LEN(graphs); i++) {
            const struct ir_node *node = ir_node(graphs[i], 0);
            bool floats = ir_tensor(graphs[i], node->inputs[0])->dtype == DTYPE_F32;
            if (tune_graph(graphs[i], &options, NULL, &err))
                fail_msg("%s", err.text);
            node = ir_node(graphs[i], 0);
            assert_true(!floats || (node->op == IR_OP_CONV_POOL &&
                                    node->tactic->in[0].format.dtype == DTYPE_F32));
            n += floats;
            ir_graph_free(graphs[i]);
        }
        subject_deinit(&subject);
    }
    assert_true(n > 0);
}

/* 1x1 convolutions whose channels no vector divides are products first, but not of images. */
static void products_of_odd_channels_come_first(void **state)
{
    static const struct {
        struct layer layer;
        bool leads;
    } rows[] = {
        {{1, 14, 116, 116, 1, 1}, true},  {{1, 28, 58, 64, 1, 1}, true},
        {{1, 28, 64, 58, 1, 1}, true},    {{1, 14, 128, 128, 1, 1}, false},
        {{1, 14, 116, 116, 3, 1}, false}, {{1, 14, 116, 116, 1, 2}, false},
        {{1, 56, 3, 64, 1, 1}, false},
    };
    CLEANUP(emulated_deinit) struct emulated b;
    emulated_init(&b);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ir_graph *graph = layer_new(&rows[i].layer);
        if (cuda_family_lt_conv.leads(&b.device, graph, ir_node(graph, 0)) != rows[i].leads)
            fail_msg("row %zu", i);
        ir_graph_free(graph);
    }
}

static struct ir_graph *attention_new(int64_t n, int64_t queries, int64_t keys, int64_t heads,
                                      int64_t columns)
{
    const struct shape q = {.rank = 3, .dim = {n, queries, heads * columns}};
    const struct shape k = {.rank = 3, .dim = {n, keys, heads * columns}};
    struct ir_graph *graph = ir_graph_new();
    assert_non_null(graph);
    const uint32_t in[3] = {ir_tensor_add(graph, "q", DTYPE_F32, &q),
                            ir_tensor_add(graph, "k", DTYPE_F32, &k),
                            ir_tensor_add(graph, "v", DTYPE_F32, &k)};
    uint32_t node = ir_node_add(graph, IR_OP_ATTENTION, "attention", 3, in);
    assert_true(ir_attr_set_int(graph, node, IR_ATTR_HEADS, heads) &&
                ir_attr_set_int(graph, node, IR_ATTR_KV_HEADS, heads) &&
                ir_attr_set_float(graph, node, IR_ATTR_ALPHA, 0.125F));
    assert_int_equal(ir_infer_apply(graph, node, NULL, 0, NULL), STATUS_OK);
    return graph;
}

/* Attention over few keys is our own kernels' first, where many blocks pass over all keys. */
static void attention_over_few_keys_comes_first(void **state)
{
    static const struct {
        int64_t n, queries, keys, heads, columns;
        bool leads;
    } rows[] = {
        {2048, 49, 49, 3, 32, true},   {32, 197, 197, 12, 64, true},  {32, 256, 256, 12, 64, true},
        {32, 257, 257, 12, 64, false}, {8, 1500, 1500, 6, 64, false}, {1, 1, 128, 12, 64, false},
    };
    CLEANUP(emulated_deinit) struct emulated b;
    emulated_init(&b);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ir_graph *graph =
            attention_new(rows[i].n, rows[i].queries, rows[i].keys, rows[i].heads, rows[i].columns);
        const struct ir_node *node = ir_node(graph, 0);
        if (cuda_family_own_attention.leads(&b.device, graph, node) != rows[i].leads)
            fail_msg("row %zu", i);
        ir_graph_free(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_odd_channels_come_first),
        cmocka_unit_test(attention_over_few_keys_comes_first),
        cmocka_unit_test(windows_on_hopper),
        cmocka_unit_test(bytes_unasked),
        cmocka_unit_test(chains_of_bytes),
        cmocka_unit_test(first_tiles_of_bytes),
        cmocka_unit_test(products_by_request),
        cmocka_unit_test(chains_that_fit_are_taken),
        cmocka_unit_test(fusions_on_hopper_alone),
        cmocka_unit_test(first_layers_read_images),
        cmocka_unit_test(no_reformat_before_first_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
