/* SPDX-License-Identifier: Apache-2.0 */
/* Weights in a file beside the model are found, measured, and never looked for anywhere else. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/test.h"
#include "tests/unit/import/wire.h"

static const int64_t pair[] = {2, 3};
static const float weights[] = {0, 1, 2, 3, 4, 5, 6, 7};

struct place {
    char folder[64];
};

static void write_bytes(const struct place *p, const char *name, const void *data, size_t n)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", p->folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    strcpy(p->folder, "/tmp/inferd_test_XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    write_bytes(p, "w.bin", weights, sizeof(weights));
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    static const char *const names[] = {"w.bin", "model.onnx"};
    struct place *p = *state;
    char path[128];
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", p->folder, names[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(p->folder), 0);
    free(p);
    return 0;
}

static void entry(struct wire *tensor, const char *key, const char *value)
{
    struct wire w = {.n = 0};
    wire_text(&w, 1, key);
    wire_text(&w, 2, value);
    wire_message(tensor, 13, &w);
}

/* y = x + w; the bytes of w are in another file. NULL leaves an entry out. */
static struct wire model_with(const char *location, const char *offset, const char *length)
{
    struct wire graph = {.n = 0}, tensor = {.n = 0}, model;
    wire_tensor(&tensor, "w", 1, 2, pair, NULL, 0);
    wire_int(&tensor, 14, 1);
    if (location)
        entry(&tensor, "location", location);
    if (offset)
        entry(&tensor, "offset", offset);
    if (length)
        entry(&tensor, "length", length);
    entry(&tensor, "checksum", "what nobody looks at");
    wire_message(&graph, 5, &tensor);
    wire_input(&graph, "x", 1, 2, pair);
    wire_node(&graph, "Add", "x w", "y", NULL);
    wire_output(&graph, "y");
    wire_model(&model, &graph, 13);
    return model;
}

static enum status import(const struct place *p, const struct wire *model, struct ir_graph **graph,
                          struct error *err)
{
    char path[128];
    struct onnx_model *opened = NULL;
    const struct onnx_options options = {.batch = 1};
    write_bytes(p, "model.onnx", model->data, model->n);
    snprintf(path, sizeof(path), "%s/model.onnx", p->folder);
    *graph = NULL;
    enum status status = onnx_open(path, &opened, err);
    if (!status)
        status = onnx_import(opened, &options, graph, err);
    onnx_close(opened);
    return status;
}

static void assert_weights(const struct place *p, const struct wire *model, const float *want)
{
    struct ir_graph *graph;
    struct error err;
    if (import(p, model, &graph, &err))
        fail_msg("%s", err.text);
    const struct ir_tensor *t = ir_tensor(graph, ir_node(graph, 0)->inputs[1]);
    assert_memory_equal(t->data, want, 6 * sizeof(*want));
    ir_graph_free(graph);
}

static void assert_refused(const struct place *p, const struct wire *model, const char *part)
{
    struct ir_graph *graph;
    struct error err = {.status = STATUS_OK};
    assert_int_not_equal(import(p, model, &graph, &err), STATUS_OK);
    assert_null(graph);
    if (!strstr(err.text, part))
        fail_msg("'%s' does not say '%s'", err.text, part);
}

static void weights_are_found_beside_the_model(void **state)
{
    struct wire whole = model_with("w.bin", NULL, "24"), later = model_with("w.bin", "8", "24"),
                open = model_with("w.bin", "4", NULL);
    assert_weights(*state, &whole, weights);
    assert_weights(*state, &later, weights + 2);
    assert_weights(*state, &open, weights + 1);
}

static void r14_external_sizes_must_fit(void **state)
{
    struct wire beyond = model_with("w.bin", "12", "24"), far = model_with("w.bin", "4000", NULL),
                huge = model_with("w.bin", "18446744073709551615", "24"),
                wide = model_with("w.bin", "99999999999999999999", "24"),
                other = model_with("w.bin", "0", "20"), word = model_with("w.bin", "-8", "24"),
                none = model_with("w.bin", "", "24"),
                past = model_with("w.bin", "18446744073709551616", "24"),
                digits = model_with("w.bin", "000000000000000000008", "24");
    assert_refused(*state, &beyond, "beyond its end");
    assert_refused(*state, &far, "beyond its end");
    assert_refused(*state, &huge, "beyond its end");
    assert_refused(*state, &wide, "not a number");
    assert_refused(*state, &other, "24 bytes");
    assert_refused(*state, &word, "not a number");
    assert_refused(*state, &none, "not a number");
    assert_refused(*state, &past, "not a number");
    assert_refused(*state, &digits, "not a number");
}

static void r13_external_data_stays_beside_the_model(void **state)
{
    struct wire up = model_with("../w.bin", NULL, NULL), root = model_with("/w.bin", NULL, NULL),
                none = model_with(NULL, "0", "24"), absent = model_with("v.bin", NULL, NULL),
                itself = model_with(".", NULL, NULL);
    assert_refused(*state, &up, "below the model's folder");
    assert_refused(*state, &root, "below the model's folder");
    assert_refused(*state, &none, "external");
    assert_refused(*state, &absent, "v.bin");
    assert_refused(*state, &itself, "below the model's folder");
}

static void r13_a_model_in_memory_has_no_folder(void **state)
{
    struct wire model = model_with("w.bin", NULL, NULL);
    struct onnx_model *opened;
    struct ir_graph *graph = NULL;
    struct error err;
    const struct onnx_options options = {.batch = 1};
    assert_weights(*state, &model, weights);
    assert_int_equal(onnx_open_memory(model.data, model.n, &opened, &err), STATUS_OK);
    assert_int_equal(onnx_import(opened, &options, &graph, &err), STATUS_INVALID_ARGUMENT);
    assert_null(graph);
    onnx_close(opened);
}

static void r13_an_open_model_has_the_folder_it_is_given(void **state)
{
    struct wire model = model_with("w.bin", NULL, NULL);
    const struct place *p = *state;
    struct onnx_model *opened;
    struct ir_graph *graph = NULL;
    struct error err;
    const struct onnx_options options = {.batch = 1};
    char path[128];
    assert_weights(p, &model, weights);
    snprintf(path, sizeof(path), "%s/model.onnx", p->folder);
    int fd = open(path, O_RDONLY), folder = open(p->folder, O_PATH | O_DIRECTORY);
    assert_true(fd >= 0 && folder >= 0);
    assert_int_equal(onnx_open_fd(fd, folder, "m.onnx", &opened, &err), STATUS_OK);
    assert_int_equal(onnx_import(opened, &options, &graph, &err), STATUS_OK);
    onnx_close(opened);
    ir_graph_free(graph);
    graph = NULL;
    assert_int_equal(onnx_open_fd(fd, -1, "m.onnx", &opened, &err), STATUS_OK);
    assert_int_equal(onnx_import(opened, &options, &graph, &err), STATUS_INVALID_ARGUMENT);
    assert_null(graph);
    onnx_close(opened);
    assert_int_equal(close(folder), 0); /* the caller still owns both */
    assert_int_equal(close(fd), 0);
}

/* y = ((x + w0) + w1) ..: as many tensors as asked for, each in the file that `location` names. */
static struct wire model_of(uint32_t n, const char *location)
{
    struct wire graph = {.n = 0}, model;
    char in[16] = "x", operands[32], out[16], name[16], file[32];
    wire_input(&graph, "x", 1, 2, pair);
    for (uint32_t i = 0; i < n; i++) {
        struct wire tensor = {.n = 0};
        snprintf(name, sizeof(name), "w%u", i);
        snprintf(file, sizeof(file), "%s%u", location, i);
        wire_tensor(&tensor, name, 1, 2, pair, NULL, 0);
        wire_int(&tensor, 14, 1);
        entry(&tensor, "location", strcmp(location, "w.bin") ? file : location);
        wire_message(&graph, 5, &tensor);
        snprintf(operands, sizeof(operands), "%s %s", in, name);
        snprintf(out, sizeof(out), i + 1 == n ? "y" : "t%u", i);
        wire_node(&graph, "Add", operands, out, NULL);
        strcpy(in, out);
    }
    wire_output(&graph, "y");
    wire_model(&model, &graph, 13);
    return model;
}

static void tensors_share_a_file(void **state)
{
    struct wire model = model_of(3, "w.bin");
    struct ir_graph *graph;
    struct error err;
    if (import(*state, &model, &graph, &err))
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < 3; i++) {
        const struct ir_tensor *t = ir_tensor(graph, ir_node(graph, i)->inputs[1]);
        assert_memory_equal(t->data, weights, 6 * sizeof(*weights));
        assert_ptr_equal(t->data, ir_tensor(graph, ir_node(graph, 0)->inputs[1])->data);
    }
    ir_graph_free(graph);
}

/* A file of 10 GiB that takes no room on the disk; the weights lie at an odd place in its end. */
static void data_beyond_four_gibibytes_is_found(void **state)
{
    enum { PAGES_MAX = 64 << 10 }; /* KiB that may become resident */
    const struct place *p = *state;
    struct wire far = model_with("w.bin", "10737418243", "24");
    struct rusage before, after;
    char path[128];
    snprintf(path, sizeof(path), "%s/w.bin", p->folder);
    int fd = open(path, O_WRONLY | O_TRUNC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, weights, sizeof(weights), INT64_C(10737418243)), sizeof(weights));
    assert_int_equal(close(fd), 0);
    assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
    assert_weights(p, &far, weights);
    assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
    assert_true(after.ru_maxrss - before.ru_maxrss < PAGES_MAX);
}

/* Each file is held open as long as the model is. */
static void r14_files_are_counted(void **state)
{
    enum { LIMIT = 64 };
    char name[16], path[128];
    struct place *p = *state;
    struct wire most = model_of(LIMIT, "f"), more = model_of(LIMIT + 1, "f");
    struct ir_graph *graph;
    struct error err;
    for (int i = 0; i <= LIMIT; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        write_bytes(p, name, weights, sizeof(weights));
    }
    if (import(p, &most, &graph, &err))
        fail_msg("%s", err.text);
    ir_graph_free(graph);
    assert_refused(p, &more, "more than 64 files");
    for (int i = 0; i <= LIMIT; i++) {
        snprintf(path, sizeof(path), "%s/f%d", p->folder, i);
        assert_int_equal(unlink(path), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(weights_are_found_beside_the_model, setup, teardown),
        cmocka_unit_test_setup_teardown(r14_external_sizes_must_fit, setup, teardown),
        cmocka_unit_test_setup_teardown(r13_external_data_stays_beside_the_model, setup, teardown),
        cmocka_unit_test_setup_teardown(r13_an_open_model_has_the_folder_it_is_given, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(r13_a_model_in_memory_has_no_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(tensors_share_a_file, setup, teardown),
        cmocka_unit_test_setup_teardown(data_beyond_four_gibibytes_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(r14_files_are_counted, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
