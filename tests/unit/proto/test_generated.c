/* SPDX-License-Identifier: Apache-2.0 */
/* What nanopb generates for the messages that come from the network, and which fields are
 * counted. */
#include <pb_common.h>

#include "inferd.pb.h"
#include "proto/walk.h"
#include "tests/test.h"

static bool has_callbacks(const pb_msgdesc_t *message)
{
    static uint64_t place[4096];
    pb_field_iter_t at;
    if (!message || !pb_field_iter_begin(&at, message, place))
        return false;
    do {
        if (PB_ATYPE(at.type) == PB_ATYPE_CALLBACK ||
            (PB_LTYPE_IS_SUBMSG(at.type) && has_callbacks(at.submsg_desc)))
            return true;
    } while (pb_field_iter_next(&at));
    return false;
}

/* For a pointer field nanopb would allocate as much memory as the sender wishes. */
static unsigned fields_check(const pb_msgdesc_t *message, int depth)
{
    unsigned n = 0;
    assert_in_range(depth, 0, 8);
    for (pb_size_t i = 0; i < message->field_count; i++) {
        /* the iterator only computes addresses, so memory of any content will do */
        static uint64_t place[4096];
        pb_field_iter_t at;
        assert_true(pb_field_iter_begin(&at, message, place));
        for (pb_size_t k = 0; k < i; k++)
            assert_true(pb_field_iter_next(&at));
        if (PB_ATYPE(at.type) == PB_ATYPE_POINTER)
            fail_msg("field %u is a pointer", (unsigned)at.tag);
        /* In a union, a callback's function would be whatever bytes another member left there. */
        if (PB_HTYPE(at.type) == PB_HTYPE_ONEOF && PB_ATYPE(at.type) == PB_ATYPE_CALLBACK)
            fail_msg("field %u is a callback in a oneof", (unsigned)at.tag);
        if (PB_HTYPE(at.type) == PB_HTYPE_ONEOF && has_callbacks(at.submsg_desc) &&
            PB_LTYPE(at.type) != PB_LTYPE_SUBMSG_W_CB)
            fail_msg("field %u has callbacks, and nobody is told when it begins", (unsigned)at.tag);
        n++;
        if (PB_LTYPE_IS_SUBMSG(at.type))
            n += fields_check(at.submsg_desc, depth + 1);
    }
    return n;
}

static void r7_no_pointers_and_no_callbacks_in_unions(void **state)
{
    (void)state;
    assert_in_range(fields_check(inferd_Request_fields, 0), 50, 10000);
    assert_in_range(fields_check(inferd_Response_fields, 0), 50, 10000);
}

/* Messages that a callback records as a place, or that nobody asks for: the decoder steps over
 * them. */
static const struct stepped_over {
    const pb_msgdesc_t *message;
    uint32_t tag;
} stepped_over[] = {
    {inference_ModelInferRequest_InferInputTensor_fields, 5},
    {inference_ModelInferResponse_InferOutputTensor_fields, 4},
    {inference_ModelInferResponse_InferOutputTensor_fields, 5},
    {inference_ModelInferResponse_fields, 4},
    {inferd_Response_fields, inferd_Response_server_metadata_tag},
    {inferd_Response_fields, inferd_Response_model_metadata_tag},
    {inferd_Response_fields, inferd_Response_statistics_tag},
    {inferd_Response_fields, inferd_Response_repository_index_tag},
    {inferd_Response_fields, inferd_Response_server_status_tag},
};

static bool is_stepped_over(const pb_msgdesc_t *message, uint32_t tag)
{
    for (size_t i = 0; i < sizeof(stepped_over) / sizeof(*stepped_over); i++)
        if (stepped_over[i].message == message && stepped_over[i].tag == tag)
            return true;
    return false;
}

static unsigned walk_compare(const pb_msgdesc_t *message, const struct proto_walk *walk)
{
    static uint64_t place[4096];
    unsigned n = 0, walked = 0, listed = 0;
    for (pb_size_t i = 0; i < message->field_count; i++) {
        pb_field_iter_t at;
        assert_true(pb_field_iter_begin(&at, message, place));
        for (pb_size_t k = 0; k < i; k++)
            assert_true(pb_field_iter_next(&at));
        if (!PB_LTYPE_IS_SUBMSG(at.type) || is_stepped_over(message, at.tag))
            continue;
        if (at.tag >= PROTO_WALK_NUMBERS || !walk->of[at.tag])
            fail_msg("field %u of a message of %u is not counted", (unsigned)at.tag,
                     (unsigned)message->field_count);
        n += walk_compare(at.submsg_desc, walk->of[at.tag]);
        walked++;
    }
    for (size_t i = 0; i < PROTO_WALK_NUMBERS; i++)
        listed += walk->of[i] != NULL;
    assert_int_equal(listed, walked);
    return n + walked;
}

/* The fields of a message that the decoder walks have been counted before. */
static void r4_the_tables_follow_the_schema(void **state)
{
    (void)state;
    static const struct {
        const pb_msgdesc_t *message;
        const struct proto_walk *walk;
        unsigned messages;
    } tables[] = {
        {inferd_Request_fields, &proto_walk_request, 18},
        {inferd_Response_fields, &proto_walk_response, 7},
        {inference_ServerMetadataResponse_fields, &proto_walk_server_metadata, 0},
        {inference_ModelMetadataResponse_fields, &proto_walk_model_metadata, 2},
        {inference_ModelStatisticsResponse_fields, &proto_walk_statistics, 14},
        {inference_RepositoryIndexResponse_fields, &proto_walk_index, 1},
        {inferd_ServerStatusResponse_fields, &proto_walk_server_status, 3},
    };
    for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
        assert_int_equal(walk_compare(tables[i].message, tables[i].walk), tables[i].messages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(r7_no_pointers_and_no_callbacks_in_unions),
        cmocka_unit_test(r4_the_tables_follow_the_schema),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
