/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as people read them: three digits, and the unit that makes them short. */
#include <math.h>
#include <stdio.h>

#include "daemon/monitor/page.h"

static const char *scaled(double value, double step, const char *const *units,
                          char out[PAGE_NUMBER])
{
    if (isnan(value)) {
        snprintf(out, PAGE_NUMBER, "-");
        return out;
    }
    for (; value >= 0.9995 * step && units[1]; units++)
        value /= step;
    int digits = value == floor(value) ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(out, PAGE_NUMBER, "%.*f%s", digits, value, *units);
    return out;
}

const char *page_amount(double value, char out[PAGE_NUMBER])
{
    static const char *const units[] = {"", " k", " M", " G", " T", NULL};
    return scaled(value, 1000, units, out);
}

const char *page_bytes(double bytes, char out[PAGE_NUMBER])
{
    static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB", NULL};
    return scaled(bytes, 1024, units, out);
}

const char *page_time(double ns, char out[PAGE_NUMBER])
{
    static const char *const units[] = {" ns", " µs", " ms", " s", NULL};
    return scaled(ns, 1000, units, out);
}

const char *page_percent(double share, char out[PAGE_NUMBER])
{
    static const char *const units[] = {" %", NULL};
    return scaled(share * 100, 1e9, units, out);
}

const char *page_span(double seconds, char out[PAGE_NUMBER])
{
    unsigned long long s = (unsigned long long)seconds;
    if (s >= 86400)
        snprintf(out, PAGE_NUMBER, "%llu d %llu h", s / 86400, s % 86400 / 3600);
    else if (s >= 3600)
        snprintf(out, PAGE_NUMBER, "%llu h %llu min", s / 3600, s % 3600 / 60);
    else if (s >= 60)
        snprintf(out, PAGE_NUMBER, "%llu min %llu s", s / 60, s % 60);
    else
        snprintf(out, PAGE_NUMBER, "%llu s", s);
    return out;
}
