/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a configuration. A configuration that is accepted must pass the check again after a
 * model was added. */
#include <stdint.h>
#include <stdlib.h>

#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config *config = NULL;
    struct error err = {0};
    enum status status = config_parse("fuzz", data, size, &config, &err);
    if (status != STATUS_OK) {
        if (config || err.status != status || !err.text[0])
            abort();
        return 0;
    }
    config->listen.insecure = true; /* a file may name any address, as the command line may too */
    if (config_check(config, &err) != STATUS_OK)
        abort();
    if (config_model_argument(config, "added=a.plan", &err) != STATUS_OK)
        abort();
    config_free(config);
    return 0;
}
