/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of cuDNN's ways to run a convolution are worth timing.
 *
 * Precompiled kernels cost nothing to make ready. Listed are what the heuristics propose (HEURISTIC
 * of them) and each engine of the pool once, with its default knobs. Engines that compile at run
 * time cost up to a second of a core each, so a rule bounds their number. The one for sm_90,
 * recognised as the one with the most kernel configurations below 64, is the best on most small
 * layers and on some large ones. It is listed, counting output tiles of 128x128:
 *
 *   - with its default knobs, and as the heuristics for its pool set it (they ask the engine, which
 *     takes a driver and a tenth of a second);
 *   - with KERNEL_CFG values in an order whose first six have different tile shapes: six values, or
 *     four if there are more than four waves of tiles.
 *
 * Where the heuristics answer, the tuner compiles what they say and, unless it is to be thorough,
 * nothing else of that engine: over ResNet-50 on an H200 the other values of KERNEL_CFG gain 0.04 %
 * at most (batches 1, 8 and 128), while the heuristics' first alone loses 7 % (batch 1). K split in
 * parts is not listed: it was refused, or took 1.06 to 9 times as long as the best. Where they do
 * not answer, the values are tried in waves.
 *
 * What comes first is what plans without timing use. In 16 bits, where the output has no more tiles
 * than the device has multiprocessors, that is the sm_90 engine as the heuristics set it, else what
 * the heuristics name first. Over the layers of ResNet-50 on an H200 (batches 1, 32 and 128) some
 * configuration of that engine was the best for 24 of the 29 layers with at most 98 tiles, and for
 * 11 of the 40 with 196 and more. Of first layers, kernels on tensor cores come first.
 *
 * Whether such an engine really takes the graph shows only when it compiles: asking here would cost
 * as much. Other run-time engines are listed only if there is no other way (an epilogue of their
 * own kind).
 */
#include <string.h>

#include "base/compiler.h"
#include "engine/cuda/dnn_conv.h"

enum {
    HEURISTIC = 24,
    HEURISTIC_FEW = 8, /* of each layout, when there are several */
    HEURISTIC_RUNTIME = 3,
    CONFIGS_BEST = 64, /* run-time engines with fewer kernel configurations than this */
    CONFIGS_LEAST = 16,
    FIRST = 6,      /* so many of the heuristics' configurations go before the run-time engine's */
    MANY = 528,     /* tiles; with more, only MANY_CONFIGS kernel configurations are listed */
    ONE_WAVE = 132, /* tiles, one for each multiprocessor */
    MANY_CONFIGS = 4,
    LAST_WAVE = 3, /* which the tuner hardly ever comes to (engine/tune/wave.c) */
};

/* These were seen to span the tile shapes (cuDNN 9.19, H200). A value that an older version lacks
 * fails to compile. */
static const int32_t kernel_configs[] = {2, 10, 6, 14, 42, 44};

struct list {
    const struct conv *conv;
    struct dnn_build *build;
    struct dnn_engine engine[DNN_ENGINES_MAX];
    bool usable[DNN_ENGINES_MAX];
    bool seen[DNN_ENGINES_MAX];
    uint32_t n_engines;
    uint8_t wave; /* of run-time engines that are put from here on */
    struct conv_choice *out;
    uint32_t *n;
};

static bool same(const struct conv_choice *a, const struct conv_choice *b)
{
    return a->spelling == b->spelling && a->layout == b->layout &&
           a->config.engine == b->config.engine && a->config.n_knobs == b->config.n_knobs &&
           memcmp(a->config.knob, b->config.knob, sizeof(a->config.knob)) == 0;
}

static void put(struct list *l, const struct dnn_config *config)
{
    struct conv_choice c = {.spelling = (enum conv_spelling)l->conv->spec.spelling,
                            .layout = l->conv->layout,
                            .config = *config};
    if (l->engine[config->engine].runtime) {
        c.kin = (uint8_t)(1 + l->conv->layout);
        c.wave = l->wave;
    }
    for (uint32_t i = 0; i < *l->n; i++)
        if (same(&l->out[i], &c))
            return;
    if (*l->n < CONV_CHOICES_MAX)
        l->out[(*l->n)++] = c;
    l->seen[config->engine] = true;
}

/* Strict fp32 excludes tensor cores, which compute on ten bits of fraction. The quickest kernels
 * for the first layer sum in half precision: they are allowed for half types only, whose results
 * have no more digits than that. */
static bool allowed(const struct dnn_engine *e, enum dtype io, bool strict)
{
    return !e->coarse && (io != DTYPE_F32 || !e->half_sums) &&
           (!strict || (!e->down_converts && !e->tensor_core));
}

static void read_engines(struct list *l, bool strict)
{
    l->n_engines = dnn_engine_count(l->build);
    for (uint32_t i = 0; i < l->n_engines; i++)
        l->usable[i] = dnn_engine_read(l->build, (int32_t)i, &l->engine[i]) &&
                       allowed(&l->engine[i], (enum dtype)l->conv->spec.io, strict);
}

static void put_heuristics(struct list *l, const struct dnn_config *found, uint32_t from,
                           uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        if ((uint32_t)found[i].engine < l->n_engines && l->usable[found[i].engine])
            put(l, &found[i]);
}

/* Moves what runs on tensor cores ahead, which heuristics do not for few filters: without them a
 * first layer of 16 filters took 341 us of 32 images on an H200, where 26 are enough. */
static void prefer_tensor_cores(const struct list *l, struct dnn_config *found, uint32_t n)
{
    uint32_t to = 0;
    for (uint32_t i = 0; i < n && l->conv->spec.io != DTYPE_F32; i++) {
        struct dnn_config one = found[i];
        if ((uint32_t)one.engine >= l->n_engines || !l->engine[one.engine].tensor_core)
            continue;
        memmove(&found[to + 1], &found[to], (i - to) * sizeof(one));
        found[to++] = one;
    }
}

static void put_defaults(struct list *l, bool runtime)
{
    for (uint32_t i = 0; i < l->n_engines; i++)
        if (l->usable[i] && !l->seen[i] && l->engine[i].runtime == runtime)
            put(l, &(struct dnn_config){.engine = (int32_t)i});
}

static int32_t best_runtime(const struct list *l)
{
    int32_t best = -1;
    for (uint32_t i = 0; i < l->n_engines; i++) {
        const struct dnn_engine *e = &l->engine[i];
        if (l->usable[i] && e->runtime && e->kernel_config >= CONFIGS_LEAST &&
            e->kernel_config < CONFIGS_BEST &&
            (best < 0 || e->kernel_config > l->engine[best].kernel_config))
            best = (int32_t)i;
    }
    return best;
}

static int64_t output_tiles(const struct conv_spec *s)
{
    int64_t rows = s->y[0] * s->y[2] * s->y[3] * s->y[4];
    return ((rows + 127) / 128) * ((s->y[1] + 127) / 128);
}

/* Whether the sm_90 engine is the best guess for a convolution in 16 bits. Images, whose channels
 * are padded to 8 at most, have kernels of their own. */
static bool is_small(const struct conv_spec *s)
{
    return !s->transposed && s->w[1] == s->x[1] && s->x[1] > 8 && output_tiles(s) <= ONE_WAVE;
}

/* `answered`: the heuristics have put what they like. */
static void put_configs(struct list *l, int32_t engine, bool answered)
{
    static const uint8_t waves[ARRAY_LEN(kernel_configs)] = {0, 1, 1, 2, 2, 2};
    uint32_t n = output_tiles(&l->conv->spec) > MANY ? MANY_CONFIGS : ARRAY_LEN(kernel_configs);
    l->wave = answered ? LAST_WAVE : 1;
    put(l, &(struct dnn_config){.engine = engine});
    for (uint32_t i = 0; i < n; i++) {
        l->wave = answered ? LAST_WAVE : waves[i];
        if (kernel_configs[i] <= l->engine[engine].kernel_config)
            put(l, &(struct dnn_config){.engine = engine,
                                        .n_knobs = 1,
                                        .knob = {{CUDNN_KNOB_TYPE_KERNEL_CFG, kernel_configs[i]}}});
    }
}

/* Builds the graph of one spelling and reads its engines. A spelling that cuDNN does not know has
 * none. */
static enum status open_list(struct cuda_dnn *dnn, const struct conv *conv, bool strict,
                             struct conv_choice *out, uint32_t *n, struct list *l,
                             struct error *err)
{
    memset(l, 0, sizeof(*l));
    l->conv = conv;
    l->out = out;
    l->n = n;
    TRY(dnn_build_new(dnn, &l->build, err));
    conv_build(l->build, &conv->spec);
    dnn_graph_finish(l->build);
    read_engines(l, strict);
    return STATUS_OK;
}

/* Lists the precompiled kernels, and the sm_90 run-time engine as far as it takes the same
 * spelling. *first becomes the place of that engine's first candidate. */
static enum status list_pattern(struct cuda_dnn *dnn, const struct conv *conv, bool strict,
                                bool few, struct conv_choice *out, uint32_t *n, uint32_t *first,
                                struct error *err)
{
    struct dnn_config found[HEURISTIC];
    struct list l;
    TRY(open_list(dnn, conv, strict, out, n, &l, err));
    uint32_t m = dnn_heuristic(l.build, few ? HEURISTIC_FEW : HEURISTIC, found);
    int32_t best = best_runtime(&l);
    if (few)
        prefer_tensor_cores(&l, found, m);
    put_heuristics(&l, found, 0, MIN(m, (uint32_t)FIRST));
    *first = *n;
    l.wave = 1; /* with its bias in fp32 it is seldom slower */
    if (best >= 0)
        put(&l, &(struct dnn_config){.engine = best});
    l.wave = 0;
    put_heuristics(&l, found, MIN(m, (uint32_t)FIRST), m);
    put_defaults(&l, false);
    if (best >= 0 && conv->spec.io == DTYPE_F32 && !few && !conv->spec.transposed)
        put_configs(&l, best, false);
    dnn_build_free(l.build);
    return STATUS_OK;
}

static enum status list_runtime(struct cuda_dnn *dnn, const struct conv *conv, bool strict,
                                bool few, struct conv_choice *out, uint32_t *n, struct error *err)
{
    struct list l;
    uint32_t before = *n;
    TRY(open_list(dnn, conv, strict, out, n, &l, err));
    int32_t best = best_runtime(&l);
    struct dnn_config found[HEURISTIC_RUNTIME];
    if (l.build->handle && !few) {
        dnn_compiler_hold(dnn);
        put_heuristics(&l, found, 0, dnn_heuristic(l.build, HEURISTIC_RUNTIME, found));
    }
    if (best >= 0 && few)
        put(&l, &(struct dnn_config){.engine = best});
    else if (best >= 0)
        put_configs(&l, best, *n > before);
    if (!conv->pattern)
        put_defaults(&l, false);
    l.wave = best < 0 ? 0 : 1;
    if (!conv->pattern || best < 0)
        put_defaults(&l, true);
    dnn_build_free(l.build);
    return STATUS_OK;
}

/* Moves the choices from `from` on to `to`; those that stood there follow. */
static void move_ahead(struct conv_choice *c, uint32_t to, uint32_t from, uint32_t n)
{
    for (uint32_t i = from; i < n; i++) {
        struct conv_choice moved = c[i];
        memmove(&c[to + i - from + 1], &c[to + i - from], (i - (to + i - from)) * sizeof(*c));
        c[to + i - from] = moved;
    }
}

enum status conv_list(struct cuda_dnn *dnn, const struct ir_graph *graph,
                      const struct ir_node *node, enum dtype io, enum ir_layout layout, bool strict,
                      bool few, struct conv_choice *out, uint32_t *n, struct error *err)
{
    struct conv conv;
    uint32_t before = *n, first = before;
    if (conv_read(graph, node, io, layout, CONV_BIAS_IO, &conv))
        TRY(list_pattern(dnn, &conv, strict, few, out, n, &first, err));
    uint32_t middle = *n;
    bool other = io != DTYPE_F32 || !conv.pattern;
    if (other && conv_read(graph, node, io, layout, CONV_BIAS_FLOAT, &conv))
        TRY(list_runtime(dnn, &conv, strict, few, out, n, err));
    if (*n > middle && is_small(&conv.spec)) {
        move_ahead(out, before, middle, middle + 1);
        middle++;
        first++;
    }
    move_ahead(out, first, middle, *n);
    return STATUS_OK;
}
