/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of more than one byte; see wire.h. */
#include "proto/wire.h"

bool wire_varint_long(struct wire *w, uint64_t *value)
{
    uint64_t sum = 0;
    const uint8_t *at = w->at;
    for (unsigned shift = 0; shift < 7 * WIRE_VARINT_MAX; shift += 7) {
        if (at == w->end)
            return false;
        uint8_t byte = *at++;
        if (shift == 63 && byte > 1)
            return false;
        sum |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            w->at = at;
            *value = sum;
            return true;
        }
    }
    return false;
}
