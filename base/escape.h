/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts from outside, made harmless for terminals and logs: each byte of a control character (C0,
 * DEL, C1; newlines too) and each byte that is not UTF-8 becomes \xNN. The rest stays.
 */
#ifndef INFERD_BASE_ESCAPE_H
#define INFERD_BASE_ESCAPE_H

#include <stddef.h>

enum { ESCAPE_GROWTH = 4 }; /* bytes that come of one, at most */

/* Writes at most `size` bytes with the end's 0, and splits no character and no escape. */
void escape_text(char *out, size_t size, const char *in);

#endif
