/* SPDX-License-Identifier: Apache-2.0 */
/* Lines for the terminal or the journal; see log.h. */
#include "daemon/log.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const struct level {
    const char *name;
    const char *text; /* for people */
    const char *mark; /* for the journal */
} levels[] = {
    [LOG_ERROR] = {"error", "inferd: error: ", "<3>"},
    [LOG_WARNING] = {"warning", "inferd: warning: ", "<4>"},
    [LOG_INFO] = {"info", "inferd: ", "<6>"},
    [LOG_VERBOSE] = {"verbose", "inferd: ", "<7>"},
};

enum { STAMP_BYTES = 40 };

/* Local time with its offset, as in RFC 3339, and a space: "2026-11-22T10:15:02.123+01:00 ". */
static void stamp_format(char out[STAMP_BYTES])
{
    struct timespec now;
    struct tm tm;
    char day[24], zone[8];
    out[0] = '\0';
    clock_gettime(CLOCK_REALTIME, &now);
    if (!localtime_r(&now.tv_sec, &tm) ||
        strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm) == 0 ||
        strftime(zone, sizeof(zone), "%z", &tm) != 5) /* +0100 */
        return;
    snprintf(out, STAMP_BYTES, "%s.%03d%.3s:%s ", day, (int)(now.tv_nsec / 1000000), zone,
             zone + 3);
}

static void line_write(void *user, enum log_level level, const char *line)
{
    bool journal = user != NULL;
    char text[1200], stamp[STAMP_BYTES] = "";
    if (!journal)
        stamp_format(stamp);
    int len = snprintf(text, sizeof(text), "%s%s%s\n", stamp,
                       journal ? levels[level].mark : levels[level].text, line);
    if (len < 0)
        return;
    size_t size = MIN((size_t)len, sizeof(text) - 1);
    text[size - 1] = '\n';
    /* A log that cannot be written is nothing that can be reported. */
    ssize_t written = write(STDERR_FILENO, text, size);
    (void)written;
}

/* Whether stderr is the very stream to the journal that the service manager made. The variable
 * alone says little, because programs that a desktop or a service's shell starts inherit it. */
static bool to_journal(void)
{
    const char *text = getenv("JOURNAL_STREAM");
    struct stat st;
    char own[48];
    if (!text || fstat(STDERR_FILENO, &st) != 0)
        return false;
    snprintf(own, sizeof(own), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    return strcmp(text, own) == 0;
}

void log_stderr_init(struct log_sink *sink, enum log_level level)
{
    *sink = (struct log_sink){.level = level, .write = line_write};
    tzset(); /* now, so that no line has to read files */
    if (to_journal())
        sink->user = sink; /* any address says: the journal reads this */
}

bool log_level_parse(const char *name, enum log_level *out)
{
    for (size_t i = 0; i < ARRAY_LEN(levels); i++) {
        if (strcmp(levels[i].name, name) == 0) {
            *out = (enum log_level)i;
            return true;
        }
    }
    return false;
}
