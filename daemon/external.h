/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that hold a model's external data, and whether they have changed. The daemon does not
 * read models: it looks for the bytes by which a tensor names its file (onnx.proto3,
 * TensorProto.external_data: a key "location" followed by a path). If anything else follows such a
 * key, all files in the model's folder count.
 *
 * Files are compared by number, size and times. Nobody can set one of these times, that of the last
 * change of the inode.
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

/* Digests the present state of the files below `folder`; a file that cannot be opened has a state
 * of its own. */
enum status external_state(const struct external *external, int folder, uint8_t out[DIGEST_BYTES],
                           struct error *err);

#endif
