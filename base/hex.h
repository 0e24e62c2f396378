/* SPDX-License-Identifier: Apache-2.0 */
/* Hexadecimal digits. */
#ifndef INFERD_BASE_HEX_H
#define INFERD_BASE_HEX_H

/* The value of a digit in small or capital letters; -1: it is none. */
static inline int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

#endif
