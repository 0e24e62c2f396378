/* SPDX-License-Identifier: Apache-2.0 */
/* A module whose table has another version. */
#include "engine/backend.h"

const struct backend *inferd_backend(void);

const struct backend *inferd_backend(void)
{
    static const struct backend table = {.abi = BACKEND_ABI + 1, .name = "cuda"};
    return &table;
}
