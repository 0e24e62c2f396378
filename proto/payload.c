/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the payload of an inference begins, looked for while the message still comes. Only heads of
 * fields are read; see request.h.
 */
#include "inference.pb.h"
#include "inferd.pb.h"
#include "proto/request.h"
#include "proto/wire.h"

/* Steps over whole fields up to a field of bytes of this number, and of `least` bytes; then `w`
 * stands at its first byte. False: there is none in what has come. */
static bool find(struct wire *w, uint32_t number, uint64_t least, int *fields)
{
    while ((*fields)++ < MESSAGE_MAX_FIELDS) {
        struct wire at = *w;
        struct wire_field field;
        uint64_t key, size;
        bool bytes = wire_varint(&at, &key) && (key & 7) == WIRE_BYTES && wire_varint(&at, &size);
        if (bytes && key >> 3 == number && size >= least) {
            *w = at;
            return true;
        }
        if (!wire_next(w, &field))
            return false;
    }
    return false;
}

size_t request_payload_find(const void *message, size_t have, size_t least, bool framed)
{
    struct wire w = wire_of(message, have);
    int fields = 0;
    if (framed && !find(&w, inferd_Request_infer_tag, least, &fields))
        return 0;
    if (!find(&w, inference_ModelInferRequest_raw_input_contents_tag, least, &fields))
        return 0;
    return (size_t)(w.at - (const uint8_t *)message);
}
