/* SPDX-License-Identifier: Apache-2.0 */
/* See method.h. */
#include "engine/quant/method.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"

#define PERCENTILE 99.99

static const char *const methods[] = {"minmax", "percentile", "entropy"};

static enum status read_percentile(const char *text, double *out, struct error *err)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value > 0 && value <= 100))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "percentile: a number above 0 and at most 100 was expected, not '%.40s'",
                         text);
    *out = value;
    return STATUS_OK;
}

enum status quant_method_parse(const char *text, enum quant_method *method, double *percentile,
                               struct error *err)
{
    size_t n = strcspn(text, "=");
    struct names names;
    names_init(&names, text, n);
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        names_add(&names, methods[i]);
        if (strlen(methods[i]) != n || strncmp(methods[i], text, n) != 0)
            continue;
        if (text[n] && i != QUANT_PERCENTILE)
            return error_set(err, STATUS_INVALID_ARGUMENT, "method '%.40s': %s takes no value",
                             text, methods[i]);
        double value = PERCENTILE;
        if (text[n])
            TRY(read_percentile(text + n + 1, &value, err));
        *method = (enum quant_method)i;
        *percentile = value;
        return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID_ARGUMENT, "method '%.40s': there are %s", text,
                     names_text(&names));
}

void quant_method_format(enum quant_method method, double percentile, char text[32])
{
    if (method == QUANT_PERCENTILE)
        snprintf(text, 32, "percentile=%.10g", percentile);
    else
        snprintf(text, 32, "%s", methods[method]);
}
