/* SPDX-License-Identifier: Apache-2.0 */
/* Which requests are traced, records that run out, and the texts that are made of them. */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "daemon/dispatch.h"
#include "daemon/monitor/trace_text.h"
#include "tests/test.h"

#define TRACE_TEXT "0af7651916cd43dd8448eb211c80319c"
#define SPAN_TEXT  "b7ad6b7169203331"

static void parents(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool good, sampled;
    } rows[] = {
        {"00-" TRACE_TEXT "-" SPAN_TEXT "-01", true, true},
        {"00-" TRACE_TEXT "-" SPAN_TEXT "-00", true, false},
        {"00-" TRACE_TEXT "-" SPAN_TEXT "-03", true, true},
        {"cc-" TRACE_TEXT "-" SPAN_TEXT "-01-what-comes-next", true, true},
        {"00-" TRACE_TEXT "-" SPAN_TEXT "-01-more", false, false},
        {"cc-" TRACE_TEXT "-" SPAN_TEXT "-01.more", false, false},
        {"ff-" TRACE_TEXT "-" SPAN_TEXT "-01", false, false},
        {"00-00000000000000000000000000000000-" SPAN_TEXT "-01", false, false},
        {"00-" TRACE_TEXT "-0000000000000000-01", false, false},
        {"00-0AF7651916CD43DD8448EB211C80319C-" SPAN_TEXT "-01", false, false},
        {"00-" TRACE_TEXT "-" SPAN_TEXT "-0", false, false},
        {"00-" TRACE_TEXT "_" SPAN_TEXT "-01", false, false},
        {"0g-" TRACE_TEXT "-" SPAN_TEXT "-01", false, false},
        {"", false, false},
        {"-------------------------------------------------------", false, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct trace_parent parent = {.sampled = false};
        bool good = trace_parent_parse(message_text_of(rows[i].text), &parent);
        if (good != rows[i].good || parent.sampled != rows[i].sampled)
            fail_msg("%s", rows[i].text);
        for (size_t n = 0; good && n < 55; n++) /* no beginning of it is one */
            assert_false(trace_parent_parse((struct message_text){rows[i].text, n}, &parent));
    }
    struct trace_parent parent;
    trace_parent_parse(message_text_of(rows[0].text), &parent);
    assert_int_equal(parent.trace[0], 0x0a);
    assert_int_equal(parent.span[7], 0x31);
}

static uint32_t begun(struct traces *traces, uint32_t n, const char *parent)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool dropped;
        struct trace *trace = trace_begin(traces, 0, message_text_of(parent), &dropped);
        assert_false(dropped);
        count += trace != NULL;
        if (trace)
            trace_end(traces, trace);
        for (struct trace *t = traces_take(traces, 0), *next; t; t = next) {
            next = t->next;
            traces_give(traces, t);
        }
    }
    return count;
}

static void one_in_so_many(void **state)
{
    (void)state;
    const char *yes = "00-" TRACE_TEXT "-" SPAN_TEXT "-01";
    const char *no = "00-" TRACE_TEXT "-" SPAN_TEXT "-00";
    struct traces *traces = traces_new(1);
    assert_int_equal(begun(traces, 100, ""), 0); /* the rate is 0 */
    assert_int_equal(begun(traces, 100, yes), 0);
    traces_rate_set(traces, 10);
    assert_int_equal(begun(traces, 1000, ""), 100);
    assert_int_equal(begun(traces, 1000, "nonsense"), 100);
    assert_int_equal(begun(traces, 1000, yes), 1000);
    assert_int_equal(begun(traces, 1000, no), 0);
    traces_rate_set(traces, 1);
    assert_int_equal(begun(traces, 1000, ""), 1000);
    traces_left_set(traces, 7);
    assert_int_equal(begun(traces, 1000, yes), 1000); /* clients decide for themselves */
    assert_int_equal(begun(traces, 1000, ""), 7);
    assert_int_equal(traces_left(traces), 0);
    assert_int_equal(begun(traces, 1000, ""), 0);
    traces_left_set(traces, -1);
    assert_int_equal(begun(traces, 1000, ""), 1000);
    traces_free(traces);
    traces_free(NULL);
}

static void records_run_out_and_come_back(void **state)
{
    (void)state;
    struct traces *traces = traces_new(2);
    struct trace *all[TRACE_RECORDS];
    const struct message_text none = {0};
    bool dropped;
    traces_rate_set(traces, 1);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < TRACE_RECORDS; i++) {
            all[i] = trace_begin(traces, 1, none, &dropped);
            assert_non_null(all[i]);
        }
        assert_null(trace_begin(traces, 1, none, &dropped));
        assert_true(dropped);
        for (uint32_t i = 0; i < TRACE_RECORDS; i++)
            trace_end(traces, all[i]);
        assert_null(traces_take(traces, 0));
        uint32_t n = 0;
        for (struct trace *t = traces_take(traces, 1), *next; t; t = next, n++) {
            next = t->next;
            for (struct trace *other = next; other; other = other->next)
                assert_memory_not_equal(t->span, other->span, TRACE_SPAN);
            traces_give(traces, t);
        }
        assert_int_equal(n, TRACE_RECORDS);
    }
    traces_free(traces);
}

static void texts(void **state)
{
    (void)state;
    struct trace t = {.read_ns = 1000,
                      .decoded_ns = 2000,
                      .queued_ns = 2500,
                      .gather_ns = 5000,
                      .input_ns = 100,
                      .compute_ns = 200,
                      .output_ns = 300,
                      .answered_ns = 6000,
                      .written_ns = 7000,
                      .model = "m",
                      .version = "1",
                      .id = "\"\\",
                      .instances = 2,
                      .batch = 8};
    struct text out;
    trace_parent_parse(message_text_of("00-" TRACE_TEXT "-" SPAN_TEXT "-01"), &t.parent);
    memset(t.span, 0xab, TRACE_SPAN);
    text_init(&out, 1 << 16);
    trace_otlp_write(&t, 1000000000, &out);
    text_bytes(&out, "", 1);
    assert_non_null(strstr(out.data,
                           "\"traceId\":\"" TRACE_TEXT "\",\"spanId\":\"abababababababab\","
                           "\"parentSpanId\":\"" SPAN_TEXT "\",\"kind\":2"));
    assert_non_null(strstr(out.data, "\"name\":\"compute\",\"startTimeUnixNano\":\"1000005100\","
                                     "\"endTimeUnixNano\":\"1000005300\""));
    assert_non_null(strstr(out.data, "{\"stringValue\":\"\\\"\\\\\"}"));
    assert_null(strstr(out.data, "\"status\""));
    out.len = 0;
    /* One that was refused never came to a batch. */
    t.gather_ns = t.queued_ns = 0;
    t.cause = CAUSE_QUEUE_FULL;
    trace_otlp_write(&t, 0, &out);
    text_bytes(&out, "", 1);
    assert_null(strstr(out.data, "compute"));
    assert_non_null(strstr(out.data, "\"status\":{\"code\":2,\"message\":\"queue_full\"}"));
    out.len = 0;
    trace_chrome_write(&t, &out);
    text_bytes(&out, "", 1);
    assert_non_null(strstr(out.data, "\"name\":\"read\",\"cat\":\"request\",\"ph\":\"b\""));
    assert_non_null(strstr(out.data, "\"ts\":1.000"));
    assert_null(strstr(out.data, "\"name\":\"queue\""));
    text_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parents),
        cmocka_unit_test(one_in_so_many),
        cmocka_unit_test(records_run_out_and_come_back),
        cmocka_unit_test(texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
