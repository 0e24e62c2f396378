/* SPDX-License-Identifier: Apache-2.0 */
/* The lists, and the BPF program for seccomp that is made of them; see child_filter.h. */
#include "daemon/child_filter.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/compiler.h"

#if defined(__x86_64__)
#define AUDIT_ARCH_HERE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define AUDIT_ARCH_HERE AUDIT_ARCH_AARCH64
#else
#error "name this architecture for seccomp"
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the low half of an argument is expected first"
#endif

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif

enum { X32_BIT = 0x40000000 };

struct rule {
    int number;
    enum { ALWAYS, MASKED, OWN_PID, OWN_OR_LATER, PROGRAM, FAILS } when;
    unsigned arg; /* the argument to compare: its low half, in these calls all of it */
    /* MASKED: (argument & mask) == value. FAILS: the call fails with the error `value`, at which
     * callers do without it; at EPERM they would give up. */
    uint32_t mask, value;
};

#define ANY(call)                                                                                  \
    {                                                                                              \
        SYS_##call, ALWAYS, 0, 0, 0                                                                \
    }
#define BITS(call, arg, mask, of)                                                                  \
    {                                                                                              \
        SYS_##call, MASKED, (arg), (uint32_t)(mask), (uint32_t)(of)                                \
    }
#define ONLY(call, arg, value) BITS(call, arg, ~0U, value)
#define SELF(call, arg)                                                                            \
    {                                                                                              \
        SYS_##call, OWN_PID, (arg), 0, 0                                                           \
    }

/* A new thread shares everything with its process, so it has all of THREAD_FLAGS. The bits of
 * CLONE_FORBIDDEN make namespaces and processes. */
enum {
    THREAD_FLAGS = CLONE_THREAD | CLONE_VM | CLONE_SIGHAND | CLONE_FILES | CLONE_FS,
    CLONE_FORBIDDEN = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
                      CLONE_NEWPID | CLONE_NEWNET | CLONE_PTRACE | CLONE_UNTRACED | CLONE_VFORK |
                      CLONE_PARENT | CLONE_PIDFD,
    OPEN_WRITES = O_ACCMODE | O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY),
};

static const struct rule common_rules[] = {
    /* memory, threads, the end */
    ANY(brk),
    ANY(munmap),
    ANY(mremap),
    ANY(mprotect), /* generated code: oneDNN's kernels */
    ANY(madvise),
    ANY(mincore),
    BITS(clone, 0, THREAD_FLAGS | CLONE_FORBIDDEN, THREAD_FLAGS),
    {SYS_clone3, FAILS, 0, 0, ENOSYS},
    ANY(set_tid_address),
    ANY(set_robust_list),
#ifdef SYS_rseq
    ANY(rseq),
#endif
    ANY(membarrier),
    ANY(futex),
    ANY(sched_yield),
    ANY(sched_getaffinity),
    ANY(sched_getparam),
    ANY(sched_getscheduler),
    ANY(getcpu),
    ANY(exit),
    ANY(exit_group),
    /* signals: to itself */
    ANY(rt_sigaction),
    ANY(rt_sigprocmask),
    ANY(rt_sigreturn),
    ANY(sigaltstack),
    ANY(restart_syscall),
    SELF(tgkill, 0),
    /* about itself */
    ANY(getpid),
    ANY(gettid),
    ANY(getppid),
    ANY(getuid),
    ANY(geteuid),
    ANY(getgid),
    ANY(getegid),
    ANY(getrusage),
    ANY(uname),
    ANY(sysinfo),
    ANY(getrandom),
    ONLY(prlimit64, 0, 0), /* 0: itself */
    SELF(prlimit64, 0),
    ONLY(prctl, 0, PR_SET_NAME),
    ONLY(prctl, 0, PR_GET_NAME),
    ONLY(prctl, 0, PR_SET_VMA),
    ONLY(prctl, 0, PR_SET_NO_NEW_PRIVS),
    ONLY(prctl, 0, PR_SET_SECCOMP), /* another filter only takes away */
    /* time */
    ANY(clock_gettime),
    ANY(clock_getres),
    ANY(clock_nanosleep),
    ANY(nanosleep),
    ANY(gettimeofday),
    /* files */
    ANY(read),
    ANY(readv),
    ANY(pread64),
    ANY(write),
    ANY(writev),
    ANY(pwrite64),
    ANY(lseek),
    ANY(close),
    ANY(dup),
    ANY(dup3),
    ANY(fstat),
    ANY(newfstatat),
    ANY(statx),
    ANY(statfs),
    ANY(fstatfs),
    ANY(faccessat),
    ANY(faccessat2),
    ANY(readlinkat),
    ANY(getdents64),
    ANY(getcwd),
    ANY(fsync),
    ANY(fdatasync),
    ANY(ftruncate),
    {SYS_openat2, FAILS, 0, 0, ENOSYS},
    /* fcntl: no owners, who would be sent signals, nor leases or locks on the daemon's files */
    ONLY(fcntl, 1, F_DUPFD),
    ONLY(fcntl, 1, F_DUPFD_CLOEXEC),
    ONLY(fcntl, 1, F_GETFD),
    ONLY(fcntl, 1, F_SETFD),
    ONLY(fcntl, 1, F_GETFL),
    ONLY(ioctl, 1, TCGETS),
    ONLY(ioctl, 1, TIOCGWINSZ),
#ifdef __x86_64__
    ANY(arch_prctl),
    ANY(time),
    ANY(stat),
    ANY(lstat),
    ANY(access),
    ANY(readlink),
    ANY(dup2),
#endif
    {SYS_execveat, PROGRAM, 0, 0, 0},
};

static const struct rule host_rules[] = {
    /* No limit counts shared memory and memory that grows like a stack, so the child gets none. */
    BITS(mmap, 3, MAP_SHARED | MAP_GROWSDOWN, 0),
    BITS(openat, 2, OPEN_WRITES, O_RDONLY),
#ifdef __x86_64__
    BITS(open, 1, OPEN_WRITES, O_RDONLY),
#endif
};

/* What NVIDIA's driver needs beyond the common rules. Its devices are opened for writing and
 * mapped; it names threads through /proc; unified memory takes a memory file and a socket of its
 * own, over which it speaks to nobody here. The numbers of its ioctls are in its published sources
 * (nv-ioctl-numbers.h, uvm_ioctl.h, uvm_linux_ioctl.h). */
static const struct rule device_rules[] = {
    ANY(mmap),
    ANY(openat),
#ifdef __x86_64__
    ANY(open),
    ANY(poll),
    ANY(pipe),
    ANY(select),
    ANY(epoll_create),
    ANY(epoll_wait),
    ANY(eventfd),
#endif
    BITS(ioctl, 1, 0xff00, 'F' << 8),
    BITS(ioctl, 1, 0xff00, 'm' << 8),
    BITS(ioctl, 1, ~0xffU, 0),
    BITS(ioctl, 1, ~0xfU, 0x30000000),
    ONLY(ioctl, 1, FIONREAD),
    ONLY(ioctl, 1, FIONBIO),
    ONLY(fcntl, 1, F_SETFL),
    ONLY(fcntl, 1, F_ADD_SEALS),
    ONLY(fcntl, 1, F_GET_SEALS),
    ANY(memfd_create),
    ANY(fallocate),
    ANY(mlock),
    ANY(mlock2),
    ANY(munlock),
    ANY(msync),
    ANY(mbind),
    ANY(get_mempolicy),
    ANY(set_mempolicy),
    ONLY(sched_setaffinity, 0, 0),
    /* The child may bind its own threads, which are younger than itself and so have higher numbers;
     * the daemon's have lower ones. The filter can compare nothing but numbers. */
    {SYS_sched_setaffinity, OWN_OR_LATER, 0, 0, 0},
    ANY(sched_get_priority_max),
    ANY(sched_get_priority_min),
    ANY(ppoll),
    ANY(pselect6),
    ANY(pipe2),
    ANY(eventfd2),
    ANY(epoll_create1),
    ANY(epoll_ctl),
    ANY(epoll_pwait),
    /* The driver asks whether MPS runs, and gives up on any answer but that nobody is there. */
    {SYS_connect, FAILS, 0, 0, ECONNREFUSED},
    {SYS_symlinkat, FAILS, 0, 0, EACCES},
    {SYS_unlinkat, FAILS, 0, 0, ENOENT},
#ifdef __x86_64__
    {SYS_symlink, FAILS, 0, 0, EACCES},
    {SYS_unlink, FAILS, 0, 0, ENOENT},
#endif
    ONLY(socket, 0, AF_UNIX),
    ONLY(socketpair, 0, AF_UNIX),
    ANY(bind),
    ANY(listen),
    ANY(accept4),
    ANY(getsockname),
    ANY(getsockopt),
    ANY(setsockopt),
    ANY(shutdown),
    ANY(recvmsg),
    ANY(recvfrom),
};

static void put(struct child_filter *filter, unsigned code, uint32_t k, unsigned if_true,
                unsigned if_false)
{
    assert(filter->len < CHILD_FILTER_MAX); /* the tables are in this file */
    filter->code[filter->len++] = (struct sock_filter){.code = (unsigned short)code,
                                                       .jt = (unsigned char)if_true,
                                                       .jf = (unsigned char)if_false,
                                                       .k = k};
}

static void put_return(struct child_filter *filter, uint32_t what)
{
    put(filter, BPF_RET | BPF_K, what, 0, 0);
}

static void put_load(struct child_filter *filter, size_t offset)
{
    put(filter, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void put_argument(struct child_filter *filter, unsigned arg)
{
    put_load(filter, offsetof(struct seccomp_data, args) + arg * sizeof(uint64_t));
}

/* Lets the call through if the number that is loaded equals `value`; else the next rule follows. */
static void put_equal(struct child_filter *filter, uint32_t value)
{
    put(filter, BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
    put_return(filter, SECCOMP_RET_ALLOW);
}

/* Writes the condition of one rule. Between rules the call's number is loaded. */
static void put_condition(struct child_filter *filter, const struct rule *rule, int program_at)
{
    switch (rule->when) {
    case ALWAYS:
        put_return(filter, SECCOMP_RET_ALLOW);
        return;
    case FAILS:
        put_return(filter, SECCOMP_RET_ERRNO | rule->value);
        return;
    case MASKED:
        put_argument(filter, rule->arg);
        put(filter, BPF_ALU | BPF_AND | BPF_K, rule->mask, 0, 0);
        put_equal(filter, rule->value);
        break;
    case OWN_PID:
        assert(filter->n_pids < CHILD_FILTER_PIDS_MAX);
        put_argument(filter, rule->arg);
        filter->pids[filter->n_pids++] = filter->len;
        put_equal(filter, 0);
        break;
    case OWN_OR_LATER:
        assert(filter->n_pids < CHILD_FILTER_PIDS_MAX);
        put_argument(filter, rule->arg);
        filter->pids[filter->n_pids++] = filter->len;
        put(filter, BPF_JMP | BPF_JGE | BPF_K, 0, 0, 1);
        put_return(filter, SECCOMP_RET_ALLOW);
        break;
    case PROGRAM: /* the descriptor itself, not a path that starts there */
        put_argument(filter, 4);
        put(filter, BPF_JMP | BPF_JEQ | BPF_K, AT_EMPTY_PATH, 0, 3);
        put_argument(filter, 0);
        put_equal(filter, (uint32_t)program_at);
        break;
    }
    put_load(filter, offsetof(struct seccomp_data, nr));
}

static void put_rules(struct child_filter *filter, const struct rule *rules, size_t n,
                      int program_at)
{
    for (size_t i = 0; i < n; i++) {
        unsigned short at = filter->len;
        put(filter, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)rules[i].number, 0, 0);
        put_condition(filter, &rules[i], program_at);
        filter->code[at].jf = (unsigned char)(filter->len - at - 1);
    }
}

void child_filter_init(struct child_filter *filter, bool device, int program_at)
{
    filter->len = filter->n_pids = 0;
    put_load(filter, offsetof(struct seccomp_data, arch));
    put(filter, BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_HERE, 1, 0);
    put_return(filter, SECCOMP_RET_KILL_PROCESS);
    put_load(filter, offsetof(struct seccomp_data, nr));
    put(filter, BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1);
    put_return(filter, SECCOMP_RET_ERRNO | EPERM);
    put_rules(filter, common_rules, ARRAY_LEN(common_rules), program_at);
    if (device)
        put_rules(filter, device_rules, ARRAY_LEN(device_rules), program_at);
    else
        put_rules(filter, host_rules, ARRAY_LEN(host_rules), program_at);
    put_return(filter, SECCOMP_RET_ERRNO | EPERM);
}

bool child_filter_enter(struct child_filter *filter, pid_t self)
{
    for (unsigned short i = 0; i < filter->n_pids; i++)
        filter->code[filter->pids[i]].k = (uint32_t)self;
    const struct sock_fprog program = {.len = filter->len, .filter = filter->code};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}
