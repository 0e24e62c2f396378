/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a file of token hashes. A file that is accepted has names, and no hash twice. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/token_file.h"
#include "proto/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct token_list list = {0};
    struct error err = {0};
    enum status status = token_list_parse("fuzz", (const char *)data, size, &list, &err);
    if (status != STATUS_OK) {
        if (list.items || err.status != status || !err.text[0])
            abort();
        return 0;
    }
    for (uint32_t i = 0; i < list.n; i++) {
        const struct token_line *line = &list.items[i];
        if (!message_name_ok(message_text_of(line->name)) || !line->line)
            abort();
        if (i && line[-1].line >= line->line)
            abort();
        for (uint32_t k = 0; k < i; k++)
            if (memcmp(&list.items[k].hash, &line->hash, sizeof(line->hash)) == 0)
                abort();
    }
    token_list_deinit(&list);
    return 0;
}
