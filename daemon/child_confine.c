/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See child_confine.h. A step that the daemon itself may not take (because its unit has a system
 * call filter) is left out, and the child keeps the daemon's own limits and priority. But no child
 * runs without its own filter of system calls.
 */
#include "daemon/child_confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/compiler.h"
#include "daemon/child_landlock.h"

enum {
    NICE = 10,
    FILES_MAX = 256,
    DEVICE_FILES_MAX = 4096, /* drivers open dozens for each device */
    TASKS_MAX = 8192,        /* of the daemon's account, wherever they run; root is not counted */
    RULES_AT = CHILD_PROGRAM_AT + 1,
    PLACES = RULES_AT + 1,
    CAPABILITIES = 64
};

static int reopen(int fd, int flags)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, flags | O_CLOEXEC);
}

enum status child_confinement_init(struct child_confinement *c, struct error *err)
{
    const struct child_given *given = &c->given;
    c->rules = c->folder = c->model = -1;
    c->null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (c->null < 0)
        return error_errno(err, errno, "/dev/null");
    c->model = reopen(given->model, O_RDONLY);
    if (c->model < 0)
        return error_errno(err, errno, "the model, once more");
    if (given->folder >= 0) {
        c->folder = reopen(given->folder, O_PATH | O_DIRECTORY);
        if (c->folder < 0)
            return error_errno(err, errno, "the model's folder, once more");
    }
    c->rules = child_landlock_new(given->program, c->folder, given->device);
    child_filter_init(&c->filter, given->device, CHILD_PROGRAM_AT);
    return STATUS_OK;
}

void child_confinement_deinit(struct child_confinement *c)
{
    const int all[] = {c->model, c->folder, c->null, c->rules};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i] >= 0)
            close(all[i]);
}

/* Puts each descriptor at its number. The program and the rules are closed when the program is
 * executed, and so is whatever else the daemon has open. */
static bool descriptors_place(const struct child_confinement *c, int out)
{
    const int from[PLACES] = {c->null,          out,     out, c->model, c->given.plan, c->folder,
                              c->given.program, c->rules};
    int kept[PLACES];
    for (int i = 0; i < PLACES; i++) /* none of them may lie where another one belongs */
        kept[i] = from[i] < 0 ? -1 : fcntl(from[i], F_DUPFD_CLOEXEC, PLACES);
    for (int i = 0; i < PLACES; i++) {
        if (from[i] < 0)
            close(i);
        else if (kept[i] < 0 || dup3(kept[i], i, i < CHILD_PROGRAM_AT ? 0 : O_CLOEXEC) < 0)
            return false;
    }
    return syscall(SYS_close_range, CHILD_PROGRAM_AT, ~0U, CLOSE_RANGE_CLOEXEC) == 0;
}

static void signals_reset(void)
{
    sigset_t none;
    sigemptyset(&none);
    for (int s = 1; s < NSIG; s++)
        signal(s, SIG_DFL);
    signal(SIGXFSZ, SIG_IGN); /* so that a file that is too large is an error, with a text */
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Makes the kernel kill the child first when memory runs out. The file belongs to root while the
 * process is undumpable, as the daemon is. */
static void oom_first(void)
{
    static const char most[] = "1000";
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n UNUSED = write(fd, most, sizeof(most) - 1);
        close(fd);
    }
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

static void limit_set(int which, uint64_t value)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)which, &limit) != 0)
        return;
    limit.rlim_max = limit.rlim_cur = MIN(value, limit.rlim_max);
    setrlimit((__rlimit_resource_t)which, &limit);
}

/* Memory is limited as data, which are private memory that can be written and so what building
 * takes. A limit of address space would count what libraries and drivers reserve and never use. */
static void limits_set(const struct child_confinement *c)
{
    limit_set(RLIMIT_CORE, 0);
    limit_set(RLIMIT_NOFILE, c->given.device ? DEVICE_FILES_MAX : FILES_MAX);
    limit_set(RLIMIT_NPROC, TASKS_MAX);
    limit_set(RLIMIT_FSIZE, c->given.limits.file_bytes);
    limit_set(RLIMIT_CPU, c->given.limits.cpu_s);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they map terabytes */
    limit_set(RLIMIT_DATA, c->given.limits.memory_bytes);
#endif
    setpriority(PRIO_PROCESS, 0, NICE);
}

/* Drops all capabilities. The child of a root daemon keeps the one to read files that belong to
 * others, if there are rules of Landlock that say which files it can read. */
static void capabilities_drop(const struct child_confinement *c)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3], none = {0};
    const uint32_t kept = c->rules >= 0 ? 1U << CAP_DAC_READ_SEARCH : 0;
    if (syscall(SYS_capget, &head, data) != 0)
        return;
    for (unsigned i = 0; i < CAPABILITIES; i++)
        if (i != CAP_DAC_READ_SEARCH || !kept)
            prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    data[0] = (struct __user_cap_data_struct){.effective = data[0].effective & kept,
                                              .permitted = data[0].permitted & kept};
    data[1] = none;
    syscall(SYS_capset, &head, data);
}

static bool restrict_self(struct child_confinement *c)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return false;
    if (c->rules >= 0 && !child_landlock_enter(RULES_AT, c->given.device))
        return false;
    return child_filter_enter(&c->filter, getpid());
}

void child_confine(struct child_confinement *c, pid_t parent, int out, char *const *argv,
                   char *const *envp)
{
    signals_reset();
    setpgid(0, 0); /* a terminal's ^C is for the daemon, which ends its children itself */
    if (!descriptors_place(c, out) || chdir("/") != 0)
        _exit(CHILD_NOT_CONFINED);
    oom_first();
    limits_set(c);
    capabilities_drop(c);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != parent || !restrict_self(c))
        _exit(CHILD_NOT_CONFINED);
    syscall(SYS_execveat, CHILD_PROGRAM_AT, "", argv, envp, AT_EMPTY_PATH);
    _exit(CHILD_NOT_EXECUTED);
}
