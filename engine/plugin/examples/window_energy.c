/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plugin of two ops for the CPU, in the domain example.inferd:
 *
 *   WindowEnergy(X[..,T]) -> E[..,1+(T-size)/stride], peak[..]   attributes size and stride
 *       the mean square of each window of X's last dimension, and the largest of them
 *   Rank(X[N,C]) -> Y[N,C]   attribute order: "ascending" (default) or "descending"
 *       the place that each number has in its row: INT32, 0 for the first; equal ones in order
 *
 *   cc -shared -fPIC -O2 window_energy.c -o window_energy.so $(pkg-config --cflags inferd-engine)
 *   inferctl run model.onnx --plugin window_energy.so
 *
 * WindowEnergy has two kernels: the reference adds up each window, `sliding` adds what comes and
 * takes away what goes, in FP64. The tuner times both.
 */
#include <stdio.h>
#include <string.h>

#include <inferd_plugin.h>

/* --- attributes --- */

static const struct inferd_plugin_attr *attr(const struct inferd_plugin_node *node,
                                             const char *name)
{
    for (uint32_t i = 0; i < node->n_attrs; i++)
        if (!strcmp(node->attrs[i].name, name))
            return &node->attrs[i];
    return NULL;
}

static int64_t whole(const struct inferd_plugin_node *node, const char *name, int64_t fallback)
{
    const struct inferd_plugin_attr *a = attr(node, name);
    return a && a->kind == INFERD_PLUGIN_INTS && a->count == 1 ? a->ints[0] : fallback;
}

static int says(const struct inferd_plugin_attr *a, const char *word)
{
    const char *said = a->text;
    return a->kind == INFERD_PLUGIN_TEXT && a->count == strlen(word) &&
           !memcmp(said, word, a->count);
}

/* --- WindowEnergy --- */

static int64_t length(const struct inferd_plugin_tensor *x)
{
    return x->dim[x->rank - 1];
}

static int64_t rows_of(const struct inferd_plugin_tensor *x)
{
    int64_t n = 1;
    for (uint32_t i = 0; i + 1 < x->rank; i++)
        n *= x->dim[i];
    return n;
}

static int infer_energy(const struct inferd_plugin_node *node, struct inferd_plugin_tensor *outputs,
                        uint32_t *n_outputs, char *why, size_t why_size)
{
    int64_t size = whole(node, "size", 0), stride = whole(node, "stride", 1);
    const struct inferd_plugin_tensor *x = &node->inputs[0];
    if (node->n_inputs != 1 || x->dtype != INFERD_PLUGIN_FP32 || x->rank < 1) {
        snprintf(why, why_size, "one FP32 input of at least one dimension was expected");
        return 1;
    }
    if (size < 1 || stride < 1 || size > length(x)) {
        snprintf(why, why_size, "size %lld and stride %lld do not fit a dimension of %lld",
                 (long long)size, (long long)stride, (long long)length(x));
        return 1;
    }
    outputs[0] = *x;
    outputs[0].dim[x->rank - 1] = 1 + (length(x) - size) / stride;
    outputs[1] = *x;
    outputs[1].rank = x->rank - 1;
    *n_outputs = 2;
    return 0;
}

static double direct(const float *x, int64_t size)
{
    double sum = 0;
    for (int64_t i = 0; i < size; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

/* What the window's sum becomes `step` further on. */
static double slide(double sum, const float *x, int64_t size, int64_t step)
{
    for (int64_t i = 0; i < step; i++)
        sum += (double)x[size + i] * (double)x[size + i] - (double)x[i] * (double)x[i];
    return sum;
}

static int run_energy(const struct inferd_plugin_call *call, int sliding)
{
    const struct inferd_plugin_node *node = call->node;
    int64_t size = whole(node, "size", 0), stride = whole(node, "stride", 1);
    int64_t rows = rows_of(&node->inputs[0]), n = length(&node->outputs[0]);
    const float *x = (const float *)call->inputs[0];
    float *y = (float *)call->outputs[0];
    float *peak = node->n_outputs > 1 ? (float *)call->outputs[1] : NULL;
    for (int64_t r = 0; r < rows; r++, x += length(&node->inputs[0]), y += n) {
        double sum = 0, most = 0;
        for (int64_t i = 0; i < n; i++) {
            const float *at = x + i * stride;
            if (sliding && i && stride < size)
                sum = slide(sum, at - stride, size, stride);
            else
                sum = direct(at, size);
            y[i] = (float)(sum / (double)size);
            most = sum > most ? sum : most;
        }
        if (peak)
            peak[r] = (float)(most / (double)size);
    }
    return 0;
}

static int energy_reference(const struct inferd_plugin_call *call)
{
    return run_energy(call, 0);
}

static int energy_sliding(const struct inferd_plugin_call *call)
{
    return run_energy(call, 1);
}

static int windows_overlap(const struct inferd_plugin_node *node)
{
    return whole(node, "stride", 1) < whole(node, "size", 0);
}

/* --- Rank --- */

static int infer_rank(const struct inferd_plugin_node *node, struct inferd_plugin_tensor *outputs,
                      uint32_t *n_outputs, char *why, size_t why_size)
{
    const struct inferd_plugin_attr *order = attr(node, "order");
    if (node->n_inputs != 1 || node->inputs[0].dtype != INFERD_PLUGIN_FP32 ||
        node->inputs[0].rank != 2) {
        snprintf(why, why_size, "one FP32 input [N,C] was expected");
        return 1;
    }
    if (order && !says(order, "ascending") && !says(order, "descending")) {
        snprintf(why, why_size, "order is ascending or descending");
        return 1;
    }
    outputs[0] = node->inputs[0];
    outputs[0].dtype = INFERD_PLUGIN_INT32;
    *n_outputs = 1;
    return 0;
}

static int run_rank(const struct inferd_plugin_call *call)
{
    const struct inferd_plugin_attr *order = attr(call->node, "order");
    int descending = order && says(order, "descending");
    int64_t rows = call->node->inputs[0].dim[0], n = call->node->inputs[0].dim[1];
    const float *x = (const float *)call->inputs[0];
    int32_t *y = (int32_t *)call->outputs[0];
    for (int64_t r = 0; r < rows; r++, x += n, y += n)
        for (int64_t i = 0; i < n; i++) {
            y[i] = 0;
            for (int64_t k = 0; k < n; k++)
                y[i] += (descending ? x[k] > x[i] : x[k] < x[i]) || (x[k] == x[i] && k < i);
        }
    return 0;
}

/* --- the table --- */

static const struct inferd_plugin_kernel energy_kernels[] = {
    {"reference", INFERD_PLUGIN_CPU, NULL, NULL, energy_reference},
    {"sliding", INFERD_PLUGIN_CPU, windows_overlap, NULL, energy_sliding},
};

static const struct inferd_plugin_kernel rank_kernels[] = {
    {"reference", INFERD_PLUGIN_CPU, NULL, NULL, run_rank},
};

static const struct inferd_plugin_op ops[] = {
    {"example.inferd", "WindowEnergy", 0, infer_energy, 2, energy_kernels},
    {"example.inferd", "Rank", 0, infer_rank, 1, rank_kernels},
};

const struct inferd_plugin *inferd_plugin(void)
{
    static const struct inferd_plugin plugin = {
        INFERD_PLUGIN_ABI, sizeof(struct inferd_plugin_op), "window-energy", "1.0", 2, ops};
    return &plugin;
}
