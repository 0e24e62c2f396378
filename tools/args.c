/* SPDX-License-Identifier: Apache-2.0 */
/* Table-driven command lines; see args.h. */
#include "tools/args.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

bool args_u32(const char *text, uint32_t *out)
{
    if (!*text || strspn(text, "0123456789") != strlen(text) || strlen(text) > 10)
        return false;
    unsigned long long v = strtoull(text, NULL, 10);
    if (v > UINT32_MAX)
        return false;
    *out = (uint32_t)v;
    return true;
}

bool args_f64(const char *text, double *out)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v) || v < 0)
        return false;
    *out = v;
    return true;
}

bool args_bytes(const char *text, uint64_t *out)
{
    static const struct {
        const char *name;
        unsigned shift;
    } units[] = {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 18)
        return false;
    uint64_t v = strtoull(text, NULL, 10);
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (strcmp(text + digits, units[i].name) != 0 || v > UINT64_MAX >> units[i].shift)
            continue;
        *out = v << units[i].shift;
        return true;
    }
    return false;
}

bool args_split(const char *text, char *name, size_t name_size, const char **value)
{
    const char *eq = strchr(text, '=');
    if (!eq || eq == text || (size_t)(eq - text) >= name_size)
        return false;
    memcpy(name, text, (size_t)(eq - text));
    name[eq - text] = '\0';
    *value = eq + 1;
    return true;
}

static bool parse_u32s(const char *text, struct arg_u32s *out)
{
    out->n = 0;
    for (;;) {
        char one[16];
        size_t len = strcspn(text, ",");
        if (len >= sizeof(one) || out->n == ARG_LIST_MAX)
            return false;
        memcpy(one, text, len);
        one[len] = '\0';
        if (!args_u32(one, &out->list[out->n++]))
            return false;
        if (!text[len])
            return true;
        text += len + 1;
    }
}

static bool store(const struct arg *arg, const char *value, void *into)
{
    void *field = (char *)into + arg->offset;
    struct arg_texts *texts;
    switch (arg->kind) {
    case ARG_FLAG:
        *(bool *)field = true;
        return true;
    case ARG_COUNT:
        ++*(uint32_t *)field;
        return true;
    case ARG_TEXT:
        *(const char **)field = value;
        return true;
    case ARG_U32:
        return args_u32(value, field);
    case ARG_F64:
        return args_f64(value, field);
    case ARG_BYTES:
        return args_bytes(value, field);
    case ARG_TEXTS:
        texts = field;
        if (texts->n == ARG_LIST_MAX)
            return false;
        texts->list[texts->n++] = value;
        return true;
    case ARG_U32S:
        return parse_u32s(value, field);
    }
    return false;
}

static void print_help(const struct args *args)
{
    printf("usage: %s\n\n%s\n\n", args->usage, args->what);
    for (const struct arg *a = args->options; a->name; a++) {
        char left[64];
        char letter[8] = "    ";
        if (a->letter)
            snprintf(letter, sizeof(letter), "-%c, ", a->letter);
        snprintf(left, sizeof(left), "  %s--%s%s%s", letter, a->name, a->meta ? " " : "",
                 a->meta ? a->meta : "");
        printf("%-34s  %s\n", left, a->help);
    }
    printf("  -h, --help\n");
}

static int complain(const struct args *args, const char *what, const char *which)
{
    fprintf(stderr, "%s '%s'; usage: %s\n", what, which, args->usage);
    return EXIT_USAGE;
}

/* The option of an argument that begins with '-'; *value is set to what follows '='. */
static const struct arg *find(const struct args *args, const char *text, const char **value)
{
    size_t len = strcspn(text, "=");
    *value = NULL;
    for (const struct arg *a = args->options; a->name; a++) {
        if (text[1] != '-' && a->letter && text[1] == a->letter && !text[2])
            return a;
        if (text[1] == '-' && strlen(a->name) == len - 2 && !memcmp(a->name, text + 2, len - 2)) {
            *value = text[len] ? text + len + 1 : NULL;
            return a;
        }
    }
    return NULL;
}

static int parse_option(const struct args *args, int argc, char **argv, int *i, void *into)
{
    const char *value, *text = argv[*i];
    const struct arg *a = find(args, text, &value);
    if (!a)
        return complain(args, "no such option:", text);
    bool takes_value = a->kind != ARG_FLAG && a->kind != ARG_COUNT;
    if (!takes_value && value)
        return complain(args, "this option takes no value:", text);
    if (takes_value && !value) {
        if (*i + 1 >= argc)
            return complain(args, "a value is missing after", text);
        value = argv[++*i];
    }
    return store(a, value, into) ? -1 : complain(args, "a bad value, or one too many, for", text);
}

int args_parse(const struct args *args, int argc, char **argv, void *into,
               struct arg_texts *positional)
{
    bool options = true;
    positional->n = 0;
    for (int i = 1; i < argc; i++) {
        const char *text = argv[i];
        if (options && text[0] == '-' && text[1]) {
            int rc = -1;
            if (!strcmp(text, "--"))
                options = false;
            else if (!strcmp(text, "-h") || !strcmp(text, "--help")) {
                print_help(args);
                return EXIT_OK;
            } else
                rc = parse_option(args, argc, argv, &i, into);
            if (rc >= 0)
                return rc;
        } else if (positional->n == args->max_positional || positional->n == ARG_LIST_MAX) {
            return complain(args, "one argument too many:", text);
        } else {
            positional->list[positional->n++] = text;
        }
    }
    return positional->n < args->min_positional
               ? complain(args, "an argument is missing for", argv[0])
               : -1;
}
