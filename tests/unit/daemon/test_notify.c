/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/notify.h"
#include "tests/test.h"

static char folder[] = "/tmp/inferd-notify-XXXXXX";
static char path[64];

static int setup(void **state)
{
    (void)state;
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    return 0;
}

static int manager_open(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    unlink(path);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    setenv("NOTIFY_SOCKET", path, 1);
    return fd;
}

static void r38_messages_are_datagrams(void **state)
{
    (void)state;
    int manager = manager_open();
    setenv("WATCHDOG_USEC", "3000000", 1);
    struct notify notify;
    notify_init(&notify);
    assert_int_equal(notify.watchdog_ns, 3000000000u);
    notify_send(&notify, "READY=1\nSTATUS=serving %u", 7u);
    char text[64] = "";
    assert_int_equal(recv(manager, text, sizeof(text), 0), strlen("READY=1\nSTATUS=serving 7"));
    assert_string_equal(text, "READY=1\nSTATUS=serving 7");
    /* A manager that does not read its socket blocks nobody. */
    for (int i = 0; i < 10000; i++)
        notify_send(&notify, "WATCHDOG=1");
    close(manager);
    notify_send(&notify, "WATCHDOG=1");
    notify_deinit(&notify);
    notify_deinit(&notify);
}

static void without_a_manager_it_is_silent(void **state)
{
    (void)state;
    static const char *const bad[] = {NULL, "", "/", "relative", "/nowhere/at/all", "@"};
    setenv("WATCHDOG_USEC", "3000000", 1);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (bad[i])
            setenv("NOTIFY_SOCKET", bad[i], 1);
        struct notify notify;
        notify_init(&notify);
        assert_int_equal(notify.fd, -1);
        assert_int_equal(notify.watchdog_ns, 0);
        notify_send(&notify, "READY=1");
        notify_deinit(&notify);
    }
}

static void the_watchdog_of_another_process_is_not_ours(void **state)
{
    (void)state;
    int manager = manager_open();
    struct notify notify;
    setenv("WATCHDOG_USEC", "5", 1);
    setenv("WATCHDOG_PID", "1", 1);
    notify_init(&notify);
    assert_int_equal(notify.watchdog_ns, 0);
    notify_deinit(&notify);
    unsetenv("WATCHDOG_PID");
    static const char *const bad[] = {"x", "-5", "", "5x", "99999999999999999999999"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        setenv("WATCHDOG_USEC", bad[i], 1);
        notify_init(&notify);
        assert_int_equal(notify.watchdog_ns, 0);
        notify_deinit(&notify);
    }
    close(manager);
}

static void handed_over_sockets(void **state)
{
    (void)state;
    char pid[16];
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    static const struct {
        const char *pid, *fds;
        uint32_t n;
    } rows[] = {{NULL, NULL, 0}, {"1", "2", 0},   {"me", "0", 0},
                {"me", "x", 0},  {"me", "65", 0}, {"me", "1", 1}};
    int kept = dup(3); /* the descriptor 3 of the test runner, if any */
    int null = open("/dev/null", O_RDONLY);
    assert_int_equal(dup2(null, 3), 3);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        unsetenv("LISTEN_PID");
        unsetenv("LISTEN_FDS");
        if (rows[i].pid)
            setenv("LISTEN_PID", strcmp(rows[i].pid, "me") == 0 ? pid : rows[i].pid, 1);
        if (rows[i].fds)
            setenv("LISTEN_FDS", rows[i].fds, 1);
        setenv("LISTEN_FDNAMES", "http:a-name-that-is-longer-than-any-door's:grpc", 1);
        assert_int_equal(notify_listen_fds(), rows[i].n);
        assert_null(getenv("LISTEN_FDNAMES"));
        assert_string_equal(notify_listen_name(0), rows[i].n ? "http" : "");
        assert_string_equal(notify_listen_name(1), "");
        assert_string_equal(notify_listen_name(2), rows[i].n ? "grpc" : "");
        assert_string_equal(notify_listen_name(1000), "");
        assert_null(getenv("LISTEN_PID"));
        assert_null(getenv("LISTEN_FDS"));
    }
    assert_int_equal(fcntl(3, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    close(null);
    if (kept >= 0) {
        dup2(kept, 3);
        close(kept);
    }
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof(path), "%s/notify", folder);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(r38_messages_are_datagrams, setup),
        cmocka_unit_test_setup(without_a_manager_it_is_silent, setup),
        cmocka_unit_test_setup(the_watchdog_of_another_process_is_not_ours, setup),
        cmocka_unit_test_setup(handed_over_sockets, setup),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(folder);
    return failed;
}
