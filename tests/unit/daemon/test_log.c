/* SPDX-License-Identifier: Apache-2.0 */
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/compiler.h"
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
