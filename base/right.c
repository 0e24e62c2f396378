/* SPDX-License-Identifier: Apache-2.0 */
/* Names of rights; see right.h. */
#include "base/right.h"

#include <string.h>

static const char *const names[RIGHT_COUNT_] = {
#define X(id, name) [RIGHT_##id] = (name),
    RIGHTS(X)
#undef X
};

#define X(id, name) ", " name
const char *const right_names = &RIGHTS(X)[2]; /* behind the first ", " */
#undef X

const char *right_name(enum right right)
{
    return names[right];
}

bool right_parse(const char *text, size_t len, enum right *out)
{
    for (int i = 0; i < RIGHT_COUNT_; i++)
        if (strlen(names[i]) == len && memcmp(names[i], text, len) == 0) {
            *out = (enum right)i;
            return true;
        }
    return false;
}
