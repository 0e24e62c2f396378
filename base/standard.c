/* SPDX-License-Identifier: Apache-2.0 */
/* See standard.h. */
#include "base/standard.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* The lowest free number is what open takes. All three stay open over an exec. */
void standard_open(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

enum status standard_flush(FILE *output, struct error *err)
{
    if (fflush(output))
        return error_errno(err, errno, "standard output");
    if (ferror(output)) /* an earlier write failed, and its reason is gone */
        return error_set(err, STATUS_UNKNOWN, "standard output: not all could be written");
    return STATUS_OK;
}
