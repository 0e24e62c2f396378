/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What somebody may ask a server for, under the names that configurations and token files use. A
 * set of rights is a mask of RIGHT_BIT.
 */
#ifndef INFERD_BASE_RIGHT_H
#define INFERD_BASE_RIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(ID, name) */
#define RIGHTS(X)                                                                                  \
    X(INFER, "infer")       /* inferences with its models */                                       \
    X(DESCRIBE, "describe") /* metadata, readiness and statistics of its models */                 \
    X(STATUS, "status")     /* what tells of others: status, all statistics, the index */          \
    X(MEMORY, "memory")     /* registering regions of shared memory */                             \
    X(ADMIN, "admin")       /* changing what is served, and settings */

enum right {
#define X(id, name) RIGHT_##id,
    RIGHTS(X)
#undef X
        RIGHT_COUNT_
};

#define RIGHT_BIT(right) (UINT32_C(1) << (right))

/* Every name, for error texts: "infer, describe, ...". */
extern const char *const right_names;

/* "infer" and so on; static storage. */
const char *right_name(enum right right);
/* False: `text` is no name of a right. */
bool right_parse(const char *text, size_t len, enum right *out);

#endif
