/* SPDX-License-Identifier: Apache-2.0 */
/* Wire format -> records of model.h. Every length is checked, every count capped, groups and
 * duplicated single fields refused; no function here calls itself (R5 and R6 of
 * docs/operations.md). */
#ifndef INFERD_ENGINE_IMPORT_DECODE_H
#define INFERD_ENGINE_IMPORT_DECODE_H

#include <pb_decode.h>

#include "engine/import/model.h"

/* Fills the model's records from model->bytes, in model->arena. */
enum status decode_model(struct onnx_model *model, struct error *err);

/* One TensorProto. */
enum status decode_tensor(struct arena *arena, struct span body, struct onnx_tensor *out,
                          struct error *err);

/* Decodes one message; `what` is for the error's text. The message struct's callbacks are set. */
enum status decode_message(struct span body, const pb_msgdesc_t *fields, void *message,
                           const char *what, struct error *err);

#endif
