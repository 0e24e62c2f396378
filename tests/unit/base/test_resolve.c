/* SPDX-License-Identifier: Apache-2.0 */
/* The resolver is this program's own: no server is asked, and every answer can be given. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/resolve.h"
#include "tests/test.h"

static struct {
    uint32_t asked;
    int code;
    char host[300], port[16];
    struct addrinfo *list;
} resolver;

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **out)
{
    assert_int_equal(hints->ai_socktype, SOCK_STREAM);
    resolver.asked++;
    snprintf(resolver.host, sizeof(resolver.host), "%s", host);
    snprintf(resolver.port, sizeof(resolver.port), "%s", port);
    if (resolver.code == 0)
        *out = resolver.list;
    return resolver.code;
}

void freeaddrinfo(struct addrinfo *list)
{
    assert_ptr_equal(list, resolver.list);
}

static void numbers_and_localhost_ask_nobody(void **state)
{
    (void)state;
    static const struct {
        const char *text, *first, *second;
    } rows[] = {
        {"127.0.0.1:8003", "127.0.0.1:8003", NULL},
        {"[fe80::1]:0", "[fe80::1]:0", NULL},
        {"unix:/run/x.sock", "unix:/run/x.sock", NULL},
        {"unix:/run/a:80", "unix:/run/a:80", NULL},
        {"localhost:8003", "127.0.0.1:8003", "[::1]:8003"},
        {"LocalHost:0", "127.0.0.1:0", "[::1]:0"},
    };
    resolver.asked = 0;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct resolved out;
        struct error err;
        char text[ADDRESS_TEXT_MAX];
        if (resolve_wait(rows[i].text, &out, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        assert_int_equal(out.n, rows[i].second ? 2 : 1);
        assert_string_equal(address_format(&out.items[0], text), rows[i].first);
        if (rows[i].second)
            assert_string_equal(address_format(&out.items[1], text), rows[i].second);
    }
    assert_int_equal(resolver.asked, 0);
}

static void r17_what_is_no_name_is_not_asked_for(void **state)
{
    (void)state;
    char longest[RESOLVE_HOST_MAX + 3];
    memset(longest, 'a', sizeof(longest));
    memcpy(longest + RESOLVE_HOST_MAX, ":1", 3);
    const char *const bad[] = {
        "",           ":",           "8003",          "host",        "host:",    ":80",
        "host:65536", "host:-1",     "host:80a",      "host:000080", "ho st:80", "host/x:80",
        "127.1:80",   "1.2.3.4.5:1", "256.1.1.1:80",  "0x7f.1:80",   "0x7f:80",  "::1:80",
        "[host]:80",  "[::1%lo]:80", "http://a.b:80", "-host:80",    ".host:80", "h\xc3\xb6st:80",
        "unix:x",     "host\n:80",   longest,
    };
    resolver.asked = 0;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct resolved out = {.n = 77};
        struct error err = {0};
        if (resolve_wait(bad[i], &out, &err) != STATUS_INVALID_ARGUMENT)
            fail_msg("\"%s\" was taken", bad[i]);
        assert_non_null(strstr(err.text, "expected"));
    }
    assert_int_equal(resolver.asked, 0);
}

static void names_are_asked_for_once(void **state)
{
    (void)state;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(80)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(80)};
    v6.sin6_addr.s6_addr[15] = 9;
    v4.sin_addr.s_addr = htonl(0x0a000001);
    struct addrinfo list[RESOLVE_MOST + 8] = {
        {.ai_family = AF_UNIX, .ai_addr = (struct sockaddr *)&v4, .ai_addrlen = sizeof(v4)},
        {.ai_family = AF_INET6, .ai_addr = (struct sockaddr *)&v6, .ai_addrlen = sizeof(v6)},
        {.ai_family = AF_INET, .ai_addr = (struct sockaddr *)&v4, .ai_addrlen = sizeof(v4)},
        {.ai_family = AF_INET6, .ai_addr = (struct sockaddr *)&v6, .ai_addrlen = sizeof(v6)},
    };
    for (size_t i = 0; i < 3; i++)
        list[i].ai_next = &list[i + 1];
    resolver.list = list;
    resolver.code = 0;
    resolver.asked = 0;
    struct resolved out;
    struct error err;
    char text[ADDRESS_TEXT_MAX];
    assert_int_equal(resolve_wait("a-1.b_c:80", &out, &err), STATUS_OK);
    assert_int_equal(resolver.asked, 1);
    assert_string_equal(resolver.host, "a-1.b_c");
    assert_string_equal(resolver.port, "80");
    assert_int_equal(out.n, 2); /* each address once, in the order of the answer */
    assert_string_equal(address_format(&out.items[0], text), "[::9]:80");
    assert_string_equal(address_format(&out.items[1], text), "10.0.0.1:80");

    /* More than there is room for. */
    struct sockaddr_in many[RESOLVE_MOST + 8];
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        many[i] = v4;
        many[i].sin_addr.s_addr = htonl(0x0a000001 + (uint32_t)i);
        list[i] = (struct addrinfo){.ai_family = AF_INET,
                                    .ai_addr = (struct sockaddr *)&many[i],
                                    .ai_addrlen = sizeof(many[i]),
                                    .ai_next = i + 1 < ARRAY_LEN(list) ? &list[i + 1] : NULL};
    }
    assert_int_equal(resolve_wait("many.example:80", &out, &err), STATUS_OK);
    assert_int_equal(out.n, RESOLVE_MOST);
}

static void what_fails_is_said(void **state)
{
    (void)state;
    static const struct {
        int code;
        enum status status;
    } rows[] = {{EAI_NONAME, STATUS_NOT_FOUND}, {EAI_AGAIN, STATUS_UNAVAILABLE}};
    struct resolved out;
    struct error err;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        resolver.code = rows[i].code;
        assert_int_equal(resolve_wait("gone.example:80", &out, &err), rows[i].status);
        assert_non_null(strstr(err.text, "\"gone.example:80\": "));
        assert_non_null(strstr(err.text, gai_strerror(rows[i].code)));
    }
    resolver.code = 0;
    resolver.list = NULL;
    assert_int_equal(resolve_wait("empty.example:80", &out, &err), STATUS_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_and_localhost_ask_nobody),
        cmocka_unit_test(r17_what_is_no_name_is_not_asked_for),
        cmocka_unit_test(names_are_asked_for_once),
        cmocka_unit_test(what_fails_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
