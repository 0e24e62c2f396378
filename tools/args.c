/* SPDX-License-Identifier: Apache-2.0 */
/* Table-driven command lines; see args.h. */
#include "tools/args.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/names.h"

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

/* Of each kind: the size of its field, and what value it expects, in words. */
static const struct {
    size_t size;
    const char *expected;
} kinds[] = {
    [ARG_FLAG] = {sizeof(bool), ""},
    [ARG_COUNT] = {sizeof(uint32_t), ""},
    [ARG_TEXT] = {sizeof(const char *), "a text"},
    [ARG_U32] = {sizeof(uint32_t), "a whole number up to 4294967295"},
    [ARG_F64] = {sizeof(double), "a number that is not negative"},
    [ARG_BYTES] = {sizeof(uint64_t), "a size such as 512MiB or 2GiB"},
    [ARG_TEXTS] = {sizeof(uint32_t), "at most 64 of these"},
    [ARG_U32S] = {sizeof(uint32_t), "up to 64 whole numbers with commas between"},
};

const char *args_given(const struct arg *rows, const void *at)
{
    static const char nothing[sizeof(uint64_t)];
    for (; rows->name; rows++)
        if (memcmp((const char *)at + rows->offset, nothing, kinds[rows->kind].size) != 0)
            return rows->name;
    return NULL;
}

/* --- help and complaints --- */

static void print_rows(const struct arg *rows)
{
    for (const struct arg *a = rows; a->name; a++) {
        char left[64];
        char letter[8] = "    ";
        if (a->letter)
            snprintf(letter, sizeof(letter), "-%c, ", a->letter);
        snprintf(left, sizeof(left), "  %s--%s%s%s", letter, a->name, a->meta ? " " : "",
                 a->meta ? a->meta : "");
        printf("%-34s  %s\n", left, a->help);
    }
}

static void print_help(const struct args *args)
{
    printf("usage: %s\n\n%s\n\n", args->usage, args->what);
    print_rows(args->options);
    for (size_t i = 0; i < ARG_TABLES_MAX && args->shared[i].rows; i++) {
        if (args->shared[i].head)
            printf("\n%s\n", args->shared[i].head);
        print_rows(args->shared[i].rows);
    }
    printf("\n  -h, --help\n");
}

static int complain(const struct args *args, const char *what, const char *which)
{
    fprintf(stderr, "%s '%s'; usage: %s\n", what, which, args->usage);
    return EXIT_USAGE;
}

static void add_names(struct names *names, const struct arg *rows)
{
    char name[64];
    for (; rows->name; rows++) {
        snprintf(name, sizeof(name), "--%s", rows->name);
        names_add(names, name);
    }
}

static int complain_unknown(const struct args *args, const char *text)
{
    struct names names;
    names_init(&names, text, strcspn(text, "="));
    add_names(&names, args->options);
    for (size_t i = 0; i < ARG_TABLES_MAX && args->shared[i].rows; i++)
        add_names(&names, args->shared[i].rows);
    fprintf(stderr, "no such option '%s'%s; usage: %s\n", text, names_hint(&names), args->usage);
    return EXIT_USAGE;
}

/* --- parsing --- */

/* The same letter all over, as "vvv". */
static bool repeats(const char *letters)
{
    return strspn(letters, (const char[]){letters[0], '\0'}) == strlen(letters);
}

static const struct arg *find_in(const struct arg *rows, const char *text)
{
    size_t len = strcspn(text, "=");
    for (const struct arg *a = rows; a->name; a++) {
        if (text[1] != '-' && a->letter && text[1] == a->letter &&
            (!text[2] || (a->kind == ARG_COUNT && repeats(text + 1))))
            return a;
        if (text[1] == '-' && strlen(a->name) == len - 2 && !memcmp(a->name, text + 2, len - 2))
            return a;
    }
    return NULL;
}

/* The option of an argument that begins with '-'; *at is the offset of the struct that it fills. */
static const struct arg *find(const struct args *args, const char *text, size_t *at)
{
    *at = 0;
    const struct arg *found = find_in(args->options, text);
    for (size_t i = 0; !found && i < ARG_TABLES_MAX && args->shared[i].rows; i++) {
        *at = args->shared[i].at;
        found = find_in(args->shared[i].rows, text);
    }
    return found;
}

static int parse_option(const struct args *args, int argc, char **argv, int *i, void *into)
{
    const char *text = argv[*i], *value = text[1] == '-' ? strchr(text, '=') : NULL;
    size_t at;
    const struct arg *a = find(args, text, &at);
    value = value ? value + 1 : NULL;
    if (!a)
        return complain_unknown(args, text);
    bool takes_value = a->kind != ARG_FLAG && a->kind != ARG_COUNT;
    if (!takes_value && value)
        return complain(args, "this option takes no value:", text);
    if (takes_value && !value) {
        if (*i + 1 >= argc)
            return complain(args, "a value is missing after", text);
        value = argv[++*i];
    }
    for (size_t more = text[1] != '-' && a->kind == ARG_COUNT ? strlen(text) - 2 : 0; more; more--)
        store(a, value, (char *)into + at);
    if (store(a, value, (char *)into + at))
        return -1;
    fprintf(stderr, "--%s '%s': expected %s; usage: %s\n", a->name, value, kinds[a->kind].expected,
            args->usage);
    return EXIT_USAGE;
}

static struct {
    void (*see)(void *user, const struct args *args);
    void *user;
} listener;

void args_listen(void (*see)(void *user, const struct args *args), void *user)
{
    listener.see = see;
    listener.user = user;
}

int args_parse(const struct args *args, int argc, char **argv, void *into,
               struct arg_texts *positional)
{
    bool options = true;
    if (listener.see) {
        listener.see(listener.user, args);
        return EXIT_OK;
    }
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
