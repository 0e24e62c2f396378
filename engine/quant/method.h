/* SPDX-License-Identifier: Apache-2.0 */
/* The methods of calibration by their names: "entropy", "minmax", "percentile=99.9". */
#ifndef INFERD_ENGINE_QUANT_METHOD_H
#define INFERD_ENGINE_QUANT_METHOD_H

#include "base/error.h"
#include "engine/quant/histogram.h"

/* *percentile: above 0 and at most 100; 99.99 if the text names none. */
enum status quant_method_parse(const char *text, enum quant_method *method, double *percentile,
                               struct error *err);
void quant_method_format(enum quant_method method, double percentile, char text[32]);

#endif
