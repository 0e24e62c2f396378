/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calibration: samples of real data run through a model in FP32, and what its tensors held becomes
 * a table of ranges (engine/quant/table.h).
 *
 *   struct calibration *calibration;
 *   calibration_new(model, options, &calibration, err);
 *   const struct ir_graph *graph = calibration_graph(calibration);    // says what the inputs are
 *   calibration_add(calibration, inputs, err);                        // a sample, and so on
 *   calibration_table(calibration, QUANT_ENTROPY, 0, &table, &report, err);
 *   calibration_free(calibration);
 */
#ifndef INFERD_ENGINE_BUILD_CALIBRATE_H
#define INFERD_ENGINE_BUILD_CALIBRATE_H

#include "engine/build/build.h"
#include "engine/quant/table.h"

struct calibration;

/* Imports and fuses the model for one instance, as a build with these options would, and makes it
 * ready on the options' device. The model must outlive the calibration. */
enum status calibration_new(struct onnx_model *model, const struct build_options *options,
                            struct calibration **out, struct error *err);
void calibration_free(struct calibration *calibration); /* NULL is fine */
void calibration_cleanup(struct calibration **at);

/* The fused graph, whose inputs are one sample's. */
const struct ir_graph *calibration_graph(const struct calibration *calibration);

/* Runs one sample: inputs[i] has the bytes of graph input i. */
enum status calibration_add(struct calibration *calibration, const void *const *inputs,
                            struct error *err);

struct calibration_report {
    uint64_t samples;
    uint32_t tensors;  /* in the table */
    uint32_t infinite; /* of these: tensors that held infinities or NaN; the table keeps them as
                          floats */
    uint32_t empty;    /* of these: tensors that were 0 in all samples; their range is a guess */
    const char *first_infinite; /* a name, or NULL; the calibration's */
};

/* FAILED_PRECONDITION: there was no sample. May be called several times. */
enum status calibration_table(const struct calibration *calibration, enum quant_method method,
                              double percentile, struct quant_table **out,
                              struct calibration_report *report, struct error *err);

#endif
