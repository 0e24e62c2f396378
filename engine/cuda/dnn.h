/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuDNN as one device uses it: handles, errors, and execution plans.
 *
 * Execution plans ("programs" would be the better word: they have nothing to do with plan files)
 * are finalised graphs with an engine and its knobs. Making one takes from nothing (precompiled
 * engines) to a second of one core (engines that compile at run time), so they are kept in a table
 * of the device, by a digest of graph, engine and knobs; ops hold references to them. Two threads
 * that want the same execution plan make it once.
 *
 * The first half is for the files of this folder, the second for dnn_*.c alone.
 */
#ifndef INFERD_ENGINE_CUDA_DNN_H
#define INFERD_ENGINE_CUDA_DNN_H

#include <stddef.h>

#include "base/error.h"

struct backend_stream;
struct cuda_dnn;

/* For device `ordinal`; -1 stands for no device: `properties` is then the JSON text of cuDNN's
 * device-property descriptor, and everything works but launching and what needs a driver. The call
 * costs next to nothing: cuDNN's parts are loaded when they are first needed. */
enum status cuda_dnn_new(int ordinal, const char *properties, struct cuda_dnn **out,
                         struct error *err);
void cuda_dnn_free(struct cuda_dnn *dnn); /* after all its ops and streams */

/* Forgets all execution plans that no op uses. */
void cuda_dnn_drop(struct cuda_dnn *dnn);

/* Takes back the handle that ops took for the stream, if there is one; stream->dnn_handle is NULL
 * afterwards. */
void cuda_dnn_stream_deinit(struct backend_stream *stream);

/* The library's version, for the fingerprint: 91900. */
size_t cuda_dnn_version(void);

#endif
