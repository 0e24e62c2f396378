/* SPDX-License-Identifier: Apache-2.0 */
/* See restart.h. */
#include "base/restart.h"

#include <stdlib.h>
#include <unistd.h>

void restart_with_env(const char *name, const char *value, char **argv)
{
    if (getenv(name) || setenv(name, value, 1))
        return;
    execv("/proc/self/exe", argv);
}
