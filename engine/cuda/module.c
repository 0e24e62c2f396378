/* SPDX-License-Identifier: Apache-2.0 */
/* The module's one symbol. */
#include "engine/cuda/device.h"

__attribute__((visibility("default"))) const struct backend *inferd_backend(void);

const struct backend *inferd_backend(void)
{
    return &backend_cuda;
}
