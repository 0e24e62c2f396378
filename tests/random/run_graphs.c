/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs cases that tests/random/random_graphs made, each in all variants, and compares.
 *
 *   run_graphs [-v] [--variant NAME] [--timed] [--tactics FILE] [--seconds S]
 *              [--plant pass|crash|hang] FOLDER...
 *
 * A line "FAIL FOLDER VARIANT: why" for each that is wrong, fails, crashes or takes more than S
 * seconds; exit 1 if there was any. Children run the cases, and report; when one dies, another goes
 * on with the case behind.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/restart.h"
#include "tests/random/variant.h"

enum { TEXT_MAX = 640 };

enum event { EVENT_BEGIN, EVENT_PASSED, EVENT_FAILED, EVENT_CASE_DONE };

/* From child to parent. */
struct report {
    enum event event;
    uint32_t index;
    double worst; /* case_worst_share of the child so far */
    char variant[VARIANT_NAME_MAX];
    char text[TEXT_MAX];
};

struct program {
    struct variant_options options;
    char **folders;
    uint32_t n, seconds;
    bool verbose;
    uint64_t runs, failures;
    double worst;
};

struct child {
    const struct program *program;
    uint32_t index;
    int to;
};

/* --- the child --- */

static void send(const struct child *child, enum event event, const char *variant, const char *text)
{
    struct report report = {.event = event, .index = child->index, .worst = case_worst_share()};
    snprintf(report.variant, sizeof(report.variant), "%s", variant);
    snprintf(report.text, sizeof(report.text), "%s", text);
    if (write(child->to, &report, sizeof(report)) != (ssize_t)sizeof(report))
        _exit(1);
}

static bool visit(void *user, const char *name, const struct variant_result *result)
{
    const struct child *child = user;
    char text[TEXT_MAX];
    alarm(result ? 0 : child->program->seconds);
    if (!result) {
        send(child, EVENT_BEGIN, name, "");
    } else if (result->status) {
        snprintf(text, sizeof(text), "%s: %s", status_name(result->status), result->err.text);
        send(child, EVENT_FAILED, name, text);
    } else {
        send(child, EVENT_PASSED, name, "");
    }
    /* a case that cannot be imported cannot be run in any other way */
    return !result || !result->status || strcmp(name, "import") != 0;
}

static void run_from(const struct program *p, uint32_t first, int to)
{
    struct child child = {.program = p, .to = to};
    struct graph_case *c = malloc(sizeof(*c));
    struct error err;
    for (child.index = first; c && child.index < p->n; child.index++) {
        send(&child, EVENT_BEGIN, "reading", "");
        if (graph_case_init(c, p->folders[child.index], &err))
            send(&child, EVENT_FAILED, "reading", err.text);
        else
            variants_run(c, &p->options, visit, &child);
        graph_case_deinit(c);
        if (p->options.names)
            fflush(p->options.names);
        send(&child, EVENT_CASE_DONE, "", "");
    }
    free(c);
}

/* --- the parent --- */

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

static void fail(struct program *p, const struct report *report)
{
    p->failures++;
    printf("FAIL %s %s: %s\n", p->folders[report->index], report->variant, report->text);
    fflush(stdout);
}

static void take(struct program *p, const struct report *report)
{
    p->runs += report->event == EVENT_BEGIN && strcmp(report->variant, "reading") != 0;
    p->worst = MAX(p->worst, report->worst);
    if (report->event == EVENT_FAILED)
        fail(p, report);
    else if (p->verbose && report->event == EVENT_PASSED)
        printf("ok %s %s\n", p->folders[report->index], report->variant);
}

/* Runs cases from `first` on in a child; returns the first case that has not yet run. */
static uint32_t run_child(struct program *p, uint32_t first)
{
    int pipes[2], status = 0;
    struct report report, last = {.index = first, .variant = "starting"};
    if (pipe(pipes)) {
        perror("pipe");
        exit(1);
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(pipes[0]);
        run_from(p, first, pipes[1]);
        exit(0); /* not _exit: the leak checker runs at exit */
    }
    close(pipes[1]);
    for (; read_report(pipes[0], &report); last = report)
        take(p, &report);
    close(pipes[0]);
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("child");
        exit(1);
    }
    if (WIFEXITED(status) && !WEXITSTATUS(status))
        return p->n;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(last.text, sizeof(last.text), "hangs: more than %u s", p->seconds);
    else if (WIFSIGNALED(status))
        snprintf(last.text, sizeof(last.text), "crashed: signal %d", WTERMSIG(status));
    else
        snprintf(last.text, sizeof(last.text), "crashed: exit status %d", WEXITSTATUS(status));
    if (last.event == EVENT_CASE_DONE)
        snprintf(last.variant, sizeof(last.variant), "at the end");
    fail(p, &last);
    return last.index + 1;
}

static int usage(void)
{
    fprintf(stderr, "usage: run_graphs [-v] [--variant NAME] [--timed] [--tactics FILE] "
                    "[--seconds S] [--plant pass|crash|hang] FOLDER...\n");
    return 2;
}

static bool parse_plant(const char *text, enum plant *out)
{
    static const char *const names[] = {"none", "pass", "crash", "hang"};
    for (uint32_t i = 0; i < ARRAY_LEN(names); i++)
        if (!strcmp(text, names[i])) {
            *out = (enum plant)i;
            return true;
        }
    return false;
}

static bool parse(struct program *p, int argc, char **argv)
{
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        bool more = i + 1 < argc;
        if (!strcmp(argv[i], "-v"))
            p->verbose = true;
        else if (!strcmp(argv[i], "--timed"))
            p->options.timed = true;
        else if (!strcmp(argv[i], "--variant") && more)
            p->options.only = argv[++i];
        else if (!strcmp(argv[i], "--tactics") && more)
            p->options.names = fopen(argv[++i], "a");
        else if (!strcmp(argv[i], "--seconds") && more)
            p->seconds = (uint32_t)strtoul(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--plant") && more && parse_plant(argv[i + 1], &p->options.plant))
            i++;
        else
            return false;
    }
    p->folders = argv + i;
    p->n = (uint32_t)(argc - i);
    return p->n > 0;
}

int main(int argc, char **argv)
{
    struct program p = {.seconds = 20};
    restart_for_openmp(argv);
    if (!parse(&p, argc, argv))
        return usage();
    for (uint32_t next = 0; next < p.n;)
        next = run_child(&p, next);
    if (p.options.names)
        fclose(p.options.names);
    printf("%u graphs, %llu runs, %llu failures; the largest error was %.2f of its tolerance\n",
           p.n, (unsigned long long)p.runs, (unsigned long long)p.failures, p.worst);
    return p.failures > 0;
}
