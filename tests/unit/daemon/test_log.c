/* SPDX-License-Identifier: Apache-2.0 */
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/compiler.h"
#include "config/config.h"
#include "daemon/log.h"
#include "tests/test.h"

/* The text of one line on a stderr that is a file, with JOURNAL_STREAM set to the given value. */
static const char *line_of(const char *zone, const char *journal, bool own, const char *line)
{
    static char text[4096];
    char name[64];
    struct log_sink sink;
    struct stat st;
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO);
    assert_non_null(file);
    setenv("TZ", zone, 1);
    assert_int_equal(fstat(fileno(file), &st), 0);
    snprintf(name, sizeof(name), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    if (own)
        setenv("JOURNAL_STREAM", name, 1);
    else if (journal)
        setenv("JOURNAL_STREAM", journal, 1);
    else
        unsetenv("JOURNAL_STREAM");
    dup2(fileno(file), STDERR_FILENO);
    log_stderr_init(&sink, LOG_INFO);
    log_write(&sink, LOG_WARNING, "%s", line);
    log_write(&sink, LOG_VERBOSE, "not shown");
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(file);
    size_t size = fread(text, 1, sizeof(text) - 1, file);
    text[size] = '\0';
    fclose(file);
    return text;
}

static void assert_match(const char *text, const char *pattern)
{
    regex_t regex;
    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    if (regexec(&regex, text, 0, NULL, 0) != 0)
        fail_msg("\"%s\" is not %s", text, pattern);
    regfree(&regex);
}

#define DAY "^20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}"

static void lines_have_local_time(void **state)
{
    (void)state;
    assert_match(line_of("UTC0", NULL, false, "a line"), DAY "\\+00:00 inferd: warning: a line\n$");
    assert_match(line_of("<+0545>-5:45", NULL, false, "a line"),
                 DAY "\\+05:45 inferd: warning: a line\n$");
    assert_match(line_of("<-0330>3:30", NULL, false, "a line"),
                 DAY "-03:30 inferd: warning: a line\n$");
}

/* The time is the present time, not only of the right form. */
static void the_time_is_now(void **state)
{
    (void)state;
    struct tm tm = {0};
    time_t before = time(NULL);
    const char *text = line_of("<+0545>-5:45", NULL, false, "a line");
    assert_non_null(strptime(text, "%Y-%m-%dT%H:%M:%S", &tm));
    time_t then = timegm(&tm) - (5 * 60 + 45) * 60;
    assert_in_range(then, before, time(NULL));
}

static void the_journal_has_times_of_its_own(void **state)
{
    (void)state;
    assert_string_equal(line_of("UTC0", NULL, true, "a line"), "<4>a line\n");
    /* The variable was inherited from another process, whose stderr goes to the journal. */
    assert_match(line_of("UTC0", "8:12345678", false, "a line"), DAY "\\+00:00 inferd: warning: ");
    assert_match(line_of("UTC0", "", false, "a line"), DAY);
}

/* What a configured sink writes to a stderr that is a file. */
static const char *configured(const char *format, const char *level, const char *components,
                              const char *line)
{
    static char text[8192];
    struct log_sink sink;
    struct config *config = config_new();
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO);
    free(config->log_format);
    free(config->log_level);
    config->log_format = strdup(format);
    config->log_level = strdup(level);
    config->log_components = components ? strdup(components) : NULL;
    unsetenv("JOURNAL_STREAM");
    dup2(fileno(file), STDERR_FILENO);
    log_stderr_init(&sink, LOG_INFO);
    log_configure(&sink, config);
    log_write_from(&sink, "../daemon/models.c", LOG_INFO, "%s", line);
    log_write_from(&sink, "../engine/build/build.c", LOG_VERBOSE, "%s", line);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    config_free(config);
    return text;
}

static void lines_of_json(void **state)
{
    (void)state;
    assert_match(configured("json", "info", NULL, "a \"b\" \\ \xc3\xbc \xff\n"),
                 "^\\{\"time\":\"20[0-9T:.+-]+\",\"level\":\"info\",\"component\":\"models\","
                 "\"message\":\"a \\\\\"b\\\\\" \\\\\\\\ \xc3\xbc \\\\ufffd\\?\"\\}\n$");
    char line[3000];
    memset(line, '\xff', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\0';
    const char *text = configured("json", "info", NULL, line);
    assert_int_equal(strchr(text, '\n') - text, strlen(text) - 1);
    assert_match(text, "ufffd\"\\}\n$");
}

static void components_have_levels(void **state)
{
    (void)state;
    assert_string_equal(configured("text", "warning", NULL, "x"), "");
    assert_match(configured("text", "warning", "engine=verbose", "x"), "^[^\n]* inferd: x\n$");
    assert_match(configured("json", "error", "models=info, engine=verbose", "x"),
                 "models[^\n]*\n[^\n]*\"verbose\",\"component\":\"engine\"[^\n]*\n$");
    assert_string_equal(configured("text", "verbose", "engine=error,models=warning", "x"), "");
}

static void lists_of_components(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool good;
    } rows[] = {
        {"peers=verbose", true},
        {" peers=verbose , engine=error ", true},
        {"", false},
        {"peers", false},
        {"peers=", false},
        {"peers=loud", false},
        {"nobody=info", false},
        {"peers=info,", false},
        {"peers=info engine=info", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int levels[LOG_COMPONENT_COUNT_] = {0};
        if (log_components_parse(rows[i].text, levels) != rows[i].good)
            fail_msg("'%s'", rows[i].text);
    }
}

static void files_have_components(void **state)
{
    (void)state;
    assert_int_equal(log_component_of("../daemon/models.c"), LOG_MODELS);
    assert_int_equal(log_component_of("../../engine/cuda/device.c"), LOG_ENGINE);
    assert_int_equal(log_component_of("daemon/exchange_infer.c"), LOG_PEERS);
    assert_int_equal(log_component_of("daemon/server.c"), LOG_SERVER);
    assert_int_equal(log_component_of("elsewhere.c"), LOG_SERVER);
}

static void fields_for_the_journal(void **state)
{
    (void)state;
    char path[] = "/tmp/inferd-journal-XXXXXX", got[4096];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    assert_non_null(mkdtemp(path));
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", path);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)(void *)&address, sizeof(address)), 0);
    log_journal_path = address.sun_path;
    assert_string_equal(configured("journal", "info", NULL, "a line"), "");
    ssize_t n = recv(fd, got, sizeof(got) - 1, 0);
    got[n < 0 ? 0 : n] = '\0';
    assert_string_equal(got, "MESSAGE=a line\nPRIORITY=6\nSYSLOG_IDENTIFIER=inferd\n"
                             "INFERD_COMPONENT=models\n");
    close(fd);
    unlink(address.sun_path);
    rmdir(path);
    /* nobody listens there any more */
    assert_match(configured("journal", "info", NULL, "a line"), DAY ".* inferd: a line\n$");
}

static void long_lines_end_once(void **state)
{
    (void)state;
    char line[3000];
    memset(line, 'x', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\0';
    const char *text = line_of("UTC0", NULL, false, line);
    assert_int_equal(strchr(text, '\n') - text, strlen(text) - 1);
    assert_match(text, DAY "\\+00:00 inferd: warning: x+\n$");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_have_local_time),
        cmocka_unit_test(the_time_is_now),
        cmocka_unit_test(the_journal_has_times_of_its_own),
        cmocka_unit_test(long_lines_end_once),
        cmocka_unit_test(lines_of_json),
        cmocka_unit_test(components_have_levels),
        cmocka_unit_test(lists_of_components),
        cmocka_unit_test(files_have_components),
        cmocka_unit_test(fields_for_the_journal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
