/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/names.h"

static const char *text_of(const char *wanted, const char *const *list, size_t n)
{
    static struct names names;
    names_init(&names, wanted, strlen(wanted));
    for (size_t i = 0; i < n; i++)
        names_add(&names, list[i]);
    return names_text(&names);
}

static void few_are_all_told(void **state)
{
    (void)state;
    const char *list[] = {"image", "mask"};
    assert_string_equal(text_of("picture", list, 0), "none");
    assert_string_equal(text_of("picture", list, 1), "'image'");
    assert_string_equal(text_of("picture", list, 2), "'image', 'mask'");
}

static void the_nearest_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *wanted, *nearest; /* NULL: no name is near */
    } cases[] = {
        {"batc", "batch"}, /* begins like it */
        {"bathc", "batch"},
        {"Batch", "batch"},
        {"bach", "batch"},
        {"batchs", "batch"},
        {"precison", "precision"},
        {"prec", "precision"},
        {"thread", "threads"},
        {"q", NULL},
        {"", NULL},
        {"bxxch", NULL},
        {"nothing", NULL},
    };
    const char *list[] = {"precision", "batch", "threads"};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char want[200] = "'precision', 'batch', 'threads'";
        if (cases[i].nearest)
            snprintf(want + strlen(want), 60, " (did you mean '%s'?)", cases[i].nearest);
        assert_string_equal(text_of(cases[i].wanted, list, 3), want);
    }
}

static void of_two_that_are_near_the_nearer(void **state)
{
    (void)state;
    const char *list[] = {"resnet18", "resnet50", "resnet101"};
    assert_non_null(strstr(text_of("resnet51", list, 3), "mean 'resnet50'?"));
}

static void many_and_long_ones_are_cut(void **state)
{
    (void)state;
    char names[100][80];
    const char *list[100];
    for (size_t i = 0; i < 100; i++) {
        snprintf(names[i], sizeof(names[i]), "model%zu", i);
        list[i] = names[i];
    }
    assert_string_equal(text_of("model_999", list, 100),
                        "'model0', 'model1', 'model2', 'model3', 'model4', 'model5' and 94 more "
                        "(did you mean 'model99'?)");
    for (size_t i = 0; i < 100; i++) {
        memset(names[i], 'a', 79);
        names[i][79] = 0;
    }
    const char *text = text_of(names[0], list, 100); /* too long to be compared */
    assert_in_range(strlen(text), 100, NAMES_TEXT_MAX - 1);
    assert_non_null(strstr(text, "..' and 9"));
    assert_null(strstr(text, "mean"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_are_all_told),
        cmocka_unit_test(the_nearest_is_named),
        cmocka_unit_test(of_two_that_are_near_the_nearer),
        cmocka_unit_test(many_and_long_ones_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
