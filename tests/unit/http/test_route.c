/* SPDX-License-Identifier: Apache-2.0 */
#include "http/route.h"
#include "tests/test.h"

static unsigned find(enum http_method method, const char *path, struct http_route *route)
{
    const struct http_head head = {.method = method, .path = message_text_of(path)};
    const char *allow;
    struct error err = {0};
    unsigned code = http_route_find(&head, route, &allow, &err);
    assert_non_null(allow);
    assert_true(code == 0 || code == 204 || err.text[0]);
    return code;
}

static void paths_lead_to_questions(void **state)
{
    (void)state;
    static const struct {
        enum http_method method;
        const char *path;
        enum request_kind kind;
        const char *model, *version;
    } rows[] = {
        {HTTP_METHOD_GET, "/v2", REQUEST_SERVER_METADATA, "", ""},
        {HTTP_METHOD_GET, "/v2/", REQUEST_SERVER_METADATA, "", ""},
        {HTTP_METHOD_GET, "/v2/health/live", REQUEST_SERVER_LIVE, "", ""},
        {HTTP_METHOD_HEAD, "/v2/health/ready", REQUEST_SERVER_READY, "", ""},
        {HTTP_METHOD_GET, "/v2/models/m", REQUEST_MODEL_METADATA, "m", ""},
        {HTTP_METHOD_GET, "/v2/models/m%2E1/versions/2", REQUEST_MODEL_METADATA, "m.1", "2"},
        {HTTP_METHOD_GET, "/v2/models/m/ready", REQUEST_MODEL_READY, "m", ""},
        {HTTP_METHOD_GET, "/v2/models/m/versions/1/ready", REQUEST_MODEL_READY, "m", "1"},
        {HTTP_METHOD_GET, "/v2/models/m/config", REQUEST_MODEL_CONFIG, "m", ""},
        {HTTP_METHOD_GET, "/v2/models/stats", REQUEST_STATISTICS, "", ""},
        {HTTP_METHOD_GET, "/v2/models/m/versions/1/stats", REQUEST_STATISTICS, "m", "1"},
        {HTTP_METHOD_POST, "/v2/models/m/infer", REQUEST_INFER, "m", ""},
        {HTTP_METHOD_POST, "/v2/models/stats/infer", REQUEST_INFER, "stats", ""},
        {HTTP_METHOD_POST, "/v2/repository/index", REQUEST_REPOSITORY_INDEX, "", ""},
        {HTTP_METHOD_POST, "/v2/repository/r/index", REQUEST_REPOSITORY_INDEX, "", ""},
        {HTTP_METHOD_POST, "/v2/repository/models/m/load", REQUEST_MODEL_LOAD, "m", ""},
        {HTTP_METHOD_POST, "/v2/repository/r/models/m/unload", REQUEST_MODEL_UNLOAD, "m", ""},
        {HTTP_METHOD_GET, "/v2/trace/setting", REQUEST_TRACE_SETTING, "", ""},
        {HTTP_METHOD_POST, "/v2/models/m/trace/setting", REQUEST_TRACE_SETTING, "m", ""},
        {HTTP_METHOD_POST, "/v2/logging", REQUEST_LOG_SETTING, "", ""},
        {HTTP_METHOD_GET, "/v2/systemsharedmemory/status", REQUEST_MEMORY_STATUS, "", ""},
        {HTTP_METHOD_POST, "/v2/cudasharedmemory/unregister", REQUEST_CUDA_UNREGISTER, "", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct http_route route;
        if (find(rows[i].method, rows[i].path, &route))
            fail_msg("not found: %s", rows[i].path);
        assert_int_equal(route.kind, rows[i].kind);
        assert_string_equal(route.model, rows[i].model);
        assert_string_equal(route.version, rows[i].version);
    }
}

static void regions_have_names_of_their_own(void **state)
{
    (void)state;
    static const struct {
        const char *path, *name; /* NULL: it is none */
        enum request_kind kind;
    } rows[] = {
        {"/v2/systemsharedmemory/region/x/register", "x", REQUEST_MEMORY_REGISTER},
        {"/v2/systemsharedmemory/region/input:0/unregister", "input:0", REQUEST_MEMORY_UNREGISTER},
        {"/v2/systemsharedmemory/region/a/b%20c/register", "a/b c", REQUEST_MEMORY_REGISTER},
        {"/v2/systemsharedmemory/region/a%2Fb/register", "a/b", REQUEST_MEMORY_REGISTER},
        {"/v2/systemsharedmemory/region/%C3%A4/register", "\xc3\xa4", REQUEST_MEMORY_REGISTER},
        {"/v2/cudasharedmemory/region/.x/register", ".x", REQUEST_CUDA_REGISTER},
        {"/v2/cudasharedmemory/region/region/unregister", "region", REQUEST_CUDA_UNREGISTER},
        {"/v2/systemsharedmemory/region/%00x/register", NULL, REQUEST_NONE},
        {"/v2/systemsharedmemory/region/%FF/register", NULL, REQUEST_NONE},
        {"/v2/systemsharedmemory/region/%F/register", NULL, REQUEST_NONE},
        {"/v2/systemsharedmemory/region/register", NULL, REQUEST_NONE},
        {"/v2/systemsharedmemory/region", NULL, REQUEST_NONE},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct http_route route;
        unsigned code = find(HTTP_METHOD_POST, rows[i].path, &route);
        if (code != (rows[i].name ? 0 : 400))
            fail_msg("%s: %u", rows[i].path, code);
        if (!rows[i].name)
            continue;
        assert_string_equal(route.region, rows[i].name);
        assert_int_equal(route.kind, rows[i].kind);
    }
}

static void other_paths_are_refused(void **state)
{
    (void)state;
    static const struct {
        enum http_method method;
        const char *path;
        unsigned code;
    } rows[] = {
        {HTTP_METHOD_GET, "/", 404},
        {HTTP_METHOD_GET, "/metrics", 404},
        {HTTP_METHOD_GET, "/v2/models", 404},
        {HTTP_METHOD_GET, "/v2//health/live", 404},
        {HTTP_METHOD_GET, "/v2/health/live/more", 404},
        {HTTP_METHOD_GET, "/v2/models/m/infer/x", 404},
        {HTTP_METHOD_GET, "/a/b/c/d/e/f/g/h/i/j", 404},
        {HTTP_METHOD_GET, "/v2/models/.m", 400},
        {HTTP_METHOD_GET, "/v2/models/..", 400},
        {HTTP_METHOD_GET, "/v2/models/%2e%2e/config", 400},
        {HTTP_METHOD_GET, "/v2/models/a%2fb", 400},
        {HTTP_METHOD_GET, "/v2/models/a%0", 400},
        {HTTP_METHOD_GET, "/v2/models/a%zz", 400},
        {HTTP_METHOD_GET, "/v2/models/m/versions", 400},
        {HTTP_METHOD_GET,
         "/v2/models/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 400},
        {HTTP_METHOD_GET, "/v2/models/m/infer", 405},
        {HTTP_METHOD_POST, "/v2/health/live", 405},
        {HTTP_METHOD_OTHER, "/v2", 405},
        {HTTP_METHOD_OPTIONS, "/v2", 204},
        {HTTP_METHOD_OPTIONS, "*", 204},
        {HTTP_METHOD_POST, "/v2/systemsharedmemory/region/x/forget", 404},
        {HTTP_METHOD_GET, "/v2/systemsharedmemory/region/x/register", 405},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct http_route route;
        unsigned code = find(rows[i].method, rows[i].path, &route);
        if (code != rows[i].code)
            fail_msg("%s: %u, not %u", rows[i].path, code, rows[i].code);
    }
}

static void every_status_has_a_code(void **state)
{
    (void)state;
    for (uint32_t status = 0; status < STATUS_COUNT_; status++) {
        assert_true(http_code_of(status) >= 200);
        assert_string_not_equal(http_phrase(http_code_of(status)), "Unknown");
    }
    assert_int_equal(http_code_of(99), 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_lead_to_questions),
        cmocka_unit_test(regions_have_names_of_their_own),
        cmocka_unit_test(other_paths_are_refused),
        cmocka_unit_test(every_status_has_a_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
