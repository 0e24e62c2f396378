/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>

#include "proto/message.h"

static void r13_names(void **state)
{
    (void)state;
    const char *const good[] = {"a", "resnet-50_v1.5", "A.b", "1"};
    const char *const bad[] = {"", ".", "..", ".hidden", "a/b", "a b", "a\n", "\xc3\xa9", "a:0"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_true(message_name_ok(message_text_of(good[i])));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (message_name_ok(message_text_of(bad[i])))
            fail_msg("'%s' was taken for a name", bad[i]);
    char longest[66];
    memset(longest, 'x', sizeof(longest));
    assert_true(message_name_ok((struct message_text){longest, 64}));
    assert_false(message_name_ok((struct message_text){longest, 65}));
    assert_false(message_name_ok((struct message_text){"a\0b", 3}));
}

static void r4_tensor_names(void **state)
{
    (void)state;
    assert_true(message_tensor_name_ok(message_text_of("encoder/layer_0:0")));
    assert_false(message_tensor_name_ok(message_text_of("")));
    assert_false(message_tensor_name_ok(message_text_of("a b")));
    assert_false(message_tensor_name_ok(message_text_of("a\x7f")));
    assert_false(message_tensor_name_ok(message_text_of("\xc3\xa9")));
    char longest[66];
    memset(longest, '/', sizeof(longest));
    assert_true(message_tensor_name_ok((struct message_text){longest, 64}));
    assert_false(message_tensor_name_ok((struct message_text){longest, 65}));
}

struct unpack_case {
    enum dtype dtype;
    const char *wire;
    size_t wire_len;
    const char *bytes; /* NULL: refused */
    size_t n;
    const char *reason;
};

#define W(s) s, sizeof(s) - 1

static const struct unpack_case unpack_cases[] = {
    {DTYPE_F32, W("\x32\x08\x00\x00\x80\x3f\x00\x00\x00\x40"), "\x00\x00\x80\x3f\x00\x00\x00\x40",
     8, NULL},
    /* unpacked, and packed in two chunks */
    {DTYPE_F32, W("\x35\x00\x00\x80\x3f\x35\x00\x00\x00\x40"), "\x00\x00\x80\x3f\x00\x00\x00\x40",
     8, NULL},
    {DTYPE_F32, W("\x32\x04\x00\x00\x80\x3f\x32\x04\x00\x00\x00\x40"),
     "\x00\x00\x80\x3f\x00\x00\x00\x40", 8, NULL},
    {DTYPE_F64, W("\x3a\x08\x00\x00\x00\x00\x00\x00\xf0\x3f"), "\x00\x00\x00\x00\x00\x00\xf0\x3f",
     8, NULL},
    {DTYPE_I8, W("\x12\x0b\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "\x01\xff", 2, NULL},
    {DTYPE_U8, W("\x22\x03\xff\x01\x00"), "\xff\x00", 2, NULL},
    {DTYPE_BOOL, W("\x0a\x02\x01\x00"), "\x01\x00", 2, NULL},
    {DTYPE_I64, W("\x1a\x01\x05"), "\x05\0\0\0\0\0\0\0", 8, NULL},
    {DTYPE_U64, W("\x2a\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
     "\xff\xff\xff\xff\xff\xff\xff\xff", 8, NULL},
    {DTYPE_U8, W("\x22\x02\x80\x02"), NULL, 1, "out of UINT8's range"},
    {DTYPE_BOOL, W("\x0a\x01\x02"), NULL, 1, "out of BOOL's range"},
    {DTYPE_I32, W("\x12\x05\x80\x80\x80\x80\x08"), NULL, 4, "out of INT32's range"},
    {DTYPE_U8, W("\x22\x01\x01"), NULL, 2, "1 elements are missing"},
    {DTYPE_U8, W("\x22\x02\x01\x01"), NULL, 1, "more elements than its shape has"},
    {DTYPE_F32, W("\x22\x01\x01"), NULL, 4, "FP32 elements go into fp32_contents"},
    {DTYPE_F32,
     W("\x42\x04"
       "abcd"),
     NULL, 4, "FP32 elements go into fp32_contents"},
    {DTYPE_F16, W("\x32\x04\x00\x00\x80\x3f"), NULL, 2, "FP16 has no typed contents"},
    {DTYPE_F32, W("\x32\x05\x00\x00\x80\x3f\x00"), NULL, 8, "malformed"},
    {DTYPE_F32, W("\x32\x50\x00"), NULL, 4, "malformed"},
};

/* A tensor of one element, as its typed contents have it: a varint. */
static enum status unpack_one(enum dtype dtype, unsigned char tag, uint64_t value, bool whole,
                              uint64_t *out, struct error *err)
{
    char wire[13] = {(char)(tag << 3 | 2)};
    size_t len = 2;
    for (; value >= 128; value >>= 7)
        wire[len++] = (char)(value | 128);
    wire[len++] = (char)(whole ? value : value | 128);
    wire[1] = (char)(len - 2);
    const struct message_tensor tensor = {
        .name = message_text_of("x"), .dtype = dtype, .typed = true, .contents = {wire, len}};
    *out = 0;
    return message_unpack(&tensor, out, dtype_size(dtype), err);
}

static void r3_elements_keep_to_the_range_of_their_type(void **state)
{
    (void)state;
    static const struct {
        enum dtype dtype;
        unsigned char tag;
        int64_t least, most;
    } types[] = {
        {DTYPE_BOOL, 1, 0, 1},
        {DTYPE_I8, 2, INT8_MIN, INT8_MAX},
        {DTYPE_I16, 2, INT16_MIN, INT16_MAX},
        {DTYPE_I32, 2, INT32_MIN, INT32_MAX},
        {DTYPE_U8, 4, 0, UINT8_MAX},
        {DTYPE_U16, 4, 0, UINT16_MAX},
        {DTYPE_U32, 4, 0, UINT32_MAX},
    };
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        const int64_t values[] = {types[i].least, types[i].most, types[i].least - 1,
                                  types[i].most + 1};
        for (size_t k = 0; k < ARRAY_LEN(values); k++) {
            struct error err = {0};
            uint64_t out, value = (uint64_t)values[k];
            enum status s = unpack_one(types[i].dtype, types[i].tag, value, true, &out, &err);
            if (s != (k < 2 ? STATUS_OK : STATUS_INVALID_ARGUMENT))
                fail_msg("%s %lld: %s", dtype_name(types[i].dtype), (long long)values[k],
                         status_name(s));
            if (k < 2)
                assert_memory_equal(&out, &value, dtype_size(types[i].dtype));
            else if (!strstr(err.text, "range"))
                fail_msg("'%s' does not speak of a range", err.text);
            s = unpack_one(types[i].dtype, types[i].tag, value, false, &out, &err);
            assert_int_equal(s, STATUS_INVALID_ARGUMENT);
        }
    }
}

static void typed_contents_become_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(unpack_cases); i++) {
        const struct unpack_case *c = &unpack_cases[i];
        const struct message_tensor tensor = {.name = message_text_of("x"),
                                              .dtype = c->dtype,
                                              .typed = true,
                                              .contents = {c->wire, c->wire_len}};
        unsigned char out[16];
        memset(out, 0xaa, sizeof(out));
        struct error err = {0};
        enum status s = message_unpack(&tensor, out, c->n, &err);
        if (c->bytes) {
            if (s != STATUS_OK)
                fail_msg("case %zu: %s", i, err.text);
            assert_memory_equal(out, c->bytes, c->n);
        } else {
            assert_int_equal(s, STATUS_INVALID_ARGUMENT);
            if (!strstr(err.text, c->reason))
                fail_msg("case %zu: '%s' does not say '%s'", i, err.text, c->reason);
        }
        for (size_t k = c->n; k < sizeof(out); k++)
            assert_int_equal(out[k], 0xaa);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(r13_names),
        cmocka_unit_test(r4_tensor_names),
        cmocka_unit_test(typed_contents_become_bytes),
        cmocka_unit_test(r3_elements_keep_to_the_range_of_their_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
