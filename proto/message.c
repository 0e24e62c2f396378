/* SPDX-License-Identifier: Apache-2.0 */
/* Which names are allowed; see message.h. */
#include "proto/message.h"

static bool name_byte_ok(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

bool message_name_ok(struct message_text name)
{
    if (name.len < 1 || name.len > MESSAGE_MAX_NAME || name.data[0] == '.')
        return false;
    for (size_t i = 0; i < name.len; i++)
        if (!name_byte_ok(name.data[i]))
            return false;
    return true;
}

bool message_tensor_name_ok(struct message_text name)
{
    if (name.len < 1 || name.len > MESSAGE_MAX_NAME)
        return false;
    for (size_t i = 0; i < name.len; i++)
        if (name.data[i] <= 0x20 || name.data[i] >= 0x7f)
            return false;
    return true;
}
