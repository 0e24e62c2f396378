/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device does beside ops: memory, arenas, streams, events, copies, capture, threads.
 *
 *   device_core [--device cpu|cuda[:N]]
 *
 * A check returns NULL or a text that says what is wrong. The exit code is 77 if there is no such
 * device.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/backend.h"
#include "engine/engine.h"

enum { EXIT_SKIP = 77, THREADS = 4, PIECES = 300, MIB = 1 << 20 };

struct bed {
    struct device *device;
    const struct backend *b;
    struct backend_stream *stream;
    struct backend_event *begin, *end;
    struct error err;
};

/* Ends a check whose call failed; the reason is in bed->err. */
#define NEED(call)                                                                                 \
    do {                                                                                           \
        if (call)                                                                                  \
            return bed->err.text;                                                                  \
    } while (0)

static void fill(unsigned char *bytes, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(i * 7 + (i >> 8) * 13 + seed);
}

static enum status settle(struct bed *bed)
{
    enum status status = bed->b->event_record(bed->end, bed->stream, &bed->err);
    return status ? status : bed->b->event_wait(bed->end, &bed->err);
}

static enum status move(struct bed *bed, enum copy_direction direction, void *to, const void *from,
                        size_t size)
{
    struct backend_copy copy = {to, from, size};
    enum status status = bed->b->copy(bed->stream, direction, &copy, 1, &bed->err);
    return status ? status : settle(bed);
}

static enum status take(struct bed *bed, enum memory_kind kind, size_t size, void *out)
{
    return bed->b->memory_alloc(bed->device, kind, size, "test", out, &bed->err);
}

static void give(struct bed *bed, enum memory_kind kind, void *memory)
{
    if (memory)
        bed->b->memory_free(bed->device, kind, memory);
}

static enum status bed_make(struct bed *bed, struct device *device)
{
    *bed = (struct bed){.device = device, .b = device->backend};
    enum status status = bed->b->stream_new(device, &bed->stream, &bed->err);
    if (!status)
        status = bed->b->event_new(device, true, &bed->begin, &bed->err);
    return status ? status : bed->b->event_new(device, true, &bed->end, &bed->err);
}

static void bed_drop(struct bed *bed)
{
    bed->b->event_free(bed->begin);
    bed->b->event_free(bed->end);
    bed->b->stream_free(bed->stream);
}

/* --- copies --- */

/* Copies bytes to the device, then on the device, then back. */
static const char *round_trip(struct bed *bed, unsigned char *host, size_t size)
{
    unsigned char *one = NULL, *two = NULL, *want = malloc(size);
    const char *wrong = want ? NULL : "out of memory";
    if (!wrong && (take(bed, MEMORY_DEVICE, size, &one) || take(bed, MEMORY_DEVICE, size, &two)))
        wrong = bed->err.text;
    if (!wrong) {
        fill(host, size, (unsigned)size);
        memcpy(want, host, size);
        if (move(bed, COPY_TO_DEVICE, one, host, size) || move(bed, COPY_ON_DEVICE, two, one, size))
            wrong = bed->err.text;
        memset(host, 0, size);
    }
    if (!wrong && move(bed, COPY_TO_HOST, host, two, size))
        wrong = bed->err.text;
    if (!wrong && memcmp(host, want, size) != 0)
        wrong = "other bytes came back";
    give(bed, MEMORY_DEVICE, one);
    give(bed, MEMORY_DEVICE, two);
    free(want);
    return wrong;
}

static const char *copies(struct bed *bed)
{
    static const size_t sizes[] = {1, 63, 4096, MIB + 3, 64 * MIB};
    const char *wrong = NULL;
    for (size_t i = 0; i < ARRAY_LEN(sizes) && !wrong; i++) {
        unsigned char *pinned = NULL, *pageable = malloc(sizes[i]);
        if (take(bed, MEMORY_PINNED, sizes[i], &pinned))
            wrong = bed->err.text;
        if (!wrong)
            wrong = round_trip(bed, pinned, sizes[i]);
        if (!wrong && pageable)
            wrong = round_trip(bed, pageable, sizes[i]);
        give(bed, MEMORY_PINNED, pinned);
        free(pageable);
    }
    return wrong;
}

/* Copies the pieces of a buffer in another order, empty pieces among them, in one call each way. */
static const char *piecewise(struct bed *bed, unsigned char *host, unsigned char *back,
                             unsigned char *device)
{
    static const size_t piece = 1021;
    struct backend_copy there[PIECES], here[PIECES];
    for (size_t i = 0; i < PIECES; i++) {
        size_t at = i * piece, to = (PIECES - 1 - i) * piece, size = i % 10 == 9 ? 0 : piece;
        there[i] = (struct backend_copy){device + to, host + at, size};
        here[i] = (struct backend_copy){back + at, device + to, size};
    }
    fill(host, PIECES * piece, 3);
    memset(back, 0x55, PIECES * piece);
    NEED(bed->b->copy(bed->stream, COPY_TO_DEVICE, there, PIECES, &bed->err));
    NEED(bed->b->copy(bed->stream, COPY_TO_HOST, here, PIECES, &bed->err));
    NEED(settle(bed));
    for (size_t i = 0; i < PIECES * piece; i++)
        if (back[i] != (i / piece % 10 == 9 ? 0x55 : host[i]))
            return "other bytes came back";
    return NULL;
}

static const char *batches_of_copies(struct bed *bed)
{
    enum { BYTES = PIECES * 1021 };
    unsigned char *host = NULL, *back = NULL, *device = NULL;
    unsigned char *plain = malloc(BYTES), *plain_back = malloc(BYTES);
    const char *wrong = plain && plain_back ? NULL : "out of memory";
    if (!wrong &&
        (take(bed, MEMORY_PINNED, BYTES, &host) || take(bed, MEMORY_PINNED, BYTES, &back) ||
         take(bed, MEMORY_DEVICE, BYTES, &device)))
        wrong = bed->err.text;
    if (!wrong)
        wrong = piecewise(bed, host, back, device);
    if (!wrong)
        wrong = piecewise(bed, plain, plain_back, device);
    give(bed, MEMORY_PINNED, host);
    give(bed, MEMORY_PINNED, back);
    give(bed, MEMORY_DEVICE, device);
    free(plain);
    free(plain_back);
    return wrong;
}

/* --- memory --- */

static const char *more_memory_than_there_is(struct bed *bed)
{
    void *memory = NULL;
    if (take(bed, MEMORY_DEVICE, (size_t)1 << 46, &memory) != STATUS_RESOURCE_EXHAUSTED || memory)
        return "64 TiB were not refused as too much";
    if (bed->err.scope == ERROR_DEVICE)
        return "the device is said to be lost";
    NEED(take(bed, MEMORY_DEVICE, 100, &memory));
    give(bed, MEMORY_DEVICE, memory);
    memory = NULL;
    NEED(take(bed, MEMORY_DEVICE, 0, &memory));
    give(bed, MEMORY_DEVICE, memory);
    return NULL;
}

static const char *growing(struct bed *bed, struct backend_arena *arena, unsigned char *host)
{
    static const size_t sizes[] = {1, 3 * MIB, 3 * MIB, 65 * MIB};
    unsigned char *base = bed->b->arena_base(arena);
    size_t before = 0;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        NEED(bed->b->arena_grow(arena, sizes[i], &bed->err));
        if (bed->b->arena_base(arena) != base)
            return "the arena moved";
        memset(host, 0, sizes[i]);
        NEED(move(bed, COPY_TO_HOST, host, base, before));
        for (size_t k = 0; k < before; k++)
            if (host[k] != (unsigned char)(k * 7 + (k >> 8) * 13 + i - 1))
                return "what was in the arena is gone";
        fill(host, sizes[i], (unsigned)i);
        NEED(move(bed, COPY_TO_DEVICE, base, host, sizes[i]));
        before = sizes[i];
    }
    if (bed->b->arena_grow(arena, (size_t)128 * MIB + 1, &bed->err) != STATUS_RESOURCE_EXHAUSTED)
        return "it grew beyond what is reserved";
    return NULL;
}

static const char *arenas(struct bed *bed)
{
    struct backend_arena *arena = NULL, *unused = NULL;
    unsigned char *host = NULL;
    const char *wrong = NULL;
    if (bed->b->arena_new(bed->device, (size_t)128 * MIB, &arena, &bed->err) ||
        bed->b->arena_new(bed->device, (size_t)64 << 30, &unused, &bed->err) ||
        take(bed, MEMORY_PINNED, 65 * MIB, &host))
        wrong = bed->err.text;
    if (!wrong)
        wrong = growing(bed, arena, host);
    give(bed, MEMORY_PINNED, host);
    bed->b->arena_free(arena);
    bed->b->arena_free(unused);
    return wrong;
}

/* --- events --- */

static const char *times(struct bed *bed)
{
    uint64_t ns = UINT64_MAX;
    unsigned char *a = NULL, *b = NULL;
    const char *wrong = NULL;
    if (take(bed, MEMORY_DEVICE, 256 * MIB, &a) || take(bed, MEMORY_DEVICE, 256 * MIB, &b))
        wrong = bed->err.text;
    struct backend_copy copy = {b, a, 256 * MIB};
    if (!wrong && (bed->b->event_record(bed->begin, bed->stream, &bed->err) ||
                   bed->b->copy(bed->stream, COPY_ON_DEVICE, &copy, 1, &bed->err) || settle(bed) ||
                   bed->b->event_wait(bed->end, &bed->err) ||
                   bed->b->event_elapsed(bed->begin, bed->end, &ns, &bed->err)))
        wrong = bed->err.text;
    if (!wrong && (ns < 1000 || ns > 2000000000))
        wrong = "a copy of 256 MiB took less than 1 us, or more than 2 s";
    give(bed, MEMORY_DEVICE, a);
    give(bed, MEMORY_DEVICE, b);
    return wrong;
}

/* --- capture --- */

struct loop { /* pinned -> device -> pinned, with an event before and after */
    unsigned char *from, *device, *to;
    struct backend_event *first, *last;
    struct backend_graph *graph;
};

static enum status capture_loop(struct bed *bed, struct loop *loop, size_t size)
{
    struct backend_copy there = {loop->device, loop->from, size};
    struct backend_copy here = {loop->to, loop->device, size};
    enum status status = bed->b->capture_begin(bed->stream, &bed->err);
    if (status)
        return status;
    status = bed->b->event_record(loop->first, bed->stream, &bed->err);
    if (!status)
        status = bed->b->copy(bed->stream, COPY_TO_DEVICE, &there, 1, &bed->err);
    if (!status)
        status = bed->b->copy(bed->stream, COPY_TO_HOST, &here, 1, &bed->err);
    if (!status)
        status = bed->b->event_record(loop->last, bed->stream, &bed->err);
    struct error ended;
    enum status end = bed->b->capture_end(bed->stream, &loop->graph, status ? &ended : &bed->err);
    return status ? status : end;
}

static const char *replay(struct bed *bed, struct loop *loop, size_t size)
{
    NEED(capture_loop(bed, loop, size));
    for (unsigned seed = 1; seed <= 3; seed++) {
        uint64_t ns = 0;
        fill(loop->from, size, seed);
        memset(loop->to, 0, size);
        NEED(bed->b->graph_launch(loop->graph, bed->stream, &bed->err));
        NEED(settle(bed));
        NEED(bed->b->event_elapsed(loop->first, loop->last, &ns, &bed->err));
        if (memcmp(loop->from, loop->to, size) != 0)
            return "other bytes came back";
        if (ns == 0 || ns > 1000000000)
            return "events within the graph tell no time";
    }
    return NULL;
}

static const char *captures(struct bed *bed)
{
    struct loop loop = {0};
    const char *wrong = NULL;
    if (!bed->b->capture_begin)
        return NULL;
    if (take(bed, MEMORY_PINNED, MIB, &loop.from) || take(bed, MEMORY_PINNED, MIB, &loop.to) ||
        take(bed, MEMORY_DEVICE, MIB, &loop.device) ||
        bed->b->event_new(bed->device, true, &loop.first, &bed->err) ||
        bed->b->event_new(bed->device, true, &loop.last, &bed->err))
        wrong = bed->err.text;
    if (!wrong)
        wrong = replay(bed, &loop, MIB);
    if (loop.graph)
        bed->b->graph_free(loop.graph);
    bed->b->event_free(loop.first);
    bed->b->event_free(loop.last);
    give(bed, MEMORY_PINNED, loop.from);
    give(bed, MEMORY_PINNED, loop.to);
    give(bed, MEMORY_DEVICE, loop.device);
    return wrong;
}

static const char *capture_of_nothing(struct bed *bed)
{
    struct backend_graph *graph = NULL;
    if (!bed->b->capture_begin)
        return NULL;
    NEED(bed->b->capture_begin(bed->stream, &bed->err));
    NEED(bed->b->capture_end(bed->stream, &graph, &bed->err));
    NEED(bed->b->graph_launch(graph, bed->stream, &bed->err));
    NEED(settle(bed));
    bed->b->graph_free(graph);
    return NULL;
}

/* --- threads --- */

struct worker {
    pthread_t thread;
    struct device *device;
    char wrong[ERROR_TEXT_MAX];
};

/* Does everything at once, so that allocations of one thread happen during captures of another. */
static void *work(void *user)
{
    struct worker *w = user;
    struct bed bed;
    const char *wrong = bed_make(&bed, w->device) ? bed.err.text : NULL;
    for (int i = 0; i < 3 && !wrong; i++) {
        wrong = captures(&bed);
        if (!wrong)
            wrong = batches_of_copies(&bed);
        if (!wrong)
            wrong = arenas(&bed);
    }
    snprintf(w->wrong, sizeof(w->wrong), "%s", wrong ? wrong : "");
    bed_drop(&bed);
    return NULL;
}

static const char *threads(struct bed *bed)
{
    struct worker workers[THREADS];
    int n = 0;
    for (; n < THREADS; n++) {
        workers[n].device = bed->device;
        if (pthread_create(&workers[n].thread, NULL, work, &workers[n]))
            break;
    }
    const char *wrong = n == THREADS ? NULL : "no more threads";
    for (int i = 0; i < n; i++) {
        pthread_join(workers[i].thread, NULL);
        if (*workers[i].wrong && !wrong) {
            error_set(&bed->err, STATUS_INTERNAL, "%s", workers[i].wrong);
            wrong = bed->err.text;
        }
    }
    return wrong;
}

/* Uses a stream made on one thread on another thread, which has not used the device before. */
static void *use_elsewhere(void *user)
{
    struct bed *bed = user;
    return (void *)(uintptr_t)batches_of_copies(bed);
}

static const char *handed_over(struct bed *bed)
{
    pthread_t thread;
    void *wrong;
    if (pthread_create(&thread, NULL, use_elsewhere, bed))
        return "no more threads";
    pthread_join(thread, &wrong);
    return wrong;
}

static const char *no_such_device(struct bed *bed)
{
    char spec[32];
    struct device *device = NULL;
    snprintf(spec, sizeof(spec), "%s:4000", bed->b->name);
    if (engine_device_open(spec, NULL, &device, &bed->err) != STATUS_NOT_FOUND || device)
        return "device 4000 was not refused";
    return strstr(bed->err.text, ":4000") ? NULL : bed->err.text;
}

static const struct {
    const char *name;
    const char *(*check)(struct bed *bed);
} checks[] = {
    {"copies", copies},
    {"batches of copies", batches_of_copies},
    {"more memory than there is", more_memory_than_there_is},
    {"arenas", arenas},
    {"times", times},
    {"captures", captures},
    {"a capture of nothing", capture_of_nothing},
    {"a stream handed over", handed_over},
    {"threads", threads},
    {"no such device", no_such_device},
};

int main(int argc, char **argv)
{
    const char *spec = argc == 3 && !strcmp(argv[1], "--device") ? argv[2] : "cuda";
    struct device *device = NULL;
    struct error err;
    struct bed bed;
    char line[FINGERPRINT_MAX];
    unsigned passed = 0, failed = 0;
    if (engine_device_open(spec, NULL, &device, &err)) {
        printf("skipped: %s\n", err.text);
        return EXIT_SKIP;
    }
    device->backend->device_fingerprint(device, line);
    printf("%s\n", line);
    if (bed_make(&bed, device)) {
        printf("%s\n0 passed, 1 failed\n", bed.err.text);
        return 1;
    }
    for (size_t i = 0; i < ARRAY_LEN(checks); i++) {
        const char *wrong = checks[i].check(&bed);
        printf("%-28s %s\n", checks[i].name, wrong ? wrong : "ok");
        fflush(stdout);
        passed += !wrong;
        failed += wrong != NULL;
    }
    bed_drop(&bed);
    engine_device_close(device);
    printf("%u passed, %u failed\n", passed, failed);
    return failed ? 1 : 0;
}
