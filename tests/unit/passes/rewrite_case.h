/* SPDX-License-Identifier: Apache-2.0 */
/* A rewrite as a table row: the graph before, the passes to run, the graph after. */
#ifndef INFERD_TESTS_UNIT_PASSES_REWRITE_CASE_H
#define INFERD_TESTS_UNIT_PASSES_REWRITE_CASE_H

struct rewrite_case {
    const char *what;
    /* Names, separated by blanks; "*" is the whole table until it is stable, for a backend without
     * features; "**" for one that has them all. */
    const char *passes;
    const char *before;
    const char *after; /* as ir_graph_text writes it; NULL: nothing may change */
    const char *log;   /* a part of the log that must be there; NULL: none */
};

/* Checks text, verifier, log, and that both graphs compute the same. */
void rewrite_case_run(const struct rewrite_case *c);

#endif
