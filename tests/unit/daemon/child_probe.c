/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What runs in place of inferctl to try what a hostile model could make of it:
 *
 *   child_probe attempts KIND INSIDE OUTSIDE   each forbidden thing, a line each
 *   child_probe works INSIDE                   what building needs
 *   child_probe tries                          the attempts of "cpu-bare" in /tmp
 *   child_probe int80 | hang | flood | crash | exit NUMBER
 *   child_probe build ...                      as inferctl is called: the model is one of these
 * words
 *
 * KIND is "cpu", "cpu-bare" and "device" for what holds where (bare: without Landlock), or
 * "control" for a process that nothing holds: then only what does no harm is tried, and has to be
 * done. INSIDE is the folder of the model, OUTSIDE another one; both have a file "file". A line
 * says "refused" for EPERM and EACCES, "DONE", or what else came: that something failed for a
 * reason of its own, as for want of such a call in the kernel, says nothing about the confinement.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tools/handed.h"

enum {
    HARMLESS = 1, /* also tried by the control, which must succeed */
    HOST = 2,     /* the list for devices allows it */
    FILES = 4,    /* needs Landlock */
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool sanitized = true; /* a sanitized child has no memory limit */
#else
static const bool sanitized = false;
#endif

enum { MODEL = 3, PLAN = 4, FOLDER = 5 };

static bool control, device, bare;
static pid_t parent;
static const char *inside, *outside;
static unsigned count;

static bool wanted(unsigned flags)
{
    if (control)
        return flags & HARMLESS;
    return !(device && flags & HOST) && !(bare && flags & FILES);
}

static void said(const char *what, long result)
{
    int why = errno;
    count++;
    if (result >= 0)
        printf("%s: DONE\n", what);
    else if (why == EPERM || why == EACCES)
        printf("%s: refused\n", what);
    else
        printf("%s: came to %s\n", what, strerrorname_np(why));
    fflush(stdout);
}

#define TRY(flags, what, call)                                                                     \
    do {                                                                                           \
        if (wanted(flags))                                                                         \
            said(what, (long)(call));                                                              \
    } while (0)

static const char *path(const char *folder, const char *name)
{
    static char text[512];
    snprintf(text, sizeof(text), "%s/%s", folder, name);
    return text;
}

static const char *of_parent(const char *name)
{
    static char text[64];
    snprintf(text, sizeof(text), "/proc/%d/%s", parent, name);
    return text;
}

/* For calls that a device's driver may need, tried with arguments that make them fail: only the
 * filter would fail with `why`. */
static long if_told(long result, int why)
{
    if (result < 0 && errno == why)
        errno = EPERM;
    return result;
}

/* Calls that look as if the kernel did not have them. */
static long if_absent(long result)
{
    if (result < 0)
        errno = errno == ENOSYS ? EPERM : EBADMSG;
    return result;
}

/* Calls for which a descriptor that is open for reading is not good enough. */
static long if_not_open_for(long result)
{
    if (result < 0)
        errno = errno == EBADF || errno == EINVAL ? EPERM : EBADMSG;
    return result;
}

/* --- the parent --- */

static long vm_call(long number, pid_t of)
{
    char here[8] = "";
    struct iovec mine = {here, sizeof(here)}, theirs = {here, sizeof(here)};
    return syscall(number, of, &mine, 1, &theirs, 1, 0);
}

static void try_the_parent(void)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    cpu_set_t cpus;
    struct sched_param normal = {0};
    siginfo_t info = {.si_code = SI_QUEUE};
    TRY(HARMLESS | FILES, "read its memory", open(of_parent("mem"), O_RDONLY));
    TRY(HARMLESS, "write its memory", open(of_parent("mem"), O_RDWR));
    TRY(HARMLESS | FILES, "read its environment", open(of_parent("environ"), O_RDONLY));
    TRY(HARMLESS | FILES, "see its descriptors", open(of_parent("fd"), O_RDONLY));
    TRY(FILES, "take a descriptor of it", open(of_parent("fd/2"), O_RDONLY));
    TRY(HARMLESS | FILES, "work in its folder", open(of_parent("cwd/."), O_RDONLY));
    TRY(HARMLESS, "spare it from the OOM killer", open(of_parent("oom_score_adj"), O_WRONLY));
    TRY(0, "ptrace attach", ptrace(PTRACE_ATTACH, parent, NULL, NULL));
    TRY(0, "ptrace seize", ptrace(PTRACE_SEIZE, parent, NULL, NULL));
    TRY(0, "ptrace traceme", ptrace(PTRACE_TRACEME, 0, NULL, NULL));
    TRY(0, "process_vm_readv", vm_call(SYS_process_vm_readv, parent));
    TRY(0, "process_vm_writev", vm_call(SYS_process_vm_writev, parent));
    TRY(HARMLESS, "pidfd_open", syscall(SYS_pidfd_open, parent, 0));
    TRY(0, "pidfd_getfd", syscall(SYS_pidfd_getfd, MODEL, 1, 0));
    TRY(0, "pidfd_send_signal", syscall(SYS_pidfd_send_signal, MODEL, SIGTERM, NULL, 0));
    TRY(0, "process_madvise", syscall(SYS_process_madvise, MODEL, NULL, 0, MADV_COLD, 0));
    TRY(0, "kcmp", syscall(SYS_kcmp, parent, getpid(), 0, 0, 0));
    TRY(0, "get_robust_list", syscall(SYS_get_robust_list, parent, &cpus, &limit));
    TRY(0, "migrate_pages", syscall(SYS_migrate_pages, parent, 0, NULL, NULL));
    TRY(0, "move_pages", syscall(SYS_move_pages, parent, 0, NULL, NULL, NULL, 0));
    TRY(HARMLESS, "kill the parent", kill(parent, SIGCONT));
    TRY(0, "kill everybody", kill(-1, 0));
    TRY(0, "kill its group", kill(0, SIGCONT));
    TRY(HARMLESS, "tgkill the parent", syscall(SYS_tgkill, parent, parent, SIGCONT));
    TRY(HARMLESS, "tkill the parent", syscall(SYS_tkill, parent, SIGCONT));
    TRY(0, "rt_sigqueueinfo", syscall(SYS_rt_sigqueueinfo, parent, SIGCONT, &info));
    TRY(0, "rt_tgsigqueueinfo", syscall(SYS_rt_tgsigqueueinfo, parent, parent, SIGCONT, &info));
    TRY(0, "own a descriptor for it", fcntl(1, F_SETOWN, parent));
    TRY(0, "choose a descriptor's signal", fcntl(1, F_SETSIG, SIGKILL));
    TRY(HOST, "signals from a descriptor", fcntl(1, F_SETFL, O_ASYNC));
    TRY(0, "FIOASYNC", ioctl(1, FIOASYNC, &(int){1}));
    TRY(0, "FIOSETOWN", ioctl(1, FIOSETOWN, &(int){parent}));
    TRY(0, "TIOCSTI", ioctl(1, TIOCSTI, "x"));
    TRY(HARMLESS, "read its limits", syscall(SYS_prlimit64, parent, RLIMIT_CORE, NULL, &limit));
    TRY(0, "set its limits", syscall(SYS_prlimit64, parent, RLIMIT_CORE, &limit, NULL));
    TRY(HARMLESS, "see its priority", getpriority(PRIO_PROCESS, (id_t)parent));
    TRY(0, "set its priority", setpriority(PRIO_PROCESS, (id_t)parent, 0));
    TRY(0, "set its own priority", setpriority(PRIO_PROCESS, 0, 0));
    TRY(0, "ioprio_set", syscall(SYS_ioprio_set, 1, parent, 0));
    CPU_ZERO(&cpus);
    CPU_SET(0, &cpus);
    TRY(0, "sched_setaffinity", sched_setaffinity(parent, sizeof(cpus), &cpus));
    TRY(0, "sched_setscheduler", sched_setscheduler(parent, SCHED_OTHER, &normal));
    TRY(0, "sched_setparam", sched_setparam(parent, &normal));
    TRY(0, "setpgid", setpgid(0, getpgid(parent)));
    TRY(0, "setsid", setsid());
    TRY(0, "outlive it", prctl(PR_SET_PDEATHSIG, 0));
    TRY(0, "become a reaper", prctl(PR_SET_CHILD_SUBREAPER, 1));
    TRY(0, "PR_SET_MM", prctl(PR_SET_MM, PR_SET_MM_BRK, 0, 0, 0));
    TRY(0, "PR_SET_DUMPABLE", prctl(PR_SET_DUMPABLE, 0));
}

/* --- the network and other ways to talk --- */

static void try_the_network(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "/run/inferd.sock"};
    int pair[2];
    TRY(HARMLESS, "socket IPv4", socket(AF_INET, SOCK_STREAM, 0));
    TRY(0, "socket IPv6", socket(AF_INET6, SOCK_DGRAM, 0));
    TRY(HARMLESS | HOST, "socket unix", socket(AF_UNIX, SOCK_STREAM, 0));
    TRY(0, "socket netlink", socket(AF_NETLINK, SOCK_RAW, 0));
    TRY(0, "socket packet", socket(AF_PACKET, SOCK_RAW, 0));
    TRY(0, "socket vsock", socket(AF_VSOCK, SOCK_STREAM, 0));
    TRY(0, "socket alg", socket(AF_ALG, SOCK_SEQPACKET, 0));
    TRY(HARMLESS | HOST, "socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    /* standard output is no socket: without a filter the kernel would say so */
    TRY(0, "connect", if_told(connect(1, (struct sockaddr *)&name, sizeof(name)), ECONNREFUSED));
    TRY(0, "sendto", sendto(1, "x", 1, 0, (struct sockaddr *)&name, sizeof(name)));
    TRY(0, "sendmsg", sendmsg(1, &(struct msghdr){0}, 0));
    TRY(0, "sendmmsg", syscall(SYS_sendmmsg, 1, NULL, 0, 0));
    TRY(HOST, "bind", bind(1, (struct sockaddr *)&name, sizeof(name)));
    TRY(0, "io_uring_setup", syscall(SYS_io_uring_setup, 1, NULL));
    TRY(0, "io_uring_enter", syscall(SYS_io_uring_enter, 1, 0, 0, 0, NULL, 0));
    TRY(0, "io_uring_register", syscall(SYS_io_uring_register, 1, 0, NULL, 0));
    TRY(0, "io_setup", syscall(SYS_io_setup, 1, NULL));
    TRY(0, "shmget", syscall(SYS_shmget, 0, 4096, 0));
    TRY(0, "semget", syscall(SYS_semget, 0, 1, 0));
    TRY(0, "msgget", syscall(SYS_msgget, 0, 0));
    TRY(0, "mq_open", syscall(SYS_mq_open, "/x", 0, 0, NULL));
    TRY(0, "splice", splice(MODEL, NULL, 1, NULL, 1, 0));
    TRY(0, "vmsplice", vmsplice(1, NULL, 0, 0));
}

/* --- namespaces, mounts, programs, processes --- */

static long clone_with(unsigned long flags)
{
    long pid = syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0)
        _exit(0);
    return pid;
}

static long execute(const char *program)
{
    char *const argv[] = {(char[]){"sh"}, NULL};
    return syscall(SYS_execve, program, argv, argv + 1);
}

static long execute_at(int fd, const char *program, int flags)
{
    char *const argv[] = {(char[]){"sh"}, NULL};
    return syscall(SYS_execveat, fd, program, argv, argv + 1, flags);
}

static void try_other_processes(void)
{
    TRY(HARMLESS, "fork", clone_with(0));
    TRY(0, "clone: user namespace", clone_with(CLONE_NEWUSER));
    TRY(0, "clone: network namespace", clone_with(CLONE_NEWNET));
    TRY(0, "clone: user and network", clone_with(CLONE_NEWUSER | CLONE_NEWNET));
    TRY(0, "clone: time namespace", clone_with(0x80));
    TRY(0, "clone: child of the parent", clone_with(CLONE_PARENT));
    TRY(0, "clone3", if_absent(syscall(SYS_clone3, NULL, 0)));
    TRY(0, "unshare users", unshare(CLONE_NEWUSER));
    TRY(0, "unshare files", unshare(CLONE_FS));
    TRY(0, "setns", setns(MODEL, 0));
    TRY(0, "mount", mount("none", "/tmp", "tmpfs", 0, NULL));
    TRY(0, "umount2", umount2("/tmp", MNT_DETACH));
    TRY(0, "fsopen", syscall(SYS_fsopen, "tmpfs", 0));
    TRY(0, "fsconfig", syscall(SYS_fsconfig, MODEL, 0, NULL, NULL, 0));
    TRY(0, "fsmount", syscall(SYS_fsmount, MODEL, 0, 0));
    TRY(0, "fspick", syscall(SYS_fspick, AT_FDCWD, "/", 0));
    TRY(0, "open_tree", syscall(SYS_open_tree, AT_FDCWD, "/", 0));
    TRY(0, "move_mount", syscall(SYS_move_mount, MODEL, "", AT_FDCWD, "/tmp", 4));
    TRY(0, "mount_setattr", syscall(SYS_mount_setattr, MODEL, "", 0, NULL, 0));
    TRY(0, "pivot_root", syscall(SYS_pivot_root, "/", "/"));
    TRY(0, "chroot", chroot("/"));
    TRY(0, "execve a shell", execute("/bin/sh"));
    TRY(0, "execve itself", execute("/proc/self/exe"));
    TRY(0, "execveat a shell", execute_at(AT_FDCWD, "/bin/sh", 0));
    TRY(0, "execveat the program's number", execute_at(6, "", AT_EMPTY_PATH));
    TRY(0, "execveat behind that number", execute_at(6, "/bin/sh", AT_EMPTY_PATH));
    TRY(0, "execveat the plan", execute_at(PLAN, "", AT_EMPTY_PATH));
    TRY(HARMLESS | HOST, "memfd_create", syscall(SYS_memfd_create, "x", 0));
}

/* --- the kernel --- */

static void try_the_kernel(void)
{
    struct perf_event_attr perf = {.size = sizeof(perf), .type = PERF_TYPE_SOFTWARE};
    union bpf_attr bpf = {.map_type = BPF_MAP_TYPE_ARRAY};
    TRY(0, "bpf", syscall(SYS_bpf, BPF_MAP_CREATE, &bpf, sizeof(bpf)));
    TRY(0, "perf_event_open", syscall(SYS_perf_event_open, &perf, 0, -1, -1, 0));
    TRY(0, "keyctl", syscall(SYS_keyctl, 0, 0, 0, 0, 0));
    TRY(0, "add_key", syscall(SYS_add_key, "user", "x", "x", 1, 0));
    TRY(0, "request_key", syscall(SYS_request_key, "user", "x", NULL, 0));
    TRY(0, "userfaultfd", syscall(SYS_userfaultfd, 0));
    TRY(0, "init_module", syscall(SYS_init_module, NULL, 0, ""));
    TRY(0, "finit_module", syscall(SYS_finit_module, MODEL, "", 0));
    TRY(0, "kexec_load", syscall(SYS_kexec_load, 0, 0, NULL, 0));
    TRY(0, "reboot", syscall(SYS_reboot, 0, 0, 0, NULL));
    TRY(0, "syslog", syscall(SYS_syslog, 3, NULL, 0));
    TRY(0, "swapon", syscall(SYS_swapon, "/tmp", 0));
    TRY(0, "quotactl", syscall(SYS_quotactl, 0, "", 0, NULL));
    TRY(0, "personality", syscall(SYS_personality, 0x0040000));
    TRY(0, "seccomp", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 8, NULL));
    TRY(0, "fanotify_init", syscall(SYS_fanotify_init, 0, 0));
    TRY(HARMLESS, "inotify_init1", syscall(SYS_inotify_init1, 0));
    TRY(0, "name_to_handle_at", syscall(SYS_name_to_handle_at, AT_FDCWD, "/", NULL, NULL, 0));
    TRY(0, "open_by_handle_at", syscall(SYS_open_by_handle_at, FOLDER, NULL, 0));
    TRY(0, "settimeofday", syscall(SYS_settimeofday, NULL, NULL));
    TRY(0, "clock_settime", syscall(SYS_clock_settime, 0, NULL));
    TRY(0, "adjtimex", syscall(SYS_adjtimex, NULL));
    TRY(0, "sethostname", syscall(SYS_sethostname, "x", 1));
    TRY(0, "setuid", syscall(SYS_setuid, 0));
    TRY(0, "setresuid", syscall(SYS_setresuid, 0, 0, 0));
    TRY(0, "setgroups", syscall(SYS_setgroups, 0, NULL));
    TRY(0, "capset", syscall(SYS_capset, NULL, NULL));
    TRY(0, "memory that is secret", syscall(SYS_memfd_secret, 0));
#ifdef __x86_64__
    TRY(0, "iopl", syscall(SYS_iopl, 3));
    TRY(0, "ioperm", syscall(SYS_ioperm, 0, 1, 1));
    TRY(0, "modify_ldt", syscall(SYS_modify_ldt, 0, NULL, 0));
    TRY(0, "x32: getpid", syscall(0x40000000L | SYS_getpid));
    TRY(0, "x32: socket", syscall(0x40000000L | SYS_socket, AF_INET, SOCK_STREAM, 0));
    TRY(0, "x32: ptrace", syscall(0x40000000L | 521, PTRACE_ATTACH, parent, 0, 0));
    TRY(0, "x32: process_vm_writev", syscall(0x40000000L | 540, parent, NULL, 0, NULL, 0, 0));
    TRY(0, "x32: execve", syscall(0x40000000L | 520, "/bin/sh", NULL, NULL));
    TRY(0, "a number of none", syscall(0x7fffffffL));
#endif
}

/* --- files --- */

static void try_files(void)
{
    const struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
    struct flock whole = {.l_type = F_WRLCK};
    TRY(FILES | HARMLESS, "read a password file", open("/etc/passwd", O_RDONLY));
    TRY(FILES | HARMLESS, "read another folder", open(path(outside, "file"), O_RDONLY));
    TRY(FILES | HARMLESS, "list another folder", open(outside, O_RDONLY | O_DIRECTORY));
    TRY(FILES | HARMLESS, "list the root", open("/", O_RDONLY | O_DIRECTORY));
    TRY(FILES | HARMLESS, "see another process", open("/proc/1/status", O_RDONLY));
    TRY(FILES, "leave the folder", openat(FOLDER, "../out/file", O_RDONLY));
    TRY(HARMLESS, "write beside the model", open(path(inside, "file"), O_WRONLY));
    TRY(HARMLESS, "write and read there", open(path(inside, "file"), O_RDWR));
    TRY(0, "write from the folder", openat(FOLDER, "file", O_WRONLY));
    TRY(HARMLESS, "make a file there", open(path(inside, "new"), O_WRONLY | O_CREAT, 0600));
    TRY(HARMLESS, "make one elsewhere", open(path(outside, "new"), O_RDWR | O_CREAT, 0600));
    TRY(0, "make one and only read it", open(path(outside, "new2"), O_RDONLY | O_CREAT, 0600));
    TRY(0, "cut one off", open(path(outside, "file"), O_RDONLY | O_TRUNC));
    TRY(0, "make a nameless one", open(outside, O_TMPFILE | O_RDWR, 0600));
    TRY(0, "write /dev/shm", open("/dev/shm/inferd-probe", O_RDWR | O_CREAT, 0600));
    TRY(0, "write the model by its number", open("/proc/self/fd/3", O_RDWR));
    TRY(0, "openat2", if_absent(syscall(SYS_openat2, AT_FDCWD, "/etc/passwd", NULL, 0)));
    TRY(0, "truncate", truncate(path(outside, "file"), 0));
    TRY(0, "unlink", if_told(unlink(path(outside, "file")), ENOENT)); /* the file exists */
    TRY(0, "rmdir", rmdir(outside));
    TRY(0, "rename", renameat2(FOLDER, "file", FOLDER, "other", 0));
    TRY(0, "link", linkat(FOLDER, "file", FOLDER, "other", 0));
    TRY(0, "symlink", symlinkat("/etc/passwd", FOLDER, "other"));
    TRY(0, "mkdir", mkdirat(FOLDER, "other", 0700));
    TRY(0, "mknod", mknodat(FOLDER, "other", S_IFIFO | 0600, 0));
    TRY(0, "chmod", fchmodat(FOLDER, "file", 0777, 0));
    TRY(0, "chmod the model", fchmod(MODEL, 0777));
    TRY(0, "chown the model", fchown(MODEL, 0, 0));
    TRY(0, "touch", utimensat(FOLDER, "file", now, 0));
    TRY(0, "touch the model", futimens(MODEL, now));
    TRY(0, "setxattr", setxattr(path(inside, "file"), "user.x", "x", 1, 0));
    TRY(0, "fsetxattr", fsetxattr(MODEL, "user.x", "x", 1, 0));
    TRY(HARMLESS, "flock the model", flock(MODEL, LOCK_SH));
    TRY(0, "lock the model", fcntl(MODEL, F_SETLK, &whole));
    TRY(0, "lease the model", fcntl(MODEL, F_SETLEASE, F_RDLCK));
    TRY(0, "watch the folder", fcntl(FOLDER, F_NOTIFY, DN_MODIFY));
    TRY(0, "write the model", if_not_open_for(write(MODEL, "x", 1)));
    TRY(0, "cut the model off", if_not_open_for(ftruncate(MODEL, 0)));
    TRY(HOST, "fallocate", fallocate(PLAN, 0, 0, 1L << 40));
    TRY(0, "share ranges", ioctl(PLAN, _IOW(0x94, 9, int), MODEL));
    TRY(0, "copy_file_range", copy_file_range(MODEL, NULL, PLAN, NULL, 1, 0));
    TRY(0, "mknod a device", mknod(path(outside, "disk"), S_IFBLK | 0600, 0x800));
    TRY(0, "umask", syscall(SYS_umask, 0));
}

/* --- how much of everything --- */

static long map(size_t bytes, int flags)
{
    void *p =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? -1 : 0;
}

static long beyond_limit(void)
{
    struct rlimit limit = {0};
    prlimit(0, RLIMIT_DATA, NULL, &limit);
    if (limit.rlim_cur == RLIM_INFINITY)
        return 0;
    if (map(limit.rlim_cur + 4096, MAP_PRIVATE) == 0)
        return 0;
    if (errno != ENOMEM)
        return -1;
    errno = EPERM;
    return -1;
}

static long raise_limit(int which)
{
    const struct rlimit most = {RLIM_INFINITY, RLIM_INFINITY};
    return prlimit(0, (enum __rlimit_resource)which, &most, NULL);
}

static long grow_plan(void)
{
    struct rlimit limit = {0};
    prlimit(0, RLIMIT_FSIZE, NULL, &limit);
    long r = ftruncate(PLAN, (off_t)limit.rlim_cur + 1);
    if (r < 0 && errno == EFBIG)
        errno = EPERM;
    return r;
}

static long use_other_descriptors(void)
{
    for (int fd = FOLDER + 1; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            return fd;
    errno = EPERM;
    return -1;
}

static long read_secret(void)
{
    errno = EPERM;
    return getenv("SECRET_OF_THE_DAEMON") ? 0 : -1;
}

static void try_amounts(void)
{
    if (sanitized)
        printf("skipped in a build with a sanitizer: the limit of memory\n");
    else {
        TRY(0, "more memory than its limit", beyond_limit());
        TRY(0, "a higher limit of memory", raise_limit(RLIMIT_DATA));
    }
    TRY(HARMLESS | HOST, "shared memory", map(4096, MAP_SHARED));
    TRY(HARMLESS | HOST, "a stack as memory", map(4096, MAP_PRIVATE | MAP_GROWSDOWN));
    TRY(0, "a higher limit of CPU time", raise_limit(RLIMIT_CPU));
    TRY(0, "a higher limit of file size", raise_limit(RLIMIT_FSIZE));
    TRY(0, "a core", raise_limit(RLIMIT_CORE));
    TRY(0, "a plan beyond its limit", grow_plan());
    TRY(0, "another descriptor", use_other_descriptors());
    TRY(HARMLESS, "a secret from the environment", read_secret());
}

/* --- what has to work --- */

static void *thread_run(void *user)
{
    *(int *)user = 1;
    return NULL;
}

static bool status_has(const char *line)
{
    char text[4096] = "";
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    return n > 0 && strstr(text, line);
}

static bool first_for_oom(void)
{
    char text[16] = "";
    int fd = open("/proc/self/oom_score_adj", O_RDONLY);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    return n == 5 && memcmp(text, "1000\n", 5) == 0;
}

static bool generated_code(void)
{
    unsigned char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p != MAP_FAILED && mprotect(p, 4096, PROT_READ | PROT_EXEC) == 0;
}

#define NEED(what, condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s: does not work: %s\n", what, strerrorname_np(errno));                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void need_what_building_needs(void)
{
    pthread_t thread;
    int ran = 0;
    char word[8];
    NEED("a thread", pthread_create(&thread, NULL, thread_run, &ran) == 0);
    NEED("its end", pthread_join(thread, NULL) == 0 && ran);
    NEED("generated code", generated_code());
    NEED("reading the model", pread(MODEL, word, 4, 0) == 4);
    NEED("seeking in the model", lseek(MODEL, 3, SEEK_SET) == 3);
    NEED("writing the plan", write(PLAN, "plan", 4) == 4 && fsync(PLAN) == 0);
    NEED("external data", openat(FOLDER, "file", O_RDONLY | O_NOFOLLOW) >= 0);
    NEED("libraries", open("/usr/lib", O_RDONLY) >= 0);
    NEED("processors", open("/sys/devices/system/cpu/online", O_RDONLY) >= 0);
    NEED("a signal to itself", syscall(SYS_tgkill, getpid(), gettid(), SIGCONT) == 0);
    NEED("no new privileges", status_has("NoNewPrivs:\t1"));
    NEED("a filter", status_has("Seccomp:\t2"));
    NEED("no capability but for reading",
         status_has("CapPrm:\t0000000000000000") || status_has("CapPrm:\t0000000000000004"));
    NEED("no capability in effect",
         status_has("CapEff:\t0000000000000000") || status_has("CapEff:\t0000000000000004"));
    NEED("the first place for the OOM killer", first_for_oom());
    NEED("settings of libraries", getenv("DNNL_PROBE") && !getenv("HOME"));
}

/* --- misbehaviour --- */

static void int80(void)
{
#ifdef __x86_64__
    long result = 20; /* getpid of i386 */
    __asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
    printf("int 0x80: DONE: %ld\n", result);
#else
    raise(SIGSYS);
#endif
}

static void hang(void)
{
    signal(SIGTERM, SIG_IGN);
    printf("hanging\n");
    fclose(stdout);
    close(1);
    close(2);
    for (;;)
        usleep(100000);
}

static void flood(void)
{
    for (;;)
        printf("\033[31mone line of very many\n");
}

static int mode(int argc, char **argv)
{
    if (strcmp(argv[1], "attempts") == 0 && argc == 5) {
        control = strcmp(argv[2], "control") == 0;
        device = strcmp(argv[2], "device") == 0;
        bare = strcmp(argv[2], "cpu-bare") == 0;
        inside = argv[3];
        outside = argv[4];
        try_the_parent();
        try_the_network();
        try_other_processes();
        try_the_kernel();
        try_files();
        try_amounts();
        printf("%u attempts\n", count);
    } else if (strcmp(argv[1], "tries") == 0) {
        return mode(5, (char *[]){argv[0], (char[]){"attempts"}, (char[]){"cpu-bare"},
                                  (char[]){"/tmp"}, (char[]){"/tmp"}, NULL});
    } else if (strcmp(argv[1], "works") == 0) {
        need_what_building_needs();
        printf("all works\n");
    } else if (strcmp(argv[1], "int80") == 0) {
        int80();
    } else if (strcmp(argv[1], "hang") == 0) {
        hang();
    } else if (strcmp(argv[1], "flood") == 0) {
        flood();
    } else if (strcmp(argv[1], "crash") == 0) {
        raise(SIGKILL);
    } else if (strcmp(argv[1], "exit") == 0 && argc == 3) {
        printf("exit %s\n", argv[2]);
        return atoi(argv[2]);
    } else {
        return 99;
    }
    return 0;
}

int main(int argc, char **argv)
{
    char word[64] = "";
    parent = getppid();
    bool is_free = argc > 2 && strcmp(argv[1], "attempts") == 0 && strcmp(argv[2], "control") == 0;
    if (argc < 2 || (!is_free && !handed_seal()))
        return 98;
    if (strcmp(argv[1], "build") != 0)
        return mode(argc, argv);
    if (pread(MODEL, word, sizeof(word) - 1, 0) < 0)
        return 97;
    word[strcspn(word, "\n")] = '\0';
    return mode(2, (char *[]){argv[0], word, NULL});
}
