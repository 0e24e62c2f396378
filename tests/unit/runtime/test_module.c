/* SPDX-License-Identifier: Apache-2.0 */
/* Modules that are not there, do not load, or are not ours: each is refused with its own reason. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/backend.h"
#include "engine/runtime/module.h"
#include "tests/test.h"

static const char *another_abi, *nothing; /* paths of shared objects */

struct place {
    char folder[64];
    char module[96];
};

/* An empty folder that modules are looked for in. */
static int place_make(void **state)
{
    struct place *place = calloc(1, sizeof(*place));
    if (!place)
        return -1;
    *state = place;
    snprintf(place->folder, sizeof(place->folder), "/tmp/inferd-module-XXXXXX");
    if (!mkdtemp(place->folder) || setenv("INFERD_MODULE_DIR", place->folder, 1))
        return -1;
    snprintf(place->module, sizeof(place->module), "%s/inferd-cuda.so", place->folder);
    return 0;
}

static int place_drop(void **state)
{
    struct place *place = *state;
    unlink(place->module);
    rmdir(place->folder);
    free(place);
    return 0;
}

static void refused(enum status status, const char *reason, const char *also)
{
    const struct backend *backend = NULL;
    uint32_t index = 7;
    struct error err;
    assert_int_equal(backend_find("cuda:1", &backend, &index, &err), status);
    assert_null(backend);
    assert_int_equal(index, 7);
    if (!strstr(err.text, reason) || !strstr(err.text, also) || strchr(err.text, '\n'))
        fail_msg("'%s' is not one line with '%s' and '%s'", err.text, reason, also);
}

static void none_there(void **state)
{
    struct place *place = *state;
    refused(STATUS_UNIMPLEMENTED, "this build has no CUDA module", place->module);
    refused(STATUS_UNIMPLEMENTED, "device 'cuda:1': this build has no", "looked for");
}

static void other_places_are_looked_at_too(void **state)
{
    (void)state;
    assert_int_equal(unsetenv("INFERD_MODULE_DIR"), 0);
    const struct backend *backend = NULL;
    struct error err;
    assert_int_equal(module_open("none", "NONE", &backend, &err), STATUS_UNIMPLEMENTED);
    static const char *const places[] = {"/inferd-none.so, ", "/../engine/cuda/inferd-none.so, ",
                                         "/inferd/inferd-none.so, "};
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (!strstr(err.text, places[i]))
            fail_msg("'%s' does not name '%s'", err.text, places[i]);
}

static void not_a_shared_object(void **state)
{
    struct place *place = *state;
    FILE *file = fopen(place->module, "w");
    assert_non_null(file);
    assert_true(fputs("no ELF", file) >= 0);
    assert_int_equal(fclose(file), 0);
    refused(STATUS_FAILED_PRECONDITION, "does not load", place->module);
}

static void not_a_module(void **state)
{
    struct place *place = *state;
    assert_int_equal(symlink(nothing, place->module), 0);
    refused(STATUS_FAILED_PRECONDITION, "is no module of inferd", place->module);
}

static void of_another_abi(void **state)
{
    struct place *place = *state;
    char want[64];
    snprintf(want, sizeof(want), "has ABI %d, expected %d", BACKEND_ABI + 1, BACKEND_ABI);
    assert_int_equal(symlink(another_abi, place->module), 0);
    refused(STATUS_FAILED_PRECONDITION, want, place->module);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(none_there, place_make, place_drop),
        cmocka_unit_test_setup_teardown(other_places_are_looked_at_too, place_make, place_drop),
        cmocka_unit_test_setup_teardown(not_a_shared_object, place_make, place_drop),
        cmocka_unit_test_setup_teardown(not_a_module, place_make, place_drop),
        cmocka_unit_test_setup_teardown(of_another_abi, place_make, place_drop),
    };
    if (argc != 3) {
        fprintf(stderr, "usage: test_module ANOTHER_ABI NOTHING\n");
        return 2;
    }
    another_abi = realpath(argv[1], NULL);
    nothing = realpath(argv[2], NULL);
    int failed = !another_abi || !nothing ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
    free((char *)(uintptr_t)another_abi);
    free((char *)(uintptr_t)nothing);
    return failed;
}
