/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines as tables: long options, an optional letter each, and positional arguments.
 *
 *   static const struct arg options[] = {
 *       {"output", 'o', ARG_TEXT, offsetof(struct mine, output), "FILE", "where the plan goes"},
 *       ...
 *
 * Options are "--name VALUE", "--name=VALUE" or "-n VALUE"; "--" ends them, and every command has
 * "-h" and "--help". Options of several commands are in tables of their own, which the tables of
 * these commands name. Complaints are one line on stderr. Exit codes: 0 success, 1 failure, 2
 * usage.
 */
#ifndef INFERD_TOOLS_ARGS_H
#define INFERD_TOOLS_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

enum arg_kind {
    ARG_FLAG,  /* bool; takes no value */
    ARG_COUNT, /* uint32_t; takes no value, counts how often it is given */
    ARG_TEXT,  /* const char * */
    ARG_U32,   /* uint32_t */
    ARG_F64,   /* double >= 0 */
    ARG_BYTES, /* uint64_t: "100", "64KiB", "64MiB", "2GiB" */
    ARG_TEXTS, /* struct arg_texts; may be given several times */
    ARG_U32S,  /* struct arg_u32s: "1,2,4" */
};

enum { ARG_LIST_MAX = 64 };

struct arg_texts {
    uint32_t n;
    const char *list[ARG_LIST_MAX];
};

struct arg_u32s {
    uint32_t n;
    uint32_t list[ARG_LIST_MAX];
};

struct arg {
    const char *name; /* "output"; NULL ends the table */
    char letter;      /* 'o'; 0: none */
    enum arg_kind kind;
    size_t offset;    /* of its field in the struct that args_parse fills */
    const char *meta; /* "FILE" */
    const char *help; /* one line */
};

/* Options that several commands share: they fill a struct within the command's own. */
struct arg_table {
    const struct arg *rows;
    size_t at;        /* offset of that struct */
    const char *head; /* of their section in the help; NULL: they follow those before */
};

enum { ARG_TABLES_MAX = 4 };

struct args {
    const char *usage; /* "inferctl build MODEL.onnx -o MODEL.plan [options]" */
    const char *what;  /* one line */
    const struct arg *options;
    uint32_t min_positional, max_positional;
    struct arg_table shared[ARG_TABLES_MAX]; /* ended by a table without rows */
};

/* Fills *into by the table and `positional` with what is left. argv[0] is the command's name.
 * Returns -1 to go on, or the exit code: EXIT_OK after help, EXIT_USAGE after a complaint. */
int args_parse(const struct args *args, int argc, char **argv, void *into,
               struct arg_texts *positional);

/* From now on args_parse gives every command's table to `see`, and returns EXIT_OK instead of
 * reading a command line: whoever writes of all options asks all commands. NULL: no more. */
void args_listen(void (*see)(void *user, const struct args *args), void *user);

/* The first option of these rows that was given, that is, whose value is not 0, NULL or false;
 * NULL: none. For commands that have to say which option does not go with the others. */
const char *args_given(const struct arg *rows, const void *at);

/* "NAME=VALUE" in two; the name is copied. False if there is no '=' or the name does not fit. */
bool args_split(const char *text, char *name, size_t name_size, const char **value);

/* Parse a whole number in decimal, or any number that is not negative; false for other texts. */
bool args_u32(const char *text, uint32_t *out);
bool args_f64(const char *text, double *out);
bool args_bytes(const char *text, uint64_t *out); /* with KiB, MiB or GiB behind it, or nothing */

#endif
