/* SPDX-License-Identifier: Apache-2.0 */
/* Names for error texts; see names.h. */
#include "base/names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/compiler.h"
#include "base/utf8.h"

/* How many insertions, deletions, changes and swaps of neighbours lead from `a` to `b`. Keeps three
 * rows of Damerau and Levenshtein's table, where [i][j] is the distance between the first i letters
 * of `a` and the first j letters of `b`. */
static uint32_t distance(const char *a, const char *b)
{
    uint32_t rows[3][NAMES_LONGEST + 1] = {0};
    size_t n = strlen(b);
    for (size_t j = 0; j <= n; j++)
        rows[0][j] = (uint32_t)j;
    for (size_t i = 1; a[i - 1]; i++) {
        uint32_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = (uint32_t)i;
        for (size_t j = 1; j <= n; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            row[j] = MIN(MIN(row[j - 1], above[j]) + 1, above[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                y == tolower((unsigned char)a[i - 2]))
                row[j] = MIN(row[j], before[j - 2] + 1);
        }
    }
    return rows[strlen(a) % 3][n];
}

/* How many letters of a near name may differ: a third of them, and at least one letter if the name
 * has two or more. */
static uint32_t near_enough(size_t len)
{
    return len < 2 ? 0 : (uint32_t)MAX(len / 3, (size_t)1);
}

void names_init(struct names *names, const char *wanted, size_t len)
{
    *names = (struct names){0};
    if (len && len <= NAMES_LONGEST)
        memcpy(names->wanted, wanted, len);
    names->distance = near_enough(strlen(names->wanted)) + 1;
}

static void compare(struct names *names, const char *name, size_t len)
{
    size_t wanted = strlen(names->wanted);
    size_t least = len > wanted ? len - wanted : wanted - len; /* letters to insert or drop */
    if (len > NAMES_LONGEST || wanted == 0)
        return;
    bool begun = wanted > 1 && !strncasecmp(name, names->wanted, wanted);
    if (!begun && least >= names->distance)
        return;
    uint32_t here = begun ? len > wanted : distance(names->wanted, name);
    if (here >= names->distance)
        return;
    names->distance = here;
    memcpy(names->nearest, name, len + 1);
}

void names_add(struct names *names, const char *name)
{
    size_t len = strlen(name), room = sizeof(names->list) - names->len;
    names->n++;
    compare(names, name, len);
    if (names->told == NAMES_TOLD || names->told + 1 < names->n)
        return; /* the list ends at the first name that it has no room for */
    int cut = (int)utf8_cut(name, len, NAMES_LONGEST);
    int n = snprintf(names->list + names->len, room, "%s'%.*s%s'", names->told ? ", " : "", cut,
                     name, (size_t)cut < len ? ".." : "");
    if ((size_t)n >= room) {
        names->list[names->len] = '\0';
        return;
    }
    names->len += (size_t)n;
    names->told++;
}

bool names_has(const struct names *names, const char *name)
{
    char quoted[NAMES_LONGEST + 3];
    snprintf(quoted, sizeof(quoted), "'%.*s'", NAMES_LONGEST, name);
    return strstr(names->list, quoted) != NULL;
}

const char *names_hint(struct names *names)
{
    names->text[0] = '\0';
    if (names->nearest[0])
        snprintf(names->text, sizeof(names->text), " (did you mean '%s'?)", names->nearest);
    return names->text;
}

const char *names_text(struct names *names)
{
    char more[32] = "", hint[NAMES_LONGEST + 24];
    if (names->n > names->told)
        snprintf(more, sizeof(more), " and %u more", names->n - names->told);
    snprintf(hint, sizeof(hint), "%s", names_hint(names));
    snprintf(names->text, sizeof(names->text), "%s%s%s", names->n ? names->list : "none", more,
             hint);
    return names->text;
}
