/* SPDX-License-Identifier: Apache-2.0 */
/* Lines for the terminal or the journal; see log.h. */
#include "daemon/log.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"
#include "config/config.h"

static const struct {
    const char *text; /* for people */
    int priority;     /* syslog's */
} levels[] = {
    [LOG_ERROR] = {"inferd: error: ", 3},
    [LOG_WARNING] = {"inferd: warning: ", 4},
    [LOG_INFO] = {"inferd: ", 6},
    [LOG_VERBOSE] = {"inferd: ", 7},
};

enum format { FORMAT_TEXT, FORMAT_JSON, FORMAT_JOURNAL };

/* Of the process, as stderr is. */
static struct {
    bool to_journal; /* stderr is the journal's stream */
    _Atomic int format;
    _Atomic int journal; /* a socket; 0: not opened yet */
} process;

const char *log_journal_path = "/run/systemd/journal/socket";

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

/* A log that cannot be written is nothing that can be reported. */
static void stderr_write(const char *text, size_t size)
{
    ssize_t written = write(STDERR_FILENO, text, size);
    (void)written;
}

static void text_write(enum log_level level, const char *line)
{
    char text[1200], stamp[STAMP_BYTES] = "", mark[8];
    if (!process.to_journal)
        stamp_format(stamp);
    snprintf(mark, sizeof(mark), "<%d>", levels[level].priority);
    int len = snprintf(text, sizeof(text), "%s%s%s\n", stamp,
                       process.to_journal ? mark : levels[level].text, line);
    if (len < 0)
        return;
    size_t size = MIN((size_t)len, sizeof(text) - 1);
    text[size - 1] = '\n';
    stderr_write(text, size);
}

/* --- JSON --- */

/* Puts bytes behind what there is. */
static void append(char *to, size_t *n, const char *bytes, size_t size)
{
    memcpy(to + *n, bytes, size);
    *n += size;
}

/* Writes the line as JSON wants it; control bytes are gone already. Returns how much of `to` was
 * used: at most six bytes for each. */
static size_t json_escape(const char *line, char *to)
{
    size_t n = 0, left = strlen(line);
    while (left) {
        size_t size = utf8_char(line, left);
        if (!size) {
            append(to, &n, "\\ufffd", 6);
            size = 1;
        } else {
            if (*line == '"' || *line == '\\')
                to[n++] = '\\';
            append(to, &n, line, size);
        }
        line += size;
        left -= size;
    }
    return n;
}

static void json_write(enum log_component component, enum log_level level, const char *line)
{
    char text[6 * 1024 + 256], stamp[STAMP_BYTES];
    stamp_format(stamp);
    stamp[strcspn(stamp, " ")] = '\0';
    int len =
        snprintf(text, 256, "{\"time\":\"%s\",\"level\":\"%s\",\"component\":\"%s\",\"message\":\"",
                 stamp, log_level_name(level), log_component_name(component));
    if (len < 0 || len >= 250)
        return;
    size_t size = (size_t)len + json_escape(line, text + len);
    append(text, &size, "\"}\n", 3);
    stderr_write(text, size);
}

/* --- the journal's own protocol --- */

static int journal_socket(void)
{
    int fd = atomic_load_explicit(&process.journal, memory_order_relaxed), none = 0;
    if (fd)
        return fd;
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && !atomic_compare_exchange_strong(&process.journal, &none, fd)) {
        close(fd);
        fd = none;
    }
    return fd;
}

static bool journal_write(enum log_component component, enum log_level level, const char *line)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    char text[1400];
    int fd = journal_socket();
    int len = snprintf(text, sizeof(text),
                       "MESSAGE=%s\nPRIORITY=%d\nSYSLOG_IDENTIFIER=inferd\nINFERD_COMPONENT=%s\n",
                       line, levels[level].priority, log_component_name(component));
    int path = snprintf(to.sun_path, sizeof(to.sun_path), "%s", log_journal_path);
    if (fd < 0 || len < 0 || (size_t)len >= sizeof(text) || path < 0 ||
        (size_t)path >= sizeof(to.sun_path))
        return false;
    return sendto(fd, text, (size_t)len, MSG_NOSIGNAL, (const struct sockaddr *)(const void *)&to,
                  sizeof(to)) == len;
}

static void line_write(void *user UNUSED, enum log_component component, enum log_level level,
                       const char *line)
{
    int format = atomic_load_explicit(&process.format, memory_order_relaxed);
    if (format == FORMAT_JSON)
        json_write(component, level, line);
    else if (format != FORMAT_JOURNAL || !journal_write(component, level, line))
        text_write(level, line);
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
    *sink = (struct log_sink){.level = level, .write_of = line_write};
    tzset(); /* now, so that no line has to read files */
    process.to_journal = to_journal();
    atomic_store_explicit(&process.format, FORMAT_TEXT, memory_order_relaxed);
}

void log_configure(struct log_sink *sink, const struct config *config)
{
    static const char *const formats[] = {"text", "json", "journal"};
    enum log_level level;
    int own[LOG_COMPONENT_COUNT_] = {0};
    if (log_level_parse(config->log_level, strlen(config->log_level), &level))
        log_sink_set(sink, level);
    if (config->log_components)
        log_components_parse(config->log_components, own);
    for (int k = 0; k < LOG_COMPONENT_COUNT_; k++)
        if (own[k])
            log_component_set(sink, (enum log_component)k, (enum log_level)(own[k] - 1));
        else
            log_component_clear(sink, (enum log_component)k);
    for (int k = 0; k < (int)ARRAY_LEN(formats); k++)
        if (!strcmp(formats[k], config->log_format))
            atomic_store_explicit(&process.format, k, memory_order_relaxed);
}
