/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs every published ONNX case of a folder and prints the outcomes.
 *
 *   run_cases [-v] [--engine] [--floor N] [--doubted FILE] FOLDER
 *
 * Fails if fewer than N pass, or if any gives a wrong answer or crashes. FILE has a line "NAME:
 * WHY" for each case whose published result is not what the operator's text says: such a case must
 * give another one. A child process runs the cases and reports over a pipe; when it dies, the case
 * at hand is counted as crashed and another child goes on behind it. Without --engine nodes are
 * computed one by one by the reference kernels.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/ops/case.h"
#include "tests/ops/runner.h"

enum { MAX_CASES = 4096, MAX_REASONS = 1024, MAX_DOUBTED = 64, CASE_SECONDS = 20, SKIPPED = 77 };

struct report {
    uint32_t index;
    struct outcome outcome;
};

struct reason {
    char text[CASE_TEXT_MAX];
    uint32_t count;
};

struct table {
    const char *folder;
    char **names;
    uint32_t n, counts[VERDICT_COUNT], n_reasons;
    struct reason reasons[MAX_REASONS];
    char doubted[MAX_DOUBTED][CASE_TEXT_MAX]; /* names */
    uint32_t n_doubted, n_stale;
    bool verbose;
};

static int name_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static uint32_t list_cases(const char *folder, char **names)
{
    DIR *dir = opendir(folder);
    uint32_t n = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir)) && n < MAX_CASES;) {
        if (entry->d_name[0] != '.')
            names[n++] = strdup(entry->d_name);
    }
    if (dir)
        closedir(dir);
    qsort(names, n, sizeof(*names), name_compare);
    return n;
}

/* 'Op "name" (opset 13): why' -> 'Op: why' */
static void shorten(const char *text, char *out)
{
    const char *quote = strchr(text, '"'), *rest = strstr(text, "): ");
    size_t head = quote && quote > text && rest ? (size_t)(quote - text - 1) : 0;
    if (!quote || !rest || rest < quote)
        snprintf(out, CASE_TEXT_MAX, "%s", text);
    else
        snprintf(out, CASE_TEXT_MAX, "%.*s: %s", (int)head, text, rest + 3);
}

static void count_reason(struct table *table, const char *text)
{
    char reason[CASE_TEXT_MAX];
    shorten(text, reason);
    for (uint32_t i = 0; i < table->n_reasons; i++) {
        if (!strcmp(table->reasons[i].text, reason)) {
            table->reasons[i].count++;
            return;
        }
    }
    if (table->n_reasons == MAX_REASONS)
        return;
    struct reason *new = &table->reasons[table->n_reasons++];
    memcpy(new->text, reason, sizeof(reason));
    new->count = 1;
}

/* A doubted case counts as unsupported if its result differs from the published one. If the results
 * agree, the doubt itself is reported. */
static void judge_doubted(struct table *table, const char *name, struct outcome *outcome)
{
    for (uint32_t i = 0; i < table->n_doubted; i++) {
        if (strcmp(table->doubted[i], name))
            continue;
        table->n_stale += outcome->verdict == VERDICT_PASSED;
        if (outcome->verdict == VERDICT_PASSED)
            printf("%s passes: it should not be doubted\n", name);
        if (outcome->verdict == VERDICT_WRONG)
            *outcome = (struct outcome){VERDICT_UNSUPPORTED, "the published result is doubted"};
    }
}

static void record(struct table *table, struct report *report)
{
    static const char *const names[] = {"passed", "WRONG", "unsupported", "CRASHED"};
    struct outcome *outcome = &report->outcome;
    judge_doubted(table, table->names[report->index], outcome);
    table->counts[outcome->verdict]++;
    if (outcome->verdict == VERDICT_UNSUPPORTED)
        count_reason(table, outcome->text);
    if (table->verbose || outcome->verdict == VERDICT_WRONG || outcome->verdict == VERDICT_CRASHED)
        printf("%-11s %s%s%s\n", names[outcome->verdict], table->names[report->index],
               outcome->text[0] ? ": " : "", outcome->text);
}

/* In the child: every case from `first` on. */
static void run_from(const struct table *table, uint32_t first, int to, bool engine)
{
    char path[1024];
    struct case_runner runner;
    if (!runner_init(&runner, engine))
        _exit(1);
    for (uint32_t i = first; i < table->n; i++) {
        struct report report = {.index = i};
        snprintf(path, sizeof(path), "%s/%s", table->folder, table->names[i]);
        alarm(CASE_SECONDS);
        case_run(path, &runner, &report.outcome);
        alarm(0);
        if (write(to, &report, sizeof(report)) != (ssize_t)sizeof(report))
            _exit(1);
    }
    runner_deinit(&runner);
}

static bool read_report(int from, struct report *report)
{
    size_t have = 0;
    while (have < sizeof(*report)) {
        ssize_t n = read(from, (char *)report + have, sizeof(*report) - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        have += (size_t)n;
    }
    return true;
}

/* Runs cases from `first` on in a child; returns the first case that has not yet run. */
static uint32_t run_child(struct table *table, uint32_t first, bool engine)
{
    int pipes[2], status = 0;
    struct report report;
    if (pipe(pipes)) {
        perror("pipe");
        exit(1);
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(pipes[0]);
        run_from(table, first, pipes[1], engine);
        exit(0); /* not _exit: the leak checker runs at exit */
    }
    close(pipes[1]);
    for (; read_report(pipes[0], &report); first++)
        record(table, &report);
    close(pipes[0]);
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("child");
        exit(1);
    }
    if (WIFEXITED(status) && !WEXITSTATUS(status) && first == table->n)
        return first;
    report =
        (struct report){.index = MIN(first, table->n - 1), .outcome = {.verdict = VERDICT_CRASHED}};
    snprintf(report.outcome.text, sizeof(report.outcome.text),
             WIFSIGNALED(status) ? "signal %d" : "exit status %d%s",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
             first == table->n ? " at the end" : "");
    record(table, &report);
    return MIN(first + 1, table->n);
}

static int by_count(const void *a, const void *b)
{
    const struct reason *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return strcmp(x->text, y->text);
}

static void print_table(struct table *table)
{
    qsort(table->reasons, table->n_reasons, sizeof(*table->reasons), by_count);
    if (table->n_reasons)
        printf("unsupported:\n");
    for (uint32_t i = 0; i < table->n_reasons; i++)
        printf("%6u  %s\n", table->reasons[i].count, table->reasons[i].text);
    printf("%u cases: %u passed, %u wrong, %u unsupported, %u crashed\n", table->n,
           table->counts[VERDICT_PASSED], table->counts[VERDICT_WRONG],
           table->counts[VERDICT_UNSUPPORTED], table->counts[VERDICT_CRASHED]);
}

static bool read_doubted(struct table *table, const char *path)
{
    char line[1024];
    FILE *file = fopen(path, "r");
    if (!file) {
        perror(path);
        return false;
    }
    while (table->n_doubted < MAX_DOUBTED && fgets(line, sizeof(line), file)) {
        char *colon = strchr(line, ':');
        if (line[0] == '#' || !colon)
            continue;
        *colon = 0;
        snprintf(table->doubted[table->n_doubted++], CASE_TEXT_MAX, "%.*s", CASE_TEXT_MAX - 1,
                 line);
    }
    fclose(file);
    return true;
}

int main(int argc, char **argv)
{
    static char *names[MAX_CASES];
    static struct table table = {.names = names};
    uint32_t floor = 1;
    bool engine = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-v"))
            table.verbose = true;
        else if (!strcmp(argv[i], "--engine"))
            engine = true;
        else if (!strcmp(argv[i], "--floor") && i + 1 < argc)
            floor = (uint32_t)strtoul(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--doubted") && i + 1 < argc && read_doubted(&table, argv[i + 1]))
            i++;
        else
            table.folder = argv[i];
    }
    if (!table.folder) {
        fprintf(stderr, "usage: run_cases [-v] [--engine] [--floor N] [--doubted FILE] FOLDER\n");
        return 2;
    }
    table.n = list_cases(table.folder, names);
    if (!table.n) {
        printf("no cases in '%s': skipped\n", table.folder);
        return SKIPPED;
    }
    for (uint32_t next = 0; next < table.n;)
        next = run_child(&table, next, engine);
    print_table(&table);
    for (uint32_t i = 0; i < table.n; i++)
        free(names[i]);
    if (table.counts[VERDICT_PASSED] < floor)
        printf("expected at least %u to pass\n", floor);
    return table.counts[VERDICT_PASSED] < floor || table.n_stale || table.counts[VERDICT_WRONG] ||
           table.counts[VERDICT_CRASHED];
}
