/* SPDX-License-Identifier: Apache-2.0 */
/* Requests as JSON, and replies: the decoder's steps, its memory, and what comes back as text. */
#include <stdio.h>
#include <stdlib.h>

#include "http/decode.h"
#include "http/encode.h"
#include "tests/test.h"

static struct http_decode *decode;
static void *memory, *placed;

static void forget(void)
{
    free(memory);
    free(placed);
    memory = placed = NULL;
}

/* Takes all steps. The decoder's memory is exactly as large as it says. */
static enum status run(enum request_kind kind, const char *json, const void *binary, size_t size,
                       struct error *err)
{
    static struct request known;
    enum http_decode_state state = HTTP_DECODE_GOES_ON;
    const struct message_text text = message_text_of(json), raw = {binary, size};
    forget();
    request_clear(&known);
    known.kind = kind;
    known.model = message_text_of("m");
    size_t needs = http_decode_size(text.len);
    memory = aligned_alloc(64, (needs + 63) & ~(size_t)63);
    decode = http_decode_init(memory, needs, &known, text, raw);
    while (state != HTTP_DECODE_DONE) {
        enum status status = http_decode_step(decode, &state, err);
        if (status)
            return status;
        if (state == HTTP_DECODE_NEEDS) {
            placed = malloc(http_decode_needs(decode));
            http_decode_place(decode, placed);
        }
    }
    return STATUS_OK;
}

static const struct request *accept(enum request_kind kind, const char *json, const void *binary,
                                    size_t size)
{
    struct error err;
    must(run(kind, json, binary, size, &err), &err);
    return http_decode_request(decode);
}

static void refuse(enum request_kind kind, const char *json, const void *binary, size_t size,
                   const char *why)
{
    struct error err;
    if (run(kind, json, binary, size, &err) != STATUS_INVALID_ARGUMENT)
        fail_msg("taken: %s", json);
    if (!strstr(err.text, why))
        fail_msg("'%s' is not in '%s'", why, err.text);
}

static void tensors_come_in_both_ways(void **state)
{
    (void)state;
    static const float raw[] = {5, 6};
    const struct request *r =
        accept(REQUEST_INFER,
               "{\"inputs\":[{\"data\":[[1,2],[3,4.5]],\"datatype\":\"FP32\",\"shape\":[2,2],"
               "\"name\":\"a\"},"
               "{\"name\":\"b\",\"shape\":[2],\"datatype\":\"FP32\",\"parameters\":{\"binary_data_"
               "size\":8}},"
               "{\"name\":\"c\",\"shape\":[3],\"datatype\":\"INT8\",\"data\":[-128,0,127]}],"
               "\"id\":\"\\u00e4\",\"parameters\":{\"priority\":2,\"timeout\":5,\"none\":null}}",
               raw, sizeof(raw));
    assert_int_equal(r->n_inputs, 3);
    assert_memory_equal(r->inputs[0].data, ((float[]){1, 2, 3, 4.5f}), 16);
    assert_memory_equal(r->inputs[1].data, raw, sizeof(raw));
    assert_memory_equal(r->inputs[2].data, ((int8_t[]){-128, 0, 127}), 3);
    for (uint32_t k = 0; k < 3; k++) {
        assert_false(r->inputs[k].typed);
        assert_int_equal(
            ((const uint8_t *)r->inputs[k].data - (uint8_t *)placed) % HTTP_DECODE_ALIGN, 0);
    }
    assert_true(message_text_equal(r->infer_id, message_text_of("\xc3\xa4")));
    assert_int_equal(r->timeout_us, 5);
    /* Binary data alone stay where they are. */
    r = accept(REQUEST_INFER,
               "{\"inputs\":[{\"name\":\"b\",\"shape\":[2],\"datatype\":\"FP32\","
               "\"parameters\":{\"binary_data_size\":8}}]}",
               raw, sizeof(raw));
    assert_ptr_equal(r->inputs[0].data, raw);
    assert_null(placed);
}

static void outputs_say_how_they_go(void **state)
{
    (void)state;
    accept(REQUEST_INFER,
           "{\"outputs\":[{\"name\":\"a\"},{\"name\":\"b\",\"parameters\":{\"binary_data\":false}},"
           "{\"name\":\"c\",\"parameters\":{\"classification\":3}}],"
           "\"parameters\":{\"binary_data_output\":true}}",
           NULL, 0);
    assert_true(http_decode_wanted(decode)->named);
    assert_int_equal(http_decode_wanted(decode)->outputs, 5);
    assert_int_equal(http_decode_request(decode)->classes[2], 3);
}

/* A load with `head`, a file of `size` bytes as base64, and `tail`; returns the text. */
static char *load_of(const char *head, size_t size, const char *tail)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = strlen(head), whole = (size + 2) / 3 * 4;
    char *text = malloc(n + whole + strlen(tail) + 1), *to = text + n;
    memcpy(text, head, n);
    for (size_t i = 0; i < size; i += 3) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 3; k++)
            bits = bits << 8 | (i + k < size ? (uint8_t)(i + k) : 0);
        for (int k = 0; k < 4; k++)
            *to++ = digits[bits >> (18 - 6 * k) & 63];
    }
    for (size_t k = size % 3; k && k < 3; k++)
        to[(ptrdiff_t)k - 3] = '=';
    memcpy(to, tail, strlen(tail) + 1);
    return text;
}

static void loads_bring_files(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 2, 3, 1000, 8191, 16384, 300000, 196608, 196607, 2000000};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        char *text = load_of("{\"parameters\" : {\"config\":\"{\\\"name\\\":\\\"m\\\"}\","
                             "\"file:1/model.onnx\" :\n \"",
                             sizes[i], "\", \"file:1\\/x\": \"Zm9v\", \"a\": true}}");
        const struct request *r = accept(REQUEST_MODEL_LOAD, text, NULL, 0);
        assert_int_equal(r->n_settings, 4);
        assert_true(message_text_equal(r->settings[0].text, message_text_of("{\"name\":\"m\"}")));
        assert_true(message_text_equal(r->settings[1].key, message_text_of("file:1/model.onnx")));
        assert_int_equal(r->settings[1].text.len, sizes[i]);
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal((uint8_t)r->settings[1].text.data[k], (uint8_t)k);
        assert_true(message_text_equal(r->settings[2].key, message_text_of("file:1/x")));
        assert_true(message_text_equal(r->settings[2].text, message_text_of("foo")));
        free(text);
    }
}

static void files_that_are_none_are_refused(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"{\"parameters\":{\"file:a\":\"Zm9v", "not end"},
                                          {"{\"parameters\":{\"file:a\":\"Zm9\\/\"}}", "base64"},
                                          {"{\"parameters\":{\"file:a\":\"Z\"}}", "base64"},
                                          {"{\"parameters\":{\"file:a\":\"", "not end"},
                                          {"{\"parameters\":{\"file:a\":\"Zm9v\"", "JSON"},
                                          {"{\"parameters\":{\"file:a\":\"Zm9v\"}} x", "JSON"},
                                          {"{\"parameters\":{\"config\":\"\\", "JSON"},
                                          {"{\"parameters\":{\"config\":\"a", "JSON"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *text = load_of(rows[i][0], 0, "");
        refuse(REQUEST_MODEL_LOAD, text, NULL, 0, rows[i][1]);
        free(text);
    }
    /* In the middle of a long one, too; and other texts keep their limit. */
    char *text = load_of("{\"parameters\":{\"file:a\":\"", 600000, "=\"}}");
    memcpy(text + 1000, "====", 4);
    refuse(REQUEST_MODEL_LOAD, text, NULL, 0, "base64");
    free(text);
    text = load_of("{\"parameters\":{\"config\":\"", 600000, "\"}}");
    refuse(REQUEST_MODEL_LOAD, text, NULL, 0, "bytes");
    free(text);
}

#define INPUT(rest) "{\"inputs\":[{\"name\":\"a\",\"datatype\":\"FP32\"" rest "}]}"

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    const enum request_kind infer = REQUEST_INFER;
    refuse(infer, INPUT(",\"shape\":[2],\"data\":[1]"), NULL, 0, "1 elements are missing");
    refuse(infer, INPUT(",\"shape\":[2],\"data\":[1,2,3]"), NULL, 0, "more elements");
    refuse(infer, INPUT(",\"shape\":[1000000],\"data\":[1]"), NULL, 0, "missing");
    refuse(infer, INPUT(",\"shape\":[4611686018427387904,4],\"data\":[1]"), NULL, 0, "not a shape");
    refuse(infer, INPUT(",\"shape\":[1,1,1,1,1,1,1,1,1],\"data\":[1]"), NULL, 0, "8 dimensions");
    refuse(infer, INPUT(",\"shape\":[1.5],\"data\":[1]"), NULL, 0, "shape");
    refuse(infer, INPUT(",\"shape\":[1],\"shape\":[1],\"data\":[1]"), NULL, 0, "twice");
    refuse(infer, INPUT(",\"shape\":[1],\"data\":1"), NULL, 0, "wrong kind");
    refuse(infer, INPUT(",\"shape\":[1],\"data\":[{}]"), NULL, 0, "");
    refuse(infer, INPUT(",\"shape\":[1]"), NULL, 0, "neither data nor binary");
    refuse(infer, INPUT(",\"shape\":[1],\"parameters\":{\"binary_data_size\":4}"), "abc", 3,
           "of which 3 came");
    refuse(infer, INPUT(",\"shape\":[1],\"parameters\":{\"binary_data_size\":4}"), "abcde", 5,
           "1 of them for no input");
    refuse(infer, INPUT(",\"shape\":[1],\"parameters\":{\"binary_data_size\":-4}"), "abcd", 4,
           "range");
    refuse(infer,
           "{\"inputs\":[{\"name\":\"a\",\"datatype\":\"BYTES\",\"shape\":[1],"
           "\"data\":[\"x\"]}]}",
           NULL, 0, "not served");
    refuse(infer, "[]", NULL, 0, "the request");
    refuse(infer, "{\"outputs\":[{\"name\":\"a\"},{\"name\":\"a\"}]}", NULL, 0, "twice");
    refuse(REQUEST_TRACE_SETTING, "{\"a\":{}}", NULL, 0, "setting");
}

static void settings_and_orders(void **state)
{
    (void)state;
    const struct request *r =
        accept(REQUEST_TRACE_SETTING,
               "{\"trace_level\":[\"A\",\"B\"],\"rate\":null,\"n\":7,\"b\":true}", NULL, 0);
    static const enum request_setting_kind kinds[] = {REQUEST_SETTING_TEXT, REQUEST_SETTING_TEXT,
                                                      REQUEST_SETTING_CLEAR, REQUEST_SETTING_NUMBER,
                                                      REQUEST_SETTING_BOOL};
    assert_int_equal(r->n_settings, 5);
    for (uint32_t k = 0; k < 5; k++)
        assert_int_equal(r->settings[k].kind, kinds[k]);
    assert_true(message_text_equal(r->settings[1].text, message_text_of("B")));
    assert_int_equal(r->settings[3].number, 7);
    r = accept(REQUEST_MODEL_LOAD, "{\"parameters\":{\"config\":\"{}\"},\"x\":[]}", NULL, 0);
    assert_true(message_text_equal(r->settings[0].key, message_text_of("config")));
    r = accept(REQUEST_MODEL_UNLOAD, "{\"parameters\":{\"unload_dependents\":true}}", NULL, 0);
    assert_true(r->dependents);
    assert_true(accept(REQUEST_REPOSITORY_INDEX, "{\"ready\":true}", NULL, 0)->ready_only);
}

static void long_requests_take_many_steps(void **state)
{
    (void)state;
    enum { N = 50000 };
    static char json[16 * N];
    size_t n = (size_t)sprintf(json, INPUT(",\"shape\":[%d],\"data\":[0.5"), N);
    n -= 3; /* what closes it comes last */
    for (int i = 1; i < N; i++)
        n += (size_t)sprintf(json + n, ",%d", i);
    sprintf(json + n, "]}]}");
    const struct request *r = accept(REQUEST_INFER, json, NULL, 0);
    const float *got = r->inputs[0].data;
    assert_true(got[0] == 0.5f && got[1] == 1 && got[N - 1] == N - 1);
}

/* The text is the same in however small pieces it is made. */
static void replies_are_written_in_pieces(void **state)
{
    (void)state;
    static float values[5000];
    static struct response r;
    static char whole[256 * 1024], pieces[256 * 1024];
    for (int i = 0; i < 5000; i++)
        values[i] = (float)i / 3;
    r = (struct response){.kind = REQUEST_INFER,
                          .model = message_text_of("m\"1"),
                          .version = message_text_of("1"),
                          .n_outputs = 2};
    for (uint32_t k = 0; k < 2; k++)
        r.outputs[k] = (struct message_tensor){.name = message_text_of(k ? "b" : "a"),
                                               .dtype = DTYPE_F32,
                                               .shape = {2, {5, 1000}},
                                               .data = values,
                                               .size = sizeof(values)};
    for (uint64_t binary = 0; binary < 4; binary++) {
        struct http_infer_text text = {0};
        struct json_writer w = {whole, whole + sizeof(whole), false};
        assert_true(http_infer_text(&text, &r, binary, &w));
        assert_true((size_t)(w.at - whole) <= http_infer_text_most(&r, binary));
        text = (struct http_infer_text){0};
        size_t n = 0;
        for (bool done = false; !done;) {
            struct json_writer piece = {pieces + n, pieces + n + HTTP_TEXT_STEP, false};
            done = http_infer_text(&text, &r, binary, &piece);
            assert_false(piece.full);
            n = (size_t)(piece.at - pieces);
        }
        assert_int_equal(n, w.at - whole);
        assert_memory_equal(pieces, whole, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_come_in_both_ways),
        cmocka_unit_test(outputs_say_how_they_go),
        cmocka_unit_test(loads_bring_files),
        cmocka_unit_test(files_that_are_none_are_refused),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(settings_and_orders),
        cmocka_unit_test(long_requests_take_many_steps),
        cmocka_unit_test(replies_are_written_in_pieces),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    forget();
    return failed;
}
