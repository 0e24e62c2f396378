/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names that exist, for an error that says one does not: "'a', 'b' and 3 more (did you mean
 * 'b'?)". Nearest is a name that begins like the one that was given, or the one with the fewest
 * letters to insert, drop, change or swap, if those are at most a third; capitals do not count.
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
    uint32_t distance; /* of the nearest; one more than is near: none yet */
    uint32_t n, told;
    size_t len;
    char list[NAMES_LIST_MAX], text[NAMES_TEXT_MAX];
};

void names_init(struct names *names, const char *wanted, size_t len);
void names_add(struct names *names, const char *name);       /* in any order, each once */
bool names_has(const struct names *names, const char *name); /* among those that are told */

/* What was added, "none" if nothing was. Within the struct, until the next call. */
const char *names_text(struct names *names);
/* The nearest alone: " (did you mean 'b'?)" or "". */
const char *names_hint(struct names *names);

#endif
