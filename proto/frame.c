/* SPDX-License-Identifier: Apache-2.0 */
/* Finds frames in a byte stream; see frame.h. */
#include "proto/frame.h"

enum frame_state frame_peek(const void *data, size_t have, size_t limit, size_t *size)
{
    if (have < FRAME_HEAD_BYTES) {
        *size = 0;
        return FRAME_PARTIAL;
    }
    *size = frame_head_read(data);
    if (*size > limit)
        return FRAME_TOO_LARGE;
    return have - FRAME_HEAD_BYTES < *size ? FRAME_PARTIAL : FRAME_COMPLETE;
}
