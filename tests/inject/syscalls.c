/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls that fail, or at which the process is killed:
 *
 *   syscalls count FILE NUMBER,... PROGRAM ARGUMENT...
 *   syscalls fail FILE NUMBER NTH ERRNO PROGRAM ARGUMENT...
 *   syscalls kill FILE NUMBER,... NTH PROGRAM ARGUMENT...
 *
 * The Nth call (from 1) with one of these numbers fails, whoever makes it: the program, a library,
 * any thread, a child. With AFTER in the environment, "prctl", counting starts when the program
 * names its thread, as inferd does at the beginning of main. FILE gets a line with the number of
 * each call that was counted, or of the call that failed.
 *
 * It works by seccomp's user notification, which needs neither privileges nor ptrace and sees calls
 * that do not go through the C library; a process beside the program answers the notifications and
 * ends with it. The exit status is 77 if the kernel has no such notification. The program keeps the
 * process id.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NUMBERS = 64, SKIP = 77 };

#if defined(__x86_64__)
#define ARCH_HERE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH_HERE AUDIT_ARCH_AARCH64
#else
#error "name this architecture for seccomp"
#endif

struct job {
    enum { COUNT, FAIL, KILL } what;
    int numbers[NUMBERS];
    unsigned n_numbers;
    unsigned long nth;
    int error;
    bool after; /* counting waits for prctl(PR_SET_NAME) */
    int out;
};

/* Memory shared by the keeper and the program until the program is started. */
struct meeting {
    atomic_int listener; /* 0: none yet; a descriptor that both processes have */
    atomic_bool taken;
};

static void die(const char *what)
{
    fprintf(stderr, "syscalls: %s: %s\n", what, strerror(errno));
    exit(SKIP);
}

static int filter_install(const struct job *job)
{
    struct sock_filter f[NUMBERS + 8];
    unsigned short n = 0;
    f[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH_HERE, 1, 0);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    f[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i <= job->n_numbers; i++) {
        int number = i < job->n_numbers ? job->numbers[i] : SYS_prctl;
        unsigned char jump = (unsigned char)(job->n_numbers - i + 1);
        f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, jump, 0);
    }
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    const struct sock_fprog program = {.len = n, .filter = f};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        die("no_new_privs");
    int fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                          &program);
    if (fd < 0)
        die("seccomp");
    return fd;
}

static void note(const struct job *job, int number)
{
    char line[32];
    ssize_t n = write(job->out, line, (size_t)snprintf(line, sizeof(line), "%d\n", number));
    (void)n;
}

/* True for calls that fail in no kernel, or whose failure no program could survive: reads and
 * writes of the kernel's own objects and of the log, and epoll_ctl of a registered descriptor. */
static bool is_safe(const struct seccomp_notif *call)
{
    const unsigned long long *args = (const unsigned long long *)call->data.args;
    char path[64], text[4096] = "";
    if (call->data.nr == SYS_read || call->data.nr == SYS_write) {
        snprintf(path, sizeof(path), "/proc/%u/fd/%llu", call->pid, args[0]);
        ssize_t n = readlink(path, text, sizeof(text) - 1);
        return args[0] <= 2 ||
               (n > 0 && (!strncmp(text, "anon_inode:", 11) || !strncmp(text, "pipe:", 5)));
    }
    if (call->data.nr != SYS_epoll_ctl)
        return false;
    if (args[1] != EPOLL_CTL_ADD)
        return true;
    snprintf(path, sizeof(path), "/proc/%u/fdinfo/%llu", call->pid, args[0]);
    FILE *f = fopen(path, "re");
    bool known = false;
    unsigned long long fd;
    while (f && fgets(text, sizeof(text), f))
        known |= sscanf(text, "tfd: %llu", &fd) == 1 && fd == args[2];
    if (f)
        fclose(f);
    return known;
}

/* Answers one call; `seen` counts the calls with a wanted number. */
static void answer(const struct job *job, int listener, const struct seccomp_notif *call,
                   bool *counting, unsigned long *seen)
{
    struct seccomp_notif_resp reply = {.id = call->id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    bool wanted = false;
    for (unsigned i = 0; i < job->n_numbers; i++)
        wanted |= call->data.nr == job->numbers[i];
    wanted = wanted && *counting && !is_safe(call);
    if (call->data.nr == SYS_prctl && call->data.args[0] == PR_SET_NAME)
        *counting = true;
    else if (*counting && wanted)
        ++*seen;
    else
        wanted = false;
    if (wanted && (job->what == COUNT || *seen == job->nth))
        note(job, call->data.nr);
    if (wanted && job->what == KILL && *seen == job->nth)
        kill((pid_t)call->pid, SIGKILL);
    if (wanted && job->what == FAIL && *seen == job->nth) {
        reply.flags = 0;
        reply.error = -job->error;
    }
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &reply); /* ENOENT: a signal came first */
}

/* Answers calls until no process under the filter is left. */
static void keep(const struct job *job, struct meeting *meeting)
{
    int listener;
    while (!(listener = atomic_load(&meeting->listener)))
        sched_yield();
    if (unshare(CLONE_FILES) != 0)
        _exit(1);
    atomic_store(&meeting->taken, true);
    for (int fd = 0; fd < 1024; fd++) /* sockets and pipes are not kept open */
        if (fd != listener && fd != job->out)
            close(fd);
    setsid();
    bool counting = !job->after;
    unsigned long seen = 0;
    for (;;) {
        struct seccomp_notif call = {0};
        struct pollfd p = {.fd = listener, .events = POLLIN};
        if (poll(&p, 1, -1) < 0 && errno != EINTR)
            _exit(1);
        if (p.revents & POLLHUP)
            _exit(0);
        if (!(p.revents & POLLIN))
            continue;
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) == 0)
            answer(job, listener, &call, &counting, &seen);
        else if (errno != EINTR && errno != ENOENT) /* ENOENT: a signal came first */
            _exit(1);
    }
}

static void numbers_parse(struct job *job, char *text)
{
    for (char *word = strtok(text, ","); word && job->n_numbers < NUMBERS; word = strtok(NULL, ","))
        job->numbers[job->n_numbers++] = atoi(word);
}

int main(int argc, char **argv)
{
    struct job job = {.after = getenv("AFTER") != NULL};
    int at = 4;
    if (argc < 6)
        return 2;
    job.what = argv[1][0] == 'c' ? COUNT : argv[1][0] == 'f' ? FAIL : KILL;
    job.out = open(argv[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    numbers_parse(&job, argv[3]);
    if (job.what != COUNT)
        job.nth = strtoul(argv[at++], NULL, 10);
    if (job.what == FAIL)
        job.error = atoi(argv[at++]);
    unsetenv("AFTER");
    struct meeting *meeting =
        mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (job.out < 0 || meeting == MAP_FAILED)
        die(argv[2]);
    long keeper = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
    if (keeper == 0)
        keep(&job, meeting);
    if (keeper < 0)
        die("clone");
    atomic_store(&meeting->listener, filter_install(&job));
    while (!atomic_load(&meeting->taken))
        sched_yield();
    execv(argv[at], argv + at);
    fprintf(stderr, "syscalls: %s: %s\n", argv[at], strerror(errno));
    return 1;
}
