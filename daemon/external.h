/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that a model's external data lie in, and whether they are still what they were. The
 * daemon does not read models: it looks for the bytes by which a tensor names its file
 * (onnx.proto3, TensorProto.external_data: a key "location" and, behind it, a path). A key with
 * anything else behind it makes all files count that lie in the model's folder.
 *
 * What is compared is a file's number, size and times. One of the times, that of the last change of
 * the inode, is not for anybody to set.
 */
#ifndef INFERD_DAEMON_EXTERNAL_H
#define INFERD_DAEMON_EXTERNAL_H

#include <stddef.h>

#include "base/digest.h"
#include "base/error.h"

#define EXTERNAL_WORD "location" /* a model without it has no external data */

struct external;

/* *out is NULL if there are none. */
enum status external_find(const void *model, size_t size, struct external **out, struct error *err);
void external_free(struct external *external); /* NULL is fine */

/* What the files below `folder` are like now; one that cannot be opened is noted as that. */
enum status external_state(const struct external *external, int folder, uint8_t out[DIGEST_BYTES],
                           struct error *err);

#endif
