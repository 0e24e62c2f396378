/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a survey of a model, as text or as JSON. */
#include "tools/inspect_model.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/json.h"
#include "tools/show.h"

/* --- text --- */

static void print_values(const char *what, const struct onnx_survey_value *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        show_printf("%-8s %s %s", what, list[i].name, list[i].type);
        for (uint32_t d = 0; d < list[i].rank; d++)
            show_printf("%s%s", d ? "," : " [", list[i].dims[d]);
        show_printf("%s\n", !list[i].has_shape ? " of any shape" : list[i].rank ? "]" : " []");
    }
}

/* Whether the name says which dimension it is: several may be called "?". */
static bool is_name(const char *dim)
{
    while (*dim && !isalnum((unsigned char)*dim))
        dim++;
    return *dim;
}

/* A line says what gives the dimension its value: --dim takes its name, or INPUT:AXIS. */
static void print_axis(const struct onnx_survey_value *input, uint32_t axis)
{
    const char *dim = input->dims[axis];
    bool counts = input->axes[axis] == ONNX_AXIS_COUNTS, named = is_name(dim);
    if (named && counts)
        show_printf("%-8s %s, which counts instances: --batch\n", "open", dim);
    else if (named)
        show_printf("%-8s %s of '%s': --dim %s=N\n", "open", dim, input->name, dim);
    else if (counts)
        show_printf("%-8s dimension %u of '%s', which counts instances: --batch\n", "open", axis,
                    input->name);
    else
        show_printf("%-8s dimension %u of '%s': --dim %s:%u=N\n", "open", axis, input->name,
                    input->name, axis);
}

/* Prints the name of each open dimension once. */
static void print_open(const struct onnx_survey *s)
{
    char seen[512] = "";
    for (uint32_t i = 0; i < s->n_inputs; i++)
        for (uint32_t d = 0; d < s->inputs[i].rank; d++) {
            const char *dim = s->inputs[i].dims[d];
            char key[80];
            snprintf(key, sizeof(key), "|%.64s|", dim);
            if (s->inputs[i].axes[d] == ONNX_AXIS_KNOWN || (is_name(dim) && strstr(seen, key)))
                continue;
            if (strlen(seen) + strlen(key) < sizeof(seen))
                strcat(seen, key); /* NOLINT: there is room */
            print_axis(&s->inputs[i], d);
        }
}

static void print_refused(const struct onnx_finding *f)
{
    show_printf("%-8s ", "refused");
    if (!f->op)
        show_printf("%s\n", f->why);
    else if (f->n == 1)
        show_printf("%s '%s': %s\n", f->op, f->first, f->why);
    else
        show_printf("%s: %s (%u nodes, the first is '%s')\n", f->op, f->why, f->n, f->first);
}

static void print_text(const char *path, const struct onnx_survey *s)
{
    show_printf("model    %s: ONNX, opset %s\n", path, s->opsets);
    show_printf("weights  %.2f MiB\n", (double)s->weight_bytes / (1 << 20));
    print_values("input", s->inputs, s->n_inputs);
    print_values("output", s->outputs, s->n_outputs);
    print_open(s);
    show_printf("nodes    %u:", s->n_nodes);
    for (uint32_t i = 0; i < s->n_ops; i++)
        show_printf("%s %u %s", i ? "," : "", s->ops[i].n, s->ops[i].op);
    putchar('\n');
    for (uint32_t i = 0; i < s->n_refused; i++)
        print_refused(&s->refused[i]);
    if (s->n_late)
        show_printf(
            "late     %u nodes run on the CPU, behind the others: a request tells their sizes\n",
            s->n_late);
    if (s->unbound)
        show_printf("shapes   were not checked: give --dim %s=N\n", s->unbound);
    else if (!s->n_refused)
        show_printf("builds   everything in it is supported\n");
}

/* --- JSON --- */

/* "17" is a number, "17, com.example 1" is a text. */
static void json_opset(struct json *j, const char *text)
{
    size_t len = strlen(text);
    if (len && len <= 18 && strspn(text, "0123456789") == len)
        json_uint(j, "opset", strtoull(text, NULL, 10));
    else
        json_text(j, "opset", text);
}

static void json_values(struct json *j, const char *key, const struct onnx_survey_value *list,
                        uint32_t n)
{
    json_list(j, key);
    for (uint32_t i = 0; i < n; i++) {
        json_object(j, NULL);
        json_text(j, "name", list[i].name);
        json_text(j, "dtype", list[i].type);
        json_list(j, "shape"); /* an open dimension is a name */
        for (uint32_t d = 0; d < list[i].rank; d++)
            if (list[i].sizes[d] >= 0)
                json_int(j, NULL, list[i].sizes[d]);
            else
                json_text(j, NULL, list[i].dims[d]);
        json_end(j);
        json_end(j);
    }
    json_end(j);
}

static void json_findings(struct json *j, const char *key, const struct onnx_finding *list,
                          uint32_t n)
{
    json_list(j, key);
    for (uint32_t i = 0; i < n; i++) {
        json_object(j, NULL);
        json_text(j, "op", list[i].op ? list[i].op : "");
        json_uint(j, "nodes", list[i].n);
        if (list[i].why) {
            json_text(j, "first", list[i].first);
            json_text(j, "why", list[i].why);
        }
        json_end(j);
    }
    json_end(j);
}

static void print_json(const char *path, const struct onnx_survey *s)
{
    struct json j;
    json_init(&j, stdout);
    json_object(&j, NULL);
    json_text(&j, "model", path);
    json_opset(&j, s->opsets);
    json_uint(&j, "weight_bytes", s->weight_bytes);
    json_values(&j, "inputs", s->inputs, s->n_inputs);
    json_values(&j, "outputs", s->outputs, s->n_outputs);
    json_uint(&j, "nodes", s->n_nodes);
    json_findings(&j, "ops", s->ops, s->n_ops);
    json_uint(&j, "late", s->n_late);
    json_findings(&j, "refused", s->refused, s->n_refused);
    json_text(&j, "unbound", s->unbound ? s->unbound : "");
    json_end(&j);
}

void inspect_model_print(const char *path, const struct onnx_survey *survey, bool json)
{
    if (json)
        print_json(path, survey);
    else
        print_text(path, survey);
}
