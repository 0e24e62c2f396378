/* SPDX-License-Identifier: Apache-2.0 */
/* config.pbtxt: what its fields become, what is named in a warning, and what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/model_file.h"
#include "config/schema.h"
#include "tests/test.h"

static char log_text[4096];

static void log_add(void *user, enum log_level level, const char *line)
{
    (void)user;
    assert_int_equal(level, LOG_WARNING);
    size_t used = strlen(log_text);
    snprintf(log_text + used, sizeof(log_text) - used, "%s\n", line);
}

static const struct log_sink sink = {.level = LOG_WARNING, .write = log_add};

static struct model_file *parse(const char *text)
{
    struct model_file *file = NULL;
    struct error err = {0};
    log_text[0] = '\0';
    must(model_file_parse("m/config.pbtxt", text, strlen(text), "m", &sink, &file, &err), &err);
    return file;
}

static void refuse(const char *text, const char *expected)
{
    struct model_file *file = NULL;
    struct error err = {0};
    log_text[0] = '\0';
    if (!model_file_parse("m/config.pbtxt", text, strlen(text), "m", &sink, &file, &err))
        fail_msg("taken: %s", text);
    assert_null(file);
    if (!strstr(err.text, expected))
        fail_msg("\"%s\" is not in \"%s\"", expected, err.text);
}

static void warns(const char *text, const char *expected)
{
    model_file_free(parse(text));
    if (!strstr(log_text, expected))
        fail_msg("\"%s\" is not in \"%s\"", expected, log_text);
}

/* As the documentation of Triton writes it. */
static const char usual[] =
    "name: \"m\"\n"
    "platform: \"onnxruntime_onnx\"\n"
    "max_batch_size: 32\n"
    "input [ { name: \"x\" data_type: TYPE_FP32 format: FORMAT_NCHW\n"
    "          dims: [ 3, 224, -1 ] } ]\n"
    "output [ { name: \"y\" data_type: TYPE_FP16 dims: [ 1000 ] } ]\n"
    "version_policy: { specific { versions: [1, 3] } }\n"
    "instance_group [ { count: 2 kind: KIND_GPU }, { kind: KIND_CPU } ]\n"
    "dynamic_batching {\n"
    "  preferred_batch_size: [ 16, 4, 8, 4 ]\n"
    "  max_queue_delay_microseconds: 250\n"
    "  priority_levels: 3 default_priority_level: 2\n"
    "  default_queue_policy { default_timeout_microseconds: 7000\n"
    "    allow_timeout_override: true max_queue_size: 99 }\n"
    "}\n"
    "parameters { key: \"precision\" value { string_value: \"fp16\" } }\n"
    "parameters { key: \"on_new_shape\" value { string_value: \"wait\" } }\n"
    "parameters { key: \"input_type:x\" value: { string_value: \"uint8\" } }\n"
    "parameters { key: \"input_scale:x\" value: { string_value: \"0.5,1,2\" } }\n"
    "model_warmup [ { name: \"w\" batch_size: 4 count: 3 inputs { key: \"x\"\n"
    "  value: { data_type: TYPE_FP32 dims: [3, 224, 224] zero_data: true } } } ]\n";

static void a_usual_file(void **state)
{
    (void)state;
    struct model_file *f = parse(usual);
    const struct config_model *c = &f->config;
    static const uint32_t profiles[] = {1, 2, 4, 8, 16, 32}, preferred[] = {4, 8, 16};
    assert_string_equal(log_text, "");
    assert_true(f->batched);
    assert_int_equal(c->max_batch, 32);
    assert_int_equal(c->max_delay_us, 250);
    assert_int_equal(c->preferred_count, 3);
    assert_memory_equal(c->preferred, preferred, sizeof(preferred));
    assert_int_equal(c->batches_count, 6);
    assert_memory_equal(c->batches, profiles, sizeof(profiles));
    assert_int_equal(c->instances, 3);
    assert_int_equal(c->queue_limit, 99);
    assert_int_equal(c->timeout_us, 7000);
    assert_int_equal(c->priority_levels, 3);
    assert_int_equal(c->default_priority, 2);
    assert_string_equal(c->precision, "fp16");
    assert_string_equal(c->on_new_shape, "wait");
    assert_int_equal(c->inputs_count, 1);
    assert_string_equal(c->inputs[0].name, "x");
    assert_string_equal(c->inputs[0].type, "uint8");
    assert_int_equal(c->inputs[0].scale_count, 3);
    assert_true(c->inputs[0].scale[0] == 0.5f && c->inputs[0].scale[2] == 2.0f);
    assert_int_equal(f->policy, POLICY_SPECIFIC);
    assert_int_equal(f->n_specific, 2);
    assert_int_equal(f->specific[1], 3);
    assert_int_equal(f->n_inputs, 1);
    assert_int_equal(f->inputs[0].dtype, DTYPE_F32);
    assert_int_equal(f->inputs[0].shape.rank, 3);
    assert_int_equal(f->inputs[0].shape.dim[2], -1);
    assert_int_equal(f->outputs[0].dtype, DTYPE_F16);
    assert_int_equal(f->n_warmups, 1);
    assert_int_equal(f->warmups[0].batch, 4);
    assert_int_equal(f->warmups[0].count, 3);
    assert_int_equal(f->warmups[0].inputs[0].data, WARM_ZERO);
    model_file_free(f);
}

static void an_empty_file_has_the_defaults_of_triton(void **state)
{
    (void)state;
    struct model_file *f = parse("");
    assert_false(f->batched);
    assert_int_equal(f->config.max_delay_us, 0);
    assert_int_equal(f->config.batches_count, 0);
    assert_int_equal(f->policy, POLICY_LATEST);
    assert_int_equal(f->latest, 1);
    model_file_free(f);
    f = parse("max_batch_size: 5");
    static const uint32_t profiles[] = {1, 2, 4, 5};
    assert_int_equal(f->config.batches_count, 4);
    assert_memory_equal(f->config.batches, profiles, sizeof(profiles));
    model_file_free(f);
    f = parse("version_policy { all {} } parameters { key: 'profiles' value { string_value: '1,8' "
              "} } max_batch_size: 8 default_model_filename: 'net.onnx'");
    assert_int_equal(f->policy, POLICY_ALL);
    assert_int_equal(f->config.batches_count, 2);
    assert_string_equal(f->file, "net.onnx");
    model_file_free(f);
}

static void sizes_are_the_builders_options(void **state)
{
    (void)state;
    struct model_file *f =
        parse("parameters { key: 'shape:ids' value { string_value: '*x1..512' } }"
              "parameters { key: 'profiles:seq' value { string_value: '32,128' } }"
              "parameters { key: 'profiles' value { string_value: '1,8' } }"
              "parameters { key: 'value:sr' value { string_value: '16000' } }"
              "parameters { key: 'dim:x:1' value { string_value: '576' } }"
              "parameters { key: 'output_type:y' value { string_value: 'fp16' } }"
              "parameters { key: 'dim:y' value { string_value: '7' } }");
    const struct config_texts *sizes = f->config.sizes;
    assert_string_equal(log_text, "");
    assert_int_equal(f->config.batches_count, 2);
    assert_int_equal(sizes[CONFIG_SHAPES].count, 1);
    assert_string_equal(sizes[CONFIG_SHAPES].items[0], "ids=*x1..512");
    assert_string_equal(sizes[CONFIG_PROFILES].items[0], "seq=32,128");
    assert_string_equal(sizes[CONFIG_VALUES].items[0], "sr=16000");
    assert_int_equal(sizes[CONFIG_OUTPUT_TYPES].count, 1);
    assert_string_equal(sizes[CONFIG_OUTPUT_TYPES].items[0], "y=fp16");
    assert_int_equal(sizes[CONFIG_DIMS].count, 2);
    assert_string_equal(sizes[CONFIG_DIMS].items[0], "x:1=576");
    model_file_free(f);
    refuse("parameters { key: 'shape:' value { string_value: '1' } }", "expected sizes");
    refuse("parameters { key: 'shape:x' value { string_value: '1 --out' } }", "expected sizes");
    refuse("parameters { key: 'shape:--x' value { string_value: '1' } }", "expected sizes");
    refuse("parameters { key: 'dim:x' value { string_value: '' } }", "expected sizes");
}

static void nothing_is_swallowed(void **state)
{
    (void)state;
    warns("max_batch_sise: 3", "config.pbtxt:1: unknown field 'max_batch_sise' (did you mean "
                               "'max_batch_size'?)");
    warns("\n\noptimization { graph { level: 1 } }", ":3: 'optimization' has no effect");
    warns("dynamic_batching { preserve_ordering: true }", "preserve_ordering has no effect");
    warns("dynamic_batching { max_delay: 3 }", "unknown field 'max_delay'");
    warns("dynamic_batching { default_queue_policy { timeout_action: DELAY } }", "DELAY");
    warns("dynamic_batching { priority_levels: 9 default_priority_level: 1 }", "share them");
    warns("dynamic_batching { priority_queue_policy { key: 1 value { } } }",
          "priority_queue_policy has no effect");
    warns("instance_group { rate_limiter { } }", "'rate_limiter' has no effect");
    warns("instance_group { gpus: [0, 1] }", "'gpus' has no effect");
    warns("parameters { key: 'threads' value { string_value: '4' } }",
          "unknown parameter 'threads'");
    warns("response_cache { enable: true }", "response_cache");
    warns("input { name: 'x' optional: true }", "'optional' has no effect");
    warns("output { name: 'y' label_filename: 'l' }", "'label_filename' has no effect");
}

static void what_would_change_results_is_refused(void **state)
{
    (void)state;
    refuse("sequence_batching { }", "'sequence_batching' is not supported");
    refuse("batch_input { }", "'batch_input' is not supported");
    refuse("input { name: 'x' reshape { shape: [ ] } }", "'reshape' is not supported");
    refuse("input { name: 'x' is_shape_tensor: true }", "is_shape_tensor");
    refuse("input { name: 'x' allow_ragged_batch: true }", "allow_ragged_batch");
    refuse("input { name: 'x' data_type: TYPE_STRING }", "TYPE_STRING");
    refuse("model_transaction_policy { decoupled: true }", "decoupled");
    refuse("platform: 'pytorch_libtorch'", "platform: expected");
    refuse("backend: 'python'", "backend: expected");
    refuse("name: 'other'", "name: expected \"m\"");
    refuse("platform: 'ensemble'", "ensemble_scheduling with a step");
}

static void mistakes(void **state)
{
    (void)state;
    refuse("max_batch_size: '3'", ":1: max_batch_size: expected a whole number from 0 to 65536");
    refuse("max_batch_size: -1", "from 0 to 65536");
    refuse("max_batch_size: 1.5", "a whole number");
    refuse("max_batch_size: 99999999999999999999", "a whole number");
    refuse("max_batch_size: 1\nmax_batch_size: 2", "expected once, got twice");
    refuse("name: m", "a string in quotes");
    refuse("input: 3", "{ ... }");
    refuse("input { name: 'x' data_type: FP32 }", "'TYPE_BOOL'");
    refuse("input { name: 'x' dims: [0] }", "dims of -1 or at least 1");
    refuse("input { name: 'x' dims: [1,1,1,1,1,1,1,1,1] }", "at most 8");
    refuse("input { name: 'x' } input { name: 'x' }", "expected once, got twice");
    refuse("input { dims: 1 }", "expected a name");
    refuse("version_policy { all { } latest { } }", "one of latest, all and specific");
    refuse("version_policy { specific { } }", "expected versions");
    refuse("dynamic_batching { preserve_ordering: maybe }", "true or false");
    refuse("max_batch_size: 4 dynamic_batching { preferred_batch_size: 8 }", "at most max_batch");
    refuse("dynamic_batching { priority_levels: 2 default_priority_level: 3 }", "default_priority");
    refuse("dynamic_batching { priority_levels: 2 }", "default_priority");
    refuse("default_model_filename: '../../etc/passwd'", "the plain name of a file");
    refuse("default_model_filename: 'a/b.onnx'", "the plain name of a file");
    refuse("parameters { key: 'precision' value { string_value: 'fp12' } }", "fp16 or bf16");
    refuse("parameters { key: 'precision' value { string_value: 'int8' } }", "--ranges");
    refuse("parameters { key: 'on_new_shape' value { string_value: 'pray' } }",
           "wait, refuse or fallback");
    refuse("parameters { key: 'ranges' value { string_value: 'r' } }", "--ranges FILE");
    refuse("parameters { key: 'profiles' value { string_value: '8,1' } }", "rising batch sizes");
    refuse("parameters { key: 'profiles' value { string_value: '' } }", "rising batch sizes");
    refuse("parameters { key: 'profiles' }", "expected a string_value");
    refuse("parameters { key: 'input_scale:x' value { string_value: '1,,2' } }", "numbers such as");
    refuse("parameters { key: 'input_type:' value { string_value: 'uint8' } }", "uint8 or fp16");
    refuse("parameters { key: 'output_type:y' value { string_value: 'fp8' } }", "fp16, uint8 or");
    refuse("parameters { key: 'output_type:' value { string_value: 'fp16' } }", "fp16, uint8 or");
    refuse("parameters { key: 'profiles' value { string_value: '1' } } "
           "parameters { key: 'profiles' value { string_value: '1' } }",
           "expected once, got twice");
    refuse("model_warmup { inputs { key: 'x' value { dims: 1 } } }", "expected one of zero_data");
    refuse("model_warmup { inputs { key: 'x' value { input_data_file: '../x' } } }", "plain name");
    refuse("instance_group { passive: true }", "'passive'");
}

/* --- beside inferd.yaml --- */

#define PARAMETER(key, value) "parameters { key: '" key "' value { string_value: '" value "' } } "

/* Each key of a model in inferd.yaml, and how config.pbtxt says the same. */
static const struct {
    const char *key, *text; /* text NULL: the folder, or the file's place in it, says it */
} both[] = {
    {"name", NULL},
    {"path", NULL},
    {"version", NULL},
    {"max_batch", "max_batch_size: 4"},
    {"max_delay_us", "dynamic_batching { max_queue_delay_microseconds: 7 }"},
    {"queue_limit", "dynamic_batching { default_queue_policy { max_queue_size: 9 } }"},
    {"instances", "instance_group { count: 3 }"},
    {"precision", PARAMETER("precision", "fp16")},
    {"max_bytes", PARAMETER("max_bytes", "64MiB")},
    {"memory_percent", PARAMETER("memory_percent", "50")},
    {"workspace", PARAMETER("workspace", "1GiB")},
    {"on_new_shape", PARAMETER("on_new_shape", "wait")},
};

static const char *const both_sizes[CONFIG_SIZE_COUNT_] = {
    [CONFIG_DIMS] = PARAMETER("dim:seq", "8"),
    [CONFIG_SHAPES] = PARAMETER("shape:x", "1..8x2"),
    [CONFIG_PROFILES] = PARAMETER("profiles:seq", "8,16"),
    [CONFIG_VALUES] = PARAMETER("value:s", "7"),
    [CONFIG_RAGGED] = PARAMETER("ragged:ids", "true"),
    [CONFIG_OUTPUT_TYPES] = PARAMETER("output_type:y", "fp16"),
    [CONFIG_PIN] = PARAMETER("pin:conv 1 + relu", "fp32"),
    [CONFIG_KEEP] = PARAMETER("keep:conv 1", "true"),
};

static size_t field_size(enum field_kind kind)
{
    return kind == FIELD_TEXT   ? sizeof(char *)
           : kind == FIELD_U32  ? sizeof(uint32_t)
           : kind == FIELD_BOOL ? sizeof(bool)
                                : sizeof(uint64_t);
}

/* A key that is added to inferd.yaml alone fails here. */
static void every_key_of_a_model_in_inferd_yaml_can_be_said(void **state)
{
    (void)state;
    struct model_file *none = parse("platform: 'inferd_plan'");
    for (const struct field *f = config_model_fields; f->key; f++) {
        size_t i = 0;
        while (i < ARRAY_LEN(both) && strcmp(both[i].key, f->key) != 0)
            i++;
        if (i == ARRAY_LEN(both))
            fail_msg("config.pbtxt cannot say '%s', which inferd.yaml has", f->key);
        if (!both[i].text)
            continue;
        struct model_file *said = parse(both[i].text);
        const char *a = (const char *)&said->config + f->value,
                   *b = (const char *)&none->config + f->value;
        if (memcmp(a, b, field_size(f->kind)) == 0)
            fail_msg("\"%s\" does not set '%s'", both[i].text, f->key);
        assert_string_equal(log_text, "");
        model_file_free(said);
    }
    for (uint32_t k = 0; k < CONFIG_SIZE_COUNT_; k++) {
        assert_non_null(both_sizes[k]);
        struct model_file *said = parse(both_sizes[k]);
        assert_int_equal(said->config.sizes[k].count, 1);
        assert_string_equal(log_text, "");
        model_file_free(said);
    }
    model_file_free(none);
}

static void limits_of_builds_are_those_of_inferd_yaml(void **state)
{
    (void)state;
    struct model_file *f = parse(PARAMETER("max_bytes", "64MiB") PARAMETER("memory_percent", "50")
                                     PARAMETER("workspace", "0") PARAMETER("pin:a", "fp32")
                                         PARAMETER("pin:b", "ref") PARAMETER("keep:c=d", "true"));
    assert_int_equal(f->config.max_bytes, 64 << 20);
    assert_int_equal(f->config.memory_percent, 50);
    assert_int_equal(f->config.workspace, 0);
    assert_string_equal(f->config.sizes[CONFIG_PIN].items[0], "a=fp32");
    assert_string_equal(f->config.sizes[CONFIG_PIN].items[1], "b=ref");
    assert_string_equal(f->config.sizes[CONFIG_KEEP].items[0], "c=d");
    model_file_free(f);
    refuse(PARAMETER("max_bytes", "64MB"), "parameter: max_bytes: expected a size");
    refuse(PARAMETER("max_bytes", "-1"), "parameter: max_bytes: expected a size");
    refuse(PARAMETER("memory_percent", "101"), "expected a whole number from 0 to 100");
    refuse(PARAMETER("workspace", "99999999999999999999"), "expected a size");
    refuse(PARAMETER("pin:", "fp32"), "expected a tactic");
    refuse(PARAMETER("pin:--x", "fp32"), "expected a tactic");
    refuse(PARAMETER("pin:x", ""), "expected a tactic");
    refuse(PARAMETER("keep:x", "false"), "expected true");
    refuse(PARAMETER("keep:-x", "true"), "expected true");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_usual_file),
        cmocka_unit_test(an_empty_file_has_the_defaults_of_triton),
        cmocka_unit_test(sizes_are_the_builders_options),
        cmocka_unit_test(nothing_is_swallowed),
        cmocka_unit_test(what_would_change_results_is_refused),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(every_key_of_a_model_in_inferd_yaml_can_be_said),
        cmocka_unit_test(limits_of_builds_are_those_of_inferd_yaml),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
