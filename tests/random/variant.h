/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ways in which a case is run, by name:
 *
 *   import          imported, then node by node with the reference kernels
 *   pass:NAME       the same after one pass alone, with all that a backend may have
 *   without:NAME    after the table without that pass
 *   passes          after the whole table, which then finds nothing more and has cost no node its
 *                   fast kernel; and with what a backend may have: features
 *   memory          after the whole table, which may not have as much memory as it needs
 *   engine          through builder, plan file and runtime, with what the backend thinks best
 *   threads         the same on several threads; on what it measured to be fastest: timed
 *   tactic:N        the same, with candidate N (modulo their number) forced on every node
 * The variants through the engine run every data set, each on the profile that holds it, then the
 * first one again in the same context, its instances in pieces at odd addresses.
 */
#ifndef INFERD_TESTS_RANDOM_VARIANT_H
#define INFERD_TESTS_RANDOM_VARIANT_H

#include <stdio.h>

#include "tests/random/graph_case.h"

enum { VARIANT_NAME_MAX = 64 };

/* Mistakes made on purpose, to see that they are found. */
enum plant {
    PLANT_NONE,
    PLANT_PASS,  /* a pass at the end of the table that exchanges the operands of a subtraction */
    PLANT_CRASH, /* the same pass aborts instead */
    PLANT_HANG,  /* ... does not come back */
};

struct variant_options {
    enum plant plant;
    const char *only; /* this variant alone; NULL: all */
    bool timed;       /* `timed` as well: slow */
    FILE *names;      /* the tactics that were forced, and what each pass did; may be NULL */
};

struct variant_result {
    enum status status; /* UNIMPLEMENTED: not supported */
    struct error err;
};

/* Called before each variant (result NULL) and after it. If it returns false, no more variants
 * run. */
typedef bool (*variant_visit)(void *user, const char *name, const struct variant_result *result);

void variants_run(const struct graph_case *c, const struct variant_options *options,
                  variant_visit visit, void *user);

#endif
