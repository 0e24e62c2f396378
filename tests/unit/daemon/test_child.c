/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The build child, with a program in inferctl's place that tries everything that a hostile model
 * could make inferctl do (child_probe.c). Each attempt has to be refused. The same attempts of a
 * process that nothing confines show that they are real.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "daemon/child.h"
#include "daemon/child_watch.h"
#include "tests/test.h"

enum { SAID_MAX = 1 << 18, WAIT_S = 60, TRIES_MIN = 150, LINES_MAX = 1100 };

static struct {
    char text[SAID_MAX]; /* lines that the child printed */
    size_t len;
    unsigned lines;
} said;

struct place {
    char root[64], inside[80], outside[80];
    int model, plan, folder, program;
    _Atomic bool stop;
    struct log_sink log;
    struct child_build build;
};

static void hear(void *user, enum log_level level, const char *line)
{
    (void)user;
    (void)level;
    int n = snprintf(said.text + said.len, SAID_MAX - said.len, "%s\n", line);
    if (n > 0 && said.len + (size_t)n < SAID_MAX)
        said.len += (size_t)n;
    said.lines++;
}

static void file_make(const char *folder, const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    char path[128];
    assert_non_null(p);
    memset(&said, 0, sizeof(said));
    strcpy(p->root, "/tmp/inferd-child-XXXXXX");
    assert_non_null(mkdtemp(p->root));
    snprintf(p->inside, sizeof(p->inside), "%s/in", p->root);
    snprintf(p->outside, sizeof(p->outside), "%s/out", p->root);
    assert_int_equal(mkdir(p->inside, 0700) + mkdir(p->outside, 0700), 0);
    file_make(p->inside, "file", "data");
    file_make(p->outside, "file", "data");
    file_make(p->inside, "m.onnx", "model");
    snprintf(path, sizeof(path), "%s/m.onnx", p->inside);
    p->model = open(path, O_RDWR); /* more than the child may use */
    p->plan = open(p->outside, O_TMPFILE | O_RDWR, 0600);
    p->folder = open(p->inside, O_RDONLY | O_DIRECTORY);
    p->program = open(PROBE, O_PATH); /* PROBE: from meson.build; all of these are inheritable */
    assert_true(p->model >= 0 && p->plan >= 0 && p->folder >= 0 && p->program >= 0);
    setenv("SECRET_OF_THE_DAEMON", "x", 1);
    setenv("DNNL_PROBE", "x", 1);
    p->log = (struct log_sink){.level = LOG_VERBOSE, .write = hear};
    p->build = (struct child_build){.model_fd = p->model,
                                    .name = "m.onnx",
                                    .folder = p->folder,
                                    .plan_fd = p->plan,
                                    .device = "cpu",
                                    .threads = 1,
                                    .timeout_s = WAIT_S,
                                    .memory_bytes = 256 << 20,
                                    .log = &p->log,
                                    .stop = &p->stop};
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;
    char command[128];
    close(p->model);
    close(p->plan);
    close(p->folder);
    close(p->program);
    snprintf(command, sizeof(command), "rm -rf %s", p->root);
    int rc = system(command);
    free(p);
    return rc;
}

static enum status run(struct place *p, struct error *err, const char *a, const char *b)
{
    char *argv[] = {(char[]){"probe"}, strdup(a),          strdup(b),
                    strdup(p->inside), strdup(p->outside), NULL};
    if (!*b)
        argv[2][0] = '\0';
    size_t n = strcmp(a, "attempts") == 0 ? 5 : *b ? 3 : 2;
    char *end = argv[n];
    argv[n] = NULL;
    enum status s = child_run(&p->build, p->program, argv, err);
    argv[n] = end;
    for (size_t i = 1; i < 5; i++)
        free(argv[i]);
    return s;
}

static bool has_landlock(void)
{
    if (syscall(SYS_landlock_create_ruleset, NULL, 0, 1) >= 1)
        return true;
    print_message("SKIPPED: this kernel has no Landlock, so files and the parent's /proc stay "
                  "readable for a child: those attempts are left out\n");
    return false;
}

static unsigned count_of(const char *word)
{
    unsigned n = 0;
    for (const char *at = said.text; (at = strstr(at, word)); at++)
        n++;
    return n;
}

static void show_lines_without(const char *word)
{
    for (char *line = strtok(said.text, "\n"); line; line = strtok(NULL, "\n"))
        if (!strstr(line, word))
            print_error("%s\n", line);
}

/* All attempts of that kind are refused. */
static void assert_refused(struct place *p, const char *kind)
{
    struct error err = {.text = ""};
    unsigned n;
    enum status s = run(p, &err, "attempts", kind);
    const char *total = strstr(said.text, " attempts\n");
    if (s != STATUS_OK || !total)
        fail_msg("%s after:\n%s", err.text, said.text);
    while (total > said.text && total[-1] != ' ')
        total--;
    assert_int_equal(sscanf(total, "%u", &n), 1);
    assert_in_range(n, TRIES_MIN, 1000);
    if (count_of(": refused\n") != n) {
        show_lines_without(": refused");
        fail_msg("not all of %u attempts were refused: those above", n);
    }
    if (strstr(said.text, "skipped"))
        print_message("%s\n", strstr(said.text, "skipped"));
}

static void on_the_cpu_each_attempt_is_refused(void **state)
{
    assert_refused(*state, has_landlock() ? "cpu" : "cpu-bare");
}

static void for_a_device_too(void **state)
{
    struct place *p = *state;
    if (!has_landlock())
        skip();
    p->build.device = "cuda";
    assert_refused(p, "device");
}

/* If no folder is given, the child can read nothing but the model file itself. */
static void without_a_folder_none_is_readable(void **state)
{
    struct place *p = *state;
    struct error err;
    if (!has_landlock())
        skip();
    p->build.folder = -1;
    assert_int_equal(run(p, &err, "works", ""), STATUS_INTERNAL);
    assert_non_null(strstr(err.text, "external data: does not work: EBADF"));
}

static void what_building_needs_works(void **state)
{
    struct place *p = *state;
    struct error err = {.text = ""};
    char plan[8] = "";
    if (run(p, &err, "works", "") != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(pread(p->plan, plan, 4, 0), 4);
    assert_string_equal(plan, "plan");
    assert_int_equal(lseek(p->model, 0, SEEK_CUR), 0); /* the child has an offset of its own */
    p->build.device = "cuda";
    if (run(p, &err, "works", "") != STATUS_OK)
        fail_msg("cuda: %s", err.text);
}

/* The same program without confinement: the harmless attempts succeed. */
static void the_attempts_are_real(void **state)
{
    struct place *p = *state;
    int status, out[2];
    assert_int_equal(pipe(out), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(out[1], 1);
        dup2(p->model, 3);
        execl(PROBE, PROBE, "attempts", "control", p->inside, p->outside, NULL);
        _exit(1);
    }
    close(out[1]);
    for (ssize_t n; (n = read(out[0], said.text + said.len, SAID_MAX - 1 - said.len)) > 0;)
        said.len += (size_t)n;
    close(out[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    if (count_of(": DONE\n") < 30 || count_of(": refused") || count_of(": came to")) {
        show_lines_without(": DONE");
        fail_msg("what is above was not done, or too little was");
    }
}

static void another_architectures_call_ends_it(void **state)
{
#ifdef __x86_64__
    struct error err;
    assert_int_equal(run(*state, &err, "int80", ""), STATUS_INTERNAL);
    assert_non_null(strstr(err.text, "signal 31")); /* SIGSYS */
    assert_null(strstr(said.text, "DONE"));
#else
    (void)state;
    skip();
#endif
}

/* The child may report any cause, but only causes that a build can have are believed. */
static void the_exit_status_is_the_cause(void **state)
{
    enum { HANDED = 64 };
    static const struct {
        int code;
        enum cause want;
    } rows[] = {
        {1, CAUSE_INTERNAL},
        {2, CAUSE_INTERNAL},
        {HANDED, CAUSE_INTERNAL}, /* contradicts itself: failed, with the cause OK */
        {HANDED + CAUSE_INVALID_ARGUMENT, CAUSE_INVALID_ARGUMENT},
        {HANDED + CAUSE_RESOURCE_EXHAUSTED, CAUSE_RESOURCE_EXHAUSTED},
        {HANDED + CAUSE_UNIMPLEMENTED, CAUSE_UNIMPLEMENTED},
        {HANDED + CAUSE_DISK_FULL, CAUSE_DISK_FULL},
        {HANDED + CAUSE_OUT_OF_MEMORY, CAUSE_OUT_OF_MEMORY},
        {HANDED + CAUSE_FILE_CHANGED, CAUSE_FILE_CHANGED},
        {HANDED + CAUSE_CANCELLED, CAUSE_INTERNAL}, /* a build has none of these causes */
        {HANDED + CAUSE_DEADLINE_EXCEEDED, CAUSE_INTERNAL},
        {HANDED + CAUSE_DEVICE_LOST, CAUSE_INTERNAL},
        {HANDED + CAUSE_STOPPED, CAUSE_INTERNAL},
        {HANDED + CAUSE_COUNT_, CAUSE_INTERNAL}, /* beyond the last cause */
        {126, CAUSE_INTERNAL},
        {127, CAUSE_INTERNAL},
        {255, CAUSE_INTERNAL},
    };
    struct error err;
    assert_int_equal(run(*state, &err, "exit", "0"), STATUS_OK);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char code[16], text[32];
        snprintf(code, sizeof(code), "%d", rows[i].code);
        snprintf(text, sizeof(text), "exit %d", rows[i].code);
        assert_int_equal(run(*state, &err, "exit", code), cause_row(rows[i].want)->status);
        assert_int_equal(err.cause, rows[i].want);
        if (rows[i].want != CAUSE_INTERNAL)
            assert_string_equal(err.text, text);
    }
    assert_int_equal(run(*state, &err, "crash", ""), STATUS_INTERNAL);
    assert_non_null(strstr(err.text, "signal 9"));
}

static double seconds_since(uint64_t begin)
{
    return (double)(clock_now_ns() - begin) / NS_PER_S;
}

static void a_child_that_hangs_is_ended(void **state)
{
    struct place *p = *state;
    struct error err;
    uint64_t begin = clock_now_ns();
    p->build.timeout_s = 1;
    assert_int_equal(run(p, &err, "hang", ""), STATUS_DEADLINE_EXCEEDED);
    assert_non_null(strstr(err.text, "build_timeout_s, 1 s"));
    p->build.timeout_s = WAIT_S;
    p->stop = true;
    assert_int_equal(run(p, &err, "hang", ""), STATUS_CANCELLED);
    assert_true(seconds_since(begin) < WAIT_S / 2.0);
}

static void a_flood_of_lines_is_bounded(void **state)
{
    struct place *p = *state;
    struct error err;
    p->build.timeout_s = 1;
    assert_int_equal(run(p, &err, "flood", ""), STATUS_DEADLINE_EXCEEDED);
    assert_in_range(said.lines, 1000, LINES_MAX);
    assert_null(strchr(said.text, '\033'));
}

static void a_program_that_is_none(void **state)
{
    struct place *p = *state;
    struct error err;
    close(p->program);
    p->program = open(p->inside, O_PATH);
    assert_int_equal(run(p, &err, "works", ""), STATUS_INTERNAL);
    assert_non_null(strstr(err.text, "could not be started"));
}

/* processes that a child leaves behind; a confined child could start none */

/* Starts a child whose own child holds the pipe and does not end. Tells the grandchild's id. */
static pid_t family_start(bool own_session, int ends[2], pid_t *grandchild)
{
    int tell[2];
    assert_int_equal(pipe(ends) + pipe(tell), 0);
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        pid_t below = fork();
        if (below == 0) {
            if (own_session)
                setsid();
            below = getpid();
            ssize_t n = write(tell[1], &below, sizeof(below));
            (void)n;
            for (;;)
                pause();
        }
        dprintf(ends[1], "last words");
        _exit(0);
    }
    close(ends[1]);
    close(tell[1]);
    assert_int_equal(read(tell[0], grandchild, sizeof(*grandchild)), sizeof(*grandchild));
    close(tell[0]);
    return pid;
}

static bool is_gone(pid_t pid)
{
    for (int i = 0; i < 1000; i++) { /* the process that adopted it has to reap it first */
        char path[64], text[512] = "";
        snprintf(path, sizeof(path), "/proc/%d/stat", pid);
        int fd = open(path, O_RDONLY);
        if (fd < 0)
            return true;
        ssize_t n = read(fd, text, sizeof(text) - 1);
        close(fd);
        if (n <= 0 || strstr(text, ") Z") || strstr(text, ") X"))
            return true;
        usleep(10000);
    }
    return false;
}

static void nobody_who_holds_the_pipe_delays_anybody(void **state)
{
    struct place *p = *state;
    for (int own_session = 0; own_session < 2; own_session++) {
        struct child_watch watch = {.log = &p->log, .stop = &p->stop, .timeout_s = WAIT_S};
        struct error err;
        int ends[2];
        pid_t below;
        uint64_t begin = clock_now_ns();
        pid_t pid = family_start(own_session, ends, &below);
        assert_int_equal(child_watch(&watch, pid, ends[0], &err), STATUS_OK);
        assert_true(seconds_since(begin) < WAIT_S / 2.0);
        assert_true(WIFEXITED(watch.how));
        assert_string_equal(watch.last, "last words");
        /* the grandchild left the process group, which the list of system calls would forbid */
        if (own_session)
            kill(below, SIGKILL);
        assert_true(is_gone(below));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_attempts_are_real, setup, teardown),
        cmocka_unit_test_setup_teardown(on_the_cpu_each_attempt_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(for_a_device_too, setup, teardown),
        cmocka_unit_test_setup_teardown(without_a_folder_none_is_readable, setup, teardown),
        cmocka_unit_test_setup_teardown(what_building_needs_works, setup, teardown),
        cmocka_unit_test_setup_teardown(another_architectures_call_ends_it, setup, teardown),
        cmocka_unit_test_setup_teardown(the_exit_status_is_the_cause, setup, teardown),
        cmocka_unit_test_setup_teardown(a_child_that_hangs_is_ended, setup, teardown),
        cmocka_unit_test_setup_teardown(a_flood_of_lines_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(a_program_that_is_none, setup, teardown),
        cmocka_unit_test_setup_teardown(nobody_who_holds_the_pipe_delays_anybody, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
