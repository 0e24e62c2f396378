/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the build child and judges its end; see child.h. */
#include "daemon/child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "daemon/child_args.h"
#include "daemon/child_confine.h"
#include "daemon/child_watch.h"

enum {
    PATH_MAX_ = 4096,
    HANDED = 64 /* inferctl exits with this plus the cause (tools/handed.h) */
};
_Static_assert(HANDED + CAUSE_COUNT_ <= CHILD_NOT_CONFINED, "an exit status has two meanings");

static const uint64_t plan_bytes_max = UINT64_C(64) << 30;

/* --- the program --- */

static int program_open(const char *path)
{
    return access(path, X_OK) == 0 ? open(path, O_PATH | O_CLOEXEC) : -1;
}

/* inferctl is in this program's folder, in the folder beside that (a build tree), or installed. */
static int inferctl_open(void)
{
    static const char *const beside[] = {"inferctl", "../tools/inferctl"};
    static const char *const installed[] = {"/usr/local/bin/inferctl", "/usr/bin/inferctl"};
    char self[PATH_MAX_ - 64], path[PATH_MAX_];
    int fd = -1;
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (len > 0) {
        self[len] = '\0';
        int folder = (int)(strrchr(self, '/') - self);
        for (size_t i = 0; i < ARRAY_LEN(beside) && fd < 0; i++) {
            snprintf(path, sizeof(path), "%.*s/%s", folder, self, beside[i]);
            fd = program_open(path);
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(installed) && fd < 0; i++)
        fd = program_open(installed[i]);
    return fd;
}

/* --- its end --- */

/* Takes over a cause that a child can know of. All others count as INTERNAL. */
static enum cause cause_of_child(int claimed)
{
    static const bool known[CAUSE_COUNT_] = {
        [CAUSE_INVALID_ARGUMENT] = true,    [CAUSE_NOT_FOUND] = true,
        [CAUSE_PERMISSION_DENIED] = true,   [CAUSE_RESOURCE_EXHAUSTED] = true,
        [CAUSE_FAILED_PRECONDITION] = true, [CAUSE_OUT_OF_RANGE] = true,
        [CAUSE_UNIMPLEMENTED] = true,       [CAUSE_UNAVAILABLE] = true,
        [CAUSE_DATA_LOSS] = true,           [CAUSE_OUT_OF_MEMORY] = true,
        [CAUSE_DISK_FULL] = true,           [CAUSE_FILE_CHANGED] = true,
    };
    bool ok = claimed > 0 && claimed < CAUSE_COUNT_ && known[claimed];
    return ok ? (enum cause)claimed : CAUSE_INTERNAL;
}

static enum status child_result(const struct child_watch *watch, struct error *err)
{
    int how = watch->how;
    if (WIFSIGNALED(how))
        return error_set(err, STATUS_INTERNAL, "inferctl build ended by signal %d: %s",
                         WTERMSIG(how), watch->last);
    if (WEXITSTATUS(how) == 0)
        return STATUS_OK;
    if (WEXITSTATUS(how) == CHILD_NOT_EXECUTED)
        return error_set(err, STATUS_INTERNAL, "inferctl could not be started");
    if (WEXITSTATUS(how) == CHILD_NOT_CONFINED)
        return error_set(err, STATUS_INTERNAL,
                         "inferctl could not be confined (seccomp, Landlock)");
    return error_cause(err, cause_of_child(WEXITSTATUS(how) - HANDED), "%s",
                       *watch->last ? watch->last : "inferctl build failed without a word");
}

/* --- from the start --- */

static uint64_t memory_default(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages / 4 * 3 * (uint64_t)size : UINT64_MAX;
}

/* A plan that is kept in memory (tmpfs) may be no larger than the child's memory. */
static struct child_limits limits_of(const struct child_build *build)
{
    struct statfs fs;
    struct child_limits limits = {
        .cpu_s = (uint64_t)build->timeout_s * (build->threads + 1),
        .memory_bytes = build->memory_bytes ? build->memory_bytes : memory_default(),
        .file_bytes = plan_bytes_max,
    };
    if (fstatfs(build->plan_fd, &fs) != 0 || fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC)
        limits.file_bytes = MIN(limits.memory_bytes, plan_bytes_max);
    return limits;
}

static enum status child_start(struct child_confinement *c, char *const *argv, char *const *envp,
                               int *in, pid_t *pid, struct error *err)
{
    int ends[2];
    pid_t self = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0)
        return error_errno(err, errno, "pipe");
    *pid = fork();
    if (*pid == 0)
        child_confine(c, self, ends[1], argv, envp);
    int why = errno;
    close(ends[1]);
    if (*pid < 0) {
        close(ends[0]);
        return error_errno(err, why, "fork");
    }
    *in = ends[0];
    return STATUS_OK;
}

static enum status run_confined(const struct child_build *build, struct child_confinement *c,
                                char *const *argv, char *const *envp, struct error *err)
{
    struct child_watch watch = {
        .log = build->log, .stop = build->stop, .timeout_s = build->timeout_s};
    pid_t pid = -1;
    int in = -1;
    TRY(child_confinement_init(c, err));
    if (c->rules < 0)
        log_write(build->log, LOG_INFO,
                  "build: Landlock is not available here: only the list of system calls confines "
                  "the child");
    TRY(child_start(c, argv, envp, &in, &pid, err));
    TRY(child_watch(&watch, pid, in, err));
    return child_result(&watch, err);
}

enum status child_run(const struct child_build *build, int program, char *const *argv,
                      struct error *err)
{
    CLEANUP(cleanup_free) struct child_confinement *c = malloc(sizeof(*c));
    CLEANUP(cleanup_free) char **envp = child_environment_new();
    if (!c || !envp)
        return error_no_memory(err, "a child");
    c->given = (struct child_given){
        .program = program,
        .model = build->model_fd,
        .plan = build->plan_fd,
        .folder = build->folder,
        .device = strcmp(build->device, "cpu") != 0,
        .limits = limits_of(build),
    };
    enum status status = run_confined(build, c, argv, envp, err);
    child_confinement_deinit(c);
    return status;
}

enum status child_build(const struct child_build *build, struct error *err)
{
    CLEANUP(cleanup_free) struct child_args *args = malloc(sizeof(*args));
    if (!args || !child_args_init(args, build))
        return error_no_memory(err, "a child");
    CLEANUP(cleanup_close) int program = inferctl_open();
    enum status status = program >= 0
                             ? child_run(build, program, args->argv, err)
                             : error_set(err, STATUS_INTERNAL, "inferctl could not be found");
    child_args_deinit(args);
    return status;
}
