/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells static analysers that functions that set an error never return STATUS_OK. An analyser looks
 * at one file at a time, so without this it considers every return value of a function from another
 * file possible. scripts/analyze puts this file before each source; no compiler sees it.
 */
#ifndef INFERD_TESTS_ANALYSIS_ASSUME_H
#define INFERD_TESTS_ANALYSIS_ASSUME_H

#include "base/error.h"

static inline enum status assume_failed(enum status status)
{
    if (status == STATUS_OK)
        __builtin_unreachable();
    return status;
}

#define error_set(...)       assume_failed(error_set(__VA_ARGS__))
#define error_setv(...)      assume_failed(error_setv(__VA_ARGS__))
#define error_errno(...)     assume_failed(error_errno(__VA_ARGS__))
#define error_no_memory(...) assume_failed(error_no_memory(__VA_ARGS__))

#endif
