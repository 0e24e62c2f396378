/* SPDX-License-Identifier: Apache-2.0 */
/* See standard.h. */
#include "base/standard.h"

#include <errno.h>

enum status standard_flush(FILE *output, struct error *err)
{
    if (fflush(output))
        return error_errno(err, errno, "standard output");
    if (ferror(output)) /* an earlier write failed, and its reason is gone */
        return error_set(err, STATUS_UNKNOWN, "standard output: not all could be written");
    return STATUS_OK;
}
