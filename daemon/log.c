/* SPDX-License-Identifier: Apache-2.0 */
/* Lines for the terminal or the journal; see log.h. */
#include "daemon/log.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static void line_write(void *user, enum log_level level, const char *line)
{
    bool journal = user != NULL;
    char text[1200];
    int len = snprintf(text, sizeof(text), "%s%s\n",
                       journal ? levels[level].mark : levels[level].text, line);
    if (len < 0)
        return;
    size_t size = MIN((size_t)len, sizeof(text) - 1);
    text[size - 1] = '\n';
    /* A log that cannot be written is nothing that can be reported. */
    ssize_t written = write(STDERR_FILENO, text, size);
    (void)written;
}

void log_stderr_init(struct log_sink *sink, enum log_level level)
{
    *sink = (struct log_sink){.level = level, .write = line_write};
    if (getenv("JOURNAL_STREAM") && !isatty(STDERR_FILENO))
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
