/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder with data for a model: .npy files (or TensorProto, .pb), each with one sample or with
 * several, one behind the other along the first dimension.
 *
 *   one input        FOLDER/ANYTHING.npy
 *   several inputs   FOLDER/NAME.npy or FOLDER/NAME.ANYTHING.npy, or FOLDER/NAME/ANYTHING.npy
 *
 * where NAME is the input's name with '_' for '/'. Files are taken in the order of their names;
 * those of several inputs go together, one by one.
 */
#ifndef INFERD_TOOLS_DATASET_H
#define INFERD_TOOLS_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/shape.h"
#include "engine/ir/ir.h"

struct dataset;

/* `limit`: the most files of an input; 0: all. NOT_FOUND: there is no file for some input. The
 * names must outlive the data set. */
enum status dataset_open(const char *folder, const char *const *inputs, uint32_t n_inputs,
                         uint32_t limit, struct dataset **out, struct error *err);
void dataset_close(struct dataset *set); /* NULL is fine */
void dataset_cleanup(struct dataset **at);

/* Type and shape of an input's first file. */
enum status dataset_peek(struct dataset *set, uint32_t input, struct tensor_view *out,
                         struct error *err);

/* What the model takes for one sample. */
struct dataset_want {
    const char *name;
    enum dtype dtype; /* NONE: the model does without this input */
    struct shape shape;
};

/* What a graph's inputs of these names take. *place[i]: which of the graph's inputs input i is;
 * IR_NONE: the graph does without it. `single`: a sample is one instance, whatever the graph's
 * batch. */
void dataset_wants(const char *const *inputs, uint32_t n_inputs, const struct ir_graph *graph,
                   bool single, struct dataset_want *want, uint32_t *place);

/*
 * Reads the next sample: data[i] has the bytes of input i until the next call. *end: there is none.
 * INVALID_ARGUMENT: a file has another type or shape, numbers that are not finite, or another
 * number of samples than the other inputs' files; the error names the file.
 */
enum status dataset_next(struct dataset *set, const struct dataset_want *want, const void **data,
                         bool *end, struct error *err);

/* The file that the last sample came from. */
const char *dataset_file(const struct dataset *set);
/* How much of the data has been read: 0 to 1. */
double dataset_part(const struct dataset *set);

#endif
