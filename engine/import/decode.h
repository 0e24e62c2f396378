/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes the wire format into the records of model.h. Every length is checked, every count has a
 * limit, groups and duplicated single fields are refused, and no function here calls itself (R5 and
 * R6 of docs/operations.md). */
#ifndef INFERD_ENGINE_IMPORT_DECODE_H
#define INFERD_ENGINE_IMPORT_DECODE_H

#include <pb_decode.h>

#include "engine/import/model.h"

/* Fills the model's records from model->bytes, in model->arena. */
enum status decode_model(struct onnx_model *model, struct error *err);

/* Decodes one TensorProto. */
enum status decode_tensor(struct arena *arena, struct span body, struct onnx_tensor *out,
                          struct error *err);

/* Decodes one message into a struct whose callbacks are set; `what` is for the error's text. */
enum status decode_message(struct span body, const pb_msgdesc_t *fields, void *message,
                           const char *what, struct error *err);

#endif
