/* SPDX-License-Identifier: Apache-2.0 */
/* What sessions of all protocols share; see session.h. */
#include "daemon/session.h"

#include <string.h>

enum { FIRST_SLAB = 4 * 1024, BELIEVED_FIRST = 128 * 1024 };

size_t session_slab_size(struct session_host *host, size_t have, size_t need)
{
    size_t came = have + host->ops->queued(host);
    size_t believed = have * (have <= BELIEVED_FIRST ? 4 : 2);
    size_t most = slab_within(4 * came); /* what a size class adds is charged as well */
    return MIN(need, MAX(MIN(MAX(believed, came), most), (size_t)FIRST_SLAB));
}

struct slab *session_left_keep(struct session_host *host, const void *data, size_t size)
{
    struct slab *slab = host->ops->slab_left(host, size);
    if (slab)
        memcpy(slab->data, data, size);
    return slab;
}
