/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UTF-8 (RFC 3629), as far as texts from outside need it: protobuf's strings must be UTF-8, and a
 * text that is cut must not end within a character. Overlong forms, surrogates and what lies beyond
 * U+10FFFF are not UTF-8.
 */
#ifndef INFERD_BASE_UTF8_H
#define INFERD_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character at text[0..len): 1 to 4; 0: there is no whole one. */
size_t utf8_char(const char *text, size_t len);

/* Whether the character text[0..len) is a control character: C0, DEL, or C1 (U+0080 to U+009F),
 * which terminals take for commands as well. */
bool utf8_is_control(const char *text, size_t len);

/* Whether all of text[0..len) is UTF-8; an empty text is. */
bool utf8_ok(const char *text, size_t len);

/* Bytes of the whole characters that text[0..len) begins with, at most `max`. */
size_t utf8_prefix(const char *text, size_t len, size_t max);

/* The most bytes of text[0..len), at most `max`, that do not end within a character. Bytes that are
 * no UTF-8 are cut anywhere. */
size_t utf8_cut(const char *text, size_t len, size_t max);

#endif
