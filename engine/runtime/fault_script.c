/* SPDX-License-Identifier: Apache-2.0 */
/* Text -> rules; see fault.h. */
#include "engine/runtime/fault_script.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"

static const char *const points[FAULT_POINTS_] = {"memory", "prepare", "launch", "copy", "wait"};

static const struct {
    const char *name;
    enum fault_action action;
} actions[] = {
    {"delay=", FAULT_DELAY}, {"hang", FAULT_HANG}, {"fail=", FAULT_FAIL},  {"fail", FAULT_FAIL},
    {"model", FAULT_MODEL},  {"oom", FAULT_OOM},   {"short", FAULT_SHORT}, {"device", FAULT_DEVICE},
};

static const struct {
    const char *name;
    uint64_t ns;
} units[] = {{"us", NS_PER_US}, {"ms", NS_PER_MS}, {"s", NS_PER_S}};

/* Reads the digits at *text and moves *text behind them. */
static bool parse_number(const char **text, uint64_t *out)
{
    char *end;
    if (**text < '0' || **text > '9' || strspn(*text, "0123456789") > 9)
        return false;
    *out = strtoull(*text, &end, 10);
    *text = end;
    return true;
}

static bool parse_delay(const char *text, uint64_t *ns)
{
    uint64_t n;
    if (!parse_number(&text, &n))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (!strcmp(text, units[i].name)) {
            *ns = n * units[i].ns;
            return true;
        }
    return false;
}

static bool parse_status(const char *text, enum status *status)
{
    for (int i = STATUS_OK + 1; i < STATUS_COUNT_; i++)
        if (!strcasecmp(text, status_name((enum status)i))) {
            *status = (enum status)i;
            return true;
        }
    return false;
}

static bool parse_action(const char *text, struct fault_rule *rule)
{
    for (size_t i = 0; i < ARRAY_LEN(actions); i++) {
        size_t len = strlen(actions[i].name);
        if (strncmp(text, actions[i].name, len) != 0)
            continue;
        rule->action = actions[i].action;
        text += len;
        if (actions[i].name[len - 1] != '=')
            return !*text && (rule->action != FAULT_SHORT || rule->point == FAULT_COPY);
        return rule->action == FAULT_DELAY ? parse_delay(text, &rule->delay_ns)
                                           : parse_status(text, &rule->status);
    }
    return false;
}

static bool parse_rule(const char *text, struct fault_rule *rule)
{
    *rule = (struct fault_rule){.first = 1, .last = UINT64_MAX, .status = STATUS_INTERNAL};
    size_t len = strcspn(text, "#:"), i = 0;
    while (i < FAULT_POINTS_ && (strlen(points[i]) != len || memcmp(points[i], text, len) != 0))
        i++;
    if (i == FAULT_POINTS_)
        return false;
    rule->point = (enum fault_point)i;
    text += len;
    if (*text == '#') {
        text++;
        if (!parse_number(&text, &rule->first) || rule->first == 0)
            return false;
        if (*text == '+')
            text++;
        else
            rule->last = rule->first;
    }
    return *text == ':' && parse_action(text + 1, rule);
}

static bool parse_clause(const char *text, struct fault_script *script)
{
    if (!strncmp(text, "on=", 3)) {
        if (!text[3] || strlen(text + 3) >= sizeof(script->backend))
            return false;
        memcpy(script->backend, text + 3, strlen(text + 3) + 1);
        return true;
    }
    if (!strcmp(text, "apart"))
        return script->apart = true;
    if (script->n_rules == FAULT_RULES_MAX || !parse_rule(text, &script->rules[script->n_rules]))
        return false;
    script->n_rules++;
    return true;
}

enum status fault_script_parse(const char *text, struct fault_script *out, struct error *err)
{
    struct fault_script script = {.backend = "cpu"};
    while (text && *text) {
        char clause[128];
        size_t len = strcspn(text, ";");
        if (len >= sizeof(clause))
            return error_set(err, STATUS_INVALID_ARGUMENT, "fault script: a clause is too long");
        memcpy(clause, text, len);
        clause[len] = '\0';
        if (len && !parse_clause(clause, &script))
            return error_set(err, STATUS_INVALID_ARGUMENT, "fault script: cannot read '%s'",
                             clause);
        text += len + (text[len] == ';');
    }
    *out = script;
    return STATUS_OK;
}
