/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors on the command line; see handed.h. */
#include "tools/handed.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/compiler.h"

/* The number at *text, which is moved behind it; -1: there are no digits, or too many. */
static int number(const char **text)
{
    size_t n = strspn(*text, "0123456789");
    int value = 0;
    if (n == 0 || n > 6)
        return -1;
    for (size_t i = 0; i < n; i++)
        value = value * 10 + ((*text)[i] - '0');
    *text += n;
    return value;
}

bool handed_parse(const char *text, struct handed *out)
{
    const char *at = text + strlen("fd:");
    if (strncmp(text, "fd:", strlen("fd:")) != 0)
        return false;
    struct handed h = {.fd = number(&at), .folder = -1, .name = text};
    if (h.fd < 0)
        return false;
    if (*at == ',') {
        at++;
        h.folder = number(&at);
        if (h.folder < 0)
            return false;
    }
    if (*at == ':')
        h.name = at + 1;
    else if (*at)
        return false;
    *out = h;
    return true;
}

/* Adds a filter of its own, because the daemon's has to let pass the call that starts this program.
 * The daemon's filter also ends processes that use another architecture's numbers. */
bool handed_seal(void)
{
    static const struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execve, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execveat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = ARRAY_LEN(code),
                                       .filter = (struct sock_filter *)(uintptr_t)code};
    prctl(PR_SET_NAME, "inferctl"); /* otherwise its name would be a descriptor's number */
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}
