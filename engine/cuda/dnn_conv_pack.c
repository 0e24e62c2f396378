/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs a convolution's constants in cuDNN's form (struct conv): weights of any float type in KCRS
 * become KRSC in the tensors' own type, with channels padded by zeros; the bias and operands get
 * the type of the spelling.
 *
 * A network's weights are packed for every profile, so packing has to be about as quick as memory:
 * a filter is converted in one run, by the processor's own instructions if it has them, and then
 * transposed.
 */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cuda/dnn_conv.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* --- runs of floats --- */

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) static size_t halves_fast(const char *from, uint16_t *to,
                                                              size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 f = _mm256_loadu_ps((const float *)(const void *)(from + i * sizeof(float)));
        __m128i h = _mm256_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(to + i), h);
    }
    return i;
}

static size_t halves_begin(const char *from, uint16_t *to, size_t n)
{
    /* No CPU has avx2 without f16c, and not every compiler can ask for f16c. */
    return __builtin_cpu_supports("avx2") ? halves_fast(from, to, n) : 0;
}
#else
static size_t halves_begin(const char *from UNUSED, uint16_t *to UNUSED, size_t n UNUSED)
{
    return 0;
}
#endif

static float read_one(enum dtype dtype, const char *from, size_t i)
{
    uint16_t bits;
    float f;
    if (dtype == DTYPE_F32) {
        memcpy(&f, from + i * sizeof(f), sizeof(f));
        return f;
    }
    memcpy(&bits, from + i * sizeof(bits), sizeof(bits));
    return dtype == DTYPE_F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

static void write_one(enum dtype dtype, char *to, size_t i, float f)
{
    uint16_t bits;
    if (dtype == DTYPE_F32) {
        memcpy(to + i * sizeof(f), &f, sizeof(f));
        return;
    }
    bits = dtype == DTYPE_F16 ? f32_to_f16(f) : f32_to_bf16(f);
    memcpy(to + i * sizeof(bits), &bits, sizeof(bits));
}

/* `from` may lie at any address; `to` is aligned to its elements. */
static void convert(enum dtype from_type, const char *from, enum dtype to_type, void *to, size_t n)
{
    size_t i = 0;
    if (from_type == to_type) {
        memcpy(to, from, n * dtype_size(to_type));
        return;
    }
    if (from_type == DTYPE_F32 && to_type == DTYPE_F16)
        i = halves_begin(from, to, n);
    for (; i < n; i++)
        write_one(to_type, to, i, read_one(from_type, from, i));
}

/* --- weights --- */

/* Transposes channels x taps to taps x padded channels; `to` was zeroed before. */
static void turn_over_16(const uint16_t *from, uint16_t *to, size_t channels, size_t padded,
                         size_t taps)
{
    for (size_t t = 0; t < taps; t++)
        for (size_t c = 0; c < channels; c++)
            to[t * padded + c] = from[c * taps + t];
}

static void turn_over_32(const uint32_t *from, uint32_t *to, size_t channels, size_t padded,
                         size_t taps)
{
    for (size_t t = 0; t < taps; t++)
        for (size_t c = 0; c < channels; c++)
            to[t * padded + c] = from[c * taps + t];
}

static enum status pack_weights(const struct ir_tensor *w, const struct conv *conv, void *to,
                                struct error *err)
{
    const struct conv_spec *s = &conv->spec;
    enum dtype io = (enum dtype)s->io;
    size_t channels = (size_t)w->shape.dim[1], padded = (size_t)s->w[1],
           taps = (size_t)(s->w[2] * s->w[3] * s->w[4]), one = dtype_size(io);
    char *out = to, *run = malloc(channels * taps * one);
    const char *from = w->data;
    if (!run)
        return error_no_memory(err, "cuDNN");
    memset(to, 0, conv->weights_bytes);
    for (int64_t k = 0; k < s->w[0]; k++) {
        convert(w->dtype, from, io, run, channels * taps);
        if (taps == 1)
            memcpy(out, run, channels * one);
        else if (one == sizeof(uint16_t))
            turn_over_16((const uint16_t *)(const void *)run, (uint16_t *)(void *)out, channels,
                         padded, taps);
        else
            turn_over_32((const uint32_t *)(const void *)run, (uint32_t *)(void *)out, channels,
                         padded, taps);
        from += channels * taps * dtype_size(w->dtype);
        out += padded * taps * one;
    }
    free(run);
    for (int32_t i = 0; i < s->n_scalars; i++)
        memcpy((char *)to + conv->scalars_at + (size_t)i * CONV_SCALAR_STRIDE, &conv->scalar[i],
               sizeof(conv->scalar[i]));
    return STATUS_OK;
}

/* --- the rest --- */

enum status conv_pack(const struct ir_graph *graph, const struct ir_node *node,
                      const struct conv *conv, uint32_t input, void *to, struct error *err)
{
    const struct ir_tensor *t = ir_tensor(graph, node->inputs[input]);
    const struct conv_spec *s = &conv->spec;
    if (t->layout == IR_LAYOUT_PLAIN && t->data && input == 1)
        return pack_weights(t, conv, to, err);
    if (t->layout == IR_LAYOUT_PLAIN && t->data && input == 2 && conv->biased) {
        convert(t->dtype, t->data, conv_bias_type(conv), to, (size_t)s->y[1]);
        return STATUS_OK;
    }
    for (int32_t i = 0; t->layout == IR_LAYOUT_PLAIN && t->data && i < s->n_operands; i++)
        if (s->operand[i].input == (int32_t)input) {
            convert(t->dtype, t->data, DTYPE_F32, to, (size_t)s->operand[i].dim[1]);
            return STATUS_OK;
        }
    return error_set(err, STATUS_FAILED_PRECONDITION, "cuDNN: input %u of '%s' is not packed",
                     input, node->name);
}
