/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares every op of a device with the reference, by every tactic that the device offers (or a
 * sample of the tactics), on random shapes and types. With --time, prints the kernels' times beside
 * the time that their bytes need.
 *
 *   device_ops [--device cpu|cuda[:N]] [--precision P] [--count N] [--tactics N] [--seed S]
 *              [--only KIND] [--name TEXT] [--time BATCH] [--bandwidth BYTES_PER_S] [--verbose]
 *
 * The precisions int8 and fp8 try the tactics that store tensors in 8 bits by ranges, which the
 * cases then have.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "tests/device/ranged.h"
#include "tests/device/trial.h"

enum { TACTICS_MAX = 1024, EXIT_SKIP = 77, COMPILERS_MAX = 16, FAILURES_SHOWN = 40 };

struct options {
    const char *device, *only, *name; /* name: part of a tactic's */
    int precision;                    /* -1: all of them */
    uint32_t count, tactics, time_batch;
    uint64_t seed;
    double bandwidth;
    bool verbose;
};

struct list {
    struct tactic *items[TACTICS_MAX];
    uint32_t n;
};

struct tally {
    uint32_t cases, tactics, failed, refused, without;
    double worst;
    char worst_name[TACTIC_NAME_MAX];
};

static const struct {
    const char *name;
    double bound; /* of the relative error */
} precisions[] = {
    [PRECISION_F32] = {"fp32", 1e-5},
    [PRECISION_TF32] = {"tf32", 1e-3},
    [PRECISION_F16] = {"fp16", 2e-3},
    [PRECISION_BF16] = {"bf16", 2e-2},
    /* of outputs in 8 bits: in steps beyond rounding */
    [PRECISION_I8] = {"int8", 0.1},
    [PRECISION_F8] = {"fp8", 0.1},
};

static double bound_of(enum precision precision, const struct ir_graph *graph,
                       const struct tactic *tactic)
{
    enum dtype dtype = trial_type(graph, tactic);
    if (tactic->out[0].format.scale != IR_NO_SCALE)
        return tactic->out[0].format.dtype == DTYPE_F8 ? 0.5 : precisions[PRECISION_I8].bound;
    if (tactic->n_in && tactic->in[0].format.dtype == DTYPE_F8) /* sums that lose some bits */
        return 1e-2;
    if (dtype == DTYPE_F16)
        return precisions[PRECISION_F16].bound;
    if (dtype == DTYPE_BF16)
        return precisions[PRECISION_BF16].bound;
    return precisions[precision == PRECISION_F32 ? PRECISION_F32 : PRECISION_TF32].bound;
}

/* --- candidates --- */

static enum status keep(void *user, const struct tactic *tactic, struct error *err)
{
    struct list *list = user;
    if (list->n == TACTICS_MAX)
        return STATUS_OK;
    struct tactic *copy = malloc(sizeof(*copy));
    if (!copy)
        return error_no_memory(err, "a test");
    *copy = *tactic;
    list->items[list->n++] = copy;
    return STATUS_OK;
}

static bool is_scaled(const struct tactic *tactic)
{
    bool scaled = false;
    for (uint32_t i = 0; i < tactic->n_in + tactic->n_out; i++)
        scaled =
            scaled ||
            (i < tactic->n_in ? &tactic->in[i] : &tactic->out[i - tactic->n_in])->format.scale !=
                IR_NO_SCALE;
    return scaled;
}

/* Leaves the tactics whose name has the text in it. */
static void keep_named(struct list *list, const char *text)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->n; i++)
        if (!text || strstr(list->items[i]->name, text))
            list->items[n++] = list->items[i];
        else
            free(list->items[i]);
    list->n = n;
}

/* Leaves the tactics that store a tensor in 8 bits by a scale. */
static void keep_scaled(struct list *list)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->n; i++)
        if (is_scaled(list->items[i]))
            list->items[n++] = list->items[i];
        else
            free(list->items[i]);
    list->n = n;
}

static void list_free(struct list *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        free(list->items[i]);
    list->n = 0;
}

/* Keeps the first few candidates and a random choice of the others. */
static void thin(struct list *list, uint32_t limit, uint64_t seed)
{
    uint32_t first = limit / 2;
    while (limit && list->n > limit) {
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        uint32_t i = first + (uint32_t)(seed >> 33) % (list->n - first);
        free(list->items[i]);
        memmove(&list->items[i], &list->items[i + 1], (list->n - i - 1) * sizeof(struct tactic *));
        list->n--;
    }
}

struct compilation {
    struct device *device;
    const struct ir_graph *graph;
    const struct list *list;
    atomic_uint next;
};

static void *compile(void *user)
{
    struct compilation *c = user;
    for (uint32_t i; (i = atomic_fetch_add(&c->next, 1)) < c->list->n;) {
        struct error ignored; /* op_prepare will report the error again */
        c->device->backend->compile(c->device, c->graph, ir_node(c->graph, 0), c->list->items[i],
                                    &ignored);
    }
    return NULL;
}

static void compile_all(struct device *device, const struct ir_graph *graph,
                        const struct list *list)
{
    struct compilation c = {.device = device, .graph = graph, .list = list};
    pthread_t threads[COMPILERS_MAX];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t n = 0;
    if (!device->backend->compile)
        return;
    for (; n < COMPILERS_MAX && n < (uint32_t)(cores > 1 ? cores : 1); n++)
        if (pthread_create(&threads[n], NULL, compile, &c))
            break;
    compile(&c);
    while (n > 0)
        pthread_join(threads[--n], NULL);
}

/* --- right answers --- */

static void report(const struct options *o, const char *what, uint64_t seed,
                   const struct tactic *tactic, const char *text)
{
    printf("  %s seed %llu, '%s': %s\n", what, (unsigned long long)seed, tactic->name, text);
    if (o->verbose)
        fflush(stdout);
}

static void judge(const struct options *o, enum precision precision, const struct case_kind *kind,
                  uint64_t seed, const struct ir_graph *asked, const struct tactic *tactic,
                  enum status status, const struct outcome *out, const struct error *err,
                  struct tally *tally)
{
    char text[96];
    tally->tactics++;
    if (status == STATUS_FAILED_PRECONDITION) {
        tally->refused++; /* a proper refusal: the tuner passes over such a tactic */
        return;
    }
    if (status) {
        tally->failed++;
        report(o, kind->name, seed, tactic, err->text);
        return;
    }
    double bound = bound_of(precision, asked, tactic);
    if (!(out->error <= bound)) {
        tally->failed++;
        snprintf(text, sizeof(text), "error %.3g, at most %.0e allowed", out->error, bound);
        report(o, kind->name, seed, tactic, text);
    }
    if (out->error / bound > tally->worst) {
        tally->worst = out->error / bound;
        memcpy(tally->worst_name, tactic->name, sizeof(tally->worst_name));
    }
}

static bool lost(const struct error *err, enum status status)
{
    return status && err->scope == ERROR_DEVICE;
}

static struct ir_graph *ranged_case(const struct case_kind *kind, uint64_t seed,
                                    const struct subject *subject, struct error *err)
{
    struct ir_graph *graph = case_new(kind, seed);
    if (graph && !ranged_copy(subject->graph, graph, err))
        return graph;
    ir_graph_free(graph);
    return NULL;
}

static enum dtype bytes_of(enum precision precision)
{
    return precision == PRECISION_F8 ? DTYPE_F8 : DTYPE_I8;
}

/* The same case in 8 bits. False: the device is lost. */
static bool try_bytes(const struct options *o, struct trial *trial, const struct case_kind *kind,
                      uint64_t seed, enum precision precision, struct tally *tally)
{
    struct list list = {0};
    struct error err = {0};
    struct subject subject;
    enum precision floats = precision_floats(precision, trial->backend);
    bool go_on = true;
    enum status status =
        subject_init_ranged(&subject, case_new(kind, seed), seed, bytes_of(precision), &err);
    struct ir_graph *asked = status ? NULL : ranged_case(kind, seed, &subject, &err);
    tally->cases++;
    if (asked)
        status = trial->backend->candidates(trial->device, asked, ir_node(asked, 0), floats, keep,
                                            &list, &err);
    if (!asked || status) {
        printf("  %s seed %llu: %s\n", kind->name, (unsigned long long)seed, err.text);
        tally->failed++;
    }
    keep_scaled(&list);
    keep_named(&list, o->name);
    tally->without += list.n == 0;
    thin(&list, o->tactics, seed);
    if (asked)
        compile_all(trial->device, asked, &list);
    for (uint32_t i = 0; i < list.n && go_on; i++) {
        struct outcome out = {0};
        struct error why = {0};
        struct ir_graph *graph = ranged_case(kind, seed, &subject, &why);
        if (o->verbose)
            printf("  %s seed %llu '%s'\n", kind->name, (unsigned long long)seed,
                   list.items[i]->name);
        fflush(stdout);
        status = graph ? trial_run(trial, &subject, graph, list.items[i], 0, &out, &why)
                       : STATUS_RESOURCE_EXHAUSTED;
        judge(o, floats, kind, seed, asked, list.items[i], status, &out, &why, tally);
        go_on = !lost(&why, status);
        ir_graph_free(graph);
    }
    if (trial->backend->compile_drop)
        trial->backend->compile_drop(trial->device);
    list_free(&list);
    ir_graph_free(asked);
    subject_deinit(&subject);
    return go_on;
}

static bool try_case(const struct options *o, struct trial *trial, enum precision precision,
                     const struct case_kind *kind, uint64_t seed, struct tally *tally)
{
    struct list list = {0};
    struct error err = {0};
    struct ir_graph *asked = case_new(kind, seed);
    bool go_on = true;
    if (!asked) {
        printf("  %s seed %llu: no such case\n", kind->name, (unsigned long long)seed);
        tally->failed++;
        return true;
    }
    tally->cases++;
    enum status status = trial->backend->candidates(trial->device, asked, ir_node(asked, 0),
                                                    precision, keep, &list, &err);
    if (status) {
        printf("  %s seed %llu: %s\n", kind->name, (unsigned long long)seed, err.text);
        tally->failed++;
    }
    keep_named(&list, o->name);
    tally->without += list.n == 0;
    thin(&list, o->tactics, seed);
    compile_all(trial->device, asked, &list);
    for (uint32_t i = 0; i < list.n && go_on; i++) {
        struct subject subject;
        struct outcome out = {0};
        struct error why = {0};
        if (o->verbose) {
            printf("  %s seed %llu '%s'\n", kind->name, (unsigned long long)seed,
                   list.items[i]->name);
            fflush(stdout);
        }
        status = subject_init(&subject, case_new(kind, seed), trial_type(asked, list.items[i]),
                              seed, true, &why);
        struct ir_graph *graph = case_new(kind, seed);
        if (!status)
            status = trial_run(trial, &subject, graph, list.items[i], 0, &out, &why);
        judge(o, precision, kind, seed, asked, list.items[i], status, &out, &why, tally);
        go_on = !lost(&why, status);
        ir_graph_free(graph);
        subject_deinit(&subject);
    }
    if (trial->backend->compile_drop)
        trial->backend->compile_drop(trial->device);
    list_free(&list);
    ir_graph_free(asked);
    return go_on;
}

static uint32_t check_all(const struct options *o, struct trial *trial, uint32_t *passed)
{
    uint32_t failed = 0;
    printf("%-16s %-5s %6s %8s %8s %8s %7s  %s\n", "op", "type", "cases", "tactics", "refused",
           "without", "failed", "largest error / bound");
    for (const struct case_kind *kind = case_kinds; kind->name; kind++) {
        if (o->only && strcmp(o->only, kind->name) != 0)
            continue;
        for (int p = PRECISION_F32; p <= PRECISION_F8; p++) {
            struct tally tally = {0};
            bool go_on = true;
            if (o->precision >= 0 && o->precision != p)
                continue;
            for (uint32_t i = 0; i < o->count && go_on; i++)
                go_on = precision_is_8bit((enum precision)p)
                            ? try_bytes(o, trial, kind, o->seed + i, (enum precision)p, &tally)
                            : try_case(o, trial, (enum precision)p, kind, o->seed + i, &tally);
            printf("%-16s %-5s %6u %8u %8u %8u %7u  %.3f %s\n", kind->name, precisions[p].name,
                   tally.cases, tally.tactics, tally.refused, tally.without, tally.failed,
                   tally.worst, tally.worst_name);
            fflush(stdout);
            failed += tally.failed;
            *passed += tally.tactics - tally.refused - tally.failed;
            if (!go_on) {
                printf("the device is lost\n");
                return failed + 1;
            }
        }
    }
    return failed;
}

/* --- times --- */

static enum status sized_ranges(struct ir_graph *g, enum dtype bytes)
{
    enum status status = ranged_inputs(g, 0, bytes, NULL);
    for (uint32_t i = 0; i < g->n_outputs && !status; i++) {
        float *zeros = calloc(1, ir_tensor(g, g->outputs[i])->bytes + 1);
        status = zeros ? ranged_output(g, g->outputs[i], zeros, 0, bytes, NULL)
                       : STATUS_RESOURCE_EXHAUSTED;
        free(zeros);
    }
    return status;
}

static struct ir_graph *sized_new(const struct case_sized *kind, int64_t batch, enum dtype bytes)
{
    uint64_t random = 7;
    struct ir_graph *g = ir_graph_new();
    if (g && kind->make(g, &random, batch)) {
        case_outputs(g);
        if (bytes == DTYPE_NONE || !sized_ranges(g, bytes))
            return g;
    }
    ir_graph_free(g);
    return NULL;
}

static uint32_t time_case(const struct options *o, struct trial *trial,
                          const struct case_sized *kind, enum precision precision)
{
    struct list list = {0};
    struct error err = {0};
    enum dtype ranged = precision_is_8bit(precision) ? bytes_of(precision) : DTYPE_NONE;
    struct ir_graph *asked = sized_new(kind, o->time_batch, ranged);
    struct subject subject;
    enum precision floats = precision_floats(precision, trial->backend);
    double best = INFINITY, floor_us = 0;
    const char *name = "none";
    if (!asked || trial->backend->candidates(trial->device, asked, ir_node(asked, 0), floats, keep,
                                             &list, &err))
        printf("%s: %s\n", kind->name, err.text);
    if (ranged)
        keep_scaled(&list);
    keep_named(&list, o->name);
    if (asked)
        compile_all(trial->device, asked, &list);
    enum status made =
        subject_init(&subject, sized_new(kind, o->time_batch, ranged), DTYPE_F32, 1, false, &err);
    for (uint32_t i = 0; i < list.n && !made; i++) {
        struct outcome out;
        struct ir_graph *graph = sized_new(kind, o->time_batch, ranged);
        enum status status = trial_run(trial, &subject, graph, list.items[i], 20, &out, &err);
        ir_graph_free(graph);
        if (status) {
            printf("  '%s': %s\n", list.items[i]->name, err.text);
            continue;
        }
        double floor = out.bytes / o->bandwidth * 1e6;
        if (o->verbose)
            printf("  %-64s %9.2f us, bytes need %9.2f, %6.1f TFLOP/s\n", list.items[i]->name,
                   out.us, floor, kind->flop * o->time_batch / out.us / 1e6);
        if (out.us < best) {
            best = out.us;
            floor_us = floor;
            name = list.items[i]->name;
        }
    }
    printf("%-32s %-5s %9.2f %9.2f %6.2f  %s\n", kind->name, precisions[precision].name, best,
           floor_us, best / floor_us, name);
    fflush(stdout);
    uint32_t none = list.n == 0;
    list_free(&list);
    subject_deinit(&subject);
    ir_graph_free(asked);
    return none;
}

static uint32_t time_all(const struct options *o, struct trial *trial)
{
    uint32_t failed = 0;
    printf("batch %u; bytes at %.2f TB/s\n%-32s %-5s %9s %9s %6s  %s\n", o->time_batch,
           o->bandwidth / 1e12, "op", "type", "us", "floor us", "ratio", "fastest tactic");
    for (const struct case_sized *kind = case_sizes; kind->name; kind++)
        if (!o->only || strstr(kind->name, o->only))
            failed += time_case(o, trial, kind,
                                o->precision >= 0 ? (enum precision)o->precision : PRECISION_F16);
    return failed;
}

/* --- the program --- */

static int usage(void)
{
    fprintf(stderr,
            "usage: device_ops [--device cpu|cuda[:N]] [--precision "
            "fp32|tf32|fp16|bf16|int8|fp8] [--count N] [--tactics N] [--seed S] [--only KIND] "
            "[--name TEXT] [--time BATCH] "
            "[--bandwidth BYTES_PER_S] [--verbose]\n");
    return 2;
}

static bool parse_precision(const char *name, int *out)
{
    for (int p = PRECISION_F32; p <= PRECISION_F8; p++)
        if (!strcmp(precisions[p].name, name)) {
            *out = p;
            return true;
        }
    return false;
}

static bool parse(struct options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--verbose")) {
            o->verbose = true;
            continue;
        }
        if (!strcmp(argv[i], "--device"))
            o->device = value;
        else if (!strcmp(argv[i], "--only"))
            o->only = value;
        else if (!strcmp(argv[i], "--name"))
            o->name = value;
        else if (!strcmp(argv[i], "--count"))
            o->count = (uint32_t)strtoul(value, NULL, 10);
        else if (!strcmp(argv[i], "--tactics"))
            o->tactics = (uint32_t)strtoul(value, NULL, 10);
        else if (!strcmp(argv[i], "--seed"))
            o->seed = strtoull(value, NULL, 10);
        else if (!strcmp(argv[i], "--time"))
            o->time_batch = (uint32_t)strtoul(value, NULL, 10);
        else if (!strcmp(argv[i], "--bandwidth"))
            o->bandwidth = strtod(value, NULL);
        else if (strcmp(argv[i], "--precision") != 0 || !parse_precision(value, &o->precision))
            return false;
        i++;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct options o = {.device = "cuda",
                        .precision = -1,
                        .count = 8,
                        .tactics = 10,
                        .seed = 1,
                        .bandwidth = 4.23e12};
    struct device_options options = {.threads = 1};
    struct device *device = NULL;
    struct trial trial = {0};
    struct error err = {0};
    uint32_t passed = 0;
    if (!parse(&o, argc, argv))
        return usage();
    enum status status = engine_device_open(o.device, &options, &device, &err);
    if (status) {
        printf("skipped: %s\n", err.text);
        return EXIT_SKIP;
    }
    status = trial_init(&trial, device, &err);
    uint32_t failed = status ? 1 : 0;
    if (status)
        printf("%s\n", err.text);
    else if (o.time_batch)
        failed = time_all(&o, &trial);
    else
        failed = check_all(&o, &trial, &passed);
    trial_deinit(&trial);
    engine_device_close(device);
    printf("%u passed, %u failed\n", passed, failed);
    return failed ? 1 : 0;
}
