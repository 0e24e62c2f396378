/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts fields; see walk.h. The tables follow inferd.proto and inference.proto, no message is
 * within itself, and test_generated.c holds them against what nanopb walks.
 */
#include "proto/walk.h"

#include "inferd.pb.h"
#include "proto/wire.h"

static const struct proto_walk leaf;

/* --- requests --- */

static const struct proto_walk parameter = {
    .of = {[inference_ModelInferRequest_ParametersEntry_value_tag] = &leaf}};

static const struct proto_walk input = {
    .of = {[inference_ModelInferRequest_InferInputTensor_parameters_tag] = &parameter}};

static const struct proto_walk wanted_output = {
    .of = {[inference_ModelInferRequest_InferRequestedOutputTensor_parameters_tag] = &parameter}};

const struct proto_walk proto_walk_infer = {
    .of = {[inference_ModelInferRequest_parameters_tag] = &parameter,
           [inference_ModelInferRequest_inputs_tag] = &input,
           [inference_ModelInferRequest_outputs_tag] = &wanted_output}};

const struct proto_walk proto_walk_request = {.of = {[inferd_Request_infer_tag] = &proto_walk_infer,
                                                     [inferd_Request_server_live_tag] = &leaf,
                                                     [inferd_Request_server_ready_tag] = &leaf,
                                                     [inferd_Request_model_ready_tag] = &leaf,
                                                     [inferd_Request_server_metadata_tag] = &leaf,
                                                     [inferd_Request_model_metadata_tag] = &leaf,
                                                     [inferd_Request_statistics_tag] = &leaf,
                                                     [inferd_Request_repository_index_tag] = &leaf,
                                                     [inferd_Request_cancel_tag] = &leaf,
                                                     [inferd_Request_server_status_tag] = &leaf}};

/* --- responses: parameters are stepped over, and the bodies below are decoded by themselves ---
 */

static const struct proto_walk infer_response = {
    .of = {[inference_ModelInferResponse_outputs_tag] = &leaf}};

const struct proto_walk proto_walk_response = {.of = {[inferd_Response_timing_tag] = &leaf,
                                                      [inferd_Response_infer_tag] = &infer_response,
                                                      [inferd_Response_server_live_tag] = &leaf,
                                                      [inferd_Response_server_ready_tag] = &leaf,
                                                      [inferd_Response_model_ready_tag] = &leaf,
                                                      [inferd_Response_cancel_tag] = &leaf}};

const struct proto_walk proto_walk_server_metadata;

const struct proto_walk proto_walk_model_metadata = {
    .of = {[inference_ModelMetadataResponse_inputs_tag] = &leaf,
           [inference_ModelMetadataResponse_outputs_tag] = &leaf}};

static const struct proto_walk durations = {
    .of = {[inference_InferStatistics_success_tag] = &leaf,
           [inference_InferStatistics_fail_tag] = &leaf,
           [inference_InferStatistics_queue_tag] = &leaf,
           [inference_InferStatistics_compute_input_tag] = &leaf,
           [inference_InferStatistics_compute_infer_tag] = &leaf,
           [inference_InferStatistics_compute_output_tag] = &leaf,
           [inference_InferStatistics_cache_hit_tag] = &leaf,
           [inference_InferStatistics_cache_miss_tag] = &leaf}};

static const struct proto_walk batch = {
    .of = {[inference_InferBatchStatistics_compute_input_tag] = &leaf,
           [inference_InferBatchStatistics_compute_infer_tag] = &leaf,
           [inference_InferBatchStatistics_compute_output_tag] = &leaf}};

static const struct proto_walk model_statistics = {
    .of = {[inference_ModelStatistics_inference_stats_tag] = &durations,
           [inference_ModelStatistics_batch_stats_tag] = &batch}};

const struct proto_walk proto_walk_statistics = {
    .of = {[inference_ModelStatisticsResponse_model_stats_tag] = &model_statistics}};

const struct proto_walk proto_walk_index = {
    .of = {[inference_RepositoryIndexResponse_models_tag] = &leaf}};

const struct proto_walk proto_walk_server_status = {
    .of = {[inferd_ServerStatusResponse_models_tag] = &leaf,
           [inferd_ServerStatusResponse_counters_tag] = &leaf,
           [inferd_ServerStatusResponse_memory_tag] = &leaf}};

/* --- counting --- */

enum count { COUNT_FITS, COUNT_TOO_MANY, COUNT_BROKEN };

/* Subtracts the number of fields from `*left`. With `rough`, a message within is not walked, but
 * counts as many fields as its bytes could hold. Recursion is as deep as the tables: five
 * messages. */
static enum count count(const struct proto_walk *message, struct wire w, bool rough, uint32_t *left)
{
    while (w.at < w.end) {
        struct wire_field field;
        if (*left == 0)
            return COUNT_TOO_MANY;
        if (!wire_next(&w, &field))
            return COUNT_BROKEN;
        --*left;
        if (field.type != WIRE_BYTES || field.number >= PROTO_WALK_NUMBERS ||
            !message->of[field.number])
            continue;
        size_t most = wire_left(&field.value) / PROTO_WALK_BYTES_MIN;
        if (rough && most <= *left) {
            *left -= (uint32_t)most;
            continue;
        }
        enum count inside = count(message->of[field.number], field.value, rough, left);
        if (inside != COUNT_FITS)
            return inside;
    }
    return COUNT_FITS;
}

enum status proto_walk_check(const struct proto_walk *message, struct message_text wire,
                             uint32_t max, const char *what, struct error *err)
{
    if (wire.len <= (size_t)PROTO_WALK_BYTES_MIN * max)
        return STATUS_OK;
    /* The rough count comes first, as it suffices for the usual frame of a few short messages and a
     * payload. */
    uint32_t left = max;
    if (count(message, wire_of(wire.data, wire.len), true, &left) == COUNT_FITS)
        return STATUS_OK;
    left = max;
    switch (count(message, wire_of(wire.data, wire.len), false, &left)) {
    case COUNT_FITS:
        return STATUS_OK;
    case COUNT_TOO_MANY:
        return error_set(err, STATUS_INVALID_ARGUMENT, "more than %u fields in a %s", max, what);
    default:
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "malformed %s: field %u is not a whole field of a known wire type", what,
                         max - left + 1);
    }
}
