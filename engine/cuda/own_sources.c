/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cuda/own_sources.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"

/* A unit of the second source may be this part of a step of y at most, */
static const double felt = 1.0 / 32;
/* and has to be this part of the first source's unit at least. Both sums have a bound as well. */
static const double smallest = 1.0 / 64, sum_max = 1 << 30, product_max = 127.0 * 255;

static bool is_f8(const struct own_sources *s)
{
    return s->from[0].dtype == DTYPE_F8;
}

bool own_sources_types(const struct own_sources *s)
{
    bool byte = scaled_is_byte((int32_t)s->from[0].dtype);
    return (byte ? scaled_is_byte((int32_t)s->to.dtype) : is_f8(s) && s->to.dtype == DTYPE_F8) &&
           (s->n == 1 || s->from[1].dtype == s->from[0].dtype) && s->to.step > 0;
}

bool own_sources_limits(const struct own_sources *s, uint32_t func, float alpha, float beta,
                        float *low, float *high)
{
    *low = is_f8(s) ? -FLT_MAX : -128;
    *high = is_f8(s) ? FLT_MAX : 127;
    if (func == IR_UNARY_IDENTITY)
        return true;
    if (!is_f8(s))
        return scaled_limits(&s->to, func, alpha, beta, low, high);
    *low = func == IR_UNARY_CLIP ? alpha : 0;
    *high = func == IR_UNARY_CLIP ? beta : FLT_MAX;
    return func == IR_UNARY_CLIP || func == IR_UNARY_RELU;
}

/* What a number of x is at most. UINT8 is multiplied as it is: its zero point comes off
 * the bias. */
static double x_most(const struct own_sources *s)
{
    return s->from[0].dtype == DTYPE_U8 ? 255 : 128;
}

static int64_t deepest(const struct own_sources *s)
{
    return s->n > 1 ? MAX(s->depth[0], s->depth[1]) : s->depth[0];
}

bool own_sources_count(const struct own_sources *s)
{
    return (double)deepest(s) * product_max < sum_max;
}

static uint64_t aligned(uint64_t bytes)
{
    const uint64_t align = BACKEND_ALIGN - 1;
    return (bytes + align) & ~align;
}

void own_sources_place(const struct own_sources *s, int64_t line, int64_t step,
                       struct own_sources_places *out)
{
    int64_t rows = kernel_tile_rows(s->cols);
    *out = (struct own_sources_places){.line = line, .step = step};
    for (int i = 0; i < s->n; i++)
        out->weights[i] =
            aligned((uint64_t)(rows * kernel_tile_depth(&s->image[i], s->depth[i], step)));
    out->vector = aligned((uint64_t)rows * sizeof(float));
}

uint64_t own_sources_bytes(const struct own_sources_places *places, int source)
{
    return places->weights[source] + 2 * places->vector;
}

/* The units of a channel's sums; false: rounding to the second one would be felt. */
static bool units_of(const struct own_sources *s, const struct ir_scale *const *scale, int64_t c,
                     double unit[OWN_SOURCES])
{
    unit[0] = (double)s->from[0].step * (double)scaled_step(scale[0], c);
    if (s->n == 1)
        return true;
    double least = fmax(smallest, (double)s->depth[0] * product_max / sum_max);
    unit[1] = (double)s->from[1].step * (double)scaled_step(scale[1], c);
    unit[1] = fmax(unit[1], unit[0] * least);
    return is_f8(s) || unit[1] <= (double)s->to.step * felt;
}

bool own_sources_fit(const struct ir_graph *graph, const struct ir_node *node,
                     const struct own_sources *s)
{
    const struct ir_scale *scale[OWN_SOURCES] = {NULL};
    for (int i = 0; i < s->n; i++) {
        if (!scaled_constants_fit(graph, node, s->in[i], 0, s->cols,
                                  is_f8(s) ? DTYPE_F8 : DTYPE_I8))
            return false;
        scale[i] = ir_scale(graph, cuda_input(graph, node, s->in[i].weights)->range);
    }
    double unit[OWN_SOURCES] = {0};
    for (int64_t c = 0; c < s->cols; c++)
        if (!units_of(s, scale, c, unit))
            return false;
    return true;
}

void own_sources_ports(const struct ir_graph *graph, const struct ir_node *node,
                       const struct own_sources *s, const struct own_sources_places *places,
                       struct tactic *tactic)
{
    for (int i = 0; i < s->n; i++) {
        uint32_t input = s->in[i].weights, bias = s->in[i].bias;
        tactic->in[input].format =
            (struct ir_format){.dtype = is_f8(s) ? DTYPE_F8 : DTYPE_I8,
                               .scale = cuda_input(graph, node, input)->range};
        tactic_port_pack(&tactic->in[input], own_sources_bytes(places, i));
        if (bias != IR_NONE) /* packing reads it as it is */
            tactic->in[bias].format =
                (struct ir_format){.dtype = cuda_input(graph, node, bias)->dtype};
    }
}

bool own_sources_same(const struct tactic *stored, const struct tactic *want)
{
    bool same = stored->n_in == want->n_in && stored->n_out == want->n_out;
    for (uint32_t i = 0; same && i < want->n_in; i++)
        same = stored->in[i].format.layout == want->in[i].format.layout &&
               stored->in[i].packed_bytes == want->in[i].packed_bytes;
    for (uint32_t i = 0; same && i < want->n_out; i++)
        same = stored->out[i].format.layout == want->out[i].format.layout &&
               !stored->out[i].packed_bytes;
    return same;
}

/* --- packing --- */

struct packing {
    const struct own_sources *s;
    const struct own_sources_places *places;
    struct scaled_constants from[OWN_SOURCES];
};

static void packing_cleanup(struct packing *k)
{
    for (int i = 0; i < OWN_SOURCES; i++)
        scaled_constants_cleanup(&k->from[i]);
}

/* Of a row of weights. */
struct row_sum {
    int64_t all, magnitudes;
};

/* Writes a row of a source's weights, unless `to` is NULL. */
static struct row_sum pack_row(const struct packing *k, int source, int64_t c, double unit,
                               int8_t *to)
{
    const struct own_sources *s = k->s;
    const float *w = k->from[source].weights + c * s->depth[source];
    float step = (float)(unit / (double)s->from[source].step);
    int64_t pitch = kernel_tile_depth(&s->image[source], s->depth[source], k->places->step);
    int8_t *row = to ? to + kernel_line_row(k->places->line, c) * pitch : NULL;
    struct row_sum sum = {0};
    for (int64_t i = 0; i < s->depth[source]; i++) {
        int8_t q = is_f8(s) ? (int8_t)f32_to_f8(w[i] / step) : scaled_byte(w[i], step);
        sum.all += q;
        sum.magnitudes += abs(q);
        if (row)
            row[i] = q;
    }
    return sum;
}

static void pack_channel(const struct packing *k, int source, int64_t c, char *to)
{
    const struct own_sources *s = k->s;
    const struct ir_scale *const scale[OWN_SOURCES] = {k->from[0].scale, k->from[1].scale};
    int64_t at = kernel_line_number(k->places->line, c);
    float *numbers = (void *)(to + k->places->weights[source]);
    float *behind = numbers + k->places->vector / sizeof(float);
    struct row_sum sum[OWN_SOURCES];
    double unit[OWN_SOURCES] = {0}, bias = (double)k->from[0].bias[c];
    units_of(s, scale, c, unit);
    for (int i = 0; i < s->n; i++) {
        sum[i] = pack_row(k, i, c, unit[i], i == source ? (int8_t *)to : NULL);
        bias -= unit[i] * (double)(s->from[i].zero * sum[i].all);
    }
    if (source) {
        double ratio = unit[0] / unit[1];
        numbers[at] = (float)ratio;
        *behind = fmaxf(*behind, (float)(ratio * x_most(s) * (double)sum[0].magnitudes));
    } else if (is_f8(s)) {
        numbers[at] = (float)unit[s->n - 1];
        behind[at] = (float)bias;
    } else {
        numbers[at] = (float)(unit[s->n - 1] / (double)s->to.step);
        behind[at] = scaled_in_steps(&s->to, (float)bias) - (float)s->less;
    }
}

enum status own_sources_pack(const struct ir_graph *graph, const struct ir_node *node,
                             const struct own_sources *s, const struct own_sources_places *places,
                             int source, void *to, bool *fit, struct error *err)
{
    CLEANUP(packing_cleanup) struct packing k = {.s = s, .places = places};
    uint64_t n = (uint64_t)s->cols;
    *fit = own_sources_fit(graph, node, s);
    for (int i = 0; i < s->n && *fit; i++)
        TRY(scaled_constants_read(graph, node, s->in[i], n * (uint64_t)s->depth[i], n, &k.from[i],
                                  fit, err));
    if (!*fit)
        return STATUS_OK;
    memset(to, 0, own_sources_bytes(places, source));
    for (int64_t c = 0; c < s->cols; c++)
        pack_channel(&k, source, c, to);
    return STATUS_OK;
}

void own_sources_bind(const struct own_sources_places *places, const void *first,
                      const void *second, struct kernel_tile *tile)
{
    const char *one = first, *two = second;
    tile->weights = first;
    tile->scale = (const void *)(one + places->weights[0]);
    tile->bias = (const void *)(one + places->weights[0] + places->vector);
    if (!second)
        return;
    tile->second.weights = second;
    tile->second.ratio = (const void *)(two + places->weights[1]);
    tile->second.most = (const void *)(two + places->weights[1] + places->vector);
}
