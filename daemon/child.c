/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The build child, see child.h. Between fork and exec only async-signal-safe calls are made: the
 * daemon has other threads. Limits that the daemon may not set (a unit's system call filter) are
 * left out: the child then runs under the daemon's own.
 */
#include "daemon/child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"

enum {
    ARGS_MAX = 32,
    ARGS_OF_INPUT = 6,
    LINE_MAX_ = 512,
    POLL_MS = 100,
    FAILED_EXEC = 127,
    HANDED = 64, /* and the status: the exit status of inferctl (tools/handed.h) */
    CHILD_NICE = 10
};

/* Where the child finds them. */
enum { MODEL_AT = 3, PLAN_AT = 4, FOLDER_AT = 5 };

/* ---- in the child ---- */

#if defined(__x86_64__)
#define AUDIT_ARCH_HERE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define AUDIT_ARCH_HERE AUDIT_ARCH_AARCH64
#else
#error "name this architecture for seccomp"
#endif

#define DENY(call)                                                                                 \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1),                                         \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

#define CHECK_ARCH                                                                                 \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),                       \
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_HERE, 1, 0),                                \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),                                       \
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))

/* io_uring makes sockets without the call of that name. */
#define DENY_THE_REST                                                                              \
    DENY(io_uring_setup), DENY(ptrace), DENY(process_vm_readv), DENY(process_vm_writev),           \
        DENY(pidfd_getfd), DENY(bpf), DENY(perf_event_open), DENY(keyctl), DENY(add_key),          \
        DENY(request_key), DENY(mount), DENY(unshare), DENY(setns), DENY(userfaultfd),             \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* Not a sandbox for everything a process could do, but for what reaches out of it. */
static const struct sock_filter filter[] = {
    CHECK_ARCH, DENY(socket), DENY(socketpair), DENY(connect), DENY(bind), DENY_THE_REST,
};

/* A device's driver talks to its own services through local sockets: those are let through, the
 * network is not. The low half of the first argument is the family. */
static const struct sock_filter device_filter[] = {
    CHECK_ARCH,
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 4),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    DENY_THE_REST,
};

static void limit_set(int which, uint64_t value)
{
    struct rlimit limit = {.rlim_cur = value, .rlim_max = value};
    setrlimit((__rlimit_resource_t)which, &limit); /* best effort, see above */
}

static void confine(const struct child_build *build)
{
    bool device = strcmp(build->device, "cpu") != 0;
    const struct sock_filter *rules = device ? device_filter : filter;
    const struct sock_fprog program = {
        .len = (unsigned short)(device ? ARRAY_LEN(device_filter) : ARRAY_LEN(filter)),
        .filter = (struct sock_filter *)(uintptr_t)rules};
    limit_set(RLIMIT_CORE, 0);
    limit_set(RLIMIT_NOFILE, device ? 4096 : 256); /* drivers open dozens for each device */
    limit_set(RLIMIT_FSIZE, UINT64_C(64) << 30);
    limit_set(RLIMIT_CPU, (uint64_t)build->timeout_s * (build->threads + 1));
    setpriority(PRIO_PROCESS, 0, CHILD_NICE);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0)
        _exit(FAILED_EXEC);
}

/* The child has what it was given under fixed numbers: 0 to 2, and those of argv. */
static bool descriptors_place(const struct child_build *build, int out)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int from[] = {null, out, out, build->model_fd, build->plan_fd, build->folder};
    int kept[ARRAY_LEN(from)];
    for (int i = 0; i < (int)ARRAY_LEN(from); i++) /* none of them may be at another one's number */
        kept[i] = from[i] < 0 ? -1 : fcntl(from[i], F_DUPFD_CLOEXEC, FOLDER_AT + 1);
    for (int i = 0; i < (int)ARRAY_LEN(from); i++)
        if (from[i] < 0 ? i != FOLDER_AT : dup2(kept[i], i) < 0)
            return false;
    int first = build->folder < 0 ? FOLDER_AT : FOLDER_AT + 1;
    return syscall(SYS_close_range, (unsigned)first, ~0U, CLOSE_RANGE_CLOEXEC) == 0;
}

static void child_run(const struct child_build *build, pid_t parent, int out, char *const *paths,
                      char *const *argv, char *const *envp)
{
    sigset_t none;
    sigemptyset(&none);
    for (int s = 1; s < NSIG; s++)
        signal(s, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0); /* a terminal's ^C is for the daemon, which ends its children itself */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || !descriptors_place(build, out))
        _exit(FAILED_EXEC);
    confine(build);
    for (; *paths; paths++)
        execve(*paths, argv, envp);
    _exit(FAILED_EXEC);
}

/* ---- in the daemon ---- */

struct arguments {
    char **argv;  /* ARGS_MAX and those of the inputs */
    char **texts; /* what was made for inputs; NULL at the end */
    char model[288], plan[16], threads[16], batches[512];
    char beside[4096];  /* inferctl in the folder of this program */
    char sibling[4096]; /* and in a build tree */
    char *paths[5];
    char **envp;
};

static void paths_fill(struct arguments *a)
{
    static char installed[] = "/usr/bin/inferctl", local[] = "/usr/local/bin/inferctl";
    uint32_t n = 0;
    char self[2048];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (len > 0) {
        self[len] = '\0';
        char *slash = strrchr(self, '/');
        *slash = '\0';
        snprintf(a->beside, sizeof(a->beside), "%s/inferctl", self);
        snprintf(a->sibling, sizeof(a->sibling), "%s/../tools/inferctl", self);
        a->paths[n++] = a->beside;
        a->paths[n++] = a->sibling;
    }
    a->paths[n++] = local;
    a->paths[n++] = installed;
    a->paths[n] = NULL;
}

/* "NAME=1,2,3" */
static char *text_of_numbers(const char *name, const float *values, uint32_t n)
{
    size_t size = strlen(name) + 2 + (size_t)n * 24, used;
    char *text = malloc(size);
    if (!text)
        return NULL;
    used = (size_t)snprintf(text, size, "%s=", name);
    for (uint32_t i = 0; i < n; i++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%.9g", i ? "," : "", (double)values[i]);
    return text;
}

static char *text_of_type(const char *name, const char *type)
{
    size_t size = strlen(name) + strlen(type) + 2;
    char *text = malloc(size);
    if (text)
        snprintf(text, size, "%s=%s", name, type);
    return text;
}

/* Appends option and text at *n; false: there is no text, for want of memory. */
static bool append(struct arguments *a, uint32_t *n, uint32_t *texts, char *option, char *text)
{
    if (!text)
        return false;
    a->texts[(*texts)++] = text;
    a->argv[(*n)++] = option;
    a->argv[(*n)++] = text;
    return true;
}

static bool inputs_fill(struct arguments *a, const struct child_build *build, uint32_t *n)
{
    static char type[] = "--input-type", scale[] = "--input-scale", bias[] = "--input-bias";
    uint32_t t = 0;
    for (uint32_t i = 0; i < build->n_inputs; i++) {
        const struct config_input *in = &build->inputs[i];
        if ((in->type && !append(a, n, &t, type, text_of_type(in->name, in->type))) ||
            (in->scale_count &&
             !append(a, n, &t, scale, text_of_numbers(in->name, in->scale, in->scale_count))) ||
            (in->bias_count &&
             !append(a, n, &t, bias, text_of_numbers(in->name, in->bias, in->bias_count))))
            return false;
    }
    return true;
}

static bool arguments_fill(struct arguments *a, const struct child_build *build)
{
    uint32_t n = 0;
    a->argv = calloc(ARGS_MAX + (size_t)ARGS_OF_INPUT * build->n_inputs, sizeof(*a->argv));
    a->texts = calloc(1 + (size_t)ARGS_OF_INPUT * build->n_inputs, sizeof(*a->texts));
    if (!a->argv || !a->texts)
        return false;
    snprintf(a->plan, sizeof(a->plan), "fd:%d", PLAN_AT);
    if (build->folder >= 0)
        snprintf(a->model, sizeof(a->model), "fd:%d,%d:%s", MODEL_AT, FOLDER_AT, build->name);
    else
        snprintf(a->model, sizeof(a->model), "fd:%d:%s", MODEL_AT, build->name);
    const char *const fixed[] = {"inferctl",       "build",    a->model,      "-o",
                                 a->plan,          "--device", build->device, "--no-tune",
                                 "--timing-cache", "",         "--threads"};
    for (; n < ARRAY_LEN(fixed); n++)
        a->argv[n] = (char *)(uintptr_t)fixed[n];
    snprintf(a->threads, sizeof(a->threads), "%u", build->threads);
    a->argv[n++] = a->threads;
    static char reference[] = "--reference-only", batch[] = "--batch";
    if (build->reference)
        a->argv[n++] = reference;
    size_t used = 0;
    for (uint32_t i = 0; i < build->n_batches && used + 12 < sizeof(a->batches); i++)
        used += (size_t)snprintf(a->batches + used, sizeof(a->batches) - used, "%s%u", i ? "," : "",
                                 build->batches[i]);
    if (used) {
        a->argv[n++] = batch;
        a->argv[n++] = a->batches;
    }
    if (!inputs_fill(a, build, &n))
        return false;
    a->argv[n] = NULL;
    paths_fill(a);
    return true;
}

static void arguments_free(struct arguments *a)
{
    if (!a)
        return;
    for (uint32_t i = 0; a->texts && a->texts[i]; i++)
        free(a->texts[i]);
    free(a->texts);
    free(a->argv);
    free(a->envp);
    free(a);
}

/* The environment, and no leak check in a build for tests: it would trace the process. */
static bool environment_fill(struct arguments *a)
{
    static char quiet[] = "LSAN_OPTIONS=detect_leaks=0";
    size_t n = 0;
    while (environ[n])
        n++;
    a->envp = calloc(n + 2, sizeof(*a->envp));
    if (!a->envp)
        return false;
    memcpy(a->envp, environ, n * sizeof(*a->envp));
    a->envp[n] = quiet;
    return true;
}

/* What the child says: whole lines go to the log, the last one is kept for the error. */
struct lines {
    const struct log_sink *log;
    char line[LINE_MAX_], last[LINE_MAX_];
    size_t len;
};

static void lines_add(struct lines *l, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '\n' && text[i] != '\r') {
            if (l->len + 1 < sizeof(l->line))
                l->line[l->len++] = text[i];
            continue;
        }
        l->line[l->len] = '\0';
        if (l->len) {
            log_write(l->log, LOG_VERBOSE, "build: %s", l->line);
            memcpy(l->last, l->line, l->len + 1);
        }
        l->len = 0;
    }
}

/* Reads until the child closes its end, or has to be ended. */
static enum status child_watch(const struct child_build *build, pid_t pid, int in,
                               struct lines *lines, struct error *err)
{
    uint64_t end_ns = clock_now_ns() + build->timeout_s * NS_PER_S;
    for (;;) {
        struct pollfd p = {.fd = in, .events = POLLIN};
        int r = poll(&p, 1, POLL_MS);
        if (atomic_load_explicit(build->stop, memory_order_relaxed)) {
            kill(pid, SIGKILL);
            return error_set(err, STATUS_CANCELLED, "the server is shutting down");
        }
        if (clock_now_ns() > end_ns) {
            kill(pid, SIGKILL);
            return error_set(err, STATUS_DEADLINE_EXCEEDED,
                             "building took longer than build_timeout_s, %u s", build->timeout_s);
        }
        if (r <= 0)
            continue;
        char text[1024];
        ssize_t n = read(in, text, sizeof(text));
        if (n > 0)
            lines_add(lines, text, (size_t)n);
        else if (n == 0 || errno != EINTR)
            return STATUS_OK;
    }
}

/* What a child can know of; everything else is the daemon's to say. */
static enum status status_of_child(int claimed)
{
    static const bool known[STATUS_COUNT_] = {
        [STATUS_INVALID_ARGUMENT] = true,    [STATUS_NOT_FOUND] = true,
        [STATUS_PERMISSION_DENIED] = true,   [STATUS_RESOURCE_EXHAUSTED] = true,
        [STATUS_FAILED_PRECONDITION] = true, [STATUS_OUT_OF_RANGE] = true,
        [STATUS_UNIMPLEMENTED] = true,       [STATUS_UNAVAILABLE] = true,
        [STATUS_DATA_LOSS] = true,
    };
    bool ok = claimed > 0 && claimed < STATUS_COUNT_ && known[claimed];
    return ok ? (enum status)claimed : STATUS_INTERNAL;
}

static enum status child_result(int how, const struct lines *lines, struct error *err)
{
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0)
        return STATUS_OK;
    if (WIFSIGNALED(how))
        return error_set(err, STATUS_INTERNAL, "inferctl build ended by signal %d: %s",
                         WTERMSIG(how), lines->last);
    if (WEXITSTATUS(how) == FAILED_EXEC)
        return error_set(err, STATUS_INTERNAL, "inferctl could not be started");
    int status = WEXITSTATUS(how) - HANDED;
    return error_set(err, status_of_child(status), "%s",
                     *lines->last ? lines->last : "inferctl build failed without a word");
}

static enum status child_start(const struct child_build *build, struct arguments *a, int *in,
                               pid_t *pid, struct error *err)
{
    int ends[2];
    pid_t self = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0)
        return error_errno(err, errno, "pipe");
    *pid = fork();
    if (*pid == 0)
        child_run(build, self, ends[1], a->paths, a->argv, a->envp);
    close(ends[1]);
    if (*pid < 0) {
        close(ends[0]);
        return error_errno(err, errno, "fork");
    }
    *in = ends[0];
    return STATUS_OK;
}

enum status child_build(const struct child_build *build, struct error *err)
{
    struct arguments *a = calloc(1, sizeof(*a));
    if (!a || !environment_fill(a) || !arguments_fill(a, build)) {
        arguments_free(a);
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "no memory for a child");
    }
    struct lines lines = {.log = build->log};
    int in = -1, how = 0;
    pid_t pid = -1;
    enum status s = child_start(build, a, &in, &pid, err);
    if (s == STATUS_OK) {
        s = child_watch(build, pid, in, &lines, err);
        lines_add(&lines, "\n", 1);
        close(in);
        while (waitpid(pid, &how, 0) < 0 && errno == EINTR)
            ;
        if (s == STATUS_OK)
            s = child_result(how, &lines, err);
    }
    arguments_free(a);
    return s;
}
