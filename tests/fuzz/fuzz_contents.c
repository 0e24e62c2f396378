/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a tensor's typed contents. The first byte is the datatype, the second byte the
 * expected number of elements, and at the third byte a series of budgets begins. Decoded in slices
 * of these sizes, the contents must give the same bytes or the same error as in one go.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 3, BUDGETS = 16 };

static void must(bool right)
{
    if (!right)
        abort();
}

static enum status in_slices(const struct message_tensor *tensor, uint32_t seed, void *to,
                             size_t size, struct error *err)
{
    struct message_unpacking u;
    bool done = false;
    enum status s = message_unpack_begin(&u, tensor, to, size, err);
    while (s == STATUS_OK && !done) {
        const uint8_t *before = u.at;
        const size_t left = u.left;
        seed = seed * 1103515245 + 12345;
        s = message_unpack_step(&u, (seed >> 16) % BUDGETS, &done, err);
        must(s != STATUS_OK || done || (u.at > before && u.at <= u.end && u.left < left));
    }
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEAD)
        return 0;
    const struct message_tensor tensor = {
        .name = message_text_of("x"),
        .dtype = (enum dtype)(DTYPE_BOOL + data[0] % (DTYPE_COUNT_ - DTYPE_BOOL)),
        .typed = true,
        .contents = {(const char *)data + HEAD, size - HEAD}};
    const size_t bytes = data[1] * dtype_size(tensor.dtype);
    uint8_t *whole = malloc(bytes + 1), *slices = malloc(bytes + 1);
    struct error err = {0}, other = {0};
    must(whole && slices);
    enum status s = message_unpack(&tensor, whole, bytes, &err);
    must(in_slices(&tensor, data[2], slices, bytes, &other) == s);
    must(strcmp(err.text, other.text) == 0);
    must(s != STATUS_OK || memcmp(whole, slices, bytes) == 0);
    free(whole);
    free(slices);
    return 0;
}
