/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names that exist, for an error about a name that does not: "'a', 'b' and 3 more (did you mean
 * 'b'?)". The nearest is a name that begins with the given one, or else the name with the fewest
 * letters to insert, drop, change or swap, if these are at most a third; capitals do not count.
 * Names longer than NAMES_LONGEST are listed and never near, so that the work for a name has a
 * bound.
 */
#ifndef INFERD_BASE_NAMES_H
#define INFERD_BASE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NAMES_LONGEST = 64, NAMES_TOLD = 6, NAMES_LIST_MAX = 256, NAMES_TEXT_MAX = 400 };

struct names {
    char wanted[NAMES_LONGEST + 1], nearest[NAMES_LONGEST + 1];
    uint32_t distance; /* of the nearest; while there is none, one more than a near name's */
    uint32_t n, told;
    size_t len;
    char list[NAMES_LIST_MAX], text[NAMES_TEXT_MAX];
};

void names_init(struct names *names, const char *wanted, size_t len);
void names_add(struct names *names, const char *name);       /* in any order, each once */
bool names_has(const struct names *names, const char *name); /* among those that are told */

/* The names that were added, or "none". The text lies in the struct and is good until the next
 * call. */
const char *names_text(struct names *names);
/* The nearest alone: " (did you mean 'b'?)" or "". */
const char *names_hint(struct names *names);

#endif
