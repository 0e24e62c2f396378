/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor copies (TMA): maps, loads that land late, stores that read late. */
#include "tests/emulate/async.h"
#include "tests/emulate/emulate.h"

#include <cstring>

enum { MAP_BYTES = 128 };
static const int64_t CHUNK = 16; /* bytes */
static_assert(sizeof(struct async_map) <= MAP_BYTES, "a map fits into a CUtensorMap");

static bool dims_fit(int rank, const int64_t *dim, const int64_t *stride, const int32_t *box)
{
    for (int i = 0; i < rank; i++)
        if (dim[i] < 1 || dim[i] > INT64_C(1) << 32 || box[i] < 1 || box[i] > 256 ||
            (i > 0 && (stride[i] <= 0 || stride[i] % 16 || stride[i] >= INT64_C(1) << 40)))
            return false;
    return true;
}

bool emulate_map(void *map, const void *data, int size, int rank, const int64_t *dim,
                 const int64_t *stride, const int32_t *box, int swizzle)
{
    struct async_map m = {};
    if (rank < 1 || rank > 5 || (uintptr_t)data % 16 || (uintptr_t)map % 64 ||
        !dims_fit(rank, dim, stride, box) || (size != 1 && size != 2 && size != 4) ||
        box[0] * size % CHUNK || (swizzle && swizzle != 32 && swizzle != 64 && swizzle != 128) ||
        (swizzle && box[0] * size > swizzle))
        return false;
    m.data = (uint64_t)(uintptr_t)data;
    m.rank = (uint8_t)rank;
    m.size = (uint8_t)size;
    m.swizzle = (uint8_t)swizzle;
    for (int i = 0; i < 5; i++) {
        m.dim[i] = i < rank ? dim[i] : 1;
        m.stride[i] = i == 0 ? (uint64_t)size : i < rank ? (uint64_t)stride[i] : 0;
        m.box[i] = i < rank ? (uint16_t)box[i] : 1;
    }
    memset(map, 0, MAP_BYTES);
    memcpy(map, &m, sizeof(m));
    return true;
}

static bool corners_fit(const int64_t *dim, const int32_t *lower, const int32_t *upper,
                        const int32_t *step)
{
    for (int i = 0; i < 2; i++)
        if (lower[i] < -128 || lower[i] > 127 || upper[i] < -128 || upper[i] > 127 || step[i] < 1 ||
            step[i] > 8 || dim[1 + i] - 1 + upper[i] < lower[i])
            return false;
    return true;
}

bool emulate_map_images(void *map, const void *data, int size, const int64_t *dim,
                        const int32_t *lower, const int32_t *upper, const int32_t *step, int pixels,
                        int swizzle)
{
    const int64_t stride[4] = {size, dim[0] * size, dim[0] * dim[1] * size,
                               dim[0] * dim[1] * dim[2] * size};
    const int32_t box[4] = {swizzle / size, 1, 1, 1};
    struct async_map m;
    if (!corners_fit(dim, lower, upper, step) || pixels < 1 || pixels > 1024 ||
        !emulate_map(map, data, size, 4, dim, stride, box, swizzle))
        return false;
    memcpy(&m, map, sizeof(m));
    m.pixels = (uint16_t)pixels;
    for (int i = 0; i < 2; i++) {
        m.lower[i] = (int16_t)lower[i];
        m.upper[i] = (int16_t)upper[i];
        m.step[i] = (uint8_t)step[i];
    }
    memcpy(map, &m, sizeof(m));
    return true;
}

static uint32_t line_of(const struct async_map &m)
{
    return (uint32_t)m.box[0] * m.size;
}

static uint32_t lines_of(const struct async_map &m)
{
    return m.pixels ? m.pixels : (uint32_t)m.box[1] * m.box[2] * m.box[3] * m.box[4];
}

/* The copy, checked, without its bytes. */
static struct async_copy copy_of(const void *map, const void *shared, int rank,
                                 const int32_t *first)
{
    struct async_copy c = {};
    memcpy(&c.map, map, sizeof(c.map));
    c.at = async_address(async_now(), shared);
    if (c.map.rank != rank)
        emulate_fail("a tensor copy of another rank than its map");
    if (c.at % (c.map.swizzle ? 8u * c.map.swizzle : 128u))
        emulate_fail("a tensor copy whose place in shared memory is not aligned");
    if (c.map.swizzle && line_of(c.map) != c.map.swizzle)
        emulate_fail("a tensor copy whose lines are shorter than its swizzle");
    for (int i = 0; i < rank; i++)
        c.first[i] = first[i];
    return c;
}

/* The places of line `line`, from dim 1 on: of the box, or of the window after so many steps. */
static void places(const struct async_copy &c, uint32_t line, int64_t *p)
{
    const struct async_map &m = c.map;
    for (int i = 1; i < 5 && !m.pixels; line /= m.box[i], i++)
        p[i] = (int64_t)c.first[i] + line % m.box[i];
    if (!m.pixels)
        return;
    int64_t at = line, n[2];
    for (int i = 0; i < 2; i++) { /* steps along W, then H */
        n[i] = (m.dim[1 + i] - 1 + m.upper[i] - m.lower[i]) / m.step[i] + 1;
        at += (c.first[1 + i] - m.lower[i]) / m.step[i];
        p[1 + i] = m.lower[i] + at % n[i] * m.step[i] + c.tap[i];
        at /= n[i];
    }
    p[3] = c.first[3] + at;
    p[4] = 0;
}

/* Where element 0 of dim 0 of line `line` of the box is in memory; NULL: outside of the tensor. */
static char *line_start(const struct async_copy &c, uint32_t line)
{
    uint64_t at = c.map.data;
    int64_t p[5] = {};
    places(c, line, p);
    for (int i = 1; i < 5; i++) {
        if (p[i] < 0 || p[i] >= c.map.dim[i])
            return nullptr;
        at += (uint64_t)p[i] * c.map.stride[i];
    }
    return reinterpret_cast<char *>((uintptr_t)at);
}

/* The address of 16 bytes of the box. */
static uint32_t chunk_at(const struct async_copy &c, uint32_t line, uint32_t byte)
{
    return async_swizzle(c.at + line * line_of(c.map) + byte, c.map.swizzle);
}

/* The bytes [first, last) of the chunk at byte `byte` of a line are in the tensor. */
static void inside(const struct async_copy &c, uint32_t byte, int64_t *first, int64_t *last)
{
    int64_t at = (int64_t)c.first[0] * c.map.size + byte, end = c.map.dim[0] * c.map.size;
    *first = at < 0 ? -at : 0;
    *last = end - at < CHUNK ? end - at : CHUNK;
}

/* Moves what of a chunk is in the tensor. `start`: where its line starts, see above. */
static void move_chunk(const struct async_copy &c, bool load, char *start, uint32_t byte,
                       char *chunk)
{
    int64_t first, last;
    inside(c, byte, &first, &last);
    if (load)
        memset(chunk, 0, CHUNK);
    if (!start || first >= last)
        return;
    char *at = start + (int64_t)c.first[0] * c.map.size + byte + first;
    if (load)
        memcpy(chunk + first, at, (size_t)(last - first));
    else
        memcpy(at, chunk + first, (size_t)(last - first));
}

void async_land(struct async *a, const struct async_copy &c)
{
    char chunk[CHUNK];
    for (uint32_t line = 0; line < lines_of(c.map); line++) {
        char *start = line_start(c, line);
        for (uint32_t byte = 0; byte < line_of(c.map); byte += CHUNK) {
            move_chunk(c, true, start, byte, chunk);
            async_write(a, chunk_at(c, line, byte), chunk, CHUNK);
        }
    }
    async_barrier_bytes(a, c.barrier, (int64_t)lines_of(c.map) * line_of(c.map));
}

void emulate_tensor_load(void *to, const void *map, uint64_t *barrier, int rank,
                         const int32_t *first)
{
    struct async *a = async_now();
    struct async_copy c = copy_of(map, to, rank, first);
    if (c.map.pixels)
        emulate_fail("a load of a box by a map of images");
    c.barrier = barrier;
    async_claim(a, c.at, (size_t)lines_of(c.map) * line_of(c.map));
    a->loads.push_back(c);
}

void emulate_tensor_load_images(void *to, const void *map, uint64_t *barrier, const int32_t *first,
                                int right, int down)
{
    struct async *a = async_now();
    struct async_copy c = copy_of(map, to, 4, first);
    if (!c.map.pixels)
        emulate_fail("a load of images by a map of another kind");
    for (int i = 0; i < 2; i++)
        if (first[1 + i] < c.map.lower[i] || first[1 + i] > c.map.dim[1 + i] - 1 + c.map.upper[i] ||
            (first[1 + i] - c.map.lower[i]) % c.map.step[i])
            emulate_fail("a load of images that begins where the window never is");
    if (right < 0 || right > 255 || down < 0 || down > 255)
        emulate_fail("a tap too far away");
    c.barrier = barrier;
    c.tap[0] = right;
    c.tap[1] = down;
    async_claim(a, c.at, (size_t)lines_of(c.map) * line_of(c.map));
    a->loads.push_back(c);
}

static std::vector<char> content_of(struct async *a, const struct async_copy &c)
{
    std::vector<char> all((size_t)lines_of(c.map) * line_of(c.map));
    async_read(a, c.at, all.data(), all.size());
    return all;
}

void emulate_tensor_store(const void *map, const void *from, int rank, const int32_t *first)
{
    struct async *a = async_now();
    struct async_copy c = copy_of(map, from, rank, first);
    c.thread = async_thread();
    c.group = a->store_groups[(size_t)c.thread];
    c.content = content_of(a, c);
    a->stores.push_back(c);
}

void emulate_bulk_commit(void)
{
    if (async_left_out("cp.async.bulk.commit_group", __builtin_return_address(0)))
        return;
    async_now()->store_groups[(size_t)async_thread()]++;
}

static void write_out(struct async *a, const struct async_copy &c)
{
    if (content_of(a, c) != c.content)
        emulate_fail("shared memory that changed while a tensor store read it");
    char chunk[CHUNK];
    for (uint32_t line = 0; line < lines_of(c.map); line++) {
        char *start = line_start(c, line);
        for (uint32_t byte = 0; byte < line_of(c.map); byte += CHUNK) {
            async_read(a, chunk_at(c, line, byte), chunk, CHUNK);
            move_chunk(c, false, start, byte, chunk);
        }
    }
}

void emulate_bulk_wait(int pending)
{
    struct async *a = async_now();
    if (async_left_out("cp.async.bulk.wait_group", __builtin_return_address(0)))
        return;
    pending += async_weaker(__builtin_return_address(0));
    int thread = async_thread(), upto = a->store_groups[(size_t)thread] - pending;
    std::vector<struct async_copy> rest;
    for (const struct async_copy &c : a->stores)
        if (c.thread == thread && c.group < upto)
            write_out(a, c);
        else
            rest.push_back(c);
    a->stores.swap(rest);
}
