/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of an inference, see request.h. */
#include "proto/request.h"

static bool is(struct message_text key, const char *name)
{
    return message_text_equal(key, message_text_of(name));
}

static bool begins(struct message_text key, const char *prefix)
{
    size_t n = strlen(prefix);
    return key.len >= n && memcmp(key.data, prefix, n) == 0;
}

/*
 * Parameters are extensions, and an unknown parameter changes nothing, except one: a client that
 * names a region of shared memory expects the server to read from it or write to it, and would take
 * whatever lies there for the answer. So where no regions are known, naming one is refused (R11 of
 * docs/operations.md).
 */
static enum status region_refuse(struct message_text key, struct error *err)
{
    return error_set(
        err, STATUS_INVALID_ARGUMENT,
        "parameter '%.*s': no shared memory is offered here; expected the tensor's contents "
        "in the request, and outputs in the reply",
        MESSAGE_TEXT(key));
}

/* Clients send what stands for no sequence, too. */
static bool says_nothing(const struct request_parameter *p)
{
    return p->kind == REQUEST_VALUE_TEXT ? !p->text.len
                                         : p->kind != REQUEST_VALUE_DOUBLE && !p->number;
}

static enum status number_get(const struct request_parameter *p, uint64_t *out, struct error *err)
{
    if (p->kind != REQUEST_VALUE_INT || p->number < 0)
        return error_set(err, STATUS_INVALID_ARGUMENT, "parameter '%.*s': expected a whole number",
                         MESSAGE_TEXT(p->key));
    *out = (uint64_t)p->number;
    return STATUS_OK;
}

/* Ours begin with 0, theirs with 1; what is later than the last is the last. */
static enum status priority_take(struct request *request, const struct request_parameter *p,
                                 struct error *err)
{
    uint64_t asked = 0;
    TRY(number_get(p, &asked, err));
    request->level = asked;
    request->priority = (uint32_t)MIN(asked ? asked - 1 : 0, (uint64_t)REQUEST_PRIORITY_LAST);
    return STATUS_OK;
}

static enum status of_request(struct request *request, const struct request_parameter *p,
                              struct error *err)
{
    if (is(p->key, "priority"))
        return priority_take(request, p, err);
    if (is(p->key, "timeout"))
        return number_get(p, &request->timeout_us, err);
    if (begins(p->key, "sequence_") && !says_nothing(p))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "parameter '%.*s': no model here keeps a state between the requests of a "
                         "sequence",
                         MESSAGE_TEXT(p->key));
    return STATUS_OK;
}

static enum status of_region(struct message_region *region, const struct request_parameter *p,
                             struct error *err)
{
    if (is(p->key, "shared_memory_region")) {
        if (p->kind != REQUEST_VALUE_TEXT || p->text.len > REQUEST_MAX_REGION)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "parameter '%.*s': expected a text of at most %d bytes",
                             MESSAGE_TEXT(p->key), REQUEST_MAX_REGION);
        region->name = p->text;
        return STATUS_OK;
    }
    if (is(p->key, "shared_memory_offset"))
        return number_get(p, &region->offset, err);
    if (!is(p->key, "shared_memory_byte_size"))
        return STATUS_OK;
    region->sized = true;
    return number_get(p, &region->size, err);
}

static enum status of_output(struct request *request, const struct request_parameter *p,
                             struct error *err)
{
    uint64_t n = 0;
    if (!is(p->key, "classification"))
        return STATUS_OK;
    TRY(number_get(p, &n, err));
    request->classes[request->n_outputs - 1] = (uint32_t)MIN(n, (uint64_t)UINT32_MAX);
    return STATUS_OK;
}

enum status request_parameter(struct request *request, enum request_place place,
                              const struct request_parameter *parameter, bool open,
                              struct error *err)
{
    bool region = begins(parameter->key, "shared_memory_");
    if (region && (!open || place == REQUEST_PLACE_REQUEST))
        return region_refuse(parameter->key, err);
    if (!open)
        return STATUS_OK;
    if (region)
        return of_region(place == REQUEST_PLACE_INPUT
                             ? &request->inputs[request->n_inputs - 1].region
                             : &request->regions[request->n_outputs - 1],
                         parameter, err);
    if (place == REQUEST_PLACE_REQUEST)
        return of_request(request, parameter, err);
    return place == REQUEST_PLACE_OUTPUT ? of_output(request, parameter, err) : STATUS_OK;
}
