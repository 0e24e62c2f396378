/* SPDX-License-Identifier: Apache-2.0 */
/* See build_report.h. A layer is a node that runs; its family is the first word of its tactic. */
#include "tools/build_report.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/ir/ops.h"
#include "tools/exactness.h"
#include "tools/show.h"

enum { FAMILIES_MAX = 24, FAMILY_MAX = 24, NAMED_MAX = 6 };

struct family {
    const char *backend;
    char name[FAMILY_MAX];
    uint32_t layers;
    uint64_t ns;
};

struct families {
    struct family list[FAMILIES_MAX];
    uint32_t n, layers;
    uint64_t ns;
};

static bool is_reference(const struct ir_node *node)
{
    return node->tactic && !strncmp(node->tactic->name, "reference", strlen("reference"));
}

/* If there is no room for another family, layers count for the last one. */
static struct family *find(struct families *f, const struct tactic *tactic)
{
    char name[FAMILY_MAX];
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(tactic->name, " :"), tactic->name);
    for (uint32_t i = 0; i < f->n; i++)
        if (!strcmp(f->list[i].backend, tactic->backend) && !strcmp(f->list[i].name, name))
            return &f->list[i];
    if (f->n == FAMILIES_MAX)
        return &f->list[f->n - 1];
    struct family *made = &f->list[f->n++];
    *made = (struct family){.backend = tactic->backend};
    memcpy(made->name, name, sizeof(name));
    return made;
}

static void count(struct families *f, const struct ir_graph *graph)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(graph, i);
        if (!node->tactic)
            continue;
        struct family *family = find(f, node->tactic);
        family->layers++;
        family->ns += node->time_ns;
        f->layers++;
        f->ns += node->time_ns;
    }
}

/* ", 12% of the time"; nothing if nothing was timed. */
static void print_share(uint64_t ns, uint64_t of)
{
    if (of)
        printf(", %.0f%% of the time", 100.0 * (double)ns / (double)of);
}

static void print_backend(const struct families *f, const char *backend)
{
    uint32_t layers = 0;
    uint64_t ns = 0;
    for (uint32_t i = 0; i < f->n; i++)
        if (!strcmp(f->list[i].backend, backend)) {
            layers += f->list[i].layers;
            ns += f->list[i].ns;
        }
    printf("  %s: %u of %u layers", backend, layers, f->layers);
    print_share(ns, f->ns);
    const char *before = " (";
    for (uint32_t i = 0; i < f->n; i++)
        if (!strcmp(f->list[i].backend, backend)) {
            show_printf("%s%s %u", before, f->list[i].name, f->list[i].layers);
            before = ", ";
        }
    puts(")");
}

static void print_where(const struct families *f)
{
    for (uint32_t i = 0; i < f->n; i++) {
        bool first = true;
        for (uint32_t k = 0; k < i; k++)
            first = first && strcmp(f->list[k].backend, f->list[i].backend) != 0;
        if (first)
            print_backend(f, f->list[i].backend);
    }
}

/* "  in place at batch 1: 12 concatenations, 3 slices" */
static void print_in_place(const struct plan_profile *profile)
{
    const struct ir_graph *graph = profile->graph;
    uint32_t joins = 0, cuts = 0;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(graph, i);
        joins += !node->tactic && ir_op_has(node->op, IR_TRAIT_JOINS);
        cuts += !node->tactic && ir_op_has(node->op, IR_TRAIT_CUTS);
    }
    if (joins || cuts)
        printf("  in place at batch %u: %u concatenation%s, %u slice%s\n", profile->batch, joins,
               joins == 1 ? "" : "s", cuts, cuts == 1 ? "" : "s");
}

static bool is_on_host(const struct ir_node *node)
{
    return node->tactic && !strcmp(node->tactic->backend, "cpu");
}

/* "  no fast kernel: 2 layers, 40% of the time: 'a' (nms), 'b' (topk)" */
static void print_named(const char *what, const struct ir_graph *graph, uint64_t all_ns,
                        bool (*is)(const struct ir_node *node))
{
    uint32_t n = 0, named = 0;
    uint64_t ns = 0;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (is(ir_node(graph, i))) {
            n++;
            ns += ir_node(graph, i)->time_ns;
        }
    if (!n)
        return;
    printf("  %s: %u layer%s", what, n, n == 1 ? "" : "s");
    print_share(ns, all_ns);
    for (uint32_t i = 0; i < graph->n_nodes && named < NAMED_MAX; i++)
        if (is(ir_node(graph, i)))
            show_printf("%s'%.48s' (%s)", named++ ? ", " : ": ", ir_node(graph, i)->name,
                        ir_op_name(ir_node(graph, i)->op));
    puts(n > NAMED_MAX ? ", ..." : "");
}

static void print_fusion(const struct build_report *report, bool all)
{
    const char *before = " (";
    printf("  fusion: %u nodes became %u", report->imported, report->fused);
    for (uint32_t i = 0; i < PASS_COUNT; i++)
        if (report->passes[i].removed) {
            printf("%s%s %+d", before, passes[i].name, -(int)report->passes[i].removed);
            before = ", ";
        }
    puts(before[0] == ',' ? ")" : "");
    for (uint32_t i = 0; i < PASS_COUNT && all; i++)
        if (report->passes[i].rewrites)
            printf("    %-16s %5u x  %s\n", passes[i].name, report->passes[i].rewrites,
                   passes[i].what);
}

static void print_weights(const struct build_report *report)
{
    if (report->widened)
        printf("  16-bit floats: %u tensors are FP32 in the plan\n", report->widened);
    if (report->dropped)
        printf("  weights: %llu that are nothing beside others of their tensor are 0\n",
               (unsigned long long)report->dropped);
}

/* "  ranges: 52 tensors and 53 weights have one; of 122 given 51 are used, ..." */
static void print_ranges(const struct quant_report *r)
{
    if (!r->given && !r->ranged && !r->weights && !r->missing)
        return;
    printf("  ranges: %u tensor%s and %u weights have one", r->ranged, r->ranged == 1 ? "" : "s",
           r->weights);
    if (r->own)
        printf(", %u of them by the model", r->own);
    if (r->given)
        printf("; of %u given %u are used, %u are of tensors that stay floats or follow others, "
               "%u of tensors that are not there",
               r->given, r->used, r->idle + r->kept, r->gone);
    puts("");
    if (r->missing)
        show_printf("    no range: %u input%s of layers stay%s a float: %s%s\n", r->missing,
                    r->missing == 1 ? "" : "s", r->missing == 1 ? "s" : "", r->first_missing,
                    r->missing == 1 ? "" : ", ...");
}

static void print_profiles(const struct plan *plan)
{
    for (uint32_t i = 0; i < plan->n_profiles; i++) {
        struct families f = {.n = 0};
        count(&f, plan->profiles[i].graph);
        printf("  batch %u", plan->profiles[i].batch);
        for (uint32_t k = 0; k < plan->n_free; k++)
            show_printf(", %s %lld", plan->free[k].name, (long long)plan->profiles[i].values[k]);
        printf(": %u layers, %.1f us\n", f.layers, (double)f.ns / 1000);
    }
}

/* Whether an earlier profile has the same size of that dimension. */
static bool is_told(const struct plan *plan, uint32_t profile, uint32_t dim)
{
    for (uint32_t i = 0; i < profile; i++)
        if (plan->profiles[i].values[dim] == plan->profiles[profile].values[dim])
            return true;
    return false;
}

/* The sizes that requests may have. */
static void print_sizes(const struct plan *plan)
{
    for (uint32_t k = 0; k < plan->n_free; k++) {
        show_printf("  sizes of '%s':", plan->free[k].name);
        for (uint32_t i = 0; i < plan->n_profiles; i++)
            if (!is_told(plan, i, k))
                printf(" %lld", (long long)plan->profiles[i].values[k]);
        printf("%s\n", plan->free[k].pads ? "; requests of sizes between them run padded"
                                          : "; requests of other sizes do not run on them");
    }
}

static double seconds(const struct tune_effort *e, enum tune_phase phase)
{
    return (double)e->ns[phase] / 1e9;
}

/* Where the build's own time went. */
static void print_effort(const struct build_report *r)
{
    const struct tune_effort *e = &r->effort;
    printf(
        "  tuning: %u candidates listed in %.1f s, %u compiled in %.1f s (%u of them slowly, %.0f "
        "core seconds), %u timed in %.1f s, %u from the cache, %u not tried; chosen in %.1f s, "
        "compared with fp32 in %.1f s\n",
        e->listed, seconds(e, TUNE_LIST), e->compiled, seconds(e, TUNE_COMPILE), e->slow,
        (double)e->core_ns / 1e9, r->timed, seconds(e, TUNE_TIME), r->from_cache, r->given_up,
        seconds(e, TUNE_CHOOSE), seconds(e, TUNE_JUDGE));
}

void build_report_print(const struct plan *plan, const struct build_report *report, bool all)
{
    const struct ir_graph *graph = plan->profiles[plan->n_profiles - 1].graph;
    struct families f = {.n = 0};
    bool device = false;
    count(&f, graph);
    for (uint32_t i = 0; i < f.n; i++)
        device = device || strcmp(f.list[i].backend, "cpu") != 0;
    print_sizes(plan);
    print_weights(report);
    print_fusion(report, all);
    print_ranges(&report->ranges);
    print_where(&f);
    for (uint32_t i = 0; i < plan->n_profiles; i++)
        print_in_place(&plan->profiles[i]);
    if (device)
        print_named("on the CPU", graph, f.ns, is_on_host);
    for (uint32_t i = 0; i < TUNE_REASONS; i++)
        if (report->host[i][0])
            show_printf("    %s\n", report->host[i]);
    print_named("no fast kernel", graph, f.ns, is_reference);
    exactness_print(plan, "  ", all ? UINT32_MAX : NAMED_MAX);
    if (all) {
        print_effort(report);
        print_profiles(plan);
    }
}
