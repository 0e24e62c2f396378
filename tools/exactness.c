/* SPDX-License-Identifier: Apache-2.0 */
/* See exactness.h. */
#include "tools/exactness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "tools/show.h"

enum { ERROR_TEXT = 24 };

/* "0.0123", or "not finite" for infinity. */
static const char *error_text(double error, char text[ERROR_TEXT])
{
    snprintf(text, ERROR_TEXT, isfinite(error) ? "%.3g" : "not finite", error);
    return text;
}

/* --- of a plan --- */

static void print_outputs(const struct plan *plan, const char *lead)
{
    const struct plan_exactness *e = &plan->exactness;
    char text[ERROR_TEXT];
    for (uint32_t i = 0; i < e->n_outputs; i++) {
        printf("%serror    %s of output ", lead, error_text((double)e->outputs[i].error, text));
        show_printf("%s", plan->outputs[i].name);
        if (e->outputs[i].agreement >= 0)
            printf(", agrees in %.4g%%", 100 * (double)e->outputs[i].agreement);
        printf(" (%u sample%s of %s", e->samples, e->samples == 1 ? "" : "s",
               e->data ? "the data" : "random numbers");
        if (isfinite(e->bound))
            printf(", bound %.3g", (double)e->bound);
        puts(")");
    }
}

void exactness_print(const struct plan *plan, const char *lead, uint32_t max)
{
    const struct plan_exactness *e = &plan->exactness;
    char text[ERROR_TEXT];
    if (!e->measured)
        return;
    print_outputs(plan, lead);
    for (uint32_t i = 0; i < e->n_held && i < max; i++) {
        printf("%sheld     from %s: error %s: ", lead, dtype_name(e->held[i].type),
               error_text((double)e->held[i].error, text));
        show_printf("%s", e->held[i].layer);
        putchar('\n');
    }
    if (e->n_held > max)
        printf("%sheld     %u more\n", lead, e->n_held - max);
}

static void json_outputs(struct json *j, const struct plan *plan)
{
    const struct plan_exactness *e = &plan->exactness;
    json_list(j, "outputs");
    for (uint32_t i = 0; i < e->n_outputs; i++) {
        json_object(j, NULL);
        json_text(j, "name", plan->outputs[i].name);
        json_real(j, "error", (double)e->outputs[i].error);
        json_real(j, "agreement",
                  e->outputs[i].agreement < 0 ? (double)NAN : (double)e->outputs[i].agreement);
        json_end(j);
    }
    json_end(j);
}

void exactness_json(struct json *j, const struct plan *plan)
{
    const struct plan_exactness *e = &plan->exactness;
    if (!e->measured) {
        json_real(j, "exactness", (double)NAN); /* null */
        return;
    }
    json_object(j, "exactness");
    json_uint(j, "samples", e->samples);
    json_bool(j, "data", e->data);
    json_real(j, "bound", (double)e->bound);
    json_outputs(j, plan);
    json_list(j, "held");
    for (uint32_t i = 0; i < e->n_held; i++) {
        json_object(j, NULL);
        json_text(j, "layer", e->held[i].layer);
        json_text(j, "dtype", dtype_name(e->held[i].type));
        json_real(j, "error", (double)e->held[i].error);
        json_end(j);
    }
    json_end(j);
    json_end(j);
}

/* --- of layers --- */

static int by_error(const void *a, const void *b)
{
    const struct guard_layer *x = a, *y = b;
    return x->error > y->error ? -1 : x->error < y->error;
}

void exactness_sensitivity(void *user UNUSED, const struct guard_report *r)
{
    char own[ERROR_TEXT], carried[ERROR_TEXT];
    CLEANUP(cleanup_free) struct guard_layer *list = calloc((size_t)r->n_layers + 1, sizeof(*list));
    if (!list)
        return;
    if (r->n_layers)
        memcpy(list, r->layers, r->n_layers * sizeof(*list));
    qsort(list, r->n_layers, sizeof(*list), by_error);
    if (r->n_layers == 0)
        puts("sensitivity: no layer was to run in a shorter type than the model's");
    else
        printf("%10s  %10s  %9s  %-5s %-4s  %-10s layer\n", "error", "in model", "gain us", "type",
               "held", "op");
    for (uint32_t i = 0; i < r->n_layers; i++) {
        const struct guard_layer *l = &list[i];
        printf("%10s  %10s  %9.1f  %-5s %-4s  %-10s ", error_text(l->error, own),
               error_text(l->carried, carried), l->gain_ns / NS_PER_US, dtype_name(l->type),
               l->held ? "yes" : "no", ir_op_name(l->op));
        show_printf("%s", l->name);
        putchar('\n');
    }
}
