/* SPDX-License-Identifier: Apache-2.0 */
/* From a model file to a plan: batches, names, determinism, refusals. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/build/build.h"
#include "engine/cpu/eval.h"
#include "engine/engine.h"
#include "tests/calm.h"
#include "tests/test.h"
#include "tests/unit/import/wire.h"

struct fixture {
    struct device *device;
    struct onnx_model *digits;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct error err;
    struct device_options options = {.threads = 1, .reference_only = true};
    assert_non_null(f);
    if (engine_device_open("cpu", &options, &f->device, &err) ||
        onnx_open(DIGITS, &f->digits, &err)) /* DIGITS: models/digits.onnx, from meson.build */
        fail_msg("%s", err.text);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    onnx_close(f->digits);
    engine_device_close(f->device);
    free(f);
    return 0;
}

static struct build_options options_of(const struct fixture *f)
{
    return (struct build_options){
        .device = f->device, .evaluator = {.eval = cpu_eval_node}, .no_timing = true};
}

static void batches_become_profiles(void **state)
{
    const struct fixture *f = *state;
    struct build_options options = options_of(f);
    static const uint32_t batches[] = {8, 1, 3, 8};
    struct plan *plan;
    struct error err;
    options.batches = batches;
    options.n_batches = ARRAY_LEN(batches);
    if (build_plan(f->digits, &options, &plan, &err))
        fail_msg("%s", err.text);
    assert_true(plan->batched);
    assert_int_equal(plan->n_profiles, 3);
    assert_int_equal(plan->profiles[0].batch, 1);
    assert_int_equal(plan->profiles[1].batch, 3);
    assert_int_equal(plan->profiles[2].batch, 8);
    assert_int_equal(plan->n_inputs, 1);
    assert_string_equal(plan->inputs[0].name, "image");
    assert_int_equal(plan->inputs[0].shape.dim[0], -1);
    assert_string_equal(plan->outputs[0].name, "probabilities");
    assert_int_equal(strlen(plan->digest), 32);
    assert_true(strlen(plan->device) > 0);
    plan_free(plan);
    options.batches = NULL;
    if (build_plan(f->digits, &options, &plan, &err))
        fail_msg("%s", err.text);
    assert_int_equal(plan->n_profiles, 6);
    assert_int_equal(plan->profiles[5].batch, 32);
    plan_free(plan);
}

static void bad_batches_are_refused(void **state)
{
    const struct fixture *f = *state;
    static const uint32_t zero[] = {1, 0}, huge[] = {PLAN_MAX_BATCH + 1};
    struct build_options options = options_of(f);
    struct plan *plan = NULL;
    struct error err;
    options.batches = zero;
    options.n_batches = 2;
    assert_int_equal(build_plan(f->digits, &options, &plan, &err), STATUS_INVALID_ARGUMENT);
    options.batches = huge;
    options.n_batches = 1;
    assert_int_equal(build_plan(f->digits, &options, &plan, &err), STATUS_INVALID_ARGUMENT);
    options.n_batches = 0;
    assert_int_equal(build_plan(f->digits, &options, &plan, &err), STATUS_INVALID_ARGUMENT);
    assert_null(plan);
}

struct heard {
    char text[4096];
};

static void hear(void *user, enum log_level level, const char *line)
{
    struct heard *heard = user;
    (void)level;
    if (strlen(heard->text) + strlen(line) + 2 < sizeof(heard->text))
        strcat(strcat(heard->text, line), "\n");
}

enum model { FIXED, SUMMED, SINGLE, NAMES, CENTRED, APART };

/* Small models, byte by byte. */
static void write_model(struct wire *out, enum model which)
{
    struct wire graph = {.n = 0}, attrs = {.n = 0};
    static const int64_t fixed[] = {3, 2}, any[] = {-1, 4}, two[] = {2}, target[] = {1, 4};
    static const int64_t axis[] = {0}, last[] = {1}, named[] = {-4, 4};
    const char *in = which == NAMES ? "an?input!" : "x",
               *end = which == NAMES ? "scope/out:0" : "y";
    wire_input(&graph, in, 1, 2, which == FIXED ? fixed : which >= CENTRED ? named : any);
    switch (which) {
    case FIXED:
    case NAMES:
        wire_node(&graph, "Relu", in, end, NULL);
        break;
    case SUMMED:
        wire_attr_ints(&attrs, "axes", 1, axis);
        wire_node(&graph, "ReduceSum", in, end, &attrs);
        break;
    case CENTRED: /* by all instances */
    case APART:   /* by its own numbers */
        wire_attr_ints(&attrs, "axes", 1, which == CENTRED ? axis : last);
        wire_node(&graph, "ReduceMean", in, "mean", &attrs);
        wire_node(&graph, "Sub", "x mean", end, NULL);
        break;
    case SINGLE:
        wire_constant(&graph, "target", 7, 1, two, target, sizeof(target));
        wire_node(&graph, "Reshape", "x target", end, NULL);
        break;
    }
    wire_output(&graph, end);
    wire_model(out, &graph, 11);
}

static enum status build_bytes(const struct fixture *f, const struct wire *bytes,
                               const uint32_t *batches, uint32_t n, uint64_t max_bytes,
                               struct heard *heard, struct plan **plan, struct error *err)
{
    struct onnx_model *model;
    struct build_options options = options_of(f);
    struct log_sink log = {.level = LOG_WARNING, .write = hear, .user = heard};
    memset(heard, 0, sizeof(*heard));
    options.batches = batches;
    options.n_batches = n;
    options.max_bytes = max_bytes;
    options.log = &log;
    if (onnx_open_memory(bytes->data, bytes->n, &model, err))
        fail_msg("%s", err->text);
    enum status status = build_plan(model, &options, plan, err);
    onnx_close(model);
    return status;
}

static void build_one(const struct fixture *f, enum model which, const uint32_t *batches,
                      uint32_t n, struct heard *heard, enum status *status, struct plan **plan,
                      struct error *err)
{
    struct wire bytes;
    write_model(&bytes, which);
    *status = build_bytes(f, &bytes, batches, n, 0, heard, plan, err);
    if (*status == STATUS_OK && plan_check(*plan, err))
        fail_msg("%s", err->text);
}

static void a_fixed_batch_gives_one_profile(void **state)
{
    static const uint32_t one[] = {1}, more[] = {1, 8};
    struct heard heard;
    enum status status;
    struct plan *plan = NULL;
    struct error err;
    build_one(*state, FIXED, NULL, 0, &heard, &status, &plan, &err);
    assert_int_equal(status, STATUS_OK);
    assert_false(plan->batched);
    assert_int_equal(plan->n_profiles, 1);
    assert_int_equal(plan->profiles[0].batch, 1);
    assert_int_equal(plan->inputs[0].shape.dim[0], 3);
    plan_free(plan);
    build_one(*state, FIXED, one, 1, &heard, &status, &plan, &err);
    assert_int_equal(status, STATUS_OK);
    plan_free(plan);
    build_one(*state, FIXED, more, 2, &heard, &status, &plan, &err);
    assert_int_equal(status, STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "not batched"));
}

/* The batch dimension of its input is symbolic, but the model sums over it. */
static void an_output_without_the_batch_makes_it_unbatched(void **state)
{
    struct heard heard;
    enum status status;
    struct plan *plan = NULL;
    struct error err;
    build_one(*state, SUMMED, NULL, 0, &heard, &status, &plan, &err);
    assert_int_equal(status, STATUS_OK);
    assert_false(plan->batched);
    assert_int_equal(plan->n_profiles, 1);
    assert_non_null(strstr(heard.text, "not batched"));
    plan_free(plan);
}

/* A dimension that is called a batch is one, whatever the layers do: people are told. */
static void a_named_batch_whose_instances_mix_is_warned_of(void **state)
{
    static const uint32_t one[] = {1}, more[] = {1, 8};
    static const struct {
        enum model which;
        const uint32_t *batches;
        uint32_t n;
        bool warned;
    } cases[] = {{CENTRED, more, 2, true}, {CENTRED, one, 1, false}, {APART, more, 2, false}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct heard heard;
        enum status status;
        struct plan *plan = NULL;
        struct error err;
        build_one(*state, cases[i].which, cases[i].batches, cases[i].n, &heard, &status, &plan,
                  &err);
        assert_int_equal(status, STATUS_OK);
        assert_true(plan->batched);
        bool warned = strstr(heard.text, "layer 'ReduceMean_0' mixes instances of a batch") != NULL;
        assert_int_equal(warned, cases[i].warned);
        plan_free(plan);
    }
}

/* The model's reshape fits one instance only. */
static void a_model_that_cannot_take_two_makes_it_unbatched(void **state)
{
    struct heard heard;
    enum status status;
    struct plan *plan = NULL;
    struct error err;
    build_one(*state, SINGLE, NULL, 0, &heard, &status, &plan, &err);
    assert_int_equal(status, STATUS_OK);
    assert_false(plan->batched);
    assert_non_null(strstr(heard.text, "two instances"));
    plan_free(plan);
}

static void names_become_such_that_clients_can_write_them(void **state)
{
    struct heard heard;
    enum status status;
    struct plan *plan = NULL;
    struct error err;
    build_one(*state, NAMES, NULL, 0, &heard, &status, &plan, &err);
    assert_int_equal(status, STATUS_OK);
    assert_string_equal(plan->inputs[0].name, "an_input_");
    assert_string_equal(plan->outputs[0].name, "scope/out:0");
    assert_non_null(strstr(heard.text, "an_input_"));
    plan_free(plan);
}

static void put(const struct fixture *f, const char *path, struct tune_cache *cache)
{
    static const uint32_t batches[] = {1, 4};
    struct build_options options = options_of(f);
    struct plan *plan;
    struct error err;
    options.cache = cache;
    options.no_timing = !cache;
    options.batches = batches;
    options.n_batches = 2;
    if (build_plan(f->digits, &options, &plan, &err) || plan_write(path, plan, &err))
        fail_msg("%s", err.text);
    plan_free(plan);
}

static void assert_same_files(const char *a, const char *b)
{
    struct file_map x, y;
    struct error err;
    assert_int_equal(file_map_path(a, 0, &x, &err), STATUS_OK);
    assert_int_equal(file_map_path(b, 0, &y, &err), STATUS_OK);
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    file_unmap(&x);
    file_unmap(&y);
}

static void the_same_cache_gives_the_same_plan(void **state)
{
    const struct fixture *f = *state;
    struct tune_cache *cache;
    struct error err;
    char a[64], b[64];
    snprintf(a, sizeof(a), "/tmp/inferd-build-%d-a.plan", (int)getpid());
    snprintf(b, sizeof(b), "/tmp/inferd-build-%d-b.plan", (int)getpid());
    put(f, a, NULL);
    put(f, b, NULL);
    assert_same_files(a, b);
    const struct backend *was = calm_down(f->device);
    assert_int_equal(tune_cache_new(f->device, &cache, &err), STATUS_OK);
    put(f, a, cache); /* the first build fills the cache */
    put(f, a, cache);
    put(f, b, cache);
    assert_same_files(a, b);
    f->device->backend = was;
    tune_cache_free(cache);
    unlink(a);
    unlink(b);
}

/* x [N, 1] is expanded to [N, 2^18] and summed up, which takes a MiB for each instance. */
static void write_large(struct wire *out)
{
    struct wire graph = {.n = 0}, attrs = {.n = 0};
    static const int64_t any[] = {-1, 1}, two[] = {2}, to[] = {1, 1 << 18}, axis[] = {1};
    wire_input(&graph, "x", 1, 2, any);
    wire_constant(&graph, "to", 7, 1, two, to, sizeof(to));
    wire_node(&graph, "Expand", "x to", "large", NULL);
    wire_attr_ints(&attrs, "axes", 1, axis);
    wire_node(&graph, "ReduceSum", "large", "y", &attrs);
    wire_output(&graph, "y");
    wire_model(out, &graph, 11);
}

static enum status build_large(const struct fixture *f, const uint32_t *batches, uint32_t n,
                               uint64_t max_bytes, struct heard *heard, struct plan **plan,
                               struct error *err)
{
    struct wire bytes;
    write_large(&bytes);
    return build_bytes(f, &bytes, batches, n, max_bytes, heard, plan, err);
}

static void what_needs_too_much_memory_is_refused(void **state)
{
    static const uint32_t batches[] = {1, 8};
    struct heard heard;
    struct plan *plan = NULL;
    struct error err;
    const uint64_t mib = 1 << 20;
    assert_int_equal(build_large(*state, NULL, 0, mib, &heard, &plan, &err),
                     STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "batch 1: needs 1.0 MiB of memory: constants 0.0"));
    assert_non_null(strstr(err.text, "at most 1.0 MiB are allowed"));
    /* Batch sizes that the caller asks for are built, or the model is refused. */
    assert_int_equal(build_large(*state, batches, 2, 4 * mib, &heard, &plan, &err),
                     STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "batch 8: needs 8.0 MiB"));
    assert_int_equal(build_large(*state, batches, 2, 9 * mib, &heard, &plan, &err), STATUS_OK);
    plan_free(plan);
    assert_int_equal(build_large(*state, batches, 2, 0, &heard, &plan, &err), STATUS_OK);
    plan_free(plan);
}

static void default_batches_that_need_too_much_are_left_out(void **state)
{
    struct heard heard;
    struct plan *plan = NULL;
    struct error err;
    if (build_large(*state, NULL, 0, (uint64_t)5 << 20, &heard, &plan, &err))
        fail_msg("%s", err.text);
    assert_int_equal(plan->n_profiles, 3);
    assert_int_equal(plan->profiles[2].batch, 4);
    assert_non_null(strstr(heard.text, "left out: batch 8"));
    plan_free(plan);
}

static void constants_are_kept_once(void **state)
{
    const struct fixture *f = *state;
    struct build_options options = options_of(f);
    struct plan *plan;
    struct error err;
    unsigned shared = 0;
    if (build_plan(f->digits, &options, &plan, &err))
        fail_msg("%s", err.text);
    const struct ir_graph *a = plan->profiles[0].graph, *b = plan->profiles[1].graph;
    for (uint32_t i = 0; i < a->n_tensors; i++)
        for (uint32_t k = 0; k < b->n_tensors; k++) {
            const struct ir_tensor *x = ir_tensor(a, i), *y = ir_tensor(b, k);
            shared += ir_tensor_is_constant(x) && x->data == y->data;
        }
    assert_true(shared >= 6);
    plan_free(plan);
}

/* Two layers. */
static void write_layers(struct wire *out)
{
    struct wire graph = {.n = 0};
    static const int64_t any[] = {-1, 4}, square[] = {4, 4};
    static const float w[16] = {1, 0.5F, -1, 0.25F, 2};
    wire_input(&graph, "x", 1, 2, any);
    wire_constant(&graph, "w", 1, 2, square, w, sizeof(w));
    wire_node(&graph, "MatMul", "x w", "a", NULL);
    wire_node(&graph, "Relu", "a", "b", NULL);
    wire_node(&graph, "MatMul", "b w", "y", NULL);
    wire_output(&graph, "y");
    wire_model(out, &graph, 11);
}

/* The chains of both profiles. */
static uint32_t count_chains(const struct build_options *options)
{
    struct wire bytes;
    struct onnx_model *model = NULL;
    struct plan *plan = NULL;
    struct error err;
    uint32_t n = 0;
    write_layers(&bytes);
    if (onnx_open_memory(bytes.data, bytes.n, &model, &err) ||
        build_plan(model, options, &plan, &err))
        fail_msg("%s", err.text);
    for (uint32_t p = 0; p < plan->n_profiles; p++)
        for (uint32_t i = 0; i < plan->profiles[p].graph->n_nodes; i++)
            n += ir_node(plan->profiles[p].graph, i)->op == IR_OP_MLP;
    plan_free(plan);
    onnx_close(model);
    return n;
}

/* Layers are one node for backends that say so and have the memory; not where tensors have ranges,
 * nor where the caller wants them apart. */
static void chains_are_for_backends_that_have_them(void **state)
{
    const struct fixture *f = *state;
    static const uint32_t batches[] = {1, 8};
    const struct backend *own = f->device->backend;
    struct backend chains = *own;
    struct build_options options = options_of(f), apart, bytes;
    options.batches = batches;
    options.n_batches = ARRAY_LEN(batches);
    apart = bytes = options;
    apart.layers_apart = true;
    bytes.precision = PRECISION_I8;
    bytes.keep_missing = true;
    chains.features |= BACKEND_CHAINS;
    assert_false(own->features & BACKEND_CHAINS);
    f->device->backend = &chains;
    assert_int_equal(count_chains(&options), 0);
    f->device->block_bytes = 227 << 10;
    assert_int_equal(count_chains(&options), 2);
    assert_int_equal(count_chains(&apart), 0);
    assert_int_equal(count_chains(&bytes), 0);
    f->device->backend = own;
    assert_int_equal(count_chains(&options), 0);
    f->device->block_bytes = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_become_profiles),
        cmocka_unit_test(bad_batches_are_refused),
        cmocka_unit_test(a_fixed_batch_gives_one_profile),
        cmocka_unit_test(an_output_without_the_batch_makes_it_unbatched),
        cmocka_unit_test(a_named_batch_whose_instances_mix_is_warned_of),
        cmocka_unit_test(a_model_that_cannot_take_two_makes_it_unbatched),
        cmocka_unit_test(names_become_such_that_clients_can_write_them),
        cmocka_unit_test(the_same_cache_gives_the_same_plan),
        cmocka_unit_test(what_needs_too_much_memory_is_refused),
        cmocka_unit_test(default_batches_that_need_too_much_are_left_out),
        cmocka_unit_test(constants_are_kept_once),
        cmocka_unit_test(chains_are_for_backends_that_have_them),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
