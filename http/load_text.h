/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON of an order to load a model, which may bring files: parameters "file:VERSION/NAME",
 * whose base64 is longer than any text that the reader takes (http/json.h). The reader is given an
 * empty text in the place of each, and the base64 is decoded where it stands, in steps.
 */
#ifndef INFERD_HTTP_LOAD_TEXT_H
#define INFERD_HTTP_LOAD_TEXT_H

#include "http/json.h"
#include "proto/request.h"

/* Zeros, but for `json` and `key`. */
struct load_text {
    struct message_text json;
    const struct message_text *key; /* of the parameter whose value comes next */
    size_t read;                    /* bytes of it that were fed, or stood for */
    bool inside;                    /* what comes next lies in a text, */
    char last;                      /* and else stands behind this, white space apart */
    bool found;                     /* a file begins, and its event is on its way */
    struct message_text file;       /* base64 that is left to be decoded, */
    struct request_setting *into;   /* for this setting; NULL: there is none */
};

/* Takes a step. *done: the text is over, and was whole. */
enum status load_text_step(struct load_text *load, struct json_reader *reader, bool *done,
                           struct error *err);
/* To be asked when a text comes: if it is a file, its bytes become the setting's. */
bool load_text_begin(struct load_text *load, struct request_setting *setting);

#endif
