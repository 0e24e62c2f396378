/* SPDX-License-Identifier: Apache-2.0 */
/* The file of token hashes, see token_file.h. */
#include "daemon/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/right.h"
#include "config/config.h"
#include "proto/message.h"

/* --- lines --- */

struct word {
    const char *text;
    size_t len;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next word of a line, which ends at `end` or a '#'. Its length is 0 behind the last one. */
static struct word word_take(const char **at, const char *end)
{
    while (*at < end && is_blank(**at))
        ++*at;
    struct word word = {*at, 0};
    if (*at < end && **at == '#')
        *at = end;
    while (*at < end && !is_blank(**at)) {
        ++*at;
        word.len++;
    }
    return word;
}

#define WORD(w) (int)MIN((w).len, (size_t)80), (w).text

/* STATUS_OK with an empty name: nothing is on the line. */
static enum status line_parse(const char *at, const char *end, struct token_line *out,
                              struct error *err)
{
    struct word name = word_take(&at, end), hash = word_take(&at, end), right;
    out->name[0] = '\0';
    out->rights = 0;
    if (!name.len)
        return STATUS_OK;
    if (!message_name_ok((struct message_text){name.text, name.len}))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "expected a name, 1 to %d of A-Z a-z 0-9 . _ - and no leading dot, got "
                         "\"%.*s\"",
                         TOKEN_NAME_MOST, WORD(name));
    memcpy(out->name, name.text, name.len);
    out->name[name.len] = '\0';
    if (strcmp(out->name, CONFIG_ANONYMOUS) == 0)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "expected a name, got \"%s\", which stands for who has no token",
                         out->name);
    /* The text is not shown: somebody may have put the token itself there. */
    if (!token_hash_parse(hash.text, hash.len, &out->hash))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "expected sha256: and 64 hexadecimal digits behind \"%s\", got %s%s",
                         out->name, hash.len ? "something else" : "nothing",
                         token_ok(hash.text, hash.len) ? " (inferctl token makes such lines)" : "");
    while ((right = word_take(&at, end)).len) {
        enum right known;
        if (!right_parse(right.text, right.len, &known))
            return error_set(err, STATUS_INVALID_ARGUMENT, "expected rights of %s, got \"%.*s\"",
                             right_names, WORD(right));
        out->rights |= RIGHT_BIT(known);
    }
    return STATUS_OK;
}

/* --- the whole --- */

static int hash_compare(const void *a, const void *b)
{
    const struct token_line *x = a, *y = b;
    int order = memcmp(&x->hash, &y->hash, sizeof(x->hash));
    return order ? order : (x->line > y->line) - (x->line < y->line);
}

static int line_compare(const void *a, const void *b)
{
    const struct token_line *x = a, *y = b;
    return (x->line > y->line) - (x->line < y->line);
}

/* Sorts the lines by hash, so that equal ones are neighbours, and then restores the file's
 * order. */
static enum status refuse_twins(struct token_list *list, uint32_t *line, struct error *err)
{
    qsort(list->items, list->n, sizeof(*list->items), hash_compare);
    for (uint32_t i = 1; i < list->n; i++)
        if (memcmp(&list->items[i - 1].hash, &list->items[i].hash, sizeof(struct token_hash)) ==
            0) {
            *line = list->items[i].line;
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "expected each token once, and line %u has this one too",
                             list->items[i - 1].line);
        }
    qsort(list->items, list->n, sizeof(*list->items), line_compare);
    return STATUS_OK;
}

static uint32_t count_lines(const char *text, size_t size)
{
    uint32_t n = 1;
    for (size_t i = 0; i < size; i++)
        n += text[i] == '\n';
    return n;
}

static enum status lines_parse(const char *text, size_t size, struct token_list *list,
                               uint32_t *number, struct error *err)
{
    const char *end = text + size;
    struct token_line line;
    *number = 0;
    for (const char *at = text, *stop; at < end; at = stop < end ? stop + 1 : end) {
        stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        ++*number;
        TRY(line_parse(at, stop, &line, err));
        line.line = *number;
        if (*line.name && list->n == TOKEN_FILE_LINES)
            return error_set(err, STATUS_INVALID_ARGUMENT, "expected at most %d tokens",
                             TOKEN_FILE_LINES);
        if (*line.name)
            list->items[list->n++] = line;
    }
    return refuse_twins(list, number, err);
}

enum status token_list_parse(const char *file, const char *text, size_t size,
                             struct token_list *out, struct error *err)
{
    if (size > TOKEN_FILE_BYTES)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: expected at most %d bytes", file,
                         TOKEN_FILE_BYTES);
    uint32_t most = MIN(count_lines(text, size), (uint32_t)TOKEN_FILE_LINES), number;
    struct token_list list = {.items = calloc(most, sizeof(*list.items))};
    if (!list.items)
        return error_no_memory(err, "%s", file);
    enum status status = lines_parse(text, size, &list, &number, err);
    if (status) {
        error_prefix(err, "%s:%u", file, number);
        token_list_deinit(&list);
        return status;
    }
    *out = list;
    return STATUS_OK;
}

void token_list_deinit(struct token_list *list)
{
    free(list->items);
    *list = (struct token_list){0};
}

/* --- the file --- */

/* Finds the path that a configured name stands for. */
static enum status place_find(const char *path, char *out, size_t size, bool *credential,
                              struct error *err)
{
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    *credential = !strchr(path, '/');
    if (*credential && (!folder || !*folder))
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "tokens: expected a path with a slash, got \"%s\": names are looked up in "
                         "$CREDENTIALS_DIRECTORY, which is not set",
                         path);
    int n =
        *credential ? snprintf(out, size, "%s/%s", folder, path) : snprintf(out, size, "%s", path);
    if (n < 0 || (size_t)n >= size)
        return error_set(err, STATUS_INVALID_ARGUMENT, "tokens: %s: the path is too long", path);
    return STATUS_OK;
}

static enum status file_check(int fd, const char *path, bool credential, struct error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return error_errno(err, errno, "%s", path);
    if (!S_ISREG(st.st_mode))
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: expected a regular file", path);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return error_set(err, STATUS_PERMISSION_DENIED,
                         "%s: expected a file of this account or of root, got one of user %u", path,
                         st.st_uid);
    if (!credential && (st.st_mode & (S_IRWXG | S_IRWXO)))
        return error_set(err, STATUS_PERMISSION_DENIED,
                         "%s: expected a file that is its owner's alone (chmod 600), got mode %03o",
                         path, st.st_mode & 0777);
    if (st.st_size > TOKEN_FILE_BYTES)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: expected at most %d bytes, got %lld",
                         path, TOKEN_FILE_BYTES, (long long)st.st_size);
    return STATUS_OK;
}

/* Reads at most TOKEN_FILE_BYTES + 1 bytes; the parser refuses a file that is longer. */
static enum status bytes_read(int fd, const char *path, char *to, size_t *size, struct error *err)
{
    size_t have = 0;
    ssize_t n = 1;
    while (n > 0 && have <= TOKEN_FILE_BYTES) {
        n = read(fd, to + have, TOKEN_FILE_BYTES + 1 - have);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            have += (size_t)n;
    }
    *size = have;
    return n < 0 ? error_errno(err, errno, "%s", path) : STATUS_OK;
}

static enum status file_parse(int fd, const char *path, bool credential, struct token_list *out,
                              struct error *err)
{
    size_t size = 0;
    TRY(file_check(fd, path, credential, err));
    CLEANUP(cleanup_free) char *text = malloc(TOKEN_FILE_BYTES + 1);
    if (!text)
        return error_no_memory(err, "%s", path);
    TRY(bytes_read(fd, path, text, &size, err));
    return token_list_parse(path, text, size, out, err);
}

enum status token_list_read(const char *name, struct token_list *out, struct error *err)
{
    char path[PATH_MAX];
    bool credential;
    TRY(place_find(name, path, sizeof(path), &credential, err));
    /* O_NONBLOCK: opening a pipe must not wait for its other end. */
    CLEANUP(cleanup_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return error_errno(err, errno, "%s", path);
    return file_parse(fd, path, credential, out, err);
}
