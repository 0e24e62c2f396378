/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/build/build.h"
#include "engine/plan/format.h"
#include "tests/test.h"
#include "tests/unit/plan/sample.h"

/* A sample plan as a file image; aligned, so that it can be read in place. */
struct image {
    unsigned char *data;
    size_t size;
    char path[64];
};

static int setup(void **state)
{
    struct image *image = calloc(1, sizeof(*image));
    struct plan *plan = sample_plan();
    struct error err;
    struct file_map map;
    assert_non_null(image);
    assert_non_null(plan);
    snprintf(image->path, sizeof(image->path), "/tmp/inferd-plan-%d.plan", (int)getpid());
    if (plan_write(image->path, plan, &err))
        fail_msg("%s", err.text);
    plan_free(plan);
    assert_int_equal(file_map_path(image->path, 0, &map, &err), STATUS_OK);
    image->data = aligned_alloc(64, (map.size + 63) / 64 * 64);
    assert_non_null(image->data);
    memcpy(image->data, map.data, map.size);
    image->size = map.size;
    file_unmap(&map);
    *state = image;
    return 0;
}

static int teardown(void **state)
{
    struct image *image = *state;
    unlink(image->path);
    free(image->data);
    free(image);
    return 0;
}

static enum status read_image(const struct image *image, size_t size, struct error *err)
{
    struct plan *plan = NULL;
    enum status status = plan_read_memory(image->data, size, &plan, err);
    assert_true((status == STATUS_OK) == (plan != NULL));
    plan_free(plan);
    return status;
}

static void seal(struct image *image)
{
    struct plan_header h;
    memcpy(&h, image->data, sizeof(h));
    plan_digest(&h, XXH3_128bits(image->data + sizeof(h), image->size - sizeof(h)), h.digest);
    memcpy(image->data, &h, sizeof(h));
}

static void assert_same_node(const struct ir_node *a, const struct ir_node *b)
{
    assert_int_equal(a->op, b->op);
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->n_inputs, b->n_inputs);
    assert_memory_equal(a->inputs, b->inputs, a->n_inputs * sizeof(uint32_t));
    assert_int_equal(a->n_outputs, b->n_outputs);
    assert_memory_equal(a->outputs, b->outputs, a->n_outputs * sizeof(uint32_t));
    assert_int_equal(a->n_attrs, b->n_attrs);
    for (uint32_t i = 0; i < a->n_attrs; i++) {
        assert_int_equal(a->attrs[i].key, b->attrs[i].key);
        assert_int_equal(a->attrs[i].count, b->attrs[i].count);
        assert_memory_equal(a->attrs[i].i, b->attrs[i].i, a->attrs[i].count * sizeof(int64_t));
    }
    assert_int_equal(a->n_epilogue, b->n_epilogue);
    assert_int_equal(a->segment, b->segment);
    assert_int_equal(a->workspace_offset, b->workspace_offset);
    assert_int_equal(a->workspace_bytes, b->workspace_bytes);
    assert_int_equal(a->time_ns, b->time_ns);
    assert_int_equal(a->tactic == NULL, b->tactic == NULL);
    if (!a->tactic)
        return;
    assert_string_equal(a->tactic->backend, b->tactic->backend);
    assert_string_equal(a->tactic->name, b->tactic->name);
    assert_int_equal(a->tactic->id, b->tactic->id);
    assert_int_equal(a->tactic->blob_size, b->tactic->blob_size);
    assert_memory_equal(a->tactic->blob, b->tactic->blob, a->tactic->blob_size);
    assert_int_equal(a->tactic->n_in, b->tactic->n_in);
    for (uint32_t i = 0; i < a->tactic->n_in; i++)
        assert_true(ir_format_equal(a->tactic->in[i].format, b->tactic->in[i].format));
    for (uint32_t i = 0; i < a->tactic->n_out; i++)
        assert_true(ir_format_equal(a->tactic->out[i].format, b->tactic->out[i].format));
    assert_int_equal(a->tactic->code_size, b->tactic->code_size);
    if (a->tactic->code_size)
        assert_memory_equal(a->tactic->code, b->tactic->code, a->tactic->code_size);
}

static void assert_same_graph(const struct ir_graph *a, const struct ir_graph *b)
{
    assert_int_equal(a->n_tensors, b->n_tensors);
    assert_int_equal(a->n_nodes, b->n_nodes);
    assert_int_equal(a->n_segments, b->n_segments);
    for (uint32_t i = 0; i < a->n_tensors; i++) {
        const struct ir_tensor *x = ir_tensor(a, i), *y = ir_tensor(b, i);
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->dtype, y->dtype);
        assert_true(shape_equal(&x->shape, &y->shape));
        assert_int_equal(x->place, y->place);
        assert_int_equal(x->producer, y->producer);
        assert_int_equal(x->alias_of, y->alias_of);
        assert_int_equal(x->bytes, y->bytes);
        if (x->data)
            assert_memory_equal(x->data, y->data, x->bytes);
        else
            assert_int_equal(x->offset, y->offset);
    }
    for (uint32_t i = 0; i < a->n_nodes; i++)
        assert_same_node(ir_node(a, i), ir_node(b, i));
    assert_int_equal(a->segments[0].arena_bytes, b->segments[0].arena_bytes);
    assert_string_equal(a->segments[0].backend, b->segments[0].backend);
}

static void assert_same_exactness(const struct plan_exactness *a, const struct plan_exactness *b)
{
    assert_true(a->measured && b->measured);
    assert_int_equal(a->data, b->data);
    assert_int_equal(a->samples, b->samples);
    assert_true(a->bound == b->bound);
    assert_int_equal(a->n_outputs, b->n_outputs);
    assert_memory_equal(a->outputs, b->outputs, a->n_outputs * sizeof(a->outputs[0]));
    assert_int_equal(a->n_held, b->n_held);
    for (uint32_t i = 0; i < a->n_held; i++) {
        assert_string_equal(a->held[i].layer, b->held[i].layer);
        assert_int_equal(a->held[i].type, b->held[i].type);
        assert_true(a->held[i].error == b->held[i].error);
    }
}

static void round_trip(void **state)
{
    const struct image *image = *state;
    struct plan *was = sample_plan(), *is;
    struct error err;
    if (plan_read(image->path, &is, &err))
        fail_msg("%s", err.text);
    assert_string_equal(is->name, was->name);
    assert_string_equal(is->device, was->device);
    assert_string_equal(is->digest, was->digest);
    assert_true(is->batched);
    assert_int_equal(is->n_inputs, 1);
    assert_int_equal(is->n_outputs, 4);
    assert_string_equal(is->outputs[1].name, "z");
    assert_true(shape_equal(&is->outputs[1].shape, &was->outputs[1].shape));
    assert_int_equal(is->n_profiles, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(is->profiles[i].batch, was->profiles[i].batch);
        assert_int_equal(is->profiles[i].tensor_bytes, was->profiles[i].tensor_bytes);
        assert_same_graph(was->profiles[i].graph, is->profiles[i].graph);
    }
    assert_same_exactness(&was->exactness, &is->exactness);
    plan_free(was);
    plan_free(is);
}

static void what_a_ragged_plan_says_is_read_back(void **state)
{
    (void)state;
    struct plan *was = sample_plan(), *is = NULL;
    struct error err;
    char path[64];
    snprintf(path, sizeof(path), "/tmp/inferd-ragged-%d.plan", (int)getpid());
    was->ragged = (struct plan_ragged){
        .max_length = 300, .mask = "mask", .mask_type = DTYPE_BOOL, .mask_at = 1};
    was->output_axes[2].role = PLAN_ROLE_SEQUENCES;
    if (plan_write(path, was, &err) || plan_read(path, &is, &err))
        fail_msg("%s", err.text);
    assert_int_equal(is->ragged.max_length, 300);
    assert_string_equal(is->ragged.mask, "mask");
    assert_int_equal(is->ragged.mask_type, DTYPE_BOOL);
    assert_int_equal(is->ragged.mask_at, 1);
    assert_int_equal(is->output_axes[1].role, PLAN_ROLE_TOKENS);
    assert_int_equal(is->output_axes[2].role, PLAN_ROLE_SEQUENCES);
    unlink(path);
    plan_free(was);
    plan_free(is);
}

static void constants_are_stored_once_and_aligned(void **state)
{
    const struct image *image = *state;
    struct plan *plan;
    struct error err;
    assert_int_equal(plan_read(image->path, &plan, &err), STATUS_OK);
    /* w is 576 bytes, b 16: two profiles share them. */
    assert_int_equal(plan->weight_bytes, 576 + 16);
    for (uint32_t p = 0; p < 2; p++)
        for (uint32_t i = 0; i < plan->profiles[p].graph->n_tensors; i++)
            assert_int_equal((uintptr_t)ir_tensor(plan->profiles[p].graph, i)->data % 64, 0);
    plan_free(plan);
}

static void code_is_stored_once_and_aligned(void **state)
{
    const struct image *image = *state;
    struct plan *plan;
    struct error err;
    assert_int_equal(plan_read(image->path, &plan, &err), STATUS_OK);
    /* The convolution's 33 bytes are shared by both profiles; each softmax has 10 bytes of its
     * own. */
    assert_int_equal(plan->code_bytes, 64 + 64 + 10);
    const void *shared = NULL;
    for (uint32_t p = 0; p < 2; p++)
        for (uint32_t i = 0; i < plan->profiles[p].graph->n_nodes; i++) {
            const struct ir_node *node = ir_node(plan->profiles[p].graph, i);
            if (!node->tactic || !node->tactic->code_size)
                continue;
            assert_int_equal((uintptr_t)node->tactic->code % 64, 0);
            if (node->op != IR_OP_CONV)
                continue;
            assert_true(!shared || shared == node->tactic->code);
            shared = node->tactic->code;
        }
    assert_non_null(shared);
    plan_free(plan);
}

static void code_outside_its_section_is_refused(void **state)
{
    struct image *image = *state;
    struct error err;
    struct plan_header h, was;
    memcpy(&was, image->data, sizeof(was));
    h = was;
    /* Makes the section too short for the last tactic's code. */
    h.code_size -= 1;
    h.file_size -= 1;
    h.tail_offset -= 1;
    memcpy(image->data, &h, sizeof(h));
    image->size--;
    seal(image);
    assert_int_equal(read_image(image, image->size, &err), STATUS_DATA_LOSS);
    assert_non_null(strstr(err.text, "code"));
    image->size++;
    memcpy(image->data, &was, sizeof(was));
    assert_int_equal(read_image(image, image->size, &err), STATUS_OK);
}

static void device_lines(void **state)
{
    char line[PLAN_DEVICE_MAX], longest[FINGERPRINT_MAX];
    (void)state;
    plan_device_line(line, "toy 1", NULL);
    assert_string_equal(line, "toy 1");
    plan_device_line(line, "toy 1", "cpu; threads 4");
    assert_string_equal(line, "toy 1 | cpu; threads 4");
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    plan_device_line(line, longest, longest);
    assert_in_range(strlen(line), FINGERPRINT_MAX, PLAN_DEVICE_MAX - 1);
}

/* Two backends share one layout of their arenas: a tensor may cross over, and tensors that either
 * side still needs are not overwritten. */
static void segments_of_two_backends(void **state)
{
    struct plan *plan = sample_plan();
    struct error err;
    (void)state;
    assert_false(plan_needs_host(plan, "cpu"));
    assert_true(plan_needs_host(plan, "toy"));
    for (uint32_t p = 0; p < plan->n_profiles; p++) {
        struct ir_graph *g = plan->profiles[p].graph;
        for (uint32_t i = 0; i < g->n_nodes; i++)
            if (ir_node(g, i)->tactic && ir_node(g, i)->op != IR_OP_SOFTMAX)
                ((struct tactic *)(uintptr_t)ir_node(g, i)->tactic)->backend = "toy";
        assert_int_equal(build_place(g, &plan->profiles[p].tensor_bytes, &err), STATUS_OK);
        assert_int_equal(g->n_segments, 2); /* no node behind the softmax needs it */
        for (uint32_t i = 0; i < 2; i++) {
            assert_string_equal(g->segments[i].backend, i == 1 ? "cpu" : "toy");
            assert_int_equal(g->segments[i].arena_bytes, g->segments[0].arena_bytes);
        }
    }
    if (plan_check(plan, &err))
        fail_msg("%s", err.text);
    assert_true(plan_needs_host(plan, "toy"));
    plan->profiles[0].graph->segments[1].arena_bytes += 64;
    assert_int_equal(plan_check(plan, &err), STATUS_DATA_LOSS);
    plan_free(plan);
}

static void the_same_plan_gives_the_same_bytes(void **state)
{
    const struct image *image = *state;
    struct plan *plan = sample_plan();
    struct error err;
    struct file_map map;
    assert_int_equal(plan_write(image->path, plan, &err), STATUS_OK);
    plan_free(plan);
    assert_int_equal(file_map_path(image->path, 0, &map, &err), STATUS_OK);
    assert_int_equal(map.size, image->size);
    assert_memory_equal(map.data, image->data, map.size);
    file_unmap(&map);
}

static void r34_every_flipped_bit_of_the_header_is_refused(void **state)
{
    const struct image *image = *state;
    struct error err;
    assert_int_equal(read_image(image, image->size, &err), STATUS_OK);
    for (size_t bit = 0; bit < 8 * sizeof(struct plan_header); bit++) {
        image->data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        enum status status = read_image(image, image->size, &err);
        if (status != STATUS_DATA_LOSS && status != STATUS_FAILED_PRECONDITION)
            fail_msg("bit %zu of the header: %s", bit, status_name(status));
        image->data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_int_equal(read_image(image, image->size, &err), STATUS_OK);
}

static void r34_every_truncation_is_refused(void **state)
{
    const struct image *image = *state;
    struct error err;
    for (size_t size = 0; size < image->size; size++)
        if (read_image(image, size, &err) != STATUS_DATA_LOSS)
            fail_msg("%zu of %zu bytes were accepted", size, image->size);
}

static void r34_flipped_bits_behind_the_header_are_refused(void **state)
{
    const struct image *image = *state;
    struct error err;
    for (size_t i = sizeof(struct plan_header); i < image->size; i += 3) {
        image->data[i] ^= (unsigned char)(1u << i % 8);
        if (read_image(image, image->size, &err) != STATUS_DATA_LOSS)
            fail_msg("byte %zu was accepted", i);
        image->data[i] ^= (unsigned char)(1u << i % 8);
    }
}

/* Even if the digest fits, the reader survives any bytes: it refuses them, or the plan is
 * well-formed. */
static void r34_mutated_fields_never_crash(void **state)
{
    struct image *image = *state;
    struct error err;
    struct plan_header h;
    memcpy(&h, image->data, sizeof(h));
    size_t begin = h.structure_offset, end = begin + h.structure_size, accepted = 0;
    static const unsigned char values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    for (size_t i = begin; i < end; i++) {
        unsigned char was = image->data[i];
        for (size_t v = 0; v < sizeof(values); v++) {
            image->data[i] = values[v];
            seal(image);
            accepted += read_image(image, image->size, &err) == STATUS_OK;
        }
        for (int bit = 0; bit < 8; bit++) {
            image->data[i] = was ^ (unsigned char)(1 << bit);
            seal(image);
            accepted += read_image(image, image->size, &err) == STATUS_OK;
        }
        image->data[i] = was;
    }
    /* Names, times and tactics' data may change; most of the rest may not. */
    if (accepted > (end - begin) * 13 * 7 / 10)
        fail_msg("%zu of %zu mutations were accepted", accepted, (end - begin) * 13);
}

static void r34_header_fields_with_a_fitting_digest(void **state)
{
    struct image *image = *state;
    struct error err;
    unsigned char was[sizeof(struct plan_header)];
    memcpy(was, image->data, sizeof(was));
    for (size_t i = 0; i < sizeof(was); i++) {
        bool is_device =
            i >= offsetof(struct plan_header, device) &&
            i < offsetof(struct plan_header, device) + sizeof("cpu: a device for tests");
        bool is_model = i >= offsetof(struct plan_header, model_digest) &&
                        i < offsetof(struct plan_header, digest) + 16;
        image->data[i] ^= 0x41;
        seal(image);
        if (read_image(image, image->size, &err) == STATUS_OK && !is_device && !is_model)
            fail_msg("byte %zu of the header was accepted", i);
        memcpy(image->data, was, sizeof(was));
    }
}

/* The device's line fills its whole field: nothing may read on behind it. */
static void r34_a_device_line_has_an_end(void **state)
{
    struct image *image = *state;
    struct error err;
    memset(image->data + offsetof(struct plan_header, device), 'a', PLAN_DEVICE_MAX);
    seal(image);
    assert_int_equal(read_image(image, image->size, &err), STATUS_DATA_LOSS);
    assert_non_null(strstr(err.text, "bad header"));
}

/* Sections that begin where they must, but end behind the file's end. */
static void r34_sections_lie_in_the_file(void **state)
{
    struct image *image = *state;
    struct error err;
    struct plan_header was, h;
    memcpy(&was, image->data, sizeof(was));
    for (int i = 0; i < 3; i++) {
        h = was;
        if (i == 0)
            h.structure_size = PLAN_MAX_STRUCTURE;
        else if (i == 1)
            h.weights_size = image->size;
        else
            h.code_size = image->size;
        memcpy(image->data, &h, sizeof(h));
        seal(image);
        assert_int_equal(read_image(image, image->size, &err), STATUS_DATA_LOSS);
        assert_non_null(strstr(err.text, "its lengths do not add up"));
    }
}

static void another_version_says_so(void **state)
{
    struct image *image = *state;
    struct error err;
    uint32_t version = PLAN_VERSION + 1;
    memcpy(image->data + offsetof(struct plan_header, version), &version, sizeof(version));
    seal(image);
    assert_int_equal(read_image(image, image->size, &err), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "build it again"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(round_trip, setup, teardown),
        cmocka_unit_test(what_a_ragged_plan_says_is_read_back),
        cmocka_unit_test_setup_teardown(constants_are_stored_once_and_aligned, setup, teardown),
        cmocka_unit_test_setup_teardown(code_is_stored_once_and_aligned, setup, teardown),
        cmocka_unit_test_setup_teardown(code_outside_its_section_is_refused, setup, teardown),
        cmocka_unit_test(device_lines),
        cmocka_unit_test(segments_of_two_backends),
        cmocka_unit_test_setup_teardown(the_same_plan_gives_the_same_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(r34_every_flipped_bit_of_the_header_is_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(r34_every_truncation_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(r34_flipped_bits_behind_the_header_are_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(r34_mutated_fields_never_crash, setup, teardown),
        cmocka_unit_test_setup_teardown(r34_header_fields_with_a_fitting_digest, setup, teardown),
        cmocka_unit_test_setup_teardown(r34_a_device_line_has_an_end, setup, teardown),
        cmocka_unit_test_setup_teardown(r34_sections_lie_in_the_file, setup, teardown),
        cmocka_unit_test_setup_teardown(another_version_says_so, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
