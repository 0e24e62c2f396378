/* SPDX-License-Identifier: Apache-2.0 */
/* inferctl: the table of its subcommands. */
#include "tools/inferctl.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/names.h"
#include "base/restart.h"
#include "base/standard.h"
#include "tools/args.h"

const struct command commands[] = {
    {"build", command_build, "make a plan for a device from an ONNX model"},
    {"calibrate", command_calibrate, "find what a model's tensors hold, for 8 bits"},
    {"inspect", command_inspect,
     "show what is in a plan or a model, and what a build would refuse"},
    {"graph", command_graph, "draw a model or plan as SVG"},
    {"run", command_run, "run a model or plan once, and compare its outputs"},
    {"bench", command_bench, "measure a model or plan without a daemon"},
    {"infer", command_infer, "send one inference to a daemon"},
    {"load", command_load, "measure a daemon under load"},
    {"models", command_models, "show a daemon's models, their inputs and outputs"},
    {"status", command_status, "show what a daemon does"},
    {"sign", command_sign, "sign plans and models for daemons that demand it"},
    {"token", command_token, "make a token for a daemon's clients"},
    {"completion", command_completion, "write what a shell completes inferctl's words with"},
    {NULL, NULL, NULL},
};

int command_failed(const char *command, const struct error *err)
{
    const char *kind = err->status == STATUS_UNIMPLEMENTED ? "unsupported: " : "";
    fprintf(stderr, "inferctl %s: %s%s\n", command, kind, err->text);
    return EXIT_FAILED;
}

static int help(FILE *to)
{
    fprintf(to, "usage: inferctl COMMAND [arguments]; inferctl help COMMAND says more\n\n");
    for (size_t i = 0; commands[i].name; i++)
        fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].help);
    fprintf(to, "\n  help, version\n");
    return to == stdout ? EXIT_OK : EXIT_USAGE;
}

static bool is_one_of(const char *text, const char *a, const char *b, const char *c)
{
    return !strcmp(text, a) || !strcmp(text, b) || !strcmp(text, c);
}

static int run_command(int argc, char **argv)
{
    struct names names;
    names_init(&names, argv[0], strlen(argv[0]));
    for (size_t i = 0; commands[i].name; i++) {
        if (!strcmp(argv[0], commands[i].name))
            return commands[i].run(argc, argv);
        names_add(&names, commands[i].name);
    }
    fprintf(stderr, "inferctl: no command '%s'%s; inferctl help lists them\n", argv[0],
            names_hint(&names));
    return EXIT_USAGE;
}

static int help_of(char *command)
{
    char *argv[] = {command, (char[]){"--help"}, NULL};
    return run_command(2, argv);
}

static int run(int argc, char **argv)
{
    if (argc < 2)
        return help(stderr);
    if (is_one_of(argv[1], "--help", "-h", "help"))
        return argc > 2 ? help_of(argv[2]) : help(stdout);
    if (is_one_of(argv[1], "--version", "-V", "version")) {
        printf("inferctl %s\n", INFERD_VERSION);
        return EXIT_OK;
    }
    return run_command(argc - 1, argv + 1);
}

/* What could not be printed is a failure; one that came before has its own line and status. */
static int finish(int result)
{
    struct error err;
    if (!standard_flush(stdout, &err) || result)
        return result;
    fprintf(stderr, "inferctl: %s\n", err.text);
    return EXIT_FAILED;
}

int main(int argc, char **argv)
{
    standard_open();
    restart_for_openmp(argv);
    return finish(run(argc, argv));
}
