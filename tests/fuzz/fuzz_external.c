/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a model that is searched for its files of external data. The search must find files
 * exactly if the model has the key of external data.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/external.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char key[] = "\x0a\x08" EXTERNAL_WORD;
    static int folder = -1;
    struct external *external;
    uint8_t state[DIGEST_BYTES];
    if (folder < 0)
        folder = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (external_find(data, size, &external, NULL) != STATUS_OK)
        return 0;
    if (!external != !memmem(data, size, key, sizeof(key) - 1))
        abort();
    if (external)
        (void)external_state(external, folder, state, NULL);
    external_free(external);
    return 0;
}
