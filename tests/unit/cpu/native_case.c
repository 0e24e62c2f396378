/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/cpu/native_case.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cpu/eval.h"
#include "engine/cpu/native.h"
#include "kernels/cpu/ref.h"
#include "tests/test.h"
#include "tests/unit/passes/parse.h"

enum { THREADS = 3 };

struct run {
    const char *text;
    struct ir_graph *graph;
    double tolerance;
    void *want[IR_MAX_OUTPUTS];
    uint32_t layouts;
};

static struct tensor_view view(const struct ir_tensor *t, void *data)
{
    return (struct tensor_view){.dtype = t->dtype, .shape = t->shape, .data = data};
}

static void *buffer(size_t bytes)
{
    void *memory = malloc(bytes + 1); /* never none */
    assert_non_null(memory);
    memset(memory, 0xff, bytes + 1);
    return memory;
}

/* The operand as the port wants it. */
static void *stored(struct ir_graph *graph, uint32_t tensor, enum ir_layout layout)
{
    struct ir_tensor *t = ir_tensor(graph, tensor);
    struct tensor_view plain = view(t, (void *)(uintptr_t)t->data);
    assert_true(ir_tensor_set_layout(graph, tensor, layout));
    void *memory = buffer(t->bytes);
    struct tensor_view as_wanted = view(t, memory);
    ref_reformat(IR_LAYOUT_PLAIN, layout, &plain, &as_wanted);
    return memory;
}

static void compare(const struct run *r, const char *tactic, const struct ir_tensor *t,
                    const void *got, const void *want)
{
    size_t n;
    assert_true(shape_elements(&t->shape, &n));
    if (t->dtype != DTYPE_F32) {
        if (memcmp(got, want, n * dtype_size(t->dtype)) != 0)
            fail_msg("%s: %s: other values", r->text, tactic);
        return;
    }
    const float *a = got, *b = want;
    for (size_t i = 0; i < n; i++) {
        double apart = fabs((double)a[i] - (double)b[i]);
        bool same = isnan(b[i]) ? isnan(a[i]) != 0 : a[i] == b[i];
        if (!same && !(apart <= r->tolerance * fmax(1, fabs((double)b[i]))))
            fail_msg("%s: %s: element %zu is %g, not %g", r->text, tactic, i, (double)a[i],
                     (double)b[i]);
    }
}

static void check_output(const struct run *r, const struct tactic *tactic, uint32_t i, void *got)
{
    const struct ir_tensor *t = ir_tensor(r->graph, ir_node(r->graph, 0)->outputs[i]);
    enum ir_layout layout = tactic->out[i].format.layout;
    if (layout == IR_LAYOUT_PLAIN) {
        compare(r, tactic->name, t, got, r->want[i]);
        return;
    }
    void *plain = buffer(t->bytes);
    struct tensor_view from = view(t, got), to = view(t, plain);
    ref_reformat(layout, IR_LAYOUT_PLAIN, &from, &to);
    compare(r, tactic->name, t, plain, r->want[i]);
    free(plain);
}

static enum status run_tactic(void *user, const struct tactic *tactic, struct error *err)
{
    struct run *r = user;
    const struct ir_node *node = ir_node(r->graph, 0);
    void *in[IR_MAX_INPUTS] = {0}, *out[IR_MAX_OUTPUTS] = {0};
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] != IR_NONE)
            in[i] = stored(r->graph, node->inputs[i], tactic->in[i].format.layout);
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        assert_true(ir_tensor_set_layout(r->graph, node->outputs[i], tactic->out[i].format.layout));
        out[i] = buffer(ir_tensor(r->graph, node->outputs[i])->bytes);
    }
    struct native_op *op = NULL;
    if (native_op_prepare(THREADS, r->graph, node, tactic, &op, err) != STATUS_OK)
        fail_msg("%s: %s: %s", r->text, tactic->name, err->text);
    void *workspace = buffer(native_op_workspace(op));
    for (int again = 0; again < 2; again++) {
        for (uint32_t i = 0; i < node->n_outputs; i++)
            memset(out[i], 0xff, ir_tensor(r->graph, node->outputs[i])->bytes);
        if (native_op_launch(op, in, out, workspace, err) != STATUS_OK)
            fail_msg("%s: %s: %s", r->text, tactic->name, err->text);
        for (uint32_t i = 0; i < node->n_outputs; i++)
            check_output(r, tactic, i, out[i]);
    }
    r->layouts |= 1U << tactic->out[0].format.layout;
    native_op_free(op);
    free(workspace);
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        assert_true(ir_tensor_set_layout(r->graph, node->outputs[i], IR_LAYOUT_PLAIN));
        free(out[i]);
    }
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i] != IR_NONE)
            assert_true(ir_tensor_set_layout(r->graph, node->inputs[i], IR_LAYOUT_PLAIN));
        free(in[i]);
    }
    return STATUS_OK;
}

uint32_t native_case(const char *text, double tolerance)
{
    static const void *const none[IR_MAX_INPUTS];
    return native_case_on(text, tolerance, none);
}

uint32_t native_case_on(const char *text, double tolerance, const void *const *operands)
{
    char whole[1100];
    assert_in_range(snprintf(whole, sizeof(whole), "%s\noutput y\n", text), 1, sizeof(whole) - 1);
    struct run r = {.text = text, .graph = graph_parse(whole), .tolerance = tolerance};
    const struct ir_node *node = ir_node(r.graph, 0);
    const void *in[IR_MAX_INPUTS] = {0};
    struct error err = {0};
    assert_int_equal(r.graph->n_nodes, 1);
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i] != IR_NONE && operands[i])
            ir_tensor(r.graph, node->inputs[i])->data = operands[i];
        in[i] = node->inputs[i] == IR_NONE ? NULL : ir_tensor(r.graph, node->inputs[i])->data;
    }
    for (uint32_t i = 0; i < node->n_outputs; i++)
        r.want[i] = buffer(ir_tensor(r.graph, node->outputs[i])->bytes);
    if (cpu_eval_node(NULL, r.graph, node, in, r.want, &err) != STATUS_OK)
        fail_msg("%s: %s", text, err.text);
    assert_int_equal(native_candidates(THREADS, r.graph, node, run_tactic, &r, &err), STATUS_OK);
    for (uint32_t i = 0; i < node->n_outputs; i++)
        free(r.want[i]);
    ir_graph_free(r.graph);
    return r.layouts;
}

uint32_t native_casef(double tolerance, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    assert_in_range(n, 1, sizeof(text) - 1);
    return native_case(text, tolerance);
}

void assert_layouts(const char *text, uint32_t layouts, uint32_t wanted)
{
    if (layouts & ~wanted || (layouts ^ wanted) & ~(uint32_t)BLOCKS ||
        !(layouts & BLOCKS) != !(wanted & BLOCKS))
        fail_msg("%s: layouts %#x", text, layouts);
}
