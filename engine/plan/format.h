/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a plan file, and the functions that reader and writer share.
 *
 *   offset 0                  struct plan_header
 *   sizeof(struct plan_header) structure section: an encoded inferd.plan.Plan
 *   next multiple of 4096     weight section: each constant at a multiple of 64, zeros between
 *   next multiple of 4096     code section: compiled tactics, laid out in the same way. They are no
 *                             part of the weights, because the weights go to the device as they are
 *   next multiple of 4096     tail section: what is computed when a request has come (plan.h)
 *
 * Numbers are in the byte order of the machine that wrote them; `endian` tells which. `digest` is
 * the XXH3 128-bit hash, in canonical form, of a header whose `digest` is the hash of all bytes
 * behind the header.
 */
#ifndef INFERD_ENGINE_PLAN_FORMAT_H
#define INFERD_ENGINE_PLAN_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
/* This XXH3 uses the processor's widest registers, where xxhash.h would use SSE2: the digest then
 * takes little time beside reading the plan. */
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#include "engine/plan/plan.h"

#define PLAN_MAGIC "INFERDPL"

enum {
    PLAN_VERSION = 9,
    PLAN_ENDIAN = 0x01020304,
    PLAN_PAGE = 4096,
    PLAN_MAX_STRUCTURE = 64 << 20,
};

struct plan_header {
    char magic[8];
    uint32_t version;
    uint32_t endian;
    uint64_t file_size;
    uint64_t structure_offset, structure_size;
    uint64_t weights_offset, weights_size;
    uint64_t code_offset, code_size;
    uint64_t tail_offset, tail_size;
    uint8_t model_digest[16];
    uint8_t digest[16];
    char device[PLAN_DEVICE_MAX]; /* terminated, zeros behind it */
    uint8_t reserved[8];          /* zeros */
};

_Static_assert(sizeof(struct plan_header) == 512, "the header has no padding");

/* The file's digest, given the hash of all bytes behind the header. */
void plan_digest(const struct plan_header *header, XXH128_hash_t rest, uint8_t out[16]);

/* Decodes the structure section into `plan`. `size` bounds the memory it may take. */
enum status plan_decode(struct plan *plan, const void *data, size_t size, struct error *err);

/* Offsets within the sections, by profile. */
struct plan_offsets {
    uint64_t *constants[PLAN_MAX_PROFILES]; /* by tensor, in the weight section */
    uint64_t *code[PLAN_MAX_PROFILES];      /* by node: its tactic's code, in the code section */
};

/* Encodes the structure section; *out is malloc-ed. */
enum status plan_encode(const struct plan *plan, const struct plan_offsets *offsets, uint8_t **out,
                        size_t *size, struct error *err);

#endif
