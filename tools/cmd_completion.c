/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inferctl completion writes a script for bash or zsh that completes commands, options and files.
 * Every word in it comes from the tables by which inferctl reads its command line.
 */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/names.h"
#include "tools/args.h"
#include "tools/inferctl.h"

static const struct arg options[] = {{NULL, 0, ARG_FLAG, 0, NULL, NULL}};

static const struct args spec = {
    .usage = "inferctl completion bash|zsh",
    .what = "Writes a script that completes inferctl's commands and options in a shell.",
    .options = options,
    .min_positional = 1,
    .max_positional = 1,
};

static bool takes_value(const struct arg *a)
{
    return a->kind != ARG_FLAG && a->kind != ARG_COUNT;
}

/* Calls `each` for the options of a command: its own, those that it shares, and --help. */
static void options_each(const struct args *args, void (*each)(const struct arg *option))
{
    static const struct arg help = {"help", 'h', ARG_FLAG, 0, NULL, "show this command's options"};
    for (const struct arg *a = args->options; a->name; a++)
        each(a);
    for (size_t i = 0; i < ARG_TABLES_MAX && args->shared[i].rows; i++)
        for (const struct arg *a = args->shared[i].rows; a->name; a++)
            each(a);
    each(&help);
}

/* Calls `see` with the table of each command. */
static void commands_each(void (*see)(void *user, const struct args *args))
{
    for (const struct command *c = commands; c->name; c++) {
        char name[32], *argv[] = {name, NULL};
        snprintf(name, sizeof(name), "%s", c->name);
        args_listen(see, name);
        c->run(1, argv);
    }
    args_listen(NULL, NULL);
}

/* --- bash --- */

static void bash_option(const struct arg *a)
{
    printf(" --%s", a->name);
    if (a->letter)
        printf(" -%c", a->letter);
}

static void bash_value(const struct arg *a)
{
    if (takes_value(a))
        bash_option(a);
}

static void bash_command(void *user, const struct args *args)
{
    printf("    %s)\n        options='", (const char *)user);
    options_each(args, bash_option);
    printf("'\n        values='");
    options_each(args, bash_value);
    printf("'\n        ;;\n");
}

static int bash_write(void)
{
    printf("# Completes the words of inferctl in bash; inferctl completion bash made it.\n"
           "_inferctl()\n{\n"
           "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
           "    local options= values= commands='");
    for (const struct command *c = commands; c->name; c++)
        printf("%s ", c->name);
    printf("help version'\n"
           "    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
           "        COMPREPLY=($(compgen -W \"$commands\" -- \"$current\"))\n"
           "        return\n"
           "    fi\n"
           "    case ${COMP_WORDS[1]} in\n");
    commands_each(bash_command);
    printf("    help)\n"
           "        COMPREPLY=($(compgen -W \"$commands\" -- \"$current\"))\n"
           "        return\n        ;;\n"
           "    esac\n"
           "    case \" $values \" in\n"
           "    *\" $previous \"*) return ;;\n" /* a value: files, by -o default */
           "    esac\n"
           "    case $current in\n"
           "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$current\")) ;;\n"
           "    esac\n"
           "}\n"
           "complete -o default -F _inferctl inferctl\n");
    return EXIT_OK;
}

/* --- zsh --- */

/* Prints a text within single quotes, where brackets and colons have a meaning of their own. */
static void zsh_text(const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            printf("'\\''");
        else
            printf(strchr("[]:\\", *text) ? "\\%c" : "%c", *text);
    }
}

static void zsh_spelling(const struct arg *a, const char *dashes, const char *name)
{
    bool again = a->kind == ARG_TEXTS || a->kind == ARG_COUNT;
    printf(" \\\n            '%s%s%s[", again ? "*" : "", dashes, name);
    zsh_text(a->help);
    printf("]");
    if (takes_value(a)) {
        printf(":");
        zsh_text(a->meta ? a->meta : "value");
        printf(":_files");
    }
    printf("'");
}

static void zsh_option(const struct arg *a)
{
    const char letter[] = {a->letter, '\0'};
    zsh_spelling(a, "--", a->name);
    if (a->letter)
        zsh_spelling(a, "-", letter);
}

static void zsh_command(void *user, const struct args *args)
{
    printf("    %s)\n        _arguments", (const char *)user);
    options_each(args, zsh_option);
    printf(" \\\n            '*:file:_files'\n        ;;\n");
}

static int zsh_write(void)
{
    printf("#compdef inferctl\n"
           "# Completes the words of inferctl in zsh; inferctl completion zsh made it.\n"
           "local -a commands\n"
           "commands=(\n");
    for (const struct command *c = commands; c->name; c++) {
        printf("    '%s:", c->name);
        zsh_text(c->help);
        printf("'\n");
    }
    printf("    'help:say what a command does'\n"
           "    'version:show the version'\n"
           ")\n"
           "if (( CURRENT == 2 )); then\n"
           "    _describe command commands\n"
           "    return\n"
           "fi\n"
           "local command=$words[2]\n"
           "shift words\n"
           "(( CURRENT-- ))\n"
           "case $command in\n");
    commands_each(zsh_command);
    printf("    help)\n"
           "        _describe command commands\n"
           "        ;;\n"
           "esac\n");
    return EXIT_OK;
}

int command_completion(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*write)(void);
    } shells[] = {{"bash", bash_write}, {"zsh", zsh_write}};
    struct arg_texts positional;
    struct names names;
    int rc = args_parse(&spec, argc, argv, NULL, &positional);
    if (rc >= 0)
        return rc;
    names_init(&names, positional.list[0], strlen(positional.list[0]));
    for (size_t i = 0; i < ARRAY_LEN(shells); i++) {
        if (!strcmp(positional.list[0], shells[i].name))
            return shells[i].write();
        names_add(&names, shells[i].name);
    }
    fprintf(stderr, "inferctl completion: no such shell '%s'; there are %s\n", positional.list[0],
            names_text(&names));
    return EXIT_USAGE;
}
