/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a timing cache. The first byte chooses: 0, the rest is the file as it is; 1, the
 * digest is put behind it, so that the entries are reached. What is accepted is merged a second
 * time, into itself.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tune/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fingerprint(struct device *device, char out[FINGERPRINT_MAX])
{
    (void)device;
    strcpy(out, "fuzz");
}

static void merge(struct tune_cache *cache, const uint8_t *file, size_t size)
{
    const char *fault, *again;
    struct error err;
    if (tune_cache_merge(cache, file, size, false, &fault, &err) != STATUS_OK)
        abort();
    if (tune_cache_merge(cache, file, size, true, &again, &err) != STATUS_OK || fault != again)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct backend backend = {.name = "fuzz", .device_fingerprint = fingerprint};
    struct device device = {.backend = &backend};
    struct tune_cache *cache;
    struct error err;
    if (size < 1 || data[0] > 1)
        return 0;
    size_t digest = data[0] ? sizeof(XXH128_hash_t) : 0;
    uint8_t *file = malloc(size - 1 + digest ? size - 1 + digest : 1);
    if (!file || tune_cache_new(&device, &cache, &err) != STATUS_OK)
        abort();
    memcpy(file, data + 1, size - 1);
    if (digest) { /* little-endian, as the file is */
        XXH128_hash_t hash = XXH3_128bits(file, size - 1);
        memcpy(file + size - 1, &hash.low64, 8);
        memcpy(file + size + 7, &hash.high64, 8);
    }
    merge(cache, file, size - 1 + digest);
    tune_cache_free(cache);
    free(file);
    return 0;
}
