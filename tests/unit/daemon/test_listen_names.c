/* SPDX-License-Identifier: Apache-2.0 */
/* The resolver is this program's own: no server is asked. */
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "daemon/listen_names.h"
#include "tests/test.h"

enum { MOST = 4 };

static struct {
    uint32_t asked;
    struct address addresses[MOST];
    struct addrinfo list[MOST];
} resolver;

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **out)
{
    (void)port;
    (void)hints;
    resolver.asked++;
    *out = resolver.list;
    return strcmp(host, "here.example") == 0 ? 0 : EAI_NONAME;
}

void freeaddrinfo(struct addrinfo *list)
{
    (void)list;
}

static void answer(uint32_t n, const char *const *texts)
{
    memset(&resolver, 0, sizeof(resolver));
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(address_parse(texts[i], &resolver.addresses[i], NULL), STATUS_OK);
        resolver.list[i] = (struct addrinfo){
            .ai_family = resolver.addresses[i].storage.ss_family,
            .ai_addr = (struct sockaddr *)&resolver.addresses[i].storage,
            .ai_addrlen = resolver.addresses[i].length,
            .ai_next = i + 1 < n ? &resolver.list[i + 1] : NULL,
        };
    }
}

/* The addresses that `n` texts resolve to, as "a b c". The next call overwrites the text. */
static const char *resolve(uint32_t n, const char *const *texts)
{
    static char out[512];
    char *copies[8];
    struct config_listen config = {.framed = copies, .framed_count = n}, listen;
    struct error err;
    for (uint32_t i = 0; i < n; i++)
        copies[i] = strdup(texts[i]);
    out[0] = '\0';
    if (listen_names_resolve(&config, &listen, &err) != STATUS_OK) {
        snprintf(out, sizeof(out), "%s", err.text);
    } else {
        for (uint32_t i = 0; i < listen.framed_count; i++) {
            strncat(out, i ? " " : "", sizeof(out) - strlen(out) - 1);
            strncat(out, listen.framed[i], sizeof(out) - strlen(out) - 1);
        }
        listen_names_free(&listen);
    }
    for (uint32_t i = 0; i < n; i++)
        free(copies[i]);
    return out;
}

#define RESOLVE(...)                                                                               \
    resolve(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *),                           \
            (const char *const[]){__VA_ARGS__})

static void numbers_and_sockets_stay_as_they_are(void **state)
{
    (void)state;
    answer(0, NULL);
    assert_string_equal(
        RESOLVE("127.0.0.1:1", "unix:/run/x.sock", "203.0.113.1:80"),
        "127.0.0.1:1 unix:/run/x.sock 203.0.113.1:80"); /* bind says what is wrong */
    assert_int_equal(resolver.asked, 0);
}

static void what_is_not_of_this_machine_is_left_out(void **state)
{
    (void)state;
    answer(3, (const char *const[]){"203.0.113.1:80", "127.0.0.1:80", "127.0.0.2:80"});
    assert_string_equal(RESOLVE("here.example:80"), "127.0.0.1:80 127.0.0.2:80");
    assert_int_equal(resolver.asked, 1);
    /* If the machine has none of the addresses, the first is kept, so that bind fails with a
     * reason. */
    answer(2, (const char *const[]){"203.0.113.1:80", "203.0.113.2:80"});
    assert_string_equal(RESOLVE("here.example:80"), "203.0.113.1:80");
}

static void an_address_is_listened_on_once(void **state)
{
    (void)state;
    answer(1, (const char *const[]){"127.0.0.1:80"});
    assert_string_equal(RESOLVE("127.0.0.1:80", "here.example:80"), "127.0.0.1:80");
    assert_non_null(strstr(RESOLVE("localhost:80", "127.0.0.1:80"), "127.0.0.1:80"));
    /* Port 0 is the exception: each time it is another port. */
    answer(1, (const char *const[]){"127.0.0.1:0"});
    assert_string_equal(RESOLVE("127.0.0.1:0", "here.example:0"), "127.0.0.1:0 127.0.0.1:0");
}

static void a_name_that_nobody_knows_is_an_error(void **state)
{
    (void)state;
    answer(0, NULL);
    assert_non_null(strstr(RESOLVE("127.0.0.1:80", "gone.example:80"), "\"gone.example:80\": "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_and_sockets_stay_as_they_are),
        cmocka_unit_test(what_is_not_of_this_machine_is_left_out),
        cmocka_unit_test(an_address_is_listened_on_once),
        cmocka_unit_test(a_name_that_nobody_knows_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
