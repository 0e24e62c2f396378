/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors on the command line; see handed.h. */
#include "tools/handed.h"

#include <string.h>

/* Digits at *text, which is moved behind them; -1: there are none, or too many. */
static int number(const char **text)
{
    size_t n = strspn(*text, "0123456789");
    int value = 0;
    if (n == 0 || n > 6)
        return -1;
    for (size_t i = 0; i < n; i++)
        value = value * 10 + ((*text)[i] - '0');
    *text += n;
    return value;
}

bool handed_parse(const char *text, struct handed *out)
{
    const char *at = text + strlen("fd:");
    if (strncmp(text, "fd:", strlen("fd:")) != 0)
        return false;
    struct handed h = {.fd = number(&at), .folder = -1, .name = text};
    if (h.fd < 0)
        return false;
    if (*at == ',') {
        at++;
        h.folder = number(&at);
        if (h.folder < 0)
            return false;
    }
    if (*at == ':')
        h.name = at + 1;
    else if (*at)
        return false;
    *out = h;
    return true;
}
