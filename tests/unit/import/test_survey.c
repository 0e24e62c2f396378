/* SPDX-License-Identifier: Apache-2.0 */
/* The survey of a model that is not built. fuzz_onnx checks that surveys and imports agree. */
#include <stdlib.h>

#include "tests/test.h"
#include "tests/unit/import/wire.h"

static const int64_t pair[] = {-1, 3}, open_pair[] = {-1, -2};

static struct onnx_survey *survey_of(const struct wire *graph, const char *dim, struct error *err)
{
    static struct wire model; /* outlives the survey */
    const struct onnx_dim dims[] = {{dim, 2}};
    const struct onnx_options options = {.batch = 1, .dims = dims, .n_dims = dim != NULL};
    struct onnx_survey *survey = NULL;
    struct onnx_model *opened;
    wire_model(&model, graph, 13);
    assert_int_equal(onnx_open_memory(model.data, model.n, &opened, err), STATUS_OK);
    enum status status = onnx_survey(opened, &options, &survey, err);
    onnx_close(opened); /* the survey holds it */
    assert_int_equal(status, survey ? STATUS_OK : err->status);
    return survey;
}

static void assert_finding(const struct onnx_finding *f, const char *op, uint32_t n,
                           const char *first, const char *why)
{
    if (op)
        assert_string_equal(f->op, op);
    else
        assert_null(f->op);
    assert_int_equal(f->n, n);
    assert_string_equal(f->first, first);
    if (!strstr(f->why, why))
        fail_msg("'%s' instead of '%s'", f->why, why);
}

static void a_model_that_can_be_built_has_nothing_refused(void **state)
{
    (void)state;
    struct error err;
    struct wire g = {.n = 0};
    wire_input(&g, "x", 1, 2, pair);
    wire_node(&g, "Relu", "x", "a", NULL);
    wire_node(&g, "Neg", "a", "b", NULL);
    wire_node(&g, "Relu", "b", "y", NULL);
    wire_output(&g, "y");
    struct onnx_survey *s = survey_of(&g, NULL, &err);
    assert_non_null(s);
    assert_int_equal(s->n_refused, 0);
    assert_null(s->unbound);
    assert_string_equal(s->opsets, "13");
    assert_int_equal(s->n_nodes, 3);
    assert_int_equal(s->n_ops, 2);
    assert_string_equal(s->ops[0].op, "Relu");
    assert_int_equal(s->ops[0].n, 2);
    assert_int_equal(s->n_inputs, 1);
    assert_string_equal(s->inputs[0].type, "FP32");
    assert_string_equal(s->inputs[0].dims[0], "n");
    assert_string_equal(s->inputs[0].dims[1], "3");
    onnx_survey_free(s);
}

static void all_that_is_refused_is_told_at_once(void **state)
{
    (void)state;
    struct error err;
    struct wire g = {.n = 0}, alpha = {.n = 0};
    wire_attr_int(&alpha, "alpha", 1);
    wire_input(&g, "x", 1, 2, pair);
    wire_input(&g, "s", 8, 2, pair);
    wire_node(&g, "Foo", "x", "a", NULL);
    wire_node(&g, "Foo", "a", "b", NULL);
    wire_node(&g, "Relu", "x", "c", &alpha);
    wire_node(&g, "Neg", "b", "d", NULL); /* depends on a refused node: nothing is said of it */
    wire_node(&g, "NonZero", "x", "e", NULL);
    wire_node(&g, "Add", "c d", "y", NULL);
    wire_output(&g, "y");
    wire_output(&g, "e");
    struct onnx_survey *s = survey_of(&g, NULL, &err);
    assert_non_null(s);
    assert_int_equal(s->n_refused, 3);
    assert_int_equal(s->n_late, 1); /* NonZero */
    assert_finding(&s->refused[0], "Foo", 2, "Foo_0", "this op is not supported");
    assert_finding(&s->refused[1], "Relu", 1, "Relu_2", "attribute 'alpha' is none of this op's");
    assert_finding(&s->refused[2], NULL, 1, "", "input 's' has element type STRING");
    onnx_survey_free(s);
}

static void open_dimensions_leave_the_table_of_ops(void **state)
{
    (void)state;
    struct error err;
    struct wire g = {.n = 0};
    wire_input(&g, "x", 1, 2, open_pair);
    wire_node(&g, "Det", "x", "a", NULL); /* only importing tells that this is refused */
    wire_node(&g, "Foo", "x", "y", NULL);
    wire_output(&g, "y");
    struct onnx_survey *s = survey_of(&g, NULL, &err);
    assert_non_null(s);
    assert_string_equal(s->unbound, "m");
    assert_int_equal(s->n_refused, 1);
    onnx_survey_free(s);
    s = survey_of(&g, "m", &err);
    assert_non_null(s);
    assert_null(s->unbound);
    assert_int_equal(s->n_refused, 2);
    onnx_survey_free(s);
    assert_null(survey_of(&g, "q", &err));
    assert_non_null(strstr(err.text, "--dim q: no input has such a dimension"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_that_can_be_built_has_nothing_refused),
        cmocka_unit_test(all_that_is_refused_is_told_at_once),
        cmocka_unit_test(open_dimensions_leave_the_table_of_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
