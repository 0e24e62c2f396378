/* SPDX-License-Identifier: Apache-2.0 */
/* The parsed form of a fault script; fault.h has its grammar. */
#ifndef INFERD_ENGINE_RUNTIME_FAULT_SCRIPT_H
#define INFERD_ENGINE_RUNTIME_FAULT_SCRIPT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum { FAULT_RULES_MAX = 32, FAULT_BACKEND_MAX = 32 };

enum fault_point {
    FAULT_MEMORY,
    FAULT_PREPARE,
    FAULT_LAUNCH,
    FAULT_COPY,
    FAULT_WAIT,
    FAULT_POINTS_
};

enum fault_action {
    FAULT_DELAY,
    FAULT_HANG,
    FAULT_FAIL,
    FAULT_MODEL,
    FAULT_OOM,
    FAULT_SHORT,
    FAULT_DEVICE,
};

struct fault_rule {
    enum fault_point point;
    enum fault_action action;
    uint64_t first, last; /* calls, counted from 1 */
    uint64_t delay_ns;    /* DELAY */
    enum status status;   /* FAIL */
};

struct fault_script {
    char backend[FAULT_BACKEND_MAX];
    bool apart;
    uint32_t n_rules;
    struct fault_rule rules[FAULT_RULES_MAX];
};

/* NULL: nothing is injected. */
enum status fault_script_parse(const char *text, struct fault_script *out, struct error *err);

#endif
