/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as one of the short texts that operators and users give. The first byte chooses: a
 * socket address, a data type, a fault script. An address that is accepted must come back from its
 * text as the same address.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/resolve.h"
#include "engine/runtime/fault_script.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* No name is looked up here: the parser only tells names from addresses. */
static void read_host(const char *text)
{
    struct resolved addresses;
    struct resolve_name name;
    struct error err;
    if (resolve_text(text, &addresses, &name, &err) != STATUS_OK)
        return;
    if (addresses.n > 2)
        abort();
    if (addresses.n == 0 && (strlen(name.host) + 1 + strlen(name.port) != strlen(text) ||
                             name.host[strspn(name.host, "abcdefghijklmnopqrstuvwxyz"
                                                         "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                         "0123456789-._")]))
        abort();
}

static void read_address(const char *text)
{
    read_host(text);
    struct address first, second;
    char spelled[ADDRESS_TEXT_MAX];
    struct error err;
    if (address_parse(text, &first, &err) != STATUS_OK)
        return;
    address_format(&first, spelled);
    if (address_parse(spelled, &second, &err) != STATUS_OK || first.length != second.length ||
        memcmp(&first.storage, &second.storage, first.length) != 0)
        abort();
}

static void read_dtype(const char *text)
{
    enum dtype dtype = dtype_parse(text, strlen(text));
    if (dtype != DTYPE_NONE && strcmp(dtype_name(dtype), text) != 0)
        abort();
}

static void read_fault_script(const char *text)
{
    struct fault_script script;
    struct error err;
    if (fault_script_parse(text, &script, &err) != STATUS_OK)
        return;
    if (script.n_rules > FAULT_RULES_MAX || !memchr(script.backend, '\0', FAULT_BACKEND_MAX))
        abort();
    for (uint32_t i = 0; i < script.n_rules; i++)
        if (script.rules[i].first < 1 || script.rules[i].last < script.rules[i].first)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(const char *text) = {
        read_address,
        read_dtype,
        read_fault_script,
    };
    if (size < 1 || data[0] >= sizeof(readers) / sizeof(readers[0]))
        return 0;
    char *text = malloc(size);
    if (!text)
        abort();
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    readers[data[0]](text);
    free(text);
    return 0;
}
