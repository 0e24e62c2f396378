/* SPDX-License-Identifier: Apache-2.0 */
/* Reading YAML: defaults, every kind of value, and each mistake refused with its place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "config/schema.h"
#include "tests/test.h"

static const char *reference_path;

static struct config *parse(const char *text)
{
    struct config *config = NULL;
    struct error err = {0};
    if (config_parse("t.yaml", text, strlen(text), &config, &err) != STATUS_OK)
        fail_msg("refused: %s\n%s", err.text, text);
    return config;
}

static void refuse(const char *text, const char *expected)
{
    struct config *config = (void *)&reference_path;
    struct error err = {0};
    enum status status = config_parse("t.yaml", text, strlen(text), &config, &err);
    if (status != STATUS_INVALID_ARGUMENT)
        fail_msg("status %s for: %s", status_name(status), text);
    assert_ptr_equal(config, &reference_path); /* untouched */
    if (!strstr(err.text, expected))
        fail_msg("\"%s\" is not in \"%s\"", expected, err.text);
}

static void assert_text(const char *a, const char *b)
{
    if (!a || !b)
        assert_ptr_equal(a, b);
    else
        assert_string_equal(a, b);
}

static void assert_fields(const struct field *fields, const void *a, const void *b)
{
    for (const struct field *f = fields; f->key; f++) {
        const char *left = (const char *)a + f->value, *right = (const char *)b + f->value;
        size_t size = f->kind == FIELD_BOOL ? 1 : f->kind == FIELD_U32 ? 4 : 8;
        if (f->kind == FIELD_TEXT)
            assert_text(*(char *const *)(const void *)left, *(char *const *)(const void *)right);
        else if (memcmp(left, right, size) != 0)
            fail_msg("%s differs from its default", f->key);
    }
}

static void reference_file_is_exactly_the_defaults(void **state)
{
    (void)state;
    struct config *file = NULL, *defaults = config_new();
    struct error err = {0};
    if (config_read(reference_path, &file, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_fields(config_server_fields, file, defaults);
    assert_fields(config_limit_fields, &file->limits, &defaults->limits);
    assert_fields(config_listen_fields, &file->listen, &defaults->listen);
    assert_int_equal(file->identities_count, 0);
    assert_int_equal(defaults->identities_count, 0);
    assert_int_equal(file->listen.framed_count, 1);
    assert_int_equal(defaults->listen.framed_count, 1);
    assert_string_equal(file->listen.framed[0], defaults->listen.framed[0]);
    assert_int_equal(file->models_count, 0);
    assert_int_equal(defaults->models_count, 0);
    config_free(file);
    config_free(defaults);
}

static char *slurp(const char *path)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    fclose(f);
    return text;
}

static void assert_documented(const char *text, const char *key)
{
    char at_line_start[80];
    const char *p = text;
    snprintf(at_line_start, sizeof(at_line_start), "%s:", key);
    for (; (p = strstr(p, at_line_start)); p++) {
        const char *line = p;
        while (line > text && line[-1] != '\n' && strchr(" #-", line[-1]))
            line--;
        if (line == text || line[-1] == '\n')
            return;
    }
    fail_msg("%s is not in the reference file", key);
}

static void reference_file_names_every_key(void **state)
{
    (void)state;
    const char *text = slurp(reference_path);
#define DOCUMENTED(member, kind, least, most) assert_documented(text, #member);
#define DOCUMENTED_KEY(key)                   assert_documented(text, #key);
    CONFIG_SERVER_FIELDS(DOCUMENTED)
    CONFIG_MODEL_FIELDS(DOCUMENTED)
    CONFIG_INPUT_FIELDS(DOCUMENTED)
    CONFIG_LIMIT_FIELDS(DOCUMENTED)
    CONFIG_LISTEN_FIELDS(DOCUMENTED)
    CONFIG_IDENTITY_FIELDS(DOCUMENTED)
    CONFIG_OTHER_KEYS(DOCUMENTED_KEY)
}

static void defaults_pass_the_check(void **state)
{
    (void)state;
    struct config *config = config_new();
    struct error err = {0};
    if (config_check(config, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    config_free(config);
}

static void r16_only_this_machine_unless_told(void **state)
{
    (void)state;
    struct config *config = config_new();
    for (size_t i = 0; i < config->listen.framed_count; i++) {
        const char *address = config->listen.framed[i];
        if (strncmp(address, "127.0.0.1:", 10) && strncmp(address, "unix:", 5))
            fail_msg("listens on %s by default", address);
    }
    config_free(config);
}

static void empty_texts_are_the_defaults(void **state)
{
    (void)state;
    static const char *const texts[] = {"",           "\n",           "# nothing\n",
                                        "models:\n",  "models: []",   "device: null\n",
                                        "listen: {}", "limits: {}\n", "device: ~\nworkers: ''\n"};
    struct config *defaults = config_new();
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct config *config = parse(texts[i]);
        assert_fields(config_server_fields, config, defaults);
        assert_fields(config_limit_fields, &config->limits, &defaults->limits);
        assert_int_equal(config->listen.framed_count, 1);
        config_free(config);
    }
    config_free(defaults);
}

static void values_of_every_kind(void **state)
{
    (void)state;
    struct config *c = parse("listen:\n"
                             "  framed: ['[::1]:0', 'unix:/run/x.sock', 10.0.0.1:80]\n"
                             "device: cuda:1\n"
                             "workers: 4\n"
                             "max_delay_us: 0\n"
                             "repository: /srv/models\n"
                             "log_level: verbose\n"
                             "limits: {frame_bytes: 1MiB, inflight_bytes: 3GiB,\n"
                             "         output_bytes: 65536, receive_rate: 0}\n"
                             "models:\n"
                             "- name: a\n"
                             "  path: a.onnx\n"
                             "  inputs:\n"
                             "  - {name: image, type: uint8, scale: [0.5, -1e-3, .25], bias: [1]}\n"
                             "  - {name: 'x:0', type: fp16}\n"
                             "- name: b.1-x_\n"
                             "  path: /b.plan\n"
                             "  version: 2\n"
                             "  max_batch: 16\n"
                             "  max_delay_us: 50\n"
                             "  queue_limit: 9\n"
                             "  preferred: [4, 8]\n"
                             "  batches: [1, 2, 16]\n");
    assert_int_equal(c->listen.framed_count, 3);
    assert_string_equal(c->listen.framed[0], "[::1]:0");
    assert_string_equal(c->listen.framed[2], "10.0.0.1:80");
    assert_string_equal(c->device, "cuda:1");
    assert_int_equal(c->workers, 4);
    assert_int_equal(c->max_delay_us, 0);
    assert_string_equal(c->repository, "/srv/models");
    assert_string_equal(c->log_level, "verbose");
    assert_int_equal(c->limits.frame_bytes, 1 << 20);
    assert_true(c->limits.inflight_bytes == 3ULL << 30);
    assert_int_equal(c->limits.output_bytes, 65536);
    assert_int_equal(c->limits.receive_rate, 0);
    assert_int_equal(c->limits.connections, 4096);
    assert_int_equal(c->models_count, 2);
    assert_string_equal(c->models[0].version, "1");
    assert_int_equal(c->models[0].max_delay_us, -1);
    assert_null(c->models[0].preferred);
    assert_int_equal(c->models[0].inputs_count, 2);
    assert_string_equal(c->models[0].inputs[0].name, "image");
    assert_string_equal(c->models[0].inputs[0].type, "uint8");
    assert_int_equal(c->models[0].inputs[0].scale_count, 3);
    assert_true(c->models[0].inputs[0].scale[1] == -1e-3F);
    assert_int_equal(c->models[0].inputs[0].bias_count, 1);
    assert_true(c->models[0].inputs[0].bias[0] == 1);
    assert_string_equal(c->models[0].inputs[1].name, "x:0");
    assert_int_equal(c->models[0].inputs[1].scale_count, 0);
    assert_int_equal(c->models[1].inputs_count, 0);
    assert_string_equal(c->models[1].name, "b.1-x_");
    assert_string_equal(c->models[1].path, "/b.plan");
    assert_string_equal(c->models[1].version, "2");
    assert_int_equal(c->models[1].max_batch, 16);
    assert_int_equal(c->models[1].max_delay_us, 50);
    assert_int_equal(c->models[1].queue_limit, 9);
    assert_int_equal(c->models[1].preferred_count, 2);
    assert_int_equal(c->models[1].preferred[1], 8);
    assert_int_equal(c->models[1].batches_count, 3);
    assert_int_equal(c->models[1].batches[2], 16);
    config_free(c);
}

static void unknown_keys_are_refused_with_their_line(void **state)
{
    (void)state;
    refuse("workers: 1\nworker: 2\n",
           "t.yaml:2: worker: unknown key (did you mean 'workers'?); inferd.yaml(5) lists all");
    refuse("models:\n- {name: a, path: b, inputs: [{name: x, tpye: uint8}]}\n",
           "models[0].inputs[0].tpye: unknown key (did you mean 'type'?)");
    refuse("limits: {conections: 3}\n", "limits.conections: unknown key (did you mean");
    refuse("quantum: 3\n", "t.yaml:1: quantum: unknown key; inferd.yaml(5) lists all");
    refuse("limits:\n  connections: 3\n  frames: 2\n", "t.yaml:3: limits.frames: unknown key");
    refuse("models:\n- name: a\n  path: a.plan\n  Path: b\n",
           "t.yaml:4: models[0].Path: unknown key");
    refuse("models:\n- {name: a, path: a.plan}\n-\n  Path: b\n",
           "t.yaml:4: models[1].Path: unknown key");
    refuse("listen:\n  telnet: [127.0.0.1:1]\n", "t.yaml:2: listen.telnet: unknown key");
    refuse("listen:\n  metrics: ['unix:/x']\n",
           "t.yaml:2: listen.metrics[0]: expected HOST:PORT or [IPV6]:PORT, got \"unix:/x\"");
}

static void values_out_of_range_are_refused_with_key_and_both_values(void **state)
{
    (void)state;
    refuse("device: cpu\nworkers: 257\n",
           "t.yaml:2: workers: expected a whole number from 0 to 256, got \"257\"");
    refuse("io_threads: 0\n", "io_threads: expected a whole number from 1 to 64, got \"0\"");
    refuse("limits:\n\n  frame_bytes: 3GiB\n",
           "t.yaml:3: limits.frame_bytes: expected a size from 1024 to 2147483647");
    refuse("models:\n- {name: a, path: a.plan}\n- name: b\n  path: b.plan\n  max_delay_us: -2\n",
           "t.yaml:5: models[1].max_delay_us: expected a whole number from -1");
    refuse("models:\n- name: a\n  path: a.plan\n  batches:\n  - 1\n  - 0\n",
           "t.yaml:6: models[0].batches[1]: expected a whole number from 1");
}

static void numbers_are_plain(void **state)
{
    (void)state;
    static const char *const wrong[] = {"0x10", "1e3", "1.5",  "-1", "+1",
                                        "1 2",  "abc", "'1 '", "1K", "1KiB",
                                        "true", "[1]", "{}",   "-",  "99999999999999999999999"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        char text[64];
        snprintf(text, sizeof(text), "workers: %s\n", wrong[i]);
        refuse(text, "t.yaml:1: ");
        refuse(text, "workers");
    }
    refuse("limits: {frame_bytes: 1MB}\n", "got \"1MB\"");
    refuse("limits: {frame_bytes: MiB}\n", "got \"MiB\"");
    refuse("limits: {frame_bytes: 1MiBMiB}\n", "got \"1MiBMiB\"");
    refuse("limits: {inflight_bytes: 99999999999GiB}\n", "got \"99999999999GiB\"");
}

static void broken_documents_are_refused(void **state)
{
    (void)state;
    refuse("- 1\n- 2\n", "t.yaml");
    refuse("just text\n", "MAPPING");
    refuse("workers: 1\nworkers: 2\n", "already seen");
    refuse("workers: &a 1\nthreads: *a\n", "alias");
    refuse("workers: 1\n---\nworkers: 2\n", "t.yaml");
    refuse("device: cpu\nlog_level: \"info\n", "t.yaml:3: ");
    refuse("\tworkers: 1\n", "t.yaml:1: ");
    refuse("? [a]\n: b\n", "t.yaml");
    refuse("listen: 127.0.0.1:8003\n", "t.yaml:1: ");
    refuse("models: {name: a}\n", "t.yaml:1: ");
    refuse("models:\n- a\n", "t.yaml:2: ");
    refuse("limits: 3\n", "t.yaml:1: ");
    refuse("\xff\xfe\xfd", "t.yaml");
}

static void missing_keys_of_a_model_are_refused(void **state)
{
    (void)state;
    refuse("models:\n- path: a.plan\n", "t.yaml:2: models[0].name: expected");
    refuse("models:\n- {name: a, path: a.plan}\n- name: b\n",
           "t.yaml:3: models[1].path: expected a file .onnx, .plan or .pbtxt, got nothing");
}

#define ONNX "models:\n- name: a\n  path: a.onnx\n  inputs:\n"

static void inputs_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    refuse(ONNX "  - {name: x, type: int8}\n",
           "t.yaml:5: models[0].inputs[0].type: expected uint8 or fp16, got \"int8\"");
    refuse(ONNX "  - {type: uint8}\n", "models[0].inputs[0].name: expected");
    refuse(ONNX "  - {name: a=b}\n", "models[0].inputs[0].name: expected");
    refuse(ONNX "  - {name: x}\n  - {name: x}\n", "models[0].inputs[1].name: expected each");
    refuse(ONNX "  - {name: x, kind: uint8}\n", "models[0].inputs[0].kind: unknown key");
    refuse(ONNX "  - name: x\n    scale: [1, a]\n",
           "t.yaml:6: models[0].inputs[0].scale[1]: expected a number, got \"a\"");
    refuse(ONNX "  - {name: x, bias: [nan]}\n", "bias[0]: expected a number");
    refuse(ONNX "  - {name: x, bias: [1e99]}\n", "bias[0]: expected a number");
    refuse(ONNX "  - {name: x, bias: [0x10]}\n", "bias[0]: expected a number");
    refuse("models:\n- {name: a, path: a.plan, inputs: [{name: x}]}\n",
           "models[0].inputs: expected no inputs");
}

static void files_that_cannot_be_read(void **state)
{
    (void)state;
    struct config *config;
    struct error err = {0};
    char path[] = "/tmp/test_config_XXXXXX";
    assert_int_equal(config_read("/nonexistent/inferd.yaml", &config, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nonexistent/inferd.yaml"));
    assert_int_equal(config_read("/dev/null", &config, &err), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "regular file"));

    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, CONFIG_FILE_MAX + 1), 0);
    close(fd);
    assert_int_equal(config_read(path, &config, &err), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "at most 1048576 bytes"));
    unlink(path);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_file_is_exactly_the_defaults),
        cmocka_unit_test(reference_file_names_every_key),
        cmocka_unit_test(defaults_pass_the_check),
        cmocka_unit_test(r16_only_this_machine_unless_told),
        cmocka_unit_test(empty_texts_are_the_defaults),
        cmocka_unit_test(values_of_every_kind),
        cmocka_unit_test(unknown_keys_are_refused_with_their_line),
        cmocka_unit_test(values_out_of_range_are_refused_with_key_and_both_values),
        cmocka_unit_test(numbers_are_plain),
        cmocka_unit_test(broken_documents_are_refused),
        cmocka_unit_test(missing_keys_of_a_model_are_refused),
        cmocka_unit_test(inputs_that_make_no_sense_are_refused),
        cmocka_unit_test(files_that_cannot_be_read),
    };
    if (argc < 2)
        return 2;
    reference_path = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
