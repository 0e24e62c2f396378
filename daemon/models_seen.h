/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the repository looked like: a signature for each model, by which a poll finds out what is
 * new, changed or gone. A model whose files changed a moment ago may still be on its way into the
 * repository: it is left as it was until they rest.
 */
#ifndef INFERD_DAEMON_MODELS_SEEN_H
#define INFERD_DAEMON_MODELS_SEEN_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/repository.h"

struct models_seen_row {
    char name[MESSAGE_MAX_NAME + 1];
    uint64_t signature;
    bool changed; /* since the look before; also: new or gone */
};

struct models_seen {
    uint32_t n;
    struct models_seen_row *rows;
};

/* Makes the next look out of the last one and a listing of the repository. Rows of models that are
 * gone stay, as changed, for this look. `now_ns` is since 1970; with `at_once` nothing has to rest.
 * False: no memory. */
bool models_seen_look(const struct models_seen *last, const struct wanted_list *list,
                      uint64_t now_ns, bool at_once, struct models_seen *out) MUST_USE;
void models_seen_deinit(struct models_seen *seen);

#endif
