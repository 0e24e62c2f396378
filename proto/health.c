/* SPDX-License-Identifier: Apache-2.0 */
/* Health checks, see health.h. */
#include "proto/health.h"

#include <pb_encode.h>

#include "health.pb.h"
#include "proto/wire.h"

#define STATE(name) grpc_health_v1_HealthCheckResponse_ServingStatus_##name
_Static_assert((int)HEALTH_SERVING == (int)STATE(SERVING), "states are the schema's");
_Static_assert((int)HEALTH_NOT_SERVING == (int)STATE(NOT_SERVING), "states are the schema's");
_Static_assert((int)HEALTH_SERVICE_UNKNOWN == (int)STATE(SERVICE_UNKNOWN), "as above");

enum status health_decode(const void *message, size_t size, struct message_text *service,
                          struct error *err)
{
    struct wire w = wire_of(message, size);
    struct wire_field field = {0};
    *service = (struct message_text){0};
    for (uint32_t n = 0; n < MESSAGE_MAX_FIELDS && wire_next(&w, &field); n++)
        if (field.number == grpc_health_v1_HealthCheckRequest_service_tag &&
            field.type == WIRE_BYTES)
            *service = (struct message_text){(const char *)field.value.at, wire_left(&field.value)};
    if (w.at == w.end)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID_ARGUMENT, "malformed health check");
}

size_t health_encode(enum health_state state, char out[HEALTH_MAX])
{
    const grpc_health_v1_HealthCheckResponse m = {
        .status = (grpc_health_v1_HealthCheckResponse_ServingStatus)state};
    pb_ostream_t stream = pb_ostream_from_buffer((pb_byte_t *)out, HEALTH_MAX);
    return pb_encode(&stream, grpc_health_v1_HealthCheckResponse_fields, &m) ? stream.bytes_written
                                                                             : 0;
}
