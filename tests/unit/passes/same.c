/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/passes/same.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/eval.h"
#include "tests/test.h"
#include "tests/unit/passes/parse.h"

static struct tensor_view allocate(const struct ir_tensor *t)
{
    struct tensor_view view = {.dtype = t->dtype, .shape = t->shape};
    view.data = calloc(1, MAX(t->bytes, 1));
    assert_non_null(view.data);
    return view;
}

void outputs_compute(const struct ir_graph *graph, uint64_t seed, struct outputs *out)
{
    struct tensor_view inputs[IR_MAX_IO];
    struct error err = {0};
    for (uint32_t i = 0; i < graph->n_inputs; i++) {
        const struct ir_tensor *t = ir_tensor(graph, graph->inputs[i]);
        inputs[i] = allocate(t);
        fill_random(t->dtype, inputs[i].data, t->bytes / dtype_size(t->dtype), seed + i);
    }
    out->n = graph->n_outputs;
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        out->views[i] = allocate(ir_tensor(graph, graph->outputs[i]));
    if (cpu_eval_graph(graph, inputs, out->views, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < graph->n_inputs; i++)
        free(inputs[i].data);
}

void outputs_free(struct outputs *outputs)
{
    for (uint32_t i = 0; i < outputs->n; i++)
        free(outputs->views[i].data);
    outputs->n = 0;
}

static double number(const struct tensor_view *view, size_t i)
{
    switch (view->dtype) {
    case DTYPE_F32:
        return (double)((const float *)view->data)[i];
    case DTYPE_F64:
        return ((const double *)view->data)[i];
    case DTYPE_F16:
        return (double)f16_to_f32(((const uint16_t *)view->data)[i]);
    case DTYPE_BF16:
        return (double)bf16_to_f32(((const uint16_t *)view->data)[i]);
    case DTYPE_I64:
        return (double)((const int64_t *)view->data)[i];
    case DTYPE_BOOL:
    case DTYPE_U8:
        return ((const uint8_t *)view->data)[i];
    case DTYPE_I8:
        return ((const int8_t *)view->data)[i];
    default:
        fail_msg("no numbers of type %s", dtype_name(view->dtype));
        return 0;
    }
}

static void check_view(const struct tensor_view *got, const struct tensor_view *want,
                       double tolerance, const char *what, uint32_t output)
{
    size_t n;
    double largest = 0, worst = 0;
    assert_int_equal(got->dtype, want->dtype);
    assert_true(shape_equal(&got->shape, &want->shape));
    assert_true(shape_elements(&want->shape, &n));
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(number(want, i)));
    for (size_t i = 0; i < n; i++) {
        double a = number(got, i), b = number(want, i);
        if (isnan(a) != isnan(b))
            fail_msg("%s: output %u[%zu] is %g, not %g", what, output, i, a, b);
        worst = isnan(a) || a == b ? worst : fmax(worst, fabs(a - b));
        if (worst > tolerance * fmax(largest, 1e-6))
            fail_msg("%s: output %u[%zu] is %.9g, not %.9g (largest %g)", what, output, i, a, b,
                     largest);
    }
}

void outputs_check(const struct outputs *got, const struct outputs *want, double tolerance,
                   const char *what)
{
    assert_int_equal(got->n, want->n);
    for (uint32_t i = 0; i < want->n; i++)
        check_view(&got->views[i], &want->views[i], tolerance, what, i);
}
