/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a sequence of events over many connections of one loop, in virtual time: who comes,
 * sends, reads and leaves, in what order, against which limits. tests/unit/daemon/played.h states
 * what must hold after each event, and in the end.
 */
#include <stdio.h>

#include "tests/unit/daemon/played.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 4096)
        return 0;
    snprintf(played_title, sizeof(played_title), "%zu bytes", size);
    played_run(data, size);
    return 0;
}
