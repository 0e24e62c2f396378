/* SPDX-License-Identifier: Apache-2.0 */
/* What a command is about to write to, held against what it reads; and texts for it. */
#ifndef INFERD_TOOLS_OUTPUT_H
#define INFERD_TOOLS_OUTPUT_H

#include <stdio.h>

#include "base/error.h"
#include "tools/model.h"

/* INVALID_ARGUMENT if the output is one of the files that the command reads: the model, or one that
 * an option names. `args` may be NULL. Comes before the work. */
enum status output_check(const char *output, const char *model, const struct model_args *args,
                         struct error *err);

/* The same for one file, and for files that are given as NAME=FILE. */
enum status output_check_one(const char *output, const char *input, struct error *err);
enum status output_check_named(const char *output, const struct arg_texts *inputs,
                               struct error *err);

/*
 * A text that is written at the end, as a whole, to where file_writer_new_text says. Whether that
 * works is tried before the work: file_writer_try_text.
 *
 *   CLEANUP(output_text_cleanup) struct output_text text = {0};
 *   TRY(output_text_begin(&text, err));
 *   fprintf(text.file, ...);
 *   return output_text_end(&text, path, err);
 */
struct output_text {
    FILE *file;
    char *data;
    size_t size;
};

enum status output_text_begin(struct output_text *text, struct error *err);
enum status output_text_end(struct output_text *text, const char *path, struct error *err);
void output_text_cleanup(struct output_text *text);

#endif
