/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kernels_cuda/left_out.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/test.h"
#include "tests/unit/kernels_cuda/probe.h"

static bool found(left_out_run run, const void *user, int site, bool weaker)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(0);
        probe_leave_out(site, weaker);
        _exit(run(user));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

int left_out_all(const char *what, left_out_run run, const void *user)
{
    int first = probe_sites(), faults = 0;
    assert_int_equal(run(user), 0);
    for (int site = first; site < probe_sites(); site++)
        for (int weaker = 0; weaker <= (int)probe_site_counts(site); weaker++, faults++)
            if (!found(run, user, site, weaker != 0))
                fail_msg("%s without %s (place %d, weaker %d) is not found", what, probe_site(site),
                         site - first, weaker);
    return faults;
}
