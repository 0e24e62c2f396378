/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/passes/rewrite_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/eval.h"
#include "engine/passes/pass.h"
#include "tests/test.h"
#include "tests/unit/passes/parse.h"
#include "tests/unit/passes/same.h"

enum { LOG_BYTES = 8192 };

static void keep_line(void *user, enum log_level level, const char *line)
{
    char *log = user;
    size_t n = strlen(log);
    (void)level;
    snprintf(log + n, LOG_BYTES - n, "%s\n", line);
}

static void run_pass(const char *name, struct ir_graph *g, struct pass_context *ctx)
{
    struct error err = {0};
    enum status status;
    ctx->attention = ctx->merge = ctx->tables = ctx->picks = ctx->joins = ctx->patches = ctx->lays =
        ctx->boxes = strcmp(name, "*") != 0;
    ctx->chain_room = ctx->joins ? 227 << 10 : 0;
    ctx->stems = strcmp(name, "*") != 0;
    static struct pass_pairs pairs, chains;
    pairs.n = chains.n = 0;
    ctx->pairs = ctx->stems ? &pairs : NULL;
    ctx->chains = ctx->stems ? &chains : NULL;
    if (strcmp(name, "*") == 0 || strcmp(name, "**") == 0) {
        status = passes_run(g, ctx, &err);
    } else {
        const struct pass *pass = pass_find(name);
        if (!pass) {
            fail_msg("no pass %s", name);
            return;
        }
        status = pass_run(pass, g, ctx, &err);
    }
    if (status == STATUS_OK)
        status = ir_verify(g, &err);
    if (status != STATUS_OK) {
        char *text = ir_graph_text(g);
        fail_msg("pass %s: %s\n%s", name, err.text, text);
    }
}

static void run_passes(const struct rewrite_case *c, struct ir_graph *g, char *log)
{
    struct log_sink sink = {.level = LOG_VERBOSE, .write = keep_line, .user = log};
    struct pass_context ctx = {.evaluator = {cpu_eval_node, NULL}, .log = &sink};
    char names[256];
    snprintf(names, sizeof(names), "%s", c->passes);
    for (char *rest = NULL, *name = strtok_r(names, " ", &rest); name;
         name = strtok_r(NULL, " ", &rest))
        run_pass(name, g, &ctx);
    if (!c->after && ctx.rewrites)
        fail_msg("%s: %u rewrites where none was expected:\n%s", c->what, ctx.rewrites, log);
}

void rewrite_case_run(const struct rewrite_case *c)
{
    struct ir_graph *g = graph_parse(c->before);
    struct outputs want, got;
    char *log = calloc(1, LOG_BYTES), *before = ir_graph_text(g);
    outputs_compute(g, 7, &want);

    run_passes(c, g, log);
    char *after = ir_graph_text(g);
    if (strcmp(after, c->after ? c->after : before) != 0)
        fail_msg("%s: got\n%s\nnot\n%s\nlog\n%s", c->what, after, c->after ? c->after : before,
                 log);
    if (c->log && !strstr(log, c->log))
        fail_msg("%s: \"%s\" is not in the log:\n%s", c->what, c->log, log);
    outputs_compute(g, 7, &got);
    outputs_check(&got, &want, 2e-5, c->what);

    outputs_free(&want);
    outputs_free(&got);
    free(before);
    free(after);
    free(log);
    ir_graph_free(g);
}
