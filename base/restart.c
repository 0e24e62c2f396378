/* SPDX-License-Identifier: Apache-2.0 */
/* See restart.h. */
#include "base/restart.h"

#include <stdlib.h>
#include <unistd.h>

void restart_for_openmp(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT"))
        return;
    if (setenv("OMP_WAIT_POLICY", "passive", 1) || setenv("GOMP_SPINCOUNT", RESTART_SPINS, 1))
        return;
    execv("/proc/self/exe", argv);
}
