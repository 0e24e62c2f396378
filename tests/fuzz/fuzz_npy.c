/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a .npy file; what is accepted is read to its last element. */
#include <stdint.h>
#include <stdlib.h>

#include "tools/npy.h"
#include "tools/tensor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tensor_view tensor;
    struct error err;
    size_t n;
    if (npy_parse(data, size, "npy", &tensor, &err))
        return 0;
    if (!shape_elements(&tensor.shape, &n))
        abort();
    if (n)
        (void)tensor_at(&tensor, n - 1);
    free(tensor.data);
    return 0;
}
