/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first operand of a product on Hopper: rows of a matrix, or the pixels of images as a
 * convolution's window passes over them. A step is a line of depth, 128 or 64 bytes; images have
 * whole steps for each tap, whose last one tensor copies fill up with zeros, as they do what lies
 * outside of the image. The depth may come from two such sources, one behind the other.
 */
#ifndef INFERD_KERNELS_CUDA_HOPPER_WINDOW_CUH
#define INFERD_KERNELS_CUDA_HOPPER_WINDOW_CUH

#include "kernels/cuda/hopper_map.cuh"

enum { HOPPER_LINE = 128 };

struct hopper_window {
    bool images;
    int numbers;                   /* of a step */
    struct divider steps, columns; /* steps of a tap; taps of a row of the window */
    struct divider width, height;  /* of the output */
    int stride[2], pad[2], dilation[2];
};

/* The first row of a tile: a row of the matrix, or the place of the window's first tap. */
struct hopper_place {
    int row, h, w, n;
    __device__ __forceinline__ hopper_place(const hopper_window &of, int first)
        : row(first), h(0), w(0), n(0)
    {
        if (!of.images)
            return;
        uint32_t q, p;
        n = (int)divider_split(of.height, divider_split(of.width, (uint32_t)first, &q), &p);
        h = (int)p * of.stride[0] - of.pad[0];
        w = (int)q * of.stride[1] - of.pad[1];
    }
};

/* Loads a step of the map's rows from `at` on. */
__device__ __forceinline__ void hopper_load_rows(void *to, const CUtensorMap *map,
                                                 uint64_t *barrier, const hopper_window &of,
                                                 const hopper_place &at, int step)
{
    if (!of.images) {
        tensor_load_2d(to, map, barrier, step * of.numbers, at.row);
        return;
    }
    uint32_t in, s;
    uint32_t tap = divider_split(of.steps, (uint32_t)step, &in);
    uint32_t r = divider_split(of.columns, tap, &s);
    tensor_load_images(to, map, barrier, (int)in * of.numbers, at.w, at.h, at.n,
                       (int)s * of.dilation[1], (int)r * of.dilation[0]);
}

/* The steps of a product's depth: in all, and those of the first source. The second source, if
 * there is one, has the others. */
struct hopper_depth {
    int steps, first;
    bool once; /* all tiles read weights at about the same time, and then not again */
    struct hopper_window of[2];
};

/* The maps of the sources and of their weights. */
struct hopper_maps {
    CUtensorMap a[2], b[2];
};

/* Loads the weights of step k, of columns from `column` on. */
__device__ __forceinline__ void hopper_load_weights(void *to, uint64_t *barrier,
                                                    const hopper_maps &m, const hopper_depth &deep,
                                                    int k, int column)
{
    const int second = k >= deep.first, at = (k - second * deep.first) * deep.of[0].numbers;
    if (deep.once)
        tensor_load_2d_once(to, &m.b[second], barrier, at, column);
    else
        tensor_load_2d(to, &m.b[second], barrier, at, column);
}

/* Where the rows of a tile begin in both sources. */
struct hopper_rows {
    hopper_place at[2];
    __device__ __forceinline__ hopper_rows(const hopper_depth &deep, int row)
        : at{hopper_place(deep.of[0], row), hopper_place(deep.of[1], row)}
    {
    }
    /* Loads the rows of step k. */
    __device__ __forceinline__ void load(void *to, uint64_t *barrier, const hopper_maps &m,
                                         const hopper_depth &deep, int k) const
    {
        if (k < deep.first)
            hopper_load_rows(to, &m.a[0], barrier, deep.of[0], at[0], k);
        else
            hopper_load_rows(to, &m.a[1], barrier, deep.of[1], at[1], k - deep.first);
    }
};

/* Tiles in the order in which blocks take them: so many rows of tiles, column after column. Blocks
 * that run together read few rows of A and few of the weights then, which stay in the L2 cache. */
constexpr int HOPPER_BAND = 8;

struct hopper_tile {
    int m, n;
    __device__ __forceinline__ hopper_tile(int m_tiles, int n_tiles, int at)
    {
        int band = at / (HOPPER_BAND * n_tiles), in = at - band * HOPPER_BAND * n_tiles;
        int tall = min(HOPPER_BAND, m_tiles - band * HOPPER_BAND);
        n = in / tall;
        m = band * HOPPER_BAND + in - n * tall;
    }
};

/* --- host --- */

/* What a product reads: `rows` rows of `depth` numbers, or `image` (NULL or without taps: no
 * images), by boxes of `tall` rows. */
struct hopper_source {
    const void *data;
    int32_t dtype;
    int64_t rows, depth;
    const struct kernel_images *image;
    int tall, line;
};

inline bool hopper_source_is_images(const struct hopper_source *s)
{
    return s->image && s->image->kernel[0] > 0;
}

inline struct hopper_tensor hopper_matrix(const void *data, int32_t dtype, int64_t depth,
                                          int64_t pitch, int64_t rows, int tall, int line)
{
    struct hopper_tensor t = {};
    t.data = data;
    t.dtype = dtype;
    t.rank = 2;
    t.dim[0] = depth;
    t.dim[1] = rows;
    t.stride[0] = 1;
    t.stride[1] = pitch;
    t.box[0] = line / number_size(dtype);
    t.box[1] = tall;
    return t;
}

inline struct hopper_images hopper_source_images(const struct hopper_source *s)
{
    struct hopper_images t = {s->data, s->dtype, s->image, s->tall, s->line};
    return t;
}

/* Steps of depth in all. */
inline int64_t hopper_source_steps(const struct hopper_source *s)
{
    int64_t numbers = s->line / number_size(s->dtype);
    return hopper_source_is_images(s) ? kernel_ceil_div(s->image->channels, numbers) *
                                            s->image->kernel[0] * s->image->kernel[1]
                                      : kernel_ceil_div(s->depth, numbers);
}

inline bool hopper_source_fits(const struct hopper_source *s)
{
    const int64_t most = INT32_MAX / 4;
    if (s->rows < 1 || s->depth < 1 || s->rows > most || s->depth > most)
        return false;
    if (hopper_source_is_images(s)) {
        struct hopper_images t = hopper_source_images(s);
        if (!hopper_images_fit(&t))
            return false;
        int64_t pixels = s->image->out[0] * s->image->out[1];
        return s->rows % pixels == 0 && s->rows / pixels == s->image->images;
    }
    struct hopper_tensor t =
        hopper_matrix(s->data, s->dtype, s->depth, s->depth, s->rows, s->tall, s->line);
    return hopper_tensor_fits(&t);
}

/* The map and the window of a source that fits. */
inline cudaError_t hopper_source_open(const struct hopper_source *s, CUtensorMap *map,
                                      struct hopper_window *window)
{
    struct hopper_window w = {};
    w.numbers = s->line / number_size(s->dtype);
    w.images = hopper_source_is_images(s);
    if (!w.images) {
        struct hopper_tensor t =
            hopper_matrix(s->data, s->dtype, s->depth, s->depth, s->rows, s->tall, s->line);
        *window = w;
        return hopper_map(&t, map);
    }
    struct hopper_images t = hopper_source_images(s);
    w.steps = divider_make((uint32_t)kernel_ceil_div(s->image->channels, w.numbers));
    w.columns = divider_make((uint32_t)s->image->kernel[1]);
    w.width = divider_make((uint32_t)s->image->out[1]);
    w.height = divider_make((uint32_t)s->image->out[0]);
    for (int d = 0; d < 2; d++) {
        w.stride[d] = s->image->stride[d];
        w.pad[d] = s->image->pad[d];
        w.dilation[d] = s->image->dilation[d];
    }
    *window = w;
    return hopper_map_images(&t, map);
}

/* One or two sources, with their weights: packed rows of so many numbers. */
struct hopper_sources {
    int n;
    struct hopper_source a[2];
    struct hopper_tensor b[2];
};

inline bool hopper_sources_fit(const struct hopper_sources *s)
{
    bool all = true;
    for (int i = 0; i < s->n; i++)
        all = all && hopper_source_fits(&s->a[i]) && hopper_tensor_fits(&s->b[i]);
    return all;
}

inline struct hopper_depth hopper_sources_depth(const struct hopper_sources *s)
{
    struct hopper_depth deep = {};
    deep.first = (int)hopper_source_steps(&s->a[0]);
    deep.steps = deep.first + (s->n > 1 ? (int)hopper_source_steps(&s->a[1]) : 0);
    return deep;
}

/* The maps and windows of sources that fit. */
inline cudaError_t hopper_sources_open(const struct hopper_sources *s, struct hopper_maps *m,
                                       struct hopper_depth *deep)
{
    cudaError_t code = cudaSuccess;
    for (int i = 0; i < s->n && code == cudaSuccess; i++) {
        code = hopper_source_open(&s->a[i], &m->a[i], &deep->of[i]);
        if (code == cudaSuccess)
            code = hopper_map(&s->b[i], &m->b[i]);
    }
    return code;
}

#endif
