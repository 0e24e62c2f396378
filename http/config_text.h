/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's configuration as clients send it in a load: Triton's ModelConfig as JSON. It becomes
 * protobuf's text format, as a config.pbtxt has it; but strings stay in quotes, where that format
 * has words and JSON also numbers (config/model_file.h has a parser for that).
 */
#ifndef INFERD_HTTP_CONFIG_TEXT_H
#define INFERD_HTTP_CONFIG_TEXT_H

#include "base/text.h"
#include "http/json.h"

/* Appends to `out`, which has its bound (text_init). INVALID_ARGUMENT: it is no JSON, no object, or
 * has a list in a list; RESOURCE_EXHAUSTED: no memory, or it is too long. */
enum status config_text_of_json(struct message_text json, struct text *out, struct error *err);

#endif
