/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as an ONNX TensorProto, the .pb files of test data; what is accepted is read to its
 * last byte. */
#include <stdint.h>
#include <stdlib.h>

#include "engine/import/decode.h"
#include "engine/import/tensor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sum; /* so that the reads are not left out */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena *arena = arena_new(0);
    struct onnx_tensor tensor;
    enum dtype dtype;
    struct error err;
    const void *bytes;
    size_t n;
    if (!arena)
        return 0;
    if (decode_tensor(arena, (struct span){data, size}, &tensor, &err) == STATUS_OK &&
        tensor_bytes(NULL, arena, &tensor, &dtype, &bytes, &err) == STATUS_OK) {
        if (!bytes || !shape_bytes(&tensor.shape, dtype, &n))
            abort();
        for (size_t i = 0; i < n; i++)
            sum += ((const uint8_t *)bytes)[i];
    }
    arena_free(arena);
    return 0;
}
