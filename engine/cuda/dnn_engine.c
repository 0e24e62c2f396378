/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engines of a finished graph, the configurations that cuDNN's heuristics propose for it, and
 * configurations as text and as bytes. Descriptors that are made for a question are freed at once:
 * only those of plans are kept.
 */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cuda/dnn_graph.h"

enum { NOTES_MAX = 16, HEURISTIC_MAX = 64, KNOB_TYPES_MAX = 64, KNOB_VALUE_MAX = 1 << 20 };

static dnn_desc create(cudnnBackendDescriptorType_t type)
{
    dnn_desc d = NULL;
    return cudnnBackendCreateDescriptor(type, &d) ? NULL : d;
}

static void destroy(dnn_desc *d)
{
    if (*d)
        cudnnBackendDestroyDescriptor(*d);
    *d = NULL;
}

/* Reads an attribute that has one value. */
static bool get(dnn_desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                void *out)
{
    int64_t n = 0;
    return cudnnBackendGetAttribute(d, name, type, 1, &n, out) == CUDNN_STATUS_SUCCESS && n == 1;
}

/* --- engines --- */

uint32_t dnn_engine_count(struct dnn_build *b)
{
    int64_t n = 0;
    if (b->status ||
        !get(b->graph, CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, CUDNN_TYPE_INT64, &n))
        return 0;
    return (uint32_t)MAX(0, MIN(n, DNN_ENGINES_MAX));
}

static bool engine_make(struct dnn_build *b, dnn_desc engine, int32_t index)
{
    int64_t wide = index;
    dnn_desc properties = dnn_properties(b->dnn);
    return !cudnnBackendSetAttribute(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b->graph) &&
           !cudnnBackendSetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                     &wide) &&
           (!properties ||
            !cudnnBackendSetAttribute(engine, CUDNN_ATTR_ENGINE_DEVICEPROP,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties)) &&
           !cudnnBackendFinalize(engine);
}

static void read_notes(dnn_desc engine, struct dnn_engine *out)
{
    cudnnBackendBehaviorNote_t behaviour[NOTES_MAX];
    cudnnBackendNumericalNote_t numeric[NOTES_MAX];
    int64_t n = 0;
    if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                 NOTES_MAX, &n, behaviour))
        n = 0;
    for (int64_t i = 0; i < MIN(n, NOTES_MAX); i++)
        out->runtime = out->runtime || behaviour[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    n = 0;
    if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                 CUDNN_TYPE_NUMERICAL_NOTE, NOTES_MAX, &n, numeric))
        n = 0;
    for (int64_t i = 0; i < MIN(n, NOTES_MAX); i++) {
        if (numeric[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)
            out->down_converts = true;
        if (numeric[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE)
            out->tensor_core = true;
        if (numeric[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
            out->half_sums = true;
        if (numeric[i] == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 ||
            numeric[i] == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 ||
            numeric[i] == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13)
            out->coarse = true;
    }
}

static void read_knobs(dnn_desc engine, struct dnn_engine *out)
{
    dnn_desc knobs[KNOB_TYPES_MAX];
    int64_t n = 0;
    for (uint32_t i = 0; i < KNOB_TYPES_MAX; i++)
        knobs[i] = create(CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR);
    if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_KNOB_INFO, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 KNOB_TYPES_MAX, &n, knobs))
        n = 0;
    for (int64_t i = 0; i < MIN(n, KNOB_TYPES_MAX); i++) {
        cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;
        int64_t highest = -1;
        if (!get(knobs[i], CUDNN_ATTR_KNOB_INFO_TYPE, CUDNN_TYPE_KNOB_TYPE, &type) ||
            !get(knobs[i], CUDNN_ATTR_KNOB_INFO_MAXIMUM_VALUE, CUDNN_TYPE_INT64, &highest))
            continue;
        if (type == CUDNN_KNOB_TYPE_KERNEL_CFG)
            out->kernel_config = (int32_t)MIN(highest, KNOB_VALUE_MAX);
    }
    for (uint32_t i = 0; i < KNOB_TYPES_MAX; i++)
        destroy(&knobs[i]);
}

bool dnn_engine_read(struct dnn_build *b, int32_t index, struct dnn_engine *out)
{
    struct dnn_engine e = {.kernel_config = -1};
    dnn_desc engine = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    bool ok = engine && !b->status && engine_make(b, engine, index);
    if (ok) {
        read_notes(engine, &e);
        if (e.runtime)
            read_knobs(engine, &e);
        *out = e;
    }
    destroy(&engine);
    return ok;
}

/* --- heuristics --- */

static void read_choices(dnn_desc choice, struct dnn_config *out)
{
    dnn_desc knobs[KNOB_TYPES_MAX];
    int64_t n = 0;
    for (uint32_t i = 0; i < KNOB_TYPES_MAX; i++)
        knobs[i] = create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    if (cudnnBackendGetAttribute(choice, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, KNOB_TYPES_MAX, &n, knobs))
        n = 0;
    for (int64_t i = 0; i < MIN(n, KNOB_TYPES_MAX); i++) {
        cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;
        int64_t value = -1; /* stays so if the knob is not set */
        if (get(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, &type) &&
            get(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, &value) &&
            value >= 0 && value <= KNOB_VALUE_MAX && out->n_knobs < DNN_KNOBS_MAX)
            out->knob[out->n_knobs++] = (struct dnn_knob){(int32_t)type, (int32_t)value};
    }
    for (uint32_t i = 0; i < KNOB_TYPES_MAX; i++)
        destroy(&knobs[i]);
}

static bool read_config(dnn_desc choice, struct dnn_config *out)
{
    int64_t n = 0, index = -1;
    dnn_desc engine = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    bool ok = engine &&
              !cudnnBackendGetAttribute(choice, CUDNN_ATTR_ENGINECFG_ENGINE,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine) &&
              get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, &index) && index >= 0 &&
              index < DNN_ENGINES_MAX;
    if (ok) {
        *out = (struct dnn_config){.engine = (int32_t)index};
        read_choices(choice, out);
    }
    destroy(&engine);
    return ok;
}

static uint32_t read_results(dnn_desc heuristic, uint32_t max, struct dnn_config *out)
{
    dnn_desc choices[HEURISTIC_MAX];
    int64_t got = 0;
    uint32_t n = 0;
    max = MIN(max, (uint32_t)HEURISTIC_MAX);
    for (uint32_t i = 0; i < max; i++)
        choices[i] = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, max, &got, choices))
        got = 0;
    for (int64_t i = 0; i < MIN(got, (int64_t)max); i++)
        n += read_config(choices[i], &out[n]);
    for (uint32_t i = 0; i < max; i++)
        destroy(&choices[i]);
    return n;
}

uint32_t dnn_heuristic(struct dnn_build *b, uint32_t max, struct dnn_config *out)
{
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    dnn_desc properties = dnn_properties(b->dnn), h = create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    bool ok =
        h && !b->status &&
        !cudnnBackendSetAttribute(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b->graph) &&
        !cudnnBackendSetAttribute(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) &&
        (!properties || !cudnnBackendSetAttribute(h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties)) &&
        !cudnnBackendFinalize(h);
    uint32_t n = ok ? read_results(h, max, out) : 0;
    destroy(&h);
    return n;
}

/* --- configurations as text and bytes --- */

static const struct {
    int32_t type;
    const char *name;
} knob_names[] = {
    {CUDNN_KNOB_TYPE_KERNEL_CFG, "cfg"},   {CUDNN_KNOB_TYPE_SPLIT_K_SLC, "splitk"},
    {CUDNN_KNOB_TYPE_TILE_SIZE, "tile"},   {CUDNN_KNOB_TYPE_TILEK, "tilek"},
    {CUDNN_KNOB_TYPE_STAGES, "stages"},    {CUDNN_KNOB_TYPE_IDX_MODE, "idx"},
    {CUDNN_KNOB_TYPE_SPECFILT, "spec"},    {CUDNN_KNOB_TYPE_WORKSPACE, "ws"},
    {CUDNN_KNOB_TYPE_TILE_CGA_M, "cgam"},  {CUDNN_KNOB_TYPE_TILE_CGA_N, "cgan"},
    {CUDNN_KNOB_TYPE_SPLIT_K_BUF, "kbuf"}, {CUDNN_KNOB_TYPE_REDUCTION_MODE, "red"},
    {CUDNN_KNOB_TYPE_STREAM_K, "streamk"},
};

static const char *knob_name(int32_t type)
{
    for (uint32_t i = 0; i < ARRAY_LEN(knob_names); i++)
        if (knob_names[i].type == type)
            return knob_names[i].name;
    return NULL;
}

void dnn_config_text(const struct dnn_config *config, char *out, size_t size)
{
    int at = snprintf(out, size, "e%d", (int)config->engine);
    for (uint32_t i = 0; i < config->n_knobs && at > 0 && (size_t)at < size; i++) {
        const char *name = knob_name(config->knob[i].type);
        int more =
            name ? snprintf(out + at, size - (size_t)at, " %s%d", name, (int)config->knob[i].value)
                 : snprintf(out + at, size - (size_t)at, " k%d=%d", (int)config->knob[i].type,
                            (int)config->knob[i].value);
        at = more < 0 ? more : at + more;
    }
}

uint32_t dnn_config_write(const struct dnn_config *config, uint8_t *out)
{
    int32_t words[2 + 2 * DNN_KNOBS_MAX];
    uint32_t n = 0;
    words[n++] = config->engine;
    words[n++] = (int32_t)config->n_knobs;
    for (uint32_t i = 0; i < config->n_knobs; i++) {
        words[n++] = config->knob[i].type;
        words[n++] = config->knob[i].value;
    }
    memcpy(out, words, n * sizeof(*words));
    return n * (uint32_t)sizeof(*words);
}

bool dnn_config_read(const uint8_t *blob, uint32_t size, struct dnn_config *out)
{
    int32_t words[2 + 2 * DNN_KNOBS_MAX] = {0};
    if (size < 2 * sizeof(*words) || size > sizeof(words))
        return false;
    memcpy(words, blob, size);
    if (words[0] < 0 || words[0] >= DNN_ENGINES_MAX || words[1] < 0 || words[1] > DNN_KNOBS_MAX ||
        size != (2 + 2 * (uint32_t)words[1]) * sizeof(*words))
        return false;
    struct dnn_config c = {.engine = words[0], .n_knobs = (uint32_t)words[1]};
    for (uint32_t i = 0; i < c.n_knobs; i++) {
        c.knob[i] = (struct dnn_knob){words[2 + 2 * i], words[3 + 2 * i]};
        if (c.knob[i].type < 0 || c.knob[i].type >= KNOB_TYPES_MAX || c.knob[i].value < 0 ||
            c.knob[i].value > KNOB_VALUE_MAX)
            return false;
    }
    *out = c;
    return true;
}
