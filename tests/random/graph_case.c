/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/random/graph_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double worst_share;

double case_worst_share(void)
{
    return worst_share;
}

/* --- reading --- */

static enum status read_values(const char *folder, uint32_t set, const char *kind,
                               struct case_value *values, uint32_t *n, struct error *err)
{
    char path[CASE_PATH_MAX + 64];
    for (uint32_t i = 0; i < IR_MAX_IO; i++) {
        snprintf(path, sizeof(path), "%s/set_%u/%s_%u.pb", folder, set, kind, i);
        if (access(path, R_OK))
            continue;
        enum status status = onnx_tensor_read(path, &values[i].view, &values[i].name, err);
        if (status)
            return status;
        if (n)
            *n = i + 1;
    }
    return STATUS_OK;
}

static enum status read_list(struct graph_case *c, struct error *err)
{
    char path[CASE_PATH_MAX + 16], word[16];
    unsigned value;
    snprintf(path, sizeof(path), "%s/case.txt", c->folder);
    FILE *file = fopen(path, "r");
    if (!file)
        return error_set(err, STATUS_NOT_FOUND, "%s: cannot be read", path);
    while (fscanf(file, "%15s %u", word, &value) == 2) {
        if (!strcmp(word, "profile") && c->n_profiles < CASE_SETS_MAX)
            c->profiles[c->n_profiles++] = value;
        else if (!strcmp(word, "set") && c->n_sets < CASE_SETS_MAX)
            c->sets[c->n_sets++].batch = value;
    }
    fclose(file);
    return c->n_sets ? STATUS_OK : error_set(err, STATUS_DATA_LOSS, "%s: no data sets", path);
}

enum status graph_case_init(struct graph_case *c, const char *folder, struct error *err)
{
    char path[CASE_PATH_MAX + 16];
    memset(c, 0, sizeof(*c));
    snprintf(c->folder, sizeof(c->folder), "%s", folder);
    enum status status = read_list(c, err);
    for (uint32_t k = 0; k < c->n_sets && !status; k++) {
        struct case_set *set = &c->sets[k];
        status = read_values(folder, k, "input", set->inputs, &set->n_inputs, err);
        if (!status)
            status = read_values(folder, k, "output", set->outputs, &set->n_outputs, err);
        if (!status)
            status = read_values(folder, k, "tolerance", set->tolerances, NULL, err);
    }
    snprintf(path, sizeof(path), "%s/model.onnx", folder);
    return status ? status : onnx_open(path, &c->model, err);
}

static void values_free(struct case_value *values)
{
    for (uint32_t i = 0; i < IR_MAX_IO; i++) {
        free(values[i].name);
        free(values[i].view.data);
    }
}

void graph_case_deinit(struct graph_case *c)
{
    for (uint32_t k = 0; k < CASE_SETS_MAX; k++) {
        values_free(c->sets[k].inputs);
        values_free(c->sets[k].outputs);
        values_free(c->sets[k].tolerances);
    }
    if (c->model)
        onnx_close(c->model);
}

/* --- comparing --- */

const void *case_set_input(const struct case_set *set, const char *name, enum dtype dtype,
                           const struct shape *shape)
{
    for (uint32_t i = 0; i < set->n_inputs; i++) {
        const struct case_value *v = &set->inputs[i];
        if (v->name && !strcmp(v->name, name))
            return v->view.dtype == dtype && shape_equal(&v->view.shape, shape) ? v->view.data
                                                                                : NULL;
    }
    return NULL;
}

static double number(enum dtype dtype, const void *data, size_t i)
{
    switch (dtype) {
    case DTYPE_F16:
        return f16_to_f32(((const uint16_t *)data)[i]);
    case DTYPE_BF16:
        return bf16_to_f32(((const uint16_t *)data)[i]);
    case DTYPE_F32:
        return ((const float *)data)[i];
    default:
        return ((const double *)data)[i];
    }
}

/* The error as a share of what is allowed. */
static double share(double have, double want, double tolerance)
{
    if (isnan(have) || isnan(want))
        return isnan(have) && isnan(want) ? 0 : INFINITY;
    return have == want ? 0 : fabs(have - want) / tolerance;
}

static enum status check_floats(const struct case_value *want, const double *tolerance,
                                const void *have, size_t n, struct error *err)
{
    double worst = 0;
    size_t at = 0, wrong = 0;
    for (size_t i = 0; i < n; i++) {
        double s = share(number(want->view.dtype, have, i),
                         number(want->view.dtype, want->view.data, i), tolerance[i]);
        wrong += s > 1;
        if (s > worst) {
            worst = s;
            at = i;
        }
    }
    if (worst > 1)
        return error_set(err, STATUS_INTERNAL,
                         "%s[%zu] is %.9g, expected %.9g within %.2g; %zu of %zu are wrong",
                         want->name, at, number(want->view.dtype, have, at),
                         number(want->view.dtype, want->view.data, at), tolerance[at], wrong, n);
    if (worst > worst_share)
        worst_share = worst;
    return STATUS_OK;
}

static enum status check_exact(const struct case_value *want, const uint8_t *have, size_t n,
                               struct error *err)
{
    size_t size = dtype_size(want->view.dtype);
    const uint8_t *bytes = want->view.data;
    for (size_t i = 0; i < n; i++) {
        if (!memcmp(bytes + i * size, have + i * size, size))
            continue;
        long long x = 0, y = 0;
        memcpy(&x, have + i * size, size);
        memcpy(&y, bytes + i * size, size);
        return error_set(err, STATUS_INTERNAL, "%s[%zu] has bits 0x%llx, expected 0x%llx",
                         want->name, i, x, y);
    }
    return STATUS_OK;
}

enum status case_set_check(const struct case_set *set, const char *name, enum dtype dtype,
                           const struct shape *shape, const void *data, struct error *err)
{
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    uint32_t i = 0;
    size_t n;
    while (i < set->n_outputs && strcmp(set->outputs[i].name, name) != 0)
        i++;
    if (i == set->n_outputs)
        return error_set(err, STATUS_INTERNAL, "there should be no output '%s'", name);
    const struct case_value *want = &set->outputs[i];
    if (dtype != want->view.dtype || !shape_equal(shape, &want->view.shape))
        return error_set(err, STATUS_INTERNAL, "%s is %s %s, expected %s %s", name,
                         dtype_name(dtype), shape_format(shape, a), dtype_name(want->view.dtype),
                         shape_format(&want->view.shape, b));
    if (!shape_elements(shape, &n))
        return error_set(err, STATUS_INTERNAL, "%s has no element count", name);
    const struct case_value *tolerance = &set->tolerances[i];
    if (dtype_is_float(dtype) && tolerance->view.data)
        return check_floats(want, tolerance->view.data, data, n, err);
    return check_exact(want, data, n, err);
}
