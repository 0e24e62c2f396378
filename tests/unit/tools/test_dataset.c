/* SPDX-License-Identifier: Apache-2.0 */
/* Folders with samples: which files are an input's, which samples a file holds, what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/test.h"
#include "tools/dataset.h"
#include "tools/npy.h"

static char folder[] = "/tmp/inferd-dataset-XXXXXX";

static int set_up(void **state UNUSED)
{
    strcpy(folder + sizeof(folder) - 7, "XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state UNUSED)
{
    char command[64];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

/* Writes 1, 2, ... from `first` on, as FP32 of this shape. */
static void put(const char *name, float first, uint32_t rank, const int64_t *dims)
{
    char path[128];
    struct shape shape = {.rank = rank};
    size_t n = 1;
    for (uint32_t i = 0; i < rank; i++)
        n *= (size_t)(shape.dim[i] = dims[i]);
    float *values = malloc((n + 1) * sizeof(*values));
    for (size_t i = 0; i < n; i++)
        values[i] = first + (float)i;
    const struct tensor_view t = {DTYPE_F32, shape, values};
    struct error err;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    must(npy_write(path, &t, &err), &err);
    free(values);
}

static void make_folder(const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static const struct dataset_want pairs[] = {
    {"a/x", DTYPE_F32, {.rank = 2, .dim = {1, 2}}},
    {"b", DTYPE_F32, {.rank = 1, .dim = {1}}},
};

/* Reads to the end, or to the first error. `seen` gets the first number of each input of each
 * sample. */
static enum status read_all(uint32_t n, uint32_t limit, float *seen, uint32_t *samples,
                            struct error *err)
{
    const char *const names[] = {pairs[0].name, pairs[1].name};
    CLEANUP(dataset_cleanup) struct dataset *set = NULL;
    const void *data[2] = {NULL};
    bool end = false;
    *samples = 0;
    TRY(dataset_open(folder, names, n, limit, &set, err));
    assert_true(dataset_part(set) == 0);
    for (;; ++*samples) {
        TRY(dataset_next(set, pairs, data, &end, err));
        if (end)
            break;
        for (uint32_t i = 0; i < n; i++)
            seen[*samples * n + i] = *(const float *)data[i];
        assert_true(dataset_part(set) > 0 && dataset_part(set) <= 1);
        assert_non_null(strstr(dataset_file(set), folder));
    }
    assert_true(dataset_part(set) == 1);
    return STATUS_OK;
}

static void check(uint32_t n, uint32_t limit, uint32_t samples, const float *want)
{
    float seen[64];
    uint32_t got = 0;
    struct error err;
    must(read_all(n, limit, seen, &got, &err), &err);
    assert_int_equal(got, samples);
    for (uint32_t i = 0; i < n * samples; i++)
        assert_true(seen[i] == want[i]);
}

static void refuse(uint32_t n, enum status status, const char *says)
{
    float seen[64];
    uint32_t got;
    struct error err;
    assert_int_equal(read_all(n, 0, seen, &got, &err), status);
    if (!strstr(err.text, says))
        fail_msg("'%s' does not say '%s'", err.text, says);
}

static void one_input_takes_every_file(void **state UNUSED)
{
    put("2.npy", 10, 2, (const int64_t[]){3, 2});
    put("1.npy", 50, 1, (const int64_t[]){2});
    put("3.npy", 70, 2, (const int64_t[]){1, 2});
    put(".hidden.npy", 90, 2, (const int64_t[]){1, 2});
    put("notes.txt", 90, 2, (const int64_t[]){1, 2});
    check(1, 0, 5, (const float[]){50, 10, 12, 14, 70});
    check(1, 2, 4, (const float[]){50, 10, 12, 14});
    make_folder("a_x"); /* a folder of the input's name comes before loose files */
    refuse(1, STATUS_NOT_FOUND, "no .npy file in it");
    put("a_x/only.npy", 5, 1, (const int64_t[]){2});
    check(1, 0, 1, (const float[]){5});
}

static void several_inputs_have_files_of_their_names(void **state UNUSED)
{
    put("a_x.npy", 1, 2, (const int64_t[]){3, 2});
    refuse(2, STATUS_NOT_FOUND, "no data for input 'b'");
    put("b.npy", 7, 1, (const int64_t[]){3});
    check(2, 0, 3, (const float[]){1, 7, 3, 8, 5, 9});
    put("bc.npy", 9, 1, (const int64_t[]){3}); /* another name */
    check(2, 0, 3, (const float[]){1, 7, 3, 8, 5, 9});
    put("b.npy", 7, 1, (const int64_t[]){2});
    refuse(2, STATUS_INVALID_ARGUMENT, "input 'b' has fewer samples than input 'a/x'");
    put("b.npy", 7, 1, (const int64_t[]){4});
    refuse(2, STATUS_INVALID_ARGUMENT, "input 'b' has more samples than input 'a/x'");
}

static void files_of_several_inputs_go_together(void **state UNUSED)
{
    make_folder("b");
    put("a_x.01.npy", 1, 1, (const int64_t[]){2});
    put("a_x.02.npy", 3, 1, (const int64_t[]){2});
    put("b/.01.npy", 7, 0, NULL); /* hidden */
    put("b/01.npy", 7, 1, (const int64_t[]){1});
    put("b/02.npy", 8, 1, (const int64_t[]){1});
    refuse(2, STATUS_INVALID_ARGUMENT, "would be one sample");
    put("a_x.3.npy", 5, 1, (const int64_t[]){2}); /* as many samples, in other files */
    put("b/02.npy", 8, 1, (const int64_t[]){2});
    check(2, 0, 3, (const float[]){1, 7, 3, 8, 5, 9});
    check(2, 1, 1, (const float[]){1, 7});
}

static void what_is_no_sample_is_refused(void **state UNUSED)
{
    put("x.npy", 1, 2, (const int64_t[]){2, 3});
    refuse(1, STATUS_INVALID_ARGUMENT, "x.npy: FP32 [2,3]; input 'a/x' takes FP32 [1,2]");
    put("x.npy", 1, 3, (const int64_t[]){1, 1, 2});
    refuse(1, STATUS_INVALID_ARGUMENT, "FP32 [1,1,2]");
    put("x.npy", 1, 2, (const int64_t[]){0, 2});
    refuse(1, STATUS_INVALID_ARGUMENT, "FP32 [0,2]");
    put("x.npy", INFINITY, 1, (const int64_t[]){2});
    refuse(1, STATUS_INVALID_ARGUMENT, "x.npy: element 0 is inf");
    put("x.npy", NAN, 2, (const int64_t[]){2, 2});
    refuse(1, STATUS_INVALID_ARGUMENT, "element 0 is nan");
    make_folder("y.npy");
    put("x.npy", 1, 1, (const int64_t[]){2});
    refuse(1, STATUS_INVALID_ARGUMENT, "y.npy");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_input_takes_every_file),
        TEST(several_inputs_have_files_of_their_names),
        TEST(files_of_several_inputs_go_together),
        TEST(what_is_no_sample_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
