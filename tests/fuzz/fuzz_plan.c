/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a plan. If the first byte is 0, the rest is a whole file as it is. If the first byte
 * is 1 or 2, the next two bytes are the lengths of the weight section and of the code section in
 * units of 64 bytes (10 and 6 bits), and the rest is a structure section. A header with the right
 * lengths and digest is put in front, so that the decoder and the checks behind it are reached. If
 * it is 3, two more bytes are the length of a tail section, which is the end of the rest.
 * Weights are zeros for 1, numbers for 2. A plan that is accepted must satisfy the checks a second
 * time; then it is loaded on the CPU and run (run_plan.c). In half of the fuzzer's inputs a
 * structure is changed at one field, with the lengths around the field right (bend_fields.c).
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plan/format.h"
#include "tests/fuzz/bend_fields.h"
#include "tests/fuzz/run_plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
__attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

enum { WHOLE_FILE = 0, ZEROS = 1, NUMBERS = 2, TAILED = 3, HEAD = 3, TAILED_HEAD = 5 };

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    size_t head = size && data[0] == TAILED ? TAILED_HEAD : HEAD;
    if (size > head && data[0] != WHOLE_FILE && seed % 2) {
        size_t made = bend_fields(data + head, size - head, max_size - head, seed);
        if (made)
            return head + made;
    }
    return LLVMFuzzerMutate ? LLVMFuzzerMutate(data, size, max_size) : size;
}

static void read_plan(const void *data, size_t size)
{
    struct plan *plan;
    struct error err;
    if (plan_read_memory(data, size, &plan, &err))
        return;
    if (plan_check(plan, &err) && err.status != STATUS_RESOURCE_EXHAUSTED)
        abort();
    for (uint32_t i = 0; i < plan->n_profiles; i++)
        (void)plan_profile_time(&plan->profiles[i]);
    run_plan(data, size, plan);
    plan_free(plan);
}

/* Small floats of either sign, of every width. */
static void fill_weights(uint8_t *to, size_t size)
{
    static const uint8_t pattern[] = {0, 0, 0x80, 0x3e, 0, 0, 0x40, 0xbe, 0, 0, 0xc0, 0x3f};
    for (size_t i = 0; i < size; i++)
        to[i] = pattern[i % sizeof(pattern)];
}

static size_t page_behind(size_t end)
{
    return (end + PLAN_PAGE - 1) / PLAN_PAGE * PLAN_PAGE;
}

/* The sections of a plan: bytes for the first and the last, and lengths. */
struct sections {
    const uint8_t *structure, *tail;
    size_t structure_size, weights_size, code_size, tail_size;
    bool numbers;
};

static void read_sections(const struct sections *s)
{
    struct plan_header h = {.version = PLAN_VERSION, .endian = PLAN_ENDIAN};
    memcpy(h.magic, PLAN_MAGIC, sizeof(h.magic));
    h.structure_offset = sizeof(h);
    h.structure_size = s->structure_size;
    h.weights_offset = page_behind(sizeof(h) + s->structure_size);
    h.weights_size = s->weights_size;
    h.code_offset = h.weights_offset + s->weights_size;
    if (s->code_size)
        h.code_offset = page_behind(h.code_offset);
    h.code_size = s->code_size;
    h.tail_offset = h.code_offset + s->code_size;
    if (s->tail_size)
        h.tail_offset = page_behind(h.tail_offset);
    h.tail_size = s->tail_size;
    h.file_size = h.tail_offset + s->tail_size;
    strcpy(h.device, "cpu");
    uint8_t *file = aligned_alloc(64, (h.file_size + 63) / 64 * 64);
    if (!file)
        return;
    memset(file, 0, h.file_size);
    memcpy(file + sizeof(h), s->structure, s->structure_size);
    if (s->numbers)
        fill_weights(file + h.weights_offset, s->weights_size);
    if (s->tail_size)
        memcpy(file + h.tail_offset, s->tail, s->tail_size);
    plan_digest(&h, XXH3_128bits(file + sizeof(h), h.file_size - sizeof(h)), h.digest);
    memcpy(file, &h, sizeof(h));
    read_plan(file, h.file_size);
    free(file);
}

static void read_structure(const uint8_t *data, size_t size)
{
    size_t head = data[0] == TAILED ? TAILED_HEAD : HEAD;
    size_t tail = data[0] == TAILED ? data[3] + 256 * (size_t)data[4] : 0;
    tail = tail <= size - head ? tail : 0;
    read_sections(&(struct sections){
        .structure = data + head,
        .structure_size = size - head - tail,
        .tail = data + size - tail,
        .tail_size = tail,
        .weights_size = 64 * (size_t)data[1] + 64 * 256 * (size_t)(data[2] & 3),
        .code_size = 64 * (size_t)(data[2] >> 2),
        .numbers = data[0] != ZEROS,
    });
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size >= HEAD && (data[0] == ZEROS || data[0] == NUMBERS)) {
        read_structure(data, size);
    } else if (size >= TAILED_HEAD && data[0] == TAILED) {
        read_structure(data, size);
    } else if (size >= 1 && data[0] == WHOLE_FILE) {
        uint8_t *file = aligned_alloc(64, (size + 63) / 64 * 64);
        if (!file)
            return 0;
        memcpy(file, data + 1, size - 1);
        read_plan(file, size - 1);
        free(file);
    }
    return 0;
}
