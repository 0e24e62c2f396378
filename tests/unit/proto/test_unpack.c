/* SPDX-License-Identifier: Apache-2.0 */
/* Typed contents: right values, refused values, and that slices of any size make no difference. */
#include <stdlib.h>
#include <sys/mman.h>

#include "proto/message.h"
#include "tests/test.h"

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
    /* the field's number is right, but not its wire type */
    {DTYPE_F32, W("\x30\x01"), NULL, 4, "wrong wire type"},
    {DTYPE_F32, W("\x31\x00\x00\x00\x00\x00\x00\x00\x00"), NULL, 8, "wrong wire type"},
    {DTYPE_I32, W("\x15\x01\x02\x03\x04"), NULL, 16, "wrong wire type"},
    /* groups, no tag, a tag of more than 32 bits, a number of more than 64 and one without an end
     */
    {DTYPE_U8, W("\x4b\x4c"), NULL, 0, "malformed"},
    {DTYPE_U8, W("\x00\x01"), NULL, 0, "malformed"},
    {DTYPE_U8, W("\x88\x80\x80\x80\x10\x01"), NULL, 0, "malformed"},
    {DTYPE_U64, W("\x2a\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), NULL, 8, "not whole"},
    {DTYPE_U64, W("\x2a\x0b\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00"), NULL, 8, "not whole"},
    /* a number that continues in the next field */
    {DTYPE_U8, W("\x22\x01\x81\x22\x01\x01"), NULL, 2, "not whole"},
    /* unknown fields and empty chunks change nothing, an empty chunk of another type does */
    {DTYPE_U8, W("\x22\x00\x48\x05\x22\x01\x07\x4a\x02zz\x22\x00"), "\x07", 1, NULL},
    {DTYPE_U8, W("\x22\x01\x07\x0a\x00"), NULL, 1, "UINT8 elements go into uint_contents"},
    {DTYPE_U8, W(""), "", 0, NULL},
    {DTYPE_U8, W(""), NULL, 1, "1 elements are missing"},
    {DTYPE_BF16, W(""), NULL, 0, "BF16 has no typed contents"},
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

/* --- slices --- */

static uint64_t seed = 1;

static uint32_t draw(uint32_t below)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((seed >> 33) % below);
}

enum { ELEMENTS = 200, CONTENTS = 16 * 1024 };

struct made {
    struct message_tensor tensor;
    size_t size, len;
    uint8_t wire[CONTENTS], bytes[ELEMENTS * 8];
};

static void number_put(struct made *m, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        m->wire[m->len++] = (uint8_t)(v | 0x80);
    m->wire[m->len++] = (uint8_t)v;
}

struct type {
    enum dtype dtype;
    uint32_t number, single; /* wire type of an element */
    bool negative;
};

static const struct type types[] = {
    {DTYPE_BOOL, 1, 0, false}, {DTYPE_I8, 2, 0, true},   {DTYPE_I16, 2, 0, true},
    {DTYPE_I32, 2, 0, true},   {DTYPE_I64, 3, 0, true},  {DTYPE_U8, 4, 0, false},
    {DTYPE_U16, 4, 0, false},  {DTYPE_U32, 4, 0, false}, {DTYPE_U64, 5, 0, false},
    {DTYPE_F32, 6, 5, false},  {DTYPE_F64, 7, 1, false},
};

/* One element, as it is on the wire and as its bytes. */
static void element_put(struct made *m, const struct type *type)
{
    size_t width = dtype_size(type->dtype);
    uint64_t value = ((uint64_t)draw(1u << 31) << 33 ^ draw(1u << 31)) >> draw(64);
    if (type->dtype == DTYPE_BOOL)
        value &= 1;
    if (width < 8)
        value &= (1ull << (8 * width - type->negative)) - 1;
    if (type->negative && draw(2))
        value = ~value;
    memcpy(m->bytes + m->size, &value, width);
    m->size += width;
    if (type->single == 0) {
        number_put(m, value);
    } else {
        memcpy(m->wire + m->len, &value, width);
        m->len += width;
    }
}

/* `n` elements in packed chunks, alone or with other fields between the chunks. */
static void make(struct made *m, const struct type *type, uint32_t n)
{
    m->size = m->len = 0;
    while (n || draw(3)) {
        uint32_t what = draw(4), chunk = what < 2 ? draw(n + 1) : 0;
        if (what < 2) {
            struct made *packed = calloc(1, sizeof(*packed));
            for (uint32_t i = 0; i < chunk; i++)
                element_put(packed, type);
            number_put(m, type->number << 3 | 2);
            number_put(m, packed->len);
            memcpy(m->wire + m->len, packed->wire, packed->len);
            memcpy(m->bytes + m->size, packed->bytes, packed->size);
            m->len += packed->len;
            m->size += packed->size;
            n -= chunk;
            free(packed);
        } else if (what == 2 && n) {
            number_put(m, type->number << 3 | type->single);
            element_put(m, type);
            n--;
        } else {
            number_put(m, (9 + draw(100)) << 3 | 2); /* an unknown field */
            number_put(m, 3);
            memcpy(m->wire + m->len, "???", 3);
            m->len += 3;
        }
    }
    m->tensor = (struct message_tensor){.name = message_text_of("x"),
                                        .dtype = type->dtype,
                                        .typed = true,
                                        .contents = {(const char *)m->wire, m->len}};
}

/* Unpacks with budgets of up to `most` bytes. Every step moves on, and none goes far beyond its
 * budget. */
static enum status in_slices(const struct made *m, size_t size, uint32_t most, void *to,
                             struct error *err)
{
    struct message_unpacking u;
    bool done = false;
    enum status s = message_unpack_begin(&u, &m->tensor, to, size, err);
    for (size_t steps = 0; s == STATUS_OK && !done; steps++) {
        const uint8_t *before = u.at;
        size_t left = u.left, budget = draw(most + 1);
        assert_in_range(steps, 0, m->len);
        s = message_unpack_step(&u, budget, &done, err);
        if (s == STATUS_OK && !done && (u.at == before || u.left == left))
            fail_msg("step %zu of %zu bytes did nothing", steps, budget);
    }
    return s;
}

static void slices_of_any_size_give_the_same(void **state)
{
    (void)state;
    struct made *m = calloc(1, sizeof(*m));
    for (int round = 0; round < 2200; round++) {
        const struct type *type = &types[(size_t)round % ARRAY_LEN(types)];
        make(m, type, draw(ELEMENTS));
        /* exactly as much memory as the elements take, and a copy of the contents alone */
        uint8_t *to = malloc(m->size + 1), *wire = malloc(m->len + 1);
        struct error err = {0};
        memcpy(wire, m->wire, m->len);
        m->tensor.contents.data = (const char *)wire;
        if (message_unpack(&m->tensor, to, m->size, &err) != STATUS_OK)
            fail_msg("%s: %s", dtype_name(type->dtype), err.text);
        assert_memory_equal(to, m->bytes, m->size);
        static const uint32_t budgets[] = {0, 1, 2, 7, 64, 5000};
        for (size_t i = 0; i < ARRAY_LEN(budgets); i++) {
            memset(to, 0xaa, m->size);
            if (in_slices(m, m->size, budgets[i], to, &err) != STATUS_OK)
                fail_msg("%s: %s", dtype_name(type->dtype), err.text);
            assert_memory_equal(to, m->bytes, m->size);
        }
        free(to);
        free(wire);
    }
    free(m);
}

/* Contents that are refused in one go are refused in slices too, with the same words. */
static void damage_is_the_same_in_slices(void **state)
{
    (void)state;
    struct made *m = calloc(1, sizeof(*m));
    uint8_t to[ELEMENTS * 8], again[ELEMENTS * 8];
    uint32_t refused = 0;
    for (int round = 0; round < 20000; round++) {
        make(m, &types[(size_t)round % ARRAY_LEN(types)], draw(20));
        for (uint32_t k = draw(3); k > 0 && m->len; k--)
            m->wire[draw((uint32_t)m->len)] = (uint8_t)draw(256);
        m->tensor.contents.len = m->len - draw(2) * draw((uint32_t)m->len + 1);
        size_t size = draw(4) ? m->size : draw(ELEMENTS) * dtype_size(m->tensor.dtype);
        struct error err = {0}, other = {0};
        enum status s = message_unpack(&m->tensor, to, size, &err);
        assert_int_equal(in_slices(m, size, draw(30), again, &other), s);
        assert_string_equal(err.text, other.text);
        if (s == STATUS_OK)
            assert_memory_equal(to, again, size);
        refused += s != STATUS_OK;
    }
    assert_in_range(refused, 5000, 19999);
    free(m);
}

/* Fields without an element are counted: behind the largest number that is allowed lies memory that
 * cannot be read. Fields with an element are bounded by a step's budget. */
static void r4_contents_are_bounded_in_number(void **state)
{
    (void)state;
    enum { WHOLE = 64 << 20, HERE = 64 * 1024 };
    static const struct {
        const char *pattern;
        size_t len;
    } cases[] = {{"\x1a\x00", 2}, {"\x48\x00", 2}, {"\xf8\x01\x00", 3}, {"\x18\x00\x48\x00", 4}};
    char *wire = mmap(NULL, WHOLE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(wire != MAP_FAILED && mprotect(wire, HERE, PROT_READ | PROT_WRITE) == 0);
    int64_t *to = calloc(HERE, sizeof(*to));
    struct message_tensor tensor = {
        .name = message_text_of("x"), .dtype = DTYPE_I64, .contents = {wire, WHOLE}};
    struct error err = {0};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (size_t at = 0; at + cases[i].len <= HERE; at += cases[i].len)
            memcpy(wire + at, cases[i].pattern, cases[i].len);
        assert_int_equal(message_unpack(&tensor, to, HERE * sizeof(*to), &err),
                         STATUS_INVALID_ARGUMENT);
        assert_string_equal(err.text,
                            "'x': more than 1024 fields without an element in its contents");
        /* as many of them as allowed, besides the elements */
        tensor.contents.len = MESSAGE_MAX_FIELDS * cases[i].len;
        size_t n = cases[i].pattern[0] == 0x18 ? MESSAGE_MAX_FIELDS : 0;
        assert_int_equal(message_unpack(&tensor, to, n * sizeof(*to), &err), STATUS_OK);
        tensor.contents.len = WHOLE;
    }
    for (size_t at = 0; at + 2 <= HERE; at += 2)
        memcpy(wire + at, "\x18\x05", 2);
    struct message_unpacking u;
    bool done = false;
    assert_int_equal(message_unpack_begin(&u, &tensor, to, HERE * sizeof(*to), &err), STATUS_OK);
    for (int step = 1; step <= 32; step++) {
        assert_int_equal(message_unpack_step(&u, 1000, &done, &err), STATUS_OK);
        assert_int_equal(u.left, HERE - step * 500);
    }
    assert_false(done);
    /* A step does not take all of a packed chunk either, whether elements are copied or read one by
     * one. */
    static const struct {
        enum dtype dtype;
        uint8_t head;
        int elements; /* of 1,000 bytes */
    } packed[] = {{DTYPE_I64, 0x1a, 1000}, {DTYPE_F32, 0x32, 250}, {DTYPE_F64, 0x3a, 125}};
    for (size_t i = 0; i < ARRAY_LEN(packed); i++) {
        size_t width = dtype_size(packed[i].dtype), n = 32 << 20;
        wire[0] = (char)packed[i].head;
        memcpy(wire + 1, "\x80\x80\x80\x10", 4); /* 32 MiB */
        tensor.dtype = packed[i].dtype;
        assert_int_equal(message_unpack_begin(&u, &tensor, to, n * width, &err), STATUS_OK);
        for (int step = 1; step <= 32; step++) {
            assert_int_equal(message_unpack_step(&u, 1000, &done, &err), STATUS_OK);
            assert_in_range(n - u.left, (step - 1) * packed[i].elements, step * packed[i].elements);
        }
    }
    free(to);
    assert_int_equal(munmap(wire, WHOLE), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(typed_contents_become_bytes),
        cmocka_unit_test(r3_elements_keep_to_the_range_of_their_type),
        cmocka_unit_test(slices_of_any_size_give_the_same),
        cmocka_unit_test(damage_is_the_same_in_slices),
        cmocka_unit_test(r4_contents_are_bounded_in_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
