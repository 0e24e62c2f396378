/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/test.h"
#include "tools/npy.h"

/* A version 1 file with this dictionary and `bytes` bytes of data. */
static size_t make(char out[512], const char *dictionary, size_t bytes)
{
    size_t len = strlen(dictionary);
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (char)(len & 0xff);
    out[9] = (char)(len >> 8);
    memcpy(out + 10, dictionary, len);
    memset(out + 10 + len, 7, bytes);
    return 10 + len + bytes;
}

static void every_type_survives_a_round_trip(void **state)
{
    char path[64];
    (void)state;
    snprintf(path, sizeof(path), "/tmp/inferd-npy-%d.npy", (int)getpid());
    for (int type = DTYPE_BOOL; type < DTYPE_COUNT_; type++) {
        if (type == DTYPE_F8) /* numpy has none, and no input or output is one */
            continue;
        for (uint32_t rank = 0; rank <= SHAPE_MAX_RANK; rank++) {
            struct tensor_view t = {.dtype = (enum dtype)type, .shape.rank = rank}, back;
            unsigned char data[512 * 8];
            struct error err;
            size_t bytes;
            for (uint32_t i = 0; i < rank; i++)
                t.shape.dim[i] = i % 2 ? 3 : 2;
            if (!shape_bytes(&t.shape, t.dtype, &bytes) || bytes > sizeof(data))
                continue;
            for (size_t i = 0; i < bytes; i++)
                data[i] = (unsigned char)(i * 7);
            t.data = data;
            assert_int_equal(npy_write(path, &t, &err), STATUS_OK);
            assert_int_equal(npy_read(path, &back, &err), STATUS_OK);
            assert_int_equal(back.dtype, type == DTYPE_BF16 ? DTYPE_U16 : type);
            assert_true(shape_equal(&back.shape, &t.shape));
            assert_memory_equal(back.data, data, bytes);
            free(back.data);
        }
    }
    unlink(path);
}

static void files_of_numpy(void **state)
{
    static const char *const good[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n",
        "{'shape': (6,), 'descr': '<i4', 'fortran_order': False}",
        "{\"descr\":\"<f8\",\"fortran_order\":False,\"shape\":(3,)}",
        "{'descr': '|u1', 'fortran_order': True, 'shape': (24,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,3,1)}",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        char file[512];
        struct tensor_view t;
        struct error err;
        size_t n = make(file, good[i], 24);
        if (npy_parse(file, n, "test", &t, &err))
            fail_msg("%s: %s", good[i], err.text);
        free(t.data);
    }
}

static void bad_files_are_refused(void **state)
{
    static const struct {
        const char *dictionary;
        size_t bytes;
        enum status status;
    } bad[] = {
        {"", 0, STATUS_INVALID_ARGUMENT},
        {"{}", 0, STATUS_INVALID_ARGUMENT},
        {"{'descr': '<f4', 'fortran_order': False}", 4, STATUS_INVALID_ARGUMENT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", 8, STATUS_INVALID_ARGUMENT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 7, STATUS_INVALID_ARGUMENT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 9, STATUS_INVALID_ARGUMENT},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2,)}", 8, STATUS_INVALID_ARGUMENT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 4, STATUS_INVALID_ARGUMENT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2}", 8, STATUS_INVALID_ARGUMENT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 2}", 8, STATUS_INVALID_ARGUMENT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 4,
         STATUS_INVALID_ARGUMENT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", 0,
         STATUS_INVALID_ARGUMENT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", 4,
         STATUS_INVALID_ARGUMENT},
        {"{'descr': '<f4", 4, STATUS_INVALID_ARGUMENT},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", 4, STATUS_UNIMPLEMENTED},
        {"{'descr': '<U4', 'fortran_order': False, 'shape': (1,)}", 16, STATUS_UNIMPLEMENTED},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", 8, STATUS_UNIMPLEMENTED},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2,2)}", 16, STATUS_UNIMPLEMENTED},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char file[512];
        struct tensor_view t = {0};
        struct error err;
        size_t n = make(file, bad[i].dictionary, bad[i].bytes);
        enum status status = npy_parse(file, n, "test", &t, &err);
        if (status != bad[i].status)
            fail_msg("%s: %s", bad[i].dictionary, status_name(status));
        assert_null(t.data);
    }
}

static void every_truncation_is_refused(void **state)
{
    char file[512];
    struct tensor_view t = {0};
    struct error err;
    (void)state;
    size_t n = make(file, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24);
    for (size_t size = 0; size < n; size++) {
        /* of exactly this size, so that reading beyond it is seen */
        char *exact = malloc(size ? size : 1);
        assert_non_null(exact);
        memcpy(exact, file, size);
        assert_int_equal(npy_parse(exact, size, "test", &t, &err), STATUS_INVALID_ARGUMENT);
        free(exact);
    }
    file[6] = 4; /* version */
    assert_int_equal(npy_parse(file, n, "test", &t, &err), STATUS_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_survives_a_round_trip),
        cmocka_unit_test(files_of_numpy),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(every_truncation_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
